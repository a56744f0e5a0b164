//! A folder of collections: the handles that are in use, and the one memory budget of their images.
//!
//! Handles are kept as weak references, and dead ones are swept out as new ones come: paths that nobody uses leave
//! nothing behind. Images are kept by the cache,
//! which holds their collections alive until it lets them go, the least recently used first. No lock is held over
//! work: one collection never waits for another's.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::collection::{Closer, Collection, Shared};
use crate::disk::{Disk, Kind};
use crate::error::{Error, Result, Unsupported, excerpt};
use crate::name::CollectionName;
use crate::options::{Durability, Options};
use crate::record;
use crate::sync::{Mutex, lock};
use crate::system::System;

/// How many collections keep their file open between two batches.
const FILES_OPEN_MAX: usize = 64;

/// A root folder and the collections below it. Clones share everything.
///
/// The root itself may be reached through a symbolic link; nothing below it may be one.
#[derive(Clone)]
pub struct Store {
    inner: Arc<StoreInner>,
}

pub(crate) struct StoreInner {
    root: PathBuf,
    options: Options,
    collection_bytes_max: AtomicU64,
    handles: Mutex<Handles>,
    cache: Mutex<Cache>,
    ticks: AtomicU64,
    /// Random bytes for new ids, asked for many at a time.
    id_bytes: Mutex<Vec<u8>>,
    /// Collections one of whose syncs failed, until they are written anew.
    suspects: Mutex<HashSet<PathBuf>>,
    suspects_len: AtomicUsize,
    /// Replaced files that are being closed.
    pub(crate) closer: Closer,
    /// The collections whose files are kept open, the longest open first; some may have closed theirs.
    kept_open: Mutex<VecDeque<Weak<Shared>>>,
    /// What the file system turned out to lack, each told once.
    noticed: [AtomicBool; Lack::COUNT],
}

/// What a file system may lack. Shared storage of a phone lacks all of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lack {
    Locks,
    FolderSync,
    Exchange,
    Access,
}

impl Lack {
    const COUNT: usize = 4;

    fn consequence(self) -> &'static str {
        match self {
            Self::Locks => "this file system has no locks: only one process may write to it at a time",
            Self::FolderSync => {
                "this file system does not sync folders: a power cut may undo the newest replacement of a file"
            }
            Self::Exchange => {
                "this file system cannot exchange two names: a save by another program within a moment of a \
                 replacement may be overwritten"
            }
            Self::Access => {
                "this file system keeps no permission bits: a replaced file gets those of a new one"
            }
        }
    }
}

/// What is shared by the handles of each path.
#[derive(Default)]
struct Handles {
    paths: HashMap<PathBuf, Weak<Shared>>,
    /// At how many paths the dead ones are swept out: twice what was alive at the last sweep.
    sweep_len: usize,
}

/// The collections whose images are in memory.
#[derive(Default)]
struct Cache {
    entries: HashMap<PathBuf, Entry>,
    bytes: u64,
}

struct Entry {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Store {
    /// Opens a root folder. Nothing is read or written yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options out of range, [`Error::Unsupported`] when the root is not a folder,
    /// [`Error::Io`] when it cannot be looked at.
    pub fn open(root: &Path, options: Options) -> Result<Self> {
        options.check()?;
        let stat = options.disk.stat_followed(root).map_err(|error| Error::io("open", root, error))?;
        if stat.kind != Kind::Folder {
            return Err(Error::unsupported(root, Unsupported::Kind { expected: "folder" }));
        }
        let inner = StoreInner {
            root: root.to_path_buf(),
            collection_bytes_max: AtomicU64::new(options.collection_bytes_max),
            options,
            handles: Mutex::new(Handles::default()),
            cache: Mutex::new(Cache::default()),
            ticks: AtomicU64::new(0),
            id_bytes: Mutex::new(Vec::new()),
            suspects: Mutex::new(HashSet::new()),
            suspects_len: AtomicUsize::new(0),
            closer: Closer::default(),
            kept_open: Mutex::new(VecDeque::new()),
            noticed: [const { AtomicBool::new(false) }; Lack::COUNT],
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The collection of this name in a folder below the root, `""` being the root itself. It need not exist: the first
    /// append creates the folder and the file.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the folder is not a plain relative path.
    pub fn collection(&self, folder: &str, name: &CollectionName) -> Result<Collection> {
        let parts: Vec<&str> = if folder.is_empty() { Vec::new() } else { folder.split('/').collect() };
        if parts.iter().any(|part| matches!(*part, "" | "." | "..") || part.contains('\0')) {
            return Err(Error::invalid(format!("folder {} is not a plain relative path", excerpt(folder))));
        }
        let path =
            parts.iter().fold(self.inner.root.clone(), |path, part| path.join(part)).join(name.file_name());
        let mut handles = lock(&self.inner.handles);
        let shared = handles.paths.get(&path).and_then(Weak::upgrade).unwrap_or_else(|| {
            let shared = Arc::new(Shared::new(&self.inner.root, &parts, name.clone()));
            handles.insert(path, &shared);
            shared
        });
        Ok(Collection::new(Arc::clone(&self.inner), shared))
    }

    /// Changes the cap of one collection's file in bytes, for the operations that follow.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is above [`Options::read_bytes_max`].
    pub fn set_collection_bytes_max(&self, bytes: u64) -> Result<()> {
        let options = Options { collection_bytes_max: bytes, ..self.inner.options.clone() };
        options.check()?;
        self.inner.collection_bytes_max.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// How many bytes the images in memory cost now.
    pub fn cache_bytes(&self) -> u64 {
        lock(&self.inner.cache).bytes
    }

    /// How many paths the store knows: those in use, those in memory, and a bounded number that nobody uses any more.
    pub fn handles_len(&self) -> usize {
        lock(&self.inner.handles).paths.len()
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        self.inner.disk()
    }

    /// The root folder.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("root", &self.inner.root).field("options", &self.inner.options).finish()
    }
}

impl StoreInner {
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.options.disk
    }

    pub(crate) fn system(&self) -> &dyn System {
        &*self.options.system
    }

    /// Random bytes for a new id.
    pub(crate) fn id_bytes(&self) -> io::Result<[u8; record::ID_BYTES]> {
        const IDS_LEN: usize = 64;
        let mut bytes = lock(&self.id_bytes);
        if bytes.is_empty() {
            let mut fresh = vec![0; IDS_LEN * record::ID_BYTES];
            self.system().random(&mut fresh)?;
            *bytes = fresh;
        }
        let rest = bytes.len() - record::ID_BYTES;
        let mut id = [0; record::ID_BYTES];
        id.copy_from_slice(&bytes[rest..]);
        bytes.truncate(rest);
        Ok(id)
    }

    pub(crate) fn durability(&self) -> Durability {
        self.options.durability
    }

    pub(crate) fn collection_bytes_max(&self) -> u64 {
        self.collection_bytes_max.load(Ordering::Relaxed)
    }

    pub(crate) fn read_bytes_max(&self) -> u64 {
        self.options.read_bytes_max
    }

    pub(crate) fn lock_wait_ms_max(&self) -> u64 {
        self.options.lock_wait_ms_max
    }

    pub(crate) fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether a sync of this collection failed and nothing has been written anew since.
    pub(crate) fn is_suspect(&self, path: &Path) -> bool {
        self.suspects_len.load(Ordering::Acquire) > 0 && lock(&self.suspects).contains(path)
    }

    pub(crate) fn set_suspect(&self, path: &Path, suspect: bool) {
        if !suspect && self.suspects_len.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut suspects = lock(&self.suspects);
        if suspect {
            suspects.insert(path.to_path_buf());
        } else {
            suspects.remove(path);
        }
        self.suspects_len.store(suspects.len(), Ordering::Release);
    }

    /// Notes that a collection keeps its file open, and lets the ones that have kept theirs the longest close them, so
    /// that there are at most [`FILES_OPEN_MAX`].
    pub(crate) fn kept_open(&self, shared: &Arc<Shared>) {
        if shared.kept_open.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut queue = lock(&self.kept_open);
        queue.push_back(Arc::downgrade(shared));
        // Each is tried once: one that is busy goes on using its file.
        for _ in 0..queue.len() {
            if queue.len() <= FILES_OPEN_MAX {
                return;
            }
            let Some(oldest) = queue.pop_front().and_then(|oldest| oldest.upgrade()) else { continue };
            // First, so that one who keeps his file open meanwhile tells it again.
            oldest.kept_open.store(false, Ordering::Relaxed);
            if !oldest.close_file() && !oldest.kept_open.swap(true, Ordering::Relaxed) {
                queue.push_back(Arc::downgrade(&oldest));
            }
        }
    }

    /// Notes what a collection's image costs, and evicts the least recently used ones until all fit the budget.
    pub(crate) fn charge(&self, shared: &Shared, bytes: u64) {
        if shared.charged.load(Ordering::Relaxed) == bytes {
            return;
        }
        let mut evicted = Vec::new();
        {
            let mut cache = lock(&self.cache);
            // Changed under this lock only, so it is what the entry says.
            shared.charged.store(bytes, Ordering::Relaxed);
            let known = cache.entries.get(shared.path()).map_or(0, |entry| entry.bytes);
            if known == bytes {
                return;
            }
            if bytes == 0 {
                evicted.extend(cache.remove(shared.path()));
            } else if let Some(entry) = cache.entries.get_mut(shared.path()) {
                entry.bytes = bytes;
                cache.bytes = cache.bytes - known + bytes;
            } else if let Some(shared) = lock(&self.handles).paths.get(shared.path()).and_then(Weak::upgrade)
            {
                cache.bytes += bytes;
                cache.entries.insert(shared.path().to_path_buf(), Entry { shared, bytes });
            }
            while cache.bytes > self.options.cache_bytes_max {
                let used = |entry: &Entry| entry.shared.used.load(Ordering::Relaxed);
                let Some(oldest) = cache.entries.iter().min_by_key(|(_, entry)| used(entry)) else { break };
                let oldest = oldest.0.clone();
                let entry = cache.remove(&oldest);
                if let Some(entry) = &entry {
                    entry.shared.charged.store(0, Ordering::Relaxed);
                }
                evicted.extend(entry);
            }
        }
        // Outside the cache's lock: a collection that is evicted may be in the middle of a query.
        for entry in evicted {
            entry.shared.evict();
        }
    }

    /// Tells, once a store, that the file system lacks something.
    pub(crate) fn notice(&self, lack: Lack, path: &Path, error: &io::Error) {
        if !self.noticed[lack as usize].swap(true, Ordering::Relaxed) {
            tracing::warn!(path = %path.display(), %error, "{}", lack.consequence());
        }
    }
}

impl Handles {
    fn insert(&mut self, path: PathBuf, shared: &Arc<Shared>) {
        const SWEEP_LEN_MIN: usize = 64;
        if self.paths.len() >= self.sweep_len.max(SWEEP_LEN_MIN) {
            self.paths.retain(|_, shared| shared.strong_count() > 0);
            self.paths.shrink_to_fit();
            self.sweep_len = self.paths.len() * 2;
        }
        self.paths.insert(path, Arc::downgrade(shared));
    }
}

impl Cache {
    fn remove(&mut self, path: &Path) -> Option<Entry> {
        let entry = self.entries.remove(path)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}
