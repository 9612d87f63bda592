//! Tables of cloned blocks: the number of pointers that file blocks have beyond their first
//! (`docs/format/04b-dedup-brt-scan.md`, 2).
//!
//! ```text
//!   MOS directory ─ com.fudosecurity:brt:vdev:N ─► header (bonus), a u16 per 16 MiB: how many entries lie there
//!                                                   └► ZAP: offset of the first copy ─► further pointers
//! ```
//! # How a pointer comes and goes
//!
//! A clone is made in open context, and its reference waits for its txg. When that txg syncs, all
//! its references are counted at once, *before* anything is freed in it. Otherwise the txg that
//! overwrites the first file would free the space that the clone will point to. Freeing a pointer
//! drops a reference. Without an entry it is the last pointer, and the space is freed. References
//! of blocks that are in a dedup table are counted there.
//!
//! `changed` has the future entries of the ZAP; other entries are as in the ZAP. A table exists as
//! long as it has entries; the features count tables. `zuse-sim/tests/clones.rs` has the offline
//! checker count pointers and compare, and has bytes of OpenZFS.
//!
//! # Invariants
//!
//! - Only level-0 blocks of files and volumes are tracked: `key_of` has no key for others, and
//!   [`Shared::refer`] refuses them. The MOS's own blocks never use the tables, so the tables can
//!   be written with it.
//! - References are counted before anything is freed in their txg. A later one is refused.
//!
//! # Byte order
//!
//! Without the feature `block_cloning_endian` a count is eight bytes in the byte order of its
//! writer. A changed count keeps its byte order. New ones are little-endian, and so are ranges and
//! header.
//!
//! # Locks
//!
//! One lock over all tables, never held while a ZAP is read. Changes come in syncing context only,
//! from several threads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use zuse_base::sync::{Mutex, MutexGuard};

use zuse_base::tripwire::{Watched, at};
use zuse_base::{ByteOrder, Errno, Error, ObjectId, Result, Txg};
use zuse_dmu::Objset;
use zuse_dmu::dnode::DnodeSpec;
use zuse_dmu::zap::{Zap, ZapFlags, ZapOptions, ZapValue};
use zuse_format::field::u64_at;
use zuse_format::{BlockPointer, BpKind, clone_count, object_type};
use zuse_io::{DedupTables, Pipeline, Shared};
use zuse_vdev::Vdevs;

use crate::dedup::Dedup;
use crate::{Pool, SyncCtx};

const FEATURE: &str = "com.fudosecurity:block_cloning";
/// Counts are stored as an integer, not as eight bytes in their writer's order.
const ENDIAN: &str = "com.truenas:block_cloning_endian";
/// Name of a table in the MOS directory, followed by the id of its vdev.
const NAME: &str = "com.fudosecurity:brt:vdev:";
/// Type of a table's object and of its bonus.
const WORDS: u8 = 195;
/// Bytes of a table's header.
const HEADER: u16 = 56;
/// Bytes of a vdev that one count of entries covers.
const RANGE: u64 = 16 << 20;
/// Block size of the counts.
const BLOCK: u32 = 32 << 10;
/// Counts in a block.
const PER_BLOCK: usize = BLOCK as usize / 2;
/// More ranges than any vdev has: a pebibyte.
const MOST_RANGES: u64 = 1 << 26;

/// The number of pointers of a block beyond its first.
#[derive(Clone, Copy, Debug)]
struct Count {
    stored: u64,
    now: u64,
    /// Of its eight bytes, if it is stored that way.
    order: ByteOrder,
}

impl Count {
    const NONE: Self = Self {
        stored: 0,
        now: 0,
        order: ByteOrder::Little,
    };
}

/// The table of a vdev.
#[derive(Default)]
struct Table {
    /// The objects of the table and of its entries, once created.
    objects: Option<(ObjectId, ObjectId)>,
    range: u64,
    counts: Vec<u16>,
    total: u64,
    used: u64,
    saved: u64,
    /// Blocks of `counts` that differ from disk.
    dirty: BTreeSet<usize>,
    changed: HashMap<u64, Count>,
}

impl Table {
    fn index(&self, offset: u64) -> usize {
        usize::try_from(offset / self.range.max(1)).unwrap_or(usize::MAX)
    }

    fn in_range(&self, offset: u64) -> u16 {
        self.counts
            .get(self.index(offset))
            .copied()
            .unwrap_or_default()
    }

    /// Counts an added or removed entry.
    fn entry(&mut self, offset: u64, dsize: u64, comes: bool) {
        let index = self.index(offset);
        if let Some(count) = self.counts.get_mut(index) {
            *count = if comes {
                count.saturating_add(1)
            } else {
                count.saturating_sub(1)
            };
            // Only changed blocks of counts are written, because the table is as large as the vdev.
            self.dirty.insert(index / PER_BLOCK);
        }
        (self.total, self.used) = if comes {
            (self.total + 1, self.used.saturating_add(dsize))
        } else {
            (
                self.total.saturating_sub(1),
                self.used.saturating_sub(dsize),
            )
        };
    }

    /// A block of the counts in its stored form.
    fn stored_counts(&self, block: usize) -> Vec<u8> {
        let from = (block * PER_BLOCK).min(self.counts.len());
        let to = (from + PER_BLOCK).min(self.counts.len());
        let mut bytes: Vec<u8> = self.counts[from..to]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        bytes.resize(BLOCK as usize, 0);
        bytes
    }

    fn header(&self, entries: ObjectId) -> Vec<u8> {
        let words = [
            entries.0,
            self.counts.len() as u64,
            0,
            self.total,
            self.range,
            self.used,
            self.saved,
        ];
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }
}

/// References to a block in a txg that is not syncing yet.
struct Wait {
    count: u64,
    /// Space charged for the block, in bytes (dsize).
    dsize: u64,
    /// A block that a dedup table may count.
    dedup: Option<BlockPointer>,
}

/// By vdev and offset.
type Waiting = HashMap<(u32, u64), Wait>;

#[derive(Default)]
struct State {
    mos: Option<Arc<Objset>>,
    tables: BTreeMap<u32, Table>,
    waiting: [Waiting; 4],
    /// References up to this txg are counted.
    applied: Txg,
    /// References that were withdrawn after they had been counted, and the sizes of their blocks.
    orphans: Vec<(BlockPointer, u64)>,
}

/// The tables of a pool.
pub(crate) struct Clones {
    vdevs: Arc<Vdevs>,
    dedup: Arc<Dedup>,
    state: Mutex<State>,
    /// Whether there are any entries. Most pools have none, and each freed block is checked.
    any: AtomicBool,
    enabled: AtomicBool,
}

/// Vdev and offset of a block's first copy, if the block can be cloned.
fn key_of(bp: &BlockPointer) -> Option<(u32, u64)> {
    // Only these can be cloned, so others are spared the look-up.
    let data = bp.kind() == BpKind::Normal
        && bp.level() == 0
        && !object_type::is_metadata(bp.object_type());
    data.then(|| {
        let dva = bp.dva(0);
        // By its first copy, as on disk; the other copies are freed with it.
        (dva.vdev(), dva.offset())
    })
}

impl Clones {
    /// The dedup tables of a pool, together with these.
    pub fn with_dedup(vdevs: &Arc<Vdevs>) -> (Arc<Dedup>, Arc<Self>) {
        let dedup = Dedup::new(vdevs.clone());
        let clones = Arc::new(Self {
            vdevs: vdevs.clone(),
            dedup: dedup.clone(),
            state: Mutex::default(),
            any: AtomicBool::new(false),
            enabled: AtomicBool::new(false),
        });
        (dedup, clones)
    }

    /// Installs these tables and those of dedup in the pipeline.
    pub fn install(self: &Arc<Self>, io: &Pipeline) {
        io.set_shared(self.clone());
        io.set_dedup_tables(self.dedup.clone());
    }

    fn state(&self) -> Watched<'_, MutexGuard<'_, State>> {
        self.vdevs.tripwire().hold(at::CLONES, self.state.lock())
    }

    /// Bytes saved: the space that the additional pointers would take as blocks.
    pub fn saved(&self) -> u64 {
        if !self.any.load(Relaxed) {
            return 0;
        }
        let state = self.state();
        state
            .tables
            .values()
            .fold(0, |sum, t| sum.saturating_add(t.saved))
    }

    /// Reads the tables of a pool that is being opened.
    pub fn load(&self, pool: &Pool) -> Result<()> {
        let mos = pool.mos();
        let mut tables = BTreeMap::new();
        let mut cursor = pool.directory()?.cursor(0);
        while let Some(entry) = cursor.next()? {
            let name = String::from_utf8_lossy(&entry.name);
            let Some(vdev) = name.strip_prefix(NAME) else {
                continue;
            };
            let place = || format!("table of cloned blocks of vdev {vdev}");
            let (Ok(vdev), Some(object)) = (vdev.parse::<u32>(), entry.value.first()) else {
                return Err(Error::corrupt(place(), "it has no vdev or no object"));
            };
            let table = Table::read(mos, ObjectId(object), &place)?;
            tables.insert(vdev, table);
        }
        self.any.store(!tables.is_empty(), Relaxed);
        self.state().tables = tables;
        Ok(())
    }

    /// From now on the tables may be changed.
    pub fn attach(&self, pool: &Pool) {
        self.state().mos = Some(pool.mos().clone());
        self.enabled
            .store(pool.features().is_enabled(FEATURE), Relaxed);
    }

    /// Releases the MOS, which holds the pipeline, which holds this.
    pub fn detach(&self) {
        self.state().mos = None;
    }

    pub fn is_dirty(&self, txg: Txg) -> bool {
        let state = self.state();
        !state.waiting[txg.slot::<4>()].is_empty()
            || !state.orphans.is_empty()
            || state.tables.values().any(|t| !t.changed.is_empty())
    }

    /// The number of additional pointers of a block. If it has any, it is in `changed` from now on.
    fn now(&self, (vdev, offset): (u32, u64)) -> Result<u64> {
        let (mos, entries) = {
            let state = self.state();
            let Some(table) = state.tables.get(&vdev) else {
                return Ok(0);
            };
            // Newer than the stored count.
            if let Some(count) = table.changed.get(&offset) {
                return Ok(count.now);
            }
            match (&state.mos, table.objects) {
                // Most ranges have no clone: then no ZAP is read.
                (Some(mos), Some((_, entries))) if table.in_range(offset) > 0 => {
                    (mos.clone(), entries)
                }
                _ => return Ok(0),
            }
        };
        let place = || format!("table of cloned blocks of vdev {vdev}, offset {offset:#x}");
        let Some(value) = Zap::open(&mos.dnode(entries)?)?.lookup_words(&[offset])? else {
            return Ok(0);
        };
        let (stored, order) =
            count_of(&value).ok_or_else(|| Error::corrupt(place(), "its count makes no sense"))?;
        let mut state = self.state();
        let Some(table) = state.tables.get_mut(&vdev) else {
            return Ok(0);
        };
        // Another thread may have been faster while the ZAP was read: its count is kept.
        let count = table.changed.entry(offset).or_insert(Count {
            stored,
            now: stored,
            order,
        });
        Ok(count.now)
    }

    /// Adds `more` pointers to a block of `dsize` bytes.
    fn add(&self, key: (u32, u64), more: u64, dsize: u64) -> Result<()> {
        // The stored count is loaded first, because this one is added to it.
        self.now(key)?;
        let (vdev, offset) = key;
        let tops = self.vdevs.tops();
        // Whole metaslabs: OpenZFS refuses a table for more.
        let room = tops.iter().find(|t| t.id() == vdev).map(|t| {
            let shift = t.metaslab_shift();
            (t.asize() >> shift) << shift
        });
        let mut state = self.state();
        let table = state.tables.entry(vdev).or_insert_with(|| Table {
            range: RANGE,
            ..Table::default()
        });
        // The vdev may have grown.
        let ranges = room.unwrap_or(0).div_ceil(table.range.max(1));
        let size = usize::try_from(ranges.min(MOST_RANGES)).unwrap_or(0);
        if table.counts.len() < size {
            let from = table.counts.len() / PER_BLOCK;
            table.counts.resize(size, 0);
            table.dirty.extend(from..size.div_ceil(PER_BLOCK));
        }
        if table.index(offset) >= table.counts.len() {
            return Err(Error::corrupt(
                format!("block at <{vdev}:{offset:x}>"),
                "a cloned block behind the end of its vdev",
            ));
        }
        // If the ZAP has a count, `now` has put it here.
        let count = table.changed.entry(offset).or_insert(Count::NONE);
        let first = count.now == 0;
        count.now = count.now.saturating_add(more);
        table.saved = table.saved.saturating_add(dsize.saturating_mul(more));
        // A block counts once in its range, whatever its number of pointers.
        if first {
            table.entry(offset, dsize, true);
        }
        self.any.store(true, Relaxed);
        Ok(())
    }

    /// Counts the references of a txg, before anything is freed in it.
    pub fn apply(&self, pool: &Pool, txg: Txg) -> Result<()> {
        // The feature may have been enabled since the last txg.
        self.enabled
            .store(pool.features().is_enabled(FEATURE), Relaxed);
        let waiting = {
            let mut state = self.state();
            // Under the same lock: a later reference is refused, not lost.
            state.applied = txg;
            std::mem::take(&mut state.waiting[txg.slot::<4>()])
        };
        for (key, wait) in waiting {
            let counted = match &wait.dedup {
                // A deduplicated block is counted only in its dedup table.
                Some(bp) => self.dedup.refer(bp, wait.count)?,
                None => false,
            };
            if !counted {
                self.add(key, wait.count, wait.dsize)?;
            }
        }
        Ok(())
    }

    /// Drops references that were withdrawn after they had been counted: before the dedup tables
    /// are written.
    pub fn take_back(&self) -> Result<()> {
        let orphans = std::mem::take(&mut self.state().orphans);
        for (bp, dsize) in orphans {
            if !bp.dedup() || !self.dedup.drop_reference(&bp)? {
                self.drop_reference(&bp, dsize)?;
            }
        }
        Ok(())
    }

    /// Writes changes into the MOS; after everything else that frees blocks of files.
    pub fn sync(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        let changed: Vec<u32> = {
            let state = self.state();
            let changed = state.tables.iter().filter(|(_, t)| !t.changed.is_empty());
            changed.map(|(vdev, _)| *vdev).collect()
        };
        changed
            .into_iter()
            .try_for_each(|vdev| self.sync_table(ctx, vdev))
    }

    fn sync_table(&self, ctx: &SyncCtx<'_>, vdev: u32) -> Result<()> {
        let (changes, objects, total) = {
            let mut state = self.state();
            let Some(table) = state.tables.get_mut(&vdev) else {
                return Ok(());
            };
            let mut changes: Vec<(u64, Count)> = table
                .changed
                .drain()
                // Cloned and freed again within the txg: nothing to write.
                .filter(|(_, c)| c.now != c.stored)
                .collect();
            // In disk order, so that two runs write the same bytes.
            changes.sort_unstable_by_key(|(offset, _)| *offset);
            (changes, table.objects, table.total)
        };
        if changes.is_empty() && (objects.is_some() == (total > 0)) {
            return Ok(());
        }
        if total == 0 {
            if let Some(objects) = objects {
                // The table is removed with its last entry: an empty one would keep the feature
                // active.
                destroy(ctx, vdev, objects)?;
            }
            let mut state = self.state();
            state.tables.remove(&vdev);
            return Ok(());
        }
        let mos = ctx.pool.mos();
        let objects = match objects {
            Some(objects) => objects,
            None => create(ctx, vdev)?,
        };
        let entries = Zap::open(&mos.dnode(objects.1)?)?;
        let endian = ctx.pool.features().is_active(ENDIAN);
        for (offset, count) in changes {
            if count.now == 0 {
                entries.remove_words(ctx.tx, &[offset])?;
            } else {
                entries.update_words(ctx.tx, &[offset], &value_of(&count, endian))?;
            }
        }
        let (header, blocks) = {
            let mut state = self.state();
            let Some(table) = state.tables.get_mut(&vdev) else {
                return Ok(());
            };
            // After the entries: an error before leaves no table without its entries.
            table.objects = Some(objects);
            let dirty = std::mem::take(&mut table.dirty);
            let blocks: Vec<_> = dirty
                .into_iter()
                .map(|block| (block, table.stored_counts(block)))
                .collect();
            (table.header(objects.1), blocks)
        };
        let dnode = mos.dnode(objects.0)?;
        for (block, bytes) in blocks {
            dnode.write_at(ctx.tx, block as u64 * u64::from(BLOCK), &bytes)?;
        }
        dnode.set_bonus(ctx.tx, &header)
    }
}

/// A count from a table's entry; at least one.
fn count_of(value: &ZapValue) -> Option<(u64, ByteOrder)> {
    match value {
        ZapValue::U64(count) if *count > 0 => Some((*count, ByteOrder::Little)),
        ZapValue::Bytes(bytes) => clone_count::read(bytes),
        _ => None,
    }
}

fn value_of(count: &Count, endian: bool) -> ZapValue {
    if endian {
        ZapValue::U64(count.now)
    } else {
        ZapValue::Bytes(clone_count::write(count.now, count.order).to_vec())
    }
}

/// Makes the objects of a table.
fn create(ctx: &SyncCtx<'_>, vdev: u32) -> Result<(ObjectId, ObjectId)> {
    let (mos, features) = (ctx.pool.mos(), ctx.pool.features());
    // The first table decides how counts are stored in all of them.
    let first = !features.is_active(FEATURE);
    if features.is_active(ENDIAN) || first && features.is_enabled(ENDIAN) {
        features.add(ctx, ENDIAN, 1)?;
    }
    features.add(ctx, FEATURE, 1)?;
    let spec = DnodeSpec::new(WORDS).bonus(WORDS, HEADER).block_size(BLOCK);
    let object = mos.allocate(ctx.tx, &spec)?.object();
    let options = ZapOptions {
        flags: ZapFlags {
            hash64: true,
            uint64_key: true,
            prehashed: false,
        },
        block_shift: 13,
        indirect_shift: 13,
        ..ZapOptions::default()
    };
    let entries = Zap::create(mos, ctx.tx, object_type::ZAP_METADATA, &options)?;
    let name = format!("{NAME}{vdev}");
    ctx.pool
        .directory()?
        .add_u64(ctx.tx, name.as_bytes(), object.0)?;
    Ok((object, entries.dnode().object()))
}

fn destroy(ctx: &SyncCtx<'_>, vdev: u32, (object, entries): (ObjectId, ObjectId)) -> Result<()> {
    let (mos, features) = (ctx.pool.mos(), ctx.pool.features());
    mos.free(ctx.tx, entries)?;
    mos.free(ctx.tx, object)?;
    let name = format!("{NAME}{vdev}");
    ctx.pool.directory()?.remove(ctx.tx, name.as_bytes())?;
    features.add(ctx, FEATURE, -1)?;
    if features.is_active(ENDIAN) {
        features.add(ctx, ENDIAN, -1)?;
    }
    Ok(())
}

impl Table {
    fn read(mos: &Arc<Objset>, object: ObjectId, place: &dyn Fn() -> String) -> Result<Self> {
        let dnode = mos.dnode(object)?;
        let header = dnode.bonus_vec();
        if header.len() < usize::from(HEADER) {
            return Err(Error::truncated(place(), "its header is too short"));
        }
        let word = |i: usize| u64_at(&header, i * 8);
        let (entries, size, big, range) = (word(0), word(1), word(2), word(4));
        // From the disk: the size is allocated below, and offsets are divided by the range.
        if size > MOST_RANGES || range == 0 || entries == 0 {
            return Err(Error::corrupt(
                place(),
                format!("{size} ranges of {range} bytes, entries in object {entries}"),
            ));
        }
        let mut bytes = vec![0; usize::try_from(size * 2).unwrap_or(0)];
        dnode.read_at(0, &mut bytes)?;
        let counts: Vec<u16> = bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|b| {
                if big != 0 {
                    u16::from_be_bytes(*b)
                } else {
                    u16::from_le_bytes(*b)
                }
            })
            .collect();
        // All blocks are rewritten little-endian, and the header says so.
        let dirty = if big != 0 {
            (0..counts.len().div_ceil(PER_BLOCK)).collect()
        } else {
            BTreeSet::new()
        };
        Ok(Self {
            objects: Some((object, ObjectId(entries))),
            range,
            counts,
            total: word(3),
            used: word(5),
            saved: word(6),
            dirty,
            changed: HashMap::new(),
        })
    }
}

impl Shared for Clones {
    fn refer(&self, txg: Txg, bp: &BlockPointer, dsize: u64) -> Result<()> {
        let Some(key) = key_of(bp).filter(|_| self.enabled.load(Relaxed)) else {
            return Err(Error::refused(
                Errno::NOTSUP,
                "the block cannot be shared, or the feature block_cloning is not enabled",
            ));
        };
        let mut state = self.state();
        if txg <= state.applied {
            return Err(Error::refused(
                Errno::INVAL,
                "a reference to a block comes too late",
            ));
        }
        let wait = state.waiting[txg.slot::<4>()].entry(key);
        let wait = wait.or_insert(Wait {
            count: 0,
            dsize,
            dedup: bp.dedup().then_some(*bp),
        });
        wait.count += 1;
        Ok(())
    }

    fn withdraw(&self, txg: Txg, bp: &BlockPointer, dsize: u64) {
        let Some(key) = key_of(bp) else { return };
        let mut state = self.state();
        // It is counted already: `take_back` drops it again, later in this sync.
        if txg <= state.applied {
            state.orphans.push((*bp, dsize));
            return;
        }
        let waiting = &mut state.waiting[txg.slot::<4>()];
        if let Some(wait) = waiting.get_mut(&key) {
            wait.count -= 1;
            if wait.count == 0 {
                waiting.remove(&key);
            }
        }
    }

    fn drop_reference(&self, bp: &BlockPointer, dsize: u64) -> Result<bool> {
        if !self.any.load(Relaxed) {
            return Ok(false);
        }
        let Some(key) = key_of(bp) else {
            return Ok(false);
        };
        if self.now(key)? == 0 {
            return Ok(false);
        }
        let mut state = self.state();
        let Some(table) = state.tables.get_mut(&key.0) else {
            return Ok(false);
        };
        // Another thread may have been faster.
        let Some(count) = table.changed.get_mut(&key.1).filter(|c| c.now > 0) else {
            return Ok(false);
        };
        count.now -= 1;
        let last = count.now == 0;
        table.saved = table.saved.saturating_sub(dsize);
        if last {
            table.entry(key.1, dsize, false);
        }
        Ok(true)
    }
}
