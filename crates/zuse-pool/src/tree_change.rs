//! Changing the tree of vdevs, in one txg.
//!
//! ```text
//!   sync task ─► TreeChange::begin ─► edit the copy of the tree, add devices, make ZAPs ─► publish
//!                                           the open tree and the configuration change together
//!   commit    ─► labels and uberblock of that txg name the new tree ─► devices that left are closed
//! ```
//! - All of it runs on the sync thread. Nobody else changes the tree, and no dirty time log is
//!   written between `begin` and `publish`.
//! - Reasons to refuse are checked before anything of the MOS is changed. After `publish` nothing
//!   fails.
//! - A new device has labels of txg 0 (`FirstLabels`): a crash before the commit leaves it
//!   out of the pool. A device that leaves keeps its labels until the commit is on disk; then they
//!   get txg 0. A crash in between leaves an old label that the MOS does not know.
//! - A leaf that is added to a vdev with data lacks all that was written before ([`Lacks`]).

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

/// What a leaf that comes has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// All there is: it is of a vdev that is new.
    Nothing,
    /// Nothing: its siblings have what was written so far.
    Everything,
}

/// Leaves that left the tree in a txg that is not on disk yet, and how often the tree has changed.
#[derive(Default)]
pub(crate) struct Leaving(Mutex<Vec<Departure>>, AtomicU64);

/// A leaf that left.
struct Departure {
    leaf: Arc<Leaf>,
    /// An idle spare again, with this label; its labels get txg 0 otherwise.
    spare: Option<NvList>,
}

/// A change of the tree that is being prepared.
pub struct TreeChange<'a> {
    ctx: SyncCtx<'a>,
    tree: VdevConfig,
    change: Change,
    /// Labels of leaves that leave and are spares again.
    spares: Vec<(u64, NvList)>,
}

impl<'a> TreeChange<'a> {
    /// Begins with the tree as it is.
    pub fn begin(ctx: &SyncCtx<'a>) -> Self {
        Self {
            ctx: *ctx,
            // A copy: what is refused half-way leaves the tree as it was.
            tree: ctx.pool.config.lock().vdev_tree.clone(),
            change: Change::default(),
            spares: Vec::new(),
        }
    }

    /// The tree that is to be.
    pub fn tree(&mut self) -> &mut VdevConfig {
        &mut self.tree
    }

    /// Gives a leaf of the new tree its device, which has its first labels.
    pub fn add_device(&mut self, guid: u64, device: Arc<dyn BlockDevice>, lacks: Lacks) {
        self.change.devices.insert(guid, device);
        if lacks == Lacks::Everything {
            self.change.lacking.push(guid);
        }
    }

    /// A vdev without a device of its own comes (a distributed spare), and lacks everything.
    pub fn add_spare_space(&mut self, guid: u64) {
        self.change.lacking.push(guid);
    }

    /// A vdev goes by another guid.
    pub fn rename(&mut self, old: u64, new: u64) {
        self.change.renamed.push((old, new));
    }

    /// A leaf that leaves is an idle spare from then on.
    pub fn spare_again(&mut self, guid: u64, label: NvList) {
        self.spares.push((guid, label));
    }

    /// Makes a ZAP for a vdev; `None` in a pool whose vdevs have none.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn make_zap(&self) -> Result<Option<u64>> {
        // Pools of before these ZAPs have no map, and stay without.
        let Some(map) = self.zap_map()? else {
            return Ok(None);
        };
        let mos = self.ctx.pool.mos();
        let tx = self.ctx.tx;
        let zap = Zap::create(mos, tx, object_type::ZAP_METADATA, &Default::default())?;
        let object = zap.dnode().object().0;
        // What the map does not list would be an object without an owner.
        map.add_int(tx, object, object)?;
        Ok(Some(object))
    }

    /// Frees the ZAP of a vdev that goes.
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

    /// Refuses a tree that could not be published. To be asked before something of the MOS is
    /// changed.
    ///
    /// # Errors
    /// As [`Self::publish`].
    pub fn check(&self) -> Result<()> {
        self.ctx.pool.vdevs.check_change(&self.tree, &self.change)
    }

    /// The tree changes. From here on blocks are read and written by it, and the labels and the
    /// uberblock of this txg are those of the new one.
    ///
    /// # Errors
    /// The new tree cannot be, or a device does not fit; the old one then stays.
    pub fn publish(self) -> Result<()> {
        let pool = self.ctx.pool;
        // First what may fail: after it only memory changes.
        let left = pool.vdevs.change(&self.tree, &self.change)?;
        pool.config.lock().vdev_tree = self.tree;
        // Logs follow their vdev before any of this txg is written under the new guid.
        for (old, new) in self.change.renamed {
            pool.dtls.rename(old, new);
        }
        // From the first to this txg: whatever a sibling has, the new one may not.
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

    /// How often the tree has changed since the pool was opened.
    pub fn tree_changes(&self) -> u64 {
        self.leaving.1.load(Relaxed)
    }

    /// The txg is on disk: leaves that are not in its tree are let go.
    pub(crate) fn let_leaves_go(&self) {
        let leaving = std::mem::take(&mut *self.leaving.0.lock());
        for Departure { leaf, spare } in leaving {
            // The guid may come back as that of another device: it must not inherit what this one
            // lacked.
            self.dtls.forget(leaf.guid());
            if let Some(device) = leaf.device() {
                // An error does not matter: an old label fits no uberblock any more.
                let _ = match spare {
                    Some(list) => label::init(&*device, &list),
                    None => label::retire(&*device),
                };
            }
            // Last: the device is needed to write its label.
            leaf.unseat(Health::new(VdevState::Closed, Aux::None));
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
        // The object is made when the first device comes, and is kept when the last one goes.
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
        // Whole blocks: how much of it counts is in the bonus buffer.
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
