//! Targets whose bytes are those of an object in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zuse_base::{Place, Result, Txg, WorkPool};
use zuse_device::{BlockDevice, MemDevice};
use zuse_dmu::sa::{Attr, SaTable, dxattr};
use zuse_dmu::zap::{MatchType, Zap};
use zuse_dmu::{DirtyMeter, Dnode, DnodeSpec, FreeingLedger, Objset, ObjsetEnv, Settings, Tx};
use zuse_format::{Dva, ObjsetType, object_type};
use zuse_io::{AllocClass, Allocate, Allocation, Cache, Pipeline};
use zuse_vdev::{OpenMode, TopConfig, VdevConfig, VdevKind, Vdevs};

const SIZE: u64 = 256 << 20;
/// The most entries of a walk: tables of hostile bytes may repeat themselves.
const WALK_MAX: usize = 4096;

/// Gives out space upwards and takes nothing back.
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
            *dva = Dva::new(0, at % (SIZE - (32 << 20)), asize, false);
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

/// What all runs share: a disk in memory.
struct Bench {
    io: Arc<Pipeline>,
    work: Arc<WorkPool>,
}

impl Bench {
    fn new() -> Result<Self> {
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
        let vdevs = Vdevs::open(&root, &|_| Some(device.clone()), OpenMode::CREATE)?;
        let io = Pipeline::new(Arc::new(vdevs), Arc::new(Cache::new(16 << 20)));
        io.set_allocator(Arc::new(Bump(AtomicU64::new(0))));
        Ok(Self {
            io: Arc::new(io),
            work: Arc::new(
                WorkPool::new("fuzz", 1, 8)
                    .map_err(|e| zuse_base::Error::corrupt("fuzz", e.to_string()))?,
            ),
        })
    }

    fn objset(&self, tx: &Tx) -> Arc<Objset> {
        let env = ObjsetEnv {
            key: None,
            io: self.io.clone(),
            work: self.work.clone(),
            place: Place::new("fuzz"),
            ledger: Arc::new(FreeingLedger::new(self.io.clone())),
            meter: Arc::new(DirtyMeter::default()),
            settings: Settings::default(),
        };
        Objset::create(env, ObjsetType::Zfs, tx)
    }
}

thread_local! {
    static BENCH: Option<Bench> = Bench::new().ok();
}

/// Runs `body` with an object set of its own; its changes are never written.
fn with_objset(body: impl FnOnce(&Arc<Objset>, &Tx) -> Result<()>) {
    BENCH.with(|bench| {
        let tx = Tx::syncing(Txg(10));
        let bench = bench.as_ref().expect("a disk in memory");
        // An error reports what is wrong with the bytes; only a panic is a failure.
        let _ = body(&bench.objset(&tx), &tx);
    });
}

fn object(objset: &Arc<Objset>, tx: &Tx, bytes: &[u8], block: u32) -> Result<Arc<Dnode>> {
    let spec = DnodeSpec::new(object_type::DIRECTORY_CONTENTS).block_size(block);
    let dnode = objset.allocate(tx, &spec)?;
    dnode.write_at(tx, 0, bytes)?;
    Ok(dnode)
}

/// A table of names: the first byte chooses the size of its blocks, the rest are its blocks.
pub(super) fn zap(bytes: &[u8]) {
    let Some((size, blocks)) = bytes.split_first() else {
        return;
    };
    let block = 512u32 << (size % 9);
    with_objset(|objset, tx| {
        let dnode = object(objset, tx, blocks, block)?;
        let zap = Zap::open(&dnode)?;
        let mut names = Vec::new();
        let mut cursor = zap.cursor(0);
        for _ in 0..WALK_MAX {
            match cursor.next() {
                Ok(Some(entry)) if names.len() < 16 => {
                    names.push((entry.name.clone(), entry.words()))
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        let mut left = WALK_MAX;
        let _ = zap.list(0, &mut |_, _, _| {
            left -= 1;
            left > 0
        });
        let _ = (
            zap.count(),
            zap.stats(),
            zap.leaf_histograms(),
            zap.is_fat(),
        );
        let _ = (
            zap.search_value(1, u64::MAX),
            zap.lookup_int(1),
            zap.lookup_words(&[1, 2]),
        );
        for (name, words) in &names {
            let _ = (zap.lookup(name), zap.lookup_words(words));
            let _ = zap.lookup_match(name, MatchType::Normalize);
        }
        // Changes are refused or applied; they must not fail because of the stored content.
        for i in 0..40u64 {
            if zap
                .add_u64(tx, format!("a new name {i}").as_bytes(), i)
                .is_err()
            {
                break;
            }
        }
        for (name, _) in &names {
            let _ = zap.remove(tx, name);
        }
        let _ = zap.increment(tx, b"a new name 1", 5);
        Ok(())
    });
}

/// System attributes: a byte for the kind of bonus, two for its length, the bonus, then a list of
/// extended attributes.
pub(super) fn sa(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<3>() else {
        return;
    };
    let len = usize::from(u16::from_le_bytes([head[1], head[2]]))
        .min(rest.len())
        .min(320);
    let (bonus, list) = rest.split_at(len);
    let _ = dxattr::walk(list, |_, _| true);
    let _ = dxattr::find(list, b"user.a");
    let _ = dxattr::changed(Some(list), &[b"user.a"], Some((b"user.b", b"value")));
    with_objset(|objset, tx| {
        let (_, table) = SaTable::create(objset, tx)?;
        let kind = if head[0] & 1 == 0 { 44 } else { 17 };
        let spec = DnodeSpec::new(object_type::PLAIN_FILE_CONTENTS).bonus(kind, len as u16);
        let dnode = objset.allocate(tx, &spec)?;
        dnode.set_bonus(tx, bonus)?;
        if let Ok(view) = table.view(&dnode) {
            for attr in Attr::ALL {
                let _ = (view.get(attr), view.u64(attr), view.time(attr));
            }
            let _ = (view.is_legacy(), view.is_empty());
        }
        let _ = table.update(tx, &dnode, &[(Attr::Size, &[1; 8])]);
        let _ = table.update(tx, &dnode, &[(Attr::Dxattr, list)]);
        if let Ok(view) = table.view(&dnode) {
            let _ = view.get(Attr::Dxattr);
        }
        Ok(())
    });
}
