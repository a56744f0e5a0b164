//! Runs an action: finds it, checks its parameters, hands the operation to the engine, wraps the answer.
//!
//! The parameters travel as the JSON text they came in. The engine's [`Fields`] keep its digits and its order; a
//! parsed copy is made for validation only. Records in an answer are the stored bytes, spliced into the envelope and
//! never parsed again.
//!
//! Order of checks (wire facts 3.1, from 6 on): parameters are JSON, an object; the app exists, is not broken, has the
//! action; the parameters fit its schema. A storage action is then run; a http action is only planned, since it waits
//! for a network and must not hold a thread meanwhile: [`finish`] asks.

use std::time::Duration;

use linekeep_engine::{Fields, Op, Outcome, QUERY_LIMIT_DEFAULT, RecordId};
use serde_json::{Number, Value, value::RawValue};

use super::{
    ActionName, Slug,
    manifest::{DATA_FOLDER, Kind, StorageAction, StorageOp},
};
use crate::{
    ApiError, State,
    excerpt::excerpt,
    upstream::{Plan, Upstream},
};

/// Characters of a parser's reason in an answer.
const REASON_CHARS_MAX: usize = 200;

/// Parses the text of `params`: empty is `{}`.
///
/// # Errors
/// 400 when it is not JSON (or nested deeper than the engine's 128, or holds a number out of range), or not an object.
pub fn parse_params(text: &str) -> Result<Fields, ApiError> {
    if text.is_empty() {
        return Ok(Fields::new());
    }
    // Only an object starts with a brace, so what starts otherwise needs a look at whether it is JSON at all.
    if !text.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{') {
        return Err(match serde_json::from_str::<&RawValue>(text) {
            Ok(_) => ApiError::invalid("params must be a JSON object"),
            Err(error) => not_json(&error.to_string()),
        });
    }
    Fields::parse(text.as_bytes()).map_err(|error| not_json(&ApiError::from(error).message))
}

fn not_json(reason: &str) -> ApiError {
    let reason = reason.strip_prefix("not valid JSON: ").unwrap_or(reason);
    ApiError::invalid(format!("params is not valid JSON: {}", excerpt(reason, REASON_CHARS_MAX)))
}

/// What a caller may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Any action.
    All,
    /// Actions that change nothing and ask no other program: queries.
    Queries,
}

/// What has come of an action so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It is done; the envelope of its answer, as JSON.
    Done(Vec<u8>),
    /// The app's server is to be asked this, see [`finish`].
    Ask(Plan),
}

/// Runs the action `name` of the app `slug` as far as it needs no network. Blocks.
///
/// # Errors
/// 404 for an unknown app, action or record, 409 for a broken app, 405 for an action out of reach, 400 for parameters
/// that do not fit or lack one of the path, 413 over the size cap, 501 for a server that declares credentials, and what
/// the engine's errors map to.
pub fn start(
    state: &State,
    slug: &Slug,
    name: &ActionName,
    params: Fields,
    reach: Reach,
) -> Result<Step, ApiError> {
    let app = state.apps.load(slug).map_err(ApiError::internal)?;
    let app = app.ok_or_else(|| ApiError::not_found(format!("app '{slug}' not found")))?;
    let manifest = app.usable()?;
    let action = manifest.action(name).ok_or_else(|| {
        let name = excerpt(name.as_str(), 64);
        ApiError::not_found(format!("app '{slug}' has no action '{name}'"))
    })?;
    let is_query = matches!(&action.kind, Kind::Storage(storage) if storage.op == StorageOp::Query);
    if reach == Reach::Queries && !is_query {
        return Err(ApiError::method_not_allowed());
    }
    action.params.check(&params).map_err(|errors| ApiError::invalid(format!("invalid params: {errors}")))?;
    match &action.kind {
        Kind::Storage(storage) => {
            let op = operation(storage, params)?;
            let folder = format!("{slug}/{DATA_FOLDER}");
            let outcome = state.store().collection(&folder, &storage.collection)?.run(op)?;
            Ok(Step::Done(envelope(&outcome)))
        }
        Kind::Http(http) => {
            // Loading refuses a http action without a server; a manifest made by hand may have one.
            let server = manifest.server.as_ref();
            let server = server.ok_or_else(|| ApiError::broken(format!("app '{slug}' has no server")))?;
            Ok(Step::Ask(Plan::new(server, http, params)?))
        }
    }
}

/// Takes the last step of an action, for which the app's server may have `limit`, and gives the envelope of its answer.
///
/// # Errors
/// 403 for a server that may not be asked, 502 for one that gives nothing to use, 503 when too many are being asked.
pub async fn finish(step: Step, upstream: &Upstream, limit: Duration) -> Result<Vec<u8>, ApiError> {
    match step {
        Step::Done(envelope) => Ok(envelope),
        Step::Ask(plan) => Ok(upstream.ask(plan, limit).await?.envelope()),
    }
}

/// The engine's operation for a storage action, with the reserved parameters taken out of the fields.
fn operation(storage: &StorageAction, mut fields: Fields) -> Result<Op, ApiError> {
    Ok(match storage.op {
        StorageOp::Append => Op::Append { fields },
        StorageOp::Set => Op::Set { id: take_id(&mut fields)?, fields },
        StorageOp::Update => Op::Update { id: take_id(&mut fields)?, fields },
        StorageOp::Delete => Op::Delete { id: take_id(&mut fields)? },
        StorageOp::Query => Op::Query { limit: take_limit(&mut fields), filter: fields },
    })
}

fn take_id(fields: &mut Fields) -> Result<RecordId, ApiError> {
    let invalid = |reason: &dyn std::fmt::Display| ApiError::invalid(format!("invalid params: id: {reason}"));
    let json = fields.remove("id").unwrap_or_default();
    let id = serde_json::from_str::<String>(&json).map_err(|error| invalid(&error))?;
    RecordId::try_from(id).map_err(|error| invalid(&error))
}

fn take_limit(fields: &mut Fields) -> usize {
    let limit = fields.remove("limit").and_then(|json| serde_json::from_str(&json).ok());
    limit.map_or(QUERY_LIMIT_DEFAULT, |number| limit_of(&number))
}

/// A page size from a JSON integer: zero and less mean the default, more than fits means all.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` from float saturates, as wanted"
)]
pub(crate) fn limit_of(number: &Number) -> usize {
    if let Some(limit) = number.as_u64() {
        return if limit == 0 { QUERY_LIMIT_DEFAULT } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    }
    match number.as_f64() {
        Some(limit) if limit >= 1.0 => limit as usize,
        _ => QUERY_LIMIT_DEFAULT,
    }
}

/// The seed's envelope of an outcome ("Storage: JSONL collections"), as JSON without spaces.
pub fn envelope(outcome: &Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Record(record) => {
            let mut json = br#"{"ok":true,"record":"#.to_vec();
            json.extend_from_slice(record.as_bytes());
            json.push(b'}');
            json
        }
        Outcome::Deleted(id) => {
            format!(r#"{{"ok":true,"deleted":{}}}"#, Value::from(id.as_str())).into_bytes()
        }
        Outcome::Records(records) => {
            let mut json = br#"{"ok":true,"records":"#.to_vec();
            json.extend_from_slice(records.as_array());
            json.extend_from_slice(format!(r#","count":{}}}"#, records.count()).as_bytes());
            json
        }
        Outcome::Retained(retained) => {
            let mut json = br#"{"ok":true,"removed":"#.to_vec();
            json.extend_from_slice(retained.removed.as_array());
            let counts = (retained.removed.count(), retained.kept, retained.series);
            let rest = format!(r#","count":{},"kept":{},"series":{}}}"#, counts.0, counts.1, counts.2);
            json.extend_from_slice(rest.as_bytes());
            json
        }
    }
}

/// The envelope of an error, as JSON without spaces.
pub fn error_envelope(error: &ApiError) -> Vec<u8> {
    format!(r#"{{"ok":false,"error":{}}}"#, Value::from(&*error.message)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_size_that_is_no_size_is_the_default() {
        for (json, expected) in [
            ("1", 1),
            ("200", 200),
            ("2.0", 2),
            ("0", QUERY_LIMIT_DEFAULT),
            ("-5", QUERY_LIMIT_DEFAULT),
            ("0.0", QUERY_LIMIT_DEFAULT),
            ("-1e300", QUERY_LIMIT_DEFAULT),
            ("18446744073709551615", usize::MAX),
            ("99999999999999999999999", usize::MAX),
            ("1e300", usize::MAX),
        ] {
            assert_eq!(limit_of(&serde_json::from_str(json).unwrap()), expected, "for {json}");
        }
    }

    #[test]
    fn empty_params_are_an_empty_object() {
        for text in ["", "{}", " {\n} "] {
            assert!(parse_params(text).unwrap().is_empty());
        }
    }

    #[test]
    fn digits_order_and_escapes_of_params_are_kept() {
        let fields =
            parse_params(r#"{"z":1.50,"a":1234567890123456789012345678901234567890,"s":"\ud800x"}"#).unwrap();
        let members: Vec<_> = fields.iter().collect();
        assert_eq!(
            members,
            [("z", "1.50"), ("a", "1234567890123456789012345678901234567890"), ("s", "\"\u{fffd}x\"")]
        );
    }

    #[test]
    fn an_error_is_an_envelope_whatever_is_in_it() {
        assert_eq!(error_envelope(&ApiError::invalid("a \"b\"\n")), br#"{"ok":false,"error":"a \"b\"\n"}"#);
    }
}
