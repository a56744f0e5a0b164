//! `/apps/<slug>/...` of an app whose screen is its server's web interface (seed, `view`): finds out that it is one,
//! and passes request and answer through [`crate::upstream::view`].
//!
//! The page's origin is opaque, so to the browser each of its own requests is one to another origin: preflights
//! (`OPTIONS`) are answered here, for whoever holds the app's token, and never reach the server.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::{
    Method, Response, StatusCode,
    body::Body,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderValue,
    },
    http::request::Parts,
    upgrade::OnUpgrade,
};

use super::{apps, auth::Authorized, target::Target};
use crate::{
    ApiError, State,
    apps::{Slug, manifest},
    upstream::{Base, Failure, ViewBody, ViewRequest, view::UPLOAD_BYTES_MAX},
};

/// Methods that a page may use on its server.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";

/// An external view that may be seen.
#[derive(Debug)]
pub(super) struct View {
    slug: Slug,
    base: Base,
    /// How long the server may take for the head of an answer, and the client for its body.
    limit: Duration,
    /// Segments of the request's path that are the gateway's.
    segments: usize,
}

/// The view of an app; `None` when its screen is its own files. Blocks.
pub(super) fn find(state: &State, request: &Authorized, has_token: bool) -> Result<Option<View>, ApiError> {
    let config = state.apps_config();
    if apps::enabled(&config).is_err() {
        return Ok(None);
    }
    let Ok(slug) = request.slug() else { return Ok(None) };
    let Some(app) = state.apps.load(slug).map_err(ApiError::internal)? else { return Ok(None) };
    let Ok(manifest) = &app.manifest else { return Ok(None) };
    match (manifest.view, &manifest.server) {
        (Some(manifest::View::External), Some(server)) => Ok(Some(View {
            slug: slug.clone(),
            base: Base::of(server)?,
            limit: config.http_timeout,
            segments: if has_token { 3 } else { 2 },
        })),
        (Some(manifest::View::External) | None, _) => Ok(None),
    }
}

/// Passes a request on and the answer back.
pub(super) async fn serve<B>(
    state: &State,
    view: View,
    head: &Parts,
    upgrade: Option<OnUpgrade>,
    body: &mut B,
) -> Result<Response<ViewBody>, ApiError>
where
    B: Body + Unpin,
{
    if head.method == Method::OPTIONS && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        return Ok(preflight(head));
    }
    // The page that is opened reads its own address, and it is another server's: the install secret may not be in it.
    let target = Target::new(head.uri.path(), head.uri.query());
    if target.value("token").is_some_and(|token| state.tokens.is_secret(token.as_bytes())) {
        return Err(ApiError::unauthorized());
    }
    if !METHODS.split(", ").any(|method| method == head.method.as_str()) {
        return Err(ApiError::method_not_allowed());
    }
    // ORDER: the place comes before the body, so that bodies in memory are as many as there are places.
    let slot = state.upstream.view_slot()?;
    let path = head.uri.path();
    let (prefix, rest) = path.split_at(end_of_segments(path, view.segments));
    let request = ViewRequest {
        slug: view.slug,
        prefix: prefix.to_owned(),
        rest: rest.to_owned(),
        query: head.uri.query().map(str::to_owned),
        method: head.method.clone(),
        headers: head.headers.clone(),
        body: collect(body, view.limit).await?,
        upgrade,
    };
    let reply = state.upstream.view(slot, view.base, request, &state.tokens, view.limit).await?;
    let mut answer = Response::new(reply.body);
    *answer.status_mut() = reply.status;
    *answer.headers_mut() = reply.headers;
    Ok(answer)
}

/// Where the first so many segments of a path end.
fn end_of_segments(path: &str, count: usize) -> usize {
    path.match_indices('/').nth(count).map_or(path.len(), |(at, _)| at)
}

/// The answer to a page that asks whether it may ask.
fn preflight(head: &Parts) -> Response<ViewBody> {
    let mut answer = Response::new(ViewBody::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    if let Some(names) = head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    answer
}

/// Reads a request's body, within bounds of size and time.
async fn collect<B: Body + Unpin>(body: &mut B, limit: Duration) -> Result<Bytes, ApiError> {
    let reading = async {
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return Err(ApiError::invalid("the request body breaks off")) };
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.remaining() > UPLOAD_BYTES_MAX {
                return Err(ApiError::too_large(format!("request body exceeds {UPLOAD_BYTES_MAX} bytes")));
            }
            bytes.put(data);
        }
        Ok(bytes.freeze())
    };
    tokio::time::timeout(limit, reading).await.unwrap_or_else(|_elapsed| {
        Err(Failure::Invalid("the request body does not arrive".to_owned()).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cut_after_what_is_the_gateways() {
        for (path, count, rest) in [
            ("/apps/x", 2, ""),
            ("/apps/x/", 2, "/"),
            ("/apps/x/a/b", 2, "/a/b"),
            ("/apps/x/~t/", 3, "/"),
            ("/apps/x/~t/a//b/", 3, "/a//b/"),
            ("/apps/x/~t//", 3, "//"),
        ] {
            assert_eq!(&path[end_of_segments(path, count)..], rest, "{path}");
        }
    }
}
