//! Single faults, each with the one right outcome; and what threads see of each other.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use linekeep_engine::{
    Collection, CollectionName, Disk, DiskFile, Error, Fields, FileDisk, Op, Open, Options, Outcome, Stat,
    Store, System,
};
use linekeep_tests::sim::{Edit, Fault, Keep, Save, SimDisk, SimSystem, What};

const FILE: &str = "/root/c.jsonl";

fn open(disk: &SimDisk) -> Collection {
    open_as(disk, 1)
}

/// Opens as one of several processes, which draw other random bytes.
fn open_as(disk: &SimDisk, process: u64) -> Collection {
    open_with(Options {
        disk: Arc::new(disk.clone()),
        system: Arc::new(SimSystem::new(process)),
        ..Options::default()
    })
}

fn open_with(options: Options) -> Collection {
    let store = Store::open(Path::new("/root"), options).unwrap();
    store.collection("", &"c".parse::<CollectionName>().unwrap()).unwrap()
}

fn fields(json: &str) -> Fields {
    Fields::parse(json.as_bytes()).unwrap()
}

/// The number of the first call whose log line starts so, when the operation runs without a fault on a warm collection.
fn call_number(disk: &SimDisk, collection: &Collection, op: Op, verb: &str) -> u64 {
    collection.append(Fields::new()).unwrap();
    disk.arm(None);
    collection.run(op).unwrap();
    let log = disk.log();
    log.iter().position(|line| line.starts_with(verb)).unwrap_or_else(|| panic!("no {verb} in {log:?}"))
        as u64
}

#[test]
fn a_short_write_is_cut_off_again_and_names_the_file() {
    let disk = SimDisk::new(Path::new("/root"));
    disk.place(Path::new(FILE), b"{\"id\":\"a\"}\n");
    let collection = open(&disk);
    let append = || Op::Append { fields: fields(r#"{"n":1}"#) };
    let write = call_number(&disk, &collection, append(), "write");
    let before = disk.content(Path::new(FILE));
    disk.arm(Some(Fault { call: write, what: What::OnceHalf }));
    let error = collection.run(append()).unwrap_err();
    assert!(matches!(&error, Error::Io { operation: "write", .. }), "{error}");
    assert!(error.to_string().contains(FILE) && error.to_string().contains("bytes were taken"), "{error}");
    assert_eq!(disk.content(Path::new(FILE)), before);
    collection.run(append()).unwrap();
}

#[test]
fn a_failed_sync_is_not_retried_into_success() {
    let disk = SimDisk::new(Path::new("/root"));
    disk.place(Path::new(FILE), b"{\"id\":\"a\"}\n");
    let collection = open(&disk);
    let ops = [
        Op::Append { fields: fields(r#"{"n":1}"#) },
        Op::Update { id: "a".parse().unwrap(), fields: fields(r#"{"n":1}"#) },
    ];
    for op in ops {
        let sync = call_number(&disk, &collection, op.clone(), "sync");
        let before = disk.content(Path::new(FILE)).unwrap();
        let again = match &op {
            Op::Update { id, .. } => Op::Update { id: id.clone(), fields: fields(r#"{"n":2}"#) },
            other => other.clone(),
        };
        disk.arm(Some(Fault { call: sync, what: What::Once }));
        let error = collection.run(again).unwrap_err();
        assert!(matches!(&error, Error::Io { operation: "sync", .. }), "{error}");
        assert_eq!(disk.content(Path::new(FILE)).unwrap(), before, "the failed operation has no effect");
        disk.reboot(Keep::Nothing);
        assert_eq!(disk.content(Path::new(FILE)).unwrap(), before);
    }
}

#[test]
fn a_failed_operation_reads_the_file_again_before_the_next() {
    let disk = SimDisk::new(Path::new("/root"));
    disk.place(Path::new(FILE), b"{\"id\":\"a\"}\n");
    let collection = open(&disk);
    let append = || Op::Append { fields: Fields::new() };
    let sync = call_number(&disk, &collection, append(), "sync");
    disk.arm(Some(Fault { call: sync, what: What::Once }));
    collection.run(append()).unwrap_err();
    disk.arm(None);
    collection.query(&Fields::new(), 1).unwrap();
    assert!(disk.log().iter().any(|line| line == "read c.jsonl"), "{:?}", disk.log());
    disk.arm(None);
    collection.query(&Fields::new(), 1).unwrap();
    assert_eq!(disk.log(), ["stat c.jsonl"], "a warm query is one look");
}

#[test]
fn the_engines_own_writes_cause_no_reading() {
    let disk = SimDisk::new(Path::new("/root")).with_exchange();
    disk.place(Path::new(FILE), b"{\"id\":\"a\"}\n");
    let collection = open(&disk);
    collection.append(Fields::new()).unwrap();
    let ops = [
        Op::Append { fields: Fields::new() },
        Op::Update { id: "a".parse().unwrap(), fields: fields(r#"{"n":1}"#) },
        Op::Append { fields: Fields::new() },
        Op::Delete { id: "a".parse().unwrap() },
    ];
    for op in ops {
        disk.arm(None);
        collection.run(op.clone()).unwrap();
        collection.query(&Fields::new(), 1).unwrap();
        assert!(!disk.log().iter().any(|line| line.starts_with("read")), "{op:?}: {:?}", disk.log());
    }
}

#[test]
fn a_repair_keeps_the_file_as_it_was_at_every_fault() {
    let before = b"{\"id\":\"a\"}{\"id\":\"b\"}\n{torn\n\0\0{\"id\":\"c\"}\n".to_vec();
    let after = b"{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"c\"}\n".to_vec();
    let keeps: Vec<Keep> = (0..8).map(Keep::Some).chain([Keep::All, Keep::Nothing]).collect();
    for what in [What::Once, What::OnceHalf, What::Forever, What::PowerCut] {
        for (exchange, keep) in keeps.iter().flat_map(|keep| [(false, *keep), (true, *keep)]) {
            for call in 0.. {
                let disk = SimDisk::new(Path::new("/root"));
                let disk = if exchange { disk.with_exchange() } else { disk };
                disk.place(Path::new(FILE), &before);
                let collection = open(&disk);
                disk.arm(Some(Fault { call, what }));
                let repaired = collection.repair();
                let fired = disk.fired();
                drop(collection);
                disk.reboot(keep);
                let context = format!("{what:?} at call {call}, {keep:?}: {repaired:?}");
                let now =
                    disk.content(Path::new(FILE)).unwrap_or_else(|| panic!("the file is gone: {context}"));
                let copies: Vec<Vec<u8>> = disk
                    .names(Path::new("/root"))
                    .iter()
                    .filter(|path| path.to_string_lossy().contains("before-repair"))
                    .filter_map(|path| disk.content(path))
                    .collect();
                if now == after {
                    assert_eq!(copies, std::slice::from_ref(&before), "{context}");
                } else {
                    assert_eq!(now, before, "{context}");
                }
                if repaired.is_ok() {
                    assert_eq!(now, after, "{context}");
                }
                // The next process repairs again, and the power goes at each of its calls too.
                for second in 0.. {
                    let disk = disk.fork();
                    let collection = open_as(&disk, 2);
                    disk.arm(Some(Fault { call: second, what: What::PowerCut }));
                    let again = collection.repair();
                    let fired = disk.fired();
                    drop(collection);
                    disk.reboot(keep);
                    let now = disk.content(Path::new(FILE)).unwrap();
                    let context = format!("{context}, then a cut at call {second}: {again:?}");
                    assert!(now == before || now == after, "{context}");
                    if now == after {
                        let names = disk.names(Path::new("/root"));
                        let mut kept =
                            names.iter().filter(|path| path.to_string_lossy().contains("before-repair"));
                        assert!(kept.any(|path| disk.content(path).unwrap() == before), "{context}");
                    }
                    if !fired {
                        assert!(again.is_ok() && now == after, "{context}");
                        break;
                    }
                }
                if !fired {
                    assert!(call > 8, "only {call} calls");
                    break;
                }
            }
        }
    }
}

#[test]
fn only_temp_files_that_are_certainly_dead_are_swept() {
    let disk = SimDisk::new(Path::new("/root"));
    disk.place(Path::new(FILE), b"{\"id\":\"a\"}\n");
    disk.let_live(4001);
    let stat = Disk::stat(&disk, Path::new(FILE)).unwrap();
    let (inode, ns) = (stat.inode, stat.modified_ns);
    let temp = |process: u32| format!("/root/.c.jsonl.{process}-0123456789abcdef-{inode}-{ns}.tmp");
    let (dead, alive, ours) = (temp(4002), temp(4001), temp(std::process::id()));
    // The inode is right and the time is not: it may be anybody's.
    let unknown = format!("/root/.c.jsonl.4002-fedcba9876543210-{inode}-{}.tmp", ns + 1);
    let foreign = ["/root/.d.jsonl.4002-0123456789abcdef-5-5.tmp", "/root/.c.jsonl.swp", "/root/c.jsonl.tmp"];
    for path in [&ours, &dead, &alive, &unknown].into_iter().map(String::as_str).chain(foreign) {
        disk.place(Path::new(path), b"left over");
    }
    open(&disk).append(Fields::new()).unwrap();
    let conflict = "/root/c.jsonl.conflict-fedcba9876543210";
    let mut expected: Vec<&str> = foreign.to_vec();
    expected.extend([FILE, alive.as_str(), conflict]);
    expected.sort_unstable();
    let names = disk.names(Path::new("/root"));
    let mut names: Vec<&str> = names.iter().map(|path| path.to_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(disk.content(Path::new(conflict)).unwrap(), b"left over");
}

/// The real disk, counting the syncs of folders.
struct CountingDisk {
    folder_syncs: AtomicUsize,
}

impl Disk for CountingDisk {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        FileDisk.stat(path)
    }
    fn stat_followed(&self, path: &Path) -> io::Result<Stat> {
        FileDisk.stat_followed(path)
    }
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        FileDisk.open(path, how)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        FileDisk.rename(from, to)
    }
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        FileDisk.exchange(one, other)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        FileDisk.remove(path)
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        FileDisk.create_folder(path)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.folder_syncs.fetch_add(1, Ordering::SeqCst);
        FileDisk.sync_folder(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<std::ffi::OsString>> {
        FileDisk.list(path)
    }
    fn process_alive(&self, id: u32) -> bool {
        FileDisk.process_alive(id)
    }
}

#[test]
fn a_file_made_again_under_the_same_inode_gets_its_name_synced_again() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = Arc::new(CountingDisk { folder_syncs: AtomicUsize::new(0) });
    let options = Options { disk: Arc::clone(&disk) as _, ..Options::default() };
    let store = Store::open(folder.path(), options).unwrap();
    let collection = store.collection("", &"c".parse().unwrap()).unwrap();
    for round in 0..20 {
        let before = disk.folder_syncs.load(Ordering::SeqCst);
        collection.append(Fields::new()).unwrap();
        assert!(disk.folder_syncs.load(Ordering::SeqCst) > before, "round {round}");
        let before = disk.folder_syncs.load(Ordering::SeqCst);
        collection.append(Fields::new()).unwrap();
        assert_eq!(disk.folder_syncs.load(Ordering::SeqCst), before, "the name is durable by now");
        std::fs::remove_file(collection.path()).unwrap();
    }
}

#[test]
fn an_answer_that_writes_nothing_still_confirms_only_what_is_durable() {
    let disk = SimDisk::new(Path::new("/root"));
    disk.place(Path::new(FILE), b"{\"id\":\"a\",\"n\":1}\n");
    let collection = open(&disk);
    let update = || Op::Update { id: "a".parse().unwrap(), fields: fields(r#"{"n":1}"#) };
    disk.arm(None);
    collection.run(update()).unwrap();
    assert!(disk.log().contains(&"sync c.jsonl".to_owned()), "whoever wrote it may not have synced it");
    disk.arm(None);
    collection.run(update()).unwrap();
    assert!(!disk.log().iter().any(|call| call.starts_with("sync")), "{:?}", disk.log());
}

/// A store on a simulated disk, for tests that take a new handle for every operation, as a gateway does.
fn store_on(disk: &SimDisk) -> Store {
    let options =
        Options { disk: Arc::new(disk.clone()), system: Arc::new(SimSystem::new(1)), ..Options::default() };
    Store::open(Path::new("/root"), options).unwrap()
}

#[test]
fn a_failed_sync_is_remembered_when_the_handle_is_gone() {
    let disk = SimDisk::new(Path::new("/root")).with_exchange();
    disk.place(Path::new(FILE), b"{\"id\":\"a\",\"n\":1}\n");
    let store = store_on(&disk);
    let update = || {
        let collection = store.collection("", &"c".parse().unwrap()).unwrap();
        collection.run(Op::Update { id: "a".parse().unwrap(), fields: fields(r#"{"n":1}"#) })
    };
    // The update changes nothing, so all it does is to make sure of what it confirms; that sync fails.
    let sync = {
        let other = disk.fork();
        let collection = open(&other);
        other.arm(None);
        collection.run(Op::Update { id: "a".parse().unwrap(), fields: fields(r#"{"n":1}"#) }).unwrap();
        other.log().iter().position(|call| call == "sync c.jsonl").unwrap()
    };
    disk.arm(Some(Fault { call: sync as u64, what: What::Once }));
    update().unwrap_err();
    assert!(disk.fired());
    disk.arm(None);
    update().unwrap();
    assert!(disk.log().contains(&"exchange temp".to_owned()), "the file is written anew: {:?}", disk.log());
    disk.arm(None);
    update().unwrap();
    assert!(!disk.log().contains(&"exchange temp".to_owned()), "once: {:?}", disk.log());
}

#[test]
fn the_second_query_makes_the_image_also_for_callers_that_keep_no_handle() {
    let disk = SimDisk::new(Path::new("/root"));
    disk.place(Path::new(FILE), b"{\"id\":\"a\",\"list\":\"work\"}\n");
    let store = store_on(&disk);
    let reads: Vec<usize> = (0..4)
        .map(|_| {
            disk.arm(None);
            let collection = store.collection("", &"c".parse().unwrap()).unwrap();
            assert_eq!(collection.query(&fields(r#"{"list":"work"}"#), 9).unwrap().count(), 1);
            disk.log().iter().filter(|call| *call == "read c.jsonl").count()
        })
        .collect();
    assert_eq!(reads, [1, 1, 0, 0]);
}

#[test]
fn an_append_is_in_the_file_even_if_it_is_replaced_at_every_try() {
    // The first save keeps our line, the second brings back what was read before it.
    let disk = SimDisk::new(Path::new("/root"));
    disk.place(Path::new(FILE), b"{\"id\":\"a\"}\n");
    for call in 0..60 {
        let disk = disk.fork();
        let collection = open(&disk);
        collection.append(Fields::new()).unwrap();
        disk.arm(None);
        let line = b"{\"id\":\"edited\"}\n".to_vec();
        disk.arm_edit(Edit { call, path: FILE.into(), line, how: Save::Rename });
        let before = disk.content(Path::new(FILE)).unwrap();
        disk.revert_at(call + 6, Path::new(FILE), &before);
        let record = collection.append(fields(r#"{"n":1}"#)).unwrap();
        if disk.revert_is_due() {
            continue;
        }
        let content = disk.content(Path::new(FILE)).unwrap();
        let found = content.windows(record.as_bytes().len()).filter(|it| *it == record.as_bytes()).count();
        assert_eq!(found, 1, "call {call}: {}", String::from_utf8_lossy(&content));
    }
}

#[test]
fn an_index_gives_back_what_its_entries_cost() {
    let disk = SimDisk::new(Path::new("/root")).with_exchange();
    disk.place(Path::new(FILE), b"{\"id\":\"a\",\"n\":0}\n");
    let store = store_on(&disk);
    let collection = store.collection("", &"c".parse().unwrap()).unwrap();
    let count = |n: u32| {
        collection.update("a".parse().unwrap(), fields(&format!("{{\"n\":{n}}}"))).unwrap();
        assert_eq!(collection.query(&fields(&format!("{{\"n\":{n}}}")), 1).unwrap().count(), 1);
    };
    (0..10).for_each(count);
    let before = store.cache_bytes();
    (10..2_000).for_each(count);
    assert!(store.cache_bytes() < before + 1_000, "{before} bytes grew to {}", store.cache_bytes());
}

/// A random source that panics when told to.
struct PanickingSystem {
    armed: AtomicBool,
    system: SimSystem,
}

impl System for PanickingSystem {
    fn unix_ns(&self) -> i128 {
        self.system.unix_ns
    }

    fn random(&self, buffer: &mut [u8]) -> io::Result<()> {
        assert!(!self.armed.swap(false, Ordering::SeqCst), "the random source panics");
        self.system.random(buffer)
    }
}

#[test]
fn a_panic_inside_an_operation_leaves_the_path_usable() {
    let disk = SimDisk::new(Path::new("/root"));
    disk.place(Path::new(FILE), b"{\"id\":\"a\"}\n");
    let system = Arc::new(PanickingSystem { armed: AtomicBool::new(false), system: SimSystem::new(1) });
    let options =
        Options { disk: Arc::new(disk.clone()), system: Arc::clone(&system) as _, ..Options::default() };
    let collection = open_with(options);
    for op in [
        Op::Append { fields: Fields::new() },
        Op::Update { id: "a".parse().unwrap(), fields: fields(r#"{"n":1}"#) },
    ] {
        let before = disk.content(Path::new(FILE));
        system.armed.store(true, Ordering::SeqCst);
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| collection.run(op.clone())));
        assert!(unwound.is_err(), "the panic goes up on the thread whose operation it was");
        assert_eq!(disk.content(Path::new(FILE)), before);
        collection.query(&Fields::new(), 1).unwrap();
        collection.run(op).unwrap();
    }
}

#[test]
fn many_operations_at_once_go_out_together() {
    const WRITERS: usize = 64;
    let disk = SimDisk::new(Path::new("/root")).with_exchange();
    let lines: Vec<String> = (0..WRITERS).map(|number| format!("{{\"id\":\"r{number}\"}}\n")).collect();
    disk.place(Path::new(FILE), lines.concat().as_bytes());
    disk.pause_syncs(Duration::from_millis(100));
    let collection = open(&disk);
    let all_at_once = |op: &(dyn Fn(usize) -> Op + Sync)| {
        disk.arm(None);
        let barrier = Barrier::new(WRITERS);
        std::thread::scope(|scope| {
            for number in 0..WRITERS {
                let (collection, barrier) = (&collection, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    collection.run(op(number)).unwrap();
                });
            }
        });
        disk.log().iter().filter(|line| line.starts_with("sync") && !line.starts_with("sync folder")).count()
    };
    let rewrites = all_at_once(&|number| Op::Update {
        id: format!("r{number}").parse().unwrap(),
        fields: fields(&format!("{{\"n\":{number}}}")),
    });
    assert!(rewrites <= 3, "{rewrites} rewrites for {WRITERS} updates");
    let appends = all_at_once(&|number| Op::Append { fields: fields(&format!("{{\"n\":{number}}}")) });
    assert!(appends <= 3, "{appends} syncs for {WRITERS} appends");
    for number in 0..WRITERS {
        let found = collection.query(&fields(&format!("{{\"n\":{number}}}")), 10).unwrap();
        assert_eq!(found.count(), 2);
    }
}

#[test]
fn a_query_during_a_write_sees_the_state_before_it() {
    let disk = SimDisk::new(Path::new("/root"));
    disk.place(Path::new(FILE), b"{\"id\":\"a\"}\n");
    let collection = open(&disk);
    collection.query(&Fields::new(), 1).unwrap();
    disk.pause_syncs(Duration::from_millis(300));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| collection.append(Fields::new()).unwrap());
        // The bytes are in the file long before the sync is over.
        while disk.content(Path::new(FILE)).unwrap().len() < 20 {
            std::thread::yield_now();
        }
        assert_eq!(collection.query(&Fields::new(), 9).unwrap().count(), 1);
        assert!(!writer.is_finished(), "the sync was over too soon for this test");
        writer.join().unwrap();
        assert_eq!(collection.query(&Fields::new(), 9).unwrap().count(), 2);
    });
}

#[test]
fn one_slow_collection_does_not_hold_up_another() {
    let disk = SimDisk::new(Path::new("/root"));
    disk.pause_syncs(Duration::from_millis(300));
    let options =
        Options { disk: Arc::new(disk.clone()), system: Arc::new(SimSystem::new(1)), ..Options::default() };
    let store = Store::open(Path::new("/root"), options).unwrap();
    let [slow, quick] = ["slow", "quick"].map(|name| store.collection("", &name.parse().unwrap()).unwrap());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| slow.append(Fields::new()).unwrap());
        while disk.content(Path::new("/root/slow.jsonl")).unwrap_or_default().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(quick.query(&Fields::new(), 1).unwrap().count(), 0);
        let missing = quick.delete("x".parse().unwrap()).unwrap_err();
        assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
        assert!(!writer.is_finished(), "the sync was over too soon for this test");
        writer.join().unwrap();
    });
}

#[test]
fn one_failing_operation_of_a_batch_leaves_the_others_alone() {
    let disk = SimDisk::new(Path::new("/root"));
    disk.place(Path::new(FILE), b"{\"id\":\"a\"}\n{\"id\":\"b\"}\n");
    let options = Options {
        collection_bytes_max: 100,
        disk: Arc::new(disk.clone()),
        system: Arc::new(SimSystem::new(1)),
        ..Options::default()
    };
    let collection = open_with(options);
    let big = fields(&format!("{{\"text\":\"{}\"}}", "x".repeat(200)));
    let answers = collection.run_all(vec![
        Op::Update { id: "a".parse().unwrap(), fields: fields(r#"{"n":1}"#) },
        Op::Delete { id: "missing".parse().unwrap() },
        Op::Append { fields: big },
        Op::Delete { id: "b".parse().unwrap() },
        Op::Delete { id: "b".parse().unwrap() },
        Op::Query { filter: Fields::new(), limit: 10 },
    ]);
    let shown: Vec<String> = answers
        .into_iter()
        .map(|answer| match answer {
            Ok(Outcome::Record(record)) => format!("{record:?}"),
            Ok(Outcome::Deleted(id)) => format!("deleted {id}"),
            Ok(Outcome::Records(records)) => format!("{records:?}"),
            Ok(Outcome::Retained(_)) => "retained".to_owned(),
            Err(error) => error.to_string(),
        })
        .collect();
    let expected = [
        r#"{"id":"a","n":1}"#,
        "record 'missing' not found in collection 'c'",
        "append on collection 'c' refused: 293 bytes exceed the limit of 100; delete records to free room",
        "deleted b",
        "record 'b' not found in collection 'c'",
        r#"1 of 1: [{"id":"a","n":1}]"#,
    ];
    assert_eq!(shown, expected);
    assert_eq!(disk.content(Path::new(FILE)).unwrap(), b"{\"id\":\"a\",\"n\":1}\n");
}

#[test]
fn images_never_cost_more_than_their_budget() {
    let disk = SimDisk::new(Path::new("/root"));
    let record = format!("{{\"id\":\"a\",\"text\":\"{}\"}}\n", "x".repeat(1000));
    for number in 0..10 {
        disk.place(Path::new(&format!("/root/c{number}.jsonl")), record.repeat(2_000).as_bytes());
    }
    let options = Options {
        cache_bytes_max: 8 << 20,
        disk: Arc::new(disk.clone()),
        system: Arc::new(SimSystem::new(1)),
        ..Options::default()
    };
    let store = Store::open(Path::new("/root"), options).unwrap();
    for round in 0..30 {
        let name: CollectionName = format!("c{}", round % 10).parse().unwrap();
        let collection = store.collection("", &name).unwrap();
        assert_eq!(collection.query(&Fields::new(), 1).unwrap().count(), 2_000);
        assert!(store.cache_bytes() <= 8 << 20, "{}", store.cache_bytes());
        assert!(store.cache_bytes() >= 2_000_000, "the last one stays");
    }
}
