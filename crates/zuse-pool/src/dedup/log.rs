//! The two logs of a table of the new form. Changes are appended to the active log. Entries of the
//! flushing log move into the stores, in key order.
//!
//! ```text
//!   changes of a txg ─► active log ─(swap, once the other is empty)─► flushing log ─► stores
//! ```
//! # Invariants
//!
//! - A key is in at most one of the two maps. On disk it may be in both: the active one counts.
//! - Entries up to the checkpoint were flushed, and are skipped when the pool is opened.
//! - The flushing log is freed as a whole when its last entry is in the stores.

use std::collections::BTreeMap;

use zuse_base::{ObjectId, Result};
use zuse_dmu::dnode::DnodeSpec;
use zuse_dmu::zap::Zap;

use super::form::{self, FLAT_RECORD};
use super::live::Logged;
use super::{Key, Log};
use crate::SyncCtx;

/// Type of a log's object and of its bonus.
const WORDS: u8 = 195;
/// Bytes of a log's header.
const HEADER: u16 = 64;
/// Block size of a log.
const BLOCK: u32 = 128 << 10;
/// Txgs that a log stays active, at least.
const TXGS: u64 = 8;
/// Number of entries at which the logs swap in any case.
const MANY: usize = 100_000;
/// Entries that each txg flushes, at least.
const LEAST: usize = 500;
/// Each txg flushes one part in this many of all logged entries.
const PART: usize = 32;

/// One log.
pub(super) struct DdtLog {
    pub object: ObjectId,
    pub length: u64,
    pub first_txg: u64,
    pub checkpoint: Option<Key>,
    pub entries: BTreeMap<Key, Logged>,
}

/// Both logs of a table.
pub(super) struct Logs {
    pub both: [DdtLog; 2],
    /// Index of the active one.
    pub active: usize,
}

impl DdtLog {
    fn of(log: &mut Log) -> Self {
        let stored = std::mem::take(&mut log.stored);
        let entries = std::mem::take(&mut log.entries);
        let entries = entries.into_iter().map(|(key, entry)| {
            let class = stored.get(&key).copied();
            (key, Logged { class, entry })
        });
        Self {
            object: ObjectId(log.object),
            length: log.length,
            first_txg: log.first_txg,
            checkpoint: log.checkpoint,
            entries: entries.collect(),
        }
    }

    fn write_header(&self, ctx: &SyncCtx<'_>, flushing: bool) -> Result<()> {
        let flags = u64::from(flushing) | u64::from(self.checkpoint.is_some()) << 1;
        let checkpoint = self.checkpoint.map_or([0; 5], |key| key.words());
        let words = [1 | flags << 8, self.length, self.first_txg];
        let bytes: Vec<u8> = words
            .into_iter()
            .chain(checkpoint)
            .flat_map(u64::to_le_bytes)
            .collect();
        let dnode = ctx.pool.mos().dnode(self.object)?;
        dnode.set_bonus(ctx.tx, &bytes)
    }
}

impl Logs {
    /// From the logs that were read; none unless there are two.
    pub fn load(logs: &mut [Log]) -> Option<Self> {
        let [first, second] = logs else { return None };
        let active = usize::from(first.is_flushing());
        let mut both = [DdtLog::of(first), DdtLog::of(second)];
        // The older value of a key must not be flushed over the newer one.
        let newer: Vec<Key> = both[active].entries.keys().copied().collect();
        for key in newer {
            both[1 - active].entries.remove(&key);
        }
        Some(Self { both, active })
    }

    /// Creates the objects, and enters them in the table's directory.
    pub fn create(ctx: &SyncCtx<'_>, directory: &Zap, checksum: &str) -> Result<Self> {
        let make = |i: usize| -> Result<DdtLog> {
            let spec = DnodeSpec::new(WORDS).bonus(WORDS, HEADER).block_size(BLOCK);
            let object = ctx.pool.mos().allocate(ctx.tx, &spec)?.object();
            let name = format!("DDT-log-{checksum}-{i}");
            directory.add_u64(ctx.tx, name.as_bytes(), object.0)?;
            Ok(DdtLog {
                object,
                length: 0,
                first_txg: ctx.txg.0,
                checkpoint: None,
                entries: BTreeMap::new(),
            })
        };
        let logs = Self {
            both: [make(0)?, make(1)?],
            active: 0,
        };
        // The active one gets its header with the first append.
        logs.both[1].write_header(ctx, true)?;
        Ok(logs)
    }

    pub fn destroy(&self, ctx: &SyncCtx<'_>, directory: &Zap, checksum: &str) -> Result<()> {
        for (i, log) in self.both.iter().enumerate() {
            ctx.pool.mos().free(ctx.tx, log.object)?;
            let name = format!("DDT-log-{checksum}-{i}");
            directory.remove(ctx.tx, name.as_bytes())?;
        }
        Ok(())
    }

    fn flushing(&mut self) -> &mut DdtLog {
        &mut self.both[1 - self.active]
    }

    pub fn is_empty(&self) -> bool {
        self.both.iter().all(|log| log.entries.is_empty())
    }

    pub fn bytes(&self) -> u64 {
        self.both.iter().fold(0, |sum, log| sum + log.length)
    }

    pub fn get(&self, key: &Key) -> Option<&Logged> {
        self.both.iter().find_map(|log| log.entries.get(key))
    }

    /// Removes a key's entry from the logs: a newer one is about to be appended.
    pub fn take(&mut self, key: &Key) -> Option<Logged> {
        let both = &mut self.both;
        both.iter_mut().find_map(|log| log.entries.remove(key))
    }

    /// Appends entries to the active log, in new blocks.
    pub fn append(&mut self, ctx: &SyncCtx<'_>, entries: Vec<(Key, Logged)>) -> Result<()> {
        let active = self.active;
        let log = &mut self.both[active];
        let dnode = ctx.pool.mos().dnode(log.object)?;
        // A record never crosses the end of a block.
        for chunk in entries.chunks(BLOCK as usize / FLAT_RECORD) {
            let mut block = Vec::with_capacity(BLOCK as usize);
            for (key, logged) in chunk {
                block.extend(form::record(key, logged.class, &logged.entry));
            }
            // The next txg begins a new block, so the rest of this one stays empty (04b §1.4).
            block.resize(BLOCK as usize, 0);
            dnode.write_at(ctx.tx, log.length, &block)?;
            log.length += u64::from(BLOCK);
        }
        log.entries.extend(entries);
        log.write_header(ctx, false)
    }

    /// The entries to flush in a txg that appended so many. They must be in the stores before
    /// [`Self::flushed`].
    pub fn due(&mut self, appended: usize) -> Vec<(Key, Logged)> {
        let all: usize = self.both.iter().map(|log| log.entries.len()).sum();
        // As many as were appended, and a part of the rest: otherwise the logs could grow for ever.
        let most = LEAST.max(appended).saturating_add(all / PART);
        let log = self.flushing();
        let mut due = Vec::new();
        while due.len() < most
            && let Some(first) = log.entries.pop_first()
        {
            due.push(first);
        }
        due
    }

    /// The entries up to a key are in the stores.
    pub fn flushed(&mut self, ctx: &SyncCtx<'_>, last: Option<Key>) -> Result<()> {
        let txg = ctx.txg.0;
        let log = self.flushing();
        if !log.entries.is_empty() {
            if last.is_some() {
                log.checkpoint = last;
                log.write_header(ctx, true)?;
            }
            return Ok(());
        }
        let mut changed = false;
        if log.length > 0 {
            let dnode = ctx.pool.mos().dnode(log.object)?;
            dnode.free_blocks(ctx.tx, 0, u64::MAX)?;
            log.length = 0;
            log.checkpoint = None;
            changed = true;
        }
        let active = &self.both[self.active];
        let old = txg >= active.first_txg.saturating_add(TXGS) || active.entries.len() > MANY;
        if active.length > 0 && old {
            self.active = 1 - self.active;
            self.both[self.active].first_txg = txg;
            self.both[self.active].write_header(ctx, false)?;
            changed = true;
        }
        if changed {
            self.flushing().write_header(ctx, true)?;
        }
        Ok(())
    }
}
