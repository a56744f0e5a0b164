//! One contest for each line of the table: who takes part, what a step is, and what we mean to reach.
//!
//! A step of a contestant is a fixed number of operations and returns nanoseconds for one. The drivers decide how often
//! and in which order steps are made: the table lets the contestants take turns, since the speed of a sync drifts.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use linekeep_benches::{DataSet, TASK, priority, uncapped};
use linekeep_engine::{Durability, Fields, FileDisk, Options, RecordId, Store};
use tempfile::TempDir;

use crate::counting::CountingDisk;
use crate::crew::{Crew, Job};
use crate::stores::{Fjall, Linekeep, Peer, Redb, Sqlite};
use crate::{child, floor};

/// How many writers there are where there are many.
pub const WRITERS: usize = 64;

/// Somebody who takes part.
pub struct Contestant {
    /// The name in the table.
    pub name: &'static str,
    /// A number of operations; nanoseconds for one.
    pub step: Box<dyn FnMut() -> f64>,
}

/// A bar: our time is at most so many times another's.
#[derive(Debug, Clone, Copy)]
pub struct Bar {
    /// Whose time is compared.
    pub ours: &'static str,
    /// With whose.
    pub theirs: &'static str,
    /// The most that `ours / theirs` may be.
    pub ratio_max: f64,
}

/// One line of the table.
pub struct Contest {
    /// `P1` and so on.
    pub id: &'static str,
    /// What is measured.
    pub what: &'static str,
    /// Who takes part, ourselves first.
    pub contestants: Vec<Contestant>,
    /// What we mean to reach.
    pub bars: Vec<Bar>,
    /// What there is to say besides, when all is measured.
    pub note: Option<Box<dyn Fn() -> String>>,
}

/// How large the contests are.
#[derive(Debug, Clone)]
pub struct Size {
    /// Where the files lie.
    pub folder: PathBuf,
    /// To see that they run; the figures mean nothing.
    pub toy: bool,
}

impl Size {
    fn ops(&self, full: usize) -> usize {
        if self.toy { full.div_ceil(20) } else { full }
    }

    fn temp(&self) -> TempDir {
        tempfile::tempdir_in(&self.folder).expect("the folder takes files")
    }
}

/// Makes a contest; it goes with all its files.
pub type Make = fn(&Size) -> Contest;

/// All contests, by the line of the table.
pub const ALL: [(&str, Make); 10] = [
    ("P1", append_sync),
    ("P2", append_flush),
    ("P3", append_many_writers),
    ("P4", query_warm),
    ("P5", query_first),
    ("P6", query_by_id),
    ("P7", update_one),
    ("P7", delete_one),
    ("P8", update_many_at_once),
    ("P9", append_many_collections),
];

fn copy(folder: &Path) -> DataSet {
    DataSet::copy_into(folder).expect("the folder takes files")
}

fn timed(ops: usize, mut op: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..ops {
        op();
    }
    start.elapsed().as_nanos() as f64 / ops as f64
}

/// A store, and the folder that it lies in.
struct Housed<P> {
    peer: P,
    data_set: DataSet,
    _folder: TempDir,
}

fn house<P>(size: &Size, open: impl FnOnce(&Path, &DataSet) -> P) -> Arc<Housed<P>> {
    let folder = size.temp();
    let data_set = copy(folder.path());
    Arc::new(Housed { peer: open(folder.path(), &data_set), data_set, _folder: folder })
}

fn linekeep(size: &Size, durability: Durability) -> Arc<Housed<Linekeep>> {
    house(size, |_, data_set| Linekeep::new(data_set, durability))
}

fn sqlite(size: &Size, full: bool, index: bool) -> Arc<Housed<Sqlite>> {
    house(size, |folder, data_set| Sqlite::new(folder, data_set, full, index))
}

fn redb(size: &Size, sync: bool) -> Arc<Housed<Redb>> {
    house(size, |folder, data_set| Redb::new(folder, data_set, sync))
}

fn fjall(size: &Size, sync: bool) -> Arc<Housed<Fjall>> {
    house(size, |folder, data_set| Fjall::new(folder, data_set, sync))
}

fn contestant<P: 'static>(
    name: &'static str,
    ops: usize,
    housed: Arc<Housed<P>>,
    mut op: impl FnMut(&Housed<P>) + 'static,
) -> Contestant {
    Contestant { name, step: Box::new(move || timed(ops, || op(&housed))) }
}

/// One operation on the next of the data set's ids, far from the one before.
fn each_id<P: Peer + 'static>(
    name: &'static str,
    ops: usize,
    housed: Arc<Housed<P>>,
    op: impl Fn(&P, &str, u64) + 'static,
) -> Contestant {
    const STRIDE: usize = 7_919;
    let ids: Vec<String> = housed.data_set.ids().into_iter().map(str::to_owned).collect();
    let mut turn = 0;
    contestant(name, ops, housed, move |housed| {
        turn += 1;
        op(&housed.peer, &ids[turn * STRIDE % ids.len()], turn as u64);
    })
}

fn bar(ours: &'static str, theirs: &'static str, ratio_max: f64) -> Bar {
    Bar { ours, theirs, ratio_max }
}

/// Appends, each its own.
fn appends<P: Peer + 'static>(name: &'static str, ops: usize, housed: Arc<Housed<P>>) -> Contestant {
    contestant(name, ops, housed, |it| it.peer.append())
}

/// The floor of appends: so many lines in each write.
fn raw_appends(size: &Size, name: &'static str, ops: usize, lines: usize, sync: bool) -> Contestant {
    let folder = size.temp();
    let file = floor::open(&folder.path().join("raw")).expect("the folder takes files");
    let text = floor::LINE.repeat(lines);
    let step = move || {
        let _folder = &folder;
        timed(ops, || floor::append(&file, &text, sync).expect("there is room")) / lines as f64
    };
    Contestant { name, step: Box::new(step) }
}

fn append_sync(size: &Size) -> Contest {
    let ops = size.ops(20);
    Contest {
        id: "P1",
        what: "append, 1 writer, sync",
        contestants: vec![
            appends("linekeep", ops, linekeep(size, Durability::Sync)),
            raw_appends(size, "one line + fdatasync", ops, 1, true),
            appends("SQLite FULL", ops, sqlite(size, true, false)),
            appends("redb", ops, redb(size, true)),
            appends("fjall", ops, fjall(size, true)),
        ],
        bars: vec![bar("linekeep", "one line + fdatasync", 1.25), bar("linekeep", "SQLite FULL", 1.0)],
        note: None,
    }
}

fn append_flush(size: &Size) -> Contest {
    let ops = size.ops(4_000);
    Contest {
        id: "P2",
        what: "append, 1 writer, flush",
        contestants: vec![
            appends("linekeep", ops, linekeep(size, Durability::Flush)),
            appends("SQLite NORMAL", ops, sqlite(size, false, false)),
            raw_appends(size, "one line", ops, 1, false),
            appends("redb", ops, redb(size, false)),
            appends("fjall", ops, fjall(size, false)),
        ],
        bars: vec![bar("linekeep", "SQLite NORMAL", 0.5)],
        note: None,
    }
}

/// Many threads, each with its own appends.
fn crew_of<P: Peer + Send + 'static>(
    name: &'static str,
    crew: &Rc<Crew>,
    each: usize,
    housed: Arc<Housed<P>>,
) -> Contestant
where
    Housed<P>: Send + Sync,
{
    let crew = Rc::clone(crew);
    let job: Job = Arc::new(move |_| (0..each).for_each(|_| housed.peer.append()));
    let ops = (each * WRITERS) as f64;
    Contestant { name, step: Box::new(move || crew.run(&job).as_nanos() as f64 / ops) }
}

fn append_many_writers(size: &Size) -> Contest {
    let each = size.ops(40);
    let crew = Rc::new(Crew::new(WRITERS));
    Contest {
        id: "P3",
        what: "append, 64 writers on one collection, sync",
        contestants: vec![
            crew_of("linekeep", &crew, each, linekeep(size, Durability::Sync)),
            together("SQLite FULL, 64 batched by hand", each, sqlite(size, true, false)),
            crew_of("SQLite FULL, each its own", &crew, size.ops(2), sqlite(size, true, false)),
            raw_appends(size, "64 lines in one write + fdatasync", each, WRITERS, true),
            together("redb, 64 batched by hand", each, redb(size, true)),
            together("fjall, 64 batched by hand", each, fjall(size, true)),
        ],
        bars: vec![bar("linekeep", "SQLite FULL, 64 batched by hand", 0.5)],
        note: None,
    }
}

fn together<P: Peer + 'static>(name: &'static str, batches: usize, housed: Arc<Housed<P>>) -> Contestant {
    let step = move || timed(batches, || housed.peer.append_together(WRITERS)) / WRITERS as f64;
    Contestant { name, step: Box::new(step) }
}

fn by_list(housed: &Housed<impl Peer>) {
    let (bytes, count) = housed.peer.by_list();
    assert!(bytes > 20_000 && count == 1_399, "{bytes} {count}");
}

fn query_warm(size: &Size) -> Contest {
    let ops = size.ops(200);
    let ours = linekeep(size, Durability::Sync);
    by_list(&ours);
    Contest {
        id: "P4",
        what: "warm query, 1,399 of 27,000, limit 200 and count",
        contestants: vec![
            contestant("linekeep", ops, ours, by_list),
            contestant("SQLite, its index", ops, sqlite(size, false, true), by_list),
            contestant("SQLite, no index", 1, sqlite(size, false, false), by_list),
            contestant("redb, index by hand", ops, redb(size, true), by_list),
            contestant("fjall, index by hand", size.ops(40), fjall(size, true), by_list),
        ],
        bars: vec![bar("linekeep", "SQLite, its index", 0.1)],
        note: None,
    }
}

fn query_first(size: &Size) -> Contest {
    let in_child = |name, what: &'static str, folder: PathBuf, keep: Box<dyn std::any::Any>| Contestant {
        name,
        step: Box::new(move || {
            let _keep = &keep;
            child::measure(what, &folder)[0]
        }),
    };
    let (ours, raw) = (copy(&size.folder), copy(&size.folder));
    let database = |index| {
        let folder = size.temp();
        drop(Sqlite::new(folder.path(), &copy(folder.path()), true, index));
        (folder.path().to_path_buf(), Box::new(folder))
    };
    let (indexed, plain) = (database(true), database(false));
    Contest {
        id: "P5",
        what: "first query of a process, the same",
        contestants: vec![
            in_child("linekeep", "first-linekeep", ours.folder().to_path_buf(), Box::new(ours)),
            in_child(
                "read + memmem + parse of the hits",
                "first-floor",
                raw.folder().to_path_buf(),
                Box::new(raw),
            ),
            in_child("SQLite, stored index", "first-sqlite", indexed.0, indexed.1),
            in_child("SQLite, no index", "first-sqlite", plain.0, plain.1),
        ],
        bars: vec![bar("linekeep", "read + memmem + parse of the hits", 2.0)],
        note: None,
    }
}

fn query_by_id(size: &Size) -> Contest {
    let ops = size.ops(2_000);
    let raw = copy(&size.folder);
    fn by_id<P: Peer + 'static>(name: &'static str, ops: usize, housed: Arc<Housed<P>>) -> Contestant {
        each_id(name, ops, housed, |peer, id, _| assert!(peer.by_id(id) > 100))
    }
    Contest {
        id: "P6",
        what: "warm query by id",
        contestants: vec![
            by_id("linekeep", ops, linekeep(size, Durability::Sync)),
            by_id("SQLite", ops, sqlite(size, false, false)),
            Contestant {
                name: "one stat",
                step: Box::new(move || {
                    let file = raw.file();
                    timed(ops, || assert!(std::fs::symlink_metadata(&file).is_ok()))
                }),
            },
            by_id("redb", ops, redb(size, true)),
            by_id("fjall", ops, fjall(size, true)),
        ],
        bars: vec![bar("linekeep", "SQLite", 1.0)],
        note: None,
    }
}

fn replace(size: &Size) -> Contestant {
    let data_set = copy(&size.folder);
    Contestant {
        name: "temp file, sync, rename, sync of the folder",
        step: Box::new(move || {
            timed(1, || floor::replace(data_set.folder(), data_set.bytes()).expect("there is room"))
        }),
    }
}

fn update_one(size: &Size) -> Contest {
    fn update<P: Peer + 'static>(name: &'static str, housed: Arc<Housed<P>>) -> Contestant {
        each_id(name, 1, housed, |peer, id, value| peer.update(id, value))
    }
    Contest {
        id: "P7",
        what: "update of one of 27,000 (4.84 MB), sync",
        contestants: vec![
            update("linekeep", linekeep(size, Durability::Sync)),
            replace(size),
            update("SQLite FULL", sqlite(size, true, false)),
            update("redb", redb(size, true)),
            update("fjall", fjall(size, true)),
        ],
        bars: vec![bar("linekeep", "temp file, sync, rename, sync of the folder", 1.15)],
        note: None,
    }
}

fn delete_one(size: &Size) -> Contest {
    let delete = |peer: &Linekeep, id: &str, _| {
        let id: RecordId = id.parse().expect("an id");
        peer.collection().delete(id).expect("the record is there");
    };
    Contest {
        id: "P7",
        what: "delete of one of 27,000 (4.84 MB), sync",
        contestants: vec![each_id("linekeep", 1, linekeep(size, Durability::Sync), delete), replace(size)],
        bars: vec![bar("linekeep", "temp file, sync, rename, sync of the folder", 1.15)],
        note: None,
    }
}

fn update_many_at_once(size: &Size) -> Contest {
    fn batch<P: Peer + 'static>(name: &'static str, housed: Arc<Housed<P>>) -> Contestant {
        let mut value = 0;
        let step = move || {
            value += 1;
            let ids: Vec<&str> = housed.data_set.ids().into_iter().step_by(401).take(WRITERS).collect();
            timed(1, || housed.peer.update_together(&ids, value)) / WRITERS as f64
        };
        Contestant { name, step: Box::new(step) }
    }
    let crew = Rc::new(Crew::new(WRITERS));
    let data_set = copy(&size.folder);
    let ids: Vec<RecordId> =
        data_set.ids().into_iter().step_by(401).map(|id| id.parse().expect("an id")).collect();
    let disk = Arc::new(CountingDisk::new(FileDisk));
    let options = Options { disk: Arc::clone(&disk) as _, ..uncapped() };
    let store = Store::open(data_set.folder(), options).expect("the folder is there");
    let collection = store.collection("", &"tasks".parse().expect("a name")).expect("a collection");
    collection.query(&Fields::new(), 0).expect("the file is read");
    let turn = Arc::new(AtomicU64::new(0));
    let job: Job = {
        let turn = Arc::clone(&turn);
        Arc::new(move |number| {
            let value = turn.load(Ordering::SeqCst);
            collection.update(ids[number].clone(), priority(value)).expect("the record is there");
        })
    };
    let most = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&most);
    let ours = Contestant {
        name: "linekeep, 64 threads",
        step: Box::new(move || {
            let _data_set = &data_set;
            turn.fetch_add(1, Ordering::SeqCst);
            let before = disk.replaced();
            let elapsed = crew.run(&job);
            most.fetch_max(disk.replaced() - before, Ordering::SeqCst);
            elapsed.as_nanos() as f64 / WRITERS as f64
        }),
    };
    Contest {
        id: "P8",
        what: "64 updates at once on one collection, sync",
        contestants: vec![
            ours,
            batch("linekeep, one call", linekeep(size, Durability::Sync)),
            batch("SQLite FULL, 64 batched by hand", sqlite(size, true, false)),
            batch("redb, 64 batched by hand", redb(size, true)),
            batch("fjall, 64 batched by hand", fjall(size, true)),
        ],
        bars: Vec::new(),
        note: Some(Box::new(move || {
            let most = counted.load(Ordering::SeqCst);
            let verdict = if most <= 3 { "met" } else { "MISSED" };
            format!("rewrites for 64 updates: at most {most}; bar 3: {verdict}")
        })),
    }
}

fn append_many_collections(size: &Size) -> Contest {
    let each = size.ops(20);
    let crew = Rc::new(Crew::new(WRITERS));
    let folder = size.temp();
    let store = Store::open(folder.path(), Options::default()).expect("the folder is there");
    let collections: Vec<_> = (0..WRITERS)
        .map(|number| {
            store.collection("", &format!("c{number}").parse().expect("a name")).expect("a collection")
        })
        .collect();
    let files: Vec<_> = (0..WRITERS)
        .map(|number| floor::open(&folder.path().join(format!("raw{number}"))).expect("it takes files"))
        .collect();
    let fields = Fields::parse(TASK.as_bytes()).expect("an object");
    let ours: Job = Arc::new(move |number| {
        for _ in 0..each {
            collections[number].append(fields.clone()).expect("the record is kept");
        }
    });
    let raw: Job = Arc::new(move |number| {
        for _ in 0..each {
            floor::append(&files[number], floor::LINE, true).expect("there is room");
        }
    });
    let ops = (each * WRITERS) as f64;
    let folder = Arc::new(folder);
    let by = |name, job: Job| {
        let (crew, folder) = (Rc::clone(&crew), Arc::clone(&folder));
        let step = move || {
            let _folder = &folder;
            crew.run(&job).as_nanos() as f64 / ops
        };
        Contestant { name, step: Box::new(step) }
    };
    Contest {
        id: "P9",
        what: "append, 64 writers on 64 collections, sync",
        contestants: vec![by("linekeep", ours), by("the same on raw files", raw)],
        bars: vec![bar("linekeep", "the same on raw files", 1.0 / 0.9)],
        note: None,
    }
}
