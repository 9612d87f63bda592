//! Tables of cloned blocks against the pointers that were met: each block has one pointer more than
//! its entry says, and what a table says of itself is the sum of its entries.

use std::collections::BTreeMap;

use zuse_base::{Error, ObjectId, Result};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_format::clone_count;
use zuse_pool::Pool;

use super::{Finding, Report};

const TABLES: &str = "com.fudosecurity:brt:vdev:";

fn words(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|w| u64::from_le_bytes(*w)).collect()
}

/// `met`: pointers by vdev and offset of the first copy.
pub(super) fn compare(
    pool: &Pool,
    met: &BTreeMap<(u32, u64), u64>,
    report: &mut Report,
) -> Result<()> {
    let mut extra: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    let mut tables = 0;
    let mut cursor = pool.directory()?.cursor(0);
    while let Some(entry) = cursor.next()? {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let (Some(vdev), Some(object)) = (name.strip_prefix(TABLES), entry.value.first()) else {
            continue;
        };
        let vdev: u32 = vdev
            .parse()
            .map_err(|_| Error::corrupt(name.clone(), "no number of a vdev"))?;
        tables += 1;
        table(pool, &name, (vdev, object), &mut extra, report)?;
    }
    let counted = pool.features().refcount("com.fudosecurity:block_cloning");
    if counted != tables {
        report.problem(
            Finding::CloneCount,
            "feature block_cloning",
            format!("counts {counted} tables of {tables}"),
        );
    }
    for (place, pointers) in met {
        let further = extra.remove(place).unwrap_or(0);
        if *pointers != further + 1 {
            report.problem(
                Finding::CloneCount,
                format!("block at {place:x?}"),
                format!("{pointers} pointers, the table says {further} beyond the first"),
            );
        }
    }
    for (place, further) in extra {
        report.problem(
            Finding::CloneCount,
            format!("block at {place:x?}"),
            format!("{further} pointers in the table, and nothing points there"),
        );
    }
    Ok(())
}

/// Reads a vdev's table into `extra`, and compares it with its header and its ranges.
fn table(
    pool: &Pool,
    name: &str,
    (vdev, object): (u32, u64),
    extra: &mut BTreeMap<(u32, u64), u64>,
    report: &mut Report,
) -> Result<()> {
    let dnode = pool.mos().dnode(ObjectId(object))?;
    let header = words(&dnode.bonus_vec());
    let [entries, size, big, total, range, _, _] = header[..] else {
        return Err(Error::contradiction(name, "its header has another size"));
    };
    let mut ranges = vec![0; size as usize];
    let mut all = Zap::open(&pool.mos().dnode(ObjectId(entries))?)?.cursor(0);
    let mut count = 0;
    while let Some(entry) = all.next()? {
        let key = entry
            .name
            .first_chunk::<8>()
            .map(|k| u64::from_be_bytes(*k));
        let (Some(offset), further) = (key, further(&entry.value)) else {
            return Err(Error::corrupt(name, "a key that is no offset"));
        };
        count += 1;
        if let Some(there) = ranges.get_mut((offset / range) as usize) {
            *there += 1u16;
        }
        extra.insert((vdev, offset), further);
    }
    let mut stored = vec![0; size as usize * 2];
    dnode.read_at(0, &mut stored)?;
    let stored: Vec<u16> = stored
        .as_chunks::<2>()
        .0
        .iter()
        .map(|n| {
            if big == 0 {
                u16::from_le_bytes(*n)
            } else {
                u16::from_be_bytes(*n)
            }
        })
        .collect();
    if count != total || stored != ranges {
        report.problem(
            Finding::CloneCount,
            name,
            format!("says {total} entries, has {count}; its ranges say {stored:?}, are {ranges:?}"),
        );
    }
    Ok(())
}

fn further(value: &ZapValue) -> u64 {
    match value {
        ZapValue::U64(n) => *n,
        ZapValue::Bytes(b) => clone_count::read(b).map_or(0, |(n, _)| n),
        ZapValue::Array { .. } => 0,
    }
}
