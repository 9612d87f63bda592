//! The threads of a process that serve all its mounts: workers, and one that looks after what
//! nobody asks for.
//!
//! Once a second that one frees what lost its last name and was open, tells the kernel of files
//! that have other block counts since a txg was written, and now and then writes access times. It
//! goes when no mount is left.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use zuse_base::sync::Mutex;

use zuse_fuse::Crew;

use crate::session::Session;
use crate::volume::Volume;

const TICK: Duration = Duration::from_secs(1);
/// Ticks between two writings of access times.
const ATIME_TICKS: u32 = 10;

/// Threads for mounts; they belong to no one of them.
#[derive(Debug)]
pub struct Staff {
    pub(crate) crew: Crew,
    rounds: Arc<Mutex<Rounds>>,
}

/// Whom the one who looks after things visits.
#[derive(Default)]
struct Rounds {
    sessions: Vec<Weak<Session>>,
    walks: bool,
}

impl std::fmt::Debug for Rounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rounds({})", self.sessions.len())
    }
}

impl Staff {
    /// For mounts to come.
    ///
    /// # Errors
    /// The system gives no descriptors.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            crew: Crew::new()?,
            rounds: Arc::default(),
        })
    }

    /// Looks after a session from now on.
    pub(crate) fn look_after(&self, session: &Arc<Session>) -> std::io::Result<()> {
        let mut rounds = self.rounds.lock();
        rounds.sessions.push(Arc::downgrade(session));
        if rounds.walks {
            return Ok(());
        }
        let theirs = self.rounds.clone();
        let thread = thread::Builder::new().name("zuse-mount-tick".into());
        thread.spawn(move || walk(&theirs))?;
        rounds.walks = true;
        Ok(())
    }
}

/// The life of the one who looks after all.
fn walk(rounds: &Mutex<Rounds>) {
    let mut count = 0u32;
    loop {
        thread::sleep(TICK);
        count = count.wrapping_add(1);
        let sessions: Vec<Arc<Session>> = {
            let mut rounds = rounds.lock();
            let lives = |s: &Weak<Session>| s.upgrade().is_some_and(|s| !s.over());
            rounds.sessions.retain(lives);
            if rounds.sessions.is_empty() {
                rounds.walks = false;
                return;
            }
            rounds.sessions.iter().filter_map(Weak::upgrade).collect()
        };
        for session in &sessions {
            visit(session, count.is_multiple_of(ATIME_TICKS));
        }
    }
}

fn visit(session: &Session, writes_atimes: bool) {
    let mut volumes: Vec<Arc<Volume>> = session.children.lock().values().cloned().collect();
    volumes.push(session.root());
    for volume in volumes {
        session.tell_block_counts(&volume, None);
        let Ok(fs) = volume.enter() else { continue };
        if fs.is_read_only() {
            continue;
        }
        // What fails waits for the next time.
        let _ = fs.reap();
        if writes_atimes {
            let _ = fs.write_atimes();
        }
    }
}
