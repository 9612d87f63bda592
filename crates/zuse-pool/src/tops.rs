//! Adding top-level vdevs to an open pool (chapter 01 §4.4 of the format notes).
//!
//! ```text
//!  txg T     labels on the devices (txg 0); ZAPs; the configuration has the vdev, no metaslabs
//!  txg T + 1 the allocator has the vdev: metaslab array, allocations
//! ```
//!
//! Invariants
//! - Nothing is allocated on a vdev before a configuration with it is on disk. The allocator gets
//!   it at the beginning of the next txg.
//! - After a power cut before the uberblock of T the devices do not belong to the pool. Their
//!   labels have txg 0, or name a vdev that is not in the MOS configuration. After that uberblock
//!   the vdev has no metaslabs yet, and the next open creates them.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result, Txg};
use zuse_base::{Event, cut::fit32};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_vdev::{VdevClass, VdevConfig, VdevKind};

use crate::classes::BIAS;
use crate::first_labels::FirstLabels;
use crate::layout::{self, TopSpec};
use crate::{MissingBlocks, Pool, SyncCtx, TreeChange, VdevSpec};

const CLASSES: &str = "org.zfsonlinux:allocation_classes";
const DRAID: &str = "org.openzfs:draid";

/// Devices to add to a pool.
#[derive(Default)]
pub struct NewVdevs {
    /// Those of top-level vdevs.
    pub devices: Vec<VdevSpec>,
    /// Their vdevs, in order; empty: one vdev per device.
    pub layout: Vec<TopSpec>,
    /// Hot spares.
    pub spares: Vec<VdevSpec>,
    /// Cache devices.
    pub cache: Vec<VdevSpec>,
}

impl Pool {
    /// Adds devices: top-level vdevs, spares, cache devices. They are overwritten: the caller has
    /// checked that they hold nothing. Returns when the vdevs are in use.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` without a feature that the vdev needs, `Refused(BUSY)` while a vdev is
    /// being removed, `Refused(OVERFLOW)` for devices that are too small, `Device`,
    /// `Refused(ROFS)`.
    pub fn add_vdevs(self: &Arc<Self>, new: NewVdevs) -> Result<()> {
        let check = {
            let layout = new.layout.clone();
            move |ctx: &SyncCtx<'_>| ctx.pool.check_add(&layout)
        };
        self.sync_task(check, move |ctx| ctx.pool.add_now(ctx, &new))?;
        // The allocator gets them in the next txg, so this waits for that one too.
        self.sync_now()
    }

    /// Looks whether devices can be added, and writes nothing.
    ///
    /// # Errors
    /// As [`Self::add_vdevs`].
    pub fn check_new(&self, new: &NewVdevs) -> Result<()> {
        self.check_add(&new.layout)?;
        for (spec, members) in layout::groups(&new.devices, &new.layout)? {
            spec.config(0, members, &mut || 1)?;
        }
        let mut aux = new.spares.iter().chain(&new.cache);
        aux.try_for_each(|spec| layout::measure(spec).map(drop))
    }

    fn check_add(&self, layout: &[TopSpec]) -> Result<()> {
        if self.vdevs.tops().iter().any(|top| top.is_removing()) {
            return Err(Error::refused(Errno::BUSY, "device removal in progress"));
        }
        let has_zaps = self.config.lock().has_per_vdev_zaps;
        let wants_classes = |c: &VdevClass| matches!(c, VdevClass::Special | VdevClass::Dedup);
        for (guid, wanted) in [
            (CLASSES, layout.iter().any(|t| wants_classes(&t.class))),
            (DRAID, layout.iter().any(TopSpec::is_draid)),
        ] {
            if wanted && !(self.features.is_enabled(guid) && has_zaps) {
                return Err(Error::refused(
                    Errno::NOTSUP,
                    format!("the feature {guid}, which the vdev needs, is not enabled"),
                ));
            }
        }
        Ok(())
    }

    fn add_now(self: &Arc<Self>, ctx: &SyncCtx<'_>, new: &NewVdevs) -> Result<()> {
        let mut change = TreeChange::begin(ctx);
        let first = change.tree().children.len();
        let mut tops = Vec::new();
        let mut labels = FirstLabels::default();
        let mut guid = || self.free_guid();
        for (spec, members) in layout::groups(&new.devices, &new.layout)? {
            // The next number: holes are not reused (01-pool §4.4).
            let id = (first + tops.len()) as u64;
            let mut top = spec.config(id, members, &mut guid)?;
            top.visit_mut(&mut |node| node.create_txg = Some(ctx.txg.0));
            for (leaf, member) in top.devices().into_iter().zip(members) {
                labels.put(&member.device, &self.first_label(&top, leaf, ctx.txg))?;
                change.add_device(leaf.guid, member.device.clone(), MissingBlocks::Nothing);
            }
            tops.push((top, spec.class));
        }
        let spares = self.label_aux(&new.spares, false, ctx.txg, &mut labels)?;
        let cache = self.label_aux(&new.cache, true, ctx.txg, &mut labels)?;
        // What fails up to here has changed nothing of the pool.
        for (top, class) in &mut tops {
            self.give_zaps(ctx, &change, top, *class)?;
        }
        let classes: Vec<VdevClass> = tops.iter().map(|(_, class)| *class).collect();
        let new_tops = tops.into_iter().map(|(top, _)| top);
        change.tree().children.extend(new_tops);
        change.publish()?;
        labels.keep();
        self.events().post(Event::system("vdev_add"));
        for (at, class) in classes.into_iter().enumerate() {
            let id = fit32(first + at);
            self.vdevs.set_class(id, class)?;
            self.new_tops.lock().push((ctx.txg, id));
        }
        self.note_units();
        self.extend_aux(ctx, "spares", spares)?;
        self.extend_aux(ctx, "l2cache", cache)
    }

    /// Creates the ZAPs of a vdev and of the devices below, in pools with such ZAPs.
    fn give_zaps(
        &self,
        ctx: &SyncCtx<'_>,
        change: &TreeChange<'_>,
        top: &mut VdevConfig,
        class: VdevClass,
    ) -> Result<()> {
        let mut result = Ok(());
        top.visit_mut(&mut |node| {
            if node.kind.is_device() && result.is_ok() {
                result = change.make_zap().map(|zap| node.zap_leaf = zap);
            }
        });
        result?;
        top.zap_top = change.make_zap()?;
        if class != VdevClass::Normal
            && let Some(zap) = top.zap_top
        {
            // With its zero byte: OpenZFS reads it as a C string.
            let word = format!("{}\0", class.word()).into_bytes();
            let zap = Zap::open(&self.mos().dnode(ObjectId(zap))?)?;
            zap.add(ctx.tx, BIAS, &ZapValue::Bytes(word))?;
        }
        if matches!(class, VdevClass::Special | VdevClass::Dedup) {
            self.features.add(ctx, CLASSES, 1)?;
        }
        if matches!(top.kind, VdevKind::Draid { .. }) {
            self.features.add(ctx, DRAID, 1)?;
        }
        Ok(())
    }

    /// Records the smallest and the largest allocation of data vdevs, in pools that do so.
    fn note_units(&self) {
        let tops = self.vdevs.tops();
        let mut config = self.config.lock();
        let units: Vec<u64> = config
            .vdev_tree
            .children
            .iter()
            .zip(tops.iter())
            .filter(|(_, top)| top.is_concrete() && top.class() == VdevClass::Normal)
            .filter_map(|(node, _)| node.top.as_ref()?.min_alloc)
            .collect();
        if config.min_alloc.is_some() {
            config.min_alloc = units.iter().min().copied().or(config.min_alloc);
            config.max_alloc = units.iter().max().copied().or(config.max_alloc);
        }
    }

    /// Adds the vdevs to the allocator whose configuration is on disk by now.
    pub(crate) fn open_new_tops(&self, txg: Txg) -> Result<()> {
        let due: Vec<u32> = {
            let mut waiting = self.new_tops.lock();
            let (due, rest) = waiting.drain(..).partition(|(added, _)| *added < txg);
            *waiting = rest;
            let due: Vec<(Txg, u32)> = due;
            due.into_iter().map(|(_, id)| id).collect()
        };
        let Some(allocator) = self.allocator.get().filter(|_| !due.is_empty()) else {
            return Ok(());
        };
        for info in self.vdev_infos() {
            if due.contains(&info.vdev) {
                debug_assert!(
                    txg.0 > self.uberblock.lock().txg,
                    "a vdev is used in a txg that is on disk"
                );
                allocator.add_vdev(info)?;
            }
        }
        // This txg makes the metaslab arrays, and the configuration has to name them.
        self.config_changed();
        Ok(())
    }
}
