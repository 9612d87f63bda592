//! The layer as a whole ([`Dsl`]), and the context of a sync task, in which the MOS changes
//! ([`Ctx`]).

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use zuse_base::sync::{Mutex, RankedMutexGuard, RankedReadGuard, RankedRwLock, RwLock};

use zuse_base::tripwire::{Watched, at};
use zuse_base::{Errno, Error, Result};
use zuse_dmu::{Objset, Tx};

use crate::meta::Meta;
use crate::pending::Pending;
use crate::pool_access::{PoolSpace, Spa};
use crate::registry::{MapLock, Registry};

/// Fills a new object set: the master node of a filesystem, the objects of a volume.
pub type Fill = Box<dyn FnOnce(&Arc<Objset>, &Tx) -> Result<()> + Send>;

/// Content, properties and encryption of a new pool's own filesystem.
type RootPlan = (
    Fill,
    Vec<(String, zuse_format::property::PropertyValue)>,
    Option<crate::NewEncryption>,
);

/// State that exists only while a pool is open.
pub(crate) struct Open {
    pub spa: Spa,
    pub meta: Meta,
}

/// The dataset layer of one pool.
pub struct Dsl {
    pub(crate) me: Weak<Dsl>,
    pub(crate) open: OnceLock<Open>,
    /// Datasets and directories in memory.
    pub(crate) registry: Registry,
    /// Locked for writing while a sync task runs, and for reading by readers of several objects
    /// together.
    pub(crate) config: RankedRwLock<(), 100>,
    /// State that the sync thread keeps between steps.
    pub(crate) pending: Pending,
    /// Scrub and resilver.
    pub(crate) scan: crate::scan::Scan,
    /// The user id of the creator of new datasets.
    pub(crate) creator: AtomicU64,
    /// Prefix of every mount point while the pool is open; empty for none.
    pub(crate) altroot: RwLock<Arc<str>>,
    /// The shared empty list of block pointers, 0 if not known.
    pub(crate) empty_list: AtomicU64,
    /// Decoded metadata.
    pub(crate) metadata_cache: Arc<crate::metadata_cache::MetadataCache>,
    pub(crate) root: Mutex<Option<RootPlan>>,
    /// Loaded keys of encrypted datasets. A leaf: nothing is locked or read under it.
    pub(crate) keyring: Mutex<crate::keyring::Keyring>,
    /// Whether there are key objects of version 0 ("errata 3"), once this was asked.
    pub(crate) old_keys: OnceLock<bool>,
    /// The pool's space as of the last synced txg.
    pub(crate) space: RwLock<PoolSpace>,
}

impl Dsl {
    /// A layer without a pool yet, for import.
    pub fn new() -> Arc<Self> {
        Self::with_root(None)
    }

    /// A layer for a pool to be created. `fill` creates the root filesystem's content and `props`
    /// are set on it. With `encryption` it is encrypted.
    pub fn for_create(
        fill: Fill,
        props: Vec<(String, zuse_format::property::PropertyValue)>,
        encryption: Option<crate::NewEncryption>,
    ) -> Arc<Self> {
        Self::with_root(Some((fill, props, encryption)))
    }

    fn with_root(root: Option<RootPlan>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            open: OnceLock::new(),
            registry: Registry::default(),
            config: RankedRwLock::new(()),
            pending: Pending::default(),
            scan: Default::default(),
            creator: AtomicU64::new(0),
            altroot: RwLock::new("".into()),
            empty_list: AtomicU64::new(0),
            metadata_cache: Arc::default(),
            root: Mutex::new(root),
            keyring: Mutex::default(),
            old_keys: OnceLock::new(),
            space: RwLock::default(),
        })
    }

    pub(crate) fn arc(&self) -> Result<Arc<Self>> {
        self.me.upgrade().ok_or_else(not_open)
    }

    pub(crate) fn open(&self) -> Result<&Open> {
        self.open.get().ok_or_else(not_open)
    }

    pub(crate) fn meta(&self) -> Result<&Meta> {
        Ok(&self.open()?.meta)
    }

    pub(crate) fn spa(&self) -> Result<&Spa> {
        Ok(&self.open()?.spa)
    }

    /// The pool's space as of the last synced txg. Reading it takes no lock of the allocator.
    pub(crate) fn space(&self) -> PoolSpace {
        *self.space.read()
    }

    pub(crate) fn note_space(&self) {
        if let Some(open) = self.open.get() {
            *self.space.write() = open.spa.space();
        }
    }

    /// A map of in-memory objects, for look-ups or changes.
    pub(crate) fn map<'a, T>(
        &'a self,
        map: &'a MapLock<T>,
    ) -> Watched<'a, RankedMutexGuard<'a, T>> {
        let wire = self.open.get().map(|open| open.spa.tripwire());
        Watched::of(wire, at::MAPS, map.lock())
    }

    pub(crate) fn read_config(&self) -> RankedReadGuard<'_, ()> {
        self.config.read()
    }

    pub(crate) fn ctx<'a>(&'a self, tx: &'a Tx) -> Result<Ctx<'a>> {
        let open = self.open()?;
        Ok(Ctx {
            dsl: self,
            meta: &open.meta,
            spa: &open.spa,
            tx,
            txg: tx.txg().0,
        })
    }

    /// Runs a sync task: `check` first, then `apply`, in one txg; returns when it is on disk. A
    /// check refused with EAGAIN (a second snapshot in one txg) is retried in later txgs.
    pub(crate) fn task<R: Send + 'static>(
        &self,
        check: impl FnMut(&Ctx<'_>) -> Result<()> + Send + 'static,
        apply: impl FnOnce(&Ctx<'_>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let spa = self.spa()?;
        if !spa.is_writable() {
            return Err(Error::refused(Errno::ROFS, "pool is read-only"));
        }
        let (dsl_check, dsl_apply) = (self.arc()?, self.arc()?);
        let mut check = check;
        spa.sync_task(
            move |tx| check(&dsl_check.ctx(tx)?),
            move |tx| {
                let config = dsl_apply.config.write();
                let _config = dsl_apply.spa()?.tripwire().hold(at::CONFIG, config);
                let ctx = dsl_apply.ctx(tx)?;
                let result = apply(&ctx);
                // What it knows of branches is of this task only.
                ctx.forget_branches();
                let noted = ctx.write_history();
                result.and_then(|made| noted.map(|()| made))
            },
        )
    }
}

fn not_open() -> Error {
    Error::refused(Errno::NXIO, "no pool is open here")
}

/// The context for changing the MOS in one txg.
pub(crate) struct Ctx<'a> {
    pub dsl: &'a Dsl,
    pub meta: &'a Meta,
    pub spa: &'a Spa,
    pub tx: &'a Tx,
    pub txg: u64,
}

impl Ctx<'_> {
    pub fn enabled(&self, guid: &str) -> bool {
        self.spa.feature_enabled(guid)
    }

    pub fn feature_add(&self, guid: &str, delta: i64) -> Result<()> {
        self.spa.feature_add(self.tx, guid, delta)
    }

    pub fn free(&self, object: u64) -> Result<()> {
        self.meta.mos.free(self.tx, zuse_base::ObjectId(object))?;
        self.meta.metadata_cache.forget_object(object);
        Ok(())
    }

    /// A random number below 2^56, not 0.
    pub fn id56(&self) -> u64 {
        (self.spa.random() >> 8).max(1)
    }

    /// A random number, not 0.
    pub fn guid(&self) -> u64 {
        self.spa.random().max(1)
    }

    /// Creation txg for a new object: objects of the pool's first txg count as old as `$ORIGIN`.
    pub fn birth_txg(&self) -> u64 {
        if self.txg <= 4 { 1 } else { self.txg }
    }

    /// Gives an object extension entries.
    pub fn zapify(&self, object: u64) -> Result<crate::table::Table> {
        self.zapify_with(object, 0)
    }

    /// As [`Self::zapify`]. If there are no entries yet they are created as a fat ZAP, with blocks
    /// of that log2 size.
    pub fn zapify_with(&self, object: u64, block_shift: u32) -> Result<crate::table::Table> {
        let dnode = self.meta.dnode(object)?;
        if !crate::meta::is_zapified(&dnode) {
            let options = zuse_dmu::zap::ZapOptions {
                block_shift,
                ..Default::default()
            };
            dnode.set_type(self.tx, zuse_format::object_type::ZAP_METADATA)?;
            zuse_dmu::zap::Zap::create_in(&dnode, self.tx, &options)?;
            self.feature_add(EXTENSIBLE, 1)?;
            self.meta.metadata_cache.forget_object(object);
        }
        crate::table::Table::of(dnode)
    }

    /// Frees a directory or dataset object.
    pub fn free_extended(&self, object: u64) -> Result<()> {
        if crate::meta::is_zapified(&*self.meta.dnode(object)?) {
            self.feature_add(EXTENSIBLE, -1)?;
        }
        self.free(object)
    }

    /// Adds to an integer set, which is created when first needed; returns its object.
    pub fn add_to_set(&self, set: u64, object_type: u8, value: u64) -> Result<u64> {
        let set = if set == 0 {
            crate::table::Table::create(&self.meta.mos, self.tx, object_type, 0)?
        } else {
            set
        };
        self.meta.table(set)?.add_int(self.tx, value)?;
        Ok(set)
    }
}

/// Feature behind extension entries.
pub(crate) const EXTENSIBLE: &str = "com.delphix:extensible_dataset";
