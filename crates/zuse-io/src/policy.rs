//! What a block gets when it is written: checksum, compression, copies.

use zuse_codec::{ChecksumKind, Compression, ZstdLevel};

use crate::AllocClass;

/// How to write one block (chapter 02 §5.3 of the format notes says which block gets what).
#[derive(Clone, Copy, Debug)]
pub struct WritePolicy {
    /// DMU object type stored in the pointer.
    pub object_type: u8,
    /// Level in the block tree; 0 for data.
    pub level: u8,
    /// Checksum function, never `Inherit` or `On`.
    pub checksum: ChecksumKind,
    /// Compression method, never `Inherit` or `On`.
    pub compression: Compression,
    /// Level for zstd; ignored otherwise.
    pub zstd_level: ZstdLevel,
    /// DVAs to write, 1..=3.
    pub copies: u8,
    /// Copies of a gang header, at least `copies`.
    pub gang_copies: u8,
    /// Whether a result of at most 112 bytes may live inside the pointer.
    pub embed: bool,
    /// Whether holes carry their birth txg.
    pub hole_birth: bool,
    /// Whether an unchanged checksum keeps the old pointer.
    pub nopwrite: bool,
    /// Which vdevs to prefer.
    pub class: AllocClass,
    /// Sync pass, from 1. From pass 2 on a block born in this txg is rewritten in place where it fits.
    pub pass: u32,
}
