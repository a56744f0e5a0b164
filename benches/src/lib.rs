//! What the benchmarks share: the data set, a store on it, and the folder that both lie in.
//!
//! Every figure is one side of a ratio. Beside each measurement of the engine stands its *floor*: the plain system
//! calls, or the plain copies in memory, without which the operation cannot be done. Both are taken in one run, on one
//! file system, since machines differ and drift. Peers have their own package, so that nobody builds them by accident.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linekeep_engine::{Collection, CollectionName, Durability, Fields, Options, Store};
use tempfile::TempDir;

/// How many records the data set has; about 180 bytes each, 4.84 MB in all.
pub const RECORDS: usize = 27_000;

/// The `list` that the queries ask for, which one record in twenty has.
pub const LIST: &str = "work";

/// How old a file must be before the engine takes it for whole at first sight, and a little more.
pub const SETTLED: Duration = Duration::from_millis(30);

/// What is appended: an object as long as the records of the data set.
pub const TASK: &str = r#"{"text":"water the plants on the balcony and in the hall","done":false,"list":"home","priority":7,"score":662.4985}"#;

/// How many records a query returns; it counts all.
pub const LIMIT: usize = 200;

/// A copy of the data set in a folder of its own, which goes with it.
#[derive(Debug)]
pub struct DataSet {
    folder: TempDir,
    bytes: Vec<u8>,
}

impl DataSet {
    /// Copies the data set into a new folder below `parent`.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn copy_into(parent: &Path) -> io::Result<Self> {
        const FIXTURE: &str = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/fixtures/workspace/apps/attivita/data/tasks.jsonl"
        );
        let data_set = Self { folder: tempfile::tempdir_in(parent)?, bytes: std::fs::read(FIXTURE)? };
        std::fs::write(data_set.file(), data_set.bytes())?;
        // Its write-back must not disturb what is measured next.
        File::open(data_set.file())?.sync_all()?;
        // Old enough to be taken for settled.
        std::thread::sleep(SETTLED);
        Ok(data_set)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The collection's file.
    pub fn file(&self) -> PathBuf {
        self.folder().join("tasks.jsonl")
    }

    /// What the file held when it was copied.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A new store on the folder, and its collection, of which nothing is in memory yet. The cap is out of the way.
    ///
    /// # Errors
    /// When the engine refuses.
    pub fn open(&self, durability: Durability) -> linekeep_engine::Result<Collection> {
        open(self.folder(), durability)
    }

    /// As [`DataSet::open`], with the collection in memory.
    ///
    /// # Errors
    /// When the engine refuses.
    pub fn open_warm(&self, durability: Durability) -> linekeep_engine::Result<Collection> {
        let collection = self.open(durability)?;
        collection.query(&Fields::new(), 0)?;
        Ok(collection)
    }

    /// The ids of the records, in the order of the file.
    ///
    /// # Panics
    /// When the data set is not what it should be: every line starts with its id.
    pub fn ids(&self) -> Vec<&str> {
        let text = std::str::from_utf8(&self.bytes).expect("the data set is UTF-8");
        text.lines().map(id_of).collect()
    }
}

/// The id of a line of the data set.
///
/// # Panics
/// When the line does not start with it.
pub fn id_of(line: &str) -> &str {
    line.split('"').nth(3).expect("every line starts with its id")
}

/// The collection `tasks` of a folder in a new store. The cap is out of the way.
///
/// # Errors
/// When the engine refuses.
pub fn open(folder: &Path, durability: Durability) -> linekeep_engine::Result<Collection> {
    let options = Options { durability, ..uncapped() };
    let name: CollectionName = "tasks".parse()?;
    Store::open(folder, options)?.collection("", &name)
}

/// Options with which no cap and no budget is in the way.
pub fn uncapped() -> Options {
    const BYTES_MAX: u64 = 1 << 30;
    Options {
        collection_bytes_max: BYTES_MAX,
        read_bytes_max: BYTES_MAX,
        cache_bytes_max: BYTES_MAX,
        ..Options::default()
    }
}

/// What an update changes.
///
/// # Panics
/// Never: a number is JSON.
pub fn priority(value: u64) -> Fields {
    Fields::parse(format!("{{\"priority\":{value}}}").as_bytes()).expect("an object")
}
