//! Queries over 27,000 records: by a field that one in twenty has, by id, and the first one of a store.
//!
//! Floors: the copy of the 200 records that are returned; one look at the path; the read, a search for the value's
//! bytes, and a parse of the lines that have them.

use std::hint::black_box;

use criterion::Criterion;
use linekeep_benches::{DataSet, LIMIT, LIST};
use linekeep_engine::{Durability, Fields};
use memchr::memmem;

use crate::folder;

pub(crate) fn benches(criterion: &mut Criterion) {
    let data_set = DataSet::copy_into(folder()).expect("the folder takes files");
    let by_list = filter("list", LIST);
    let warm = data_set.open_warm(Durability::Sync).expect("the copy is a collection");

    let mut group = criterion.benchmark_group("query");
    let found = warm.query(&by_list, LIMIT).expect("the file is read");
    assert!(found.len() == LIMIT && found.count() > 1_000, "{found:?}");
    group.bench_function("warm_by_list/linekeep", |bencher| {
        bencher.iter(|| warm.query(black_box(&by_list), LIMIT).expect("the file is read"));
    });
    let returned: Vec<&[u8]> = hits(data_set.bytes()).into_iter().take(LIMIT).collect();
    assert!(found.iter().eq(returned.iter().copied()), "the floor finds the same records");
    group.bench_function("warm_by_list/floor", |bencher| bencher.iter(|| black_box(&returned).concat()));

    let ids = data_set.ids();
    let by_id = filter("id", ids[ids.len() / 2]);
    assert_eq!(warm.query(&by_id, LIMIT).expect("the file is read").count(), 1);
    group.bench_function("warm_by_id/linekeep", |bencher| {
        bencher.iter(|| warm.query(black_box(&by_id), LIMIT).expect("the file is read"));
    });
    let file = data_set.file();
    group.bench_function("warm_by_id/floor", |bencher| {
        bencher.iter(|| std::fs::symlink_metadata(black_box(&file)).expect("the file is there"));
    });

    group.bench_function("cold_by_list/linekeep", |bencher| {
        bencher.iter(|| {
            let cold = data_set.open(Durability::Sync).expect("the copy is a collection");
            cold.query(black_box(&by_list), LIMIT).expect("the file is read")
        });
    });
    group.bench_function("cold_by_list/floor", |bencher| {
        bencher.iter(|| {
            let bytes = std::fs::read(black_box(&file)).expect("the file is there");
            hits(&bytes).concat()
        });
    });
    group.finish();
}

fn filter(key: &str, value: &str) -> Fields {
    Fields::parse(format!("{{\"{key}\":\"{value}\"}}").as_bytes()).expect("an object")
}

/// The lines whose `list` is the one asked for: searched as bytes, then parsed to be sure.
fn hits(bytes: &[u8]) -> Vec<&[u8]> {
    let needle = format!("\"{LIST}\"");
    let mut hits = Vec::new();
    let mut after = 0;
    for at in memmem::find_iter(bytes, needle.as_bytes()) {
        if at < after {
            continue;
        }
        let start = memchr::memrchr(b'\n', &bytes[..at]).map_or(0, |newline| newline + 1);
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |length| at + length);
        after = end;
        let record: serde_json::Value = serde_json::from_slice(&bytes[start..end]).expect("a line of JSON");
        if record["list"] == LIST {
            hits.push(&bytes[start..end]);
        }
    }
    hits
}
