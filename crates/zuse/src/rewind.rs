//! Rewinding a pool to an older state, because the newest one is damaged.

use std::sync::Arc;

use zuse_base::{Errno, Error, Result, Txg};
use zuse_format::Uberblock;
use zuse_pool::Environment;
use zuse_vdev::FoundPool;

use crate::{Pool, PoolAccess};

/// Txgs whose freed space is not reused yet: states no older than that are intact unless a device
/// failed.
const KEPT: u64 = 3;

/// A state to which a pool can be rewound.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rewind {
    /// The state.
    pub uberblock: Uberblock,
    /// The newest one.
    pub newest: Uberblock,
}

/// Which states [`Pool::find_rewind`] checks, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RewindSearch {
    /// Those of the last three txgs. Of a state the last changes are read.
    LastTxgs,
    /// All that still have an uberblock. Of a state everything is read, which may take long.
    Extreme,
}

impl Pool {
    /// The newest intact state of a pool, among those that `search` says. Writes nothing.
    ///
    /// # Errors
    /// `Corrupt` if there is none; no device can be opened.
    pub fn find_rewind(
        env: &Environment,
        found: &FoundPool,
        search: RewindSearch,
    ) -> Result<Rewind> {
        let extreme = search == RewindSearch::Extreme;
        let all = Self::uberblocks(found)?;
        let Some(newest) = all.first().copied() else {
            return Err(Error::refused(
                Errno::NXIO,
                format!(
                    "pool {}: no device holds a whole uberblock",
                    found.config.name
                ),
            ));
        };
        let mut first: Option<Error> = None;
        for (i, uberblock) in all.iter().enumerate() {
            if !extreme && i as u64 > KEPT {
                break;
            }
            match Self::check_state_at(env, found, uberblock, extreme) {
                Ok(()) => {
                    return Ok(Rewind {
                        uberblock: *uberblock,
                        newest,
                    });
                }
                // The user gets the error of the newest state.
                Err(e) => first = first.or(Some(e)),
            }
        }
        Err(first.unwrap_or_else(|| {
            Error::refused(
                Errno::NXIO,
                format!("pool {}: no state of it can be opened", found.config.name),
            )
        }))
    }

    fn check_state_at(
        env: &Environment,
        found: &FoundPool,
        uberblock: &Uberblock,
        extreme: bool,
    ) -> Result<()> {
        let access = PoolAccess {
            rewind_to: Some(Txg(uberblock.txg)),
            ..PoolAccess::default()
        };
        // Opened for reading: a state that is only tried must not be written to.
        let pool = Self::open(env.clone(), found, &access)?;
        let checked = pool.check_state(uberblock, extreme);
        pool.close()?;
        checked
    }

    /// Reads the metadata that the last txgs wrote, or everything.
    fn check_state(self: &Arc<Self>, uberblock: &Uberblock, all: bool) -> Result<()> {
        let options = crate::tools::traverse::Options {
            verify: if all {
                crate::tools::traverse::Verify::All
            } else {
                crate::tools::traverse::Verify::Metadata
            },
            born_after: if all {
                0
            } else {
                uberblock.txg.saturating_sub(KEPT)
            },
            stop_at_error: true,
            // An indirect block with two pointers to it is followed once.
            space: all,
            ..crate::tools::traverse::Options::default()
        };
        let report = crate::tools::traverse::traverse(self, &options, &|_| {})?;
        match report.errors.into_iter().next() {
            None => Ok(()),
            Some(e) => Err(e.error),
        }
    }
}
