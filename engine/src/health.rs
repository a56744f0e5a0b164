//! What is in a file, the bad lines too.

use std::collections::HashMap;

use crate::json;
use crate::scan::{self, Found};

/// How many corrupt lines are listed one by one; the count is of all.
pub const CORRUPT_LINES_LISTED_MAX: usize = 1000;

/// The state of one collection's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Records that are served.
    pub records: u64,
    /// The file's size in bytes.
    pub bytes: u64,
    /// The cap in bytes that the size counts against.
    pub collection_bytes_max: u64,
    /// Lines that are corrupt, or hold something corrupt behind their records.
    pub corrupt_lines_count: u64,
    /// The first [`CORRUPT_LINES_LISTED_MAX`] of them.
    pub corrupt_lines: Vec<CorruptLine>,
    /// The bytes after the last newline, if there are any.
    pub torn_tail: Option<TornTail>,
    /// Records without a string for an id: no set, update or delete can name them.
    pub records_without_id: u64,
    /// Ids that more than one record has.
    pub duplicate_ids: u64,
}

/// Bytes on a line that are no record. They are never served, and never removed but by a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorruptLine {
    /// The line's number, from 1.
    pub line: u64,
    /// Where the corrupt bytes start, from the start of the file.
    pub offset: u64,
    /// How many they are, without the newline.
    pub length: u64,
    /// Why they are no record.
    pub reason: String,
}

/// Bytes after the last newline: an append that was cut off, or an editor that writes no final newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TornTail {
    /// Where they start.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
    /// Whether they are whole records all the same, and served.
    pub is_record: bool,
}

impl Health {
    pub(crate) fn of(bytes: &[u8], collection_bytes_max: u64) -> Self {
        let tail_start = memchr::memrchr(b'\n', bytes).map_or(0, |newline| newline + 1);
        let mut health = Self {
            records: 0,
            bytes: bytes.len() as u64,
            collection_bytes_max,
            corrupt_lines_count: 0,
            corrupt_lines: Vec::new(),
            torn_tail: None,
            records_without_id: 0,
            duplicate_ids: 0,
        };
        let mut ids: HashMap<std::borrow::Cow<'_, str>, u32> = HashMap::new();
        let mut tail = (0, 0);
        scan::scan(bytes, |found| match found {
            Found::Record { bytes: range, id } => {
                health.records += 1;
                tail.0 += u64::from(range.start >= tail_start);
                match id {
                    Some(id) => {
                        let times = ids.entry(json::unescape(&bytes[id])).or_default();
                        *times += 1;
                        health.duplicate_ids += u64::from(*times == 2);
                    }
                    None => health.records_without_id += 1,
                }
            }
            Found::Corrupt { line, bytes, reason } => {
                health.corrupt_lines_count += 1;
                tail.1 += u64::from(bytes.start >= tail_start);
                if health.corrupt_lines.len() < CORRUPT_LINES_LISTED_MAX {
                    health.corrupt_lines.push(CorruptLine {
                        line: line as u64,
                        offset: bytes.start as u64,
                        length: bytes.len() as u64,
                        reason: reason.to_string(),
                    });
                }
            }
        });
        if tail_start < bytes.len() {
            let (records, corrupt) = tail;
            health.torn_tail = Some(TornTail {
                offset: tail_start as u64,
                length: (bytes.len() - tail_start) as u64,
                is_record: records > 0 && corrupt == 0,
            });
        }
        health
    }
}
