//! The [`Backing`] of a zuse-zpl file system: a dataset of an open pool.

use std::collections::HashSet;
use std::sync::Arc;
use zuse_base::sync::RwLock;

use crate::Pool;
use crate::held::Held;
use crate::replay::Replaying;
use zuse_base::{Clock, Result, Txg};
use zuse_dmu::{Objset, Tx};
use zuse_dsl::{Dataset, Estimate, Owner};
use zuse_pool::Limits;
use zuse_zpl::{AclMode, Backing, MountProps, PoolFeatures, SnapDir, SpaceFacts, XattrPlace};

/// A dataset under a file system.
pub(crate) struct DatasetBacking {
    spa: Arc<zuse_pool::Pool>,
    dataset: Arc<Dataset>,
    objset: Arc<Objset>,
    read_only: bool,
    /// Set for a writable head.
    _owner: Option<Owner>,
    props: RwLock<Arc<MountProps>>,
    replaying: Replaying,
    in_use: Option<Arc<HashSet<u64>>>,
    // The last field, dropped last: nothing of the pool is used after it.
    _held: Arc<Held>,
}

impl DatasetBacking {
    /// `in_use`: see [`Backing::unlinked_in_use`].
    pub fn open(
        pool: &Pool,
        dataset: Arc<Dataset>,
        in_use: Option<Arc<HashSet<u64>>>,
    ) -> Result<Arc<Self>> {
        let spa = pool.spa().clone();
        let mut read_only = dataset.is_snapshot() || !spa.is_writable();
        if let Some(key) = dataset.objset()?.key() {
            // Keys of the first development version are for reading only.
            read_only |= !key.is_writable();
        }
        let owner = if read_only {
            None
        } else {
            Some(dataset.own()?)
        };
        let objset = dataset.objset()?;
        let props = mount_props(&spa.limits(), &dataset, read_only)?;
        Ok(Arc::new(Self {
            spa,
            dataset,
            objset,
            read_only,
            _owner: owner,
            props: RwLock::new(Arc::new(props)),
            replaying: Replaying::default(),
            in_use,
            _held: pool.share(),
        }))
    }

    /// Whether its changes are ever written, whatever its present properties.
    pub fn is_writable(&self) -> bool {
        !self.read_only
    }

    /// The replay of its intent log.
    pub fn replaying(&self) -> &Replaying {
        &self.replaying
    }

    /// Takes changed properties over.
    pub fn refresh(&self) -> Result<()> {
        let props = mount_props(&self.spa.limits(), &self.dataset, self.read_only)?;
        *self.props.write() = Arc::new(props);
        Ok(())
    }
}

/// CCM supports one byte less than 16 MiB.
fn largest_record(dataset: &Dataset) -> Result<u64> {
    let objset = dataset.objset()?;
    let is_ccm = objset.key().is_some_and(|key| !key.suite().is_gcm());
    Ok(if is_ccm { 8 << 20 } else { 16 << 20 })
}

/// The effective properties of a mount.
fn mount_props(limits: &Limits, dataset: &Dataset, read_only: bool) -> Result<MountProps> {
    let number = |name: &str| dataset.dsl().property_number(dataset, name);
    let on = |name: &str| number(name).map(|n| n != 0);
    let record_size = match limits.record_size {
        Some(instead) => u64::from(instead),
        None => number("recordsize")?,
    };
    Ok(MountProps {
        atime: match limits.atime {
            Some(instead) => instead,
            None => on("atime")?,
        },
        relatime: on("relatime")?,
        read_only: read_only || on("readonly")?,
        xattr: match number("xattr")? {
            0 => XattrPlace::Off,
            1 => XattrPlace::Dir,
            _ => XattrPlace::Sa,
        },
        posix_acl: number("acltype")? == 1,
        acl_mode: if number("aclmode")? == 4 {
            AclMode::Restricted
        } else {
            AclMode::Discard
        },
        snapdir: match number("snapdir")? {
            0 => SnapDir::Hidden,
            1 => SnapDir::Visible,
            _ => SnapDir::Disabled,
        },
        record_size: record_size.clamp(512, largest_record(dataset)?) as u32,
        xattr_bare: limits.xattr_bare,
        clone_blocks: limits.clone_blocks,
        dnode_slots: match number("dnodesize")? {
            0 => 1,
            1 => 2,
            bytes => (bytes / 512).clamp(1, 32) as u8,
        },
        longname: on("longname")?,
        setuid: on("setuid")?,
        devices: on("devices")?,
        exec: on("exec")?,
    })
}

/// Features of the pool that affect new files.
pub(crate) fn pool_features(spa: &zuse_pool::Pool) -> PoolFeatures {
    features_by(spa.version(), |guid| spa.features().is_enabled(guid))
}

/// The same for a pool that is about to be created.
pub(crate) fn features_by(pool_version: u64, on: impl Fn(&str) -> bool) -> PoolFeatures {
    PoolFeatures {
        pool_version,
        project_quota: on("org.zfsonlinux:project_quota"),
        userobj_accounting: on("org.zfsonlinux:userobj_accounting"),
        large_dnode: on("org.zfsonlinux:large_dnode"),
        longname: on("org.zfsonlinux:longname"),
        large_blocks: on("org.open-zfs:large_blocks"),
    }
}

impl Backing for DatasetBacking {
    fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    fn begin(&self, bytes: u64, frees: bool) -> Result<Tx> {
        let replay = self
            .replaying
            .begin(&self.spa, &self.dataset, &self.objset, bytes)?;
        if let Some(tx) = replay {
            return Ok(tx);
        }
        self.dataset.begin(Estimate {
            write_bytes: bytes,
            frees,
        })
    }

    fn wait_synced(&self, txg: Txg) -> Result<()> {
        self.spa.wait_synced(txg)
    }

    fn open_txg(&self) -> Txg {
        self.spa.open_txg()
    }

    fn synced_txg(&self) -> Txg {
        self.spa.synced_txg()
    }

    fn props(&self) -> Arc<MountProps> {
        let props = self.props.read().clone();
        // `readonly=on` does not take back what was acknowledged before it was set.
        if props.read_only && self.replaying.is_on() {
            return Arc::new(MountProps {
                read_only: false,
                ..(*props).clone()
            });
        }
        props
    }

    fn space(&self) -> SpaceFacts {
        let objects = self.dataset.root().map_or(0, |root| root.fill());
        match self.dataset.dsl().stat(&self.dataset) {
            Ok(stat) => SpaceFacts {
                referenced: stat.referenced,
                available: stat.available,
                objects,
            },
            Err(_) => SpaceFacts {
                objects,
                ..SpaceFacts::default()
            },
        }
    }

    fn clock(&self) -> &dyn Clock {
        self.spa.clock()
    }

    fn features(&self) -> PoolFeatures {
        pool_features(&self.spa)
    }

    fn note_longname(&self, _tx: &Tx) {
        self.dataset.note_longname();
    }

    fn unlinked_in_use(&self) -> Option<Arc<HashSet<u64>>> {
        self.in_use.clone()
    }
}
