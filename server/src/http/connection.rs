//! From a listening socket to requests: accepts, bounds, drains.
//!
//! HTTP/1.1 with keep-alive, by hyper. Bounds: [`CONNECTIONS_MAX`] connections at once, or half of the files the process
//! may open if that is less (more wait in the listen queue), 64 KiB of request head, 30 s to send one, which is also how
//! long an idle connection is kept, and 30 s in which a client takes nothing of its answer.
//!
//! Shutdown: accepting stops; open requests, and work on files whose client has gone, get up to [`DRAIN_MAX`]; a second
//! wish ends the wait. Work that hangs beyond that is left behind: whoever owns the runtime must not wait for it either.

use std::{io, sync::Arc, time::Duration};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
};
use tokio_io_timeout::TimeoutStream;

use super::App;
use crate::{open_files, shutdown::Shutdown};

/// Connections served at once.
pub const CONNECTIONS_MAX: usize = 1_024;
/// How long open requests may take after the wish to stop.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);
/// How long a request's head may take to arrive.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a client may take none of an answer's bytes.
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Header fields of a request.
const HEADERS_MAX: usize = 128;
/// The pause after a failed accept: the usual cause, no free file descriptors, passes as connections close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` says to drain, then until all is answered, [`DRAIN_MAX`] is over, or it says to end.
pub async fn serve(listener: TcpListener, app: App, mut shutdown: Shutdown) {
    let slots = Arc::new(Semaphore::new(connections_max(open_files::limit())));
    let draining = watch::Sender::new(false);
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
                // With upgrades, for the WebSockets of external views; an upgraded connection is done here.
                let mut stream = TimeoutStream::new(stream);
                stream.set_write_timeout(Some(WRITE_TIME_MAX));
                let io = TokioIo::new(Box::pin(stream));
                let connection = builder.serve_connection(io, app.clone()).with_upgrades();
                let mut drains = draining.subscribe();
                connections.spawn(async move {
                    let mut connection = std::pin::pin!(connection);
                    // An error of the wait means that the sender, which says it, is gone: the same.
                    let told = async { drop(drains.wait_for(|drains| *drains).await) };
                    let ended = tokio::select! {
                        ended = connection.as_mut() => ended,
                        () = told => {
                            connection.as_mut().graceful_shutdown();
                            connection.await
                        }
                    };
                    if let Err(error) = ended {
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
    let done = async {
        draining.send_replace(true);
        while connections.join_next().await.is_some() {}
        app.jobs.idle().await;
    };
    tokio::select! {
        () = done => {}
        () = tokio::time::sleep(DRAIN_MAX) => tracing::warn!("requests still open after the drain time, dropping them"),
        () = shutdown.ended() => {}
    }
    connections.shutdown().await;
}

/// Connections served at once by a process that may open so many files: the other half is for the files of the apps.
fn connections_max(open_files_max: Option<u64>) -> usize {
    let half = open_files_max.and_then(|files| usize::try_from(files / 2).ok()).unwrap_or(usize::MAX);
    half.clamp(1, CONNECTIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_at_most_half_of_the_files() {
        for (files, expected) in [
            (Some(256), 128),
            (Some(2_048), 1_024),
            (Some(1_000_000), CONNECTIONS_MAX),
            (Some(0), 1),
            (Some(u64::MAX), CONNECTIONS_MAX),
            (None, CONNECTIONS_MAX),
        ] {
            assert_eq!(connections_max(files), expected, "for {files:?}");
        }
    }
}
