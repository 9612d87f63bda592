//! Writing blocks in their stored form, for streams.
//!
//! They are read by [`Pipeline::read_stored`], those of an encrypted dataset with the pointer's
//! [`CryptParams`]. Ciphertext stays ciphertext, and no key is needed. Bytes, salt, IV and MAC are
//! kept. Only the checksum is computed again, over the ciphertext. Compressed blocks are not
//! compressed again.

use std::sync::Arc;

use zuse_base::{ByteOrder, Errno, Error, Result, Txg};
use zuse_codec::Compression;
use zuse_format::block_pointer::MAX_BLOCK;
use zuse_format::{BlockPointer, BpKind, BpProps};

use crate::cache::{Class, Key};
use crate::crypt::{CryptParams, indirect_mac};
use crate::gang::is_truncated;
use crate::pipeline::CompressedForm;
use crate::{Block, DatasetKey, Pipeline, WritePolicy};

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
    /// Its encryption or authentication parameters.
    pub crypt: CryptParams,
}

/// Refuses sizes and compressions that no stored block has.
fn check_form(stored: &[u8], logical_size: u64, compression: u8) -> Result<Compression> {
    let size = stored.len() as u64;
    let sized = |n: u64| (512..=MAX_BLOCK).contains(&n) && n.is_multiple_of(512);
    Compression::from_u8(compression)
        .filter(|kind| {
            sized(size)
                && sized(logical_size)
                && size <= logical_size
                && (*kind != Compression::Off || size == logical_size)
                && !matches!(kind, Compression::Inherit | Compression::On)
        })
        .ok_or_else(|| {
            Error::refused(
                Errno::INVAL,
                format!(
                    "a stored block of {size} bytes stands for {logical_size} with compression {compression}"
                ),
            )
        })
}

impl Pipeline {
    /// Writes a level-0 block that is already compressed, and returns its pointer. `key` is that of
    /// an encrypted dataset. The caller frees the old block.
    ///
    /// # Errors
    /// As [`Self::write_raw`].
    #[allow(clippy::too_many_arguments)]
    pub fn write_compressed(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        key: Option<&DatasetKey>,
        stored: &[u8],
        logical_size: u64,
        compression: u8,
        fill: u64,
    ) -> Result<BlockPointer> {
        check_form(stored, logical_size, compression)?;
        let policy = match key {
            Some(_) => policy.encrypted(),
            None => *policy,
        };
        let mut bp = BlockPointer::with_props(BpProps {
            lsize: logical_size,
            psize: stored.len() as u64,
            compression,
            checksum: policy.checksum as u8,
            object_type: policy.object_type,
            level: 0,
            dedup: false,
            crypt: false,
            order: ByteOrder::Little,
        });
        let mut sealed = Vec::new();
        let stored = match key {
            None => stored,
            Some(key) => {
                sealed.extend_from_slice(stored);
                bp.set_crypt();
                key.seal_stored(&mut bp, &mut sealed, policy.dedup)?;
                &sealed[..]
            }
        };
        self.place_stored(txg, &policy, &mut bp, stored, fill)?;
        Ok(bp)
    }

    /// Writes an indirect block of an encrypted dataset. Its MAC covers pointers and needs no key.
    /// The caller frees the old block.
    ///
    /// # Errors
    /// As [`Self::write_raw`].
    pub fn write_raw_indirect(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        data: &[u8],
        fill: u64,
    ) -> Result<BlockPointer> {
        let policy = policy.encrypted();
        let mut scratch = Vec::new();
        let unit = self.allocator()?.min_allocation();
        let (stored, compression) = match self.compress(&policy, unit, data, &mut scratch) {
            CompressedForm::Stored => (&scratch[..], policy.compression),
            // An embedded pointer has no room for a MAC.
            CompressedForm::Plain | CompressedForm::Embed(_) => (data, Compression::Off),
        };
        let mut bp = BlockPointer::with_props(BpProps {
            lsize: data.len() as u64,
            psize: stored.len() as u64,
            compression: compression.to_u8(),
            checksum: policy.checksum as u8,
            object_type: policy.object_type,
            level: policy.level,
            dedup: false,
            crypt: true,
            order: ByteOrder::Little,
        });
        bp.set_mac(&indirect_mac(data));
        self.place_stored(txg, &policy, &mut bp, stored, fill)?;
        Ok(bp)
    }

    /// Puts the part of a block that is visible without its key into the cache, for readers without
    /// the key.
    pub fn remember_locked(&self, bp: &BlockPointer, block: Arc<Block>) {
        if bp.kind() == BpKind::Normal {
            self.cache()
                .insert(Key::of(bp).locked(), Class::of(bp), block);
        }
    }

    /// Checksums stored bytes by their pointer's properties and writes them.
    fn place_stored(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        bp: &mut BlockPointer,
        stored: &[u8],
        fill: u64,
    ) -> Result<()> {
        self.sum(policy.checksum, bp, stored)?;
        bp.set_birth(txg.0, txg.0);
        bp.set_fill(fill);
        self.store_once(txg, policy, bp, stored, &|other| {
            let there = self.read_stored(other, &"a block of a dedup table")?;
            Ok(there == stored)
        })
    }

    /// Writes a level-0 block of an encrypted dataset unchanged and returns its pointer. The caller
    /// frees the old block. `policy` gives type, checksum, copies and class.
    ///
    /// # Errors
    /// `Refused(INVAL)` for sizes and numbers that no block can have; `Refused(NOSPC)`; `Device`.
    pub fn write_raw(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        raw: &RawBlock<'_>,
        fill: u64,
    ) -> Result<BlockPointer> {
        check_form(raw.stored, raw.logical_size, raw.compression)?;
        let size = raw.stored.len() as u64;
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
            // The same as at the sender: the ciphertext depends on them.
            bp.set_salt_iv(&raw.crypt.salt, &raw.crypt.iv);
        }
        // Object sets have their MACs inside the block, and the whole checksum in the pointer.
        if is_truncated(&bp) {
            bp.set_mac(&raw.crypt.mac);
        }
        self.place_stored(txg, &policy, &mut bp, raw.stored, fill)?;
        Ok(bp)
    }
}
