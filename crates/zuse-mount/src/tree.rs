//! The session's view of the pool: which file systems belong below the mount, and which snapshots
//! exist.

use std::sync::Arc;

use zuse_base::{Errno, Error, Result};
use zuse_zpl::FileSystem;

/// A file system that is mounted below the session's root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Child {
    /// Its place: names from the session's root on; not empty.
    pub path: Vec<Vec<u8>>,
    /// Name of the dataset.
    pub dataset: String,
    /// Its key is not loaded: its place is shown, and nothing can be written there.
    pub sealed: bool,
}

/// A snapshot of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The part behind the `@`.
    pub name: Vec<u8>,
    /// Its dataset object in the MOS.
    pub object: u64,
}

/// The datasets behind a session.
///
/// An open file system is returned as the same [`Arc`]. There is one set of objects in memory per
/// dataset, for all users. After a rollback or receive it is another one.
pub trait Tree: Send + Sync + 'static {
    /// The file system of a dataset.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    fn open(&self, dataset: &str) -> Result<Arc<FileSystem>>;

    /// File systems whose mount point is below that of `root` and which should be mounted, in any
    /// order.
    ///
    /// # Errors
    /// The pool cannot be read.
    fn children(&self, root: &str) -> Result<Vec<Child>>;

    /// Snapshots of a dataset.
    ///
    /// # Errors
    /// The pool cannot be read.
    fn snapshots(&self, dataset: &str) -> Result<Vec<SnapshotEntry>>;

    /// The file system of a snapshot, read-only.
    ///
    /// # Errors
    /// `Refused(NOENT)` if there is none.
    fn open_snapshot(&self, dataset: &str, name: &[u8]) -> Result<Arc<FileSystem>>;

    /// Makes a snapshot.
    ///
    /// # Errors
    /// It cannot be created.
    fn make_snapshot(&self, _dataset: &str, _name: &[u8]) -> Result<()> {
        Err(Error::refused(Errno::PERM, "a snapshot"))
    }

    /// Destroys a snapshot.
    ///
    /// # Errors
    /// It is held, has clones, or does not exist.
    fn destroy_snapshot(&self, _dataset: &str, _name: &[u8]) -> Result<()> {
        Err(Error::refused(Errno::PERM, "a snapshot"))
    }

    /// Gives a snapshot another name.
    ///
    /// # Errors
    /// The new name exists, or the old one does not.
    fn rename_snapshot(&self, _dataset: &str, _from: &[u8], _to: &[u8]) -> Result<()> {
        Err(Error::refused(Errno::PERM, "a snapshot"))
    }

    /// A request panicked: its changes may be incomplete.
    fn panicked(&self) {}
}
