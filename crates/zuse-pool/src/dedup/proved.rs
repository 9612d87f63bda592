//! What a scan asks of the tables (`docs/format/04b-dedup-brt-scan.md`, 3.4). Shared blocks are
//! proved once, table by table, before the trees are walked. The walk passes over what leads to
//! them.
//!
//! ```text
//!   begin ─► entries in logs, then those in stores, part by part ─► the trees, without them
//!            └────────── a block that comes to be shared meanwhile is doubted ───────────┘
//! ```
//! # Invariant
//!
//! What is passed over was proved since the scan began. So a key is doubted, and its block proved
//! at each pointer, where its second pointer came after the scan's begin. Or where it was found
//! lost: only a pointer has a name that can be told. The caller is told that there are doubts, and
//! notes it on disk in the same txg: they are known here alone.
//!
//! A part is taken in syncing context. Nobody brings an entry from a log into a store meanwhile.

use std::collections::HashSet;

use zuse_base::{ObjectId, Result, Txg};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_format::BlockPointer;

use super::live::Dedup;
use super::{CLASSES, Entry, Key, damaged, value};
use crate::{Pool, SyncCtx};

/// Doubted keys that are remembered. With more of them nothing is passed over any more.
const DOUBTS: usize = 1 << 16;
/// Blocks of a part, but for those in logs, which are in memory as a whole.
const PART: usize = 4096;

/// What is shared, and must be proved at each pointer all the same.
#[derive(Default)]
pub(super) struct Doubts {
    /// Blocks born before are scanned; none without a scan.
    before: Option<Txg>,
    keys: HashSet<(u8, Key)>,
    /// There are more than are remembered.
    all: bool,
    /// There is one that nobody was told of.
    fresh: bool,
}

impl Doubts {
    fn add(&mut self, key: (u8, Key)) {
        if self.keys.len() < DOUBTS {
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
    /// Position in the store, as OpenZFS writes it down.
    pub position: u64,
    /// The same for a cursor.
    cookie: u64,
}

impl SharedAt {
    /// Behind all of them, or as it is on disk. Who goes on with the latter begins again.
    pub fn stored(class: u64, checksum: u64, position: u64) -> Self {
        Self {
            class,
            checksum: u8::try_from(checksum).unwrap_or(u8::MAX),
            position,
            cookie: 0,
        }
    }

    /// Behind all classes.
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

/// How many pointers there are to the blocks of an entry.
pub(super) fn total(entry: &Entry) -> u64 {
    let references = entry.iter().map(|shared| shared.references);
    references.fold(0, u64::saturating_add)
}

impl Pool {
    /// A scan of blocks born before a txg begins, or goes on.
    pub fn watch_shared(&self, before: Txg) {
        *self.dedup.doubts.lock() = Doubts {
            before: Some(before),
            ..Doubts::default()
        };
    }

    /// It has ended.
    pub fn unwatch_shared(&self) {
        *self.dedup.doubts.lock() = Doubts::default();
    }

    /// A block of a table was found lost.
    pub fn doubt_shared(&self, bp: &BlockPointer) {
        let key = (bp.checksum_kind(), Key::of(bp));
        self.dedup.doubts.lock().add(key);
    }

    /// Whether there are doubts that nobody was told of.
    pub fn has_new_doubts(&self) -> bool {
        std::mem::take(&mut self.dedup.doubts.lock().fresh)
    }

    /// Whether the block of a pointer was proved with the tables.
    pub fn was_proved_shared(&self, bp: &BlockPointer) -> bool {
        bp.dedup() && self.dedup.was_proved(bp)
    }

    /// Some of the blocks with more than one pointer, and where the next ones are. In syncing
    /// context.
    ///
    /// # Errors
    /// A table cannot be read, or makes no sense.
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
    /// Before a changed entry can be seen: whether it is one that came to be shared.
    pub(super) fn note_sharing(&self, key: (u8, Key), before: u64, now: &Entry) {
        if before > 1 || total(now) <= 1 {
            return;
        }
        let mut doubts = self.doubts.lock();
        let is_scanned = |txg: Txg| now.iter().any(|shared| shared.birth < txg.0);
        if doubts.before.is_some_and(is_scanned) {
            doubts.add(key);
        }
    }

    fn was_proved(&self, bp: &BlockPointer) -> bool {
        let key = Key::of(bp);
        let Ok(known) = self.known(bp.checksum_kind(), &key) else {
            return false;
        };
        let (first, birth) = (bp.dva(0), bp.physical_birth());
        let is_it = known
            .now
            .iter()
            .any(|s| s.birth == birth && s.dvas[0] == first);
        // Doubts last: they are noted before the entry can be seen.
        let doubts = self.doubts.lock();
        let sure = doubts.before.is_some() && !doubts.all;
        is_it && total(&known.now) > 1 && sure && !doubts.keys.contains(&(bp.checksum_kind(), key))
    }

    /// A part of one store; with the first class of a table what its logs have, too.
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
                let halves = table.logs.iter().flat_map(|logs| &logs.halves);
                for (key, logged) in halves.flat_map(|half| &half.entries) {
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
