//! The workers of a process, shared by all its connections.
//!
//! ```text
//!   /dev/fuse of a mount ─┐
//!   /dev/fuse of a mount ─┼─ epoll ─ the reader ────── Connection::server ─ answer
//!   /dev/fuse of a mount ─┘                 (workers.rs)
//! ```
//! A process may serve thousands of mounts, few of which are busy. So threads belong to no mount.
//! An idle mount costs a descriptor and an entry in a table. A [`Connection`] is that of one mount.
//!
//! Invariants:
//! - A connection ends once: when the kernel has ended its session and the last worker has left
//!   it. A worker leaves as often as it entered, which is asserted.
//! - A thread is started if there is work and no worker is free, up to the largest number that any
//!   of the mounts requested. Threads end when the last connection is gone and none can be added.
//! - While the pool is paused no message is read: requests wait in the kernel. A worker that has
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

/// The event number without a connection: all workers end.
const WAKEUP: u64 = u64::MAX;
/// Messages that are read from one connection before the others are checked.
const IN_A_ROW: usize = 16;
/// Interval of checks whether all messages are answered.
const LOOK: Duration = Duration::from_millis(1);

/// Answers the messages of a connection.
pub(super) trait Serve: Send + Sync {
    /// Answers a message; `out` is scratch space.
    fn answer(&self, connection: &Arc<Connection>, message: Message<'_>, out: &mut Out);
    /// Answers a search for data or holes, after the kernel's pages are written.
    fn seek_behind(&self, channel: &Channel, seek: &Seek);
    /// Does background work, until there is a request.
    fn idle(&self, is_over: &dyn Fn() -> bool);
    /// The session has ended.
    fn destroy(&self);
}

/// Called when a session has ended.
type OnEnd = Arc<dyn Fn() + Send + Sync>;

/// Hears how a session ended.
type Ended = Box<dyn Fn(io::Result<()>) + Send + Sync>;

/// A connection of a mount.
pub(super) struct Connection {
    key: u64,
    pub(super) channel: Arc<Channel>,
    server: Box<dyn Serve>,
    shared: Arc<Shared>,
    /// Workers that are using it.
    busy: AtomicUsize,
    /// The kernel has ended it.
    over: AtomicBool,
    done: AtomicBool,
    /// The error that ended it, if any.
    broken: Mutex<Option<io::Error>>,
    ended: Ended,
}

/// A worker that is using a connection.
pub(super) struct ConnectionUse(Arc<Connection>);

impl ConnectionUse {
    fn new(connection: &Arc<Connection>) -> Self {
        connection.busy.fetch_add(1, SeqCst);
        Self(connection.clone())
    }
}

impl Drop for ConnectionUse {
    fn drop(&mut self) {
        let connection = &self.0;
        let busy = connection.busy.fetch_sub(1, SeqCst);
        debug_assert!(busy > 0, "a worker leaves a connection that nobody serves");
        // The count may reach 0 more than once: only the first time ends it.
        let last = busy == 1;
        if last && connection.over.load(SeqCst) && !connection.done.swap(true, SeqCst) {
            connection.server.destroy();
            let broken = connection.broken.lock().take();
            (connection.ended)(broken.map_or(Ok(()), Err));
            let on_end = connection.shared.on_end.lock().clone();
            if let Some(on_end) = on_end {
                on_end();
            }
        }
    }
}

impl Connection {
    /// Lets another thread answer a request that this one must not wait for.
    pub(super) fn seek_later(self: &Arc<Self>, seek: Seek) {
        let in_use = ConnectionUse::new(self);
        self.shared.seeking.push((in_use, seek));
        self.shared.start_seeker();
    }

    /// The session is over.
    fn end(self: &Arc<Self>, broken: Option<io::Error>) {
        let in_use = ConnectionUse::new(self);
        if broken.is_some() {
            *self.broken.lock() = broken;
        }
        let _ = epoll::delete(&self.shared.events, self.channel.as_fd());
        self.shared.connections.lock().remove(&self.key);
        // A worker must not find it as the recent one and read again.
        self.shared.forget(self);
        // After it is out of the table: no worker finds it any more, and the last one ends it.
        self.over.store(true, SeqCst);
        self.shared.close_if_empty();
        drop(in_use);
    }
}

/// The workers of a process. If it is dropped they continue until the last connection has ended.
pub struct ThreadPool(Arc<Shared>);

/// What the workers share.
struct Shared {
    events: OwnedFd,
    wakeup: OwnedFd,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    next: AtomicU64,
    workers: Workers,
    seeking: Seeking<(ConnectionUse, Seek)>,
    /// Number of threads, and their limit.
    threads: AtomicUsize,
    limit: AtomicUsize,
    has_watch: AtomicBool,
    has_seeker: AtomicBool,
    /// No connection comes any more.
    closing: AtomicBool,
    /// No message is taken.
    paused: AtomicBool,
    /// Called for each connection that has ended.
    on_end: Mutex<Option<OnEnd>>,
    /// Where the last message came from.
    recent: Mutex<(Option<Arc<Connection>>, usize)>,
}

impl ThreadPool {
    /// A pool without threads.
    ///
    /// # Errors
    /// The system provides no descriptors for it.
    pub fn new() -> io::Result<Self> {
        let events = epoll::create(CreateFlags::CLOEXEC)?;
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&events, &wakeup, EventData::new_u64(WAKEUP), EventFlags::IN)?;
        Ok(Self(Arc::new(Shared {
            events,
            wakeup,
            connections: Mutex::default(),
            next: AtomicU64::new(0),
            workers: Workers::new(),
            seeking: Seeking::default(),
            threads: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            has_watch: AtomicBool::new(false),
            has_seeker: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            on_end: Mutex::default(),
            recent: Mutex::default(),
        })))
    }

    /// Sets the function to call whenever a session has ended.
    pub fn set_on_end(&self, on_end: impl Fn() + Send + Sync + 'static) {
        *self.0.on_end.lock() = Some(Arc::new(on_end));
    }

    /// Serves a connection from now on, with up to so many threads.
    pub(super) fn add(
        &self,
        channel: Arc<Channel>,
        server: Box<dyn Serve>,
        threads: usize,
        ended: Ended,
    ) -> io::Result<()> {
        let shared = &self.0;
        // Several workers may wake for one message. The others must not sleep in a read of this
        // one.
        rustix::io::ioctl_fionbio(channel.as_fd(), true)?;
        let key = shared.next.fetch_add(1, SeqCst);
        let connection = Arc::new(Connection {
            key,
            channel,
            server,
            shared: shared.clone(),
            busy: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            done: AtomicBool::new(false),
            broken: Mutex::default(),
            ended,
        });
        // Before the first thread starts, which counts against it.
        shared.limit.fetch_max(threads.max(1), SeqCst);
        shared.begin()?;
        // Before the event can come: a worker looks the connection up by its key.
        shared.connections.lock().insert(key, connection.clone());
        // `resume` listens to all connections in the table.
        if shared.paused.load(SeqCst) {
            return Ok(());
        }
        shared.listen_to(&connection).inspect_err(|_| {
            shared.connections.lock().remove(&key);
        })
    }

    /// Stops reading messages, and waits until all messages read before are answered. False if that
    /// takes longer than `limit`: then it continues as before.
    pub fn pause(&self, limit: Duration) -> bool {
        let shared = &self.0;
        shared.paused.store(true, SeqCst);
        *shared.recent.lock() = (None, 0);
        let connections = shared.all();
        for connection in &connections {
            let _ = epoll::delete(&shared.events, connection.channel.as_fd());
        }
        let until = Instant::now() + limit;
        while connections
            .iter()
            .any(|connection| connection.busy.load(SeqCst) > 0)
        {
            if Instant::now() >= until {
                self.resume();
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    /// Takes messages again.
    pub fn resume(&self) {
        let shared = &self.0;
        shared.paused.store(false, SeqCst);
        for connection in shared.all() {
            if let Err(error) = shared.listen_to(&connection) {
                // Its mount must not hang, so the connection ends.
                connection.end(Some(error));
            }
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.0.closing.store(true, SeqCst);
        self.0.close_if_empty();
    }
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "ThreadPool({} connections)",
            self.0.connections.lock().len()
        )
    }
}

/// A thread of the pool.
fn spawn(name: &str, life: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.into());
    let started = thread.spawn(move || {
        // Its memory allocations must not wait for pages that it would have to write itself.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        life();
    });
    started.map(drop)
}

impl Shared {
    /// Starts the first worker, and the thread that prevents a waiting request from blocking all
    /// others.
    fn begin(self: &Arc<Self>) -> io::Result<()> {
        if self.threads.load(SeqCst) == 0 {
            self.start_thread()?;
        }
        if !self.has_watch.swap(true, SeqCst) {
            let me = self.clone();
            let watch = spawn("zuse-fuse-watch", move || me.workers.watch(&me));
            watch.inspect_err(|_| self.has_watch.store(false, SeqCst))?;
        }
        Ok(())
    }

    fn all(&self) -> Vec<Arc<Connection>> {
        self.connections.lock().values().cloned().collect()
    }

    /// Hears of messages of a connection.
    fn listen_to(&self, connection: &Connection) -> io::Result<()> {
        let data = EventData::new_u64(connection.key);
        let added = epoll::add(
            &self.events,
            connection.channel.as_fd(),
            data,
            EventFlags::IN,
        );
        Ok(added?)
    }

    fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let limit = self.limit.load(SeqCst);
        let one_more = |n| (n < limit).then_some(n + 1);
        let Ok(number) = self.threads.fetch_update(SeqCst, SeqCst, one_more) else {
            return Ok(());
        };
        let me = self.clone();
        let number = number as u64;
        let started = spawn(&format!("zuse-fuse-{number}"), move || me.work(number));
        started.inspect_err(|_| {
            self.threads.fetch_sub(1, SeqCst);
        })
    }

    fn start_seeker(self: &Arc<Self>) {
        if self.has_seeker.swap(true, SeqCst) {
            return;
        }
        let me = self.clone();
        let life = move || {
            while let Some((in_use, seek)) = me.seeking.next() {
                in_use.0.server.seek_behind(&in_use.0.channel, &seek);
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
        let mut last: Weak<Connection> = Weak::new();
        loop {
            let idle = |is_over: &dyn Fn() -> bool| {
                if let Some(connection) = last.upgrade() {
                    connection.server.idle(is_over);
                }
            };
            let Ok(Some((in_use, received))) = worker.next(&mut inbox, &idle) else {
                return;
            };
            let connection = &in_use.0;
            match Message::parse(received) {
                Ok(message) => connection.server.answer(connection, message, &mut scratch),
                Err(_) => connection.end(Some(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a message without a header",
                ))),
            }
            last = Arc::downgrade(connection);
        }
    }

    /// Ends all workers, if no connection is left and none can be added.
    fn close_if_empty(&self) {
        if !self.closing.load(SeqCst) || !self.connections.lock().is_empty() {
            return;
        }
        self.workers.end();
        self.seeking.end();
        *self.recent.lock() = (None, 0);
        // Never read: the event stays, and each worker that waits sees it and ends.
        let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
    }

    /// A message of a connection, if there is one. An error ends the connection.
    fn take(
        &self,
        connection: &Arc<Connection>,
        inbox: &mut [u8],
    ) -> Option<(ConnectionUse, usize)> {
        let in_use = ConnectionUse::new(connection);
        // Counted first: a thread that pauses the pool sees either this count, or that no message
        // is read.
        if self.paused.load(SeqCst) {
            return None;
        }
        match connection.channel.take(inbox) {
            Ok(Some(len)) => Some((in_use, len)),
            Ok(None) => None,
            Err(ended) => {
                connection.end(ended.why);
                None
            }
        }
    }

    /// The connection of the last message, unless it had enough turns.
    fn same_again(&self) -> Option<Arc<Connection>> {
        let mut recent = self.recent.lock();
        recent.1 += 1;
        if recent.1 > IN_A_ROW {
            recent.1 = 0;
            return None;
        }
        recent
            .0
            .clone()
            .filter(|connection| !connection.over.load(SeqCst))
    }

    fn forget(&self, connection: &Arc<Connection>) {
        let mut recent = self.recent.lock();
        if recent
            .0
            .as_ref()
            .is_some_and(|l| Arc::ptr_eq(l, connection))
        {
            *recent = (None, 0);
        }
    }

    fn note(&self, connection: &Arc<Connection>) {
        let mut recent = self.recent.lock();
        if !recent
            .0
            .as_ref()
            .is_some_and(|l| Arc::ptr_eq(l, connection))
        {
            *recent = (Some(connection.clone()), 0);
        }
    }
}

impl Queue for Arc<Shared> {
    type Source = ConnectionUse;

    fn is_there_more(&self) -> bool {
        let mut fds = [PollFd::new(&self.events, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }

    fn receive(&self, inbox: &mut [u8]) -> io::Result<Option<(ConnectionUse, usize)>> {
        if let Some(connection) = self.same_again()
            && let Some(taken) = self.take(&connection, inbox)
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
            let connection = key.and_then(|key| self.connections.lock().get(&key).cloned());
            if let Some(connection) = connection
                && let Some(taken) = self.take(&connection, inbox)
            {
                self.note(&connection);
                return Ok(Some(taken));
            }
        }
    }

    fn start_worker(&self) {
        // If no thread can be started, fewer workers are enough.
        let _ = self.start_thread();
    }
}
