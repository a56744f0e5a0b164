//! The gateway over HTTP: which request means what.
//!
//! hyper and a `match` on path segments, no framework: there are four routes, they are matched on undecoded segments,
//! and the answers must be exact to the header. What a route decides runs as plain blocking code on the blocking
//! pool, since each of them looks at a file; what needs no file (method, body, credential) is decided before.
//!
//! Every route is GET. HEAD is answered like GET without the bytes, but runs no action that is not a query (405).
//! Another method is 405 and a request body is 413, both answered (never a silent close), with JSON on the action route.
//!
//! Invariants: a panic is a 500 to that request alone; a 5xx cause is logged once, here; no URL is logged, since it
//! may carry a token.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Body,
    header::{self, HeaderName, HeaderValue},
    service::Service,
};
use tracing::Instrument as _;

use crate::{ApiError, State, apps::action::Reach, upstream::ViewBody};

mod actions;
mod apps;
mod auth;
mod connection;
mod files;
mod home;
mod jobs;
mod target;
mod views;

pub use connection::{CONNECTIONS_MAX, DRAIN_MAX, serve};

use auth::{Authorized, Credentials};
use jobs::Jobs;
use target::{Target, decode_path};

/// Bytes of an unwanted request body that are read and thrown away, so that the client gets to see the answer
/// instead of a reset connection.
const BODY_DISCARDED_MAX: usize = 256 * 1024;
/// How long that may take.
const BODY_DISCARD_TIME_MAX: Duration = Duration::from_secs(1);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// An answer of the gateway, whole in memory.
pub type Answer = Response<Full<Bytes>>;

/// The body of what leaves the gateway: whole, or passed on from an app's server as it comes.
pub type AnswerBody = Either<Full<Bytes>, ViewBody>;

/// The gateway as a hyper service. Cheap to clone; needs a tokio runtime but no socket.
#[derive(Debug, Clone)]
pub struct App {
    state: Arc<State>,
    requests: Arc<AtomicU64>,
    jobs: Jobs,
}

/// The gateway over a state.
pub fn app(state: Arc<State>) -> App {
    App { state, requests: Arc::new(AtomicU64::new(0)), jobs: Jobs::default() }
}

/// What a request asks for, with the undecoded parts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Route {
    /// `/`, and `/apps` without a slug.
    Home,
    /// `/api/webui/apps`
    AppList,
    /// `/api/apps/<slug>/actions/<name>`
    Action { slug: String, name: String },
    /// `/apps/<slug>[/~<token>][/<rel>]`; `rel` is empty for the index.
    AppFile { slug: String, token: Option<String>, rel: String },
    /// `/apps/<slug>/~<token>` without a slash at the end; `location` is the address with one.
    AppUnslashed { slug: String, token: String, location: String },
    /// Anything else below `/api`.
    UnknownApi,
    /// Anything else.
    Unknown,
}

impl Route {
    fn of(target: &Target<'_>) -> Self {
        match target.segments().as_slice() {
            ["" | "apps"] => Self::Home,
            ["api", "webui", "apps"] => Self::AppList,
            ["api", "apps", slug, "actions", name] => {
                Self::Action { slug: decode_path(slug), name: decode_path(name) }
            }
            ["apps", slug, rest @ ..] => {
                let slug = decode_path(slug);
                let (token, rest) = match rest {
                    [first, rest @ ..] if first.starts_with('~') => (Some(decode_path(&first[1..])), rest),
                    rest => (None, rest),
                };
                match (token, rest, target.with_final_slash()) {
                    (Some(token), [], Some(location)) => Self::AppUnslashed { slug, token, location },
                    (token, rest, _) => Self::AppFile { slug, token, rel: decode_path(&rest.join("/")) },
                }
            }
            ["api", ..] => Self::UnknownApi,
            _ => Self::Unknown,
        }
    }

    /// The route's name for the log.
    fn name(&self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::AppList => "app_list",
            Self::Action { .. } => "action",
            Self::AppFile { .. } | Self::AppUnslashed { .. } => "app_file",
            Self::UnknownApi | Self::Unknown => "unknown",
        }
    }

    /// An error in the form of this route, as an answer to that method.
    fn error(&self, error: &ApiError, method: &Method) -> Answer {
        error.log();
        let mut answer = match self {
            Self::Action { .. } => actions::error(error),
            Self::AppFile { .. } | Self::AppUnslashed { .. } => files::error(error),
            Self::Home | Self::AppList | Self::UnknownApi | Self::Unknown => plain_error(error),
        };
        if error.status == StatusCode::METHOD_NOT_ALLOWED {
            let allowed = if *method == Method::HEAD { "GET" } else { "GET, HEAD" };
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        }
        if error.status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

impl App {
    /// Answers one request. Never fails: what goes wrong is in the answer.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<AnswerBody>
    where
        B: Body + Send + Unpin,
        B::Data: Send,
    {
        let id = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let (mut head, mut body) = request.into_parts();
        let uri = head.uri.clone();
        let target = Target::new(uri.path(), uri.query());
        let route = Route::of(&target);
        let span = tracing::info_span!("request", id, method = %head.method, route = route.name());
        let has_body = !body.is_end_stream();
        async {
            if let Some(view) = self.external_view(&route, &target, &head.headers).await {
                let upgrade = head.extensions.remove();
                let answer = match views::serve(&self.state, view, &head, upgrade, &mut body).await {
                    Ok(answer) => answer.map(Either::Right),
                    Err(error) => {
                        let mut answer = route.error(&error, &head.method);
                        if !body.is_end_stream() {
                            discard(body).await;
                            answer
                                .headers_mut()
                                .insert(header::CONNECTION, HeaderValue::from_static("close"));
                        }
                        answer.map(Either::Left)
                    }
                };
                tracing::debug!(status = answer.status().as_u16(), "answered from an external view");
                return answer;
            }
            let outcome = if !matches!(head.method, Method::GET | Method::HEAD) {
                Err(ApiError::method_not_allowed())
            } else if has_body {
                Err(ApiError::too_large("a request body is not accepted, parameters go into the URL"))
            } else {
                self.dispatch(&route, target, &head.method, &head.headers).await
            };
            let mut answer = outcome.unwrap_or_else(|error| route.error(&error, &head.method));
            if has_body {
                discard(body).await;
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            tracing::debug!(status = answer.status().as_u16(), "answered");
            let answer = if head.method == Method::HEAD { without_body(answer) } else { answer };
            answer.map(Either::Left)
        }
        .instrument(span)
        .await
    }

    /// The view that the route asks for, when the app has one and the request may see it. What stands in the way is told
    /// by [`App::dispatch`], which finds the same.
    async fn external_view(
        &self,
        route: &Route,
        target: &Target<'_>,
        headers: &HeaderMap,
    ) -> Option<views::View> {
        let Route::AppFile { slug, token, .. } = route else { return None };
        let mut credentials = Credentials::new(headers, target.value("token"));
        credentials.path_token.clone_from(token);
        let request = Authorized::new(&self.state.tokens, &credentials, slug).ok()?;
        let state = Arc::clone(&self.state);
        let has_token = token.is_some();
        match self.jobs.run(move || views::find(&state, &request, has_token)).await {
            Ok(view) => view,
            Err(error) => {
                error.log();
                None
            }
        }
    }

    /// Runs the route on the blocking pool.
    async fn dispatch(
        &self,
        route: &Route,
        target: Target<'_>,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Answer, ApiError> {
        let mut credentials = Credentials::new(headers, target.value("token"));
        let state = Arc::clone(&self.state);
        match route.clone() {
            Route::Home => Ok(home::page()),
            Route::UnknownApi => Err(ApiError::not_found("API route not found")),
            Route::Unknown => Err(ApiError::not_found("Not Found")),
            Route::AppList => {
                apps::authorize(&state, &credentials)?;
                self.jobs.run(move || apps::list(&state)).await
            }
            Route::Action { slug, name } => {
                let request = Authorized::new(&state.tokens, &credentials, &slug)?;
                let raw_params = target.raw_value("params").unwrap_or_default().to_owned();
                let reach = if *method == Method::HEAD { Reach::Queries } else { Reach::All };
                let upstream = state.upstream.clone();
                let started = self
                    .jobs
                    .run(move || actions::start(&state, &request, &name, &raw_params, reach))
                    .await?;
                // Waiting for a network holds no thread.
                actions::run(started, &upstream).await
            }
            Route::AppFile { slug, token, rel } => {
                credentials.path_token = token;
                let request = Authorized::new(&state.tokens, &credentials, &slug)?;
                self.jobs.run(move || files::serve(&state, &request, &rel)).await
            }
            Route::AppUnslashed { slug, token, location } => {
                credentials.path_token = Some(token);
                Authorized::new(&state.tokens, &credentials, &slug)?;
                files::redirect(&location)
            }
        }
    }
}

impl<B> Service<Request<B>> for App
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
{
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let app = self.clone();
        Box::pin(async move { Ok(app.answer(request).await) })
    }
}

/// Reads and drops a body within bounds; the connection is closed afterwards.
async fn discard<B: Body + Unpin>(mut body: B) {
    let reading = async {
        let mut left = BODY_DISCARDED_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, bytes::Buf::remaining);
            let Some(rest) = left.checked_sub(length) else { return };
            left = rest;
        }
    };
    match tokio::time::timeout(BODY_DISCARD_TIME_MAX, reading).await {
        // Read or not, the answer is the same; the limit only bounds the wait.
        Ok(()) | Err(_) => {}
    }
}

/// The answer to HEAD: the headers of GET, with the length its body would have.
fn without_body(answer: Answer) -> Answer {
    let (mut head, body) = answer.into_parts();
    let length = body.size_hint().exact().unwrap_or_default();
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Response::from_parts(head, Full::default())
}

/// An answer with a status, a type and a body.
fn answer(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// An error as plain text.
fn plain_error(error: &ApiError) -> Answer {
    answer(error.status, TEXT, error.message.clone().into_owned())
}

/// Sets headers on an answer.
fn with_headers(mut answer: Answer, headers: &[(HeaderName, &'static str)]) -> Answer {
    for (name, value) in headers {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests;
