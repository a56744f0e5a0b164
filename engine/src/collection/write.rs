//! Writing: the order in which bytes reach the disk.
//!
//! A batch from the queue is planned on the image and goes out as one append or one rewrite, under the file's advisory
//! lock. `// ORDER:` stands on every step that must come before another.
//!
//! Another program may change the file at any moment, and takes no lock. So before a write and again after it the file
//! is compared with what was planned on; what changed in between means that the batch is planned again on what is there
//! now, and an answer is given only when what it says is found under the name.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{ATTEMPTS_MAX, Collection, Done, Durable, Held, Opened, READS_MAX, State, Work};
use crate::disk::{DiskFile, Open, Stat};
use crate::draft::{self, Appended, Plan, Rewrite, Writer};
use crate::error::{Error, Result, Unsupported};
use crate::image::Image;
use crate::op::{Op, Outcome};
use crate::options::Durability;
use crate::repair::{self, Repair};
use crate::store::Lack;
use crate::sync::lock;
use crate::system;

/// How often the file may be replaced while its lock is waited for. Each time is a whole rewrite by another process.
const REPLACED_MAX: usize = 10_000;
/// The pauses between two looks at a lock that another process holds: the first one, and the longest.
const LOCK_PAUSE_MIN: Duration = Duration::from_micros(50);
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(2);

impl Collection {
    pub(super) fn submit(&self, work: Work, stopped: impl Fn() -> Done) -> Done {
        self.shared.queue.run(work, |batch| self.commit(batch), stopped)
    }

    /// Does what waits: all operations between two repairs as one batch, so nearly always all of them.
    fn commit(&self, waiting: Vec<Work>) -> Vec<Done> {
        let mut done = Vec::with_capacity(waiting.len());
        let mut batch = Batch::default();
        for work in waiting {
            match work {
                Work::Op(op) => {
                    batch.ops.push(op);
                    batch.owners.push(Owner::One);
                }
                Work::Ops(ops) => {
                    batch.owners.push(Owner::Many(ops.len()));
                    batch.ops.extend(ops);
                }
                Work::Repair => {
                    self.commit_batch(std::mem::take(&mut batch), &mut done);
                    done.push(Done::Repair(self.until_steady(|| self.attempt_repair())));
                }
            }
        }
        self.commit_batch(batch, &mut done);
        done
    }

    /// Does a batch. Every operation gets its own answer; a failure of the disk is the answer of all.
    fn commit_batch(&self, batch: Batch, done: &mut Vec<Done>) {
        if batch.owners.is_empty() {
            return;
        }
        let attempt = || self.until_steady(|| self.attempt(&batch.ops));
        let answers = match attempt() {
            // A file that was just replaced may not have given its room back yet.
            Err(Error::Io { source, .. })
                if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::WriteZero)
                    && self.store.closer.wait() =>
            {
                attempt()
            }
            other => other,
        };
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => batch.ops.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut answers = answers.into_iter();
        done.extend(batch.owners.into_iter().map(|owner| match owner {
            Owner::One => Done::Op(answers.next().unwrap_or_else(|| Err(self.stopped("write")))),
            Owner::Many(len) => Done::Ops(answers.by_ref().take(len).collect()),
        }));
    }

    /// Repeats an attempt that found the file changed under it.
    fn until_steady<T>(&self, attempt: impl Fn() -> Result<Option<T>>) -> Result<T> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(done) = attempt()? {
                return Ok(done);
            }
        }
        Err(self.unsteady())
    }

    fn unsteady(&self) -> Error {
        Error::Busy {
            operation: "write",
            path: self.shared.path.clone(),
            reason: format!("the file changed during each of {ATTEMPTS_MAX} attempts"),
        }
    }

    /// One attempt; `None` when the file changed under it and everything is to be done again.
    fn attempt(&self, batch: &[Op]) -> Result<Option<Vec<Result<Outcome>>>> {
        let Some(mut opened) = self.open_locked()? else {
            // No file. Plan on nothing first: a batch that writes nothing must not leave an empty file behind.
            let (answers, plan) = self.plan(&Image::empty(), batch);
            return match plan {
                Plan::Nothing => Ok(Some(answers)),
                Plan::Append(_) | Plan::Rewrite(_) => self.create().map(|()| None),
            };
        };
        let mut writing = self.begin(&mut opened)?;
        let (answers, plan) = self.plan(writing.image(), batch);
        let done = match self.beyond_doubt(&writing, plan, &answers) {
            Plan::Nothing => {
                if answers.iter().any(acknowledges) {
                    self.make_durable(&mut *opened.file, &mut writing)?;
                }
                writing.after = After::Keep;
                true
            }
            Plan::Append(appended) => {
                match self.write_append(&mut *opened.file, &mut writing, appended, batch.len() > 1)? {
                    Append::Done => true,
                    Append::NotWritten => false,
                    Append::Elsewhere(appended) => {
                        // The lock goes with the file that nobody finds any more.
                        drop(writing);
                        drop(opened);
                        self.append_again(&appended)?;
                        return Ok(Some(answers));
                    }
                }
            }
            Plan::Rewrite(rewrite) => self.write_rewrite(&mut opened, &mut writing, rewrite)?,
        };
        drop(writing);
        self.keep_open(opened);
        Ok(done.then_some(answers))
    }

    /// One attempt at a repair; `None` when the file changed under it.
    fn attempt_repair(&self) -> Result<Option<Repair>> {
        let Some(mut opened) = self.open_locked()? else { return Ok(Some(repair::plan(&[]).0)) };
        let mut writing = self.begin(&mut opened)?;
        let (mut repair, bytes) = repair::plan(writing.image().bytes());
        if repair.steps_count == 0 {
            writing.after = After::Keep;
            return Ok(Some(repair));
        }
        let limit = self.store.read_bytes_max();
        if repair.bytes_after > limit {
            let size = repair.bytes_after;
            return Err(Error::unsupported(&self.shared.path, Unsupported::Size { size, limit }));
        }
        let name = repair::kept_name(&self.shared.name, self.store.system(), self.random("a copy's name")?);
        let kept = self.shared.folder.join(name);
        self.keep_copy(&kept, writing.image().bytes())?;
        repair.kept = Some(kept.clone());
        let rewrite = Rewrite::whole(writing.image().bytes().len(), bytes);
        let done = self.write_rewrite(&mut opened, &mut writing, rewrite)?;
        // Nothing of the old image is of use in the new file.
        writing.after = After::Forget;
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
        let mut guard = Temp { collection: self, path, armed: true };
        write_all(&mut *copy, bytes).map_err(failed("write"))?;
        // ORDER: the copy and its name are on stable storage before anything is dropped from the original.
        copy.sync().map_err(failed("sync"))?;
        self.sync_folder(&self.shared.folder)?;
        guard.armed = false;
        Ok(())
    }

    /// What is done in place of a plan when a sync failed before: the whole file is written anew. A sync that works
    /// after one that failed proves nothing about what the failed one was for.
    fn beyond_doubt(&self, writing: &Writing<'_>, plan: Plan, answers: &[Result<Outcome>]) -> Plan {
        if !writing.durable.suspect || self.store.durability() == Durability::Flush {
            return plan;
        }
        let old_bytes = writing.image().bytes().len();
        match plan {
            Plan::Nothing if answers.iter().any(acknowledges) => {
                Plan::Rewrite(Rewrite::appending(old_bytes, Appended::default()))
            }
            Plan::Append(appended) => Plan::Rewrite(Rewrite::appending(old_bytes, appended)),
            Plan::Nothing | Plan::Rewrite(_) => plan,
        }
    }

    /// Makes sure that a state which an answer is about to confirm is on stable storage, though nothing is to be written:
    /// whoever wrote it may not have synced it.
    fn make_durable(&self, file: &mut dyn DiskFile, writing: &mut Writing<'_>) -> Result<()> {
        if self.store.durability() == Durability::Flush {
            return Ok(());
        }
        if !writing.durable.content {
            writing.durable.suspect = true;
            file.sync().map_err(self.io("sync"))?;
            writing.durable.suspect = false;
            writing.durable.content = true;
        }
        self.make_name_durable(writing)
    }

    fn random(&self, what: &'static str) -> Result<u64> {
        let mut bytes = [0; 8];
        self.store
            .system()
            .random(&mut bytes)
            .map_err(|error| Error::io("random source", Path::new(what), error))?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn plan(&self, image: &Image, batch: &[Op]) -> (Vec<Result<Outcome>>, Plan) {
        let mut random = || self.store.id_bytes().map_err(self.io("random source for an id"));
        let mut writer = Writer {
            collection: self.shared.name.as_str(),
            bytes_max: self.store.collection_bytes_max(),
            timestamp: &system::timestamp(self.store.system()),
            random: &mut random,
        };
        draft::plan(image, batch, &mut writer)
    }

    /// Takes the lock of the file, which is opened unless it was kept open; `None` when there is no file.
    ///
    /// The lock belongs to an inode, not to a name: after it is taken the name may be somebody else's new file, whose
    /// lock it is not. So the inode is compared again under the lock; and while it is waited for, so that one who waits
    /// does not stand in line at a file that is gone.
    fn open_locked(&self) -> Result<Option<Opened>> {
        let busy = |reason| Error::Busy { operation: "lock", path: self.shared.path.clone(), reason };
        let limit = Duration::from_millis(self.store.lock_wait_ms_max());
        let mut waited = Duration::ZERO;
        let mut pause = LOCK_PAUSE_MIN;
        let mut kept = lock(&self.shared.state).image.as_mut().and_then(|held| held.file.take());
        for _ in 0..REPLACED_MAX {
            let was_kept = kept.is_some();
            let mut opened = match kept.take() {
                // It may be reached through folders that are links by now.
                Some(kept) => self.check_folders().map(|()| kept)?,
                None if self.look()?.is_none() => return Ok(None),
                None => {
                    let Some(file) = self.open(Open::Append)? else { return Ok(None) };
                    Opened { stat: file.stat().map_err(self.io("stat"))?, file }
                }
            };
            loop {
                let locked = match self.try_lock(&mut *opened.file) {
                    // A descriptor may go stale (network file systems); a new one tells whether the file is all right.
                    Err(_) if was_kept => break,
                    other => other?,
                };
                // One whose mode changed is opened again: perhaps it may not be written to any more.
                let is_same = |stat: &Stat| {
                    stat.same_file(&opened.stat) && (!was_kept || stat.mode == opened.stat.mode)
                };
                match self.look()?.filter(is_same) {
                    Some(stat) if locked => return Ok(Some(Opened { stat, ..opened })),
                    Some(_) if waited < limit => {}
                    Some(_) => {
                        return Err(busy(format!(
                            "another process held the lock for {} ms",
                            limit.as_millis()
                        )));
                    }
                    None => break,
                }
                std::thread::sleep(pause);
                waited += pause;
                pause = (pause * 2).min(LOCK_PAUSE_MAX);
            }
        }
        Err(busy(format!("the file was replaced {REPLACED_MAX} times meanwhile")))
    }

    /// Releases the file's lock, and keeps the file open for the next batch while its image is in memory.
    fn keep_open(&self, mut opened: Opened) {
        // A lock that cannot be released goes with the file.
        if opened.file.unlock().is_err() {
            return;
        }
        match &mut lock(&self.shared.state).image {
            Some(held) if held.stat.same_file(&opened.stat) => held.file = Some(opened),
            Some(_) | None => return,
        }
        self.store.kept_open(&self.shared);
    }

    /// Takes an open file's lock if it is free.
    fn try_lock(&self, file: &mut dyn DiskFile) -> Result<bool> {
        match file.try_lock() {
            Ok(locked) => Ok(locked),
            // Some file systems have no locks (shared storage of a phone, old network mounts).
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.store.notice(Lack::Locks, &self.shared.path, &error);
                Ok(true)
            }
            Err(error) => Err(self.io("lock")(error)),
        }
    }

    /// Creates the file, and the folders above it up to the store's root, empty.
    fn create(&self) -> Result<()> {
        self.check_folders()?;
        let disk = self.store.disk();
        for folder in &self.shared.folders {
            match disk.create_folder(folder) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create folder", folder, error)),
            }
        }
        let mut state = lock(&self.shared.state);
        // Whoever made the folders, and whatever was known of a file of this name before.
        state.durable.folders = false;
        state.durable.name = false;
        let created = disk.open(&self.shared.path, Open::Create { private: false });
        state.created = created.is_ok();
        match created {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(self.io("create")(error)),
        }
    }

    /// Brings the image up to date under the file's lock, and marks the collection as being written.
    fn begin(&self, opened: &mut Opened) -> Result<Writing<'_>> {
        let mut state = lock(&self.shared.state);
        let begun = self.begin_locked(&mut state, opened);
        if begun.is_err() {
            self.settle(state);
        }
        begun
    }

    fn begin_locked<'a>(&'a self, state: &mut State, opened: &mut Opened) -> Result<Writing<'a>> {
        let stat = opened.stat;
        let current = match &state.image {
            Some(held) if held.stat == stat => Some(Arc::clone(&held.image)),
            Some(_) | None => None,
        };
        let (image, stat) = if let Some(image) = current {
            (image, stat)
        } else {
            let before = state.forget();
            let (bytes, stat) = self.read_settled(&mut *opened.file, &before)?;
            let Some(stat) = stat else {
                return Err(Error::Busy {
                    operation: "read",
                    path: self.shared.path.clone(),
                    reason: format!("the file changed while it was read, {READS_MAX} times"),
                });
            };
            let image = self.image_of(bytes, Some(stat), state)?;
            state.image = Some(Held::new(stat, Arc::clone(&image)));
            (image, stat)
        };
        if !state.swept {
            state.swept = true;
            self.sweep(stat);
        }
        state.writing = true;
        state.durable.suspect |= self.store.is_suspect(&self.shared.path);
        Ok(Writing {
            collection: self,
            image: Some(image),
            stat,
            durable: state.durable,
            after: After::Forget,
        })
    }

    /// Puts whole lines at the end.
    fn write_append(
        &self,
        file: &mut dyn DiskFile,
        writing: &mut Writing<'_>,
        appended: Appended,
        look_first: bool,
    ) -> Result<Append> {
        let before = writing.stat;
        // To plan one operation takes no longer than this look; to plan a thousand does.
        if look_first && file.stat().map_err(self.io("stat"))? != before {
            return Ok(Append::NotWritten);
        }
        let wanted = appended.bytes.len();
        match file.write(&appended.bytes) {
            Ok(written) if written == wanted => {}
            Ok(written) => {
                let error = format!("only {written} of {wanted} bytes were taken, the disk may be full");
                self.undo_append(file, before, &appended);
                return Err(self.io("write")(io::Error::new(io::ErrorKind::WriteZero, error)));
            }
            Err(error) => {
                self.undo_append(file, before, &appended);
                return Err(self.io("write")(error));
            }
        }
        if self.store.durability() == Durability::Sync {
            // ORDER: the bytes, then the name they are found under, then the answer.
            writing.durable.suspect = true;
            if let Err(error) = file.sync() {
                // Retrying proves nothing: the system may have dropped the bytes and forgotten that it had to.
                self.undo_append(file, before, &appended);
                return Err(self.io("sync")(error));
            }
            writing.durable.suspect = false;
            writing.durable.content = true;
            if let Err(error) = self.make_name_durable(writing) {
                self.undo_append(file, before, &appended);
                return Err(error);
            }
        }
        // ORDER: the last look comes before the answer: an editor may have put another file under the name, or emptied
        // this one, since it was opened; then the lines are not where anybody would find them.
        let bytes = before.bytes + wanted as u64;
        match self.look()?.filter(|after| after.same_file(&before) && after.bytes == bytes) {
            Some(after) => {
                writing.after = After::Appended(appended, after);
                Ok(Append::Done)
            }
            None => Ok(Append::Elsewhere(appended)),
        }
    }

    /// Sees to it that lines which were written while somebody replaced the file are in the file that is there now:
    /// those that are not found in it are added again, as they were.
    fn append_again(&self, appended: &Appended) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(mut opened) = self.open_locked()? else {
                self.create()?;
                continue;
            };
            let mut writing = self.begin(&mut opened)?;
            // All of them each time: what stood in one file need not stand in the next.
            let lines = draft::missing(writing.image(), appended);
            match self.write_append(&mut *opened.file, &mut writing, lines, true)? {
                Append::Done => return Ok(()),
                Append::NotWritten | Append::Elsewhere(_) => {}
            }
        }
        Err(self.unsteady())
    }

    /// Cuts off what a failed append left, and makes that last: a record whose append failed should not come back after a
    /// power cut. None of it makes the append succeed. What somebody else wrote behind it is left alone.
    fn undo_append(&self, file: &mut dyn DiskFile, before: Stat, appended: &Appended) {
        let undo = |file: &mut dyn DiskFile| {
            if file.stat()?.bytes == before.bytes {
                return Ok(());
            }
            let content = file.read(self.store.read_bytes_max())?;
            let left = usize::try_from(before.bytes).ok().and_then(|start| content.get(start..));
            if left.is_some_and(|left| appended.bytes.starts_with(left)) {
                file.truncate(before.bytes)?;
                if self.store.durability() == Durability::Sync {
                    file.sync()?;
                }
            }
            Ok::<(), io::Error>(())
        };
        if let Err(error) = undo(file) {
            let path = self.shared.path.display();
            tracing::warn!(%path, %error, "a failed append could not be cut off for good");
        }
    }

    /// Replaces the file. Returns whether it was done; not, when the file had changed.
    fn write_rewrite(
        &self,
        opened: &mut Opened,
        writing: &mut Writing<'_>,
        rewrite: Rewrite,
    ) -> Result<bool> {
        self.store.closer.wait();
        let temp_path = self.shared.folder.join(self.temp_name(writing.stat)?);
        let failed = |operation| {
            let path = &temp_path;
            move |error| Error::io(operation, path, error)
        };
        let disk = self.store.disk();
        let mut temp = disk.open(&temp_path, Open::Create { private: true }).map_err(failed("create"))?;
        // From here on, what has the temp name is removed on every way out.
        let mut guard = Temp { collection: self, path: &temp_path, armed: true };
        // ORDER: the new file is locked before it gets the name: another gateway that finds it there must wait until it is
        // sure to stay, and then look again which file has the name.
        if !self.try_lock(&mut *temp)? {
            let reason = "another process holds the lock of a file that was just created".to_owned();
            return Err(Error::Busy { operation: "lock", path: temp_path.clone(), reason });
        }
        write_pieces(&mut *temp, rewrite.pieces(writing.image().bytes())).map_err(failed("write"))?;
        match temp.set_access(&writing.stat) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.store.notice(Lack::Access, &self.shared.path, &error);
            }
            other => other.map_err(failed("set mode"))?,
        }
        // ORDER: the new bytes are on stable storage before the name points at them, whatever the durability: without
        // it a power cut could leave an empty file in the place of records that were safe for years.
        temp.sync().map_err(failed("sync"))?;
        if !self.swap(&mut *opened.file, writing, &*temp, &mut guard)? {
            return Ok(false);
        }
        let replaced = temp.stat().map_err(self.io("stat"))?;
        let old = std::mem::replace(opened, Opened { file: temp, stat: replaced });
        if self.store.durability() == Durability::Sync {
            // ORDER: the name is on stable storage before the answer.
            writing.durable = Durable { content: true, name: false, suspect: true, ..writing.durable };
            self.make_name_durable(writing)?;
            writing.durable.suspect = false;
        } else {
            writing.durable.name = false;
        }
        if self.look()? == Some(replaced) {
            writing.after = After::Rewritten(rewrite, replaced);
        }
        // Its name first, so that the close is what frees it.
        drop(guard);
        self.store.closer.close(old);
        Ok(true)
    }

    /// Whether the file's content is still what the image was read from. Times of files are too coarse to tell two saves
    /// of equal length apart.
    fn holds(&self, file: &mut dyn DiskFile, image: &Image) -> Result<bool> {
        file.matches(image.bytes()).map_err(self.io("read"))
    }

    /// Puts the temp file in the place of the file, if that is still what was read. Returns whether it was.
    ///
    /// The two exchange their names, and then the one that was there is compared with what was read: so there is no
    /// moment at which an editor's save could be overwritten unseen. If it was another, they exchange their names again.
    /// Where that is not to be had, the comparison comes right before the rename.
    fn swap(
        &self,
        file: &mut dyn DiskFile,
        writing: &Writing<'_>,
        temp: &dyn DiskFile,
        guard: &mut Temp<'_>,
    ) -> Result<bool> {
        if self.look()? != Some(writing.stat) {
            return Ok(false);
        }
        let disk = self.store.disk();
        let ours = temp.stat().map_err(|error| Error::io("stat", guard.path, error))?;
        match disk.exchange(guard.path, &self.shared.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.store.notice(Lack::Exchange, &self.shared.path, &error);
                if !self.holds(file, writing.image())? || self.look()? != Some(writing.stat) {
                    return Ok(false);
                }
                disk.rename(guard.path, &self.shared.path).map_err(self.io("rename"))?;
                guard.armed = false;
                return Ok(true);
            }
            // An editor has moved the file away and will put another in its place.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.io("rename")(error)),
        }
        // Until it is known to be what was read, the file that now has the temp name must not be removed.
        guard.armed = false;
        let stat = |path| disk.stat(path).map_err(|error| Error::io("stat", path, error));
        let as_read = stat(guard.path)
            .and_then(|found| Ok(found.same_file(&writing.stat) && self.holds(file, writing.image())?));
        if let Ok(true) = as_read {
            guard.armed = true;
            return Ok(true);
        }
        for _ in 0..ATTEMPTS_MAX {
            match disk.exchange(guard.path, &self.shared.path) {
                Ok(()) => {}
                // Somebody has moved our file away; the name is free for the one that had it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    disk.rename(guard.path, &self.shared.path).map_err(self.io("rename back"))?;
                    return as_read;
                }
                Err(error) => return Err(self.io("rename back")(error)),
            }
            // A save that came in between is now under the temp name: back with it too.
            let now = stat(guard.path)?;
            if now.same_file(&ours) {
                // While it had the name, somebody may have saved into it.
                guard.armed = (now.bytes, now.modified_ns) == (ours.bytes, ours.modified_ns);
                if !guard.armed {
                    let kept = self.conflict_path(&format!("{:016x}", self.random("a conflict's name")?));
                    disk.rename(guard.path, &kept).map_err(self.io("rename to a conflict"))?;
                }
                return as_read;
            }
        }
        Err(self.unsteady())
    }

    /// Syncs the folder, and once the folders above it, unless this file's name is known to be durable.
    fn make_name_durable(&self, writing: &mut Writing<'_>) -> Result<()> {
        let doubt = std::mem::replace(&mut writing.durable.suspect, true);
        if !writing.durable.folders {
            for folder in &self.shared.folders {
                self.sync_folder(folder.parent().unwrap_or(folder))?;
            }
            writing.durable.folders = true;
        }
        if !writing.durable.name {
            self.sync_folder(&self.shared.folder)?;
            writing.durable.name = true;
        }
        writing.durable.suspect = doubt;
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> Result<()> {
        match self.store.disk().sync_folder(folder) {
            Ok(()) => Ok(()),
            // Shared storage of a phone does not sync folders.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.store.notice(Lack::FolderSync, folder, &error);
                Ok(())
            }
            Err(error) => Err(Error::io("sync", folder, error)),
        }
    }
}

/// Temp files.
impl Collection {
    /// A name that no other process and no other call uses, and that no collection can have. It tells whose it is, and
    /// the inode and the time of the file that is to be replaced.
    fn temp_name(&self, replaced: Stat) -> Result<String> {
        let (process, random) = (std::process::id(), self.random("a temp file's name")?);
        let file_name = self.shared.name.file_name();
        let Stat { inode, modified_ns, .. } = replaced;
        Ok(format!(".{file_name}.{process}-{random:016x}-{inode}-{modified_ns}.tmp"))
    }

    /// A name for a file that may be somebody's save: beside the collection, seen by a person, never taken for one.
    fn conflict_path(&self, random: &str) -> std::path::PathBuf {
        self.shared.folder.join(format!("{}.conflict-{random}", self.shared.name.file_name()))
    }

    /// Removes this collection's temp files of processes that no longer run. Called under the lock of the file that has
    /// the name, `current`, so where there are locks nobody is using one.
    ///
    /// A process that dies between the two exchanges of a swap leaves an editor's save under a temp name. So a temp file
    /// is removed only when it is certain what it is: the file that was to be replaced, as it was, or the one that was to
    /// replace it while that one still has the name. What is neither gets a name that a person sees.
    fn sweep(&self, current: Stat) {
        let disk = self.store.disk();
        let file_name = self.shared.name.file_name();
        let names = match disk.list(&self.shared.folder) {
            Ok(names) => names,
            Err(error) => {
                let path = self.shared.folder.display();
                tracing::warn!(%path, %error, "stale temp files cannot be looked for");
                return;
            }
        };
        for name in names {
            let Some(TempName { owner, random, inode, modified_ns }) =
                name.to_str().and_then(|name| TempName::parse(name, &file_name))
            else {
                continue;
            };
            if owner != std::process::id() && disk.process_alive(owner) {
                continue;
            }
            let path = self.shared.folder.join(&name);
            let as_it_was = |file: &Stat| (file.inode, file.modified_ns) == (inode, modified_ns);
            let certain = as_it_was(&current) || disk.stat(&path).is_ok_and(|temp| as_it_was(&temp));
            let done =
                if certain { disk.remove(&path) } else { disk.rename(&path, &self.conflict_path(random)) };
            match done {
                Ok(()) => {
                    tracing::info!(path = %path.display(), process = owner, certain, "a stale temp file is gone");
                }
                Err(error) => tracing::warn!(path = %path.display(), %error, "a stale temp file stays"),
            }
        }
    }
}

/// What a temp file's name says.
struct TempName<'a> {
    owner: u32,
    random: &'a str,
    /// Of the file that was to be replaced, as the time.
    inode: u64,
    modified_ns: i128,
}

impl<'a> TempName<'a> {
    /// Reads the name of a file, if it is a temp file of this collection.
    fn parse(name: &'a str, file_name: &str) -> Option<Self> {
        let parts =
            name.strip_prefix('.')?.strip_prefix(file_name)?.strip_prefix('.')?.strip_suffix(".tmp")?;
        // A time before 1970 has a sign, which is the separator too.
        let mut parts = parts.splitn(4, '-');
        let (owner, random, inode, modified_ns) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let (owner, inode, modified_ns) =
            (owner.parse().ok()?, inode.parse().ok()?, modified_ns.parse().ok()?);
        (random.len() == 16).then_some(Self { owner, random, inode, modified_ns })
    }
}

/// Whether an answer tells its caller that a state of the file is kept: also that a record is gone, since a delete that
/// failed at its last sync may be asked for again.
fn acknowledges(answer: &Result<Outcome>) -> bool {
    match answer {
        Ok(Outcome::Record(_) | Outcome::Deleted(_) | Outcome::Retained(_)) | Err(Error::NotFound { .. }) => {
            true
        }
        Ok(Outcome::Records(_)) | Err(_) => false,
    }
}

/// A collection between the plan of a batch and its end. Dropping it ends the batch, whichever way it went.
struct Writing<'a> {
    collection: &'a Collection,
    /// What the file held; there until the batch has ended.
    image: Option<Arc<Image>>,
    /// The file that the image is.
    stat: Stat,
    durable: Durable,
    after: After,
}

/// Operations that are done together, and how many each caller brought.
#[derive(Default)]
struct Batch {
    ops: Vec<Op>,
    owners: Vec<Owner>,
}

/// A caller.
enum Owner {
    One,
    Many(usize),
}

/// How an append ended.
enum Append {
    /// The lines are in the file that has the name.
    Done,
    /// The file had changed since it was read.
    NotWritten,
    /// They were written, but the file is not the one that has the name, or was emptied meanwhile.
    Elsewhere(Appended),
}

/// What becomes of the image.
enum After {
    /// It is thrown away.
    Forget,
    /// It is as true as before.
    Keep,
    /// These lines were put at its end.
    Appended(Appended, Stat),
    /// It was rewritten.
    Rewritten(Rewrite, Stat),
}

impl Writing<'_> {
    fn image(&self) -> &Image {
        self.image.as_deref().expect("it is taken when the batch has ended")
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.collection.shared.state);
        state.writing = false;
        state.durable = self.durable;
        // The store remembers it too: what a collection knows goes with its last user.
        self.collection.store.set_suspect(&self.collection.shared.path, self.durable.suspect);
        // They wait for the lock, which is held until all is in place.
        if state.waiting > 0 {
            self.collection.shared.idle.notify_all();
        }
        // The state's copy must be the only one, or the append below would copy the whole image.
        self.image = None;
        match std::mem::replace(&mut self.after, After::Forget) {
            After::Forget => state.image = None,
            After::Keep => {}
            // The image is out of the state while it changes, so that a panic leaves none rather than half of one.
            After::Appended(appended, stat) => {
                if let Some(held) = state.image.take() {
                    state.image = Some(held.appended(&appended, stat));
                }
            }
            After::Rewritten(rewrite, stat) => {
                if let Some(held) = state.image.take() {
                    state.image = Some(held.rewritten(&rewrite, stat));
                }
            }
        }
        self.collection.settle(state);
    }
}

/// Removes what has a temp name, while armed.
struct Temp<'a> {
    collection: &'a Collection,
    path: &'a Path,
    armed: bool,
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

/// Writes pieces in order: large ones as they are, small ones gathered.
fn write_pieces<'a>(file: &mut dyn DiskFile, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
    const GATHERED_BYTES_MAX: usize = 64 << 10;
    let mut gathered: Vec<u8> = Vec::new();
    for piece in pieces {
        if gathered.len() + piece.len() > GATHERED_BYTES_MAX {
            write_all(file, &gathered)?;
            gathered.clear();
        }
        if piece.len() > GATHERED_BYTES_MAX {
            write_all(file, piece)?;
        } else {
            gathered.extend_from_slice(piece);
        }
    }
    write_all(file, &gathered)
}
