//! One collection's file: when its image is still true, and the order in which bytes reach the disk.
//!
//! Reading: one look at the path tells whether the image in memory is still the file; if not, the file is read again.
//! Writing: a batch from the queue is planned on the image and goes out as one append or one rewrite, under the file's
//! advisory lock. `// ORDER:` stands on every step that must come before another.
//!
//! Invariants:
//! - While a batch is being written, queries see the state before it; nobody sees bytes that may yet be lost.
//! - After any failure the image is thrown away: the next operation reads the file.
//! - The sync of the folder is remembered per inode, so a name that another program gave is made durable before an
//!   operation on it is acknowledged.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::commit::Queue;
use crate::disk::{DiskFile, Kind, Open, Stat};
use crate::error::{Error, Result, Unsupported};
use crate::filter::Filter;
use crate::health::Health;
use crate::image::{Appended, Image, Plan, Writer};
use crate::name::{CollectionName, RecordId};
use crate::op::{Op, Outcome, Records};
use crate::options::Durability;
use crate::readings::{RetainPolicy, Retained};
use crate::record::{Fields, Record};
use crate::repair::{self, Repair};
use crate::store::StoreInner;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
use crate::{scan, system};

/// How often a batch is planned again because the file changed under it before it gives up.
const ATTEMPTS_MAX: usize = 100;
/// How often a file that changes while it is read is read again before the last reading is taken.
const READS_MAX: usize = 5;
/// How old a save in place must be before the file is taken for whole.
const SETTLED_NS: i128 = 20_000_000;
/// How often a file that is being saved in place is waited for.
const SETTLES_MAX: usize = 50;

/// A collection: the one door to one file. Clones share it; all methods block.
#[derive(Clone)]
pub struct Collection {
    store: Arc<StoreInner>,
    shared: Arc<Shared>,
}

/// What all handles of one path share, for as long as somebody holds one or its image is in memory.
pub(crate) struct Shared {
    name: CollectionName,
    /// The folders from the store's root (not included) to the file, each to be a real folder.
    folders: Vec<PathBuf>,
    folder: PathBuf,
    path: PathBuf,
    queue: Queue<Work, Done>,
    state: Mutex<State>,
    idle: Condvar,
    /// When the image was last used, in ticks of the store.
    pub(crate) used: AtomicU64,
}

/// What one caller brings to the queue; it stays together.
enum Work {
    /// Operations, in order.
    Ops(Vec<Op>),
    /// A repair of the whole file.
    Repair,
}

/// The answer to one [`Work`].
enum Done {
    Ops(Vec<Result<Outcome>>),
    Repair(Result<Repair>),
}

#[derive(Default)]
struct State {
    image: Option<Held>,
    /// Whether a batch is between its plan and its end.
    writing: bool,
    /// The file whose name is known to be on stable storage.
    named: Option<(u64, u64)>,
    /// Whether temp files of dead processes were looked for.
    swept: bool,
    /// The state of the file that was warned about.
    warned: Option<Stat>,
}

/// An image and the state of the file that it was read from.
struct Held {
    stat: Stat,
    image: Arc<Image>,
}

impl Collection {
    pub(crate) fn new(store: Arc<StoreInner>, shared: Arc<Shared>) -> Self {
        Self { store, shared }
    }

    /// Runs one operation.
    ///
    /// # Errors
    /// As the operation: see [`Error`]. When it fails, nothing was changed, except as [`Error::Io`] says.
    pub fn run(&self, op: Op) -> Result<Outcome> {
        match op {
            Op::Query { filter, limit } => self.query(&filter, limit).map(Outcome::Records),
            Op::Append { .. }
            | Op::Set { .. }
            | Op::Update { .. }
            | Op::Delete { .. }
            | Op::Retain { .. } => {
                let answer = self.run_all(vec![op]).pop();
                answer.unwrap_or_else(|| Err(self.stopped("write")))
            }
        }
    }

    /// Runs operations together, as if one by one in order, each with its own answer: all of them go to the disk in one
    /// append or one rewrite, with one sync. One that fails leaves the others alone; a failure of the disk is the
    /// answer of all.
    pub fn run_all(&self, ops: Vec<Op>) -> Vec<Result<Outcome>> {
        if ops.is_empty() {
            return Vec::new();
        }
        let names: Vec<&'static str> = ops.iter().map(Op::name).collect();
        let stopped = || names.iter().map(|name| Err(self.stopped(name))).collect();
        match self.submit(Work::Ops(ops), || Done::Ops(stopped())) {
            Done::Ops(answers) => answers,
            Done::Repair(_) => stopped(),
        }
    }

    /// Thins a collection of readings: removes the records that the policy lets go, in one rewrite; none when there is
    /// nothing to remove.
    ///
    /// # Errors
    /// As [`Collection::run`].
    pub fn retain(&self, policy: RetainPolicy) -> Result<Retained> {
        match self.run(Op::Retain { policy })? {
            Outcome::Retained(retained) => Ok(retained),
            Outcome::Record(_) | Outcome::Deleted(_) | Outcome::Records(_) => Err(self.stopped("retain")),
        }
    }

    /// What [`Collection::retain`] would remove now. Writes nothing.
    ///
    /// # Errors
    /// As [`Collection::query`].
    pub fn retain_dry_run(&self, policy: &RetainPolicy) -> Result<Retained> {
        self.read_with(|image| image.retain_dry_run(policy))
    }

    /// Drops what is corrupt, puts every record on a line of its own, and keeps the file as it was beside the new one,
    /// under a name that no collection has. The only call that drops bytes which no operation named: for a person who
    /// has seen what [`Collection::repair_dry_run`] says. A file with nothing to repair is left alone.
    ///
    /// # Errors
    /// As [`Collection::run`]. When it fails, the file is as it was; the copy may be there.
    pub fn repair(&self) -> Result<Repair> {
        match self.submit(Work::Repair, || Done::Repair(Err(self.stopped("repair")))) {
            Done::Repair(repair) => repair,
            Done::Ops(_) => Err(self.stopped("repair")),
        }
    }

    /// What [`Collection::repair`] would do now. Writes nothing.
    ///
    /// # Errors
    /// As [`Collection::query`].
    pub fn repair_dry_run(&self) -> Result<Repair> {
        let bytes = self.file_bytes()?;
        let (repair, _) = repair::plan(&bytes);
        self.check_encoding(&bytes, repair.records == 0)?;
        Ok(repair)
    }

    fn stopped(&self, operation: &'static str) -> Error {
        Error::io(operation, &self.shared.path, io::Error::other("a bug in the engine stopped the batch"))
    }

    /// Adds a record with a new id and the present time, and returns it.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the file would exceed the cap; otherwise as [`Collection::run`].
    pub fn append(&self, fields: Fields) -> Result<Record> {
        self.run(Op::Append { fields }).map(expect_record)
    }

    /// Replaces the record with this id, or adds it, and returns it.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the file would exceed the cap; otherwise as [`Collection::run`].
    pub fn set(&self, id: RecordId, fields: Fields) -> Result<Record> {
        self.run(Op::Set { id, fields }).map(expect_record)
    }

    /// Merges fields over the record with this id, and returns it.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::TooLarge`]; otherwise as [`Collection::run`].
    pub fn update(&self, id: RecordId, fields: Fields) -> Result<Record> {
        self.run(Op::Update { id, fields }).map(expect_record)
    }

    /// Removes every record with this id.
    ///
    /// # Errors
    /// [`Error::NotFound`]; otherwise as [`Collection::run`].
    pub fn delete(&self, id: RecordId) -> Result<()> {
        self.run(Op::Delete { id }).map(|_| ())
    }

    /// Finds the records whose every filter field is equal; returns at most `limit` of them and counts all.
    ///
    /// # Errors
    /// [`Error::Unsupported`] or [`Error::Io`] when the file cannot be read. A missing file reads as empty.
    pub fn query(&self, filter: &Fields, limit: usize) -> Result<Records> {
        let filter = Filter::new(filter);
        self.read_with(|image| image.query(&filter, limit))
    }

    /// Reads the whole file and tells what is in it, the bad lines too.
    ///
    /// # Errors
    /// As [`Collection::query`].
    pub fn health(&self) -> Result<Health> {
        let bytes = self.file_bytes()?;
        let health = Health::of(&bytes, self.store.collection_bytes_max());
        self.check_encoding(&bytes, health.records == 0)?;
        Ok(health)
    }

    /// The collection's file.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }
}

impl std::fmt::Debug for Collection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Collection").field(&self.shared.path).finish()
    }
}

fn expect_record(outcome: Outcome) -> Record {
    match outcome {
        Outcome::Record(record) => record,
        Outcome::Deleted(_) | Outcome::Records(_) | Outcome::Retained(_) => {
            unreachable!("append, set and update answer with a record")
        }
    }
}

impl Shared {
    pub(crate) fn new(root: &Path, folders: &[&str], name: CollectionName) -> Self {
        let mut folder = root.to_path_buf();
        let folders = folders
            .iter()
            .map(|part| {
                folder.push(part);
                folder.clone()
            })
            .collect();
        let path = folder.join(name.file_name());
        Self {
            name,
            folders,
            folder,
            path,
            queue: Queue::new(),
            state: Mutex::new(State::default()),
            idle: Condvar::new(),
            used: AtomicU64::new(0),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the image's memory back.
    pub(crate) fn evict(&self) {
        lock(&self.state).image = None;
    }
}

/// Looking and reading.
impl Collection {
    fn io(&self, operation: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::io(operation, &self.shared.path, source)
    }

    /// The file as it stands at the path; `None` when there is none.
    fn look(&self) -> Result<Option<Stat>> {
        match self.store.disk().stat(&self.shared.path) {
            Ok(stat) => match stat.kind {
                Kind::File => Ok(Some(stat)),
                Kind::Symlink => Err(Error::unsupported(&self.shared.path, Unsupported::Symlink)),
                Kind::Folder | Kind::Other => {
                    Err(Error::unsupported(&self.shared.path, Unsupported::Kind { expected: "regular file" }))
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.io("stat")(error)),
        }
    }

    /// Refuses a link, or a file, where a folder of the store should be.
    fn check_folders(&self) -> Result<()> {
        for folder in &self.shared.folders {
            match self.store.disk().stat(folder).map(|stat| stat.kind) {
                Ok(Kind::Folder) => {}
                Ok(Kind::Symlink) => return Err(Error::unsupported(folder, Unsupported::Symlink)),
                Ok(Kind::File | Kind::Other) => {
                    return Err(Error::unsupported(folder, Unsupported::Kind { expected: "folder" }));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(Error::io("stat", folder, error)),
            }
        }
        Ok(())
    }

    /// Opens the file; `None` when it is gone.
    fn open(&self, how: Open) -> Result<Option<Box<dyn DiskFile>>> {
        self.check_folders()?;
        match self.store.disk().open(&self.shared.path, how) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                // A link put there after the look fails the open; say what it is rather than what the system says.
                self.look()?;
                Err(self.io("open")(error))
            }
        }
    }

    /// Reads an open file whole. The state is `None` when it changed meanwhile, so that the image must not be kept.
    fn read(&self, file: &mut dyn DiskFile) -> Result<(Vec<u8>, Option<Stat>)> {
        let limit = self.store.read_bytes_max();
        let mut last = None;
        for _ in 0..READS_MAX {
            let before = file.stat().map_err(self.io("stat"))?;
            let too_large = |size| Error::unsupported(&self.shared.path, Unsupported::Size { size, limit });
            if before.bytes > limit {
                return Err(too_large(before.bytes));
            }
            let bytes = file.read(limit).map_err(self.io("read"))?;
            if bytes.len() as u64 > limit {
                return Err(too_large(bytes.len() as u64));
            }
            let after = file.stat().map_err(self.io("stat"))?;
            let steady = before == after && bytes.len() as u64 == after.bytes;
            if steady {
                return Ok((bytes, Some(after)));
            }
            last = Some(bytes);
        }
        Ok((last.unwrap_or_default(), None))
    }

    /// Reads an open file that changed since `before`, and waits while it looks like an editor in the middle of a save.
    ///
    /// An editor that saves in place empties the file and then writes it. To take what is there in between for the
    /// collection would show half of it, and a rewrite would put that half in the place of what the editor is still
    /// writing. A save in place gives itself away: the same file no longer starts with what it held. (Another gateway
    /// only adds at the end, or replaces the file.) At first sight of a file there is nothing to compare; then an end
    /// without a newline is the sign.
    fn read_settled(
        &self,
        file: &mut dyn DiskFile,
        before: Option<&Held>,
    ) -> Result<(Vec<u8>, Option<Stat>)> {
        for _ in 0..SETTLES_MAX {
            let (bytes, stat) = self.read(file)?;
            let Some(seen) = stat else { return Ok((bytes, stat)) };
            let in_place = match before {
                Some(held) => held.stat.same_file(&seen) && !bytes.starts_with(held.image.bytes()),
                None => bytes.last() != Some(&b'\n'),
            };
            let age = self.store.system().unix_ns() - seen.modified_ns;
            if !in_place || !(0..SETTLED_NS).contains(&age) {
                return Ok((bytes, stat));
            }
            let rest = u64::try_from(SETTLED_NS - age).unwrap_or(0);
            std::thread::sleep(Duration::from_nanos(rest));
        }
        self.read(file)
    }

    /// The file's bytes now; none when there is no file.
    fn file_bytes(&self) -> Result<Vec<u8>> {
        let file = if self.look()?.is_some() { self.open(Open::Read)? } else { None };
        file.map_or(Ok(Vec::new()), |mut file| self.read(&mut *file).map(|(bytes, _)| bytes))
    }

    /// Makes an image of a file's bytes, and warns once per state of the file of what is corrupt in it.
    fn image_of(&self, bytes: Vec<u8>, stat: Option<Stat>, state: &mut State) -> Result<Arc<Image>> {
        let image = Image::new(bytes);
        self.check_encoding(image.bytes(), image.is_empty())?;
        if let Some(corruption) = image.corruption()
            && (stat.is_none() || state.warned != stat)
        {
            state.warned = stat;
            tracing::warn!(
                path = %self.shared.path.display(),
                corrupt_lines = corruption.lines,
                first_line = corruption.first_line,
                reason = %corruption.first_reason,
                "corrupt lines are skipped and kept"
            );
        }
        Ok(Arc::new(image))
    }

    /// Refuses text in another encoding. A file with a record in it is not, whatever bytes it starts with.
    fn check_encoding(&self, bytes: &[u8], without_records: bool) -> Result<()> {
        match scan::foreign_encoding(bytes).filter(|_| without_records) {
            Some(encoding) => Err(Error::unsupported(&self.shared.path, Unsupported::Encoding { encoding })),
            None => Ok(()),
        }
    }

    /// Reads the collection as it is acknowledged: from the image if that is still the file.
    fn read_with<T>(&self, read: impl FnOnce(&Image) -> T) -> Result<T> {
        let mut state = lock(&self.shared.state);
        loop {
            // What is being written is not acknowledged yet: the image before it is the truth, and a look at the path
            // would show bytes that may yet be lost.
            if !state.writing {
                break;
            }
            if let Some(held) = &state.image {
                self.touch();
                return Ok(read(&held.image));
            }
            state = wait(&self.shared.idle, state);
        }
        let Some(stat) = self.look()? else {
            state.image = None;
            return Ok(read(&Image::empty()));
        };
        if !state.image.as_ref().is_some_and(|held| held.stat == stat) {
            let before = state.image.take();
            let Some(mut file) = self.open(Open::Read)? else { return Ok(read(&Image::empty())) };
            let (bytes, stat) = self.read_settled(&mut *file, before.as_ref())?;
            let image = self.image_of(bytes, stat, &mut state)?;
            let Some(stat) = stat else { return Ok(read(&image)) };
            state.image = Some(Held { stat, image });
        }
        let answer = match &state.image {
            Some(held) => read(&held.image),
            None => read(&Image::empty()),
        };
        self.settle(state);
        Ok(answer)
    }

    fn touch(&self) {
        self.shared.used.store(self.store.tick(), Ordering::Relaxed);
    }

    /// Releases the state and tells the store what the image costs now.
    fn settle(&self, state: MutexGuard<'_, State>) {
        self.touch();
        let cost = state.image.as_ref().map_or(0, |held| held.image.cost());
        drop(state);
        self.store.charge(&self.shared, cost);
    }
}

/// Writing.
impl Collection {
    fn submit(&self, work: Work, stopped: impl Fn() -> Done) -> Done {
        self.shared.queue.run(work, |batch| self.commit(batch), stopped)
    }

    /// Does what waits: all operations between two repairs as one batch, so nearly always all of them.
    fn commit(&self, waiting: Vec<Work>) -> Vec<Done> {
        let mut done = Vec::with_capacity(waiting.len());
        let mut groups = Vec::new();
        for work in waiting {
            match work {
                Work::Ops(ops) => groups.push(ops),
                Work::Repair => {
                    done.extend(self.commit_ops(std::mem::take(&mut groups)));
                    done.push(Done::Repair(self.until_steady(|| self.attempt_repair())));
                }
            }
        }
        done.extend(self.commit_ops(groups));
        done
    }

    /// Does a batch. Every operation gets its own answer; a failure of the disk is the answer of all.
    fn commit_ops(&self, groups: Vec<Vec<Op>>) -> Vec<Done> {
        let lens: Vec<usize> = groups.iter().map(Vec::len).collect();
        let batch: Vec<Op> = groups.into_iter().flatten().collect();
        if batch.is_empty() {
            return Vec::new();
        }
        let answers = match self.until_steady(|| self.attempt(&batch)) {
            Ok(answers) => answers,
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut answers = answers.into_iter();
        lens.into_iter().map(|len| Done::Ops(answers.by_ref().take(len).collect())).collect()
    }

    /// Repeats an attempt that found the file changed under it.
    fn until_steady<T>(&self, attempt: impl Fn() -> Result<Option<T>>) -> Result<T> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(done) = attempt()? {
                return Ok(done);
            }
        }
        Err(Error::Busy {
            operation: "write",
            path: self.shared.path.clone(),
            reason: format!("the file changed during each of {ATTEMPTS_MAX} attempts"),
        })
    }

    /// One attempt; `None` when the file changed under it and everything is to be done again.
    fn attempt(&self, batch: &[Op]) -> Result<Option<Vec<Result<Outcome>>>> {
        let Some(mut file) = self.open_locked()? else {
            // No file. Plan on nothing first: a batch that writes nothing must not leave an empty file behind.
            let (answers, plan) = self.plan(&Image::empty(), batch);
            return match plan {
                Plan::Nothing => Ok(Some(answers)),
                Plan::Append(_) | Plan::Rewrite(_) => self.create().map(|()| None),
            };
        };
        let mut writing = self.begin(&mut *file)?;
        let (answers, plan) = self.plan(&writing.image, batch);
        let done = match plan {
            Plan::Nothing => {
                writing.keep();
                true
            }
            Plan::Append(appended) => self.write_append(&mut *file, &mut writing, appended)?,
            Plan::Rewrite(image) => self.write_rewrite(&mut *file, &mut writing, image)?,
        };
        // The file, and with it the lock, is released before the next attempt or the next batch.
        drop(writing);
        drop(file);
        Ok(done.then_some(answers))
    }

    /// One attempt at a repair; `None` when the file changed under it.
    fn attempt_repair(&self) -> Result<Option<Repair>> {
        let Some(mut file) = self.open_locked()? else { return Ok(Some(repair::plan(&[]).0)) };
        let mut writing = self.begin(&mut *file)?;
        let (mut repair, bytes) = repair::plan(writing.image.bytes());
        if repair.steps_count == 0 {
            writing.keep();
            return Ok(Some(repair));
        }
        let name = repair::kept_name(&self.shared.name, self.store.system());
        let kept = self.shared.folder.join(name);
        self.keep_copy(&kept, writing.image.bytes())?;
        repair.kept = Some(kept.clone());
        let done = self.write_rewrite(&mut *file, &mut writing, Image::new(bytes))?;
        if !done {
            // The next attempt keeps a copy of what it then finds.
            self.store.disk().remove(&kept).map_err(|error| Error::io("remove", &kept, error))?;
        }
        Ok(done.then_some(repair))
    }

    /// Puts a copy on stable storage under a name that must be free.
    fn keep_copy(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let failed = |operation| move |error| Error::io(operation, path, error);
        let mut copy =
            self.store.disk().open(path, Open::Create { private: true }).map_err(failed("create"))?;
        write_all(&mut *copy, bytes).map_err(failed("write"))?;
        // ORDER: the copy and its name are on stable storage before anything is dropped from the original.
        copy.sync().map_err(failed("sync"))?;
        self.sync_folder(&self.shared.folder)
    }

    fn plan(&self, image: &Image, batch: &[Op]) -> (Vec<Result<Outcome>>, Plan) {
        let system = self.store.system();
        let mut random = || {
            let mut bytes = [0; 6];
            system.random(&mut bytes).map_err(self.io("random source for an id"))?;
            Ok(bytes)
        };
        let mut writer = Writer {
            collection: self.shared.name.as_str(),
            bytes_max: self.store.collection_bytes_max(),
            timestamp: &system::timestamp(system),
            random: &mut random,
        };
        image.plan(batch, &mut writer)
    }

    /// Opens the file and takes its lock; `None` when there is no file.
    ///
    /// The lock belongs to an inode, not to a name: after it is taken the name may be somebody else's new file, whose
    /// lock it is not. So the inode is compared again under the lock.
    fn open_locked(&self) -> Result<Option<Box<dyn DiskFile>>> {
        for _ in 0..ATTEMPTS_MAX {
            if self.look()?.is_none() {
                return Ok(None);
            }
            let Some(mut file) = self.open(Open::Append)? else { return Ok(None) };
            self.lock(&mut *file)?;
            let locked = file.stat().map_err(self.io("stat"))?;
            if self.look()?.is_some_and(|stat| stat.same_file(&locked)) {
                return Ok(Some(file));
            }
        }
        Err(Error::Busy {
            operation: "lock",
            path: self.shared.path.clone(),
            reason: format!("the file was replaced during each of {ATTEMPTS_MAX} attempts"),
        })
    }

    fn lock(&self, file: &mut dyn DiskFile) -> Result<()> {
        let limit = Duration::from_millis(self.store.lock_wait_ms_max());
        let mut waited = Duration::ZERO;
        let mut pause = Duration::from_micros(50);
        loop {
            match file.try_lock() {
                Ok(true) => return Ok(()),
                Ok(false) if waited >= limit => {
                    return Err(Error::Busy {
                        operation: "lock",
                        path: self.shared.path.clone(),
                        reason: format!("another process held the lock for {} ms", limit.as_millis()),
                    });
                }
                Ok(false) => {
                    std::thread::sleep(pause);
                    waited += pause;
                    pause = (pause * 2).min(Duration::from_millis(5));
                }
                // Some file systems have no locks (shared storage of a phone, old network mounts).
                Err(error) if lacks_locks(&error) => {
                    self.store.notice_no_locks(&self.shared.path, &error);
                    return Ok(());
                }
                Err(error) => return Err(self.io("lock")(error)),
            }
        }
    }

    /// Creates the file, and the folders above it up to the store's root, empty.
    fn create(&self) -> Result<()> {
        self.check_folders()?;
        let disk = self.store.disk();
        for folder in &self.shared.folders {
            match disk.create_folder(folder) {
                Ok(()) => {
                    let above = folder.parent().unwrap_or(folder);
                    self.sync_folder(above)?;
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create folder", folder, error)),
            }
        }
        match disk.open(&self.shared.path, Open::Create { private: false }) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(self.io("create")(error)),
        }
    }

    /// Brings the image up to date under the file's lock, and marks the collection as being written.
    fn begin(&self, file: &mut dyn DiskFile) -> Result<Writing<'_>> {
        let mut state = lock(&self.shared.state);
        let stat = file.stat().map_err(self.io("stat"))?;
        let current = match &state.image {
            Some(held) if held.stat == stat => Some(Arc::clone(&held.image)),
            Some(_) | None => None,
        };
        let (image, stat) = if let Some(image) = current {
            (image, stat)
        } else {
            let before = state.image.take();
            let (bytes, stat) = self.read_settled(file, before.as_ref())?;
            let Some(stat) = stat else {
                return Err(Error::Busy {
                    operation: "read",
                    path: self.shared.path.clone(),
                    reason: format!("the file changed while it was read, {READS_MAX} times"),
                });
            };
            let image = self.image_of(bytes, Some(stat), &mut state)?;
            state.image = Some(Held { stat, image: Arc::clone(&image) });
            (image, stat)
        };
        if !state.swept {
            state.swept = true;
            self.sweep();
        }
        state.writing = true;
        Ok(Writing { collection: self, image, stat, named: state.named, after: After::Forget })
    }

    /// Puts whole lines at the end. Returns whether it was done; not, when the file had changed.
    fn write_append(
        &self,
        file: &mut dyn DiskFile,
        writing: &mut Writing<'_>,
        appended: Appended,
    ) -> Result<bool> {
        let before = file.stat().map_err(self.io("stat"))?;
        if before != writing.stat {
            return Ok(false);
        }
        let wanted = appended.bytes.len();
        let written = match file.write(&appended.bytes) {
            Ok(written) if written == wanted => written,
            Ok(written) => {
                let error = format!("only {written} of {wanted} bytes were taken, the disk may be full");
                self.undo_append(file, before, written as u64);
                return Err(self.io("write")(io::Error::new(io::ErrorKind::WriteZero, error)));
            }
            Err(error) => {
                self.undo_append(file, before, 0);
                return Err(self.io("write")(error));
            }
        } as u64;
        if self.store.durability() == Durability::Sync {
            // ORDER: the bytes, then the name they are found under, then the answer.
            if let Err(error) = file.sync() {
                // Retrying proves nothing: the system may have dropped the bytes and forgotten that it had to.
                self.undo_append(file, before, written);
                return Err(self.io("sync")(error));
            }
            self.make_name_durable(writing, before)?;
        }
        let after = file.stat().map_err(self.io("stat"))?;
        if after.bytes == before.bytes + written {
            writing.after = After::Appended(appended, after);
        }
        Ok(true)
    }

    /// Cuts off what a failed append left, if nobody else wrote behind it, and makes that last: a record whose append
    /// failed should not come back after a power cut. None of it makes the append succeed.
    fn undo_append(&self, file: &mut dyn DiskFile, before: Stat, written: u64) {
        let undone = match file.stat() {
            // A failed write may have left bytes all the same; only the size tells.
            Ok(after) if after.bytes == before.bytes => Ok(()),
            Ok(after) if written == 0 || after.bytes == before.bytes + written => {
                file.truncate(before.bytes).and_then(|()| match self.store.durability() {
                    Durability::Sync => file.sync(),
                    Durability::Flush => Ok(()),
                })
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = undone {
            tracing::warn!(path = %self.shared.path.display(), %error, "a failed append could not be cut off for good");
        }
    }

    /// Replaces the file. Returns whether it was done; not, when the file had changed.
    fn write_rewrite(
        &self,
        file: &mut dyn DiskFile,
        writing: &mut Writing<'_>,
        image: Image,
    ) -> Result<bool> {
        let disk = self.store.disk();
        let sync = self.store.durability() == Durability::Sync;
        let temp_path = self.shared.folder.join(self.temp_name()?);
        let mut temp = disk
            .open(&temp_path, Open::Create { private: true })
            .map_err(|error| Error::io("create", &temp_path, error))?;
        // From here on the temp file is removed on every way out but success.
        let guard = Temp { collection: self, path: &temp_path, armed: true };
        let failed = |operation| {
            let path = &temp_path;
            move |error| Error::io(operation, path, error)
        };
        write_all(&mut *temp, image.bytes()).map_err(failed("write"))?;
        temp.set_mode(writing.stat.mode).map_err(failed("set mode"))?;
        if sync {
            // ORDER: the new bytes are on stable storage before the name points at them.
            temp.sync().map_err(failed("sync"))?;
        }
        // ORDER: the last look comes right before the rename: an edit that came after the file was read is not
        // overwritten, the batch is planned again on it. Times of files are too coarse to tell two saves of equal
        // length apart, so the content is compared too.
        let unchanged = self.look()? == Some(writing.stat) && self.read(file)?.0 == writing.image.bytes();
        if !unchanged {
            return Ok(false);
        }
        disk.rename(&temp_path, &self.shared.path).map_err(self.io("rename"))?;
        guard.disarm();
        let renamed = temp.stat().map_err(self.io("stat"))?;
        if sync {
            // ORDER: the name is on stable storage before the answer.
            self.make_name_durable(writing, renamed)?;
        }
        if self.look()? == Some(renamed) {
            writing.after = After::Replaced(Arc::new(image), renamed);
        }
        Ok(true)
    }

    /// Syncs the folder unless this file's name is known to be durable already.
    fn make_name_durable(&self, writing: &mut Writing<'_>, file: Stat) -> Result<()> {
        let identity = Some((file.device, file.inode));
        if writing.named != identity {
            self.sync_folder(&self.shared.folder)?;
            writing.named = identity;
        }
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> Result<()> {
        match self.store.disk().sync_folder(folder) {
            Ok(()) => Ok(()),
            // Shared storage of a phone does not sync folders.
            Err(error) if lacks_folder_sync(&error) => {
                self.store.notice_no_folder_sync(folder, &error);
                Ok(())
            }
            Err(error) => Err(Error::io("sync", folder, error)),
        }
    }
}

/// Temp files.
impl Collection {
    /// A name that no other process and no other call uses, and that no collection can have.
    fn temp_name(&self) -> Result<String> {
        let mut random = [0; 8];
        self.store.system().random(&mut random).map_err(self.io("random source for a temp file"))?;
        let process = std::process::id();
        Ok(format!(".{}.{process}-{:016x}.tmp", self.shared.name.file_name(), u64::from_le_bytes(random)))
    }

    /// Removes this collection's temp files of processes that no longer run. Called under the collection's lock, so no
    /// living process is using one of this collection's.
    fn sweep(&self) {
        let disk = self.store.disk();
        let Ok(names) = disk.list(&self.shared.folder) else { return };
        let prefix = format!(".{}.", self.shared.name.file_name());
        for name in names {
            let owner = name.to_str().and_then(|name| {
                let (process, random) = name.strip_prefix(&prefix)?.strip_suffix(".tmp")?.split_once('-')?;
                (random.len() == 16).then(|| process.parse::<u32>().ok())?
            });
            let Some(owner) = owner.filter(|owner| !disk.process_alive(*owner)) else { continue };
            let path = self.shared.folder.join(&name);
            match disk.remove(&path) {
                Ok(()) => {
                    tracing::info!(path = %path.display(), process = owner, "removed a dead process's temp file");
                }
                Err(error) => tracing::warn!(path = %path.display(), %error, "a stale temp file stays"),
            }
        }
    }
}

/// A collection between the plan of a batch and its end. Dropping it ends the batch, whichever way it went.
struct Writing<'a> {
    collection: &'a Collection,
    image: Arc<Image>,
    /// The file that the image is.
    stat: Stat,
    named: Option<(u64, u64)>,
    after: After,
}

/// What becomes of the image.
enum After {
    /// It is thrown away.
    Forget,
    /// It is as true as before.
    Keep,
    /// These lines were put at its end.
    Appended(Appended, Stat),
    /// It was replaced.
    Replaced(Arc<Image>, Stat),
}

impl Writing<'_> {
    fn keep(&mut self) {
        self.after = After::Keep;
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.collection.shared.state);
        state.writing = false;
        state.named = self.named;
        // The state's copy must be the only one, or the append below would copy the whole image.
        let image = std::mem::replace(&mut self.image, Arc::new(Image::empty()));
        drop(image);
        match std::mem::replace(&mut self.after, After::Forget) {
            After::Forget => state.image = None,
            After::Keep => {}
            After::Appended(appended, stat) => {
                if let Some(held) = &mut state.image {
                    Arc::make_mut(&mut held.image).append(&appended);
                    held.stat = stat;
                }
            }
            After::Replaced(image, stat) => state.image = Some(Held { stat, image }),
        }
        self.collection.shared.idle.notify_all();
        self.collection.settle(state);
    }
}

/// Removes a temp file unless its rename was done.
struct Temp<'a> {
    collection: &'a Collection,
    path: &'a Path,
    armed: bool,
}

impl Temp<'_> {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if self.armed
            && let Err(error) = self.collection.store.disk().remove(self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a temp file could not be removed");
        }
    }
}

fn write_all(file: &mut dyn DiskFile, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

fn lacks_locks(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    error.kind() == io::ErrorKind::Unsupported
        || [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK, Errno::INVAL].map(Some).contains(&errno)
}

fn lacks_folder_sync(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    error.kind() == io::ErrorKind::Unsupported
        || [Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL, Errno::PERM, Errno::ACCESS]
            .map(Some)
            .contains(&errno)
}
