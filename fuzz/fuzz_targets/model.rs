//! Random operations, edits and damage against the plain oracle.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linekeep_tests::fuzzing::model(bytes));
