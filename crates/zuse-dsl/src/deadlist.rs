//! The blocks that a dataset no longer references but its previous snapshot does, sorted by birth.
//!
//! ```text
//!   key 0    ── list of blocks born in (0, 11]
//!   key 11   ── list of blocks born in (11, 19]
//!   key 19   ── list of blocks born after 19
//! ```
//! Keys are the `prev_snap_txg` of the older snapshots, and txgs of bookmarks that count freed
//! space. So a snapshot's own blocks can be found without reading a pointer. On pools older than
//! version 26 a deadlist is one plain list.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse_base::{Error, ObjectId, Result};
use zuse_dmu::Dnode;
use zuse_dmu::zap::{Zap, ZapOptions};
use zuse_format::BlockPointer;
use zuse_format::dsl::DeadlistPhys;
use zuse_format::object_type as ot;

use crate::bpobj::{self, Bpobj};
use crate::context::Ctx;
use crate::meta::Meta;
use crate::sizes::Sizes;
use crate::table::Table;
use crate::version::VERSION_DEADLISTS;

/// An open deadlist.
pub(crate) struct Deadlist<'a> {
    meta: &'a Meta,
    dnode: Arc<Dnode>,
    /// Key → list; `None` for the old form.
    keys: Option<BTreeMap<u64, u64>>,
}

impl<'a> Deadlist<'a> {
    pub fn open(meta: &'a Meta, object: u64) -> Result<Self> {
        let dnode = meta.dnode(object)?;
        let keys = match dnode.object_type() {
            ot::DEADLIST => Some(Table::of(dnode.clone())?.int_map()?),
            // From before an upgrade to version 26: it stays until its snapshot goes (04-dsl §5.1).
            ot::BPOBJ => None,
            _ => return Err(Error::corrupt(dnode.place(), "it is not a deadlist")),
        };
        Ok(Self { meta, dnode, keys })
    }

    /// Totals alone: reads no keys.
    pub fn totals_of(meta: &Meta, object: u64) -> Result<Sizes> {
        if object == 0 {
            return Ok(Sizes::default());
        }
        if let Some(phys) = meta.mos.look_at(ObjectId(object), |view| {
            (view.object_type() == ot::DEADLIST).then(|| DeadlistPhys::parse(view.bonus()).ok())?
        }) {
            return Ok(Sizes::of(phys.used, phys.compressed, phys.uncompressed));
        }
        let dnode = meta.dnode(object)?;
        match dnode.object_type() {
            ot::DEADLIST => {
                let phys = dnode
                    .with_bonus(DeadlistPhys::parse)
                    .map_err(|e| e.at(dnode.place().to_string()))?;
                Ok(Sizes::of(phys.used, phys.compressed, phys.uncompressed))
            }
            ot::BPOBJ => Bpobj::open(&meta.mos, object)?.totals(),
            _ => Err(Error::corrupt(dnode.place(), "it is not a deadlist")),
        }
    }

    /// A new deadlist with these keys, all empty.
    pub fn create(ctx: &Ctx<'a>, keys: &[u64]) -> Result<u64> {
        if ctx.meta.version() < VERSION_DEADLISTS {
            return Bpobj::create(ctx);
        }
        let options = ZapOptions {
            bonus_type: ot::DEADLIST_HDR,
            bonus_len: DeadlistPhys::SIZE as u16,
            ..ZapOptions::default()
        };
        let object = Zap::create(&ctx.meta.mos, ctx.tx, ot::DEADLIST, &options)?
            .dnode()
            .object()
            .0;
        let table = ctx.meta.table(object)?;
        // Two snapshots may have the same key, but each key is one entry.
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        // All begin with the one shared empty list. Otherwise a chain of 10,000 snapshots would
        // create as many objects.
        let mut lists = bpobj::EmptyLists::of(ctx)?;
        for key in keys {
            table.put_u64(ctx.tx, &format!("{key:x}"), lists.take(ctx)?)?;
        }
        lists.note(ctx)?;
        Ok(object)
    }

    /// Whether it is in the old form, without keys.
    pub fn is_flat(&self) -> bool {
        self.keys.is_none()
    }

    pub fn keys(&self) -> Vec<u64> {
        self.keys.iter().flatten().map(|(k, _)| *k).collect()
    }

    pub fn entries(&self) -> Vec<(u64, u64)> {
        self.keys.iter().flatten().map(|(k, o)| (*k, *o)).collect()
    }

    pub fn totals(&self) -> Result<Sizes> {
        Self::totals_of(self.meta, self.dnode.object().0)
    }

    pub(crate) fn add_totals(&self, ctx: &Ctx<'_>, s: Sizes) -> Result<()> {
        let mut phys = self
            .dnode
            .with_bonus(DeadlistPhys::parse)
            .map_err(|e| e.at(self.dnode.place().to_string()))?;
        let old = [phys.used, phys.compressed, phys.uncompressed];
        let new = s.onto(old, || format!("deadlist {}", self.dnode.object().0))?;
        [phys.used, phys.compressed, phys.uncompressed] = new;
        self.dnode.edit_bonus(ctx.tx, |b| phys.write_le(b))?;
        // The metadata cache's copy of this bonus is outdated now.
        self.meta
            .metadata_cache
            .forget_object(self.dnode.object().0);
        Ok(())
    }

    fn table(&self) -> Result<Table> {
        Table::of(self.dnode.clone())
    }

    /// The list of an entry; if it is the shared empty one, a new list replaces it.
    pub(crate) fn own_list(&mut self, ctx: &Ctx<'_>, key: u64) -> Result<Bpobj> {
        let Some(list) = self.keys.as_ref().and_then(|k| k.get(&key)).copied() else {
            return Err(Error::missing(
                self.dnode.place(),
                format!("the deadlist has no key {key:x}"),
            ));
        };
        let list = if bpobj::is_empty_list(ctx, list)? {
            // Before the shared one is released, because its last user frees it.
            let own = Bpobj::create(ctx)?;
            bpobj::drop_if_empty_list(ctx, list)?;
            self.set_key(ctx, key, own)?;
            own
        } else {
            list
        };
        Bpobj::open(&ctx.meta.mos, list)
    }

    pub(crate) fn set_key(&mut self, ctx: &Ctx<'_>, key: u64, list: u64) -> Result<()> {
        self.table()?.put_u64(ctx.tx, &format!("{key:x}"), list)?;
        if let Some(keys) = &mut self.keys {
            keys.insert(key, list);
        }
        Ok(())
    }

    pub(crate) fn forget_key(&mut self, ctx: &Ctx<'_>, key: u64) -> Result<()> {
        self.table()?.remove_int(ctx.tx, key)?;
        if let Some(keys) = &mut self.keys {
            keys.remove(&key);
        }
        Ok(())
    }

    /// Inserts blocks, each into the entry of its birth. Returns their sizes.
    pub fn insert(&mut self, ctx: &Ctx<'_>, blocks: &[BlockPointer]) -> Result<Sizes> {
        if self.is_flat() {
            let total = sizes_of(ctx, blocks);
            Bpobj::open(&ctx.meta.mos, self.dnode.object().0)?.append(ctx.tx, blocks, total)?;
            return Ok(total);
        }
        self.insert_as(ctx, blocks, false)
    }

    /// Notes in a livelist that blocks were freed, each in the entry of its birth.
    pub fn insert_frees(&mut self, ctx: &Ctx<'_>, blocks: &[BlockPointer]) -> Result<()> {
        self.insert_as(ctx, blocks, true).map(drop)
    }

    /// Subtracts blocks that left a livelist. `used` stops at zero: a list that is about to be
    /// freed may already count fewer bytes.
    pub fn lower(&self, ctx: &Ctx<'_>, gone: Sizes) -> Result<()> {
        let have = self.totals()?;
        let less = Sizes {
            used: gone.used.min(have.used),
            ..gone
        };
        self.add_totals(ctx, -less)
    }

    fn insert_as(&mut self, ctx: &Ctx<'_>, blocks: &[BlockPointer], freed: bool) -> Result<Sizes> {
        let mut by_key: BTreeMap<u64, Vec<BlockPointer>> = BTreeMap::new();
        // All keys are found before the first write: a missing key leaves the lists unchanged.
        for bp in blocks {
            by_key
                .entry(self.key_below(bp.allocation_birth())?)
                .or_default()
                .push(*bp);
        }
        let mut total = Sizes::default();
        for (key, blocks) in by_key {
            let sizes = sizes_of(ctx, &blocks);
            let list = self.own_list(ctx, key)?;
            match freed {
                true => list.append_frees(ctx.tx, &blocks, sizes)?,
                false => list.append(ctx.tx, &blocks, sizes)?,
            }
            // Totals of the deadlist are stored in addition to those of the lists: a listing reads
            // one number.
            total += sizes;
        }
        self.add_totals(ctx, if freed { -total } else { total })?;
        Ok(total)
    }

    /// The key of the entry for blocks of a birth.
    fn key_below(&self, birth: u64) -> Result<u64> {
        // Entry K holds births above K and up to the next key (chapter 04 §5).
        let keys = self.keys.iter().flat_map(|keys| keys.range(..birth));
        keys.map(|(key, _)| *key).next_back().ok_or_else(|| {
            Error::missing(
                self.dnode.place(),
                format!("no key of the deadlist is below birth {birth}"),
            )
        })
    }

    /// Merges an entry into the one before it. A missing key is no error.
    pub fn remove_key(&mut self, ctx: &Ctx<'_>, key: u64) -> Result<()> {
        let Some(keys) = &self.keys else {
            return Ok(());
        };
        let Some(list) = keys.get(&key).copied() else {
            return Ok(());
        };
        let Some((lower, _)) = keys.range(..key).next_back().map(|(k, l)| (*k, *l)) else {
            return Err(Error::corrupt(
                self.dnode.place(),
                format!("key {key:x} of the deadlist is the lowest"),
            ));
        };
        // The key first: a list must never be in two entries, or its blocks would be freed twice.
        self.forget_key(ctx, key)?;
        self.join(ctx, lower, list)
    }

    /// Adds a whole list to the entry of a key.
    fn join(&mut self, ctx: &Ctx<'_>, key: u64, list: u64) -> Result<()> {
        // An empty entry takes the list over. Otherwise it becomes a sub-list.
        let target = self.keys.as_ref().and_then(|k| k.get(&key)).copied();
        match target {
            Some(target) if bpobj::is_empty_list(ctx, target)? => {
                bpobj::drop_if_empty_list(ctx, target)?;
                self.set_key(ctx, key, list)
            }
            _ => self.own_list(ctx, key)?.enqueue(ctx, list),
        }
    }

    /// Sizes of the blocks with `low < birth ≤ high`; both must be keys (or `high` the maximum).
    pub fn range(&self, low: u64, high: u64) -> Result<Sizes> {
        let Some(keys) = &self.keys else {
            let mut sum = Sizes::default();
            Bpobj::open(&self.meta.mos, self.dnode.object().0)?.for_each(&mut |bp, _| {
                let birth = bp.allocation_birth();
                if birth > low && birth <= high {
                    sum += Sizes::of_block(&self.meta.io, bp);
                }
                Ok(())
            })?;
            return Ok(sum);
        };
        // A range of the map with reversed ends would panic.
        if low >= high {
            return Ok(Sizes::default());
        }
        // Entry K begins above K: the entry of `low` counts, and that of `high` does not.
        keys.range(low..high)
            .map(|(_, list)| Bpobj::open(&self.meta.mos, *list)?.totals())
            .sum::<Result<Sizes>>()
    }

    /// Moves everything out of another deadlist, which is freed.
    pub fn merge(&mut self, ctx: &Ctx<'_>, mut other: Deadlist<'_>) -> Result<()> {
        if other.is_flat() {
            // A list of the old form has no entries to take over one by one.
            let mut blocks = Vec::new();
            let list = Bpobj::open(&ctx.meta.mos, other.dnode.object().0)?;
            list.for_each(&mut |bp, _| {
                blocks.push(*bp);
                Ok(())
            })?;
            self.insert(ctx, &blocks)?;
            return other.free(ctx);
        }
        // Most entries of a long chain of snapshots are empty: they cost one comparison.
        let mut empty = bpobj::EmptyLists::of(ctx)?;
        let mut sum = Sizes::default();
        for (key, list) in other.entries() {
            // One user less of the shared list.
            if empty.give_back(list) {
                continue;
            }
            let sizes = Bpobj::open(&ctx.meta.mos, list)?.totals()?;
            // At the key or below, because this list may lack keys that the other one has.
            let Some(into) = self
                .keys
                .as_ref()
                .and_then(|k| k.range(..=key).next_back())
                .map(|(k, _)| *k)
            else {
                return Err(Error::missing(
                    self.dnode.place(),
                    format!("no key of the deadlist is at or below {key:x}"),
                ));
            };
            self.join(ctx, into, list)?;
            sum += sizes;
        }
        empty.note(ctx)?;
        self.add_totals(ctx, sum)?;
        // All its lists belong to this deadlist now.
        other.keys = Some(BTreeMap::new());
        other.free(ctx)
    }

    /// Moves all entries from a key on into a list.
    pub fn move_to(&mut self, ctx: &Ctx<'_>, target: u64, low: u64) -> Result<()> {
        let target = Bpobj::open(&ctx.meta.mos, target)?;
        let moved: Vec<(u64, u64)> = self
            .entries()
            .into_iter()
            .filter(|(k, _)| *k >= low)
            .collect();
        for (key, list) in moved {
            let sizes = Bpobj::open(&ctx.meta.mos, list)?.totals()?;
            // Removed here before it is added there: a list in two entries would be freed twice.
            self.forget_key(ctx, key)?;
            target.enqueue(ctx, list)?;
            self.add_totals(ctx, -sizes)?;
        }
        Ok(())
    }

    /// Frees the deadlist, but not the blocks in it.
    pub fn free(self, ctx: &Ctx<'_>) -> Result<()> {
        if self.is_flat() {
            return Bpobj::open(&ctx.meta.mos, self.dnode.object().0)?.free(ctx);
        }
        let mut empty = bpobj::EmptyLists::of(ctx)?;
        for (_, list) in self.entries() {
            if !empty.give_back(list) {
                Bpobj::open(&ctx.meta.mos, list)?.free(ctx)?;
            }
        }
        empty.note(ctx)?;
        // The blocks in it stay: they belong to snapshots that still exist.
        ctx.free(self.dnode.object().0)
    }

    /// All blocks with the key of their entry.
    pub fn for_each(&self, f: &mut dyn FnMut(u64, &BlockPointer) -> Result<()>) -> Result<()> {
        if self.is_flat() {
            return Bpobj::open(&self.meta.mos, self.dnode.object().0)?
                .for_each(&mut |bp, _| f(0, bp));
        }
        for (key, list) in self.entries() {
            Bpobj::open(&self.meta.mos, list)?.for_each(&mut |bp, _| f(key, bp))?;
        }
        Ok(())
    }
}

fn sizes_of(ctx: &Ctx<'_>, blocks: &[BlockPointer]) -> Sizes {
    let size = |bp: &BlockPointer| Sizes::of_block(&ctx.meta.io, bp);
    blocks.iter().map(size).sum()
}

/// The keys that a deadlist of a dataset after snapshot `snap` must have: `prev_snap_txg` of the
/// whole chain.
pub(crate) fn chain_keys(meta: &Meta, snap: u64) -> Result<Vec<u64>> {
    if snap == 0 {
        return Ok(Vec::new());
    }
    let mut at = meta.ds(snap)?;
    let mut keys = vec![at.prev_snap_txg];
    while at.prev_snap != 0 {
        at = meta.older(&at)?;
        keys.push(at.prev_snap_txg);
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}
