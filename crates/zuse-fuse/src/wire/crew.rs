//! The workers of a process, shared by all its connections.
//!
//! ```text
//!   /dev/fuse of a mount ─┐
//!   /dev/fuse of a mount ─┼─ epoll ─ the reader ─────────── Line::server ─ answer
//!   /dev/fuse of a mount ─┘                 (workers.rs)
//! ```
//! A process may serve thousands of mounts, few of which are busy. So threads belong to no mount.
//! An idle mount costs a descriptor and an entry in a table. A `Line` is one connection.
//!
//! Invariants:
//! - A line ends once: when the kernel has ended its session and the last worker has left it. A
//!   worker leaves as often as it entered, which is asserted.
//! - A thread is started if there is work and no worker is free, up to the largest number that any
//!   of the mounts requested. Threads end when the last line is gone and none can be added.
//! - While the crew is at rest no message is read: requests wait in the kernel. A worker that has
//!   read one before answers it.
//!
//! No method of a server is called with the table locked.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use zuse_base::sync::Mutex;

use super::message::{Message, Out};
use super::seeking::{Seek, Seeking};
use super::workers::{Queue, Workers};
use super::{Channel, INBOX};

/// The event number without a line: all workers end.
const BELL: u64 = u64::MAX;
/// Messages that are read from one line before the others are checked.
const IN_A_ROW: usize = 16;
/// Interval of checks whether all messages are answered.
const LOOK: Duration = Duration::from_millis(1);

/// Answers the messages of a line.
pub(super) trait Serve: Send + Sync {
    /// Answers a message; `out` is scratch space.
    fn answer(&self, line: &Arc<Line>, message: Message<'_>, out: &mut Out);
    /// Answers a search for data or holes, after the kernel's pages are written.
    fn seek_behind(&self, channel: &Channel, seek: &Seek);
    /// Does background work, until there is a request.
    fn idle(&self, is_over: &dyn Fn() -> bool);
    /// The session has ended.
    fn destroy(&self);
}

/// Called when a session has ended.
type FollowedEvents = Arc<dyn Fn() + Send + Sync>;

/// Hears how a session ended.
type Ended = Box<dyn Fn(io::Result<()>) + Send + Sync>;

/// A connection of a mount.
pub(super) struct Line {
    key: u64,
    pub(super) channel: Arc<Channel>,
    server: Box<dyn Serve>,
    crew: Arc<House>,
    /// Workers that are using it.
    busy: AtomicUsize,
    /// The kernel has ended it.
    over: AtomicBool,
    done: AtomicBool,
    /// The error that ended it, if any.
    broken: Mutex<Option<io::Error>>,
    ended: Ended,
}

/// A worker with a line.
pub(super) struct With(Arc<Line>);

impl With {
    fn new(line: &Arc<Line>) -> Self {
        line.busy.fetch_add(1, SeqCst);
        Self(line.clone())
    }
}

impl Drop for With {
    fn drop(&mut self) {
        let line = &self.0;
        let busy = line.busy.fetch_sub(1, SeqCst);
        debug_assert!(busy > 0, "a worker leaves a line that nobody serves");
        let last = busy == 1;
        if last && line.over.load(SeqCst) && !line.done.swap(true, SeqCst) {
            line.server.destroy();
            let broken = line.broken.lock().take();
            (line.ended)(broken.map_or(Ok(()), Err));
            let heard = line.crew.heard.lock().clone();
            if let Some(heard) = heard {
                heard();
            }
        }
    }
}

impl Line {
    /// Lets another thread answer a request that this one must not wait for.
    pub(super) fn seek_later(self: &Arc<Self>, seek: Seek) {
        let with = With::new(self);
        self.crew.seeking.push((with, seek));
        self.crew.hire_seeker();
    }

    /// The session is over.
    fn end(self: &Arc<Self>, broken: Option<io::Error>) {
        let with = With::new(self);
        if broken.is_some() {
            *self.broken.lock() = broken;
        }
        let _ = epoll::delete(&self.crew.events, self.channel.as_fd());
        self.crew.lines.lock().remove(&self.key);
        self.crew.forget(self);
        self.over.store(true, SeqCst);
        self.crew.close_if_empty();
        drop(with);
    }
}

/// The workers of a process. If it is dropped they continue until the last line has ended.
pub struct Crew(Arc<House>);

/// What the workers share.
struct House {
    events: OwnedFd,
    bell: OwnedFd,
    lines: Mutex<HashMap<u64, Arc<Line>>>,
    next: AtomicU64,
    workers: Workers,
    seeking: Seeking<(With, Seek)>,
    /// Number of threads, and their limit.
    hired: AtomicUsize,
    most: AtomicUsize,
    has_watch: AtomicBool,
    has_seeker: AtomicBool,
    /// No line comes any more.
    closing: AtomicBool,
    /// No message is taken.
    rests: AtomicBool,
    /// Called for each line that has ended.
    heard: Mutex<Option<FollowedEvents>>,
    /// Where the last message came from.
    recent: Mutex<(Option<Arc<Line>>, usize)>,
}

impl Crew {
    /// A crew without threads.
    ///
    /// # Errors
    /// The system provides no descriptors for it.
    pub fn new() -> io::Result<Self> {
        let events = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&events, &bell, EventData::new_u64(BELL), EventFlags::IN)?;
        Ok(Self(Arc::new(House {
            events,
            bell,
            lines: Mutex::default(),
            next: AtomicU64::new(0),
            workers: Workers::new(),
            seeking: Seeking::default(),
            hired: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            has_watch: AtomicBool::new(false),
            has_seeker: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            heard: Mutex::default(),
            recent: Mutex::default(),
        })))
    }

    /// Sets the function to call whenever a session has ended.
    pub fn tell_of_ends(&self, heard: impl Fn() + Send + Sync + 'static) {
        *self.0.heard.lock() = Some(Arc::new(heard));
    }

    /// Serves a connection from now on, with up to so many threads.
    pub(super) fn add(
        &self,
        channel: Arc<Channel>,
        server: Box<dyn Serve>,
        threads: usize,
        ended: Ended,
    ) -> io::Result<()> {
        let house = &self.0;
        rustix::io::ioctl_fionbio(channel.as_fd(), true)?;
        let key = house.next.fetch_add(1, SeqCst);
        let line = Arc::new(Line {
            key,
            channel,
            server,
            crew: house.clone(),
            busy: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            done: AtomicBool::new(false),
            broken: Mutex::default(),
            ended,
        });
        house.most.fetch_max(threads.max(1), SeqCst);
        house.begin()?;
        house.lines.lock().insert(key, line.clone());
        if house.rests.load(SeqCst) {
            return Ok(());
        }
        house.listen_to(&line).inspect_err(|_| {
            house.lines.lock().remove(&key);
        })
    }

    /// Stops reading messages, and waits until all messages read before are answered. False if that
    /// takes longer than `limit`: then it continues as before.
    pub fn rest(&self, limit: Duration) -> bool {
        let house = &self.0;
        house.rests.store(true, SeqCst);
        *house.recent.lock() = (None, 0);
        let lines = house.all();
        for line in &lines {
            let _ = epoll::delete(&house.events, line.channel.as_fd());
        }
        let until = Instant::now() + limit;
        while lines.iter().any(|line| line.busy.load(SeqCst) > 0) {
            if Instant::now() >= until {
                self.work_again();
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    /// Takes messages again.
    pub fn work_again(&self) {
        let house = &self.0;
        house.rests.store(false, SeqCst);
        for line in house.all() {
            if let Err(error) = house.listen_to(&line) {
                // Its mount must not hang, so the connection ends.
                line.end(Some(error));
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.0.closing.store(true, SeqCst);
        self.0.close_if_empty();
    }
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Crew({} lines)", self.0.lines.lock().len())
    }
}

/// A thread of the crew.
fn spawn(name: &str, life: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.into());
    let started = thread.spawn(move || {
        // Its memory allocations must not wait for pages that it would have to write itself.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        life();
    });
    started.map(drop)
}

impl House {
    /// Starts the first worker, and the thread that prevents a waiting request from blocking all
    /// others.
    fn begin(self: &Arc<Self>) -> io::Result<()> {
        if self.hired.load(SeqCst) == 0 {
            self.hire_one()?;
        }
        if !self.has_watch.swap(true, SeqCst) {
            let me = self.clone();
            let watch = spawn("zuse-fuse-watch", move || me.workers.watch(&me));
            watch.inspect_err(|_| self.has_watch.store(false, SeqCst))?;
        }
        Ok(())
    }

    fn all(&self) -> Vec<Arc<Line>> {
        self.lines.lock().values().cloned().collect()
    }

    /// Hears of messages of a line.
    fn listen_to(&self, line: &Line) -> io::Result<()> {
        let data = EventData::new_u64(line.key);
        let added = epoll::add(&self.events, line.channel.as_fd(), data, EventFlags::IN);
        Ok(added?)
    }

    fn hire_one(self: &Arc<Self>) -> io::Result<()> {
        let most = self.most.load(SeqCst);
        let one_more = |n| (n < most).then_some(n + 1);
        let Ok(number) = self.hired.fetch_update(SeqCst, SeqCst, one_more) else {
            return Ok(());
        };
        let me = self.clone();
        let number = number as u64;
        let hired = spawn(&format!("zuse-fuse-{number}"), move || me.work(number));
        hired.inspect_err(|_| {
            self.hired.fetch_sub(1, SeqCst);
        })
    }

    fn hire_seeker(self: &Arc<Self>) {
        if self.has_seeker.swap(true, SeqCst) {
            return;
        }
        let me = self.clone();
        let life = move || {
            while let Some((with, seek)) = me.seeking.next() {
                with.0.server.seek_behind(&with.0.channel, &seek);
            }
        };
        if spawn("zuse-fuse-seek", life).is_err() {
            // The next `lseek` tries again.
            self.has_seeker.store(false, SeqCst);
        }
    }

    /// The life of a worker.
    fn work(self: &Arc<Self>, number: u64) {
        let mut inbox = vec![0; INBOX];
        let mut scratch = Out::default();
        let mut worker = self.workers.worker(self, number);
        // A sleeping worker keeps no session in memory.
        let mut last: Weak<Line> = Weak::new();
        loop {
            let idle = |is_over: &dyn Fn() -> bool| {
                if let Some(line) = last.upgrade() {
                    line.server.idle(is_over);
                }
            };
            let Ok(Some((with, received))) = worker.next(&mut inbox, &idle) else {
                return;
            };
            let line = &with.0;
            match Message::parse(received) {
                Ok(message) => line.server.answer(line, message, &mut scratch),
                Err(_) => line.end(Some(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a message without a header",
                ))),
            }
            last = Arc::downgrade(line);
        }
    }

    /// Ends all workers, if no line is left and none can be added.
    fn close_if_empty(&self) {
        if !self.closing.load(SeqCst) || !self.lines.lock().is_empty() {
            return;
        }
        self.workers.end();
        self.seeking.end();
        *self.recent.lock() = (None, 0);
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// A message of a line, if there is one. An error ends the line.
    fn take(&self, line: &Arc<Line>, inbox: &mut [u8]) -> Option<(With, usize)> {
        let with = With::new(line);
        // Counted first: a thread that stops the crew sees either this count, or that no message is
        // read.
        if self.rests.load(SeqCst) {
            return None;
        }
        match line.channel.take(inbox) {
            Ok(Some(len)) => Some((with, len)),
            Ok(None) => None,
            Err(ended) => {
                line.end(ended.why);
                None
            }
        }
    }

    /// The line of the last message, unless it had enough turns.
    fn same_again(&self) -> Option<Arc<Line>> {
        let mut recent = self.recent.lock();
        recent.1 += 1;
        if recent.1 > IN_A_ROW {
            recent.1 = 0;
            return None;
        }
        recent.0.clone().filter(|line| !line.over.load(SeqCst))
    }

    fn forget(&self, line: &Arc<Line>) {
        let mut recent = self.recent.lock();
        if recent.0.as_ref().is_some_and(|l| Arc::ptr_eq(l, line)) {
            *recent = (None, 0);
        }
    }

    fn note(&self, line: &Arc<Line>) {
        let mut recent = self.recent.lock();
        if !recent.0.as_ref().is_some_and(|l| Arc::ptr_eq(l, line)) {
            *recent = (Some(line.clone()), 0);
        }
    }
}

impl Queue for Arc<House> {
    type Guest = With;

    fn is_there_more(&self) -> bool {
        let mut fds = [PollFd::new(&self.events, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }

    fn receive(&self, inbox: &mut [u8]) -> io::Result<Option<(With, usize)>> {
        if let Some(line) = self.same_again()
            && let Some(taken) = self.take(&line, inbox)
        {
            return Ok(Some(taken));
        }
        loop {
            if self.workers.is_over() {
                return Ok(None);
            }
            let mut events = Vec::with_capacity(1);
            match epoll::wait(
                &self.events,
                rustix::buffer::spare_capacity(&mut events),
                None,
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let key = events.first().map(|e| e.data.u64());
            let line = key.and_then(|key| self.lines.lock().get(&key).cloned());
            if let Some(line) = line
                && let Some(taken) = self.take(&line, inbox)
            {
                self.note(&line);
                return Ok(Some(taken));
            }
        }
    }

    fn hire(&self) {
        // If no thread can be started, fewer workers are enough.
        let _ = self.hire_one();
    }
}
