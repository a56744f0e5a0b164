//! `GET /api/apps/<slug>/actions/<name>?params=<json>`: runs an action (wire facts 3.1).
//!
//! Called from frames of opaque origin, so every answer, whatever its status, carries
//! `Access-Control-Allow-Origin: *`, is not stored, and is JSON with `ok`. HEAD is answered on queries only: what
//! asks with it (a link preview, a monitor) means to look, and must not change anything.

use std::time::Duration;

use hyper::{
    StatusCode,
    header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL},
};

use super::{Answer, JSON, answer, apps, auth::Authorized, target::decode_query, with_headers};
use crate::{
    ApiError, State,
    apps::{
        ActionName,
        action::{self, Reach, Step},
    },
    upstream::Upstream,
};

/// An action that has been started, and how long an app's server may take to answer.
pub(super) struct Started {
    step: Step,
    limit: Duration,
}

/// Starts the action. `raw_params` is the value as it stands in the URL: the limit counts its characters. Blocks.
pub(super) fn start(
    state: &State,
    request: &Authorized,
    name: &str,
    raw_params: &str,
    reach: Reach,
) -> Result<Started, ApiError> {
    // ORDER: the checks answer in the order of wire facts 3.1, which clients rely on.
    let config = state.apps_config();
    apps::enabled(&config)?;
    let slug = request.slug()?;
    let name = name.parse::<ActionName>().map_err(|_malformed| ApiError::invalid("invalid action name"))?;
    let limit = config.params_chars_max;
    if raw_params.chars().count() > limit {
        return Err(ApiError::too_large(format!("params exceed {limit} chars")));
    }
    let params = action::parse_params(&decode_query(raw_params))?;
    let step = action::start(state, slug, &name, params, reach)?;
    Ok(Started { step, limit: config.http_timeout })
}

/// Ends the action, and answers.
pub(super) async fn run(started: Started, upstream: &Upstream) -> Result<Answer, ApiError> {
    let body = action::finish(started.step, upstream, started.limit).await?;
    Ok(finish(answer(StatusCode::OK, JSON, body)))
}

/// An error as the seed's envelope.
pub(super) fn error(error: &ApiError) -> Answer {
    finish(answer(error.status, JSON, action::error_envelope(error)))
}

fn finish(answer: Answer) -> Answer {
    with_headers(answer, &[(ACCESS_CONTROL_ALLOW_ORIGIN, "*"), (CACHE_CONTROL, "no-store")])
}
