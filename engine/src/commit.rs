//! The queue in front of a file: many operations, one batch, one sync.
//!
//! A thread that brings an operation while nobody writes becomes the *leader*: it takes everything that waits, its own
//! operation first, and does it as one batch. Whoever comes meanwhile waits in the queue. When the batch is done, each
//! of its owners gets its own answer, and the first of those who wait becomes the next leader; so nobody serves the
//! others for ever, no thread is kept for writing, and a lone writer never hands anything over to another thread.
//!
//! Invariants, which a model checker tries in every order of events (`--cfg loom`):
//! - an operation is in at most one batch, and gets exactly one answer;
//! - batches run one at a time, and operations enter them in the order in which they came;
//! - when the queue is not empty, somebody leads or has been told to.
//!
//! A panic in a batch answers every operation of that batch with what `panicked` makes, and the queue goes on.

use std::collections::VecDeque;

use crate::sync::{Arc, Mutex, Thread, current, lock, park};

/// How many callers' operations one batch takes, so that a batch stays bounded however many wait. What one caller brings
/// is the caller's to bound.
pub(crate) const BATCH_LEN_MAX: usize = 1024;

/// A queue of operations `T` that are answered by `R`.
#[derive(Debug)]
pub(crate) struct Queue<T, R> {
    inner: Mutex<Inner<T, R>>,
}

#[derive(Debug)]
struct Inner<T, R> {
    waiting: VecDeque<(T, Arc<Seat<R>>)>,
    led: bool,
}

/// Where one thread waits for its answer.
#[derive(Debug)]
struct Seat<R> {
    state: Mutex<State<R>>,
    /// Who sits there.
    thread: Thread,
}

#[derive(Debug)]
enum State<R> {
    Waiting,
    Lead,
    Answered(R),
}

impl<T, R> Queue<T, R> {
    pub(crate) fn new() -> Self {
        Self { inner: Mutex::new(Inner { waiting: VecDeque::new(), led: false }) }
    }

    /// Puts an operation into the queue and returns its answer. `work` does a batch, answer by answer in order; it runs
    /// on this thread if this thread comes to lead. `panicked` is the answer where `work` panicked or gave none.
    pub(crate) fn run(&self, item: T, work: impl FnOnce(Vec<T>) -> Vec<R>, panicked: impl Fn() -> R) -> R {
        let seat = Arc::new(Seat { state: Mutex::new(State::Waiting), thread: current() });
        let leads = {
            let mut inner = lock(&self.inner);
            inner.waiting.push_back((item, Arc::clone(&seat)));
            !std::mem::replace(&mut inner.led, true)
        };
        if !leads && let Some(answer) = seat.wait() {
            return answer;
        }
        self.lead(work, &panicked);
        seat.take().unwrap_or_else(panicked)
    }

    /// Does one batch and passes the lead on.
    fn lead(&self, work: impl FnOnce(Vec<T>) -> Vec<R>, panicked: &impl Fn() -> R) {
        let (items, seats): (Vec<T>, Vec<Arc<Seat<R>>>) = {
            let mut inner = lock(&self.inner);
            let count = inner.waiting.len().min(BATCH_LEN_MAX);
            inner.waiting.drain(..count).unzip()
        };
        // The guard answers and passes the lead on also when `work` panics.
        let mut batch = Batch { queue: self, seats, answers: Vec::new(), panicked };
        batch.answers = work(items);
        drop(batch);
    }
}

struct Batch<'a, T, R, P: Fn() -> R> {
    queue: &'a Queue<T, R>,
    seats: Vec<Arc<Seat<R>>>,
    answers: Vec<R>,
    panicked: &'a P,
}

impl<T, R, P: Fn() -> R> Drop for Batch<'_, T, R, P> {
    fn drop(&mut self) {
        let mut answers = std::mem::take(&mut self.answers).into_iter();
        for (position, seat) in self.seats.drain(..).enumerate() {
            let answer = State::Answered(answers.next().unwrap_or_else(self.panicked));
            // The first one is the leader's own.
            if position == 0 {
                *lock(&seat.state) = answer;
            } else {
                seat.call(answer);
            }
        }
        let mut inner = lock(&self.queue.inner);
        match inner.waiting.front() {
            Some((_, seat)) => seat.call(State::Lead),
            None => inner.led = false,
        }
    }
}

impl<R> Seat<R> {
    /// Waits to be answered, or to be told to lead (`None`).
    fn wait(&self) -> Option<R> {
        loop {
            // A statement of its own, so that the lock is not held while this thread sleeps.
            let state = std::mem::replace(&mut *lock(&self.state), State::Waiting);
            match state {
                // A thread that was called before it parks does not park; it may also wake up for no reason.
                State::Waiting => park(),
                State::Lead => return None,
                State::Answered(answer) => return Some(answer),
            }
        }
    }

    /// The answer, after leading.
    fn take(&self) -> Option<R> {
        match std::mem::replace(&mut *lock(&self.state), State::Waiting) {
            State::Answered(answer) => Some(answer),
            State::Waiting | State::Lead => None,
        }
    }

    fn call(&self, next: State<R>) {
        *lock(&self.state) = next;
        self.thread.unpark();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_operation_is_answered_once_with_its_own_answer() {
        let queue = Queue::new();
        let batches = AtomicUsize::new(0);
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (queue, batches, inside) = (&queue, &batches, &inside);
                scope.spawn(move || {
                    for round in 0..200 {
                        let work = |items: Vec<usize>| {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one batch at a time");
                            batches.fetch_add(1, Ordering::SeqCst);
                            let answers = items.iter().map(|item| item * 2).collect();
                            inside.fetch_sub(1, Ordering::SeqCst);
                            answers
                        };
                        let item = thread * 1000 + round;
                        assert_eq!(queue.run(item, work, || usize::MAX), item * 2);
                    }
                });
            }
        });
        assert!(batches.into_inner() <= 1600);
        assert!(!lock(&queue.inner).led);
    }

    #[test]
    fn a_batch_holds_what_waits_in_the_order_in_which_it_came() {
        let queue = Queue::new();
        let waiting = || lock(&queue.inner).waiting.len();
        let batches = std::sync::Mutex::new(Vec::new());
        let work = |items: Vec<usize>| {
            // The leader waits until all others do.
            while items == [0] && waiting() < 5 {
                std::thread::yield_now();
            }
            batches.lock().unwrap().push(items.clone());
            items
        };
        std::thread::scope(|scope| {
            for item in 0..6 {
                let (queue, work) = (&queue, &work);
                scope.spawn(move || assert_eq!(queue.run(item, work, || usize::MAX), item));
                // Each comes when the one before it is in its place; with the last one, the leader goes on.
                let placed =
                    || if item == 0 { lock(&queue.inner).led } else { item == 5 || waiting() == item };
                while !placed() {
                    std::thread::yield_now();
                }
            }
        });
        assert_eq!(batches.into_inner().unwrap(), [vec![0], vec![1, 2, 3, 4, 5]]);
    }

    #[test]
    fn a_panic_in_a_batch_leaves_the_queue_usable() {
        let queue = Queue::new();
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            queue.run(1, |_| panic!("in a batch"), || "panicked")
        }));
        assert!(panics.is_err(), "the thread whose work panicked unwinds");
        assert_eq!(queue.run(2, |items| items.iter().map(|_| "done").collect(), || "panicked"), "done");
        assert_eq!(queue.run(3, |_| Vec::new(), || "panicked"), "panicked");
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::atomic::{AtomicUsize, Ordering};

    /// Three threads, each with one operation: every order of events with up to three forced switches, which is where
    /// the search ends within a minute. A lost wake-up shows as a deadlock.
    #[test]
    fn no_wake_up_is_lost_and_no_operation_is_answered_twice_or_never() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let queue = Arc::new(Queue::<usize, usize>::new());
            let done = Arc::new(AtomicUsize::new(0));
            let inside = Arc::new(AtomicUsize::new(0));
            let one =
                |queue: Arc<Queue<usize, usize>>, done: Arc<AtomicUsize>, inside: Arc<AtomicUsize>, item| {
                    let work = |items: Vec<usize>| {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one batch at a time");
                        done.fetch_add(items.len(), Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        items.into_iter().map(|item| item + 10).collect()
                    };
                    assert_eq!(queue.run(item, work, || 0), item + 10);
                };
            let threads: Vec<_> = (1..3)
                .map(|item| {
                    let (queue, done, inside) = (queue.clone(), done.clone(), inside.clone());
                    loom::thread::spawn(move || one(queue, done, inside, item))
                })
                .collect();
            one(queue.clone(), done.clone(), inside.clone(), 3);
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(done.load(Ordering::SeqCst), 3);
            assert!(!lock(&queue.inner).led);
        });
    }
}
