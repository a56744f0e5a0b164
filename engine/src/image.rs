//! A collection in memory: the bytes of its file, where each record lies, and an index of ids.
//!
//! An image is only ever a copy of what a file holds; `collection.rs` decides when it is still true. It is changed only
//! by what has reached the disk ([`Image::append`], [`Image::rewrite`]); what a batch would do to it is worked out in
//! `draft.rs` without touching it.
//!
//! A record keeps its *slot* for the life of the image, so an index of slots survives rewrites: a removed record
//! leaves an empty slot behind.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::draft::{Appended, Rewrite};
use crate::filter::Filter;
use crate::json;
use crate::op::Records;
use crate::record;
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
    /// How many of the slots hold a record.
    records: usize,
    /// The first slot of each id, by the hash of the id's text.
    ids: HashTable<u32>,
    /// The other slots of ids that more than one record has, in order, by the first.
    duplicates: HashMap<u32, Vec<u32>>,
    hasher: DefaultHashBuilder,
    /// What is served of records whose stored text is not clean.
    repaired: HashMap<u32, Vec<u8>>,
    corruption: Option<Corruption>,
}

impl Image {
    /// Reads a file's bytes. They must be no longer than [`Options::READ_BYTES_LIMIT`](crate::Options).
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let mut corruption: Option<Corruption> = None;
        let mut slots = Vec::new();
        scan::scan(&bytes, |found| match found {
            Found::Record { bytes, id } => slots.push(Slot::new(&bytes, id.as_ref())),
            Found::Corrupt { line, reason, .. } => {
                corruption
                    .get_or_insert_with(|| Corruption {
                        lines: 0,
                        first_line: line,
                        first_reason: reason.to_string(),
                    })
                    .lines += 1;
            }
        });
        slots.shrink_to_fit();
        let clean = record::is_clean(&bytes);
        let mut image = Self {
            bytes,
            records: slots.len(),
            ids: HashTable::with_capacity(slots.iter().filter(|slot| slot.id_bytes > 0).count()),
            slots,
            hasher: DefaultHashBuilder::default(),
            duplicates: HashMap::new(),
            repaired: HashMap::new(),
            corruption,
        };
        for slot in 0..image.slots_len() {
            image.learn(slot, clean);
        }
        image
    }

    /// The image of an empty file.
    pub(crate) fn empty() -> Self {
        Self::new(Vec::new())
    }

    /// Whether there is no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Whether most slots are empty.
    pub(crate) fn is_sparse(&self) -> bool {
        const EMPTY_MIN: usize = 1024;
        self.slots.len() > 2 * self.records + EMPTY_MIN
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
            + self.duplicates.values().map(|slots| slots.capacity() * size_of::<u32>() + 64).sum::<usize>()
            + repaired
            + size_of::<Self>();
        bytes as u64
    }

    /// The corrupt lines of the file that the image was read from.
    pub(crate) fn corruption(&self) -> Option<&Corruption> {
        self.corruption.as_ref()
    }

    /// Adds the record that lies at `span`, its id at `id`.
    fn add_slot(&mut self, span: &Range<usize>, id: Option<&Range<usize>>) {
        let number = self.slots_len();
        self.slots.push(Slot::new(span, id));
        self.records += 1;
        self.learn(number, false);
    }

    /// Looks at the record of a slot. `clean` says that no record needs a look for bad text.
    fn learn(&mut self, number: u32, clean: bool) {
        let slot = self.slots[number as usize];
        if !clean && let Some(repaired) = record::repaired(&self.bytes[slot.range()]) {
            self.repaired.insert(number, repaired);
        }
        if slot.id_bytes > 0 {
            let start = (slot.start + slot.id_at) as usize;
            self.add_id(number, start..start + slot.id_bytes as usize);
        }
    }

    fn add_id(&mut self, number: u32, id: Range<usize>) {
        let Self { ids, slots, bytes, hasher, duplicates, .. } = self;
        let bytes = bytes.as_slice();
        let text_of = |slot: u32| id_text(bytes, slots[slot as usize]);
        let id = json::unescape(&bytes[id]);
        let hash = hasher.hash_one(id.as_ref());
        let rehash = |slot: &u32| text_of(*slot).map_or(0, |id| hasher.hash_one(id.as_ref()));
        match ids.entry(hash, |first| text_of(*first).is_some_and(|text| text == id), rehash) {
            Entry::Vacant(entry) => {
                entry.insert(number);
            }
            Entry::Occupied(entry) => duplicates.entry(*entry.get()).or_default().push(number),
        }
    }

    /// The slots whose record has this id, in the order of the file.
    pub(crate) fn slots_of(&self, id: &str) -> Vec<u32> {
        let hash = self.hasher.hash_one(id);
        let first = self.ids.find(hash, |slot| self.id(*slot).is_some_and(|text| text == id));
        let others = first.and_then(|first| self.duplicates.get(first)).map_or(&[][..], Vec::as_slice);
        first.into_iter().chain(others).copied().collect()
    }

    /// How many slots there are, the empty ones too.
    pub(crate) fn slots_len(&self) -> u32 {
        offset(self.slots.len())
    }

    /// Where a record lies; empty when it was removed.
    pub(crate) fn range(&self, slot: u32) -> Range<usize> {
        self.slots[slot as usize].range()
    }

    /// The bytes of a record as they stand in the file; empty when it was removed.
    pub(crate) fn stored(&self, slot: u32) -> &[u8] {
        &self.bytes[self.range(slot)]
    }

    /// The text of a record that is served.
    pub(crate) fn served(&self, slot: u32) -> &[u8] {
        self.repaired.get(&slot).map_or_else(|| self.stored(slot), Vec::as_slice)
    }

    fn id(&self, slot: u32) -> Option<Cow<'_, str>> {
        id_text(&self.bytes, self.slots[slot as usize])
    }

    /// Answers a query from these slots, which must be in the order of the file.
    pub(crate) fn query_slots(
        &self,
        slots: impl Iterator<Item = u32>,
        filter: &Filter,
        limit: usize,
    ) -> Records {
        let mut records = Records::new();
        for slot in slots {
            let stored = self.stored(slot);
            if !stored.is_empty() && filter.matches(stored) {
                records.matched(limit, || self.served(slot));
            }
        }
        records.finish()
    }

    /// Answers a query by looking at every record.
    pub(crate) fn query(&self, filter: &Filter, limit: usize) -> Records {
        if filter.is_empty() {
            let mut records = Records::new();
            let standing = (0..self.slots_len()).filter(|slot| !self.slots[*slot as usize].is_removed());
            standing.take(limit).for_each(|slot| records.push(self.served(slot)));
            return records.with_count(self.records as u64).finish();
        }
        self.query_slots(0..self.slots_len(), filter, limit)
    }

    /// Takes over bytes that were written to the end of the file.
    pub(crate) fn append(&mut self, appended: &Appended) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&appended.bytes);
        for record in &appended.records {
            let span = start + record.start..start + record.end;
            let id = self.id_at(&span);
            self.add_slot(&span, id.as_ref());
        }
    }

    /// Takes over a rewrite of the file.
    pub(crate) fn rewrite(&mut self, rewrite: &Rewrite) {
        // From the end, so that lists of slots lose their last entries first.
        for slot in rewrite.removed.iter().rev() {
            self.remove_slot(*slot);
        }
        // The slots between two cuts move by the same distance; those that were replaced get their place from the cut.
        let mut moved = 0;
        let mut old = 0;
        let mut new = 0;
        for cut in &rewrite.cuts {
            let until = cut.slot as usize;
            shift(&mut self.slots[moved..until], old, new);
            new += cut.range.start - old;
            if let Some(slot) = self.slots.get_mut(until).filter(|_| !cut.text.is_empty()) {
                // Where the id lies in the new text is found once the text is in place.
                *slot = Slot { start: offset(new), end: offset(new + cut.text.len()), id_at: 0, id_bytes: 0 };
            }
            moved = until + 1;
            new += cut.text.len();
            old = cut.range.end;
        }
        shift(self.slots.get_mut(moved..).unwrap_or_default(), old, new);
        splice(&mut self.bytes, rewrite);
        for cut in rewrite.cuts.iter().filter(|cut| !cut.text.is_empty()) {
            let span = self.range(cut.slot);
            self.slots[cut.slot as usize] = Slot::new(&span, self.id_at(&span).as_ref());
            match record::repaired(&self.bytes[span]) {
                Some(repaired) => self.repaired.insert(cut.slot, repaired),
                None => self.repaired.remove(&cut.slot),
            };
        }
        self.append(&rewrite.appended);
    }

    /// The line that a record lies on, with its newline.
    pub(crate) fn line_of(&self, slot: u32) -> Range<usize> {
        let range = self.range(slot);
        let start = memchr::memrchr(b'\n', &self.bytes[..range.start]).map_or(0, |newline| newline + 1);
        let end = memchr::memchr(b'\n', &self.bytes[range.end..]);
        start..end.map_or(self.bytes.len(), |newline| range.end + newline + 1)
    }

    /// The records on a line, given one of them, in order.
    pub(crate) fn slots_on(&self, line: &Range<usize>, slot: u32) -> impl Iterator<Item = u32> {
        let slot = slot as usize;
        let on_line = |slot: &&Slot| slot.is_removed() || line.contains(&(slot.start as usize));
        let before = self.slots[..slot].iter().rev().take_while(on_line).count();
        let behind = self.slots[slot..].iter().take_while(on_line).count();
        let numbers = offset(slot - before)..offset(slot + behind);
        numbers.filter(|slot| !self.slots[*slot as usize].is_removed())
    }

    /// Where the id of the record at `span` lies, if it is a string.
    fn id_at(&self, span: &Range<usize>) -> Option<Range<usize>> {
        let id = record::id_of(&self.bytes[span.clone()])?;
        Some(span.start + id.start..span.start + id.end)
    }

    fn remove_slot(&mut self, slot: u32) {
        self.remove_id(slot);
        self.repaired.remove(&slot);
        self.slots[slot as usize] = Slot { start: 0, end: 0, id_at: 0, id_bytes: 0 };
        self.records -= 1;
    }
}

impl Image {
    fn remove_id(&mut self, slot: u32) {
        let Some(id) = self.id(slot) else { return };
        let hash = self.hasher.hash_one(id.as_ref());
        let Some(first) =
            self.ids.find(hash, |first| self.id(*first).is_some_and(|text| text == id)).copied()
        else {
            return;
        };
        let others = self.duplicates.remove(&first).unwrap_or_default();
        let (first_now, others_now) = if slot == first {
            (others.first().copied(), others.get(1..).unwrap_or_default().to_vec())
        } else {
            let mut others = others;
            if let Ok(at) = others.binary_search(&slot) {
                others.remove(at);
            }
            (Some(first), others)
        };
        if let Ok(mut entry) = self.ids.find_entry(hash, |other| *other == first) {
            match first_now {
                Some(first) => *entry.get_mut() = first,
                None => {
                    entry.remove();
                }
            }
        }
        if let (Some(first), false) = (first_now, others_now.is_empty()) {
            self.duplicates.insert(first, others_now);
        }
    }
}

/// Moves slots from the old bytes that begin at `old` to where these now begin.
fn shift(slots: &mut [Slot], old: usize, new: usize) {
    let (old, new) = (offset(old), offset(new));
    if old == new {
        return;
    }
    for slot in slots.iter_mut().filter(|slot| !slot.is_removed()) {
        slot.start = slot.start - old + new;
        slot.end = slot.end - old + new;
    }
}

/// Makes the cuts in the bytes: one in place, several in one pass into a new buffer.
fn splice(bytes: &mut Vec<u8>, rewrite: &Rewrite) {
    match rewrite.cuts.as_slice() {
        [] => return,
        [cut] => {
            bytes.splice(cut.range.clone(), cut.text.iter().copied());
            return;
        }
        [_, _, ..] => {}
    }
    let mut new = Vec::with_capacity(rewrite.bytes_len());
    for piece in rewrite.kept_pieces(bytes) {
        new.extend_from_slice(piece);
    }
    *bytes = new;
}

/// The id of a record, or nothing when it has none.
fn id_text(bytes: &[u8], slot: Slot) -> Option<Cow<'_, str>> {
    let start = (slot.start + slot.id_at) as usize;
    (slot.id_bytes > 0).then(|| json::unescape(&bytes[start..start + slot.id_bytes as usize]))
}

/// A position in a file, in the 32 bits that the image keeps.
pub(crate) fn offset(position: usize) -> u32 {
    u32::try_from(position).expect("a file is at most 2^31 bytes, checked before it is read")
}
