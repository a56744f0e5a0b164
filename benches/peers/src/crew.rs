//! Threads that begin a piece of work together, so that starting them is not measured.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What one thread does; it gets the thread's number.
pub type Job = Arc<dyn Fn(usize) + Send + Sync>;

/// A number of waiting threads.
#[derive(Debug)]
pub struct Crew {
    jobs: Vec<Sender<Job>>,
    done: Receiver<()>,
    start: Arc<Barrier>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts the threads.
    pub fn new(len: usize) -> Self {
        let start = Arc::new(Barrier::new(len + 1));
        let (tell, done) = channel();
        let (jobs, threads) = (0..len)
            .map(|number| {
                let (send, receive) = channel::<Job>();
                let (tell, start) = (tell.clone(), Arc::clone(&start));
                let thread = std::thread::spawn(move || {
                    for job in receive {
                        start.wait();
                        job(number);
                        tell.send(()).expect("the crew waits for it");
                    }
                });
                (send, thread)
            })
            .unzip();
        Self { jobs, done, start, threads }
    }

    /// Lets every thread do the job once; returns how long it takes from the start to the last one's end.
    pub fn run(&self, job: &Job) -> Duration {
        for jobs in &self.jobs {
            jobs.send(Arc::clone(job)).expect("the thread runs");
        }
        let start = Instant::now();
        self.start.wait();
        for _ in &self.jobs {
            self.done.recv().expect("no thread panicked");
        }
        start.elapsed()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.jobs.clear();
        for thread in self.threads.drain(..) {
            assert!(thread.join().is_ok() || std::thread::panicking(), "no thread panicked");
        }
    }
}
