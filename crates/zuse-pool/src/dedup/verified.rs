//! The tables' interface for a scan (`docs/format/04b-dedup-brt-scan.md`, 3.4). Shared blocks are
//! verified once, table by table, before the trees are walked. The walk then skips pointers to
//! them.
//!
//! ```text
//!   begin ─► entries in logs, then those in stores, part by part ─► the trees, without them
//!            └────────── a block that becomes shared meanwhile is marked ────────────────┘
//! ```
//! # Invariant
//!
//! Skipped blocks must have been verified since the scan began. A key is unverified, and its block
//! is verified at each pointer, in two cases. Its second pointer came after the scan's begin, or
//! its block was found lost: only pointers have names to report. The caller is told that there are
//! unverified keys, and records that on disk in the same txg. The keys themselves are known only
//! here.
//!
//! A batch is read in syncing context. No entry moves from a log into a store meanwhile.

use std::collections::HashSet;

use zuse_base::{ObjectId, Result, Txg};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_format::BlockPointer;

use super::live::Dedup;
use super::{CLASSES, Entry, Key, damaged, value};
use crate::{Pool, SyncCtx};

/// Unverified keys that are remembered. With more of them nothing is skipped any more.
const MAX_UNVERIFIED: usize = 1 << 16;
/// Blocks of a batch, except those in logs, which are in memory as a whole.
const PART: usize = 4096;

/// Shared blocks that must be verified at each pointer.
#[derive(Default)]
pub(super) struct Unverified {
    /// Blocks born before are scanned; none without a scan.
    before: Option<Txg>,
    keys: HashSet<(u8, Key)>,
    /// There are more than can be remembered.
    all: bool,
    /// There is one that was not reported yet.
    fresh: bool,
}

impl Unverified {
    fn add(&mut self, key: (u8, Key)) {
        if self.keys.len() < MAX_UNVERIFIED {
            self.keys.insert(key);
        } else {
            self.all = true;
        }
        self.fresh = true;
    }
}

/// How far the tables were walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedAt {
    /// Class of the stores.
    pub class: u64,
    /// Number of the table's checksum.
    pub checksum: u8,
    /// Position in the store, as OpenZFS records it.
    pub position: u64,
    /// The same, for our cursor.
    cookie: u64,
}

impl SharedAt {
    /// The end, or a position from disk. A scan continued from the latter begins again.
    pub fn stored(class: u64, checksum: u64, position: u64) -> Self {
        Self {
            class,
            checksum: u8::try_from(checksum).unwrap_or(u8::MAX),
            position,
            cookie: 0,
        }
    }

    /// The position after all classes.
    pub const END: Self = Self {
        class: CLASSES.len() as u64,
        checksum: 0,
        position: 0,
        cookie: 0,
    };

    fn next_table(self) -> Self {
        Self::stored(self.class, u64::from(self.checksum) + 1, 0)
    }
}

/// Number of references to the blocks of an entry.
pub(super) fn total(entry: &Entry) -> u64 {
    let references = entry.iter().map(|shared| shared.references);
    references.fold(0, u64::saturating_add)
}

impl Pool {
    /// A scan of blocks born before a txg begins, or continues.
    pub fn watch_shared(&self, before: Txg) {
        *self.dedup.unverified.lock() = Unverified {
            before: Some(before),
            ..Unverified::default()
        };
    }

    /// It has ended.
    pub fn unwatch_shared(&self) {
        *self.dedup.unverified.lock() = Unverified::default();
    }

    /// A block of a table was found lost.
    pub fn mark_unverified(&self, bp: &BlockPointer) {
        let key = (bp.checksum_kind(), Key::of(bp));
        self.dedup.unverified.lock().add(key);
    }

    /// Whether there are unverified blocks that were not reported yet.
    pub fn has_new_unverified(&self) -> bool {
        std::mem::take(&mut self.dedup.unverified.lock().fresh)
    }

    /// Whether the block of a pointer was verified with the tables.
    pub fn was_shared_verified(&self, bp: &BlockPointer) -> bool {
        bp.dedup() && self.dedup.was_verified(bp)
    }

    /// A batch of blocks with more than one reference, and the position of the next one. In syncing
    /// context.
    ///
    /// # Errors
    /// A table is unreadable or invalid.
    pub fn shared_blocks(
        &self,
        ctx: &SyncCtx<'_>,
        from: SharedAt,
        last_class: u64,
    ) -> Result<(Vec<BlockPointer>, SharedAt)> {
        let (mut found, mut at) = (Vec::new(), from);
        while at.class <= last_class && found.len() < PART {
            at = self.dedup.part(ctx, at, &mut found)?;
        }
        match at.class <= last_class {
            true => Ok((found, at)),
            false => Ok((found, SharedAt::END)),
        }
    }
}

impl Dedup {
    /// Called before a changed entry becomes visible: notes it if it has just become shared.
    pub(super) fn note_sharing(&self, key: (u8, Key), before: u64, now: &Entry) {
        if before > 1 || total(now) <= 1 {
            return;
        }
        let mut unverified = self.unverified.lock();
        let is_scanned = |txg: Txg| now.iter().any(|shared| shared.birth < txg.0);
        if unverified.before.is_some_and(is_scanned) {
            unverified.add(key);
        }
    }

    fn was_verified(&self, bp: &BlockPointer) -> bool {
        let key = Key::of(bp);
        let Ok(known) = self.known(bp.checksum_kind(), &key) else {
            return false;
        };
        let (first, birth) = (bp.dva(0), bp.physical_birth());
        let is_it = known
            .now
            .iter()
            .any(|s| s.birth == birth && s.dvas[0] == first);
        // Recorded before the entry becomes visible.
        let unverified = self.unverified.lock();
        let sure = unverified.before.is_some() && !unverified.all;
        is_it
            && total(&known.now) > 1
            && sure
            && !unverified.keys.contains(&(bp.checksum_kind(), key))
    }

    /// A batch from one store; with the first class of a table, its logged entries, too.
    fn part(
        &self,
        ctx: &SyncCtx<'_>,
        at: SharedAt,
        found: &mut Vec<BlockPointer>,
    ) -> Result<SharedAt> {
        let (checksum, flat, store) = {
            let state = self.state();
            let Some((checksum, table)) = state.tables.range(at.checksum..).next() else {
                return Ok(SharedAt::stored(at.class + 1, 0, 0));
            };
            if at.class == 0 && at.cookie == 0 {
                let both = table.logs.iter().flat_map(|logs| &logs.both);
                for (key, logged) in both.flat_map(|log| &log.entries) {
                    if total(&logged.entry) > 1 {
                        let blocks = logged.entry.iter().filter(|s| s.references > 0);
                        found.extend(blocks.map(|s| s.pointer(key, *checksum)));
                    }
                }
            }
            let class = usize::try_from(at.class).unwrap_or(usize::MAX);
            let store = table.stores.get(class).copied().flatten();
            (*checksum, table.flat, store)
        };
        let here = SharedAt {
            checksum,
            // A position is one of its own table only.
            cookie: if checksum == at.checksum {
                at.cookie
            } else {
                0
            },
            ..at
        };
        match store {
            None => Ok(here.next_table()),
            Some(store) => store_part(ctx, (store, flat), here, found),
        }
    }
}

fn store_part(
    ctx: &SyncCtx<'_>,
    (object, flat): (ObjectId, bool),
    mut at: SharedAt,
    found: &mut Vec<BlockPointer>,
) -> Result<SharedAt> {
    let place = format!("MOS, object {} (a dedup table)", object.0);
    let store = Zap::open(&ctx.pool.mos().dnode(object)?)?;
    let mut cursor = store.cursor(at.cookie);
    let most = found.len() + PART;
    while found.len() < most {
        let Some(entry) = cursor.next()? else {
            return Ok(at.next_table());
        };
        let key = Key::from_words(&entry.words())
            .ok_or_else(|| damaged(&place, "a key of a dedup table is not five words"))?;
        let ZapValue::Bytes(raw) = &entry.value else {
            return Err(damaged(&place, "an entry of a dedup table is not bytes"));
        };
        let blocks = value(raw, flat, &place)?;
        let blocks = blocks.iter().filter(|shared| shared.references > 0);
        found.extend(blocks.map(|shared| shared.pointer(&key, at.checksum)));
        at.cookie = cursor.cookie();
        at.position = super::position(&entry);
    }
    Ok(at)
}
