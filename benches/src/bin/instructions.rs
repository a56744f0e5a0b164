//! One hot operation, a number of times, for a tool that counts instructions. `benches/instructions` runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use linekeep_benches::{DataSet, LIMIT, LIST, TASK, priority};
use linekeep_engine::{Collection, Durability, Fields, Op, RecordId};

/// Each operation by its name: what is made before it, and the operation, which gets the number of its turn.
type Operation = (&'static str, fn(&DataSet) -> Box<dyn FnMut(usize)>);

const OPERATIONS: [Operation; 10] = [
    ("append_flush", append_flush),
    ("append_sync", append_sync),
    ("append_64_in_one_call", append_64),
    ("query_warm_by_list", query_by_list),
    ("query_warm_by_id", query_by_id),
    ("query_first", query_first),
    ("image", image),
    ("image_and_index", image_and_index),
    ("update", update),
    ("update_64_in_one_call", update_64),
];

#[expect(clippy::print_stderr, reason = "the usage of a program")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = || {
        eprintln!("usage: instructions OPERATION TIMES; the operations:");
        for (name, _) in OPERATIONS {
            eprintln!("{name}");
        }
        ExitCode::FAILURE
    };
    let [name, times] = arguments.as_slice() else { return usage() };
    let found = OPERATIONS.iter().find(|(known, _)| known == name);
    let (Some((_, make)), Ok(times)) = (found, times.parse::<usize>()) else { return usage() };
    let folder = std::env::var_os("LINEKEEP_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let data_set = DataSet::copy_into(&folder).expect("the folder takes files");
    let mut operation = make(&data_set);
    for turn in 0..times {
        operation(turn);
    }
    ExitCode::SUCCESS
}

fn open(data_set: &DataSet, durability: Durability) -> Collection {
    data_set.open(durability).expect("the copy is a collection")
}

fn warm(data_set: &DataSet, durability: Durability) -> Collection {
    data_set.open_warm(durability).expect("the copy is a collection")
}

fn parse(json: &str) -> Fields {
    Fields::parse(json.as_bytes()).expect("an object")
}

fn by_list() -> Fields {
    parse(&format!("{{\"list\":\"{LIST}\"}}"))
}

fn ids(data_set: &DataSet) -> Vec<RecordId> {
    data_set.ids().into_iter().map(|id| id.parse().expect("an id")).collect()
}

fn append(data_set: &DataSet, durability: Durability) -> Box<dyn FnMut(usize)> {
    let (collection, task) = (warm(data_set, durability), parse(TASK));
    Box::new(move |_| {
        collection.append(task.clone()).expect("the record is kept");
    })
}

fn append_flush(data_set: &DataSet) -> Box<dyn FnMut(usize)> {
    append(data_set, Durability::Flush)
}

fn append_sync(data_set: &DataSet) -> Box<dyn FnMut(usize)> {
    append(data_set, Durability::Sync)
}

fn append_64(data_set: &DataSet) -> Box<dyn FnMut(usize)> {
    let (collection, task) = (warm(data_set, Durability::Flush), parse(TASK));
    Box::new(move |_| {
        let ops = vec![Op::Append { fields: task.clone() }; 64];
        assert!(collection.run_all(ops).iter().all(Result::is_ok));
    })
}

fn query_by_list(data_set: &DataSet) -> Box<dyn FnMut(usize)> {
    let (collection, filter) = (warm(data_set, Durability::Flush), by_list());
    for _ in 0..2 {
        collection.query(&filter, LIMIT).expect("the file is read");
    }
    Box::new(move |_| {
        collection.query(&filter, LIMIT).expect("the file is read");
    })
}

fn query_by_id(data_set: &DataSet) -> Box<dyn FnMut(usize)> {
    let collection = warm(data_set, Durability::Flush);
    let filter = parse(&format!("{{\"id\":\"{}\"}}", data_set.ids()[13_000]));
    Box::new(move |_| {
        collection.query(&filter, LIMIT).expect("the file is read");
    })
}

/// What `query` costs a collection that was just opened.
fn opened(data_set: &DataSet, query: impl Fn(&Collection) + 'static) -> Box<dyn FnMut(usize)> {
    // A second copy: the first one goes with the caller.
    let data_set = DataSet::copy_into(data_set.folder()).expect("the folder takes files");
    Box::new(move |_| query(&open(&data_set, Durability::Flush)))
}

fn query_first(data_set: &DataSet) -> Box<dyn FnMut(usize)> {
    let filter = by_list();
    opened(data_set, move |collection| {
        collection.query(&filter, LIMIT).expect("the file is read");
    })
}

fn image(data_set: &DataSet) -> Box<dyn FnMut(usize)> {
    opened(data_set, |collection| {
        collection.query(&Fields::new(), 0).expect("the file is read");
    })
}

fn image_and_index(data_set: &DataSet) -> Box<dyn FnMut(usize)> {
    let filter = by_list();
    opened(data_set, move |collection| {
        collection.query(&Fields::new(), 0).expect("the file is read");
        for _ in 0..2 {
            collection.query(&filter, LIMIT).expect("the file is read");
        }
    })
}

fn update(data_set: &DataSet) -> Box<dyn FnMut(usize)> {
    let (collection, ids) = (warm(data_set, Durability::Flush), ids(data_set));
    Box::new(move |turn| {
        collection
            .update(ids[turn * 7_919 % ids.len()].clone(), priority(turn as u64))
            .expect("the record is there");
    })
}

fn update_64(data_set: &DataSet) -> Box<dyn FnMut(usize)> {
    let (collection, ids) = (warm(data_set, Durability::Flush), ids(data_set));
    Box::new(move |turn| {
        let ops = ids.iter().step_by(401).take(64);
        let ops = ops.map(|id| Op::Update { id: id.clone(), fields: priority(turn as u64) }).collect();
        assert!(collection.run_all(ops).iter().all(Result::is_ok));
    })
}
