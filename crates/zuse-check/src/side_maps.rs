//! The space maps that belong to no metaslab: blocks held only by the checkpoint, and obsolete
//! ranges of removed vdevs. Also the checkpoint's own state.

use zuse_base::range_tree::{ByPlace, Ranges};
use zuse_base::{ObjectId, Result, Span};
use zuse_dmu::zap::Zap;
use zuse_format::space_map::{MapGeometry, MapOp, decode};
use zuse_pool::Pool;

use super::claims::{Allocated, Claims};
use super::walk::Walk;
use super::{Depth, Finding, Report, Watcher, maps};

/// Removes space held only by the checkpoint from the allocated space. Each such range must be
/// allocated, and nothing else may claim it.
pub(super) fn take_kept(pool: &Pool, all: &mut Allocated, report: &mut Report) -> Result<()> {
    for (vdev, kept) in ranges(pool, "com.delphix:pool_checkpoint_sm", MapOp::Free, report)? {
        let held = all.entry(vdev).or_default();
        for span in kept.iter() {
            if let Err(e) = held.remove(span) {
                let place = format!("vdev {vdev}, checkpoint's map, {span}");
                report.problem(Finding::MapFree, place, e);
            }
        }
    }
    Ok(())
}

/// The obsolete ranges of removed vdevs.
pub(super) fn obsolete(pool: &Pool, report: &mut Report) -> Result<Allocated> {
    ranges(
        pool,
        "com.delphix:indirect_obsolete_sm",
        MapOp::Alloc,
        report,
    )
}

/// The ranges in the maps that the ZAPs of top-level vdevs name. All entries must be of one kind.
fn ranges(pool: &Pool, key: &str, kind: MapOp, report: &mut Report) -> Result<Allocated> {
    let mut all = Allocated::new();
    let config = pool.config();
    for (top, node) in pool.vdevs().tops().iter().zip(&config.vdev_tree.children) {
        let Some(zap) = node.zap_top.filter(|zap| *zap != 0) else {
            continue;
        };
        let zap = Zap::open(&pool.mos().dnode(ObjectId(zap))?)?;
        let Some(object) = zap.lookup_u64(key.as_bytes())? else {
            continue;
        };
        let place = format!("vdev {}, {key}, object {object}", top.id());
        let (header, data) = maps::map(pool, object)?;
        let geometry = MapGeometry {
            start: 0,
            size: top.asize(),
            shift: match kind {
                MapOp::Free => u32::from(top.ashift()),
                MapOp::Alloc => 0,
            },
        };
        let mut ranges = Ranges::<ByPlace>::new();
        for entry in decode(&data, geometry) {
            let entry = entry.map_err(|e| e.at(place.clone()))?;
            let span = Span::new(entry.offset, entry.run);
            let added = ranges.add(span);
            if entry.op != kind || added.is_err() {
                report.problem(Finding::MapEntry, place.as_str(), span);
            }
        }
        let sum = i64::try_from(ranges.space()).unwrap_or(i64::MAX);
        let wanted = if kind == MapOp::Free { -sum } else { sum };
        if header.alloc != wanted {
            let what = format!("it says {} bytes, its entries {wanted}", header.alloc);
            report.problem(Finding::MapHeader, place, what);
        }
        all.insert(top.id(), ranges);
    }
    Ok(all)
}

/// Checks that every block of the checkpoint's state is still there and allocated. Returns the
/// allocated space.
pub(super) fn checkpoint(
    pool: &Pool,
    depth: Depth,
    held: Allocated,
    (report, watch): (&mut Report, Watcher<'_>),
) -> Result<Allocated> {
    let mut claims = Claims {
        held,
        beside: true,
        ..Claims::default()
    };
    let uberblock = match pool.checkpointed() {
        Ok(Some(uberblock)) => uberblock,
        Ok(None) => return Ok(claims.held),
        Err(e) => {
            report.problem(Finding::Unreadable, "checkpoint", e);
            return Ok(claims.held);
        }
    };
    let mut beside = Report::default();
    let mut found = Vec::new();
    let place = "MOS of the checkpoint".to_owned();
    let mut walk = Walk::new(pool, (&mut beside, watch), &mut claims, place, depth, 0);
    walk.objset(&uberblock.root, &mut |object, view| {
        found.extend(super::Found::of(object, view));
    });
    for dataset in &found {
        let place = format!("checkpoint's dataset {}", dataset.object);
        let since = dataset.phys.prev_snap_txg;
        let mut walk = Walk::new(pool, (&mut beside, watch), &mut claims, place, depth, since);
        walk.objset(&dataset.phys.bp, &mut |_, _| {});
    }
    report.stopped |= beside.stopped;
    for problem in beside.problems {
        report.problem(problem.finding, problem.place, problem.detail);
    }
    Ok(claims.held)
}
