//! The POSIX layer: files, directories, attributes and extended attributes of a dataset.
//!
//! [`FileSystem`] is one mounted dataset or snapshot over a [`Backing`]; [`Znode`] is one of its
//! objects. Every operation that `mount` needs is a method of the former, independent of the
//! interface of the client.
#![forbid(unsafe_code)]

mod access;
mod acl;
mod ahead;
mod attributes;
mod backing;
mod create;
mod credentials;
mod deferred;
mod diff;
mod directory;
mod dirent;
mod estimate;
mod file;
mod file_system;
pub mod flags;
mod format_new;
mod listing;
mod log;
mod manifest;
pub mod mode;
mod name;
mod nfs4_acl;
mod posix_acl;
mod quota;
mod range_lock;
mod remove;
mod rename;
mod replay;
mod setattr;
mod statfs;
mod unlinked_handover;
mod walk;
mod xattr;
mod znode;

pub use attributes::Attributes;
pub use backing::{AclMode, Backing, MountProps, PoolFeatures, SnapDir, SpaceFacts, XattrPlace};
pub use create::{LoggedObject, NewObject};
pub use credentials::{Credentials, MAY_EXEC, MAY_READ, MAY_WRITE};
pub use diff::{Change, ChangeKind, diff, paths_of};
pub use directory::{DOT_ZFS, DOT_ZFS_NAME, DirEntry, LookedUp, Wanted};
pub use file::{SIZE_MAX, Whence, WriteOptions};
pub use file_system::{
    Attr, CaseSensitivity, FileSystem, MASTER_NODE, UnlinkObserver, ZPL_VERSION, device_number,
    device_of,
};
pub use format_new::{FormatOptions, format, upgrade};
pub use manifest::{
    DEFAULT_HASH_LIMIT, Hashing, ManifestEntry, Sha256Sum, Unreadable, each_line, manifest,
};
pub use name::{LONG_NAME_MAX, NAME_MAX};
pub use posix_acl::PosixAcl;
pub use quota::{QuotaKind, QuotaOwner};
pub use rename::RenameFlags;
pub use setattr::{SETTABLE_FLAGS, SetAttr, TimeSet};
pub use statfs::StatFs;
pub use walk::{DEEPEST, Walk, WalkEntry};
pub use xattr::{VALUE_MAX, XattrMode};
pub use znode::Znode;
