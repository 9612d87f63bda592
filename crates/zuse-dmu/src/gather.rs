//! Prefetching blocks of many trees together, level by level.
//!
//! ```text
//!   level 5 of a thousand trees ─► sorted by place, read ─► level 4 of them ─► … ─► level 0
//! ```
//! A caller that then reads the objects one after the other finds everything in the cache. It is
//! only a hint: errors are ignored here, and the later read reports them.

use std::ops::RangeInclusive;
use std::sync::Arc;

use zuse_base::ObjectId;
use zuse_format::block_pointer::BP_SIZE;
use zuse_format::dnode::{DNODE_SLOT, SLOTS_PER_BLOCK, scan_block};
use zuse_format::{BlockPointer, DnodePhys, DnodeView, ObjsetPhys, ObjsetType};
use zuse_io::{Ahead, Pipeline};

use crate::dirty::Synced;
use crate::dnode::Dnode;
use crate::dnode::blocks::shifted;
use crate::objset::{Objset, Stored};
use crate::zap::numbers_of;

/// Blocks that are prefetched of one object, at most.
const BLOCKS: u64 = 64;
/// With fewer blocks, sorting is not worth its cost.
const FEW: u64 = 8;
/// Object sets whose contents are prefetched together: their blocks fit into the buffers of
/// [`Ahead`].
const AT_ONCE: usize = 256;

/// A position on the path from the top of a tree to one of its blocks.
#[derive(Clone, Copy)]
struct Way {
    bp: BlockPointer,
    level: u8,
    blkid: u64,
    shift: u32,
}

impl Way {
    fn of(tree: &Synced, blkid: u64) -> Option<Self> {
        let (shift, level) = (tree.fanout_shift(), tree.levels.checked_sub(1)?);
        let top = usize::try_from(shifted(blkid, shift * u32::from(level))).ok()?;
        Some(Self {
            bp: *tree.root(top)?,
            level,
            blkid,
            shift,
        })
    }

    /// The next position down, if its block is cached now.
    fn down(&self, io: &Pipeline) -> Option<Self> {
        self.step(io.peek(&self.bp)?.bytes())
    }

    /// The index of the pointer in its block that the path follows.
    fn child(&self, level: u8) -> u64 {
        shifted(self.blkid, self.shift * u32::from(level)) & ((1 << self.shift) - 1)
    }

    /// How many bytes of its block the path needs.
    fn front(&self) -> usize {
        let child = self.level.checked_sub(1).map(|level| self.child(level));
        child.map_or(usize::MAX, |child| (child as usize + 1) * BP_SIZE)
    }

    /// The next position down, given the block.
    fn step(&self, block: &[u8]) -> Option<Self> {
        let level = self.level.checked_sub(1)?;
        let child = self.child(level);
        let bp = BlockPointer::at(block, usize::try_from(child).ok()? * BP_SIZE)?;
        (bp.level() == level).then_some(Self { bp, level, ..*self })
    }
}

/// Follows paths to their ends. Returns the pointers there.
fn go(gather: &mut Ahead, mut ways: Vec<Way>) {
    while !ways.is_empty() {
        gather.prefetch(ways.iter().map(|w| w.bp));
        let io = gather.io().clone();
        ways = ways.iter().filter_map(|w| w.down(&io)).collect();
    }
}

impl Objset {
    /// Calls `f` on objects and on their neighbours in the same dnode blocks, and skips objects in
    /// memory. The blocks are not kept in the cache. Returns nothing if the objects have changed
    /// meanwhile.
    pub fn look_over<T: Send + 'static>(
        &self,
        gather: &mut Ahead,
        objects: impl IntoIterator<Item = u64>,
        f: impl Fn(&DnodeView<'_>) -> Option<T> + Send + Sync + 'static,
    ) -> Vec<(u64, T)> {
        let tree = self.meta_tree();
        let mut ways = self.ways_to(&tree, objects);
        while ways.iter().any(|w| w.level > 0) {
            gather.prefetch(ways.iter().filter(|w| w.level > 0).map(|w| w.bp));
            let io = gather.io().clone();
            let down = |w: &Way| if w.level > 0 { w.down(&io) } else { Some(*w) };
            ways = ways.iter().filter_map(down).collect();
        }
        let bps: Vec<BlockPointer> = ways.iter().map(|w| w.bp).collect();
        let found = gather.look(&bps, whole, move |_, block| {
            let all = scan_block(block).filter_map(|(slot, dnode)| Some((slot, f(&dnode.ok()?)?)));
            Some(all.collect::<Vec<_>>())
        });
        let mut out = Vec::new();
        for (way, some) in ways.iter().zip(found) {
            let first = way.blkid * SLOTS_PER_BLOCK as u64;
            let some = some.into_iter().flatten();
            let named = some.map(|(slot, value)| (first + slot as u64, value));
            out.extend(named.filter(|(object, _)| !self.is_in_memory(ObjectId(*object))));
        }
        if self.is_meta_tree(&tree) {
            out
        } else {
            Vec::new()
        }
    }

    /// The paths to the dnode blocks of objects, each once.
    fn ways_to(&self, tree: &Synced, objects: impl IntoIterator<Item = u64>) -> Vec<Way> {
        let mut blocks: Vec<u64> = objects
            .into_iter()
            .filter(|o| *o != 0)
            .map(|o| o / SLOTS_PER_BLOCK as u64)
            .filter(|blkid| *blkid <= tree.head.max_block)
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        let way = |blkid: u64| Way::of(tree, blkid);
        blocks.into_iter().filter_map(way).collect()
    }

    /// Prefetches the dnode blocks of objects.
    pub fn gather_objects(&self, gather: &mut Ahead, objects: impl IntoIterator<Item = u64>) {
        let tree = self.meta_tree();
        go(gather, self.ways_to(&tree, objects));
    }

    /// Prefetches all blocks of an object, in device order. Only if there are more than a few, they
    /// take a small part of the cache, and no thread is changing the object. For a caller that will
    /// read all of them in another order. Returns when they are cached.
    pub fn gather_whole(&self, dnode: &Dnode) {
        if dnode.newest_dirty().is_some() {
            return;
        }
        let tree = dnode.read_state().synced.clone();
        if let Some(tree) = tree {
            self.gather_range(
                &tree,
                0..=tree.head.max_block,
                self.io().cache().stats().limit / 8,
            );
        }
    }

    /// Prefetches dnode blocks in the same way.
    pub(crate) fn gather_dnode_blocks(&self, tree: &Synced, blocks: RangeInclusive<u64>) {
        self.gather_range(tree, blocks, self.io().cache().stats().limit / 4);
    }

    fn gather_range(&self, tree: &Synced, blocks: RangeInclusive<u64>, most: usize) {
        let count = blocks.end().saturating_sub(*blocks.start());
        let bytes = count.saturating_mul(u64::from(tree.head.block_size));
        if count < FEW || bytes > most as u64 || !self.keeps_metadata() {
            return;
        }
        let mut gather = Ahead::new(self.io(), self.work());
        go(
            &mut gather,
            blocks.filter_map(|b| Way::of(tree, b)).collect(),
        );
    }

    /// Prefetches the first blocks of directory listings. Returns the objects, as
    /// [`Self::gather_contents`] does.
    pub fn gather_listings(self: &Arc<Self>, dirs: Vec<u64>) -> Vec<Arc<Dnode>> {
        self.gather_contents(&mut Ahead::new(self.io(), self.work()), dirs)
    }

    /// Prefetches the spill blocks of objects. Returns the objects, as [`Self::gather_contents`]
    /// does.
    pub fn gather_spills(
        self: &Arc<Self>,
        gather: &mut Ahead,
        objects: impl IntoIterator<Item = u64> + Clone,
    ) -> Vec<Arc<Dnode>> {
        self.gather_objects(gather, objects.clone());
        let held: Vec<Arc<Dnode>> = objects
            .into_iter()
            .filter_map(|object| self.dnode(ObjectId(object)).ok())
            .collect();
        gather.prefetch(held.iter().filter_map(|dnode| dnode.spill_pointer()));
        held
    }

    /// Prefetches the dnode blocks of objects, and calls `show` on each stored object, without
    /// creating it in memory. A concurrent lookup of such an object is not affected. Returns the
    /// objects that `show` rejected, and those that are in memory or cannot be read.
    pub fn gather_stored(
        &self,
        gather: &mut Ahead,
        mut objects: Vec<u64>,
        mut show: impl FnMut(&Stored<'_>) -> Option<()>,
    ) -> Vec<u64> {
        self.gather_objects(gather, objects.iter().copied());
        objects.retain(|object| {
            let stored = self.stored_uncached(ObjectId(*object));
            *object != 0 && stored.and_then(|stored| show(&stored)).is_none()
        });
        objects
    }

    /// Prefetches the blocks of small objects, and the first ones of large objects. Returns the
    /// objects: while the caller holds them, they need not be loaded again.
    pub fn gather_contents(
        self: &Arc<Self>,
        gather: &mut Ahead,
        objects: impl IntoIterator<Item = u64>,
    ) -> Vec<Arc<Dnode>> {
        let objects: Vec<u64> = objects.into_iter().filter(|o| *o != 0).collect();
        self.gather_objects(gather, objects.iter().copied());
        let (mut ways, mut held) = (Vec::new(), Vec::with_capacity(objects.len()));
        for object in objects {
            let Ok(dnode) = self.dnode(ObjectId(object)) else {
                continue;
            };
            if let Some(tree) = &dnode.read_state().synced {
                let blocks = 0..=tree.head.max_block.min(BLOCKS - 1);
                ways.extend(blocks.filter_map(|b| Way::of(tree, b)));
            }
            held.push(dnode);
        }
        go(gather, ways);
        held
    }
}

/// Kind of an object set, and the numbers stored inside it.
pub type Inside = (ObjsetType, Vec<(String, u64)>);

/// Reads numbers inside object sets, where few steps suffice. They are entries of the master node
/// or, for a volume, its `size`, in a ZAP of one block. `None` for other object sets. Nothing is
/// kept in the cache: a meta dnode of six levels is 640 KiB of zeros.
pub fn look_inside(gather: &mut Ahead, roots: &[BlockPointer]) -> Vec<Option<Inside>> {
    let mut order: Vec<usize> = (0..roots.len()).collect();
    order.sort_unstable_by_key(|i| (roots[*i].dva(0).vdev(), roots[*i].dva(0).offset()));
    let mut out: Vec<Option<Inside>> = roots.iter().map(|_| None).collect();
    for some in order.chunks(AT_ONCE) {
        let roots: Vec<BlockPointer> = some.iter().map(|i| roots[*i]).collect();
        for (i, found) in some.iter().zip(look_inside_some(gather, &roots)) {
            out[*i] = found;
        }
    }
    out
}

fn look_inside_some(gather: &mut Ahead, roots: &[BlockPointer]) -> Vec<Option<Inside>> {
    let heads = gather.look(roots, whole, |_, block| {
        let phys = ObjsetPhys::parse(block).ok()?;
        Some((phys.objset_type, Synced::from_phys(phys.meta_dnode)))
    });
    let ways = heads.iter().map(|h| Way::of(&h.as_ref()?.1, 0)).collect();
    let kinds: Vec<ObjsetType> = heads
        .iter()
        .map(|h| h.as_ref().map_or(ObjsetType::None, |(kind, _)| *kind))
        .collect();
    let of_kind = kinds.clone();
    let nodes = reach(gather, ways, first_nodes, move |i, block| {
        let dnode = |object: usize| DnodePhys::parse(block.get(object * DNODE_SLOT..)?).ok()?;
        let volume = *of_kind.get(i)? == ObjsetType::Zvol;
        let tree = Synced::from_phys(dnode(if volume { 2 } else { 1 })?);
        let data = if volume {
            dnode(1)?.data_block_size()
        } else {
            0
        };
        (tree.head.max_block == 0).then_some((tree, data))
    });
    let ways = nodes.iter().map(|n| Way::of(&n.as_ref()?.0, 0)).collect();
    let tables = reach(gather, ways, whole, |_, block| numbers_of(block));
    let all = kinds.into_iter().zip(nodes).zip(tables);
    all.map(|((kind, node), table)| {
        let mut numbers = table?;
        let (_, data) = node?;
        if kind == ObjsetType::Zvol {
            numbers.push(("volblocksize".into(), data));
        }
        Some((kind, numbers))
    })
    .collect()
}

/// All bytes of a block are wanted.
fn whole(_: usize) -> usize {
    usize::MAX
}

/// Only objects 1 and 2 are needed, of one slot each.
fn first_nodes(_: usize) -> usize {
    3 * DNODE_SLOT
}

/// Follows paths down through blocks that are not kept. Returns the results of `f` on the blocks at
/// their ends. `front` says how many of their first bytes `f` needs.
fn reach<T: Send + 'static>(
    gather: &mut Ahead,
    ways: Vec<Option<Way>>,
    front: fn(usize) -> usize,
    f: impl Fn(usize, &[u8]) -> Option<T> + Clone + Send + Sync + 'static,
) -> Vec<Option<T>> {
    let mut out: Vec<Option<T>> = ways.iter().map(|_| None).collect();
    let mut open: Vec<(usize, Way)> = ways
        .into_iter()
        .enumerate()
        .filter_map(|(i, way)| Some((i, way?)))
        .collect();
    while !open.is_empty() {
        let (ends, inner): (Vec<_>, Vec<_>) = open.into_iter().partition(|(_, w)| w.level == 0);
        let bps: Vec<BlockPointer> = ends.iter().map(|(_, w)| w.bp).collect();
        let (at, f) = (ends.iter().map(|(i, _)| *i).collect::<Vec<_>>(), f.clone());
        let made = gather.look(&bps, front, move |n, block| f(*at.get(n)?, block));
        for ((i, _), value) in ends.into_iter().zip(made) {
            out[i] = value;
        }
        let bps: Vec<BlockPointer> = inner.iter().map(|(_, w)| w.bp).collect();
        let steps: Vec<Way> = inner.iter().map(|(_, w)| *w).collect();
        let ends: Vec<usize> = inner.iter().map(|(_, w)| w.front()).collect();
        let front_of = move |n: usize| ends.get(n).copied().unwrap_or(usize::MAX);
        let lower = gather.look(&bps, front_of, move |n, block| steps.get(n)?.step(block));
        open = inner
            .into_iter()
            .zip(lower)
            .filter_map(|((i, _), way)| Some((i, way?)))
            .collect();
    }
    out
}
