//! What other parsers and a mapping would bring: every line of the data set parsed, and a large file looked through.

use std::fs::File;
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use linekeep_benches::DataSet;
use linekeep_engine::{Durability, Fields};

fn main() {
    let toy = std::env::var("LINEKEEP_BENCH_TOY").is_ok_and(|value| value == "1");
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    if toy {
        criterion =
            criterion.warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_millis(10));
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let data_set = DataSet::copy_into(folder).expect("the folder takes files");
    lines(&mut criterion, &data_set);
    large_file(&mut criterion, folder, data_set.bytes(), if toy { 1 } else { 20 });
    criterion.final_summary();
}

/// Each line to something that the id and one field can be taken from.
fn lines(criterion: &mut Criterion, data_set: &DataSet) {
    let bytes = data_set.bytes();
    let lines = || bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut group = criterion.benchmark_group("parse 27,000 lines");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("linekeep, image with its index of ids", |bencher| {
        bencher.iter(|| {
            let collection = data_set.open(Durability::Sync).expect("the copy is a collection");
            collection.query(&Fields::new(), 0).expect("the file is read").count()
        });
    });
    group.bench_function("serde_json, to values", |bencher| {
        bencher.iter(|| {
            lines()
                .map(|line| {
                    serde_json::from_slice::<serde_json::Value>(line).expect("JSON")["id"].is_string()
                })
                .filter(|it| *it)
                .count()
        });
    });
    group.bench_function("simd-json, to a tape", |bencher| {
        let mut line_of = Vec::new();
        let mut buffers = simd_json::Buffers::default();
        bencher.iter(|| {
            lines()
                .map(|line| {
                    // It writes into its input, so the file's bytes have to be copied.
                    line_of.clear();
                    line_of.extend_from_slice(line);
                    simd_json::to_tape_with_buffers(&mut line_of, &mut buffers).expect("JSON").0.len()
                })
                .sum::<usize>()
        });
    });
    group.bench_function("sonic-rs, to values", |bencher| {
        bencher.iter(|| lines().filter(|line| sonic_rs::from_slice::<sonic_rs::Value>(line).is_ok()).count());
    });
    group.bench_function("sonic-rs, id and list only", |bencher| {
        bencher.iter(|| {
            lines()
                .filter(|line| {
                    let id = sonic_rs::get(*line, ["id"]).expect("it has one");
                    let list = sonic_rs::get(*line, ["list"]).expect("it has one");
                    black_box(id.as_raw_str().len() + list.as_raw_str().len()) > 0
                })
                .count()
        });
    });
    group.finish();
}

/// A file of many times the usual size, looked through once: read into memory, or mapped.
fn large_file(criterion: &mut Criterion, folder: &Path, bytes: &[u8], times: usize) {
    let path = folder.join("large.jsonl");
    let mut file = File::create(&path).expect("the folder takes files");
    for _ in 0..times {
        file.write_all(bytes).expect("there is room");
    }
    let mut group = criterion.benchmark_group(format!("look through {} MB", times * bytes.len() / 1_000_000));
    group.throughput(Throughput::Bytes((times * bytes.len()) as u64));
    let newlines = |bytes: &[u8]| memchr::memchr_iter(b'\n', bytes).count();
    group.bench_function("read whole, newlines", |bencher| {
        bencher.iter(|| newlines(&std::fs::read(&path).expect("it is there")));
    });
    group.bench_function("mapped, newlines", |bencher| {
        bencher.iter(|| newlines(&mapped(&path)));
    });
    let parsed = |bytes: &[u8]| {
        bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok())
            .count()
    };
    group.bench_function("read whole, each line checked", |bencher| {
        bencher.iter(|| parsed(&std::fs::read(&path).expect("it is there")));
    });
    group.bench_function("mapped, each line checked", |bencher| {
        bencher.iter(|| parsed(&mapped(&path)));
    });
    group.finish();
    std::fs::remove_file(&path).expect("it is there");
}

fn mapped(path: &Path) -> memmap2::Mmap {
    let file = File::open(path).expect("it is there");
    // SAFETY: nobody else has this file, so nobody cuts it short.
    unsafe { memmap2::Mmap::map(&file) }.expect("it can be mapped")
}
