//! Equality of JSON values, as a query's filter asks for it.
//!
//! Numbers are equal by value and exactly, strings by code points, objects without regard to the order of keys, arrays
//! in order; `null` in a filter also matches a record without the field; values of different kinds are never equal.
//! Equality is equality of one canonical spelling ([`json::canonical`]); a few cheap comparisons before it settle
//! nearly every record without building that spelling.

use std::collections::HashMap;
use std::ops::Range;

use crate::json::{self, Member};
use crate::record::{self, Fields};

/// A compiled filter: a record matches when every test does. No tests match every record.
#[derive(Debug)]
pub(crate) struct Filter {
    tests: Vec<Test>,
    /// Where the test of a field stands, when there is more than one.
    positions: HashMap<String, usize>,
}

#[derive(Debug)]
pub(crate) struct Test {
    key: String,
    /// The value as the filter spells it.
    value: Vec<u8>,
    /// The value in the canonical spelling.
    canonical: Vec<u8>,
}

impl Filter {
    pub(crate) fn new(fields: &Fields) -> Self {
        let tests = fields
            .iter()
            .map(|(key, value)| {
                let mut canonical = Vec::new();
                json::canonical(&mut canonical, value.as_bytes());
                Test { key: key.to_owned(), value: value.as_bytes().to_vec(), canonical }
            })
            .collect::<Vec<Test>>();
        let positions = match tests.as_slice() {
            // One key is compared, not looked up.
            [_] => HashMap::new(),
            tests => tests.iter().enumerate().map(|(position, test)| (test.key.clone(), position)).collect(),
        };
        Self { tests, positions }
    }

    /// Whether every record matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.tests.is_empty()
    }

    /// Whether it is about one field only.
    pub(crate) fn is_single(&self) -> bool {
        self.tests.len() == 1
    }

    /// The fields it is about.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.tests.iter().map(|test| test.key.as_str())
    }

    /// The fields it is about, each with the canonical spelling of the value that is wanted.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.tests.iter().map(|test| (test.key.as_str(), test.canonical.as_slice()))
    }

    /// What every match shows on its line, unless there is a backslash: the sign that is likely to be the rarest.
    pub(crate) fn sign(&self) -> Option<Sign<'_>> {
        let strings =
            self.tests.iter().filter_map(Test::plain_string).map(|text| (text.len(), Sign::Text(text)));
        let longest = strings.max_by_key(|(len, _)| *len).map(|(_, sign)| sign);
        longest.or_else(|| self.tests.iter().find_map(Test::member))
    }

    /// The text of the id that a match must have, if the filter asks for one.
    pub(crate) fn id(&self) -> Option<std::borrow::Cow<'_, str>> {
        let test = self.tests.iter().find(|test| test.key == "id")?;
        test.value.starts_with(b"\"").then(|| json::unescape(&test.value))
    }

    /// Whether a record that was scanned matches.
    pub(crate) fn matches(&self, stored: &[u8]) -> bool {
        if let [test] = self.tests.as_slice() {
            return test.accepts(record::value_of(stored, &test.key).unwrap_or(b"null"));
        }
        let mut values = self.no_values();
        let scanned = json::scan_object(stored, 0, |member| self.note(&mut values, stored, &member));
        debug_assert!(scanned.is_ok(), "only scanned records come here");
        self.accepts(stored, &values)
    }

    /// Where the values of the fields lie in a record of which nothing is known yet.
    pub(crate) fn no_values(&self) -> Vec<Option<Range<usize>>> {
        vec![None; self.tests.len()]
    }

    /// Notes a member of a record, if the filter is about it. The last of duplicate keys counts.
    pub(crate) fn note(&self, values: &mut [Option<Range<usize>>], bytes: &[u8], member: &Member) {
        let quoted = &bytes[member.key.clone()];
        let position = match self.tests.as_slice() {
            [test] => record::key_is(quoted, &test.key).then_some(0),
            _ => self.positions.get(json::unescape(quoted).as_ref()).copied(),
        };
        if let Some(position) = position {
            values[position] = Some(member.value.clone());
        }
    }

    /// Whether the record whose members were noted matches.
    pub(crate) fn accepts(&self, bytes: &[u8], values: &[Option<Range<usize>>]) -> bool {
        let value_of =
            |range: &Option<Range<usize>>| range.clone().map_or(&b"null"[..], |range| &bytes[range]);
        self.tests.iter().zip(values).all(|(test, range)| test.accepts(value_of(range)))
    }
}

/// What the line of a record that matches shows, wherever there is no backslash on it.
#[derive(Debug)]
pub(crate) enum Sign<'a> {
    /// This text: a string with its quotes.
    Text(&'a [u8]),
    /// This key with its quotes, a colon, and a value that the test accepts.
    Member {
        /// The key with its quotes.
        quoted_key: Vec<u8>,
        /// Judges the value.
        test: &'a Test,
    },
}

impl Sign<'_> {
    /// The bytes to search for.
    pub(crate) fn needle(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            Self::Member { quoted_key, .. } => quoted_key,
        }
    }

    /// Whether the needle, found so that `behind` follows it, may belong to a match.
    pub(crate) fn is_promising(&self, behind: &[u8]) -> bool {
        let Self::Member { test, .. } = self else { return true };
        let value = json::skip_space(behind, 0);
        if behind.get(value) != Some(&b':') {
            return false;
        }
        let value = &behind[json::skip_space(behind, value + 1)..];
        match kind(value) {
            found if found != kind(&test.value) => false,
            Kind::Number => {
                let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let len = value.iter().take_while(|byte| is_digit(byte)).count();
                json::scan_value(&value[..len], 0, 1).is_ok_and(|end| end == len)
                    && test.accepts(&value[..len])
            }
            // Where a string, an array or an object ends is not known without a scan.
            Kind::Null | Kind::True | Kind::False | Kind::String | Kind::Array | Kind::Object => true,
        }
    }
}

impl Test {
    /// The value with its quotes, when it is a string of plain ASCII under a key of plain ASCII.
    fn plain_string(&self) -> Option<&[u8]> {
        let inner = self.value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        (is_plain(inner) && is_plain(self.key.as_bytes())).then_some(&self.value)
    }

    /// The key as a sign, when it is of plain ASCII. A record without the field matches `null`, so that has none.
    fn member(&self) -> Option<Sign<'_>> {
        if kind(&self.value) == Kind::Null || !is_plain(self.key.as_bytes()) {
            return None;
        }
        Some(Sign::Member { quoted_key: format!("\"{}\"", self.key).into_bytes(), test: self })
    }

    fn accepts(&self, value: &[u8]) -> bool {
        if value == self.value {
            return true;
        }
        if kind(value) != kind(&self.value) {
            return false;
        }
        let plain = |text: &[u8]| text.is_ascii() && memchr::memchr(b'\\', text).is_none();
        if kind(value) == Kind::String && plain(value) && plain(&self.value) {
            return false;
        }
        let mut canonical = Vec::with_capacity(self.canonical.len());
        json::canonical(&mut canonical, value);
        canonical == self.canonical
    }
}

/// Whether a text is a sign to search for: it has one spelling, and is not nothing.
fn is_plain(text: &[u8]) -> bool {
    !text.is_empty() && json::is_plain(text)
}

#[derive(PartialEq, Eq)]
enum Kind {
    Null,
    True,
    False,
    Number,
    String,
    Array,
    Object,
}

fn kind(value: &[u8]) -> Kind {
    match value.first() {
        Some(b'n') | None => Kind::Null,
        Some(b't') => Kind::True,
        Some(b'f') => Kind::False,
        Some(b'"') => Kind::String,
        Some(b'[') => Kind::Array,
        Some(b'{') => Kind::Object,
        Some(_) => Kind::Number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(filter: &str, stored: &str, matches: bool) {
        let filter = Filter::new(&Fields::parse(filter.as_bytes()).unwrap());
        assert_eq!(filter.matches(stored.as_bytes()), matches, "{stored}");
    }

    #[test]
    fn numbers_are_equal_by_value_and_exactly() {
        for spelling in ["10", "10.0", "1e1", "1.00E+1"] {
            check(r#"{"n":10}"#, &format!(r#"{{"n":{spelling}}}"#), true);
        }
        check(r#"{"n":9007199254740993}"#, r#"{"n":9007199254740992}"#, false);
        check(r#"{"n":9007199254740993}"#, r#"{"n":9007199254740993.0}"#, true);
        check(r#"{"n":0}"#, r#"{"n":-0.0}"#, true);
        let big = "1234567890123456789012345678901234567890";
        check(&format!(r#"{{"n":{big}}}"#), &format!(r#"{{"n":{big}}}"#), true);
        check(&format!(r#"{{"n":{big}}}"#), &format!(r#"{{"n":{}1}}"#, &big[..39]), false);
        check(r#"{"n":1}"#, r#"{"n":1E400}"#, false);
    }

    #[test]
    fn values_of_different_kinds_are_never_equal() {
        let values = ["1", "\"1\"", "true", "null", "[1]", "{\"a\":1}", "\"true\"", "false", "0", "\"\""];
        for (a, left) in values.iter().enumerate() {
            for (b, right) in values.iter().enumerate() {
                check(&format!("{{\"v\":{left}}}"), &format!("{{\"v\":{right}}}"), a == b);
            }
        }
    }

    #[test]
    fn strings_are_equal_by_code_points_after_unescaping() {
        check(r#"{"s":"é"}"#, r#"{"s":"\u00e9"}"#, true);
        check("{\"s\":\"é\"}", "{\"s\":\"e\u{301}\"}", false);
        check(r#"{"s":"\ud800"}"#, r#"{"s":"\udfff"}"#, true);
        check(r#"{"s":"a/b"}"#, r#"{"s":"a\/b"}"#, true);
        check("{\"s\":\"\u{2028}\"}", "{\"s\":\"\u{2028}\"}", true);
        check(r#"{"s":"A"}"#, r#"{"s":"a"}"#, false);
    }

    #[test]
    fn objects_ignore_the_order_of_keys_and_arrays_do_not() {
        check(r#"{"o":{"a":1,"b":[1,2]}}"#, r#"{"o":{"b":[1.0,2],"a":1}}"#, true);
        check(r#"{"o":{"a":1}}"#, r#"{"o":{"a":1,"b":null}}"#, false);
        check(r#"{"o":[1,2]}"#, r#"{"o":[2,1]}"#, false);
    }

    #[test]
    fn null_matches_an_absent_field_and_nothing_else_does() {
        check(r#"{"x":null}"#, r#"{"a":1}"#, true);
        check(r#"{"x":null}"#, r#"{"x":null}"#, true);
        check(r#"{"x":null}"#, r#"{"x":false}"#, false);
        check(r#"{"x":false}"#, r#"{"a":1}"#, false);
        check("{}", r#"{"a":1}"#, true);
    }

    #[test]
    fn the_last_of_duplicate_keys_counts_and_odd_keys_are_plain_data() {
        check(r#"{"n":2}"#, r#"{"n":1,"n":2}"#, true);
        check(r#"{"n":1}"#, r#"{"n":1,"n":2}"#, false);
        check(r#"{"__proto__":1}"#, r#"{"\u005f_proto__":1}"#, true);
        check(r#"{"hasOwnProperty":1}"#, r#"{"a":1}"#, false);
    }
}
