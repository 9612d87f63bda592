//! Writing the dedup changes of a txg into the MOS: the old form at once, the new one through its
//! log. Stores and directories are created when needed, and removed when the table is empty.

use std::sync::Arc;

use zuse_base::{ObjectId, Result};
use zuse_codec::ChecksumKind;
use zuse_dmu::Objset;
use zuse_dmu::zap::{Zap, ZapFlags, ZapOptions, ZapValue};
use zuse_format::object_type;

use super::live::{Dedup, FAST, Known, Live, Logged};
use super::log::Logs;
use super::{CLASSES, Entry, Key, form};
use crate::SyncCtx;

/// Name of the histograms in the MOS directory.
const STATISTICS: &[u8] = b"DDT-statistics";
/// Version and flags of a directory: entries of the new form, and a log.
const VERSION: u64 = 1;
const FLAGS: u64 = 3;
/// Classes by how many pointers there are.
const DUPLICATE: usize = 1;
pub(super) const UNIQUE: usize = 2;

impl Dedup {
    /// Writes changes into the MOS. After everything that frees blocks of files, and before the
    /// tables of clones and the space maps, because blocks are freed here.
    pub fn sync(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        let due: Vec<u8> = {
            let state = self.state();
            let due = state.tables.iter().filter(|(_, t)| t.is_due());
            due.map(|(checksum, _)| *checksum).collect()
        };
        for checksum in &due {
            // Taken out, because the lock of the state is not held over I/O.
            let Some(mut table) = self.state().tables.remove(checksum) else {
                continue;
            };
            if table.sync(ctx)? {
                self.state().tables.insert(*checksum, table);
            }
        }
        if due.is_empty() {
            return Ok(());
        }
        self.measure(ctx.pool)
    }
}

fn open(mos: &Arc<Objset>, object: ObjectId) -> Result<Zap> {
    Zap::open(&mos.dnode(object)?)
}

/// The histograms of the pool; created with its first table.
pub(super) fn statistics(ctx: &SyncCtx<'_>) -> Result<Zap> {
    let directory = ctx.pool.directory()?;
    if let Some(object) = directory.lookup_u64(STATISTICS)? {
        return open(ctx.pool.mos(), ObjectId(object));
    }
    let (mos, kind) = (ctx.pool.mos(), object_type::DDT_STATS);
    let zap = Zap::create(mos, ctx.tx, kind, &ZapOptions::default())?;
    directory.add_u64(ctx.tx, STATISTICS, zap.dnode().object().0)?;
    Ok(zap)
}

/// Frees the blocks of an entry without references, and removes them from it.
fn free_unused(ctx: &SyncCtx<'_>, key: &Key, checksum: u8, entry: &mut Entry) -> Result<()> {
    for unused in entry.extract_if(.., |shared| shared.references == 0) {
        let mut bp = unused.pointer(key, checksum);
        // As an ordinary block: with the bit, the free would look for this entry again.
        bp.set_dedup(false);
        ctx.pool.io().free(ctx.txg, &bp)?;
    }
    Ok(())
}

impl Live {
    fn is_due(&self) -> bool {
        !self.changed.is_empty() || self.logs.as_ref().is_some_and(|logs| logs.bytes() > 0)
    }

    pub(super) fn store_name(&self, class: usize) -> String {
        format!("DDT-{}-zap-{}", self.name, CLASSES[class])
    }

    /// The directory with the names of the table's objects.
    fn directory(&self, ctx: &SyncCtx<'_>) -> Result<Zap> {
        match self.root.filter(|_| self.flat) {
            Some(root) => open(ctx.pool.mos(), root),
            None => ctx.pool.directory(),
        }
    }

    /// False: the table is empty, and gone.
    fn sync(&mut self, ctx: &SyncCtx<'_>) -> Result<bool> {
        self.make_directory(ctx)?;
        let changed = std::mem::take(&mut self.changed);
        let before = self.statistics.clone();
        if self.flat {
            let appended = self.log(ctx, changed)?;
            self.flush(ctx, appended)?;
        } else {
            for (key, known) in changed {
                self.apply(ctx, &key, known)?;
            }
        }
        let stays = self.keep_or_destroy(ctx)?;
        let statistics = statistics(ctx)?;
        for (class, old) in before.iter().enumerate() {
            if self.stores[class].is_some() && self.statistics[class] != *old {
                let words = self.statistics[class].words();
                let name = self.store_name(class);
                statistics.update(ctx.tx, name.as_bytes(), &ZapValue::u64s(&words))?;
            }
        }
        Ok(stays)
    }

    fn make_directory(&mut self, ctx: &SyncCtx<'_>) -> Result<()> {
        if self.root.is_some() {
            return Ok(());
        }
        statistics(ctx)?;
        let names = ctx.pool.directory()?;
        if !self.flat {
            self.root = Some(names.dnode().object());
            return Ok(());
        }
        ctx.pool.features().add(ctx, FAST, 1)?;
        let kind = object_type::ZAP_METADATA;
        let zap = Zap::create(ctx.pool.mos(), ctx.tx, kind, &ZapOptions::default())?;
        zap.add_u64(ctx.tx, b"version", VERSION)?;
        zap.add_u64(ctx.tx, b"flags", FLAGS)?;
        let root = zap.dnode().object();
        names.add_u64(ctx.tx, format!("DDT-{}", self.name).as_bytes(), root.0)?;
        self.root = Some(root);
        Ok(())
    }

    /// Appends to the active log; returns the number of entries.
    fn log(
        &mut self,
        ctx: &SyncCtx<'_>,
        changed: std::collections::BTreeMap<Key, Known>,
    ) -> Result<usize> {
        if changed.is_empty() {
            return Ok(0);
        }
        if self.logs.is_none() {
            self.logs = Some(Logs::create(ctx, &self.directory(ctx)?, self.name)?);
        }
        let Some(logs) = &mut self.logs else {
            return Ok(0);
        };
        let (io, checksum) = (ctx.pool.io(), self.checksum);
        let now = ctx.pool.env.clock.now().unsigned_secs();
        let mut entries = Vec::with_capacity(changed.len());
        for (key, known) in changed {
            let Known {
                class,
                counted,
                now: mut entry,
            } = known;
            // From now on the log's statistics count it, not those of the store.
            if let (Some(class), Some(old)) = (class, counted) {
                self.statistics[class].take_entry(io, &key, &old, checksum);
            }
            if let Some(old) = logs.take(&key) {
                self.logged.take_entry(io, &key, &old.entry, checksum);
            }
            free_unused(ctx, &key, checksum, &mut entry)?;
            entry.iter_mut().for_each(|shared| shared.since = now);
            self.logged.add_entry(io, &key, &entry, checksum);
            entries.push((key, Logged { class, entry }));
        }
        let appended = entries.len();
        logs.append(ctx, entries)?;
        Ok(appended)
    }

    /// Moves a part of the flushing log into the stores.
    fn flush(&mut self, ctx: &SyncCtx<'_>, appended: usize) -> Result<()> {
        let due = match &mut self.logs {
            Some(logs) => logs.due(appended),
            None => return Ok(()),
        };
        let last = due.last().map(|(key, _)| *key);
        for (key, Logged { class, entry }) in due {
            let (io, checksum) = (ctx.pool.io(), self.checksum);
            self.logged.take_entry(io, &key, &entry, checksum);
            let known = Known {
                class,
                counted: None,
                now: entry,
            };
            self.apply(ctx, &key, known)?;
        }
        match &mut self.logs {
            Some(logs) => logs.flushed(ctx, last),
            None => Ok(()),
        }
    }

    /// Moves an entry into the stores, and frees its blocks without references.
    fn apply(&mut self, ctx: &SyncCtx<'_>, key: &Key, known: Known) -> Result<()> {
        let (mos, io) = (ctx.pool.mos(), ctx.pool.io());
        let mut kept = known.now;
        if !self.flat {
            // Copies of an obsolete kind, without references.
            let obsolete = kept.iter_mut().filter(|shared| shared.slot == 0);
            obsolete.for_each(|shared| shared.references = 0);
        }
        free_unused(ctx, key, self.checksum, &mut kept)?;
        let pointers = kept.iter().map(|s| s.references);
        let class = match pointers.fold(0, u64::saturating_add) {
            0 => None,
            1 => Some(UNIQUE),
            _ => Some(DUPLICATE),
        };
        if let (Some(old), Some(entry)) = (known.class, &known.counted) {
            self.statistics[old].take_entry(io, key, entry, self.checksum);
        }
        // A key is in one store only.
        if let Some(old) = known.class.filter(|old| Some(*old) != class)
            && let Some(store) = self.stores[old]
        {
            open(mos, store)?.remove_words(ctx.tx, &key.words())?;
        }
        if let Some(class) = class {
            let store = open(mos, self.store(ctx, class)?)?;
            let value = ZapValue::Bytes(form::value_of(&kept, self.flat));
            store.update_words(ctx.tx, &key.words(), &value)?;
            self.statistics[class].add_entry(io, key, &kept, self.checksum);
        }
        Ok(())
    }

    /// The store of a class, created if missing.
    fn store(&mut self, ctx: &SyncCtx<'_>, class: usize) -> Result<ObjectId> {
        if let Some(object) = self.stores[class] {
            return Ok(object);
        }
        // The words of a strong checksum serve as their own hash (04b §1.3).
        let strong =
            ChecksumKind::from_u8(self.checksum).is_some_and(ChecksumKind::is_dedup_capable);
        let options = ZapOptions {
            flags: ZapFlags {
                hash64: true,
                uint64_key: true,
                prehashed: strong,
            },
            block_shift: 15,
            indirect_shift: 15,
            ..ZapOptions::default()
        };
        let store = Zap::create(ctx.pool.mos(), ctx.tx, object_type::DDT_ZAP, &options)?;
        let object = store.dnode().object();
        let name = self.store_name(class);
        self.directory(ctx)?
            .add_u64(ctx.tx, name.as_bytes(), object.0)?;
        self.stores[class] = Some(object);
        Ok(object)
    }

    /// Destroys unused objects. Empty stores stay as long as another one has entries.
    pub(super) fn keep_or_destroy(&mut self, ctx: &SyncCtx<'_>) -> Result<bool> {
        let mos = ctx.pool.mos();
        for store in self.stores.iter().flatten() {
            if open(mos, *store)?.count()? > 0 {
                return Ok(true);
            }
        }
        let (names, statistics) = (self.directory(ctx)?, statistics(ctx)?);
        for class in 0..CLASSES.len() {
            let Some(store) = self.stores[class].take() else {
                continue;
            };
            let name = self.store_name(class);
            mos.free(ctx.tx, store)?;
            names.remove(ctx.tx, name.as_bytes())?;
            if statistics.lookup(name.as_bytes())?.is_some() {
                statistics.remove(ctx.tx, name.as_bytes())?;
            }
            self.statistics[class] = Default::default();
        }
        // The directory still names logs with entries.
        if self.logs.as_ref().is_some_and(|logs| !logs.is_empty()) {
            return Ok(true);
        }
        let Some(root) = self.root.take().filter(|_| self.flat) else {
            return Ok(false);
        };
        if let Some(logs) = self.logs.take() {
            logs.destroy(ctx, &names, self.name)?;
        }
        mos.free(ctx.tx, root)?;
        let name = format!("DDT-{}", self.name);
        ctx.pool.directory()?.remove(ctx.tx, name.as_bytes())?;
        ctx.pool.features().add(ctx, FAST, -1)?;
        Ok(false)
    }
}
