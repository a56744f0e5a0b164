//! The queue in front of a file: many operations, one batch, one sync.
//!
//! A thread that brings an operation while nobody writes does it. Whoever comes meanwhile joins the *group* that waits;
//! the first of a group will lead it, that is do all of its operations as one batch. When a batch is done, its owners
//! are woken, all with one call, and the leader of the next group begins. So nobody serves the others for ever, no
//! thread is kept for writing, and a lone writer never hands anything over to another thread.
//!
//! Invariants, which a model checker tries in every order of events (`--cfg loom`):
//! - an operation is in exactly one group, and gets exactly one answer;
//! - batches run one at a time, and operations enter them in the order in which they came;
//! - when a group waits, somebody leads or has been told to.
//!
//! A panic in a batch answers every operation of that batch with what `panicked` makes, and the queue goes on.

use std::collections::VecDeque;

use crate::sync::{Arc, Condvar, Mutex, Thread, current, lock, park, wait};

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
    waiting: VecDeque<Waiting<T, R>>,
    led: bool,
}

/// A group whose batch has not begun.
#[derive(Debug)]
struct Waiting<T, R> {
    items: Vec<T>,
    group: Arc<Group<R>>,
}

/// The threads whose operations go into one batch.
#[derive(Debug)]
struct Group<R> {
    /// The first of them.
    leader: Thread,
    state: Mutex<State<R>>,
    ended: Condvar,
}

#[derive(Debug)]
struct State<R> {
    /// Whether the leader was told to begin.
    called: bool,
    /// The answers by place in the group, when the batch has ended; each is taken by its owner.
    answers: Option<Vec<Option<R>>>,
}

impl<T, R> Queue<T, R> {
    pub(crate) fn new() -> Self {
        Self { inner: Mutex::new(Inner { waiting: VecDeque::new(), led: false }) }
    }

    /// Puts an operation into the queue and returns its answer. `work` does a batch, answer by answer in order; it runs
    /// on this thread if this thread comes to lead. `panicked` is the answer where `work` panicked or gave none.
    pub(crate) fn run(&self, item: T, work: impl FnOnce(Vec<T>) -> Vec<R>, panicked: impl Fn() -> R) -> R {
        let mut inner = lock(&self.inner);
        if let Some(last) = inner.waiting.back_mut().filter(|last| last.items.len() < BATCH_LEN_MAX) {
            let place = last.items.len();
            last.items.push(item);
            let group = Arc::clone(&last.group);
            drop(inner);
            return group.wait_for_answer(place).unwrap_or_else(panicked);
        }
        let group = Arc::new(Group {
            leader: current(),
            state: Mutex::new(State { called: false, answers: None }),
            ended: Condvar::new(),
        });
        inner.waiting.push_back(Waiting { items: vec![item], group: Arc::clone(&group) });
        let leads_now = !std::mem::replace(&mut inner.led, true);
        drop(inner);
        if !leads_now {
            group.wait_to_lead();
        }
        self.lead(work, &panicked);
        group.wait_for_answer(0).unwrap_or_else(panicked)
    }

    /// Does the batch of the group that has waited the longest, which is this thread's, and lets the next one begin.
    fn lead(&self, work: impl FnOnce(Vec<T>) -> Vec<R>, panicked: &impl Fn() -> R) {
        let Some(Waiting { items, group }) = lock(&self.inner).waiting.pop_front() else { return };
        // The guard answers and passes the lead on also when `work` panics.
        let mut batch = Batch { queue: self, group, len: items.len(), answers: Vec::new(), panicked };
        batch.answers = work(items);
        drop(batch);
    }
}

struct Batch<'a, T, R, P: Fn() -> R> {
    queue: &'a Queue<T, R>,
    group: Arc<Group<R>>,
    len: usize,
    answers: Vec<R>,
    panicked: &'a P,
}

impl<T, R, P: Fn() -> R> Drop for Batch<'_, T, R, P> {
    fn drop(&mut self) {
        let mut answers: Vec<Option<R>> = self.answers.drain(..).map(Some).collect();
        answers.resize_with(self.len, || Some((self.panicked)()));
        lock(&self.group.state).answers = Some(answers);
        if self.len > 1 {
            self.group.ended.notify_all();
        }
        // After the answers: with the next batch under way, its leader would wait for a processor behind all who wake.
        let next = {
            let mut inner = lock(&self.queue.inner);
            let next = inner.waiting.front().map(|next| Arc::clone(&next.group));
            inner.led = next.is_some();
            next
        };
        if let Some(next) = next {
            lock(&next.state).called = true;
            next.leader.unpark();
        }
    }
}

impl<R> Group<R> {
    /// Waits for the turn of the group, as its leader.
    fn wait_to_lead(&self) {
        // A thread that was called before it parks does not park; it may also wake up for no reason.
        while !lock(&self.state).called {
            park();
        }
    }

    /// Waits for the end of the batch and takes the answer of the one at this place.
    fn wait_for_answer(&self, place: usize) -> Option<R> {
        let mut state = lock(&self.state);
        loop {
            match &mut state.answers {
                Some(answers) => return answers.get_mut(place).and_then(Option::take),
                None => state = wait(&self.ended, state),
            }
        }
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
        let waiting = || lock(&queue.inner).waiting.iter().map(|it| it.items.len()).sum::<usize>();
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

    /// Three threads, each with one operation: every order of events with up to five forced switches, which is where
    /// the search ends within a minute. A lost wake-up shows as a deadlock.
    #[test]
    fn no_wake_up_is_lost_and_no_operation_is_answered_twice_or_never() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(5);
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
