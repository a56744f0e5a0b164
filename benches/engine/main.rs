//! The engine's operations on a collection of 27,000 records, each beside its floor.
//!
//! `cargo bench -p linekeep-benches` takes a few minutes; a word behind `--` picks groups by name. With
//! `LINEKEEP_BENCH_TOY=1` it takes seconds: that shows that everything runs, and its figures mean nothing.

mod append;
mod query;
mod update;

use std::path::Path;
use std::time::Duration;

use criterion::Criterion;

/// Where the data sets are put: a folder of the build, so the disk that the build is on.
const FOLDER: &str = env!("CARGO_TARGET_TMPDIR");

fn folder() -> &'static Path {
    Path::new(FOLDER)
}

fn criterion() -> Criterion {
    let toy = std::env::var_os("LINEKEEP_BENCH_TOY").is_some_and(|toy| toy != "0");
    let criterion = if toy {
        Criterion::default()
            .sample_size(10)
            .nresamples(1_001)
            .warm_up_time(Duration::from_millis(20))
            .measurement_time(Duration::from_millis(100))
    } else {
        Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(5))
    };
    criterion.configure_from_args()
}

fn main() {
    let mut criterion = criterion();
    append::benches(&mut criterion);
    update::benches(&mut criterion);
    query::benches(&mut criterion);
    criterion.final_summary();
}
