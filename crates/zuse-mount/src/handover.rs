//! Handing mounts over to another process, of another version of the program, without unmounting.
//!
//! ```text
//!   the old process                                     the new one
//!   rest: requests are answered, none is taken any more
//!   let_go: all is written, no file system is open
//!   (the pool is closed)            ── socket ──►       (the pool is opened)
//!   give: descriptors, what the kernel knows            take: tables, file systems
//!                                   ◄── it is whole ──
//!   leave: the mounts are no longer its own
//!                                   ── go on ──►        begin: the crew takes messages
//! ```
//! *Why a socket, and not descriptors kept over exec*: after exec the old program is gone. If the
//! new one fails, nothing could go on. With a socket the old process keeps all descriptors and
//! tables until the new one says that it has everything. If it fails, another one can be started in
//! its place.
//!
//! What is handed over is what the kernel will ask about and no pool knows:
//! - a descriptor for each mount, and how it was mounted;
//! - the slots of inode numbers;
//! - the inodes that the kernel knows;
//! - objects without a name that are open.
//!
//! Open files, positions in directories and locks are the kernel's; a handle contains all that it
//! needs ([`crate::data`]).
//!
//! Invariants
//! - The mounts belong to one process at a time: [`PoolMounts::leave`] in the old one comes before
//!   [`PoolMounts::begin`] in the new one. A process that gives up before its turn leaves the
//!   mounts alone.
//! - An inode keeps number, generation and the count of its references.
//! - Records are streamed: neither side holds them besides its table of inodes.
//! - Nothing here accesses a file system through its mount: nobody would answer.

mod give;
mod link;
mod take;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use zuse_base::ObjectId;

use crate::pool::PoolMounts;

pub use give::LetGo;
pub use link::Link;

/// How long the kernel may take to hear of what has changed.
const NOTICES: Duration = Duration::from_secs(10);
/// How long requests may take that are being answered, and how long one attempt waits for them. One
/// of them may wait for another that nobody takes meanwhile.
const REQUESTS: Duration = Duration::from_secs(20);
const ATTEMPT: Duration = Duration::from_millis(500);
/// How long all is served between two attempts.
const BETWEEN: Duration = Duration::from_millis(50);

/// An object without a name that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Nameless {
    generation: u64,
    may_get_name: bool,
}

/// Objects without a name, by the name of their dataset.
type AllNameless = HashMap<String, HashMap<ObjectId, Nameless>>;

/// What an inode is, on its way.
mod kind {
    pub const OBJECT: u64 = 1;
    pub const DOT_ZFS: u64 = 2;
    pub const SNAPSHOTS: u64 = 3;
    pub const VIRTUAL: u64 = 4;
    pub const GONE: u64 = 5;
}

/// What a file system of a session is, on its way.
mod place {
    pub const ROOT: u64 = 1;
    pub const CHILD: u64 = 2;
    pub const SNAPSHOT: u64 = 3;
    pub const CLOSED: u64 = 4;
}

impl PoolMounts {
    /// Answers what the kernel has asked, and takes nothing more until [`Self::go_on`]. False says
    /// that something takes too long: then all goes on as before.
    pub fn rest(&self) -> bool {
        let until = Instant::now() + NOTICES;
        for server in self.servers() {
            let left = until.saturating_duration_since(Instant::now());
            if !server.settle_cache_for(left) {
                return false;
            }
        }
        let Some(staff) = self.hired() else {
            return true;
        };
        let until = Instant::now() + REQUESTS;
        while !staff.crew.rest(ATTEMPT) {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(BETWEEN);
        }
        true
    }

    /// Takes messages again.
    pub fn go_on(&self) {
        if let Some(staff) = self.hired() {
            staff.crew.work_again();
        }
    }

    /// The mounts are another process's from now on.
    pub fn leave(&self) {
        self.servers()
            .iter()
            .for_each(|server| server.mounted().leave());
    }

    /// They are this process's still: nobody has taken them.
    pub fn keep(&self) {
        self.servers()
            .iter()
            .for_each(|server| server.mounted().claim());
    }

    /// The mounts are this process's from now on, and are served.
    pub fn begin(&self) {
        self.servers().iter().for_each(|server| server.claim());
        self.go_on();
    }
}
