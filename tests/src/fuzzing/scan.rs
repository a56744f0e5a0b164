//! Arbitrary bytes as a collection's file: what is served, what is reported, and what a write leaves alone.
//!
//! The judge finds the records by itself: it splits lines, steps over padding, and asks `serde_json` where each object
//! ends. So it knows each byte of the file, and what every byte must be after an operation.

use std::collections::BTreeMap;
use std::ops::Range;

use linekeep_engine::{
    CORRUPT_LINES_LISTED_MAX, Collection, DEPTH_MAX, Error, Fields, Health, RetainPolicy, Unsupported,
};
use serde::de::IgnoredAny;

use super::{Bench, nameable};
use crate::equality::{Json, depth};

/// What stands in a file, by the judge's own reading.
#[derive(Debug, Default)]
struct Judged {
    records: Vec<Range<usize>>,
    /// The number of the line, from 1, and the bytes.
    corrupt: Vec<(u64, Range<usize>)>,
    /// The lines without their newlines.
    lines: Vec<Range<usize>>,
}

/// Judges the file, queries it, and writes to it in each way.
pub fn scan(bytes: &[u8]) {
    let bench = Bench::with_file(bytes);
    if bench.is_refused(bytes) {
        return;
    }
    write(&bench, bytes);
    repair(&Bench::with_file(bytes), bytes);
    retain(&Bench::with_file(bytes), bytes);
}

/// Update, append, set and delete touch the record that they name and no other byte.
fn write(bench: &Bench, bytes: &[u8]) {
    let mut file = bytes.to_vec();
    bench.check(&file);
    let judged = Judged::of(&file);
    let ids: Vec<String> = judged.records.iter().filter_map(|span| id_of(&file[span.clone()])).collect();
    let named = ids.get(file.len() % ids.len().max(1)).and_then(|id| nameable(id));

    let fields = Fields::parse(br#"{"n": 1.50, "fuzz": [{"a": null}], "ts": "now"}"#).expect("an object");
    if let Some(id) = &named {
        let span = judged.first(&file, id.as_str());
        let updated = bench.collection.update(id.clone(), fields.clone()).expect("the record is there");
        let stored = bench.file();
        let length = stored.len() + span.len() - file.len();
        let new = stored.get(span.start..span.start + length).expect("the record stands in its place");
        check_served(updated.as_bytes(), new);
        assert_eq!(Json::parse(new), Some(merged(&file[span.clone()], &fields)), "the merge");
        file.splice(span, new.iter().copied());
        bench.check(&file);
    }
    let appended = bench.collection.append(fields.clone()).expect("there is room");
    if file.last().is_some_and(|byte| *byte != b'\n') {
        file.push(b'\n');
    }
    file.extend_from_slice(appended.as_bytes());
    file.push(b'\n');
    bench.check(&file);
    if let Some(id) = named {
        let span = Judged::of(&file).first(&file, id.as_str());
        let set = bench.collection.set(id.clone(), fields).expect("there is room");
        file.splice(span, set.as_bytes().iter().copied());
        bench.check(&file);
        bench.collection.delete(id.clone()).expect("the record is there");
        file = without(&file, id.as_str());
        bench.check(&file);
        assert!(matches!(bench.collection.delete(id), Err(Error::NotFound { .. })), "it is gone");
    }
}

/// A repair drops what is no record, keeps what was served, and keeps the file as it was beside the new one.
fn repair(bench: &Bench, bytes: &[u8]) {
    let served = all(&bench.collection);
    let planned = bench.collection.repair_dry_run().expect("the file is read");
    bench.check_file(bytes);
    let repair = bench.collection.repair().expect("there is room");
    assert_eq!(repair.steps, planned.steps);
    assert_eq!((repair.steps_count, repair.records), (planned.steps_count, served.len() as u64));
    let (before, after) = (repair.bytes_before, repair.bytes_after);
    assert_eq!((before, after), (bytes.len() as u64, bench.file().len() as u64));
    match &repair.kept {
        Some(kept) => assert_eq!(bench.disk.content(kept).as_deref(), Some(bytes), "the file as it was"),
        None => bench.check_file(bytes),
    }
    let repaired = bench.file();
    bench.check(&repaired);
    assert_eq!(all(&bench.collection), served, "what was served is served");
    let judged = Judged::of(&repaired);
    assert!(judged.corrupt.is_empty(), "{:?}", repaired.escape_ascii());
    assert!(repaired.is_empty() || repaired.ends_with(b"\n"));
    let alone = |line: &Range<usize>| judged.records.iter().filter(|it| line.contains(&it.start)).count() < 2;
    assert!(judged.lines.iter().all(alone), "every record has its own line");
    assert!(std::str::from_utf8(&repaired).is_ok());
    let again = bench.collection.repair().expect("there is room");
    assert_eq!((again.steps_count, again.kept), (0, None), "nothing is left to repair");
    bench.check_file(&repaired);
}

/// Retain removes what its dry run says, and no byte that is no record.
fn retain(bench: &Bench, bytes: &[u8]) {
    let before = all(&bench.collection);
    let policy = RetainPolicy { key: Some("n".to_owned()), records_kept: 1, days_kept: 2 };
    let planned = bench.collection.retain_dry_run(&policy).expect("the file is read");
    bench.check_file(bytes);
    let retained = bench.collection.retain(policy.clone()).expect("a rewrite needs no room");
    assert_eq!(retained, planned);
    let file = bench.file();
    bench.check(&file);
    let mut partition = all(&bench.collection);
    assert_eq!(partition.len() as u64, retained.kept);
    assert_eq!(retained.removed.len() as u64, retained.removed.count());
    partition.extend(retained.removed.iter().map(<[u8]>::to_vec));
    partition.sort();
    let mut sorted = before;
    sorted.sort();
    assert_eq!(partition, sorted, "each record stayed or was removed");
    let corrupt = |bytes: &[u8]| -> Vec<Vec<u8>> {
        Judged::of(bytes).corrupt.into_iter().map(|(_, range)| bytes[range].to_vec()).collect()
    };
    let kept = corrupt(bytes);
    let found = corrupt(&file);
    // A line whose records all went may have become one of NULs only.
    assert!(kept.iter().all(|bytes| found.contains(bytes)), "corrupt bytes stay");
    assert!(
        bench.collection.retain(policy).expect("a rewrite needs no room").removed.is_empty(),
        "once is enough"
    );
}

/// The text of every record that is served.
fn all(collection: &Collection) -> Vec<Vec<u8>> {
    let records = collection.query(&Fields::new(), usize::MAX).expect("the file is read");
    records.iter().map(<[u8]>::to_vec).collect()
}

impl Bench {
    /// Whether the file is refused for its encoding; if so, every operation is, and the bytes stay. A file with a record
    /// in it never is, whatever it starts with: a delete may have laid bare a corrupt rest that looks like a mark.
    fn is_refused(&self, bytes: &[u8]) -> bool {
        let head = &bytes[..bytes.len().min(4)];
        let marked = matches!(head, [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] | [0, 0, 0xFE, 0xFF]);
        let no_records = Judged::of(bytes).records.is_empty();
        let refused =
            |error: &Error| matches!(error, Error::Unsupported { what: Unsupported::Encoding { .. }, .. });
        match self.collection.query(&Fields::new(), 0) {
            Ok(_) => {
                assert!(!(marked && no_records), "the mark of another encoding");
                false
            }
            Err(error) if refused(&error) => {
                assert!(no_records && (marked || head.contains(&0)), "UTF-8 was refused: {error}");
                let id = nameable("x").expect("one byte");
                let no_fields = Fields::new;
                let answers = [
                    self.collection.health().err(),
                    self.collection.append(no_fields()).err(),
                    self.collection.set(id.clone(), no_fields()).err(),
                    self.collection.update(id.clone(), no_fields()).err(),
                    self.collection.delete(id).err(),
                ];
                assert!(answers.iter().flatten().filter(|error| refused(error)).count() == answers.len());
                self.check_file(bytes);
                true
            }
            Err(other) => panic!("the query failed: {other}"),
        }
    }

    /// The file is this, and the collection and whoever opens it anew serve what the judge finds in it.
    #[track_caller]
    fn check(&self, file: &[u8]) {
        self.check_file(file);
        let judged = Judged::of(file);
        judged.check_served(file, &self.collection);
        judged.check_served(file, &self.reopened());
        judged.check_health(file, &self.collection.health().expect("the file is read"));
        self.check_file(file);
    }
}

impl Judged {
    fn of(bytes: &[u8]) -> Self {
        let mut judged = Self::default();
        let mut start = 0;
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            judged.lines.push(start..start + line.len());
            judged.line(bytes, number as u64 + 1, start..start + line.len());
            start += line.len() + 1;
        }
        judged
    }

    fn line(&mut self, bytes: &[u8], number: u64, line: Range<usize>) {
        let records_before = self.records.len();
        let mut at = line.start;
        while at < line.end {
            let rest = &bytes[at..line.end];
            if let [b' ' | b'\t' | b'\r' | 0, ..] = rest {
                at += 1;
            } else if rest.starts_with("\u{FEFF}".as_bytes()) {
                at += "\u{FEFF}".len();
            } else if let Some(length) = object_length(rest) {
                self.records.push(at..at + length);
                at += length;
            } else {
                self.corrupt.push((number, at..line.end));
                return;
            }
        }
        if self.records.len() == records_before && bytes[line.clone()].contains(&0) {
            self.corrupt.push((number, line));
        }
    }

    /// The first record with this id.
    fn first(&self, bytes: &[u8], id: &str) -> Range<usize> {
        let has_id = |span: &&Range<usize>| id_of(&bytes[(*span).clone()]).as_deref() == Some(id);
        self.records.iter().find(has_id).cloned().expect("the id is of a record")
    }

    #[track_caller]
    fn check_served(&self, bytes: &[u8], collection: &Collection) {
        let found = collection.query(&Fields::new(), usize::MAX).expect("the file is read");
        assert_eq!((found.len(), found.count()), (self.records.len(), self.records.len() as u64), "records");
        for (served, span) in found.iter().zip(&self.records) {
            check_served(served, &bytes[span.clone()]);
        }
        let array: Vec<IgnoredAny> = serde_json::from_slice(found.as_array()).expect("an array of JSON");
        assert_eq!(array.len(), found.len());
        let first = collection.query(&Fields::new(), 1).expect("the file is read");
        assert_eq!((first.len(), first.count()), (found.len().min(1), found.count()));
        assert!(first.iter().eq(found.iter().take(1)));
        let values: Vec<Option<Json>> =
            found.iter().map(|it| Json::parse(it).and_then(|record| record.get("n").cloned())).collect();
        for wanted in ["1", "1.5", "null"] {
            let filter = Fields::parse(format!("{{\"n\":{wanted}}}").as_bytes()).expect("an object");
            let wanted = Json::parse(wanted.as_bytes()).expect("a value");
            let matches = |value: &Option<Json>| value.as_ref().unwrap_or(&Json::Null).equals(&wanted);
            let expected = found.iter().zip(&values).filter(|(_, value)| matches(value)).map(|(it, _)| it);
            // Asked again and again between the writes, an index answers, and has to have kept up with them.
            let matched = collection.query(&filter, usize::MAX).expect("the file is read");
            assert!(matched.iter().eq(expected), "{wanted:?}: {matched:?}");
        }
    }

    #[track_caller]
    fn check_health(&self, bytes: &[u8], health: &Health) {
        let mut ids: BTreeMap<String, u64> = BTreeMap::new();
        for id in self.records.iter().filter_map(|span| id_of(&bytes[span.clone()])) {
            *ids.entry(id).or_default() += 1;
        }
        assert_eq!(health.bytes, bytes.len() as u64);
        assert_eq!(health.records, self.records.len() as u64);
        assert_eq!(health.records_without_id, health.records - ids.values().sum::<u64>());
        assert_eq!(health.duplicate_ids, ids.values().filter(|times| **times > 1).count() as u64);
        assert_eq!(health.corrupt_lines_count, self.corrupt.len() as u64);
        let listed = health.corrupt_lines.iter().map(|it| (it.line, it.offset, it.length));
        let expected = self.corrupt.iter().map(|(line, it)| (*line, it.start as u64, it.len() as u64));
        assert!(listed.eq(expected.take(CORRUPT_LINES_LISTED_MAX)), "{health:?} and {:?}", self.corrupt);
        let tail = self.lines.last().filter(|tail| !tail.is_empty());
        let expected = tail.map(|tail| {
            let inside = |range: &Range<usize>| range.start >= tail.start;
            let records = self.records.iter().any(inside);
            let corrupt = self.corrupt.iter().any(|(_, range)| inside(range));
            (tail.start as u64, tail.len() as u64, records && !corrupt)
        });
        assert_eq!(health.torn_tail.map(|tail| (tail.offset, tail.length, tail.is_record)), expected);
    }
}

/// How long the object at the start of the bytes is; `None` when there is none, or it is nested too deep.
///
/// Asked to ignore a value, `serde_json` takes what the engine takes: the grammar, with any bytes and any surrogate
/// escapes inside strings, and numbers of any size.
fn object_length(bytes: &[u8]) -> Option<usize> {
    if !bytes.starts_with(b"{") {
        return None;
    }
    let mut objects = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
    objects.next()?.ok()?;
    let length = objects.byte_offset();
    (depth(&bytes[..length]) <= DEPTH_MAX).then_some(length)
}

/// The id of a record, if that is a string.
fn id_of(record: &[u8]) -> Option<String> {
    match Json::parse(record)?.get("id")? {
        Json::String(id) => Some(id.clone()),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => None,
    }
}

/// What is served of a record is its own text where every reader takes that, and the same value everywhere.
#[track_caller]
pub(super) fn check_served(served: &[u8], stored: &[u8]) {
    if Json::parse_strict(stored).is_some() {
        assert!(served == stored, "served {} of {}", served.escape_ascii(), stored.escape_ascii());
    }
    assert!(Json::parse_strict(served).is_some(), "served {}", served.escape_ascii());
    assert_eq!(Json::parse(served), Json::parse(stored));
}

/// The fields over the record, by value: an `id` among them is ignored, the others replace or follow.
pub(super) fn merged(stored: &[u8], fields: &Fields) -> Json {
    let mut members = match Json::parse(stored) {
        Some(Json::Object(members)) => members,
        other => panic!("the record is no object: {other:?}"),
    };
    for (key, value) in fields.iter().filter(|(key, _)| *key != "id") {
        let value = Json::parse(value.as_bytes()).expect("fields are JSON");
        match members.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => members.push((key.to_owned(), value)),
        }
    }
    Json::Object(members)
}

/// The file after a delete: a line goes when nothing but white space is left of it, and else keeps what is left.
fn without(bytes: &[u8], id: &str) -> Vec<u8> {
    let judged = Judged::of(bytes);
    let mut file = Vec::new();
    for line in &judged.lines {
        let mut rest = Vec::new();
        let mut at = line.start;
        let inside = |span: &&Range<usize>| span.start >= line.start && span.end <= line.end;
        for span in judged.records.iter().filter(inside) {
            if id_of(&bytes[span.clone()]).as_deref() == Some(id) {
                rest.extend_from_slice(&bytes[at..span.start]);
                at = span.end;
            }
        }
        rest.extend_from_slice(&bytes[at..line.end]);
        let emptied = at > line.start && rest.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
        if !emptied {
            file.extend_from_slice(&rest);
            file.extend(bytes.get(line.end));
        }
    }
    file
}
