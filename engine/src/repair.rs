//! Repair: the one place where bytes may go that no operation named, and only because a person asked.
//!
//! The plan is made from the same scan that queries use, so it drops exactly what is not served: corrupt rests of
//! lines, NULs and byte order marks. Records keep their bytes, except those that are not UTF-8 or hold a lone
//! surrogate: they get the text that was served all along. Blank lines and duplicate ids are no damage and stay.

use std::path::PathBuf;

use crate::name::CollectionName;
use crate::record;
use crate::scan::{self, Found};
use crate::system::{self, System};

/// How many steps are listed one by one; the count is of all.
pub const REPAIR_STEPS_LISTED_MAX: usize = 1000;

/// What a repair did, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The first [`REPAIR_STEPS_LISTED_MAX`] steps, in the order of the file.
    pub steps: Vec<RepairStep>,
    /// How many steps there are.
    pub steps_count: u64,
    /// The records that are served, before as after.
    pub records: u64,
    /// The size of the file in bytes before.
    pub bytes_before: u64,
    /// The size of the file in bytes after.
    pub bytes_after: u64,
    /// Where the file as it was is kept. `None` in a dry run, and when there was nothing to do.
    pub kept: Option<PathBuf>,
}

/// One change that a repair makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairStep {
    /// The line's number, from 1.
    pub line: u64,
    /// Where the bytes start that it is about, from the start of the file as it was.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
    /// What happens to them.
    pub what: RepairKind,
}

/// What happens to bytes in a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepairKind {
    /// They are no record, for this reason, and are dropped.
    DropCorrupt {
        /// Why they are no record.
        reason: String,
    },
    /// They are NULs, byte order marks or space beside a record, and are dropped.
    DropPadding,
    /// They are a record that shares its line with the one before, and get their own.
    SplitGlued,
    /// They are a record with bytes that are not UTF-8, or with a lone surrogate: these become U+FFFD.
    ReplaceInvalidText,
    /// They are the last line, which gets its newline.
    EndLastLine,
}

/// Plans a repair: what it does, and the file that comes of it.
pub(crate) fn plan(bytes: &[u8]) -> (Repair, Vec<u8>) {
    let mut plan = Plan { steps: Vec::new(), count: 0, records: 0, out: Vec::with_capacity(bytes.len()) };
    let mut start = 0;
    let mut line = 0;
    let mut pieces = Vec::new();
    while start < bytes.len() {
        line += 1;
        let newline = memchr::memchr(b'\n', &bytes[start..]).map(|length| start + length);
        let end = newline.unwrap_or(bytes.len());
        pieces.clear();
        scan::scan_line(bytes, line, start..end, &mut |_| {}, &mut |found| pieces.push(found));
        plan.line(bytes, line, start, end, &pieces);
        if newline.is_none() {
            // What is left of the last line decides: it may all have been dropped.
            if plan.out.last().is_some_and(|byte| *byte != b'\n') {
                plan.step(line, start, end, RepairKind::EndLastLine);
                plan.out.push(b'\n');
            }
        }
        start = end + 1;
    }
    let repair = Repair {
        steps: plan.steps,
        steps_count: plan.count,
        records: plan.records,
        bytes_before: bytes.len() as u64,
        bytes_after: plan.out.len() as u64,
        kept: None,
    };
    (repair, plan.out)
}

/// The name for the file as it was: beside the collection, never taken for one, never overwritten.
pub(crate) fn kept_name(name: &CollectionName, system: &dyn System, random: u64) -> String {
    let stamp = system::timestamp(system);
    let stamp: String =
        stamp.iter().map(|byte| char::from(*byte)).filter(char::is_ascii_alphanumeric).collect();
    let stamp = stamp.strip_suffix("0000").unwrap_or(&stamp);
    format!("{}.before-repair-{stamp}Z-{random:016x}", name.file_name())
}

fn range_of(found: &Found) -> std::ops::Range<usize> {
    let (Found::Record { bytes, .. } | Found::Corrupt { bytes, .. }) = found;
    bytes.clone()
}

struct Plan {
    steps: Vec<RepairStep>,
    count: u64,
    records: u64,
    out: Vec<u8>,
}

impl Plan {
    fn step(&mut self, line: usize, start: usize, end: usize, what: RepairKind) {
        self.count += 1;
        if self.steps.len() < REPAIR_STEPS_LISTED_MAX {
            let (line, offset, length) = (line as u64, start as u64, (end - start) as u64);
            self.steps.push(RepairStep { line, offset, length, what });
        }
    }

    fn line(&mut self, bytes: &[u8], line: usize, start: usize, end: usize, pieces: &[Found]) {
        if pieces.is_empty() {
            // Blank, or byte order marks alone.
            if bytes[start..end].is_ascii() {
                self.out.extend_from_slice(&bytes[start..(end + 1).min(bytes.len())]);
            } else {
                self.step(line, start, end, RepairKind::DropPadding);
            }
            return;
        }
        let mut at = start;
        let mut records = 0;
        for piece in pieces {
            let range = range_of(piece);
            if bytes[at..range.start].iter().any(|byte| !matches!(byte, b' ' | b'\t' | b'\r')) {
                self.step(line, at, range.start, RepairKind::DropPadding);
            } else if records == 0 {
                self.out.extend_from_slice(&bytes[at..range.start]);
            }
            at = range.end;
            match piece {
                Found::Record { bytes: range, .. } => {
                    if records > 0 {
                        self.step(line, range.start, range.end, RepairKind::SplitGlued);
                        self.out.push(b'\n');
                    }
                    records += 1;
                    let stored = &bytes[range.clone()];
                    match record::repaired(stored) {
                        Some(text) => {
                            self.step(line, range.start, range.end, RepairKind::ReplaceInvalidText);
                            self.out.extend_from_slice(&text);
                        }
                        None => self.out.extend_from_slice(stored),
                    }
                }
                Found::Corrupt { bytes: range, reason, .. } => {
                    let reason = reason.to_string();
                    self.step(line, range.start, range.end, RepairKind::DropCorrupt { reason });
                }
            }
        }
        let rest = &bytes[at..end];
        if rest.iter().any(|byte| !matches!(byte, b' ' | b'\t' | b'\r')) {
            self.step(line, at, end, RepairKind::DropPadding);
        } else if records > 0 {
            self.out.extend_from_slice(rest);
        }
        self.records += records;
        if records > 0 && end < bytes.len() {
            self.out.push(b'\n');
        } else if records == 0 {
            // Space before what was dropped goes with it.
            let line_start = memchr::memrchr(b'\n', &self.out).map_or(0, |newline| newline + 1);
            self.out.truncate(line_start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &Expect) {
        let (repair, out) = plan(bytes);
        let steps: Vec<String> = repair
            .steps
            .iter()
            .map(|step| format!("line {} at {}+{}: {:?}", step.line, step.offset, step.length, step.what))
            .collect();
        expected.assert_eq(&format!("{}\n---\n{}", steps.join("\n"), String::from_utf8(out).unwrap()));
    }

    #[test]
    fn a_file_without_damage_has_no_steps_and_keeps_every_byte() {
        let bytes = b"{\"a\":1}\r\n\n  \n\t{\"b\":2} \n";
        let (repair, out) = plan(bytes);
        assert_eq!((repair.steps_count, repair.records, out.as_slice()), (0, 2, &bytes[..]));
    }

    #[test]
    fn damage_is_dropped_and_records_get_their_own_lines() {
        check(
            b"\xEF\xBB\xBF{\"a\":1}{\"b\":2} {\"c\":\n\0\0\n[1]\n \0{\"d\":\"\xFF\"}\0\n\xEF\xBB\xBF\n{\"e\":5}",
            &expect![[r#"
                line 1 at 0+3: DropPadding
                line 1 at 10+7: SplitGlued
                line 1 at 18+5: DropCorrupt { reason: "it ends in the middle of a value" }
                line 2 at 24+2: DropCorrupt { reason: "only NUL bytes" }
                line 3 at 27+3: DropCorrupt { reason: "not a JSON object" }
                line 4 at 31+2: DropPadding
                line 4 at 33+9: ReplaceInvalidText
                line 4 at 42+1: DropPadding
                line 5 at 44+3: DropPadding
                line 6 at 48+7: EndLastLine
                ---
                {"a":1}
                {"b":2}
                {"d":"�"}
                {"e":5}
            "#]],
        );
        check(
            b"{\"a\":1}\n{\"torn",
            &expect![[r#"
            line 2 at 8+6: DropCorrupt { reason: "it ends in the middle of a value" }
            ---
            {"a":1}
        "#]],
        );
        check(
            b"x",
            &expect![[r#"
            line 1 at 0+1: DropCorrupt { reason: "unexpected 'x'" }
            ---
        "#]],
        );
    }

    proptest! {
        #[test]
        fn a_repaired_file_serves_the_same_records_and_needs_no_repair(
            bytes in prop::collection::vec(prop::sample::select(&b"{}{}[]\":,\n\n\0 a1\\\xEF\xBB\xBF\xFF"[..]), 0..200),
        ) {
            let served = |bytes: &[u8]| {
                let mut served = Vec::new();
                scan::scan(bytes, |found| if let Found::Record { bytes: range, .. } = found {
                    served.push(record::Record::served(&bytes[range]).into_bytes());
                });
                served
            };
            let (repair, out) = plan(&bytes);
            prop_assert_eq!(served(&bytes), served(&out));
            prop_assert_eq!(repair.records, served(&out).len() as u64);
            let (again, same) = plan(&out);
            prop_assert_eq!((again.steps_count, same), (0, out));
        }
    }
}
