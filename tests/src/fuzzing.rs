//! What the fuzz targets run: one function a target, each from bytes to a panic or none.
//!
//! The targets under `fuzz/` are a line each over these functions, and so are the property tests and the replay of
//! seeds and past finds, which every test run does. All of them work on a [`SimDisk`], so a run touches no file.

mod record;
mod scan;
mod spelling;

use std::path::Path;
use std::sync::Arc;

use linekeep_engine::{Collection, CollectionName, Options, RecordId, Store};

use crate::sim::{SimDisk, SimSystem};

pub use record::record;
pub use scan::scan;
pub use spelling::equality;

/// A function that a target runs.
pub type Target = fn(&[u8]);

/// The targets by their names, which are also the names of their folders under `fuzz/seeds` and `fuzz/finds`.
pub const TARGETS: [(&str, Target); 4] =
    [("model", model), ("scan", scan), ("record", record), ("equality", equality)];

/// Steps of operations, edits and damage against the oracle of [`crate::model`].
pub fn model(bytes: &[u8]) {
    crate::model::run(bytes);
}

/// A collection on a disk of its own, and the file that it must be.
struct Bench {
    disk: SimDisk,
    collection: Collection,
}

impl Bench {
    /// A collection whose file holds these bytes.
    fn with_file(bytes: &[u8]) -> Self {
        let bench = Self::new();
        bench.disk.place(bench.collection.path(), bytes);
        bench
    }

    /// A collection without a file.
    fn new() -> Self {
        let disk = SimDisk::new(Path::new("/root"));
        let collection = Self::open(&disk);
        Self { disk, collection }
    }

    /// The collection as another process sees it, which has read nothing yet.
    fn reopened(&self) -> Collection {
        Self::open(&self.disk)
    }

    fn open(disk: &SimDisk) -> Collection {
        let options = Options {
            disk: Arc::new(disk.clone()),
            system: Arc::new(SimSystem::new(7)),
            ..Options::default()
        };
        let store = Store::open(Path::new("/root"), options).expect("the root is there");
        let name: CollectionName = "items".parse().expect("a name");
        store.collection("", &name).expect("the root is a folder")
    }

    /// The file as it stands; no file reads as an empty one.
    fn file(&self) -> Vec<u8> {
        self.disk.content(self.collection.path()).unwrap_or_default()
    }

    #[track_caller]
    fn check_file(&self, expected: &[u8]) {
        let found = self.file();
        assert!(
            found == expected,
            "the file is\n{}\nand not\n{}",
            found.escape_ascii(),
            expected.escape_ascii()
        );
    }
}

/// The id, when an operation can name it.
fn nameable(id: &str) -> Option<RecordId> {
    (1..=RecordId::BYTES_MAX).contains(&id.len()).then(|| id.parse().expect("its length is in range"))
}
