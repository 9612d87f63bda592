//! Who reads the next message.
//!
//! ```text
//!            ┌──────── parked (the last one to park is the first to be called) <───────────┐
//!            v                                                                            │ somebody is at the door
//!        at the door ──message──> serving ──────────── answered ───────────────────────────┤
//!            ^   (looks for a moment, then sleeps in read)                                │ nobody is
//!            └────────────────────────────────────────────────────────────────────────────┘
//! ```
//! What a message costs is mostly waking somebody: on an idle machine a thread that sleeps on the other core is 10 to 30 µs
//! away. So one worker stays at the door, does what it is asked itself, and looks for the next message for a moment before it
//! goes to sleep: a program that asks one thing after the other is served by one hot thread that never sleeps.
//!
//! Invariants:
//! - One worker is at the door whenever all others are parked or serving; while nobody is, somebody is called as soon as
//!   it is seen that a message waits: by who has just taken one and finds another behind it, or else by the watch, which
//!   looks every [`TICK`] while there is work. For the sake of a FORGET nobody is called: it is done sooner than anybody comes,
//!   and behind the removal of a file there always is one, with the next request right behind. So a request that waits (for a disk, for a suspended pool) delays the others
//!   by two ticks at the most, until all workers wait.
//! - Looking (instead of sleeping) has to pay: who looked in vain does it less, until messages come in quick succession again.
//!   It yields the core between two looks, so that whoever the answer woke can run there.
//! - While the workers are on the processor of the only one who asks ([`super::pairing`]), nobody looks: as long as one of them looks the
//!   asker cannot go on. Who has answered goes to sleep in `read`, which gives the processor to the asker, and is woken there; nobody has idle
//!   moments ([`zuse_base::moments`]). `get` of 16 KiB took 27.2 µs (half of the calls) with looks and moments, 24.2 without. What was left
//!   to be done then is done by who is called, or by the watch, once nobody asks. A message of somebody else that comes
//!   right behind that of the only one is seen by the watch.
//! - What nobody waits for is done while the asker digests an answer, and before going to sleep; never at the door, which
//!   counts as attended. Who has seen a question then does not look once more.
//! - What a worker owes after an answer ([`zuse_base::owed`]) holds a processor for some 300 µs: never that of who asks, so that it is
//!   served meanwhile. Where the worker is on that one, the watch does it; elsewhere it does it itself, and a deputy serves, on any
//!   other processor. The deputy goes when it is back.
//! - The watch sleeps for good when nothing came for [`QUIET`]; who then takes a message wakes it.

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{Pid, gettid, sched_getcpu};

use zuse_base::apart::{self, Group, Role};
use zuse_base::moments;
use zuse_base::owed::{self, Owed};
use zuse_base::spare;

use super::Channel;
use super::abi::op;
use super::doorstop::Doorstop;
use super::inbox::Inbox;
use super::pairing::{self, Asked, Pairing};
use super::trial::Way;

/// How often the watch looks.
const TICK: Duration = Duration::from_millis(1);
/// The same when nothing has come for long and all workers wait for something.
const SLOW_TICK: Duration = Duration::from_millis(10);
/// Ticks without a message after which the watch goes to sleep.
const QUIET: u32 = 200;
/// How long a worker looks for the next message before it sleeps.
const LOOK: Duration = Duration::from_micros(50);
/// How sure it has to be that looking pays; see [`Patience`].
const SURE: u8 = 4;
const SUREST: u8 = 16;

const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// A look that takes longer has let somebody else have the core: there is work to do, and who sleeps is woken sooner than
/// who stands in line.
const CROWDED: Duration = Duration::from_micros(200);
/// How long nobody looks then.
const AFTER_CROWD: Duration = Duration::from_millis(50);

/// Whether to look or to sleep, learned from how soon messages came.
#[derive(Debug)]
struct Patience {
    sure: u8,
    not_before: Option<Instant>,
}

impl Patience {
    /// Messages that came soon after the last answer make surer, others less sure.
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

/// The thread that a message comes from, 0 for the kernel.
fn asker_of(message: &[u8]) -> u32 {
    // `fuse_in_header`: behind four numbers of four and two of eight bytes.
    let thread = message.get(32..36).and_then(|b| b.first_chunk());
    thread.map_or(0, |b| u32::from_ne_bytes(*b))
}

/// A worker that waits to be called.
#[derive(Debug)]
struct Parked {
    thread: Thread,
    id: Pid,
    number: u64,
}

/// The workers of a session, seen from the door.
#[derive(Debug)]
pub(super) struct Workers {
    /// Workers at the door.
    waiting: AtomicU32,
    parked: Mutex<Vec<Parked>>,
    /// What the watch is to do instead of a worker.
    owed: Mutex<Vec<Owed>>,
    /// Messages taken.
    taken: AtomicU64,
    asked: Asked,
    /// Whether background work may be kept off their processor.
    apart: bool,
    /// Whether it is: they are on the processor of the only one who asks.
    beside_asker: AtomicBool,
    doorstop: Doorstop,
    /// As threads that serve the same door.
    pub(super) group: Group,
    over: AtomicBool,
    watch: Mutex<Option<(Thread, Pid)>>,
    watch_sleeps: AtomicBool,
    /// Whether a second core is there on which an asker can go on while we look.
    may_look: bool,
}

/// A worker's own part.
pub(super) struct Worker<'a> {
    all: &'a Workers,
    channel: &'a Channel,
    patience: Patience,
    number: u64,
    /// The last message was answered: whoever asked it needs a moment before it asks the next.
    answered: bool,
}

/// Does what nobody waits for, until it is told that somebody asks.
pub(super) type Idle<'a> = &'a dyn Fn(&dyn Fn() -> bool);

impl Workers {
    pub(super) fn new(apart: bool) -> Self {
        Self {
            waiting: AtomicU32::new(0),
            parked: Mutex::default(),
            owed: Mutex::default(),
            taken: AtomicU64::new(0),
            asked: Asked::default(),
            apart,
            beside_asker: AtomicBool::new(false),
            doorstop: Doorstop::default(),
            group: Group::new(),
            over: AtomicBool::new(false),
            watch: Mutex::default(),
            watch_sleeps: AtomicBool::new(false),
            may_look: thread::available_parallelism().is_ok_and(|n| n.get() > 1),
        }
    }

    pub(super) fn worker<'a>(&'a self, channel: &'a Channel, number: u64) -> Worker<'a> {
        Worker {
            all: self,
            channel,
            patience: Patience {
                sure: 0,
                not_before: None,
            },
            number,
            answered: false,
        }
    }

    fn parked(&self) -> std::sync::MutexGuard<'_, Vec<Parked>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owed(&self) -> std::sync::MutexGuard<'_, Vec<Owed>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls somebody to the door, if anybody is free. Whether somebody is.
    fn call_one(&self) -> bool {
        let next = self.parked().pop();
        if let Some(next) = &next {
            next.thread.unpark();
        }
        next.is_some()
    }

    /// Calls somebody to the door who keeps off the caller's processor until he is put back; who that is.
    fn call_deputy(&self) -> Option<Pid> {
        let next = self.parked().pop()?;
        apart::avoid(next.id);
        next.thread.unpark();
        Some(next.id)
    }

    /// The session has ended: everybody goes home.
    pub(super) fn end(&self) {
        self.over.store(true, SeqCst);
        for parked in self.parked().drain(..) {
            parked.thread.unpark();
        }
        self.wake_watch();
        self.doorstop.end();
    }

    /// The life of the one who keeps a processor from being idle.
    pub(super) fn stand(&self, bring_nearer: &dyn Fn() -> bool) {
        self.doorstop
            .stand(|| self.taken.load(Relaxed), bring_nearer);
    }

    fn wake_watch(&self) {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((watch, _)) = &*watch {
            watch.unpark();
        }
    }

    /// Has the watch do on another processor what the caller owes.
    fn leave_to_watch(&self, owed: Owed) {
        self.owed().push(owed);
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((watch, id)) = &*watch {
            apart::avoid(*id);
            watch.unpark();
        }
    }

    /// Does what was left to the watch, which calls this.
    fn pay(&self) {
        let owed = std::mem::take(&mut *self.owed());
        if !owed.is_empty() {
            owed.into_iter().for_each(Owed::pay);
            apart::put_back(gettid());
        }
    }

    /// The life of the watch.
    pub(super) fn watch(&self, idle: Idle<'_>) {
        let _member = apart::join(Role::Background);
        let mut pairing = self.apart.then(|| Pairing::new(self.group));
        let (mut seen, mut quiet) = (self.taken.load(SeqCst), 0);
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((thread::current(), gettid()));
        // Messages were answered by workers without idle moments.
        let mut left_over = false;
        while !self.over.load(SeqCst) {
            if quiet >= QUIET && self.waiting.load(SeqCst) > 0 {
                spare::forget();
                self.watch_sleeps.store(true, SeqCst);
                // Who takes a message after this wakes us; what was taken before it is seen here.
                if self.taken.load(SeqCst) == seen && !self.over.load(SeqCst) {
                    thread::park();
                }
                self.watch_sleeps.store(false, SeqCst);
            } else {
                thread::park_timeout(if quiet < QUIET { TICK } else { SLOW_TICK });
            }
            self.pay();
            let taken = self.taken.load(SeqCst);
            if let Some(pairing) = &mut pairing {
                let way = pairing.tick(&self.asked, self.doorstop.read());
                self.beside_asker.store(way.is_beside(), Relaxed);
                if way != Way::Held {
                    self.doorstop.let_go();
                } else if taken != seen {
                    self.doorstop.hold();
                }
            }
            if taken != seen {
                (seen, quiet) = (taken, 0);
                left_over |= self.beside_asker.load(Relaxed);
            } else {
                quiet = quiet.saturating_add(1);
                if std::mem::take(&mut left_over) {
                    if !self.call_one() {
                        idle(&|| self.taken.load(SeqCst) != taken || self.over.load(SeqCst));
                    }
                } else if self.waiting.load(SeqCst) == 0 {
                    self.call_one();
                }
            }
        }
    }
}

impl Worker<'_> {
    /// Waits for a message that this worker is to serve; `None` when the session has ended.
    pub(super) fn next<'b>(
        &mut self,
        inbox: &'b mut Inbox,
        idle: Idle<'_>,
    ) -> io::Result<Option<&'b [u8]>> {
        let has_deputy = self.pay();
        let beside = self.is_beside();
        moments::expect(!beside);
        let asked = Cell::new(false);
        if self.answered && !beside {
            idle(&|| {
                asked.set(self.is_asked());
                asked.get()
            });
        }
        let was_called = if has_deputy {
            // Beside him: he goes after his next message.
            self.all.waiting.fetch_add(1, SeqCst);
            false
        } else {
            self.come_to_the_door()
        };
        if self.all.over.load(SeqCst) {
            self.all.waiting.fetch_sub(1, SeqCst);
            return Ok(None);
        }
        let since = (self.all.may_look && !beside).then(Instant::now);
        let goes_on = asked.get() || (beside && !was_called);
        if !goes_on && !since.is_some_and(|since| self.looks(since)) {
            loop {
                self.all.waiting.fetch_sub(1, SeqCst);
                idle(&|| self.is_asked());
                let was_called = self.come_to_the_door();
                // Who is called beside the asker is called for what was left, too.
                let left_over = was_called && self.is_beside();
                if !left_over || self.all.over.load(SeqCst) {
                    break;
                }
            }
        }
        let received = self.channel.receive(|fd| inbox.read(fd));
        let others = self.all.waiting.fetch_sub(1, SeqCst) - 1;
        if let Some(since) = since {
            self.patience.learn(since.elapsed() < LOOK);
        }
        self.all.taken.fetch_add(1, SeqCst);
        if self.all.watch_sleeps.load(SeqCst) {
            self.all.wake_watch();
        }
        let received = received.map(|len| len.map(|len| inbox.received(len)));
        self.answered = matches!(&received, Ok(Some(message)) if !is_forget(message));
        let is_same = match &received {
            Ok(Some(message)) => self.all.asked.note(asker_of(message)),
            _ => false,
        };
        // The one who waits for this answer asks nothing meanwhile.
        let alone = is_same && self.is_beside();
        if others == 0 && self.answered && !alone && self.is_there_more() {
            self.all.call_one();
        }
        received
    }

    /// Does what this worker owes, away from who asks. Whether somebody else serves since then.
    fn pay(&self) -> bool {
        let Some(owed) = owed::take() else {
            return false;
        };
        if self.is_asker_here() {
            self.all.leave_to_watch(owed);
            return false;
        }
        let is_needed = self.all.waiting.load(SeqCst) == 0;
        let deputy = is_needed.then(|| self.all.call_deputy()).flatten();
        owed.pay();
        if let Some(deputy) = deputy {
            apart::put_back(deputy);
        }
        deputy.is_some()
    }

    /// Whether the workers are on the processor of who asks.
    pub(super) fn is_beside(&self) -> bool {
        self.all.beside_asker.load(Relaxed)
    }

    /// Whether who asked last is on the processor of this worker.
    fn is_asker_here(&self) -> bool {
        self.is_beside() || pairing::processor_of(self.all.asked.by()) == Some(sched_getcpu())
    }

    /// Parks while somebody else is at the door. Whether it did, and was called.
    fn come_to_the_door(&self) -> bool {
        let waiting = &self.all.waiting;
        let is_free = || waiting.compare_exchange(0, 1, SeqCst, SeqCst).is_ok();
        if is_free() {
            return false;
        }
        {
            let mut parked = self.all.parked();
            // Under the lock: who calls after this finds us here.
            if is_free() {
                return false;
            }
            if !self.all.over.load(SeqCst) {
                parked.push(Parked {
                    thread: thread::current(),
                    id: gettid(),
                    number: self.number,
                });
            }
        }
        while self.all.parked().iter().any(|p| p.number == self.number) {
            thread::park();
        }
        // Two at the door do no harm.
        waiting.fetch_add(1, SeqCst);
        true
    }

    /// Whether somebody asks who should not wait for what nobody waits for. Who has just got an answer may be waiting for this
    /// processor, to ask again.
    fn is_asked(&self) -> bool {
        thread::yield_now();
        self.is_there_more()
    }

    fn is_there_more(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(
            self.channel.0.as_fd(),
            PollFlags::IN,
        )];
        poll(&mut fds, Some(&AT_ONCE)).is_ok_and(|n| n > 0)
    }

    /// Looks for a message for a while, if that pays; says whether there is one.
    fn looks(&mut self, since: Instant) -> bool {
        if !self.patience.is_worth_it(since) {
            return false;
        }
        let mut last = since;
        while !self.is_there_more() {
            thread::yield_now();
            let now = Instant::now();
            if now - last > CROWDED {
                self.patience.not_before = Some(now + AFTER_CROWD);
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
    use std::thread::ThreadId;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::super::abi::IN_HEADER;
    use super::super::message::Out;
    use super::*;

    /// How often the work was begun, what was asked meanwhile, and whether that was done before the work ended; a row for each test.
    static BEGUN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    static ASKED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    static IN_TIME: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
    /// Who did it.
    static BY: [Mutex<Option<ThreadId>>; 2] = [const { Mutex::new(None) }; 2];

    const OWE: u32 = 1;
    const ASK: u32 = 2;
    const GO: u32 = 3;

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

    /// Takes until something was asked.
    fn work(test: usize, _: usize) {
        *BY[test].lock().expect("free") = Some(thread::current().id());
        BEGUN[test].fetch_add(1, SeqCst);
        let served = until("served", || ASKED[test].load(SeqCst) > 0);
        IN_TIME[test].store(served, SeqCst);
    }

    fn message(opcode: u32) -> Vec<u8> {
        let mut out = Out::default();
        out.u32(IN_HEADER as u32);
        out.u32(opcode);
        out.zeros(IN_HEADER - 8);
        out.0
    }

    /// Two workers, and the watch or not; one owes something, and something is asked while it is done.
    fn owe_and_ask(test: usize, beside_asker: bool) {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (kernel, ours) =
            socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).expect("sockets");
        let (channel, all) = (Channel(ours), Workers::new(false));
        all.beside_asker.store(beside_asker, SeqCst);
        let send = |opcode| {
            rustix::io::write(&kernel, &message(opcode)).expect("sent");
        };
        let serve = |number| {
            owed::accept();
            let mut inbox = Inbox::new(8192);
            let mut worker = all.worker(&channel, number);
            while let Some(received) = worker.next(&mut inbox, &|_| ()).expect("a message") {
                match received[4] as u32 {
                    OWE => assert!(owed::owe(work, (test, 0))),
                    ASK => {
                        ASKED[test].fetch_add(1, SeqCst);
                    }
                    _ => break,
                }
                inbox.answered(None);
            }
        };
        let all = &all;
        let serve = &serve;
        let ok = thread::scope(|scope| {
            let watch = beside_asker.then(|| scope.spawn(|| all.watch(&|_| ())).thread().id());
            scope.spawn(move || serve(0));
            scope.spawn(move || serve(1));
            let mut ok = until("one waits", || all.parked().len() == 1);
            send(OWE);
            ok &= until("begun", || BEGUN[test].load(SeqCst) == 1);
            send(ASK);
            ok &= until("done", || IN_TIME[test].load(SeqCst));
            // Whoever is at the door.
            send(ASK);
            ok &= until("served on", || ASKED[test].load(SeqCst) == 2);
            all.end();
            send(GO);
            send(GO);
            ok && (*BY[test].lock().expect("free") == watch) == beside_asker
        });
        assert!(ok);
        assert_eq!(BEGUN[test].load(SeqCst), 1);
    }

    #[test]
    fn a_deputy_serves_while_a_worker_does_what_it_owes() {
        owe_and_ask(0, false);
    }

    #[test]
    fn the_watch_does_what_a_worker_beside_its_asker_owes() {
        owe_and_ask(1, true);
    }

    /// What was done between and behind messages: all of it, and what of it while messages came.
    struct Left {
        /// Messages served by who had idle moments.
        with_moments: AtomicUsize,
        idled: AtomicUsize,
        is_asking: AtomicBool,
        idled_while_asked: AtomicUsize,
    }

    /// So many workers, and the watch or not; a row of messages, each asked when the one before was answered, and then none.
    fn ask_in_a_row(workers: u64, beside_asker: bool, watched: bool) -> Left {
        const ROW: usize = 100;
        // Neither takes references back.
        let (question, end) = (op::GETXATTR, op::DESTROY);
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (kernel, ours) =
            socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).expect("sockets");
        let (channel, all) = (Channel(ours), Workers::new(false));
        all.beside_asker.store(beside_asker, SeqCst);
        let left = Left {
            with_moments: AtomicUsize::new(0),
            idled: AtomicUsize::new(0),
            is_asking: AtomicBool::new(true),
            idled_while_asked: AtomicUsize::new(0),
        };
        let answered = AtomicUsize::new(0);
        let send = |opcode| {
            rustix::io::write(&kernel, &message(opcode)).expect("sent");
        };
        let idle = |_: &dyn Fn() -> bool| {
            // Before the first question everybody may.
            let asked = answered.load(SeqCst) > 0;
            left.idled.fetch_add(usize::from(asked), SeqCst);
            let asking = asked && left.is_asking.load(SeqCst);
            left.idled_while_asked
                .fetch_add(usize::from(asking), SeqCst);
        };
        let serve = |number| {
            let mut inbox = Inbox::new(8192);
            let mut worker = all.worker(&channel, number);
            while let Some(received) = worker.next(&mut inbox, &idle).expect("a message") {
                if received[4] as u32 == end {
                    break;
                }
                inbox.answered(None);
                let has = usize::from(moments::are_expected());
                left.with_moments.fetch_add(has, SeqCst);
                answered.fetch_add(1, SeqCst);
            }
        };
        let (all, serve, idle) = (&all, &serve, &idle);
        let ok = thread::scope(|scope| {
            if watched {
                scope.spawn(move || all.watch(idle));
            }
            for number in 0..workers {
                scope.spawn(move || serve(number));
            }
            let mut ok = until("they wait", || {
                let watches = all.watch.lock().expect("free").is_some() == watched;
                let parked = all.parked().len() as u64;
                watches && parked == workers - 1 && all.waiting.load(SeqCst) == 1
            });
            // Each time somebody may be called who was called before.
            for _ in 0..if watched { 4 } else { 1 } {
                let before = left.idled.load(SeqCst);
                left.is_asking.store(true, SeqCst);
                for _ in 0..ROW {
                    let n = answered.load(SeqCst);
                    send(question);
                    while answered.load(SeqCst) == n {
                        thread::yield_now();
                    }
                }
                left.is_asking.store(false, SeqCst);
                if watched {
                    ok &= until("idle", || left.idled.load(SeqCst) > before);
                }
            }
            all.end();
            (0..workers).for_each(|_| send(end));
            ok
        });
        assert!(ok);
        left
    }

    #[test]
    fn beside_its_asker_nobody_has_idle_moments() {
        for workers in [1, 3] {
            let left = ask_in_a_row(workers, true, false);
            assert_eq!(left.with_moments.load(SeqCst), 0);
            assert_eq!(left.idled_while_asked.load(SeqCst), 0);
        }
    }

    #[test]
    fn what_is_left_beside_the_asker_is_done_when_nobody_asks() {
        // Alone, the worker sleeps in `read`, and the watch is left.
        for workers in [1, 3] {
            ask_in_a_row(workers, true, true);
        }
    }

    #[test]
    fn elsewhere_there_are_idle_moments_behind_each_answer() {
        let left = ask_in_a_row(3, false, true);
        assert_eq!(left.with_moments.load(SeqCst), 400);
        assert!(left.idled_while_asked.load(SeqCst) >= 360);
    }
}
