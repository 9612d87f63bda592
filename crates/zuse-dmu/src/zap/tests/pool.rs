//! A pool in memory with one object set: a disk, an allocator that never reuses space, a ledger.

use crate::stored::MetaShape;
use crate::{DirtyMeter, FreeingLedger, Ledger, Objset, ObjsetEnv, Settings, Tx};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zuse_base::{Place, Result, Txg, WorkPool};
use zuse_device::{BlockDevice, MemDevice};
use zuse_format::{Dva, ObjsetType};
use zuse_io::{AllocClass, Allocate, Allocation, Cache, Pipeline};
use zuse_vdev::{OpenMode, TopConfig, VdevConfig, VdevKind, Vdevs};

const SIZE: u64 = 4 << 30;

struct Bump(AtomicU64);

impl Allocate for Bump {
    fn allocate(
        &self,
        _txg: Txg,
        psize: u64,
        copies: usize,
        _class: AllocClass,
    ) -> Result<Option<Allocation>> {
        let asize = psize.next_multiple_of(512);
        let mut dvas = [Dva::EMPTY; 3];
        for dva in dvas.iter_mut().take(copies) {
            let at = self.0.fetch_add(asize, Relaxed);
            assert!(at + asize < SIZE - (8 << 20), "the test pool is full");
            *dva = Dva::new(0, at, asize, false);
        }
        Ok(Some(Allocation {
            dvas,
            count: copies,
        }))
    }
    fn free_dva(&self, _txg: Txg, _born: Txg, _vdev: u32, _offset: u64, _asize: u64) -> Result<()> {
        Ok(())
    }
    fn min_allocation(&self) -> u64 {
        512
    }
}

/// The pool.
pub(crate) struct TestPool {
    io: Arc<Pipeline>,
    work: Arc<WorkPool>,
    settings: Settings,
    pub os: Arc<Objset>,
    pub txg: Txg,
}

impl TestPool {
    pub(crate) fn new(settings: Settings) -> Self {
        let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("/disk", SIZE));
        let mut top = VdevConfig::new(VdevKind::Disk, 0, 7);
        top.path = Some("/disk".into());
        top.top = Some(TopConfig {
            ashift: 9,
            asize: SIZE - (8 << 20),
            metaslab_shift: 24,
            metaslab_array: 5,
            ..TopConfig::default()
        });
        let root = VdevConfig::root(1, vec![top]);
        let vdevs = Vdevs::open(&root, &|_| Some(device.clone()), OpenMode::CREATE).unwrap();
        let io = Arc::new(Pipeline::new(
            Arc::new(vdevs),
            Arc::new(Cache::new(1 << 30)),
        ));
        io.set_allocator(Arc::new(Bump(AtomicU64::new(0))));
        let work = Arc::new(WorkPool::new("test", 2, 64).unwrap());
        let txg = Txg(10);
        let os = Objset::create(
            Self::env(&io, &work, &settings),
            ObjsetType::Zfs,
            &Tx::syncing(txg),
        );
        Self {
            io,
            work,
            settings,
            os,
            txg,
        }
    }

    fn env(io: &Arc<Pipeline>, work: &Arc<WorkPool>, settings: &Settings) -> ObjsetEnv {
        let ledger: Arc<dyn Ledger> = Arc::new(FreeingLedger::new(io.clone()));
        ObjsetEnv {
            key: None,
            io: io.clone(),
            work: work.clone(),
            place: Place::new("test/fs"),
            ledger,
            meter: Arc::new(DirtyMeter::default()),
            settings: settings.clone(),
        }
    }

    /// A second object set, for receiving a raw stream.
    pub(crate) fn raw(&self) -> Arc<Objset> {
        let shape = MetaShape {
            levels: 1,
            indirect_shift: 17,
            max_block: 0,
            checksum: 0,
            compress: 0,
            portable_mac: [0; 32],
        };
        let env = Self::env(&self.io, &self.work, &self.settings);
        Objset::create_raw(env, ObjsetType::Zfs, &shape, &self.tx())
    }

    pub(crate) fn tx(&self) -> Tx {
        Tx::syncing(self.txg)
    }

    /// Writes the txg and begins the next.
    pub(crate) fn sync(&mut self) {
        self.os.sync(self.txg, 1).unwrap();
        self.work.finish().unwrap();
        self.txg = Txg(self.txg.0 + 1);
    }

    /// Begins the next txg while this one is not written yet. Returns this one's number.
    pub(crate) fn close_txg(&mut self) -> Txg {
        let next = Txg(self.txg.0 + 1);
        std::mem::replace(&mut self.txg, next)
    }

    /// Writes a closed txg and returns the object set from disk.
    pub(crate) fn written(&self, txg: Txg) -> Arc<Objset> {
        self.os.sync(txg, 1).unwrap();
        self.work.finish().unwrap();
        let env = Self::env(&self.io, &self.work, &self.settings);
        Objset::open(env, self.os.root()).unwrap()
    }

    /// Opens the object set again, with an empty cache.
    pub(crate) fn reopen(&mut self) {
        self.sync();
        self.io.cache().clear();
        self.os = Objset::open(
            Self::env(&self.io, &self.work, &self.settings),
            self.os.root(),
        )
        .unwrap();
    }

    /// The object set from disk, in addition to the open one.
    pub(crate) fn reopened(&self) -> Arc<Objset> {
        Objset::open(
            Self::env(&self.io, &self.work, &self.settings),
            self.os.root(),
        )
        .unwrap()
    }

    /// Number of blocks read from the device so far.
    pub(crate) fn misses(&self) -> u64 {
        self.io.cache().stats().misses
    }

    pub(crate) fn limit_cache(&self, bytes: usize) {
        self.io.cache().set_limit(bytes, 100);
    }

    pub(crate) fn drop_cache(&self) {
        self.io.cache().clear();
    }
}
