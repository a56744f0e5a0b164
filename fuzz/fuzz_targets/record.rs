//! Arbitrary bytes as fields, and as a record that fields are merged over.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linekeep_tests::fuzzing::record(bytes));
