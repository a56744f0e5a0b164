//! How the gateway stops: first it drains, then it ends.
//!
//! Two phases, because the two wishes differ: the first signal means "finish what you have", the second "now".
//! The phase only moves forward. A dropped [`Trigger`] counts as both, so a test that lets go of it stops its server.

use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Run,
    Drain,
    End,
}

/// The end that decides. Dropping it ends the server at once.
#[derive(Debug)]
pub struct Trigger(watch::Sender<Phase>);

/// The end that waits; cheap to clone.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<Phase>);

/// Makes a connected pair in the running phase.
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(Phase::Run);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    /// Asks the server to accept nothing new and to finish what is open.
    pub fn drain(&self) {
        self.advance(Phase::Drain);
    }

    /// Asks the server to drop what is still open.
    pub fn end(&self) {
        self.advance(Phase::End);
    }

    fn advance(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let forward = *now < phase;
            if forward {
                *now = phase;
            }
            forward
        });
    }
}

impl Shutdown {
    /// Completes when draining was asked for.
    pub async fn draining(&mut self) {
        self.reached(Phase::Drain).await;
    }

    /// Completes when the end was asked for.
    pub async fn ended(&mut self) {
        self.reached(Phase::End).await;
    }

    async fn reached(&mut self, phase: Phase) {
        match self.0.wait_for(|now| *now >= phase).await {
            // An error means that the trigger is gone, which counts as every phase.
            Ok(_) | Err(_) => {}
        }
    }
}

/// A shutdown that the process's SIGINT and SIGTERM drive: the first drains, the second ends. From then on the signals
/// do nothing else for as long as the runtime lives.
///
/// # Errors
/// When the runtime cannot listen for signals.
pub fn on_signals() -> io::Result<Shutdown> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (trigger, shutdown) = channel();
    tokio::spawn(async move {
        for asked in 1.. {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if asked == 1 {
                tracing::info!("stopping: finishing open requests (a second signal ends them)");
                trigger.drain();
            } else {
                tracing::warn!("stopping now");
                trigger.end();
            }
        }
    });
    Ok(shutdown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_phase_moves_forward_only() {
        let (trigger, mut shutdown) = channel();
        trigger.end();
        trigger.drain();
        shutdown.draining().await;
        shutdown.ended().await;
    }

    #[tokio::test]
    async fn a_dropped_trigger_ends_the_server() {
        let (trigger, mut shutdown) = channel();
        drop(trigger);
        shutdown.ended().await;
    }
}
