//! Where the blocks of files lie, so that a test can make them rot.

use std::sync::Arc;

use zuse_base::{Entropy, ObjectId, Result, SeededPrng};
use zuse_format::{BpKind, object_type};

/// Bytes of labels and boot block in front of what addresses count.
const FRONT: u64 = 4 << 20;

/// One copy of a block on a pool's only plain device.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Offset on the device.
    pub at: u64,
    /// Bytes.
    pub len: u64,
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
                let place = |dva: zuse_format::Dva| Place {
                    at: FRONT + dva.offset(),
                    len: bp.psize(),
                };
                out.push(bp.dvas().map(place).collect());
            }
        }
    }
    Ok(out)
}

/// Spoils all copies of about one block of `of`; gives how many.
///
/// # Errors
/// As [`places`].
pub fn spoil(
    pool: &Arc<zuse::Pool>,
    snapshot: &str,
    of: u64,
    prng: &SeededPrng,
    write: &mut dyn FnMut(u64, &[u8]),
) -> Result<u64> {
    let mut count = 0;
    for copies in places(pool, snapshot)? {
        if !prng.chance(1, of) {
            continue;
        }
        for place in copies {
            let mut noise = vec![0; 1 + prng.below(place.len) as usize];
            prng.fill(&mut noise);
            write(place.at, &noise);
        }
        count += 1;
    }
    pool.spa().io().cache().clear();
    Ok(count)
}
