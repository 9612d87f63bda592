//! The allocated space according to a pool's space maps.

use std::collections::BTreeMap;

use zuse_base::range_tree::{ByPlace, Ranges};
use zuse_base::{Error, ObjectId, Result, Span};
use zuse_dmu::zap::Zap;
use zuse_format::space_map::{MapEntry, MapGeometry, MapOp, SpaceMapPhys, decode};
use zuse_pool::Pool;
use zuse_vdev::VdevConfig;

use super::claims::Allocated;
use super::{Finding, Report};

/// More than any valid space map has.
const MAX_MAP: u64 = 256 << 20;

fn words(pool: &Pool, object: u64, at: u64, count: u64) -> Result<Vec<u64>> {
    let dnode = pool.mos().dnode(ObjectId(object))?;
    if count.saturating_mul(8) > MAX_MAP {
        return Err(Error::corrupt(dnode.place(), format!("{count} space maps")));
    }
    let mut raw = vec![0; (count * 8) as usize];
    dnode.read_at(at * 8, &mut raw)?;
    Ok(raw
        .as_chunks::<8>()
        .0
        .iter()
        .map(|w| u64::from_le_bytes(*w))
        .collect())
}

pub(super) fn map(pool: &Pool, object: u64) -> Result<(SpaceMapPhys, Vec<u8>)> {
    let place = || format!("space map, object {object}");
    let dnode = pool.mos().dnode(ObjectId(object))?;
    let header = SpaceMapPhys::parse(&dnode.bonus_vec()).map_err(|e| e.at(place()))?;
    if header.length > MAX_MAP {
        return Err(Error::corrupt(
            place(),
            format!("{} bytes long", header.length),
        ));
    }
    let mut data = vec![0; header.length as usize];
    dnode.read_at(0, &mut data)?;
    Ok((header, data))
}

fn apply(ranges: &mut Ranges<ByPlace>, entry: &MapEntry, place: &str, report: &mut Report) {
    let span = Span::new(entry.offset, entry.run);
    let (done, finding) = match entry.op {
        MapOp::Alloc => (ranges.add(span), Finding::MapTwice),
        MapOp::Free => (ranges.remove(span), Finding::MapFree),
    };
    if let Err(e) = done {
        report.problem(finding, place, e);
    }
}

/// Reads all space maps, and the logs on top.
pub(super) fn allocated(pool: &Pool, report: &mut Report) -> Result<Allocated> {
    let mut all = Allocated::new();
    let mut unflushed: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let tops = pool.vdevs().tops();
    let config = pool.config();
    for top in tops.iter().filter(|t| t.is_concrete()) {
        let ranges = all.entry(top.id()).or_default();
        let shift = u32::from(top.metaslab_shift());
        // A vdev that was added in the last txg has no metaslabs yet.
        if shift != 0 && top.metaslab_array() == 0 {
            continue;
        }
        if shift == 0 {
            report.problem(Finding::NoMetaslabs, format!("vdev {}", top.id()), "");
            continue;
        }
        let count = top.asize() >> shift;
        let objects = words(pool, top.metaslab_array(), 0, count)?;
        let mut met = std::collections::HashSet::new();
        for (i, object) in objects.iter().enumerate().filter(|(_, o)| **o != 0) {
            if !met.insert(*object) {
                let place = format!("vdev {}, metaslab {i}", top.id());
                report.problem(Finding::MetaslabTwice, place, format!("object {object}"));
                continue;
            }
            let place = format!("vdev {}, metaslab {i}, space map {object}", top.id());
            let (header, data) = match map(pool, *object) {
                Ok(read) => read,
                Err(e) => {
                    report.problem(Finding::Unreadable, place, e);
                    continue;
                }
            };
            let geometry = MapGeometry {
                // dRAID's metaslabs are trimmed to whole rows.
                start: ((i as u64) << shift).next_multiple_of(top.allocation_unit()),
                size: 1 << shift,
                shift: u32::from(top.ashift()),
            };
            let before = ranges.space();
            for entry in decode(&data, geometry) {
                match entry {
                    Ok(entry) => apply(ranges, &entry, &place, report),
                    Err(e) => report.problem(Finding::MapEntry, place.as_str(), e),
                }
            }
            let real = ranges.space().wrapping_sub(before) as i64;
            if header.alloc != real {
                report.problem(
                    Finding::MapHeader,
                    place,
                    format!("it says {} bytes, its entries {real}", header.alloc),
                );
            }
        }
        let node = config.vdev_tree.children.get(top.id() as usize);
        if let Some(array) = unflushed_of(pool, node)? {
            unflushed.insert(top.id(), words(pool, array, 0, count)?);
        }
    }
    logs(pool, report, &mut all, &unflushed)?;
    Ok(all)
}

/// For each metaslab, the txg since which its changes are only in the logs.
fn unflushed_of(pool: &Pool, top: Option<&VdevConfig>) -> Result<Option<u64>> {
    let Some(zap) = top.and_then(|top| top.zap_top).filter(|zap| *zap != 0) else {
        return Ok(None);
    };
    let zap = Zap::open(&pool.mos().dnode(ObjectId(zap))?)?;
    zap.lookup_u64(b"com.delphix:ms_unflushed_phys_txgs")
}

fn logs(
    pool: &Pool,
    report: &mut Report,
    all: &mut Allocated,
    unflushed: &BTreeMap<u32, Vec<u64>>,
) -> Result<()> {
    let Some(zap) = pool
        .directory()?
        .lookup_u64(b"com.delphix:log_spacemap_zap")?
    else {
        return Ok(());
    };
    let zap = Zap::open(&pool.mos().dnode(ObjectId(zap))?)?;
    let mut by_txg = BTreeMap::new();
    let mut cursor = zap.cursor(0);
    while let Some(entry) = cursor.next()? {
        let text = String::from_utf8_lossy(&entry.name).into_owned();
        let object = zap.lookup_u64(&entry.name)?.unwrap_or(0);
        by_txg.insert(u64::from_str_radix(&text, 16).unwrap_or(0), object);
    }
    let tops = pool.vdevs().tops();
    for (txg, object) in by_txg {
        let place = format!("log space map {object} of txg {txg}");
        let (_, data) = map(pool, object)?;
        for entry in decode(&data, MapGeometry::LOG) {
            let entry = entry.map_err(|e| e.at(place.clone()))?;
            let Some(vdev) = entry.vdev else {
                report.problem(Finding::MapEntry, place.as_str(), "it names no vdev");
                continue;
            };
            let (Some(top), Some(since)) =
                (tops.iter().find(|t| t.id() == vdev), unflushed.get(&vdev))
            else {
                continue;
            };
            let metaslab = (entry.offset >> top.metaslab_shift()) as usize;
            // Older changes are in the metaslab's own map already.
            if since.get(metaslab).is_some_and(|u| *u != 0 && txg >= *u) {
                let ranges = all.entry(vdev).or_default();
                apply(ranges, &entry, &place, report);
            }
        }
    }
    Ok(())
}
