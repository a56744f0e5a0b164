//! What can go wrong, sorted by what the caller does about it.
//!
//! One enum for the whole crate. The group commit gives one failure of the disk to every operation of a batch, so the
//! type is `Clone` and an `io::Error` is shared. There is no `From<io::Error>`: an error of the operating system
//! without the operation and the path helps nobody.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of an engine call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation was not done. Nothing was changed unless a variant says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An update or a delete named an id that no record has.
    #[error("record '{id}' not found in collection '{collection}'")]
    NotFound {
        /// The collection's name.
        collection: String,
        /// The id that was asked for.
        id: String,
    },
    /// The file would be, or already is, larger than the cap of a collection.
    #[error(
        "{operation} on collection '{collection}' refused: {size} bytes exceed the limit of {limit}; delete records \
         to free room"
    )]
    TooLarge {
        /// `append`, `set` or `update`.
        operation: &'static str,
        /// The collection's name.
        collection: String,
        /// The size in bytes that the file would have, or has.
        size: u64,
        /// The cap in bytes.
        limit: u64,
    },
    /// The caller's input cannot be used: a name, an id, or JSON.
    #[error("{reason}")]
    Invalid {
        /// What is wrong, with the value and the limit.
        reason: String,
    },
    /// Another process kept the collection locked, or kept changing it, for too long. Trying again may help.
    #[error("{operation} on {path} gave up: {reason}")]
    Busy {
        /// The operation.
        operation: &'static str,
        /// The collection's file.
        path: PathBuf,
        /// What it waited for, and how long.
        reason: String,
    },
    /// The file is nothing that the engine reads; it was left as it is.
    #[error("{path} is refused: {what}")]
    Unsupported {
        /// The file or folder.
        path: PathBuf,
        /// Why it is refused.
        what: Unsupported,
    },
    /// The operating system refused or failed a call.
    ///
    /// When it came from a sync or from the sync of the directory, the bytes may or may not reach stable storage; the
    /// next operation reads the file again.
    #[error("{operation} of {path} failed: {source}")]
    Io {
        /// The call: `read`, `write`, `sync`, `rename` and so on.
        operation: &'static str,
        /// The file or folder it was about.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: Arc<io::Error>,
    },
}

/// Why a file is refused as a collection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// The text is not UTF-8 but another Unicode encoding.
    #[error("the file is {encoding}, a collection is UTF-8; convert it first")]
    Encoding {
        /// `UTF-16LE`, `UTF-16BE`, `UTF-32LE` or `UTF-32BE`.
        encoding: &'static str,
    },
    /// A symbolic link stands where a collection or a folder of the store should be.
    #[error("it is a symbolic link")]
    Symlink,
    /// A folder, a pipe, a device or a socket stands where a collection should be, or a file where a folder should be.
    #[error("it is not a {expected}")]
    Kind {
        /// `regular file` or `folder`.
        expected: &'static str,
    },
    /// The file is larger than the engine will hold in memory.
    #[error("its {size} bytes exceed the {limit} bytes that are read into memory")]
    Size {
        /// The file's size in bytes.
        size: u64,
        /// The limit in bytes, [`Options::read_bytes_max`](crate::Options::read_bytes_max).
        limit: u64,
    },
}

impl Error {
    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid { reason: reason.into() }
    }

    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { operation, path: path.to_path_buf(), source: Arc::new(source) }
    }

    pub(crate) fn unsupported(path: &Path, what: Unsupported) -> Self {
        Self::Unsupported { path: path.to_path_buf(), what }
    }
}

/// At most 64 characters of a value for an error text, so that a hostile value cannot flood a log.
pub(crate) fn excerpt(value: &str) -> String {
    const CHARS_MAX: usize = 64;
    match value.char_indices().nth(CHARS_MAX) {
        None => format!("{value:?}"),
        Some((cut, _)) => format!("{:?}…", &value[..cut]),
    }
}
