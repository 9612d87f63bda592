//! The threads of a process that serve all its mounts: workers, and one for housekeeping.
//!
//! Once a second the housekeeping thread visits the sessions that were used recently, or have work
//! left:
//! - it frees files that lost their last name while they were open;
//! - it notifies the kernel of files whose block counts changed when a txg was written;
//! - from time to time it writes access times.
//!
//! When there is no such session it sleeps until one is used. So idle mounts take no processor
//! time. The threads end when no mount is left.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use zuse_base::sync::Mutex;

use zuse_fuse::ThreadPool;

use crate::session::Session;
use crate::volume::Volume;
use crate::wakeup::Wakeup;

const TICK: Duration = Duration::from_secs(1);
/// Ticks between two writings of access times.
const ATIME_TICKS: u32 = 10;
/// A session is visited for this many ticks after the last request, so that access times are
/// written once.
const IDLE_TICKS: u32 = ATIME_TICKS + 2;

/// Threads for mounts; they belong to no mount in particular.
#[derive(Debug)]
pub struct MountThreads {
    pub(crate) workers: ThreadPool,
    housekeeping: Arc<Mutex<Housekeeping>>,
    wakeup: Arc<Wakeup>,
}

/// The sessions that the housekeeping thread visits.
#[derive(Default)]
struct Housekeeping {
    sessions: Vec<Visited>,
    runs: bool,
}

struct Visited {
    session: Weak<Session>,
    /// Ticks since the last request.
    idle_ticks: u32,
}

impl std::fmt::Debug for Housekeeping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Housekeeping({} sessions)", self.sessions.len())
    }
}

impl MountThreads {
    /// For mounts to come.
    ///
    /// # Errors
    /// The system gives no descriptors.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            workers: ThreadPool::new()?,
            housekeeping: Arc::default(),
            wakeup: Arc::default(),
        })
    }

    /// Does the housekeeping of a session from now on.
    pub(crate) fn add_session(&self, session: &Arc<Session>) -> std::io::Result<()> {
        let mut housekeeping = self.housekeeping.lock();
        let _ = session.wakeup.set(self.wakeup.clone());
        housekeeping.sessions.push(Visited {
            session: Arc::downgrade(session),
            idle_ticks: 0,
        });
        self.wakeup.wake();
        if housekeeping.runs {
            return Ok(());
        }
        let (theirs, wakeup) = (self.housekeeping.clone(), self.wakeup.clone());
        let thread = thread::Builder::new().name("zuse-mount-tick".into());
        thread.spawn(move || run_housekeeping(&theirs, &wakeup))?;
        housekeeping.runs = true;
        Ok(())
    }
}

impl Housekeeping {
    /// The sessions to visit now.
    fn next(&mut self) -> Vec<Arc<Session>> {
        let mut out = Vec::new();
        self.sessions.retain_mut(|visited| {
            let Some(session) = visited.session.upgrade().filter(|s| !s.over()) else {
                return false;
            };
            visited.idle_ticks = match session.was_used.swap(false, SeqCst) {
                true => 0,
                false => visited.idle_ticks.saturating_add(1),
            };
            if visited.idle_ticks < IDLE_TICKS {
                out.push(session);
            }
            true
        });
        out
    }
}

/// The main loop of the housekeeping thread.
fn run_housekeeping(housekeeping: &Mutex<Housekeeping>, wakeup: &Wakeup) {
    let mut count = 0u32;
    loop {
        thread::sleep(TICK);
        count = count.wrapping_add(1);
        let sessions = {
            let mut housekeeping = housekeeping.lock();
            let sessions = housekeeping.next();
            if housekeeping.sessions.is_empty() {
                // Under the lock: a session that is added now starts a new thread.
                housekeeping.runs = false;
                return;
            }
            sessions
        };
        for session in &sessions {
            if visit(session, count.is_multiple_of(ATIME_TICKS)) {
                // It is visited again, although no request came.
                session.was_used.store(true, SeqCst);
            }
        }
        if sessions.is_empty() {
            wakeup.wait();
        }
    }
}

/// Does the housekeeping of a session; returns whether work is left.
fn visit(session: &Session, writes_atimes: bool) -> bool {
    let mut volumes: Vec<Arc<Volume>> = session.children.lock().values().cloned().collect();
    volumes.push(session.root());
    let mut left = false;
    for volume in volumes {
        session.notify_block_counts(&volume, None);
        // Their counts are known only when a later txg is written.
        left |= !volume.growing.lock().is_empty();
        let Ok(fs) = volume.enter() else { continue };
        if fs.is_read_only() {
            continue;
        }
        // If it fails it is tried the next time.
        left |= fs.reap().is_err();
        if writes_atimes {
            left |= fs.write_atimes().is_err();
        }
    }
    left
}
