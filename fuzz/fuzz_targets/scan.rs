//! Arbitrary bytes as a collection's file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linekeep_tests::fuzzing::scan(bytes));
