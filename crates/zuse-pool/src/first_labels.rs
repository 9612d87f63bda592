//! Devices that get their first labels. The labels are wiped again if the command fails.
//!
//! Such a label already says that the device belongs to a pool. If a refused command left it there,
//! the next command could not use the device.
//!
//! - The old content is lost with the first label, so the labels are wiped, not restored. A spare
//!   becomes an idle spare again.
//! - From the txg that publishes the devices on they are the pool's: [`FirstLabels::keep`].
//! - After a crash the labels stay. The next open of the pool finds that the devices were never
//!   added.

use std::sync::Arc;

use zuse_base::Result;
use zuse_device::BlockDevice;
use zuse_format::nvlist::NvList;
use zuse_vdev::label;

/// Devices that were not kept yet, spares with the label of an idle one.
#[derive(Default)]
pub(crate) struct FirstLabels(Vec<(Arc<dyn BlockDevice>, Option<NvList>)>);

impl FirstLabels {
    /// Gives a device its labels.
    pub fn put(&mut self, device: &Arc<dyn BlockDevice>, list: &NvList) -> Result<()> {
        self.put_over(device, list, None)
    }

    /// As [`Self::put`]; `idle` is the label that an idle spare gets back if the command fails.
    pub fn put_over(
        &mut self,
        device: &Arc<dyn BlockDevice>,
        list: &NvList,
        idle: Option<NvList>,
    ) -> Result<()> {
        // First: a part of the labels may be there when the next one fails.
        self.0.push((device.clone(), idle));
        label::init(&**device, list)
    }

    /// The devices are the pool's.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for FirstLabels {
    fn drop(&mut self) {
        for (device, idle) in &self.0 {
            // The command's own error is reported, not this one.
            let _ = match idle {
                Some(list) => label::init(&**device, list),
                None => label::clear(&**device),
            };
        }
    }
}
