//! Http actions through the real binary and a real server: what the server is sent, what the page gets, and servers
//! that may not be asked, are slow, or mean harm.

use std::io::{Read as _, Write as _};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use flate2::{Compression, write::GzEncoder};
use linekeep_tests::server::action_target;
use linekeep_tests::upstream::UpstreamServer;
use linekeep_tests::{Reply, TestServer, Workspace};
use serde_json::{Value, json};

/// A manifest with one action of each method, on `/things/{id}`, and one storage action.
fn manifest(base_url: &str) -> String {
    let action = |name: &str, method: &str, path: &str| {
        let any = json!({"type": ["string", "number", "boolean", "null", "array", "object"]});
        json!({"name": name, "description": "d", "kind": "http", "method": method, "path": path,
            "params": {"id": any, "a": any, "b": any}})
    };
    let storage =
        json!({"name": "list", "description": "d", "kind": "storage", "op": "query", "collection": "c"});
    let actions = [
        action("get", "GET", "/things/{id}"),
        action("remove", "DELETE", "/things/{id}"),
        action("post", "POST", "/things/{id}?fixed=1"),
        action("put", "PUT", "/things/{id}"),
        action("patch", "PATCH", "/things/{id}"),
        action("plain", "GET", "/plain?fixed=1"),
        storage,
    ];
    json!({"name": "N", "description": "D", "server": {"baseUrl": base_url}, "actions": actions}).to_string()
}

/// A gateway that may ask servers on loopback, with the app `far` for this server.
fn gateway(base_url: &str) -> TestServer {
    workspace(base_url).serve()
}

fn workspace(base_url: &str) -> Workspace {
    Workspace::new()
        .app("far", &manifest(base_url))
        .security_config(json!({"ssrfWhitelist": ["127.0.0.0/8"]}))
}

/// The envelope of an exchange that took place: 200, whatever the server's status.
#[track_caller]
fn exchange(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    for (name, value) in [
        ("access-control-allow-origin", "*"),
        ("cache-control", "no-store"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{reply:?}");
    }
    reply.json()
}

fn ok(content_type: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn each_method_sends_what_the_manifest_says() {
    for (action, params, first, body) in [
        ("get", r#"{"id":"x/y","a":"b c","b":[1,2.50]}"#, "GET /things/x%2Fy?a=b+c&b=1&b=2.50", ""),
        ("remove", r#"{"id":7,"a":null}"#, "DELETE /things/7?a=", ""),
        (
            "post",
            r#"{"id":"7","a":1.50,"b":{"k":true}}"#,
            "POST /things/7?fixed=1",
            r#"{"a":1.50,"b":{"k":true}}"#,
        ),
        ("put", r#"{"id":true}"#, "PUT /things/true", "{}"),
        ("patch", r#"{"id":"è","a":"è"}"#, "PATCH /things/%C3%A8", r#"{"a":"è"}"#),
        ("plain", r#"{"a":"1"}"#, "GET /plain?fixed=1&a=1", ""),
        ("get", r#"{"id":".."}"#, "GET /things/%2E%2E", ""),
    ] {
        let upstream = UpstreamServer::fixed(ok("application/json", r#"{"done": 1.50}"#));
        let server = gateway(&upstream.url());
        let reply = server.action("far", action, params);
        assert_eq!(exchange(&reply), json!({"ok": true, "status": 200, "data": {"done": 1.5}}));
        assert_eq!(reply.text(), r#"{"ok":true,"status":200,"data":{"done": 1.50}}"#, "digits are kept");
        let request = upstream.request();
        assert!(request.starts_with(&format!("{first} HTTP/1.1\r\n")), "{request}");
        assert_eq!(request.split_once("\r\n\r\n").map(|(_, body)| body), Some(body), "{request}");
        assert_eq!(request.contains("content-type: application/json\r\n"), !body.is_empty(), "{request}");
    }
}

#[test]
fn nothing_of_the_callers_request_goes_out_and_no_header_comes_back() {
    let upstream = UpstreamServer::fixed(
        "HTTP/1.1 200 OK\r\nSet-Cookie: theirs=1\r\nX-Theirs: 1\r\nRefresh: 0\r\nContent-Length: 2\r\n\r\nok",
    );
    let server = gateway(&upstream.url());
    let bearer = format!("Bearer {}", server.secret());
    let reply = server.send(
        "GET",
        &action_target("far", "get", r#"{"id":"1"}"#),
        &[
            ("Authorization", bearer.as_bytes()),
            ("Cookie", b"ours=1"),
            ("Referer", b"http://127.0.0.1/apps/far/~token/"),
            ("X-Ours", b"1"),
            ("X-Forwarded-For", b"1.2.3.4"),
        ],
    );
    assert_eq!(exchange(&reply)["data"], "ok");
    for name in ["set-cookie", "x-theirs", "refresh"] {
        assert_eq!(reply.header(name), None);
    }
    let mut names: Vec<String> = upstream
        .request()
        .lines()
        .skip(1)
        .filter_map(|line| Some(line.split_once(':')?.0.to_owned()))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "accept-encoding", "connection", "host", "user-agent"]);
}

#[test]
fn the_servers_status_is_in_the_envelope_and_a_redirect_is_not_followed() {
    for (answer, expected) in [
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone",
            json!({"ok": false, "status": 404, "data": "none"}),
        ),
        ("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", json!({"ok": false, "status": 500, "data": ""})),
        (
            "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc",
            json!({"ok": true, "status": 204, "data": ""}),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=latin1\r\n\r\ncaff\u{e8}",
            json!({"ok": true, "status": 200, "data": "caff\u{c3}\u{a8}"}),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\nNaN",
            json!({"ok": true, "status": 200, "data": "NaN"}),
        ),
    ] {
        let upstream = UpstreamServer::fixed(answer);
        assert_eq!(exchange(&gateway(&upstream.url()).action("far", "get", r#"{"id":"1"}"#)), expected);
    }
    let inner = UpstreamServer::fixed(ok("text/plain", "inner"));
    let location =
        format!("HTTP/1.1 302 Found\r\nLocation: {}/\r\nContent-Length: 4\r\n\r\nmove", inner.url());
    let upstream = UpstreamServer::fixed(location);
    let envelope = exchange(&gateway(&upstream.url()).action("far", "get", r#"{"id":"1"}"#));
    assert_eq!(envelope, json!({"ok": false, "status": 302, "data": "move"}));
    assert_eq!(inner.requests(), [""; 0]);
}

#[test]
fn parameters_are_checked_before_anybody_is_asked() {
    let upstream = UpstreamServer::fixed(ok("text/plain", ""));
    let server = gateway(&upstream.url());
    assert_eq!(server.action("far", "get", "{}").error(400), "missing path parameter 'id'");
    assert_eq!(server.action("far", "get", r#"{"id":""}"#).error(400), "path parameter 'id' is empty");
    assert_eq!(
        server.action("far", "get", r#"{"id":"1","x":1}"#).error(400),
        "invalid params: unknown params: x"
    );
    assert_eq!(server.action("far", "get", r#"{"id":1e400}"#).status, 400);
    let head =
        server.send("HEAD", &format!("{}&token={}", action_target("far", "get", "{}"), server.secret()), &[]);
    assert_eq!(head.status, 405);
    assert_eq!(upstream.requests(), [""; 0]);
}

#[test]
fn blocked_servers_are_403_in_every_spelling_and_are_not_connected_to() {
    let upstream = UpstreamServer::fixed(ok("text/plain", "reached"));
    let port = upstream.port();
    let hosts = [
        "127.0.0.1",
        "localhost",
        "LOCALHOST.",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "0",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fec0::1]",
        "[ff02::1]",
        "169.254.169.254",
        "0xa9fea9fe",
        "224.0.0.1",
        "255.255.255.255",
        "256.1.1.1",
        "no-such-host.invalid",
    ];
    let mut workspace = Workspace::new();
    for (index, host) in hosts.iter().enumerate() {
        workspace = workspace.app(&format!("a{index}"), &manifest(&format!("http://{host}:{port}")));
    }
    let server = workspace.serve();
    for (index, host) in hosts.iter().enumerate() {
        let error = server.action(&format!("a{index}"), "get", r#"{"id":"1"}"#).error(403);
        assert!(error.starts_with("blocked server target: "), "{host}: {error}");
    }
    assert_eq!(upstream.requests(), [""; 0]);
}

#[test]
fn a_range_of_the_owner_opens_just_that() {
    let upstream = UpstreamServer::fixed(ok("text/plain", "reached"));
    let one = upstream.url();
    let two = one.replace("127.0.0.1", "127.0.0.2");
    let server = Workspace::new()
        .app("one", &manifest(&one))
        .app("two", &manifest(&two))
        .security_config(json!({"ssrf_whitelist": ["127.0.0.1/32"]}))
        .serve();
    assert_eq!(exchange(&server.action("one", "get", r#"{"id":"1"}"#))["data"], "reached");
    let error = server.action("two", "get", r#"{"id":"1"}"#).error(403);
    assert_eq!(error, "blocked server target: '127.0.0.2' is a loopback address");
}

#[test]
fn proxy_variables_are_not_looked_at() {
    let proxy = UpstreamServer::fixed(ok("text/plain", "through the proxy"));
    let upstream = UpstreamServer::fixed(ok("text/plain", "direct"));
    let mut workspace = workspace(&upstream.url());
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        workspace = workspace.variable(name, &proxy.url());
    }
    let server = workspace.serve();
    assert_eq!(exchange(&server.action("far", "get", r#"{"id":"1"}"#))["data"], "direct");
    assert!(upstream.request().starts_with("GET /things/1 HTTP/1.1\r\n"));
    assert_eq!(proxy.requests(), [""; 0]);
}

#[test]
fn what_a_server_sends_costs_no_more_memory_than_the_limit_allows() {
    const SIZE: usize = 256 << 20;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..SIZE / 65_536 {
        encoder.write_all(&vec![0; 65_536]).expect("a vector takes it");
    }
    let bomb = encoder.finish().expect("a vector takes it");
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n".to_vec();
    answer.extend_from_slice(&bomb);
    let endless = |piece: &'static [u8]| {
        UpstreamServer::with(move |_, stream| {
            let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            while sent.is_ok() {
                sent = stream.write_all(piece);
            }
        })
    };
    let servers = [
        UpstreamServer::fixed(answer),
        endless(b"A: b\r\n"),
        endless(b"\r\nbody body body body body body body body"),
        UpstreamServer::with(|_, stream| {
            while stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").is_ok() {}
        }),
    ];
    let mut workspace = Workspace::new().security_config(json!({"ssrfWhitelist": ["127.0.0.0/8"]}));
    for (index, upstream) in servers.iter().enumerate() {
        workspace = workspace.app(&format!("a{index}"), &manifest(&upstream.url()));
    }
    let server = workspace.serve();
    let Some(before) = server.memory_peak_bytes() else { return };
    for round in 0..5 {
        for index in 0..servers.len() {
            let error = server.action(&format!("a{index}"), "get", r#"{"id":"1"}"#).error(502);
            assert!(!error.contains("within"), "round {round}, server {index}: {error}");
        }
    }
    let grown = server.memory_peak_bytes().map(|peak| peak - before);
    assert!(grown.is_some_and(|grown| grown < 24 << 20), "grown by {grown:?} bytes");
}

#[test]
fn an_answer_over_the_limit_is_502_and_one_at_it_passes() {
    let exact = UpstreamServer::fixed(ok("text/plain", &"a".repeat(524_288)));
    let envelope = exchange(&gateway(&exact.url()).action("far", "get", r#"{"id":"1"}"#));
    assert_eq!(envelope["data"].as_str().map(str::len), Some(524_288));
    let over = UpstreamServer::fixed(ok("text/plain", &"a".repeat(524_289)));
    let error = gateway(&over.url()).action("far", "get", r#"{"id":"1"}"#).error(502);
    assert_eq!(error, "server response exceeds 524288 bytes");
    let endless = UpstreamServer::with(|_, stream| {
        let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while sent.is_ok() {
            sent = stream.write_all(&[b'a'; 16_384]);
        }
    });
    assert_eq!(gateway(&endless.url()).action("far", "get", r#"{"id":"1"}"#).error(502), error);
}

#[test]
fn the_whole_exchange_has_one_deadline() {
    let dripping = UpstreamServer::with(|_, stream| {
        let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while sent.is_ok() {
            std::thread::sleep(Duration::from_millis(50));
            sent = stream.write_all(b"a");
        }
    });
    let server = workspace(&dripping.url()).apps_config(json!({"httpTimeoutS": 1.5})).serve();
    let started = Instant::now();
    let error = server.action("far", "get", r#"{"id":"1"}"#).error(502);
    assert_eq!(error, "request to app server failed: no complete answer within 1.5 s");
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(1_500) && took < Duration::from_secs(6), "{took:?}");
}

#[test]
fn slow_servers_hold_up_nobody_else() {
    let (release, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let slow = UpstreamServer::with(move |_, stream| {
        // The gateway closes when the test is over, or the deadline.
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(_) | Err(_) => drop(held.lock()),
        }
    });
    let server = workspace(&slow.url()).file("far/data/c.jsonl", "{\"id\":\"1\"}\n").serve();
    let target = format!("{}&token={}", action_target("far", "get", r#"{"id":"1"}"#), server.secret());
    let request = linekeep_tests::http::request("GET", &target, &[]);
    let mut waiting = Vec::new();
    for _ in 0..64 {
        let mut connection = server.connect();
        connection.send(&request);
        waiting.push(connection);
    }
    let until = Instant::now() + Duration::from_secs(15);
    while slow.requests().len() < 64 {
        assert!(Instant::now() < until, "{} requests arrived", slow.requests().len());
        std::thread::sleep(Duration::from_millis(10));
    }
    let started = Instant::now();
    assert_eq!(server.ok("far", "list", "{}")["count"], 1);
    let error = server.action("far", "get", r#"{"id":"1"}"#).error(503);
    assert_eq!(error, "64 requests to app servers are under way already, try again");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    // Clients that go away give their places back.
    drop(waiting);
    drop(release);
    let until = Instant::now() + Duration::from_secs(10);
    while slow.requests().len() < 65 {
        assert!(Instant::now() < until, "no place is given back");
        let mut connection = server.connect();
        connection.send(&request);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn no_secret_and_no_address_reaches_the_log() {
    let upstream = UpstreamServer::fixed("nonsense");
    let server = workspace(&upstream.url()).log_level("trace").serve();
    let error = server.action("far", "get", r#"{"id":"private-value"}"#).error(502);
    assert!(error.starts_with("request to app server failed: "), "{error}");
    let secret = server.secret().to_owned();
    let log = server.stop().log;
    assert!(!log.contains(&secret) && !log.contains("private-value"), "{log}");
}

#[test]
fn a_bad_setting_stops_the_start_and_says_what_is_allowed() {
    for (apps, security, expected) in [
        (
            json!({"httpTimeoutS": 0.5}),
            json!({}),
            "apps.httpTimeoutS is 0.5, allowed is a number of seconds from 1 to 120",
        ),
        (
            json!({"http_timeout_s": 121}),
            json!({}),
            "apps.http_timeout_s is 121, allowed is a number of seconds from 1 to 120",
        ),
        (
            json!({}),
            json!({"ssrfWhitelist": ["10.0.0.0/8", "localhost"]}),
            "security.ssrfWhitelist is \"localhost\", allowed is a list of address ranges like 127.0.0.0/8",
        ),
    ] {
        let workspace = Workspace::new();
        let config = json!({"apps": apps, "security": security}).to_string();
        let path = workspace.data_dir().join("workspace/config.json");
        std::fs::write(&path, config).expect("a file can be written");
        let cli = linekeep_tests::process::Cli::new(workspace.data_dir());
        let data_dir = workspace.data_dir().to_str().expect("paths are UTF-8");
        let outcome = cli.run(["serve", "--port", "0", "--data-dir", data_dir]);
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stderr.contains(expected), "{outcome:?}");
    }
}
