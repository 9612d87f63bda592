//! `zdb -m`: metaslabs, their space maps, the logs of space maps.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use zuse::fragmentation::of_histogram;
use zuse::tools::Layers as _;
use zuse::tools::Zap;
use zuse::{IndirectConfig, ObjectId, Pool, Result, VdevClass, VdevKind};
use zuse_format::space_map::{MapEntry, MapGeometry, MapOp, SpaceMapPhys, decode};

use super::histogram;
use crate::error::{Explain, Outcome};
use crate::nicenum::nicenum;
use crate::session::Session;

/// More than any valid map has.
const MAX_MAP: u64 = 1 << 32;
/// With this feature changes of space maps are logged.
const LOG_FEATURE: &str = "com.delphix:log_spacemap";
/// Bytes of a map read at a time.
const PIECE: u64 = 1 << 20;
/// What is printed.
#[derive(Clone, Copy, Debug)]
pub struct MetaslabOptions {
    /// Histograms.
    pub histograms: bool,
    /// Entries of the maps.
    pub entries: bool,
}

/// One top-level vdev with its maps.
pub struct Slabs {
    /// Its id.
    pub vdev: u64,
    class: VdevClass,
    /// log2 of the bytes of a metaslab.
    pub shift: u64,
    ashift: u64,
    asize: u64,
    /// Mapping of a removed vdev.
    pub removed: Option<IndirectConfig>,
    unflushed: Option<(u64, Vec<u64>)>,
    /// The space map of each metaslab; 0 for none.
    pub maps: Vec<u64>,
}

impl Slabs {
    /// First byte and size of a metaslab. Those of dRAID begin and end at whole rows.
    fn region(&self, pool: &Pool, index: u64) -> (u64, u64) {
        let shift = self.shift.min(63);
        let known = pool.spa().metaslab_region(self.vdev as u32, index);
        known.unwrap_or((index << shift, 1 << shift))
    }

    /// The base of the offsets in a metaslab's space map.
    pub fn geometry(&self, pool: &Pool, index: u64) -> MapGeometry {
        let (start, size) = self.region(pool, index);
        MapGeometry {
            start,
            size,
            shift: self.ashift as u32,
        }
    }

    /// The metaslab of an offset, and the txg from which on the logs have its changes.
    fn unflushed(&self, offset: u64) -> Option<(u64, u64)> {
        let index = offset >> self.shift.min(63);
        let (_, txgs) = self.unflushed.as_ref()?;
        let since = txgs.get(usize::try_from(index).ok()?)?;
        (offset < self.asize).then_some((index, *since))
    }
}

fn words(pool: &Pool, object: u64, count: u64) -> Result<Vec<u64>> {
    let dnode = pool.spa().mos().dnode(ObjectId(object))?;
    let most = dnode
        .max_block()
        .saturating_add(1)
        .saturating_mul(dnode.block_size().into())
        / 8;
    // The count comes from the pool's configuration, which may be wrong: the object's size bounds
    // it.
    let mut raw = vec![0; usize::try_from(count.min(most).saturating_mul(8)).unwrap_or(0)];
    dnode.read_at(0, &mut raw)?;
    let mut all: Vec<u64> = raw
        .as_chunks::<8>()
        .0
        .iter()
        .map(|w| u64::from_le_bytes(*w))
        .collect();
    all.resize(usize::try_from(count).unwrap_or(0).min(1 << 24), 0);
    Ok(all)
}

/// The top-level vdevs that have metaslabs.
///
/// # Errors
/// A list of metaslabs cannot be read.
pub fn slabs(pool: &Pool) -> Result<Vec<Slabs>> {
    let mut all = Vec::new();
    let classes: BTreeMap<u64, VdevClass> = pool
        .vdev_status()
        .children
        .iter()
        .map(|c| (c.id, c.class))
        .collect();
    for (i, child) in pool.config().vdev_tree.children.iter().enumerate() {
        let id = child.id.unwrap_or(i as u64);
        let Some(top) = &child.top else { continue };
        let removed = child.kind == VdevKind::Indirect;
        if (!child.kind.is_concrete() && !removed) || top.metaslab_shift == 0 {
            continue;
        }
        let count = if removed {
            0
        } else {
            top.asize >> top.metaslab_shift.min(63)
        };
        let maps = match top.metaslab_array {
            0 => vec![0; usize::try_from(count).unwrap_or(0).min(1 << 24)],
            object => words(pool, object, count)?,
        };
        let mut unflushed = None;
        if let (Some(zap), false) = (child.zap_top, removed) {
            let zap = Zap::open(&pool.spa().mos().dnode(ObjectId(zap))?)?;
            if let Some(array) = zap.lookup_u64(b"com.delphix:ms_unflushed_phys_txgs")? {
                unflushed = Some((array, words(pool, array, count)?));
            }
        }
        all.push(Slabs {
            vdev: id,
            class: classes.get(&id).copied().unwrap_or_default(),
            shift: top.metaslab_shift,
            ashift: top.ashift,
            asize: top.asize,
            removed: child.indirect.clone().filter(|_| removed),
            unflushed,
            maps,
        });
    }
    Ok(all)
}

fn header(pool: &Pool, object: u64) -> Result<SpaceMapPhys> {
    let dnode = pool.spa().mos().dnode(ObjectId(object))?;
    SpaceMapPhys::parse(&dnode.bonus_vec()).map_err(|e| e.at(dnode.place().to_string()))
}

fn map_lines(out: &mut String, object: u64, map: &SpaceMapPhys) {
    let _ = writeln!(
        out,
        "space map object {object}:\n  smp_length = 0x{:x}\n  smp_alloc = 0x{:x}",
        map.length, map.alloc
    );
}

/// The free segments of a vdev.
pub struct Group {
    /// Its id.
    pub vdev: u64,
    /// How many metaslabs it has.
    pub metaslabs: usize,
    /// Free segments by log2 of their size.
    pub rows: [u64; 64],
    /// Whether it is for ordinary data.
    pub is_normal: bool,
}

/// The vdevs for ordinary data, and if wanted the special ones.
///
/// # Errors
/// A space map cannot be read.
pub fn groups(pool: &Pool, special: bool) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    for vdev in slabs(pool)? {
        let is_normal = vdev.class == VdevClass::Normal;
        let wanted = is_normal || special && vdev.class == VdevClass::Special;
        if !wanted || vdev.removed.is_some() {
            continue;
        }
        let mut rows = [0u64; 64];
        for object in vdev.maps.iter().filter(|o| **o != 0) {
            let map = header(pool, *object)?;
            for (n, log) in map.histogram.iter().flatten().zip(vdev.ashift..) {
                if let Some(row) = rows.get_mut(log as usize) {
                    *row = row.saturating_add(*n);
                }
            }
        }
        groups.push(Group {
            vdev: vdev.vdev,
            metaslabs: vdev.maps.len(),
            rows,
            is_normal,
        });
    }
    Ok(groups)
}

/// Prints all metaslabs.
pub fn run(session: &mut Session, pool: &Arc<Pool>, options: MetaslabOptions) -> Outcome {
    let text = text(pool, options)
        .or_cannot(|| format!("cannot read the metaslabs of '{}'", pool.name()))?;
    session.ui.print(text)?;
    Ok(())
}

fn text(pool: &Arc<Pool>, options: MetaslabOptions) -> Result<String> {
    let mut out = String::from("\nMetaslabs:\n");
    for vdev in &slabs(pool)? {
        one_vdev(&mut out, pool, vdev, options)?;
    }
    Ok(out)
}

/// Prints the logs of space maps.
pub fn run_logs(session: &mut Session, pool: &Arc<Pool>, options: MetaslabOptions) -> Outcome {
    let mut text = String::new();
    slabs(pool)
        .and_then(|all| logs(&mut text, pool, &all, options))
        .or_cannot(|| format!("cannot read the logs of space maps of '{}'", pool.name()))?;
    session.ui.print(text)?;
    Ok(())
}

fn one_vdev(out: &mut String, pool: &Pool, vdev: &Slabs, options: MetaslabOptions) -> Result<()> {
    let bias = match vdev.class {
        VdevClass::Log => "log",
        VdevClass::Special => "special",
        VdevClass::Dedup => "dedup",
        VdevClass::Normal => "",
    };
    let _ = write!(
        out,
        "\tvdev {:>10}\t{bias}  metaslab shift {:>4}",
        vdev.vdev, vdev.shift
    );
    if let Some((object, _)) = &vdev.unflushed {
        let _ = write!(out, "   ms_unflushed_phys object {object}");
    }
    let _ = writeln!(
        out,
        "\n\tmetaslabs {:>5}   offset                spacemap          free        \n\
         \t---------------   -------------------   ---------------   ------------",
        vdev.maps.len()
    );
    if let Some(removed) = &vdev.removed {
        mapping(out, pool, removed)?;
    }
    let logged = pool.spa().features().is_enabled(LOG_FEATURE);
    for (i, object) in vdev.maps.iter().enumerate() {
        let map = match object {
            0 => None,
            object => Some(header(pool, *object)?),
        };
        let geometry = vdev.geometry(pool, i as u64);
        let MapGeometry { start, size, .. } = geometry;
        let used = map.as_ref().map_or(0, |m| m.alloc);
        let free = size.saturating_add_signed(used.saturating_neg());
        let _ = writeln!(
            out,
            "\tmetaslab {i:>6}   offset {:>12x}   spacemap {object:>6}   free    {:>5}",
            start,
            nicenum(free)
        );
        if let Some(map) = &map {
            if options.histograms
                && let Some(row) = &map.histogram
            {
                let _ = writeln!(
                    out,
                    "\tOn-disk histogram:\t\tfragmentation {}",
                    of_histogram(row, vdev.ashift as u32)
                );
                histogram::lines(out, "\t\t\t", row, vdev.ashift as usize);
            }
            map_lines(out, *object, map);
            if options.entries {
                entries(out, pool, *object, geometry, false)?;
            }
        }
        if logged {
            let txgs = vdev.unflushed.as_ref().map(|(_, txgs)| txgs);
            let txg = txgs.and_then(|t| t.get(i)).copied().unwrap_or(0);
            let _ = writeln!(out, "\tFlush data:\n\tunflushed txg={txg}\n");
        }
    }
    out.push('\n');
    Ok(())
}

/// Where the blocks of a removed vdev went.
fn mapping(out: &mut String, pool: &Pool, removed: &IndirectConfig) -> Result<()> {
    let mos = pool.spa().mos();
    let bonus = |object: u64| -> Result<Vec<u64>> {
        let bytes = mos.dnode(ObjectId(object))?.bonus_vec();
        let words = bytes.as_chunks::<8>().0;
        Ok(words.iter().map(|w| u64::from_le_bytes(*w)).collect())
    };
    let births = bonus(removed.births)?;
    let count = births.first().copied().unwrap_or(0);
    let _ = writeln!(
        out,
        "indirect births obj {}:\n    vib_count = {count}",
        removed.births
    );
    for pair in words(pool, removed.births, count.saturating_mul(2))?
        .as_chunks::<2>()
        .0
    {
        let _ = writeln!(out, "\toffset {:x} -> txg {}", pair[0], pair[1]);
    }
    let header = bonus(removed.object)?;
    let word = |i: usize| header.get(i).copied().unwrap_or(0);
    let _ = writeln!(
        out,
        "\nindirect mapping obj {}:\n    vim_max_offset = 0x{:x}\n    vim_bytes_mapped = 0x{:x}\n    vim_count = {}",
        removed.object,
        word(0),
        word(1),
        word(2)
    );
    Ok(())
}

/// The decoded entries of a map, one line each.
fn entries(
    out: &mut String,
    pool: &Pool,
    object: u64,
    geometry: MapGeometry,
    is_log: bool,
) -> Result<()> {
    each(pool, object, geometry, &mut |index, entry| {
        let _ = writeln!(
            out,
            "\t    [{index:>6}] {} range: {:012x}-{:012x} size: {:08x}{}",
            if entry.op == MapOp::Alloc { 'A' } else { 'F' },
            entry.offset,
            entry.offset + entry.run.saturating_sub(1),
            entry.run,
            if is_log {
                format!(" vdev: {:06}", entry.vdev.unwrap_or(0))
            } else {
                String::new()
            }
        );
    })
}

/// Passes the entries of a map to `f`, with their numbers.
///
/// # Errors
/// The map cannot be read.
pub fn each(
    pool: &Pool,
    object: u64,
    geometry: MapGeometry,
    f: &mut dyn FnMut(u64, MapEntry),
) -> Result<()> {
    let dnode = pool.spa().mos().dnode(ObjectId(object))?;
    let map = header(pool, object)?;
    let length = map.length.min(MAX_MAP);
    let piece = PIECE.max(u64::from(dnode.block_size()));
    let (mut at, mut index) = (0, 0);
    while at < length {
        let take = piece.min(length - at);
        let mut raw = vec![0; usize::try_from(take).unwrap_or(0)];
        dnode.read_at(at, &mut raw)?;
        for entry in decode(&raw, geometry) {
            let entry = entry.map_err(|e| e.at(dnode.place().to_string()))?;
            f(index, entry);
            index += 1;
        }
        at += take;
    }
    Ok(())
}

/// The logs of space maps by txg: their objects. `None` where the pool has no logs.
fn logs_of(pool: &Pool) -> Result<Option<BTreeMap<u64, u64>>> {
    let directory = pool.spa().directory()?;
    let Some(zap) = directory.lookup_u64(b"com.delphix:log_spacemap_zap")? else {
        return Ok(None);
    };
    let zap = Zap::open(&pool.spa().mos().dnode(ObjectId(zap))?)?;
    let mut logs = BTreeMap::new();
    let mut cursor = zap.cursor(0);
    while let Some(entry) = cursor.next()? {
        let txg = std::str::from_utf8(&entry.name)
            .ok()
            .and_then(|n| u64::from_str_radix(n, 16).ok());
        if let (Some(txg), Some(object)) = (txg, entry.value.ints().first()) {
            logs.insert(txg, *object);
        }
    }
    Ok(Some(logs))
}

/// Passes the entries of the logs that still count to `f`: vdev, metaslab, txg, entry.
///
/// # Errors
/// A log cannot be read.
pub fn each_logged(
    pool: &Pool,
    all: &[Slabs],
    f: &mut dyn FnMut(u64, u64, u64, MapEntry),
) -> Result<()> {
    for (txg, object) in logs_of(pool)?.unwrap_or_default() {
        each(pool, object, MapGeometry::LOG, &mut |_, entry| {
            let vdev = all.iter().find(|v| Some(v.vdev as u32) == entry.vdev);
            if let Some((vdev, (index, since))) =
                vdev.and_then(|v| Some((v.vdev, v.unflushed(entry.offset)?)))
                && txg >= since
            {
                f(vdev, index, txg, entry);
            }
        })?;
    }
    Ok(())
}

fn logs(out: &mut String, pool: &Arc<Pool>, all: &[Slabs], options: MetaslabOptions) -> Result<()> {
    let Some(logs) = logs_of(pool)? else {
        return Ok(());
    };
    let geometry = MapGeometry::LOG;
    out.push_str("\nLog Space Maps in Pool:\n");
    for (txg, object) in &logs {
        let _ = writeln!(out, "Log Spacemap object {object} txg {txg}");
        map_lines(out, *object, &header(pool, *object)?);
        if options.entries {
            entries(out, pool, *object, geometry, true)?;
        }
    }
    out.push_str("\nLog Space Map Obsolete Entry Statistics:\n");
    let (mut valid, mut total) = (0u64, 0u64);
    for (txg, object) in &logs {
        let (mut good, mut any) = (0u64, 0u64);
        each(pool, *object, geometry, &mut |_, entry| {
            any += 1;
            let vdev = all.iter().find(|v| Some(v.vdev as u32) == entry.vdev);
            let since = vdev.and_then(|v| v.unflushed(entry.offset));
            good += u64::from(since.is_some_and(|(_, since)| *txg >= since));
        })?;
        let _ = writeln!(out, "{good:<8} valid entries out of {any:<8} - txg {txg}");
        valid += good;
        total += any;
    }
    let _ = writeln!(out, "{valid:<8} valid entries out of {total:<8} - total\n");
    Ok(())
}
