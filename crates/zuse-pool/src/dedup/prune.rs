//! Pruning (`zpool ddtprune`): removes entries of blocks with one reference from their table, the
//! oldest first. The table becomes smaller. If such a block is written again, it is stored a second
//! time.
//!
//! The pointers keep their dedup bit. Freeing one finds no entry, and frees the block as an
//! ordinary one (`live`). Entries in a log are younger than those in a store: they stay.
//!
//! Memory: one table of counts, and the entries of one txg.

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_dmu::zap::{END, Zap, ZapValue};

use super::apply::{UNIQUE, statistics};
use super::live::{Dedup, Live};
use super::{Entry, Key, Store, Table, damaged, tables, value};
use crate::{Pool, SyncCtx};

/// Entries that a txg removes, and reads, at most.
const REMOVED: usize = 2_000;
const LOOKED_AT: usize = 20_000;
/// Number of age classes.
const AGES: u64 = 4096;

/// Which entries go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Those unchanged for that many seconds.
    Older(u64),
    /// That percentage of those with one reference.
    Percent(u8),
}

/// An age limit, and how many entries to remove.
#[derive(Clone, Copy)]
struct Cut {
    since: u64,
    most: u64,
}

impl Pool {
    /// Removes entries of blocks with one reference from the dedup tables; returns how many.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` for tables of the old form, `Refused(ROFS)`; a table cannot be read.
    pub fn prune_dedup(&self, what: Prune) -> Result<u64> {
        let mut pruned = 0;
        let unsupported = || {
            Error::refused(
                Errno::NOTSUP,
                "operation not supported on this type of pool",
            )
        };
        if !self.features().is_enabled(super::live::FAST) {
            return Err(unsupported());
        }
        for table in tables(self)? {
            if !table.is_flat() {
                return Err(unsupported());
            }
            let Some(mut cut) = self.cut(&table, what)? else {
                continue;
            };
            let (checksum, mut from) = (table.checksum, 0);
            while from != END && cut.most > 0 {
                let (gone, next) = self.sync_task(
                    |_| Ok(()),
                    move |ctx| ctx.pool.dedup.prune(ctx, checksum, cut, from),
                )?;
                pruned += gone;
                cut.most = cut.most.saturating_sub(gone);
                from = next;
            }
        }
        Ok(pruned)
    }

    fn cut(&self, table: &Table, what: Prune) -> Result<Option<Cut>> {
        let now = self.env.clock.now().unsigned_secs();
        let Some(store) = table.stores.iter().find(|s| s.class == UNIQUE) else {
            return Ok(None);
        };
        match what {
            Prune::Older(seconds) => Ok(Some(Cut {
                since: now.saturating_sub(seconds),
                most: u64::MAX,
            })),
            Prune::Percent(percent) => self.oldest(table, store, percent),
        }
    }

    /// Where the oldest entries of a store end.
    fn oldest(&self, table: &Table, store: &Store, percent: u8) -> Result<Option<Cut>> {
        let newer = |key: &Key| table.logs.iter().any(|log| log.entries.contains_key(key));
        let each = |f: &mut dyn FnMut(u64)| {
            table.each_entry(self, store, &mut |_, key, entry| {
                if let Some(shared) = entry.first().filter(|_| !newer(key)) {
                    f(shared.since);
                }
                Ok(())
            })
        };
        let (mut all, mut first, mut last) = (0u64, u64::MAX, 0);
        each(&mut |since| {
            (all, first, last) = (all + 1, first.min(since), last.max(since));
        })?;
        let most = all.saturating_mul(percent.min(100).into()) / 100;
        if most == 0 {
            return Ok(None);
        }
        let width = last.saturating_sub(first) / AGES + 1;
        let mut counts = vec![0u64; AGES as usize + 1];
        each(&mut |since| {
            let age = (since.saturating_sub(first) / width).min(AGES);
            if let Some(count) = counts.get_mut(age as usize) {
                *count += 1;
            }
        })?;
        let mut sum = 0;
        let ages = counts.iter().take_while(|count| {
            let short = sum < most;
            sum += **count;
            short
        });
        let ages = ages.count() as u64;
        Ok(Some(Cut {
            since: first
                .saturating_add(ages.saturating_mul(width))
                .saturating_sub(1),
            most,
        }))
    }
}

impl Dedup {
    /// Removes some entries from a position on; returns how many, and the next position.
    fn prune(&self, ctx: &SyncCtx<'_>, checksum: u8, cut: Cut, from: u64) -> Result<(u64, u64)> {
        // Taken out, because the lock of the state is not held over I/O.
        let Some(mut table) = self.state().tables.remove(&checksum) else {
            return Ok((0, END));
        };
        let done = table.prune(ctx, cut, from);
        let stays = match &done {
            Ok((gone, _)) if *gone > 0 => table.keep_or_destroy(ctx),
            _ => Ok(true),
        };
        // Also after an error: without its table a reference would count as the last one.
        if !matches!(stays, Ok(false)) {
            self.state().tables.insert(checksum, table);
        }
        stays?;
        self.measure(ctx.pool)?;
        done
    }
}

impl Live {
    fn prune(&mut self, ctx: &SyncCtx<'_>, cut: Cut, from: u64) -> Result<(u64, u64)> {
        let Some(object) = self.stores[UNIQUE].filter(|_| self.flat) else {
            return Ok((0, END));
        };
        let store = Zap::open(&ctx.pool.mos().dnode(object)?)?;
        let (due, next) = self.due_to_go(&store, object, cut, from)?;
        if due.is_empty() {
            return Ok((0, next));
        }
        for (key, entry) in &due {
            store.remove_words(ctx.tx, &key.words())?;
            self.statistics[UNIQUE].take_entry(ctx.pool.io(), key, entry, self.checksum);
        }
        let words = ZapValue::u64s(&self.statistics[UNIQUE].words());
        let name = self.store_name(UNIQUE);
        statistics(ctx)?.update(ctx.tx, name.as_bytes(), &words)?;
        Ok((due.len() as u64, next))
    }

    /// Entries that are old enough, in a part of a store; and the position after that part.
    fn due_to_go(
        &self,
        store: &Zap,
        object: ObjectId,
        cut: Cut,
        from: u64,
    ) -> Result<(Vec<(Key, Entry)>, u64)> {
        let place = format!("MOS, object {} (a dedup table)", object.0);
        let most = usize::try_from(cut.most).map_or(REMOVED, |most| most.min(REMOVED));
        let (mut due, mut cursor) = (Vec::new(), store.cursor(from));
        for _ in 0..LOOKED_AT {
            let Some(found) = cursor.next()? else {
                return Ok((due, END));
            };
            let key = Key::from_words(&found.words())
                .ok_or_else(|| damaged(&place, "a key of a dedup table is not five words"))?;
            let ZapValue::Bytes(raw) = &found.value else {
                return Err(damaged(&place, "an entry of a dedup table is not bytes"));
            };
            let entry = value(raw, true, &place)?;
            let old = entry.first().is_some_and(|s| s.since <= cut.since);
            if old && self.newest(&key).is_none() {
                due.push((key, entry));
            }
            if due.len() >= most {
                break;
            }
        }
        Ok((due, cursor.cookie()))
    }
}
