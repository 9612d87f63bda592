//! For debuggers, the command line and tests: the layers below the public interface, unchanged.
//!
//! Nothing here is stable. Everything that a program needs should be a method of [`Pool`],
//! [`Dataset`] or [`crate::fs::Files`]. If one is missing there, please report it.

pub mod traverse;

// Methods of the types below give and take many more types of these crates.
pub use {
    zuse_base as base, zuse_codec as codec, zuse_device as device, zuse_dmu as dmu,
    zuse_dsl as dsl, zuse_format as format, zuse_io as io, zuse_pool as pool, zuse_vdev as vdev,
    zuse_zpl as zpl,
};

use std::collections::HashSet;
use std::sync::Arc;

pub use zuse_dmu::sa::{Attr, FLAG_PROJID, SA_BONUS, SaTable, SaView, ZNODE_BONUS, dxattr};
pub use zuse_dmu::zap::{LeafHistograms, Zap, ZapEntry, ZapStats, ZapValue};
pub use zuse_dmu::{Dnode, Objset};
pub use zuse_dsl::Dsl;
pub use zuse_dsl::{LogItem, SendSource};
pub use zuse_pool::{Pool as Spa, dedup};
pub use zuse_vdev::config::LabelConfig;
pub use zuse_vdev::ring::{RingEntry, read_ring};
pub use zuse_vdev::{Labels, VdevErrors};

pub use zuse_zpl::{
    Attr as FileAttr, Attributes, DirEntry, FileSystem, Hashing, LookedUp, ManifestEntry,
    RenameFlags, SetAttr, StatFs, TimeSet, Wanted, Whence, WriteOptions, XattrMode, Znode,
};

use crate::{Dataset, Pool, Result};

/// The layers below a pool. Only with this trait in scope has a pool these methods:
///
/// ```compile_fail
/// fn below(pool: &zuse::Pool) {
///     let _ = pool.file_system("tank");
/// }
/// ```
/// ```
/// use zuse::tools::Layers as _;
///
/// fn below(pool: &zuse::Pool) {
///     let _ = pool.file_system("tank");
/// }
/// ```
pub trait Layers {
    /// The pool below: vdevs, txgs, allocator (SPA).
    fn spa(&self) -> &Arc<Spa>;

    /// The dataset layer.
    fn dsl(&self) -> &Arc<Dsl>;

    /// The file system of a dataset or snapshot, by its full name: the open one, or a newly opened
    /// one. A snapshot, and everything in a pool opened for reading, is read-only.
    ///
    /// While it exists, its dataset is neither rolled back nor destroyed. Programs use
    /// [`Pool::files`].
    ///
    /// # Errors
    /// `Refused(NOENT)`; or it cannot be read.
    fn file_system(&self, name: &str) -> Result<Arc<FileSystem>>;

    /// Says which unlinked objects are in use in a dataset that will be opened: another process has
    /// handed them over. Its file system frees no unlinked objects until
    /// [`FileSystem::free_unlinked_again`].
    ///
    /// # Errors
    /// `Refused(NOENT)`; or it cannot be read.
    fn keep_unlinked(&self, dataset: &str, objects: HashSet<u64>) -> Result<()>;
}

impl Layers for Pool {
    fn spa(&self) -> &Arc<Spa> {
        Self::spa(self)
    }

    fn dsl(&self) -> &Arc<Dsl> {
        Self::dsl(self)
    }

    fn file_system(&self, name: &str) -> Result<Arc<FileSystem>> {
        Self::file_system(self, name)
    }

    fn keep_unlinked(&self, dataset: &str, objects: HashSet<u64>) -> Result<()> {
        Self::keep_unlinked(self, dataset, objects)
    }
}

/// The layer below a dataset.
pub trait Layer {
    /// Its handle in the dataset layer.
    fn handle(&self) -> &Arc<zuse_dsl::Dataset>;
}

impl Layer for Dataset {
    fn handle(&self) -> &Arc<zuse_dsl::Dataset> {
        Self::handle(self)
    }
}
