//! Allocated space that is not claimed yet: one bit per smallest unit, by metaslab.
//!
//! 32 MiB per TiB with sectors of 4 KiB. Space maps are read once, before the walk; a claim clears
//! the bits of a block. The bits left at the end are leaks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zuse_base::sync::Mutex;

use zuse_base::pool::run_all_borrowed;
use zuse_base::{Error, ObjectId, Result};
use zuse_dmu::zap::Zap;
use zuse_format::BlockPointer;
use zuse_format::space_map::{MapEntry, MapGeometry, MapOp, SpaceMapPhys, decode};
use zuse_io::Pipeline;
use zuse_vdev::Mapping;

use crate::Pool;

/// Bytes of a map that are read at a time.
const PIECE: u64 = 1 << 20;
/// More than any valid map has.
const MAX_MAP: u64 = 1 << 32;
/// Leaks that are kept: 24 MiB. All are counted.
const MOST_LEAKS: usize = 1 << 20;

/// Space without an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leak {
    /// Top-level vdev.
    pub vdev: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// Bits of a metaslab; set: allocated and not claimed.
struct Slab {
    words: Mutex<Vec<u64>>,
}

struct Vdev {
    id: u32,
    ashift: u32,
    shift: u32,
    slabs: Vec<Slab>,
    /// Bytes by the headers of the maps.
    stored: AtomicU64,
    /// Bits set after the maps were read, in bytes.
    allocated: AtomicU64,
}

/// The space of a pool.
pub(super) struct Space {
    vdevs: BTreeMap<u32, Vdev>,
    checkpoint: AtomicU64,
    sharing: bool,
}

/// Sets or clears a run of bits; returns how many changed.
fn change(words: &mut [u64], from: u64, count: u64, set: bool) -> u64 {
    let mut changed = 0;
    let (mut at, end) = (from, from.saturating_add(count));
    while at < end {
        let bit = at % 64;
        let take = (64 - bit).min(end - at);
        let mask = if take == 64 {
            u64::MAX
        } else {
            ((1 << take) - 1) << bit
        };
        if let Some(word) = words.get_mut((at / 64) as usize) {
            let now = if set { *word | mask } else { *word & !mask };
            changed += u64::from((now ^ *word).count_ones());
            *word = now;
        }
        at += take;
    }
    changed
}

impl Vdev {
    /// Sets or clears the bits of a range; returns the bytes that changed. `None`: it is not on
    /// this vdev.
    fn change(&self, offset: u64, size: u64, set: bool) -> Option<u64> {
        let end = offset.checked_add(size)?;
        if end > (self.slabs.len() as u64) << self.shift {
            return None;
        }
        let mut changed = 0;
        let mut at = offset;
        while at < end {
            let index = at >> self.shift;
            let stop = end.min((index + 1) << self.shift);
            let slab = self.slabs.get(index as usize)?;
            let start = at - (index << self.shift);
            let mut words = slab.words.lock();
            if words.is_empty() {
                let units = 1u64 << (self.shift - self.ashift);
                words.resize(units.div_ceil(64) as usize, 0);
            }
            let units = (stop - at).div_ceil(1 << self.ashift);
            changed += change(&mut words, start >> self.ashift, units, set);
            at = stop;
        }
        Some(changed << self.ashift)
    }
}

impl Vdev {
    /// Calls `f` with the allocated parts of a range, and their sizes.
    fn each_allocated(&self, offset: u64, size: u64, f: &mut dyn FnMut(u64, u64)) {
        let (mut at, end) = (offset, offset.saturating_add(size));
        while at < end {
            let index = at >> self.shift;
            let base = index << self.shift;
            let stop = end.min(base + (1 << self.shift));
            let Some(slab) = self.slabs.get(index as usize) else {
                return;
            };
            let unit = |place: u64| ((place - base) >> self.ashift) / 64;
            let (low, high) = (unit(at) as usize, unit(stop - 1) as usize + 1);
            // Collected first: `f` may access the same metaslab.
            let mut found = Vec::new();
            let words = slab.words.lock();
            let part = words.get(low..high.min(words.len())).unwrap_or_default();
            each_run(part, &mut |first, count| {
                let first = first + low as u64 * 64;
                let from = (base + (first << self.ashift)).max(at);
                let to = (base + ((first + count) << self.ashift)).min(stop);
                if from < to {
                    found.push((from, to - from));
                }
            });
            drop(words);
            found.into_iter().for_each(|(from, len)| f(from, len));
            at = stop;
        }
    }
}

fn words(pool: &Pool, object: u64, count: u64) -> Result<Vec<u64>> {
    let dnode = pool.spa().mos().dnode(ObjectId(object))?;
    let mut raw = vec![0; usize::try_from(count.saturating_mul(8)).unwrap_or(0)];
    dnode.read_at(0, &mut raw)?;
    Ok(raw
        .as_chunks::<8>()
        .0
        .iter()
        .map(|w| u64::from_le_bytes(*w))
        .collect())
}

/// Calls `f` with the entries of a map; returns its header.
fn each_entry(
    pool: &Pool,
    object: u64,
    geometry: MapGeometry,
    f: &mut dyn FnMut(MapEntry),
) -> Result<SpaceMapPhys> {
    let place = || format!("space map, object {object}");
    let dnode = pool.spa().mos().dnode(ObjectId(object))?;
    let header = SpaceMapPhys::parse(&dnode.bonus_vec()).map_err(|e| e.at(place()))?;
    // It comes from disk, and decides how much is read.
    if header.length > MAX_MAP {
        return Err(Error::corrupt(
            place(),
            format!("{} bytes long", header.length),
        ));
    }
    // An entry of two words never crosses a block of the map.
    let piece = PIECE.max(u64::from(dnode.block_size()));
    let mut at = 0;
    while at < header.length {
        let take = piece.min(header.length - at);
        let mut data = vec![0; take as usize];
        dnode.read_at(at, &mut data)?;
        for entry in decode(&data, geometry) {
            f(entry.map_err(|e| e.at(place()))?);
        }
        at += take;
    }
    Ok(header)
}

/// For each data vdev: size, and allocated bytes by its space maps and their logs.
///
/// # Errors
/// A space map cannot be read.
pub fn space_by_maps(pool: &Pool) -> Result<BTreeMap<u32, (u64, u64)>> {
    pool.spa().space_by_maps()
}

/// The same by the headers of the space maps alone, as in `zdb -s`.
///
/// # Errors
/// A space map cannot be read.
pub fn space_by_headers(pool: &Pool) -> Result<BTreeMap<u32, (u64, u64)>> {
    let mut all = BTreeMap::new();
    for top in pool.spa().vdevs().tops().iter() {
        let shift = u32::from(top.metaslab_shift());
        if !top.is_concrete() || shift == 0 || top.metaslab_array() == 0 {
            continue;
        }
        let count = top.asize() >> shift;
        let mut allocated = 0u64;
        for object in words(pool, top.metaslab_array(), count)? {
            if object != 0 {
                let dnode = pool.spa().mos().dnode(ObjectId(object))?;
                let header = SpaceMapPhys::parse(&dnode.bonus_vec())
                    .map_err(|e| e.at(format!("space map, object {object}")))?;
                allocated = allocated.saturating_add(header.alloc.max(0).cast_unsigned());
            }
        }
        all.insert(top.id(), (count << shift, allocated));
    }
    Ok(all)
}

impl Space {
    pub fn load(pool: &Pool, threads: usize) -> Result<Self> {
        let tops = pool.spa().vdevs().tops();
        let mut vdevs = BTreeMap::new();
        for top in tops.iter().filter(|t| t.is_concrete()) {
            let (shift, ashift) = (u32::from(top.metaslab_shift()), u32::from(top.ashift()));
            if shift < ashift || top.metaslab_array() == 0 {
                continue;
            }
            let count = top.asize() >> shift;
            let slabs = (0..count)
                .map(|_| Slab {
                    words: Mutex::default(),
                })
                .collect();
            let vdev = Vdev {
                id: top.id(),
                ashift,
                shift,
                slabs,
                stored: AtomicU64::new(0),
                allocated: AtomicU64::new(0),
            };
            let objects = words(pool, top.metaslab_array(), count)?;
            let jobs: Vec<(u64, u64)> = (0..count).zip(objects).filter(|(_, o)| *o != 0).collect();
            let done = run_all_borrowed(threads, jobs, |(i, object)| -> Result<()> {
                // Metaslabs of dRAID begin and end with whole rows.
                let (start, size) = pool
                    .spa()
                    .metaslab_region(top.id(), i)
                    .unwrap_or((i << shift, 1 << shift));
                let geometry = MapGeometry {
                    start,
                    size,
                    shift: ashift,
                };
                let header = each_entry(pool, object, geometry, &mut |e| {
                    vdev.change(e.offset, e.run, e.op == MapOp::Alloc);
                })?;
                vdev.stored.fetch_add(header.alloc.max(0) as u64, Relaxed);
                Ok(())
            });
            done.into_iter().collect::<Result<Vec<()>>>()?;
            vdevs.insert(top.id(), vdev);
        }
        let space = Self {
            vdevs,
            checkpoint: AtomicU64::new(0),
            sharing: pool
                .spa()
                .features()
                .is_active("com.fudosecurity:block_cloning"),
        };
        // After the metaslabs' own maps, which are older than their entries in the logs.
        space.apply_logs(pool)?;
        for vdev in space.vdevs.values() {
            let bits: u64 = vdev.bits();
            vdev.allocated.store(bits << vdev.ashift, Relaxed);
        }
        space.apply_checkpoint(pool)?;
        for top in tops.iter() {
            if let Some(copied) = pool.spa().copied_from(top.id())? {
                space.claim_copies(top.id(), &copied)?;
            }
        }
        Ok(space)
    }

    fn top_zap(pool: &Pool, vdev: u32) -> Result<Option<Zap>> {
        let config = pool.config();
        let top = config.vdev_tree.children.get(vdev as usize);
        match top.and_then(|c| c.zap_top).filter(|z| *z != 0) {
            Some(zap) => Zap::open(&pool.spa().mos().dnode(ObjectId(zap))?).map(Some),
            None => Ok(None),
        }
    }

    /// Entries of log space maps that are newer than a metaslab's own map.
    fn apply_logs(&self, pool: &Pool) -> Result<()> {
        let Some(zap) = pool
            .spa()
            .directory()?
            .lookup_u64(b"com.delphix:log_spacemap_zap")?
        else {
            return Ok(());
        };
        let mut unflushed = BTreeMap::new();
        for vdev in self.vdevs.values() {
            if let Some(zap) = Self::top_zap(pool, vdev.id)?
                && let Some(array) = zap.lookup_u64(b"com.delphix:ms_unflushed_phys_txgs")?
            {
                unflushed.insert(vdev.id, words(pool, array, vdev.slabs.len() as u64)?);
            }
        }
        let zap = Zap::open(&pool.spa().mos().dnode(ObjectId(zap))?)?;
        // In the order of txgs: a range may be allocated, freed and allocated again.
        let mut by_txg = BTreeMap::new();
        let mut cursor = zap.cursor(0);
        while let Some(entry) = cursor.next()? {
            let txg = std::str::from_utf8(&entry.name)
                .ok()
                .and_then(|t| u64::from_str_radix(t, 16).ok());
            if let (Some(txg), Some(object)) = (txg, entry.value.first()) {
                by_txg.insert(txg, object);
            }
        }
        for (txg, object) in by_txg {
            each_entry(pool, object, MapGeometry::LOG, &mut |e| {
                let Some(vdev) = e.vdev.and_then(|v| self.vdevs.get(&v)) else {
                    return;
                };
                let index = (e.offset >> vdev.shift) as usize;
                let since = unflushed.get(&vdev.id).and_then(|u| u.get(index));
                if since.is_some_and(|u| *u != 0 && txg >= *u) {
                    vdev.change(e.offset, e.run, e.op == MapOp::Alloc);
                }
            })?;
        }
        Ok(())
    }

    /// Space held only by the checkpoint belongs to it.
    fn apply_checkpoint(&self, pool: &Pool) -> Result<()> {
        for vdev in self.vdevs.values() {
            let Some(zap) = Self::top_zap(pool, vdev.id)? else {
                continue;
            };
            let Some(object) = zap.lookup_u64(b"com.delphix:pool_checkpoint_sm")? else {
                continue;
            };
            let geometry = MapGeometry {
                start: 0,
                size: (vdev.slabs.len() as u64) << vdev.shift,
                shift: vdev.ashift,
            };
            each_entry(pool, object, geometry, &mut |e| {
                if e.op == MapOp::Free {
                    let bytes = vdev.change(e.offset, e.run, false).unwrap_or(0);
                    self.checkpoint.fetch_add(bytes, Relaxed);
                }
            })?;
        }
        Ok(())
    }

    /// Claims the copies of a removal in progress: where the old place is still allocated, the new
    /// one is too, without a pointer yet.
    fn claim_copies(&self, from: u32, copied: &Mapping) -> Result<()> {
        let Some(old) = self.vdevs.get(&from) else {
            return Ok(());
        };
        for moved in copied.iter() {
            let mut wrong = None;
            old.each_allocated(moved.from, moved.len, &mut |offset, size| {
                let to = moved.to + (offset - moved.from);
                let changed = self
                    .vdevs
                    .get(&moved.vdev)
                    .and_then(|v| v.change(to, size, false));
                if changed != Some(size) {
                    wrong = Some((to, size));
                }
            });
            if let Some((to, size)) = wrong {
                return Err(Error::miscounted(
                    format!("copy at <{}:{to:x}:{size:x}>", moved.vdev),
                    "its space is free or another block's",
                ));
            }
        }
        Ok(())
    }

    /// Claims the space of a block. Returns the bytes that another block had claimed before, if
    /// sharing is allowed.
    pub fn claim(&self, io: &Pipeline, bp: &BlockPointer) -> Result<u64> {
        let mut shared = 0;
        let mut wrong = None;
        io.each_piece(bp, &mut |dva| {
            let len = usize::try_from(dva.asize()).unwrap_or(0);
            // Space on a removed vdev is claimed at its new place.
            let Ok(parts) = io.vdevs().resolve(dva.vdev(), dva.offset(), len) else {
                wrong = Some((dva, "no mapping knows it"));
                return;
            };
            for (id, offset, asize) in parts {
                let Some(vdev) = self.vdevs.get(&id) else {
                    wrong = Some((dva, "its vdev has no space maps"));
                    return;
                };
                match vdev.change(offset, asize, false) {
                    None => wrong = Some((dva, "it lies behind the end of its vdev")),
                    Some(bytes) if bytes == asize => {}
                    Some(0) if bp.dedup() || self.sharing => shared += asize,
                    Some(_) => wrong = Some((dva, "its space is free or another block's")),
                }
            }
        })?;
        match wrong {
            None => Ok(shared),
            Some((dva, what)) => Err(Error::corrupt(
                format!(
                    "block at <{}:{:x}:{:x}>",
                    dva.vdev(),
                    dva.offset(),
                    dva.asize()
                ),
                what,
            )),
        }
    }

    /// By vdev: allocated bytes, and those in the maps' headers.
    pub fn allocated(&self) -> Vec<(u32, u64, u64)> {
        self.vdevs
            .values()
            .map(|v| (v.id, v.allocated.load(Relaxed), v.stored.load(Relaxed)))
            .collect()
    }

    pub fn checkpoint(&self) -> u64 {
        self.checkpoint.load(Relaxed)
    }

    /// Unclaimed space, and its size in bytes. As in OpenZFS's zdb, a leak ends with its metaslab.
    pub fn leaks(&self) -> (Vec<Leak>, u64) {
        let mut out: Vec<Leak> = Vec::new();
        let mut all = 0u64;
        for vdev in self.vdevs.values() {
            for (i, slab) in vdev.slabs.iter().enumerate() {
                let words = slab.words.lock();
                each_run(&words, &mut |from, count| {
                    let leak = Leak {
                        vdev: vdev.id,
                        offset: ((i as u64) << vdev.shift) + (from << vdev.ashift),
                        size: count << vdev.ashift,
                    };
                    all = all.saturating_add(leak.size);
                    if out.len() < MOST_LEAKS {
                        out.push(leak);
                    }
                });
            }
        }
        (out, all)
    }
}

/// Calls `f` with the first bit and the length of each run of set bits.
fn each_run(words: &[u64], f: &mut dyn FnMut(u64, u64)) {
    let mut run: Option<(u64, u64)> = None;
    for (w, word) in words.iter().enumerate().filter(|(_, w)| **w != 0) {
        let mut left = *word;
        while left != 0 {
            let first = left.trailing_zeros();
            let count = (left >> first).trailing_ones();
            // All bits of a word at once, or those of this run.
            left &= u64::MAX.checked_shl(first + count).unwrap_or(0);
            let from = w as u64 * 64 + u64::from(first);
            match &mut run {
                Some((start, len)) if *start + *len == from => *len += u64::from(count),
                _ => {
                    if let Some((start, len)) = run.replace((from, u64::from(count))) {
                        f(start, len);
                    }
                }
            }
        }
    }
    if let Some((start, len)) = run {
        f(start, len);
    }
}

impl Vdev {
    fn bits(&self) -> u64 {
        self.slabs
            .iter()
            .map(|s| {
                let words = s.words.lock();
                words.iter().map(|w| u64::from(w.count_ones())).sum::<u64>()
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_bits_go_on_across_words() {
        let mut words = [0; 4];
        assert_eq!(change(&mut words, 0, 1, true), 1);
        assert_eq!(change(&mut words, 62, 68, true), 68);
        assert_eq!(change(&mut words, 255, 1, true), 1);
        let mut runs = Vec::new();
        each_run(&words, &mut |from, count| runs.push((from, count)));
        assert_eq!(runs, [(0, 1), (62, 68), (255, 1)]);
        each_run(&[0; 3], &mut |_, _| panic!("nothing is set"));
    }
}
