//! Arbitrary bytes as the fields of a record, and as a record that stands in a file.
//!
//! The first line of the input is what is appended, the rest is what is merged over it.

use linekeep_engine::{DEPTH_MAX, Fields, Record};
use serde::de::IgnoredAny;

use super::scan::{check_served, merged};
use super::{Bench, nameable};
use crate::equality::{Json, depth, raw_members, unescape};

/// Parses the bytes as fields, appends and merges their lines, and merges over their first line as it stands.
pub fn record(bytes: &[u8]) {
    drop(fields(bytes));
    let newline = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (first, second) = bytes.split_at(newline);
    let over = fields(second).unwrap_or_default();
    if let Some(fields) = fields(first) {
        append_and_merge(&fields, &over);
    }
    merge_over_a_foreign_line(first, &over);
}

/// What the engine parses, which must be what `serde_json` does, except for what the engine refuses on purpose.
fn fields(bytes: &[u8]) -> Option<Fields> {
    let grammatical =
        std::str::from_utf8(bytes).is_ok() && serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
    let json = if grammatical && depth(bytes) <= DEPTH_MAX { Json::parse(bytes) } else { None };
    let expected = json.filter(|json| json.members().is_some() && !json.holds_a_number_beyond_doubles());
    match (Fields::parse(bytes), expected) {
        (Ok(fields), Some(json)) => {
            let found: Vec<(String, Json)> = fields
                .iter()
                .map(|(key, value)| {
                    assert_eq!(fields.get(key), Some(value));
                    (
                        key.to_owned(),
                        Json::parse_strict(value.as_bytes()).expect("every reader takes a value"),
                    )
                })
                .collect();
            assert_eq!(Some(found.as_slice()), json.members(), "keys, order and values");
            Some(fields)
        }
        (Err(error), None) => {
            const MESSAGE_BYTES_MAX: usize = 1000;
            let message = error.to_string();
            assert!(message.len() < MESSAGE_BYTES_MAX, "the message is as long as the input: {message}");
            None
        }
        (ours, theirs) => panic!("{}: {ours:?}, but {theirs:?}", bytes.escape_ascii()),
    }
}

fn append_and_merge(fields: &Fields, over: &Fields) {
    let bench = Bench::new();
    let appended = bench.collection.append(fields.clone()).expect("there is room");
    let record = one_line(&bench, &appended);
    let id = match record.get("id") {
        Some(Json::String(id)) => id.clone(),
        other => panic!("the id is {other:?}"),
    };
    assert!(id.len() == 12 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{id}");
    let own = [
        ("id".to_owned(), Json::String(id.clone())),
        ("ts".to_owned(), Json::String("2026-11-30T19:33:00+00:00".to_owned())),
    ];
    let expected = own.into_iter().chain(given(fields, &["id", "ts"])).collect();
    assert_eq!(record, Json::Object(expected), "id, ts, then the fields");
    each_field_finds(&bench, &appended);

    let id = nameable(&id).expect("twelve bytes");
    let updated = bench.collection.update(id.clone(), over.clone()).expect("the record is there");
    assert_eq!(one_line(&bench, &updated), merged(appended.as_bytes(), over), "the merge");
    each_field_finds(&bench, &updated);

    let set = bench.collection.set(id, fields.clone()).expect("the record is there");
    let old = Json::parse(updated.as_bytes()).expect("a record is JSON");
    let ts = fields.get("ts").map(|ts| Json::parse(ts.as_bytes()).expect("fields are JSON"));
    let ts = ts.or_else(|| old.get("ts").cloned()).expect("an appended record has one");
    let own = [("id".to_owned(), old.get("id").cloned().expect("it has one")), ("ts".to_owned(), ts)];
    let expected = own.into_iter().chain(given(fields, &["id", "ts"])).collect();
    assert_eq!(one_line(&bench, &set), Json::Object(expected), "id, ts, then the fields");
}

/// The fields as values, without those that the engine sets by itself.
fn given(fields: &Fields, left_out: &'static [&str]) -> impl Iterator<Item = (String, Json)> {
    let kept = fields.iter().filter(|(key, _)| !left_out.contains(key));
    kept.map(|(key, value)| (key.to_owned(), Json::parse(value.as_bytes()).expect("fields are JSON")))
}

/// The file is this record and a newline, in text that nothing takes for several lines.
#[track_caller]
fn one_line(bench: &Bench, record: &Record) -> Json {
    bench.check_file(&[record.as_bytes(), b"\n"].concat());
    let text = std::str::from_utf8(record.as_bytes()).expect("a record is UTF-8");
    let breaks = |found: char| found < ' ' || matches!(found, '\u{85}' | '\u{2028}' | '\u{2029}');
    assert!(!text.contains(breaks), "{text:?}");
    Json::parse_strict(record.as_bytes()).expect("every reader takes a record")
}

/// A query for the value of any one field finds the record.
fn each_field_finds(bench: &Bench, record: &Record) {
    for (key, value) in
        raw_members(std::str::from_utf8(record.as_bytes()).expect("UTF-8")).expect("an object")
    {
        let filter = Fields::parse(format!("{{{key}:{value}}}").as_bytes()).expect("a member of a record");
        let found = bench.collection.query(&filter, 1).expect("the file is read");
        assert_eq!((found.len(), found.count()), (1, 1), "{key}:{value}");
    }
}

/// Merges over a record as some other program wrote it: members that no field names keep their bytes.
fn merge_over_a_foreign_line(line: &[u8], over: &Fields) {
    let text = String::from_utf8_lossy(line);
    let Some(Json::Object(_)) = Json::parse(line).filter(|_| depth(line) <= DEPTH_MAX) else { return };
    // A file of another encoding is refused, which is the other target's business.
    let Some(Json::String(id)) = Json::parse(line).and_then(|json| json.get("id").cloned()) else { return };
    let Some(id) = nameable(&id) else { return };
    let bench = Bench::with_file(line);
    let updated = bench.collection.update(id, over.clone()).expect("the record is there");
    let new = bench.file();
    check_served(updated.as_bytes(), new.trim_ascii());
    assert_eq!(Json::parse(&new), Some(merged(line, over)), "the merge");

    let mut expected = raw_members(&text).expect("an object");
    let old = expected.len();
    for (key, value) in over.iter().filter(|(key, _)| *key != "id") {
        let named = |(name, _): &&mut (&str, &str)| unescape(name).as_deref() == Some(key);
        match expected.iter_mut().rfind(named) {
            Some((_, last)) => *last = value,
            None => expected.push(("", value)),
        }
    }
    let new = String::from_utf8_lossy(&new);
    let mut found = raw_members(&new).expect("an object");
    for (name, _) in &mut found[old..] {
        *name = "";
    }
    assert_eq!(found, expected, "members that no field names keep their bytes");
}
