//! Deadlists: the blocks that a dataset dropped since the snapshot before it, by their birth.

use std::collections::BTreeSet;

use zuse_base::{Error, ObjectId, Result};
use zuse_dmu::zap::Zap;
use zuse_format::object_type;
use zuse_pool::Pool;

use super::lists::{self, Sums};
use super::{Finding, Report};

/// Object types of a deadlist, and of the plain list that old pools have instead.
const DEADLIST: u8 = 50;
const FLAT: u8 = 5;

/// The result of reading a deadlist.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dead {
    pub total: Sums,
    /// Size of its blocks that only the snapshot before has.
    pub unique: u64,
    /// Size of its blocks younger than the origin.
    pub ours: u64,
    /// Number of its lists that are the pool's shared empty one.
    pub empty: u64,
}

/// Expected values for a deadlist.
#[derive(Clone, Copy)]
pub(super) struct Against<'a> {
    /// Keys that it must have, up to `before`, if any are expected.
    pub keys: Option<&'a BTreeSet<u64>>,
    /// Creation txg of the snapshot before, and of the one before that.
    pub prev: u64,
    pub before: u64,
    /// Creation txg of the origin.
    pub origin: u64,
    /// The shared empty list.
    pub empty: Option<u64>,
}

/// Lists of a deadlist by key, and its own totals.
pub(super) fn parts(pool: &Pool, object: u64) -> Result<(Vec<(u64, u64)>, Sums)> {
    let dnode = pool.mos().dnode(ObjectId(object))?;
    let bonus = dnode.bonus_vec();
    let word = |at: usize| {
        let bytes = bonus.get(at..at + 8).and_then(|b| b.first_chunk::<8>());
        bytes.map_or(0, |b| u64::from_le_bytes(*b))
    };
    let says = Sums {
        used: word(0),
        comp: word(8),
        uncomp: word(16),
    };
    let mut all = Vec::new();
    let mut cursor = Zap::open(&dnode)?.cursor(0);
    while let Some(entry) = cursor.next()? {
        let text = String::from_utf8_lossy(&entry.name).into_owned();
        let (Ok(key), Some(list)) = (u64::from_str_radix(&text, 16), entry.value.first()) else {
            let place = format!("MOS, object {object}");
            return Err(Error::corrupt(place, format!("key '{text}' of a deadlist")));
        };
        all.push((key, list));
    }
    all.sort_unstable();
    Ok((all, says))
}

/// Reads a deadlist, and compares it.
pub(super) fn read(
    pool: &Pool,
    place: &str,
    object: u64,
    against: Against<'_>,
    report: &mut Report,
) -> Result<Dead> {
    let place = format!("{place}, deadlist {object}");
    match pool.mos().dnode(ObjectId(object))?.object_type() {
        FLAT => {
            let mut dead = Dead::default();
            let range = (0, u64::MAX);
            dead.total = list(pool, (&place, object), range, against, (&mut dead, report))?;
            Ok(dead)
        }
        DEADLIST => keyed(pool, &place, object, against, report),
        other => {
            let what = format!("type {} is no deadlist", object_type::title(other));
            Err(Error::corrupt(place, what))
        }
    }
}

fn keyed(
    pool: &Pool,
    place: &str,
    object: u64,
    against: Against<'_>,
    report: &mut Report,
) -> Result<Dead> {
    let (parts, says) = parts(pool, object)?;
    let wanted = against
        .keys
        .into_iter()
        .flat_map(|keys| keys.range(..=against.before));
    for key in wanted {
        if parts.binary_search_by_key(key, |p| p.0).is_err() {
            report.problem(Finding::DeadlistKey, place, format!("key {key}"));
        }
    }
    let mut dead = Dead::default();
    for (at, (key, part)) in parts.iter().enumerate() {
        dead.empty += u64::from(Some(*part) == against.empty);
        let next = parts.get(at + 1).map_or(u64::MAX, |p| p.0);
        let range = (*key, next);
        let sums = list(pool, (place, *part), range, against, (&mut dead, report))?;
        dead.total.add(sums);
    }
    if says != dead.total {
        let what = format!("says {says:?}, its lists {:?}", dead.total);
        report.problem(Finding::DeadlistSum, place, what);
    }
    Ok(dead)
}

/// One list, with blocks born after the first txg and up to the second.
fn list(
    pool: &Pool,
    (place, object): (&str, u64),
    (above, up_to): (u64, u64),
    against: Against<'_>,
    (dead, report): (&mut Dead, &mut Report),
) -> Result<Sums> {
    let mut wrong = (0u64, 0u64);
    let io = pool.io();
    let sums = lists::each_pointer(pool, object, report, &mut |bp, _| {
        let birth = bp.allocation_birth();
        let used = io.dsize(&bp);
        if birth > against.before {
            dead.unique = dead.unique.wrapping_add(used);
        }
        if birth > against.origin {
            dead.ours = dead.ours.wrapping_add(used);
        }
        // A younger block is in no snapshot, so no deadlist may have it (04-dsl §5.1).
        if birth <= above || birth > up_to.min(against.prev) {
            wrong = (wrong.0 + 1, birth);
        }
    })?;
    if wrong.0 > 0 {
        let (count, birth) = wrong;
        let what = format!("{count} under key {above}, the last one born in {birth}");
        report.problem(Finding::DeadlistBirth, place, what);
    }
    Ok(sums)
}
