//! `GET /api/apps/<slug>/actions/<name>?params=<json>`: runs an action (wire facts 3.1).
//!
//! Called from frames of opaque origin, so every answer, whatever its status, carries
//! `Access-Control-Allow-Origin: *`, is not stored, and is JSON with `ok`.

use hyper::{
    StatusCode,
    header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL},
};

use super::{
    Answer, JSON, answer, apps,
    auth::{Credentials, Scope},
    target::decode_query,
    with_headers,
};
use crate::{
    ApiError, State,
    apps::{ActionName, Slug, action},
};

/// A request that showed who it is.
pub(super) struct Authorized {
    slug: Option<Slug>,
}

/// Lets the install secret and the app's token pass.
pub(super) fn authorize(
    state: &State,
    credentials: &Credentials,
    slug: &str,
) -> Result<Authorized, ApiError> {
    let slug = slug.parse::<Slug>().ok();
    credentials.check(&state.tokens, Scope::App(slug.as_ref()))?;
    Ok(Authorized { slug })
}

/// Runs the action. `raw_params` is the value as it stands in the URL: the limit counts its characters. Blocks.
pub(super) fn run(
    state: &State,
    request: Authorized,
    name: &str,
    raw_params: &str,
) -> Result<Answer, ApiError> {
    // ORDER: the checks answer in the order of wire facts 3.1, which clients rely on.
    let config = state.apps_config();
    apps::enabled(&config)?;
    let slug = request.slug.ok_or_else(|| ApiError::invalid("invalid app slug"))?;
    let name = name.parse::<ActionName>().map_err(|_malformed| ApiError::invalid("invalid action name"))?;
    let limit = config.params_chars_max;
    if raw_params.chars().count() > limit {
        return Err(ApiError::too_large(format!("params exceed {limit} chars")));
    }
    let params = action::parse_params(&decode_query(raw_params))?;
    let body = action::run(state, &slug, &name, params)?;
    Ok(finish(answer(StatusCode::OK, JSON, body)))
}

/// An error as the seed's envelope.
pub(super) fn error(error: &ApiError) -> Answer {
    finish(answer(error.status, JSON, action::error_envelope(error)))
}

fn finish(answer: Answer) -> Answer {
    with_headers(answer, &[(ACCESS_CONTROL_ALLOW_ORIGIN, "*"), (CACHE_CONTROL, "no-store")])
}
