//! Splitting a pool: one device leaves each mirror, and these devices become a pool of their own.
//!
//! ```text
//!  before anything of txg T is written:
//!    the tree without the devices (in memory)  ─►  the new pool on them: their state of T - 1,
//!    with new guids, committed  ─►  T is written: the old pool's labels and uberblock
//! ```
//! - The devices have the complete state of T - 1: nothing of T has been written to them.
//! - A power cut before the new pool's uberblock leaves the old pool unchanged
//!   ([`zuse_vdev::Labels::claims`]).
//! - A cut between the two uberblocks leaves the new pool, and the old one with mirrors that lack a
//!   device. The labels of the devices show that ([`VdevConfig::split_off`]). When the old pool is
//!   opened for writing, its first txg removes them; until then they do not belong to it.
//! - The first txg of the new pool removes what it does not need: logs, spares, cache devices,
//!   records of devices of the old pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse_base::{Errno, ObjectId, Result};
use zuse_device::BlockDevice;
use zuse_dmu::zap::Zap;
use zuse_vdev::{Aux, Health, PoolConfig, PoolState, VdevConfig, VdevKind, VdevState};

use crate::log_removal::UNFLUSHED;
use crate::tree_change::refused;
use crate::{DslHooks, Environment, OpenOptions, Pool, SyncCtx, TreeChange};

const HISTOGRAM: &str = "com.delphix:spacemap_histogram";
/// More metaslabs than any real log vdev has.
const MOST_MAPS: u64 = 1 << 20;

/// The parts of a new pool.
pub struct SplitOff {
    /// Its configuration, with the whole tree.
    pub config: PoolConfig,
    /// Its devices, by their new guids.
    pub devices: BTreeMap<u64, Arc<dyn BlockDevice>>,
    /// Vdevs and devices of the old pool that are not in the new one.
    pub(crate) rest: Vec<VdevConfig>,
}

impl Pool {
    /// Opens a split-off pool for the first time.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn open_split_off(
        env: Environment,
        off: SplitOff,
        hooks: Arc<dyn DslHooks>,
    ) -> Result<Arc<Self>> {
        let options = OpenOptions {
            writable: true,
            force: true,
            ..OpenOptions::default()
        };
        let (labels, devices) = (&off.config, &off.devices);
        Self::open_as(
            env,
            labels,
            devices,
            &options,
            hooks,
            Some(off.rest.clone()),
        )
    }

    /// Takes one device out of each mirror; `make` creates a pool from them, and closes it.
    ///
    /// # Errors
    /// `Refused`, with OpenZFS's messages: a vdev is no mirror, a device is in none or two are in
    /// the same, its siblings lack blocks. Also with a checkpoint; `Refused(ROFS)`; and the errors
    /// of `make`.
    pub fn split(
        self: &Arc<Self>,
        name: &str,
        chosen: &[u64],
        make: impl FnOnce(&Self, SplitOff) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (name, devices) = (name.to_owned(), self.choose(chosen)?);
        let again = devices.clone();
        self.early_task(
            move |ctx| ctx.pool.check_split(&again),
            move |ctx| ctx.pool.split_now(ctx, &name, &devices, make),
        )
    }

    /// The device that leaves each mirror: the named one, or the last.
    ///
    /// # Errors
    /// `Refused` in OpenZFS's words.
    pub fn choose(&self, named: &[u64]) -> Result<Vec<u64>> {
        let tree = self.config.lock().vdev_tree.clone();
        let mut chosen = Vec::new();
        let mut left = named.to_vec();
        for top in &tree.children {
            let is_log = top.top.as_ref().is_some_and(|t| t.is_log);
            if is_log || matches!(top.kind, VdevKind::Hole | VdevKind::Indirect) {
                continue;
            }
            let plain = top.children.iter().all(|c| c.kind.is_device());
            if top.kind != VdevKind::Mirror || !plain || top.children.len() < 2 {
                let what = "Source pool must be composed only of mirrors\n";
                return Err(refused(Errno::INVAL, what));
            }
            let own = |guid: &u64| top.children.iter().any(|c| c.guid == *guid);
            let here = left.iter().position(own).map(|at| left.remove(at));
            chosen.extend(here.or(top.children.last().map(|c| c.guid)));
        }
        if !left.is_empty() {
            let what = "Device list must include at most one disk from each mirror";
            return Err(refused(Errno::INVAL, what));
        }
        Ok(chosen)
    }

    fn check_split(&self, chosen: &[u64]) -> Result<()> {
        self.refuse_with_checkpoint()?;
        for guid in chosen {
            let leaf = self.vdevs.leaf(*guid);
            // In the new pool it has no sibling to read a missing block from.
            let whole = leaf.is_some_and(|l| l.is_usable() && !l.is_outdated() && !l.has_missed());
            if !whole || self.is_needed(*guid) {
                return Err(refused(Errno::BUSY, "no valid replicas"));
            }
        }
        // In the meantime the tree may have changed.
        match self.choose(chosen)? == chosen {
            true => Ok(()),
            false => Err(refused(Errno::BUSY, "pool is busy")),
        }
    }

    fn split_now(
        &self,
        ctx: &SyncCtx<'_>,
        name: &str,
        chosen: &[u64],
        make: impl FnOnce(&Self, SplitOff) -> Result<()>,
    ) -> Result<()> {
        let off = self.split_off(name, chosen)?;
        // Before the new pool is made: nothing of this txg may be written to its devices.
        self.take_leaves_out(ctx, chosen)?;
        make(self, off)
    }

    /// The first txg after an open. If a split was interrupted after the new pool was created, its
    /// devices leave now.
    pub(crate) fn complete_split(self: &Arc<Self>) -> Result<()> {
        let mut left = Vec::new();
        let config = self.config.lock();
        config.vdev_tree.visit(&mut |node| {
            if node.split_off {
                left.push(node.guid);
            }
        });
        // The txg that is waited for below takes this lock.
        drop(config);
        if left.is_empty() {
            return self.sync_now();
        }
        self.sync_task(
            |_| Ok(()),
            move |ctx| {
                // Data that only they have is lost with them, so they must be shown as missing.
                left.retain(|guid| !ctx.pool.is_needed(*guid));
                match ctx.pool.refuse_with_checkpoint() {
                    Ok(()) if !left.is_empty() => ctx.pool.take_leaves_out(ctx, &left),
                    _ => Ok(()),
                }
            },
        )
    }

    /// Takes devices out of their mirrors and releases them at once: from now on nothing of this
    /// pool is read or written there.
    fn take_leaves_out(&self, ctx: &SyncCtx<'_>, chosen: &[u64]) -> Result<()> {
        let leaves: Vec<_> = chosen.iter().filter_map(|g| self.vdevs.leaf(*g)).collect();
        let mut change = TreeChange::begin(ctx);
        for guid in chosen {
            let out = change.tree().detach_child(*guid);
            let out = out.ok_or_else(|| refused(Errno::BUSY, "no valid replicas"))?;
            change.drop_zap(out.node.zap_leaf)?;
            self.free_dtl_object(ctx, out.node.dtl)?;
            if let Some((old, new)) = out.renamed {
                change.rename(old, new);
                if let Some(node) = change.tree().find_mut(new) {
                    node.orig_guid = Some(old);
                }
            }
        }
        change.publish()?;
        for leaf in leaves {
            leaf.close_device(Health::new(VdevState::Closed, Aux::None));
        }
        Ok(())
    }

    /// The parts of the new pool. Changes nothing.
    fn split_off(&self, name: &str, chosen: &[u64]) -> Result<SplitOff> {
        let old = self.config.lock().clone();
        let mut devices = BTreeMap::new();
        let mut rest = Vec::new();
        let mut tops = Vec::new();
        for top in &old.vdev_tree.children {
            let Some(leaf) = top.children.iter().find(|c| chosen.contains(&c.guid)) else {
                tops.push(self.without(top, &mut rest));
                continue;
            };
            let device = self.vdevs.leaf(leaf.guid).and_then(|l| l.device());
            let device = device.ok_or_else(|| refused(Errno::BUSY, "no valid replicas"))?;
            rest.extend(top.children.iter().filter(|c| c.guid != leaf.guid).cloned());
            let mut new = leaf.clone();
            new.guid = self.free_guid();
            // The same slot, because block pointers name vdevs by number.
            new.id = top.id;
            new.top.clone_from(&top.top);
            new.zap_top = top.zap_top;
            new.create_txg = top.create_txg;
            devices.insert(new.guid, device);
            tops.push(new);
        }
        // Holes at the end do not count as slots.
        while tops.last().is_some_and(|t| t.kind == VdevKind::Hole) {
            tops.pop();
        }
        let mut tree = VdevConfig::root(self.free_guid(), tops);
        tree.create_txg = old.vdev_tree.create_txg;
        tree.zap_root = old.vdev_tree.zap_root;
        tree.other.clone_from(&old.vdev_tree.other);
        let mut config = PoolConfig::new(name, old.version, tree);
        config.state = PoolState::Active;
        // If the split is interrupted, it tells the old pool which devices left.
        config.split_guid = Some(old.pool_guid);
        config.compatibility.clone_from(&old.compatibility);
        config.has_per_vdev_zaps = old.has_per_vdev_zaps;
        config.min_alloc = old.min_alloc;
        config.max_alloc = old.max_alloc;
        config.features_for_read = self.features.label_list();
        config.count_children();
        Ok(SplitOff {
            config,
            devices,
            rest,
        })
    }

    /// The new pool's placeholder for a vdev that provides no device.
    fn without(&self, top: &VdevConfig, rest: &mut Vec<VdevConfig>) -> VdevConfig {
        if matches!(top.kind, VdevKind::Hole | VdevKind::Indirect) {
            return top.clone();
        }
        rest.push(top.clone());
        VdevConfig::new(VdevKind::Hole, top.id.unwrap_or(0), 0)
    }

    /// Removes the parts that a split-off pool does not need, in its first txg.
    pub(crate) fn tidy_split_off(&self, ctx: &SyncCtx<'_>, rest: &[VdevConfig]) -> Result<()> {
        let change = TreeChange::begin(ctx);
        for top in rest {
            if let Some(keys) = &top.top {
                let count = keys
                    .asize
                    .checked_shr(u32::try_from(keys.metaslab_shift).unwrap_or(64));
                self.free_maps(ctx, keys.metaslab_array, count.unwrap_or(0))?;
            }
            if let Some(zap) = top.zap_top.filter(|zap| *zap != 0) {
                // The array has no other owner, so it would be leaked.
                let zap = Zap::open(&self.mos().dnode(ObjectId(zap))?)?;
                if let Some(unflushed) = zap.lookup_u64(UNFLUSHED)? {
                    self.mos().free(ctx.tx, ObjectId(unflushed))?;
                }
            }
            let mut result = Ok(());
            top.visit(&mut |node| {
                if result.is_ok() {
                    result = change
                        .drop_zap(node.zap_leaf)
                        .and_then(|()| change.drop_zap(node.zap_top))
                        .and_then(|()| self.free_dtl_object(ctx, node.dtl));
                }
            });
            result?;
        }
        for list in ["spares", "l2cache"] {
            if !self.aux_lists(list)?.is_empty() {
                self.write_aux_devices(ctx, list, Vec::new())?;
            }
        }
        self.config_changed();
        Ok(())
    }

    /// Frees the space maps of a vdev, and their array.
    fn free_maps(&self, ctx: &SyncCtx<'_>, array: u64, count: u64) -> Result<()> {
        if array == 0 {
            return Ok(());
        }
        let dnode = self.mos().dnode(ObjectId(array))?;
        let bytes = usize::try_from(count.min(MOST_MAPS) * 8).unwrap_or(0);
        let mut words = vec![0; bytes];
        dnode.read_at(0, &mut words)?;
        let mut histograms = 0;
        for word in words.as_chunks::<8>().0 {
            let Some(map) = ObjectId(u64::from_le_bytes(*word)).some() else {
                continue;
            };
            // A longer bonus has a histogram, which the feature counts.
            histograms += i64::from(self.mos().dnode(map)?.with_bonus(<[u8]>::len) > 24);
            self.mos().free(ctx.tx, map)?;
        }
        if self.features.is_enabled(HISTOGRAM) {
            self.features.add(ctx, HISTOGRAM, -histograms)?;
        }
        self.mos().free(ctx.tx, ObjectId(array))
    }
}
