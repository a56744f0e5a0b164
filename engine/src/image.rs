//! A collection in memory: the bytes of its file, where each record lies, and an index of ids.
//!
//! An image is only ever a copy of what a file holds; `collection.rs` decides when it is still true. It plans writes
//! without touching anything: a batch of operations becomes answers and a [`Plan`], as if the operations had run one
//! by one, and only after the plan is on disk does the image take it over.
//!
//! Invariant: a plan keeps every byte that does not belong to a record that one of its operations names.
//!
//! A record keeps its *slot* for the life of the image, so an index of slots survives rewrites: a removed record
//! leaves an empty slot behind.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::json;
use crate::name::RecordId;
use crate::op::{Op, Outcome, Records};
use crate::readings::{self, RetainPolicy, Retained};
use crate::record::{self, Fields, Record};
use crate::scan::{self, Found};

/// The first corrupt line of a file and how many there are, for the one warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Corruption {
    pub(crate) lines: usize,
    pub(crate) first_line: usize,
    pub(crate) first_reason: String,
}

/// Where a record lies in the bytes. Empty when it was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    start: u32,
    end: u32,
    /// The position of the id's text (with quotes) from `start`; 0 when the record has no string for an id.
    id_at: u32,
    id_bytes: u32,
}

impl Slot {
    fn new(span: &Range<usize>, id: Option<&Range<usize>>) -> Self {
        let (id_at, id_bytes) = id.map_or((0, 0), |id| (offset(id.start - span.start), offset(id.len())));
        Self { start: offset(span.start), end: offset(span.end), id_at, id_bytes }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    fn is_removed(self) -> bool {
        self.start == self.end
    }
}

/// A collection in memory.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    /// Slots by the hash of their id's text.
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// What is served of records whose stored text is not clean.
    repaired: HashMap<u32, Vec<u8>>,
    corruption: Option<Corruption>,
}

impl Image {
    /// Reads a file's bytes. They must be no longer than [`Options::READ_BYTES_LIMIT`](crate::Options).
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let mut corruption: Option<Corruption> = None;
        let mut found_records = Vec::new();
        scan::scan(&bytes, |found| match found {
            Found::Record { bytes, id } => found_records.push((bytes, id)),
            Found::Corrupt { line, reason, .. } => {
                corruption
                    .get_or_insert(Corruption { lines: 0, first_line: line, first_reason: reason })
                    .lines += 1;
            }
        });
        let clean = record::is_clean(&bytes);
        let mut image = Self {
            bytes,
            slots: Vec::with_capacity(found_records.len()),
            ids: HashTable::with_capacity(found_records.len()),
            hasher: DefaultHashBuilder::default(),
            repaired: HashMap::new(),
            corruption,
        };
        for (span, id) in found_records {
            image.add_slot(span, id, clean);
        }
        image
    }

    /// The image of an empty file.
    pub(crate) fn empty() -> Self {
        Self::new(Vec::new())
    }

    /// Whether there is no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.is_removed())
    }

    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the image costs in memory, in bytes.
    pub(crate) fn cost(&self) -> u64 {
        let repaired: usize = self.repaired.values().map(|text| text.capacity() + 64).sum();
        let bytes = self.bytes.capacity()
            + self.slots.capacity() * size_of::<Slot>()
            + self.ids.allocation_size()
            + repaired
            + size_of::<Self>();
        bytes as u64
    }

    /// The corrupt lines of the file that the image was read from.
    pub(crate) fn corruption(&self) -> Option<&Corruption> {
        self.corruption.as_ref()
    }

    /// Adds the record that lies at `span`, its id at `id`. `clean` says that it needs no look for bad text.
    fn add_slot(&mut self, span: Range<usize>, id: Option<Range<usize>>, clean: bool) {
        let number = offset(self.slots.len());
        if !clean && let Some(repaired) = record::repaired(&self.bytes[span.clone()]) {
            self.repaired.insert(number, repaired);
        }
        self.slots.push(Slot::new(&span, id.as_ref()));
        if let Some(id) = id {
            let Self { ids, slots, bytes, hasher, .. } = self;
            let hash = hasher.hash_one(json::unescape(&bytes[id]).as_ref());
            ids.insert_unique(hash, number, |slot| {
                let slot = slots[*slot as usize];
                id_text(bytes, slot).map_or(0, |id| hasher.hash_one(id.as_ref()))
            });
        }
    }

    /// The slots whose record has this id, in the order of the file.
    fn slots_of(&self, id: &str) -> Vec<u32> {
        let hash = self.hasher.hash_one(id);
        let mut slots: Vec<u32> = self
            .ids
            .iter_hash(hash)
            .copied()
            .filter(|slot| id_text(&self.bytes, self.slots[*slot as usize]).is_some_and(|text| text == id))
            .collect();
        slots.sort_unstable();
        slots
    }

    fn served(&self, slot: u32) -> &[u8] {
        match self.repaired.get(&slot) {
            Some(repaired) => repaired,
            None => &self.bytes[self.slots[slot as usize].range()],
        }
    }

    /// Answers a query.
    pub(crate) fn query(&self, filter: &Filter, limit: usize) -> Records {
        let mut records = Records::new();
        let mut count = 0;
        let mut consider = |number: u32| {
            let slot = self.slots[number as usize];
            if slot.is_removed() {
                return;
            }
            let matches = filter.is_empty() || {
                let stored = &self.bytes[slot.range()];
                filter.matches(stored, &record::stored_members(stored))
            };
            if matches {
                if records.len() < limit {
                    records.push(self.served(number));
                }
                count += 1;
            }
        };
        match filter.id() {
            Some(id) => self.slots_of(&id).into_iter().for_each(&mut consider),
            None => (0..offset(self.slots.len())).for_each(&mut consider),
        }
        records.finish(count)
    }

    /// What a retain would remove.
    pub(crate) fn retain_dry_run(&self, policy: &RetainPolicy) -> Retained {
        self.draft().retain(policy)
    }

    /// Whether any record has this id.
    pub(crate) fn has_id(&self, id: &str) -> bool {
        !self.slots_of(id).is_empty()
    }
}

/// The id of a record, or nothing when it has none.
fn id_text(bytes: &[u8], slot: Slot) -> Option<std::borrow::Cow<'_, str>> {
    let start = (slot.start + slot.id_at) as usize;
    (slot.id_bytes > 0).then(|| json::unescape(&bytes[start..start + slot.id_bytes as usize]))
}

fn offset(position: usize) -> u32 {
    u32::try_from(position).expect("a file is at most 2^31 bytes, checked before it is read")
}

/// What a batch of writes does to the file.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Nothing: every operation failed, or changed nothing.
    Nothing,
    /// These bytes go to the end.
    Append(Appended),
    /// The file is replaced.
    Rewrite(Image),
}

/// Whole lines for the end of a file.
#[derive(Debug)]
pub(crate) struct Appended {
    /// The bytes to write: a newline first when the file does not end in one, then each record with its newline.
    pub(crate) bytes: Vec<u8>,
    /// Where each record lies in `bytes`.
    records: Vec<Range<usize>>,
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
    pub(crate) random: &'a mut dyn FnMut() -> Result<[u8; 6]>,
}

/// The changes of a batch so far, over an image that stays as it is.
struct Draft<'a> {
    image: &'a Image,
    /// New texts of records of the image; `None` means removed.
    edits: BTreeMap<u32, Option<Vec<u8>>>,
    /// Records after the end of the image; `None` means added and removed again.
    tail: Vec<Option<Vec<u8>>>,
    tail_ids: HashMap<String, Vec<usize>>,
    /// The size of the file as it would be now.
    bytes: u64,
    /// Whether the image's last line has no newline, and still stands.
    open_end: bool,
    /// Whether a newline goes between that line and the tail.
    end_closed: bool,
}

/// Where a draft finds a record.
#[derive(Clone, Copy)]
enum Place {
    Slot(u32),
    Tail(usize),
}

impl Image {
    /// Plans a batch of writes: the answer of each as if they ran one by one in order, and what to do to the file.
    pub(crate) fn plan(&self, ops: &[Op], writer: &mut Writer<'_>) -> (Vec<Result<Outcome>>, Plan) {
        let mut draft = self.draft();
        let answers = ops.iter().map(|op| draft.apply(op, writer)).collect();
        (answers, draft.plan())
    }

    fn draft(&self) -> Draft<'_> {
        Draft {
            image: self,
            edits: BTreeMap::new(),
            tail: Vec::new(),
            tail_ids: HashMap::new(),
            bytes: self.bytes.len() as u64,
            open_end: self.bytes.last().is_some_and(|byte| *byte != b'\n'),
            end_closed: false,
        }
    }

    /// Those of the lines whose record is not in the image as it stands there, ready for its end.
    pub(crate) fn missing(&self, lines: &Appended) -> Appended {
        let mut draft = self.draft();
        for record in &lines.records {
            let text = &lines.bytes[record.clone()];
            let id = record::id_of(text, &record::stored_members(text)).map(|id| json::unescape(&text[id]));
            let stands = |slot: &u32| &self.bytes[self.slots[*slot as usize].range()] == text;
            if !id.is_some_and(|id| self.slots_of(&id).iter().any(stands)) {
                draft.end_closed = draft.open_end;
                draft.tail.push(Some(text.to_vec()));
            }
        }
        match draft.plan() {
            Plan::Append(appended) => appended,
            Plan::Nothing | Plan::Rewrite(_) => Appended { bytes: Vec::new(), records: Vec::new() },
        }
    }

    /// Takes over bytes that were written to the end of the file.
    pub(crate) fn append(&mut self, appended: &Appended) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&appended.bytes);
        for record in &appended.records {
            let span = start + record.start..start + record.end;
            let id = self.id_at(&span);
            self.add_slot(span, id, false);
        }
    }
}

impl Draft<'_> {
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
        Retained { removed: removed.finish(count as u64), kept: (places.len() - count) as u64, series }
    }

    /// Every record that stands, in the order of the file.
    fn places(&self) -> impl Iterator<Item = Place> {
        let slots = (0..offset(self.image.slots.len())).map(Place::Slot);
        slots.chain((0..self.tail.len()).map(Place::Tail)).filter(|place| !self.text(*place).is_empty())
    }

    /// A query between the writes of a batch. The gateway's own queries do not come this way.
    fn query(&self, filter: &Filter, limit: usize) -> Records {
        let mut records = Records::new();
        let mut count = 0;
        for place in self.places() {
            let stored = self.text(place);
            if filter.matches(stored, &record::stored_members(stored)) {
                if records.len() < limit {
                    records.push(Record::served(stored).as_bytes());
                }
                count += 1;
            }
        }
        records.finish(count)
    }

    fn unused_id(&self, writer: &mut Writer<'_>) -> Result<RecordId> {
        // 48 random bits: a second try is rare, a third means that the random source repeats itself.
        const TRIES_MAX: usize = 16;
        for _ in 0..TRIES_MAX {
            let id = record::new_id((writer.random)()?);
            if !self.image.has_id(id.as_str()) && !self.tail_ids.contains_key(id.as_str()) {
                return Ok(id);
            }
        }
        Err(Error::invalid(format!("the random source gave {TRIES_MAX} ids that are taken")))
    }

    /// Every record with this id, in the order of the file.
    fn find(&self, id: &RecordId) -> Vec<Place> {
        let slots = self.image.slots_of(id.as_str()).into_iter();
        let slots = slots.filter(|slot| !matches!(self.edits.get(slot), Some(None))).map(Place::Slot);
        let tail = self.tail_ids.get(id.as_str()).into_iter().flatten().copied();
        let tail = tail.filter(|position| self.tail[*position].is_some()).map(Place::Tail);
        slots.chain(tail).collect()
    }

    /// The record's text as it now is; empty when it was removed.
    fn text(&self, place: Place) -> &[u8] {
        match place {
            Place::Slot(slot) => match self.edits.get(&slot) {
                Some(edit) => edit.as_deref().unwrap_or_default(),
                None => &self.image.bytes[self.image.slots[slot as usize].range()],
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
        self.tail_ids.entry(id.to_owned()).or_default().push(self.tail.len());
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
                let removed = self.text(place).len();
                self.edits.insert(slot, None);
                self.bytes -= removed as u64;
                if let Some((line, rest)) = self.emptied_line(slot) {
                    self.bytes -= rest as u64;
                    if line.end == self.image.bytes.len() && self.open_end {
                        self.open_end = false;
                        self.bytes -= u64::from(self.end_closed);
                        self.end_closed = false;
                    }
                }
            }
        }
    }

    /// The line of a removed record, and how many bytes are left of it, when nothing but white space is.
    ///
    /// Such a line goes as a whole, with its newline. A line that holds anything else (another record, a corrupt rest,
    /// NUL padding, a byte order mark) loses only the record.
    fn emptied_line(&self, slot: u32) -> Option<(Range<usize>, usize)> {
        let line = self.image.line_of(slot);
        let mut rest = 0;
        let mut at = line.start;
        let mut number = slot as usize;
        while let Some(before) = number.checked_sub(1).map(|before| self.image.slots[before]) {
            if !before.is_removed() && before.range().end <= line.start {
                break;
            }
            number -= 1;
        }
        let space = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
        for (place, slot) in self.image.slots.iter().enumerate().skip(number) {
            if slot.is_removed() {
                continue;
            }
            if slot.range().start >= line.end {
                break;
            }
            let between = &self.image.bytes[at..slot.range().start];
            if !space(between) || !matches!(self.edits.get(&offset(place)), Some(None)) {
                return None;
            }
            rest += between.len();
            at = slot.range().end;
        }
        let last = &self.image.bytes[at..line.end];
        space(last).then_some((line, rest + last.len()))
    }

    fn plan(self) -> Plan {
        let tail: Vec<&Vec<u8>> = self.tail.iter().flatten().collect();
        let closes = self.end_closed && self.open_end;
        if self.edits.is_empty() && tail.is_empty() && !closes {
            return Plan::Nothing;
        }
        let mut appended = Appended { bytes: Vec::new(), records: Vec::with_capacity(tail.len()) };
        if closes {
            appended.bytes.push(b'\n');
        }
        for text in tail {
            let start = appended.bytes.len();
            appended.bytes.extend_from_slice(text);
            appended.records.push(start..appended.bytes.len());
            appended.bytes.push(b'\n');
        }
        if self.edits.is_empty() {
            return Plan::Append(appended);
        }
        let mut image = self.rewritten();
        image.append(&appended);
        debug_assert_eq!(image.bytes.len() as u64, self.bytes, "the size was counted right");
        Plan::Rewrite(image)
    }

    /// The image with the edits done: copies of what lies between them, around the new texts.
    fn rewritten(&self) -> Image {
        let old = self.image;
        let mut image = Image {
            bytes: Vec::with_capacity(usize::try_from(self.bytes).unwrap_or(0)),
            slots: old.slots.clone(),
            ids: old.ids.clone(),
            hasher: old.hasher.clone(),
            repaired: old.repaired.clone(),
            corruption: old.corruption.clone(),
        };
        let mut copied = 0;
        // Slots from here on still have their old positions; all before have been moved.
        let mut moved = 0;
        for (number, edit) in &self.edits {
            let number = *number as usize;
            let range = old.slots[number].range();
            let (cut, text) = match edit {
                Some(text) => (range, text.as_slice()),
                None => (self.emptied_line(offset(number)).map_or(range, |(line, _)| line), &[][..]),
            };
            if edit.is_none() {
                image.remove_slot(offset(number), old);
            }
            // A line that held several records, all removed, was cut at the first of them.
            if cut.start < copied {
                continue;
            }
            shift(&mut image.slots[moved..number], image.bytes.len(), copied);
            image.bytes.extend_from_slice(&old.bytes[copied..cut.start]);
            if edit.is_some() {
                image.replace_slot(offset(number), text);
            }
            moved = number + 1;
            copied = cut.end;
        }
        shift(&mut image.slots[moved..], image.bytes.len(), copied);
        image.bytes.extend_from_slice(&old.bytes[copied..]);
        image
    }
}

/// Moves slots from their old positions to where they lie when the old bytes from `copied` on land at `bytes`.
fn shift(slots: &mut [Slot], bytes: usize, copied: usize) {
    let (bytes, copied) = (offset(bytes), offset(copied));
    for slot in slots.iter_mut().filter(|slot| !slot.is_removed()) {
        slot.start = slot.start - copied + bytes;
        slot.end = slot.end - copied + bytes;
    }
}

impl Image {
    /// The line that a record lies on, with its newline.
    fn line_of(&self, slot: u32) -> Range<usize> {
        let range = self.slots[slot as usize].range();
        let start = memchr::memrchr(b'\n', &self.bytes[..range.start]).map_or(0, |newline| newline + 1);
        let end = memchr::memchr(b'\n', &self.bytes[range.end..]);
        start..end.map_or(self.bytes.len(), |newline| range.end + newline + 1)
    }

    /// Where the id of the record at `span` lies, if it is a string.
    fn id_at(&self, span: &Range<usize>) -> Option<Range<usize>> {
        let stored = &self.bytes[span.clone()];
        let id = record::id_of(stored, &record::stored_members(stored))?;
        Some(span.start + id.start..span.start + id.end)
    }

    fn remove_slot(&mut self, slot: u32, old: &Self) {
        if let Some(id) = id_text(&old.bytes, old.slots[slot as usize]) {
            let hash = self.hasher.hash_one(id.as_ref());
            if let Ok(entry) = self.ids.find_entry(hash, |other| *other == slot) {
                entry.remove();
            }
        }
        self.repaired.remove(&slot);
        self.slots[slot as usize] = Slot { start: 0, end: 0, id_at: 0, id_bytes: 0 };
    }

    /// Writes a record's new text at the end of the bytes. Its id is the same, though perhaps not its spelling.
    fn replace_slot(&mut self, slot: u32, text: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text);
        let members = record::stored_members(text);
        let (id_at, id_bytes) =
            record::id_of(text, &members).map_or((0, 0), |id| (offset(id.start), offset(id.len())));
        self.slots[slot as usize] =
            Slot { start: offset(start), end: offset(self.bytes.len()), id_at, id_bytes };
        match record::repaired(text) {
            Some(repaired) => self.repaired.insert(slot, repaired),
            None => self.repaired.remove(&slot),
        };
    }
}

/// The `ts` of a record that is set: what the fields say, else what it had, else the present time.
fn ts_of(fields: &Fields, old: Option<&[u8]>, now: &[u8]) -> Vec<u8> {
    if let Some(given) = fields.get("ts") {
        return given.as_bytes().to_vec();
    }
    let kept = old.and_then(|old| {
        let members = record::stored_members(old);
        record::last_of(old, &members, "ts").map(|member| old[member.value.clone()].to_vec())
    });
    kept.unwrap_or_else(|| now.to_vec())
}

fn not_found(id: &RecordId, writer: &Writer<'_>) -> Error {
    Error::NotFound { collection: writer.collection.to_owned(), id: id.to_string() }
}
