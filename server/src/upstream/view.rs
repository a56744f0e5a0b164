//! External views: the screen of an app is the web interface of its own server (`view.kind: "external"`).
//!
//! The page is opened where every app's page is, `/apps/<slug>/~<token>/`, and what lies below that address is asked of
//! the server below its `baseUrl`. The frame shows the gateway's address, so the page works where the server itself
//! cannot be reached, and the server is reached under the same [`super::policy`] as by http actions.
//!
//! The gateway's origin is shared by all apps, so a server's page must not be of that origin: each answer carries
//! `Content-Security-Policy: sandbox` without `allow-same-origin`, and what would reach past the frame (a service
//! worker's scope, `Clear-Site-Data`, HSTS, the prompt of `WWW-Authenticate`) is dropped. The price, known and
//! accepted: addresses that begin with a slash leave the app's path, so an interface must use relative ones; and the
//! browser keeps no storage for it.
//!
//! What does not go out: the hop-by-hop headers, `Authorization`, `Referer`, the forwarding headers, every header that
//! holds the app's token or the install secret, `?token=` when it is one of them, and every cookie that is not the
//! app's own. Cookies are confined twice: their path becomes the app's, and their name gets the app's as a prefix,
//! because the browser sends a cookie to every port of a host.
//!
//! Limits: [`VIEWS_MAX`] at once, an open WebSocket counts; 1 MiB of request body, whole in memory; the time of a http
//! action for the head of the answer; after that [`IDLE_MAX`] without a byte in either direction. Answers are streamed
//! and have no limit of size.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, StatusCode, Uri,
    body::{Body, Frame, Incoming, SizeHint},
    header::{self, HeaderName, HeaderValue},
    http::uri::PathAndQuery,
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, split},
    sync::OwnedSemaphorePermit,
    task::JoinSet,
    time::{Instant, Sleep, timeout_at},
};

use super::{Base, Failure, Upstream, send};
use crate::apps::{Kept, Slug, Tokens};

/// Answers and open `WebSocket`s of views at once.
pub const VIEWS_MAX: usize = 128;
/// Bytes of a request's body.
pub const UPLOAD_BYTES_MAX: usize = 1024 * 1024;
/// How long an answer or a WebSocket may be silent.
pub const IDLE_MAX: Duration = Duration::from_mins(5);

/// Headers of a connection, not of a message (RFC 9110 7.6.1), besides those that `Connection` names.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Headers of a request that are the gateway's business.
const NOT_SENT: &[&str] = &[
    "authorization",
    "cookie",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "origin",
    "referer",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-jenny-auth",
    "x-real-ip",
];
/// Headers of an answer that would speak for the gateway's whole origin, or against its frame.
const NOT_RETURNED: &[&str] = &[
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "access-control-max-age",
    "alt-svc",
    "authentication-info",
    "cache-control",
    "clear-site-data",
    "content-security-policy",
    "content-security-policy-report-only",
    "cross-origin-embedder-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "location",
    "nel",
    "origin-agent-cluster",
    "referrer-policy",
    "refresh",
    "report-to",
    "reporting-endpoints",
    "service-worker-allowed",
    "set-cookie",
    "strict-transport-security",
    "www-authenticate",
    "x-frame-options",
];

/// A request to an app's page, as far as the view needs it.
#[derive(Debug)]
pub struct ViewRequest {
    /// The app.
    pub slug: Slug,
    /// The part of the path that is the gateway's, `/apps/<slug>/~<token>`, as it stood.
    pub prefix: String,
    /// The rest of the path, as it stood; empty, or with a slash first.
    pub rest: String,
    /// The query, as it stood.
    pub query: Option<String>,
    /// The method.
    pub method: Method,
    /// The headers as they came.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The client's side of a connection that is to become a WebSocket.
    pub upgrade: Option<OnUpgrade>,
}

/// The server's answer, ready to go to the browser.
#[derive(Debug)]
pub struct ViewReply {
    /// The status.
    pub status: StatusCode,
    /// The headers that may pass.
    pub headers: HeaderMap,
    /// The body.
    pub body: ViewBody,
}

impl Upstream {
    /// A place among the views, to be taken before a request's body is held in memory.
    ///
    /// # Errors
    /// [`Failure::ViewsBusy`] when there are [`VIEWS_MAX`].
    pub fn view_slot(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.views).try_acquire_owned().map_err(|_full| Failure::ViewsBusy)
    }

    /// Asks the app's server for a part of its interface. `limit` is the time until the head of the answer.
    ///
    /// # Errors
    /// [`Failure`]: [`Failure::Blocked`] also for a path that climbs.
    pub async fn view(
        &self,
        slot: OwnedSemaphorePermit,
        base: Base,
        request: ViewRequest,
        tokens: &Tokens,
        limit: Duration,
    ) -> Result<ViewReply, Failure> {
        let deadline = Instant::now() + limit;
        timeout_at(deadline, self.start_view(base, request, tokens, slot, deadline))
            .await
            .unwrap_or(Err(Failure::TimedOut(limit)))
    }

    async fn start_view(
        &self,
        base: Base,
        mut request: ViewRequest,
        tokens: &Tokens,
        slot: OwnedSemaphorePermit,
        deadline: Instant,
    ) -> Result<ViewReply, Failure> {
        let upgrades = request.upgrade.is_some() && is_websocket(&request.headers);
        let mut outgoing = Request::new(Full::new(std::mem::take(&mut request.body)));
        *outgoing.method_mut() = request.method.clone();
        let kept = tokens.kept(&request.slug);
        *outgoing.uri_mut() = target(&base, &request, &kept)?;
        *outgoing.headers_mut() = headers_out(&base, &request, &kept, upgrades)?;

        let mut stream = self.open(&base, deadline).await?;
        stream.left = usize::MAX;
        let mut connection = JoinSet::new();
        let mut response = send(stream, outgoing, &mut connection).await?;
        let status = response.status();
        let mut headers = headers_back(&base, &request, response.headers());
        if status == StatusCode::SWITCHING_PROTOCOLS {
            let (true, Some(client)) = (upgrades, request.upgrade) else {
                return Err(Failure::Upstream("it switched protocols without being asked".to_owned()));
            };
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            let server = hyper::upgrade::on(&mut response);
            tokio::spawn(async move {
                match tokio::try_join!(client, server) {
                    Ok((client, server)) => tunnel(TokioIo::new(client), TokioIo::new(server)).await,
                    Err(error) => tracing::debug!(%error, "a WebSocket of a view did not open"),
                }
                drop((connection, slot));
            });
            return Ok(ViewReply { status, headers, body: ViewBody::empty() });
        }
        let streamed = Streamed {
            body: response.into_body(),
            silence: Box::pin(tokio::time::sleep(IDLE_MAX)),
            _connection: connection,
            _slot: slot,
        };
        Ok(ViewReply { status, headers, body: ViewBody(Some(Box::new(streamed))) })
    }
}

/// Whether a request asks to become a WebSocket.
fn is_websocket(headers: &HeaderMap) -> bool {
    let names = |name: HeaderName, wanted: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|token| token.trim().eq_ignore_ascii_case(wanted))
    };
    names(header::UPGRADE, "websocket") && names(header::CONNECTION, "upgrade")
}

/// The address below the server's, without the gateway's credentials.
fn target(base: &Base, request: &ViewRequest, kept: &Kept<'_>) -> Result<Uri, Failure> {
    let decoded = percent_decode_str(&request.rest).decode_utf8_lossy();
    if decoded.split(['/', '\\']).any(|part| matches!(part, "." | "..")) {
        return Err(Failure::Blocked("the path climbs".to_owned()));
    }
    let mut target = base.path.clone();
    target.push_str(if request.rest.is_empty() { "/" } else { &request.rest });
    let is_ours = |pair: &&str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        // Both ways to read a `+`: a credential is found however it was spelled.
        let holds = |text: &str| {
            let plain = percent_decode_str(text).collect::<Vec<u8>>();
            let spaced = percent_decode_str(&text.replace('+', " ")).collect::<Vec<u8>>();
            kept.stand_in(&plain) || kept.stand_in(&spaced)
        };
        holds(value) || holds(name)
    };
    let query: Vec<&str> =
        request.query.as_deref().unwrap_or_default().split('&').filter(|pair| !is_ours(pair)).collect();
    if request.query.is_some() && query != [""] && !query.is_empty() {
        target.push('?');
        target.push_str(&query.join("&"));
    }
    // A secret in the path would be the page's own doing; it does not leave all the same.
    if kept.stand_in(decoded.as_bytes()) {
        return Err(Failure::Blocked("the path holds a credential".to_owned()));
    }
    target.parse().map_err(|_malformed| Failure::Invalid("the path is not one that can be sent".to_owned()))
}

/// The names that `Connection` lists.
fn listed_by_connection(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect()
}

/// Copies the headers of a message that are not of its connection and not in `left_out`.
fn passing(headers: &HeaderMap, left_out: &[&str]) -> HeaderMap {
    let listed = listed_by_connection(headers);
    let mut passing = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let text = name.as_str();
        if !HOP_BY_HOP.contains(&text) && !left_out.contains(&text) && !listed.iter().any(|it| it == text) {
            passing.append(name, value.clone());
        }
    }
    passing
}

/// The headers of the request to the server.
fn headers_out(
    base: &Base,
    request: &ViewRequest,
    kept: &Kept<'_>,
    upgrades: bool,
) -> Result<HeaderMap, Failure> {
    let mut headers = passing(&request.headers, NOT_SENT);
    let leaking: Vec<HeaderName> = headers
        .iter()
        .filter(|(_, value)| kept.stand_in(value.as_bytes()))
        .map(|(name, _)| name.clone())
        .collect();
    for name in leaking {
        headers.remove(name);
    }
    let host = super::host_header(base)?;
    if request.headers.contains_key(header::ORIGIN) {
        // The page's own origin is opaque. To the server its page is one of its own, and the token in the address is
        // what keeps other pages out.
        let scheme = if base.tls { "https" } else { "http" };
        let origin = format!("{scheme}://{}", String::from_utf8_lossy(host.as_bytes()));
        if let Ok(origin) = HeaderValue::from_str(&origin) {
            headers.insert(header::ORIGIN, origin);
        }
    }
    headers.insert(header::HOST, host);
    let prefix = cookie_prefix(&request.slug);
    let cookies: Vec<&str> = request
        .headers
        .get_all(header::COOKIE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
        // A cookie of another program that is not ASCII must not take the app's own with it.
        .filter_map(|cookie| std::str::from_utf8(cookie).ok()?.trim().strip_prefix(&prefix))
        .filter(|cookie| !kept.stand_in(cookie.as_bytes()))
        .collect();
    if !cookies.is_empty()
        && let Ok(cookies) = HeaderValue::from_str(&cookies.join("; "))
    {
        headers.insert(header::COOKIE, cookies);
    }
    if upgrades {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    } else {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(headers)
}

/// What stands before the name of an app's cookie in the browser. No slug has a dot.
fn cookie_prefix(slug: &Slug) -> String {
    format!("app-{slug}.")
}

/// The headers of the answer to the browser.
fn headers_back(base: &Base, request: &ViewRequest, from: &HeaderMap) -> HeaderMap {
    let mut headers = passing(from, NOT_RETURNED);
    for cookie in from.get_all(header::SET_COOKIE) {
        let confined = cookie.to_str().ok().and_then(|cookie| confined_cookie(cookie, &request.slug));
        if let Some(value) = confined.and_then(|cookie| HeaderValue::from_str(&cookie).ok()) {
            headers.append(header::SET_COOKIE, value);
        }
    }
    let location = from.get(header::LOCATION).and_then(|value| value.to_str().ok());
    if let Some(value) =
        location.and_then(|location| HeaderValue::from_str(&moved(base, &request.prefix, location)).ok())
    {
        headers.insert(header::LOCATION, value);
    }
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "sandbox allow-scripts allow-forms"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
}

/// A `Set-Cookie` under the app's name and path, for this host only; `None` when it has no name.
fn confined_cookie(cookie: &str, slug: &Slug) -> Option<String> {
    let mut parts = cookie.split(';');
    let (name, value) = parts.next()?.split_once('=')?;
    let name = name.trim();
    if name.is_empty() {
        return None;
    }
    let mut confined = format!("{}{name}={}; Path=/apps/{slug}/", cookie_prefix(slug), value.trim());
    for part in parts {
        let key = part.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !matches!(key.as_str(), "path" | "domain" | "") {
            confined.push(';');
            confined.push_str(part);
        }
    }
    Some(confined)
}

/// Where a redirect leads, seen from the browser: places of the server lie below the app's address, others stay.
fn moved(base: &Base, prefix: &str, location: &str) -> String {
    let path = if let Some(path) = location.strip_prefix('/').filter(|path| !path.starts_with(['/', '\\'])) {
        format!("/{path}")
    } else {
        let scheme = if base.tls { "https" } else { "http" };
        let Ok(uri) = location.parse::<Uri>() else { return location.to_owned() };
        let same_host = uri.authority().is_some_and(|authority| {
            let port = authority.port_u16().unwrap_or(if base.tls { 443 } else { 80 });
            authority.host().eq_ignore_ascii_case(base.authority.host()) && port == base.port()
        });
        if uri.scheme_str() != Some(scheme) || !same_host {
            return location.to_owned();
        }
        uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned()
    };
    match path.strip_prefix(&base.path) {
        Some(rest) if rest.is_empty() || rest.starts_with(['/', '?', '#']) => {
            let slash = if rest.starts_with('/') { "" } else { "/" };
            format!("{prefix}{slash}{rest}")
        }
        // Of the same server, but not below its base: there is no address for that here.
        Some(_) | None => format!("{prefix}/"),
    }
}

/// The body of a view's answer, as it comes from the server.
#[derive(Debug)]
pub struct ViewBody(Option<Box<Streamed>>);

#[derive(Debug)]
struct Streamed {
    body: Incoming,
    /// Ends the body when nothing has come for too long.
    silence: Pin<Box<Sleep>>,
    /// The connection's task ends with the body.
    _connection: JoinSet<()>,
    _slot: OwnedSemaphorePermit,
}

impl ViewBody {
    /// No bytes.
    pub fn empty() -> Self {
        Self(None)
    }
}

impl Body for ViewBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(streamed) = &mut self.0 else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(&mut streamed.body).poll_frame(cx) {
            streamed.silence.as_mut().reset(Instant::now() + IDLE_MAX);
            return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
        }
        ready!(streamed.silence.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|streamed| streamed.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |streamed| streamed.body.size_hint())
    }
}

/// Passes bytes both ways until both sides have ended, one fails, or neither says anything for [`IDLE_MAX`].
async fn tunnel<A, B>(client: A, server: B)
where
    A: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    B: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let last = Mutex::new(Instant::now());
    let (mut client_read, mut client_write) = split(client);
    let (mut server_read, mut server_write) = split(server);
    let both = async {
        tokio::try_join!(
            pump(&mut client_read, &mut server_write, &last),
            pump(&mut server_read, &mut client_write, &last),
        )
    };
    let silence = async {
        loop {
            let until = *last.lock().unwrap_or_else(PoisonError::into_inner) + IDLE_MAX;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    };
    tokio::select! {
        done = both => if let Err(error) = done {
            tracing::debug!(%error, "a WebSocket of a view broke off");
        },
        () = silence => tracing::debug!("a WebSocket of a view was silent for too long"),
    }
}

async fn pump(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    last: &Mutex<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{apps::manifest::Server, config::Secret};

    fn base(url: &str) -> Base {
        Base::of(&Server { base_url: url.to_owned(), auth: None }).unwrap()
    }

    fn tokens() -> Tokens {
        Tokens::new(Secret::new("install-secret"))
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort_unstable();
        lines
    }

    fn slug() -> Slug {
        "haus".parse().unwrap()
    }

    fn request(rest: &str, query: Option<&str>, headers: &[(&str, &str)]) -> ViewRequest {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        ViewRequest {
            slug: slug(),
            prefix: "/apps/haus/~t".to_owned(),
            rest: rest.to_owned(),
            query: query.map(str::to_owned),
            method: Method::GET,
            headers: map,
            body: Bytes::new(),
            upgrade: None,
        }
    }

    #[test]
    fn the_address_is_below_the_servers_and_without_credentials() {
        let token = tokens().of_app(&slug()).unwrap();
        let target = |url: &str, rest: &str, query: Option<&str>| {
            target(&base(url), &request(rest, query, &[]), &tokens().kept(&slug())).map(|uri| uri.to_string())
        };
        assert_eq!(target("http://h", "", None).unwrap(), "/");
        assert_eq!(target("http://h/ui/", "/a%2Fb/", Some("x=1&y")).unwrap(), "/ui/a%2Fb/?x=1&y");
        assert_eq!(target("http://h", "/a", Some("")).unwrap(), "/a");
        let query = format!("token={token}&theme=dark&token=theirs&t=install%2Dsecret");
        assert_eq!(target("http://h", "/", Some(&query)).unwrap(), "/?theme=dark&token=theirs");
        assert_eq!(target("http://h", "/", Some(&format!("token={token}"))).unwrap(), "/");
        for climbing in ["/..", "/a/../b", "/%2e%2e/b", "/a/.%2E", "/..%2fb", "/..%5Cb", "/./a"] {
            assert!(matches!(target("http://h/ui", climbing, None), Err(Failure::Blocked(_))), "{climbing}");
        }
        assert!(target("http://h", &format!("/x/~{token}/y"), None).is_err());
    }

    #[test]
    fn headers_of_the_gateway_and_of_the_hop_stay_here() {
        let token = tokens().of_app(&slug()).unwrap();
        let referer = format!("http://127.0.0.1/apps/haus/~{token}/");
        let request = request(
            "/",
            None,
            &[
                ("host", "127.0.0.1:8765"),
                ("authorization", "Bearer install-secret"),
                ("referer", &referer),
                ("x-page", &referer),
                ("x-csrf-token", "theirs"),
                ("origin", "null"),
                ("cookie", "app-haus.sid=1; other=2; app-haus2.sid=3"),
                ("cookie", "app-haus.lang=it"),
                ("connection", "close, X-Hop"),
                ("x-hop", "1"),
                ("te", "trailers"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"),
                ("x-forwarded-for", "10.0.0.1"),
                ("x-jenny-auth", "install-secret"),
            ],
        );
        let headers = headers_out(&base("http://h:81"), &request, &tokens().kept(&slug()), false).unwrap();
        assert_eq!(
            lines(&headers),
            [
                "connection: close",
                "cookie: sid=1; lang=it",
                "host: h:81",
                "origin: http://h:81",
                "x-csrf-token: theirs"
            ]
        );
        let upgrading = headers_out(&base("http://h"), &request, &tokens().kept(&slug()), true).unwrap();
        assert_eq!(
            (&upgrading["connection"], &upgrading["upgrade"]),
            (&"upgrade".parse().unwrap(), &"websocket".parse().unwrap())
        );
    }

    #[test]
    fn a_cookie_is_confined_to_the_app() {
        for (cookie, expected) in [
            ("sid=1", "app-haus.sid=1; Path=/apps/haus/"),
            (
                "sid=1; Path=/; Domain=.h; HttpOnly; SameSite=Lax",
                "app-haus.sid=1; Path=/apps/haus/; HttpOnly; SameSite=Lax",
            ),
            ("__Host-a=b=c; path=/ ;;Secure", "app-haus.__Host-a=b=c; Path=/apps/haus/;Secure"),
            (" a = b ;PATH=/x", "app-haus.a=b; Path=/apps/haus/"),
        ] {
            assert_eq!(confined_cookie(cookie, &slug()).unwrap(), expected);
        }
        assert_eq!(confined_cookie("=1", &slug()), None);
        assert_eq!(confined_cookie("novalue; Path=/", &slug()), None);
    }

    #[test]
    fn redirects_within_the_server_stay_within_the_app() {
        let moved = |url: &str, location: &str| moved(&base(url), "/apps/haus/~t", location);
        assert_eq!(moved("http://h", "/login?a=/b"), "/apps/haus/~t/login?a=/b");
        assert_eq!(moved("http://h/ui", "/ui/x"), "/apps/haus/~t/x");
        assert_eq!(moved("http://h/ui", "/ui"), "/apps/haus/~t/");
        assert_eq!(moved("http://h/ui", "/ui2/x"), "/apps/haus/~t/");
        assert_eq!(moved("http://h:81", "http://H:81/x#f"), "/apps/haus/~t/x");
        assert_eq!(moved("https://h", "https://h:443/"), "/apps/haus/~t/");
        for other in [
            "//evil.test/x",
            "http://h:82/x",
            "https://h/x",
            "http://h.evil.test/",
            "x/y",
            "?a=1",
            "/\\evil.test",
        ] {
            let got = moved("http://h", other);
            assert_eq!(got, other);
        }
    }

    #[test]
    fn answers_are_shut_in_and_speak_for_no_other_page() {
        let mut from = HeaderMap::new();
        for (name, value) in [
            ("content-type", "text/html"),
            ("content-security-policy", "default-src *"),
            ("x-frame-options", "DENY"),
            ("access-control-allow-credentials", "true"),
            ("clear-site-data", "\"*\""),
            ("service-worker-allowed", "/"),
            ("www-authenticate", "Basic"),
            ("strict-transport-security", "max-age=1"),
            ("cache-control", "public"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("set-cookie", "a=1; Path=/"),
            ("set-cookie", "b=2"),
            ("etag", "\"1\""),
        ] {
            from.append(name, value.parse().unwrap());
        }
        let headers = headers_back(&base("http://h"), &request("/", None, &[]), &from);
        assert_eq!(
            lines(&headers),
            [
                "access-control-allow-origin: *",
                "cache-control: no-store",
                "content-security-policy: sandbox allow-scripts allow-forms",
                "content-type: text/html",
                "etag: \"1\"",
                "referrer-policy: no-referrer",
                "set-cookie: app-haus.a=1; Path=/apps/haus/",
                "set-cookie: app-haus.b=2; Path=/apps/haus/",
                "x-content-type-options: nosniff",
            ]
        );
    }
}
