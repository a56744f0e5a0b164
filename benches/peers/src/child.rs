//! What is measured in a process of its own: the first query, and memory.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use linekeep_benches::{LIMIT, LIST};
use linekeep_engine::{Collection, Durability, Fields};

use crate::floor;
use crate::stores::{Peer as _, Sqlite};

/// Runs this program again as a child that measures one thing, and returns the numbers that it prints.
///
/// # Panics
/// When the child fails.
pub fn measure(what: &str, folder: &Path) -> Vec<f64> {
    let program = std::env::var_os("LINEKEEP_PEERS")
        .map_or_else(|| std::env::current_exe().expect("this program has a path"), std::path::PathBuf::from);
    let child = Command::new(program).args(["child", what]).arg(folder).output().expect("it starts");
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(
        child.status.success(),
        "child {what}: {} {}",
        child.status,
        String::from_utf8_lossy(&child.stderr)
    );
    text.split_whitespace().map(|number| number.parse().expect("a number")).collect()
}

/// The child's side: measures and prints.
///
/// # Panics
/// When what it asks for is not there.
pub fn run(what: &str, folder: &Path) {
    let by_list = Fields::parse(format!("{{\"list\":\"{LIST}\"}}").as_bytes()).expect("an object");
    let start = Instant::now();
    let count = match what {
        "first-linekeep" => collection(folder).query(&by_list, LIMIT).expect("the file is read").count(),
        "first-floor" => floor::first_query(&folder.join("tasks.jsonl")).expect("the file is read").1,
        "first-sqlite" => Sqlite::open(folder, true).by_list().1,
        "memory-idle" => {
            let _store = collection(folder);
            return tell_memory();
        }
        "memory-hot" => {
            let tasks = collection(folder);
            for _ in 0..3 {
                tasks.query(&by_list, LIMIT).expect("the file is read");
            }
            return tell_memory();
        }
        other => panic!("there is no measurement {other:?}"),
    };
    let elapsed = start.elapsed();
    assert!(count > 1_000, "{count}");
    println!("{}", elapsed.as_nanos());
}

fn collection(folder: &Path) -> Collection {
    linekeep_benches::open(folder, Durability::Sync).expect("the folder is there")
}

/// Resident memory now and at its highest, in KiB.
fn tell_memory() {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let of = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key)).expect("Linux tells");
        line.split_whitespace().nth(1).expect("a number").to_owned()
    };
    println!("{} {}", of("VmRSS:"), of("VmHWM:"));
}
