//! The one list of operations: what callers ask, what a batch holds, what a replay steps through, and what a fuzzer
//! makes up.

use crate::name::RecordId;
use crate::readings::{RetainPolicy, Retained};
use crate::record::{Fields, Record};

/// How many records a query returns when the caller does not say.
pub const QUERY_LIMIT_DEFAULT: usize = 200;

/// One operation on a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Adds a record with a new id and the present time. `id` and `ts` among the fields are ignored.
    Append {
        /// What the record holds besides `id` and `ts`.
        fields: Fields,
    },
    /// Replaces the record wholesale, or adds it when there is none with this id.
    ///
    /// The record keeps its `ts` unless the fields have one; a new record gets the present time. `id` among the fields
    /// is ignored.
    Set {
        /// The record's id.
        id: RecordId,
        /// What the record holds besides `id`.
        fields: Fields,
    },
    /// Merges the fields over the record: they are replaced or added, the others stay. `id` among them is ignored.
    Update {
        /// The record's id.
        id: RecordId,
        /// What to replace or add.
        fields: Fields,
    },
    /// Removes every record with this id.
    Delete {
        /// The record's id.
        id: RecordId,
    },
    /// Finds the records whose every filter field is equal, in the order of the file.
    Query {
        /// What must be equal; no fields match every record.
        filter: Fields,
        /// How many records to return at most; the count is of all.
        limit: usize,
    },
    /// Removes the readings that a policy lets go.
    Retain {
        /// What to keep.
        policy: RetainPolicy,
    },
}

impl Op {
    /// The operation's name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Append { .. } => "append",
            Self::Set { .. } => "set",
            Self::Update { .. } => "update",
            Self::Delete { .. } => "delete",
            Self::Query { .. } => "query",
            Self::Retain { .. } => "retain",
        }
    }
}

/// What an operation returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Of append, set and update: the record as it now stands.
    Record(Record),
    /// Of delete: the id that is gone.
    Deleted(RecordId),
    /// Of query.
    Records(Records),
    /// Of retain.
    Retained(Retained),
}

/// The answer to a query: the stored text of the records, in the order of the file, and the count of all matches.
#[derive(Clone, PartialEq, Eq)]
pub struct Records {
    /// `[{..},{..}]`
    array: Vec<u8>,
    /// Where each record ends in `array`.
    ends: Vec<usize>,
    count: u64,
}

impl Records {
    pub(crate) fn new() -> Self {
        Self { array: vec![b'['], ends: Vec::new(), count: 0 }
    }

    pub(crate) fn push(&mut self, record: &[u8]) {
        if !self.ends.is_empty() {
            self.array.push(b',');
        }
        self.array.extend_from_slice(record);
        self.ends.push(self.array.len());
    }

    /// Counts one more match, and keeps its text while there are fewer than `limit`.
    pub(crate) fn matched<T: AsRef<[u8]>>(&mut self, limit: usize, text: impl FnOnce() -> T) {
        if self.len() < limit {
            self.push(text().as_ref());
        }
        self.count += 1;
    }

    /// With the count of all matches, where they are known without a look at each.
    pub(crate) fn with_count(mut self, count: u64) -> Self {
        self.count = count;
        self
    }

    pub(crate) fn finish(mut self) -> Self {
        self.array.push(b']');
        self
    }

    /// How many records were returned.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no record was returned.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many records match, returned or not.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The records as one JSON array in UTF-8.
    pub fn as_array(&self) -> &[u8] {
        &self.array
    }

    /// The JSON text of each record.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(1).chain(self.ends.iter().map(|end| end + 1));
        starts.zip(&self.ends).map(|(start, end)| &self.array[start..*end])
    }
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}: {}", self.len(), self.count, String::from_utf8_lossy(&self.array))
    }
}
