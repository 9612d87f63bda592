//! The uberblock: the root of a pool as of one txg.
//!
//! | offset | field |
//! |---|---|
//! | 0 | magic 0x00bab10c |
//! | 8 | SPA version of the pool |
//! | 16 | txg |
//! | 24 | sum of the guids of all vdevs |
//! | 32 | time, seconds |
//! | 40 | block pointer of the MOS, 128 bytes |
//! | 168 | highest SPA version the writer knows |
//! | 176 | MMP magic 0xa11cea11 |
//! | 184 | MMP delay, 0 = multihost off |
//! | 192 | MMP configuration |
//! | 200 | txg of a checkpointed uberblock |
//! | 208 | RAID-Z reflow state |
//!
//! It is at the start of a ring slot whose trailer must have been verified. Older ones are shorter:
//! missing fields are zero. The order of uberblocks (which is best) is txg, time, MMP sequence.

use zuse_base::ByteOrder;
use zuse_base::cut::{low16, low32};

use crate::block_pointer::{BP_SIZE, BlockPointer};
use crate::error::{FormatResult, bad, need};
use crate::field::{put_u64, u64_at, u64_in};

/// Magic number.
pub const UBERBLOCK_MAGIC: u64 = 0x00ba_b10c;
/// Bytes of the structure.
pub const UBERBLOCK_SIZE: usize = 216;
/// Magic of the multihost fields.
pub const MMP_MAGIC: u64 = 0xa11c_ea11;
/// SPA version of pools with feature flags.
pub const SPA_VERSION: u64 = 5000;

/// Whether a pool of this SPA version is supported.
pub fn is_spa_version(version: u64) -> bool {
    (1..=28).contains(&version) || version == SPA_VERSION
}

/// State of a RAID-Z expansion's scratch area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReflowState {
    /// No scratch area in use.
    NotInUse,
    /// The scratch area holds the truth.
    ScratchValid,
    /// Copied back, not from a crash.
    InvalidSynced,
    /// Copied back at import.
    InvalidSyncedOnImport,
    /// Copied back, reflow continues.
    InvalidSyncedReflow,
    /// A number of the future.
    Unknown(u16),
}

/// An uberblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Uberblock {
    /// SPA version of the pool.
    pub version: u64,
    /// Txg it commits.
    pub txg: u64,
    /// Σ of all vdev guids of the tree, mod 2^64.
    pub guid_sum: u64,
    /// UTC seconds.
    pub timestamp: u64,
    /// Block pointer of the MOS.
    pub root: BlockPointer,
    /// Highest SPA version its writer knows.
    pub software_version: u64,
    /// [`MMP_MAGIC`], or 0 from old software.
    pub mmp_magic: u64,
    /// 0 = multihost off, else nanoseconds between heartbeats.
    pub mmp_delay: u64,
    /// Multihost bit field.
    pub mmp_config: u64,
    /// Txg of a checkpointed uberblock, else 0.
    pub checkpoint_txg: u64,
    /// RAID-Z expansion: sectors in bits 0..55, state in 55..64.
    pub raidz_reflow: u64,
}

impl Uberblock {
    /// Parses the start of a slot; gives the byte order of the writer too.
    ///
    /// # Errors
    /// Too short, or no magic.
    pub fn parse(bytes: &[u8]) -> FormatResult<(Self, ByteOrder)> {
        need(bytes, UBERBLOCK_SIZE, "uberblock")?;
        let order = match u64_at(bytes, 0) {
            UBERBLOCK_MAGIC => ByteOrder::Little,
            swapped if swapped == UBERBLOCK_MAGIC.swap_bytes() => ByteOrder::Big,
            _ => return bad("no uberblock magic"),
        };
        let word = |at| u64_in(bytes, at, order);
        let root = bytes
            .get(40..)
            .and_then(|tail| tail.first_chunk::<BP_SIZE>());
        Ok((
            Self {
                version: word(8),
                txg: word(16),
                guid_sum: word(24),
                timestamp: word(32),
                root: root
                    .map(|raw| BlockPointer::parse(raw, order))
                    .unwrap_or_default(),
                software_version: word(168),
                mmp_magic: word(176),
                mmp_delay: word(184),
                mmp_config: word(192),
                checkpoint_txg: word(200),
                raidz_reflow: word(208),
            },
            order,
        ))
    }

    /// Writes the 216 bytes, little-endian, to the start of a slot.
    pub fn write_le(&self, out: &mut [u8]) {
        for (i, word) in self.to_words().into_iter().enumerate() {
            put_u64(out, 8 * i, word);
        }
    }

    /// The 27 words: how a checkpoint stores it in the MOS directory.
    pub fn to_words(&self) -> [u64; 27] {
        let mut words = [0; 27];
        words[..5].copy_from_slice(&[
            UBERBLOCK_MAGIC,
            self.version,
            self.txg,
            self.guid_sum,
            self.timestamp,
        ]);
        words[5..21].copy_from_slice(&self.root.words);
        words[21..].copy_from_slice(&[
            self.software_version,
            self.mmp_magic,
            self.mmp_delay,
            self.mmp_config,
            self.checkpoint_txg,
            self.raidz_reflow,
        ]);
        words
    }

    /// Back from [`Self::to_words`].
    ///
    /// # Errors
    /// Fewer words than needed, or no magic.
    pub fn from_words(words: &[u64]) -> FormatResult<Self> {
        let bytes: Vec<u8> = words
            .iter()
            .take(27)
            .flat_map(|word| word.to_le_bytes())
            .collect();
        Ok(Self::parse(&bytes)?.0)
    }

    /// Multihost sequence number, 0 if the field is invalid.
    pub fn mmp_sequence(&self) -> u16 {
        if self.mmp_magic == MMP_MAGIC && self.mmp_config & 2 != 0 {
            low16(self.mmp_config >> 32)
        } else {
            0
        }
    }

    /// Interval between heartbeats in milliseconds, if valid.
    pub fn mmp_interval_ms(&self) -> Option<u32> {
        (self.mmp_magic == MMP_MAGIC && self.mmp_config & 1 != 0)
            .then_some(low32(self.mmp_config >> 8) & 0xff_ffff)
    }

    /// Number of missed intervals after which the holder stops, if valid.
    pub fn mmp_fail_intervals(&self) -> Option<u16> {
        (self.mmp_magic == MMP_MAGIC && self.mmp_config & 4 != 0)
            .then_some(low16(self.mmp_config >> 48))
    }

    /// Whether the pool was last written with multihost on.
    pub fn multihost(&self) -> bool {
        self.mmp_magic == MMP_MAGIC && self.mmp_delay != 0
    }

    /// Multihost bit field of these values, all valid.
    pub fn mmp_config_of(interval_ms: u32, sequence: u16, fail_intervals: u16) -> u64 {
        7 | u64::from(interval_ms & 0xff_ffff) << 8
            | u64::from(sequence) << 32
            | u64::from(fail_intervals) << 48
    }

    /// Progress of a RAID-Z expansion in bytes.
    pub fn reflow_offset(&self) -> u64 {
        (self.raidz_reflow & ((1 << 55) - 1)) << 9
    }

    /// State of the expansion's scratch area.
    pub fn reflow_state(&self) -> ReflowState {
        match low16(self.raidz_reflow >> 55) {
            0 => ReflowState::NotInUse,
            1 => ReflowState::ScratchValid,
            2 => ReflowState::InvalidSynced,
            3 => ReflowState::InvalidSyncedOnImport,
            4 => ReflowState::InvalidSyncedReflow,
            other => ReflowState::Unknown(other),
        }
    }

    /// Reflow field of an offset in bytes and a state.
    pub fn reflow_of(offset: u64, state: ReflowState) -> u64 {
        let number = match state {
            ReflowState::NotInUse => 0,
            ReflowState::ScratchValid => 1,
            ReflowState::InvalidSynced => 2,
            ReflowState::InvalidSyncedOnImport => 3,
            ReflowState::InvalidSyncedReflow => 4,
            ReflowState::Unknown(other) => u64::from(other & 0x1ff),
        };
        (offset >> 9) & ((1 << 55) - 1) | number << 55
    }

    /// The sort key of uberblocks: the greatest is the best.
    pub fn rank(&self) -> (u64, u64, u16) {
        (self.txg, self.timestamp, self.mmp_sequence())
    }
}

#[cfg(test)]
mod tests;
