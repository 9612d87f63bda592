//! Sequential rebuilds (`zpool attach -s`, `replace -s`) of another host (chapter 01b §9 of the
//! format notes).
//!
//! ```text
//!   org.openzfs:vdev_rebuild in the ZAP of a top-level vdev, 12 words:
//!   state, offset, min txg, max txg, start, end,
//!   milliseconds, scanned, issued, rebuilt, estimate, errors
//! ```
//! - A rebuild fills a device without verifying checksums. Zuse has none: a resilver fills the
//!   device according to its dirty time log, and verifies the blocks.
//! - A rebuild that another host left unfinished ends when a resilver begins: its state and its use
//!   of the feature are removed. The device's log still lists all missing txgs.

use zuse_base::{ObjectId, Result};
use zuse_dmu::zap::{Zap, ZapValue};

use crate::{Pool, SyncCtx};

const KEY: &[u8] = b"org.openzfs:vdev_rebuild";
const FEATURE: &str = "org.openzfs:device_rebuild";
const WORDS: usize = 12;

/// What a rebuild is doing, or how it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RebuildState {
    /// There was none yet.
    #[default]
    None,
    /// It is running, or was when the pool was last used.
    Active,
    /// It was canceled.
    Canceled,
    /// It has ended.
    Complete,
    /// A number of the pool that has no known meaning.
    Unknown(u64),
}

impl RebuildState {
    /// The state for its number on disk.
    pub fn of(number: u64) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Active,
            2 => Self::Canceled,
            3 => Self::Complete,
            other => Self::Unknown(other),
        }
    }

    /// Its number on disk.
    pub fn number(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Active => 1,
            Self::Canceled => 2,
            Self::Complete => 3,
            Self::Unknown(number) => number,
        }
    }
}

/// The last rebuild of a top-level vdev.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rebuild {
    /// Guid of the vdev.
    pub vdev: u64,
    /// Whether it runs, or how it ended.
    pub state: RebuildState,
    /// Seconds since 1970 of its begin.
    pub start: u64,
    /// Seconds since 1970 of its end; 0 while it runs.
    pub end: u64,
    /// Bytes of allocated space that were visited.
    pub scanned: u64,
    /// Bytes read.
    pub issued: u64,
    /// Bytes written.
    pub rebuilt: u64,
    /// Bytes to be visited, as estimated at the start.
    pub estimate: u64,
    /// Segments that could not be rebuilt.
    pub errors: u64,
}

impl Rebuild {
    fn parse(vdev: u64, words: &[u64]) -> Option<Self> {
        let &[
            state,
            _,
            _,
            _,
            start,
            end,
            _,
            scanned,
            issued,
            rebuilt,
            estimate,
            errors,
        ] = words
        else {
            return None;
        };
        let state = RebuildState::of(state);
        (state != RebuildState::None).then_some(Self {
            vdev,
            state,
            start,
            end,
            scanned,
            issued,
            rebuilt,
            estimate,
            errors,
        })
    }
}

impl Pool {
    /// The last rebuild of each top-level vdev that had one.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn rebuilds(&self) -> Result<Vec<Rebuild>> {
        let mut found = Vec::new();
        for (vdev, zap) in self.top_zaps()? {
            if let Some(value) = zap.lookup(KEY)? {
                found.extend(Rebuild::parse(vdev, &value.ints()));
            }
        }
        Ok(found)
    }

    /// A resilver begins, and includes the work of unfinished rebuilds.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    pub fn end_rebuilds(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        for rebuild in self.rebuilds()? {
            for (_, zap) in self.top_zaps()?.iter().filter(|z| z.0 == rebuild.vdev) {
                let zeros = ZapValue::Array {
                    int_size: 8,
                    ints: vec![0; WORDS],
                };
                zap.update(ctx.tx, KEY, &zeros)?;
            }
            // The feature counts rebuilds that run (01b §9).
            if rebuild.state == RebuildState::Active && self.features.is_active(FEATURE) {
                self.features.add(ctx, FEATURE, -1)?;
            }
        }
        Ok(())
    }

    /// The ZAPs of top-level vdevs, by their guids.
    fn top_zaps(&self) -> Result<Vec<(u64, Zap)>> {
        let tree = self.config.lock().vdev_tree.clone();
        let mut all = Vec::new();
        for top in &tree.children {
            if let Some(zap) = top.zap_top.filter(|zap| *zap != 0) {
                all.push((top.guid, Zap::open(&self.mos().dnode(ObjectId(zap))?)?));
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::{Rebuild, RebuildState};

    #[test]
    fn every_number_of_a_state_comes_back() {
        for number in (0..6).chain([u64::MAX]) {
            assert_eq!(RebuildState::of(number).number(), number);
        }
    }

    #[test]
    fn words_without_a_rebuild_or_of_another_length_are_none() {
        let words = [3, 0, 0, 0, 10, 20, 0, 4, 5, 6, 7, 1];
        let found = Rebuild::parse(9, &words).expect("a rebuild");
        assert_eq!((found.vdev, found.state), (9, RebuildState::Complete));
        assert_eq!((found.start, found.end, found.errors), (10, 20, 1));
        assert_eq!(Rebuild::parse(9, &words[..11]), None);
        assert_eq!(Rebuild::parse(9, &[0; 12]), None);
    }
}
