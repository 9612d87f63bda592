//! A pool of named threads for work on the processor: checksums, compression, parity.
//!
//! - The queue is bounded, and nothing waits for room in it. A worker might wait for room that only
//!   workers can make.
//! - In [`WorkPool::run_all`] the caller works too. It waits only for items that some thread has
//!   already begun. An item can wait only for batches made inside it, so nesting cannot deadlock. A
//!   full queue only reduces parallelism.
//! - A batch of [`WorkPool::run_in_background`] runs at the same time as the caller.
//!   [`WorkPool::finish`] helps with the rest of it, and waits for its end.
//! - While no caller waits for a result ([`WorkPool::set_awaited`]), batches of computations use at
//!   most half of the processors. As soon as a caller waits, more threads help.
//! - A panic in a job does not end its thread. It is counted and triggers the pool's tripwire, and
//!   the batch reports it to its caller.
//! - Dropping the pool runs the queued jobs, then joins the threads.

use crate::sync::{Condvar, Mutex};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use crate::counter::Counter;
use crate::queue::{BoundedQueue, PushError};
use crate::tripwire::{Tripwire, at};

/// A job.
pub type Job = Box<dyn FnOnce() + Send>;

/// A job panicked, with this message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a job of pool {pool} panicked: {message}")]
pub struct JobPanic {
    /// Name of the thread pool.
    pub pool: String,
    /// The panic message.
    pub message: String,
}

/// A pool of worker threads.
pub struct WorkPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Number of processors when the pool was created.
    processors: usize,
    /// Background batches that may not be done yet.
    background: Mutex<Vec<Arc<dyn BackgroundBatch>>>,
    /// No caller waits for results.
    nobody_waits: AtomicBool,
}

/// A batch whose results are not used.
trait BackgroundBatch: Send + Sync {
    /// Work until every item is begun.
    fn help(&self);
    /// Waits for the items that others have begun.
    fn wait(&self) -> Result<(), String>;
    /// Whether every item is done.
    fn is_done(&self) -> bool;
}

struct Shared {
    name: String,
    queue: BoundedQueue<Job>,
    panics: Counter,
    tripwire: Arc<Tripwire>,
}

impl WorkPool {
    /// A pool of `threads` threads called `name-0`, `name-1`… and a queue of `capacity` jobs.
    ///
    /// # Errors
    /// If the host starts no thread at all. Fewer threads than requested are accepted.
    pub fn new(name: &str, threads: usize, capacity: usize) -> std::io::Result<Self> {
        Self::with_tripwire(name, threads, capacity, Arc::default())
    }

    /// As [`Self::new`], with the tripwire of the storage pool that it works for.
    ///
    /// # Errors
    /// As there.
    pub fn with_tripwire(
        name: &str,
        threads: usize,
        capacity: usize,
        tripwire: Arc<Tripwire>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            name: name.into(),
            queue: BoundedQueue::new(capacity),
            panics: Counter::default(),
            tripwire,
        });
        let mut pool = Self {
            shared,
            threads: Vec::new(),
            processors: processors(),
            background: Mutex::default(),
            nobody_waits: AtomicBool::new(false),
        };
        for n in 0..threads.max(1) {
            let shared = pool.shared.clone();
            match thread::Builder::new()
                .name(format!("{name}-{n}"))
                .spawn(move || shared.work())
            {
                Ok(thread) => pool.threads.push(thread),
                Err(error) if pool.threads.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(pool)
    }

    /// Queue a job if there is room now.
    ///
    /// # Errors
    /// Gives the job back when the queue is full.
    pub fn try_submit(&self, job: Job) -> Result<(), Job> {
        self.shared
            .queue
            .try_push(job)
            .map_err(PushError::into_inner)
    }

    /// Apply `f` to every item, in parallel, results in the order of the items. The caller helps.
    ///
    /// # Errors
    /// When `f` panicked on some item; the other items are still worked on.
    pub fn try_run_all<T, R, F>(&self, items: Vec<T>, f: F) -> Result<Vec<R>, JobPanic>
    where
        T: Send + 'static,
        R: Send + 'static,
        F: Fn(T) -> R + Send + Sync + 'static,
    {
        self.try_run_with(self.threads.len(), items, f)
    }

    /// As [`Self::try_run_all`], for items that mostly compute; at most `waiting` of them may wait
    /// for a device at once. It uses no more threads than processors, or `waiting` and one. While
    /// no caller waits for the results ([`Self::set_awaited`]), half as many as processors, or
    /// `waiting`.
    ///
    /// More threads would not be faster, and other threads would get less of the processors. On two
    /// processors, a thread that created files during a sync with six helpers got a third of a
    /// processor. With one helper it got two thirds.
    ///
    /// # Errors
    /// As there.
    pub fn try_compute_all<T, R, F>(
        &self,
        waiting: usize,
        items: Vec<T>,
        f: F,
    ) -> Result<Vec<R>, JobPanic>
    where
        T: Send + 'static,
        R: Send + 'static,
        F: Fn(T) -> R + Send + Sync + 'static,
    {
        let batch = Arc::new(Batch::new(items, f));
        let most = self.threads.len().min(batch.slots.len().saturating_sub(1));
        let mut called = 0;
        batch.help_and(|| {
            let due = self.useful_helpers(waiting).min(most);
            if called < due {
                called += self.call_for_help(&batch, due - called, Batch::help);
            }
        });
        batch.wait().map_err(|message| self.panicked(message))
    }

    /// Number of helpers for items that compute, and of which so many wait for devices.
    fn useful_helpers(&self, waiting: usize) -> usize {
        if self.nobody_waits.load(Ordering::Relaxed) {
            // The caller counts as a computing and as a waiting thread.
            (self.processors / 2).max(waiting).saturating_sub(1)
        } else {
            self.processors.saturating_sub(1).max(waiting)
        }
    }

    /// Says whether a caller waits for results. The default is that one does.
    pub fn set_awaited(&self, awaited: bool) {
        let before = self.nobody_waits.swap(!awaited, Ordering::SeqCst);
        if before && awaited {
            for batch in &*self.background.lock() {
                self.call_for_help(batch, self.useful_helpers(0), |batch| batch.help());
            }
        }
    }

    /// Whether a caller waits for results, as far as is known.
    pub fn is_awaited(&self) -> bool {
        !self.nobody_waits.load(Ordering::Relaxed)
    }

    fn try_run_with<T, R, F>(&self, helpers: usize, items: Vec<T>, f: F) -> Result<Vec<R>, JobPanic>
    where
        T: Send + 'static,
        R: Send + 'static,
        F: Fn(T) -> R + Send + Sync + 'static,
    {
        let batch = Arc::new(Batch::new(items, f));
        let helpers = helpers.min(batch.slots.len().saturating_sub(1));
        self.call_for_help(&batch, helpers, Batch::help);
        batch.help();
        batch.wait().map_err(|message| self.panicked(message))
    }

    /// Number of helpers that will come.
    fn call_for_help<B>(&self, batch: &Arc<B>, helpers: usize, help: fn(&B)) -> usize
    where
        B: ?Sized + Send + Sync + 'static,
    {
        for n in 0..helpers {
            // Helpers hold the batch weakly: a late helper must not keep it alive.
            let weak: Weak<B> = Arc::downgrade(batch);
            let helper = Box::new(move || {
                if let Some(batch) = weak.upgrade() {
                    help(&batch);
                }
            });
            if self.shared.queue.try_push(helper).is_err() {
                return n;
            }
        }
        helpers
    }

    /// The tripwire of the storage pool that it works for.
    pub fn tripwire(&self) -> &Arc<Tripwire> {
        &self.shared.tripwire
    }

    fn panicked(&self, message: String) -> JobPanic {
        self.shared.note_panic();
        JobPanic {
            pool: self.shared.name.clone(),
            message,
        }
    }

    /// Begins to apply `f` to every item and returns. It leaves a processor to the caller and some
    /// to others. It is done when [`Self::finish`] returns, or earlier.
    pub fn run_in_background<T, F>(&self, items: Vec<T>, f: F)
    where
        T: Send + 'static,
        F: Fn(T) + Send + Sync + 'static,
    {
        let batch = Arc::new(Batch::new(items, f));
        {
            let mut background = self.background.lock();
            background.retain(|b| !b.is_done());
            background.push(batch.clone());
        }
        // A caller that hurries from now on finds it in the list.
        let leisure = self.nobody_waits.load(Ordering::SeqCst);
        let helpers = self.useful_helpers(0).max(usize::from(!leisure));
        let helpers = helpers.min(self.threads.len()).min(batch.slots.len());
        if self.call_for_help(&batch, helpers, Batch::help) == 0 && helpers > 0 {
            batch.help();
        }
    }

    /// Helps with all background batches, and waits until they are done.
    ///
    /// # Errors
    /// An item panicked; the others are done.
    pub fn finish(&self) -> Result<(), JobPanic> {
        let mut result = Ok(());
        let background = std::mem::take(&mut *self.background.lock());
        for batch in background {
            batch.help();
            if let Err(message) = batch.wait() {
                result = Err(self.panicked(message));
            }
        }
        result
    }

    /// Like [`WorkPool::try_run_all`].
    ///
    /// # Panics
    /// In the caller, when `f` panicked on some item.
    pub fn run_all<T, R, F>(&self, items: Vec<T>, f: F) -> Vec<R>
    where
        T: Send + 'static,
        R: Send + 'static,
        F: Fn(T) -> R + Send + Sync + 'static,
    {
        match self.try_run_all(items, f) {
            Ok(results) => results,
            Err(panic) => panic!("{panic}"),
        }
    }

    /// Threads of this pool.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Jobs that wait.
    pub fn queued(&self) -> usize {
        self.shared.queue.len()
    }

    /// Jobs and batches that panicked so far.
    pub fn panics(&self) -> u64 {
        self.shared.panics.get()
    }
}

impl Drop for WorkPool {
    fn drop(&mut self) {
        self.shared.queue.close();
        for thread in self.threads.drain(..) {
            // The last owner may be a job of this pool, and a thread cannot join itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl fmt::Debug for WorkPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "WorkPool({}, {} threads, {:?})",
            self.shared.name,
            self.threads.len(),
            self.shared.queue
        )
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.queue.pop() {
            self.run(job);
        }
    }

    fn run(&self, job: Job) {
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            self.note_panic();
        }
    }

    fn note_panic(&self) {
        self.panics.bump();
        self.tripwire.tear(at::WORK);
    }
}

/// Apply `f` to every item on up to `threads` threads made for this call; items and `f` may borrow.
///
/// For long work: it costs a thread start each. Short work belongs to a [`WorkPool`].
///
/// # Panics
/// In the caller, when `f` panicked on some item.
pub fn run_all_borrowed<T, R, F>(threads: usize, items: Vec<T>, f: F) -> Vec<R>
where
    T: Send,
    R: Send,
    F: Fn(T) -> R + Send + Sync,
{
    let batch = Batch::new(items, f);
    thread::scope(|scope| {
        for _ in 1..threads.min(batch.slots.len()) {
            // If there is no thread, the caller does its share.
            let _ = thread::Builder::new().spawn_scoped(scope, || batch.help());
        }
        batch.help();
    });
    match batch.wait() {
        Ok(results) => results,
        Err(message) => panic!("a parallel job panicked: {message}"),
    }
}

impl<T: Send, F: Fn(T) + Send + Sync> BackgroundBatch for Batch<T, (), F> {
    fn help(&self) {
        Batch::help(self);
    }

    fn wait(&self) -> Result<(), String> {
        Batch::wait(self).map(drop)
    }

    fn is_done(&self) -> bool {
        *self.left.lock() == 0
    }
}

/// Items on their way to results.
struct Batch<T, R, F> {
    f: F,
    slots: Vec<Mutex<Slot<T, R>>>,
    /// The next item that no thread has begun.
    next: AtomicUsize,
    left: Mutex<usize>,
    finished: Condvar,
    panic: Mutex<Option<String>>,
}

enum Slot<T, R> {
    Todo(T),
    Taken,
    Done(R),
}

impl<T, R, F: Fn(T) -> R> Batch<T, R, F> {
    fn new(items: Vec<T>, f: F) -> Self {
        let slots: Vec<_> = items
            .into_iter()
            .map(|item| Mutex::new(Slot::Todo(item)))
            .collect();
        let left = Mutex::new(slots.len());
        Self {
            f,
            slots,
            next: AtomicUsize::new(0),
            left,
            finished: Condvar::new(),
            panic: Mutex::new(None),
        }
    }

    /// Work until every item is begun.
    fn help(&self) {
        self.help_and(|| ());
    }

    /// As [`Self::help`]; something is done before every item.
    fn help_and(&self, mut first: impl FnMut()) {
        let next = || self.slots.get(self.next.fetch_add(1, Ordering::Relaxed));
        while let Some(slot) = next() {
            first();
            let taken = std::mem::replace(&mut *slot.lock(), Slot::Taken);
            if let Slot::Todo(item) = taken {
                match catch_unwind(AssertUnwindSafe(|| (self.f)(item))) {
                    Ok(result) => *slot.lock() = Slot::Done(result),
                    Err(payload) => {
                        self.panic
                            .lock()
                            .get_or_insert_with(|| panic_text(&*payload));
                    }
                }
            }
            let mut left = self.left.lock();
            *left -= 1;
            if *left == 0 {
                self.finished.notify_all();
            }
        }
    }

    /// Wait for the items that others have begun, and collect.
    fn wait(&self) -> Result<Vec<R>, String> {
        let mut left = self.left.lock();
        while *left > 0 {
            left = self.finished.wait(left);
        }
        drop(left);
        if let Some(message) = self.panic.lock().take() {
            return Err(message);
        }
        let results = self.slots.iter().filter_map(|slot| {
            match std::mem::replace(&mut *slot.lock(), Slot::Taken) {
                Slot::Done(result) => Some(result),
                Slot::Todo(_) | Slot::Taken => None,
            }
        });
        Ok(results.collect())
    }
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).into()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".into()
    }
}

#[cfg(test)]
mod tests;
