//! `zdb -y`: the livelists of clones that are being destroyed, and the consistency of all space
//! maps and their logs.
//!
//! A block that such a list has as allocated, and not as freed, must be allocated in its metaslab.
//! No entry of a space map may allocate what is allocated, or free what is free. Memory: the ranges
//! of one metaslab, the entries of all logs, the live blocks of all lists.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::tools::Zap;
use zuse::{ObjectId, Pool, Result, Span};
use zuse_base::RangeTree;
use zuse_format::BlockPointer;
use zuse_format::space_map::{MapEntry, MapOp};

use super::blocks::silent;
use super::metaslabs::{self, Slabs};
use super::pointer;
use super::record::PointerList;
use crate::error::{Explain, Outcome};
use crate::session::Session;

/// The set of lists, in the MOS directory.
const DELETED: &[u8] = b"com.delphix:deleted_clones";

/// A block that a list has as allocated.
struct Live {
    span: Span,
    birth: u64,
}

/// Live blocks by vdev and metaslab.
type Blocks = BTreeMap<(u64, u64), Vec<Live>>;

/// Checks, and prints what is wrong.
pub fn run(session: &mut Session, pool: &Arc<Pool>) -> Outcome {
    let cannot = || format!("cannot verify the space maps of '{}'", pool.name());
    let slabs = metaslabs::slabs(pool).or_cannot(cannot)?;
    let mut out = String::from("Verifying deleted livelist entries\n");
    let mut blocks = live_blocks(pool, &slabs, &mut out).or_cannot(cannot)?;
    let mut wrong = out.lines().count() > 1;
    session.ui.print(out)?;
    let mut out = String::from("Verifying metaslab entries\n");
    verify(pool, &slabs, &mut blocks, &mut out).or_cannot(cannot)?;
    for ((vdev, _), left) in &blocks {
        // A metaslab that was never written to, or a vdev that has none.
        for live in left {
            not_allocated(&mut out, live, *vdev);
        }
    }
    wrong |= out.lines().count() > 1;
    session.ui.print(out)?;
    if wrong { Err(silent(3)) } else { Ok(()) }
}

fn not_allocated(out: &mut String, live: &Live, vdev: u64) {
    let Span { start, size } = live.span;
    let _ = writeln!(
        out,
        "ERROR: Livelist ALLOC [{start:x}:{size:x}] from TXG {:x} is not allocated on vdev {vdev}",
        live.birth
    );
}

/// The blocks that the lists have as allocated and not as freed.
fn live_blocks(pool: &Arc<Pool>, slabs: &[Slabs], out: &mut String) -> Result<Blocks> {
    let mut blocks = Blocks::new();
    for sublist in sublists(pool)? {
        let entries = PointerList::open(pool.spa().mos(), sublist)?.all()?;
        let (live, unmatched) = live_and_unmatched(&entries);
        for dva in live
            .iter()
            .flat_map(|bp| bp.dvas().map(|dva| (dva, bp.logical_birth())))
        {
            let (dva, birth) = dva;
            let vdev = u64::from(dva.vdev());
            let shift = slabs
                .iter()
                .find(|s| s.vdev == vdev)
                .map_or(63, |s| s.shift);
            let key = (vdev, dva.offset() >> shift.min(63));
            let span = Span::new(dva.offset(), dva.asize());
            blocks.entry(key).or_default().push(Live { span, birth });
        }
        for (bp, count) in unmatched {
            let text = pointer::full(bp);
            let _ = writeln!(out, "\tERROR: {count} unmatched FREE(s): {text}");
        }
    }
    Ok(blocks)
}

/// The result of a list's entries, read from new to old: blocks that are allocated and not freed
/// later. Also how often a block is freed that was not allocated.
fn live_and_unmatched(
    entries: &[(BlockPointer, bool)],
) -> (Vec<&BlockPointer>, Vec<(&BlockPointer, usize)>) {
    let mut freed: BTreeMap<(u32, u64), Vec<&BlockPointer>> = BTreeMap::new();
    let mut live = Vec::new();
    // The same place may be allocated and freed repeatedly. From the end, each free meets its own
    // allocation next.
    for (bp, is_free) in entries.iter().rev() {
        let place = (bp.dva(0).vdev(), bp.dva(0).offset());
        if *is_free {
            freed.entry(place).or_default().push(bp);
        } else if freed.get_mut(&place).and_then(Vec::pop).is_none() {
            live.push(bp);
        }
    }
    let left = freed.into_values().map(|l| (l.first().copied(), l.len()));
    let unmatched = left.filter_map(|(bp, count)| Some((bp?, count)));
    (live, unmatched.collect())
}

/// The lists of clones that are being destroyed.
pub fn deleted(pool: &Pool) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    if let Some(set) = pool.spa().directory()?.lookup_u64(DELETED)? {
        let mut lists = Zap::open(&pool.spa().mos().dnode(ObjectId(set))?)?.cursor(0);
        while let Some(list) = lists.next()? {
            all.extend(list.value.first());
        }
    }
    Ok(all)
}

/// The parts of all these.
fn sublists(pool: &Pool) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    for list in deleted(pool)? {
        let mut parts = Zap::open(&pool.spa().mos().dnode(ObjectId(list))?)?.cursor(0);
        while let Some(part) = parts.next()? {
            all.extend(part.value.first());
        }
    }
    Ok(all)
}

/// Checks the maps of all metaslabs with their logs. Removes the checked blocks from `blocks`.
fn verify(pool: &Arc<Pool>, slabs: &[Slabs], blocks: &mut Blocks, out: &mut String) -> Result<()> {
    let mut logged: BTreeMap<(u64, u64), Vec<(u64, MapEntry)>> = BTreeMap::new();
    metaslabs::each_logged(pool, slabs, &mut |vdev, index, txg, entry| {
        logged.entry((vdev, index)).or_default().push((txg, entry));
    })?;
    for vdev in slabs.iter().filter(|v| v.removed.is_none()) {
        for (index, object) in (0u64..).zip(&vdev.maps) {
            let mut allocated = RangeTree::new();
            let mut apply = |txg: Option<u64>, entry: MapEntry| {
                if let Some(word) = enter(&mut allocated, &entry) {
                    let (MapEntry { offset, run, .. }, vdev) = (entry, vdev.vdev);
                    let _ = match txg {
                        Some(txg) => writeln!(
                            out,
                            "ERROR: DOUBLE {word}: {txg} [{offset:x}:{run:x}] {vdev}:{index} LOG_SM"
                        ),
                        None => writeln!(
                            out,
                            "ERROR: DOUBLE {word}: [{offset:x}:{run:x}] {vdev}:{index}"
                        ),
                    };
                }
            };
            if *object != 0 {
                let geometry = vdev.geometry(pool, index);
                metaslabs::each(pool, *object, geometry, &mut |_, entry| apply(None, entry))?;
            }
            // After the metaslab's own map: the logs have only changes that are younger than it.
            for (txg, entry) in logged.remove(&(vdev.vdev, index)).unwrap_or_default() {
                apply(Some(txg), entry);
            }
            for live in blocks.remove(&(vdev.vdev, index)).unwrap_or_default() {
                if !allocated.contains(live.span) {
                    not_allocated(out, &live, vdev.vdev);
                }
            }
        }
    }
    Ok(())
}

/// Applies an entry; `None` if it was possible, else the name of the problem.
fn enter(allocated: &mut RangeTree, entry: &MapEntry) -> Option<&'static str> {
    let span = Span::new(entry.offset, entry.run);
    let (word, done) = match entry.op {
        MapOp::Alloc => ("ALLOC", allocated.add(span)),
        MapOp::Free => ("FREE", allocated.remove(span)),
    };
    done.is_err().then_some(word)
}

#[cfg(test)]
mod tests;
