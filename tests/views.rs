//! External views through the real binary and a real server: what is passed on, what stays here, upgrades.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use linekeep_tests::upstream::UpstreamServer;
use linekeep_tests::{TestServer, Workspace};
use serde_json::json;

fn manifest(base_url: &str) -> String {
    json!({"name": "N", "description": "D", "server": {"baseUrl": base_url}, "view": {"kind": "external"}})
        .to_string()
}

fn workspace(base_url: &str) -> Workspace {
    Workspace::new()
        .app("haus", &manifest(base_url))
        .file("haus/app/index.html", "the app's own page")
        .security_config(json!({"ssrfWhitelist": ["127.0.0.0/8"]}))
}

fn gateway(base_url: &str) -> (TestServer, String) {
    let server = workspace(base_url).serve();
    let token = server.app_token("haus");
    (server, token)
}

/// Sends bytes and gives the whole answer as text; the gateway is asked to close.
fn raw(server: &TestServer, request: &str) -> String {
    String::from_utf8(server.raw(request.as_bytes())).expect("the answer is text")
}

#[test]
fn a_page_and_what_it_loads_come_from_the_server() {
    let upstream = UpstreamServer::with(|request, stream| {
        let target = request.split(' ').nth(1).unwrap_or_default();
        let body = format!("asked {target}");
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nSet-Cookie: sid=1; Path=/; HttpOnly\r\n\
             X-Frame-Options: DENY\r\nClear-Site-Data: \"*\"\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).expect("the gateway reads");
    });
    let (server, token) = gateway(&format!("{}/ui/", upstream.url()));
    for (path, asked) in [
        ("/", "/ui/"),
        ("/a/b.js", "/ui/a/b.js"),
        ("/a%2Fb/?x=1&x=2", "/ui/a%2Fb/?x=1&x=2"),
        (&format!("/?token={token}&theme=dark"), "/ui/?theme=dark"),
    ] {
        let reply = server.get(&format!("/apps/haus/~{token}{path}"));
        assert_eq!((reply.status, reply.text()), (200, format!("asked {asked}").as_str()));
        assert_eq!(reply.header("content-security-policy"), Some("sandbox allow-scripts allow-forms"));
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(reply.header("set-cookie"), Some("app-haus.sid=1; Path=/apps/haus/; HttpOnly"));
        assert_eq!((reply.header("x-frame-options"), reply.header("clear-site-data")), (None, None));
    }
    let plain = server.get(&format!("/apps/haus/?token={token}"));
    assert_eq!(plain.text(), "asked /ui/");
    let head = server.send("HEAD", &format!("/apps/haus/~{token}/"), &[]);
    assert_eq!((head.status, head.header("content-length")), (200, Some("10")));
    for climbing in ["/../x", "/%2e%2e/x", "/a/..%2f..%2fx"] {
        let reply = server.get(&format!("/apps/haus/~{token}{climbing}"));
        assert_eq!(reply.status, 403, "{climbing}: {}", reply.text());
    }
}

#[test]
fn no_credential_of_the_gateway_reaches_the_server() {
    let upstream = UpstreamServer::fixed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let (server, token) = gateway(&upstream.url());
    let secret = server.secret().to_owned();
    let bearer = format!("Bearer {secret}");
    let referer = format!("{}/apps/haus/~{token}/", server.url());
    let cookie = format!("other={secret}; app-haus.sid=1; app-haus.t={token}");
    let reply = server.send(
        "GET",
        &format!("/apps/haus/~{token}/x?token={token}&a=1&b={secret}"),
        &[
            ("Authorization", bearer.as_bytes()),
            ("X-Jenny-Auth", secret.as_bytes()),
            ("Referer", referer.as_bytes()),
            ("X-Current-Url", referer.as_bytes()),
            ("Cookie", cookie.as_bytes()),
            ("X-Csrf", b"theirs"),
        ],
    );
    assert_eq!(reply.status, 200, "{}", reply.text());
    let request = upstream.request();
    assert!(request.starts_with("GET /x?a=1 HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("cookie: sid=1\r\n") && request.contains("x-csrf: theirs\r\n"), "{request}");
    assert!(!request.contains(&token) && !request.contains(&secret), "{request}");
}

#[test]
fn who_may_not_open_the_app_does_not_reach_its_server() {
    let upstream = UpstreamServer::fixed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let server = workspace(&upstream.url()).app("other", &manifest(&upstream.url())).serve();
    let other = server.app_token("other");
    for target in
        ["/apps/haus/", "/apps/haus/~wrong/", &format!("/apps/haus/~{other}/"), "/apps/haus/?token=x"]
    {
        assert_eq!(server.get(target).status, 401, "{target}");
    }
    let secret_in_path = format!("/apps/haus/~{}/", server.secret());
    assert_eq!(server.get(&secret_in_path).status, 401);
    assert_eq!(upstream.requests(), [""; 0]);
}

#[test]
fn a_blocked_server_a_broken_one_and_a_switched_off_one_say_so() {
    let upstream = UpstreamServer::fixed("nonsense");
    let (server, token) = gateway(&upstream.url());
    let reply = server.get(&format!("/apps/haus/~{token}/"));
    assert_eq!(reply.status, 502);
    assert!(reply.text().starts_with("request to app server failed: "), "{}", reply.text());
    drop(server);

    let server = workspace(&upstream.url()).security_config(json!({})).serve();
    let token = server.app_token("haus");
    let reply = server.get(&format!("/apps/haus/~{token}/"));
    assert_eq!(
        (reply.status, reply.text()),
        (403, "blocked server target: '127.0.0.1' is a loopback address")
    );
    drop(server);

    let server = workspace(&upstream.url()).apps_config(json!({"enabled": false})).serve();
    let reply = server.get(&format!("/apps/haus/~{}/", server.app_token("haus")));
    assert_eq!(reply.status, 503);
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn a_page_may_send_bodies_and_is_told_so_beforehand() {
    let upstream = UpstreamServer::fixed("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok");
    let (server, token) = gateway(&upstream.url());
    let post = |length: usize| {
        format!(
            "POST /apps/haus/~{token}/things HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: null\r\nContent-Type: text/x\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{}",
            "b".repeat(length)
        )
    };
    let answer = raw(&server, &post(5));
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n") && answer.ends_with("\r\n\r\nok"), "{answer}");
    let request = upstream.request();
    assert!(
        request.starts_with("POST /things HTTP/1.1\r\n") && request.ends_with("\r\n\r\nbbbbb"),
        "{request}"
    );
    assert!(request.contains(&format!("origin: {}\r\n", upstream.url())), "{request}");
    let answer = raw(&server, &post(1024 * 1024 + 1));
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");

    let preflight = raw(
        &server,
        &format!(
            "OPTIONS /apps/haus/~{token}/things HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nOrigin: null\r\n\
             Access-Control-Request-Method: PUT\r\nAccess-Control-Request-Headers: x-a\r\n\r\n"
        ),
    );
    assert!(preflight.starts_with("HTTP/1.1 204 No Content\r\n"), "{preflight}");
    for line in [
        "access-control-allow-origin: *\r\n",
        "access-control-allow-methods: GET, HEAD, POST, PUT, PATCH, DELETE\r\n",
        "access-control-allow-headers: x-a\r\n",
    ] {
        assert!(preflight.contains(line), "{line} in {preflight}");
    }
    assert_eq!(upstream.requests().len(), 1, "neither the large body nor the preflight got there");
    // Without a view a body is still refused.
    assert_eq!(server.send("POST", "/apps/none/", &[]).status, 405);
    assert_eq!(server.send("TRACE", &format!("/apps/haus/~{token}/"), &[]).status, 405);
}

#[test]
fn a_redirect_within_the_server_stays_in_the_app() {
    for (location, expected) in [
        ("/ui/login?a=1", Some("/login?a=1")),
        ("/elsewhere", Some("/")),
        ("next", None),
        ("https://example.org/", None),
    ] {
        let upstream = UpstreamServer::fixed(format!(
            "HTTP/1.1 303 See Other\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
        ));
        let (server, token) = gateway(&format!("{}/ui", upstream.url()));
        let reply = server.get(&format!("/apps/haus/~{token}/"));
        let expected = expected.map(|rest| format!("/apps/haus/~{token}{rest}"));
        assert_eq!(
            (reply.status, reply.header("location")),
            (303, Some(expected.as_deref().unwrap_or(location)))
        );
    }
}

#[test]
fn an_answer_is_passed_on_while_it_comes_and_has_no_limit_of_size() {
    let upstream = UpstreamServer::with(|request, stream| {
        if request.starts_with("GET /large") {
            let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8388608\r\n\r\n");
            for _ in 0..512 {
                sent = sent.and_then(|()| stream.write_all(&[b'x'; 16_384]));
            }
            sent.expect("the gateway reads it all");
            return;
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
            .expect("the gateway reads");
        // Nothing more until the client has gone.
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(_) | Err(_) => {}
        }
    });
    let (server, token) = gateway(&upstream.url());
    let large = server.get(&format!("/apps/haus/~{token}/large"));
    assert_eq!((large.status, large.body.len()), (200, 8 << 20));

    let mut stream = TcpStream::connect(server.address()).expect("the gateway takes connections");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a read may have a limit");
    let request = format!("GET /apps/haus/~{token}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the gateway reads");
    let mut read = String::new();
    while !read.contains("data: 1\n\n") {
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).expect("the first event comes at once");
        assert_ne!(length, 0, "{read}");
        read.push_str(std::str::from_utf8(&buffer[..length]).expect("the answer is text"));
    }
}

#[test]
fn a_websocket_is_passed_both_ways_until_a_side_closes() {
    let upstream = UpstreamServer::with(|request, stream| {
        let asked = request.to_ascii_lowercase();
        assert!(
            asked.contains("connection: upgrade\r\n") && asked.contains("upgrade: websocket\r\n"),
            "{request}"
        );
        let mut sent = stream.write_all(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhello",
        );
        let mut buffer = [0; 1024];
        while sent.is_ok() {
            match stream.read(&mut buffer) {
                Ok(length) if length > 0 => sent = stream.write_all(&buffer[..length].to_ascii_uppercase()),
                Ok(_) | Err(_) => break,
            }
        }
    });
    let (server, token) = gateway(&upstream.url());
    let open = |origin: &str| {
        let mut stream = TcpStream::connect(server.address()).expect("the gateway takes connections");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a read may have a limit");
        let request = format!(
            "GET /apps/haus/~{token}/ws?token={token} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: keep-alive, Upgrade\r\n\
             Upgrade: websocket\r\nOrigin: {origin}\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("the gateway reads");
        stream
    };
    let read_until = |stream: &mut TcpStream, end: &str| {
        let mut read = String::new();
        while !read.ends_with(end) {
            let mut buffer = [0; 1024];
            let length = stream.read(&mut buffer).expect("it answers in time");
            assert_ne!(length, 0, "closed after {read:?}");
            read.push_str(std::str::from_utf8(&buffer[..length]).expect("it is text"));
        }
        read
    };
    let mut stream = open("null");
    let head = read_until(&mut stream, "\r\n\r\nhello");
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
    for word in ["one", "two"] {
        stream.write_all(word.as_bytes()).expect("the tunnel takes it");
        assert_eq!(read_until(&mut stream, &word.to_ascii_uppercase()), word.to_ascii_uppercase());
    }
    let request = upstream.request();
    assert!(request.starts_with("GET /ws HTTP/1.1\r\n") && !request.contains(&token), "{request}");
    // The other side hears of the end.
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the gateway closes");
    assert_eq!(rest, b"");

    // One that is open does not keep the gateway from stopping.
    let mut open_one = open("null");
    read_until(&mut open_one, "hello");
    let started = Instant::now();
    assert!(server.stop().status.success());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn an_upgrade_that_the_server_does_not_want_is_an_answer() {
    let upstream = UpstreamServer::fixed("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno");
    let (server, token) = gateway(&upstream.url());
    let answer = raw(
        &server,
        &format!(
            "GET /apps/haus/~{token}/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\n\r\n"
        ),
    );
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n") && answer.ends_with("\r\n\r\nno"), "{answer}");

    let unasked = UpstreamServer::fixed(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
    );
    let (server, token) = gateway(&unasked.url());
    assert_eq!(server.get(&format!("/apps/haus/~{token}/")).status, 502);
}

#[test]
fn the_install_secret_does_not_open_a_view_and_is_not_sent_in_any_spelling() {
    let upstream = UpstreamServer::with(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("the gateway reads");
    });
    let server = workspace(&upstream.url()).secret("pass phrase + 100% \u{e8} long enough").serve();
    let token = server.app_token("haus");
    let spellings = [
        "pass+phrase+%2B+100%25+%C3%A8+long+enough",
        "pass%20phrase%20%2B%20100%25%20%C3%A8%20long%20enough",
    ];
    for spelling in spellings {
        // The page reads its own address, so the secret may not stand in it.
        for path in
            [format!("/apps/haus/?token={spelling}"), format!("/apps/haus/~{token}/?token={spelling}")]
        {
            assert_eq!(server.get(&path).status, 401, "{path}");
        }
        let reply = server.get(&format!("/apps/haus/~{token}/?x={spelling}&{spelling}=1&y=2"));
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let requests = upstream.requests();
    assert_eq!(requests.len(), spellings.len(), "{requests:?}");
    assert!(requests.iter().all(|request| request.starts_with("GET /?y=2 HTTP/1.1\r\n")), "{requests:?}");
}
