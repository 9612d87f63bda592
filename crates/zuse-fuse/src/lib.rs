//! The FUSE server: sessions, kernel-cache policy, mount and unmount.
//!
//! ```text
//!   kernel ── /dev/fuse ── wire (private) ── trait Ops ── the file server
//!                │
//!                ├─ mount_point   mount(2) as root, else fusermount3; mountinfo; unmount
//!                └─ notifier      invalidations, one thread of its own
//! ```
//!
//! This crate knows nothing of ZFS and holds no inode table. Inode numbers are chosen by the
//! [`Ops`] side, which makes them unique over everything that one session serves. Child datasets
//! below a mount are plain directories of the same session, so `st_dev` is the same for all of
//! them.
//!
//! Kernel-cache policy. The daemon is the only writer, so the kernel may keep names (also absent
//! ones) and attributes without time limit and pages across opens. Changes that bypass the kernel
//! (rollback, receive, a command to the daemon) are reported to it through the [`Notifier`].
//!
//! The kernel caches no listings. Otherwise a listing that began before a name was created would be
//! given to clients that start afterwards. A program that creates a file and then lists the
//! directory would not see it.
//!
//! Rules that this crate is built around:
//! - Nothing of the kernel's ABI is visible outside `wire`.
//! - The daemon never accesses its own mount: facts about it come from `/proc/self/mountinfo` and
//!   `/sys`. A thread that serves requests and waits for one itself is a deadlock, which even `kill
//!   -9` does not end.
//! - Invalidations are sent by a thread that holds no lock and serves no request. The kernel may
//!   make it wait for a page that is being read, and that read may wait for the invalidating
//!   caller's locks.
//! - File locks (`flock`, `fcntl`) are kept by the kernel: with one host and one session the server
//!   is not needed.
//! - `O_DIRECT` needs nothing from the server: the kernel sends such reads and writes straight here
//!   and keeps the page cache (and shared mappings) coherent. `FOPEN_DIRECT_IO` is never used,
//!   because it prevents mmap. Besides, the kernel drops cached pages only after the size of a file
//!   has grown. A reader could then see zeros at the old end of a file that is being written.
#![forbid(unsafe_code)]

mod attr;
mod caller;
mod copies;
mod mount_point;
mod notifier;
mod ops;
mod options;
mod session;
mod wire;

pub use attr::{Attr, SetAttr, StatFs, Time, TimeSet};
pub use caller::Caller;
pub use mount_point::MountError;
pub use notifier::{Notifier, QueueFull};
pub use ops::{
    Attributes, CopyRange, DirSink, OPEN_EXEC, Opened, Ops, ReadReply, RenameFlags, Replied,
    ValueReply, Whence, WriteFlags, XattrMode,
};
pub use options::{FOREVER, MountOptions};
pub use session::{Handed, Mounted, go_on, mount};
pub use wire::ThreadPool;
pub use zuse_base::Errno;
