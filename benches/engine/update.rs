//! Update, one writer: one record of 27,000, so the whole file is replaced.
//!
//! Floor: the same bytes from memory to a temp file, the sync, the rename, the sync of the folder; without the syncs
//! for flush.

use std::fs::{self, File};
use std::io::Write as _;
use std::time::{Duration, Instant};

use criterion::Criterion;
use linekeep_benches::{DataSet, RECORDS};
use linekeep_engine::{Durability, Fields, RecordId};

use crate::folder;

/// Walks over all records without a pattern that a cache could follow; prime, and no divisor of their number.
const STRIDE: usize = 7_919;

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("update");
    for (durability, name) in [(Durability::Sync, "sync"), (Durability::Flush, "flush")] {
        group.bench_function(format!("{name}/linekeep"), |bencher| {
            bencher.iter_custom(|times| linekeep(durability, times));
        });
        group.bench_function(format!("{name}/floor"), |bencher| {
            bencher.iter_custom(|times| floor(durability, times));
        });
    }
    group.finish();
}

fn linekeep(durability: Durability, times: u64) -> Duration {
    let data_set = DataSet::copy_into(folder()).expect("the folder takes files");
    let collection = data_set.open_warm(durability).expect("the copy is a collection");
    let ids: Vec<RecordId> = data_set.ids().into_iter().map(|id| id.parse().expect("an id")).collect();
    assert_eq!(ids.len(), RECORDS);
    let mut place = 0;
    let start = Instant::now();
    for time in 0..times {
        place = (place + STRIDE) % ids.len();
        let fields = Fields::parse(format!("{{\"priority\":{time}}}").as_bytes()).expect("an object");
        collection.update(ids[place].clone(), fields).expect("the record is there");
    }
    start.elapsed()
}

fn floor(durability: Durability, times: u64) -> Duration {
    let data_set = DataSet::copy_into(folder()).expect("the folder takes files");
    let (file, temp) = (data_set.file(), data_set.folder().join("tasks.tmp"));
    let start = Instant::now();
    for _ in 0..times {
        let mut new = File::create_new(&temp).expect("the name is free");
        new.write_all(data_set.bytes()).expect("there is room");
        if durability == Durability::Sync {
            new.sync_data().expect("the disk works");
        }
        fs::rename(&temp, &file).expect("both lie in one folder");
        if durability == Durability::Sync {
            File::open(data_set.folder()).and_then(|folder| folder.sync_all()).expect("the disk works");
        }
    }
    start.elapsed()
}
