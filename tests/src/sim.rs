//! A disk in memory that can fail any call, tear any write, and lose its power.
//!
//! What a program sees and what is on stable storage are kept apart. A write, a truncation and a change of a name are
//! *pending* until the sync of their file or folder; a power cut keeps any subset of what is pending, and tears the
//! write that it hits. A sync that fails has *lost* what was pending: the program still sees it, and no later sync
//! brings it to stable storage, as Linux does it. So an engine that retries a failed sync, renames before it syncs, or
//! forgets the folder, loses records here.
//!
//! Every call of [`Disk`] and [`DiskFile`] counts one; [`Fault`] names the call that goes wrong.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linekeep_engine::{Disk, DiskFile, Kind, Open, Stat, System};

/// What goes wrong, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The number of the call, from 0.
    pub call: u64,
    /// What happens there.
    pub what: What,
}

/// What happens at the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// That call alone fails; a write takes nothing.
    Once,
    /// That call alone fails; a write takes half before it does, and says so (a short write) when it can.
    OnceHalf,
    /// That call and all that follow fail, as on a disk that is full or gone, except that files can be removed.
    Forever,
    /// The power goes: that call and all that follow fail until [`SimDisk::reboot`].
    PowerCut,
}

/// A save by another program, which takes no lock: it reads the file and saves it with a line more at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The number of the call right before which it saves, from 0.
    pub call: u64,
    /// The file.
    pub path: PathBuf,
    /// The line, with its newline.
    pub line: Vec<u8>,
    /// How it saves.
    pub how: Save,
}

/// How an editor saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Save {
    /// A new file that is renamed over the old one.
    Rename,
    /// The same file, emptied and written.
    InPlace,
}

/// How much of what was pending a reboot keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Everything: the process was killed, the machine went on.
    All,
    /// Nothing that was not synced.
    Nothing,
    /// A subset, with torn writes, drawn from this seed.
    Some(u64),
}

/// The disk. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Clone, Default)]
struct Inner {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    pending_names: Vec<Rename>,
    clock: i128,
    calls: u64,
    log: Vec<String>,
    fault: Option<Fault>,
    edit: Option<Edit>,
    revert: Option<(u64, PathBuf, Vec<u8>)>,
    fired: bool,
    off: bool,
    locked: HashSet<usize>,
    alive: HashSet<u32>,
    exchanges: bool,
    sync_pause: Duration,
}

#[derive(Debug, Clone)]
struct Inode {
    kind: Kind,
    seen: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    mode: u32,
    modified: i128,
    changed: i128,
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { bytes: usize },
}

/// A change of names in one folder: a path that appears with an inode, or disappears.
#[derive(Debug, Clone)]
enum Rename {
    Add {
        path: PathBuf,
        inode: usize,
    },
    Remove {
        path: PathBuf,
    },
    /// One atomic step: the new name has the inode, the old one is gone.
    Move {
        from: PathBuf,
        to: PathBuf,
        inode: usize,
    },
    /// One atomic step: each name has the other's inode.
    Exchange {
        one: PathBuf,
        other: PathBuf,
        inodes: (usize, usize),
    },
}

impl SimDisk {
    /// An empty disk with one durable folder.
    pub fn new(root: &Path) -> Self {
        let disk = Self::default();
        {
            let mut inner = disk.lock();
            let inode = inner.add_inode(Kind::Folder);
            inner.names.insert(root.to_path_buf(), inode);
            inner.durable_names.insert(root.to_path_buf(), inode);
        }
        disk
    }

    /// Lets files exchange their names, as Linux can; without it only the plain rename is there.
    #[must_use]
    pub fn with_exchange(self) -> Self {
        self.lock().exchanges = true;
        self
    }

    /// Makes every sync of a file take so long, as flash does.
    pub fn pause_syncs(&self, pause: Duration) {
        self.lock().sync_pause = pause;
    }

    /// Another disk in the same state.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { inner: Arc::new(Mutex::new(self.lock().clone())) }
    }

    /// Lets a process with this id exist.
    pub fn let_live(&self, process: u32) {
        self.lock().alive.insert(process);
    }

    /// Puts a file on the disk, durable with its name and the folders above it, as if it had been there for long.
    /// On an existing file it is an edit by another program that writes a new file and renames it.
    pub fn place(&self, path: &Path, bytes: &[u8]) {
        let mut inner = self.lock();
        let mut folders: Vec<&Path> = path.ancestors().skip(1).collect();
        folders.reverse();
        for folder in folders {
            if !inner.names.contains_key(folder) {
                let inode = inner.add_inode(Kind::Folder);
                inner.names.insert(folder.to_path_buf(), inode);
                inner.durable_names.insert(folder.to_path_buf(), inode);
            }
        }
        let inode = inner.add_inode(Kind::File);
        inner.inodes[inode].seen = bytes.to_vec();
        inner.inodes[inode].durable = bytes.to_vec();
        inner.names.insert(path.to_path_buf(), inode);
        inner.durable_names.insert(path.to_path_buf(), inode);
    }

    /// Overwrites a file in place, durably, as an editor does that truncates and writes.
    pub fn overwrite(&self, path: &Path, bytes: &[u8]) {
        let mut inner = self.lock();
        let Some(inode) = inner.names.get(path).copied() else {
            drop(inner);
            return self.place(path, bytes);
        };
        let now = inner.now();
        let inode = &mut inner.inodes[inode];
        inode.seen = bytes.to_vec();
        inode.durable = bytes.to_vec();
        inode.pending.clear();
        (inode.modified, inode.changed) = (now, now);
    }

    /// The content of a file as a program sees it now; `None` when there is none.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let inner = self.lock();
        inner.names.get(path).map(|inode| inner.inodes[*inode].seen.clone())
    }

    /// The names below a folder.
    pub fn names(&self, folder: &Path) -> Vec<PathBuf> {
        let inner = self.lock();
        inner.names.keys().filter(|path| path.parent() == Some(folder)).cloned().collect()
    }

    /// Arms a fault, counting from now, and starts a new log.
    pub fn arm(&self, fault: Option<Fault>) {
        let mut inner = self.lock();
        inner.calls = 0;
        inner.fault = fault;
        inner.fired = false;
        inner.log.clear();
    }

    /// Arms an edit, counting from the last [`SimDisk::arm`].
    pub fn arm_edit(&self, edit: Edit) {
        self.lock().edit = Some(edit);
    }

    /// Arms a save of this content by rename, right before a call counted from the last [`SimDisk::arm`].
    pub fn revert_at(&self, call: u64, path: &Path, content: &[u8]) {
        self.lock().revert = Some((call, path.to_path_buf(), content.to_vec()));
    }

    /// Whether an armed revert has not come to pass.
    pub fn revert_is_due(&self) -> bool {
        self.lock().revert.is_some()
    }

    /// Whether an armed edit has not come to pass.
    pub fn edit_is_due(&self) -> bool {
        self.lock().edit.is_some()
    }

    /// Whether the armed fault has come to pass.
    pub fn fired(&self) -> bool {
        self.lock().fired
    }

    /// The calls since the last [`SimDisk::arm`], one line each: the verb and the last part of the path.
    pub fn log(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    /// The machine starts again: what was pending is kept as told, locks are gone, no fault is armed.
    pub fn reboot(&self, keep: Keep) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let mut random = Random(match keep {
            Keep::Some(seed) => seed,
            Keep::All | Keep::Nothing => 0,
        });
        let decide = |random: &mut Random| match keep {
            Keep::All => true,
            Keep::Nothing => false,
            Keep::Some(_) => random.below(2) == 1,
        };
        if keep != Keep::All {
            for inode in &mut inner.inodes {
                for change in std::mem::take(&mut inode.pending) {
                    match change {
                        Change::Write { offset, bytes } if decide(&mut random) => {
                            // A third of the kept writes are torn at some byte; torn means the rest is not there.
                            let torn = matches!(keep, Keep::Some(_)) && random.below(3) == 0;
                            let len = if torn { random.index(bytes.len() + 1) } else { bytes.len() };
                            write_at(&mut inode.durable, offset, &bytes[..len]);
                            // The size may have reached the disk when the bytes have not: they read as zeros.
                            if torn && random.below(2) == 1 {
                                let end = inode.durable.len().max(offset + bytes.len());
                                inode.durable.resize(end, 0);
                            }
                        }
                        Change::Truncate { bytes } if decide(&mut random) => inode.durable.resize(bytes, 0),
                        Change::Write { .. } | Change::Truncate { .. } => {}
                    }
                }
                inode.seen.clone_from(&inode.durable);
            }
            for rename in std::mem::take(&mut inner.pending_names) {
                if decide(&mut random) {
                    apply_name(&mut inner.durable_names, &rename);
                }
            }
            // What lies in a folder whose own name was lost is lost with it.
            let durable = &inner.durable_names;
            let reached = |path: &PathBuf| {
                path.ancestors()
                    .skip(1)
                    .all(|it| it == Path::new("/") || it == Path::new("") || durable.contains_key(it))
            };
            inner.names = durable
                .iter()
                .filter(|(path, _)| reached(path))
                .map(|(path, inode)| (path.clone(), *inode))
                .collect();
        }
        inner.durable_names.clone_from(&inner.names);
        inner.pending_names.clear();
        for inode in &mut inner.inodes {
            inode.durable.clone_from(&inode.seen);
            inode.pending.clear();
        }
        inner.locked.clear();
        inner.fault = None;
        inner.edit = None;
        inner.revert = None;
        inner.off = false;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a call is to do.
enum Verdict {
    Go,
    Fail,
    Half,
}

impl Inner {
    fn now(&mut self) -> i128 {
        self.clock += 1_000;
        self.clock
    }

    fn add_inode(&mut self, kind: Kind) -> usize {
        let now = self.now();
        self.inodes.push(Inode {
            kind,
            seen: Vec::new(),
            durable: Vec::new(),
            pending: Vec::new(),
            mode: 0o644,
            modified: now,
            changed: now,
        });
        self.inodes.len() - 1
    }

    /// Counts a call and says what it is to do. `frees` marks calls that give room back, which work on a full disk.
    fn call(&mut self, verb: &str, path: &Path, frees: bool) -> Verdict {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let temp = path.extension().is_some_and(|extension| extension == "tmp");
        let name = if temp { "temp".to_owned() } else { name };
        self.log.push(format!("{verb} {name}"));
        let number = self.calls;
        self.calls += 1;
        if let Some(edit) = self.edit.take_if(|edit| edit.call == number) {
            self.save(&edit);
        }
        if let Some((_, path, content)) = self.revert.take_if(|revert| revert.0 == number) {
            let inode = self.add_inode(Kind::File);
            self.inodes[inode].seen.clone_from(&content);
            self.inodes[inode].durable = content;
            self.names.insert(path.clone(), inode);
            self.durable_names.insert(path, inode);
        }
        if self.off {
            return Verdict::Fail;
        }
        let Some(fault) = self.fault else { return Verdict::Go };
        let due = match fault.what {
            What::Once | What::OnceHalf | What::PowerCut => number == fault.call,
            What::Forever => number >= fault.call && !frees,
        };
        if !due {
            return Verdict::Go;
        }
        self.fired = true;
        self.off = fault.what == What::PowerCut;
        match fault.what {
            What::OnceHalf | What::PowerCut => Verdict::Half,
            What::Once | What::Forever => Verdict::Fail,
        }
    }

    /// Saves as an editor does, durably, since it is the engine that is tried and not the editor.
    fn save(&mut self, edit: &Edit) {
        let old = self.names.get(&edit.path).copied();
        let seen = old.map(|inode| self.inodes[inode].seen.clone()).unwrap_or_default();
        let saved = [edit.line.as_slice(), &seen].concat();
        let inode = match (edit.how, old) {
            (Save::InPlace, Some(inode)) => inode,
            (Save::InPlace, None) | (Save::Rename, _) => self.add_inode(Kind::File),
        };
        let now = self.now();
        let file = &mut self.inodes[inode];
        (file.modified, file.changed) = (now, now);
        file.seen.clone_from(&saved);
        file.durable = saved;
        file.pending.clear();
        self.names.insert(edit.path.clone(), inode);
        self.durable_names.insert(edit.path.clone(), inode);
    }

    /// The name that an open file has now, or had when it was opened.
    fn name_of(&self, file: &SimFile) -> PathBuf {
        let named = self.names.iter().find(|(_, inode)| **inode == file.inode);
        named.map_or_else(|| file.path.clone(), |(path, _)| path.clone())
    }

    fn call_open(&mut self, verb: &str, file: &SimFile, frees: bool) -> Verdict {
        self.call(verb, &self.name_of(file), frees)
    }

    fn check_open(&mut self, verb: &str, file: &SimFile, frees: bool) -> io::Result<()> {
        self.check(verb, &self.name_of(file), frees)
    }

    fn check(&mut self, verb: &str, path: &Path, frees: bool) -> io::Result<()> {
        match self.call(verb, path, frees) {
            Verdict::Go => Ok(()),
            Verdict::Fail | Verdict::Half => Err(failure()),
        }
    }

    fn stat(&self, inode: usize) -> Stat {
        let it = &self.inodes[inode];
        Stat {
            kind: it.kind,
            device: 1,
            inode: inode as u64,
            bytes: it.seen.len() as u64,
            modified_ns: it.modified,
            changed_ns: it.changed,
            mode: it.mode,
            owner: (0, 0),
        }
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change(&mut self, inode: usize, change: Change) {
        let now = self.now();
        let inode = &mut self.inodes[inode];
        match &change {
            Change::Write { offset, bytes } => write_at(&mut inode.seen, *offset, bytes),
            Change::Truncate { bytes } => inode.seen.resize(*bytes, 0),
        }
        inode.pending.push(change);
        (inode.modified, inode.changed) = (now, now);
    }

    fn rename(&mut self, rename: Rename) {
        apply_name(&mut self.names, &rename);
        self.pending_names.push(rename);
    }
}

fn write_at(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

fn apply_name(names: &mut BTreeMap<PathBuf, usize>, rename: &Rename) {
    match rename {
        Rename::Add { path, inode } => {
            names.insert(path.clone(), *inode);
        }
        Rename::Remove { path } => {
            names.remove(path);
        }
        Rename::Move { from, to, inode } => {
            names.remove(from);
            names.insert(to.clone(), *inode);
        }
        Rename::Exchange { one, other, inodes } => {
            names.insert(one.clone(), inodes.1);
            names.insert(other.clone(), inodes.0);
        }
    }
}

fn failure() -> io::Error {
    io::Error::other("the simulated disk failed")
}

impl Disk for SimDisk {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let mut inner = self.lock();
        inner.check("stat", path, true)?;
        inner.find(path).map(|inode| inner.stat(inode))
    }

    fn stat_followed(&self, path: &Path) -> io::Result<Stat> {
        self.stat(path)
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let mut inner = self.lock();
        let inode = match how {
            Open::Read | Open::Append => {
                inner.check("open", path, true)?;
                inner.find(path)?
            }
            Open::Create { private } => {
                inner.check("create", path, false)?;
                if inner.names.contains_key(path) {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                let inode = inner.add_inode(Kind::File);
                inner.inodes[inode].mode = if private { 0o600 } else { 0o644 };
                inner.rename(Rename::Add { path: path.to_path_buf(), inode });
                inode
            }
        };
        Ok(Box::new(SimFile { disk: self.clone(), path: path.to_path_buf(), inode, locked: false }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut inner = self.lock();
        inner.check("rename", from, false)?;
        let inode = inner.find(from)?;
        let now = inner.now();
        inner.inodes[inode].changed = now;
        inner.rename(Rename::Move { from: from.to_path_buf(), to: to.to_path_buf(), inode });
        Ok(())
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        let mut inner = self.lock();
        if !inner.exchanges {
            return Err(io::ErrorKind::Unsupported.into());
        }
        inner.check("exchange", one, false)?;
        let inodes = (inner.find(one)?, inner.find(other)?);
        let now = inner.now();
        inner.inodes[inodes.0].changed = now;
        inner.inodes[inodes.1].changed = now;
        inner.rename(Rename::Exchange { one: one.to_path_buf(), other: other.to_path_buf(), inodes });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.lock();
        inner.check("remove", path, true)?;
        inner.find(path)?;
        inner.rename(Rename::Remove { path: path.to_path_buf() });
        Ok(())
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.lock();
        inner.check("create folder", path, false)?;
        if inner.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = inner.add_inode(Kind::Folder);
        inner.rename(Rename::Add { path: path.to_path_buf(), inode });
        Ok(())
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        // A sync of a folder that fails leaves its names pending: file systems keep them in a journal, which they write
        // later or stop working.
        inner.check("sync folder", path, true)?;
        let inside = |rename: &Rename| match rename {
            Rename::Add { path: it, .. }
            | Rename::Remove { path: it }
            | Rename::Move { to: it, .. }
            | Rename::Exchange { one: it, .. } => it.parent() == Some(path),
        };
        for rename in inner.pending_names.iter().filter(|rename| inside(rename)) {
            apply_name(&mut inner.durable_names, rename);
        }
        inner.pending_names.retain(|rename| !inside(rename));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.lock().check("list", path, true)?;
        Ok(self.names(path).iter().filter_map(|path| path.file_name().map(Into::into)).collect())
    }

    fn process_alive(&self, id: u32) -> bool {
        self.lock().alive.contains(&id)
    }
}

/// An open file of a [`SimDisk`].
struct SimFile {
    disk: SimDisk,
    /// The name that it was opened under.
    path: PathBuf,
    inode: usize,
    locked: bool,
}

impl DiskFile for SimFile {
    fn stat(&self) -> io::Result<Stat> {
        let mut inner = self.disk.lock();
        inner.check_open("stat open", self, true)?;
        Ok(inner.stat(self.inode))
    }

    fn read(&mut self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut inner = self.disk.lock();
        inner.check_open("read", self, true)?;
        let seen = &inner.inodes[self.inode].seen;
        let len = usize::try_from(bytes_max).map_or(seen.len(), |max| seen.len().min(max + 1));
        Ok(seen[..len].to_vec())
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut inner = self.disk.lock();
        inner.check_open("read", self, true)?;
        let seen = &inner.inodes[self.inode].seen;
        let rest = usize::try_from(offset).ok().and_then(|offset| seen.get(offset..)).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn matches(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let mut inner = self.disk.lock();
        inner.check_open("compare", self, true)?;
        Ok(inner.inodes[self.inode].seen == bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = self.disk.lock();
        let verdict = inner.call_open("write", self, false);
        let offset = inner.inodes[self.inode].seen.len();
        match verdict {
            Verdict::Go => {
                inner.change(self.inode, Change::Write { offset, bytes: bytes.to_vec() });
                Ok(bytes.len())
            }
            Verdict::Fail => Err(failure()),
            Verdict::Half => {
                let half = bytes.len() / 2;
                inner.change(self.inode, Change::Write { offset, bytes: bytes[..half].to_vec() });
                if inner.off { Err(failure()) } else { Ok(half) }
            }
        }
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        let mut inner = self.disk.lock();
        inner.check_open("truncate", self, true)?;
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        inner.change(self.inode, Change::Truncate { bytes });
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let pause = self.disk.lock().sync_pause;
        std::thread::sleep(pause);
        let mut guard = self.disk.lock();
        let inner = &mut *guard;
        let off_before = inner.off;
        let verdict = inner.call_open("sync", self, false);
        let inode = &mut inner.inodes[self.inode];
        match verdict {
            Verdict::Go => {
                for change in std::mem::take(&mut inode.pending) {
                    match change {
                        Change::Write { offset, bytes } => write_at(&mut inode.durable, offset, &bytes),
                        Change::Truncate { bytes } => inode.durable.resize(bytes, 0),
                    }
                }
                Ok(())
            }
            Verdict::Fail | Verdict::Half => {
                // A power cut leaves what is pending to the reboot; a failing disk has lost it.
                if !inner.off && !off_before {
                    inode.pending.retain(|change| matches!(change, Change::Truncate { .. }));
                }
                Err(failure())
            }
        }
    }

    fn try_lock(&mut self) -> io::Result<bool> {
        let mut inner = self.disk.lock();
        inner.check_open("lock", self, true)?;
        self.locked = self.locked || inner.locked.insert(self.inode);
        Ok(self.locked)
    }

    fn unlock(&mut self) -> io::Result<()> {
        let mut inner = self.disk.lock();
        inner.check_open("unlock", self, true)?;
        if std::mem::take(&mut self.locked) {
            inner.locked.remove(&self.inode);
        }
        Ok(())
    }

    fn set_access(&mut self, like: &Stat) -> io::Result<()> {
        let mut inner = self.disk.lock();
        inner.check_open("set mode", self, false)?;
        inner.inodes[self.inode].mode = like.mode;
        Ok(())
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if self.locked {
            self.disk.lock().locked.remove(&self.inode);
        }
    }
}

/// A clock that stands still and a random source that repeats itself from run to run.
#[derive(Debug)]
pub struct SimSystem {
    random: Mutex<Random>,
    /// The time, which stands still.
    pub unix_ns: i128,
}

impl SimSystem {
    /// A system whose random bytes follow from the seed.
    pub fn new(seed: u64) -> Self {
        Self { random: Mutex::new(Random(seed)), unix_ns: 1_796_067_180_000_000_000 }
    }
}

impl System for SimSystem {
    fn unix_ns(&self) -> i128 {
        self.unix_ns
    }

    fn random(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        for byte in buffer {
            *byte = random.next().to_le_bytes()[0];
        }
        Ok(())
    }
}

/// A small generator (splitmix64) for tests that must repeat.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "it is no iterator: it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
    /// A position below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }
}
