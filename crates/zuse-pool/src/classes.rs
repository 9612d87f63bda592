//! Allocation classes: which top-level vdevs are for metadata, dedup tables or the intent log.
//!
//! The configuration marks log vdevs only. The class of other vdevs is in the ZAP of the top-level
//! vdev (`allocation_bias`).

use zuse_base::{ObjectId, Result};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_io::AllocClass;
use zuse_vdev::VdevClass;

use crate::Pool;

/// Key in the ZAP of a top-level vdev.
pub(crate) const BIAS: &[u8] = b"org.zfsonlinux:allocation_bias";

impl Pool {
    /// Sets the class of each vdev in the vdev tree.
    pub(crate) fn load_classes(&self) -> Result<()> {
        let tree = self.config.lock().vdev_tree.clone();
        for (id, top) in tree.children.iter().enumerate() {
            let Some(zap) = top.zap_top.filter(|zap| *zap != 0) else {
                continue;
            };
            let bias = Zap::open(&self.mos().dnode(ObjectId(zap))?)?.lookup(BIAS)?;
            // A word that is not known leaves the vdev in the normal class. Its blocks are read
            // like any others.
            if let Some(ZapValue::Bytes(bytes)) = bias
                && let Some(word) = bytes.split(|b| *b == 0).next()
                && let Some(class) = VdevClass::by_word(&String::from_utf8_lossy(word))
            {
                self.vdevs.set_class(id as u32, class)?;
            }
        }
        Ok(())
    }
}

/// The allocator's name for a class.
pub(crate) fn alloc_class(class: VdevClass) -> AllocClass {
    match class {
        VdevClass::Normal => AllocClass::Normal,
        VdevClass::Log => AllocClass::Log,
        VdevClass::Special => AllocClass::Special,
        VdevClass::Dedup => AllocClass::Dedup,
    }
}
