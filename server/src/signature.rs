//! What tells one state of a file from the next without reading it: identity, size and both times.
//!
//! An edit within one tick of the file system's clock that keeps the size leaves all of these alike, so a file that
//! changed a moment ago is not trusted yet ([`Signature::is_settled`], the rule git calls "racily clean").
//! Left out on purpose: hashing, which would cost the read this exists to save.

use std::{
    fs::{FileType, Metadata},
    os::unix::fs::MetadataExt as _,
    time::{Duration, SystemTime},
};

/// How long a file must have been left alone before equal signatures mean equal contents. The clocks of Linux and
/// macOS file systems tick every 10 ms or faster.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// The stat fields that change when a file's contents do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Which thing stands under a name, and of what kind, whatever its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    kind: FileType,
}

impl Identity {
    /// The identity of a thing whose metadata was just read.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino(), kind: metadata.file_type() }
    }
}

impl Signature {
    /// The signature of a file whose metadata was just read.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the last change is old enough at `now` that a later edit must show in the signature. A change
    /// "in the future" (a clock that was set back) is never settled: such a file is read each time.
    pub(crate) fn is_settled(self, now: SystemTime) -> bool {
        let Ok(now) = now.duration_since(SystemTime::UNIX_EPOCH) else { return false };
        let changed = Duration::new(
            u64::try_from(self.changed.0).unwrap_or(0),
            u32::try_from(self.changed.1).unwrap_or(0),
        );
        now.checked_sub(changed).is_some_and(|age| age >= SETTLED_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_settled_only_some_time_after_its_last_change() {
        let signature = Signature { device: 1, inode: 1, size: 1, modified: (5, 0), changed: (5, 0) };
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        assert!(!signature.is_settled(at(4_000)), "changed in the future");
        assert!(!signature.is_settled(at(5_050)));
        assert!(signature.is_settled(at(5_100)));
    }

    #[test]
    fn an_edit_changes_the_signature() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "1").unwrap();
        let before = Signature::of(&std::fs::metadata(&file).unwrap());
        std::fs::write(&file, "12").unwrap();
        assert_ne!(before, Signature::of(&std::fs::metadata(&file).unwrap()));
    }
}
