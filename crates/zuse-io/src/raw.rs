//! Blocks of encrypted datasets as they are stored, without their keys: for raw streams.
//!
//! Reading one is [`Pipeline::read_stored`] with the pointer's [`CryptParams`]; here it is written again elsewhere. The
//! bytes, the salt, the IV and the MAC stay what they are; only the checksum is made anew, over the ciphertext.

use zuse_base::{ByteOrder, Errno, Error, Result, Txg};
use zuse_codec::{Compression, checksum, truncate};
use zuse_format::block_pointer::MAX_BLOCK;
use zuse_format::{BlockPointer, BpProps};

use crate::crypt::CryptParams;
use crate::gang::is_truncated;
use crate::{Pipeline, WritePolicy};

/// A block as it was stored in another pool.
#[derive(Clone, Copy, Debug)]
pub struct RawBlock<'a> {
    /// The stored bytes.
    pub stored: &'a [u8],
    /// Bytes once decrypted and decompressed.
    pub logical_size: u64,
    /// Compression, by its number.
    pub compression: u8,
    /// Byte order of its writer.
    pub order: ByteOrder,
    /// How it is encrypted or signed.
    pub crypt: CryptParams,
}

impl Pipeline {
    /// Writes a level-0 block of an encrypted dataset as it comes and returns its pointer. The caller kills what it
    /// replaces. Of `policy` type, checksum, copies and class count.
    ///
    /// # Errors
    /// `Refused(INVAL)` for sizes and numbers that no block has; `Refused(NOSPC)`; `Device`.
    pub fn write_raw(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        raw: &RawBlock<'_>,
        fill: u64,
    ) -> Result<BlockPointer> {
        let size = raw.stored.len() as u64;
        let sized = |n: u64| (512..=MAX_BLOCK).contains(&n) && n.is_multiple_of(512);
        let compression = Compression::from_u8(raw.compression);
        let is_plain = compression == Some(Compression::Off);
        if !sized(size)
            || !sized(raw.logical_size)
            || size > raw.logical_size
            || is_plain && size != raw.logical_size
            || compression.is_none_or(|c| matches!(c, Compression::Inherit | Compression::On))
        {
            return Err(Error::refused(
                Errno::INVAL,
                format!(
                    "a raw block of {size} bytes stands for {} with compression {}",
                    raw.logical_size, raw.compression
                ),
            ));
        }
        let policy = WritePolicy {
            level: 0,
            ..policy.encrypted()
        };
        let mut bp = BlockPointer::with_props(BpProps {
            lsize: raw.logical_size,
            psize: size,
            compression: raw.compression,
            checksum: policy.checksum as u8,
            object_type: policy.object_type,
            level: 0,
            dedup: false,
            crypt: true,
            order: raw.order,
        });
        if bp.encrypted() {
            bp.set_salt_iv(&raw.crypt.salt, &raw.crypt.iv);
        }
        let context = self.checksums();
        let sum = checksum(policy.checksum, raw.stored, raw.order, &context)
            .map_err(|e| Error::unsupported("write pipeline", e))?;
        if is_truncated(&bp) {
            bp.set_mac(&raw.crypt.mac);
            bp.set_truncated_checksum(truncate(policy.checksum, sum));
        } else {
            bp.set_checksum(sum);
        }
        bp.set_birth(txg.0, txg.0);
        bp.set_fill(fill);
        self.store(txg, &policy, &mut bp, raw.stored)?;
        Ok(bp)
    }
}
