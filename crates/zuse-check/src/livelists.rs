//! Compares livelists of clones with the walk of their heads. The live blocks of a list are the
//! blocks of the head that are younger than the origin. Each counts once per pointer.

use std::collections::{BTreeMap, HashMap};

use zuse_base::{Error, ObjectId, Result};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_format::{BlockPointer, BpKind};
use zuse_pool::Pool;

use super::lists::{self, each_pointer};
use super::{DirFound, Finding, Found, Report};

const FEATURE: &str = "com.delphix:livelist";

/// Longest part of a list that is read: many times the size that OpenZFS allows.
const MOST_OF_PART: u64 = 4 << 20;

/// Blocks of a head, each once per pointer: their number, and a sum that distinguishes sets. Its
/// size is constant, however many blocks there are.
#[derive(Default)]
pub(super) struct Own {
    since: u64,
    count: i64,
    sum: u128,
}

impl Own {
    /// Empty: no block younger than `since` was found yet.
    pub fn new(since: u64) -> Self {
        Self {
            since,
            ..Self::default()
        }
    }

    /// A pointer of the head was visited.
    pub fn count(&mut self, bp: &BlockPointer) {
        if bp.allocation_birth() > self.since {
            self.count += 1;
            self.sum = self.sum.wrapping_add(identity(bp));
        }
    }

    fn take(&mut self, bp: &BlockPointer) {
        self.count -= 1;
        self.sum = self.sum.wrapping_sub(identity(bp));
    }
}

/// A number that identifies a block: place, sizes and kind, physical birth. Two pointers to one
/// block may have different logical births.
fn identity(bp: &BlockPointer) -> u128 {
    let words = bp.words.iter().take(7).copied();
    let mut mixed = 0u128;
    for word in words.chain([bp.physical_birth()]) {
        mixed ^= u128::from(word);
        mixed = mixed.wrapping_mul(0x2545_f491_4f6c_dd1d_9e37_79b9_7f4a_7c15);
        mixed ^= mixed >> 67;
    }
    mixed
}

/// Lists of clones by head: the list, and the txg of the origin. `dirs` are the directories with
/// extension entries.
pub(super) fn of_heads(
    pool: &Pool,
    dirs: &[DirFound],
    datasets: &[Found],
) -> Result<BTreeMap<u64, (u64, u64)>> {
    let mut out = BTreeMap::new();
    for found in dirs.iter().filter(|d| d.extended) {
        let dir = &found.phys;
        let table = Zap::open(&pool.mos().dnode(ObjectId(found.object))?)?;
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

/// The live blocks of a part, read from new to old; and the number of frees without an allocation.
pub(super) fn live(
    pool: &Pool,
    part: u64,
    report: &mut Report,
) -> Result<(Vec<BlockPointer>, u64)> {
    let mut all = Vec::new();
    let header = lists::header(pool, part)?;
    if header.num_blkptrs > MOST_OF_PART {
        let what = format!("{} entries in a part of a livelist", header.num_blkptrs);
        return Err(Error::corrupt(format!("MOS, object {part}"), what));
    }
    each_pointer(pool, part, report, &mut |bp, freed| all.push((bp, freed)))?;
    let mut gone: HashMap<(u32, u64), u64> = HashMap::new();
    let mut live = Vec::new();
    // A block may be allocated and freed several times at one DVA.
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

/// Compares the list of a clone with the blocks found by the walk of its head.
pub(super) fn compare(
    pool: &Pool,
    place: &str,
    list: u64,
    mut own: Own,
    report: &mut Report,
) -> Result<()> {
    let mut unmatched = 0;
    let walked = own.count;
    for part in parts(pool, list)? {
        let (live, frees) = live(pool, part, report)?;
        unmatched += frees;
        for bp in live {
            if bp.kind() != BpKind::Normal || bp.allocation_birth() <= own.since {
                report.problem(Finding::Livelist, place, format!("{bp:?} is in it"));
            }
            own.take(&bp);
        }
    }
    if unmatched > 0 {
        let what = format!("{unmatched} blocks are freed that are not allocated");
        report.problem(Finding::Livelist, place, what);
    }
    if own.count != 0 || own.sum != 0 {
        let listed = walked - own.count;
        let what = format!("it lists {listed} blocks, the clone has {walked}, and not the same");
        report.problem(Finding::Livelist, place, what);
    }
    Ok(())
}

/// The feature counts the lists of clones and those of destroyed ones.
pub(super) fn count(pool: &Pool, found: u64, report: &mut Report) {
    let counted = pool.features().refcount(FEATURE);
    report.differ(Finding::FeatureCount, "feature livelist", counted, found);
}
