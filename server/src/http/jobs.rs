//! Work that blocks: run beside the runtime's own threads, and counted, so that stopping can wait for it and give up.
//!
//! A thread that hangs in the operating system (a network disk that is gone) cannot be ended, only left behind: whoever
//! stops the server waits for [`Jobs::idle`] within limits and then ends the process. Invariant: a panic in a job is a
//! 500 to its request, and the job is counted as done.

use std::sync::Arc;

use tokio::sync::watch;

use crate::ApiError;

/// The jobs of one server. Clones count together.
#[derive(Debug, Clone)]
pub(super) struct Jobs(Arc<watch::Sender<usize>>);

impl Default for Jobs {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Jobs {
    /// Runs a job in the request's span. It goes on when nobody waits for it any more.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let running = Running::new(self.clone());
        let span = tracing::Span::current();
        let done = tokio::task::spawn_blocking(move || {
            let _running = running;
            span.in_scope(work)
        });
        done.await.unwrap_or_else(|panic| Err(ApiError::internal(panic)))
    }

    /// Completes when no job runs.
    pub(super) async fn idle(&self) {
        match self.0.subscribe().wait_for(|running| *running == 0).await {
            // An error would mean that the sender, which is ours, is gone.
            Ok(_) | Err(_) => {}
        }
    }
}

/// One job, counted while it lives.
struct Running(Jobs);

impl Running {
    fn new(jobs: Jobs) -> Self {
        jobs.0.send_modify(|running| *running += 1);
        Self(jobs)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.send_modify(|running| *running -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_500_with_a_fixed_text_and_ends_the_job() {
        let jobs = Jobs::default();
        let error = jobs.run::<()>(|| panic!("on purpose")).await.unwrap_err();
        assert_eq!((error.status.as_u16(), error.message.as_ref()), (500, "internal error"));
        jobs.idle().await;
    }

    #[tokio::test]
    async fn a_job_counts_until_it_is_done_also_when_nobody_waits() {
        let jobs = Jobs::default();
        let (release, held) = mpsc::channel::<()>();
        let job = jobs.run::<()>(move || {
            // Ends when the sender goes.
            match held.recv() {
                Ok(()) | Err(_) => Err(ApiError::unauthorized()),
            }
        });
        let gave_up = tokio::time::timeout(Duration::from_millis(10), job).await;
        assert!(gave_up.is_err());
        assert!(tokio::time::timeout(Duration::from_millis(10), jobs.idle()).await.is_err());
        drop(release);
        jobs.idle().await;
    }
}
