//! Two values, each in some spelling: a query for one finds the other when they are equal.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linekeep_tests::fuzzing::equality(bytes));
