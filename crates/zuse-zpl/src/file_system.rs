//! One mounted dataset or snapshot.
//!
//! ```text
//!   names, data, attributes, xattrs     directory.rs create.rs remove.rs rename.rs file.rs …
//!      FileSystem ── ZnodeCache ── Znode
//!   AttributeStore (SA)    Zap (directories)    Dnode (data)
//! ```
//! Budgets: `lookup` is one ZAP look-up. `getattr` does no I/O while the object is in memory or its
//! dnode block is cached. `create` is one transaction, one dnode, one ZAP addition and one edit of
//! the directory's bonus.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use zuse_base::sync::{Mutex, RwLock};

use zuse_base::{Errno, Error, ObjectId, Place, Result, Timestamp, Txg};
use zuse_dmu::sa::SaTable;
use zuse_dmu::zap::{MatchType, Zap, normalize};
use zuse_dmu::{IntentLog, Objset};
use zuse_format::objset::OBJSET_PROJECT_QUOTA;
use zuse_format::{DnodeView, ObjsetType, object_type};

use crate::attributes::{AttributeStore, Attributes};
use crate::backing::{Backing, MountProps, PoolFeatures};
use crate::deferred::Deferred;
use crate::listing::{Change, Changes};
use crate::znode::{Znode, ZnodeCache};
use crate::{estimate, mode};

/// Object of the master node.
pub const MASTER_NODE: ObjectId = ObjectId(1);
/// Newest ZPL version.
pub const ZPL_VERSION: u64 = 5;

/// Pending access times, at most.
const PENDING_ATIMES: usize = 512;

/// How names compare (`casesensitivity`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CaseSensitivity {
    /// Byte for byte.
    #[default]
    Sensitive,
    /// Case is kept but does not distinguish names.
    Insensitive,
    /// Case-sensitive, unless a client requests otherwise.
    Mixed,
}

impl CaseSensitivity {
    /// By its number on disk.
    pub fn from_number(n: u64) -> Option<Self> {
        [Self::Sensitive, Self::Insensitive, Self::Mixed]
            .get(usize::try_from(n).ok()?)
            .copied()
    }
}

/// A mounted file system.
pub struct FileSystem {
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) objset: Arc<Objset>,
    pub(crate) store: AttributeStore,
    pub(crate) cache: Arc<ZnodeCache>,
    pub(crate) version: u64,
    pub(crate) normflags: u64,
    pub(crate) case: CaseSensitivity,
    pub(crate) utf8_only: bool,
    root: ObjectId,
    root_znode: Mutex<Option<Arc<Znode>>>,
    pub(crate) unlinked: Option<Zap>,
    /// Objects to add to the unlinked set when the txg closes.
    deferred: Option<Arc<Deferred>>,
    pub(crate) rename: Mutex<()>,
    pub(crate) ahead: crate::ahead::Ahead,
    pub(crate) ready: crate::listing::Ready,
    pub(crate) changes: Changes,
    pub(crate) xattrs_ahead: Arc<crate::xattr::ahead::XattrsAhead>,
    pending_atimes: Mutex<HashMap<u64, Arc<Znode>>>,
    pub(crate) quotas: crate::quota::Quotas,
    unlink_observers: RwLock<Vec<Weak<dyn UnlinkObserver>>>,
    /// The log for the records of operations.
    pub(crate) log: OnceLock<Arc<dyn IntentLog>>,
    /// A copy, because asking the pool takes a search per feature.
    features: RwLock<PoolFeatures>,
    /// Whether a record of the log is being applied.
    pub(crate) replaying: AtomicBool,
}

pub(crate) fn refuse<T>(errno: Errno, what: &str) -> Result<T> {
    Err(Error::refused(errno, what))
}

/// The file system's properties in the master node.
struct Master {
    entries: Zap,
    place: Place,
}

impl Master {
    fn open(objset: &Arc<Objset>) -> Result<Self> {
        let master = objset.dnode(MASTER_NODE).map_err(|e| {
            if e.is(Errno::NOENT) {
                return Error::corrupt(objset.place(), "the file system was never formatted");
            }
            e
        })?;
        Ok(Self {
            entries: Zap::open(&master)?,
            place: objset.place(),
        })
    }

    fn needed(&self, key: &str) -> Result<u64> {
        self.entries.lookup_u64(key.as_bytes())?.ok_or_else(|| {
            Error::missing(self.place.clone(), format!("the master node has no {key}"))
        })
    }

    fn optional(&self, key: &str) -> Result<u64> {
        let value = self.entries.lookup_u64(key.as_bytes());
        value.map(|v| v.unwrap_or(0))
    }

    /// How names compare: normal form, case, and case folding.
    fn names(&self) -> Result<(u64, CaseSensitivity, u64)> {
        let normalization = self.optional("normalization")?;
        let case = self.optional("casesensitivity")?;
        let case = CaseSensitivity::from_number(case).ok_or_else(|| {
            Error::unsupported(self.place.clone(), format!("casesensitivity {case}"))
        })?;
        let fold = if case == CaseSensitivity::Sensitive {
            0
        } else {
            normalize::TOUPPER
        };
        if !matches!(
            normalization,
            0 | normalize::NFD | normalize::NFKD | normalize::NFC | normalize::NFKC
        ) {
            return Err(Error::unsupported(
                self.place.clone(),
                format!("normalization {normalization:#x}"),
            ));
        }
        Ok((normalization, case, fold))
    }
}

impl FileSystem {
    /// Opens the file system of a dataset or snapshot. If it is writable, objects that lost their
    /// last name before the last unmount (or crash) are freed.
    ///
    /// # Errors
    /// The master node or a table does not parse; `Unsupported` for a newer ZPL version or unknown
    /// normalisation.
    pub fn open(backing: Arc<dyn Backing>) -> Result<Arc<Self>> {
        let objset = backing.objset().clone();
        let place = objset.place();
        if objset.kind() != ObjsetType::Zfs {
            return Err(Error::unsupported(
                place,
                "mounting something that is no file system",
            ));
        }
        let master = Master::open(&objset)?;
        let version = master.needed("VERSION")?;
        if version == 0 || version > ZPL_VERSION {
            return Err(Error::unsupported(place, format!("ZPL version {version}")));
        }
        let sa = if version >= 5 {
            SaTable::open(&objset, ObjectId(master.needed("SA_ATTRS")?))?
        } else {
            SaTable::legacy(&objset)
        };
        let (normalization, case, fold) = master.names()?;
        let root = ObjectId(master.needed("ROOT")?);
        let unlinked = match master.optional("DELETE_QUEUE")? {
            0 => None,
            n => Some(Zap::open(&objset.dnode(ObjectId(n))?)?),
        };
        let fs = Arc::new(Self {
            store: AttributeStore::new(sa, version),
            cache: ZnodeCache::new(),
            version,
            normflags: normalization | fold,
            case,
            utf8_only: master.optional("utf8only")? != 0 || normalization != 0,
            root,
            root_znode: Mutex::new(None),
            deferred: unlinked.clone().map(Deferred::new),
            unlinked,
            rename: Mutex::new(()),
            ahead: crate::ahead::Ahead::default(),
            ready: crate::listing::Ready::default(),
            changes: Changes::default(),
            xattrs_ahead: Arc::default(),
            pending_atimes: Mutex::default(),
            quotas: crate::quota::Quotas::default(),
            unlink_observers: RwLock::default(),
            log: OnceLock::new(),
            features: RwLock::new(backing.features()),
            replaying: AtomicBool::new(false),
            objset,
            backing,
        });
        let root = fs.znode(root)?;
        if !root.is_dir() {
            return Err(Error::corrupt(fs.place(), "the root is not a directory"));
        }
        // Held as long as it is open: each path begins there.
        *fs.root_znode.lock() = Some(root);
        let in_use = fs.backing.unlinked_in_use();
        // The previous process of the mount has them open still. They are freed after they were
        // taken over.
        if in_use.is_some() {
            fs.keep_unlinked_objects();
        }
        if !fs.is_read_only() {
            // An unreadable set is no reason to refuse the rest.
            let _ = fs.drain_but(in_use.as_deref());
        }
        Ok(fs)
    }

    /// Its name for messages.
    pub fn place(&self) -> Place {
        self.objset.place()
    }

    /// The dataset that it is mounted from.
    pub fn backing(&self) -> &Arc<dyn Backing> {
        &self.backing
    }

    /// The object set.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// The effective properties.
    pub fn props(&self) -> Arc<MountProps> {
        self.backing.props()
    }

    /// ZPL version on disk.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether an entry has several names, because case or the form of letters does not distinguish
    /// names.
    pub fn has_aliases(&self) -> bool {
        self.match_type() != MatchType::Exact
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.backing.props().read_only
    }

    /// Number of the root directory.
    pub fn root_id(&self) -> ObjectId {
        self.root
    }

    /// The root directory.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn root(&self) -> Result<Arc<Znode>> {
        match &*self.root_znode.lock() {
            Some(root) => Ok(root.clone()),
            None => self.znode(self.root),
        }
    }

    /// An object by number.
    ///
    /// # Errors
    /// `Refused(NOENT)` if there is none, or it is freed.
    pub fn znode(&self, object: ObjectId) -> Result<Arc<Znode>> {
        if let Some(there) = self.cache.get(object) {
            if there.is_dead() {
                return refuse(Errno::NOENT, "the object was freed");
            }
            return Ok(there);
        }
        let dnode = self.objset.dnode(object)?;
        // Without I/O if possible: only then may the map stay locked meanwhile.
        if let Some(znode) = self.cache.enter(&dnode, || self.store.load_now(&dnode))? {
            return Ok(znode);
        }
        match self.cache.enter_slowly(&dnode, || self.store.load(&dnode)) {
            // Freed while it was read: attributes of a free object need not parse.
            Err(_) if !dnode.exists() => refuse(Errno::NOENT, "the object was freed"),
            other => other,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.backing.clock().now()
    }

    pub(crate) fn check_writable(&self) -> Result<Arc<MountProps>> {
        let props = self.backing.props();
        if props.read_only {
            refuse(Errno::ROFS, "a change")
        } else {
            Ok(props)
        }
    }

    pub(crate) fn begin(&self, bytes: u64) -> Result<Change<'_>> {
        Ok(self.changes.count(self.backing.begin(bytes, false)?))
    }

    /// For operations that free space in the end: they must work on a full dataset.
    pub(crate) fn begin_freeing(&self, bytes: u64) -> Result<Change<'_>> {
        Ok(self.changes.count(self.backing.begin(bytes, true)?))
    }

    pub(crate) fn unlinked_set(&self) -> Result<&Zap> {
        self.unlinked
            .as_ref()
            .ok_or_else(|| Error::missing(self.place(), "the master node has no DELETE_QUEUE"))
    }

    pub(crate) fn deferred(&self) -> Result<&Arc<Deferred>> {
        self.deferred
            .as_ref()
            .ok_or_else(|| Error::missing(self.place(), "the master node has no DELETE_QUEUE"))
    }

    /// How a plain lookup matches names.
    pub(crate) fn match_type(&self) -> MatchType {
        match (self.normflags, self.case) {
            (0, _) => MatchType::Exact,
            (_, CaseSensitivity::Mixed) => MatchType::NormalizeMatchCase,
            _ => MatchType::Normalize,
        }
    }

    /// Whether new files and directories have a project id.
    pub(crate) fn has_projects(&self) -> bool {
        self.version >= 5
            && self.features().project_quota
            && (self.objset.flags() & OBJSET_PROJECT_QUOTA != 0
                || self.objset.accounting_object(2).is_some())
    }

    pub(crate) fn features(&self) -> PoolFeatures {
        *self.features.read()
    }

    /// Reads the features of the pool again: after an upgrade.
    pub fn refresh_features(&self) {
        let now = self.backing.features();
        *self.features.write() = now;
    }

    /// Type of the objects that hold file data.
    pub(crate) const FILE_TYPE: u8 = object_type::PLAIN_FILE_CONTENTS;

    /// An object was read: notes its access time, to be written later. Returns whether it changed.
    pub fn accessed(&self, znode: &Arc<Znode>) -> bool {
        let props = self.backing.props();
        if !props.atime || props.read_only {
            return false;
        }
        {
            let state = znode.read();
            let a = &state.attrs;
            // Millisecond precision, for files that are read a thousand times a second.
            let now = self.now();
            let day_old = now.secs.saturating_sub(a.atime.secs) >= 86_400;
            let wanted = if props.relatime {
                a.atime <= a.mtime || a.atime <= a.ctime || day_old
            } else {
                now.secs != a.atime.secs || now.nanos / 1_000_000 != a.atime.nanos / 1_000_000
            };
            // A pending time holds its object. An unlinked one could never be freed.
            if !wanted || a.links == 0 {
                return false;
            }
        }
        let first = {
            let mut state = znode.write();
            state.attrs.atime = self.now();
            !std::mem::replace(&mut state.atime_pending, true)
        };
        if first {
            let full = {
                let mut pending = self.pending_atimes.lock();
                pending.insert(znode.object().0, znode.clone());
                pending.len() >= PENDING_ATIMES
            };
            if full {
                // Best effort: times that cannot be written now stay pending.
                let _ = self.write_atimes();
            }
        }
        true
    }

    pub(crate) fn forget_access(&self, znode: &Znode) {
        if znode.read().atime_pending {
            self.pending_atimes.lock().remove(&znode.object().0);
        }
    }

    /// If access times are pending, calls `f` with a test for whether an object has one.
    pub(crate) fn with_pending_atimes(&self, f: impl FnOnce(&dyn Fn(ObjectId) -> bool)) {
        let pending = self.pending_atimes.lock();
        if !pending.is_empty() {
            f(&|object| pending.contains_key(&object.0));
        }
    }

    /// Writes the pending access times.
    ///
    /// # Errors
    /// No transaction could be begun; they stay pending.
    pub fn write_atimes(&self) -> Result<()> {
        let some = self.pending_atimes.lock().len();
        if some == 0 {
            return Ok(());
        }
        let tx = self.begin(estimate::DNODE.saturating_mul(some as u64))?;
        // Counted before they leave the list: a prepared listing may hold their old times.
        self.changes.another();
        // Taken after the transaction has begun: if it cannot begin, they stay pending.
        let waiting: Vec<Arc<Znode>> = {
            let mut pending = self.pending_atimes.lock();
            let first: Vec<u64> = pending.keys().copied().take(some).collect();
            first.iter().filter_map(|n| pending.remove(n)).collect()
        };
        for znode in &waiting {
            let mut state = znode.write();
            if !state.atime_pending || znode.is_dead() {
                continue;
            }
            state.atime_pending = false;
            self.store.store(
                &tx,
                znode.dnode(),
                &state.attrs,
                crate::attributes::field::ATIME,
            )?;
        }
        drop(tx);
        Ok(())
    }

    /// Makes all changes so far durable.
    ///
    /// # Errors
    /// The pool is suspended.
    pub fn sync(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.refresh_features();
        // Both before the txg is chosen, because their changes belong to it.
        self.write_atimes()?;
        self.reap()?;
        self.backing.wait_synced(self.backing.open_txg())
    }

    /// Adds unlinked objects in use to the unlinked set now, not when the txg closes.
    pub(crate) fn store_unlinked(&self) -> Result<()> {
        if let Some(deferred) = self.deferred.as_ref().filter(|l| !l.is_empty()) {
            let change = self.begin_freeing(estimate::REMOVE)?;
            deferred.empty(&change);
        }
        Ok(())
    }

    /// Before the dataset is closed: writes pending changes and releases the root. Objects still
    /// held by others stay valid until dropped; unlinked ones are freed at the next mount.
    ///
    /// # Errors
    /// Pending changes could not be written.
    pub fn close(&self) -> Result<()> {
        self.finish()?;
        self.log.get().map_or(Ok(()), |log| log.close())
    }

    /// The same before the pool is closed: its last txgs end the log, and nothing waits for one
    /// here.
    ///
    /// # Errors
    /// As [`Self::close`].
    pub fn finish(&self) -> Result<()> {
        let written = if self.is_read_only() {
            Ok(())
        } else {
            self.write_atimes()
                .and_then(|()| self.reap())
                .and_then(|()| self.store_unlinked())
        };
        *self.root_znode.lock() = None;
        written
    }

    /// The txg with the newest change of an object, if it is not on disk yet.
    pub fn dirty_txg(&self, znode: &Znode) -> Option<Txg> {
        znode.dnode().newest_dirty()
    }

    /// Attributes as `stat` shows them.
    pub fn getattr(&self, znode: &Znode) -> Attr {
        let dnode = znode.dnode();
        self.attr_of(
            znode.object(),
            znode.attributes(),
            dnode.used_bytes(),
            u64::from(dnode.slots()),
            dnode.block_size(),
        )
    }

    /// The same for an object that is not in memory; `None` if it has no common shape.
    pub(crate) fn stored_attr(&self, object: ObjectId, dnode: &DnodeView<'_>) -> Option<Attr> {
        Some(self.attr_of(
            object,
            self.store.load_stored(dnode)?,
            dnode.used_bytes(),
            dnode.slots() as u64,
            u32::from(dnode.data_block_sectors()) * 512,
        ))
    }

    fn attr_of(
        &self,
        object: ObjectId,
        attributes: Attributes,
        used: u64,
        slots: u64,
        block_size: u32,
    ) -> Attr {
        let blksize = match attributes.kind() {
            mode::REGULAR if attributes.size == 0 && used == 0 => self.props().record_size,
            _ => block_size,
        };
        Attr {
            object,
            attributes,
            // Rounded to the nearest sector. The count comes from disk, so it may be any number.
            blocks: used / 512 + used % 512 / 256 + slots,
            blksize,
        }
    }

    /// From now on `observer` is told of objects that lose their last name, while it exists.
    pub fn add_unlink_observer(&self, observer: Weak<dyn UnlinkObserver>) {
        let mut unlink_observers = self.unlink_observers.write();
        unlink_observers.retain(|k| k.strong_count() > 0);
        unlink_observers.push(observer);
    }

    pub(crate) fn notify_unlink_observers(&self, znode: &Arc<Znode>) {
        let unlink_observers = self.unlink_observers.read();
        for observer in unlink_observers.iter().filter_map(Weak::upgrade) {
            observer.on_last_unlink(znode);
        }
    }
}

/// A user of objects that does not hold them.
pub trait UnlinkObserver: Send + Sync {
    /// The last name of an object is being removed, by an open transaction. An observer that holds
    /// the object when this returns keeps it usable. The file system must not be called here.
    fn on_last_unlink(&self, znode: &Arc<Znode>);
}

/// Attributes, together with the object's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The inode number.
    pub object: ObjectId,
    /// What is stored.
    pub attributes: Attributes,
    /// Allocated space in 512-byte units, without data that is not written yet.
    pub blocks: u64,
    /// Preferred I/O size.
    pub blksize: u32,
}

impl Attr {
    /// Major and minor number of a device.
    pub fn device(&self) -> (u32, u32) {
        device_of(self.attributes.rdev)
    }
}

/// Major and minor number of a stored device number: the 64-bit form if its high half is in use,
/// otherwise Linux's.
pub fn device_of(rdev: u64) -> (u32, u32) {
    if rdev >> 32 != 0 {
        ((rdev >> 32) as u32, rdev as u32)
    } else {
        ((rdev >> 20) as u32, (rdev & 0xf_ffff) as u32)
    }
}

/// The stored form of a device number, as on Linux.
pub fn device_number(major: u32, minor: u32) -> u64 {
    u64::from((major & 0xfff) << 20 | minor & 0xf_ffff)
}

impl std::fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileSystem({}, ZPL {})", self.place(), self.version)
    }
}

#[cfg(test)]
pub(crate) mod tests;
