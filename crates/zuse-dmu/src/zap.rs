//! ZAP: an object that maps names to arrays of unsigned integers: directories, property tables, the
//! tables of the MOS.
//!
//! ```text
//!  micro   one block of 64-byte slots, u64 values; an index of packed u64 rides with the cached block
//!  fat     header block → pointer table → leaves; parsed in place
//! ```
//! A ZAP begins as a micro ZAP. It becomes a fat ZAP when
//! - it outgrows the largest micro block,
//! - a name has 50 bytes or more,
//! - a value is not one u64, or
//! - too many names have one hash.
//!
//! A directory that shrinks to a few short names becomes micro again.
//!
//! Lock: logical operations on one object exclude each other by one read-write lock, found through
//! the object ([`Dnode::companion`]). So two [`Zap`]s of the same object share it. It is held
//! across the reads of an operation. Facts about block 0 are kept next to the lock (`known`).
//! They are valid as long as the object's stamp is unchanged, so a ZAP never disagrees with its
//! object. Tests with several threads check both.
//!
//! A hostile ZAP causes a `Corrupt` error that names object and block (`flaw`). No walk is longer
//! than its block. No memory grows with the number of entries, except 8 bytes each in the index of
//! a cached micro block (≤ 128 KiB; `tests/index_memory.rs`).
//!
//! Budget: a warm look-up by the library stays below 500 ns, also in a ZAP of a million names. It
//! has three cache misses: for the table's word, the leaf's header with the bucket, and the entry
//! with its name. Nothing is allocated or copied. Each of the three blocks costs one uncontended
//! lock and one reference.
//!
//! Positions (cookies) stay valid when the ZAP changes, because entries are listed by (hash, cd)
//! and an entry never changes either.

mod change;
mod cursor;
mod expected;
mod fat;
pub(crate) mod flaw;
mod hash;
mod header;
mod key;
mod known;
mod leaf;
pub mod measure;
mod micro;
pub mod normalize;
mod stats;
mod store;

use std::sync::Arc;
use zuse_base::sync::{RankedReadGuard, RankedRwLock, RankedWriteGuard};

use zuse_base::tripwire::{Watched, at};
use zuse_base::{Errno, Error, Result};
use zuse_io::Block;

use crate::dirty::Synced;
use crate::dnode::{Dnode, DnodeSpec};
use crate::objset::Objset;
use crate::tx::Tx;
pub use cursor::{END, ZapCursor, ZapEntry};
pub use expected::Expected;
use fat::FatLookup;
pub use fat::ZapMatch;
use flaw::{Checked, Flaw};
use key::Ask;
pub use key::{TOO_BIG, ZapValue};
use known::{Known, What};
pub(crate) use micro::numbers_of;
use micro::{MicroHeader, MicroIndex};
pub use micro::{number_in, numbers_in};
pub use normalize::MatchType;
pub use stats::{LeafHistograms, ZapStats};
use store::{Blocks, ObjectBlocks, ObjectEdit};

pub(crate) const MICRO_TYPE: u64 = 0x8000_0000_0000_0003;
pub(crate) const HEADER_TYPE: u64 = 0x8000_0000_0000_0001;
pub(crate) const LEAF_TYPE: u64 = 0x8000_0000_0000_0000;

/// Largest micro ZAP without the pool feature `large_microzap`.
pub const DEFAULT_MICRO_MAX: u32 = 131_072;
/// Longest name in the micro form, without its NUL.
pub const MICRO_NAME_MAX: usize = micro::MAX_NAME;
/// Largest micro ZAP at all: slot numbers have 16 bits.
pub const HARD_MICRO_MAX: u32 = 1 << 20;
/// log2 of the block size of a micro ZAP that became fat.
const FAT_SHIFT: u32 = 14;
/// Object type of directories, whose names may be long.
const DIRECTORY: u8 = 20;

/// Flags; setting any makes a new ZAP fat from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZapFlags {
    /// 48 hash bits instead of 28.
    pub hash64: bool,
    /// Keys are rows of 64-bit words.
    pub uint64_key: bool,
    /// The first key word is the hash.
    pub prehashed: bool,
}

impl ZapFlags {
    fn bits(self) -> u64 {
        u64::from(self.hash64) * header::HASH64
            + u64::from(self.uint64_key) * header::UINT64_KEY
            + u64::from(self.prehashed) * header::PRE_HASHED_KEY
    }
}

/// Options of a new ZAP.
#[derive(Clone, Debug, Default)]
pub struct ZapOptions {
    /// Normalisation of names (directories only).
    pub normflags: u64,
    /// Any flag makes it fat from the start.
    pub flags: ZapFlags,
    /// log2 of the block size of a fat ZAP. Any number but 0 makes it fat from the start; with 0 it
    /// is 14.
    pub block_shift: u32,
    /// log2 of the indirect block size; 0 means the default of the settings.
    pub indirect_shift: u8,
    /// Type of the bonus, 0 for none.
    pub bonus_type: u8,
    /// Bytes of the bonus.
    pub bonus_len: u16,
    /// 512-byte slots of the dnode; 0 means 1.
    pub slots: u8,
    /// Hash salt; 0 chooses one.
    pub salt: u64,
}

impl ZapOptions {
    fn begins_micro(&self) -> bool {
        self.flags == ZapFlags::default() && self.block_shift == 0
    }
}

/// A ZAP. Cheap to clone; all clones and all opens of one object share a lock.
#[derive(Clone)]
pub struct Zap {
    dnode: Arc<Dnode>,
    shared: Arc<Shared>,
}

/// State shared by all opens of one object.
struct Shared {
    lock: RankedRwLock<Known, 300>,
}

/// The format of a ZAP, from its block 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Micro,
    Fat,
}

fn kind(block0: &[u8]) -> Checked<Kind> {
    match block0.first_chunk().map(|b| u64::from_le_bytes(*b)) {
        Some(MICRO_TYPE) => Ok(Kind::Micro),
        Some(HEADER_TYPE) => Ok(Kind::Fat),
        _ => Err(Flaw("a ZAP whose block 0 is neither micro nor fat")),
    }
}

/// A hash salt: any odd value will do; different ZAPs should have different ones. Not random, so
/// that a simulated pool is reproducible.
fn new_salt(object: u64, txg: u64) -> u64 {
    let mut x = object.rotate_left(32) ^ txg;
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) | 1
}

/// Turns an object without data into a micro ZAP of 512 bytes with one name, in one write. No other
/// thread may have opened it. Returns false, and does nothing, if the name does not fit the micro
/// form.
///
/// # Errors
/// The object is free.
pub fn init_micro_with(dnode: &Arc<Dnode>, tx: &Tx, name: &[u8], value: u64) -> Result<bool> {
    if name.is_empty() || name.len() > micro::MAX_NAME || name.contains(&0) {
        return Ok(false);
    }
    dnode.set_block_size(tx, micro::STEP)?;
    let salt = new_salt(dnode.object().0, tx.txg().0);
    dnode.write_block(tx, 0, micro::block_with(salt, name, value))?;
    Ok(true)
}

/// The micro form's answer to a query, or what the fat form needs to continue.
enum Micro<T, U> {
    Answer(T),
    Fat(U),
}

impl Zap {
    /// Opens the ZAP of an object.
    ///
    /// # Errors
    /// None now; an invalid object is reported at the first use.
    pub fn open(dnode: &Arc<Dnode>) -> Result<Self> {
        let shared = dnode.companion(|| {
            Ok(Arc::new(Shared {
                lock: RankedRwLock::default(),
            }))
        })?;
        Ok(Self {
            dnode: dnode.clone(),
            shared,
        })
    }

    /// Makes a new object with an empty ZAP in it.
    ///
    /// # Errors
    /// No object could be allocated.
    pub fn create(
        os: &Arc<Objset>,
        tx: &Tx,
        object_type: u8,
        options: &ZapOptions,
    ) -> Result<Self> {
        let mut spec = DnodeSpec::new(object_type)
            .bonus(options.bonus_type, options.bonus_len)
            .slots(options.slots.max(1))
            .block_size(Self::first_block_size(options)?);
        spec.indirect_shift = options.indirect_shift;
        let dnode = os.allocate(tx, &spec)?;
        Self::create_in(&dnode, tx, options)
    }

    /// The first block size of a new ZAP with these options.
    ///
    /// # Errors
    /// A block shift that is invalid for a fat ZAP.
    pub fn first_block_size(options: &ZapOptions) -> Result<u32> {
        if options.begins_micro() {
            return Ok(micro::STEP);
        }
        let shift = if options.block_shift == 0 {
            FAT_SHIFT
        } else {
            options.block_shift
        };
        if !(9..=17).contains(&shift) {
            return Err(Error::refused(
                Errno::INVAL,
                "the block size of a fat ZAP is 512 bytes to 128 KiB",
            ));
        }
        Ok(1 << shift)
    }

    /// Writes an empty ZAP into an object without data. Its type is not changed: see
    /// [`Dnode::set_type`].
    ///
    /// # Errors
    /// The object has data.
    pub fn create_in(dnode: &Arc<Dnode>, tx: &Tx, options: &ZapOptions) -> Result<Self> {
        let zap = Self::open(dnode)?;
        let mut known = zap.write_lock();
        let size = Self::first_block_size(options)?;
        dnode.set_block_size(tx, size)?;
        let salt = if options.salt == 0 {
            new_salt(dnode.object().0, tx.txg().0)
        } else {
            options.salt
        };
        if options.begins_micro() {
            dnode.write_block(
                tx,
                0,
                micro::new_block(size as usize, salt, options.normflags),
            )?;
            let header = MicroHeader {
                salt,
                normflags: options.normflags,
                foreign: false,
            };
            let own = dnode.owned(tx, 0);
            let own = own.as_ref().map(|own| (tx.txg(), own));
            known.changed(dnode, zap.longest(), What::Changed { header }, own);
        } else {
            let h = header::Header::new(
                size.trailing_zeros(),
                salt,
                options.normflags,
                options.flags.bits(),
            );
            let edit = ObjectEdit {
                dnode,
                tx,
                own: None,
                leaf: None,
            };
            fat::create(&edit, &h)?;
        }
        drop(known);
        Ok(zap)
    }

    /// The object.
    pub fn dnode(&self) -> &Arc<Dnode> {
        &self.dnode
    }

    /// The largest micro block for this ZAP: the setting of its object set, rounded up to 512.
    fn micro_max(&self) -> u32 {
        let settings = self.dnode.settings();
        settings
            .micro_zap_max
            .min(HARD_MICRO_MAX)
            .next_multiple_of(micro::STEP)
    }

    fn kind(&self) -> Result<Kind> {
        self.blocks().view(0, kind)
    }

    /// Whether it is in the fat form.
    ///
    /// # Errors
    /// Block 0 cannot be read.
    pub fn is_fat(&self) -> Result<bool> {
        Ok(self.kind()? == Kind::Fat)
    }

    fn blocks(&self) -> ObjectBlocks<'_> {
        ObjectBlocks {
            dnode: &self.dnode,
            tree: None,
        }
    }

    fn read_lock(&self) -> RankedReadGuard<'_, Known> {
        self.shared.lock.read()
    }

    fn write_lock(&self) -> Watched<'_, RankedWriteGuard<'_, Known>> {
        let known = self.shared.lock.write();
        self.dnode.tripwire().hold(at::ZAP, known)
    }

    /// Longest name that the fat form allows here, with its NUL.
    fn longest(&self) -> usize {
        if self.dnode.object_type() == DIRECTORY {
            1024
        } else {
            256
        }
    }

    /// Queries block 0, if it is micro, with its index.
    #[inline]
    fn ask_micro<T>(
        &self,
        f: impl FnOnce(&[u8], &MicroHeader, &MicroIndex) -> Result<T>,
    ) -> Result<Micro<T, ()>> {
        self.ask(f, |_| Ok(Ok(())))
    }

    /// Queries block 0 in either form, with one access.
    #[inline]
    fn ask<T, U>(
        &self,
        micro: impl FnOnce(&[u8], &MicroHeader, &MicroIndex) -> Result<T>,
        fat: impl FnOnce(&[u8]) -> Checked<Result<U>>,
    ) -> Result<Micro<T, U>> {
        let answer = self.dnode.with_block_by_shortcut(0, |view| {
            let b = view.bytes();
            match kind(b) {
                Ok(Kind::Fat) => Ok(fat(b)?.map(Micro::Fat)),
                Ok(Kind::Micro) => {
                    let h = MicroHeader::parse(b)?;
                    let index = view.index(MicroIndex::build);
                    index.check()?;
                    Ok(micro(b, &h, index).map(Micro::Answer))
                }
                Err(flaw) => Err(flaw),
            }
        })?;
        match answer {
            Ok(answer) => answer,
            Err(flaw) => Err(store::corrupt(&self.dnode, 0, flaw)),
        }
    }

    /// The value of a name.
    ///
    /// # Errors
    /// The ZAP cannot be read, or `NAMETOOLONG`.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<ZapValue>> {
        let known = self.read_lock();
        match known.fresh(&self.dnode) {
            What::Fat { header, tree } => {
                let aim = FatLookup::by(header, Ask::Name(name), MatchType::Exact, known.longest)?;
                return fat::lookup(&self.blocks_of(tree.as_ref()), aim);
            }
            what => {
                if let Some((h, block)) = what.micro() {
                    let slot = self.micro_slot(&h, &block, name)?;
                    return Ok(slot.map(|s| ZapValue::U64(s.value)));
                }
            }
        }
        let answer = self.value_slowly(name);
        self.learn_if_missed(known);
        answer
    }

    fn value_slowly(&self, name: &[u8]) -> Result<Option<ZapValue>> {
        let answer = self.ask(
            |b, h, index| {
                let hash = micro::hash_of(h, name)?;
                Ok(micro::find(b, index, hash, name)
                    .and_then(|i| micro::slot(b, i))
                    .map(|s| ZapValue::U64(s.value)))
            },
            |b| fat::aim(b, Ask::Name(name), MatchType::Exact, self.longest()),
        )?;
        match answer {
            Micro::Answer(v) => Ok(v),
            Micro::Fat(aim) => fat::lookup(&self.blocks(), aim),
        }
    }

    /// The first integer of a name's value.
    ///
    /// # Errors
    /// As [`Self::lookup`]; `INVAL` if the value has no integer.
    #[inline]
    pub fn lookup_u64(&self, name: &[u8]) -> Result<Option<u64>> {
        let known = self.read_lock();
        match known.fresh(&self.dnode) {
            What::Fat { header, tree } => {
                let aim = FatLookup::by(header, Ask::Name(name), MatchType::Exact, known.longest)?;
                return first(fat::lookup_u64(&self.blocks_of(tree.as_ref()), aim)?);
            }
            what => {
                if let Some((h, block)) = what.micro() {
                    return Ok(self.micro_slot(&h, &block, name)?.map(|s| s.value));
                }
            }
        }
        let answer = self.value_locked(name);
        self.learn_if_missed(known);
        answer
    }

    /// The slot of a name in the block of a micro ZAP.
    #[inline]
    fn micro_slot<'b>(
        &self,
        h: &MicroHeader,
        block: &'b Block,
        name: &[u8],
    ) -> Result<Option<micro::Slot<'b>>> {
        let b = block.bytes();
        let Some(index) = block.index(MicroIndex::build) else {
            return Err(store::corrupt(
                &self.dnode,
                0,
                Flaw("a micro ZAP's block with an index of something else"),
            ));
        };
        index
            .check()
            .map_err(|flaw| store::corrupt(&self.dnode, 0, flaw))?;
        let hash = micro::hash_of(h, name)?;
        Ok(micro::find(b, index, hash, name).and_then(|i| micro::slot(b, i)))
    }

    fn learn_if_missed(&self, known: RankedReadGuard<'_, Known>) {
        let now = known.missed(&self.dnode);
        drop(known);
        if now {
            self.learn();
        }
    }

    fn blocks_of<'a>(&'a self, tree: Option<&'a Arc<Synced>>) -> ObjectBlocks<'a> {
        ObjectBlocks {
            dnode: &self.dnode,
            tree,
        }
    }

    /// Finds the entry that matches a name by the given rule. Returns its value, its stored name,
    /// and whether another entry has the same normal form. Of several entries, the one with the
    /// lowest cd.
    ///
    /// # Errors
    /// As [`Self::lookup`]; `NOTSUP` for a normalised lookup where names are not normalised.
    pub fn lookup_match(&self, name: &[u8], how: MatchType) -> Result<Option<ZapMatch>> {
        let _guard = self.read_lock();
        let micro = self.ask_micro(|b, h, index| {
            if how != MatchType::Exact && h.normflags == 0 {
                return Err(Error::refused(
                    Errno::NOTSUP,
                    "a normalised lookup in a ZAP without normalisation",
                ));
            }
            let hash = micro::hash_of(h, name)?;
            Ok(
                micro::find_match(b, index, hash, name, how, h.normflags)?.and_then(|m| {
                    let s = micro::slot(b, m.slot)?;
                    Some(ZapMatch {
                        value: ZapValue::U64(s.value),
                        name: s.name.to_vec(),
                        conflict: m.conflict,
                    })
                }),
            )
        })?;
        match micro {
            Micro::Answer(v) => Ok(v),
            Micro::Fat(()) => fat::lookup_match(&self.blocks(), name, how, self.longest()),
        }
    }

    /// The first integer under an integer key (its lower-case hex).
    ///
    /// # Errors
    /// As [`Self::lookup_u64`].
    pub fn lookup_int(&self, key: u64) -> Result<Option<u64>> {
        let mut buffer = [0; 16];
        self.lookup_u64(hex(key, &mut buffer))
    }

    /// The value of a key of words.
    ///
    /// # Errors
    /// As [`Self::lookup`]; `INVAL` if the ZAP's keys are names.
    pub fn lookup_words(&self, key: &[u64]) -> Result<Option<ZapValue>> {
        let _guard = self.read_lock();
        let blocks = self.fat_blocks()?;
        let aim = fat::take_aim(&blocks, Ask::Words(key), MatchType::Exact, self.longest())?;
        fat::lookup(&blocks, aim)
    }

    fn fat_blocks(&self) -> Result<ObjectBlocks<'_>> {
        match self.kind()? {
            Kind::Fat => Ok(self.blocks()),
            Kind::Micro => Err(Error::refused(
                Errno::INVAL,
                "this ZAP has keys of names, not words",
            )),
        }
    }

    /// Prepares a listing: caches block 0, and sorts a micro ZAP.
    ///
    /// # Errors
    /// Block 0 cannot be read.
    pub fn prefetch(&self) -> Result<()> {
        self.count().map(|_| ())
    }

    /// How many entries there are.
    ///
    /// # Errors
    /// Block 0 cannot be read.
    pub fn count(&self) -> Result<u64> {
        let _guard = self.read_lock();
        match self.ask_micro(|_, _, index| Ok(index.len() as u64))? {
            Micro::Answer(n) => Ok(n),
            Micro::Fat(()) => fat::count(&self.blocks()),
        }
    }

    /// A name whose first integer, masked by `mask`, is `value`; the first in hash order.
    ///
    /// # Errors
    /// The ZAP cannot be read.
    pub fn search_value(&self, value: u64, mask: u64) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        self.list(0, &mut |name, v, _| {
            if v & mask == value & mask {
                found = Some(name.to_vec());
            }
            found.is_none()
        })?;
        Ok(found)
    }
}

fn first(found: Option<Option<u64>>) -> Result<Option<u64>> {
    match found {
        Some(None) => Err(Error::refused(Errno::INVAL, "a ZAP value without integers")),
        Some(v) => Ok(v),
        None => Ok(None),
    }
}

/// A number in lower-case hex without leading zeros.
fn hex(key: u64, buffer: &mut [u8; 16]) -> &[u8] {
    let digits = ((67 - key.leading_zeros() as usize) / 4).max(1);
    for (i, at) in buffer[..digits].iter_mut().enumerate() {
        let nibble = (key >> (4 * (digits - 1 - i))) as usize & 0xf;
        *at = b"0123456789abcdef"[nibble];
    }
    &buffer[..digits]
}

#[cfg(test)]
pub(crate) mod tests;
