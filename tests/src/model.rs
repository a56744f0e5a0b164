//! The model: random operations, outside edits and damage, against an oracle that knows what must come of them.
//!
//! The oracle shares no code with the engine and parses nothing. It *makes* every line it puts into the file from known
//! pieces, so it knows what each byte is; and it draws values from a table of spellings with their equality class, so
//! it needs no notion of equality of its own. After every step the whole file must be, byte for byte, what the oracle
//! says, and so must the answer.
//!
//! [`run`] decodes steps from bytes until they end: the property test and the fuzz target are the same few lines.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linekeep_engine::{
    Collection, CollectionName, Error, Fields, Op, Options, Outcome, RecordId, RetainPolicy, Store,
};

use crate::sim::{Keep, SimDisk, SimSystem};

/// A value: how a caller or a file spells it, how the engine stores it when a caller gives it, and its equality class.
struct Spelling {
    given: &'static str,
    stored: &'static str,
    class: Class,
}

/// Values are equal when their classes are. The class of `null` also stands for an absent field.
type Class = u8;
const NULL: Class = 0;

const fn spelling(given: &'static str, stored: &'static str, class: Class) -> Spelling {
    Spelling { given, stored, class }
}

const SPELLINGS: &[Spelling] = &[
    spelling("null", "null", NULL),
    spelling("10", "10", 1),
    spelling("10.0", "10.0", 1),
    spelling("1e1", "1e1", 1),
    spelling("\"10\"", "\"10\"", 2),
    spelling("true", "true", 3),
    spelling("false", "false", 4),
    spelling("9007199254740993", "9007199254740993", 5),
    spelling("9007199254740992", "9007199254740992", 6),
    spelling("9007199254740992.0", "9007199254740992.0", 6),
    spelling("\"é\"", "\"é\"", 7),
    spelling("\"\\u00e9\"", "\"é\"", 7),
    spelling("[1, 2]", "[1,2]", 8),
    spelling("[1.0,20e-1]", "[1.0,20e-1]", 8),
    spelling("[2,1]", "[2,1]", 9),
    spelling("{\"x\":1,\"y\":[]}", "{\"x\":1,\"y\":[]}", 10),
    spelling("{ \"y\" : [ ], \"x\" : 1.0 }", "{\"y\":[],\"x\":1.0}", 10),
    spelling("\"\\ud800\"", "\"\u{fffd}\"", 11),
    spelling("\"\u{fffd}\"", "\"\u{fffd}\"", 11),
    spelling("0", "0", 12),
    spelling("-0.0", "-0.0", 12),
    spelling("\"a\\u2028\\n\\\"b\"", "\"a\\u2028\\n\\\"b\"", 13),
    spelling("12345678901234567890123456789012345678901", "12345678901234567890123456789012345678901", 14),
    spelling("\"\"", "\"\"", 15),
    spelling("{}", "{}", 16),
    spelling("1", "1", 17),
];

const KEYS: &[&str] = &["a", "b", "schlüssel", "__proto__", "ts"];

/// Ids that steps name and that outside edits use, so that they meet.
const IDS: &[&str] = &["00000000000a", "00000000000b", "x", "é\"", "10"];

const NOW: &str = "\"2026-11-30T19:33:00+00:00\"";

#[derive(Debug, Clone, PartialEq)]
struct Member {
    key: String,
    text: String,
    class: Class,
}

/// A record as the oracle keeps it: its members with their spelling, and the spacing of its line.
#[derive(Debug, Clone, PartialEq)]
struct Rec {
    id: Option<String>,
    members: Vec<Member>,
    spaced: bool,
}

impl Rec {
    fn text(&self) -> Vec<u8> {
        let (comma, colon) = if self.spaced { (", ", ": ") } else { (",", ":") };
        let mut text = String::from("{");
        for (position, member) in self.members.iter().enumerate() {
            if position > 0 {
                text.push_str(comma);
            }
            write!(text, "{}{colon}{}", quote(&member.key), member.text).expect("a string takes it");
        }
        text.push('}');
        text.into_bytes()
    }

    fn class_of(&self, key: &str) -> Option<Class> {
        self.members.iter().rev().find(|member| member.key == key).map(|member| member.class)
    }

    fn put(&mut self, member: Member) {
        match self.members.iter_mut().rev().find(|it| it.key == member.key) {
            Some(it) => *it = member,
            None => self.members.push(member),
        }
    }
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Record(Rec),
    /// White space: it goes with the record when nothing else is on the line.
    Space(&'static str),
    /// NULs or a byte order mark: harmless, and kept.
    Padding(&'static [u8]),
    /// No JSON object; always the last piece of a line.
    Corrupt(&'static [u8]),
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Line {
    pieces: Vec<Piece>,
    newline: bool,
}

/// The file as the oracle knows it.
#[derive(Debug, Clone, Default)]
struct Oracle {
    lines: Vec<Line>,
    exists: bool,
    cap: usize,
}

/// What an operation must answer.
#[derive(Debug, PartialEq)]
enum Answer {
    Record(Vec<u8>),
    Deleted,
    Records { records: Vec<Vec<u8>>, count: u64 },
    Retained { removed: Vec<Vec<u8>>, kept: u64, series: u64 },
    NotFound,
    TooLarge,
}

impl Oracle {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in &self.lines {
            for piece in &line.pieces {
                match piece {
                    Piece::Record(record) => bytes.extend(record.text()),
                    Piece::Space(text) => bytes.extend(text.as_bytes()),
                    Piece::Padding(text) | Piece::Corrupt(text) => bytes.extend(*text),
                }
            }
            if line.newline {
                bytes.push(b'\n');
            }
        }
        bytes
    }

    fn records(&self) -> impl Iterator<Item = &Rec> {
        self.lines.iter().flat_map(|line| &line.pieces).filter_map(|piece| match piece {
            Piece::Record(record) => Some(record),
            Piece::Space(_) | Piece::Padding(_) | Piece::Corrupt(_) => None,
        })
    }

    fn find(&mut self, id: &str) -> Option<&mut Rec> {
        self.lines.iter_mut().flat_map(|line| &mut line.pieces).find_map(|piece| match piece {
            Piece::Record(record) if record.id.as_deref() == Some(id) => Some(record),
            Piece::Record(_) | Piece::Space(_) | Piece::Padding(_) | Piece::Corrupt(_) => None,
        })
    }

    fn corrupt_lines(&self) -> u64 {
        let corrupt = |line: &&Line| {
            let records = line.pieces.iter().any(|piece| matches!(piece, Piece::Record(_)));
            line.pieces.iter().any(|piece| match piece {
                Piece::Corrupt(_) => true,
                Piece::Padding(bytes) => bytes.contains(&0) && !records,
                Piece::Record(_) | Piece::Space(_) => false,
            })
        };
        self.lines.iter().filter(corrupt).count() as u64
    }

    /// Takes the change if it fits the cap, and undoes it otherwise.
    fn capped(&mut self, change: impl FnOnce(&mut Self) -> Vec<u8>) -> Answer {
        let mut changed = self.clone();
        let record = change(&mut changed);
        if self.bytes().len() > self.cap || changed.bytes().len() > self.cap {
            return Answer::TooLarge;
        }
        changed.exists = true;
        *self = changed;
        Answer::Record(record)
    }

    fn push(&mut self, record: Rec) -> Answer {
        self.capped(|it| {
            if let Some(last) = it.lines.last_mut() {
                last.newline = true;
            }
            let text = record.text();
            it.lines.push(Line { pieces: vec![Piece::Record(record)], newline: true });
            text
        })
    }

    fn append(&mut self, id: &str, fields: &[Member]) -> Answer {
        self.push(stored(id, NOW, None, fields))
    }

    fn set(&mut self, id: &str, fields: &[Member]) -> Answer {
        let given = fields.iter().find(|member| member.key == "ts");
        let Some(old) = self.find(id) else {
            let (ts, class) = given.map_or((NOW, None), |ts| (ts.text.as_str(), Some(ts.class)));
            return self.push(stored(id, ts, class, fields));
        };
        let old_ts = old.members.iter().rev().find(|member| member.key == "ts");
        let (ts, class) = match given.or(old_ts) {
            Some(ts) => (ts.text.clone(), Some(ts.class)),
            None => (NOW.to_owned(), None),
        };
        let record = stored(id, &ts, class, fields);
        self.capped(|it| {
            let text = record.text();
            *it.find(id).expect("it was found") = record;
            text
        })
    }

    fn update(&mut self, id: &str, fields: &[Member]) -> Answer {
        if self.find(id).is_none() {
            return Answer::NotFound;
        }
        self.capped(|it| {
            let record = it.find(id).expect("it was found");
            for member in fields {
                record.put(member.clone());
            }
            record.text()
        })
    }

    fn delete(&mut self, id: &str) -> Answer {
        if self.find(id).is_none() {
            return Answer::NotFound;
        }
        let named =
            |piece: &Piece| matches!(piece, Piece::Record(record) if record.id.as_deref() == Some(id));
        self.lines.retain_mut(|line| {
            let before = line.pieces.len();
            line.pieces.retain(|piece| !named(piece));
            before == line.pieces.len() || line.pieces.iter().any(|piece| !matches!(piece, Piece::Space(_)))
        });
        Answer::Deleted
    }

    /// All times that the model writes are the same moment, so the last of the only day is the last of its series.
    fn retain(&mut self, key: Option<&str>, records_kept: usize) -> Answer {
        let series_of = |record: &Rec| key.map(|key| record.class_of(key).unwrap_or(NULL));
        let timed = |record: &Rec| {
            let ts = record.members.iter().rev().find(|member| member.key == "ts");
            ts.is_some_and(|ts| ts.text == NOW)
        };
        let all: Vec<Rec> = self.records().cloned().collect();
        let series: std::collections::HashSet<_> = all.iter().map(series_of).collect();
        let goes: Vec<bool> = (0..all.len())
            .map(|at| {
                let later =
                    all[at + 1..].iter().filter(|it| timed(it) && series_of(it) == series_of(&all[at]));
                timed(&all[at]) && later.count() >= records_kept.max(1)
            })
            .collect();
        let mut at = 0;
        self.lines.retain_mut(|line| {
            let before = line.pieces.len();
            line.pieces.retain(|piece| {
                if !matches!(piece, Piece::Record(_)) {
                    return true;
                }
                at += 1;
                !goes[at - 1]
            });
            before == line.pieces.len() || line.pieces.iter().any(|piece| !matches!(piece, Piece::Space(_)))
        });
        let removed: Vec<Vec<u8>> =
            all.iter().zip(&goes).filter(|(_, goes)| **goes).map(|(it, _)| served(it)).collect();
        let kept = (all.len() - removed.len()) as u64;
        Answer::Retained { removed, kept, series: series.len() as u64 }
    }

    fn query(&self, filter: &[Member], limit: usize) -> Answer {
        let matches = |record: &&Rec| {
            filter.iter().all(|member| record.class_of(&member.key).unwrap_or(NULL) == member.class)
        };
        let found: Vec<Vec<u8>> = self.records().filter(matches).map(served).collect();
        let count = found.len() as u64;
        Answer::Records { records: found.into_iter().take(limit).collect(), count }
    }
}

/// An id as a member. Ids that the engine makes are not in the table, and no filter asks for them.
fn id_member(id: &str) -> Member {
    let class = match IDS.iter().position(|it| *it == id) {
        // The string "10" is among the values too.
        Some(_) if id == "10" => 2,
        Some(position) => 210 + Class::try_from(position).expect("a short table"),
        None => 209,
    };
    Member { key: "id".to_owned(), text: quote(id), class }
}

/// A record as the engine writes it.
fn stored(id: &str, ts: &str, ts_class: Option<Class>, fields: &[Member]) -> Rec {
    let own =
        [id_member(id), Member { key: "ts".to_owned(), text: ts.to_owned(), class: ts_class.unwrap_or(201) }];
    let rest = fields.iter().filter(|member| member.key != "ts").cloned();
    Rec { id: Some(id.to_owned()), members: own.into_iter().chain(rest).collect(), spaced: false }
}

/// What is served of a record: the spellings of the table with a lone surrogate are the only ones that differ.
fn served(record: &Rec) -> Vec<u8> {
    String::from_utf8(record.text())
        .expect("the oracle's records are UTF-8")
        .replace("\\ud800", "\u{fffd}")
        .into_bytes()
}

/// The bytes that steps are decoded from.
struct Input<'a> {
    bytes: &'a [u8],
}

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    fn pick<'t, T>(&mut self, table: &'t [T]) -> &'t T {
        &table[self.below(table.len())]
    }

    /// Distinct keys with values, as a caller gives them (JSON text) and as they are stored.
    fn fields(&mut self) -> (String, Vec<Member>) {
        let mut given = Vec::new();
        let mut members: Vec<Member> = Vec::new();
        for _ in 0..self.below(4) {
            let key = *self.pick(KEYS);
            let spelling = self.pick(SPELLINGS);
            if members.iter().any(|member| member.key == key) {
                continue;
            }
            given.push(format!("{}: {}", quote(key), spelling.given));
            members.push(Member {
                key: key.to_owned(),
                text: spelling.stored.to_owned(),
                class: spelling.class,
            });
        }
        (format!("{{{}}}", given.join(" ,")), members)
    }
}

/// How many steps one run takes at most.
const STEPS_MAX: usize = 200;

/// Runs the steps that the bytes spell, and panics at the first answer or file that is not as the oracle says.
pub fn run(bytes: &[u8]) {
    let mut input = Input { bytes };
    let mut model = Model::new(&mut input);
    for step in 0..STEPS_MAX {
        if input.bytes.is_empty() {
            break;
        }
        model.step(&mut input);
        model.check_file();
        model.check_query(step);
    }
    model.check_health();
}

struct Model {
    disk: SimDisk,
    path: PathBuf,
    options: Options,
    collection: Collection,
    oracle: Oracle,
}

const ROOT: &str = "/root";

impl Model {
    fn new(input: &mut Input<'_>) -> Self {
        let disk = SimDisk::new(Path::new(ROOT));
        let system = Arc::new(SimSystem::new(7));
        let cap = *input.pick(&[400, 1_000, 100_000]);
        let options = Options {
            collection_bytes_max: cap,
            cache_bytes_max: *input.pick(&[1 << 20, 1 << 20, 0, 2_000]),
            disk: Arc::new(disk.clone()),
            system: Arc::clone(&system) as Arc<_>,
            ..Options::default()
        };
        let collection = open(&options);
        let path = collection.path().to_path_buf();
        let oracle = Oracle { cap: usize::try_from(cap).expect("a small cap"), ..Oracle::default() };
        Self { disk, path, options, collection, oracle }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(24) {
            0..=16 => {
                let (op, parsed) = decode_op(input);
                let answer = self.collection.run(op);
                self.check_answer(&parsed, &answer);
            }
            17..=20 => {
                let (ops, parsed): (Vec<_>, Vec<_>) = (0..=input.below(6)).map(|_| decode_op(input)).unzip();
                let answers = self.collection.run_all(ops);
                assert_eq!(answers.len(), parsed.len());
                for (parsed, answer) in parsed.iter().zip(&answers) {
                    self.check_answer(parsed, answer);
                }
            }
            21 => {
                self.disk.reboot(Keep::Nothing);
                self.collection = open(&self.options);
            }
            22 | 23 => self.edit(input),
            _ => unreachable!("below 24"),
        }
    }

    fn check_answer(&mut self, step: &Step, answer: &Result<Outcome, Error>) {
        let expected = match step {
            Step::Append(fields) => {
                // The id is the engine's; take it from the answer, where it must stand first.
                let id = match answer {
                    Ok(Outcome::Record(record)) => {
                        let text = std::str::from_utf8(record.as_bytes()).expect("records are UTF-8");
                        let id = text.strip_prefix("{\"id\":\"").and_then(|rest| rest.get(..12));
                        let id = id.expect("the id stands first and has 12 characters");
                        assert!(id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{id}");
                        assert!(
                            self.oracle.records().all(|record| record.id.as_deref() != Some(id)),
                            "a new id"
                        );
                        id.to_owned()
                    }
                    other => {
                        assert!(matches!(other, Err(Error::TooLarge { .. })), "{other:?}");
                        "000000000000".to_owned()
                    }
                };
                self.oracle.append(&id, fields)
            }
            Step::Set(id, fields) => self.oracle.set(id, fields),
            Step::Update(id, fields) => self.oracle.update(id, fields),
            Step::Delete(id) => self.oracle.delete(id),
            Step::Query(filter, limit) => self.oracle.query(filter, *limit),
            Step::Retain(key, records_kept) => self.oracle.retain(*key, *records_kept),
        };
        let answer = match answer {
            Ok(Outcome::Record(record)) => Answer::Record(record.as_bytes().to_vec()),
            Ok(Outcome::Deleted(_)) => Answer::Deleted,
            Ok(Outcome::Records(records)) => {
                assert_eq!(records.len(), records.iter().count());
                Answer::Records {
                    records: records.iter().map(<[u8]>::to_vec).collect(),
                    count: records.count(),
                }
            }
            Ok(Outcome::Retained(retained)) => Answer::Retained {
                removed: retained.removed.iter().map(<[u8]>::to_vec).collect(),
                kept: retained.kept,
                series: retained.series,
            },
            Err(Error::NotFound { .. }) => Answer::NotFound,
            Err(Error::TooLarge { size, limit, .. }) => {
                assert!(size > limit, "{size} > {limit}");
                Answer::TooLarge
            }
            Err(other) => panic!("{step:?} failed: {other}"),
        };
        // Answers of records are served text.
        let expected = match expected {
            Answer::Record(text) => Answer::Record(repair(text)),
            other => other,
        };
        assert_eq!(answer, expected, "{step:?}");
    }

    fn check_file(&self) {
        let content = self.disk.content(&self.path);
        if !self.oracle.exists {
            assert_eq!(content, None, "no operation wrote, so there is no file");
            return;
        }
        let expected = self.oracle.bytes();
        // A batch that adds a record and deletes it again need not make a file.
        let made = content.is_some();
        assert!(made || expected.is_empty(), "the file is gone");
        let content = content.unwrap_or_default();
        assert!(
            content == expected,
            "the file is\n{}\nand not\n{}",
            String::from_utf8_lossy(&content),
            String::from_utf8_lossy(&expected)
        );
        let temps = self.disk.names(self.path.parent().expect("a folder")).len();
        assert_eq!(temps, usize::from(made), "no temp file is left");
    }

    /// Asks for one field again and again, so that its index is there, and for another value each time.
    fn check_query(&mut self, step: usize) {
        let spelling = &SPELLINGS[step % SPELLINGS.len()];
        let member = Member { key: "a".to_owned(), text: spelling.stored.to_owned(), class: spelling.class };
        let filter = Fields::parse(format!("{{\"a\":{}}}", spelling.given).as_bytes()).expect("JSON");
        let answer = self.collection.query(&filter, 3).map(Outcome::Records);
        self.check_answer(&Step::Query(vec![member], 3), &answer);
    }

    fn check_health(&self) {
        let health = self.collection.health().expect("the file is read");
        assert_eq!(health.records, self.oracle.records().count() as u64);
        assert_eq!(health.corrupt_lines_count, self.oracle.corrupt_lines());
        assert_eq!(health.bytes, self.oracle.bytes().len() as u64);
        assert_eq!(health.torn_tail.is_some(), self.oracle.lines.last().is_some_and(|line| !line.newline));
    }

    /// An edit by another program: the engine must see it at its next operation.
    fn edit(&mut self, input: &mut Input<'_>) {
        let lines = &mut self.oracle.lines;
        let at = input.below(lines.len() + 1);
        match input.below(6) {
            0 | 1 => {
                let line = Line { pieces: decode_pieces(input), newline: true };
                lines.insert(at, line);
                // Only the last line may lack its newline.
                let last = lines.len() - 1;
                for line in &mut lines[..last] {
                    line.newline = true;
                }
            }
            2 => {
                if at < lines.len() {
                    lines.remove(at);
                }
            }
            3 => {
                if let Some(last) = lines.last_mut() {
                    last.newline = false;
                }
            }
            4 => {
                if at < lines.len()
                    && let Some(position) =
                        lines[at].pieces.iter().position(|it| matches!(it, Piece::Record(_)))
                    && let Piece::Record(record) = &mut lines[at].pieces[position]
                {
                    let spelling = input.pick(SPELLINGS);
                    let key = (*input.pick(KEYS)).to_owned();
                    record.put(Member { key, text: spelling.given.to_owned(), class: spelling.class });
                }
            }
            5 => lines.push(Line { pieces: decode_pieces(input), newline: true }),
            _ => unreachable!("below 6"),
        }
        // A line of nothing without its newline is no line.
        lines.retain(|line| line.newline || !line.pieces.is_empty());
        let last = lines.len().saturating_sub(1);
        for line in &mut lines[..last] {
            line.newline = true;
        }
        let bytes = self.oracle.bytes();
        if input.below(2) == 0 {
            self.disk.place(&self.path, &bytes);
        } else {
            self.disk.overwrite(&self.path, &bytes);
        }
        self.oracle.exists = true;
    }
}

fn repair(text: Vec<u8>) -> Vec<u8> {
    String::from_utf8(text)
        .expect("the oracle's records are UTF-8")
        .replace("\\ud800", "\u{fffd}")
        .into_bytes()
}

fn open(options: &Options) -> Collection {
    let store = Store::open(Path::new(ROOT), options.clone()).expect("the root is there");
    store.collection("app/data", &"items".parse::<CollectionName>().expect("a name")).expect("a folder")
}

#[derive(Debug)]
enum Step {
    Append(Vec<Member>),
    Set(String, Vec<Member>),
    Update(String, Vec<Member>),
    Delete(String),
    Query(Vec<Member>, usize),
    Retain(Option<&'static str>, usize),
}

fn decode_op(input: &mut Input<'_>) -> (Op, Step) {
    let kind = input.below(9);
    let id = (*input.pick(IDS)).to_owned();
    let record_id: RecordId = id.parse().expect("an id");
    let (text, members) = input.fields();
    let fields = Fields::parse(text.as_bytes()).expect("the table's values are JSON");
    match kind {
        0 | 1 => {
            let kept = members.into_iter().filter(|member| member.key != "ts").collect();
            (Op::Append { fields }, Step::Append(kept))
        }
        2 => (Op::Set { id: record_id, fields }, Step::Set(id, members)),
        3 | 4 => (Op::Update { id: record_id, fields }, Step::Update(id, members)),
        5 => (Op::Delete { id: record_id }, Step::Delete(id)),
        6 | 7 => {
            let limit = *input.pick(&[0, 1, 2, 200]);
            let (mut filter, mut members) = (fields, members);
            if input.below(3) == 0 {
                filter.insert_json("id", quote(&id).as_bytes()).expect("a string");
                members.push(id_member(&id));
            }
            (Op::Query { filter, limit }, Step::Query(members, limit))
        }
        8 => {
            let key = *input.pick(&[None, Some("a")]);
            let records_kept = input.below(4);
            let policy =
                RetainPolicy { key: key.map(str::to_owned), records_kept, ..RetainPolicy::default() };
            (Op::Retain { policy }, Step::Retain(key, records_kept))
        }
        _ => unreachable!("below 9"),
    }
}

fn decode_pieces(input: &mut Input<'_>) -> Vec<Piece> {
    const SPACES: &[&str] = &[" ", "\t", "\r", "  \r"];
    const PADDINGS: &[&[u8]] = &[b"\0\0\0\0", b"\xEF\xBB\xBF"];
    const CORRUPT: &[&[u8]] = &[
        b"{broken",
        b"[1,2]",
        b"42",
        b"null",
        b"{\"id\":\"x\",\"a\":",
        b"{\"id\":\"x\",\"a\":NaN}",
        b"\xC3\x28 not utf-8",
        b"{\"id\":\"x\"} trailing",
        b"\x0b{}",
    ];
    let mut pieces = Vec::new();
    for _ in 0..input.below(4) {
        match input.below(6) {
            0..=2 => pieces.push(Piece::Record(decode_record(input))),
            3 => pieces.push(Piece::Space(SPACES[input.below(SPACES.len())])),
            4 => pieces.push(Piece::Padding(PADDINGS[input.below(PADDINGS.len())])),
            5 => {
                // The one that starts with a whole record would be a record and a rest; spell it as these two.
                let corrupt = *input.pick(CORRUPT);
                if let Some(rest) = corrupt.strip_prefix(b"{\"id\":\"x\"}") {
                    let record =
                        Rec { id: Some("x".to_owned()), members: vec![id_member("x")], spaced: false };
                    pieces.push(Piece::Record(record));
                    pieces.push(Piece::Space(" "));
                    pieces.push(Piece::Corrupt(rest.strip_prefix(b" ").expect("it follows a space")));
                } else {
                    pieces.push(Piece::Corrupt(corrupt));
                }
                return pieces;
            }
            _ => unreachable!("below 6"),
        }
    }
    pieces
}

/// A record as some other program wrote it: any spacing, any id or none, duplicate keys.
fn decode_record(input: &mut Input<'_>) -> Rec {
    let mut members = Vec::new();
    let id = match input.below(8) {
        0 => None,
        1 => {
            members.push(Member { key: "id".to_owned(), text: "10".to_owned(), class: 1 });
            None
        }
        _ => {
            let id = *input.pick(IDS);
            members.push(id_member(id));
            Some(id.to_owned())
        }
    };
    for _ in 0..input.below(4) {
        let spelling = input.pick(SPELLINGS);
        let key = (*input.pick(KEYS)).to_owned();
        members.push(Member { key, text: spelling.given.to_owned(), class: spelling.class });
    }
    Rec { id, members, spaced: input.below(2) == 1 }
}
