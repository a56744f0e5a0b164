//! Closing the file that a rewrite replaced, off the writer's path.
//!
//! The last close of a file without a name gives its pages back, which for a few megabytes takes a millisecond: a fifth of
//! a whole rewrite. A thread that lives for this one close does it. The next rewrite waits for it first, so a disk
//! that has room for two generations needs no room for three, and there is never more than one such thread a collection.

use std::thread::{Builder, JoinHandle};

use super::Opened;
use crate::sync::{Mutex, lock};

/// Up to here a close is cheaper than a thread.
const CLOSED_HERE_BYTES_MAX: u64 = 1 << 20;

/// The close that is under way.
#[derive(Default)]
pub(super) struct Closer {
    closing: Mutex<Option<JoinHandle<()>>>,
}

impl Closer {
    /// Closes a file, at once or soon.
    pub(super) fn close(&self, opened: Opened) {
        if opened.stat.bytes <= CLOSED_HERE_BYTES_MAX {
            return;
        }
        // Where no thread is to be had, the file is closed here: it goes with the closure that was not run.
        let thread = Builder::new().name("linekeep-close".to_owned()).spawn(move || drop(opened));
        *lock(&self.closing) = thread.ok();
    }

    /// Waits for the close that is under way.
    pub(super) fn wait(&self) {
        let closing = lock(&self.closing).take();
        if let Some(Err(_)) = closing.map(JoinHandle::join) {
            tracing::error!("closing a replaced file panicked");
        }
    }
}
