//! Reading: from the cache, or stored bytes → checksum → decryption → decompression → byte order →
//! the MACs of what is in clear. If the checksum fails another copy is read, and the bad one is
//! rewritten.

use std::fmt::Display;
use std::sync::Arc;

use zuse_base::{ByteOrder, Error, Result, Txg};
use zuse_codec::{
    ChecksumContext, ChecksumKind, CodecError, Compression, decompress_front, verify,
    verify_truncated,
};
use zuse_format::object_type::swap_block;
use zuse_format::{BlockPointer, BpKind, BpLimits, Dva, Protection, object_type};

use super::{Pipeline, address_of};
use crate::cache::{Class, Key};
use crate::crypt::{cache_key, check_indirect, unprotected};
use crate::gang::is_truncated;
use crate::gather::Run;
use crate::{Block, DatasetKey};

impl Pipeline {
    /// The block a pointer names: decoded, little-endian, from the cache or the devices.
    ///
    /// # Errors
    /// `Corrupt` if no copy passes its checksum or the bytes do not decode; also for a hole, which
    /// the caller has to handle. `Device` if no copy can be read. Of an encrypted dataset without
    /// its key only cleartext is returned, not authenticated, and dnodes with encrypted bonuses.
    /// Other blocks of it are `Refused(ACCES)`.
    pub fn read(&self, bp: &BlockPointer, place: &dyn Display) -> Result<Arc<Block>> {
        self.read_keyed(bp, None, place)
    }

    /// As [`Self::read`], for a dataset with that key, which authenticates everything.
    ///
    /// # Errors
    /// As [`Self::read`]; `Corrupt` also if authentication fails, or the block is not protected at
    /// all.
    pub fn read_keyed(
        &self,
        bp: &BlockPointer,
        key: Option<&DatasetKey>,
        place: &dyn Display,
    ) -> Result<Arc<Block>> {
        match bp.kind() {
            BpKind::Hole => Err(Error::corrupt(
                place.to_string(),
                "a hole was read as a block",
            )),
            BpKind::Redacted => Err(Error::corrupt(
                place.to_string(),
                "the block is redacted: its data is not in this dataset",
            )),
            BpKind::Unknown => Err(Error::corrupt(
                place.to_string(),
                "the block pointer embeds something unknown",
            )),
            // An encrypted dataset has no embedded blocks: this one would bypass authentication.
            BpKind::Embedded if key.is_some() => Err(unprotected(place)),
            BpKind::Embedded => self
                .decode_embedded(bp, place)
                .map(|b| Arc::new(Block::new(b))),
            BpKind::Normal => self
                .cache
                .get_or(cache_key(bp, key, place)?, Class::of(bp), || {
                    self.fetch(bp, key, place).map(Block::new)
                }),
        }
    }

    /// As [`Self::read`], but does not insert what it reads into the cache.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_around(&self, bp: &BlockPointer, place: &dyn Display) -> Result<Arc<Block>> {
        self.read_around_keyed(bp, None, place)
    }

    /// As [`Self::read_keyed`], but does not insert what it reads into the cache.
    ///
    /// # Errors
    /// As [`Self::read_keyed`].
    pub fn read_around_keyed(
        &self,
        bp: &BlockPointer,
        key: Option<&DatasetKey>,
        place: &dyn Display,
    ) -> Result<Arc<Block>> {
        if bp.kind() == BpKind::Normal {
            if let Some(block) = self.cache.get(&cache_key(bp, key, place)?) {
                return Ok(block);
            }
            return self.fetch(bp, key, place).map(|b| Arc::new(Block::new(b)));
        }
        self.read_keyed(bp, key, place)
    }

    /// The block, if the cache holds it.
    pub fn cached(&self, bp: &BlockPointer) -> Option<Arc<Block>> {
        (bp.kind() == BpKind::Normal)
            .then(|| self.cache.get(&Key::of(bp)))
            .flatten()
    }

    fn decode_embedded(&self, bp: &BlockPointer, place: &dyn Display) -> Result<Vec<u8>> {
        bp.validate(BpLimits::default())
            .map_err(|e| Error::corrupt(place.to_string(), e))?;
        let mut out = vec![0u8; bp.lsize() as usize];
        self.unpack_embedded(bp, &mut out, place)?;
        Ok(out)
    }

    /// Unpacks the content of an embedded pointer into `out`, which has the block's length.
    /// Short-lived content needs no allocation this way.
    ///
    /// # Errors
    /// The pointer is not embedded, `out` has another length, or the content does not decompress to
    /// it.
    pub fn embedded_into(
        &self,
        bp: &BlockPointer,
        out: &mut [u8],
        place: &dyn Display,
    ) -> Result<()> {
        bp.validate(BpLimits::default())
            .map_err(|e| Error::corrupt(place.to_string(), e))?;
        if bp.kind() != BpKind::Embedded || bp.lsize() != out.len() as u64 {
            return Err(Error::corrupt(
                place.to_string(),
                "no embedded block of that length",
            ));
        }
        self.unpack_embedded(bp, out, place)
    }

    fn unpack_embedded(
        &self,
        bp: &BlockPointer,
        out: &mut [u8],
        place: &dyn Display,
    ) -> Result<()> {
        let (payload, len) = bp.embedded_payload().map_err(|e| e.at(place.to_string()))?;
        self.decompress_into(bp, &payload[..len], out, place)?;
        self.to_little(bp, out, place)
    }

    /// Stored bytes of a normal pointer: checksummed, still compressed and encrypted. A raw stream
    /// needs only these and the pointer's [`CryptParams`](crate::CryptParams), and no key.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_stored(&self, bp: &BlockPointer, place: &dyn Display) -> Result<Vec<u8>> {
        bp.validate(BpLimits::default())
            .map_err(|e| Error::corrupt(place.to_string(), e))?;
        self.read_tree(bp, place, 0)
    }

    /// Whether some copy of a block is on the devices. The block may never have been written, so no
    /// device is blamed.
    ///
    /// # Errors
    /// No copy can be read.
    pub fn is_stored(&self, bp: &BlockPointer, place: &dyn Display) -> Result<bool> {
        if bp.is_gang() || bp.validate(BpLimits::default()).is_err() {
            return match self.read_stored(bp, place) {
                Err(Error::Corrupt { .. }) => Ok(false),
                other => other.map(|_| true),
            };
        }
        let (mut buf, mut last) = (Vec::new(), Ok(false));
        for dva in bp.dvas() {
            let mut check = |bytes: &[u8]| self.is_block(bp, bytes);
            let (at, size) = (address_of(&dva, bp), bp.psize() as usize);
            match self.vdevs.read_perhaps(at, &mut buf, size, &mut check) {
                Ok(zuse_vdev::ReadOutcome::Good) => return Ok(true),
                Ok(zuse_vdev::ReadOutcome::BadChecksum) | Err(Error::Corrupt { .. }) => {}
                Err(e) => last = Err(e),
            }
        }
        last
    }

    /// Reads one pointer, gang or plain, of any kind of checksum. `depth` counts nested gang
    /// headers.
    pub(crate) fn read_tree(
        &self,
        bp: &BlockPointer,
        place: &dyn Display,
        depth: u32,
    ) -> Result<Vec<u8>> {
        if bp.is_gang() {
            return self.read_gang(bp, place, depth);
        }
        let kind = ChecksumKind::from_u8(bp.checksum_kind()).ok_or_else(|| {
            Error::corrupt(
                place.to_string(),
                format!("unknown checksum function {}", bp.checksum_kind()),
            )
        })?;
        let context = self.checksums();
        let mut buf = Vec::new();
        let mut last: Option<Error> = None;
        let mut unknown: Option<Error> = None;
        let mut bad: Vec<usize> = Vec::new();
        for (i, dva) in bp.dvas().enumerate() {
            let mut check = |bytes: &[u8]| {
                let good = sums_up(bp, kind, bytes, &context);
                good.unwrap_or_else(|e| {
                    unknown = Some(Error::corrupt(place.to_string(), e));
                    false
                })
            };
            let (vdev, start) = (dva.vdev(), dva.offset());
            let born = Txg(bp.physical_birth());
            let len = bp.psize() as usize;
            // A block just written may wait in memory; the device has older bytes then.
            let waits = self.gather.peek(born, vdev, start, len);
            if let Some(bytes) = &waits
                && check(bytes)
            {
                return Ok(waits.unwrap_or_default());
            }
            // If only a part waits it is written first, so that the device has the whole block.
            if waits.is_none() && self.gather.holds_part(born, vdev, start, len) {
                let write = |run: &Run| self.write_run(run);
                self.gather.make_way(vdev, start, len, &write)?;
            }
            match self.vdevs.read_and_heal_if(
                address_of(&dva, bp),
                &mut buf,
                bp.psize() as usize,
                &mut check,
                &|| self.freed.is_current(bp),
            ) {
                Ok(zuse_vdev::ReadOutcome::Good) => {
                    for j in bad {
                        self.heal(bp, j, &buf);
                    }
                    return Ok(buf);
                }
                Ok(zuse_vdev::ReadOutcome::BadChecksum) => {
                    bad.push(i);
                    last = Some(mismatch(bp, &dva, place));
                }
                Err(e) => last = Some(e),
            }
            if let Some(e) = unknown.take() {
                return Err(e);
            }
        }
        Err(last.unwrap_or_else(|| {
            Error::corrupt(place.to_string(), "the block pointer has no valid address")
        }))
    }

    /// Rewrites copy `at` of a block whose other copy was good. Best effort: a failure leaves the
    /// copy as it is.
    fn heal(&self, bp: &BlockPointer, at: usize, good: &[u8]) {
        // A read-only pool has no allocator. A place that was freed may hold another block.
        if self.allocator.get().is_none() || !self.freed.is_current(bp) {
            return;
        }
        if let Some(dva) = bp.dvas().nth(at) {
            let _ = self.vdevs.write(address_of(&dva, bp), good);
        }
    }

    pub(crate) fn fetch(
        &self,
        bp: &BlockPointer,
        key: Option<&DatasetKey>,
        place: &dyn Display,
    ) -> Result<Vec<u8>> {
        let stored = self.read_stored(bp, place)?;
        self.decode(bp, key, stored, place)
    }

    /// Turns stored bytes into a block: decrypted, decompressed, little-endian.
    ///
    /// # Errors
    /// `Corrupt` if they do not decode, or fail authentication with the key.
    pub fn decode(
        &self,
        bp: &BlockPointer,
        key: Option<&DatasetKey>,
        mut stored: Vec<u8>,
        place: &dyn Display,
    ) -> Result<Vec<u8>> {
        if let Some(key) = key {
            // Decryption comes first, because a block is compressed before it is encrypted.
            key.open_stored(bp, &mut stored, place)?;
        }
        let mut out = if bp.compression() == Compression::Off.to_u8() {
            if stored.len() as u64 != bp.lsize() {
                return Err(Error::corrupt(
                    place.to_string(),
                    "an uncompressed block has two sizes",
                ));
            }
            stored
        } else {
            let mut out = vec![0u8; bp.lsize() as usize];
            self.decompress_into(bp, &stored, &mut out, place)?;
            out
        };
        self.to_little(bp, &mut out, place)?;
        match (bp.protection(), key) {
            (Protection::IndirectMac, _) => check_indirect(bp, &out, place)?,
            (Protection::Authenticated, Some(key)) if bp.object_type() == object_type::OBJSET => {
                key.check_objset(&out, place)?;
            }
            _ => {}
        }
        Ok(out)
    }

    pub(crate) fn decompress_into(
        &self,
        bp: &BlockPointer,
        stored: &[u8],
        out: &mut [u8],
        place: &dyn Display,
    ) -> Result<()> {
        let kind = Compression::from_u8(bp.compression()).ok_or_else(|| {
            Error::corrupt(
                place.to_string(),
                format!("unknown compression {}", bp.compression()),
            )
        })?;
        if kind == Compression::Off {
            if stored.len() != out.len() {
                return Err(Error::corrupt(
                    place.to_string(),
                    "an uncompressed block has two sizes",
                ));
            }
            out.copy_from_slice(stored);
            return Ok(());
        }
        self.workspaces
            .with(|w| w.decompress(kind, stored, out))
            .map_err(|e| Error::corrupt(place.to_string(), e))
    }

    /// Decodes only the first bytes of a block. `None` if that takes decompressing all of it.
    pub(crate) fn front_of(&self, bp: &BlockPointer, stored: &[u8], out: &mut [u8]) -> Option<()> {
        let kind = Compression::from_u8(bp.compression())?;
        let early = matches!(kind, Compression::Lz4 | Compression::Off);
        // Swapping depends on the type's layout, over the whole block.
        if !early || bp.byte_order() == ByteOrder::Big {
            return None;
        }
        let len = usize::try_from(bp.lsize()).ok()?;
        if kind == Compression::Off {
            out.copy_from_slice(stored.get(..out.len())?);
            return Some(());
        }
        decompress_front(kind, stored, len, out, &mut Vec::new()).ok()
    }

    pub(crate) fn to_little(
        &self,
        bp: &BlockPointer,
        bytes: &mut [u8],
        place: &dyn Display,
    ) -> Result<()> {
        if bp.byte_order() == ByteOrder::Big {
            swap_block(bp.object_type(), bp.level(), bytes)
                .map_err(|e| Error::corrupt(place.to_string(), e))?;
        }
        Ok(())
    }
}

/// Whether bytes match the checksum of their pointer.
fn sums_up(
    bp: &BlockPointer,
    kind: ChecksumKind,
    bytes: &[u8],
    context: &ChecksumContext,
) -> Result<bool, CodecError> {
    let (order, expected) = (bp.byte_order(), bp.checksum());
    if is_truncated(bp) {
        verify_truncated(kind, bytes, order, context, &expected)
    } else {
        verify(kind, bytes, order, context, &expected)
    }
}

fn mismatch(bp: &BlockPointer, dva: &Dva, place: &dyn Display) -> Error {
    Error::corrupt_as(
        zuse_base::Corruption::Checksum,
        place.to_string(),
        format!(
            "checksum mismatch on vdev {} at offset {:#x} ({} bytes)",
            dva.vdev(),
            dva.offset(),
            bp.psize()
        ),
    )
}
