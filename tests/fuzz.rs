//! The fuzz targets without a fuzzer: as property tests over likely pieces, and over every seed and past find.
//!
//! `fuzz/campaign` runs the same functions for longer and by coverage; a find of it goes into `fuzz/finds`, where the
//! replay below keeps it.

use std::path::{Path, PathBuf};

use linekeep_tests::{fuzzing, process};
use proptest::prelude::*;

/// How many cases a property: `LINEKEEP_FUZZ_RUNS` makes it longer.
fn config() -> ProptestConfig {
    let cases = std::env::var("LINEKEEP_FUZZ_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(400);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// What a damaged collection is made of.
const PIECES: &[&[u8]] = &[
    b"{\"id\":\"a\",\"n\":1}",
    b"{ \"id\": \"a\", \"n\": 1.50e3 }",
    b"{\"id\":\"\\u0061\",\"s\":\"\\ud800\\\"}{\"}",
    b"{\"id\":\"b\",\"s\":\"\xff\xc3\"}",
    b"{\"id\":7}",
    b"{\"id\":\"a\",\"id\":\"b\"}",
    b"{}",
    b"{\"k\":[{},[]]}",
    b"{\"id\":\"a\",\"torn",
    b"\"v\"",
    b":",
    b",",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b"\\ud83c\\udf31",
    b"1E400",
    b"-0.0",
    b"null",
    b"tru",
    b" ",
    b"\t\r",
    b"\n",
    b"\n",
    b"\n",
    b"\0",
    b"\0\0\0\0",
    b"\xEF\xBB\xBF",
    b"\xFF\xFE",
    "\u{2028}\u{85}\u{b}é🌱".as_bytes(),
];

fn pieces(count_max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(PIECES), 0..count_max).prop_map(|pieces| pieces.concat())
}

/// JSON text, in any spelling.
fn json(depth: u32) -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|it| it.to_string()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
        "\"([a-c é🌱\u{2028}]|\\\\u[dD][89abcdAB][0-9a-f]{2}|\\\\[nrtbf/\\\\\"]){0,6}\"",
    ];
    leaf.prop_recursive(depth, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|values| format!("[ {}]", values.join(", "))),
            members(inner).prop_map(|members| format!("{{{members}}}")),
        ]
    })
}

fn members(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let key = prop_oneof!["id|ts", "[a-c]{1,2}", "\\\\u006[1-3]", "__proto__|é"];
    prop::collection::vec((key, value), 0..5).prop_map(|members| {
        let members: Vec<String> = members.iter().map(|(key, value)| format!("\"{key}\" :{value}")).collect();
        members.join(",")
    })
}

/// The fields of a record: mostly whole, sometimes with one byte changed.
fn fields() -> impl Strategy<Value = Vec<u8>> {
    let id = prop_oneof![Just(""), Just("\"id\":\"x\","), Just("\"id\": \"y\" , ")];
    let whole = (id, members(json(3)), any::<u8>(), any::<prop::sample::Index>(), 0..4_u8);
    whole.prop_map(|(id, members, byte, at, change)| {
        let mut text =
            format!("{{{id}\"n\":1{}{members}}}", if members.is_empty() { "" } else { ", " }).into_bytes();
        if change == 0 {
            let at = at.index(text.len());
            text[at] = byte;
        }
        text
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_file_is_scanned_and_written_without_harm(
        bytes in prop_oneof![pieces(24), prop::collection::vec(any::<u8>(), 0..64)],
    ) {
        fuzzing::scan(&bytes);
    }

    #[test]
    fn any_fields_are_judged_kept_and_merged(first in fields(), second in fields(), pieces in pieces(6)) {
        fuzzing::record(&[first.as_slice(), b"\n", &second].concat());
        fuzzing::record(&pieces);
    }

    #[test]
    fn any_two_values_are_compared_as_values(
        bytes in prop::collection::vec(any::<u8>(), 0..160), a in json(2), b in json(2),
    ) {
        fuzzing::equality(&bytes);
        fuzzing::equality(format!("={a}\n{b}").as_bytes());
        fuzzing::equality(format!("={a}\n{a}").as_bytes());
    }
}

/// The files of a folder, sorted; none when there is no such folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder is listed").path()).collect();
    files.sort();
    files
}

#[test]
fn every_seed_and_every_past_find_passes() {
    let fuzz = process::repository().join("fuzz");
    for (name, target) in fuzzing::TARGETS {
        let mut inputs = files(&fuzz.join("seeds").join(name));
        assert!(inputs.len() >= 8, "the target {name} has {} seeds", inputs.len());
        inputs.extend(files(&fuzz.join("finds").join(name)));
        if name == "scan" {
            inputs.extend(files(&process::fixtures().join("damaged")));
        }
        for input in inputs {
            let bytes = std::fs::read(&input).expect("an input is read");
            let outcome = std::panic::catch_unwind(|| target(&bytes));
            assert!(outcome.is_ok(), "{} fails the target {name}", input.display());
        }
    }
}
