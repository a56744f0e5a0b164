//! One record: what a caller gives ([`Fields`]), what goes into the file, and what is served of it.
//!
//! An update never re-writes a line from values: it splices the new values into the bytes that stand there, so the
//! members that it does not name keep their digits, their spelling and their spacing.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use crate::error::{Error, Result, excerpt};
use crate::json::{self, Member};
use crate::name::RecordId;

/// The members of one JSON object in the order given, each value as JSON text.
///
/// Numbers keep the digits that the caller wrote. Strings are kept in the engine's own spelling; a lone surrogate has
/// become U+FFFD. Of duplicate keys the last value counts, in the place of the first.
#[derive(Clone, Default)]
pub struct Fields {
    /// Key and value of each member, one behind the other: one allocation, however many members there are.
    text: String,
    members: Vec<Ends>,
}

/// Where the key and the value of a member end in the text. The key begins where the member before it ends.
#[derive(Debug, Clone, Copy)]
struct Ends {
    key: usize,
    value: usize,
}

impl Fields {
    /// No fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the JSON text of an object.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the text is not JSON in UTF-8, is not an object, is nested deeper than 128, or holds a
    /// number outside the range of a double (which a browser would read as `Infinity`).
    pub fn parse(json: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(json)
            .map_err(|error| Error::invalid(format!("the fields are not UTF-8: {error}")))?;
        let start = json::skip_space(json, 0);
        let scanned = match json.get(start) {
            Some(b'{') => json::members(json, start),
            _ => json::scan_value(json, start, json::DEPTH_MAX).map(|end| (Vec::new(), end)),
        };
        let (members, end) = scanned.map_err(|fault| {
            Error::invalid(format!("not valid JSON: {} at byte {}", fault.what, fault.at))
        })?;
        let end = json::skip_space(json, end);
        if let Some(byte) = json.get(end) {
            let what = json::What::Byte(*byte);
            return Err(Error::invalid(format!("not valid JSON: {what} at byte {end}")));
        }
        if json[start] != b'{' {
            return Err(Error::invalid(format!("a JSON object is wanted, not {}", excerpt(text.trim()))));
        }
        let mut fields = Self { text: String::with_capacity(json.len()), members: Vec::new() };
        // A value that a later one of the same key hides is not judged.
        let members = json::distinct(json, members);
        fields.members.reserve_exact(members.len());
        for (key, value) in members {
            fields.push(&key, &compact(value)?);
        }
        Ok(fields)
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The JSON text of a field's value.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find_map(|(name, value)| (name == key).then_some(value))
    }

    /// Takes a field out and returns the JSON text of its value.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        let value = self.get(key)?.to_owned();
        *self = Self::of(self.iter().filter(|(name, _)| *name != key));
        Some(value)
    }

    /// Adds a field, or replaces the value of the one that has this key.
    ///
    /// # Errors
    /// [`Error::Invalid`] as [`Fields::parse`], about the value.
    pub fn insert_json(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let start = json::skip_space(value, 0);
        let fault =
            |what, at| Error::invalid(format!("field {}: not valid JSON: {what} at byte {at}", excerpt(key)));
        let end = json::scan_value(value, start, json::DEPTH_MAX - 1).map_err(|it| fault(it.what, it.at))?;
        let rest = json::skip_space(value, end);
        if let Some(byte) = value.get(rest) {
            return Err(fault(json::What::Byte(*byte), rest));
        }
        let value = compact(&value[start..end])?;
        if self.get(key).is_none() {
            self.push(key, &value);
        } else {
            let value: &str = &value;
            *self = Self::of(self.iter().map(|(name, old)| (name, if name == key { value } else { old })));
        }
        Ok(())
    }

    /// The fields in order: key, and the JSON text of the value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let starts = std::iter::once(0).chain(self.members.iter().map(|ends| ends.value));
        let members = starts.zip(&self.members);
        members.map(|(start, ends)| (&self.text[start..ends.key], &self.text[ends.key..ends.value]))
    }

    /// Keys that are all different, each with the JSON text of its value, which was checked.
    fn of<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut fields = Self::new();
        for (key, value) in members {
            fields.push(key, value);
        }
        fields
    }

    /// How long the JSON text of a record of these fields is, at most.
    fn record_len_max(&self) -> usize {
        // Two quotes, a colon and a comma a member, the id and the time.
        const FIXED_BYTES: usize = 160;
        FIXED_BYTES + self.text.len() + 4 * self.members.len()
    }

    fn push(&mut self, key: &str, value: &str) {
        self.text.push_str(key);
        let key = self.text.len();
        self.text.push_str(value);
        self.members.push(Ends { key, value: self.text.len() });
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Fields {}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// A value in the engine's spelling. The value must have been scanned.
fn compact(value: &[u8]) -> Result<Cow<'_, str>> {
    // Plain text is in that spelling already.
    let is_compact = match value {
        [b'"', text @ .., b'"'] => json::is_plain(text),
        other => matches!(other, b"true" | b"false" | b"null"),
    };
    if is_compact && let Ok(text) = std::str::from_utf8(value) {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(value.len());
    json::compact(&mut out, value).map_err(|number| {
        Error::invalid(format!(
            "the number {} is outside the range of a double (about 1.8e308)",
            excerpt(&number)
        ))
    })?;
    // Bad bytes in strings became U+FFFD, and everything else in scanned JSON is ASCII.
    let text = String::from_utf8(out)
        .map_err(|error| Error::invalid(format!("the fields are not UTF-8: {error}")))?;
    Ok(Cow::Owned(text))
}

/// A record as it is served: one JSON object in UTF-8, without a line end.
///
/// It is the line's own text, except that bytes which are not UTF-8 and lone surrogates are U+FFFD.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    bytes: Vec<u8>,
}

impl Record {
    /// Serves the bytes of a record as they stand in a file.
    pub(crate) fn served(stored: &[u8]) -> Self {
        Self { bytes: repaired(stored).unwrap_or_else(|| stored.to_vec()) }
    }

    /// The JSON text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The JSON text, to keep.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes))
    }
}

/// Whether no record in these bytes needs a look by [`repaired`]: they are UTF-8, and no escape starts a surrogate.
pub(crate) fn is_clean(bytes: &[u8]) -> bool {
    let surrogates = [&b"\\ud"[..], b"\\uD"];
    let has_none = || surrogates.iter().all(|escape| memchr::memmem::find(bytes, escape).is_none());
    std::str::from_utf8(bytes).is_ok() && (memchr::memchr(b'\\', bytes).is_none() || has_none())
}

/// What is served in place of a stored record whose text strict readers would refuse: `None` when it is fine.
pub(crate) fn repaired(stored: &[u8]) -> Option<Vec<u8>> {
    if is_clean(stored) {
        return None;
    }
    let text = String::from_utf8_lossy(stored);
    let mut copied = 0;
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    // Outside strings there is no backslash in JSON, so every one starts an escape.
    while let Some(found) = memchr::memchr(b'\\', &bytes[at..]) {
        let escape = at + found;
        at = escape + 2;
        if bytes.get(escape + 1) != Some(&b'u') {
            continue;
        }
        match surrogate(bytes, escape) {
            Some(0xD800..0xDC00) if matches!(surrogate(bytes, escape + 6), Some(0xDC00..0xE000)) => {
                at = escape + 12;
            }
            Some(0xD800..0xE000) => {
                out.extend_from_slice(&bytes[copied..escape]);
                out.extend_from_slice("\u{FFFD}".as_bytes());
                at = escape + 6;
                copied = at;
            }
            _ => {}
        }
    }
    if copied == 0 && matches!(text, Cow::Borrowed(_)) {
        return None;
    }
    out.extend_from_slice(&bytes[copied..]);
    Some(out)
}

/// The code unit of a `\uXXXX` escape at `at`.
fn surrogate(bytes: &[u8], at: usize) -> Option<u32> {
    let escape = bytes.get(at..at + 6)?;
    let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

/// The text of a new record: `id`, `ts`, then the fields. `id` and `ts` among the fields are left out.
///
/// `ts` is JSON text: a string that the engine wrote, or whatever stood in the record that this one replaces.
pub(crate) fn build(id: &str, ts: &[u8], fields: &Fields) -> Vec<u8> {
    let mut out = Vec::with_capacity(fields.record_len_max());
    out.extend_from_slice(b"{\"id\":");
    json::write_string(&mut out, id);
    out.extend_from_slice(b",\"ts\":");
    out.extend_from_slice(ts);
    for (key, value) in fields.iter().filter(|(key, _)| !matches!(*key, "id" | "ts")) {
        out.push(b',');
        json::write_string(&mut out, key);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    out.push(b'}');
    out
}

/// Merges fields over a stored record: values are replaced where they stand, new members follow at the end in the
/// spacing of the record. An `id` among the fields is left out.
pub(crate) fn merge(stored: &[u8], fields: &Fields) -> Vec<u8> {
    let members = stored_members(stored);
    // The last of duplicate keys is the one that counts.
    let places: HashMap<Cow<'_, str>, &Member> =
        members.iter().map(|member| (json::unescape(&stored[member.key.clone()]), member)).collect();
    let mut replaced: Vec<(Range<usize>, &str)> = Vec::new();
    let mut added: Vec<(&str, &str)> = Vec::new();
    for (key, value) in fields.iter().filter(|(key, _)| *key != "id") {
        match places.get(key) {
            Some(member) => replaced.push((member.value.clone(), value)),
            None => added.push((key, value)),
        }
    }
    replaced.sort_unstable_by_key(|(range, _)| range.start);
    let end = members.last().map_or(1, |member| member.value.end);
    let mut out = Vec::with_capacity(stored.len() + 32 * added.len());
    let mut copied = 0;
    for (range, value) in replaced {
        out.extend_from_slice(&stored[copied..range.start]);
        out.extend_from_slice(value.as_bytes());
        copied = range.end;
    }
    out.extend_from_slice(&stored[copied..end]);
    let (comma, colon) = spacing(stored, &members);
    for (position, (key, value)) in added.into_iter().enumerate() {
        if position > 0 || !members.is_empty() {
            out.extend_from_slice(comma);
        }
        json::write_string(&mut out, key);
        out.extend_from_slice(colon);
        out.extend_from_slice(value.as_bytes());
    }
    out.extend_from_slice(&stored[end..]);
    out
}

/// The comma and the colon with the space around them that the record uses.
fn spacing<'a>(stored: &'a [u8], members: &[Member]) -> (&'a [u8], &'a [u8]) {
    const BYTES_MAX: usize = 4;
    let between = |range: Range<usize>| stored.get(range).filter(|bytes| bytes.len() <= BYTES_MAX);
    let colon = members.first().and_then(|it| between(it.key.end..it.value.start)).unwrap_or(b":");
    let comma = match members {
        [first, second, ..] => between(first.value.end..second.key.start).unwrap_or(b","),
        _ if colon.len() > 1 => b", ",
        _ => b",",
    };
    (comma, colon)
}

/// The members of a record that stands in a file, so was scanned before.
fn stored_members(stored: &[u8]) -> Vec<Member> {
    let scanned = json::members(stored, 0);
    debug_assert!(scanned.is_ok(), "only scanned records come here");
    scanned.map(|(members, _)| members).unwrap_or_default()
}

/// Whether a key, given as it stands with its quotes, spells this name.
pub(crate) fn key_is(quoted: &[u8], name: &str) -> bool {
    let plain = &quoted[1..quoted.len() - 1];
    plain == name.as_bytes()
        || (memchr::memchr(b'\\', plain).is_some() || !plain.is_ascii()) && json::unescape(quoted) == name
}

/// Where the value of a key lies in a record that was scanned: the last one of duplicate keys.
fn value_range(stored: &[u8], key: &str) -> Option<Range<usize>> {
    let mut found = None;
    let scanned = json::scan_object(stored, 0, |member| {
        if key_is(&stored[member.key], key) {
            found = Some(member.value);
        }
    });
    debug_assert!(scanned.is_ok(), "only scanned records come here");
    found
}

/// The JSON text of a key's value in a record that was scanned.
pub(crate) fn value_of<'a>(stored: &'a [u8], key: &str) -> Option<&'a [u8]> {
    value_range(stored, key).map(|range| &stored[range])
}

/// Where the record's `id` lies, with its quotes, if it is a string.
pub(crate) fn id_of(stored: &[u8]) -> Option<Range<usize>> {
    value_range(stored, "id").filter(|range| stored[range.start] == b'"')
}

/// Random bytes in a new id.
pub(crate) const ID_BYTES: usize = 6;

/// A new id: 12 lower-case hex digits.
pub(crate) fn new_id(random: [u8; ID_BYTES]) -> RecordId {
    let number = random.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let text = format!("{number:012x}");
    text.parse().expect("12 hex digits are an id")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check_fields(json: &str, expected: &Expect) {
        let shown = match Fields::parse(json.as_bytes()) {
            Ok(fields) => {
                fields.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join("; ")
            }
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn fields_keep_order_and_digits_and_lose_only_space() {
        check_fields(
            r#" { "b" : 1.50 , "a" : [ 1 , {"x" : null} ] } "#,
            &expect![[r#"b = 1.50; a = [1,{"x":null}]"#]],
        );
        check_fields(r#"{"n":9007199254740993,"z":-0.0}"#, &expect!["n = 9007199254740993; z = -0.0"]);
        check_fields(r#"{"a":1,"b":2,"a":3}"#, &expect!["a = 3; b = 2"]);
        check_fields(r#"{"a":1e999,"o":{"x":1e999,"x":1},"a":3}"#, &expect![[r#"a = 3; o = {"x":1}"#]]);
        check_fields(r#"{"s":"\ud800x \ud83c\udf31 \u00e9\/"}"#, &expect![[r#"s = "�x 🌱 é/""#]]);
        check_fields(
            r#"{"__proto__":1,"$serde_json::private::Number":"1"}"#,
            &expect![[r#"__proto__ = 1; $serde_json::private::Number = "1""#]],
        );
    }

    #[test]
    fn what_is_not_an_object_of_json_is_refused_with_its_place() {
        check_fields("", &expect!["not valid JSON: it ends in the middle of a value at byte 0"]);
        check_fields("[1]", &expect![[r#"a JSON object is wanted, not "[1]""#]]);
        check_fields("{} x", &expect!["not valid JSON: unexpected 'x' at byte 3"]);
        check_fields(r#"{"a":NaN}"#, &expect!["not valid JSON: unexpected 'N' at byte 5"]);
        check_fields(
            r#"{"a":1e999}"#,
            &expect![[r#"the number "1e999" is outside the range of a double (about 1.8e308)"#]],
        );
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(128), "]".repeat(128));
        check_fields(&deep, &expect!["not valid JSON: nested deeper than 128 at byte 132"]);
    }

    #[track_caller]
    fn check_merge(stored: &str, fields: &str, expected: &Expect) {
        let merged = merge(stored.as_bytes(), &Fields::parse(fields.as_bytes()).unwrap());
        expected.assert_eq(&String::from_utf8(merged).unwrap());
    }

    #[test]
    fn a_merge_touches_only_the_values_it_names() {
        check_merge(
            r#"{"id": "a", "ts": "t", "n": 1.00, "x": {"k" : [ ] }}"#,
            r#"{"n":2,"new":"v"}"#,
            &expect![[r#"{"id": "a", "ts": "t", "n": 2, "x": {"k" : [ ] }, "new": "v"}"#]],
        );
        check_merge(r#"{"id":"a","n":1}"#, r#"{"id":"b","m":3}"#, &expect![[r#"{"id":"a","n":1,"m":3}"#]]);
        check_merge(r#"{"id":"a","n":1,"n":2}"#, r#"{"n":3}"#, &expect![[r#"{"id":"a","n":1,"n":3}"#]]);
        check_merge(r#"{"id": "a"}"#, r#"{"m":3}"#, &expect![[r#"{"id": "a", "m": 3}"#]]);
        check_merge(r#"{"id":"a","\u006e":1}"#, r#"{"n":3}"#, &expect![[r#"{"id":"a","\u006e":3}"#]]);
        check_merge(r"{ }", r#"{"m":3}"#, &expect![[r#"{"m":3 }"#]]);
        check_merge(r#"{"b":1,"a":2}"#, r#"{"a":3,"b":4}"#, &expect![[r#"{"b":4,"a":3}"#]]);
    }

    #[test]
    fn a_served_record_has_no_lone_surrogate_and_no_bad_byte() {
        let served = |stored: &[u8]| String::from_utf8(Record::served(stored).into_bytes()).unwrap();
        assert_eq!(served(br#"{"a":"\ud83c\udf31"}"#), r#"{"a":"\ud83c\udf31"}"#);
        assert_eq!(served(br#"{"a":"\ud83c \udf31 \\ud800"}"#), "{\"a\":\"\u{fffd} \u{fffd} \\\\ud800\"}");
        assert_eq!(served(br#"{"a":"\ud83c\ud83c\udf31"}"#), "{\"a\":\"\u{fffd}\\ud83c\\udf31\"}");
        assert_eq!(served(b"{\"a\":\"\xff\"}"), "{\"a\":\"\u{fffd}\"}");
    }

    #[test]
    fn a_new_record_has_id_and_ts_first_and_once() {
        let fields = Fields::parse(br#"{"ts":"given","b":1,"id":"given","a":2}"#).unwrap();
        let built = build("00", b"\"now\"", &fields);
        assert_eq!(String::from_utf8(built).unwrap(), r#"{"id":"00","ts":"now","b":1,"a":2}"#);
    }
}
