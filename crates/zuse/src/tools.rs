//! For debuggers, the command line and tests: the layers below the public interface, unchanged.
//!
//! Nothing here is stable. Everything that a program needs should be a method of [`Pool`],
//! [`Dataset`] or [`crate::fs::Files`]. If one is missing there, please report it.

pub mod traverse;

use std::sync::Arc;

pub use zuse_dmu::sa::{Attr, FLAG_PROJID, SA_BONUS, SaTable, SaView, ZNODE_BONUS, dxattr};
pub use zuse_dmu::zap::{LeafHistograms, Zap, ZapEntry, ZapStats, ZapValue};
pub use zuse_dmu::{Dnode, Objset};
pub use zuse_dsl::Dsl;
pub use zuse_dsl::SendSource;
pub use zuse_pool::{Pool as Spa, dedup};
pub use zuse_vdev::config::{AuxLabel, LabelConfig};
pub use zuse_vdev::ring::{RingEntry, read_ring};
pub use zuse_vdev::{Labels, VdevErrors};

use crate::{Dataset, Pool};

/// The layers below a pool.
pub trait Layers {
    /// The pool below: vdevs, txgs, allocator (SPA).
    fn spa(&self) -> &Arc<Spa>;

    /// The dataset layer.
    fn dsl(&self) -> &Arc<Dsl>;
}

impl Layers for Pool {
    fn spa(&self) -> &Arc<Spa> {
        Self::spa(self)
    }

    fn dsl(&self) -> &Arc<Dsl> {
        Self::dsl(self)
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
