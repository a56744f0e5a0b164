//! Answers to queries about a collection in memory: from the index of ids, from indexes of fields, or record by record.
//!
//! A field gets an index when a query asks for it for the second time: slots by the canonical spelling of their value,
//! so an answer is a look-up and the copying of the lines, without parsing. Appends and rewrites keep the indexes up;
//! they are counted in the image's cost and go with it, and when a collection has too many, the least recently used
//! goes first.
//!
//! Invariant: the slots of an index entry are those of all records with that value, in the order of the file; a record
//! without the field is under `null`.

use std::collections::HashMap;

use hashbrown::DefaultHashBuilder;

use crate::draft::Rewrite;
use crate::filter::Filter;
use crate::image::{Image, offset};
use crate::json;
use crate::op::Records;
use crate::record;

/// Indexes of one collection at most.
const INDEXES_MAX: usize = 8;
/// Fields of one filter that may get an index.
const INDEXED_FIELDS_MAX: usize = 3;
/// What an entry of an index takes besides its value and its slots, roughly.
const ENTRY_BYTES: usize = 64;
/// Fields at most that are remembered as asked for once.
const ASKED_MAX: usize = 32;

/// The indexes of one image.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    fields: Vec<Index>,
    /// Fields that one query asked for.
    asked: Vec<String>,
    ticks: u64,
}

/// An index of one field.
#[derive(Debug)]
struct Index {
    key: String,
    slots: HashMap<Box<[u8]>, Vec<u32>, DefaultHashBuilder>,
    /// What the keys and the slots take, roughly, in bytes.
    bytes: usize,
    used: u64,
}

impl Indexes {
    /// Answers a query.
    pub(crate) fn query(&mut self, image: &Image, filter: &Filter, limit: usize) -> Records {
        if let Some(id) = filter.id() {
            return image.query_slots(image.slots_of(&id).into_iter(), filter, limit);
        }
        if filter.is_empty() {
            return image.query(filter, limit);
        }
        for key in filter.keys().take(INDEXED_FIELDS_MAX) {
            self.ask(image, key);
        }
        self.ticks += 1;
        for index in self.fields.iter_mut().filter(|index| filter.keys().any(|key| key == index.key)) {
            index.used = self.ticks;
        }
        let fields = &self.fields;
        let found = filter.values().filter_map(|(key, value)| {
            let index = fields.iter().find(|index| index.key == key)?;
            Some(index.slots.get(value).map_or(&[][..], Vec::as_slice))
        });
        // The fewest candidates; with one field in the filter they are the answer.
        let Some(slots) = found.min_by_key(|slots| slots.len()) else { return image.query(filter, limit) };
        if filter.is_single() {
            let mut records = Records::new();
            slots.iter().take(limit).for_each(|slot| records.push(image.served(*slot)));
            return records.with_count(slots.len() as u64).finish();
        }
        image.query_slots(slots.iter().copied(), filter, limit)
    }

    /// Notes that a field is asked for; the second time, builds its index.
    fn ask(&mut self, image: &Image, key: &str) {
        if self.fields.iter().any(|index| index.key == key) {
            return;
        }
        let Some(position) = self.asked.iter().position(|asked| asked == key) else {
            if self.asked.len() == ASKED_MAX {
                self.asked.remove(0);
            }
            self.asked.push(key.to_owned());
            return;
        };
        self.asked.remove(position);
        if self.fields.len() == INDEXES_MAX {
            let oldest = self.fields.iter().enumerate().min_by_key(|(_, index)| index.used).map(|(at, _)| at);
            oldest.map(|at| self.fields.swap_remove(at));
        }
        self.fields.push(Index::new(image, key));
    }

    /// What the indexes cost in memory, in bytes.
    pub(crate) fn cost(&self) -> u64 {
        self.fields.iter().map(|index| index.bytes as u64 + size_of::<Index>() as u64).sum()
    }

    /// Takes out the records that a rewrite removes or replaces; the image must still be the one before it.
    pub(crate) fn before_rewrite(&mut self, image: &Image, rewrite: &Rewrite) {
        for index in &mut self.fields {
            // From the end, so that lists of slots lose their last entries first.
            for slot in rewrite.removed.iter().rev().copied().chain(rewrite.replaced()) {
                index.remove(image, slot);
            }
        }
    }

    /// Puts in the records that a rewrite replaced or added; the image must already be the one after it.
    pub(crate) fn after_rewrite(&mut self, image: &Image, rewrite: &Rewrite) {
        for index in &mut self.fields {
            rewrite.replaced().for_each(|slot| index.insert(image, slot));
        }
        self.after_append(image, rewrite.appended.records.len());
    }

    /// Puts in the records that were added last.
    pub(crate) fn after_append(&mut self, image: &Image, records: usize) {
        let end = image.slots_len();
        for index in &mut self.fields {
            (end - offset(records)..end).for_each(|slot| index.insert(image, slot));
        }
    }
}

impl Index {
    fn new(image: &Image, key: &str) -> Self {
        let slots = HashMap::with_hasher(DefaultHashBuilder::default());
        let mut index = Self { key: key.to_owned(), slots, bytes: 0, used: 0 };
        let mut canonical = Vec::new();
        for slot in (0..image.slots_len()).filter(|slot| !image.stored(*slot).is_empty()) {
            index.put(image, slot, &mut canonical);
        }
        index
    }

    /// The canonical spelling of a record's value.
    fn value<'a>(&self, image: &Image, slot: u32, canonical: &'a mut Vec<u8>) -> &'a [u8] {
        canonical.clear();
        json::canonical(canonical, record::value_of(image.stored(slot), &self.key).unwrap_or(b"null"));
        canonical
    }

    fn put(&mut self, image: &Image, slot: u32, canonical: &mut Vec<u8>) {
        let value = self.value(image, slot, canonical);
        if !self.slots.contains_key(value) {
            self.bytes += value.len() + ENTRY_BYTES;
            self.slots.insert(value.into(), Vec::new());
        }
        if let Some(slots) = self.slots.get_mut(value) {
            let at = slots.partition_point(|other| *other < slot);
            slots.insert(at, slot);
            self.bytes += size_of::<u32>();
        }
    }

    fn insert(&mut self, image: &Image, slot: u32) {
        self.put(image, slot, &mut Vec::new());
    }

    fn remove(&mut self, image: &Image, slot: u32) {
        let mut canonical = Vec::new();
        let value = self.value(image, slot, &mut canonical);
        let Some(slots) = self.slots.get_mut(value) else { return };
        if let Ok(at) = slots.binary_search(&slot) {
            slots.remove(at);
            self.bytes = self.bytes.saturating_sub(size_of::<u32>());
        }
        if slots.is_empty() {
            self.bytes = self.bytes.saturating_sub(value.len() + ENTRY_BYTES);
            self.slots.remove(value);
        }
    }
}
