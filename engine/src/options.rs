//! What a store can be told, with its defaults and limits.

use std::sync::Arc;

use crate::disk::{Disk, FileDisk};
use crate::error::{Error, Result};
use crate::system::{OsSystem, System};

/// When an operation is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// After its bytes, and the file's name if that is new, are on stable storage: survives a power cut.
    #[default]
    Sync,
    /// After its bytes are with the operating system: survives a killed process, not a power cut.
    Flush,
}

/// Settings of a [`Store`](crate::Store).
#[derive(Clone)]
pub struct Options {
    /// When an operation is acknowledged. Default: [`Durability::Sync`].
    pub durability: Durability,
    /// The cap of one collection's file in bytes, checked before append, set and update. Default: 5,000,000.
    pub collection_bytes_max: u64,
    /// The largest file that is read into memory, in bytes; a larger one is refused whole. At least the cap, at most
    /// 2^31. Default: 64 MiB.
    pub read_bytes_max: u64,
    /// The budget in bytes for all collections held in memory. Default: 64 MiB.
    pub cache_bytes_max: u64,
    /// How long to wait for another process that holds a collection's lock, in milliseconds. Default: 10,000.
    pub lock_wait_ms_max: u64,
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// The clock and the random source.
    pub system: Arc<dyn System>,
}

impl Options {
    /// The largest [`Options::read_bytes_max`]: positions in a file are kept in 32 bits.
    pub const READ_BYTES_LIMIT: u64 = 1 << 31;

    pub(crate) fn check(&self) -> Result<()> {
        if self.read_bytes_max > Self::READ_BYTES_LIMIT {
            return Err(Error::invalid(format!(
                "read_bytes_max is {}, the limit is {}",
                self.read_bytes_max,
                Self::READ_BYTES_LIMIT
            )));
        }
        if self.collection_bytes_max > self.read_bytes_max {
            return Err(Error::invalid(format!(
                "collection_bytes_max is {}, the limit is read_bytes_max, {}",
                self.collection_bytes_max, self.read_bytes_max
            )));
        }
        Ok(())
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Sync,
            collection_bytes_max: 5_000_000,
            read_bytes_max: 64 << 20,
            cache_bytes_max: 64 << 20,
            lock_wait_ms_max: 10_000,
            disk: Arc::new(FileDisk),
            system: Arc::new(OsSystem),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("durability", &self.durability)
            .field("collection_bytes_max", &self.collection_bytes_max)
            .field("read_bytes_max", &self.read_bytes_max)
            .field("cache_bytes_max", &self.cache_bytes_max)
            .field("lock_wait_ms_max", &self.lock_wait_ms_max)
            .finish_non_exhaustive()
    }
}
