//! Changes of a ZAP: add, update, remove, increment; a micro ZAP grows by a slot row at a time,
//! then becomes fat.

use super::header::Header;
use super::key::{Ask, Stored};
use super::known::{Known, What};
use super::micro::{self, Inserted, MicroHeader, MicroIndex};
use super::store::{self, BlocksMut, MemoryBlocks, ObjectEdit};
use super::{DIRECTORY, Expected, FAT_SHIFT, MatchType, Micro, Zap, ZapValue, fat, header, hex};
use crate::dirty::DirtyBlock;
use crate::tx::Tx;
use fat::{FatLookup, Put};
use std::sync::Arc;
use zuse_base::{Errno, Error, Result};

/// Number of names at which a fat directory may become micro again: far below the 2,047 at which it
/// becomes fat.
const MICRO_AGAIN: u64 = 64;

enum Step<'a> {
    Done,
    Exists,
    Full,
    Upgrade,
    Fat(fat::FatLookup<'a>),
}

impl Zap {
    fn edit<'a>(&'a self, tx: &'a Tx, own: Option<Arc<DirtyBlock>>) -> ObjectEdit<'a> {
        ObjectEdit {
            dnode: &self.dnode,
            tx,
            own,
            leaf: None,
        }
    }

    /// Adds a name.
    ///
    /// # Errors
    /// `EXIST` if it is there; `NAMETOOLONG`; [`super::TOO_BIG`]; `NOSPC` if too many names
    /// collide.
    pub fn add(&self, tx: &Tx, name: &[u8], value: &ZapValue) -> Result<()> {
        self.put_name(tx, name, value, Put::Add)
    }

    /// Adds a name with one 8-byte integer.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_u64(&self, tx: &Tx, name: &[u8], value: u64) -> Result<()> {
        self.put_name(tx, name, &ZapValue::U64(value), Put::Add)
    }

    /// As [`Self::add_u64`], for a name that was [expected](Self::expect).
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_expected(
        &self,
        tx: &Tx,
        name: &[u8],
        value: u64,
        expected: &Expected<'_>,
    ) -> Result<()> {
        let known = &mut *self.write_lock();
        self.put_locked_at(
            known,
            tx,
            name,
            &ZapValue::U64(value),
            Put::Add,
            Some(expected),
        )
    }

    /// Replaces a name's value, or adds the name.
    ///
    /// # Errors
    /// As [`Self::add`], without `EXIST`.
    pub fn update(&self, tx: &Tx, name: &[u8], value: &ZapValue) -> Result<()> {
        self.put_name(tx, name, value, Put::Update)
    }

    /// Replaces a name's value by one 8-byte integer, or adds the name.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn update_u64(&self, tx: &Tx, name: &[u8], value: u64) -> Result<()> {
        self.put_name(tx, name, &ZapValue::U64(value), Put::Update)
    }

    /// Adds an integer key (its lower-case hex).
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_int(&self, tx: &Tx, key: u64, value: u64) -> Result<()> {
        self.add_u64(tx, hex(key, &mut [0; 16]), value)
    }

    /// Replaces or adds an integer key.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn update_int(&self, tx: &Tx, key: u64, value: u64) -> Result<()> {
        self.update_u64(tx, hex(key, &mut [0; 16]), value)
    }

    /// Removes an integer key.
    ///
    /// # Errors
    /// As [`Self::remove`].
    pub fn remove_int(&self, tx: &Tx, key: u64) -> Result<()> {
        self.remove(tx, hex(key, &mut [0; 16]))
    }

    /// Adds `delta` to a name's integer (0 if absent); an entry that becomes 0 is removed.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn increment(&self, tx: &Tx, name: &[u8], delta: i64) -> Result<()> {
        if delta == 0 {
            return Ok(());
        }
        let known = &mut *self.write_lock();
        let old = self.value_locked(name)?;
        match (old, old.unwrap_or(0).wrapping_add_signed(delta)) {
            (None, 0) => Ok(()),
            (Some(_), 0) => self
                .remove_locked(known, tx, name, MatchType::Exact)
                .map(|_| ()),
            (_, new) => self.put_locked(known, tx, name, &ZapValue::U64(new), Put::Update),
        }
    }

    /// The first integer of a name's value, for a caller that holds the lock.
    #[inline]
    pub(super) fn value_locked(&self, name: &[u8]) -> Result<Option<u64>> {
        let answer = self.ask(
            |b, h, index| {
                let hash = micro::hash_of(h, name)?;
                Ok(micro::find(b, index, hash, name)
                    .and_then(|i| micro::slot(b, i))
                    .map(|s| s.value))
            },
            |b| fat::aim(b, Ask::Name(name), MatchType::Exact, self.longest()),
        )?;
        match answer {
            Micro::Answer(v) => Ok(v),
            Micro::Fat(aim) => super::first(fat::lookup_u64(&self.blocks(), aim)?),
        }
    }

    fn put_name(&self, tx: &Tx, name: &[u8], value: &ZapValue, how: Put) -> Result<()> {
        self.put_locked(&mut self.write_lock(), tx, name, value, how)
    }

    fn put_locked(
        &self,
        known: &mut Known,
        tx: &Tx,
        name: &[u8],
        value: &ZapValue,
        how: Put,
    ) -> Result<()> {
        self.put_locked_at(known, tx, name, value, how, None)
    }

    fn put_locked_at(
        &self,
        known: &mut Known,
        tx: &Tx,
        name: &[u8],
        value: &ZapValue,
        how: Put,
        expected: Option<&Expected<'_>>,
    ) -> Result<()> {
        if name.is_empty() || name.contains(&0) {
            return Err(Error::refused(
                Errno::INVAL,
                "a ZAP name is not empty and has no NUL",
            ));
        }
        if name.len() > micro::MAX_NAME && name.len() + 1 > self.longest() {
            return Err(Error::refused(Errno::NAMETOOLONG, "a ZAP name"));
        }
        // Checked before a micro ZAP is made fat for it.
        let stored = value.stored()?;
        let ask = expected.map_or(Ask::Name(name), |e| e.ask(&self.dnode, name));
        let mut aim = loop {
            let step = match self.put_known(known, tx, (name, ask), value, how)? {
                Some(step) => step,
                None => self.put_micro(known, tx, name, value, how)?,
            };
            match step {
                Step::Done => return Ok(()),
                Step::Exists => {
                    return Err(Error::refused(
                        Errno::EXIST,
                        "the name is in the ZAP already",
                    ));
                }
                Step::Fat(aim) => break aim,
                Step::Full => {
                    let size = self.dnode.block_size() + micro::STEP;
                    if size > self.micro_max().max(micro::STEP) {
                        self.upgrade(tx)?;
                    } else {
                        self.dnode.set_block_size(tx, size)?;
                    }
                }
                Step::Upgrade => self.upgrade(tx)?,
            }
        };
        let own = known.own(&self.dnode, tx.txg());
        let is_own = own.is_some();
        let mut edit = self.edit(tx, own);
        if let Some(expected) = expected.filter(|e| e.holds(&self.dnode))
            && aim.lead_to(&expected.target)
        {
            edit.leaf = expected.own(tx.txg());
        }
        let header = fat::put(&edit, aim, &stored, how, None)?;
        self.know_fat(known, tx, is_own, header);
        Ok(())
    }

    /// After a change of a fat ZAP.
    fn know_fat(&self, known: &mut Known, tx: &Tx, is_own: bool, header: Header) {
        if is_own {
            known.renew_fat(&self.dnode, header);
        } else {
            let own = self.dnode.owned(tx, 0);
            let what = What::Fat { header, tree: None };
            let own = own.as_ref().map(|own| (tx.txg(), own));
            known.changed(&self.dnode, self.longest(), what, own);
        }
    }

    /// Decides what to do, or does it, from what is known; `None` if that is not enough.
    #[inline]
    fn put_known<'a>(
        &self,
        known: &mut Known,
        tx: &Tx,
        (name, ask): (&'a [u8], Ask<'a>),
        value: &ZapValue,
        how: Put,
    ) -> Result<Option<Step<'a>>> {
        match known.fresh(&self.dnode) {
            What::Fat { header, .. } => {
                let aim = FatLookup::by(header, ask, MatchType::Exact, known.longest)?;
                Ok(Some(Step::Fat(aim)))
            }
            What::Changed { header } => {
                let (ZapValue::U64(value), true) = (value, name.len() <= micro::MAX_NAME) else {
                    return Ok(None);
                };
                let hash = micro::hash_of(header, name)?;
                let Some(own) = known.own(&self.dnode, tx.txg()) else {
                    return Ok(None);
                };
                let step = self.change_micro(&own, hash, name, *value, how)?;
                known.renew(&self.dnode);
                Ok(Some(step))
            }
            What::Nothing | What::Micro { .. } => Ok(None),
        }
    }

    /// Tries the micro form; says what to do if the ZAP is not micro, or not any more.
    fn put_micro<'a>(
        &self,
        known: &mut Known,
        tx: &Tx,
        name: &'a [u8],
        value: &ZapValue,
        how: Put,
    ) -> Result<Step<'a>> {
        // Decided without changing (and so copying) the block: it is fat, or will become fat.
        let micro = |b: &[u8], h: &MicroHeader, index: &MicroIndex| {
            if h.foreign {
                return Err(Error::unsupported(
                    self.dnode.place(),
                    "a micro ZAP whose reserved header bytes are in use",
                ));
            }
            let hash = if name.len() <= micro::MAX_NAME {
                micro::hash_of(h, name)?
            } else {
                0
            };
            if let (ZapValue::U64(_), true) = (value, name.len() <= micro::MAX_NAME) {
                if how == Put::Add && micro::find(b, index, hash, name).is_some() {
                    return Ok((*h, hash, Some(Step::Exists)));
                }
                let full = index.peek_free(micro::slots(b)).is_none();
                if full && micro::find(b, index, hash, name).is_none() {
                    return Ok((*h, hash, Some(Step::Full)));
                }
                return Ok((*h, hash, None));
            }
            // Adding an existing name is refused in either form.
            let exists = how == Put::Add
                && name.len() <= micro::MAX_NAME
                && micro::find(b, index, hash, name).is_some();
            Ok((
                *h,
                hash,
                Some(if exists { Step::Exists } else { Step::Upgrade }),
            ))
        };
        let fat = |b: &[u8]| fat::aim(b, Ask::Name(name), MatchType::Exact, self.longest());
        let (header, hash) = match self.ask(micro, fat)? {
            Micro::Fat(aim) => return Ok(Step::Fat(aim)),
            Micro::Answer((_, _, Some(step))) => return Ok(step),
            Micro::Answer((header, hash, None)) => (header, hash),
        };
        let ZapValue::U64(value) = *value else {
            return Ok(Step::Upgrade);
        };
        let own = self.dnode.own_block(tx, 0)?;
        let step = self.change_micro(&own, hash, name, value, how)?;
        let what = What::Changed { header };
        known.changed(&self.dnode, self.longest(), what, Some((tx.txg(), &own)));
        Ok(step)
    }

    fn change_micro<'a>(
        &self,
        own: &DirtyBlock,
        hash: u64,
        name: &[u8],
        value: u64,
        how: Put,
    ) -> Result<Step<'a>> {
        self.dnode.edit_own(own, |mut edit| {
            let (b, index) = edit.index_mut(MicroIndex::build);
            match micro::insert(b, index, hash, name, value) {
                Inserted::Done => Step::Done,
                Inserted::Exists(at) if how == Put::Update => {
                    micro::set_value(b, at, value);
                    Step::Done
                }
                Inserted::Exists(_) => Step::Exists,
                Inserted::Full => Step::Full,
                Inserted::Crowded => Step::Upgrade,
            }
        })
    }

    /// Micro to fat: same salt and normflags, each entry keeps its cd. Built in memory, then
    /// written block by block.
    fn upgrade(&self, tx: &Tx) -> Result<()> {
        let corrupt = |flaw| store::corrupt(&self.dnode, 0, flaw);
        let blocks = self.ask_micro(|b, h, index| {
            let new = header::Header::new(FAT_SHIFT, h.salt, h.normflags, 0);
            let list = |each: &mut fat::Each<'_>| {
                micro::list(b, index, (0, 0), |name, value, hash, cd| {
                    each(name, value, hash, cd);
                    true
                });
            };
            match fat::grown(new, &list).map_err(corrupt)? {
                Some(blocks) => Ok((0..).zip(blocks).collect()),
                None => one_by_one(b, new),
            }
        })?;
        let Micro::Answer(blocks) = blocks else {
            return Ok(());
        };
        // All blocks are built before the first is written: a flaw leaves the micro form as it is.
        self.dnode.set_block_size(tx, 1 << FAT_SHIFT)?;
        let edit = self.edit(tx, None);
        for (blkid, bytes) in blocks {
            edit.write(blkid, bytes)?;
        }
        Ok(())
    }

    /// Fat to micro, for a directory that shrank to a few short names. Same salt and normflags, and
    /// each entry keeps its cd, so positions of listings stay valid. All blocks are freed and block
    /// 0 is written in its new size. The block tree keeps its levels.
    fn downgrade(&self, tx: &Tx) -> Result<()> {
        if self.dnode.object_type() != DIRECTORY {
            return Ok(());
        }
        let Some((h, entries)) = fat::as_micro(&self.blocks(), micro::MAX_NAME + 1)? else {
            return Ok(());
        };
        let block = micro::block_of(h.salt, h.normflags, &entries);
        let Ok(size) = u32::try_from(block.len()) else {
            return Ok(());
        };
        if size > self.micro_max() {
            return Ok(());
        }
        // Nothing is freed before the new block is complete.
        self.dnode.free_blocks(tx, 0, u64::MAX)?;
        self.dnode.set_block_size(tx, size)?;
        self.dnode.write_block(tx, 0, block)
    }

    /// Removes a name.
    ///
    /// # Errors
    /// `NOENT` if it is not there.
    pub fn remove(&self, tx: &Tx, name: &[u8]) -> Result<()> {
        self.remove_match(tx, name, MatchType::Exact)
    }

    /// Removes the entry that matches a name, that of lowest cd.
    ///
    /// # Errors
    /// `NOENT` if there is none; as [`Self::lookup_match`].
    pub fn remove_match(&self, tx: &Tx, name: &[u8], how: MatchType) -> Result<()> {
        if self.remove_locked(&mut self.write_lock(), tx, name, how)? {
            Ok(())
        } else {
            Err(Error::refused(Errno::NOENT, "no such name in the ZAP"))
        }
    }

    fn remove_locked(
        &self,
        known: &mut Known,
        tx: &Tx,
        name: &[u8],
        how: MatchType,
    ) -> Result<bool> {
        if let What::Fat { header, .. } = known.fresh(&self.dnode) {
            let aim = FatLookup::by(header, Ask::Name(name), how, known.longest)?;
            return self.remove_fat(known, tx, aim);
        }
        let found = self.ask_micro(|b, h, index| {
            if h.foreign {
                return Err(Error::unsupported(
                    self.dnode.place(),
                    "a micro ZAP whose reserved header bytes are in use",
                ));
            }
            let hash = micro::hash_of(h, name)?;
            if how == MatchType::Exact {
                return Ok(micro::find(b, index, hash, name).map(|at| (hash, at)));
            }
            if h.normflags == 0 {
                return Err(Error::refused(
                    Errno::NOTSUP,
                    "a normalised removal in a ZAP without normalisation",
                ));
            }
            Ok(micro::find_match(b, index, hash, name, how, h.normflags)?.map(|m| (hash, m.slot)))
        })?;
        match found {
            Micro::Fat(()) => {
                let longest = self.longest();
                let aim = fat::take_aim(&self.blocks(), Ask::Name(name), how, longest)?;
                self.remove_fat(known, tx, aim)
            }
            Micro::Answer(None) => Ok(false),
            Micro::Answer(Some((hash, at))) => {
                self.dnode.edit_block(tx, 0, |mut edit| {
                    let (b, index) = edit.index_mut(MicroIndex::build);
                    micro::remove(b, index, hash, at);
                })?;
                Ok(true)
            }
        }
    }

    fn remove_fat(&self, known: &mut Known, tx: &Tx, aim: FatLookup<'_>) -> Result<bool> {
        let own = known.own(&self.dnode, tx.txg());
        let is_own = own.is_some();
        let Some(h) = fat::remove(&self.edit(tx, own), aim, true)? else {
            return Ok(false);
        };
        self.know_fat(known, tx, is_own, h);
        // At few sizes only, because each try reads the whole leaf.
        if h.leafs == 1
            && h.entries <= MICRO_AGAIN
            && (h.entries == 0 || h.entries.is_power_of_two())
        {
            self.downgrade(tx)?;
        }
        Ok(true)
    }

    /// Adds a key of words.
    ///
    /// # Errors
    /// `EXIST`; `INVAL` if the ZAP's keys are names.
    pub fn add_words(&self, tx: &Tx, key: &[u64], value: &ZapValue) -> Result<()> {
        self.put_words(tx, key, &value.stored()?, Put::Add)
    }

    /// Replaces or adds a key of words.
    ///
    /// # Errors
    /// As [`Self::add_words`], without `EXIST`.
    pub fn update_words(&self, tx: &Tx, key: &[u64], value: &ZapValue) -> Result<()> {
        self.put_words(tx, key, &value.stored()?, Put::Update)
    }

    fn put_words(&self, tx: &Tx, key: &[u64], value: &Stored, how: Put) -> Result<()> {
        let _guard = self.write_lock();
        let blocks = self.fat_blocks()?;
        let aim = fat::take_aim(&blocks, Ask::Words(key), MatchType::Exact, self.longest())?;
        fat::put(&self.edit(tx, None), aim, value, how, None).map(|_| ())
    }

    /// Removes a key of words.
    ///
    /// # Errors
    /// `NOENT`; `INVAL` if the ZAP's keys are names.
    pub fn remove_words(&self, tx: &Tx, key: &[u64]) -> Result<()> {
        let _guard = self.write_lock();
        let blocks = self.fat_blocks()?;
        let aim = fat::take_aim(&blocks, Ask::Words(key), MatchType::Exact, self.longest())?;
        if fat::remove(&self.edit(tx, None), aim, true)?.is_some() {
            Ok(())
        } else {
            Err(Error::refused(Errno::NOENT, "no such key in the ZAP"))
        }
    }
}

/// Builds the blocks of a fat ZAP entry by entry, for a micro ZAP with few entries. Also if so many
/// have almost the same hash that the pointer table outgrows block 0.
#[cold]
fn one_by_one(micro: &[u8], h: header::Header) -> Result<Vec<(u64, Vec<u8>)>> {
    let memory = MemoryBlocks::default();
    fat::create(&memory, &h)?;
    for s in (0..micro::slots(micro)).filter_map(|i| micro::slot(micro, i)) {
        let aim = fat::take_aim(&memory, Ask::Name(s.name), MatchType::Exact, 256)?;
        // With its old cd, so that positions of listings stay valid.
        fat::put(&memory, aim, &Stored::one(s.value), Put::Add, Some(s.cd))?;
    }
    Ok(memory.blocks.into_inner().into_iter().collect())
}
