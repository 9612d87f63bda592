//! The interface of a mounted file system to the dataset below it.
//!
//! The dataset layer implements [`Backing`]; tests implement it over a disk in memory. Nothing here
//! knows pools.

use std::collections::HashSet;
use std::sync::Arc;

use zuse_base::{Clock, Result, Txg};
use zuse_dmu::{Objset, Tx};

/// Where extended attributes go (`xattr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum XattrPlace {
    /// The `user.` name space is refused.
    Off,
    /// A hidden directory per object.
    Dir,
    /// In the object's own attributes; in the directory if they do not fit.
    #[default]
    Sa,
}

/// How `chmod` treats an ACL that is not trivial (`aclmode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AclMode {
    /// The ACL becomes the mode's.
    #[default]
    Discard,
    /// `chmod` of such an object is refused.
    Restricted,
}

/// `.zfs` in the root directory (`snapdir`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SnapDir {
    /// Reachable by name, not listed.
    #[default]
    Hidden,
    /// Listed.
    Visible,
    /// Not there.
    Disabled,
}

/// Effective properties of a mount; replaced as a whole when one changes.
#[derive(Clone, Debug)]
pub struct MountProps {
    /// Keep access times.
    pub atime: bool,
    /// Update an access time only if it is older than a change or a day.
    pub relatime: bool,
    /// Refuse changes.
    pub read_only: bool,
    /// Where extended attributes go.
    pub xattr: XattrPlace,
    /// New user attributes are stored without their prefix (tunable `zfs_xattr_compat`).
    pub xattr_bare: bool,
    /// Copying a range clones whole blocks that are on disk (tunable `zfs_bclone_enabled`).
    pub clone_blocks: bool,
    /// POSIX ACLs are kept (`acltype=posix`).
    pub posix_acl: bool,
    /// `chmod` and richer ACLs.
    pub acl_mode: AclMode,
    /// `.zfs`.
    pub snapdir: SnapDir,
    /// Largest block of a new file, in bytes; a power of two.
    pub record_size: u32,
    /// 512-byte slots of a new file's, directory's or symlink's dnode: 1 for `legacy`, 2 for
    /// `auto`.
    pub dnode_slots: u8,
    /// Names of 256 to 1023 bytes may be created.
    pub longname: bool,
    /// Honour set-user-id bits (for the mount; not used here).
    pub setuid: bool,
    /// Honour device nodes.
    pub devices: bool,
    /// Allow programs.
    pub exec: bool,
}

impl Default for MountProps {
    fn default() -> Self {
        Self {
            atime: true,
            relatime: true,
            read_only: false,
            xattr: XattrPlace::Sa,
            xattr_bare: false,
            clone_blocks: false,
            posix_acl: false,
            acl_mode: AclMode::Discard,
            snapdir: SnapDir::Hidden,
            record_size: 128 * 1024,
            dnode_slots: 1,
            longname: false,
            setuid: true,
            devices: true,
            exec: true,
        }
    }
}

/// Pool features that affect new file systems and objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolFeatures {
    /// The pool's version: 5000 for feature flags.
    pub pool_version: u64,
    /// `project_quota` is enabled: new files and directories carry a project id.
    pub project_quota: bool,
    /// `userobj_accounting` is enabled.
    pub userobj_accounting: bool,
    /// `large_dnode` is enabled.
    pub large_dnode: bool,
    /// `longname` is enabled.
    pub longname: bool,
    /// `large_blocks` is enabled.
    pub large_blocks: bool,
}

impl PoolFeatures {
    /// All features that this crate knows.
    pub fn all() -> Self {
        Self {
            pool_version: 5000,
            project_quota: true,
            userobj_accounting: true,
            large_dnode: true,
            longname: true,
            large_blocks: true,
        }
    }
}

/// Numbers behind `statfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceFacts {
    /// Bytes the dataset references.
    pub referenced: u64,
    /// Bytes that may still be written.
    pub available: u64,
    /// Objects in it.
    pub objects: u64,
}

/// The dataset (or snapshot) below a mount.
pub trait Backing: Send + Sync {
    /// Its object set.
    fn objset(&self) -> &Arc<Objset>;

    /// Begins a transaction that dirties at most about `bytes` bytes. `frees`: it frees space, so a
    /// full dataset must not refuse it. May wait; no leaf lock may be held.
    ///
    /// # Errors
    /// `Refused(NOSPC)`, `Refused(DQUOT)`, `Refused(ROFS)`, `Suspended`.
    fn begin(&self, bytes: u64, frees: bool) -> Result<Tx>;

    /// Waits until a txg is on disk, and asks for it to be written now.
    ///
    /// # Errors
    /// The pool is suspended or gone.
    fn wait_synced(&self, txg: Txg) -> Result<()>;

    /// The txg that a new transaction would join.
    fn open_txg(&self) -> Txg;

    /// The last txg that is on disk.
    fn synced_txg(&self) -> Txg;

    /// The effective properties.
    fn props(&self) -> Arc<MountProps>;

    /// Numbers for `statfs`.
    fn space(&self) -> SpaceFacts;

    /// The clock that stamps files.
    fn clock(&self) -> &dyn Clock;

    /// Features of the pool.
    fn features(&self) -> PoolFeatures;

    /// The first name of 256 bytes or more was created: the feature `longname` becomes active for
    /// this dataset.
    fn note_longname(&self, _tx: &Tx) {}

    /// Objects without a name that are in use, although no holder exists yet. The previous process
    /// of the mount has handed them over. They are not freed when the file system is opened.
    fn unlinked_in_use(&self) -> Option<Arc<HashSet<u64>>> {
        None
    }
}
