//! From a listening socket to requests: accepts, bounds, drains.
//!
//! HTTP/1.1 with keep-alive, by hyper. Bounds: [`CONNECTIONS_MAX`] connections at once (more wait in the listen queue),
//! 64 KiB of request head, 30 s to send one, which is also how long an idle connection is kept.
//!
//! Shutdown: accepting stops, open requests get up to [`DRAIN_MAX`], a second wish ends them. Work that has reached the
//! blocking pool is finished in any case, when the runtime is dropped.

use std::{io, sync::Arc, time::Duration};

use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{net::TcpListener, sync::Semaphore};

use super::App;
use crate::shutdown::Shutdown;

/// Connections served at once.
pub const CONNECTIONS_MAX: usize = 1_024;
/// How long open requests may take after the wish to stop.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);
/// How long a request's head may take to arrive.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Header fields of a request.
const HEADERS_MAX: usize = 128;
/// The pause after a failed accept: the usual cause, no free file descriptors, passes as connections close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` says to drain, then until all is answered, [`DRAIN_MAX`] is over, or it says to end.
pub async fn serve(listener: TcpListener, app: App, mut shutdown: Shutdown) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accept = async {
            let slot = Arc::clone(&slots).acquire_owned().await.map_err(io::Error::other)?;
            let (stream, _) = listener.accept().await?;
            Ok::<_, io::Error>((stream, slot))
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            () = shutdown.draining() => break,
        };
        match accepted {
            Ok((stream, slot)) => {
                // Small answers must not wait for the acknowledgement of the one before.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), app.clone()));
                connections.spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, "connection ended early");
                    }
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    // ORDER: the socket is closed before the drain, so that a client that connects now is refused, not left waiting.
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = tokio::time::sleep(DRAIN_MAX) => tracing::warn!("requests still open after the drain time, dropping them"),
        () = shutdown.ended() => {}
    }
    connections.shutdown().await;
}
