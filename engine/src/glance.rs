//! The first query about a file: an answer without an image.
//!
//! To index 27,000 records costs more than to answer one question about them. So the first query about a state of a file
//! looks only at the lines that may hold an answer, and parses only these; the second builds the image.
//!
//! A line is ruled out by one field of the filter whose key and value are plain ASCII text: such a record spells them as
//! they are, or with a backslash somewhere on its line. Lines with a backslash are never ruled out.
//!
//! Invariant: the answer is the one that an image would give.

use std::ops::Range;

use memchr::memmem;

use crate::filter::Filter;
use crate::op::Records;
use crate::record::Record;
use crate::scan::{self, Found};

/// Answers a query from the bytes of a file, or not, when the filter rules nothing out.
pub(crate) fn query(bytes: &[u8], filter: &Filter, limit: usize) -> Option<Records> {
    let needle = filter.plain_text()?;
    let mut records = Records::new();
    let mut count = 0;
    each_candidate(bytes, needle.as_bytes(), |line| {
        // Numbers of lines are for the reports of corrupt ones, which are made when the image is.
        scan::scan_line(bytes, 0, line, &mut |found| {
            let Found::Record { bytes: range, .. } = found else { return };
            let stored = &bytes[range];
            if filter.matches(stored) {
                if records.len() < limit {
                    records.push(Record::served(stored).as_bytes());
                }
                count += 1;
            }
        });
    });
    Some(records.finish(count))
}

/// Calls with every line (without its newline) that holds the needle or a backslash, in order and once.
fn each_candidate(bytes: &[u8], needle: &[u8], mut call: impl FnMut(Range<usize>)) {
    let mut needles = memmem::find_iter(bytes, needle).peekable();
    let mut escapes = memchr::memchr_iter(b'\\', bytes).peekable();
    let mut done = 0;
    loop {
        // What lies on a line that was called with is passed over.
        while needles.next_if(|at| *at < done).is_some() {}
        while escapes.next_if(|at| *at < done).is_some() {}
        let Some(at) = needles.peek().into_iter().chain(escapes.peek()).min().copied() else { return };
        let start = memchr::memrchr(b'\n', &bytes[done..at]).map_or(done, |newline| done + newline + 1);
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |length| at + length);
        call(start..end);
        done = end + 1;
        if done > bytes.len() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use crate::record::Fields;
    use proptest::prelude::*;

    #[track_caller]
    fn check(file: &[u8], filter: &str) {
        let filter = Filter::new(&Fields::parse(filter.as_bytes()).unwrap());
        for limit in [0, 1, 100] {
            let glance = query(file, &filter, limit);
            let image = Image::new(file.to_vec()).query(&filter, limit);
            assert_eq!(glance, Some(image), "{}", String::from_utf8_lossy(file));
        }
    }

    #[test]
    fn every_spelling_of_a_plain_string_is_found() {
        let file = concat!(
            "{\"id\":\"1\",\"list\":\"work\"}\n",
            "{\"id\":\"2\",\"list\":\"w\\u006frk\"}{\"id\":\"3\",\"list\":\"work\"}\n",
            "{\"id\":\"4\",\"\\u006cist\":\"work\"}\r\n",
            "{\"id\":\"5\",\"list\":\"works\"}\n",
            "{\"id\":\"6\",\"text\":\"work\"}\n",
            "not json \"work\"\n",
            "{\"id\":\"7\",\"list\":\"home\",\"list\":\"work\"}\n",
            "\0\0{\"id\":\"8\",\"list\":\"work\"}\0{\"id\":\"9\",\"list\":\"w",
        );
        check(file.as_bytes(), r#"{"list":"work"}"#);
        check(file.as_bytes(), r#"{"list":"work","id":"3"}"#);
        check(file.as_bytes(), r#"{"list":"work","n":null}"#);
        check(b"", r#"{"list":"work"}"#);
        check(b"\n\n", r#"{"list":"work"}"#);
    }

    #[test]
    fn a_filter_without_plain_text_rules_nothing_out() {
        for filter in
            [r#"{"n":1}"#, r#"{"s":""}"#, r#"{"s":"\u00e9"}"#, r#"{"s":"a\"b"}"#, "{}", r#"{"s":null}"#]
        {
            let filter = Filter::new(&Fields::parse(filter.as_bytes()).unwrap());
            assert_eq!(query(b"{}", &filter, 1), None);
        }
    }

    proptest! {
        #[test]
        fn a_glance_at_any_bytes_answers_as_an_image_does(
            pieces in prop::collection::vec(
                prop::sample::select(&[
                    "{\"a\":\"x\"}", "{\"a\":\"\\u0078\"}", "{\"\\u0061\":\"x\",\"n\":1}", "{\"a\":\"y\"}", "\"x\"", "\n", "\n",
                    "\0", " ", "\\", "{", "{\"a\":\"x\",\"a\":1}", "\u{feff}", "{\"b\":{\"a\":\"x\"}}", "{\"a\":\"x\",\"b\":\"x\"}",
                ][..]),
                0..30,
            ),
        ) {
            check(pieces.concat().as_bytes(), r#"{"a":"x"}"#);
        }
    }
}
