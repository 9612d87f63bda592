//! Livelists of clones against the walk of their heads: what a list has as allocated and not freed
//! again is each block of the head that is younger than the origin, once for each pointer.

use std::collections::{BTreeMap, HashMap};

use zuse_base::{ObjectId, Result};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_format::dsl::DslDirPhys;
use zuse_format::{BlockPointer, BpKind};
use zuse_pool::Pool;

use super::{Finding, Found, Report, each_pointer};

const FEATURE: &str = "com.delphix:livelist";

/// What tells one block from another: place, sizes and kind, birth of its bytes. The births of two
/// pointers to one block differ.
pub(super) type Identity = ([u64; 7], u64);

/// Blocks of a head, with the number of its pointers to each.
pub(super) struct Own {
    since: u64,
    blocks: HashMap<Identity, i64>,
}

impl Own {
    /// None that is younger than `since` was met yet.
    pub fn new(since: u64) -> Self {
        let blocks = HashMap::new();
        Self { since, blocks }
    }

    /// A pointer of the head was met.
    pub fn meet(&mut self, bp: &BlockPointer) {
        if bp.allocation_birth() > self.since {
            *self.blocks.entry(identity(bp)).or_default() += 1;
        }
    }
}

fn identity(bp: &BlockPointer) -> Identity {
    let mut words = [0; 7];
    words.copy_from_slice(&bp.words[..7]);
    (words, bp.physical_birth())
}

/// Lists of clones by head: the list, and the txg of the origin. `dirs` are the directories that
/// have extension entries.
pub(super) fn of_heads(
    pool: &Pool,
    dirs: &[(u64, DslDirPhys)],
    datasets: &[Found],
) -> Result<BTreeMap<u64, (u64, u64)>> {
    let mut out = BTreeMap::new();
    for (object, dir) in dirs {
        let table = Zap::open(&pool.mos().dnode(ObjectId(*object))?)?;
        let Some(list) = table.lookup_u64(FEATURE.as_bytes())? else {
            continue;
        };
        let origin = datasets.iter().find(|d| d.object == dir.origin);
        let since = origin.map_or(0, |d| d.phys.creation_txg);
        out.insert(dir.head_dataset, (list, since));
    }
    Ok(out)
}

/// Parts of a list, by key.
pub(super) fn parts(pool: &Pool, list: u64) -> Result<Vec<u64>> {
    let mut out = Vec::new();
    let mut cursor = Zap::open(&pool.mos().dnode(ObjectId(list))?)?.cursor(0);
    while let Some(entry) = cursor.next()? {
        if let ZapValue::U64(part) = &entry.value {
            out.push(*part);
        }
    }
    Ok(out)
}

/// What a part has as allocated and not freed again, read from new to old; and how many frees have
/// no allocation.
pub(super) fn live(pool: &Pool, part: u64) -> Result<(Vec<BlockPointer>, u64)> {
    let mut all = Vec::new();
    each_pointer(pool, part, 0, &mut |bp, freed| all.push((bp, freed)))?;
    let mut gone: HashMap<(u32, u64), u64> = HashMap::new();
    let mut live = Vec::new();
    for (bp, freed) in all.into_iter().rev() {
        let count = gone
            .entry((bp.dva(0).vdev(), bp.dva(0).offset()))
            .or_default();
        if freed {
            *count += 1;
        } else if *count > 0 {
            *count -= 1;
        } else {
            live.push(bp);
        }
    }
    Ok((live, gone.into_values().sum()))
}

/// Compares the list of a clone with the blocks that the walk of its head met.
pub(super) fn compare(
    pool: &Pool,
    place: &str,
    list: u64,
    own: Own,
    report: &mut Report,
) -> Result<()> {
    let mut blocks = own.blocks;
    let mut unmatched = 0;
    for part in parts(pool, list)? {
        let (live, frees) = live(pool, part)?;
        unmatched += frees;
        for bp in live {
            if bp.kind() != BpKind::Normal || bp.allocation_birth() <= own.since {
                report.problem(Finding::Livelist, place, format!("{bp:?} is in it"));
            }
            *blocks.entry(identity(&bp)).or_default() -= 1;
        }
    }
    if unmatched > 0 {
        let what = format!("{unmatched} blocks are freed that are not allocated");
        report.problem(Finding::Livelist, place, what);
    }
    for ((words, birth), count) in blocks.into_iter().filter(|(_, count)| *count != 0) {
        let what = match count > 0 {
            true => "the list lacks",
            false => "the list has too many of",
        };
        let at = format!("vdev {} offset {:#x}", words[0] >> 32, words[1] << 9);
        let what = format!("{what} the block at {at}, born {birth}: {count}");
        report.problem(Finding::Livelist, place, what);
    }
    Ok(())
}

/// The feature counts the lists of clones and those of destroyed ones.
pub(super) fn count(pool: &Pool, found: u64, report: &mut Report) {
    let counted = pool.features().refcount(FEATURE);
    if counted != found {
        let what = format!("counts {counted} lists of {found}");
        report.problem(Finding::Livelist, "feature livelist", what);
    }
}
