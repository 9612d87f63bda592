//! Checks the contents of an object set: its ZAPs, and the files of a file system.

use std::sync::Arc;

use zuse_base::{Corruption, Error, ObjectId, Result};
use zuse_dmu::{FreeingLedger, Objset, ObjsetEnv};
use zuse_format::object_type::{SwapClass, swap_class};
use zuse_format::{BlockPointer, ObjsetType};
use zuse_pool::Pool;

use super::owners::Owners;
use super::{Finding, Report, zap, zpl};

/// Looks at the ZAPs of the MOS.
pub(super) fn mos(pool: &Pool, report: &mut Report) {
    if let Err(e) = zaps(pool.mos(), "MOS", report) {
        report.problem(Finding::Unreadable, "MOS", e);
    }
}

/// Checks the contents of a dataset. Encrypted contents cannot be checked.
pub(super) fn dataset(
    pool: &Pool,
    place: &str,
    root: &BlockPointer,
    owners: Owners,
    report: &mut Report,
) {
    if root.is_hole() {
        return;
    }
    if root.uses_crypt() {
        report.closed += 1;
        return;
    }
    let env = ObjsetEnv {
        io: pool.io().clone(),
        work: pool.work().clone(),
        place: place.into(),
        ledger: Arc::new(FreeingLedger::new(pool.io().clone())),
        meter: pool.meter().clone(),
        settings: pool.base_settings(),
        key: None,
    };
    // The walk has reported already that its first block cannot be read.
    let Ok(set) = Objset::open(env, *root) else {
        return;
    };
    let mut done = zaps(&set, place, report);
    if set.kind() == ObjsetType::Zfs {
        done = done.and_then(|()| zpl::check(&set, place, report));
        done = done.and_then(|()| owners.compare(&set, place, report));
    }
    match done {
        Ok(()) => {}
        Err(
            e @ (Error::Device { .. }
            | Error::Corrupt {
                kind: Corruption::Checksum,
                ..
            }),
        ) => report.problem(Finding::Unreadable, place, e),
        // The checksum was right, so the bytes were written wrong.
        Err(e) => report.problem(Finding::Contents, place, e),
    }
}

/// Looks at each ZAP of a set.
fn zaps(set: &Arc<Objset>, place: &str, report: &mut Report) -> Result<()> {
    let mut last = ObjectId(0);
    while let Some(object) = set.next_object(last)? {
        last = object;
        let Ok(dnode) = set.dnode(object) else {
            continue;
        };
        if swap_class(dnode.object_type()) != Some(SwapClass::Zap) {
            continue;
        }
        let place = format!("{place}, object {}", object.0);
        // The walk has reported unreadable blocks already.
        let _ = zap::check(&dnode, &place, report);
    }
    Ok(())
}
