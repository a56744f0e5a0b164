//! From the bytes of a file to its records, and to the lines that hold none.
//!
//! Lines end at byte 0x0A and nowhere else. A line holds any number of whole objects (files that were glued together
//! hold two on one line), with white space, NUL padding and byte order marks before, between and after them. Whatever
//! else stands on a line makes it corrupt from there on: it costs only itself, and it stays in the file.
//!
//! There is no search for objects inside a corrupt rest: a piece of a torn record must not be served as a record.

use std::ops::Range;

use crate::json::{self, Member};
use crate::record;

/// What a scan reports, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// A whole object: its bytes, and among them those of its id (with quotes) if that is a string.
    Record { bytes: Range<usize>, id: Option<Range<usize>> },
    /// The rest of a line that is no record.
    Corrupt { line: usize, bytes: Range<usize>, reason: Reason },
}

/// Why bytes on a line are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// They are no JSON.
    Fault(json::What),
    /// They are JSON, but no object.
    NotAnObject,
    /// They are NULs and nothing else.
    OnlyNul,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fault(what) => what.fmt(f),
            Self::NotAnObject => f.write_str("not a JSON object"),
            Self::OnlyNul => f.write_str("only NUL bytes"),
        }
    }
}

/// Scans all lines. `found` gets every record and every corrupt rest.
pub(crate) fn scan(bytes: &[u8], mut found: impl FnMut(Found)) {
    let mut start = 0;
    let mut line = 0;
    while start < bytes.len() {
        line += 1;
        let end = memchr::memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |length| start + length);
        scan_line(bytes, line, start..end, &mut |_| {}, &mut found);
        start = end + 1;
    }
}

/// Scans one line, given without its newline. `member` gets the members of each object before `found` gets the object,
/// or the rest of the line that turned out to be none.
pub(crate) fn scan_line(
    bytes: &[u8],
    line: usize,
    range: Range<usize>,
    member: &mut impl FnMut(&Member),
    found: &mut impl FnMut(Found),
) {
    let text = &bytes[..range.end];
    let mut at = range.start;
    let mut records = 0;
    let mut padded = false;
    loop {
        let padding = skip_padding(text, at);
        padded |= text[at..padding].contains(&0);
        at = padding;
        if at == range.end {
            break;
        }
        let corrupt = |reason| Found::Corrupt { line, bytes: at..range.end, reason };
        if text[at] != b'{' {
            return found(corrupt(not_an_object(text, at)));
        }
        let mut id = None;
        let scanned = json::scan_object(text, at, |scanned| {
            member(&scanned);
            if record::key_is(&text[scanned.key], "id") {
                // The last of duplicate keys wins, also when it is no string.
                id = (text[scanned.value.start] == b'"').then_some(scanned.value);
            }
        });
        match scanned {
            Ok(end) => {
                found(Found::Record { bytes: at..end, id });
                records += 1;
                at = end;
            }
            Err(fault) => return found(corrupt(Reason::Fault(fault.what))),
        }
    }
    if padded && records == 0 {
        found(Found::Corrupt { line, bytes: range, reason: Reason::OnlyNul });
    }
}

fn not_an_object(text: &[u8], at: usize) -> Reason {
    match json::scan_value(text, at, json::DEPTH_MAX) {
        Ok(_) => Reason::NotAnObject,
        Err(fault) => Reason::Fault(fault.what),
    }
}

/// White space, NULs, and UTF-8 byte order marks: what may stand beside a record without harm.
pub(crate) fn skip_padding(bytes: &[u8], mut at: usize) -> usize {
    loop {
        match bytes.get(at..) {
            Some([b' ' | b'\t' | b'\r' | 0, ..]) => at += 1,
            Some([0xEF, 0xBB, 0xBF, ..]) => at += 3,
            _ => return at,
        }
    }
}

/// The name of the encoding, when the bytes are Unicode text but not UTF-8.
///
/// Only the start is looked at, so the caller makes sure that the file holds no record: UTF-16 never does. Without a
/// byte order mark the first two characters tell: JSON starts with two ASCII characters or more, so in
/// UTF-16 every other byte is NUL. NUL padding before a record never looks like that.
pub(crate) fn foreign_encoding(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xFF, 0xFE, 0, 0, ..] => Some("UTF-32LE"),
        [0, 0, 0xFE, 0xFF, ..] => Some("UTF-32BE"),
        [0xFF, 0xFE, ..] | [1..0x80, 0, 1..0x80, 0, ..] => Some("UTF-16LE"),
        [0xFE, 0xFF, ..] | [0, 1..0x80, 0, 1..0x80, ..] => Some("UTF-16BE"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &Expect) {
        let mut lines = Vec::new();
        scan(bytes, |found| {
            lines.push(match found {
                Found::Record { bytes: range, .. } => String::from_utf8_lossy(&bytes[range]).into_owned(),
                Found::Corrupt { line, bytes, reason } => format!("line {line}, bytes {bytes:?}: {reason}"),
            });
        });
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn whole_objects_are_found_beside_padding_marks_and_each_other() {
        check(b"", &expect![""]);
        check(b"\n \t\r\n\xEF\xBB\xBF\n", &expect![""]);
        check(
            b"{\"a\":1}\r\n{\"b\":2}",
            &expect![[r#"
            {"a":1}
            {"b":2}"#]],
        );
        check(
            b"\0\0{\"a\":1}\0 \0{\"b\":\"}{\"}\xEF\xBB\xBF{}\0\n",
            &expect![[r#"
            {"a":1}
            {"b":"}{"}
            {}"#]],
        );
    }

    #[test]
    fn a_corrupt_rest_costs_only_itself() {
        check(
            b"[1]\n{\"a\":1}{\"b\":\n\0\0\n{\"c\":3}x\nnull\n{",
            &expect![[r#"
            line 1, bytes 0..3: not a JSON object
            {"a":1}
            line 2, bytes 11..16: it ends in the middle of a value
            line 3, bytes 17..19: only NUL bytes
            {"c":3}
            line 4, bytes 27..28: unexpected 'x'
            line 5, bytes 29..33: not a JSON object
            line 6, bytes 34..35: it ends in the middle of a value"#]],
        );
    }

    #[test]
    fn lines_end_at_the_line_feed_only() {
        check(
            "{\"a\":\"\u{2028}\u{2029}\u{85}\"}\u{b}\n{\"b\":1}\r{\"c\":2}\n".as_bytes(),
            &expect![[r#"
            {"a":"  "}
            line 1, bytes 16..17: unexpected byte 0x0b
            {"b":1}
            {"c":2}"#]],
        );
    }

    #[test]
    fn other_encodings_are_named() {
        let utf16 = |text: &str, mark: bool| -> Vec<u8> {
            let units = mark.then_some(0xFEFF).into_iter().chain(text.encode_utf16());
            units.flat_map(u16::to_le_bytes).collect()
        };
        assert_eq!(foreign_encoding(&utf16("{\"a\":1}", true)), Some("UTF-16LE"));
        assert_eq!(foreign_encoding(&utf16("{\"a\":1}", false)), Some("UTF-16LE"));
        let swapped: Vec<u8> = utf16("{}", false).chunks(2).flat_map(|pair| [pair[1], pair[0]]).collect();
        assert_eq!(foreign_encoding(&swapped), Some("UTF-16BE"));
        for fine in
            [&b"\0\0\0\0{\"a\":1}"[..], b"\0{\"a\":1}", b"{}", b"", b"\xEF\xBB\xBF{}", b"\0", b"{\0\0\0"]
        {
            assert_eq!(foreign_encoding(fine), None, "{fine:?}");
        }
    }

    proptest! {
        #[test]
        fn a_scan_of_any_bytes_reports_ordered_ranges_within_lines(
            bytes in prop::collection::vec(prop::sample::select(&b"{}[]\":,\n\0 a1\\\xEF\xBB\xBF\xFF"[..]), 0..200),
        ) {
            let mut last = 0;
            scan(&bytes, |found| {
                let (Found::Record { bytes: range, .. } | Found::Corrupt { bytes: range, .. }) = found;
                assert!(last <= range.start && range.start < range.end && range.end <= bytes.len());
                assert!(!bytes[range.clone()].contains(&b'\n'));
                last = range.end;
            });
        }
    }
}
