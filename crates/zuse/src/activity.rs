//! Long-running work on a whole pool, from its state in the MOS: the removal of vdevs, a
//! checkpoint, the expansion of raidz. Chapters 01b §6, 01 §8, 01b §3 of the format notes.

use zuse_base::{Error, ObjectId, Result};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_dsl::ScanState;
use zuse_format::Uberblock;

use crate::Pool;

/// The removal of a vdev: the last one, or one in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removal {
    /// What it is doing, or how it ended.
    pub state: ScanState,
    /// The vdev.
    pub vdev: u64,
    /// Seconds since 1970 of its begin.
    pub start: u64,
    /// Seconds since 1970 of its end; 0 while it runs.
    pub end: u64,
    /// Bytes to be copied.
    pub to_copy: u64,
    /// Bytes copied.
    pub copied: u64,
    /// Memory for the mappings of all removed vdevs, in bytes.
    pub mappings: u64,
}

/// A checkpoint, or one that is being discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Seconds since 1970 of its creation; 0 while it is discarded.
    pub since: u64,
    /// Bytes that only the checkpoint holds.
    pub bytes: u64,
}

/// What a checkpoint holds of a vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointSpace {
    /// Number of the top-level vdev.
    pub vdev: u64,
    /// Bytes that only the checkpoint holds.
    pub bytes: u64,
}

/// The expansion of a raidz vdev: the last one, or one in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expansion {
    /// What it is doing, or how it ended.
    pub state: ScanState,
    /// The vdev.
    pub vdev: u64,
    /// Seconds since 1970 of its begin.
    pub start: u64,
    /// Seconds since 1970 of its end, if `state` says that it has ended.
    pub end: u64,
    /// Bytes copied.
    pub copied: u64,
}

const REMOVING: &str = "com.delphix:removing";
const CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
const CHECKPOINT_MAP: &str = "com.delphix:pool_checkpoint_sm";
const EXPANSION: [&str; 4] = [
    "org.openzfs:raidz_expand_state",
    "org.openzfs:raidz_expand_start_time",
    "org.openzfs:raidz_expand_end_time",
    "org.openzfs:raidz_expand_bytes_copied",
];
/// Bytes of an entry of a mapping.
const MAPPING_ENTRY: u64 = 24;

impl Pool {
    /// An array of numbers in the MOS directory, if it exists.
    fn directory_numbers(&self, name: &str) -> Result<Option<Vec<u64>>> {
        let found = self.spa().directory()?.lookup(name.as_bytes())?;
        Ok(found.map(|value| value.ints().to_vec()))
    }

    /// The last removal of a vdev, if there ever was one.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn removal(&self) -> Result<Option<Removal>> {
        let Some(all) = self.directory_numbers(REMOVING)? else {
            return Ok(None);
        };
        let at = |i: usize| all.get(i).copied().unwrap_or(0);
        if at(0) == 0 {
            return Ok(None);
        }
        let mut entries = 0u64;
        for top in self.spa().vdevs().tops().iter() {
            if let Some(indirect) = top.indirect() {
                let dnode = self.spa().mos().dnode(ObjectId(indirect.object))?;
                let count = dnode.with_bonus(|b| b.get(16..24).and_then(|w| w.try_into().ok()));
                entries = entries.saturating_add(count.map_or(0, u64::from_le_bytes));
            }
        }
        Ok(Some(Removal {
            state: ScanState::of(at(0)),
            vdev: at(1),
            start: at(3),
            end: at(4),
            to_copy: at(5),
            copied: at(6),
            mappings: entries.saturating_mul(MAPPING_ENTRY),
        }))
    }

    /// The pool's checkpoint, if it has one.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        let words = self.directory_numbers(CHECKPOINT)?;
        let feature = self.spa().features().is_active(CHECKPOINT);
        if words.is_none() && !feature {
            return Ok(None);
        }
        let mut state = Checkpoint::default();
        if let Some(words) = words {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let place = || format!("pool {}, checkpoint", self.name());
            state.since = Uberblock::parse(&bytes)
                .map_err(|e| e.at(place()))?
                .0
                .timestamp;
        }
        state.bytes = self
            .checkpoint_space()?
            .iter()
            .fold(0, |sum, space| sum.saturating_add(space.bytes));
        Ok(Some(state))
    }

    /// Bytes that only the checkpoint holds, for each vdev with a space map of them.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn checkpoint_space(&self) -> Result<Vec<CheckpointSpace>> {
        let mut all = Vec::new();
        if !self.spa().features().is_active(CHECKPOINT) {
            return Ok(all);
        }
        for (vdev, zap) in self.top_zaps()? {
            let Some(map) = zap.lookup_u64(CHECKPOINT_MAP.as_bytes())? else {
                continue;
            };
            let dnode = self.spa().mos().dnode(ObjectId(map))?;
            // The map has FREE entries only, so its total is negative.
            let alloc = dnode.with_bonus(|b| b.get(16..24).and_then(|w| w.try_into().ok()));
            let alloc = alloc.map(i64::from_le_bytes).ok_or_else(|| {
                Error::truncated(dnode.place(), "the header of the space map is too short")
            })?;
            let bytes = alloc.min(0).unsigned_abs();
            all.push(CheckpointSpace { vdev, bytes });
        }
        Ok(all)
    }

    /// The last expansion of a raidz vdev, if there ever was one.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn expansion(&self) -> Result<Option<Expansion>> {
        let mut last: Option<Expansion> = None;
        for (vdev, zap) in self.top_zaps()? {
            let mut values = [0; 4];
            for (value, name) in values.iter_mut().zip(EXPANSION) {
                let found = zap.lookup(name.as_bytes())?;
                *value = found.as_ref().and_then(ZapValue::first).unwrap_or(0);
            }
            let [state, start, end, copied] = values;
            if state != 0 && last.is_none_or(|l| l.start <= start) {
                last = Some(Expansion {
                    state: ScanState::of(state),
                    vdev,
                    start,
                    end,
                    copied,
                });
            }
        }
        Ok(last)
    }

    /// The ZAPs of top-level vdevs, with the vdevs' numbers.
    fn top_zaps(&self) -> Result<Vec<(u64, Zap)>> {
        let mut all = Vec::new();
        for (id, top) in (0..).zip(&self.config().vdev_tree.children) {
            if let Some(zap) = top.zap_top.filter(|zap| *zap != 0) {
                all.push((id, Zap::open(&self.spa().mos().dnode(ObjectId(zap))?)?));
            }
        }
        Ok(all)
    }
}
