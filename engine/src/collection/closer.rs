//! Closing files that a rewrite replaced, off the writer's path.
//!
//! The last close of a file without a name gives its pages back, which for a few megabytes takes a millisecond: a fifth of
//! a whole rewrite. A thread that lives for this one close does it. The next rewrite in the store waits for it first, and so
//! does whoever finds the disk full: a disk that has room for two generations needs no room for three.

use std::thread::{Builder, JoinHandle};

use super::Opened;
use crate::sync::{Mutex, lock};

/// Up to here a close is cheaper than a thread.
const CLOSED_HERE_BYTES_MAX: u64 = 1 << 20;
/// How many closes are under way at most; one more is done by who comes with it.
const CLOSES_MAX: usize = 4;

/// The closes that are under way.
#[derive(Default)]
pub(crate) struct Closer {
    closing: Mutex<Vec<JoinHandle<()>>>,
}

impl Closer {
    /// Closes a file, at once or soon.
    pub(super) fn close(&self, opened: Opened) {
        let mut closing = lock(&self.closing);
        closing.retain(|close| !close.is_finished());
        if opened.stat.bytes <= CLOSED_HERE_BYTES_MAX || closing.len() >= CLOSES_MAX {
            drop(closing);
            return drop(opened);
        }
        // Where no thread is to be had, the file is closed here: it goes with the closure that was not run.
        closing.extend(Builder::new().name("linekeep-close".to_owned()).spawn(move || drop(opened)).ok());
    }

    /// Waits for the closes that are under way. Returns whether there were any.
    pub(super) fn wait(&self) -> bool {
        let closing = std::mem::take(&mut *lock(&self.closing));
        let any = !closing.is_empty();
        for close in closing {
            if close.join().is_err() {
                tracing::error!("closing a replaced file panicked");
            }
        }
        any
    }
}
