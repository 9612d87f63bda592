//! Writing: zeros become a hole → compression → encryption → checksum → a place, or the old one in
//! a later pass → the devices.

use zuse_base::{ByteOrder, Error, Result, Txg};
use zuse_codec::{Compression, checksum, is_zero};
use zuse_format::block_pointer::MAX_BLOCK;
use zuse_format::{BlockPointer, BpKind, BpProps, object_type};

use super::{Pipeline, Written};
use crate::cache::Key;
use crate::crypt::indirect_mac;
use crate::{AllocClass, Allocation, DatasetKey, Dedup, WritePolicy};

/// Largest payload that fits in a pointer.
const EMBEDDED_MAX: usize = 112;

impl Pipeline {
    /// Writes one block in `txg` and returns its pointer.
    ///
    /// `old` is the pointer it replaces (a hole if none). The caller frees it unless the result is
    /// `in_place`. `data` is the decoded, little-endian content, `fill` its fill count. `block`
    /// holds the same bytes for the cache; pass `None` if the block will not be read soon.
    ///
    /// # Errors
    /// `Refused(NOSPC)` if the pool is full; `Device` if a copy could not be written.
    pub fn write(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        old: &BlockPointer,
        data: &[u8],
        fill: u64,
    ) -> Result<Written> {
        self.write_keyed(txg, policy, None, old, data, fill)
    }

    /// As [`Self::write`], into a dataset with that key. An objset block is signed by the caller
    /// ([`DatasetKey::sign_objset`]).
    ///
    /// # Errors
    /// As [`Self::write`]; `Unsupported` if the suite cannot encrypt a block of that size.
    pub fn write_keyed(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        key: Option<&DatasetKey>,
        old: &BlockPointer,
        data: &[u8],
        fill: u64,
    ) -> Result<Written> {
        let policy = &match key {
            Some(_) => policy.encrypted(),
            None => *policy,
        };
        debug_assert!(
            data.len() as u64 <= MAX_BLOCK && data.len().is_multiple_of(512) && !data.is_empty()
        );
        let zero_test = policy.compression != Compression::Off
            || policy.dedup != Dedup::Off
            || key.is_some() && policy.object_type == object_type::DNODE && policy.level == 0;
        // With `compression=off` zeros are stored as a block, not as a hole.
        if zero_test && is_zero(data) {
            // The hole keeps the txg in which it came, so that an incremental send finds what was
            // freed.
            let birth = if policy.hole_birth && old.logical_birth() != 0 {
                txg.0
            } else {
                0
            };
            return Ok(Written {
                bp: BlockPointer::hole_with_birth(
                    data.len() as u64,
                    policy.object_type,
                    policy.level,
                    birth,
                ),
                in_place: false,
            });
        }
        self.scratch
            .with(|scratch| self.write_with(txg, policy, key, old, data, fill, scratch))
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn write_with(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        key: Option<&DatasetKey>,
        old: &BlockPointer,
        data: &[u8],
        fill: u64,
        scratch: &mut Vec<u8>,
    ) -> Result<Written> {
        let allocator = self.allocator()?;
        let rewrite = policy.pass > 1 && is_own(old, txg);
        // A block that is encrypted gets a fresh IV. Its old place would hold two ciphertexts of
        // one txg, and after a power cut the pointer could lead to either. Only the MOS, which is
        // not encrypted, is rewritten in place.
        assert!(
            !rewrite || key.is_none(),
            "an encrypted block must not be rewritten in place"
        );
        let compression = match self.compress(policy, allocator.min_allocation(), data, scratch) {
            CompressedForm::Plain => Compression::Off,
            CompressedForm::Embed(len) if !rewrite => {
                return embedded(txg, policy, &scratch[..len], data.len());
            }
            CompressedForm::Embed(len) => {
                pad(scratch, len, allocator.min_allocation() as usize);
                policy.compression
            }
            CompressedForm::Stored => policy.compression,
        };
        if rewrite
            && let Some(written) =
                self.keep_place(txg, policy, old, data, fill, compression, scratch)?
        {
            return Ok(written);
        }
        let packed = compression != Compression::Off;
        let stored = if packed { &scratch[..] } else { data };
        let mut bp = normal(policy, data.len(), stored.len(), compression);
        let stored = match key {
            None => stored,
            Some(key) => {
                if !packed {
                    scratch.clear();
                    scratch.extend_from_slice(data);
                }
                seal(policy, key, &mut bp, data, scratch)?;
                &scratch[..]
            }
        };
        self.sum(policy.checksum, &mut bp, stored)?;
        // The stored bytes are equal: the old pointer stays, and snapshots still share its block.
        if policy.nopwrite && can_nopwrite(&bp, old, policy) {
            return Ok(Written {
                bp: *old,
                in_place: true,
            });
        }
        // Only now: dedup tables know blocks by the checksum of the stored bytes.
        bp.set_birth(txg.0, txg.0);
        bp.set_fill(fill);
        self.store_once(txg, policy, &mut bp, stored, &|other| {
            let there = self.read_keyed(other, key, &"a block of a dedup table")?;
            Ok(there.bytes() == data)
        })?;
        Ok(Written {
            bp,
            in_place: false,
        })
    }

    /// Writes a block to its old place, if that was allocated in this txg and the bytes fit. A
    /// smaller result is padded. An uncompressed one must have the same size.
    #[allow(clippy::too_many_arguments)]
    fn keep_place(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        old: &BlockPointer,
        data: &[u8],
        fill: u64,
        compression: Compression,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<Written>> {
        // A block of another size would need another place, and the passes of the MOS would not
        // end.
        let room = old.psize() as usize;
        let packed = compression != Compression::Off;
        let (bytes, compression) = if packed && scratch.len() <= room && room < data.len() {
            let len = scratch.len();
            // Zeros after a compressed block are harmless: decompression stops before them.
            pad(scratch, len, room);
            (&scratch[..], compression)
        } else if room == data.len() {
            (data, Compression::Off)
        } else if packed && scratch.len() == room {
            (&scratch[..], compression)
        } else {
            return Ok(None);
        };
        self.overwrite(txg, policy, old, bytes, compression, data.len(), fill)
            .map(Some)
    }

    /// Allocates places for the stored bytes of a block, writes them and notes the DVAs in its
    /// pointer.
    pub(crate) fn store(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        bp: &mut BlockPointer,
        stored: &[u8],
    ) -> Result<()> {
        if self.store_whole(txg, policy, bp, stored)? {
            return Ok(());
        }
        self.write_gang(txg, policy, bp, stored)
    }

    /// As [`Self::store`], with each copy contiguous; false if there is no contiguous space.
    pub(crate) fn store_whole(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        bp: &mut BlockPointer,
        stored: &[u8],
    ) -> Result<bool> {
        match self.find_place(txg, policy, stored.len() as u64)? {
            Some(Allocation { dvas, count }) => {
                for (i, dva) in dvas[..count.min(3)].iter().enumerate() {
                    bp.set_dva(i, *dva);
                }
                // All places are allocated before the writes: a failed allocation leaves nothing on
                // disk.
                for dva in bp.dvas() {
                    self.put(txg, &dva, stored)?;
                }
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Allocates contiguous space for each copy; `None` if there is none that large.
    pub(crate) fn find_place(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        len: u64,
    ) -> Result<Option<Allocation>> {
        let class = match policy.class {
            // Decided here, because it depends on the stored size.
            AllocClass::Normal if len <= u64::from(policy.small) => AllocClass::Small,
            class => class,
        };
        self.allocator()?
            .allocate(txg, len, usize::from(policy.copies), class)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn overwrite(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        old: &BlockPointer,
        stored: &[u8],
        compression: Compression,
        lsize: usize,
        fill: u64,
    ) -> Result<Written> {
        // A power cut falls back to blocks of older txgs, so those are never overwritten.
        assert_eq!(
            old.physical_birth(),
            txg.0,
            "a block of an older txg must not be rewritten in place"
        );
        let context = self.checksums();
        let sum = checksum(policy.checksum, stored, ByteOrder::Little, &context)
            .map_err(|e| Error::unsupported("write pipeline", e))?;
        let mut bp = normal(policy, lsize, stored.len(), compression);
        bp.set_checksum(sum);
        bp.set_birth(txg.0, txg.0);
        bp.set_fill(fill);
        // Every copy is rewritten: a stale copy would not match the pointer's checksum.
        for (i, dva) in old.dvas().enumerate() {
            bp.set_dva(i, dva);
            // A reader that still holds the old pointer must not "heal" this place with the old
            // bytes.
            self.freed.note(txg, &dva);
            self.put(txg, &dva, stored)?;
        }
        // The cache may hold the bytes of the previous pass for this place.
        self.cache.remove(&Key::of(old));
        Ok(Written { bp, in_place: true })
    }

    pub(crate) fn compress(
        &self,
        policy: &WritePolicy,
        unit: u64,
        data: &[u8],
        scratch: &mut Vec<u8>,
    ) -> CompressedForm {
        if matches!(policy.compression, Compression::Off | Compression::Empty) {
            return CompressedForm::Plain;
        }
        let unit = unit.max(512) as usize;
        let len = data.len();
        // Saving less than an eighth does not pay for decompressing at each read.
        let mut limit = len - len / 8;
        if policy.compression != Compression::Zle {
            // Saving less than a sector saves no space.
            limit -= limit % unit;
            if limit < unit {
                limit = EMBEDDED_MAX;
            }
        }
        // No sector can be saved: the block is embedded in its pointer, or stored uncompressed.
        let whole = limit == EMBEDDED_MAX && len <= unit;
        if whole && !policy.embed {
            return CompressedForm::Plain;
        }
        let (kind, level) = (policy.compression, policy.zstd_level);
        let n = self
            .workspaces
            .with(|w| w.compress(kind, level, data, scratch, limit));
        let Some(n) = n else {
            return CompressedForm::Plain;
        };
        if n <= EMBEDDED_MAX && policy.embed {
            return CompressedForm::Embed(n);
        }
        // Whole sectors are allocated: the rest of the last one is zeros.
        let size = if n <= unit {
            unit
        } else {
            n.next_multiple_of(unit)
        };
        // Rounding up to sectors may leave no saving.
        if size >= len {
            return CompressedForm::Plain;
        }
        pad(scratch, n, size);
        CompressedForm::Stored
    }
}

pub(crate) enum CompressedForm {
    Plain,
    Embed(usize),
    Stored,
}

pub(crate) fn normal(
    policy: &WritePolicy,
    lsize: usize,
    psize: usize,
    compression: Compression,
) -> BlockPointer {
    BlockPointer::with_props(BpProps {
        lsize: lsize as u64,
        psize: psize as u64,
        compression: compression.to_u8(),
        checksum: policy.checksum as u8,
        object_type: policy.object_type,
        level: policy.level,
        dedup: false,
        crypt: false,
        order: ByteOrder::Little,
    })
}

fn pad(buf: &mut Vec<u8>, used: usize, size: usize) {
    buf.truncate(used);
    buf.resize(size, 0);
}

fn can_nopwrite(new: &BlockPointer, old: &BlockPointer, policy: &WritePolicy) -> bool {
    old.kind() == BpKind::Normal
        // A fresh IV makes other bytes of the same content. A shared dedup entry counts references.
        && !old.uses_crypt()
        && !old.dedup()
        // Word 6 holds sizes, compression, checksum function, type and level.
        && old.words[6] == new.words[6]
        // If `copies` has changed since, the block has to be rewritten.
        && old.dvas().count() == usize::from(policy.copies)
        && old.checksum() == new.checksum()
}

/// Whether the place of a pointer was allocated in this txg and may be rewritten.
fn is_own(old: &BlockPointer, txg: Txg) -> bool {
    !old.is_hole()
        && !old.is_embedded()
        && !old.is_gang()
        && old.logical_birth() == txg.0
        && old.physical_birth() == txg.0
}

/// Embeds a block in its pointer.
fn embedded(txg: Txg, policy: &WritePolicy, bytes: &[u8], lsize: usize) -> Result<Written> {
    let bp = BlockPointer::embed(
        bytes,
        lsize as u64,
        policy.compression.to_u8(),
        policy.object_type,
        txg.0,
    )
    .map_err(|e| e.at("write pipeline"))?;
    Ok(Written {
        bp,
        in_place: false,
    })
}

/// Encrypts a block in `scratch`. `data` is its content before compression.
pub(crate) fn seal(
    policy: &WritePolicy,
    key: &DatasetKey,
    bp: &mut BlockPointer,
    data: &[u8],
    scratch: &mut [u8],
) -> Result<()> {
    // Set before the MAC is computed, because the MAC covers this bit.
    bp.set_crypt();
    key.seal_stored(bp, scratch, policy.dedup)?;
    if policy.level > 0 {
        // An indirect block is not encrypted. Its MAC is computed from the MACs in it.
        bp.set_mac(&indirect_mac(data));
    }
    Ok(())
}
