//! Space that is allocated but not referenced, made on purpose, as a bug would leave it.

use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::tools::traverse::Leak;
use zuse_base::{Errno, Error, Result};
use zuse_io::{AllocClass, Allocate};

/// Allocates blocks of these sizes, as far as possible, and does not reference them. Returns the
/// leaks as OpenZFS's zdb prints them: sorted, and neighbours merged unless they are in two
/// metaslabs.
///
/// # Errors
/// The pool is open read-only.
pub fn leak(pool: &Arc<zuse::Pool>, sizes: &'static [u64]) -> Result<Vec<Leak>> {
    let dvas = pool.spa().sync_task(
        |_| Ok(()),
        move |ctx| {
            let allocator = ctx.pool.allocator().cloned();
            let none = || Error::refused(Errno::ROFS, "pool is read-only");
            let allocator = allocator.ok_or_else(none)?;
            let mut dvas = Vec::new();
            for size in sizes {
                // The largest ones need an empty metaslab.
                let found = allocator.allocate(ctx.txg, *size, 1, AllocClass::Normal)?;
                dvas.extend(found.map(|f| f.dvas[0]));
            }
            Ok(dvas)
        },
    )?;
    let tops = pool.spa().vdevs().tops();
    let shift = |vdev: u32| {
        tops.get(vdev as usize)
            .map_or(0, |top| top.metaslab_shift())
    };
    let mut all: Vec<Leak> = dvas
        .iter()
        .map(|dva| Leak {
            vdev: dva.vdev(),
            offset: dva.offset(),
            size: dva.asize(),
        })
        .collect();
    all.sort_by_key(|l| (l.vdev, l.offset));
    all.dedup_by(|next, last| {
        let joined = last.vdev == next.vdev
            && last.offset + last.size == next.offset
            && last.offset >> shift(last.vdev) == next.offset >> shift(last.vdev);
        if joined {
            last.size += next.size;
        }
        joined
    });
    Ok(all)
}

/// Sizes for various leaks: smaller than a sector, several in a row, whole metaslabs of a small
/// pool.
pub const SIZES: &[u64] = &[
    512,
    1,
    5000,
    128 << 10,
    3 << 20,
    16 << 20,
    16 << 20,
    16 << 20,
];
