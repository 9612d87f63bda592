//! Hot spares and cache devices: lists in the MOS, and a short label on each device (chapter 01
//! §6.3 of the format notes).
//!
//! Zuse maintains the list of cache devices and their labels for other systems. It stores no data
//! on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse_base::{Errno, Error, Refusal, Result, Txg};
use zuse_format::nvlist::NvList;
use zuse_vdev::config::AuxLabel;
use zuse_vdev::{Form, VdevConfig, VdevKind};

use crate::first_labels::FirstLabels;
use crate::layout::measure;
use crate::{Pool, SyncCtx, VdevSpec};

impl Pool {
    /// Labels spares or cache devices. Returns their entries in the list.
    pub(crate) fn label_aux(
        &self,
        devices: &[VdevSpec],
        is_cache: bool,
        txg: Txg,
        labels: &mut FirstLabels,
    ) -> Result<Vec<NvList>> {
        let mut one = |spec: &VdevSpec| {
            let (ashift, _) = measure(spec)?;
            let guid = self.free_guid();
            let kind = match spec.is_disk {
                true => VdevKind::Disk,
                false => VdevKind::File,
            };
            let path = spec.device.path().to_owned();
            let list = AuxLabel {
                version: self.version(),
                is_cache,
                guid,
                ashift: is_cache.then_some(u64::from(ashift)),
                path: Some(path.clone()),
                other: Vec::new(),
            };
            labels.put(&spec.device, &list.to_nvlist())?;
            let mut entry = VdevConfig::new(kind, 0, guid);
            // Entries of the lists have no `id` (01-pool §6.3).
            entry.id = None;
            entry.path = Some(path);
            entry.whole_disk = spec.is_disk.then_some(0);
            entry.create_txg = Some(txg.0);
            let mut entry = entry.to_nvlist(Form::Mos);
            if is_cache {
                entry.insert("ashift", u64::from(ashift));
            }
            Ok(entry)
        };
        devices.iter().map(&mut one).collect()
    }

    /// Removes a device from a list (`spares` or `l2cache`). On disk on return.
    ///
    /// # Errors
    /// `Refused(NODEV)` if it is not listed, `Refused(BUSY)` for a spare in use; `Refused(ROFS)`.
    pub fn remove_aux(self: &Arc<Self>, list: &'static str, guid: u64) -> Result<()> {
        let check = move |ctx: &SyncCtx<'_>| {
            if ctx.pool.config.lock().vdev_tree.find(guid).is_some() {
                let what = "Pool busy; removal may already be in progress";
                return Err(Error::refused_for(Refusal::Known, Errno::BUSY, what));
            }
            let listed = ctx.pool.aux_lists(list)?;
            match listed.iter().any(|e| e.get_u64("guid") == Some(guid)) {
                true => Ok(()),
                false => Err(Error::refused(Errno::NODEV, "no such device in pool")),
            }
        };
        self.sync_task(check, move |ctx| {
            ctx.pool.drop_aux(ctx, list, guid).map(drop)
        })
    }

    /// Notes where spares and cache devices were found at import: the paths on disk are those of
    /// the last one. On disk on return.
    ///
    /// # Errors
    /// The lists cannot be read; `Refused(ROFS)`.
    pub fn move_aux<'a>(self: &Arc<Self>, place_of: &dyn Fn(u64) -> Option<&'a str>) -> Result<()> {
        for list in ["spares", "l2cache"] {
            let mut moved = BTreeMap::new();
            for entry in self.aux_lists(list)? {
                let guid = entry.get_u64("guid").unwrap_or_default();
                if let (Some(before), Some(now)) = (entry.get_str("path"), place_of(guid))
                    && before != now
                {
                    moved.insert(guid, now.to_owned());
                }
            }
            if moved.is_empty() {
                continue;
            }
            self.sync_task(
                |_| Ok(()),
                move |ctx| {
                    let mut all = ctx.pool.aux_lists(list)?;
                    for entry in &mut all {
                        let guid = entry.get_u64("guid").unwrap_or_default();
                        if let Some(path) = moved.get(&guid) {
                            entry.insert("path", path.as_str());
                        }
                    }
                    ctx.pool.write_aux_devices(ctx, list, all)
                },
            )?;
        }
        Ok(())
    }

    /// Adds entries to a list (`spares` or `l2cache`).
    pub(crate) fn extend_aux(
        &self,
        ctx: &SyncCtx<'_>,
        list: &'static str,
        entries: Vec<NvList>,
    ) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut all = self.aux_lists(list)?;
        all.extend(entries);
        self.write_aux_devices(ctx, list, all)
    }

    /// Removes a device from a list. Returns whether it was there.
    pub(crate) fn drop_aux(
        &self,
        ctx: &SyncCtx<'_>,
        list: &'static str,
        guid: u64,
    ) -> Result<bool> {
        let mut all = self.aux_lists(list)?;
        let before = all.len();
        all.retain(|entry| entry.get_u64("guid") != Some(guid));
        if all.len() == before {
            return Ok(false);
        }
        self.write_aux_devices(ctx, list, all)?;
        Ok(true)
    }
}
