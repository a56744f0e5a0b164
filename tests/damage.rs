//! The damaged files of the fixtures: what is read from each, and that whatever is done to one record, every other
//! byte of the file stays as it was.
//!
//! What a file must hold afterwards is worked out here, from the fixtures' own plain shape (flat objects that start
//! with their id), not with the engine's scanner.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use linekeep_tests::lines::{is_new_id, is_timestamp, lines, members, records, spelled};
use linekeep_tests::process::fixtures;
use linekeep_tests::server::SECRET;
use linekeep_tests::{Cli, Finished, Workspace};
use serde_json::{Value, json};
use tempfile::TempDir;

/// One damaged file, and what is expected of it.
struct Damaged {
    name: String,
    bytes: Vec<u8>,
    expected: Value,
}

impl Damaged {
    /// Every file that `expect.json` names, after a look that it names every file.
    fn all() -> Vec<Self> {
        let folder = fixtures().join("damaged");
        let expected = fs::read(folder.join("expect.json")).expect("the fixtures say what is expected");
        let expected: Value = serde_json::from_slice(&expected).expect("what is expected is JSON");
        let all = expected.as_object().expect("by file name").iter().map(|(name, expected)| {
            let bytes = fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            Self { name: name.clone(), bytes, expected: expected.clone() }
        });
        let all: Vec<_> = all.collect();
        let files = fs::read_dir(&folder).expect("the fixtures can be listed").count();
        assert_eq!(files, all.len() + 1, "every file has its expectation");
        all
    }

    fn named(name: &str) -> Self {
        Self::all().into_iter().find(|damaged| damaged.name == name).expect("there is such a file")
    }

    fn is_refused(&self) -> bool {
        self.expected.get("refused").is_some()
    }

    /// The expected ids, in the order of the file.
    fn ids(&self) -> Vec<&str> {
        let ids = self.expected["ids"].as_array().into_iter().flatten();
        ids.map(|id| id.as_str().expect("an id is a text")).collect()
    }

    /// The ids that one record alone has.
    fn unique_ids(&self) -> Vec<&str> {
        let ids = self.ids();
        ids.iter().filter(|id| ids.iter().filter(|other| other == id).count() == 1).copied().collect()
    }

    /// Where the record with an id lies: from the brace before its id to the next closing one.
    fn span(&self, id: &str) -> Range<usize> {
        let start = [format!(r#"{{"id": "{id}""#), format!(r#"{{"id":"{id}""#)]
            .iter()
            .find_map(|start| self.bytes.windows(start.len()).position(|window| window == start.as_bytes()));
        let start = start.unwrap_or_else(|| panic!("{} has no record {id}", self.name));
        let length = self.bytes[start..].iter().position(|byte| *byte == b'}').expect("a record ends");
        start..start + length + 1
    }

    /// The file without a record: its line goes with it, if only white space is left of that.
    fn without(&self, id: &str) -> Vec<u8> {
        let span = self.span(id);
        let before = &self.bytes[..span.start];
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let after = &self.bytes[span.end..];
        let end = after.iter().position(|byte| *byte == b'\n').map_or(after.len(), |newline| newline + 1);
        let rest = [&before[start..], &after[..end]].concat();
        let cut = if rest.iter().all(u8::is_ascii_whitespace) { start..span.end + end } else { span };
        [&self.bytes[..cut.start], &self.bytes[cut.end..]].concat()
    }

    /// A copy, and the command line on it.
    fn copy(&self) -> Copy {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join(&self.name);
        fs::write(&path, &self.bytes).expect("a file can be written");
        Copy { cli: Cli::new(folder.path()), name: self.name.clone(), path, folder }
    }
}

struct Copy {
    cli: Cli,
    name: String,
    path: PathBuf,
    folder: TempDir,
}

impl Copy {
    /// Runs `data <command> <file> <arguments>`.
    fn data(&self, command: &str, arguments: &[&str]) -> Finished {
        self.cli.run([&["data", command, &self.name], arguments].concat())
    }

    /// Runs a command that must succeed, and gives its envelope as it is spelled.
    #[track_caller]
    fn ok(&self, command: &str, arguments: &[&str]) -> String {
        let answer = self.data(command, arguments);
        assert_eq!(answer.code, Some(0), "{}: {answer:?}", self.name);
        answer.line().to_owned()
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).expect("the file is there")
    }

    /// Looks that the file holds this, and that nothing was left beside it.
    #[track_caller]
    fn check(&self, what: &str, expected: &[u8]) {
        let bytes = self.bytes();
        assert!(
            bytes == expected,
            "{} after {what}:\n{}\nbut expected:\n{}",
            self.name,
            bytes.escape_ascii(),
            expected.escape_ascii()
        );
        assert_eq!(fs::read_dir(self.folder.path()).expect("a folder can be listed").count(), 1, "{what}");
    }
}

/// The id of a record as it is served; `None` when it has none, or one that is no text.
fn id_of(record: &str) -> Option<String> {
    members(record).get("id").and_then(|id| serde_json::from_str(id.get()).ok())
}

#[test]
fn a_query_reads_what_is_whole_in_each_damaged_file() {
    for damaged in Damaged::all().iter().filter(|damaged| !damaged.is_refused()) {
        let copy = damaged.copy();
        let envelope = copy.ok("query", &["--limit", "1000"]);
        let found = records(&envelope);
        assert_eq!(json!(found.len()), damaged.expected["records"], "{}", damaged.name);
        assert_eq!(spelled(&envelope, "count"), found.len().to_string(), "{}", damaged.name);
        if damaged.expected["ids"].is_array() {
            let ids: Vec<_> =
                found.iter().map(|record| id_of(record).expect("every record has an id")).collect();
            assert_eq!(ids, damaged.ids(), "{}", damaged.name);
        }
        copy.check("a query", &damaged.bytes);
    }
}

#[test]
fn health_counts_the_records_and_points_at_each_corrupt_line() {
    for damaged in Damaged::all().iter().filter(|damaged| !damaged.is_refused()) {
        let copy = damaged.copy();
        let health = copy.data("health", &[]).json(0)["health"].take();
        assert_eq!(health["records"], damaged.expected["records"], "{}", damaged.name);
        assert_eq!(health["bytes"], damaged.bytes.len(), "{}", damaged.name);
        let corrupt = health["corrupt_lines"].as_array().expect("corrupt lines are an array");
        // Where nothing is said of corrupt lines, all that stands beside the records is padding.
        let expected = damaged.expected.get("corrupt_lines").cloned().unwrap_or_else(|| json!(0));
        assert_eq!(json!(corrupt.len()), expected, "{}: {corrupt:?}", damaged.name);
        for line in corrupt {
            let number = |key: &str| usize::try_from(line[key].as_u64().expect("a number")).expect("it fits");
            let (offset, length) = (number("offset"), number("length"));
            let start: usize =
                lines(&damaged.bytes)[..number("line") - 1].iter().map(|line| line.len()).sum();
            let text = lines(&damaged.bytes)[number("line") - 1];
            let end = start + text.strip_suffix(b"\n").unwrap_or(text).len();
            assert!(start <= offset && length > 0 && offset + length == end, "{}: {line}", damaged.name);
            assert!(!line["reason"].as_str().expect("a reason is a text").is_empty());
        }
        let tail = damaged.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let expected = match damaged.name.as_str() {
            _ if tail == damaged.bytes.len() => Value::Null,
            name => json!({"offset": tail, "length": damaged.bytes.len() - tail,
                "is_record": name == "no-final-newline.jsonl"}),
        };
        assert_eq!(health["torn_tail"], expected, "{}", damaged.name);
        copy.check("a look at its health", &damaged.bytes);
    }
}

#[test]
fn a_file_in_another_encoding_is_refused_by_name_and_left_alone() {
    let damaged: Vec<_> = Damaged::all().into_iter().filter(Damaged::is_refused).collect();
    let [damaged] = &damaged[..] else { panic!("one file is refused") };
    let copy = damaged.copy();
    for (command, arguments) in [
        ("query", &[][..]),
        ("health", &[]),
        ("append", &[r#"{"x":1}"#]),
        ("set", &["000000000001", r#"{"x":1}"#]),
        ("update", &["000000000001", r#"{"x":1}"#]),
        ("delete", &["000000000001"]),
    ] {
        let answer = copy.data(command, arguments).json(1);
        assert_eq!(answer["status"], 409, "{command}");
        assert!(answer["error"].as_str().expect("a text").contains("UTF-16"), "{command}: {answer}");
        copy.check(command, &damaged.bytes);
    }
}

#[test]
fn an_append_leaves_every_byte_and_starts_a_line_of_its_own() {
    for damaged in Damaged::all().iter().filter(|damaged| !damaged.is_refused()) {
        let copy = damaged.copy();
        let envelope = copy.ok("append", &[r#"{"x":"🌱 \"q\"","n":1e2}"#]);
        let record = spelled(&envelope, "record");
        let found = members(record);
        let text = |key: &str| serde_json::from_str::<String>(found[key].get()).expect("a text");
        assert!(is_new_id(&text("id")) && is_timestamp(&text("ts")), "{record}");
        assert_eq!((text("x").as_str(), found["n"].get(), found.len()), ("🌱 \"q\"", "1e2", 4), "{record}");

        let newline = if damaged.bytes.last().is_none_or(|byte| *byte == b'\n') { "" } else { "\n" };
        copy.check("an append", &[&damaged.bytes, newline.as_bytes(), record.as_bytes(), b"\n"].concat());
        let envelope = copy.ok("query", &["--limit", "1000"]);
        let found = records(&envelope);
        assert_eq!(json!(found.len() - 1), damaged.expected["records"], "{}", damaged.name);
        assert_eq!(found.last(), Some(&record), "{}", damaged.name);
    }
}

#[test]
fn an_update_changes_the_bytes_of_its_record_alone() {
    let mut updates = 0;
    for damaged in Damaged::all() {
        for id in damaged.unique_ids() {
            let span = damaged.span(id);
            let copy = damaged.copy();
            let envelope = copy.ok("update", &[id, r#"{"added":[1,2.50]}"#]);
            let record = spelled(&envelope, "record");
            let rest = (&damaged.bytes[..span.start], &damaged.bytes[span.end..]);
            let bytes = copy.bytes();
            let written = bytes.strip_prefix(rest.0).and_then(|bytes| bytes.strip_suffix(rest.1));
            let written =
                written.unwrap_or_else(|| panic!("{} {id}: {}", damaged.name, bytes.escape_ascii()));

            // What stood in the record is kept as it was spelled, the new member comes after it.
            let old = &damaged.bytes[span.start..span.end - 1];
            let added = written.strip_prefix(old).unwrap_or_else(|| panic!("{}", written.escape_ascii()));
            let added: String = String::from_utf8_lossy(added).split_whitespace().collect();
            assert_eq!(added, r#","added":[1,2.50]}"#, "{} {id}", damaged.name);
            assert_eq!(String::from_utf8_lossy(written), record, "{} {id}", damaged.name);
            copy.check("an update", &[rest.0, written, rest.1].concat());
            updates += 1;
        }
    }
    assert!(updates > 100, "{updates} records were updated");
}

#[test]
fn an_update_of_a_member_puts_the_new_value_in_the_place_of_the_old() {
    for damaged in Damaged::all() {
        let Some(id) = damaged.unique_ids().into_iter().next() else { continue };
        let span = damaged.span(id);
        let old =
            String::from_utf8(damaged.bytes[span.clone()].to_vec()).expect("the first records are UTF-8");
        let Some(at) = old.rfind("\"n\":") else { continue };
        let start = at + old[at..].find(|char: char| char.is_ascii_digit()).expect("n is a number");
        let end = start + old[start..].find(|char: char| !char.is_ascii_digit()).expect("the record ends");
        let new = format!("{}777{}", &old[..start], &old[end..]);
        let copy = damaged.copy();
        copy.ok("update", &[id, r#"{"n":777}"#]);
        let rest = (&damaged.bytes[..span.start], &damaged.bytes[span.end..]);
        copy.check("an update of n", &[rest.0, new.as_bytes(), rest.1].concat());
        copy.ok("update", &[id, r#"{"n":777}"#]);
        copy.check("the same update again", &[rest.0, new.as_bytes(), rest.1].concat());
    }
}

#[test]
fn a_set_changes_the_bytes_of_its_record_alone() {
    for damaged in Damaged::all() {
        let Some(id) = damaged.unique_ids().into_iter().next_back() else { continue };
        let span = damaged.span(id);
        let copy = damaged.copy();
        let envelope = copy.ok("set", &[id, r#"{"only":"this","ts":"then"}"#]);
        let record = spelled(&envelope, "record");
        assert_eq!(record, format!(r#"{{"id":"{id}","ts":"then","only":"this"}}"#));
        let rest = (&damaged.bytes[..span.start], &damaged.bytes[span.end..]);
        copy.check("a set", &[rest.0, record.as_bytes(), rest.1].concat());
    }
}

#[test]
fn a_delete_takes_its_record_alone() {
    let mut deletes = 0;
    for damaged in Damaged::all() {
        for id in damaged.unique_ids() {
            let copy = damaged.copy();
            assert_eq!(copy.ok("delete", &[id]), format!(r#"{{"ok":true,"deleted":"{id}"}}"#));
            copy.check(&format!("a delete of {id}"), &damaged.without(id));
            deletes += 1;
        }
    }
    assert!(deletes > 100, "{deletes} records were deleted");
}

#[test]
fn every_record_can_be_deleted_and_what_is_none_is_left() {
    for damaged in Damaged::all().into_iter().filter(|damaged| !damaged.is_refused()) {
        let copy = damaged.copy();
        let mut ids = damaged.ids();
        ids.dedup();
        for id in &ids {
            copy.ok("delete", &[id]);
        }
        let health = copy.data("health", &[]).json(0)["health"].take();
        let without_ids = if damaged.name == "no-ids.jsonl" { 3 } else { 0 };
        assert_eq!(health["records"], without_ids, "{}", damaged.name);
        let expected = damaged.expected.get("corrupt_lines").cloned().unwrap_or_else(|| json!(0));
        let corrupt = health["corrupt_lines"].as_array().expect("corrupt lines are an array").len();
        // The padding in front of a record is a line of NULs when the record has gone.
        let padding = usize::from(damaged.name == "nul-before-record.jsonl");
        assert_eq!(json!(corrupt - padding), expected, "{}: {health}", damaged.name);
    }
}

#[test]
fn of_one_id_twice_an_update_changes_the_first_and_a_delete_takes_both() {
    let damaged = Damaged::named("duplicate-ids.jsonl");
    let [first, second, third] = lines(&damaged.bytes)[..] else { panic!("three lines") };
    let copy = damaged.copy();
    copy.ok("update", &["000000000001", r#"{"n":777}"#]);
    let changed = String::from_utf8_lossy(first).replace("\"n\": 1}", "\"n\": 777}").into_bytes();
    assert_ne!(changed, first);
    copy.check("an update", &[&changed[..], second, third].concat());
    copy.ok("delete", &["000000000001"]);
    copy.check("a delete", third);
    assert_eq!(copy.data("delete", &["000000000001"]).json(1)["status"], 404);

    let copy = damaged.copy();
    copy.ok("set", &["000000000001", r#"{"n":5}"#]);
    let set = br#"{"id":"000000000001","ts":"2026-11-30T19:33:00+00:00","n":5}"#;
    copy.check("a set", &[&set[..], b"\n", second, third].concat());
}

#[test]
fn a_filter_sees_the_last_of_duplicate_keys() {
    let copy = Damaged::named("duplicate-keys.jsonl").copy();
    let count = |filter: &str| copy.data("query", &["--where", filter]).json(0)["count"].take();
    assert_eq!(
        (count(r#"{"n":2}"#), count(r#"{"n":1}"#), count(r#"{"n":null}"#)),
        (json!(1), json!(0), json!(0))
    );
}

#[test]
fn records_without_an_id_are_served_and_outlive_every_rewrite() {
    let damaged = Damaged::named("no-ids.jsonl");
    let copy = damaged.copy();
    assert_eq!(copy.data("query", &["--where", r#"{"n":2}"#]).json(0)["records"], json!([{"id": 7, "n": 2}]));
    assert_eq!(copy.data("delete", &["7"]).json(1)["status"], 404, "a number is no id");
    assert_eq!(copy.data("update", &["7", "{}"]).json(1)["status"], 404);
    let rest = [lines(&damaged.bytes)[0], lines(&damaged.bytes)[1]].concat();
    copy.ok("update", &["000000000001", r#"{"n":777}"#]);
    assert!(copy.bytes().starts_with(&rest));
    copy.ok("delete", &["000000000001"]);
    copy.check("a delete", &rest);
    copy.ok("set", &["7", r#"{"n":8}"#]);
    assert!(copy.bytes().starts_with(&rest), "a set with the text 7 makes a record of its own");
    assert_eq!(copy.data("query", &[]).json(0)["count"], 3);
}

#[test]
fn digits_survive_any_number_of_rewrites_of_the_other_record() {
    let damaged = Damaged::named("big-numbers.jsonl");
    let [big, _] = lines(&damaged.bytes)[..] else { panic!("two lines") };
    let copy = damaged.copy();
    for round in 0..20 {
        copy.ok("update", &["000000000002", &format!(r#"{{"n":{round}}}"#)]);
        assert_eq!(lines(&copy.bytes())[0], big, "round {round}");
    }
    // A rewrite of the record itself keeps what it does not name, and what is served has the digits of the file.
    let envelope = copy.ok("update", &["000000000001", r#"{"x":true}"#]);
    for record in [spelled(&envelope, "record"), records(&copy.ok("query", &[]))[0]] {
        assert_eq!(spelled(record, "n"), "9007199254740993");
        assert_eq!(spelled(record, "f"), "122.416294033786585");
        assert_eq!(spelled(record, "e"), "1E400");
        assert_eq!(spelled(record, "big"), "12345678901234567890123456789012345678901234567890");
        assert_eq!(spelled(record, "x"), "true");
    }
    let count = |filter: &str| spelled(&copy.ok("query", &["--where", filter]), "count").to_owned();
    assert_eq!(count(r#"{"n":9007199254740993}"#), "1");
    assert_eq!(count(r#"{"n":9007199254740992}"#), "0");
    assert_eq!(count(r#"{"big":12345678901234567890123456789012345678901234567890.0}"#), "1");
    assert_eq!(count(r#"{"big":12345678901234567890123456789012345678901234567891}"#), "0");
}

#[test]
fn bytes_that_are_no_utf_8_are_served_as_replacement_characters_and_stay_in_the_file() {
    let damaged = Damaged::named("invalid-utf8.jsonl");
    let copy = damaged.copy();
    let found = copy.data("query", &["--where", r#"{"id":"000000000006"}"#]).json(0);
    assert_eq!(found["records"][0]["t"], "a\u{FFFD}\u{FFFD}b");
    copy.ok("update", &["000000000006", r#"{"u":1}"#]);
    assert!(
        copy.bytes().windows(4).any(|window| window == b"a\xFF\xFEb"),
        "an update of another member keeps them"
    );
}

#[test]
fn the_gateway_serves_damaged_files_as_the_command_line_does() {
    let all = Damaged::all();
    let stem = |damaged: &Damaged| damaged.name.strip_suffix(".jsonl").expect("a collection").to_owned();
    let actions = all.iter().enumerate().flat_map(|(number, damaged)| {
        let collection = stem(damaged);
        [
            json!({"name": format!("read{number}"), "description": "d", "kind": "storage", "op": "query",
                "collection": collection}),
            json!({"name": format!("add{number}"), "description": "d", "kind": "storage", "op": "append",
                "collection": collection, "params": {"x": {"type": "integer"}}}),
        ]
    });
    let actions: Vec<_> = actions.collect();
    let manifest = json!({"name": "Danni", "description": "damaged files", "actions": actions}).to_string();
    let workspace = all.iter().fold(Workspace::new().app("danni", &manifest), |workspace, damaged| {
        workspace.file(&format!("danni/data/{}", damaged.name), &damaged.bytes)
    });
    let server = workspace.serve();
    for (number, damaged) in all.iter().enumerate() {
        let path = format!("danni/data/{}", damaged.name);
        let target = |action: &str, params: &str| {
            format!("/api/apps/danni/actions/{action}{number}?params={params}&token={SECRET}")
        };
        let read = server.get(&target("read", "{%22limit%22:1000}"));
        if damaged.is_refused() {
            assert!(read.error(409).contains("UTF-16"), "{}", read.text());
            assert!(server.get(&target("add", "{%22x%22:1}")).error(409).contains("UTF-16"));
            assert_eq!(server.read(&path), damaged.bytes);
            continue;
        }
        assert_eq!(read.status, 200, "{}: {}", damaged.name, read.text());
        assert_eq!(json!(records(read.text()).len()), damaged.expected["records"], "{}", damaged.name);
        let added = server.get(&target("add", "{%22x%22:1}"));
        assert_eq!(added.status, 200, "{}: {}", damaged.name, added.text());
        assert!(server.read(&path).starts_with(&damaged.bytes), "{}", damaged.name);
        assert_eq!(server.get(&target("read", "{%22limit%22:1}")).status, 200);
    }
    let log = server.log();
    let warnings =
        log.lines().filter(|line| line.contains("torn-tail.jsonl") && line.contains("WARN")).count();
    assert!(warnings >= 1, "corrupt lines are warned about: {log}");
}
