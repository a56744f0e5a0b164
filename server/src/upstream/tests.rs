//! Exchanges with real sockets: what goes out to the byte, and servers that mean harm, each with the bound that ends
//! it.

use std::{net::IpAddr, sync::Mutex};

use linekeep_engine::Fields;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::apps::manifest::{HttpAction, HttpMethod, Server};

/// How long a well-behaved exchange may take here.
const LIMIT: Duration = Duration::from_secs(20);

/// One answer a name.
#[derive(Debug, Default)]
struct Names(Mutex<Vec<Vec<IpAddr>>>);

impl Resolve for Names {
    fn resolve(&self, _name: &str) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.is_empty() { Vec::new() } else { answers.remove(0) };
        Box::pin(async move { Ok(answer) })
    }
}

fn upstream(allowed: &[&str]) -> Upstream {
    let allowed = allowed.iter().map(|range| range.parse().unwrap()).collect();
    Upstream::new(TargetPolicy::new(allowed), Arc::new(Names::default()))
}

fn plan(base: &str, method: HttpMethod, path: &str, params: &str) -> Plan {
    let server = Server { base_url: base.to_owned(), auth: None };
    let action = HttpAction { method, path: path.to_owned() };
    Plan::new(&server, &action, Fields::parse(params.as_bytes()).unwrap()).unwrap()
}

/// A server that reads one request's head, says `answer`, then `more` for ever, and gives what it read.
async fn serve(answer: Vec<u8>, more: &'static [u8]) -> (u16, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut read = Vec::new();
        while !read.windows(4).any(|window| window == b"\r\n\r\n") {
            let mut buffer = [0; 4096];
            let length = stream.read(&mut buffer).await.unwrap();
            read.extend_from_slice(&buffer[..length]);
            if length == 0 {
                break;
            }
        }
        let mut sent = stream.write_all(&answer).await;
        while sent.is_ok() && !more.is_empty() {
            sent = stream.write_all(more).await;
        }
        String::from_utf8(read).unwrap()
    });
    (port, serving)
}

async fn ask(answer: &[u8], more: &'static [u8], limit: Duration) -> Result<Reply, Failure> {
    let (port, serving) = serve(answer.to_vec(), more).await;
    let plan = plan(&format!("http://127.0.0.1:{port}"), HttpMethod::Get, "/", "{}");
    let reply = upstream(&["127.0.0.0/8"]).ask(plan, limit).await;
    // The server's write fails once the gateway has closed: a server that is let go ends.
    tokio::time::timeout(LIMIT, serving).await.expect("the connection is closed").unwrap();
    reply
}

async fn good(answer: &[u8]) -> (u16, String) {
    let reply = ask(answer, b"", LIMIT).await.unwrap();
    (reply.status.as_u16(), String::from_utf8(reply.body).unwrap())
}

async fn bad(answer: &[u8], more: &'static [u8]) -> String {
    ask(answer, more, LIMIT).await.unwrap_err().to_string()
}

#[tokio::test]
async fn the_request_is_what_the_action_says_and_nothing_else() {
    let (port, serving) = serve(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), b"").await;
    let base = format!("http://127.0.0.1:{port}/api");
    let plan_of_get = plan(&base, HttpMethod::Get, "/x/{id}", r#"{"id":"7","a":"b c"}"#);
    upstream(&["127.0.0.1"]).ask(plan_of_get, LIMIT).await.unwrap();
    let mut lines: Vec<String> = serving.await.unwrap().trim_end().lines().map(str::to_owned).collect();
    let first = lines.remove(0);
    lines.sort_unstable();
    assert_eq!(first, "GET /api/x/7?a=b+c HTTP/1.1");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        lines,
        [
            "accept-encoding: gzip, deflate",
            "accept: */*",
            "connection: close",
            &format!("host: 127.0.0.1:{port}"),
            &format!("user-agent: linekeep/{version}"),
        ]
    );

    let (port, serving) = serve(b"HTTP/1.1 201 Created\r\n\r\n".to_vec(), b"").await;
    let plan_of_post = plan(&format!("http://127.0.0.1:{port}"), HttpMethod::Post, "/x", r#"{"a":1.50}"#);
    assert_eq!(upstream(&["127.0.0.1"]).ask(plan_of_post, LIMIT).await.unwrap().status, 201);
    let request = serving.await.unwrap();
    assert!(
        request.contains("content-type: application/json\r\n") && request.contains("content-length: 10\r\n")
    );
}

#[tokio::test]
async fn answers_of_every_framing_are_read() {
    assert_eq!(good(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab").await, (200, "ab".to_owned()));
    assert_eq!(good(b"HTTP/1.1 200 OK\r\n\r\nto the end").await, (200, "to the end".to_owned()));
    assert_eq!(good(b"HTTP/1.0 404 Not Found\r\n\r\nab").await, (404, "ab".to_owned()));
    let chunked =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\na\r\n1\r\nb\r\n0\r\nT: v\r\n\r\n";
    assert_eq!(good(chunked).await, (200, "ab".to_owned()));
    let interim =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\nab";
    assert_eq!(good(interim).await, (200, "ab".to_owned()));
    assert_eq!(good(b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nab").await, (204, String::new()));
    // What comes after the announced length is not the answer's.
    assert_eq!(good(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc").await, (200, "a".to_owned()));
}

#[tokio::test]
async fn a_redirect_is_an_answer() {
    let (port, serving) = serve(Vec::new(), b"").await;
    let answer = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{port}/\r\nSet-Cookie: a=b\r\nContent-Length: 4\r\n\r\nmove"
    );
    let reply = ask(answer.as_bytes(), b"", LIMIT).await.unwrap();
    assert_eq!(reply.envelope(), br#"{"ok":false,"status":302,"data":"move"}"#);
    assert!(!serving.is_finished(), "nobody connected to the place it points to");
    serving.abort();
}

#[tokio::test]
async fn a_body_without_end_is_cut_at_the_limit() {
    const A: &[u8] = &[b'a'; 16 * 1024];
    let over = "server response exceeds 524288 bytes";
    assert_eq!(bad(b"HTTP/1.1 200 OK\r\n\r\n", A).await, over);
    assert_eq!(bad(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", A).await, over);
    let chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(bad(chunk, b"4\r\nabcd\r\n").await, over);
}

#[tokio::test]
async fn a_head_and_interim_answers_without_end_are_cut() {
    for (answer, more) in [
        (&b"HTTP/1.1 200 OK\r\n"[..], &b"A: b\r\n"[..]),
        (b"HTTP/1.1 200 OK\r\nA: ", b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"Trailer: of many\r\n"),
        // Stored blocks of no bytes: a stream that goes on and gives nothing.
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\n\r\n", b"\x00\x00\x00\xff\xff"),
    ] {
        let error = bad(answer, more).await;
        assert!(error.starts_with("request to app server failed: "), "{error}");
        assert!(!error.contains("within"), "it is not the deadline that ends it: {error}");
    }
}

#[tokio::test]
async fn answers_that_break_off_or_are_no_http_fail() {
    for answer in [
        &b""[..],
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"220 mail.test ESMTP\r\n",
        b"SSH-2.0-x\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"HTTP/1.1 200 OK\r\nA b: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nab",
    ] {
        let error = bad(answer, b"").await;
        assert!(error.starts_with("request to app server failed: "), "{}: {error}", answer.escape_ascii());
    }
    // Bare line feeds end lines: old servers do that, and no second reader of the same bytes could disagree.
    assert_eq!(good(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nab").await, (200, "ab".to_owned()));
}

#[tokio::test]
async fn one_deadline_ends_silence_and_dripping() {
    let limit = Duration::from_millis(300);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let dripping = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                while sent.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    sent = stream.write_all(b"a").await;
                }
            });
        }
    });
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_base = format!("http://127.0.0.1:{}", silent.local_addr().unwrap().port());
    for base in [base.clone(), silent_base.clone(), silent_base.replace("http:", "https:")] {
        let started = Instant::now();
        let plan = plan(&base, HttpMethod::Get, "/", "{}");
        let failure = upstream(&["127.0.0.1"]).ask(plan, limit).await.unwrap_err();
        assert_eq!(failure, Failure::TimedOut(limit), "{base}");
        assert_eq!(failure.to_string(), "request to app server failed: no complete answer within 0.3 s");
        assert!(started.elapsed() < LIMIT / 4, "{base}: {:?}", started.elapsed());
    }
    dripping.abort();
}

#[tokio::test]
async fn a_server_that_is_not_there_or_has_no_tls_is_a_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let plan_of = |base: String| plan(&base, HttpMethod::Get, "/", "{}");
    let failure = upstream(&["127.0.0.1"]).ask(plan_of(format!("http://127.0.0.1:{port}")), LIMIT).await;
    assert_eq!(failure.unwrap_err().to_string(), "request to app server failed: connection refused");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream.flush().await.unwrap();
    });
    let failure = upstream(&["127.0.0.1"]).ask(plan_of(format!("https://127.0.0.1:{port}")), LIMIT).await;
    let failure = failure.unwrap_err().to_string();
    assert!(failure.starts_with("request to app server failed: no TLS connection: "), "{failure}");
    serving.abort();
}

#[tokio::test]
async fn the_judged_address_is_the_one_connected_to() {
    // The name's first answer is a server that is allowed; from the second on it would be one that is not.
    let (port, serving) = serve(b"HTTP/1.1 200 OK\r\n\r\nthe judged one".to_vec(), b"").await;
    let names = Names(Mutex::new(vec![vec![[127, 0, 0, 1].into()], vec![[127, 0, 0, 2].into()]]));
    let policy = TargetPolicy::new(vec!["127.0.0.1/32".parse().unwrap()]);
    let upstream = Upstream::new(policy, Arc::new(names));
    let plan = || plan(&format!("http://rebind.test:{port}"), HttpMethod::Get, "/", "{}");
    let reply = upstream.ask(plan(), LIMIT).await.unwrap();
    assert_eq!(reply.body, b"the judged one");
    let request = serving.await.unwrap();
    assert!(request.contains(&format!("host: rebind.test:{port}\r\n")), "the name stays in Host: {request}");
    let failure = upstream.ask(plan(), LIMIT).await.unwrap_err().to_string();
    assert_eq!(
        failure,
        "blocked server target: the name 'rebind.test' leads to 127.0.0.2, a loopback address"
    );
}

#[tokio::test]
async fn a_blocked_server_is_never_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in
        ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "0", "[::ffff:127.0.0.1]", "[::ffff:0:127.0.0.1]"]
    {
        let plan = plan(&format!("http://{host}:{port}"), HttpMethod::Get, "/", "{}");
        let failure = upstream(&[]).ask(plan, LIMIT).await.unwrap_err();
        assert!(matches!(failure, Failure::Blocked(_)), "{host}: {failure}");
        assert_eq!(ApiError::from(failure).status, 403);
    }
    let nobody = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(nobody.is_err(), "somebody connected");
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_is_dead() {
    let (port, _serving) = serve(b"HTTP/1.1 200 OK\r\n\r\nab".to_vec(), b"").await;
    // Nobody listens on 127.0.0.3 at that port.
    let names = Names(Mutex::new(vec![vec![[127, 0, 0, 3].into(), [127, 0, 0, 1].into()]]));
    let upstream = Upstream::new(TargetPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]), Arc::new(names));
    let plan = plan(&format!("http://two.test:{port}"), HttpMethod::Get, "/", "{}");
    assert_eq!(upstream.ask(plan, LIMIT).await.unwrap().body, b"ab");
}

#[tokio::test]
async fn beyond_the_bound_the_answer_is_503_at_once() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://127.0.0.1:{}", silent.local_addr().unwrap().port());
    let upstream = upstream(&["127.0.0.1"]);
    let plan = || plan(&base, HttpMethod::Get, "/", "{}");
    let mut waiting = JoinSet::new();
    for _ in 0..EXCHANGES_MAX {
        let (upstream, plan) = (upstream.clone(), plan());
        waiting.spawn(async move { upstream.ask(plan, LIMIT).await });
    }
    while upstream.slots.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let failure = upstream.ask(plan(), LIMIT).await.unwrap_err();
    assert_eq!(failure.to_string(), "64 requests to app servers are under way already, try again");
    assert_eq!(ApiError::from(failure).status, 503);
    // A caller that goes away gives its place back.
    waiting.shutdown().await;
    assert_eq!(upstream.slots.available_permits(), EXCHANGES_MAX);
}

#[tokio::test]
async fn a_certificate_must_be_of_the_name_and_vouched_for() {
    use tokio_rustls::{
        TlsAcceptor,
        rustls::{ServerConfig, pki_types::PrivateKeyDer},
    };

    let own = rcgen::generate_simple_self_signed(vec!["tls.test".to_owned()]).unwrap();
    let certificate = own.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let name = stream.get_ref().1.server_name().unwrap_or("no name").to_owned();
            let mut head = [0; 4096];
            let length = stream.read(&mut head).await.unwrap();
            assert!(head[..length].ends_with(b"\r\n\r\n"));
            stream.write_all(format!("HTTP/1.1 200 OK\r\n\r\n{name}").as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    let ask = async |name: &str, trusted: bool| {
        let names = Names(Mutex::new(vec![vec![[127, 0, 0, 1].into()]]));
        let mut upstream =
            Upstream::new(TargetPolicy::new(vec!["127.0.0.1".parse().unwrap()]), Arc::new(names));
        if trusted {
            let mut roots = RootCertStore::empty();
            roots.add(certificate.clone()).unwrap();
            upstream.tls = Arc::new(tls_config(roots));
        }
        let plan = plan(&format!("https://{name}:{port}"), HttpMethod::Get, "/", "{}");
        let reply = upstream.ask(plan, LIMIT).await.map_err(|failure| failure.to_string());
        reply.map(|reply| String::from_utf8(reply.body).unwrap())
    };
    assert_eq!(ask("tls.test", true).await.unwrap(), "tls.test");
    for (name, trusted) in [("tls.test", false), ("other.test", true), ("127.0.0.1", true)] {
        let error = ask(name, trusted).await.unwrap_err();
        let expected = "request to app server failed: no TLS connection: invalid peer certificate";
        assert!(error.starts_with(expected), "{name}: {error}");
    }
    serving.abort();
}
