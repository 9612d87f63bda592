//! Creating a pool (chapter 01 §4.3 and §7 of the format notes).
//!
//! Labels with txg 0 come first: a crash before the first commit leaves no pool. The MOS is built
//! in memory as txg 4 and committed like any other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Errno, Error, ObjectId, Result, Txg};
use zuse_codec::{ChecksumContext, Salt};
use zuse_device::BlockDevice;
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_dmu::{DnodeSpec, Objset, Settings, Tx};
use zuse_format::feature::{FEATURES, Feature};
use zuse_format::nvlist::NvList;
use zuse_format::uberblock::{SPA_VERSION, Uberblock};
use zuse_format::{ObjsetType, object_type};
use zuse_vdev::{OpenMode, PoolConfig, VdevClass, VdevConfig, VdevKind, Vdevs, label};

use crate::allocator::{MapOptions, VdevInfo};
use crate::classes::BIAS;
use crate::first_labels::FirstLabels;
use crate::layout::{self, TopSpec};
use crate::space_map::MosStore;
use crate::version::{VERSION_COPIES, VERSION_DEFLATE, objset_size, queue_bonus};
use crate::{Allocator, DslHooks, Environment, Pool, SyncCtx};

/// The txg of a pool's creation.
pub(crate) const FIRST_TXG: Txg = Txg(4);

/// A device of a new pool.
pub struct VdevSpec {
    /// The open device.
    pub device: Arc<dyn BlockDevice>,
    /// Whether it is a disk rather than a file.
    pub is_disk: bool,
    /// Sector shift; `None` asks the device.
    pub ashift: Option<u8>,
}

/// Options of a new pool.
pub struct CreateOptions {
    /// Name of the pool.
    pub name: String,
    /// Its top-level vdevs.
    pub vdevs: Vec<VdevSpec>,
    /// Features to enable, with those they depend on. `None` enables all.
    pub features: Option<Vec<&'static Feature>>,
    /// Version; below 5000 there are no features.
    pub version: u64,
    /// Pool property `comment`.
    pub comment: Option<String>,
    /// Pool property `compatibility`.
    pub compatibility: Option<String>,
}

impl CreateOptions {
    /// Whether the pool will have a feature.
    pub fn enables(&self, guid: &str) -> bool {
        match &self.features {
            _ if self.version < SPA_VERSION => false,
            None => (FEATURES.iter()).any(|f| f.guid == guid && f.enabled_at_creation()),
            Some(list) => list.iter().any(|f| f.guid == guid || needs(f, guid)),
        }
    }
}

/// The top-level vdevs of a new pool.
struct Plan {
    tops: Vec<VdevConfig>,
    classes: Vec<VdevClass>,
    /// By the guids of their leaves.
    devices: BTreeMap<u64, Arc<dyn BlockDevice>>,
}

fn plan(vdevs: &[VdevSpec], layout: &[TopSpec], guid: &mut dyn FnMut() -> u64) -> Result<Plan> {
    if vdevs.is_empty() {
        let what = "a pool needs at least one device";
        return Err(Error::refused(Errno::INVAL, what));
    }
    let groups = layout::groups(vdevs, layout)?;
    if !groups.iter().any(|(s, _)| s.class == VdevClass::Normal) {
        let what = "at least one toplevel vdev must be specified";
        return Err(Error::refused(Errno::INVAL, what));
    }
    let mut plan = Plan {
        tops: Vec::new(),
        classes: groups.iter().map(|(spec, _)| spec.class).collect(),
        devices: BTreeMap::new(),
    };
    for (id, (spec, members)) in groups.iter().enumerate() {
        let top = spec.config(id as u64, members, guid)?;
        for (leaf, member) in top.devices().iter().zip(*members) {
            plan.devices.insert(leaf.guid, member.device.clone());
        }
        plan.tops.push(top);
    }
    Ok(plan)
}

/// Looks whether devices can make up a new pool. Nothing is written to them; `aux` are its spares
/// and cache devices.
///
/// # Errors
/// `Refused` as [`Pool::create_with_layout`].
pub fn check_vdevs(vdevs: &[VdevSpec], layout: &[TopSpec], aux: &[VdevSpec]) -> Result<()> {
    let mut count = 0;
    plan(vdevs, layout, &mut || {
        count += 1;
        count
    })?;
    aux.iter()
        .try_for_each(|spec| layout::measure(spec).map(drop))
}

impl Pool {
    /// Creates a pool and opens it.
    ///
    /// The devices are overwritten: the caller has checked that they belong to no pool in use.
    ///
    /// # Errors
    /// `Refused(INVAL)` for no or too small devices; `Device` if one fails.
    pub fn create(
        env: Environment,
        options: CreateOptions,
        hooks: Arc<dyn DslHooks>,
    ) -> Result<Arc<Self>> {
        Self::create_with_layout(env, options, &[], hooks)
    }

    /// As [`Pool::create`], with the devices in groups; without groups, each device becomes a vdev.
    ///
    /// # Errors
    /// As [`Pool::create`]; `Refused(INVAL)` for invalid groups.
    pub fn create_with_layout(
        env: Environment,
        options: CreateOptions,
        layout: &[TopSpec],
        hooks: Arc<dyn DslHooks>,
    ) -> Result<Arc<Self>> {
        let guid = || env.entropy.guid().get();
        // All checks come before the first label: a refused command must leave the devices as they
        // were.
        let Plan {
            tops,
            classes,
            devices,
        } = plan(&options.vdevs, layout, &mut || guid())?;
        let root_guid = guid();
        let mut root = VdevConfig::root(root_guid, tops);
        root.create_txg = Some(FIRST_TXG.0);
        let mut config = PoolConfig::new(&options.name, options.version, root.clone());
        config.hostid = env.host.id;
        config.hostname = (!env.host.name.is_empty()).then(|| env.host.name.clone());
        config.comment.clone_from(&options.comment);
        config.compatibility.clone_from(&options.compatibility);
        let normal = root.children.iter().zip(&classes);
        let units = normal
            .filter(|(_, class)| **class == VdevClass::Normal)
            .filter_map(|(top, _)| top.top.as_ref()?.min_alloc);
        config.min_alloc = units.clone().min();
        config.max_alloc = units.max();
        // Labels of txg 0: until the first uberblock is there, no system takes them for a pool.
        let labels = init_labels(&config, &root, &devices)?;
        let vdevs = Arc::new(Vdevs::open(
            &root,
            &|c| devices.get(&c.guid).cloned(),
            OpenMode::CREATE,
        )?);
        // The configuration has no classes: they are in the ZAPs of the vdevs.
        for (id, class) in classes.iter().enumerate() {
            vdevs.set_class(id as u32, *class)?;
        }
        // As if the txg before were on disk, so that the first one is `FIRST_TXG`.
        let uberblock = Uberblock {
            version: options.version,
            txg: FIRST_TXG.prev().0,
            ..Uberblock::default()
        };
        let pool = Self::assemble(env, config, vdevs, uberblock, hooks, true)?;
        // A pool that does not exist yet cannot be cleared, so errors are not waited for.
        pool.suspension.set_impatient(true);
        if let Err(error) = pool.first_txg(&options) {
            pool.abandon();
            return Err(error);
        }
        pool.suspension.set_impatient(false);
        labels.keep();
        Ok(pool)
    }

    /// Releases a pool whose creation failed. It and the layer above refer to each other, so only
    /// this frees the devices.
    pub(crate) fn abandon(&self) {
        self.hooks.release();
        if let Some(allocator) = self.allocator.get() {
            allocator.detach();
        }
        self.clones.detach();
        self.dedup.detach();
    }

    fn first_txg(self: &Arc<Self>, options: &CreateOptions) -> Result<()> {
        let enabled = |guid: &str| options.enables(guid);
        let maps = MapOptions {
            large_blocks: enabled("com.delphix:log_spacemap"),
            histogram: enabled("com.delphix:spacemap_histogram"),
            two_words: enabled("com.delphix:spacemap_v2"),
        };
        let allocator = Allocator::new(maps);
        allocator.set_tripwire(self.tripwire().clone());
        for info in self.vdev_infos() {
            allocator.add_vdev(info)?;
        }
        self.io.set_allocator(allocator.clone());
        let _ = self.allocator.set(allocator.clone());

        let tx = Tx::syncing(FIRST_TXG);
        let settings = self.first_settings(&enabled);
        let mos = Objset::create(self.objset_env("MOS", settings), ObjsetType::Meta, &tx);
        let _ = self.mos.set(mos.clone());
        // The space maps are in the MOS, which exists only now.
        allocator.attach(Arc::new(MosStore::new(&mos)));

        let ctx = SyncCtx {
            pool: self,
            tx: &tx,
            txg: FIRST_TXG,
            pass: 1,
        };
        let directory = Zap::create_in(
            &mos.allocate_at(
                &tx,
                ObjectId(1),
                &DnodeSpec::new(object_type::OBJECT_DIRECTORY),
            )?,
            &tx,
            &Default::default(),
        )?;
        directory.add_u64(&tx, b"creation_version", options.version)?;
        if options.version >= VERSION_DEFLATE {
            directory.add_u64(&tx, b"deflate", 1)?;
        } else {
            self.vdevs.count_as_allocated();
        }
        if options.version >= SPA_VERSION {
            // Before any check whether a feature is enabled, which is nearly everything below.
            self.features.create(&ctx, &directory)?;
            self.enable_first(&ctx, options)?;
        }
        self.make_salt(&tx, &directory)?;

        self.hooks.create(&ctx)?;

        self.make_config_and_queue(&mos, &tx, &directory)?;
        self.make_vdev_zaps(&ctx, &directory)?;
        self.count_vdev_features(&ctx)?;
        self.make_spares(&ctx)?;
        self.config_changed();

        // The first file system is written in the same txg, because every pool on disk has one.
        self.hooks.sync(&ctx)?;
        self.clones.attach(self);
        self.dedup.attach(self)?;
        self.converge(FIRST_TXG, &tx)?;
        self.meter.clear(FIRST_TXG);
        self.hooks.synced(FIRST_TXG);
        // Before the threads start, so that none can begin a txg that was used here.
        self.txgs.done_first(FIRST_TXG);
        self.hooks.load(self)?;
        self.start()
    }

    /// Enables the features of a new pool.
    fn enable_first(&self, ctx: &SyncCtx<'_>, options: &CreateOptions) -> Result<()> {
        match &options.features {
            None => {
                for f in FEATURES.iter().filter(|f| f.enabled_at_creation()) {
                    self.features.enable(ctx, f)?;
                }
            }
            Some(list) => {
                // In the table's order, so that enabled_txg entries are as usual.
                for f in FEATURES
                    .iter()
                    .filter(|f| list.iter().any(|l| l.guid == f.guid))
                {
                    self.features.enable(ctx, f)?;
                }
            }
        }
        Ok(())
    }

    /// Creates the salt of the salted checksums.
    fn make_salt(&self, tx: &Tx, directory: &Zap) -> Result<()> {
        let mut salt = [0u8; 32];
        self.env.entropy.fill(&mut salt);
        directory.add(
            tx,
            b"org.illumos:checksum_salt",
            &ZapValue::Bytes(salt.to_vec()),
        )?;
        self.io
            .set_checksums(ChecksumContext::new(Some(&Salt(salt))));
        Ok(())
    }

    /// Creates the objects of the configuration and of the deferred frees.
    fn make_config_and_queue(&self, mos: &Arc<Objset>, tx: &Tx, directory: &Zap) -> Result<()> {
        let config = mos.allocate(
            tx,
            &DnodeSpec::new(object_type::PACKED_NVLIST)
                .block_size(16384)
                .bonus(object_type::PACKED_NVLIST_SIZE, 8),
        )?;
        directory.add_u64(tx, b"config", config.object().0)?;
        self.config_object.store(config.object().0, Relaxed);
        // The list of deferred frees (chapter 04). It stays empty here.
        let deferred = mos.allocate(
            tx,
            &DnodeSpec::new(object_type::BPOBJ)
                .block_size(16384)
                .bonus(object_type::BPOBJ_HDR, queue_bonus(self.version()))
                .compress(2),
        )?;
        directory.add_u64(tx, b"sync_bplist", deferred.object().0)?;
        Ok(())
    }

    /// Write settings for the MOS of a new pool.
    fn first_settings(&self, enabled: &dyn Fn(&str) -> bool) -> Settings {
        let mut settings = Settings::mos();
        settings.hole_birth = enabled("com.delphix:hole_birth");
        settings.embedded_data = enabled("com.delphix:embedded_data");
        settings.objset_size = objset_size(self.version(), enabled("org.zfsonlinux:project_quota"));
        settings.one_copy = self.version() < VERSION_COPIES;
        settings.used_in_sectors = self.version() < VERSION_DEFLATE;
        settings.indirect_shift = self.limits().indirect_shift;
        if !enabled("org.illumos:lz4_compress") {
            settings.metadata_compression = zuse_codec::Compression::Lzjb;
        }
        settings
    }

    /// The ZAP of the root, of each top-level vdev and of each leaf, listed in the map of vdev
    /// ZAPs.
    fn make_vdev_zaps(&self, ctx: &SyncCtx<'_>, directory: &Zap) -> Result<()> {
        let mos = self.mos();
        let make = || -> Result<ObjectId> {
            Ok(
                Zap::create(mos, ctx.tx, object_type::ZAP_METADATA, &Default::default())?
                    .dnode()
                    .object(),
            )
        };
        let map = Zap::create(mos, ctx.tx, object_type::ZAP_METADATA, &Default::default())?;
        directory.add_u64(ctx.tx, b"com.delphix:vdev_zap_map", map.dnode().object().0)?;
        let mut tree = self.config.lock().vdev_tree.clone();
        const ROOT_ZAP: &str = "com.klarasystems:vdev_zaps_v2";
        if self.features.is_enabled(ROOT_ZAP) {
            let zap = make()?;
            map.add_int(ctx.tx, zap.0, zap.0)?;
            tree.zap_root = Some(zap.0);
            self.features.add(ctx, ROOT_ZAP, 1)?;
        }
        let tops = self.vdevs.tops();
        for (top, open) in tree.children.iter_mut().zip(tops.iter()) {
            let mut leaves = Ok(());
            top.visit_mut(&mut |node| {
                if node.kind.is_device() && leaves.is_ok() {
                    leaves = make().and_then(|zap| {
                        node.zap_leaf = Some(zap.0);
                        map.add_int(ctx.tx, zap.0, zap.0)
                    });
                }
            });
            leaves?;
            let zap = make()?;
            map.add_int(ctx.tx, zap.0, zap.0)?;
            top.zap_top = Some(zap.0);
            if open.class() != VdevClass::Normal {
                // With its zero byte: OpenZFS reads it as a C string.
                let word = format!("{}\0", open.class().word()).into_bytes();
                Zap::open(&mos.dnode(zap)?)?.add(ctx.tx, BIAS, &ZapValue::Bytes(word))?;
            }
        }
        let mut config = self.config.lock();
        config.vdev_tree = tree;
        // The word and the ZAPs' numbers are written together: an import refuses one without the
        // other.
        config.has_per_vdev_zaps = true;
        Ok(())
    }

    /// Features that some kinds of vdevs need.
    fn count_vdev_features(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        for top in self.vdevs.tops().iter() {
            let feature = match (top.kind(), top.class()) {
                (VdevKind::Draid { .. }, _) => Some("org.openzfs:draid"),
                _ => None,
            };
            let class = match top.class() {
                VdevClass::Special | VdevClass::Dedup => Some("org.zfsonlinux:allocation_classes"),
                _ => None,
            };
            for guid in feature.into_iter().chain(class) {
                if !self.features.is_enabled(guid) {
                    return Err(Error::refused(
                        Errno::NOTSUP,
                        format!("the feature {guid}, which the vdev needs, is not enabled"),
                    ));
                }
                self.features.add(ctx, guid, 1)?;
            }
        }
        Ok(())
    }

    /// The list of distributed spares.
    fn make_spares(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        let mut spares = Vec::new();
        for top in self.vdevs.tops().iter() {
            let VdevKind::Draid {
                nparity, nspares, ..
            } = top.kind()
            else {
                continue;
            };
            for spare in 0..*nspares {
                let mut list = NvList::new();
                list.insert("type", "dspare");
                list.insert("guid", self.env.entropy.guid().get());
                let path = format!("draid{nparity}-{}-{spare}", top.id());
                list.insert("path", path.as_str());
                list.insert("top_guid", top.guid());
                list.insert("spareid", u64::from(spare));
                list.insert("whole_disk", 1u64);
                list.insert("is_spare", 1u64);
                list.insert("ashift", u64::from(top.ashift()));
                spares.push(list);
            }
        }
        if spares.is_empty() {
            return Ok(());
        }
        self.write_aux_devices(ctx, "spares", spares)
    }

    /// Offset and size of a metaslab of a present top-level vdev; for dRAID, limited to whole rows.
    pub fn metaslab_region(&self, vdev: u32, metaslab: u64) -> Option<(u64, u64)> {
        let info = self.vdev_infos().into_iter().find(|i| i.vdev == vdev)?;
        let region = info.region(metaslab);
        Some((region.span.start, region.span.size))
    }

    /// What the allocator needs to know about each vdev that can hold data.
    pub(crate) fn vdev_infos(&self) -> Vec<VdevInfo> {
        let tops = self.vdevs.tops();
        tops.iter()
            .filter(|t| t.is_concrete())
            .map(|top| {
                let shape = top.clone();
                VdevInfo {
                    vdev: top.id(),
                    asize: top.asize(),
                    ashift: top.ashift(),
                    align: top.allocation_unit(),
                    metaslab_shift: top.metaslab_shift(),
                    metaslab_array: ObjectId(top.metaslab_array()),
                    class: crate::classes::alloc_class(top.class()),
                    children: top.config().children.len().max(1) as u64,
                    deflate_ratio: top.deflate_ratio(),
                    asize_of: Arc::new(move |psize, txg| {
                        shape.asize_of(psize, txg.0).unwrap_or(psize)
                    }),
                }
            })
            .collect()
    }
}

fn needs(f: &Feature, guid: &str) -> bool {
    f.dependencies().any(|d| d.guid == guid || needs(d, guid))
}

/// Writes the labels of txg 0.
fn init_labels(
    config: &PoolConfig,
    root: &VdevConfig,
    devices: &BTreeMap<u64, Arc<dyn BlockDevice>>,
) -> Result<FirstLabels> {
    let mut labels = FirstLabels::default();
    for top in &root.children {
        for leaf in top.devices() {
            if let Some(device) = devices.get(&leaf.guid) {
                let list = label::initial_label(config, top, leaf, FIRST_TXG.0);
                labels.put(device, &list)?;
            }
        }
    }
    Ok(labels)
}
