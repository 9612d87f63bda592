//! Locates the blocks of files, so that a test can corrupt them: on any layout, including the
//! members of gang blocks.

use std::sync::Arc;
use zuse::tools::Layers as _;

use zuse_base::{Entropy, Error, ObjectId, Result, SeededPrng, Txg};
use zuse_format::gang::{GANG_SIZE, parse_gang_header};
use zuse_format::{BlockPointer, BpKind, object_type};
use zuse_vdev::Address;

/// Gang headers inside gang headers.
const DEPTH_MAX: u32 = 8;

/// One copy of a block, or of a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    at: Address,
    len: usize,
}

impl Place {
    /// The bytes there, good or bad.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn read(&self, pool: &zuse::Pool) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let vdevs = pool.spa().vdevs();
        vdevs.read(self.at, &mut bytes, self.len, &mut |_| true)?;
        Ok(bytes)
    }

    fn write(&self, pool: &zuse::Pool, bytes: &[u8]) -> Result<()> {
        pool.spa().vdevs().write(self.at, bytes)
    }
}

/// The copies of each data block of a snapshot's files and volumes.
///
/// # Errors
/// Metadata cannot be read.
pub fn places(pool: &Arc<zuse::Pool>, snapshot: &str) -> Result<Vec<Vec<Place>>> {
    let os = pool.dsl().dataset(snapshot)?.objset_in_clear()?;
    let mut out = Vec::new();
    let mut at = ObjectId(0);
    while let Some(object) = os.next_object(at)? {
        at = object;
        let dnode = os.dnode(object)?;
        let kind = dnode.object_type();
        if !matches!(kind, object_type::PLAIN_FILE_CONTENTS | object_type::ZVOL) {
            continue;
        }
        for block in 0..=dnode.max_block() {
            if let Some(bp) = dnode.stored_pointer(block)?
                && bp.kind() == BpKind::Normal
            {
                let mut copies = Vec::new();
                copies_of(pool, &bp, 0, &mut copies)?;
                out.push(copies);
            }
        }
    }
    Ok(out)
}

fn copies_of(pool: &zuse::Pool, bp: &BlockPointer, depth: u32, out: &mut Vec<Place>) -> Result<()> {
    let places = bp.dvas().map(|dva| Place {
        at: Address::new(dva.vdev(), dva.offset(), Txg(bp.physical_birth())),
        len: match bp.is_gang() {
            true => GANG_SIZE,
            false => bp.psize() as usize,
        },
    });
    if !bp.is_gang() {
        out.extend(places);
        return Ok(());
    }
    let mut places = places;
    let header = places.next().filter(|_| depth < DEPTH_MAX);
    let bytes = header
        .ok_or_else(|| Error::endless("a gang block", "nested too deep"))?
        .read(pool)?;
    let (members, _) = parse_gang_header(&bytes).map_err(|e| e.at("a gang block"))?;
    members
        .iter()
        .try_for_each(|member| copies_of(pool, member, depth + 1, out))
}

/// Corrupts all copies of about one block of `of`; returns how many blocks.
///
/// # Errors
/// As [`places`].
pub fn spoil(pool: &Arc<zuse::Pool>, snapshot: &str, of: u64, prng: &SeededPrng) -> Result<u64> {
    let mut count = 0;
    for copies in places(pool, snapshot)? {
        if !prng.chance(1, of) {
            continue;
        }
        for place in copies {
            let mut bytes = place.read(pool)?;
            let noisy = 1 + prng.below(place.len as u64) as usize;
            prng.fill(&mut bytes[..noisy]);
            place.write(pool, &bytes)?;
        }
        count += 1;
    }
    pool.spa().io().cache().clear();
    Ok(count)
}
