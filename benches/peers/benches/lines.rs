//! The contests under criterion: a group a line, a benchmark a contestant.

use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::Criterion;
use linekeep_peers::contests::{ALL, Size};

fn main() {
    // What is measured in a process of its own starts this program again.
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, child, what, folder] = arguments.as_slice()
        && child == "child"
    {
        return linekeep_peers::child::run(what, Path::new(folder));
    }
    let toy = std::env::var("LINEKEEP_BENCH_TOY").is_ok_and(|value| value == "1");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let size = Size { folder, toy };
    let mut criterion = Criterion::default().configure_from_args();
    if toy {
        criterion = criterion
            .sample_size(10)
            .warm_up_time(Duration::from_millis(1))
            .measurement_time(Duration::from_millis(10));
    } else {
        criterion = criterion.sample_size(20).measurement_time(Duration::from_secs(3));
    }
    for (_, make) in ALL {
        let contest = make(&size);
        let mut group = criterion.benchmark_group(format!("{} {}", contest.id, contest.what));
        for mut contestant in contest.contestants {
            group.bench_function(contestant.name, |bencher| {
                // One iteration is one step; the figure is for one operation of it.
                bencher.iter_custom(|steps| {
                    let ns: f64 = (0..steps).map(|_| (contestant.step)()).sum();
                    Duration::from_nanos(ns.round() as u64)
                });
            });
        }
        group.finish();
    }
    criterion.final_summary();
}
