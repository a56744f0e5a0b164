//! A disk that counts how often a file was replaced.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use linekeep_engine::{Disk, DiskFile, Open, Stat};

/// A disk, and how often one of its files was replaced.
#[derive(Debug)]
pub struct CountingDisk<D> {
    disk: D,
    replaced: AtomicUsize,
}

impl<D> CountingDisk<D> {
    /// Counts what is replaced on this disk.
    pub fn new(disk: D) -> Self {
        Self { disk, replaced: AtomicUsize::new(0) }
    }

    /// How often a file was replaced so far.
    pub fn replaced(&self) -> usize {
        self.replaced.load(Ordering::SeqCst)
    }
}

impl<D: Disk> Disk for CountingDisk<D> {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.disk.stat(path)
    }
    fn stat_followed(&self, path: &Path) -> io::Result<Stat> {
        self.disk.stat_followed(path)
    }
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(path, how)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.replaced.fetch_add(1, Ordering::SeqCst);
        self.disk.rename(from, to)
    }
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.replaced.fetch_add(1, Ordering::SeqCst);
        self.disk.exchange(one, other)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.disk.create_folder(path)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_folder(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.disk.list(path)
    }
    fn process_alive(&self, id: u32) -> bool {
        self.disk.process_alive(id)
    }
}
