//! Two JSON values, each in some spelling: does a query for the one find a record that holds the other?
//!
//! Input that starts with `=` is two lines of text, a value each. Any other input is decoded: a value, and then either
//! a second value, or another spelling of the first, perhaps with one byte of it changed. So equal values come often,
//! and values that are nearly equal too.

use std::cmp::Ordering;
use std::fmt::Write as _;

use linekeep_engine::{DEPTH_MAX, Error, Fields};
use num_bigint::BigInt;

use super::Bench;
use crate::equality::{Json, depth, spells_a_number_beyond_doubles};

/// Compares the two values that the bytes spell.
pub fn equality(bytes: &[u8]) {
    if let Some(text) = bytes.strip_prefix(b"=") {
        let mut lines = text.splitn(2, |byte| *byte == b'\n');
        if let (Some(asked), Some(stored)) = (lines.next(), lines.next()) {
            check(asked, stored);
            check(stored, asked);
        }
        return;
    }
    let mut input = Input { bytes };
    let kind = input.below(4);
    let asked = value(&mut input, 0);
    if kind == 0 {
        let stored = value(&mut input, 0);
        check(asked.as_bytes(), stored.as_bytes());
        check(stored.as_bytes(), asked.as_bytes());
        return;
    }
    let json = Json::parse(asked.as_bytes()).expect("the decoder makes JSON");
    let mut stored = Vec::new();
    respell(&json, &mut input, &mut stored);
    let same = Json::parse(&stored).expect("the speller makes JSON");
    assert!(json.equals(&same), "{asked} was spelled {}", stored.escape_ascii());
    check(asked.as_bytes(), &stored);
    check(&stored, asked.as_bytes());
    if kind == 1 {
        let at = usize::from(input.byte()) % stored.len();
        stored[at] = input.pick(b"0123456789-+eE.,:\" \\\xff{}[]an");
        check(asked.as_bytes(), &stored);
        check(&stored, asked.as_bytes());
    }
}

/// A query for `asked` finds a record with `stored` exactly when the values are equal.
fn check(asked: &[u8], stored: &[u8]) {
    // Both are wrapped in three levels below.
    let usable = |text: &[u8]| depth(text) <= DEPTH_MAX - 3 && !text.contains(&b'\n');
    if !usable(asked) || !usable(stored) {
        return;
    }
    let (Some(a), Some(b)) = (Json::parse(asked), Json::parse(stored)) else { return };
    let filter = match Fields::parse(&[b"{\"v\":", asked, b"}"].concat()) {
        Ok(filter) => filter,
        Err(Error::Invalid { reason }) => {
            let expected = std::str::from_utf8(asked).map_or(true, spells_a_number_beyond_doubles);
            assert!(expected, "{}: {reason}", asked.escape_ascii());
            return;
        }
        Err(other) => panic!("{other}"),
    };
    let lines: [&[&[u8]]; 5] = [
        &[b"{\"id\":\"plain\",\"v\":", stored, b"}\n"],
        &[b"{\"id\":\"absent\",\"w\":", stored, b"}\n"],
        &[b"{ \"\\u0076\" : ", stored, b", \"id\" : \"spaced\" }\n"],
        &[b"{\"v\":", asked, b",\"v\":", stored, b",\"id\":\"doubled\"}\n"],
        &[b"{\"id\":\"nested\",\"v\":[{\"k\":", stored, b"}]}\n"],
    ];
    let bench = Bench::with_file(&lines.iter().flat_map(|line| line.concat()).collect::<Vec<u8>>());
    let equal = a.equals(&b);
    let mut expected = Vec::new();
    for (id, matches) in
        [("plain", equal), ("absent", a == Json::Null), ("spaced", equal), ("doubled", equal)]
    {
        expected.extend(matches.then_some(id));
    }
    // The third time round an index may answer.
    for _ in 0..3 {
        assert_eq!(found(&bench, &filter), expected, "{} in {}", asked.escape_ascii(), stored.escape_ascii());
    }
    let nested = Fields::parse(&[b"{\"v\":[{\"k\":", asked, b"}]}"].concat()).expect("it was taken before");
    assert_eq!(found(&bench, &nested), if equal { vec!["nested"] } else { vec![] });
    let mut with_id = filter;
    with_id.insert_json("id", b"\"plain\"").expect("a string");
    assert_eq!(found(&bench, &with_id), if equal { vec!["plain"] } else { vec![] });
}

fn found(bench: &Bench, filter: &Fields) -> Vec<String> {
    let records = bench.collection.query(filter, usize::MAX).expect("the file is read");
    let id = |record: &[u8]| match Json::parse(record).as_ref().and_then(|record| record.get("id")) {
        Some(Json::String(id)) => id.clone(),
        other => panic!("the id is {other:?}"),
    };
    records.iter().map(id).collect()
}

/// The bytes that values and spellings are decoded from; zeros once they have ended.
struct Input<'a> {
    bytes: &'a [u8],
}

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    fn pick<T: Copy>(&mut self, table: &[T]) -> T {
        table[self.below(table.len())]
    }

    fn space(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.pick(&[&b""[..], b"", b"", b" ", b"\t\r "]));
    }
}

fn value(input: &mut Input<'_>, level: usize) -> String {
    const LEVEL_MAX: usize = 4;
    match input.below(if level < LEVEL_MAX { 12 } else { 9 }) {
        0..=5 => number(input),
        6 | 7 => string(input),
        8 => (input.pick(&["null", "true", "false", "\"\"", "[]", "{}", "\"null\"", "\"0\""])).to_owned(),
        9 => {
            let elements: Vec<String> = (0..input.below(4)).map(|_| value(input, level + 1)).collect();
            format!("[{}]", elements.join(","))
        }
        10 | 11 => {
            let member = |input: &mut Input<'_>| format!("{}:{}", string(input), value(input, level + 1));
            let members: Vec<String> = (0..input.below(4)).map(|_| member(input)).collect();
            format!("{{{}}}", members.join(", "))
        }
        _ => unreachable!("below 12"),
    }
}

fn number(input: &mut Input<'_>) -> String {
    let mut text = input.pick(&["", "-"]).to_owned();
    match input.below(4) {
        0 => text.push('0'),
        1 => text.push(input.pick(&['1', '9', '5'])),
        kind => {
            text.push(input.pick(&['1', '9', '2']));
            digits(input, kind * kind * 5, &mut text);
        }
    }
    match input.below(4) {
        0 | 1 => {}
        kind => {
            text.push('.');
            if kind == 3 {
                text.extend(std::iter::repeat_n('0', input.below(20)));
            }
            text.push(input.pick(&['0', '1', '9']));
            digits(input, 20, &mut text);
        }
    }
    match input.below(6) {
        0 | 1 => {}
        kind => {
            text.push_str(input.pick(&["e", "E", "e+", "E-", "e-"]));
            match kind {
                2 => write!(text, "{}", input.below(40)),
                3 => write!(text, "00{}", input.below(40)),
                4 => write!(text, "{}", 290 + input.below(40)),
                _ => {
                    text.push('9');
                    digits(input, 50, &mut text);
                    Ok(())
                }
            }
            .expect("a string takes it");
        }
    }
    text
}

fn digits(input: &mut Input<'_>, count_max: usize, text: &mut String) {
    for _ in 0..input.below(count_max) {
        text.push(input.pick(&['0', '0', '0', '9', '9', '9', '1', '2', '3', '4', '5', '6', '7', '8']));
    }
}

fn string(input: &mut Input<'_>) -> String {
    const PIECES: [&str; 16] = [
        "a",
        "A",
        "1",
        "e\u{301}",
        "é",
        "\\u00e9",
        "🌱",
        "\\ud83c\\udf31",
        "\\ud83c",
        "\\udf31",
        "\\n",
        "\\/",
        "/",
        "\u{2028}",
        "\\\"",
        "\\u0000",
    ];
    let pieces: Vec<&str> = (0..input.below(5)).map(|_| input.pick(&PIECES)).collect();
    format!("\"{}\"", pieces.concat())
}

/// Spells a value in another way.
fn respell(json: &Json, input: &mut Input<'_>, out: &mut Vec<u8>) {
    match json {
        Json::Null => out.extend_from_slice(b"null"),
        Json::Bool(true) => out.extend_from_slice(b"true"),
        Json::Bool(false) => out.extend_from_slice(b"false"),
        Json::Number(text) => out.extend_from_slice(respell_number(text, input).as_bytes()),
        Json::String(text) => respell_string(text, input, out),
        Json::Array(elements) => {
            out.push(b'[');
            for (position, element) in elements.iter().enumerate() {
                out.extend_from_slice(if position > 0 { b"," } else { b"" });
                input.space(out);
                respell(element, input, out);
                input.space(out);
            }
            out.push(b']');
        }
        Json::Object(members) => {
            let first = input.below(members.len());
            let (behind, before) = members.split_at(first);
            out.push(b'{');
            for (position, (key, value)) in before.iter().chain(behind).enumerate() {
                out.extend_from_slice(if position > 0 { b"," } else { b"" });
                if input.below(8) == 7 {
                    // The last of duplicate keys counts.
                    respell_string(key, input, out);
                    out.extend_from_slice(b":[0],");
                }
                input.space(out);
                respell_string(key, input, out);
                input.space(out);
                out.push(b':');
                input.space(out);
                respell(value, input, out);
            }
            out.push(b'}');
        }
    }
}

fn respell_string(text: &str, input: &mut Input<'_>, out: &mut Vec<u8>) {
    out.push(b'"');
    for found in text.chars() {
        let must_escape = found < ' ' || matches!(found, '"' | '\\');
        match input.below(4) {
            // A byte that is not UTF-8 reads as U+FFFD, and so does a low surrogate that no high one precedes.
            1 if found == '\u{FFFD}' => out.push(0xFF),
            2 if found == '\u{FFFD}' => out.extend_from_slice(b"\\udfff"),
            0 | 1 if !must_escape => out.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes()),
            2 if found == '/' => out.extend_from_slice(b"\\/"),
            2 if found == '\n' => out.extend_from_slice(b"\\n"),
            _ => {
                let upper = input.below(2) == 1;
                for unit in found.encode_utf16(&mut [0; 2]) {
                    let escape = if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
                    out.extend_from_slice(escape.as_bytes());
                }
            }
        }
    }
    out.push(b'"');
}

/// Moves the point, adds zeros, and writes the exponent that makes up for it.
fn respell_number(text: &str, input: &mut Input<'_>) -> String {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut exponent: BigInt = exponent.parse::<BigInt>().expect("a number's exponent") - fraction.len();
    let mut digits = format!("{whole}{fraction}").trim_start_matches('0').to_owned();
    if digits.is_empty() {
        return input
            .pick(&["0", "-0", "0.0", "-0.000", "0e0", "0E+99999999999999999999", "-0e-7"])
            .to_owned();
    }
    if input.below(2) == 1 {
        let kept = digits.trim_end_matches('0').len();
        exponent += digits.len() - kept;
        digits.truncate(kept);
    }
    let zeros = input.below(6);
    digits.extend(std::iter::repeat_n('0', zeros));
    exponent -= zeros;
    let places = input.below(digits.len() + 3);
    exponent += places;
    let mantissa = match places.cmp(&digits.len()) {
        Ordering::Less if places == 0 => digits,
        Ordering::Less => {
            format!("{}.{}", &digits[..digits.len() - places], &digits[digits.len() - places..])
        }
        Ordering::Equal | Ordering::Greater => format!("0.{digits:0>places$}"),
    };
    if exponent == BigInt::ZERO && input.below(2) == 0 {
        return format!("{sign}{mantissa}");
    }
    let letter = input.pick(&['e', 'E']);
    let plus = if exponent >= BigInt::ZERO { input.pick(&["", "+"]) } else { "-" };
    let padding = input.pick(&["", "0", "000"]);
    format!("{sign}{mantissa}{letter}{plus}{padding}{}", exponent.magnitude())
}
