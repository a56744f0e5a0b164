//! A collection's file and its records, read without the engine: by newlines, and as raw JSON.
//!
//! Raw, because the digits of a number and the spelling of a text are part of what is promised, and because a number
//! such as `1E400` has no value in this process.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The lines of a file with their ends.
pub fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

/// The members of an object, each value as it is spelled; of equal keys the last counts.
#[track_caller]
pub fn members(object: &str) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(object).unwrap_or_else(|error| panic!("{error}: {object}"))
}

/// The keys of an object, in order.
#[track_caller]
pub fn keys(object: &serde_json::Value) -> Vec<&str> {
    object.as_object().unwrap_or_else(|| panic!("no object: {object}")).keys().map(String::as_str).collect()
}

/// The text of a member of an object, as it is spelled.
#[track_caller]
pub fn spelled<'a>(object: &'a str, key: &str) -> &'a str {
    members(object).get(key).unwrap_or_else(|| panic!("no {key} in {object}")).get()
}

/// The records in the envelope of a query, as they are spelled.
#[track_caller]
pub fn records(envelope: &str) -> Vec<&str> {
    let records = spelled(envelope, "records");
    let records: Vec<&RawValue> =
        serde_json::from_str(records).unwrap_or_else(|error| panic!("{error}: {records}"));
    records.into_iter().map(RawValue::get).collect()
}

/// Whether a text is an id that the engine makes: 12 lower-case hex digits.
pub fn is_new_id(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a text is a time as the engine writes it: `2026-11-30T19:33:00+00:00`.
pub fn is_timestamp(text: &str) -> bool {
    let shape: String = text.chars().map(|char| if char.is_ascii_digit() { '0' } else { char }).collect();
    shape == "0000-00-00T00:00:00+00:00"
}
