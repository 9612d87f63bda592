//! A dataset in memory: a head or a snapshot, with its open object set and its accounting.
//!
//! There is at most one per dataset object. A mount of a head owns it ([`Dataset::own`]), and owned
//! heads are not destroyed. A rollback gives the dataset a new object set, so the owner first stops
//! all work on the old one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use zuse_base::sync::{Mutex, RankedMutex, RwLock};

use zuse_base::tripwire::at;
use zuse_base::{Errno, Error, ObjectId, Result, Txg};
use zuse_dmu::{Dnode, MetaShape, Objset, ObjsetEnv, Tx};
use zuse_format::dsl::{DS_FLAG_INCONSISTENT, DslDatasetPhys};
use zuse_format::{BlockPointer, ObjsetType};
use zuse_io::DatasetKey;

use crate::accounting::HeadAccounting;
use crate::context::Dsl;
use crate::dir::DirState;
use crate::meta::ds_of;

/// The kind of a dataset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatasetKind {
    /// A filesystem.
    Filesystem,
    /// A volume.
    Volume,
    /// A snapshot of either.
    Snapshot,
    /// The record of a snapshot for incremental sends: its identity and figures.
    Bookmark,
}

/// A head or snapshot.
pub struct Dataset {
    pub(crate) dsl: Arc<Dsl>,
    pub(crate) dnode: Arc<Dnode>,
    pub(crate) accounting: Arc<HeadAccounting>,
    objset: RankedMutex<Option<Arc<Objset>>, 200>,
    owned: AtomicBool,
    /// The intent log is replayed, at least in memory.
    replayed: AtomicBool,
    snapshot: bool,
    /// A raw stream is received into it, so its object set is opened without a key.
    raw: AtomicBool,
    /// It has a name of 256 bytes or more: its next sync makes the feature active.
    longname: AtomicBool,
    /// Its intent log is being claimed without its key, in a txg that is being written.
    claimed: AtomicBool,
    /// Its own directory first, then upward to the root.
    pub(crate) chain: RwLock<Vec<Arc<DirState>>>,
    pub(crate) referenced: AtomicU64,
    pub(crate) refquota: AtomicU64,
    pub(crate) in_flight: [AtomicU64; 4],
    /// Progress of a receive into it, by txg, until it is written.
    pub(crate) progress: Mutex<[Option<crate::ReceiveProgress>; 4]>,
    /// Txgs in which it is noted as dirty already.
    noted: [AtomicU64; 4],
    /// Its intent log, created at the first use of the head.
    pub(crate) log: OnceLock<Arc<crate::zil::Log>>,
}

/// Ownership of a head; ends when dropped.
pub struct Owner(Arc<Dataset>);

impl Owner {
    /// The owned dataset.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.owned.store(false, Relaxed);
    }
}

impl Dsl {
    /// A dataset (`pool/a/b`) or snapshot (`pool/a/b@s`) by name.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn dataset(&self, name: &str) -> Result<Arc<Dataset>> {
        let object = {
            let _config = self.read_config();
            self.find_ds(name)?
        };
        self.dataset_by_object(ObjectId(object))
    }

    /// A dataset by its object number.
    ///
    /// # Errors
    /// The object is no dataset.
    pub fn dataset_by_object(&self, object: ObjectId) -> Result<Arc<Dataset>> {
        if let Some(there) = self
            .map(&self.registry.datasets)
            .get(&object.0)
            .and_then(Weak::upgrade)
        {
            return Ok(there);
        }
        let meta = self.meta()?;
        let dnode = meta.dnode(object.0)?;
        let phys = ds_of(&dnode)?;
        let made = Arc::new(Dataset {
            dsl: self.arc()?,
            accounting: Arc::new(HeadAccounting::new(
                meta.io.clone(),
                Some(object.0),
                phys.prev_snap_txg,
            )),
            objset: RankedMutex::new(None),
            owned: AtomicBool::new(false),
            replayed: AtomicBool::new(false),
            snapshot: phys.is_snapshot(),
            raw: AtomicBool::new(false),
            claimed: AtomicBool::new(false),
            longname: AtomicBool::new(false),
            chain: RwLock::new(self.dir_chain(phys.dir)?),
            referenced: AtomicU64::new(phys.referenced_bytes),
            refquota: AtomicU64::new(self.number_of(object.0, "refquota")?),
            in_flight: Default::default(),
            progress: Mutex::default(),
            noted: Default::default(),
            log: OnceLock::new(),
            dnode,
        });
        // Another thread may have been faster. Two handles would have two object sets.
        let mut all = self.map(&self.registry.datasets);
        if let Some(there) = all.get(&object.0).and_then(Weak::upgrade) {
            drop(all);
            return Ok(there);
        }
        // Dropped datasets leave their entries, which are swept from time to time.
        if all.len() % 1024 == 1023 {
            all.retain(|_, w| w.strong_count() > 0);
        }
        all.insert(object.0, Arc::downgrade(&made));
        Ok(made)
    }

    /// A dataset that is in memory already.
    pub(crate) fn held(&self, object: u64) -> Option<Arc<Dataset>> {
        self.map(&self.registry.datasets)
            .get(&object)
            .and_then(Weak::upgrade)
    }

    pub(crate) fn all_held(&self) -> Vec<Arc<Dataset>> {
        self.map(&self.registry.datasets)
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Refuses if a dataset has an owner.
    pub(crate) fn check_idle(&self, object: u64) -> Result<()> {
        match self.held(object) {
            Some(ds) if ds.is_owned() => Err(Error::refused(
                Errno::BUSY,
                format!("dataset '{}' is busy", self.ds_name(object)?),
            )),
            _ => Ok(()),
        }
    }
}

impl Dataset {
    /// The dataset layer.
    pub fn dsl(&self) -> &Arc<Dsl> {
        &self.dsl
    }

    /// Notes a name of 256 bytes or more, made in a transaction that is not over. The feature
    /// `longname` becomes active in the same txg.
    pub fn note_longname(&self) {
        self.longname.store(true, Relaxed);
    }

    pub(crate) fn has_longname(&self) -> bool {
        self.longname.load(Relaxed)
    }

    /// Its object number in the MOS.
    pub fn object(&self) -> ObjectId {
        self.dnode.object()
    }

    /// Its current full name.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn name(&self) -> Result<String> {
        let _config = self.dsl.read_config();
        self.dsl.ds_name(self.object().0)
    }

    /// Whether it is a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.snapshot
    }

    /// Its bonus, parsed.
    ///
    /// # Errors
    /// It was destroyed.
    pub fn phys(&self) -> Result<DslDatasetPhys> {
        ds_of(&self.dnode)
    }

    /// Identity in streams.
    ///
    /// # Errors
    /// It was destroyed.
    pub fn guid(&self) -> Result<u64> {
        Ok(self.phys()?.guid)
    }

    /// Whether it has an owner.
    pub fn is_owned(&self) -> bool {
        self.owned.load(Relaxed)
    }

    /// Takes ownership: a mount, a volume in use.
    ///
    /// # Errors
    /// `Refused(BUSY)` if it has another owner.
    pub fn own(self: &Arc<Self>) -> Result<Owner> {
        if self.owned.swap(true, Relaxed) {
            return Err(Error::refused(
                Errno::BUSY,
                format!("dataset '{}' is busy", self.name()?),
            ));
        }
        Ok(Owner(self.clone()))
    }

    /// Filesystem, volume or snapshot.
    ///
    /// # Errors
    /// The objset block cannot be read.
    pub fn kind(&self) -> Result<DatasetKind> {
        if self.snapshot {
            return Ok(DatasetKind::Snapshot);
        }
        Ok(if self.objset_type()? == ObjsetType::Zvol {
            DatasetKind::Volume
        } else {
            DatasetKind::Filesystem
        })
    }

    /// Whether it is a volume or a snapshot of one.
    ///
    /// # Errors
    /// The objset block cannot be read.
    pub fn is_volume(&self) -> Result<bool> {
        Ok(self.objset_type()? == ObjsetType::Zvol)
    }

    /// The type of its object set; reads at most the objset block.
    pub(crate) fn objset_type(&self) -> Result<ObjsetType> {
        if let Some(os) = &*self.objset.lock() {
            return Ok(os.kind());
        }
        let phys = self.phys()?;
        if phys.bp.is_hole() {
            return Ok(ObjsetType::Zfs);
        }
        let place = zuse_base::Place::new(format!("dataset {}, objset block", self.object().0));
        let block = self.dsl.meta()?.io.read(&phys.bp, &place)?;
        let number = zuse_format::field::u64_at(block.bytes(), zuse_format::objset::OBJSET_TYPE_AT);
        ObjsetType::from_number(number)
            .ok_or_else(|| Error::corrupt(place, format!("object set of type {number}")))
    }

    /// Its object set, opened at the first call.
    ///
    /// # Errors
    /// `Refused(ACCES)` for encrypted datasets whose key is not loaded. `Refused(NXIO)` if the
    /// content is not usable, because a receive or a destroy has begun. Or the objset block cannot
    /// be read.
    pub fn objset(&self) -> Result<Arc<Objset>> {
        self.check_consistent()?;
        self.objset_received()
    }

    fn check_consistent(&self) -> Result<()> {
        if self.phys()?.flags & DS_FLAG_INCONSISTENT != 0 {
            return Err(Error::refused(
                Errno::NXIO,
                format!(
                    "dataset '{}' is inconsistent: a receive or destroy was begun",
                    self.any_name()
                ),
            ));
        }
        Ok(())
    }

    /// A name for messages: a rename may be under way.
    fn any_name(&self) -> String {
        let number = self.object().0;
        self.dsl
            .ds_name(number)
            .unwrap_or_else(|_| format!("dataset {number}"))
    }

    /// Its object set, even if it is only partly received.
    ///
    /// # Errors
    /// `Refused(ACCES)` without the key of an encrypted dataset; or it cannot be read.
    pub fn objset_received(&self) -> Result<Arc<Objset>> {
        let mut slot = self
            .dsl
            .spa()?
            .tripwire()
            .hold(at::SLOT, self.objset.lock());
        if let Some(os) = &*slot {
            return Ok(os.clone());
        }
        let os = self.open_content(true)?;
        *slot = Some(os.clone());
        Ok(os)
    }

    /// Its object set. For an encrypted dataset without its key, only the cleartext parts
    /// ([`Objset::is_locked`]).
    ///
    /// # Errors
    /// As [`Self::objset`], but for the key.
    pub fn objset_in_clear(&self) -> Result<Arc<Objset>> {
        self.check_consistent()?;
        self.objset_received_in_clear()
    }

    /// As [`Self::objset_in_clear`], even if it is only partly received.
    ///
    /// # Errors
    /// As [`Self::objset_received`], but for the key.
    pub fn objset_received_in_clear(&self) -> Result<Arc<Objset>> {
        match self.objset_received() {
            // Not kept in the slot: once the key is loaded, the next caller opens it with that.
            Err(e) if e.is(Errno::ACCES) => self.open_content(false),
            other => other,
        }
    }

    /// Begins or ends a raw receive into it. The open object set is dropped.
    pub(crate) fn set_raw(&self, raw: bool) {
        if self.raw.swap(raw, Relaxed) != raw {
            self.close_objset();
        }
    }

    /// Its object set, for changing only the header of its intent log. An encrypted one is opened
    /// without its key until the txg is on disk, because no command could have loaded the key yet.
    /// The header is in no MAC.
    pub(crate) fn objset_to_claim(&self) -> Result<Arc<Objset>> {
        if self.dsl.is_encrypted(self.object().0)? {
            self.set_raw(true);
            self.claimed.store(true, Relaxed);
        }
        self.objset()
    }

    /// The txg that claimed its log is on disk.
    pub(crate) fn end_claim(&self) {
        if self.claimed.swap(false, Relaxed) {
            self.set_raw(false);
        }
    }

    /// Levels and log2 of the indirect blocks of its meta dnode.
    pub(crate) fn meta_shape(&self) -> Result<(u8, u8)> {
        let phys = self.phys()?;
        let name = self.any_name();
        let place = format!("{name}, objset block");
        let block = self.dsl.meta()?.io.read(&phys.bp, &place)?;
        let objset =
            zuse_format::ObjsetPhys::parse(block.bytes()).map_err(|e| e.at(place.as_str()))?;
        Ok((objset.meta_dnode.levels, objset.meta_dnode.indirect_shift))
    }

    fn open_content(&self, with_key: bool) -> Result<Arc<Objset>> {
        if self.raw.load(Relaxed) {
            let root = self.phys()?.bp;
            return Objset::open_raw(self.env(self.any_name(), None)?, root);
        }
        let phys = self.phys()?;
        let name = self.any_name();
        let number = self.object().0;
        let key = if with_key && self.dsl.is_encrypted(number)? {
            Some(self.dsl.dataset_key(number)?)
        } else {
            None
        };
        if phys.bp.is_hole() {
            return Err(Error::missing(name, "the dataset has no object set"));
        }
        Objset::open(self.env(name, key)?, phys.bp)
    }

    fn env(&self, name: String, key: Option<Arc<DatasetKey>>) -> Result<ObjsetEnv> {
        let spa = self.dsl.spa()?;
        Ok(ObjsetEnv {
            io: spa.io().clone(),
            work: spa.work().clone(),
            place: name.into(),
            ledger: self.accounting.clone(),
            meter: spa.meter().clone(),
            settings: self.dsl.settings_of(self.object().0)?,
            key,
        })
    }

    /// Creates the object set of a new dataset, in syncing context.
    pub(crate) fn create_objset(
        self: &Arc<Self>,
        kind: ObjsetType,
        name: String,
        tx: &Tx,
    ) -> Result<Arc<Objset>> {
        let object = self.object().0;
        let key = if self.dsl.is_encrypted(object)? {
            Some(self.dsl.dataset_key(object)?)
        } else {
            None
        };
        let os = Objset::create(self.env(name, key)?, kind, tx);
        *self.objset.lock() = Some(os.clone());
        self.note_dirty(tx.txg());
        Ok(os)
    }

    /// As [`Self::create_objset`], for a raw stream.
    pub(crate) fn create_objset_raw(
        self: &Arc<Self>,
        kind: ObjsetType,
        name: String,
        shape: &MetaShape,
        tx: &Tx,
    ) -> Result<Arc<Objset>> {
        let os = Objset::create_raw(self.env(name, None)?, kind, shape, tx);
        *self.objset.lock() = Some(os.clone());
        self.note_dirty(tx.txg());
        Ok(os)
    }

    pub(crate) fn open_objset(&self) -> Option<Arc<Objset>> {
        self.objset.lock().clone()
    }

    /// Drops the object set: the dataset has another content now.
    pub(crate) fn close_objset(&self) {
        *self.objset.lock() = None;
    }

    /// Drops an object set that was opened with keys about to be unloaded; false if it is in use.
    pub(crate) fn forget_keys(&self) -> bool {
        let mut slot = self.objset.lock();
        // Another holder could go on reading with the key.
        let used = self.is_owned() || slot.as_ref().is_some_and(|os| Arc::strong_count(os) > 1);
        if !used {
            *slot = None;
        }
        !used
    }

    /// Adds this dataset to the sync of that txg.
    pub(crate) fn note_dirty(self: &Arc<Self>, txg: Txg) {
        let slot = txg.slot::<4>();
        // Most changes end here, without a lock.
        if self.noted[slot].load(Relaxed) == txg.0 {
            return;
        }
        let mut dirty = self.dsl.map(&self.dsl.registry.dirty[slot]);
        self.noted[slot].store(txg.0, Relaxed);
        dirty.entry(self.object().0).or_insert_with(|| self.clone());
    }

    /// Whether a directory is its own or an ancestor of it.
    pub(crate) fn is_below(&self, dir: &Arc<DirState>) -> bool {
        self.chain.read().iter().any(|d| Arc::ptr_eq(d, dir))
    }

    /// Takes effective properties over into memory.
    pub(crate) fn refresh(&self) -> Result<()> {
        let object = self.object().0;
        self.refquota
            .store(self.dsl.number_of(object, "refquota")?, Relaxed);
        let chain = self.dsl.dir_chain(self.phys()?.dir)?;
        *self.chain.write() = chain;
        if let Some(os) = self.open_objset() {
            os.set_settings(self.dsl.settings_of(object)?);
        }
        if let Some(log) = self.log.get() {
            log.refresh(self);
        }
        Ok(())
    }

    /// Waits until a txg is on disk.
    ///
    /// # Errors
    /// The pool is suspended.
    pub fn wait_synced(&self, txg: Txg) -> Result<()> {
        self.dsl.spa()?.wait_synced(txg)
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.replayed.load(Relaxed)
    }

    pub(crate) fn set_replayed(&self) {
        self.replayed.store(true, Relaxed);
    }

    /// The root pointer on disk.
    ///
    /// # Errors
    /// It was destroyed.
    pub fn root(&self) -> Result<BlockPointer> {
        Ok(self.phys()?.bp)
    }
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dataset({})", self.object().0)
    }
}
