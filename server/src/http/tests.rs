//! What needs the service's insides: when it counts a request as open, and what it waits for. What a client sees is
//! tested over sockets, in the package of end-to-end tests.

use std::sync::mpsc;

use http_body_util::Empty;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::*;
use crate::{
    init,
    shutdown::{Trigger, channel},
};

/// How long what should happen at once may take.
const SOON: Duration = Duration::from_secs(5);

/// The gateway over the sample workspace.
struct Gateway {
    app: App,
    _folder: tempfile::TempDir,
}

/// A gateway on a socket.
struct Serving {
    address: std::net::SocketAddr,
    trigger: Trigger,
    server: tokio::task::JoinHandle<()>,
}

impl Gateway {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        init::ensure(folder.path()).unwrap();
        let state = State::open(folder.path()).unwrap();
        Self { app: app(Arc::new(state)), _folder: folder }
    }

    async fn serve(&self) -> Serving {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (trigger, shutdown) = channel();
        Serving { address, trigger, server: tokio::spawn(serve(listener, self.app.clone(), shutdown)) }
    }

    /// Starts a job that lasts until the sender is dropped; its client has gone already.
    async fn hang(&self) -> mpsc::Sender<()> {
        let (release, held) = mpsc::channel();
        let job = self.app.jobs.run::<()>(move || {
            // Ends when the sender goes.
            match held.recv() {
                Ok(()) | Err(_) => Err(ApiError::unauthorized()),
            }
        });
        assert!(timeout(Duration::from_millis(10), job).await.is_err(), "it hangs");
        release
    }
}

#[tokio::test]
async fn any_kind_of_body_type_can_be_served() {
    let gateway = Gateway::new();
    let request = Request::get("/").body(Empty::<Bytes>::new()).unwrap();
    assert_eq!(Service::call(&gateway.app, request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn an_open_request_is_finished_before_the_server_stops() {
    let gateway = Gateway::new();
    let serving = gateway.serve().await;
    let mut stream = TcpStream::connect(serving.address).await.unwrap();
    // A request with a body that does not end is open until the body is given up.
    stream.write_all(b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n12").await.unwrap();
    while gateway.app.requests.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    serving.trigger.drain();
    stream.write_all(b"345").await.unwrap();
    let mut seen = String::new();
    stream.read_to_string(&mut seen).await.unwrap();
    assert!(seen.starts_with("HTTP/1.1 413"), "{seen}");
    serving.server.await.unwrap();
    assert!(TcpStream::connect(serving.address).await.is_err());
}

#[tokio::test]
async fn work_on_files_is_finished_before_the_server_stops_also_without_a_client() {
    let gateway = Gateway::new();
    let mut serving = gateway.serve().await;
    let release = gateway.hang().await;
    serving.trigger.drain();
    assert!(timeout(Duration::from_millis(100), &mut serving.server).await.is_err(), "it waits");
    drop(release);
    timeout(SOON, serving.server).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_second_wish_to_stop_does_not_wait_for_work_that_hangs() {
    let gateway = Gateway::new();
    let serving = gateway.serve().await;
    let release = gateway.hang().await;
    serving.trigger.drain();
    serving.trigger.end();
    timeout(SOON, serving.server).await.unwrap().unwrap();
    drop(release);
}
