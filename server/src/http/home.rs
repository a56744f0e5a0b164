//! `/`: a page that says what answers here. It shows nothing of the workspace and needs no credential.
//!
//! A home page with the apps on it is absent.

use hyper::{
    StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY},
};

use super::{Answer, answer, with_headers};

const PAGE: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>linekeep</title>
<style>
  :root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif; }
  body { max-width: 36rem; margin: 4rem auto; padding: 0 1.25rem; }
  code { font-family: ui-monospace, monospace; }
</style>
<h1>linekeep</h1>
<p>A small gateway that keeps your mini-apps' data in plain JSONL files.</p>
<p>It is running. <code>linekeep serve</code>, started on a terminal, prints a link for each app;
<code>linekeep token SLUG</code> prints the token that opens one.</p>
</html>
"#;

/// The page.
pub(super) fn page() -> Answer {
    let page = answer(StatusCode::OK, HeaderValue::from_static("text/html; charset=utf-8"), PAGE);
    with_headers(
        page,
        &[
            (CACHE_CONTROL, "no-cache"),
            (CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"),
            (REFERRER_POLICY, "no-referrer"),
        ],
    )
}
