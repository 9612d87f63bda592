//! A pool's datasets behind a FUSE mount.
//!
//! ```text
//!   kernel ─ zuse-fuse ─ Session: Ops ─┬─ Table    inode number → Node (object in memory, references)
//!                                   ├─ Volume   a file system of the session, with a gate
//!                                   ├─ Covers   which names are mount points of others
//!                                   └─ Tree     the pool: datasets and snapshots (of another crate)
//! ```
//! One session serves a whole tree of file systems: the mounted one, its children below its mount
//! point, and their snapshots under `.zfs/snapshot`. They share `st_dev`. Renames and links between
//! them are refused nevertheless (`EXDEV`).
//!
//! Why it is fast: the kernel caches names, absent names and attributes without time limit.
//! Listings return attributes too, and a node holds its object in memory. Changes that the kernel
//! did not request are reported to it by [`MountServer`]'s methods, from a thread that holds no
//! lock.
//!
//! With the write-back cache the kernel owns size and times of the regular files it knows. Writes
//! from its cache leave the stored times alone, because the kernel sends its own.
#![forbid(unsafe_code)]

mod attributes;
mod control;
mod covers;
mod data;
mod handover;
mod ioctl;
mod listing;
mod mount_threads;
mod names;
mod number;
mod ops;
mod place;
mod pool;
mod server;
mod session;
mod table;
mod tree;
mod volume;
mod wakeup;

pub use handover::{Link, ReleasedMounts};
pub use mount_threads::MountThreads;
pub use place::{Place, place_of, places};
pub use pool::{PoolMounts, Present};
pub use server::{Change, MountServer, ServeError, ServerOptions};
pub use tree::{Child, SnapshotEntry, Tree};
pub use wakeup::Wakeup;
pub use zuse_fuse::{MountError, MountOptions};
