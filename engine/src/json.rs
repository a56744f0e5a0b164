//! A strict JSON scanner over bytes that may be damaged.
//!
//! The engine keeps every record as the bytes that stand in the file, so it needs spans, not values: where an object
//! ends, where its members lie. A general parser gives neither, refuses a line for one bad byte inside a string, and
//! loses digits of numbers. This one accepts exactly the grammar of RFC 8259, with two deliberate liberties:
//!
//! - bytes inside a string need not be valid UTF-8 (they are served as U+FFFD, and kept on disk), and
//! - an escape may name a lone surrogate (served and stored as U+FFFD).
//!
//! Invariant: the scan is a loop, never a recursion, and nesting is counted up to [`DEPTH_MAX`], so no input can
//! overflow the stack. The functions that do recurse ([`compact`], [`canonical`]) only see values that were scanned.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

/// The deepest nesting of a record, the record's own braces being level 1.
pub const DEPTH_MAX: usize = 128;

/// Why bytes are not a JSON value, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The bytes end inside the value.
    End,
    /// A byte that cannot stand here.
    Byte(u8),
    /// A raw control character inside a string.
    Control(u8),
    /// Not one of the escapes of JSON.
    Escape,
    /// Nested deeper than [`DEPTH_MAX`].
    Depth,
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::End => f.write_str("it ends in the middle of a value"),
            Self::Byte(byte) if byte.is_ascii_graphic() => write!(f, "unexpected '{}'", char::from(*byte)),
            Self::Byte(byte) => write!(f, "unexpected byte 0x{byte:02x}"),
            Self::Control(byte) => write!(f, "control character 0x{byte:02x} in a string"),
            Self::Escape => f.write_str("invalid escape in a string"),
            Self::Depth => write!(f, "nested deeper than {DEPTH_MAX}"),
        }
    }
}

/// One member of an object, as positions in the scanned bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// The key with its quotes.
    pub(crate) key: Range<usize>,
    /// The value, without space around it.
    pub(crate) value: Range<usize>,
}

/// The position of the first byte at or after `at` that is not JSON white space.
pub(crate) fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\r' | b'\n') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Scans the object that starts at `at` and gives each of its members to `member`. Returns the position after it.
pub(crate) fn scan_object(
    bytes: &[u8],
    at: usize,
    mut member: impl FnMut(Member),
) -> std::result::Result<usize, Fault> {
    expect(bytes, at, b'{')?;
    let mut at = skip_space(bytes, at + 1);
    if bytes.get(at) == Some(&b'}') {
        return Ok(at + 1);
    }
    loop {
        let key_end = scan_string(bytes, at)?;
        let key = at..key_end;
        at = skip_space(bytes, key_end);
        expect(bytes, at, b':')?;
        at = skip_space(bytes, at + 1);
        let value_end = scan_value(bytes, at, DEPTH_MAX - 1)?;
        member(Member { key, value: at..value_end });
        at = skip_space(bytes, value_end);
        match bytes.get(at) {
            Some(b',') => at = skip_space(bytes, at + 1),
            Some(b'}') => return Ok(at + 1),
            other => return Err(unexpected(at, other)),
        }
    }
}

/// The members of the object that starts at `at`, and the position after it.
pub(crate) fn members(bytes: &[u8], at: usize) -> std::result::Result<(Vec<Member>, usize), Fault> {
    let mut members = Vec::new();
    let end = scan_object(bytes, at, |member| members.push(member))?;
    Ok((members, end))
}

/// Scans the value that starts at `at`, nested at most `depth_max` deep. Returns the position after it.
pub(crate) fn scan_value(bytes: &[u8], mut at: usize, depth_max: usize) -> std::result::Result<usize, Fault> {
    debug_assert!(depth_max <= DEPTH_MAX, "the kinds of the open brackets are bits of a u128");
    let mut depth = 0_usize;
    // Bit n tells what the bracket at depth n is: 1 an object, 0 an array.
    let mut objects = 0_u128;
    loop {
        let opened = match bytes.get(at) {
            Some(b'"') => {
                at = scan_string(bytes, at)?;
                false
            }
            Some(b'-' | b'0'..=b'9') => {
                at = scan_number(bytes, at)?;
                false
            }
            Some(b't') => {
                at = scan_literal(bytes, at, b"true")?;
                false
            }
            Some(b'f') => {
                at = scan_literal(bytes, at, b"false")?;
                false
            }
            Some(b'n') => {
                at = scan_literal(bytes, at, b"null")?;
                false
            }
            Some(open @ (b'{' | b'[')) => {
                if depth == depth_max {
                    return Err(Fault { at, what: What::Depth });
                }
                let object = *open == b'{';
                objects = if object { objects | 1 << depth } else { objects & !(1 << depth) };
                depth += 1;
                at = skip_space(bytes, at + 1);
                let close = if object { b'}' } else { b']' };
                if bytes.get(at) == Some(&close) {
                    at += 1;
                    depth -= 1;
                    false
                } else {
                    if object {
                        at = scan_key(bytes, at)?;
                    }
                    true
                }
            }
            other => return Err(unexpected(at, other)),
        };
        if opened {
            continue;
        }
        // A value is complete: close what it closes, then step to the next value.
        loop {
            if depth == 0 {
                return Ok(at);
            }
            let object = objects >> (depth - 1) & 1 == 1;
            at = skip_space(bytes, at);
            match bytes.get(at) {
                Some(b',') => {
                    at = skip_space(bytes, at + 1);
                    if object {
                        at = scan_key(bytes, at)?;
                    }
                    break;
                }
                Some(b'}') if object => {
                    at += 1;
                    depth -= 1;
                }
                Some(b']') if !object => {
                    at += 1;
                    depth -= 1;
                }
                other => return Err(unexpected(at, other)),
            }
        }
    }
}

/// A key with its colon; returns the position of the value.
fn scan_key(bytes: &[u8], at: usize) -> std::result::Result<usize, Fault> {
    let at = skip_space(bytes, scan_string(bytes, at)?);
    expect(bytes, at, b':')?;
    Ok(skip_space(bytes, at + 1))
}

fn scan_string(bytes: &[u8], at: usize) -> std::result::Result<usize, Fault> {
    expect(bytes, at, b'"')?;
    let mut at = at + 1;
    loop {
        at = skip_plain(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => {
                at = match bytes.get(at + 1) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at + 2,
                    Some(b'u') => {
                        let digits = bytes.get(at + 2..).unwrap_or_default();
                        let hex = digits.iter().take(4).take_while(|byte| byte.is_ascii_hexdigit()).count();
                        if hex < 4 {
                            let what = if digits.len() == hex { What::End } else { What::Escape };
                            return Err(Fault { at, what });
                        }
                        at + 6
                    }
                    None => return Err(Fault { at: at + 1, what: What::End }),
                    Some(_) => return Err(Fault { at, what: What::Escape }),
                };
            }
            Some(byte @ 0..0x20) => return Err(Fault { at, what: What::Control(*byte) }),
            Some(_) => at += 1,
            None => return Err(Fault { at, what: What::End }),
        }
    }
}

/// The position of the first byte at or after `at` that ends a run of plain text in a string (a quote, a backslash, a
/// control character), or one at most seven bytes before it: eight bytes are looked at in one step.
fn skip_plain(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    // The highest bit of each byte that is zero; bytes above the first such one may be marked too.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let is = |word: u64, byte: u8| zeros(word ^ (ONES * u64::from(byte)));
    let controls = |word: u64| word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
    while let Some(chunk) = bytes.get(at..at + 8).and_then(|chunk| <[u8; 8]>::try_from(chunk).ok()) {
        let word = u64::from_le_bytes(chunk);
        let ends = is(word, b'"') | is(word, b'\\') | controls(word);
        if ends != 0 {
            return at + ends.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at
}

fn scan_number(bytes: &[u8], mut at: usize) -> std::result::Result<usize, Fault> {
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match bytes.get(at) {
        Some(b'0') => at + 1,
        _ => scan_digits(bytes, at)?,
    };
    if bytes.get(at) == Some(&b'.') {
        at = scan_digits(bytes, at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        at = scan_digits(bytes, at)?;
    }
    Ok(at)
}

/// At least one digit.
fn scan_digits(bytes: &[u8], at: usize) -> std::result::Result<usize, Fault> {
    let count = bytes.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 { Err(unexpected(at, bytes.get(at))) } else { Ok(at + count) }
}

fn scan_literal(bytes: &[u8], at: usize, literal: &'static [u8]) -> std::result::Result<usize, Fault> {
    let found = bytes.get(at..).unwrap_or_default();
    if found.starts_with(literal) {
        return Ok(at + literal.len());
    }
    let same = found.iter().zip(literal).take_while(|(a, b)| a == b).count();
    Err(unexpected(at + same, found.get(same)))
}

fn expect(bytes: &[u8], at: usize, byte: u8) -> std::result::Result<(), Fault> {
    match bytes.get(at) {
        Some(found) if *found == byte => Ok(()),
        other => Err(unexpected(at, other)),
    }
}

fn unexpected(at: usize, found: Option<&u8>) -> Fault {
    Fault { at, what: found.map_or(What::End, |byte| What::Byte(*byte)) }
}

/// The text of a string given with its quotes: escapes resolved, bad bytes and lone surrogates as U+FFFD.
pub(crate) fn unescape(quoted: &[u8]) -> Cow<'_, str> {
    let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    if memchr::memchr(b'\\', inner).is_none() {
        return String::from_utf8_lossy(inner);
    }
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(plain) = memchr::memchr(b'\\', rest) {
        text.push_str(&String::from_utf8_lossy(&rest[..plain]));
        rest = &rest[plain..];
        let (unit, used) = match rest.get(1) {
            Some(b'b') => ('\u{8}', 2),
            Some(b'f') => ('\u{c}', 2),
            Some(b'n') => ('\n', 2),
            Some(b'r') => ('\r', 2),
            Some(b't') => ('\t', 2),
            Some(b'u') => unescape_unicode(rest),
            Some(byte) => (char::from(*byte), 2),
            None => (char::REPLACEMENT_CHARACTER, 1),
        };
        text.push(unit);
        rest = rest.get(used..).unwrap_or_default();
    }
    text.push_str(&String::from_utf8_lossy(rest));
    Cow::Owned(text)
}

/// The character of the `\uXXXX` escape, or pair of escapes, at the start of `escape`, and how many bytes it takes.
fn unescape_unicode(escape: &[u8]) -> (char, usize) {
    let unit = |from: usize| {
        let digits = escape.get(from + 2..from + 6)?;
        let digits = std::str::from_utf8(digits).ok()?;
        (escape.get(from..from + 2)? == b"\\u").then(|| u32::from_str_radix(digits, 16).ok())?
    };
    let Some(first) = unit(0) else { return (char::REPLACEMENT_CHARACTER, 2) };
    if let (0xD800..0xDC00, Some(second @ 0xDC00..0xE000)) = (first, unit(6)) {
        let scalar = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        return (char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER), 12);
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 6)
}

/// Writes a string with quotes: the escapes that JSON demands, and U+2028, U+2029 and U+0085 escaped too, since tools
/// that split text into lines there would tear the record.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    if is_plain(text.as_bytes()) {
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    let mut copied = 0;
    for (at, found) in text.char_indices() {
        let escape: &str = match found {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\0'..' ' | '\u{85}' | '\u{2028}' | '\u{2029}' => &format!("\\u{:04x}", u32::from(found)),
            _ => continue,
        };
        out.extend_from_slice(&text.as_bytes()[copied..at]);
        out.extend_from_slice(escape.as_bytes());
        copied = at + found.len_utf8();
    }
    out.extend_from_slice(&text.as_bytes()[copied..]);
    out.push(b'"');
}

/// Writes a scanned value without space between its tokens: strings in the engine's own spelling, numbers digit for
/// digit as they stand, duplicate keys reduced to the last value in the place of the first.
///
/// # Errors
/// The text of a number whose magnitude no double holds: it would read as `Infinity` in a browser.
pub(crate) fn compact(out: &mut Vec<u8>, value: &[u8]) -> std::result::Result<(), String> {
    match value.first() {
        Some(b'"') => write_string(out, &unescape(value)),
        Some(b'{') => {
            out.push(b'{');
            for (position, (key, value)) in distinct_members(value).into_iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_string(out, &key);
                out.push(b':');
                compact(out, value)?;
            }
            out.push(b'}');
        }
        Some(b'[') => {
            out.push(b'[');
            for (position, element) in elements(value).into_iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                compact(out, element)?;
            }
            out.push(b']');
        }
        Some(b'-' | b'0'..=b'9') => {
            let text = String::from_utf8_lossy(value);
            if !text.parse::<f64>().is_ok_and(f64::is_finite) {
                return Err(text.into_owned());
            }
            out.extend_from_slice(value);
        }
        _ => out.extend_from_slice(value),
    }
    Ok(())
}

/// Writes the one spelling that all equal values share, so that equality is equality of these bytes.
///
/// Numbers become sign, digits without zeros at either end, and a power of ten; keys are sorted.
pub(crate) fn canonical(out: &mut Vec<u8>, value: &[u8]) {
    match value.first() {
        Some(b'"') => write_string(out, &unescape(value)),
        Some(b'{') => {
            let mut members = distinct_members(value);
            members.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            out.push(b'{');
            for (key, value) in members {
                write_string(out, &key);
                out.push(b':');
                canonical(out, value);
                out.push(b',');
            }
            out.push(b'}');
        }
        Some(b'[') => {
            out.push(b'[');
            for element in elements(value) {
                canonical(out, element);
                out.push(b',');
            }
            out.push(b']');
        }
        Some(b'-' | b'0'..=b'9') => canonical_number(out, value),
        _ => out.extend_from_slice(value),
    }
}

/// Members of a scanned object with their keys unescaped, and only the different ones.
fn distinct_members(object: &[u8]) -> Vec<(Cow<'_, str>, &[u8])> {
    let scanned = members(object, 0);
    debug_assert!(scanned.is_ok(), "only scanned objects come here");
    distinct(object, scanned.map(|(members, _)| members).unwrap_or_default())
}

/// Those of the members of `bytes` whose keys are different, each in its first place and with its last value.
pub(crate) fn distinct(bytes: &[u8], members: Vec<Member>) -> Vec<(Cow<'_, str>, &[u8])> {
    // Up to here a look at each is faster than a table.
    const LOOKED_AT_MAX: usize = 16;
    let few = members.len() <= LOOKED_AT_MAX;
    let mut distinct: Vec<(Cow<'_, str>, &[u8])> = Vec::with_capacity(members.len());
    let mut places: HashMap<Cow<'_, str>, usize> = HashMap::new();
    for Member { key, value } in members {
        let (key, value) = (unescape(&bytes[key]), &bytes[value]);
        let place = if few {
            distinct.iter().position(|(other, _)| *other == key)
        } else {
            match places.entry(key.clone()) {
                Entry::Occupied(place) => Some(*place.get()),
                Entry::Vacant(place) => {
                    place.insert(distinct.len());
                    None
                }
            }
        };
        match place {
            Some(place) => distinct[place].1 = value,
            None => distinct.push((key, value)),
        }
    }
    distinct
}

/// Whether a text of a string has one spelling only: ASCII that nothing has to be escaped in.
pub(crate) fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\'))
}

/// The elements of a scanned array.
fn elements(array: &[u8]) -> Vec<&[u8]> {
    let mut elements = Vec::new();
    let mut at = skip_space(array, 1);
    while let Ok(end) = scan_value(array, at, DEPTH_MAX - 1) {
        elements.push(&array[at..end]);
        at = skip_space(array, end);
        if array.get(at) != Some(&b',') {
            break;
        }
        at = skip_space(array, at + 1);
    }
    elements
}

fn canonical_number(out: &mut Vec<u8>, number: &[u8]) {
    let (negative, number) = match number {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (mantissa, exponent) = match memchr::memchr2(b'e', b'E', number) {
        Some(at) => (&number[..at], &number[at + 1..]),
        None => (number, &b"0"[..]),
    };
    let (whole, fraction) = match memchr::memchr(b'.', mantissa) {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, &b""[..]),
    };
    let digits: Vec<u8> = whole.iter().chain(fraction).copied().collect();
    let Some(first) = digits.iter().position(|digit| *digit != b'0') else {
        out.push(b'0');
        return;
    };
    let last = digits.iter().rposition(|digit| *digit != b'0').unwrap_or(first);
    // value = 0.<digits from first to last> x 10^(whole - first + exponent)
    let shift = i64::try_from(whole.len()).unwrap_or(i64::MAX) - i64::try_from(first).unwrap_or(i64::MAX);
    if negative {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[first..=last]);
    out.push(b'e');
    out.extend_from_slice(add_decimal(exponent, shift).as_bytes());
}

/// The sum of a decimal integer of any length (with an optional sign) and a machine integer, in one spelling.
///
/// Exponents are compared exactly at any size: a hand-made file may hold `1e99999999999999999999`.
fn add_decimal(decimal: &[u8], addend: i64) -> String {
    let (negative, digits) = match decimal {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] | rest => (false, rest),
    };
    let start = digits.iter().take_while(|digit| **digit == b'0').count();
    let digits = &digits[start..];
    // 36 digits and a 64-bit addend fit an i128; beyond that, the addend moves the low part only.
    let split = digits.len().saturating_sub(36);
    let (high, low) = digits.split_at(split);
    let low = low.iter().fold(0_i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
    if high.is_empty() {
        return ((if negative { -low } else { low }) + i128::from(addend)).to_string();
    }
    // The magnitude is at least 10^36, so the sign cannot change; carry or borrow into the high part by hand.
    let low = low + if negative { -i128::from(addend) } else { i128::from(addend) };
    let base = 10_i128.pow(36);
    let carry = low.div_euclid(base);
    let mut high: Vec<u8> = high.to_vec();
    let mut carry_left = carry;
    for digit in high.iter_mut().rev() {
        if carry_left == 0 {
            break;
        }
        let sum = i128::from(*digit - b'0') + carry_left;
        *digit = b'0' + u8::try_from(sum.rem_euclid(10)).unwrap_or(0);
        carry_left = sum.div_euclid(10);
    }
    let mut text = if negative { String::from("-") } else { String::new() };
    let mut magnitude = String::new();
    if carry_left > 0 {
        magnitude.push_str(&carry_left.to_string());
    }
    magnitude.push_str(&String::from_utf8_lossy(&high));
    let low = low.rem_euclid(base);
    let magnitude = format!("{magnitude}{low:036}");
    text.push_str(magnitude.trim_start_matches('0'));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    #[track_caller]
    fn check_scan(input: &[u8], expected: &Expect) {
        let shown = match scan_value(input, 0, DEPTH_MAX) {
            Ok(end) => format!("ok to {end}"),
            Err(fault) => format!("{} at {}", fault.what, fault.at),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn the_grammar_is_json_and_nothing_else() {
        check_scan(b"{}", &expect!["ok to 2"]);
        check_scan(b"[ ]x", &expect!["ok to 3"]);
        check_scan(b"{\"a\":[1,{\"b\":null}]}", &expect!["ok to 20"]);
        check_scan(b"01", &expect!["ok to 1"]);
        check_scan(b"-", &expect!["it ends in the middle of a value at 1"]);
        check_scan(b"-x", &expect!["unexpected 'x' at 1"]);
        check_scan(b"1.", &expect!["it ends in the middle of a value at 2"]);
        check_scan(b"1.e1", &expect!["unexpected 'e' at 2"]);
        check_scan(b"1e+", &expect!["it ends in the middle of a value at 3"]);
        check_scan(b"NaN", &expect!["unexpected 'N' at 0"]);
        check_scan(b"nul", &expect!["it ends in the middle of a value at 3"]);
        check_scan(b"[1,]", &expect!["unexpected ']' at 3"]);
        check_scan(b"{\"a\":1,}", &expect!["unexpected '}' at 7"]);
        check_scan(b"[1}", &expect!["unexpected '}' at 2"]);
        check_scan(b"{\"a\"}", &expect!["unexpected '}' at 4"]);
        check_scan(b"\"a\nb\"", &expect!["control character 0x0a in a string at 2"]);
        check_scan(b"\"\\x\"", &expect!["invalid escape in a string at 1"]);
        check_scan(b"\"\\u12", &expect!["it ends in the middle of a value at 1"]);
        check_scan(b"\"\\u12g4\"", &expect!["invalid escape in a string at 1"]);
        check_scan(b"\"\xff\"", &expect!["ok to 3"]);
        check_scan(b"\"\\ud800\"", &expect!["ok to 8"]);
        check_scan(b"\xff", &expect!["unexpected byte 0xff at 0"]);
        check_scan(b"", &expect!["it ends in the middle of a value at 0"]);
    }

    #[test]
    fn depth_is_counted_to_128_and_a_million_brackets_are_only_an_error() {
        let nested = |depth: usize| [b"[".repeat(depth), b"]".repeat(depth)].concat();
        assert_eq!(scan_value(&nested(128), 0, DEPTH_MAX), Ok(256));
        assert_eq!(scan_value(&nested(129), 0, DEPTH_MAX), Err(Fault { at: 128, what: What::Depth }));
        assert_eq!(scan_value(&nested(1_000_000), 0, DEPTH_MAX), Err(Fault { at: 128, what: What::Depth }));
        let record = [b"{\"a\":".to_vec(), nested(127), b"}".to_vec()].concat();
        assert!(members(&record, 0).is_ok());
        let record = [b"{\"a\":".to_vec(), nested(128), b"}".to_vec()].concat();
        assert_eq!(members(&record, 0).map_err(|fault| fault.what), Err(What::Depth));
    }

    #[track_caller]
    fn check_canonical(value: &str, expected: &Expect) {
        let mut out = Vec::new();
        canonical(&mut out, value.as_bytes());
        expected.assert_eq(&String::from_utf8(out).unwrap());
    }

    #[test]
    fn equal_values_have_one_canonical_spelling() {
        for ten in ["10", "10.0", "1e1", "1E+1", "0.1e2", "100e-1", "10.000e0", "1e0000001"] {
            check_canonical(ten, &expect!["1e2"]);
        }
        for zero in ["0", "-0", "0.0", "-0.000e99", "0e-5"] {
            check_canonical(zero, &expect!["0"]);
        }
        check_canonical("9007199254740993", &expect!["9007199254740993e16"]);
        check_canonical("-9007199254740992.0", &expect!["-9007199254740992e16"]);
        check_canonical("0.001", &expect!["1e-2"]);
        check_canonical(r#"{"b": 1.0, "a": [ "\u0041" ], "b":2}"#, &expect![[r#"{"a":["A",],"b":2e1,}"#]]);
        check_canonical(r#""\ud83c\udf31 \ud800""#, &expect![[r#""🌱 �""#]]);
    }

    #[test]
    fn exponents_of_any_length_are_added_exactly() {
        let nines = "9".repeat(50);
        let one_and_zeros = format!("1{}", "0".repeat(50));
        let cases: [(&str, i64, &str); 8] = [
            ("5", -7, "-2"),
            ("+0007", 0, "7"),
            ("-12", 12, "0"),
            (&nines, 1, &one_and_zeros),
            (&one_and_zeros, -1, &nines),
            (&format!("-{nines}"), -1, &format!("-{one_and_zeros}")),
            (&format!("-{one_and_zeros}"), 1, &format!("-{nines}")),
            (&format!("000{one_and_zeros}"), 5, &format!("1{}5", "0".repeat(49))),
        ];
        for (decimal, addend, sum) in cases {
            assert_eq!(add_decimal(decimal.as_bytes(), addend), sum, "{decimal} + {addend}");
        }
    }

    #[test]
    fn strings_are_written_so_that_line_splitters_cannot_tear_them() {
        let mut out = Vec::new();
        write_string(&mut out, "a\"\\\n\u{1}\u{2028}\u{2029}\u{85}\u{b}\u{c}🌱é/");
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "\"a\\\"\\\\\\n\\u0001\\u2028\\u2029\\u0085\\u000b\\f🌱é/\"");
        assert_eq!(unescape(text.as_bytes()), "a\"\\\n\u{1}\u{2028}\u{2029}\u{85}\u{b}\u{c}🌱é/");
    }

    #[test]
    fn numbers_that_no_double_holds_are_refused_on_the_way_in() {
        let mut out = Vec::new();
        assert_eq!(compact(&mut out, b"[1, 1e400]"), Err("1e400".to_owned()));
        out.clear();
        compact(&mut out, br#"{ "n" : 12345678901234567890123456789012345678901 , "n2":1.10e-400 }"#)
            .unwrap();
        assert_eq!(out, br#"{"n":12345678901234567890123456789012345678901,"n2":1.10e-400}"#);
    }

    fn json_text() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            any::<bool>().prop_map(|b| b.to_string()),
            any::<i64>().prop_map(|n| n.to_string()),
            any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| format!("{n:e}")),
            ".{0,6}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4)
                    .prop_map(|values| format!("[{}]", values.join(" , "))),
                prop::collection::vec(("[a-c]{1,2}", inner), 0..4).prop_map(|members| {
                    let members: Vec<_> =
                        members.iter().map(|(key, value)| format!("\"{key}\" :{value}")).collect();
                    format!("{{{}}}", members.join(","))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn generated_json_is_accepted_and_keeps_its_value_in_compact_form(text in json_text()) {
            prop_assert_eq!(scan_value(text.as_bytes(), 0, DEPTH_MAX), Ok(text.len()));
            let mut out = Vec::new();
            compact(&mut out, text.as_bytes()).unwrap();
            let before: serde_json::Value = serde_json::from_str(&text).unwrap();
            let after: serde_json::Value = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(before, after);
        }

        #[test]
        fn mutated_json_is_judged_as_serde_json_judges_it(
            text in json_text(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            let mut bytes = text.into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let ours = scan_value(&bytes, 0, DEPTH_MAX).is_ok_and(|end| skip_space(&bytes, end) == bytes.len());
            // Our liberties: bytes inside strings need not be UTF-8, and a lone surrogate may be escaped.
            if std::str::from_utf8(&bytes).is_ok() {
                let theirs = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok();
                prop_assert_eq!(ours, theirs, "{}", String::from_utf8_lossy(&bytes));
            }
        }
    }
}
