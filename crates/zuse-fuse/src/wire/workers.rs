//! Which worker reads the next message.
//!
//! ```text
//!            ┌──────── parked (the last one to park is the first to be called) <───────────┐
//!            v                                                                            │ another one reads
//!         reading ───message──> serving ──────────── answered ──────────────────────────────┤
//!            ^   (polls for a moment, then sleeps in read)                                │ none reads
//!            └────────────────────────────────────────────────────────────────────────────┘
//! ```
//! Why: most of the time of a message is spent on waking a thread. Waking one on an idle core takes
//! 10 to 30 µs. So one worker is the reader, and serves the messages that it reads. It polls for
//! the next message for a moment before it sleeps. A client with one request after the other is
//! then served by one thread that stays awake.
//!
//! Rules (the tests and `mount-*` cases measure some of them; none affects bytes):
//! - One worker reads whenever all others are parked or serving.
//! - If no worker reads, one is called as soon as a waiting message is noticed. Either a worker
//!   that has just read one finds another one, or the watch notices it. The watch checks every
//!   [`TICK`] while there is work. So a blocked request (by a disk, or a suspended pool) delays the
//!   others by two ticks at most, until all workers are blocked.
//! - No worker is called for a FORGET, which takes less time than the call. One follows each
//!   removal of a file, with the next request right after it.
//! - A poll lasts at most [`LOOK`]. A worker whose polls found nothing polls less often, until
//!   messages come in quick succession again. Between two checks it yields the core, so that the
//!   client can run there.
//! - If the cores are busy, a worker sleeps instead of polling, for [`AFTER_CROWD`].
//! - Background work is done right after an answer, and before going to sleep, but never by the
//!   reader. If a message comes meanwhile, the worker does not poll again.
//! - The watch sleeps if nothing came for [`QUIET`]; the reader of the next message wakes it. An
//!   idle mount uses no processor time.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use zuse_base::sync::Mutex;

use super::abi::op;

/// How often the watch looks.
const TICK: Duration = Duration::from_millis(1);
/// The same if nothing has come for long and all workers are blocked.
const SLOW_TICK: Duration = Duration::from_millis(10);
/// Ticks without a message after which the watch goes to sleep.
const QUIET: u32 = 200;
/// How long a worker polls for the next message before it sleeps.
const LOOK: Duration = Duration::from_micros(50);
/// The confidence that polling pays off; see [`PollPolicy`].
const SURE: u8 = 4;
const SUREST: u8 = 16;

/// If a check takes longer, another thread had the core. Then a sleeping worker is scheduled sooner
/// than a polling one.
const CROWDED: Duration = Duration::from_micros(200);
/// How long no worker polls then.
const AFTER_CROWD: Duration = Duration::from_millis(50);

/// Decides between polling and sleeping, from how soon messages came before.
#[derive(Debug)]
struct PollPolicy {
    sure: u8,
    not_before: Option<Instant>,
}

impl PollPolicy {
    /// Messages soon after the last answer increase the confidence, others reduce it.
    fn learn(&mut self, soon: bool) {
        self.sure = if soon {
            (self.sure + 1).min(SUREST)
        } else {
            self.sure.saturating_sub(2)
        };
    }

    fn is_worth_it(&mut self, now: Instant) -> bool {
        if self.not_before.is_some_and(|then| now < then) {
            return false;
        }
        self.not_before = None;
        self.sure >= SURE
    }
}

/// Whether a message only takes references back.
fn is_forget(message: &[u8]) -> bool {
    // `fuse_in_header`: length, then the opcode.
    let opcode = message.get(4..8).and_then(|b| b.first_chunk());
    opcode.is_some_and(|b| matches!(u32::from_ne_bytes(*b), op::FORGET | op::BATCH_FORGET))
}

/// The source of messages.
pub(super) trait Queue: Sync {
    /// Identifies the source of a message.
    type Source;

    /// Whether a message waits.
    fn is_there_more(&self) -> bool;

    /// Waits for a message, and returns its source and length; none if the queue is closed.
    fn receive(&self, inbox: &mut [u8]) -> io::Result<Option<(Self::Source, usize)>>;

    /// Starts one more worker, if allowed.
    fn start_worker(&self);
}

/// A parked worker, which waits to be called.
#[derive(Debug)]
struct Parked {
    thread: Thread,
    number: u64,
}

/// The workers of one queue.
#[derive(Debug, Default)]
pub(super) struct Workers {
    /// Workers that read.
    waiting: AtomicU32,
    parked: Mutex<Vec<Parked>>,
    /// Messages taken.
    taken: AtomicU64,
    over: AtomicBool,
    watch: Mutex<Option<Thread>>,
    watch_sleeps: AtomicBool,
}

/// A worker's own part.
pub(super) struct Worker<'a, D: Queue> {
    all: &'a Workers,
    queue: &'a D,
    poll_policy: PollPolicy,
    number: u64,
    /// The last message was answered: the client needs a moment before its next request.
    answered: bool,
}

/// Does background work, until it is told of a request.
pub(super) type Idle<'a> = &'a dyn Fn(&dyn Fn() -> bool);

impl Workers {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn worker<'a, D: Queue>(&'a self, queue: &'a D, number: u64) -> Worker<'a, D> {
        Worker {
            all: self,
            queue,
            poll_policy: PollPolicy {
                sure: 0,
                not_before: None,
            },
            number,
            answered: false,
        }
    }

    fn parked(&self) -> zuse_base::sync::MutexGuard<'_, Vec<Parked>> {
        self.parked.lock()
    }

    /// Makes a worker read: a free one, or a new one.
    fn call_one(&self, queue: &impl Queue) {
        let next = self.parked().pop();
        match next {
            Some(next) => next.thread.unpark(),
            None => queue.start_worker(),
        }
    }

    /// Whether all workers end.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// Closes the queue: all workers end.
    pub(super) fn end(&self) {
        self.over.store(true, SeqCst);
        for parked in self.parked().drain(..) {
            parked.thread.unpark();
        }
        self.wake_watch();
    }

    fn wake_watch(&self) {
        let watch = self.watch.lock();
        if let Some(watch) = &*watch {
            watch.unpark();
        }
    }

    /// The life of the watch.
    pub(super) fn watch(&self, queue: &impl Queue) {
        let (mut seen, mut quiet) = (self.taken.load(SeqCst), 0);
        *self.watch.lock() = Some(thread::current());
        while !self.over.load(SeqCst) {
            if quiet >= QUIET && self.waiting.load(SeqCst) > 0 {
                self.watch_sleeps.store(true, SeqCst);
                // A worker that reads a message after this wakes us. One read before shows in the
                // count here.
                if self.taken.load(SeqCst) == seen && !self.over.load(SeqCst) {
                    thread::park();
                }
                self.watch_sleeps.store(false, SeqCst);
            } else {
                thread::park_timeout(if quiet < QUIET { TICK } else { SLOW_TICK });
            }
            let taken = self.taken.load(SeqCst);
            if taken != seen {
                (seen, quiet) = (taken, 0);
            } else {
                quiet = quiet.saturating_add(1);
                if self.waiting.load(SeqCst) == 0 {
                    self.call_one(queue);
                }
            }
        }
    }
}

impl<D: Queue> Worker<'_, D> {
    /// Waits for a message for this worker, and returns its source; `None` if the queue is closed.
    pub(super) fn next<'b>(
        &mut self,
        inbox: &'b mut [u8],
        idle: Idle<'_>,
    ) -> io::Result<Option<(D::Source, &'b [u8])>> {
        let asked = Cell::new(false);
        if self.answered {
            idle(&|| {
                asked.set(self.is_asked());
                asked.get()
            });
        }
        self.wait_for_turn();
        if self.all.over.load(SeqCst) {
            self.all.waiting.fetch_sub(1, SeqCst);
            return Ok(None);
        }
        let since = Instant::now();
        if !asked.get() && !self.polls(since) {
            self.all.waiting.fetch_sub(1, SeqCst);
            idle(&|| self.is_asked());
            self.wait_for_turn();
        }
        let received = self.queue.receive(inbox);
        // Before the message is served: the watch must see that no worker reads.
        let others = self.all.waiting.fetch_sub(1, SeqCst) - 1;
        self.poll_policy.learn(since.elapsed() < LOOK);
        self.all.taken.fetch_add(1, SeqCst);
        // After the count: either the watch sees the message there, or it is woken here.
        if self.all.watch_sleeps.load(SeqCst) {
            self.all.wake_watch();
        }
        let Some((guest, len)) = received? else {
            self.answered = false;
            return Ok(None);
        };
        let message = inbox.get(..len).unwrap_or_default();
        self.answered = !is_forget(message);
        if others == 0 && self.answered && self.queue.is_there_more() {
            self.all.call_one(self.queue);
        }
        Ok(Some((guest, message)))
    }

    /// Parks while another worker reads.
    fn wait_for_turn(&self) {
        let waiting = &self.all.waiting;
        let is_free = || waiting.compare_exchange(0, 1, SeqCst, SeqCst).is_ok();
        if is_free() {
            return;
        }
        {
            let mut parked = self.all.parked();
            // Under the lock: a later caller finds us here.
            if is_free() {
                return;
            }
            if !self.all.over.load(SeqCst) {
                parked.push(Parked {
                    thread: thread::current(),
                    number: self.number,
                });
            }
        }
        // A park may end without a call. Only a caller removes us from the list.
        while self.all.parked().iter().any(|p| p.number == self.number) {
            thread::park();
        }
        // Two readers do no harm.
        waiting.fetch_add(1, SeqCst);
    }

    /// Whether a message is waiting, which background work must not delay. The client that has just
    /// got an answer may be waiting for this processor, to send the next request.
    fn is_asked(&self) -> bool {
        thread::yield_now();
        self.queue.is_there_more()
    }

    /// Polls for a message for a while, if that pays off; returns whether there is one.
    fn polls(&mut self, since: Instant) -> bool {
        if !self.poll_policy.is_worth_it(since) {
            return false;
        }
        let mut last = since;
        while !self.queue.is_there_more() {
            thread::yield_now();
            let now = Instant::now();
            if now - last > CROWDED {
                self.poll_policy.not_before = Some(now + AFTER_CROWD);
                return false;
            }
            if now - since > LOOK {
                return false;
            }
            last = now;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::super::Channel;
    use super::super::abi::IN_HEADER;
    use super::super::message::Out;
    use super::*;

    impl Queue for Channel {
        type Source = ();
        fn is_there_more(&self) -> bool {
            let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
        }
        fn receive(&self, inbox: &mut [u8]) -> io::Result<Option<((), usize)>> {
            let len = rustix::io::read(&self.0, &mut *inbox)?;
            Ok(Some(((), len)))
        }
        fn start_worker(&self) {}
    }

    const ROW: usize = 100;

    fn until(what: &str, is_so: impl Fn() -> bool) -> bool {
        let since = Instant::now();
        while !is_so() {
            if since.elapsed() > Duration::from_secs(20) {
                eprintln!("in vain: {what}");
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    fn message(opcode: u32) -> Vec<u8> {
        let mut out = Out::default();
        out.u32(IN_HEADER as u32);
        out.u32(opcode);
        out.zeros(IN_HEADER - 8);
        out.0
    }

    /// Three workers and the watch; a sequence of messages, each sent after the answer to the one
    /// before. Counts the background work between them.
    #[test]
    fn there_are_idle_moments_behind_each_answer_and_all_go_home() {
        // Neither takes references back.
        let (question, end) = (op::GETXATTR, op::DESTROY);
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (kernel, ours) =
            socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).expect("sockets");
        let (channel, all) = (Channel(ours), Workers::new());
        let (answered, idled) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let send = |opcode| {
            rustix::io::write(&kernel, &message(opcode)).expect("sent");
        };
        let idle = |_: &dyn Fn() -> bool| {
            // Before the first message all workers may idle.
            let asked = answered.load(SeqCst) > 0;
            idled.fetch_add(usize::from(asked), SeqCst);
        };
        let serve = |number| {
            let mut inbox = vec![0; 8192];
            let mut worker = all.worker(&channel, number);
            while let Some(((), received)) = worker.next(&mut inbox, &idle).expect("a message") {
                if u32::from(received[4]) == end {
                    break;
                }
                answered.fetch_add(1, SeqCst);
            }
        };
        let (all, serve) = (&all, &serve);
        let ok = thread::scope(|scope| {
            scope.spawn(|| all.watch(&channel));
            for number in 0..3 {
                scope.spawn(move || serve(number));
            }
            let ok = until("they wait", || {
                let watches = all.watch.lock().is_some();
                watches && all.parked().len() == 2 && all.waiting.load(SeqCst) == 1
            });
            for n in 0..ROW {
                send(question);
                until("answered", || answered.load(SeqCst) > n);
            }
            all.end();
            (0..3).for_each(|_| send(end));
            ok
        });
        assert!(ok);
        assert_eq!(answered.load(SeqCst), ROW);
        assert!(idled.load(SeqCst) >= ROW - 1, "{idled:?}");
    }

    #[test]
    fn while_one_waits_another_serves() {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (kernel, ours) =
            socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).expect("sockets");
        let (channel, all) = (Channel(ours), Workers::new());
        let served = AtomicUsize::new(0);
        let in_time = AtomicBool::new(false);
        let send = |opcode| {
            rustix::io::write(&kernel, &message(opcode)).expect("sent");
        };
        let serve = |number| {
            let mut inbox = vec![0; 8192];
            let mut worker = all.worker(&channel, number);
            while let Some(((), received)) = worker.next(&mut inbox, &|_| ()).expect("a message") {
                match u32::from(received[4]) {
                    op::READ => {
                        let was_served = until("served", || served.load(SeqCst) > 0);
                        in_time.store(was_served, SeqCst);
                    }
                    op::GETXATTR => {
                        served.fetch_add(1, SeqCst);
                    }
                    _ => break,
                }
            }
        };
        let (all, serve) = (&all, &serve);
        thread::scope(|scope| {
            scope.spawn(|| all.watch(&channel));
            scope.spawn(move || serve(0));
            scope.spawn(move || serve(1));
            until("one waits", || all.parked().len() == 1);
            send(op::READ);
            send(op::GETXATTR);
            until("both are done", || in_time.load(SeqCst));
            all.end();
            send(op::DESTROY);
            send(op::DESTROY);
        });
        assert!(in_time.load(SeqCst));
    }
}
