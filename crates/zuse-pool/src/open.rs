//! Opening an existing pool (chapter 01 §10 of the format notes).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Errno, Error, ObjectId, Refusal, Result};
use zuse_codec::{ChecksumContext, Salt};
use zuse_device::BlockDevice;
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_dmu::{Objset, Settings};
use zuse_format::nvlist::{NvList, NvValue};
use zuse_format::uberblock::{ReflowState, Uberblock, is_spa_version};
use zuse_format::{ObjsetType, object_type};
use zuse_vdev::{OpenMode, PoolConfig, PoolState, VdevConfig, Vdevs};

use crate::allocator::MapOptions;
use crate::log_space_map::LogObjects;
use crate::space_map::MosStore;
use crate::{Allocator, DslHooks, Environment, Pool};

/// What errors call the lists of spares and of cache devices.
const AUX: &str = "list of spares and cache devices";
/// Largest packed configuration that is accepted.
const MAX_CONFIG: u64 = 16 << 20;
/// Largest txg that is accepted: no pool reaches it, and every sum with it fits.
const MAX_TXG: u64 = 1 << 60;

/// How to open a pool.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The pool may be changed.
    pub writable: bool,
    /// Open it although another host seems to use it.
    pub force: bool,
    /// Rename it.
    pub new_name: Option<String>,
    /// Use the best uberblock with a txg up to this.
    pub rewind_to: Option<u64>,
    /// Open the state of its checkpoint.
    pub checkpoint: bool,
    /// The caller used it last: a pool left active by this host needs no force.
    pub ours: bool,
    /// The name that stays on disk while the pool has another one here.
    pub label_name: Option<String>,
    /// Open it without missing log devices: intent logs are given up.
    pub without_logs: bool,
}

impl Pool {
    /// Opens the pool of a configuration assembled from labels, with the devices by guid.
    ///
    /// # Errors
    /// `Refused(BUSY)` if another host has it; `Refused(NXIO)` without a good uberblock or a needed
    /// device; `Unsupported` naming the feature; `Corrupt` naming the structure.
    pub fn open(
        env: Environment,
        labels: &PoolConfig,
        devices: &BTreeMap<u64, Arc<dyn BlockDevice>>,
        options: &OpenOptions,
        hooks: Arc<dyn DslHooks>,
    ) -> Result<Arc<Self>> {
        Self::open_as(env, labels, devices, options, hooks, None)
    }

    /// `split_off`: the pool is being created from devices of another pool, so labels and MOS are
    /// that pool's. The given configuration is used. It lists the parts of the other pool that this
    /// one lacks.
    pub(crate) fn open_as(
        env: Environment,
        labels: &PoolConfig,
        devices: &BTreeMap<u64, Arc<dyn BlockDevice>>,
        options: &OpenOptions,
        hooks: Arc<dyn DslHooks>,
        split_off: Option<Vec<VdevConfig>>,
    ) -> Result<Arc<Self>> {
        check_known(labels)?;
        let name = labels.name.clone();
        let find = |c: &VdevConfig| devices.get(&c.guid).cloned();
        let vdevs = Arc::new(Vdevs::open(
            &labels.vdev_tree,
            &find,
            OpenMode {
                writable: options.writable,
                check_labels: split_off.is_none(),
            },
        )?);
        let choice = vdevs.best_uberblock(options.rewind_to)?;
        // A writer continues after the newest txg, even if it opens an older one.
        let counts = if options.writable {
            choice.newest.txg
        } else {
            choice.uberblock.txg
        };
        if counts > MAX_TXG {
            return Err(Error::corrupt(
                format!("pool {name}, uberblock"),
                format!("txg {counts} cannot be"),
            ));
        }
        // Before the MOS is read: the place of its blocks depends on the progress of an expansion.
        load_reflow(&name, &vdevs, &choice.uberblock, options.writable)?;
        if options.writable {
            check_writing(&env, labels, &choice.uberblock, options)?;
        }
        let mut config = labels.clone();
        if let Some(new) = &options.new_name {
            config.name.clone_from(new);
        }
        let newest = choice.newest.txg;
        let uberblock = if options.checkpoint {
            Self::probe_checkpoint(&env, &config, &vdevs, choice.uberblock, &hooks)?
        } else {
            choice.uberblock
        };
        let rewound = uberblock.txg < newest;
        // After a rewind the next txg follows the newest one seen, so that the newer uberblocks do
        // not win. That next txg is the old state once more. Until it is on disk nothing is
        // written, so a crash leaves either the newest state or the older one, both intact.
        let last = zuse_base::Txg(uberblock.txg.max(newest) + u64::from(rewound));
        let pool = Self::assemble(env, config, vdevs, uberblock, hooks, options.writable)?;
        pool.rewound.store(rewound, Relaxed);
        if let Some(name) = &options.label_name {
            let _ = pool.label_name.set(name.clone());
        }
        if options.writable {
            pool.txgs.skip_to(last);
        }
        if let Err(error) = pool.load(&find, options, split_off.is_some()) {
            pool.abandon();
            return Err(error);
        }
        if options.writable {
            pool.start_writing(last, rewound, options, split_off)?;
        }
        pool.vdevs.report_bad();
        Ok(pool)
    }

    /// The checkpoint's uberblock, read from the present pool, which is closed again.
    fn probe_checkpoint(
        env: &Environment,
        config: &PoolConfig,
        vdevs: &Arc<Vdevs>,
        uberblock: Uberblock,
        hooks: &Arc<dyn DslHooks>,
    ) -> Result<Uberblock> {
        let probe = Self::assemble(
            env.clone(),
            config.clone(),
            vdevs.clone(),
            uberblock,
            hooks.clone(),
            false,
        )?;
        let open = || {
            let settings = Settings::mos();
            let mos = Objset::open(probe.objset_env("MOS", settings), uberblock.root)?;
            // Only the MOS is needed: no allocator, no tables, and nothing is written.
            let _ = probe.mos.set(mos);
            probe.checkpointed()
        };
        let found = open();
        // Also after a failure, or the probe would keep the devices open.
        probe.hooks.release();
        found?.ok_or_else(|| {
            let what = "checkpoint does not exist";
            Error::refused_for(Refusal::Known, Errno::NOENT, what)
        })
    }

    /// The first txg of a pool that is open for writing.
    fn start_writing(
        self: &Arc<Self>,
        last: zuse_base::Txg,
        rewound: bool,
        options: &OpenOptions,
        split_off: Option<Vec<VdevConfig>>,
    ) -> Result<()> {
        let mut config = self.config.lock();
        // In the first labels that are written: after a crash they show that the pool was in use.
        config.state = PoolState::Active;
        drop(config);
        self.config_changed();
        // No command can run `zpool clear` on a pool that is not open yet.
        self.suspension.set_impatient(true);
        if rewound && let Err(error) = self.commit_rewind(last, options.checkpoint) {
            // There is no sync thread yet, which closing would wait for.
            self.abandon();
            return Err(error);
        }
        // After the rewind is on disk. A thread that writes before it could overwrite the newer
        // state.
        self.start()?;
        // Read before the first txg, whose uberblock has 0 there.
        let back_to = self.uberblock().checkpoint_txg;
        let first = match split_off {
            None if rewound && options.checkpoint => self.sync_task(
                |_| Ok(()),
                move |ctx| {
                    let text = format!("rewound state to txg={back_to}");
                    ctx.pool.hooks.record(ctx, "checkpoint rewind", &text)
                },
            ),
            // The first txg records on disk that this host uses the pool, before users get access.
            None => self.complete_split(),
            Some(rest) => {
                self.sync_task(|_| Ok(()), move |ctx| ctx.pool.tidy_split_off(ctx, &rest))
            }
        };
        if let Err(error) = first
            .and_then(|()| self.undo_condense())
            .and_then(|()| self.load_vdev_work())
        {
            // Threads must not outlive an open that failed.
            let _ = self.close(PoolState::Active);
            return Err(error);
        }
        self.suspension.set_impatient(false);
        self.resume_finish_replace();
        Ok(())
    }

    fn load(
        self: &Arc<Self>,
        find: &dyn Fn(&VdevConfig) -> Option<Arc<dyn BlockDevice>>,
        options: &OpenOptions,
        is_split_off: bool,
    ) -> Result<()> {
        let name = self.name();
        let mos = self.load_mos()?;
        let directory = self.directory()?;
        let key = |key: &str| -> Result<Option<ObjectId>> {
            Ok(directory.lookup_u64(key.as_bytes())?.map(ObjectId))
        };
        // The configuration in the MOS is authoritative: labels may be of another txg.
        let config_object =
            key("config")?.ok_or_else(|| Error::missing("MOS directory", "config is missing"))?;
        self.config_object.store(config_object.0, Relaxed);
        let mut trusted = self.read_config(config_object)?;
        let guid_sum = trusted.vdev_tree.guid_sum();
        if is_split_off {
            trusted.vdev_tree = self.config.lock().vdev_tree.clone();
        } else if guid_sum != self.uberblock().guid_sum {
            return Err(Error::refused(
                Errno::NXIO,
                format!(
                    "pool {name}: the configuration is not the one its uberblock was written with (a device is missing)"
                ),
            ));
        }
        self.adopt_config(&trusted, find)?;
        self.count_space_as(&directory)?;
        // Blocks of removed vdevs are found through these; anything read later may be one.
        self.load_mappings(&directory)?;
        self.set_all_leaves_missing();
        self.load_classes()?;
        let health = self.vdevs.health();
        // Data that does not need the missing devices can still be read.
        if options.writable && !health.state.is_usable() {
            return Err(Error::refused(
                Errno::NXIO,
                format!("pool {name}: a device that it cannot do without is missing"),
            ));
        }
        self.check_missing_logs(options)?;
        if self.version() >= 5000 {
            self.features.load(&mos, &directory)?;
            self.features.check(&mos, &name, options.writable)?;
        }
        self.load_salt(&directory)?;
        let large = "com.klarasystems:dynamic_gang_header";
        if self.features.is_active(large) {
            self.io.set_large_gang_headers();
        }
        mos.set_settings(self.mos_settings());
        if options.writable {
            self.load_dtls()?;
            self.refuse_removal(&name)?;
            self.open_allocator(&directory)?;
            self.open_removed()?;
            self.open_checkpoint()?;
            // Both kinds of tables decide whether dropping a pointer frees its block, so they are
            // loaded before any free.
            self.clones.load(self)?;
            self.clones.attach(self);
            self.dedup.load(self)?;
            self.dedup.attach(self)?;
        } else {
            self.load_tables();
        }
        self.hooks.load(self)
    }

    /// A pool with missing log devices is writable if the caller gives up their content, or if
    /// this host used the pool last. Then it had opened the pool without them, or finds below that
    /// no log is on them.
    fn check_missing_logs(&self, options: &OpenOptions) -> Result<()> {
        if !options.writable || !self.vdevs.is_any_log_missing() {
            return Ok(());
        }
        if options.without_logs {
            self.vdevs.ignore_missing_logs();
        } else if !options.ours {
            let what = format!("pool {}: a log device is missing", self.name());
            return Err(Error::refused(Errno::NXIO, what));
        }
        Ok(())
    }

    fn load_mos(self: &Arc<Self>) -> Result<Arc<Objset>> {
        let env = self.objset_env("MOS", Settings::mos());
        let mos = Objset::open(env, self.uberblock().root)?;
        if mos.kind() != ObjsetType::Meta {
            return Err(Error::contradiction(
                "MOS",
                "the root object set is not the pool's own",
            ));
        }
        let _ = self.mos.set(mos.clone());
        Ok(mos)
    }

    /// Takes over the configuration in the MOS, except for the paths where devices were found.
    fn adopt_config(
        &self,
        trusted: &PoolConfig,
        find: &dyn Fn(&VdevConfig) -> Option<Arc<dyn BlockDevice>>,
    ) -> Result<()> {
        let mut config = self.config.lock();
        let mut tree = trusted.vdev_tree.clone();
        // The path where a device was found now is better than that of the last import.
        adopt_paths(&mut tree, &config.vdev_tree);
        tree.mark_departed(&config.departed, &|leaf| find(leaf).is_some());
        self.vdevs.reconfigure(&tree, find, false)?;
        config.vdev_tree = tree;
        config.version = trusted.version;
        config.comment.clone_from(&trusted.comment);
        config.compatibility.clone_from(&trusted.compatibility);
        config.errata = trusted.errata;
        config.min_alloc = trusted.min_alloc;
        config.max_alloc = trusted.max_alloc;
        config.has_per_vdev_zaps = trusted.has_per_vdev_zaps;
        config.other.clone_from(&trusted.other);
        // These belong to the label of one device only.
        config.create_txg = None;
        config.top_guid = None;
        config.guid = None;
        config.is_log = false;
        config.is_spare = false;
        Ok(())
    }

    fn load_salt(&self, directory: &Zap) -> Result<()> {
        if let Some(value) = directory.lookup(b"org.illumos:checksum_salt")? {
            let salt: [u8; 32] = match &value {
                ZapValue::Bytes(bytes) => bytes.as_slice().try_into().ok(),
                _ => None,
            }
            .ok_or_else(|| Error::corrupt("MOS directory", "the checksum salt is not 32 bytes"))?;
            self.io
                .set_checksums(ChecksumContext::new(Some(&Salt(salt))));
        }
        Ok(())
    }

    fn open_allocator(self: &Arc<Self>, directory: &Zap) -> Result<()> {
        let mos = self.mos();
        let allocator = Allocator::new(MapOptions {
            large_blocks: self.features.is_enabled("com.delphix:log_spacemap"),
            histogram: self.features.is_enabled("com.delphix:spacemap_histogram"),
            two_words: self.features.is_active("com.delphix:spacemap_v2"),
        });
        allocator.set_tripwire(self.tripwire().clone());
        allocator.attach(Arc::new(MosStore::new(mos)));
        let infos = self.vdev_infos();
        match self.log_objects(directory)? {
            None => {
                for info in infos {
                    allocator.add_vdev(info)?;
                }
            }
            Some(objects) => allocator.open_with_logs(infos, &objects)?,
        }
        // Only a completely loaded allocator is installed: until then, a write fails rather than
        // overwrite used space.
        self.io.set_allocator(allocator.clone());
        let _ = self.allocator.set(allocator);
        if self.writable {
            self.load_thresholds()?;
        }
        // Before the first allocation: a non-allocating vdev must get nothing.
        self.close_non_allocating()
    }

    /// The objects of a pool's log space maps, if it has any.
    pub(crate) fn log_objects(&self, directory: &Zap) -> Result<Option<LogObjects>> {
        let Some(logs) = directory.lookup_u64(b"com.delphix:log_spacemap_zap")? else {
            return Ok(None);
        };
        let mut unflushed = BTreeMap::new();
        let tree = self.config.lock().vdev_tree.clone();
        for (id, top) in tree.children.iter().enumerate() {
            // Pools older than these ZAPs have no logs to flush.
            let Some(top_zap) = top.zap_top.filter(|z| *z != 0) else {
                continue;
            };
            let found = Zap::open(&self.mos().dnode(ObjectId(top_zap))?)?
                .lookup_u64(b"com.delphix:ms_unflushed_phys_txgs")?;
            if let Some(object) = found {
                unflushed.insert(id as u32, ObjectId(object));
            }
        }
        Ok(Some(LogObjects {
            logs: ObjectId(logs),
            unflushed,
        }))
    }

    fn read_config(&self, object: ObjectId) -> Result<PoolConfig> {
        let place = "MOS config object";
        PoolConfig::parse(&self.read_packed(object, place)?, place)
    }

    /// The configuration stored in the MOS, without changes.
    ///
    /// # Errors
    /// It cannot be read, or is not a name-value list.
    pub fn stored_config(&self) -> Result<NvList> {
        let object = self.directory()?.lookup_u64(b"config")?;
        let object = object.ok_or_else(|| Error::missing("MOS directory", "config is missing"))?;
        self.read_packed(ObjectId(object), "MOS config object")
    }

    /// The name-value list in an object.
    fn read_packed(&self, object: ObjectId, place: &'static str) -> Result<NvList> {
        let dnode = self.mos().dnode(object)?;
        if dnode.object_type() != object_type::PACKED_NVLIST {
            return Err(Error::corrupt(
                place,
                format!("object type {}", dnode.object_type()),
            ));
        }
        let len = dnode.with_bonus(|b| b.first_chunk::<8>().map(|c| u64::from_le_bytes(*c)));
        let len = len
            // Checked, because the length comes from disk and is allocated below.
            .filter(|n| *n > 0 && *n <= MAX_CONFIG)
            .ok_or_else(|| Error::corrupt(place, "its length makes no sense"))?;
        let mut bytes = vec![0; len as usize];
        dnode.read_at(0, &mut bytes)?;
        NvList::decode(&bytes).map_err(|e| e.at(place))
    }

    /// The spares (`spares`) or cache devices (`l2cache`) that belong to the pool.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn aux_devices(&self, list: &str) -> Result<Vec<VdevConfig>> {
        let lists = self.aux_lists(list)?;
        let parse = |device| VdevConfig::parse(device, AUX);
        lists.iter().map(parse).collect()
    }

    /// The same, in their stored form.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn aux_lists(&self, list: &str) -> Result<Vec<NvList>> {
        let Some(object) = self.directory()?.lookup_u64(list.as_bytes())? else {
            return Ok(Vec::new());
        };
        match self.read_packed(ObjectId(object), AUX)?.get(list) {
            Some(NvValue::ListArray(devices)) => Ok(devices.clone()),
            _ => Ok(Vec::new()),
        }
    }
}

/// A raidz that is being expanded needs its progress before the first block is read.
fn load_reflow(name: &str, vdevs: &Vdevs, uberblock: &Uberblock, writable: bool) -> Result<()> {
    let scratch = match uberblock.reflow_state() {
        ReflowState::ScratchValid => true,
        ReflowState::Unknown(state) => {
            return Err(Error::unsupported(
                "uberblock",
                format!("state {state} of a raidz expansion"),
            ));
        }
        _ => false,
    };
    let expanding = vdevs.set_reflow(uberblock.reflow_offset(), scratch);
    if writable && expanding {
        return Err(Error::unsupported(
            format!("pool {name}"),
            "writing while a raidz vdev is being expanded (it can be opened with readonly=on)",
        ));
    }
    Ok(())
}

/// Refuses a pool that another host uses.
fn check_owner(env: &Environment, labels: &PoolConfig, ours: bool) -> Result<()> {
    if labels.state != PoolState::Active || ours {
        return Ok(());
    }
    let why = if labels.hostid != 0 && labels.hostid != env.host.id {
        let host = labels.hostname.as_deref().unwrap_or("unknown");
        format!(
            "was last used by another system (hostname {host}, hostid {:x})",
            labels.hostid
        )
    } else if labels.hostid == 0 && env.host.id != 0 {
        "was last used by a system without a hostid".to_owned()
    } else if env.host.kernel_zfs {
        "may be imported in this system's kernel".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::refused(
        Errno::BUSY,
        format!(
            "pool {} {why}; open it with -f if it is not in use there any more",
            labels.name
        ),
    ))
}

/// Sets the paths of leaves to those where they were found.
fn adopt_paths(tree: &mut VdevConfig, found: &VdevConfig) {
    let mut paths = BTreeMap::new();
    found.visit(&mut |n| {
        if let Some(path) = &n.path {
            paths.insert(n.guid, path.clone());
        }
    });
    tree.visit_mut(&mut |n| {
        if let Some(path) = paths.get(&n.guid) {
            n.path = Some(path.clone());
        }
    });
}

/// Refuses pools that this program cannot read.
fn check_known(labels: &PoolConfig) -> Result<()> {
    let name = &labels.name;
    if !is_spa_version(labels.version) {
        return Err(Error::unsupported(
            format!("pool {name}"),
            format!("version {}", labels.version),
        ));
    }
    let unknown: Vec<_> = labels
        .features_for_read
        .iter()
        .filter(|g| zuse_format::feature::by_guid(g).is_none_or(|f| !f.can_read))
        .cloned()
        .collect();
    if !unknown.is_empty() {
        return Err(Error::unknown_features(format!("pool {name}"), &unknown));
    }
    Ok(())
}

/// Refuses to write to a pool that another host may be writing to.
fn check_writing(
    env: &Environment,
    labels: &PoolConfig,
    uberblock: &Uberblock,
    options: &OpenOptions,
) -> Result<()> {
    let name = &labels.name;
    if !options.force {
        check_owner(env, labels, options.ours)?;
        if uberblock.mmp_delay != 0 && labels.state == PoolState::Active {
            return Err(Error::refused(
                Errno::BUSY,
                format!("pool {name} is under multihost protection and was not exported"),
            ));
        }
    }
    Ok(())
}
