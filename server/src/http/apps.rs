//! `GET /api/webui/apps`: the apps of the workspace, broken ones too (wire facts 1.9).
//!
//! For the gateway's own pages, so it asks for the install secret: an app's token does not open it, and there is no
//! CORS header.

use hyper::{StatusCode, header::CACHE_CONTROL};
use serde::Serialize;

use super::{
    Answer, JSON, answer,
    auth::{Credentials, Scope},
    with_headers,
};
use crate::{ApiError, State, apps::Listed};

#[derive(Serialize)]
struct AppList {
    apps: Vec<Listed>,
}

/// Lets the install secret pass.
pub(super) fn authorize(state: &State, credentials: &Credentials) -> Result<(), ApiError> {
    credentials.check(&state.tokens, Scope::Gateway)
}

/// Answers the list. Blocks.
pub(super) fn list(state: &State) -> Result<Answer, ApiError> {
    enabled(&state.apps_config())?;
    let apps = state.apps.list().map_err(ApiError::internal)?;
    let list = AppList { apps: apps.iter().map(|app| app.listed()).collect() };
    let body = serde_json::to_vec(&list).map_err(ApiError::internal)?;
    Ok(with_headers(answer(StatusCode::OK, JSON, body), &[(CACHE_CONTROL, "no-store")]))
}

/// The switch that stands before every apps route (seed: 503 `apps are disabled`).
pub(super) fn enabled(config: &crate::config::AppsConfig) -> Result<(), ApiError> {
    if config.enabled { Ok(()) } else { Err(ApiError::disabled("apps are disabled")) }
}
