//! The first query about a file: an answer without an image.
//!
//! To index 27,000 records costs more than to answer one question about them. So the first query about a state of a file
//! looks only at the lines that may hold an answer, and parses only these; the second builds the image.
//!
//! A line is ruled out by one field of the filter: its value, if that is a string with one spelling; otherwise its key
//! and a look at what follows it. Lines with a backslash are never ruled out. The file goes through a small buffer: memory
//! that is touched for the first time costs more than the read.
//!
//! Invariant: the answer is the one that an image would give.

use std::cell::RefCell;
use std::io;
use std::ops::Range;

use memchr::memmem::Finder;

use crate::filter::{Filter, Sign};
use crate::json::Member;
use crate::op::Records;
use crate::record::Record;
use crate::scan::{self, Found};

/// How much of a file is in memory at a time, as long as its lines are shorter.
const BUFFER_BYTES: usize = 128 << 10;

/// Answers a query from the first `bytes` of a file that is read piece by piece: `read` fills a buffer from an offset on,
/// and gives less only at the end. Not, when the filter rules nothing out, or when the file seems to be in another
/// encoding, which only a look at all of it tells.
pub(crate) fn query(
    filter: &Filter,
    limit: usize,
    bytes: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> io::Result<Option<Records>> {
    let Some(sign) = filter.sign() else { return Ok(None) };
    let mut glance =
        Glance { filter, limit, finder: Finder::new(sign.needle()), sign: &sign, records: Records::new() };
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut offset, mut filled) = (0, 0);
    while offset < bytes {
        if filled == buffer.len() {
            // A line that is longer than the buffer.
            buffer.resize(buffer.len() * 2, 0);
        }
        let count = read(offset, &mut buffer[filled..])?;
        if count == 0 {
            break;
        }
        if offset == 0 && scan::foreign_encoding(&buffer[..count]).is_some() {
            return Ok(None);
        }
        offset += count as u64;
        filled += count;
        let whole = memchr::memrchr(b'\n', &buffer[..filled]).map_or(0, |newline| newline + 1);
        glance.lines(&buffer[..whole]);
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
    }
    glance.lines(&buffer[..filled]);
    Ok(Some(glance.records.finish()))
}

struct Glance<'a> {
    filter: &'a Filter,
    limit: usize,
    sign: &'a Sign<'a>,
    finder: Finder<'a>,
    records: Records,
}

impl Glance<'_> {
    /// Looks at whole lines.
    fn lines(&mut self, bytes: &[u8]) {
        let Self { filter, limit, sign, finder, records } = self;
        let values = RefCell::new(filter.no_values());
        each_candidate(bytes, finder, sign, |line| {
            let mut member = |member: &Member| filter.note(&mut values.borrow_mut(), bytes, member);
            // Numbers of lines are for the reports of corrupt ones, which are made when the image is.
            scan::scan_line(bytes, 0, line, &mut member, &mut |found| {
                let mut values = values.borrow_mut();
                if let Found::Record { bytes: range, .. } = found
                    && filter.accepts(bytes, &values)
                {
                    records.matched(*limit, || Record::served(&bytes[range]).into_bytes());
                }
                values.fill(None);
            });
        });
    }
}

/// Calls with every line (without its newline) that shows the sign or a backslash, in order and once.
fn each_candidate(bytes: &[u8], finder: &Finder<'_>, sign: &Sign<'_>, mut call: impl FnMut(Range<usize>)) {
    let len = sign.needle().len();
    // Hits may overlap: the quote that ends one may begin the next, which is the one that counts.
    let mut from = 0;
    let hits = std::iter::from_fn(|| {
        let at = from + finder.find(bytes.get(from..)?)?;
        from = at + 1;
        Some(at)
    });
    let mut signs = hits.filter(|at| sign.is_promising(&bytes[at + len..])).peekable();
    let mut escapes = memchr::memchr_iter(b'\\', bytes).peekable();
    let mut done = 0;
    loop {
        // What lies on a line that was called with is passed over.
        while signs.next_if(|at| *at < done).is_some() {}
        while escapes.next_if(|at| *at < done).is_some() {}
        let Some(at) = signs.peek().into_iter().chain(escapes.peek()).min().copied() else { return };
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
            let glance = query_bytes(file, &filter, limit);
            let image = Image::new(file.to_vec()).query(&filter, limit);
            let image = scan::foreign_encoding(file).is_none().then_some(image);
            assert_eq!(glance, image, "{}", String::from_utf8_lossy(file));
        }
    }

    fn query_bytes(file: &[u8], filter: &Filter, limit: usize) -> Option<Records> {
        query(filter, limit, file.len() as u64, |offset, buffer| {
            let rest = &file[usize::try_from(offset).unwrap().min(file.len())..];
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        })
        .unwrap()
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
    fn every_spelling_of_a_number_and_of_other_values_is_found() {
        let values = [
            "10",
            "10.0",
            "1e1",
            "1.00E+1",
            "100e-1",
            "10.5",
            "-10",
            "1",
            "100",
            "0",
            "-0",
            "0.0",
            "\"10\"",
            "true",
            "false",
            "null",
            "[10]",
            "[1.0e1]",
            "[]",
            "{\"n\":10}",
            "{\"n\":1e1,\"m\":null}",
            "{}",
            "\"\"",
            "\"\u{e9}\"",
            "\"\\u00e9\"",
            "\"a\\\"b\"",
        ];
        let mut file = String::new();
        for (number, value) in values.iter().enumerate() {
            let lines = [
                format!("{{\"id\":\"{number}\",\"n\":{value}}}"),
                format!("{{\"n\" : {value} ,\"m\":{value}}}"),
                format!("{{\"\\u006e\":{value}}}"),
                format!("{{\"n\":{value},\"n\":7}}"),
                format!("{{\"n\":7,\"n\":{value}}}{{\"m\":{{\"n\":{value}}}}}"),
                format!("{{\"n\":{value}\n"),
            ];
            file.push_str(&lines.join("\n"));
        }
        for value in values.iter().filter(|value| **value != "null") {
            check(file.as_bytes(), &format!("{{\"n\":{value}}}"));
        }
        for filter in ["{}", r#"{"n":null}"#, r#"{"\u00e9":1}"#, r#"{"":1}"#] {
            let filter = Filter::new(&Fields::parse(filter.as_bytes()).unwrap());
            assert_eq!(query_bytes(b"{}", &filter, 1), None, "it rules nothing out");
        }
    }

    #[test]
    fn a_key_that_looks_like_what_stands_between_two_strings_is_found() {
        check(b"{\"a\":\"b\",\",\":1}\n", r#"{",":1}"#);
        check(b"{\"a\":1,\":1,\":5}\n", r#"{":1,":5}"#);
        check(b"{\"a\":\":\",\":\":2,\"b\":3}\n", r#"{":":2}"#);
    }

    #[test]
    fn lines_across_the_buffers_edge_and_longer_than_it_are_whole() {
        let line = |number: usize, len: usize| {
            let list = if number.is_multiple_of(3) { "work" } else { "home" };
            format!("{{\"id\":\"{number}\",\"text\":\"{}\",\"list\":\"{list}\"}}\n", "x".repeat(len))
        };
        for lens in
            [&[90_000, 50_000, 10][..], &[BUFFER_BYTES * 3, 7, BUFFER_BYTES], &[1_000; 400], &[0; 2_000]]
        {
            let file: String = lens.iter().enumerate().map(|(number, len)| line(number, *len)).collect();
            check(file.as_bytes(), r#"{"list":"work"}"#);
            check(file.trim_end().as_bytes(), r#"{"list":"work"}"#);
            // An edge at every place of a line.
            for shift in 0..60 {
                check(format!("{}\n{file}", " ".repeat(shift)).as_bytes(), r#"{"list":"work"}"#);
            }
        }
        let marked = format!("\u{feff}{}", line(0, 10).repeat(20_000));
        check(marked.as_bytes(), r#"{"list":"work"}"#);
    }

    #[test]
    fn a_file_in_another_encoding_is_left_to_the_image() {
        let filter = Filter::new(&Fields::parse(br#"{"n":1}"#).unwrap());
        assert_eq!(query_bytes(b"\xFF\xFE{\0}\0", &filter, 1), None);
    }

    proptest! {
        #[test]
        fn a_glance_at_any_bytes_answers_as_an_image_does(
            pieces in prop::collection::vec(
                prop::sample::select(&[
                    "{\"a\":\"x\"}", "{\"a\":\"\\u0078\"}", "{\"\\u0061\":\"x\",\"n\":1}", "{\"a\":\"y\"}", "\"x\"", "\n", "\n",
                    "\0", " ", "\\", "{", "{\"a\":\"x\",\"a\":1}", "\u{feff}", "{\"b\":{\"a\":\"x\"}}", "{\"a\":\"x\",\"b\":\"x\"}",
                    "{\"a\":\"b\",\",\":1}", "{\"a\":1,\":1,\":5}", "{\":\":\"a\"}", "{\"a\":\":\",\" \":1.0}", "\",\"", ",", "\"",
                    "{\"a\":1}", "{\"a\" :1.0}", "{\"a\": 10e-1", "{\"a\":[1]}", "{\"a\":-1}", "\"a\"", ":", "1", "}", "true", "{\"a\":true}",
                ][..]),
                0..30,
            ),
            filter in prop::sample::select(&[
                r#"{",":1}"#, r#"{":1,":5}"#, r#"{":":"a"}"#, r#"{" ":1}"#,
                r#"{"a":"x"}"#, r#"{"a":1}"#, r#"{"a":true}"#, r#"{"a":[1]}"#, r#"{"n":1,"a":"x"}"#, r#"{"a":"x","n":null}"#,
            ][..]),
        ) {
            check(pieces.concat().as_bytes(), filter);
        }

        #[test]
        fn a_number_is_found_in_every_spelling(digits in "-?[1-9][0-9]{0,5}", zeros in 0_usize..4, point in 0_usize..6) {
            // The same value: zeros and an exponent that takes them back, a point that an exponent moves back.
            let (sign, whole) = digits.split_at(usize::from(digits.starts_with('-')));
            let long = format!("{sign}{whole}{}e-{zeros}", "0".repeat(zeros));
            let place = point.min(whole.len() - 1);
            let moved = format!("{sign}{}.{}0E+{place}", &whole[..whole.len() - place], &whole[whole.len() - place..]);
            let plain = format!("{digits}.{}", "0".repeat(zeros + 1));
            let other = format!("{digits}1");
            let lines = [&digits, &long, &moved, &plain, &other].map(|it| format!("{{\"n\":{it}}}\n"));
            let file = lines.concat();
            let filter = Filter::new(&Fields::parse(format!("{{\"n\":{moved}}}").as_bytes()).unwrap());
            prop_assert_eq!(query_bytes(file.as_bytes(), &filter, 9).unwrap().count(), 4);
            check(file.as_bytes(), &format!("{{\"n\":{digits}}}"));
        }
    }
}
