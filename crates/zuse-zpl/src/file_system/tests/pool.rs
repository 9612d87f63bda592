//! A dataset in memory: a disk, an allocator that never reuses space, txgs that are written when a
//! thread waits for them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zuse_base::sync::{Condvar, Mutex};

use zuse_base::{Clock, ManualClock, Place, Result, Timestamp, Txg, WorkPool};
use zuse_device::{BlockDevice, MemDevice};
use zuse_dmu::{BeforeClose, DirtyMeter, FreeingLedger, Objset, ObjsetEnv, Settings, Tx, TxgHold};
use zuse_format::{Dva, ObjsetType};
use zuse_io::{AllocClass, Allocate, Allocation, Cache, Pipeline, Shared};
use zuse_vdev::{OpenMode, TopConfig, VdevConfig, VdevKind, Vdevs};

use crate::backing::{Backing, MountProps, PoolFeatures, SpaceFacts};
use crate::file_system::FileSystem;
use crate::format_new::{FormatOptions, format};

const SIZE: u64 = 16 << 30;

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

#[derive(Default)]
struct Gate {
    open: u64,
    holders: u64,
}

struct Engine {
    before_close: Mutex<Vec<Arc<dyn BeforeClose>>>,
    gate: Mutex<Gate>,
    idle: Condvar,
}

impl TxgHold for Engine {
    fn broken(&self, _txg: Txg) {}
    fn release(&self, _txg: Txg, _reserved: u64) {
        self.gate.lock().holders -= 1;
        self.idle.notify_all();
    }

    fn before_close(&self, _txg: Txg, work: Arc<dyn BeforeClose>) -> bool {
        self.before_close.lock().push(work);
        true
    }
}

/// The dataset.
pub(crate) struct TestBacking {
    env: Arc<dyn Fn() -> ObjsetEnv + Send + Sync>,
    io: Arc<Pipeline>,
    objset: Arc<Objset>,
    engine: Arc<Engine>,
    pub props: Mutex<Arc<MountProps>>,
    features: PoolFeatures,
    pub clock: ManualClock,
    at_begin: Mutex<Option<AtBegin>>,
    /// Unlinked objects that another process still uses.
    pub in_use: Mutex<Option<Arc<HashSet<u64>>>>,
}

/// A callback at the beginning of a transaction.
pub(crate) type AtBegin = Box<dyn Fn() + Send>;

impl TestBacking {
    pub fn new(options: &FormatOptions) -> Arc<Self> {
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
        let vdevs =
            Vdevs::open(&root, &|_| Some(device.clone()), OpenMode::CREATE).expect("a disk");
        let io = Arc::new(Pipeline::new(
            Arc::new(vdevs),
            Arc::new(Cache::new(1 << 30)),
        ));
        io.set_allocator(Arc::new(Bump(AtomicU64::new(0))));
        let work = Arc::new(WorkPool::new("test", 2, 64).expect("threads"));
        let env_io = io.clone();
        let env = Arc::new(move || ObjsetEnv {
            key: None,
            io: env_io.clone(),
            work: work.clone(),
            place: Place::new("test/fs"),
            ledger: Arc::new(FreeingLedger::new(env_io.clone())),
            meter: Arc::new(DirtyMeter::default()),
            settings: Settings::default(),
        });
        let tx = Tx::syncing(Txg(7));
        let objset = Objset::create(env(), ObjsetType::Zfs, &tx);
        format(&objset, &tx, options).expect("a new file system");
        objset.sync(Txg(7), 1).expect("written");
        Arc::new(Self {
            env,
            io,
            objset,
            engine: Arc::new(Engine {
                before_close: Mutex::default(),
                gate: Mutex::new(Gate {
                    open: 8,
                    holders: 0,
                }),
                idle: Condvar::new(),
            }),
            props: Mutex::new(Arc::new(MountProps {
                dnode_slots: 1,
                ..MountProps::default()
            })),
            features: options.features,
            clock: ManualClock::new(Timestamp::new(1_700_000_000, 5)),
            at_begin: Mutex::default(),
            in_use: Mutex::default(),
        })
    }

    /// The same bytes, read again from the disk.
    pub fn reopen(&self) -> Arc<Self> {
        self.wait_synced(self.open_txg()).expect("written");
        self.io.cache().clear();
        self.as_on_disk()
    }

    /// The state after a power cut: the last written txg. Both may be used from now on, because no
    /// place is ever written twice.
    pub fn as_on_disk(&self) -> Arc<Self> {
        let objset = Objset::open((self.env)(), self.objset.root()).expect("opens");
        Arc::new(Self {
            env: self.env.clone(),
            io: self.io.clone(),
            objset,
            engine: Arc::new(Engine {
                before_close: Mutex::default(),
                gate: Mutex::new(Gate {
                    open: self.open_txg().0,
                    holders: 0,
                }),
                idle: Condvar::new(),
            }),
            props: Mutex::new(self.props()),
            features: self.features,
            clock: ManualClock::new(self.clock.now()),
            at_begin: Mutex::default(),
            in_use: Mutex::default(),
        })
    }

    pub fn set_props(&self, change: impl FnOnce(&mut MountProps)) {
        let mut props = MountProps::clone(&self.props());
        change(&mut props);
        *self.props.lock() = Arc::new(props);
    }

    /// From now on `look` is called when a transaction begins.
    pub fn at_begin(&self, look: Option<AtBegin>) {
        *self.at_begin.lock() = look;
    }

    pub fn share_with(&self, shared: Arc<dyn Shared>) {
        self.io.set_shared(shared);
    }

    pub fn forget_cache(&self) {
        self.io.cache().clear();
    }
}

impl Backing for TestBacking {
    fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }
    fn begin(&self, bytes: u64, _frees: bool) -> Result<Tx> {
        if let Some(look) = &*self.at_begin.lock() {
            look();
        }
        let mut gate = self.engine.gate.lock();
        gate.holders += 1;
        Ok(Tx::open(Txg(gate.open), bytes, self.engine.clone()))
    }
    fn wait_synced(&self, txg: Txg) -> Result<()> {
        let mut gate = self.engine.gate.lock();
        while gate.open <= txg.0 {
            while gate.holders > 0 {
                gate = self.engine.idle.wait(gate);
            }
            let work = std::mem::take(&mut *self.engine.before_close.lock());
            if !work.is_empty() {
                drop(gate);
                let tx = self.begin(0, true)?;
                work.iter().for_each(|w| w.before_close(&tx));
                drop(tx);
                gate = self.engine.gate.lock();
                continue;
            }
            let now = Txg(gate.open);
            self.objset.sync(now, 1)?;
            (self.env)().work.finish().expect("let go");
            gate.open += 1;
        }
        Ok(())
    }
    fn open_txg(&self) -> Txg {
        Txg(self.engine.gate.lock().open)
    }
    fn synced_txg(&self) -> Txg {
        Txg(self.open_txg().0 - 1)
    }
    fn props(&self) -> Arc<MountProps> {
        self.props.lock().clone()
    }
    fn space(&self) -> SpaceFacts {
        SpaceFacts {
            referenced: 1 << 20,
            available: 1 << 30,
            objects: self.objset.object_count(),
        }
    }
    fn clock(&self) -> &dyn Clock {
        &self.clock
    }
    fn features(&self) -> PoolFeatures {
        self.features
    }
    fn unlinked_in_use(&self) -> Option<Arc<HashSet<u64>>> {
        self.in_use.lock().clone()
    }
}

/// A mounted file system in memory.
pub(crate) struct TestFs {
    pub backing: Arc<TestBacking>,
    pub fs: Arc<FileSystem>,
}

impl TestFs {
    pub fn new() -> Self {
        Self::with(&FormatOptions {
            now: Timestamp::new(1_600_000_000, 3),
            ..FormatOptions::default()
        })
    }

    pub fn with(options: &FormatOptions) -> Self {
        let backing = TestBacking::new(options);
        let fs = FileSystem::open(backing.clone()).expect("opens");
        Self { backing, fs }
    }

    /// Unmounts, drops the cache and mounts again.
    pub fn remount(self) -> Self {
        self.fs.close().expect("closes");
        drop(self.fs);
        let backing = self.backing.reopen();
        let fs = FileSystem::open(backing.clone()).expect("opens");
        Self { backing, fs }
    }
}
