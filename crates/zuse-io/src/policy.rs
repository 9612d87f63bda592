//! Per-block write settings: checksum, compression, copies.

use zuse_codec::{ChecksumKind, Compression, ZstdLevel};
use zuse_format::object_type;

use crate::{AllocClass, Dedup};

/// How to write one block. Chapter 02 §5.3 of the format notes says which block gets what.
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
    /// Whether an existing block with the same content is used instead.
    pub dedup: Dedup,
    /// Which vdevs to prefer.
    pub class: AllocClass,
    /// Blocks of class `Normal` whose stored size is at most this become class `Small`; 0 for none.
    pub small: u32,
    /// Sync pass, from 1. From pass 2 on a block born in this txg is rewritten in place where it
    /// fits.
    pub pass: u32,
}

impl WritePolicy {
    /// The same policy for a block of an encrypted dataset. Such a block is never embedded and
    /// never rewritten in place. A pointer with salt and IV has room for two DVAs only. Dnodes are
    /// not compressed, because parts of them stay in clear at fixed offsets.
    #[must_use]
    pub fn encrypted(self) -> Self {
        let most = if object_type::is_encrypted(self.object_type) {
            2
        } else {
            3
        };
        let in_clear =
            self.level == 0 && matches!(self.object_type, object_type::DNODE | object_type::OBJSET);
        Self {
            copies: self.copies.min(most),
            gang_copies: self.gang_copies.min(most),
            compression: if in_clear {
                Compression::Off
            } else {
                self.compression
            },
            embed: false,
            nopwrite: false,
            pass: 1,
            ..self
        }
    }
}
