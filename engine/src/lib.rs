//! Collections of JSON records in plain JSONL files: one file a collection, one object a line.
//!
//! The file is the whole truth. Any program may read it at any moment, and a person may edit it while it is in use; the
//! next operation sees the edit. What the engine promises on top of that:
//!
//! - **Acked means kept.** With [`Durability::Sync`] an operation returns after its bytes, and the name of the file if
//!   that is new, are on stable storage.
//! - **No byte is touched that no operation named.** A rewrite changes the bytes of its record; every other line,
//!   corrupt ones and blank ones too, stays as it is. Numbers keep their digits.
//! - **A bad line costs only itself.** It is skipped, counted, reported by [`Collection::health`], and kept.
//!
//! # Limits
//! A collection's file: 5,000,000 bytes ([`Options::collection_bytes_max`]). A file that is read at all: 64 MiB
//! ([`Options::read_bytes_max`]). A name: 64 bytes. An id: 256 bytes. Nesting: 128 levels. All images in memory: 64 MiB
//! ([`Options::cache_bytes_max`]).
//!
//! # Example
//! ```
//! use linekeep_engine::{CollectionName, Fields, Options, Store, QUERY_LIMIT_DEFAULT};
//!
//! # let folder = tempfile::tempdir()?;
//! # let root = folder.path();
//! let store = Store::open(root, Options::default())?;
//! let items = store.collection("shopping/data", &"items".parse::<CollectionName>()?)?;
//!
//! let milk = items.append(Fields::parse(br#"{"what": "milk", "qty": 2}"#)?)?;
//! assert!(milk.as_bytes().starts_with(br#"{"id":""#));
//!
//! let found = items.query(&Fields::parse(br#"{"qty": 2.0}"#)?, QUERY_LIMIT_DEFAULT)?;
//! assert_eq!((found.len(), found.count()), (1, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All calls block. There is no async runtime, no network and no global state in here; the clock, the random source and
//! the file system are passed in through [`Options`].

mod collection;
mod commit;
mod disk;
mod draft;
mod error;
mod filter;
mod glance;
mod health;
mod image;
mod index;
mod json;
mod name;
mod op;
mod options;
mod readings;
mod record;
mod repair;
mod scan;
mod store;
mod survey;
mod sync;
mod system;

pub use collection::Collection;
pub use disk::{Disk, DiskFile, FileDisk, Kind, Open, Stat};
pub use error::{Error, Result, Unsupported};
pub use health::{CORRUPT_LINES_LISTED_MAX, CorruptLine, Health, TornTail};
pub use json::DEPTH_MAX;
pub use name::{CollectionName, RecordId};
pub use op::{Op, Outcome, QUERY_LIMIT_DEFAULT, Records};
pub use options::{Durability, Options};
pub use readings::{RetainPolicy, Retained};
pub use record::{Fields, Record};
pub use repair::{REPAIR_STEPS_LISTED_MAX, Repair, RepairKind, RepairStep};
pub use store::Store;
pub use survey::{SURVEY_DEPTH_MAX, SURVEY_ENTRIES_MAX, Survey};
pub use system::{OsSystem, System};

/// The example in the README is compiled and run with the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
