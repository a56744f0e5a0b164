//! The only door to the file system.
//!
//! Everything the engine does to files goes through [`Disk`] and [`DiskFile`], so a test can count the calls, fail the
//! n-th one, tear a write, or lose what was not synced. [`FileDisk`] is the real thing. The calls are as plain as the
//! system calls under them: what order they come in, and what a failure means, is decided in `collection/write.rs`.
//!
//! Unix only: the promises rest on inodes, `O_NOFOLLOW`, and the sync of a directory.

use std::ffi::OsString;
use std::io;
use std::path::Path;

/// What a path, or an open file, is. Two files with an equal `Stat` are taken for the same state of the same file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// File, folder, link or something else.
    pub kind: Kind,
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// When the content last changed, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// When the content or the inode last changed, in nanoseconds since 1970.
    pub changed_ns: i128,
    /// The permission bits.
    pub mode: u32,
    /// The user and the group that own it.
    pub owner: (u32, u32),
}

impl Stat {
    /// What no file is.
    pub(crate) const NOTHING: Self = Self {
        kind: Kind::Other,
        device: 0,
        inode: 0,
        bytes: 0,
        modified_ns: 0,
        changed_ns: 0,
        mode: 0,
        owner: (0, 0),
    };

    /// Whether both are the same file, in whatever state.
    pub fn same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// The kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Folder,
    /// A symbolic link, not followed.
    Symlink,
    /// A pipe, a socket or a device.
    Other,
}

/// How a file is opened. A symbolic link in the last place is never followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and to write at its end.
    Append,
    /// A new file, to write; it is an error when the name is taken. Created for its owner alone when `private`,
    /// otherwise as the process's umask says.
    Create {
        /// Mode 0600 from the first moment.
        private: bool,
    },
}

/// The calls that the engine makes on paths. Each blocks, and is one system call or a short fixed sequence.
#[expect(clippy::missing_errors_doc, reason = "every call fails as the operating system says")]
pub trait Disk: Send + Sync {
    /// Looks at a path; a link is not followed.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// Looks at a path; links are followed.
    fn stat_followed(&self, path: &Path) -> io::Result<Stat>;
    /// Opens a file.
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file another name, replacing what has that name, in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Lets two files change their names, in one step. `Unsupported` where the system or the file system cannot.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;
    /// Removes a file's name.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Creates one folder.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Puts the names in a folder on stable storage. `Unsupported` where the file system cannot.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder, in no particular order.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;
    /// Whether a process with this id exists.
    fn process_alive(&self, id: u32) -> bool;
}

/// The calls that the engine makes on an open file. Dropping it closes it and releases its lock.
#[expect(clippy::missing_errors_doc, reason = "every call fails as the operating system says")]
pub trait DiskFile: Send {
    /// Looks at the open file.
    fn stat(&self) -> io::Result<Stat>;
    /// Reads from the start to the end, but at most `bytes_max` bytes and one more.
    fn read(&mut self, bytes_max: u64) -> io::Result<Vec<u8>>;
    /// Fills a buffer from a place in the file on. Returns how many bytes it got, fewer only at the end of the file.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Whether these bytes are the whole content.
    fn matches(&mut self, bytes: &[u8]) -> io::Result<bool>;
    /// One write at the end of the file. Returns how many bytes it took.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Cuts the file to a length.
    fn truncate(&mut self, bytes: u64) -> io::Result<()>;
    /// Puts content and size on stable storage.
    fn sync(&mut self) -> io::Result<()>;
    /// Takes the exclusive advisory lock if it is free. `Unsupported` where the file system has none.
    fn try_lock(&mut self) -> io::Result<bool>;
    /// Releases the lock, where there is one.
    fn unlock(&mut self) -> io::Result<()>;
    /// Gives the file the permission bits of another, and its owner as far as this process may. `Unsupported` where the
    /// file system has no permission bits to set.
    fn set_access(&mut self, like: &Stat) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileDisk;

#[expect(clippy::disallowed_methods, reason = "this is the one door")]
mod real {
    use super::{Disk, DiskFile, FileDisk, Kind, Open, Stat};
    use std::ffi::OsString;
    use std::fs::{self, File, Metadata, OpenOptions};
    use std::io::{self, Read, Seek, Write};
    use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
    use std::path::Path;

    use rustix::fs::OFlags;
    use rustix::io::Errno;

    /// Names what a file system cannot do as such; `also` are the answers that mean it for this call besides.
    fn unsupported(error: io::Error, also: &[Errno]) -> io::Error {
        match Errno::from_io_error(&error) {
            Some(errno)
                if [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOTTY].contains(&errno)
                    || also.contains(&errno) =>
            {
                io::Error::new(io::ErrorKind::Unsupported, error)
            }
            Some(_) | None => error,
        }
    }

    impl From<&Metadata> for Stat {
        fn from(metadata: &Metadata) -> Self {
            let kind = if metadata.is_file() {
                Kind::File
            } else if metadata.is_dir() {
                Kind::Folder
            } else if metadata.is_symlink() {
                Kind::Symlink
            } else {
                Kind::Other
            };
            let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
            Self {
                kind,
                device: metadata.dev(),
                inode: metadata.ino(),
                bytes: metadata.len(),
                modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
                changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
                mode: metadata.mode() & 0o7777,
                owner: (metadata.uid(), metadata.gid()),
            }
        }
    }

    impl Disk for FileDisk {
        fn stat(&self, path: &Path) -> io::Result<Stat> {
            fs::symlink_metadata(path).map(|metadata| Stat::from(&metadata))
        }

        fn stat_followed(&self, path: &Path) -> io::Result<Stat> {
            fs::metadata(path).map(|metadata| Stat::from(&metadata))
        }

        fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
            let mut options = OpenOptions::new();
            // Without NONBLOCK, a pipe put in the place of a collection after the look at it would block for ever.
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
            options.custom_flags(i32::try_from(flags.bits()).map_err(io::Error::other)?);
            match how {
                Open::Read => options.read(true),
                Open::Append => options.read(true).append(true),
                Open::Create { private } => {
                    options.mode(if private { 0o600 } else { 0o666 }).read(true).append(true).create_new(true)
                }
            };
            Ok(Box::new(options.open(path)?))
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            fs::rename(from, to)
        }

        #[cfg(any(target_os = "linux", target_os = "android"))]
        fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            // Older Androids kill a process for this call, so it cannot be tried. The static build runs there too.
            if cfg!(target_os = "android") || std::env::var_os("ANDROID_ROOT").is_some() {
                return Err(io::ErrorKind::Unsupported.into());
            }
            renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)
                .map_err(|error| unsupported(error.into(), &[Errno::INVAL, Errno::PERM]))
        }

        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        fn exchange(&self, _one: &Path, _other: &Path) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            fs::remove_file(path)
        }

        fn create_folder(&self, path: &Path) -> io::Result<()> {
            fs::create_dir(path)
        }

        fn sync_folder(&self, path: &Path) -> io::Result<()> {
            let folder = File::open(path)?;
            folder.sync_all().map_err(|error| unsupported(error, &[Errno::INVAL, Errno::PERM]))
        }

        fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
            fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
        }

        fn process_alive(&self, id: u32) -> bool {
            let Some(id) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) else {
                return false;
            };
            // EPERM means that it exists and is somebody else's.
            !matches!(rustix::process::test_kill_process(id), Err(rustix::io::Errno::SRCH))
        }
    }

    impl DiskFile for File {
        fn stat(&self) -> io::Result<Stat> {
            self.metadata().map(|metadata| Stat::from(&metadata))
        }

        fn read(&mut self, bytes_max: u64) -> io::Result<Vec<u8>> {
            self.rewind()?;
            let mut bytes = Vec::new();
            let expected = self.metadata()?.len().min(bytes_max).saturating_add(1);
            bytes.try_reserve_exact(usize::try_from(expected).map_err(io::Error::other)?)?;
            Read::take(&mut *self, bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
            Ok(bytes)
        }

        fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
            let mut filled = 0;
            while filled < buffer.len() {
                match FileExt::read_at(self, &mut buffer[filled..], offset + filled as u64) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(filled)
        }

        fn matches(&mut self, bytes: &[u8]) -> io::Result<bool> {
            const CHUNK_BYTES: usize = 64 << 10;
            self.rewind()?;
            let mut buffer = vec![0; CHUNK_BYTES.min(bytes.len() + 1)];
            let mut rest = bytes;
            loop {
                match Read::read(self, &mut buffer) {
                    Ok(0) => return Ok(rest.is_empty()),
                    Ok(count) => match rest.strip_prefix(&buffer[..count]) {
                        Some(left) => rest = left,
                        None => return Ok(false),
                    },
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }

        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            loop {
                match Write::write(self, bytes) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => return other,
                }
            }
        }

        fn truncate(&mut self, bytes: u64) -> io::Result<()> {
            self.set_len(bytes)
        }

        fn sync(&mut self) -> io::Result<()> {
            self.sync_data()
        }

        fn try_lock(&mut self) -> io::Result<bool> {
            // Not the standard library's own: that one is a stub on Android.
            match fs4::FileExt::try_lock(self) {
                Ok(()) => Ok(true),
                Err(fs4::TryLockError::WouldBlock) => Ok(false),
                Err(fs4::TryLockError::Error(error)) => Err(unsupported(error, &[Errno::PERM, Errno::INVAL])),
            }
        }

        fn unlock(&mut self) -> io::Result<()> {
            match fs4::FileExt::unlock(self).map_err(|error| unsupported(error, &[Errno::PERM, Errno::INVAL]))
            {
                // What has no locks holds none.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
                other => other,
            }
        }

        fn set_access(&mut self, like: &Stat) -> io::Result<()> {
            // Where all files have one mode and one owner (FAT, shared storage of a phone) there is nothing to keep.
            let refused = |error: io::Error| unsupported(error, &[Errno::PERM, Errno::ACCESS, Errno::INVAL]);
            let now = DiskFile::stat(self)?;
            if now.owner != like.owner {
                // Only the superuser may: without this, an edit by root would lock a gateway out of its own file.
                let owner = Some(rustix::fs::Uid::from_raw(like.owner.0));
                let group = Some(rustix::fs::Gid::from_raw(like.owner.1));
                match rustix::fs::fchown(&*self, owner, group).map_err(|error| refused(error.into())) {
                    // Who is not the superuser is refused each time, and that is all right.
                    Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                    other => other?,
                }
            }
            self.set_permissions(fs::Permissions::from_mode(like.mode)).map_err(refused)
        }
    }
}
