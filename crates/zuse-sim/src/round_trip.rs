//! Random datasets that go through streams: what arrives is what was sent.
//!
//! ```text
//!   seed ─► source: trees of files, volumes, clones, snapshots, bookmarks ─► deliveries with random flags, cut and resumed
//!                        └── manifests, guids, creation times, owners' objects, properties ── equal ──┘
//! ```
//! A delivery is one stream, a chain of increments, or a package. An interrupted one leaves the
//! earlier state, or a state that its token continues.

mod delivery;
mod source;

use std::sync::Arc;

use serde_json::Value;
use zuse::tools::Layers as _;
use zuse::{KeyMaterial, Pool};
use zuse_base::{Error, Result, SeededPrng};
use zuse_pool::Limits;
use zuse_zpl::QuotaOwner;

use crate::manifests::{differences, of_dataset, of_volume};
use crate::memory_pool::memory_pool;
use source::Source;

pub use delivery::{Flags, deliver, sent};

/// Bytes of a pool.
const SIZE: u64 = 512 << 20;

fn wrong(what: impl Into<String>) -> Error {
    Error::corrupt("the round trip", what.into())
}

/// Results of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Snapshots that arrived and were compared.
    pub snapshots: usize,
    /// Streams that were cut.
    pub cuts: usize,
    /// Of them those that were resumed by token.
    pub resumed: usize,
}

/// A new pool in memory.
///
/// # Errors
/// None that a sound build has.
pub fn new_pool(name: &str, ashift: u8) -> Result<Arc<Pool>> {
    let limits = Limits {
        cache: 64 << 20,
        ..Limits::default()
    };
    Ok(memory_pool(name, SIZE, ashift, limits)?.0)
}

/// Makes datasets from a seed and delivers them below `POOL/rSEED` of a pool.
///
/// # Errors
/// A sentence with the changes, if something refuses or differs.
pub fn run(seed: u64, to: &Arc<Pool>) -> Result<Counts> {
    let prng = SeededPrng::new(seed);
    let mut source = Source::new(&prng)?;
    let target = format!("{}/r{seed}", to.name());
    let mut counts = Counts::default();
    let mut log = Vec::new();
    let done = source
        .grow(&prng)
        .and_then(|()| delivery::run(&source, to, &target, &prng, &mut counts, &mut log));
    source.pool.close()?;
    done.map_err(|e| {
        let from = log.len().saturating_sub(12);
        wrong(format!(
            "seed {seed}: {e}\n{}\n{}",
            source.what.join("\n"),
            log[from..].join("\n")
        ))
    })?;
    Ok(counts)
}

/// The entries of a dataset but for what the receiving pool decides.
fn entries(pool: &Arc<Pool>, name: &str) -> Result<std::collections::BTreeMap<String, Value>> {
    let mut all = of_dataset(pool, name)?;
    for entry in all.values_mut() {
        if let Some(fields) = entry.as_object_mut() {
            fields.remove("blocks");
        }
    }
    Ok(all)
}

/// Compares a snapshot here with one there, and what is counted by owner.
///
/// # Errors
/// What differs.
pub fn compare(from: &Arc<Pool>, theirs: &str, to: &Arc<Pool>, ours: &str) -> Result<()> {
    let (a, b) = (from.dsl().dataset(theirs)?, to.dsl().dataset(ours)?);
    let (pa, pb) = (a.phys()?, b.phys()?);
    if b.is_snapshot() && (pa.guid, pa.creation_time) != (pb.guid, pb.creation_time) {
        return Err(wrong(format!("{ours} has another guid or creation time")));
    }
    if a.is_volume()? {
        return match of_volume(from, theirs)? == of_volume(to, ours)? {
            true => Ok(()),
            false => Err(wrong(format!("{ours} has other bytes"))),
        };
    }
    let flaws = differences(ours, &entries(from, theirs)?, &entries(to, ours)?, &[]);
    if !flaws.is_empty() {
        return Err(wrong(flaws.join("\n")));
    }
    for owner in [QuotaOwner::User, QuotaOwner::Group] {
        let counts = |pool: &Arc<Pool>, name: &str| -> Result<Vec<(u64, u64)>> {
            let rows = pool.space_by_owner(name, owner)?;
            Ok(rows.iter().map(|r| (r.id, r.objects)).collect())
        };
        let a = match counts(from, theirs) {
            // Pools of old versions do not count objects.
            Err(e) if e.is(zuse::Errno::NOTSUP) => continue,
            Ok(rows) if rows.iter().all(|(_, objects)| *objects == 0) => continue,
            other => other?,
        };
        let b = counts(to, ours)?;
        if a != b {
            return Err(wrong(format!(
                "{ours}: objects of {owner:?}s {b:?}, not {a:?}"
            )));
        }
    }
    Ok(())
}

/// Checks a pool's accounting and every block.
///
/// # Errors
/// The problems that the checker finds.
pub fn check_pool(pool: &Arc<Pool>) -> Result<()> {
    pool.sync()?;
    pool.sync()?;
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    if !flaws.is_empty() {
        return Err(wrong(format!("{flaws:?}")));
    }
    let report = zuse_check::check(pool.spa(), zuse_check::Depth::All)?;
    match report.is_clean() {
        true => Ok(()),
        false => Err(wrong(format!("{:#?}", report.problems))),
    }
}

/// As [`check_pool`], for a pool that has received a forged stream. The content of its objects is
/// the sender's and not checked.
///
/// # Errors
/// As [`check_pool`].
pub fn check_but_contents(pool: &Arc<Pool>) -> Result<()> {
    pool.sync()?;
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    let report = zuse_check::check(pool.spa(), zuse_check::Depth::All)?;
    let ours = report.not_of_contents();
    match flaws.is_empty() && ours.is_empty() {
        true => Ok(()),
        false => Err(wrong(format!("{flaws:?}, {ours:#?}"))),
    }
}

/// The key of encrypted sources.
fn key() -> KeyMaterial {
    KeyMaterial::new(vec![7; 32])
}
