//! A writer in a process of its own, which says what was acknowledged.
//!
//! Every thread works through records with marks of its own. A record is appended with `v` 0, updated to 1, set to 2,
//! and every third one is deleted. After each acknowledged step the process prints one line,
//! `<mark> <state> <start> <end>`, the times in nanoseconds since 1970; so whoever reads the lines knows, also when the
//! process was killed, what must be in the file, and what may be.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use linekeep_engine::{Collection, CollectionName, Durability, Error, Fields, Options, RecordId, Store};

/// Marks of one thread before the next thread's begin.
pub const MARKS_PER_THREAD: u64 = 1_000_000;

/// What a record is after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It is there with this `v`.
    Value(u8),
    /// It was deleted.
    Gone,
}

impl State {
    /// What the next step on the record makes of it; `None` after the last.
    pub fn next(self, mark: u64) -> Option<Self> {
        match self {
            Self::Value(value @ 0..2) => Some(Self::Value(value + 1)),
            Self::Value(_) => mark.is_multiple_of(3).then_some(Self::Gone),
            Self::Gone => None,
        }
    }
}

/// One acknowledged step.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// The record's mark.
    pub mark: u64,
    /// What it became.
    pub state: State,
    /// When the step was asked for, in nanoseconds since 1970.
    pub start_ns: u128,
    /// When it was acknowledged.
    pub end_ns: u128,
}

impl Step {
    /// Reads a line that the hammer printed; `None` when it was cut off.
    pub fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [mark, state, start, end, "."] = words.as_slice() else { return None };
        let state = if *state == "-" { State::Gone } else { State::Value(state.parse().ok()?) };
        Some(Self {
            mark: mark.parse().ok()?,
            state,
            start_ns: start.parse().ok()?,
            end_ns: end.parse().ok()?,
        })
    }
}

/// The present time in nanoseconds since 1970.
pub fn now_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// The records with marks in a file: mark to values, and every other line.
pub fn read_marks(content: &[u8]) -> (BTreeMap<u64, Vec<u8>>, Vec<String>) {
    let mut marks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut others = Vec::new();
    for line in String::from_utf8_lossy(content).lines() {
        let value: Option<serde_json::Value> = serde_json::from_str(line).ok();
        let number = |key: &str| value.as_ref()?.get(key)?.as_u64();
        match (number("k"), number("v").and_then(|value| u8::try_from(value).ok())) {
            (Some(mark), Some(value)) => marks.entry(mark).or_default().push(value),
            _ => others.push(line.to_owned()),
        }
    }
    (marks, others)
}

/// What the command line of the hammer says: `ROOT COLLECTION FIRST-THREAD THREADS RECORDS sync|flush`.
pub fn run(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [root, name, first, threads, records, durability] = args else {
        return Err("usage: hammer ROOT COLLECTION FIRST-THREAD THREADS RECORDS sync|flush".into());
    };
    let durability = if durability == "flush" { Durability::Flush } else { Durability::Sync };
    let store = Store::open(Path::new(root), Options { durability, ..Options::default() })?;
    let collection = store.collection("", &name.parse::<CollectionName>()?)?;
    let (first, threads, records): (u64, u64, u64) = (first.parse()?, threads.parse()?, records.parse()?);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (first..first + threads)
            .map(|thread| {
                let collection = &collection;
                scope.spawn(move || work(collection, thread * MARKS_PER_THREAD, records))
            })
            .collect();
        for worker in workers {
            worker.join().map_err(|_panic| "a writer panicked")??;
        }
        Ok(())
    })
}

fn work(collection: &Collection, first_mark: u64, records: u64) -> Result<(), String> {
    for mark in first_mark..first_mark + records {
        let fields = |value: u8| Fields::parse(format!("{{\"k\":{mark},\"v\":{value}}}").as_bytes());
        let told = |error: Error| format!("mark {mark}: {error}");
        let start = now_ns();
        let record = collection.append(fields(0).map_err(told)?).map_err(told)?;
        say(mark, "0", start)?;
        let id = std::str::from_utf8(record.as_bytes()).ok().and_then(|text| text.get(7..19));
        let id: RecordId = id.ok_or("a record without an id")?.parse().map_err(told)?;
        let mut state = State::Value(0);
        while let Some(next) = state.next(mark) {
            let start = now_ns();
            let id = id.clone();
            let (state_text, done) = match next {
                State::Value(1) => ("1", collection.update(id, fields(1).map_err(told)?).map(drop)),
                State::Value(_) => ("2", collection.set(id, fields(2).map_err(told)?).map(drop)),
                State::Gone => ("-", collection.delete(id)),
            };
            state = next;
            match done {
                Ok(()) => say(mark, state_text, start)?,
                // An editor that saved what it had read before has removed the record: leave it at that.
                Err(Error::NotFound { .. }) => break,
                Err(error) => return Err(told(error)),
            }
        }
    }
    Ok(())
}

/// Prints a step. The line ends in a dot, so that half a line is not taken for a whole one.
fn say(mark: u64, state: &str, start: u128) -> Result<(), String> {
    let line = format!("{mark} {state} {start} {} .\n", now_ns());
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(|error| error.to_string())
}
