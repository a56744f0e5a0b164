//! Append, one writer: one line at the end, with and without the sync.
//!
//! Floor: one `write` to an open file, and one `fdatasync`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::{Duration, Instant};

use criterion::Criterion;
use linekeep_benches::DataSet;
use linekeep_engine::{Durability, Fields};

use crate::folder;

const FIELDS: &[u8] = br#"{"text":"cook send book fix dentist wash visit passport","done":false,"list":"work","priority":12148,"score":258.359}"#;

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append");
    let fields = Fields::parse(FIELDS).expect("an object");
    for (durability, name) in [(Durability::Sync, "sync"), (Durability::Flush, "flush")] {
        group.bench_function(format!("{name}/linekeep"), |bencher| {
            bencher.iter_custom(|times| linekeep(durability, &fields, times));
        });
        group.bench_function(format!("{name}/floor"), |bencher| {
            bencher.iter_custom(|times| floor(durability, times));
        });
    }
    group.finish();
}

/// Each sample starts from a fresh copy, so the file does not grow from one to the next.
fn linekeep(durability: Durability, fields: &Fields, times: u64) -> Duration {
    let data_set = DataSet::copy_into(folder()).expect("the folder takes files");
    let collection = data_set.open_warm(durability).expect("the copy is a collection");
    // The first append of a process also syncs the folder and looks for left-over files.
    collection.append(fields.clone()).expect("there is room");
    let start = Instant::now();
    for _ in 0..times {
        collection.append(fields.clone()).expect("there is room");
    }
    start.elapsed()
}

fn floor(durability: Durability, times: u64) -> Duration {
    let data_set = DataSet::copy_into(folder()).expect("the folder takes files");
    let end = data_set.bytes().trim_ascii_end();
    let newline = end.iter().rposition(|byte| *byte == b'\n').expect("there are many lines");
    let line = &data_set.bytes()[newline + 1..];
    let mut file = OpenOptions::new().append(true).open(data_set.file()).expect("the copy is there");
    let start = Instant::now();
    for _ in 0..times {
        file.write_all(line).expect("there is room");
        if durability == Durability::Sync {
            file.sync_data().expect("the disk works");
        }
    }
    start.elapsed()
}
