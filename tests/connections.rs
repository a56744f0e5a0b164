//! Connections: several requests on one, bodies that are not wanted, and requests that are none.

use linekeep_tests::Workspace;
use linekeep_tests::lines::lines;
use linekeep_tests::server::{SECRET, TestServer, action_target};

const ITEMS: &str = "spesa/data/items.jsonl";

fn server() -> TestServer {
    Workspace::new().fixture_app("spesa").serve()
}

/// A request that keeps the connection open.
fn keep(target: &str) -> Vec<u8> {
    format!("GET {target}&token={SECRET} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").into_bytes()
}

fn add(what: &str) -> Vec<u8> {
    keep(&action_target("spesa", "add_item", &format!(r#"{{"what":"{what}"}}"#)))
}

/// How many answers stand in what a gateway sent.
fn answers(bytes: &[u8]) -> usize {
    bytes.windows(9).filter(|window| *window == b"HTTP/1.1 ").count()
}

#[test]
fn a_connection_serves_one_request_after_another() {
    let server = server();
    let mut connection = server.connect();
    for round in 0..20 {
        connection.send(&add(&format!("round {round}")));
        let reply = connection.reply();
        assert_eq!(reply.envelope(200)["record"]["what"], format!("round {round}"));
        assert_eq!(reply.header("connection"), None);
    }
    connection.send(&keep(&action_target("spesa", "list_items", "[]")));
    connection.reply().error(400);
    connection.send(&keep("/apps/spesa/missing?x=1"));
    assert_eq!(connection.reply().status, 404);
    connection.send(&keep(&action_target("spesa", "list_items", "{}")));
    assert_eq!(connection.reply().envelope(200)["count"], 189, "an error does not end the connection");
}

#[test]
fn requests_sent_at_once_are_answered_in_order() {
    let server = server();
    let mut connection = server.connect();
    let requests: Vec<_> = (0..10).flat_map(|number| add(&format!("number {number}"))).collect();
    connection.send(&requests);
    for number in 0..10 {
        assert_eq!(connection.reply().envelope(200)["record"]["what"], format!("number {number}"));
    }
    let file = server.read(ITEMS);
    let added: Vec<_> = lines(&file)[169..].iter().map(|line| String::from_utf8_lossy(line)).collect();
    assert_eq!(added.len(), 10);
    assert!((0..10).all(|number| added[number].contains(&format!("number {number}\""))), "{added:?}");
}

#[test]
fn a_request_in_small_pieces_is_one_request() {
    let server = server();
    let mut connection = server.connect();
    for byte in add("slow") {
        connection.send(&[byte]);
    }
    assert_eq!(connection.reply().envelope(200)["record"]["what"], "slow");
}

#[test]
fn what_follows_a_refused_body_is_never_run_as_a_request() {
    let server = server();
    let smuggled = add("smuggled");
    let target = format!("{}&token={SECRET}", action_target("spesa", "list_items", "{}"));
    let request = |method: &str, headers: &str, body: &[u8]| {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n\r\n");
        [head.as_bytes(), body].concat()
    };
    let length = format!("Content-Length: {}", smuggled.len());
    let shorter = format!("Content-Length: {}", smuggled.len() / 2);
    let chunk = [format!("{:x}\r\n", smuggled.len()).as_bytes(), &smuggled, b"\r\n0\r\n\r\n"].concat();
    let far = [&vec![b'x'; 400 * 1024][..], &smuggled].concat();
    let far_length = format!("Content-Length: {}", far.len());
    let after_far = format!("Content-Length: {}", 400 * 1024);
    for (name, bytes, status) in [
        ("a body", request("POST", &length, &smuggled), Some("405")),
        ("a body of a GET", request("GET", &length, &smuggled), Some("413")),
        ("a body of a HEAD", request("HEAD", &length, &smuggled), Some("413")),
        ("after a body", request("GET", "Content-Length: 3", &[b"abc", &smuggled[..]].concat()), Some("413")),
        (
            "after a body of a POST",
            request("POST", "Content-Length: 3", &[b"abc", &smuggled[..]].concat()),
            Some("405"),
        ),
        ("half in a body", request("POST", &shorter, &smuggled), Some("405")),
        ("a chunk", request("POST", "Transfer-Encoding: chunked", &chunk), Some("405")),
        ("a chunk of a GET", request("GET", "Transfer-Encoding: chunked", &chunk), Some("413")),
        (
            "after chunks",
            request("GET", "Transfer-Encoding: chunked", &[b"1\r\nx\r\n0\r\n\r\n", &smuggled[..]].concat()),
            Some("413"),
        ),
        ("both lengths", request("POST", "Content-Length: 3\r\nTransfer-Encoding: chunked", &chunk), None),
        ("two lengths", request("POST", &format!("Content-Length: 0\r\n{length}"), &smuggled), None),
        ("a length that is none", request("GET", "Content-Length: +3", &smuggled), None),
        ("an encoding that is none", request("GET", "Transfer-Encoding: xchunked", &smuggled), None),
        ("far into a body", request("POST", &far_length, &far), None),
        ("after a large body", request("POST", &after_far, &far), None),
    ] {
        let answer = server.raw(&bytes);
        let text = String::from_utf8_lossy(&answer);
        assert!(answers(&answer) <= 1, "{name}: {text}");
        if let Some(status) = status {
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {text}");
            assert!(text.contains("connection: close\r\n"), "{name}: {text}");
        }
        assert_eq!(lines(&server.read(ITEMS)).len(), 169, "{name} was run");
    }
    assert_eq!(server.ok("spesa", "list_items", "{}")["count"], 169);
}

#[test]
fn a_body_on_the_action_route_is_413_in_an_envelope() {
    let server = server();
    let mut connection = server.connect();
    let target = format!("{}&token={SECRET}", action_target("spesa", "list_items", "{}"));
    connection.send(format!("GET {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}").as_bytes());
    let reply = connection.reply();
    assert!(reply.error(413).contains("body"), "{}", reply.text());
    assert_eq!(reply.header("connection"), Some("close"));
    assert_eq!(connection.rest(), b"", "and the connection is closed");

    let mut connection = server.connect();
    connection.send(format!("GET {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").as_bytes());
    assert_eq!(connection.reply().envelope(200)["count"], 169, "no bytes are no body");
}

#[test]
fn a_request_that_is_none_is_refused_and_the_next_connection_works() {
    let server = server();
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(100_000));
    let long_header = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(400_000));
    let many_headers = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(200));
    for bytes in [
        b"nonsense\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nno colon here\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n".to_vec(),
        b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        long_target.into_bytes(),
        long_header.into_bytes(),
        many_headers.into_bytes(),
    ] {
        let answer = server.raw(&bytes);
        let text = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
        assert!(answers(&answer) <= 1, "{text}");
    }
    for left in [&b"GET /api/apps"[..], b"", b"GET / HTTP/1.1\r\nHost:"] {
        let mut connection = server.connect();
        connection.send(left);
        drop(connection);
    }
    assert_eq!(server.ok("spesa", "list_items", "{}")["count"], 169);
}

#[test]
fn one_client_that_says_nothing_does_not_hold_up_the_others() {
    let server = server();
    let silent: Vec<_> = (0..100).map(|_| server.connect()).collect();
    let mut halfway: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for connection in &mut halfway {
        connection.send(b"GET / HTTP/1.1\r\nHost: ");
    }
    assert_eq!(server.ok("spesa", "list_items", "{}")["count"], 169);
    for connection in &mut halfway {
        connection.send(b"x\r\n\r\n");
        assert_eq!(connection.reply().status, 200);
    }
    drop(silent);
}

#[test]
fn connections_leave_room_for_the_files_however_few_may_be_open() {
    let server = Workspace::new().fixture_app("spesa").open_files_max(64).serve();
    let silent: Vec<_> = (0..60).map(|_| server.connect()).collect();
    // Those over the half wait outside; when some go, the next is served.
    drop(silent);
    assert_eq!(server.ok("spesa", "list_items", "{}")["count"], 169);
    assert!(!server.log().contains("cannot accept"), "{}", server.log());
}

#[test]
fn a_start_tells_which_collections_are_damaged_and_serves_the_rest() {
    let manifest = r#"{"name":"A","description":"a","actions":[{"name":"find","description":"f","kind":"storage","op":"query","collection":"items"}]}"#;
    let workspace = linekeep_tests::Workspace::new()
        .app("notes", manifest)
        .file("notes/data/items.jsonl", "{\"id\":\"a\"}\n{\"broken\":\n{\"id\":\"b\"}\n")
        .file("notes/data/fine.jsonl", "{\"id\":\"a\"}\n");
    let server = workspace.serve();
    assert_eq!(server.ok("notes", "find", "{}")["count"], 2);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !server.log().contains("damaged or full") {
        assert!(std::time::Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(server.log().contains("notes/data/items.jsonl"), "{}", server.log());
    assert!(!server.log().contains("fine.jsonl"), "{}", server.log());
}

#[test]
fn a_client_that_takes_nothing_of_its_answer_is_let_go() {
    use std::io::Read as _;
    const ANSWER_BYTES: usize = 32 << 20;
    let server = Workspace::new()
        .app("big", r#"{"name":"Big","actions":[]}"#)
        .file("big/app/index.html", "x")
        .file("big/app/big.txt", vec![b'x'; ANSWER_BYTES])
        .serve();
    let target = format!("/apps/big/big.txt?token={}", server.app_token("big"));
    let mut stuck = std::net::TcpStream::connect(server.address()).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    std::io::Write::write_all(&mut stuck, request.as_bytes()).unwrap();
    // Longer than a client may take none of its bytes.
    std::thread::sleep(std::time::Duration::from_secs(36));
    stuck.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    let (mut buffer, mut taken) = (vec![0; 1 << 20], 0);
    loop {
        match stuck.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => taken += count,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
                break;
            }
        }
    }
    assert!(taken < ANSWER_BYTES, "what was on its way is all that comes: {taken}");
    assert_eq!(server.get(&target).status, 200, "others are served");
}
