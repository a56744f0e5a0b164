//! What a batch of writes does: the answer to each operation, and the bytes that make it true.
//!
//! Operations are applied in order to a draft over an image, as if they ran one by one, and the image stays as it is.
//! What comes out is a [`Plan`] for the disk, which the image takes over once it is there.
//!
//! Invariant: a plan keeps every byte that does not belong to a record that one of its operations names.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::path::Path;

use hashbrown::DefaultHashBuilder;

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::image::Image;
use crate::json;
use crate::name::RecordId;
use crate::op::{Op, Outcome, Records};
use crate::readings::{self, RetainPolicy, Retained};
use crate::record::{self, Fields, Record};

/// What a batch of writes does to the file.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Nothing: every operation failed, or changed nothing.
    Nothing,
    /// These bytes go to the end.
    Append(Appended),
    /// The file is replaced.
    Rewrite(Rewrite),
}

/// Whole lines for the end of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Appended {
    /// The bytes to write: a newline first when the file does not end in one, then each record with its newline.
    pub(crate) bytes: Vec<u8>,
    /// Where each record lies in `bytes`.
    pub(crate) records: Vec<Range<usize>>,
}

/// A new file: the old bytes with some cut out, texts in their place, and lines behind them.
#[derive(Debug)]
pub(crate) struct Rewrite {
    /// In the order of the file; they do not overlap.
    pub(crate) cuts: Vec<Cut>,
    /// The slots whose records go.
    pub(crate) removed: Vec<u32>,
    /// What follows at the end.
    pub(crate) appended: Appended,
    /// The size of the old file.
    old_bytes: usize,
}

/// Old bytes that give way to a text.
#[derive(Debug)]
pub(crate) struct Cut {
    /// The record it is about; of a line that goes as a whole, the first of its records.
    pub(crate) slot: u32,
    /// The old bytes.
    pub(crate) range: Range<usize>,
    /// The record's new text; empty when it goes.
    pub(crate) text: Vec<u8>,
}

impl Rewrite {
    /// The same bytes in a new file, and lines behind them.
    pub(crate) fn appending(old_bytes: usize, appended: Appended) -> Self {
        Self { cuts: Vec::new(), removed: Vec::new(), appended, old_bytes }
    }

    /// Every byte of a file gives way to others.
    pub(crate) fn whole(old_bytes: usize, bytes: Vec<u8>) -> Self {
        let cut = Cut { slot: 0, range: 0..old_bytes, text: Vec::new() };
        let appended = Appended { bytes, records: Vec::new() };
        Self { cuts: vec![cut], removed: Vec::new(), appended, old_bytes }
    }

    /// The slots whose records get a new text.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = u32> {
        self.cuts.iter().filter(|cut| !cut.text.is_empty()).map(|cut| cut.slot)
    }

    /// The bytes of the new file before what is appended: old ones and new texts by turns.
    pub(crate) fn kept_pieces<'a>(&'a self, old: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let starts = std::iter::once(0).chain(self.cuts.iter().map(|cut| cut.range.end));
        let ends = self.cuts.iter().map(|cut| cut.range.start).chain([old.len()]);
        let texts = self.cuts.iter().map(|cut| cut.text.as_slice()).chain([&[][..]]);
        starts.zip(ends).zip(texts).flat_map(|((start, end), text)| [&old[start..end], text])
    }

    /// The bytes of the new file.
    pub(crate) fn pieces<'a>(&'a self, old: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.kept_pieces(old).chain([self.appended.bytes.as_slice()]).filter(|piece| !piece.is_empty())
    }

    /// The size of the new file.
    pub(crate) fn bytes_len(&self) -> usize {
        let cut: usize = self.cuts.iter().map(|cut| cut.range.len()).sum();
        let texts: usize = self.cuts.iter().map(|cut| cut.text.len()).sum();
        self.old_bytes - cut + texts + self.appended.bytes.len()
    }
}

/// What the operations of a batch need from outside.
pub(crate) struct Writer<'a> {
    /// The collection's name, for errors.
    pub(crate) collection: &'a str,
    /// The cap in bytes.
    pub(crate) bytes_max: u64,
    /// The present time as JSON text.
    pub(crate) timestamp: &'a [u8],
    /// Makes random bytes for a new id.
    pub(crate) random: &'a mut dyn FnMut() -> Result<[u8; record::ID_BYTES]>,
}

/// The changes of a batch so far, over an image that stays as it is.
struct Draft<'a> {
    image: &'a Image,
    /// New texts of records of the image; `None` means removed.
    edits: BTreeMap<u32, Option<Vec<u8>>>,
    /// Lines that records were removed from, by where they start.
    lines: BTreeMap<usize, Line>,
    /// Records after the end of the image; `None` means added and removed again.
    tail: Vec<Option<Vec<u8>>>,
    /// The last place of each id among them. Before it, the id's records are removed ones.
    tail_ids: HashMap<String, usize, DefaultHashBuilder>,
    /// The size of the file as it would be now.
    bytes: u64,
    /// Whether the image's last line has no newline, and still stands.
    open_end: bool,
    /// Whether a newline goes between that line and the tail.
    end_closed: bool,
}

/// A line that a record was removed from.
struct Line {
    range: Range<usize>,
    /// The records that still stand on it.
    records: usize,
    /// The bytes of white space on it, when there is nothing else beside the records.
    space: Option<usize>,
}

impl Line {
    /// Whether nothing but white space is left. Such a line goes as a whole, with its newline. A line that holds anything
    /// else (another record, a corrupt rest, NUL padding, a byte order mark) loses only the record.
    fn is_empty(&self) -> bool {
        self.records == 0 && self.space.is_some()
    }
}

/// Where a draft finds a record.
#[derive(Clone, Copy)]
enum Place {
    Slot(u32),
    Tail(usize),
}

/// Plans a batch: the answer of each operation as if they ran one by one in order, and what to do to the file.
pub(crate) fn plan(image: &Image, ops: &[Op], writer: &mut Writer<'_>) -> (Vec<Result<Outcome>>, Plan) {
    let mut draft = Draft::new(image);
    let answers = ops.iter().map(|op| draft.apply(op, writer)).collect();
    (answers, draft.plan())
}

/// What a retain would remove.
pub(crate) fn retain_dry_run(image: &Image, policy: &RetainPolicy) -> Retained {
    Draft::new(image).retain(policy)
}

/// Those of the lines whose record is not in the image as it stands there, ready for its end.
pub(crate) fn missing(image: &Image, lines: &Appended) -> Appended {
    let mut draft = Draft::new(image);
    for record in &lines.records {
        let text = &lines.bytes[record.clone()];
        let id = record::id_of(text).map(|id| json::unescape(&text[id]));
        // By the id alone: whoever replaced the file may have spelled or changed the record otherwise.
        if id.is_none_or(|id| image.slots_of(&id).is_empty()) {
            draft.end_closed = draft.open_end;
            draft.tail.push(Some(text.to_vec()));
        }
    }
    draft.appended()
}

impl<'a> Draft<'a> {
    fn new(image: &'a Image) -> Self {
        Self {
            image,
            edits: BTreeMap::new(),
            lines: BTreeMap::new(),
            tail: Vec::new(),
            tail_ids: HashMap::default(),
            bytes: image.bytes().len() as u64,
            open_end: image.bytes().last().is_some_and(|byte| *byte != b'\n'),
            end_closed: false,
        }
    }

    fn apply(&mut self, op: &Op, writer: &mut Writer<'_>) -> Result<Outcome> {
        match op {
            Op::Append { fields } => {
                let id = self.unused_id(writer)?;
                let text = record::build(id.as_str(), writer.timestamp, fields);
                self.push(op, id.as_str(), text, writer)
            }
            Op::Set { id, fields } => {
                let place = self.find(id).first().copied();
                let ts = ts_of(fields, place.map(|place| self.text(place)), writer.timestamp);
                let text = record::build(id.as_str(), &ts, fields);
                match place {
                    Some(place) => self.replace(op, place, text, writer),
                    None => self.push(op, id.as_str(), text, writer),
                }
            }
            Op::Update { id, fields } => match self.find(id).first() {
                Some(place) => {
                    let text = record::merge(self.text(*place), fields);
                    self.replace(op, *place, text, writer)
                }
                None => Err(not_found(id, writer)),
            },
            Op::Delete { id } => {
                let places = self.find(id);
                if places.is_empty() {
                    return Err(not_found(id, writer));
                }
                for place in places {
                    self.remove(place);
                }
                Ok(Outcome::Deleted(id.clone()))
            }
            Op::Query { filter, limit } => Ok(Outcome::Records(self.query(&Filter::new(filter), *limit))),
            Op::Retain { policy } => Ok(Outcome::Retained(self.retain(policy))),
        }
    }

    fn retain(&mut self, policy: &RetainPolicy) -> Retained {
        let places: Vec<Place> = self.places().collect();
        let (outdated, series) = readings::outdated(places.iter().map(|place| self.text(*place)), policy);
        let mut removed = Records::new();
        for (_, place) in places.iter().enumerate().filter(|(position, _)| outdated.contains(position)) {
            removed.push(Record::served(self.text(*place)).as_bytes());
            self.remove(*place);
        }
        let count = removed.len();
        let removed = removed.with_count(count as u64).finish();
        Retained { removed, kept: (places.len() - count) as u64, series }
    }

    /// Every record that stands, in the order of the file.
    fn places(&self) -> impl Iterator<Item = Place> {
        let slots = (0..self.image.slots_len()).map(Place::Slot);
        slots.chain((0..self.tail.len()).map(Place::Tail)).filter(|place| !self.text(*place).is_empty())
    }

    /// A query between the writes of a batch. The gateway's own queries do not come this way.
    fn query(&self, filter: &Filter, limit: usize) -> Records {
        let mut records = Records::new();
        for place in self.places() {
            let stored = self.text(place);
            if filter.matches(stored) {
                records.matched(limit, || Record::served(stored).into_bytes());
            }
        }
        records.finish()
    }

    fn unused_id(&self, writer: &mut Writer<'_>) -> Result<RecordId> {
        // 48 random bits: a second try is rare, a third means that the random source repeats itself.
        const TRIES_MAX: usize = 16;
        for _ in 0..TRIES_MAX {
            let id = record::new_id((writer.random)()?);
            if self.image.slots_of(id.as_str()).is_empty() && !self.tail_ids.contains_key(id.as_str()) {
                return Ok(id);
            }
        }
        let error = io::Error::other(format!("it gave {TRIES_MAX} ids in a row that are taken"));
        Err(Error::io("random source", Path::new("an id"), error))
    }

    /// Every record with this id, in the order of the file.
    fn find(&self, id: &RecordId) -> Vec<Place> {
        let slots = self.image.slots_of(id.as_str()).into_iter();
        let slots = slots.filter(|slot| !matches!(self.edits.get(slot), Some(None))).map(Place::Slot);
        let tail = self.tail_ids.get(id.as_str()).into_iter().copied();
        let tail = tail.filter(|position| self.tail[*position].is_some()).map(Place::Tail);
        slots.chain(tail).collect()
    }

    /// The record's text as it now is; empty when it was removed.
    fn text(&self, place: Place) -> &[u8] {
        match place {
            Place::Slot(slot) => match self.edits.get(&slot) {
                Some(edit) => edit.as_deref().unwrap_or_default(),
                None => self.image.stored(slot),
            },
            Place::Tail(position) => self.tail[position].as_deref().unwrap_or_default(),
        }
    }

    fn push(&mut self, op: &Op, id: &str, text: Vec<u8>, writer: &Writer<'_>) -> Result<Outcome> {
        let closes = self.open_end && !self.end_closed;
        let bytes = self.bytes + text.len() as u64 + 1 + u64::from(closes);
        self.check_cap(op, bytes, writer)?;
        self.end_closed |= closes;
        self.bytes = bytes;
        let record = Record::served(&text);
        self.tail_ids.insert(id.to_owned(), self.tail.len());
        self.tail.push(Some(text));
        Ok(Outcome::Record(record))
    }

    fn replace(&mut self, op: &Op, place: Place, text: Vec<u8>, writer: &Writer<'_>) -> Result<Outcome> {
        let old = self.text(place);
        let bytes = self.bytes - old.len() as u64 + text.len() as u64;
        self.check_cap(op, bytes, writer)?;
        let record = Record::served(&text);
        if old != text {
            self.bytes = bytes;
            match place {
                Place::Slot(slot) => {
                    self.edits.insert(slot, Some(text));
                }
                Place::Tail(position) => self.tail[position] = Some(text),
            }
        }
        Ok(Outcome::Record(record))
    }

    /// The cap holds for the file as it is and as it would be.
    fn check_cap(&self, op: &Op, bytes: u64, writer: &Writer<'_>) -> Result<()> {
        let size = bytes.max(self.bytes);
        if size <= writer.bytes_max {
            return Ok(());
        }
        Err(Error::TooLarge {
            operation: op.name(),
            collection: writer.collection.to_owned(),
            size,
            limit: writer.bytes_max,
        })
    }

    fn remove(&mut self, place: Place) {
        match place {
            Place::Tail(position) => {
                let text = self.tail[position].take();
                self.bytes -= text.map_or(0, |text| text.len() as u64 + 1);
            }
            Place::Slot(slot) => {
                self.bytes -= self.text(place).len() as u64;
                self.edits.insert(slot, None);
                let file_end = self.image.bytes().len();
                let line = self.line_of(slot);
                line.records -= 1;
                if let Some(space) = line.space.filter(|_| line.records == 0) {
                    let last = line.range.end == file_end;
                    self.bytes -= space as u64;
                    if last && self.open_end {
                        self.open_end = false;
                        self.bytes -= u64::from(self.end_closed);
                        self.end_closed = false;
                    }
                }
            }
        }
    }

    /// The line of a record. It is looked at once, at the first record that is removed from it.
    fn line_of(&mut self, slot: u32) -> &mut Line {
        let image = self.image;
        let at = image.range(slot).start;
        let known = self.lines.range(..=at).next_back().filter(|(_, line)| line.range.contains(&at));
        let start = known.map(|(start, _)| *start);
        let start = start.unwrap_or_else(|| {
            let range = image.line_of(slot);
            let is_space =
                |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
            let mut line = Line { range: range.clone(), records: 0, space: Some(0) };
            let mut at = range.start;
            let mut pass = |upto: Range<usize>| {
                let between = &image.bytes()[at..upto.start];
                line.space = line.space.filter(|_| is_space(between)).map(|space| space + between.len());
                at = upto.end;
            };
            let mut records = 0;
            for slot in image.slots_on(&range, slot) {
                records += 1;
                pass(image.range(slot));
            }
            pass(range.end..range.end);
            line.records = records;
            self.lines.insert(range.start, line);
            range.start
        });
        self.lines.get_mut(&start).expect("it was found or has just been put there")
    }

    /// What goes to the end of the file.
    fn appended(&self) -> Appended {
        let bytes = self.tail.iter().flatten().map(|text| text.len() + 1).sum::<usize>() + 1;
        let mut appended =
            Appended { bytes: Vec::with_capacity(bytes), records: Vec::with_capacity(self.tail.len()) };
        if self.end_closed && self.open_end {
            appended.bytes.push(b'\n');
        }
        for text in self.tail.iter().flatten() {
            let start = appended.bytes.len();
            appended.bytes.extend_from_slice(text);
            appended.records.push(start..appended.bytes.len());
            appended.bytes.push(b'\n');
        }
        appended
    }

    fn plan(self) -> Plan {
        let appended = self.appended();
        if self.edits.is_empty() {
            return if appended.bytes.is_empty() { Plan::Nothing } else { Plan::Append(appended) };
        }
        let mut rewrite =
            Rewrite { cuts: Vec::new(), removed: Vec::new(), appended, old_bytes: self.image.bytes().len() };
        for (slot, edit) in self.edits {
            let range = self.image.range(slot);
            let Some(text) = edit else {
                rewrite.removed.push(slot);
                let line = self.lines.range(..=range.start).next_back().map(|(_, line)| line);
                let emptied = line.filter(|line| line.is_empty()).map(|line| line.range.clone());
                let range = emptied.unwrap_or(range);
                // A line that held several records, all removed, was cut at the first of them.
                if rewrite.cuts.last().is_none_or(|cut| cut.range.end <= range.start) {
                    rewrite.cuts.push(Cut { slot, range, text: Vec::new() });
                }
                continue;
            };
            rewrite.cuts.push(Cut { slot, range, text });
        }
        debug_assert_eq!(rewrite.bytes_len() as u64, self.bytes, "the size was counted right");
        Plan::Rewrite(rewrite)
    }
}

/// The `ts` of a record that is set: what the fields say, else what it had, else the present time.
fn ts_of(fields: &Fields, old: Option<&[u8]>, now: &[u8]) -> Vec<u8> {
    if let Some(given) = fields.get("ts") {
        return given.as_bytes().to_vec();
    }
    let kept = old.and_then(|old| record::value_of(old, "ts"));
    kept.unwrap_or(now).to_vec()
}

fn not_found(id: &RecordId, writer: &Writer<'_>) -> Error {
    Error::NotFound { collection: writer.collection.to_owned(), id: id.to_string() }
}
