//! Blocks of many trees brought into the cache together, level by level.
//!
//! ```text
//!   level 5 of a thousand trees ─► sorted by place, read ─► level 4 of them ─► … ─► level 0
//! ```
//! Whoever then reads the objects one after the other finds everything in the cache. It is a hint throughout: what is wrong
//! is met again, and named, by whoever reads it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use zuse_base::ObjectId;
use zuse_format::block_pointer::BP_SIZE;
use zuse_format::dnode::{DNODE_SLOT, SLOTS_PER_BLOCK};
use zuse_format::{BlockPointer, DnodePhys, ObjsetPhys, ObjsetType};
use zuse_io::{Ahead, Pipeline};

use crate::dirty::Synced;
use crate::dnode::Dnode;
use crate::dnode::blocks::shifted;
use crate::objset::Objset;
use crate::zap::numbers_of;

/// Blocks of one object that are brought along at most.
const BLOCKS: u64 = 64;
/// Fewer blocks are not worth being put in order.
const FEW: u64 = 8;
/// Object sets whose insides are brought in one go: their blocks are within what a [`Ahead`] keeps.
const AT_ONCE: usize = 256;

/// On the way from the top of a tree to one of its blocks.
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
        let roots = &tree.blkptr[..usize::from(tree.head.nblkptr.min(3))];
        Some(Self {
            bp: *roots.get(top)?,
            level,
            blkid,
            shift,
        })
    }

    /// The same one level further down, if its block is at hand now.
    fn down(&self, io: &Pipeline) -> Option<Self> {
        self.step(io.glance(&self.bp)?.bytes())
    }

    /// The same one level further down, its block given.
    fn step(&self, block: &[u8]) -> Option<Self> {
        let level = self.level.checked_sub(1)?;
        let child = shifted(self.blkid, self.shift * u32::from(level)) & ((1 << self.shift) - 1);
        let bp = BlockPointer::at(block, usize::try_from(child).ok()? * BP_SIZE)?;
        (bp.level() == level).then_some(Self { bp, level, ..*self })
    }
}

/// Walks ways to their ends; gives the pointers that stand there.
fn go(gather: &mut Ahead, mut ways: Vec<Way>) {
    while !ways.is_empty() {
        gather.bring(ways.iter().map(|w| w.bp));
        let io = gather.io().clone();
        ways = ways.iter().filter_map(|w| w.down(&io)).collect();
    }
}

impl Objset {
    /// Brings the dnode blocks of objects into the cache.
    pub fn gather_objects(&self, gather: &mut Ahead, objects: impl IntoIterator<Item = u64>) {
        let tree = self.meta_tree();
        let mut blocks: Vec<u64> = objects
            .into_iter()
            .filter(|o| *o != 0)
            .map(|o| o / SLOTS_PER_BLOCK as u64)
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        let way = |blkid: u64| Way::of(&tree, blkid).filter(|_| blkid <= tree.head.max_block);
        go(gather, blocks.into_iter().filter_map(way).collect());
    }

    /// Brings all blocks of an object into the cache, in the order in which they lie on the devices, if these are more than a
    /// few and no more than a small part of what the cache holds, and nobody is changing it. For who is going to read all
    /// of them in an order of its own. Returns when they are there.
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

    /// Brings dnode blocks into the cache in the same way.
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

    /// Brings the blocks of small objects into the cache, and the first ones of large objects.
    pub fn gather_contents(
        self: &Arc<Self>,
        gather: &mut Ahead,
        objects: impl IntoIterator<Item = u64>,
    ) {
        let objects: Vec<u64> = objects.into_iter().filter(|o| *o != 0).collect();
        self.gather_objects(gather, objects.iter().copied());
        let mut ways = Vec::new();
        for object in objects {
            let Ok(dnode) = self.dnode(ObjectId(object)) else {
                continue;
            };
            if let Some(tree) = &dnode.read_state().synced {
                let blocks = 0..=tree.head.max_block.min(BLOCKS - 1);
                ways.extend(blocks.filter_map(|b| Way::of(tree, b)));
            }
        }
        go(gather, ways);
    }
}

/// Kind of an object set and the numbers that stand inside it.
pub type Inside = (ObjsetType, Vec<(String, u64)>);

/// The numbers inside object sets, for those where they can be had in few steps: entries of the master node, of a volume its
/// `size`, in a table of one block; `None` for the others. Nothing of it stays in the cache: a meta dnode of six levels is
/// 640 KiB of zeros.
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
    let heads = gather.look(roots, |_, block| {
        let phys = ObjsetPhys::parse(block).ok()?;
        Some((phys.objset_type, Synced::from_phys(phys.meta_dnode)))
    });
    let ways = heads.iter().map(|h| Way::of(&h.as_ref()?.1, 0)).collect();
    let kinds: Vec<ObjsetType> = heads
        .iter()
        .map(|h| h.as_ref().map_or(ObjsetType::None, |(kind, _)| *kind))
        .collect();
    let of_kind = kinds.clone();
    let nodes = reach(gather, ways, move |i, block| {
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
    let tables = reach(gather, ways, |_, block| numbers_of(block));
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

/// Walks ways down through blocks that are not kept; gives what `f` makes of the blocks at their ends.
fn reach<T: Send + 'static>(
    gather: &mut Ahead,
    ways: Vec<Option<Way>>,
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
        let made = gather.look(&bps, move |n, block| f(*at.get(n)?, block));
        for ((i, _), value) in ends.into_iter().zip(made) {
            out[i] = value;
        }
        let bps: Vec<BlockPointer> = inner.iter().map(|(_, w)| w.bp).collect();
        let steps: Vec<Way> = inner.iter().map(|(_, w)| *w).collect();
        let lower = gather.look(&bps, move |n, block| steps.get(n)?.step(block));
        open = inner
            .into_iter()
            .zip(lower)
            .filter_map(|((i, _), way)| Some((i, way?)))
            .collect();
    }
    out
}
