//! Listing in the order of (hash, cd), from any cookie, while others change the ZAP.
//!
//! Budget: a micro ZAP is listed from its index, one slot per entry. A leaf is scanned once and its
//! entries sorted, 16 bytes each in a reused buffer. The next four leaves are prefetched. Nothing
//! is allocated per entry.
//!
//! A cookie is a position, not a pointer. Entries that exist throughout are listed exactly once,
//! whatever is added, removed, split or made fat meanwhile. The lock is taken for one block at a
//! time.

use super::fat::{self, Listed};
use super::hash::HashBits;
use super::header::Header;
use super::key::ZapValue;
use super::{Micro, Zap, micro};
use zuse_base::Result;

/// The cookie behind the last entry.
pub const END: u64 = u64::MAX;

/// One entry of a ZAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZapEntry {
    /// The name, or the big-endian bytes of a key of words.
    pub name: Vec<u8>,
    /// The value.
    pub value: ZapValue,
    /// The position behind this entry.
    pub cookie_after: u64,
    /// The kept bits of its hash.
    pub hash: u64,
    /// Its collision differentiator.
    pub cd: u32,
}

impl ZapEntry {
    /// The words of a key of words.
    pub fn words(&self) -> Vec<u64> {
        self.name
            .as_chunks::<8>()
            .0
            .iter()
            .map(|w| u64::from_be_bytes(*w))
            .collect()
    }
}

/// Walks a ZAP. Entries are fetched in batches, so an entry may be listed that was removed
/// meanwhile.
pub struct ZapCursor {
    zap: Zap,
    /// Where the next batch begins.
    next_batch: u64,
    /// The position behind the last entry given.
    cookie: u64,
    /// Fetched entries, the next one last.
    batch: Vec<ZapEntry>,
}

const BATCH: usize = 64;

impl ZapCursor {
    /// The next entry.
    ///
    /// # Errors
    /// The ZAP cannot be read.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<ZapEntry>> {
        if self.batch.is_empty() && self.next_batch != END {
            let mut batch = Vec::new();
            let cookie = self.zap.walk(
                self.next_batch,
                &mut |name, value, hash, cd, cookie_after| {
                    batch.push(ZapEntry {
                        name: name.to_vec(),
                        value: value.whole()?,
                        cookie_after,
                        hash,
                        cd,
                    });
                    Ok(batch.len() < BATCH)
                },
            )?;
            self.next_batch = cookie;
            batch.reverse();
            self.batch = batch;
        }
        let entry = self.batch.pop();
        self.cookie = entry.as_ref().map_or(self.next_batch, |e| e.cookie_after);
        Ok(entry)
    }

    /// The position after the last listed entry, valid for [`Zap::cursor`] later.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }
}

/// The value of an entry that is being listed.
pub(super) enum Lazy<'a> {
    One(u64),
    Stored(&'a Listed<'a>),
}

impl Lazy<'_> {
    fn whole(&self) -> super::Checked<ZapValue> {
        match self {
            Lazy::One(v) => Ok(ZapValue::U64(*v)),
            Lazy::Stored(l) => ZapValue::from_stored(l.entry.int_size, l.leaf.value(&l.entry)?),
        }
    }
    fn first(&self) -> super::Checked<u64> {
        match self {
            Lazy::One(v) => Ok(*v),
            Lazy::Stored(l) => l.leaf.first_int(&l.entry),
        }
    }
}

type Visit<'v> = dyn FnMut(&[u8], &Lazy<'_>, u64, u32, u64) -> super::Checked<bool> + 'v;

impl Zap {
    /// A cursor from a cookie on; 0 is the start.
    pub fn cursor(&self, start: u64) -> ZapCursor {
        ZapCursor {
            zap: self.clone(),
            next_batch: start,
            cookie: start,
            batch: Vec::new(),
        }
    }

    /// Calls `f(name, first integer, cookie after the entry)` from a cookie on, until it returns
    /// false. Nothing is allocated per entry. A value without integers counts as 0. Returns the
    /// cookie to continue from; [`END`] at the end of the list.
    ///
    /// `f` runs with the ZAP's lock and a block's lock held: it must not do I/O or use the ZAP.
    ///
    /// # Errors
    /// The ZAP cannot be read; entries listed before are valid.
    pub fn list(&self, cookie: u64, f: &mut dyn FnMut(&[u8], u64, u64) -> bool) -> Result<u64> {
        self.walk(cookie, &mut |name, value, _, _, after| {
            Ok(f(name, value.first()?, after))
        })
    }

    /// Calls `visit(name, value, hash, cd, cookie after)`; returns the cookie to continue from.
    fn walk(&self, cookie: u64, visit: &mut Visit<'_>) -> Result<u64> {
        if cookie == END {
            return Ok(END);
        }
        let mut at = cookie;
        let mut from: Option<(u64, u32)> = None;
        let mut scratch = Vec::new();
        loop {
            let guard = self.read_lock();
            // The form may have changed since the last block. A position is valid in both.
            let micro = self.ask_micro(|b, _, index| {
                let bits = HashBits::NORMAL;
                let start = from.unwrap_or_else(|| bits.position(at));
                let mut last = at;
                let ended = micro::list(b, index, start, |name, value, hash, cd| {
                    last = bits.cookie(hash, u64::from(cd) + 1);
                    // A micro value cannot be unreadable.
                    visit(name, &Lazy::One(value), hash, cd, last).unwrap_or(false)
                });
                Ok(if ended { END } else { last })
            })?;
            if let Micro::Answer(cookie) = micro {
                return Ok(cookie);
            }
            let start = match from {
                Some(start) => start,
                None => self.fat_bits()?.position(at),
            };
            let mut last = at;
            let (next, more) =
                fat::list_leaf(&self.blocks(), start, &mut scratch, |h: &Header, listed| {
                    let (hash, cd) = (listed.entry.hash, listed.entry.cd);
                    last = h.hash_bits().cookie(hash, u64::from(cd) + 1);
                    visit(listed.name, &Lazy::Stored(&listed), hash, cd, last)
                })?;
            drop(guard);
            if !more {
                return Ok(last);
            }
            match next {
                None => return Ok(END),
                Some(hash) => {
                    from = Some((hash, 0));
                    at = last;
                }
            }
        }
    }

    fn fat_bits(&self) -> Result<HashBits> {
        Ok(fat::table::facts(&self.blocks())?.hash_bits())
    }
}
