//! Error thresholds: properties `checksum_n`, `checksum_t`, `io_n`, `io_t` of a device. If it has
//! none, those of its top-level vdev apply, otherwise 10 in 600 seconds.

use zuse_base::{ObjectId, Result};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_vdev::{Threshold, Thresholds, VdevConfig};

use crate::Pool;

/// The four numbers of a vdev, if set.
type Stored = [Option<u64>; 4];

const NAMES: [&[u8]; 4] = [b"checksum_n", b"checksum_t", b"io_n", b"io_t"];

impl Pool {
    /// Sets the thresholds of all devices.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn load_thresholds(&self) -> Result<()> {
        let tree = self.config.lock().vdev_tree.clone();
        for top in &tree.children {
            let above = self.stored_thresholds(top.zap_top)?;
            self.set_leaf_thresholds(top, &above)?;
        }
        Ok(())
    }

    fn set_leaf_thresholds(&self, node: &VdevConfig, above: &Stored) -> Result<()> {
        if let Some(leaf) = self.vdevs.leaf(node.guid) {
            let own = self.stored_thresholds(node.zap_leaf)?;
            let number = |i: usize| own[i].or(above[i]);
            let default = Threshold::default();
            let threshold = |n: usize| Threshold {
                errors: number(n).unwrap_or(default.errors),
                seconds: number(n + 1).unwrap_or(default.seconds),
            };
            leaf.set_thresholds(Thresholds {
                checksum: threshold(0),
                io: threshold(2),
            });
        }
        node.children
            .iter()
            .try_for_each(|child| self.set_leaf_thresholds(child, above))
    }

    fn stored_thresholds(&self, zap: Option<u64>) -> Result<Stored> {
        let Some(zap) = zap.filter(|zap| *zap != 0) else {
            return Ok(Stored::default());
        };
        let zap = Zap::open(&self.mos().dnode(ObjectId(zap))?)?;
        let mut out = Stored::default();
        for (place, name) in out.iter_mut().zip(NAMES) {
            if let Some(ZapValue::U64(n)) = zap.lookup(name)? {
                // All ones: the threshold was set and then removed.
                *place = Some(n).filter(|n| *n != u64::MAX);
            }
        }
        Ok(out)
    }
}
