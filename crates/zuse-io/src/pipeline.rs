//! The read and write pipelines of one pool.
//!
//! Read budget for a cached block: one cache hit. For an uncached one: one buffer for the stored bytes, one for
//! the decoded bytes, one device read, one checksum pass, one decompression.
//! Write budget for a block: one compression into a scratch buffer that is reused by the thread, one checksum
//! pass, one device write per copy; the caller's bytes are moved into the cache, not copied.
//!
//! Rules
//! - A block is never overwritten once an uberblock names it. In-place rewrites happen only for blocks born in
//!   the txg that is syncing (`WritePolicy::pass` ≥ 2), which no uberblock names yet.
//! - A pointer from disk is validated before any of its fields is used.

use std::cell::RefCell;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, RwLock};

use zuse_base::{ByteOrder, Errno, Error, Result, Txg};
use zuse_codec::{
    ChecksumContext, ChecksumKind, Compression, checksum, compress, decompress, is_zero, truncate,
    verify, verify_truncated,
};
use zuse_format::block_pointer::MAX_BLOCK;
use zuse_format::object_type::swap_block;
use zuse_format::{BlockPointer, BpKind, BpLimits, BpProps, Dva, Protection, object_type};
use zuse_vdev::{Address, Vdevs};

use crate::cache::{Class, Key};
use crate::crypt::{cache_key, check_indirect, indirect_mac, unprotected};
use crate::freed::Freed;
use crate::gang::is_truncated;
use crate::{AllocClass, Allocate, Allocation, Block, Cache, DatasetKey, WritePolicy};

/// Largest payload that fits in a pointer.
const EMBEDDED_MAX: usize = 112;

/// Where one copy of a pointer's block lies.
pub(crate) fn address_of(dva: &Dva, bp: &BlockPointer) -> Address {
    Address::new(dva.vdev(), dva.offset(), Txg(bp.physical_birth()))
}

/// The outcome of [`Pipeline::write`].
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// The new pointer; its fill count is what the caller gave.
    pub bp: BlockPointer,
    /// The block took the place of the old one (same txg) or is the old one (nopwrite): nothing is born, nothing dies.
    pub in_place: bool,
}

/// Per-dataset features that written blocks made use of, as a bit set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureUse(pub u32);

impl FeatureUse {
    /// A block larger than 128 KiB.
    pub const LARGE_BLOCKS: u32 = 1;
    /// Checksum SHA-512/256.
    pub const SHA512: u32 = 2;
    /// Checksum Skein.
    pub const SKEIN: u32 = 4;
    /// Checksum Edon-R.
    pub const EDONR: u32 = 8;
    /// Checksum BLAKE3.
    pub const BLAKE3: u32 = 16;
    /// Compression zstd.
    pub const ZSTD: u32 = 32;

    /// What a pointer makes use of.
    pub fn of(bp: &BlockPointer) -> Self {
        let mut bits = 0;
        if bp.lsize() > 128 * 1024 {
            bits |= Self::LARGE_BLOCKS;
        }
        if bp.compression() == Compression::Zstd.to_u8() {
            bits |= Self::ZSTD;
        }
        if !bp.is_embedded() {
            bits |= match ChecksumKind::from_u8(bp.checksum_kind()) {
                Some(ChecksumKind::Sha512) => Self::SHA512,
                Some(ChecksumKind::Skein) => Self::SKEIN,
                Some(ChecksumKind::Edonr) => Self::EDONR,
                Some(ChecksumKind::Blake3) => Self::BLAKE3,
                _ => 0,
            };
        }
        Self(bits)
    }
}

/// Decides what happens when a device does not take a write.
pub trait WriteFaults: Send + Sync {
    /// A write failed. `Ok` means: try it again (this may have waited for an administrator).
    ///
    /// # Errors
    /// The error to pass on; the txg is then lost.
    fn write_failed(&self, error: &Error) -> Result<()>;
}

/// Reads and writes block pointers of one pool. Shared by all threads.
pub struct Pipeline {
    pub(crate) vdevs: Arc<Vdevs>,
    cache: Arc<Cache>,
    pub(crate) checksums: RwLock<Arc<ChecksumContext>>,
    allocator: OnceLock<Arc<dyn Allocate>>,
    faults: OnceLock<Arc<dyn WriteFaults>>,
    pub(crate) freed: Freed,
    /// Size of new gang headers where `dynamic_gang_header` is active, else 512.
    pub(crate) gang_header: AtomicU64,
    /// Bytes written to devices since the start, for statistics.
    pub(crate) written: AtomicU64,
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Pipeline {
    /// A pipeline over an open vdev tree. Salted checksums work after [`Self::set_checksums`], writes after [`Self::set_allocator`].
    pub fn new(vdevs: Arc<Vdevs>, cache: Arc<Cache>) -> Self {
        Self {
            vdevs,
            cache,
            checksums: RwLock::new(Arc::new(ChecksumContext::new(None))),
            allocator: OnceLock::new(),
            faults: OnceLock::new(),
            freed: Freed::default(),
            gang_header: AtomicU64::new(512),
            written: AtomicU64::new(0),
        }
    }

    /// Installs the contexts made from the pool's salt.
    pub fn set_checksums(&self, context: ChecksumContext) {
        *self
            .checksums
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(context);
    }

    /// Installs the allocator; once only.
    pub fn set_allocator(&self, allocator: Arc<dyn Allocate>) {
        let _ = self.allocator.set(allocator);
    }

    /// Installs what decides about failed writes; once only. Without it they are passed on.
    pub fn set_write_faults(&self, faults: Arc<dyn WriteFaults>) {
        let _ = self.faults.set(faults);
    }

    /// Runs a device operation of the sync thread until it works or the fault policy gives up.
    ///
    /// # Errors
    /// That of the operation, once the policy passes it on; other errors than `Device` at once.
    pub fn insist<T>(&self, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match operation() {
                Err(error @ Error::Device { .. }) => match self.faults.get() {
                    Some(faults) => faults.write_failed(&error)?,
                    None => return Err(error),
                },
                other => return other,
            }
        }
    }

    /// Writes stored bytes, born in `txg`, to one place.
    pub(crate) fn put(&self, txg: Txg, dva: &Dva, bytes: &[u8]) -> Result<()> {
        let place = Address::new(dva.vdev(), dva.offset(), txg);
        self.insist(|| self.vdevs.write(place, bytes))?;
        self.written.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }

    /// Says that gang headers of this size may be met (feature `dynamic_gang_header`).
    pub fn set_gang_header(&self, bytes: u64) {
        self.gang_header.store(bytes.max(512), Relaxed);
    }

    /// The vdev tree.
    pub fn vdevs(&self) -> &Arc<Vdevs> {
        &self.vdevs
    }

    /// The block cache.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Bytes written to devices since the pool was opened, all copies counted.
    pub fn bytes_written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    pub(crate) fn checksums(&self) -> Arc<ChecksumContext> {
        self.checksums
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn allocator(&self) -> Result<&Arc<dyn Allocate>> {
        self.allocator
            .get()
            .ok_or_else(|| Error::refused(Errno::ROFS, "the pool is open read-only"))
    }

    /// The block a pointer names: decoded, little-endian, from the cache or the devices.
    ///
    /// # Errors
    /// `Corrupt` if no copy passes its checksum or the bytes do not decode; `Device` if no copy can be read;
    /// a hole is refused by the caller, not here (`Corrupt`). Without a key, of an encrypted dataset: what is in clear
    /// there is given unproved, dnodes with their bonuses encrypted; anything else is `Refused(ACCES)`.
    pub fn read(&self, bp: &BlockPointer, place: &dyn Display) -> Result<Arc<Block>> {
        self.read_keyed(bp, None, place)
    }

    /// As [`Self::read`], of a dataset with that key: everything is proved by it.
    ///
    /// # Errors
    /// As [`Self::read`]; `Corrupt` also if authentication fails, or the block is not protected at all.
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

    /// As [`Self::read`], but leaves no trace in the cache when it has to go to the devices.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_around(&self, bp: &BlockPointer, place: &dyn Display) -> Result<Arc<Block>> {
        self.read_around_keyed(bp, None, place)
    }

    /// As [`Self::read_keyed`], but leaves no trace in the cache when it has to go to the devices.
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
    pub fn peek(&self, bp: &BlockPointer) -> Option<Arc<Block>> {
        (bp.kind() == BpKind::Normal)
            .then(|| self.cache.get(&Key::of(bp)))
            .flatten()
    }

    fn decode_embedded(&self, bp: &BlockPointer, place: &dyn Display) -> Result<Vec<u8>> {
        bp.validate(BpLimits::default())
            .map_err(|e| Error::corrupt(place.to_string(), e))?;
        let (payload, len) = bp.embedded_payload().map_err(|e| e.at(place.to_string()))?;
        let mut out = vec![0u8; bp.lsize() as usize];
        self.decompress_into(bp, &payload[..len], &mut out, place)?;
        self.to_little(bp, &mut out, place)?;
        Ok(out)
    }

    /// Stored bytes of a normal pointer: checksummed, still compressed and encrypted. With them and the pointer's
    /// [`CryptParams`](crate::CryptParams) a raw stream can be made, without a key.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_stored(&self, bp: &BlockPointer, place: &dyn Display) -> Result<Vec<u8>> {
        bp.validate(BpLimits::default())
            .map_err(|e| Error::corrupt(place.to_string(), e))?;
        self.read_tree(bp, place, 0)
    }

    /// Reads one pointer, gang or plain, of any kind of checksum. `depth` counts nested gang headers.
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
        let order = bp.byte_order();
        let expected = bp.checksum();
        let mut buf = Vec::new();
        let mut last: Option<Error> = None;
        let mut unknown: Option<Error> = None;
        let mut bad: Vec<usize> = Vec::new();
        for (i, dva) in bp.dvas().enumerate() {
            let mut check = |bytes: &[u8]| {
                let good = if is_truncated(bp) {
                    verify_truncated(kind, bytes, order, &context, &expected)
                } else {
                    verify(kind, bytes, order, &context, &expected)
                };
                good.unwrap_or_else(|e| {
                    unknown = Some(Error::corrupt(place.to_string(), e));
                    false
                })
            };
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
                    last = Some(Error::corrupt(
                        place.to_string(),
                        format!(
                            "checksum mismatch on vdev {} at offset {:#x} ({} bytes)",
                            dva.vdev(),
                            dva.offset(),
                            bp.psize()
                        ),
                    ));
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

    /// Rewrites copy `at` of a block whose other copy was good. Best effort: a failure leaves the copy as it is.
    fn heal(&self, bp: &BlockPointer, at: usize, good: &[u8]) {
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
        let mut stored = self.read_stored(bp, place)?;
        if let Some(key) = key {
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
        decompress(kind, stored, out).map_err(|e| Error::corrupt(place.to_string(), e))
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

    /// Writes one block in `txg` and returns its pointer.
    ///
    /// `old` is the pointer it replaces (a hole if none); the caller kills it unless the result is `in_place`.
    /// `data` is the decoded, little-endian content, `fill` its fill count. `block` is what the cache keeps
    /// (the same bytes); pass `None` where the block will not be read soon.
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
    /// As [`Self::write`]; `Unsupported` for a block that the suite does not take.
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
            || key.is_some() && policy.object_type == object_type::DNODE && policy.level == 0;
        if zero_test && is_zero(data) {
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
        SCRATCH.with(|scratch| {
            let scratch = &mut *scratch.borrow_mut();
            self.write_with(txg, policy, key, old, data, fill, scratch)
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn write_with(
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
        let rewrite = policy.pass > 1
            && !old.is_hole()
            && !old.is_embedded()
            && !old.is_gang()
            && old.logical_birth() == txg.0
            && old.physical_birth() == txg.0;
        let (stored, compression) =
            match self.squeeze(policy, allocator.min_allocation(), data, scratch) {
                Squeezed::Plain => (data, Compression::Off),
                Squeezed::Embed(len) if !rewrite => {
                    let bp = BlockPointer::embed(
                        &scratch[..len],
                        data.len() as u64,
                        policy.compression.to_u8(),
                        policy.object_type,
                        txg.0,
                    )
                    .map_err(|e| e.at("write pipeline"))?;
                    return Ok(Written {
                        bp,
                        in_place: false,
                    });
                }
                Squeezed::Embed(len) => {
                    pad(scratch, len, allocator.min_allocation() as usize);
                    (&scratch[..], policy.compression)
                }
                Squeezed::Stored => (&scratch[..], policy.compression),
            };
        if rewrite {
            // Keep the place if the bytes fit it: a smaller result is padded, an uncompressed one may not change size.
            let room = old.psize() as usize;
            if compression != Compression::Off && stored.len() <= room && room < data.len() {
                let len = stored.len();
                pad(scratch, len, room);
                return self.overwrite(
                    txg,
                    policy,
                    old,
                    &scratch[..],
                    compression,
                    data.len(),
                    fill,
                );
            }
            if room == data.len() {
                return self.overwrite(txg, policy, old, data, Compression::Off, data.len(), fill);
            }
            if stored.len() == room {
                return self.overwrite(txg, policy, old, stored, compression, data.len(), fill);
            }
        }
        let context = self.checksums();
        let mut bp = normal(policy, data.len(), stored.len(), compression);
        let stored = match key {
            None => stored,
            Some(key) => {
                if compression == Compression::Off {
                    scratch.clear();
                    scratch.extend_from_slice(data);
                }
                bp.set_crypt();
                key.seal_stored(&mut bp, scratch)?;
                if policy.level > 0 {
                    bp.set_mac(&indirect_mac(data));
                }
                &scratch[..]
            }
        };
        let sum = checksum(policy.checksum, stored, ByteOrder::Little, &context)
            .map_err(|e| Error::unsupported("write pipeline", e))?;
        if is_truncated(&bp) {
            bp.set_truncated_checksum(truncate(policy.checksum, sum));
        } else {
            bp.set_checksum(sum);
        }
        if policy.nopwrite && can_nopwrite(&bp, old, policy) {
            return Ok(Written {
                bp: *old,
                in_place: true,
            });
        }
        bp.set_birth(txg.0, txg.0);
        bp.set_fill(fill);
        self.store(txg, policy, &mut bp, stored)?;
        Ok(Written {
            bp,
            in_place: false,
        })
    }

    /// Finds places for the stored bytes of a block, writes them there and notes them in its pointer.
    pub(crate) fn store(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        bp: &mut BlockPointer,
        stored: &[u8],
    ) -> Result<()> {
        match self.allocator()?.allocate(
            txg,
            stored.len() as u64,
            usize::from(policy.copies),
            match policy.class {
                AllocClass::Normal if stored.len() as u64 <= u64::from(policy.small) => {
                    AllocClass::Small
                }
                class => class,
            },
        )? {
            Some(Allocation { dvas, count }) => {
                for (i, dva) in dvas[..count.min(3)].iter().enumerate() {
                    bp.set_dva(i, *dva);
                }
                for dva in bp.dvas() {
                    self.put(txg, &dva, stored)?;
                }
                Ok(())
            }
            None => self.write_gang(txg, policy, bp, stored),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn overwrite(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        old: &BlockPointer,
        stored: &[u8],
        compression: Compression,
        lsize: usize,
        fill: u64,
    ) -> Result<Written> {
        let context = self.checksums();
        let sum = checksum(policy.checksum, stored, ByteOrder::Little, &context)
            .map_err(|e| Error::unsupported("write pipeline", e))?;
        let mut bp = normal(policy, lsize, stored.len(), compression);
        bp.set_checksum(sum);
        bp.set_birth(txg.0, txg.0);
        bp.set_fill(fill);
        for (i, dva) in old.dvas().enumerate() {
            bp.set_dva(i, dva);
            self.freed.note(txg, &dva);
            self.put(txg, &dva, stored)?;
        }
        self.cache.remove(&Key::of(old));
        Ok(Written { bp, in_place: true })
    }

    /// Puts the decoded content of a pointer that was just written into the cache.
    pub fn remember(&self, bp: &BlockPointer, block: Arc<Block>) {
        if bp.kind() == BpKind::Normal {
            self.cache.insert(Key::of(bp), Class::of(bp), block);
        }
    }

    /// Gives back everything a pointer holds in the space maps. Holes and embedded pointers hold nothing.
    /// A block that a dedup table may share stays allocated: its table, which is not served, would have to say.
    ///
    /// # Errors
    /// A gang header could not be read, or the space was not allocated.
    pub fn free(&self, txg: Txg, bp: &BlockPointer) -> Result<()> {
        if bp.kind() != BpKind::Normal {
            return Ok(());
        }
        self.cache.remove(&Key::of(bp));
        if bp.uses_crypt() {
            self.cache.remove(&Key::of(bp).locked());
        }
        if bp.dedup() {
            return Ok(());
        }
        if bp.is_gang() {
            return self.free_gang(txg, bp);
        }
        let allocator = self.allocator()?;
        for dva in bp.dvas() {
            self.freed.note(txg, &dva);
            allocator.free_dva(txg, dva.vdev(), dva.offset(), dva.asize())?;
        }
        Ok(())
    }

    pub(crate) fn squeeze(
        &self,
        policy: &WritePolicy,
        unit: u64,
        data: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Squeezed {
        if matches!(policy.compression, Compression::Off | Compression::Empty) {
            return Squeezed::Plain;
        }
        let unit = unit.max(512) as usize;
        let len = data.len();
        let mut limit = len - len / 8;
        if policy.compression != Compression::Zle {
            limit -= limit % unit;
            if limit < unit {
                limit = EMBEDDED_MAX;
            }
        }
        let Some(n) = compress(policy.compression, policy.zstd_level, data, scratch, limit) else {
            return Squeezed::Plain;
        };
        if n <= EMBEDDED_MAX && policy.embed {
            return Squeezed::Embed(n);
        }
        let size = if n <= unit {
            unit
        } else {
            n.next_multiple_of(unit)
        };
        if size >= len {
            return Squeezed::Plain;
        }
        pad(scratch, n, size);
        Squeezed::Stored
    }

    /// Space a pointer takes in the books: allocated bytes, deflated by each vdev's ratio (512 for plain vdevs).
    pub fn dsize(&self, bp: &BlockPointer) -> u64 {
        if bp.kind() != BpKind::Normal {
            return 0;
        }
        bp.dvas()
            .map(|d| (d.asize() >> 9).wrapping_mul(self.vdevs.deflate_ratio(d.vdev())))
            .sum()
    }

    /// The allocation class used for gang headers and members of a block.
    pub(crate) fn class_of(policy: &WritePolicy) -> AllocClass {
        policy.class
    }
}

pub(crate) enum Squeezed {
    Plain,
    Embed(usize),
    Stored,
}

fn normal(
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
        && !old.uses_crypt()
        && !old.dedup()
        // Word 6 holds sizes, compression, checksum function, type and level.
        && old.words[6] == new.words[6]
        && old.dvas().count() == usize::from(policy.copies)
        && old.checksum() == new.checksum()
}

#[cfg(test)]
mod tests;
