//! An app's own server, as a test wants it: a listener on loopback that answers each request with fixed bytes and
//! remembers what it was sent.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a read on a connection may take.
const SOCKET_TIME_MAX: Duration = Duration::from_secs(20);

/// What a server does with one connection.
type Answering = dyn Fn(&str, &mut TcpStream) + Send + Sync;

/// A server on `127.0.0.1`. It ends when it is dropped.
#[derive(Debug)]
pub struct UpstreamServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    ends: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl UpstreamServer {
    /// One that answers every request with these bytes and closes.
    #[track_caller]
    pub fn fixed(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::with(move |_, stream| {
            // A gateway that has had enough closes first.
            match stream.write_all(&answer) {
                Ok(()) | Err(_) => {}
            }
        })
    }

    /// One that does as it is told with each request, on a thread of its own, and then closes.
    #[track_caller]
    pub fn with(answering: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let ends = Arc::new(AtomicBool::new(false));
        let answering: Arc<Answering> = Arc::new(answering);
        let (seen, ending) = (Arc::clone(&requests), Arc::clone(&ends));
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                if ending.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(mut stream) = stream else { continue };
                let (seen, answering) = (Arc::clone(&seen), Arc::clone(&answering));
                thread::spawn(move || {
                    let Some(request) = read_request(&mut stream) else { return };
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
                    answering(&request, &mut stream);
                    // It may be closed already.
                    match stream.shutdown(Shutdown::Write) {
                        Ok(()) | Err(_) => {}
                    }
                });
            }
        });
        Self { address, requests, ends, accepting: Some(accepting) }
    }

    /// Where it listens, as a `baseUrl`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The requests so far, head and body.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The only request so far.
    #[track_caller]
    pub fn request(&self) -> String {
        let requests = self.requests();
        let [request] = &requests[..] else { panic!("one request is expected: {requests:#?}") };
        request.clone()
    }
}

impl Drop for UpstreamServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // Wakes the listener; if that fails it has ended already.
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            assert!(accepting.join().is_ok() || thread::panicking(), "the server panicked");
        }
    }
}

/// A head, and the body that it announces; `None` when the connection ends before.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(SOCKET_TIME_MAX)).ok()?;
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0) {
                return Some(text);
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer).ok()? {
            0 => return None,
            length => read.extend_from_slice(&buffer[..length]),
        }
    }
}
