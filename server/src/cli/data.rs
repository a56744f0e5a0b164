//! `linekeep data`: the engine's operations on any collection file, from a shell.
//!
//! The same call and the same envelopes as an app's storage action, without an app around it. Errors are answers: one
//! line of JSON on standard output with the status the gateway would have given, and exit status 1. A person at a
//! shell may know paths, so what the gateway hides behind `internal error` is said here.

use std::{fs, io, path::Path, process::ExitCode};

use linekeep_engine::{
    Collection, CollectionName, CorruptLine, Fields, Health, Op, Options, Outcome, QUERY_LIMIT_DEFAULT,
    RecordId, Repair, RepairKind, RepairStep, RetainPolicy, Store, TornTail,
};
use serde::Serialize;

use super::{Failure, print};
use crate::{ApiError, apps::action::envelope, args::DataCommand, excerpt::one_line};

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
        DataCommand::Health { path } if path.is_dir() => return survey(path),
        DataCommand::Health { path } => {
            return line(&HealthLine { ok: true, health: HealthView::from(open(path)?.health()?) });
        }
        DataCommand::Retain { file, key, dry_run } => {
            let policy = RetainPolicy { key: key.clone(), ..RetainPolicy::default() };
            if *dry_run {
                return Ok(envelope(&Outcome::Retained(open(file)?.retain_dry_run(&policy)?)));
            }
            (file, Op::Retain { policy })
        }
        DataCommand::Repair { file, apply, .. } => {
            let collection = open(file)?;
            let repair = if *apply {
                RepairLine { applied: true, ..RepairLine::from(collection.repair()?) }
            } else {
                RepairLine::from(collection.repair_dry_run()?)
            };
            return line(&repair);
        }
    };
    Ok(envelope(&open(file)?.run(op)?))
}

fn line(answer: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(answer).map_err(ApiError::internal)
}

/// The health of every collection below a folder.
fn survey(folder: &Path) -> Result<Vec<u8>, ApiError> {
    let survey = Store::open(folder, Options::default())?.survey()?;
    let collections: Vec<SurveyedView> = survey
        .collections
        .into_iter()
        .map(|(path, health)| {
            let path = path.display().to_string();
            match health {
                Ok(health) => SurveyedView { path, health: Some(HealthView::from(health)), error: None },
                Err(error) => {
                    SurveyedView { path, health: None, error: Some(ApiError::from(error).detail()) }
                }
            }
        })
        .collect();
    let others = survey.others.iter().map(|path| path.display().to_string()).collect();
    let unread = survey.unread.into_iter().map(|(path, error)| UnreadView {
        path: path.display().to_string(),
        error: ApiError::from(error).detail(),
    });
    line(&SurveyLine { ok: true, collections, others, unread: unread.collect() })
}

fn open(file: &Path) -> Result<Collection, ApiError> {
    let (folder, name) = CollectionName::of_file(file)?;
    // A missing file is an empty collection; in a folder that is not there it is a slip of the pen.
    if fs::metadata(&folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Err(ApiError::not_found(format!(
            "folder '{}' not found",
            one_line(&folder.display().to_string())
        )));
    }
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

#[derive(Serialize)]
struct SurveyLine {
    ok: bool,
    collections: Vec<SurveyedView>,
    /// Files that look like collections and are none.
    others: Vec<String>,
    /// Folders that were not looked into.
    unread: Vec<UnreadView>,
}

#[derive(Serialize)]
struct UnreadView {
    path: String,
    error: String,
}

/// One collection of a survey: its health, or why it cannot be read.
#[derive(Serialize)]
struct SurveyedView {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<HealthView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct RepairLine {
    ok: bool,
    applied: bool,
    steps: Vec<RepairStepView>,
    steps_count: u64,
    records: u64,
    bytes_before: u64,
    bytes_after: u64,
    /// Where the file as it was is kept.
    kept: Option<String>,
}

#[derive(Serialize)]
struct RepairStepView {
    line: u64,
    offset: u64,
    length: u64,
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl From<Repair> for RepairLine {
    /// The line of a repair that was not carried out.
    fn from(repair: Repair) -> Self {
        Self {
            ok: true,
            applied: false,
            steps: repair.steps.into_iter().map(RepairStepView::from).collect(),
            steps_count: repair.steps_count,
            records: repair.records,
            bytes_before: repair.bytes_before,
            bytes_after: repair.bytes_after,
            kept: repair.kept.map(|path| path.display().to_string()),
        }
    }
}

impl From<RepairStep> for RepairStepView {
    fn from(step: RepairStep) -> Self {
        let (what, reason) = match step.what {
            RepairKind::DropCorrupt { reason } => ("drop_corrupt", Some(reason)),
            RepairKind::DropPadding => ("drop_padding", None),
            RepairKind::SplitGlued => ("split_glued", None),
            RepairKind::ReplaceInvalidText => ("replace_invalid_text", None),
            RepairKind::EndLastLine => ("end_last_line", None),
        };
        Self { line: step.line, offset: step.offset, length: step.length, what, reason }
    }
}

/// [`Health`] as the command prints it. The engine lists a bounded number of corrupt lines and counts all.
#[derive(Serialize)]
struct HealthView {
    records: u64,
    bytes: u64,
    limit_bytes: u64,
    /// How much of the limit is used, in per cent, rounded up: above 100, only query and delete work.
    limit_used_percent: u64,
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
            limit_used_percent: (health.bytes * 100).div_ceil(health.collection_bytes_max.max(1)),
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
        assert!(text(&DataCommand::Health { path: file }).starts_with("400 "));
    }

    #[test]
    fn the_health_of_a_missing_file_is_that_of_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            text(&DataCommand::Health { path: folder.path().join("items.jsonl") }),
            concat!(
                r#"{"ok":true,"health":{"records":0,"bytes":0,"limit_bytes":5000000,"limit_used_percent":0,"corrupt_lines":[],"torn_tail":null,"#,
                r#""corrupt_lines_count":0,"records_without_id":0,"duplicate_ids":0}}"#
            )
        );
    }
}
