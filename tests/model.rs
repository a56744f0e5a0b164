//! The model as a property test: random steps, the oracle of `linekeep_tests::model` as the judge.

use linekeep_tests::model;
use proptest::prelude::*;

/// How many random runs: `LINEKEEP_MODEL_RUNS` makes it longer.
fn runs() -> u32 {
    std::env::var("LINEKEEP_MODEL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(3_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: runs(), max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_edits_and_damage_leave_the_file_as_the_oracle_says(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        model::run(&bytes);
    }
}
