//! `linekeep data`: the engine's operations on any collection file, from a shell.
//!
//! The same call and the same envelopes as an app's storage action, without an app around it. Errors are answers: one
//! line of JSON on standard output with the status the gateway would have given, and exit status 1. A person at a
//! shell may know paths, so what the gateway hides behind `internal error` is said here.

use std::{path::Path, process::ExitCode};

use linekeep_engine::{
    Collection, CollectionName, CorruptLine, Fields, Health, Op, Options, QUERY_LIMIT_DEFAULT, RecordId,
    Store, TornTail,
};
use serde::Serialize;

use super::{Failure, print};
use crate::{ApiError, apps::action::envelope, args::DataCommand};

/// Carries out a `data` command.
pub(super) fn run(command: &DataCommand) -> Result<ExitCode, Failure> {
    match answer(command) {
        Ok(json) => {
            print(&json)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let status = error.status.as_u16();
            let text = error.detail();
            print(&serde_json::to_vec(&ErrorLine { ok: false, error: &text, status })?)?;
            Ok(ExitCode::FAILURE)
        }
    }
}

#[derive(Serialize)]
struct ErrorLine<'a> {
    ok: bool,
    error: &'a str,
    status: u16,
}

fn answer(command: &DataCommand) -> Result<Vec<u8>, ApiError> {
    let (file, op) = match command {
        DataCommand::Append { file, json } => (file, Op::Append { fields: fields(json)? }),
        DataCommand::Set { file, id, json } => (file, Op::Set { id: record_id(id)?, fields: fields(json)? }),
        DataCommand::Update { file, id, json } => {
            (file, Op::Update { id: record_id(id)?, fields: fields(json)? })
        }
        DataCommand::Delete { file, id } => (file, Op::Delete { id: record_id(id)? }),
        DataCommand::Query { file, filter, limit } => {
            let limit = if *limit == 0 { QUERY_LIMIT_DEFAULT } else { *limit };
            (file, Op::Query { filter: fields(filter)?, limit })
        }
        DataCommand::Health { file } => {
            let line = HealthLine { ok: true, health: HealthView::from(open(file)?.health()?) };
            return serde_json::to_vec(&line).map_err(ApiError::internal);
        }
    };
    Ok(envelope(&open(file)?.run(op)?))
}

fn open(file: &Path) -> Result<Collection, ApiError> {
    let (folder, name) = CollectionName::of_file(file)?;
    Ok(Store::open(&folder, Options::default())?.collection("", &name)?)
}

fn fields(json: &str) -> Result<Fields, ApiError> {
    Ok(Fields::parse(json.as_bytes())?)
}

fn record_id(id: &str) -> Result<RecordId, ApiError> {
    Ok(id.parse::<RecordId>()?)
}

#[derive(Serialize)]
struct HealthLine {
    ok: bool,
    health: HealthView,
}

/// [`Health`] as the command prints it. The engine lists a bounded number of corrupt lines and counts all.
#[derive(Serialize)]
struct HealthView {
    records: u64,
    bytes: u64,
    limit_bytes: u64,
    corrupt_lines: Vec<CorruptLineView>,
    torn_tail: Option<TornTailView>,
    corrupt_lines_count: u64,
    records_without_id: u64,
    duplicate_ids: u64,
}

#[derive(Serialize)]
struct CorruptLineView {
    line: u64,
    offset: u64,
    length: u64,
    reason: String,
}

#[derive(Serialize)]
struct TornTailView {
    offset: u64,
    length: u64,
    is_record: bool,
}

impl From<Health> for HealthView {
    fn from(health: Health) -> Self {
        Self {
            records: health.records,
            bytes: health.bytes,
            limit_bytes: health.collection_bytes_max,
            corrupt_lines: health.corrupt_lines.into_iter().map(CorruptLineView::from).collect(),
            torn_tail: health.torn_tail.map(TornTailView::from),
            corrupt_lines_count: health.corrupt_lines_count,
            records_without_id: health.records_without_id,
            duplicate_ids: health.duplicate_ids,
        }
    }
}

impl From<CorruptLine> for CorruptLineView {
    fn from(line: CorruptLine) -> Self {
        Self { line: line.line, offset: line.offset, length: line.length, reason: line.reason }
    }
}

impl From<TornTail> for TornTailView {
    fn from(tail: TornTail) -> Self {
        Self { offset: tail.offset, length: tail.length, is_record: tail.is_record }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(command: &DataCommand) -> String {
        match answer(command) {
            Ok(json) => String::from_utf8(json).unwrap(),
            Err(error) => format!("{} {}", error.status.as_u16(), error.detail()),
        }
    }

    #[test]
    fn records_are_added_found_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("items.jsonl");
        let appended = text(&DataCommand::Append { file: file.clone(), json: r#"{"what":"milk"}"#.into() });
        assert!(appended.starts_with(r#"{"ok":true,"record":{"id":""#), "{appended}");
        let record: serde_json::Value = serde_json::from_str(&appended).unwrap();
        let id = record["record"]["id"].as_str().unwrap().to_owned();
        let query = DataCommand::Query { file: file.clone(), filter: r#"{"what":"milk"}"#.into(), limit: 0 };
        let found = text(&query);
        assert!(found.ends_with(r#"],"count":1}"#), "{found}");
        let deleted = text(&DataCommand::Delete { file: file.clone(), id: id.clone() });
        assert_eq!(deleted, format!(r#"{{"ok":true,"deleted":"{id}"}}"#));
        assert_eq!(text(&query), r#"{"ok":true,"records":[],"count":0}"#);
        assert!(text(&DataCommand::Delete { file, id }).starts_with("404 "));
    }

    #[test]
    fn bad_input_is_400() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("items.jsonl");
        assert!(text(&DataCommand::Append { file: file.clone(), json: "[]".into() }).starts_with("400 "));
        assert!(text(&DataCommand::Append { file: file.clone(), json: "{".into() }).starts_with("400 "));
        assert!(text(&DataCommand::Delete { file, id: String::new() }).starts_with("400 "));
        let file = folder.path().join("items.txt");
        assert!(text(&DataCommand::Health { file }).starts_with("400 "));
    }

    #[test]
    fn the_health_of_a_missing_file_is_that_of_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            text(&DataCommand::Health { file: folder.path().join("items.jsonl") }),
            concat!(
                r#"{"ok":true,"health":{"records":0,"bytes":0,"limit_bytes":5000000,"corrupt_lines":[],"torn_tail":null,"#,
                r#""corrupt_lines_count":0,"records_without_id":0,"duplicate_ids":0}}"#
            )
        );
    }
}
