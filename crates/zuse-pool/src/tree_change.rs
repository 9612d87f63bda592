//! Changing the tree of vdevs, in one txg.
//!
//! ```text
//!   sync task ─► TreeChange::begin ─► edit the copy of the tree, add devices, make ZAPs ─► publish
//!                                           the open tree and the configuration change together
//!   commit    ─► labels and uberblock of that txg name the new tree ─► devices that left are closed
//! ```
//! - Everything runs on the sync thread. Nothing else changes the tree, and no dirty time log is
//!   written between `begin` and `publish`.
//! - Reasons to refuse are checked before anything of the MOS is changed. After `publish` nothing
//!   fails.
//! - A new device has labels of txg 0 (`FirstLabels`): a crash before the commit leaves it
//!   out of the pool. A device that leaves keeps its labels until the commit is on disk; then they
//!   get txg 0. A crash in between leaves an old label that the MOS does not know.
//! - A leaf that is added to a vdev with data lacks all that was written before
//!   ([`MissingBlocks`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zuse_base::sync::Mutex;
use zuse_base::{Error, ObjectId, Refusal, Result, Txg};
use zuse_device::BlockDevice;
use zuse_dmu::DnodeSpec;
use zuse_dmu::zap::Zap;
use zuse_format::nvlist::NvList;
use zuse_format::object_type;
use zuse_vdev::{Aux, Change, Health, Leaf, VdevConfig, VdevState, label};

use crate::{Pool, SyncCtx};

/// Which blocks a new leaf lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingBlocks {
    /// None: its vdev is new as well.
    Nothing,
    /// All blocks, which its siblings have.
    Everything,
}

/// Leaves that left the tree in a txg that is not on disk yet, and the number of tree changes.
#[derive(Default)]
pub(crate) struct Leaving(Mutex<Vec<Departure>>, AtomicU64);

/// A leaf that left.
struct Departure {
    leaf: Arc<Leaf>,
    /// It becomes an idle spare, with this label; otherwise its labels get txg 0.
    spare: Option<NvList>,
}

/// A change of the tree that is being prepared.
pub struct TreeChange<'a> {
    ctx: SyncCtx<'a>,
    tree: VdevConfig,
    change: Change,
    /// Labels of leaving leaves that become idle spares.
    spares: Vec<(u64, NvList)>,
}

impl<'a> TreeChange<'a> {
    /// Begins with the present tree.
    pub fn begin(ctx: &SyncCtx<'a>) -> Self {
        Self {
            ctx: *ctx,
            // A copy: a refused change leaves the tree unchanged.
            tree: ctx.pool.config.lock().vdev_tree.clone(),
            change: Change::default(),
            spares: Vec::new(),
        }
    }

    /// The future tree.
    pub fn tree(&mut self) -> &mut VdevConfig {
        &mut self.tree
    }

    /// Adds the device of a leaf in the new tree; it has its first labels.
    pub fn add_device(&mut self, guid: u64, device: Arc<dyn BlockDevice>, lacks: MissingBlocks) {
        self.change.devices.insert(guid, device);
        if lacks == MissingBlocks::Everything {
            self.change.lacking.push(guid);
        }
    }

    /// Adds a vdev without a device of its own (a distributed spare), which lacks all blocks.
    pub fn add_spare_space(&mut self, guid: u64) {
        self.change.lacking.push(guid);
    }

    /// Changes the guid of a vdev.
    pub fn rename(&mut self, old: u64, new: u64) {
        self.change.renamed.push((old, new));
    }

    /// A leaving leaf becomes an idle spare.
    pub fn return_spare(&mut self, guid: u64, label: NvList) {
        self.spares.push((guid, label));
    }

    /// Creates a ZAP for a vdev; `None` in a pool whose vdevs have none.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn make_zap(&self) -> Result<Option<u64>> {
        // Older pools have no map, and stay without.
        let Some(map) = self.zap_map()? else {
            return Ok(None);
        };
        let mos = self.ctx.pool.mos();
        let tx = self.ctx.tx;
        let zap = Zap::create(mos, tx, object_type::ZAP_METADATA, &Default::default())?;
        let object = zap.dnode().object().0;
        // An object missing in the map would have no owner.
        map.add_int(tx, object, object)?;
        Ok(Some(object))
    }

    /// Frees the ZAP of a leaving vdev.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn drop_zap(&self, zap: Option<u64>) -> Result<()> {
        let Some(object) = zap.filter(|zap| *zap != 0) else {
            return Ok(());
        };
        if let Some(map) = self.zap_map()? {
            map.remove_int(self.ctx.tx, object)?;
        }
        self.ctx.pool.mos().free(self.ctx.tx, ObjectId(object))
    }

    fn zap_map(&self) -> Result<Option<Zap>> {
        let pool = self.ctx.pool;
        let map = pool.directory()?.lookup_u64(b"com.delphix:vdev_zap_map")?;
        map.map(|map| Zap::open(&pool.mos().dnode(ObjectId(map))?))
            .transpose()
    }

    /// Refuses a tree that could not be published. Call it before the MOS is changed.
    ///
    /// # Errors
    /// As [`Self::publish`].
    pub fn check(&self) -> Result<()> {
        self.ctx.pool.vdevs.check_change(&self.tree, &self.change)
    }

    /// Installs the new tree. From now on blocks are read and written by it, and it is in the
    /// labels and the uberblock of this txg.
    ///
    /// # Errors
    /// The new tree is impossible, or a device does not fit; the old one stays then.
    pub fn publish(self) -> Result<()> {
        let pool = self.ctx.pool;
        // The step that may fail comes first; after it only memory changes.
        let left = pool.vdevs.change(&self.tree, &self.change)?;
        pool.config.lock().vdev_tree = self.tree;
        // Logs are renamed with their vdev before any of this txg is written under the new guid.
        for (old, new) in self.change.renamed {
            pool.dtls.rename(old, new);
        }
        // From the first to this txg: the new leaf may lack everything that a sibling has.
        for guid in self.change.lacking {
            pool.dtls.lack_all(guid, self.ctx.txg);
        }
        // They keep their labels until the commit: a crash before it leads back to the old tree.
        let mut leaving = pool.leaving.0.lock();
        for leaf in left {
            let spare = self.spares.iter().find(|(guid, _)| *guid == leaf.guid());
            leaving.push(Departure {
                spare: spare.map(|(_, label)| label.clone()),
                leaf,
            });
        }
        drop(leaving);
        pool.leaving.1.fetch_add(1, Relaxed);
        // The labels of this txg must name the new tree.
        pool.config_changed();
        Ok(())
    }
}

impl Pool {
    /// The first label of a leaf: that of no member yet. `top` is the top-level vdev as it will be.
    pub(crate) fn first_label(&self, top: &VdevConfig, leaf: &VdevConfig, txg: Txg) -> NvList {
        // With txg 0 in it no system counts the device as a member.
        let config = self.config.lock().clone();
        label::initial_label(&config, top, leaf, txg.0)
    }

    /// Number of tree changes since the pool was opened.
    pub fn tree_changes(&self) -> u64 {
        self.leaving.1.load(Relaxed)
    }

    /// The txg is on disk: releases leaves that are not in its tree.
    pub(crate) fn release_departed_leaves(&self) {
        let leaving = std::mem::take(&mut *self.leaving.0.lock());
        for Departure { leaf, spare } in leaving {
            // The guid may return with another device, which must not inherit the missing txgs of
            // this one.
            self.dtls.forget(leaf.guid());
            if let Some(device) = leaf.device() {
                // An error does not matter: an old label matches no uberblock any more.
                let _ = match spare {
                    Some(list) => label::init(&*device, &list),
                    None => label::retire(&*device),
                };
            }
            // Last: the device is needed to write its label.
            leaf.close_device(Health::new(VdevState::Closed, Aux::None));
        }
    }

    /// Writes the list of spares (`spares`) or cache devices (`l2cache`), as
    /// [`Pool::aux_lists`] gives it.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn write_aux_devices(
        &self,
        ctx: &SyncCtx<'_>,
        list: &str,
        devices: Vec<NvList>,
    ) -> Result<()> {
        let mut packed = NvList::new();
        packed.insert(list, devices);
        let mut bytes = packed.encode_xdr();
        let len = bytes.len() as u64;
        let directory = self.directory()?;
        // The object is created with the first device, and kept without devices.
        let dnode = match directory.lookup_u64(list.as_bytes())? {
            Some(object) => self.mos().dnode(ObjectId(object))?,
            None => {
                let spec = DnodeSpec::new(object_type::PACKED_NVLIST)
                    .block_size(16384)
                    .bonus(object_type::PACKED_NVLIST_SIZE, 8);
                let dnode = self.mos().allocate(ctx.tx, &spec)?;
                directory.add_u64(ctx.tx, list.as_bytes(), dnode.object().0)?;
                dnode
            }
        };
        let size = dnode.block_size() as usize;
        // Whole blocks; the bonus buffer has the length.
        bytes.resize(bytes.len().next_multiple_of(size), 0);
        // A shorter list must not keep the end of a longer one.
        dnode.free_blocks(ctx.tx, 0, u64::MAX)?;
        dnode.write_at(ctx.tx, 0, &bytes)?;
        dnode.set_bonus(ctx.tx, &len.to_le_bytes())
    }
}

/// A refusal in OpenZFS's words.
pub(crate) fn refused(errno: zuse_base::Errno, what: &str) -> Error {
    Error::refused_for(Refusal::Known, errno, what)
}
