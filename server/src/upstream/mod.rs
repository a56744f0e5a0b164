//! Asking an app's own server: the only place where the gateway opens a connection.
//!
//! Two ask: http actions, and external views ([`view`]). The way of an exchange of a http action: [`request`] builds
//! what is asked from the action and its parameters, [`target`] turns the server's host into a connection to an address
//! that [`policy`] has judged, and [`reply`] reads the answer within bounds. hyper's client over a connection of our own,
//! not a client library with a pool: the judged address must be the one connected to, and redirects, cookies, proxy
//! variables and retries must not exist rather than be switched
//! off. TLS by rustls with ring and the root certificates of Mozilla, compiled in: the same on a phone, in a static
//! binary and in an empty container.
//!
//! Limits: one deadline for a whole exchange, look-up and last byte included; [`EXCHANGES_MAX`] at once; 512 KiB of
//! answer ([`reply::BODY_BYTES_MAX`]); [`WIRE_BYTES_MAX`] bytes read from the connection, whatever they are;
//! [`HEAD_BYTES_MAX`] bytes and [`HEADERS_MAX`] fields of its head.
//!
//! Invariants, for http actions: nothing of the caller's request but the parameters goes out, and nothing of the answer but status and
//! body comes back; a redirect is an answer like any other; no URL is logged.
//!
//! Left out on purpose: credentials for an app's server (seed: not supported yet), servers with certificates of a
//! private authority, HTTP/2, keeping connections.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::http1,
    header::{self, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout_at},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{IpAddr as PkiIpAddr, ServerName},
    },
};

use crate::ApiError;

pub mod policy;
pub mod reply;
pub mod request;
pub mod target;
pub mod view;

pub use policy::{Cidr, TargetPolicy};
pub use reply::Reply;
pub use request::{Base, Plan};
pub use target::{Resolve, SystemResolver};
pub use view::{ViewBody, ViewReply, ViewRequest};

use reply::Collector;
use target::Host;

/// Exchanges at once; beyond it the answer is 503, so that slow servers cannot use up the gateway.
pub const EXCHANGES_MAX: usize = 64;
/// Bytes read from one connection: room for the largest answer in chunks of a few bytes, and an end to interim
/// answers, chunk extensions and trailers that never stop.
pub const WIRE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of an answer's head.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Header fields of an answer.
pub const HEADERS_MAX: usize = 128;

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("linekeep/", env!("CARGO_PKG_VERSION")));

/// Why an app's server was not asked, or gave nothing to use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The parameters make no request.
    #[error("{0}")]
    Invalid(String),
    /// The server may not be asked.
    #[error("blocked server target: {0}")]
    Blocked(String),
    /// The server asks for credentials, which there are none of.
    #[error("server.auth is declared, but credentials for an app's server are not supported")]
    Credentials,
    /// [`EXCHANGES_MAX`] are under way.
    #[error("{EXCHANGES_MAX} requests to app servers are under way already, try again")]
    Busy,
    /// [`view::VIEWS_MAX`] are under way.
    #[error("{} answers of external views are under way already, try again", view::VIEWS_MAX)]
    ViewsBusy,
    /// The answer is larger than [`reply::BODY_BYTES_MAX`].
    #[error("server response exceeds {} bytes", reply::BODY_BYTES_MAX)]
    TooLarge,
    /// There was no complete answer within the deadline.
    #[error("request to app server failed: no complete answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// No connection, or an answer that is not HTTP.
    #[error("request to app server failed: {0}")]
    Upstream(String),
}

impl Failure {
    fn io(error: &io::Error) -> Self {
        tracing::debug!(%error, "no connection to an app's server");
        Self::Upstream(error.kind().to_string())
    }

    /// What hyper did not like. Its texts name no address.
    fn http(error: &hyper::Error) -> Self {
        let error = crate::error::with_causes(error);
        Self::Upstream(crate::excerpt::excerpt(&error, 200).into_owned())
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let message = failure.to_string();
        match failure {
            Failure::Invalid(_) => Self::invalid(message),
            Failure::Blocked(_) => Self::forbidden(message),
            Failure::Credentials => Self::not_implemented(message),
            Failure::Busy | Failure::ViewsBusy => Self::busy(message),
            Failure::TooLarge | Failure::TimedOut(_) | Failure::Upstream(_) => Self::bad_gateway(message),
        }
    }
}

/// The client of all app servers. Cheap to clone; clones share the limits.
#[derive(Debug, Clone)]
pub struct Upstream {
    policy: Arc<TargetPolicy>,
    resolver: Arc<dyn Resolve>,
    tls: Arc<ClientConfig>,
    slots: Arc<Semaphore>,
    views: Arc<Semaphore>,
}

impl Upstream {
    /// A client that connects to what `policy` lets pass of the addresses that `resolver` gives.
    pub fn new(policy: TargetPolicy, resolver: Arc<dyn Resolve>) -> Self {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        Self {
            policy: Arc::new(policy),
            resolver,
            tls: Arc::new(tls_config(roots)),
            slots: Arc::new(Semaphore::new(EXCHANGES_MAX)),
            views: Arc::new(Semaphore::new(view::VIEWS_MAX)),
        }
    }

    /// Asks, and reads the answer. `limit` is the time for all of it.
    ///
    /// # Errors
    /// [`Failure::Blocked`], [`Failure::Busy`], and the three of an answer that cannot be used.
    pub async fn ask(&self, plan: Plan, limit: Duration) -> Result<Reply, Failure> {
        let _slot = self.slots.try_acquire().map_err(|_full| Failure::Busy)?;
        let deadline = Instant::now() + limit;
        timeout_at(deadline, self.exchange(plan, deadline)).await.unwrap_or(Err(Failure::TimedOut(limit)))
    }

    async fn exchange(&self, plan: Plan, deadline: Instant) -> Result<Reply, Failure> {
        let stream = self.open(&plan.base, deadline).await?;
        let mut request = Request::new(Full::new(plan.body.clone().unwrap_or_default()));
        *request.method_mut() = plan.method;
        *request.uri_mut() = plan.target;
        let headers = request.headers_mut();
        headers.insert(header::HOST, host_header(&plan.base)?);
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate"));
        headers.insert(header::USER_AGENT, USER_AGENT);
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if plan.body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        // Ends the connection's task when this function ends, however it ends.
        let mut connection = JoinSet::new();
        let response = send(stream, request, &mut connection).await?;
        let (head, mut body) = response.into_parts();
        let mut collector = Collector::new(&head.headers)?;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Failure::http(&error))?;
            // Trailers are read past.
            if let Ok(data) = frame.into_data() {
                collector.add(&data)?;
            }
        }
        let content_type = reply::content_type(&head.headers);
        Ok(Reply { status: head.status, content_type, body: collector.finish()? })
    }

    /// A connection to a judged address of the server, encrypted if it is to be.
    async fn open(&self, base: &Base, deadline: Instant) -> Result<Stream, Failure> {
        let targets = target::vetted(&base.authority, base.port(), &*self.resolver, &self.policy).await?;
        let stream = target::connect(&targets, deadline).await?;
        let io: Box<dyn Socket> = if base.tls {
            let connector = TlsConnector::from(Arc::clone(&self.tls));
            let stream = connector.connect(server_name(base)?, stream).await;
            Box::new(stream.map_err(|error| {
                tracing::debug!(%error, "no TLS with an app's server");
                let reason = crate::excerpt::excerpt(&error.to_string(), 200).into_owned();
                Failure::Upstream(format!("no TLS connection: {reason}"))
            })?)
        } else {
            Box::new(stream)
        };
        Ok(Stream { io, left: WIRE_BYTES_MAX })
    }
}

/// TLS 1.2 and 1.3 with servers whose certificate one of the roots vouches for.
fn tls_config(roots: RootCertStore) -> ClientConfig {
    let mut tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the cipher suites of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tls
}

/// Sends a request and gives the head of the answer. The connection runs in `connection`.
async fn send(
    stream: Stream,
    request: Request<Full<Bytes>>,
    connection: &mut JoinSet<()>,
) -> Result<Response<Incoming>, Failure> {
    let (mut sender, driver) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Failure::http(&error))?;
    connection.spawn(async move {
        if let Err(error) = driver.with_upgrades().await {
            tracing::debug!(%error, "a connection to an app's server ended early");
        }
    });
    sender.send_request(request).await.map_err(|error| Failure::http(&error))
}

/// `Host`: as the manifest has it, without the port of the scheme.
fn host_header(base: &Base) -> Result<HeaderValue, Failure> {
    let default = if base.tls { 443 } else { 80 };
    let host = if base.port() == default { base.authority.host() } else { base.authority.as_str() };
    HeaderValue::from_str(host)
        .map_err(|_malformed| Failure::Blocked("server.baseUrl has no host".to_owned()))
}

/// The name that the server's certificate must have.
fn server_name(base: &Base) -> Result<ServerName<'static>, Failure> {
    let no_name = || Failure::Blocked("no certificate can have the name of the server".to_owned());
    match Host::parse(base.authority.host()).ok_or_else(no_name)? {
        Host::Address(address) => Ok(ServerName::IpAddress(PkiIpAddr::from(address))),
        Host::Name(name) => {
            let name = name.strip_suffix('.').unwrap_or(&name).to_owned();
            ServerName::try_from(name).map_err(|_malformed| no_name())
        }
    }
}

/// A connection in plain text or in TLS.
trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl Socket for TcpStream {}
impl Socket for tokio_rustls::client::TlsStream<TcpStream> {}

/// A connection from which so many bytes may be read.
struct Stream {
    io: Box<dyn Socket>,
    left: usize,
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let done = Pin::new(&mut self.io).poll_read(cx, buf);
        match self.left.checked_sub(buf.filled().len() - before) {
            Some(left) => self.left = left,
            None => {
                return Poll::Ready(Err(io::Error::other(format!(
                    "more than {WIRE_BYTES_MAX} bytes on the wire"
                ))));
            }
        }
        done
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
