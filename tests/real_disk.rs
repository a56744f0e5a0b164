//! The engine on the real disk: the order of its system calls, a disk that is full, and what it finds in a folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use linekeep_engine::{
    Collection, CollectionName, Durability, Error, Fields, Options, Record, RecordId, Store, Unsupported,
};
use linekeep_tests::process::binary;

/// Says why a test is not run, or fails where it must run.
pub(crate) fn skip(what: &str, require: &str) {
    assert!(std::env::var_os(require).is_none_or(|value| value != "1"), "{what}, and {require}=1 demands it");
    linekeep_tests::process::tell(&format!("skipped: {what}"));
}

fn open(folder: &Path) -> Collection {
    let store = Store::open(folder, Options::default()).unwrap();
    store.collection("", &"items".parse::<CollectionName>().unwrap()).unwrap()
}

fn fields(json: &str) -> Fields {
    Fields::parse(json.as_bytes()).unwrap()
}

/// The id that the engine gave to a record.
fn id_of(record: &Record) -> RecordId {
    id_in(record.as_bytes())
}

fn id_in(record: &[u8]) -> RecordId {
    std::str::from_utf8(&record[7..19]).unwrap().parse().unwrap()
}

/// The system calls of one command that change something, by file: `write items.jsonl`, and `answer` for standard output.
fn calls_of(folder: &Path, arguments: &[&str]) -> Option<Vec<String>> {
    let log = folder.join("strace.log");
    let traced = Command::new("strace")
        .args(["-f", "-y", "-qq", "-s", "40", "-o"])
        .arg(&log)
        .args(["-e", "trace=openat,write,pwrite64,writev,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,flock,fchmod,ftruncate,mkdir"])
        .arg(binary())
        .args(arguments)
        .current_dir(folder)
        .env_remove("LINEKEEP_LOG")
        .output();
    let traced = traced.ok().filter(|traced| traced.status.success())?;
    assert!(traced.stdout.starts_with(b"{\"ok\":true"), "{traced:?}");
    let log_text = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    let folder = folder.canonicalize().unwrap();
    let name_of = |path: &str| {
        let path = Path::new(path);
        let name = path.file_name()?.to_str()?;
        let inside = path.parent() == Some(&folder)
            || path.parent() == Some(Path::new(""))
            || path.parent() == Some(Path::new("."));
        let folder_itself = path == folder || path == Path::new(".");
        match name {
            _ if folder_itself => Some("folder".to_owned()),
            name if inside && Path::new(name).extension().is_some_and(|it| it == "tmp") => {
                Some("temp".to_owned())
            }
            name if inside => Some(name.to_owned()),
            _ => None,
        }
    };
    let mut calls = Vec::new();
    for line in log_text.lines() {
        let Some((_, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        let Some((verb, rest)) = call.split_once('(') else { continue };
        // The file of a descriptor stands in <>, a path in quotes.
        let described = rest.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| path);
        let quoted: Vec<&str> = rest.split('"').skip(1).step_by(2).collect();
        match verb {
            "openat" if rest.contains("O_CREAT") => {
                calls.extend(quoted.first().and_then(|it| name_of(it)).map(|it| format!("create {it}")));
            }
            "openat" => {}
            "write" if rest.starts_with("1<") => calls.push("answer".to_owned()),
            "rename" | "renameat" | "renameat2" | "unlink" | "unlinkat" => {
                let verb = match verb {
                    "unlink" | "unlinkat" => "remove",
                    _ if rest.contains("RENAME_EXCHANGE") => "exchange",
                    _ => "rename",
                };
                calls.extend(quoted.first().and_then(|it| name_of(it)).map(|it| format!("{verb} {it}")));
            }
            verb => calls.extend(described.and_then(name_of).map(|it| format!("{verb} {it}"))),
        }
    }
    // A new file is written in a few pieces.
    calls.dedup();
    Some(calls)
}

#[test]
fn the_system_calls_come_in_the_promised_order() {
    let folder = tempfile::tempdir().unwrap();
    let Some(first) = calls_of(folder.path(), &["data", "append", "items.jsonl", "{\"n\":1}"]) else {
        return skip("strace is not installed or may not trace", "LINEKEEP_REQUIRE_STRACE");
    };
    let lock = "flock items.jsonl";
    let append = [lock, "write items.jsonl", "fdatasync items.jsonl", "fsync folder", lock, "answer"];
    assert_eq!(first, [&["create items.jsonl"][..], &append].concat());
    // A new process does not know whether the name was made durable, so it makes sure.
    assert_eq!(calls_of(folder.path(), &["data", "append", "items.jsonl", "{\"n\":2}"]).unwrap(), append);
    let set = calls_of(folder.path(), &["data", "set", "items.jsonl", "x", "{\"n\":3}"]).unwrap();
    assert_eq!(set, append, "a set of a new id is an append");

    let update = calls_of(folder.path(), &["data", "update", "items.jsonl", "x", "{\"n\":4}"]).unwrap();
    let before = [lock, "create temp", "flock temp", "write temp", "fchmod temp", "fdatasync temp"];
    let exchanged =
        [&before[..], &["exchange temp", "fsync folder", "remove temp", "flock items.jsonl", "answer"]]
            .concat();
    let renamed = [&before[..], &["rename temp", "fsync folder", "flock items.jsonl", "answer"]].concat();
    assert!(update == exchanged || update == renamed, "{update:?}");
    assert_eq!(calls_of(folder.path(), &["data", "delete", "items.jsonl", "x"]).unwrap(), update);
    let nothing = calls_of(folder.path(), &["data", "query", "items.jsonl"]).unwrap();
    assert_eq!(nothing, ["answer"], "a query locks nothing and changes nothing");
}

/// A file system of a few pages in memory, for as long as it is held.
struct TinyDisk {
    folder: tempfile::TempDir,
}

impl TinyDisk {
    fn mount(kilobytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kilobytes}k"), "tmpfs"])
            .arg(folder.path())
            .output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then_some(Self { folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.folder.path()).status();
        assert!(
            std::thread::panicking() || unmounted.is_ok_and(|status| status.success()),
            "it is unmounted"
        );
    }
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into()).collect();
    names.sort();
    names
}

#[test]
fn a_full_disk_undoes_what_does_not_fit_and_keeps_everything_else() {
    let Some(disk) = TinyDisk::mount(128) else {
        return skip("a small file system cannot be mounted here", "LINEKEEP_REQUIRE_MOUNT");
    };
    let items = open(disk.path());
    let file = disk.path().join("items.jsonl");
    let text = "x".repeat(1_500);
    let mut kept = Vec::new();
    let error = loop {
        match items.append(fields(&format!("{{\"text\":\"{text}\"}}"))) {
            Ok(record) => kept.push(record),
            Err(error) => break error,
        }
        assert!(kept.len() < 1_000, "the disk never fills");
    };
    assert!(matches!(&error, Error::Io { operation: "write", .. }), "{error}");
    assert!(error.to_string().contains("items.jsonl"), "{error}");
    let expected: Vec<u8> = kept.iter().flat_map(|record| [record.as_bytes(), b"\n"].concat()).collect();
    assert_eq!(std::fs::read(&file).unwrap(), expected, "what did not fit was cut off again");

    // No room for a second copy: a rewrite says so and leaves no trace; reading goes on.
    let id = |at: usize| id_of(&kept[at]);
    let error = items.delete(id(0)).unwrap_err();
    assert!(matches!(&error, Error::Io { operation: "write", .. }), "{error}");
    assert_eq!(items.query(&Fields::new(), 1).unwrap().count(), kept.len() as u64);
    assert_eq!(std::fs::read(&file).unwrap(), expected);
    assert_eq!(names(disk.path()), [PathBuf::from("items.jsonl")], "no temp file is left");
}

#[test]
fn a_delete_works_on_a_disk_that_has_room_for_the_copy_only() {
    let Some(disk) = TinyDisk::mount(256) else {
        return skip("a small file system cannot be mounted here", "LINEKEEP_REQUIRE_MOUNT");
    };
    let items = open(disk.path());
    let first = items.append(fields(&format!("{{\"text\":\"{}\"}}", "x".repeat(30_000)))).unwrap();
    items.append(fields(r#"{"text":"stays"}"#)).unwrap();
    let ballast = disk.path().join("ballast");
    // Fills all but one page.
    let mut size = 256 * 1024;
    while std::fs::write(&ballast, vec![0; size]).is_err() {
        size -= 4096;
    }
    std::fs::write(&ballast, vec![0; size - 4096]).unwrap();
    assert!(
        items.append(fields(&format!("{{\"text\":\"{}\"}}", "y".repeat(30_000)))).is_err(),
        "an append has no room"
    );
    items.delete(id_of(&first)).unwrap();
    assert_eq!(items.query(&Fields::new(), 10).unwrap().count(), 1);
}

#[test]
fn links_and_other_things_in_the_place_of_a_collection_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target.txt");
    std::fs::write(&target, "{\"id\":\"a\"}\n").unwrap();
    let file = folder.path().join("items.jsonl");
    let refused = |what: &Unsupported| {
        let items = open(folder.path());
        let answers = [
            items.append(Fields::new()).map(drop),
            items.delete("a".parse().unwrap()),
            items.query(&Fields::new(), 1).map(drop),
            items.health().map(drop),
            items.repair().map(drop),
        ];
        for answer in answers {
            let error = answer.unwrap_err();
            assert!(matches!(&error, Error::Unsupported { what: found, .. } if found == what), "{error}");
        }
    };
    std::os::unix::fs::symlink(&target, &file).unwrap();
    refused(&Unsupported::Symlink);
    assert_eq!(std::fs::read(&target).unwrap(), b"{\"id\":\"a\"}\n");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(folder.path().join("nowhere"), &file).unwrap();
    refused(&Unsupported::Symlink);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    refused(&Unsupported::Kind { expected: "regular file" });
    std::fs::remove_dir(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    refused(&Unsupported::Kind { expected: "regular file" });
}

#[test]
fn a_linked_folder_inside_the_root_is_refused_and_a_linked_root_works() {
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    open(&link).append(Fields::new()).unwrap();
    assert!(real.join("items.jsonl").is_file());

    let store = Store::open(folder.path(), Options::default()).unwrap();
    let inside = store.collection("link/data", &"items".parse().unwrap()).unwrap();
    let error = inside.append(Fields::new()).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { what: Unsupported::Symlink, .. }), "{error}");
    assert_eq!(names(&real), [PathBuf::from("items.jsonl")]);
}

#[test]
fn the_mode_of_a_file_survives_a_rewrite() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("items.jsonl");
    for mode in [0o600, 0o640, 0o644, 0o660] {
        std::fs::write(&file, "{\"id\":\"a\"}\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        open(folder.path()).update("a".parse().unwrap(), fields("{\"n\":1}")).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, mode);
    }
}

#[test]
fn a_file_too_large_to_read_is_refused_by_its_size_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("items.jsonl");
    // One gigabyte without a newline, and without a block on the disk.
    std::fs::File::create(&file).unwrap().set_len(1 << 30).unwrap();
    let items = open(folder.path());
    let error = items.query(&Fields::new(), 1).unwrap_err();
    assert!(error.to_string().contains("1073741824 bytes exceed the 67108864"), "{error}");
    assert!(items.append(Fields::new()).is_err());
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 1 << 30);
}

#[test]
fn lines_of_any_length_are_served_and_a_file_over_the_cap_can_be_read_and_thinned() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("items.jsonl");
    for length in [65_535, 65_536, 65_537, 1 << 20, 4_900_000, 6_000_000] {
        let long = format!("{{\"id\":\"long\",\"text\":\"{}\"}}", "x".repeat(length));
        std::fs::write(&file, format!("{{\"id\":\"a\"}}\n{long}\n{{\"id\":\"b\"}}\n")).unwrap();
        let items = open(folder.path());
        let found = items.query(&Fields::new(), 10).unwrap();
        assert_eq!(found.iter().map(<[u8]>::len).collect::<Vec<_>>(), [10, long.len(), 10]);
        if length > 5_000_000 {
            let error = items.append(Fields::new()).unwrap_err();
            assert!(matches!(error, Error::TooLarge { limit: 5_000_000, .. }), "{error}");
        }
        items.delete("long".parse().unwrap()).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"{\"id\":\"a\"}\n{\"id\":\"b\"}\n");
        items.append(Fields::new()).unwrap();
    }
}

#[test]
fn ten_thousand_collections_touched_once_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let store =
        Store::open(folder.path(), Options { cache_bytes_max: 64 << 10, ..Options::default() }).unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    for number in 0..10_000 {
        let name: CollectionName = format!("c{number}").parse().unwrap();
        if number % 100 == 0 {
            std::fs::write(folder.path().join("data").join(name.file_name()), "{\"id\":\"a\"}\n").unwrap();
        }
        store.collection("data", &name).unwrap().query(&Fields::new(), 1).unwrap();
        assert!(store.cache_bytes() <= 64 << 10);
    }
    let shown = store.handles_len();
    assert!(shown < 500, "{shown} handles are kept");
}

/// The files in a folder that this process has open.
#[cfg(target_os = "linux")]
fn open_in(folder: &Path) -> Vec<PathBuf> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut open: Vec<PathBuf> =
        open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok()).collect();
    open.retain(|path| path.starts_with(folder));
    open
}

#[cfg(target_os = "linux")]
#[test]
fn files_are_kept_open_between_appends_but_not_more_than_64() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let store =
        Store::open(&folder, Options { durability: Durability::Flush, ..Options::default() }).unwrap();
    let collection =
        |number: usize| store.collection("data", &format!("c{number}").parse().unwrap()).unwrap();
    collection(0).append(Fields::new()).unwrap();
    assert_eq!(open_in(&folder).len(), 1, "the file stays open after an append");
    for _ in 0..2 {
        for number in 0..200 {
            collection(number).append(Fields::new()).unwrap();
            assert!(open_in(&folder).len() <= 64, "at {number}");
        }
    }
    assert_eq!(open_in(&folder).len(), 64, "the last 64 stay open");
    for number in 0..200 {
        let lines = std::fs::read_to_string(collection(number).path()).unwrap().lines().count();
        assert_eq!(lines, if number == 0 { 3 } else { 2 });
    }
    drop(store);
    assert_eq!(open_in(&folder), Vec::<PathBuf>::new(), "nothing stays open without the store");
}

#[test]
fn a_file_that_is_kept_open_is_let_go_when_another_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let file = data.join("items.jsonl");
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let items = store.collection("data", &"items".parse().unwrap()).unwrap();
    items.append(fields(r#"{"n":1}"#)).unwrap();

    // Replaced, removed, made read-only, and moved behind a link.
    std::fs::write(data.join("new"), "{\"id\":\"b\"}\n").unwrap();
    std::fs::rename(data.join("new"), &file).unwrap();
    items.append(fields(r#"{"n":2}"#)).unwrap();
    assert_eq!(
        std::fs::read_to_string(&file).unwrap().lines().count(),
        2,
        "it is the new file's second line"
    );

    std::fs::remove_file(&file).unwrap();
    items.append(fields(r#"{"n":3}"#)).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 1, "a new file");

    let moved = folder.path().join("moved");
    std::fs::rename(&data, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &data).unwrap();
    let id = id_in(items.query(&Fields::new(), 1).unwrap().iter().next().unwrap());
    let before = std::fs::read(moved.join("items.jsonl")).unwrap();
    for error in [items.append(Fields::new()).unwrap_err(), items.delete(id).unwrap_err()] {
        assert!(matches!(&error, Error::Unsupported { what: Unsupported::Symlink, .. }), "{error}");
    }
    assert_eq!(
        std::fs::read(moved.join("items.jsonl")).unwrap(),
        before,
        "nothing was written behind the link"
    );
    assert_eq!(names(&moved), [PathBuf::from("items.jsonl")], "no temp file was made behind the link");
}
