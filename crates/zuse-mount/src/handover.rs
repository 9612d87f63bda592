//! Handing mounts over to another process, of another version of the program, without unmounting.
//!
//! ```text
//!   the old process                                     the new one
//!   pause: requests are answered, none is taken any more
//!   release: all is written, no file system is open
//!   (the pool is closed)            ── socket ──►       (the pool is opened)
//!   give: descriptors, what the kernel knows            take: tables, file systems
//!                                   ◄── it is whole ──
//!   leave: the mounts are no longer its own
//!                                   ── go on ──►        begin: messages are taken
//! ```
//! *Why a socket, and not descriptors kept over exec*: after exec the old program is gone. If the
//! new one fails, nothing could continue. With a socket the old process keeps all descriptors and
//! tables until the new one has confirmed everything. If it fails, another one can be started in
//! its place.
//!
//! The data that is handed over is what the kernel refers to and the pool does not store:
//! - a descriptor for each mount, and how it was mounted;
//! - the slots of inode numbers;
//! - the inodes that the kernel knows;
//! - unlinked objects that are open.
//!
//! Open files, directory positions and locks are the kernel's; a handle contains everything needed
//! ([`crate::data`]).
//!
//! Invariants
//! - The mounts belong to one process at a time: [`PoolMounts::leave`] in the old one comes before
//!   [`PoolMounts::begin`] in the new one. A process that fails before its turn does not touch the
//!   mounts.
//! - An inode keeps number, generation and the count of its references.
//! - Records are streamed: neither side buffers them besides its table of inodes.
//! - Nothing here accesses a file system through its mount, because no thread would answer at that
//!   time.

mod give;
mod link;
mod take;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use zuse_base::ObjectId;

use crate::pool::PoolMounts;

pub use give::ReleasedMounts;
pub use link::Link;

/// How long notices to the kernel may take.
const NOTICES: Duration = Duration::from_secs(10);
/// How long requests in progress may take, and how long one attempt waits for them. A request may
/// wait for another that no thread reads meanwhile.
const REQUESTS: Duration = Duration::from_secs(20);
const ATTEMPT: Duration = Duration::from_millis(500);
/// How long all is served between two attempts.
const BETWEEN: Duration = Duration::from_millis(50);

/// An unlinked object that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnlinkedObject {
    generation: u64,
    linkable: bool,
}

/// Unlinked objects, by the name of their dataset.
type UnlinkedByDataset = HashMap<String, HashMap<ObjectId, UnlinkedObject>>;

/// The type of an inode in the stream.
mod kind {
    pub const OBJECT: u64 = 1;
    pub const DOT_ZFS: u64 = 2;
    pub const SNAPSHOTS: u64 = 3;
    pub const VIRTUAL: u64 = 4;
    pub const GONE: u64 = 5;
}

/// The type of a session's file system in the stream.
mod place {
    pub const ROOT: u64 = 1;
    pub const CHILD: u64 = 2;
    pub const SNAPSHOT: u64 = 3;
    pub const CLOSED: u64 = 4;
}

impl PoolMounts {
    /// Answers the requests that were read, and reads no more until [`Self::resume`]. False if that
    /// takes too long: then serving continues as before.
    pub fn pause(&self) -> bool {
        let until = Instant::now() + NOTICES;
        // First, while requests are still served: the kernel may need answers to take a notice.
        for server in self.servers() {
            let left = until.saturating_duration_since(Instant::now());
            if !server.wait_for_notices_for(left) {
                return false;
            }
        }
        let Some(mount_threads) = self.started_threads() else {
            return true;
        };
        let until = Instant::now() + REQUESTS;
        // In short attempts: a request may wait for another one that only a serving pool reads.
        while !mount_threads.workers.pause(ATTEMPT) {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(BETWEEN);
        }
        true
    }

    /// Takes messages again.
    pub fn resume(&self) {
        if let Some(mount_threads) = self.started_threads() {
            mount_threads.workers.resume();
        }
    }

    /// The mounts belong to another process from now on.
    pub fn leave(&self) {
        self.servers()
            .iter()
            .for_each(|server| server.mounted().leave());
    }

    /// The mounts stay with this process, because no other has taken them.
    pub fn keep(&self) {
        self.servers()
            .iter()
            .for_each(|server| server.mounted().claim());
    }

    /// The mounts belong to this process from now on, and are served.
    pub fn begin(&self) {
        self.servers().iter().for_each(|server| server.claim());
        self.resume();
    }
}
