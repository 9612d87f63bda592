//! A pool to work on, files in it, and the checks of its accounting.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse_base::{ObjectId, Result};
use zuse_device::{BlockDevice, MemDevice};
use zuse_dmu::{DnodeSpec, Objset, Tx};
use zuse_dsl::property::Value;
use zuse_dsl::{CreateOptions, Dataset, Dsl, Estimate, Fill, Stat, check_accounting};
use zuse_pool::{Environment, OpenOptions, Pool, VdevSpec};
use zuse_vdev::{PoolState, assemble};

pub const MASTER: u8 = 21;
pub const FILE: u8 = 19;
pub const BLOCK: usize = 128 * 1024;

pub struct Bench {
    pub device: Arc<dyn BlockDevice>,
    pub pool: Arc<Pool>,
    pub dsl: Arc<Dsl>,
}

pub fn fill() -> Fill {
    Box::new(|os: &Arc<Objset>, tx: &Tx| {
        let zap =
            zuse_dmu::zap::Zap::create(os, tx, MASTER, &zuse_dmu::zap::ZapOptions::default())?;
        zap.add_u64(tx, b"VERSION", 5)
    })
}

pub fn device(name: &str, size: u64) -> Arc<dyn BlockDevice> {
    match std::env::var("ZUSE_KEEP_POOL") {
        Ok(dir) => {
            let path = format!("{dir}/{name}.img");
            Arc::new(zuse_device::FileDevice::create(path, size).expect("image"))
        }
        Err(_) => Arc::new(MemDevice::new(name, size)),
    }
}

impl Bench {
    pub fn new(name: &str, size: u64) -> Self {
        Self::on(device(name, size), name)
    }

    /// A new pool on a device.
    pub fn on(device: Arc<dyn BlockDevice>, name: &str) -> Self {
        let uncompressed = vec![("compression".to_owned(), Value::Number(2))];
        let dsl = Dsl::for_create(fill(), uncompressed, None);
        let options = zuse_pool::CreateOptions {
            name: name.into(),
            vdevs: vec![VdevSpec {
                device: device.clone(),
                is_disk: false,
                ashift: Some(12),
            }],
            features: None,
            version: zuse_format::uberblock::SPA_VERSION,
            comment: None,
            compatibility: None,
        };
        let pool = Pool::create(Environment::default(), options, dsl.clone()).expect("create");
        Self { device, pool, dsl }
    }

    pub fn reopen(self, writable: bool) -> Self {
        self.sync_all();
        self.pool.close(PoolState::Exported).expect("close");
        self.open_as(writable)
    }

    pub fn open_again(self) -> Self {
        self.open_as(true)
    }

    pub fn open_as(self, writable: bool) -> Self {
        let name = self.pool.name();
        drop(self.dsl);
        let opened = Self::try_open(self.device, writable).expect("open");
        assert_eq!(opened.pool.name(), name);
        opened
    }

    pub fn try_open(device: Arc<dyn BlockDevice>, writable: bool) -> Result<Self> {
        let scan = assemble::assemble(&assemble::read_labels(std::slice::from_ref(&device)));
        let found = scan.pools.first().expect("a pool");
        let devices: BTreeMap<u64, Arc<dyn BlockDevice>> =
            found.devices.keys().map(|g| (*g, device.clone())).collect();
        let options = OpenOptions {
            writable,
            ..OpenOptions::default()
        };
        let dsl = Dsl::new();
        let pool = Pool::open(
            Environment::default(),
            &found.config,
            &devices,
            &options,
            dsl.clone(),
        )?;
        Ok(Self { device, pool, dsl })
    }

    pub fn create(&self, name: &str) -> Arc<Dataset> {
        self.dsl
            .create_dataset(name, CreateOptions::filesystem(fill()))
            .expect(name)
    }

    pub fn stat(&self, name: &str) -> Stat {
        self.dsl
            .stat(&self.dsl.dataset(name).expect(name))
            .expect(name)
    }

    pub fn snap(&self, name: &str) {
        self.dsl
            .snapshot(&[name.to_owned()], false, &[])
            .expect(name);
    }

    /// Waits until everything is on disk and no frees are pending.
    pub fn sync_all(&self) {
        for _ in 0..4 {
            self.pool.note_frees();
            self.pool.sync_now().expect("sync");
        }
    }

    pub fn sound(&self, step: &str) {
        self.pool.sync_now().expect("sync");
        let flaws = check_accounting(&self.dsl);
        assert!(flaws.is_empty(), "after {step}: {flaws:#?}");
    }

    pub fn close(self) {
        self.sync_all();
        self.sound("the end");
        self.pool.close(PoolState::Exported).expect("close");
    }
}

/// A file of `count` blocks; returns its number.
pub fn file(ds: &Arc<Dataset>, count: u64, seed: u8) -> Result<ObjectId> {
    let os = ds.objset()?;
    let tx = ds.begin(Estimate {
        write_bytes: count * BLOCK as u64,
        frees: false,
    })?;
    let dnode = os.allocate(&tx, &DnodeSpec::new(FILE).block_size(BLOCK as u32))?;
    for i in 0..count {
        dnode.write_block(&tx, i, block(seed.wrapping_add(i as u8)))?;
    }
    Ok(dnode.object())
}

/// Incompressible, so that every block takes its size.
pub fn block(seed: u8) -> Vec<u8> {
    let mut x = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(BLOCK);
    while out.len() < BLOCK {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend_from_slice(&x.to_le_bytes());
    }
    out
}

pub fn overwrite(ds: &Arc<Dataset>, object: ObjectId, blkid: u64, seed: u8) {
    let os = ds.objset().expect("objset");
    let tx = ds
        .begin(Estimate {
            write_bytes: BLOCK as u64,
            frees: false,
        })
        .expect("begin");
    os.dnode(object)
        .expect("dnode")
        .write_block(&tx, blkid, block(seed))
        .expect("write");
}

pub fn parts(s: &Stat) -> [u64; 5] {
    [
        s.used,
        s.used_by_dataset,
        s.used_by_snapshots,
        s.used_by_children,
        s.used_by_refreservation,
    ]
}
