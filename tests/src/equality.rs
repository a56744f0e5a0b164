//! JSON values, and when two of them are equal: a second opinion that shares nothing with the engine.
//!
//! The engine compares one canonical spelling; this compares values. `serde_json` judges the grammar and resolves the
//! escapes, but never reads a number: numbers stay text, and are compared as big integers times powers of ten.
//!
//! Invariant: nothing here follows input deeper than [`DEPTH_PARSED_MAX`], so no input can overflow the stack.

use std::collections::BTreeMap;
use std::fmt;

use num_bigint::{BigInt, BigUint};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The deepest nesting that is parsed. More than the engine takes, so that its limit shows as a difference.
pub const DEPTH_PARSED_MAX: usize = 300;

/// A JSON value. Of duplicate keys the last value stands, in the place of the first.
///
/// `==` asks for the same digits and the same order of keys; [`Json::equals`] is the equality of a filter.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as it is spelled.
    Number(String),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Self>),
    /// An object.
    Object(Vec<(String, Self)>),
}

impl Json {
    /// Parses text that may be damaged inside its strings: bytes that are not UTF-8, and lone surrogates, are U+FFFD.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Self::parse_bounded(&String::from_utf8_lossy(bytes), unescape)
    }

    /// Parses text that every reader takes: UTF-8, and no escape of a lone surrogate.
    pub fn parse_strict(bytes: &[u8]) -> Option<Self> {
        Self::parse_bounded(std::str::from_utf8(bytes).ok()?, |quoted| serde_json::from_str(quoted).ok())
    }

    fn parse_bounded(text: &str, string: fn(&str) -> Option<String>) -> Option<Self> {
        if depth(text.as_bytes()) > DEPTH_PARSED_MAX { None } else { Self::parse_with(text, string) }
    }

    fn parse_with(text: &str, string: fn(&str) -> Option<String>) -> Option<Self> {
        let text = text.trim_matches([' ', '\t', '\r', '\n']);
        let raw: &RawValue = serde_json::from_str(text).ok()?;
        Some(match text.as_bytes().first()? {
            b'n' => Self::Null,
            b't' => Self::Bool(true),
            b'f' => Self::Bool(false),
            b'"' => Self::String(string(raw.get())?),
            b'[' => {
                let elements: Vec<&RawValue> = serde_json::from_str(text).ok()?;
                let elements = elements.into_iter().map(|element| Self::parse_with(element.get(), string));
                Self::Array(elements.collect::<Option<_>>()?)
            }
            b'{' => {
                let mut members: Vec<(String, Self)> = Vec::new();
                let mut places = BTreeMap::new();
                for (key, value) in raw_members(text)? {
                    let (key, value) = (string(key)?, Self::parse_with(value, string)?);
                    let place = *places.entry(key.clone()).or_insert(members.len());
                    if place == members.len() {
                        members.push((key, value));
                    } else {
                        members[place].1 = value;
                    }
                }
                Self::Object(members)
            }
            _ => Self::Number(raw.get().to_owned()),
        })
    }

    /// The members of an object.
    pub fn members(&self) -> Option<&[(String, Self)]> {
        match self {
            Self::Object(members) => Some(members),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) | Self::Array(_) => None,
        }
    }

    /// The value of a member.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.members()?.iter().find_map(|(name, value)| (name == key).then_some(value))
    }

    /// Whether both are the same value: numbers by value, strings by code points, objects without regard to order.
    pub fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Number(a), Self::Number(b)) => Decimal::of(a).equals(&Decimal::of(b)),
            (Self::Array(a), Self::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.equals(b))
            }
            (Self::Object(a), Self::Object(b)) => {
                let sorted = |members: &'_ [(String, Self)]| -> BTreeMap<String, Self> {
                    members.iter().cloned().collect()
                };
                let (a, b) = (sorted(a), sorted(b));
                a.len() == b.len() && a.iter().zip(&b).all(|((k, v), (l, w))| k == l && v.equals(w))
            }
            (
                Self::Null
                | Self::Bool(_)
                | Self::String(_)
                | Self::Number(_)
                | Self::Array(_)
                | Self::Object(_),
                _,
            ) => false,
        }
    }

    /// Whether it holds a number that a double rounds to infinity.
    pub fn holds_a_number_beyond_doubles(&self) -> bool {
        match self {
            Self::Null | Self::Bool(_) | Self::String(_) => false,
            Self::Number(text) => Decimal::of(text).is_beyond_doubles(),
            Self::Array(elements) => elements.iter().any(Self::holds_a_number_beyond_doubles),
            Self::Object(members) => members.iter().any(|(_, value)| value.holds_a_number_beyond_doubles()),
        }
    }
}

/// The members of an object as they stand, duplicates too: key with its quotes, and value.
pub fn raw_members(text: &str) -> Option<Vec<(&str, &str)>> {
    struct Members<'a>(Vec<(&'a str, &'a str)>);
    struct MembersVisitor;

    impl<'de> Visitor<'de> for MembersVisitor {
        type Value = Members<'de>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                members.push((key.get(), value.get()));
            }
            Ok(Members(members))
        }
    }

    impl<'de> Deserialize<'de> for Members<'de> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(MembersVisitor)
        }
    }

    serde_json::from_str::<Members<'_>>(text).ok().map(|members| members.0)
}

/// Resolves the escapes of a quoted string; each lone surrogate is U+FFFD.
pub fn unescape(quoted: &str) -> Option<String> {
    /// What `serde_json` makes of a string when it is asked for bytes: UTF-8, and lone surrogates as three bytes each.
    struct Bytes(Vec<u8>);

    impl<'de> Deserialize<'de> for Bytes {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct BytesVisitor;

            impl Visitor<'_> for BytesVisitor {
                type Value = Bytes;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a string")
                }

                fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                    Ok(Bytes(bytes.to_vec()))
                }
            }
            deserializer.deserialize_bytes(BytesVisitor)
        }
    }

    let mut bytes = serde_json::from_str::<Bytes>(quoted).ok()?.0;
    // U+FFFD takes three bytes too.
    for at in 0..bytes.len().saturating_sub(2) {
        if let [0xED, 0xA0..=0xBF, _] = bytes[at..at + 3] {
            bytes[at..at + 3].copy_from_slice("\u{FFFD}".as_bytes());
        }
    }
    String::from_utf8(bytes).ok()
}

/// The deepest nesting of brackets outside strings.
pub fn depth(text: &[u8]) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                open += 1;
                deepest = deepest.max(open);
            }
            b'}' | b']' if !in_string => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Whether the text of a JSON value spells a number that a double rounds to infinity, also where a later duplicate of
/// its key hides it.
pub fn spells_a_number_beyond_doubles(text: &str) -> bool {
    let mut outside_strings = text.replace("\\\\", "").replace("\\\"", "");
    let mut in_string = false;
    outside_strings.retain(|found| {
        in_string ^= found == '"';
        !in_string
    });
    let words =
        outside_strings.split(|found: char| !matches!(found, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'));
    let numbers = words.filter(|word| word.starts_with(|first: char| first == '-' || first.is_ascii_digit()));
    numbers.map(Decimal::of).any(|number| number.is_beyond_doubles())
}

/// A number as a whole number times a power of ten.
#[derive(Debug)]
struct Decimal {
    mantissa: BigInt,
    exponent: BigInt,
    /// How many digits the mantissa has at most.
    digits: usize,
}

impl Decimal {
    fn of(number: &str) -> Self {
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let integer =
            |digits: &str| -> BigInt { digits.parse().expect("the grammar of numbers was checked") };
        Self {
            mantissa: integer(&format!("{whole}{fraction}")),
            exponent: integer(exponent) - fraction.len(),
            digits: whole.len() + fraction.len(),
        }
    }

    fn is_zero(&self) -> bool {
        self.mantissa == BigInt::ZERO
    }

    fn equals(&self, other: &Self) -> bool {
        if self.is_zero() || other.is_zero() {
            return self.is_zero() && other.is_zero();
        }
        let (high, low) = if self.exponent > other.exponent { (self, other) } else { (other, self) };
        // With more zeros at its end than the other has digits, a number is the larger one.
        match u32::try_from(&high.exponent - &low.exponent) {
            Ok(zeros) if zeros as usize <= low.digits => {
                &high.mantissa * BigInt::from(10).pow(zeros) == low.mantissa
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// From halfway between the largest double and the next power of two on, rounding to even goes to infinity.
    fn is_beyond_doubles(&self) -> bool {
        const ZEROS_MAX: u32 = 400;
        let limit = (BigUint::from(1_u8) << 1024) - (BigUint::from(1_u8) << 970);
        let magnitude = self.mantissa.magnitude();
        let power = |zeros: u32| BigUint::from(10_u8).pow(zeros);
        if self.is_zero() {
            return false;
        }
        if self.exponent >= BigInt::ZERO {
            return u32::try_from(&self.exponent)
                .ok()
                .filter(|zeros| *zeros <= ZEROS_MAX)
                .is_none_or(|zeros| magnitude * power(zeros) >= limit);
        }
        // With as many places behind the point as digits, a number is less than one.
        u32::try_from(-&self.exponent)
            .ok()
            .filter(|places| *places as usize <= self.digits)
            .is_some_and(|places| *magnitude >= limit * power(places))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(a: &str, b: &str, equal: bool) {
        let (a, b) = (Json::parse(a.as_bytes()).unwrap(), Json::parse(b.as_bytes()).unwrap());
        assert_eq!((a.equals(&b), b.equals(&a)), (equal, equal), "{a:?} and {b:?}");
    }

    #[test]
    fn numbers_are_equal_by_value_at_any_size() {
        check("10", "1.0e1", true);
        check("-0", "0E+99999999999999999999", true);
        check("9007199254740993", "9007199254740992", false);
        check("1e99999999999999999999", "10e99999999999999999998", true);
        check("1e99999999999999999999", "1e99999999999999999998", false);
        check("1e-99999999999999999999", "0", false);
        check("120", "12e1", true);
        check("1", "-1", false);
    }

    #[test]
    fn strings_are_equal_after_unescaping_and_a_lone_surrogate_is_the_replacement_character() {
        check(r#""\ud800\ud83c\udf31\udfff\ud800\n""#, "\"\u{fffd}🌱\u{fffd}\u{fffd}\\n\"", true);
        check(r#""a""#, r#""\u0041""#, false);
        check(r#"{"a":1,"b":[{}],"a":2}"#, r#"{"b":[{}],"\u0061":2.0}"#, true);
        assert!(Json::parse_strict(br#""\ud800""#).is_none());
        assert!(Json::parse_strict(b"\"\xff\"").is_none());
        assert!(Json::parse(b"\"\xff\"").is_some());
    }

    #[test]
    fn the_limit_of_doubles_is_exact() {
        let beyond = |text: &str| {
            let judged = Json::parse(text.as_bytes()).unwrap().holds_a_number_beyond_doubles();
            assert_eq!(judged, text.parse::<f64>().unwrap().is_infinite(), "{text}");
            judged
        };
        assert!(!beyond("1.7976931348623158e308"));
        assert!(beyond("1.7976931348623159e308"));
        assert!(beyond("-1e309"));
        assert!(beyond("1e99999999999999999999"));
        assert!(!beyond("1e-99999999999999999999"));
        assert!(!beyond("0e99999999999999999999"));
        assert!(!beyond(&format!("1{}e-400", "0".repeat(400))));
        assert!(beyond(&format!("1{}e-10", "0".repeat(400))));
        assert!(spells_a_number_beyond_doubles(r#"{"a\\":[1E999,true],"a\\":2}"#));
        assert!(!spells_a_number_beyond_doubles(r#"{"\"1e999\"":["1e999",1e-999,false,{}]}"#));
    }

    #[test]
    fn depth_counts_brackets_outside_strings() {
        assert_eq!(depth(br#"{"a[[":["\"[",{}]}"#), 3);
        assert_eq!(depth(b"1"), 0);
        assert!(Json::parse("[".repeat(1_000_000).as_bytes()).is_none());
    }
}
