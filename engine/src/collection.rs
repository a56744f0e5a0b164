//! One collection's file: its door, and when its image is still true.
//!
//! One look at the path tells whether the image in memory is still the file; if not, the file is read again. How bytes
//! reach the disk is in `write.rs`.
//!
//! Invariants:
//! - While a batch is being written, queries see the state before it; nobody sees bytes that may yet be lost.
//! - After any failure the image is thrown away: the next operation reads the file.
//! - The sync of the folder is remembered per inode, so a name that another program gave is made durable before an
//!   operation on it is acknowledged.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::commit::Queue;
use crate::disk::{DiskFile, Kind, Open, Stat};
use crate::draft::{self, Appended, Rewrite};
use crate::error::{Error, Result, Unsupported};
use crate::filter::Filter;
use crate::glance;
use crate::health::Health;
use crate::image::Image;
use crate::index::Indexes;
use crate::name::{CollectionName, RecordId};
use crate::op::{Op, Outcome, Records};
use crate::readings::{RetainPolicy, Retained};
use crate::record::{Fields, Record};
use crate::repair::{self, Repair};
use crate::scan;
use crate::store::StoreInner;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};

mod closer;
mod write;

pub(crate) use self::closer::Closer;

/// How often a batch is planned again because the file changed under it before it gives up.
const ATTEMPTS_MAX: usize = 100;
/// How often a file that changes while it is read is read again before the last reading is taken.
const READS_MAX: usize = 5;
/// How old a save in place must be before the file is taken for whole.
const SETTLED_NS: i128 = 20_000_000;
/// How old a change must be in a file that was not seen before and shows no sign of a save in place.
const SETTLED_UNKNOWN_NS: i128 = 1_000_000;
/// What a collection that was answered for without an image is charged for being remembered.
const GLANCED_BYTES: u64 = 1024;
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
    /// What the store was told that the image costs.
    pub(crate) charged: AtomicU64,
    /// Whether the store knows that a file is kept open here.
    pub(crate) kept_open: AtomicBool,
    /// When the image was last used, in ticks of the store.
    pub(crate) used: AtomicU64,
    /// Whether the image is to go when the collection is done with it.
    evicted: AtomicBool,
}

/// What one caller brings to the queue; it stays together.
enum Work {
    /// One operation.
    Op(Op),
    /// Operations, in order.
    Ops(Vec<Op>),
    /// A repair of the whole file.
    Repair,
}

/// The answer to one [`Work`].
enum Done {
    Op(Result<Outcome>),
    Ops(Vec<Result<Outcome>>),
    Repair(Result<Repair>),
}

#[derive(Default)]
struct State {
    image: Option<Held>,
    /// Whether a batch is between its plan and its end.
    writing: bool,
    /// How many wait for its end.
    waiting: usize,
    /// What of the image's file is known to be on stable storage.
    durable: Durable,
    /// Whether the file was just created here, so that it may be empty.
    created: bool,
    /// The state of the file that one query was answered from without an image.
    glanced: Option<Stat>,
    /// Whether temp files of dead processes were looked for.
    swept: bool,
    /// The state of the file that was warned about.
    warned: Option<Stat>,
}

/// What is known of a file before it is read.
enum Before {
    /// Nothing.
    Unknown,
    /// It was created here a moment ago.
    Created,
    /// What it held.
    Held(Box<Held>),
}

impl State {
    /// Takes the image, which is not true any more, out of the state.
    fn forget(&mut self) -> Before {
        self.durable.content = false;
        self.durable.name = false;
        let created = std::mem::take(&mut self.created);
        match self.image.take() {
            Some(held) => Before::Held(Box::new(held)),
            None if created => Before::Created,
            None => Before::Unknown,
        }
    }
}

/// What is known to be on stable storage.
#[expect(clippy::struct_excessive_bools, reason = "four facts that are true or not, each by itself")]
#[derive(Debug, Clone, Copy, Default)]
struct Durable {
    /// The file's content.
    content: bool,
    /// The file's name.
    name: bool,
    /// The names of the folders above it.
    folders: bool,
    /// A sync failed: what is there proves nothing until it is written anew.
    suspect: bool,
}

/// An open file.
struct Opened {
    file: Box<dyn DiskFile>,
    /// Which file it is, and its state when it was looked at last.
    stat: Stat,
}

/// An image, its indexes, and the state of the file that it was read from.
struct Held {
    stat: Stat,
    image: Arc<Image>,
    indexes: Indexes,
    /// The file, kept open between two batches, without its lock.
    file: Option<Opened>,
}

impl Held {
    fn new(stat: Stat, image: Arc<Image>) -> Self {
        Self { stat, image, indexes: Indexes::default(), file: None }
    }

    fn cost(&self) -> u64 {
        self.image.cost() + self.indexes.cost()
    }

    /// After these lines were put at the end of the file.
    fn appended(mut self, appended: &Appended, stat: Stat) -> Self {
        Arc::make_mut(&mut self.image).append(appended);
        self.indexes.after_append(&self.image, appended.records.len());
        Self { stat, ..self }
    }

    /// After the file was rewritten.
    fn rewritten(mut self, rewrite: &Rewrite, stat: Stat) -> Self {
        self.indexes.before_rewrite(&self.image, rewrite);
        Arc::make_mut(&mut self.image).rewrite(rewrite);
        if self.image.is_sparse() {
            // Slots of removed records would pile up; numbered anew, nothing but the bytes stays.
            return Self::new(stat, Arc::new(Image::new(self.image.bytes().to_vec())));
        }
        self.indexes.after_rewrite(&self.image, rewrite);
        Self { stat, ..self }
    }
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
                let name = op.name();
                match self.submit(Work::Op(op), || Done::Op(Err(self.stopped(name)))) {
                    Done::Op(answer) => answer,
                    // The leader of the batch panicked, and answered for all as for itself.
                    Done::Ops(_) | Done::Repair(_) => Err(self.stopped(name)),
                }
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
            Done::Ops(answers) if answers.len() == names.len() => answers,
            // The leader of the batch panicked, and answered for all as for itself.
            Done::Op(_) | Done::Ops(_) | Done::Repair(_) => stopped(),
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
        self.read_with(|_| Ok(None), |held| draft::retain_dry_run(&held.image, policy))
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
            Done::Op(_) | Done::Ops(_) => Err(self.stopped("repair")),
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
        let glance = |stat| self.glance(stat, &filter, limit);
        self.read_with(glance, |held| held.indexes.query(&held.image, &filter, limit))
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
            charged: AtomicU64::new(0),
            kept_open: AtomicBool::new(false),
            used: AtomicU64::new(0),
            evicted: AtomicBool::new(false),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the image's memory back: at once, or, when the collection is busy, when it is done.
    pub(crate) fn evict(&self) {
        match self.state.try_lock() {
            Ok(mut state) => state.image = None,
            Err(_) => self.evicted.store(true, Ordering::Relaxed),
        }
    }

    /// Closes the file that is kept open. Not, when the collection is busy; returns whether none is open now.
    pub(crate) fn close_file(&self) -> bool {
        let Ok(mut state) = self.state.try_lock() else { return false };
        if let Some(held) = &mut state.image {
            held.file = None;
        }
        !state.writing
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
    /// without a newline is the sign, and without that sign a short while without a change is enough.
    fn read_settled(&self, file: &mut dyn DiskFile, before: &Before) -> Result<(Vec<u8>, Option<Stat>)> {
        for _ in 0..SETTLES_MAX {
            let (bytes, stat) = self.read(file)?;
            let Some(seen) = stat else { return Ok((bytes, stat)) };
            let settled_ns =
                match before {
                    Before::Held(held) if held.stat.same_file(&seen) => {
                        if bytes.starts_with(held.image.bytes()) { 0 } else { SETTLED_NS }
                    }
                    Before::Created if bytes.is_empty() => 0,
                    Before::Held(_) | Before::Created | Before::Unknown => {
                        if bytes.last() == Some(&b'\n') {
                            SETTLED_UNKNOWN_NS
                        } else {
                            SETTLED_NS
                        }
                    }
                };
            let age = self.store.system().unix_ns() - seen.modified_ns;
            if !(0..settled_ns).contains(&age) {
                return Ok((bytes, stat));
            }
            std::thread::sleep(Duration::from_nanos(u64::try_from(settled_ns - age).unwrap_or(0)));
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

    /// Answers a query from the file in this state, without an image. Not, when there is anything to think about: a
    /// change a moment ago, or while it is read.
    fn glance(&self, stat: Stat, filter: &Filter, limit: usize) -> Result<Option<Records>> {
        let age = self.store.system().unix_ns() - stat.modified_ns;
        if (0..SETTLED_NS).contains(&age) {
            return Ok(None);
        }
        if stat.bytes > self.store.read_bytes_max() {
            return Ok(None);
        }
        let Some(mut file) = self.open(Open::Read)? else { return Ok(None) };
        if file.stat().map_err(self.io("stat"))? != stat {
            return Ok(None);
        }
        let read = |offset, buffer: &mut [u8]| file.read_at(offset, buffer);
        let answer = glance::query(filter, limit, stat.bytes, read).map_err(self.io("read"))?;
        let steady = file.stat().map_err(self.io("stat"))? == stat;
        Ok(answer.filter(|_| steady))
    }

    /// Reads the collection as it is acknowledged: from the image if that is still the file. At first sight of a state of
    /// the file, `glance` may answer, and no image is made yet.
    fn read_with<T>(
        &self,
        glance: impl FnOnce(Stat) -> Result<Option<T>>,
        read: impl FnOnce(&mut Held) -> T,
    ) -> Result<T> {
        let mut state = lock(&self.shared.state);
        loop {
            // What is being written is not acknowledged yet: the image before it is the truth, and a look at the path
            // would show bytes that may yet be lost.
            if !state.writing {
                break;
            }
            if let Some(held) = &mut state.image {
                self.touch();
                return Ok(read(held));
            }
            state.waiting += 1;
            state = wait(&self.shared.idle, state);
            state.waiting -= 1;
        }
        let answer = self.read_locked(&mut state, glance, read);
        self.settle(state);
        answer
    }

    fn read_locked<T>(
        &self,
        state: &mut State,
        glance: impl FnOnce(Stat) -> Result<Option<T>>,
        read: impl FnOnce(&mut Held) -> T,
    ) -> Result<T> {
        let mut nothing = Held::new(Stat::NOTHING, Arc::new(Image::empty()));
        let Some(stat) = self.look()? else {
            state.image = None;
            state.glanced = None;
            return Ok(read(&mut nothing));
        };
        if !state.image.as_ref().is_some_and(|held| held.stat == stat) {
            if state.glanced != Some(stat)
                && let Some(answer) = glance(stat)?
            {
                state.forget();
                state.glanced = Some(stat);
                return Ok(answer);
            }
            let before = state.forget();
            let Some(mut file) = self.open(Open::Read)? else { return Ok(read(&mut nothing)) };
            let (bytes, stat) = self.read_settled(&mut *file, &before)?;
            let image = self.image_of(bytes, stat, state)?;
            let Some(stat) = stat else {
                // What changed while it was read is good for this answer only.
                return Ok(read(&mut Held::new(Stat::NOTHING, image)));
            };
            state.image = Some(Held::new(stat, image));
        }
        Ok(match &mut state.image {
            Some(held) => read(held),
            None => read(&mut nothing),
        })
    }

    fn touch(&self) {
        self.shared.used.store(self.store.tick(), Ordering::Relaxed);
    }

    /// Releases the state and tells the store what the image costs now.
    fn settle(&self, mut state: MutexGuard<'_, State>) {
        self.touch();
        if self.shared.evicted.swap(false, Ordering::Relaxed) {
            state.image = None;
        }
        // A collection that was looked at once is remembered for a little, so that the second look makes the image.
        let glanced = if state.glanced.is_some() { GLANCED_BYTES } else { 0 };
        let cost = state.image.as_ref().map_or(glanced, Held::cost);
        drop(state);
        self.store.charge(&self.shared, cost);
    }
}
