//! HTTP/1.1 as bytes: what is sent is exactly what a test writes, and nothing of an answer is hidden.
//!
//! A client library would repair paths, refuse odd headers, retry and follow. Here a target goes out as it stands, a
//! connection is visible, and an answer must have a length. Chunked answers are not read: the gateway sends none.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long one read or write on a socket may take.
const SOCKET_TIME_MAX: Duration = Duration::from_secs(20);

/// An answer.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The header fields as they came, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The value of a header field that is there once; `name` in lower case.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values =
            self.headers.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} stands twice in {self:?}");
        value
    }

    /// The body as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_else(|error| panic!("{error} in the body of {self:?}"))
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The envelope of an answer of the action route, after a look at all that such answers have in common.
    #[track_caller]
    pub fn envelope(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("access-control-allow-origin"), Some("*"), "{self:?}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let envelope = self.json();
        assert_eq!(envelope["ok"], Value::Bool(status == 200), "{envelope}");
        if status != 200 {
            let keys: Vec<_> = envelope.as_object().into_iter().flatten().map(|(key, _)| key).collect();
            assert_eq!(keys, ["ok", "error"], "{envelope}");
        }
        envelope
    }

    /// The `error` of an envelope with this status.
    #[track_caller]
    pub fn error(&self, status: u16) -> String {
        let envelope = self.envelope(status);
        envelope["error"].as_str().unwrap_or_else(|| panic!("error is a text: {envelope}")).to_owned()
    }
}

/// A request in HTTP/1.1, without a body, after whose answer the gateway closes the connection.
pub fn request(method: &str, target: &str, headers: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes =
        format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// A connection to a gateway.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// What was read and not yet taken.
    unread: Vec<u8>,
}

impl Connection {
    /// Connects.
    #[track_caller]
    pub fn open(address: SocketAddr) -> Self {
        let stream =
            TcpStream::connect_timeout(&address, SOCKET_TIME_MAX).expect("the gateway takes connections");
        stream.set_read_timeout(Some(SOCKET_TIME_MAX)).expect("a read may have a limit");
        stream.set_write_timeout(Some(SOCKET_TIME_MAX)).expect("a write may have a limit");
        stream.set_nodelay(true).expect("small requests may go at once");
        Self { stream, unread: Vec::new() }
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the gateway reads");
    }

    /// Sends as much of the bytes as the gateway takes before it closes.
    pub fn send_what_is_taken(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads the next answer, which has a body.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        let mut reply = self.head();
        let length = reply.header("content-length").and_then(|length| length.parse::<usize>().ok());
        let length = length.unwrap_or_else(|| panic!("no length: {reply:?}"));
        while self.unread.len() < length {
            assert!(self.read().expect("the gateway answers in time"), "the body ends early: {reply:?}");
        }
        let rest = self.unread.split_off(length);
        reply.body = std::mem::replace(&mut self.unread, rest);
        reply
    }

    /// Reads the next answer, which is to a HEAD and has no body.
    #[track_caller]
    pub fn reply_to_head(&mut self) -> Reply {
        self.head()
    }

    /// Reads until the gateway closes the connection; a connection that was reset has ended too.
    #[track_caller]
    pub fn rest(mut self) -> Vec<u8> {
        loop {
            match self.read() {
                Ok(true) => {}
                Ok(false) => return self.unread,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return self.unread,
                Err(error) => panic!("the gateway does not close: {error}"),
            }
        }
    }

    fn head(&mut self) -> Reply {
        let end = loop {
            if let Some(end) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            let more = self.read().expect("the gateway answers in time");
            assert!(more, "closed without an answer, after {:?}", String::from_utf8_lossy(&self.unread));
        };
        let rest = self.unread.split_off(end + 4);
        let head = std::mem::replace(&mut self.unread, rest);
        let head = String::from_utf8(head).expect("the head of an answer is ASCII");
        let mut lines = head.trim_end().split("\r\n");
        let status =
            lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).and_then(|line| line.get(..3));
        let status = status.and_then(|status| status.parse().ok()).expect("an answer begins with its status");
        let headers = lines
            .map(|line| line.split_once(':').expect("a header field has a colon"))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Reply { status, headers, body: Vec::new() }
    }

    /// Reads some more; false when the gateway has closed.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = vec![0; 64 * 1024];
        let length = self.stream.read(&mut buffer)?;
        self.unread.extend_from_slice(&buffer[..length]);
        Ok(length > 0)
    }
}
