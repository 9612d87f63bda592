//! Prefetching for listings: whole tree levels in disk order, instead of one object after the
//! other.
//!
//! ```text
//!   directories of a level ─► their child maps, property tables ─► … next level
//!   heads ─► tables of snapshots ─► snapshots ─► deadlists, object sets
//! ```
//! Blocks go into the block cache, the numbers inside object sets into the metadata cache. Errors
//! are ignored here: the listing reads these blocks again and reports the errors.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use zuse_base::sync::Mutex;

use zuse_base::{Error, Result};
use zuse_dmu::{Ahead, Dnode, look_inside};
use zuse_format::dsl::{DeadlistPhys, DslDatasetPhys, DslDirPhys, UsedKind};
use zuse_format::object_type as ot;
use zuse_format::{BlockPointer, ObjsetType};

use crate::context::{Ctx, Dsl};
use crate::listing::ListedKinds;
use crate::meta::{Meta, is_public};
use crate::metadata_cache::{DATASETS_MAX, Listed, Root, RootKey};
use crate::name::split_snapshot;
use crate::receive::TEMPORARY;
use crate::sizes::Sizes;

/// Data that a listing needs of its entries, besides their own objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Stored properties, and other data of directories and heads.
    pub properties: bool,
    /// Data inside object sets.
    pub inside: bool,
    /// Bytes written since the snapshot before.
    pub written: bool,
}

impl Needs {
    /// All of it.
    pub const ALL: Self = Self {
        properties: true,
        inside: true,
        written: true,
    };
}

/// Heads or snapshots in the first chunk that is gathered before a change. Until then nothing else
/// runs.
const CHANGED_FIRST: usize = 256;
/// The largest such chunk. Items come in the order of their names, so each chunk reads all over the
/// MOS. With small chunks almost everything was read again and again: forty times for 10,000
/// items.
const CHANGED_AT_ONCE: usize = 2048;
/// Cache that one of them needs, in bytes, with everything that it reads.
const BYTES_OF_ONE: usize = 32 * 1024;
/// Batches of listed items that are kept at most.
const MOST_CHUNKS: usize = 1024;
/// Items of a sync task whose objects stay in memory from its check to its change. Most of them
/// will be changed, and then stay in memory until the task ends anyway.
const HELD_ITEMS: usize = 16_384;
/// Heads that are read in one chunk.
pub(crate) const HEADS_AT_ONCE: usize = 1024;
/// Snapshots of different heads that are read in one chunk: as many as the metadata cache holds.
const SNAPSHOTS_AT_ONCE: usize = DATASETS_MAX / 4;
/// Directories in a walk, at most: more means that a damaged tree has a cycle.
const MOST: usize = 10_000_000;

/// Data that is collected about an object in passing.
enum Learned {
    Dataset(Box<Listed>),
    Deadlist(Sizes),
}

/// A directory that a walk found.
pub(crate) struct FoundDir {
    /// Levels below where the walk began.
    pub below: usize,
    pub name: String,
    pub head: u64,
    /// Bytes that are charged here and only reserved.
    pub reserved: u64,
    /// Directory of a partial receive in it, 0 for none.
    pub half_received: u64,
}

struct Node {
    name: String,
    below: usize,
    phys: DslDirPhys,
    half_received: u64,
    children: Vec<usize>,
}

impl Dsl {
    /// The prefetcher for a listing; `None` if the metadata cache is off.
    pub(crate) fn gatherer(&self) -> Result<Option<Ahead>> {
        let spa = self.spa()?;
        let on = !self.metadata_cache.is_off();
        Ok(on.then(|| Ahead::new(spa.io(), spa.work())))
    }

    /// A directory and those below it, down to `depth` levels: parents before children, children by
    /// name.
    pub(crate) fn tree_below(
        &self,
        name: &str,
        dir: u64,
        depth: Option<usize>,
        needs: Needs,
        gather: &mut Option<Ahead>,
    ) -> Result<Vec<FoundDir>> {
        let meta = self.meta()?;
        let mut nodes: Vec<Node> = Vec::new();
        // Name, parent and object of the directories of a level.
        let mut level = vec![(name.to_owned(), None, dir)];
        let mut below = 0;
        while !level.is_empty() {
            if nodes.len() + level.len() > MOST {
                return Err(Error::endless(name, "directories without end"));
            }
            if let Some(gather) = gather {
                gather_dirs(meta, gather, level.iter().map(|(.., dir)| *dir), needs);
            }
            let mut next = Vec::new();
            for (name, parent, dir) in level {
                let (at, phys) = (nodes.len(), meta.dir(dir)?);
                if let Some(parent) = parent
                    && let Some(parent) = nodes.get_mut::<usize>(parent)
                {
                    parent.children.push(at);
                }
                let mut half_received = 0;
                if depth.is_none_or(|d| below < d) {
                    for (child, object) in meta.children(&phys)? {
                        if is_public(&child) {
                            next.push((format!("{name}/{child}"), Some(at), object));
                        } else if child == TEMPORARY {
                            half_received = object;
                        }
                    }
                }
                nodes.push(Node {
                    name,
                    below,
                    phys,
                    half_received,
                    children: Vec::new(),
                });
            }
            level = next;
            below += 1;
        }
        Ok(in_order(nodes))
    }

    /// Collects the bonuses of datasets and deadlists, whose blocks are not kept.
    pub(crate) fn learn(&self, gather: &mut Ahead, objects: Vec<u64>) -> Result<()> {
        if objects.is_empty() {
            return Ok(());
        }
        let before = self.metadata_cache.changes();
        let found = self.meta()?.mos.look_over(gather, objects, |dnode| {
            match (dnode.bonus_type(), dnode.object_type()) {
                (ot::DSL_DATASET, _) => {
                    let phys = DslDatasetPhys::parse(dnode.bonus()).ok()?;
                    let extended = dnode.object_type() != ot::DSL_DATASET;
                    Some(Learned::Dataset(Box::new(Listed { phys, extended })))
                }
                (_, ot::DEADLIST) => {
                    let p = DeadlistPhys::parse(dnode.bonus()).ok()?;
                    let sizes = Sizes::of(p.used, p.compressed, p.uncompressed);
                    Some(Learned::Deadlist(sizes))
                }
                _ => None,
            }
        });
        let (mut datasets, mut deadlists) = (Vec::new(), Vec::new());
        for (object, learned) in found {
            match learned {
                Learned::Dataset(listed) => datasets.push((object, *listed)),
                Learned::Deadlist(sizes) => deadlists.push((object, sizes)),
            }
        }
        self.metadata_cache
            .note_objects(before, datasets, deadlists);
        Ok(())
    }

    /// Prefetches the data for a listing of these heads; returns for how many of them.
    pub(crate) fn gather_heads(
        &self,
        gather: &mut Ahead,
        heads: &[u64],
        which: ListedKinds,
        needs: Needs,
    ) -> Result<usize> {
        let meta = self.meta()?;
        let mos = &meta.mos;
        gather.allow_as_much_again();
        self.learn(
            gather,
            self.metadata_cache.unknown_datasets(heads.iter().copied()),
        )?;
        let listed = |object: &u64| meta.listed_ds(*object).ok();
        let mut heads = heads;
        let mut all: Vec<DslDatasetPhys> = heads.iter().filter_map(listed).collect();
        if which.snapshots {
            let tables = all.iter().map(|p| p.snapnames).filter(|o| *o != 0);
            mos.gather_contents(gather, tables);
            let mut snapshots = Vec::new();
            let mut enough = 0;
            for head in heads {
                let table = listed(head).map_or(0, |p| p.snapnames);
                if table != 0
                    && let Ok(names) = meta.table(table).and_then(|t| t.numbers())
                {
                    if enough > 0 && snapshots.len() + names.len() > SNAPSHOTS_AT_ONCE {
                        break;
                    }
                    snapshots.extend(names.into_iter().map(|(_, object)| object));
                }
                enough += 1;
            }
            heads = &heads[..enough];
            all.truncate(enough);
            self.learn(
                gather,
                self.metadata_cache
                    .unknown_datasets(snapshots.iter().copied()),
            )?;
            if needs != Needs::default() {
                all.extend(snapshots.iter().filter_map(listed));
            }
        }
        if which.bookmarks {
            mos.gather_contents(gather, heads.iter().copied());
        }
        if needs.written {
            let lists = all.iter().map(|p| p.deadlist).filter(|o| *o != 0);
            self.learn(gather, self.metadata_cache.unknown_deadlists(lists))?;
        }
        if needs.properties {
            mos.gather_contents(gather, all.iter().map(|p| p.props));
        }
        if needs.inside || which.filesystems || which.volumes {
            self.gather_roots(&all, needs.inside)?;
        }
        Ok(heads.len())
    }

    /// Collects the types of object sets, and the numbers inside them.
    fn gather_roots(&self, all: &[DslDatasetPhys], inside: bool) -> Result<()> {
        let mut seen = HashSet::new();
        let unknown = |key: &RootKey| match self.metadata_cache.known_root(key) {
            Some(root) => inside && root.inside.get().is_none(),
            None => true,
        };
        let roots: Vec<BlockPointer> = all
            .iter()
            .map(|p| p.bp)
            .filter(|bp| !bp.is_hole() && !bp.uses_crypt())
            .filter(|bp| seen.insert(root_key(bp)) && unknown(&root_key(bp)))
            .collect();
        if roots.is_empty() {
            return Ok(());
        }
        let spa = self.spa()?;
        let mut gather = Ahead::new(spa.io(), spa.work());
        if !inside {
            let at = zuse_format::objset::OBJSET_TYPE_AT;
            let kinds = gather.look(
                &roots,
                move |_| at + 8,
                move |_, block| ObjsetType::from_number(zuse_format::field::u64_at(block, at)),
            );
            for (bp, kind) in roots.iter().zip(kinds) {
                if let Some(kind) = kind {
                    self.metadata_cache.note_root(root_key(bp), Root::of(kind));
                }
            }
            return Ok(());
        }
        let mut gather = gather.reaching_down();
        for (bp, found) in roots.iter().zip(look_inside(&mut gather, &roots)) {
            if let Some((kind, numbers)) = found {
                let root = Root::of(kind);
                let numbers = crate::listing::named_numbers(kind == ObjsetType::Zvol, numbers);
                let _ = root.inside.set(Arc::new(numbers));
                self.metadata_cache.note_root(root_key(bp), root);
            }
        }
        Ok(())
    }
}

/// Objects that were prefetched together, held in memory.
#[derive(Default)]
pub(crate) struct Held(Vec<Arc<Dnode>>);

/// A slot by which the check of a sync task hands data to its change.
type HandedOn<T> = Arc<Mutex<Option<T>>>;

/// Such a slot, for both sides.
pub(crate) fn handed_on<T>() -> (HandedOn<T>, HandedOn<T>) {
    let place = HandedOn::default();
    (place.clone(), place)
}

/// Objects that another thread is prefetching together.
struct OnTheWay(Option<JoinHandle<Vec<Arc<Dnode>>>>);

impl OnTheWay {
    /// Waits for them. Only a hint: if it failed, nothing was prefetched.
    fn wait(mut self) -> Vec<Arc<Dnode>> {
        let thread = self.0.take();
        thread.map_or_else(Vec::new, |t| t.join().unwrap_or_default())
    }
}

/// Waits for the thread: it must not read the MOS any more when the MOS is written.
impl Drop for OnTheWay {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// Lengths of chunks: doubling each time, up to `most`.
fn lengths(most: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(CHANGED_FIRST), move |n| {
        Some((n * 2).min(most.max(*n)))
    })
}

/// Splits items into chunks of those lengths.
fn in_chunks<T>(mut items: &[T], most: usize) -> impl Iterator<Item = &[T]> {
    lengths(most).map_while(move |n| {
        let (some, rest) = items.split_at(n.min(items.len()));
        items = rest;
        (!some.is_empty()).then_some(some)
    })
}

/// A chunk of items, and the next one.
struct Chunk {
    objects: Vec<u64>,
    /// The next chunk of the same list, if there is one.
    next: Option<usize>,
    on_the_way: Option<OnTheWay>,
}

/// Items that were listed inside a sync task, and will probably be changed in that order. When the
/// first item of a chunk is named, the objects of the chunk are prefetched together. Meanwhile
/// another thread prefetches those of the next chunk.
#[derive(Default)]
pub(crate) struct Upcoming {
    /// Batches by the name of their first item.
    first: HashMap<String, usize>,
    chunks: Vec<Chunk>,
    /// The last prefetched objects.
    held: Vec<Arc<Dnode>>,
}

impl Upcoming {
    /// Notes the items that were listed below a name.
    pub fn note(&mut self, ctx: &Ctx<'_>, above: &str, sign: char, names: &[(String, u64)]) {
        if names.len() < 2 || self.chunks.len() > MOST_CHUNKS {
            return;
        }
        let mut chunks = in_chunks(names, ctx.changed_at_once()).peekable();
        while let Some(some) = chunks.next() {
            let at = self.chunks.len();
            self.first.insert(format!("{above}{sign}{}", some[0].0), at);
            self.chunks.push(Chunk {
                objects: some.iter().map(|(_, object)| *object).collect(),
                next: chunks.peek().map(|_| at + 1),
                on_the_way: None,
            });
        }
    }

    /// Prefetches the chunk that begins with a name, or with the dataset of a snapshot.
    pub fn look_ahead(&mut self, ctx: &Ctx<'_>, name: &str) {
        if self.first.is_empty() {
            return;
        }
        let dataset = split_snapshot(name).0;
        let found = self.first.remove(name);
        let Some(at) = found.or_else(|| self.first.remove(dataset)) else {
            return;
        };
        self.held.clear();
        let begin = |chunk: &mut Chunk| {
            let objects = std::mem::take(&mut chunk.objects);
            chunk
                .on_the_way
                .take()
                .or_else(|| Some(ctx.gather_in_background(objects, true)))
        };
        let Some(now) = self.chunks.get_mut(at) else {
            return;
        };
        let (now, next) = (begin(now), now.next);
        self.held = now.map_or_else(Vec::new, OnTheWay::wait);
        if let Some(next) = next.and_then(|at| self.chunks.get_mut(at)) {
            next.on_the_way = begin(next);
        }
    }
}

impl Ctx<'_> {
    /// Items per chunk, at most: two chunks take half of the cache.
    fn changed_at_once(&self) -> usize {
        let limit = self.spa.io().cache().stats().limit;
        (limit / 4 / BYTES_OF_ONE).clamp(CHANGED_FIRST, CHANGED_AT_ONCE)
    }

    /// Begins to prefetch, in another thread, what changing these objects reads. With `dirs` an
    /// object may be a directory, which stands for its head.
    fn gather_in_background(&self, objects: Vec<u64>, dirs: bool) -> OnTheWay {
        let Ok(dsl) = self.dsl.arc() else {
            return OnTheWay(None);
        };
        let thread = std::thread::Builder::new().name("zuse-ahead".into());
        let begun = thread.spawn(move || {
            let objects = if dirs {
                dsl.heads_of(&objects)
            } else {
                objects
            };
            dsl.gather_for_change(&objects)
        });
        OnTheWay(begun.ok())
    }

    /// Calls `f` for items one after the other; reads for changing their datasets are prefetched in
    /// chunks. Returns the prefetched objects for the next step, unless there are too many.
    pub(crate) fn over_gathered<T>(
        &self,
        items: &[T],
        object: impl Fn(&T) -> u64,
        mut f: impl FnMut(&T) -> Result<()>,
    ) -> Result<Held> {
        let mut all = Held::default();
        let begin = |some: &[T]| {
            let objects: Vec<u64> = some.iter().map(&object).collect();
            (objects.len() > 1).then(|| self.gather_in_background(objects, false))
        };
        let mut chunks = in_chunks(items, self.changed_at_once()).peekable();
        let mut coming = chunks.peek().and_then(|some| begin(some));
        while let Some(some) = chunks.next() {
            let held = coming.take().map_or_else(Vec::new, OnTheWay::wait);
            coming = chunks.peek().and_then(|next| begin(next));
            some.iter().try_for_each(&mut f)?;
            if items.len() <= HELD_ITEMS {
                all.0.extend(held);
            }
        }
        Ok(all)
    }

    /// As [`Self::over_gathered`], for the step after it. `held` are the prefetched objects of the
    /// items.
    pub(crate) fn over_held<T>(
        &self,
        items: &[T],
        held: Held,
        object: impl Fn(&T) -> u64,
        f: impl FnMut(&T) -> Result<()>,
    ) -> Result<()> {
        if held.0.is_empty() {
            return self.over_gathered(items, object, f).map(drop);
        }
        items.iter().try_for_each(f)
    }
}

impl Dsl {
    /// Replaces directories by their heads; datasets stay.
    fn heads_of(&self, objects: &[u64]) -> Vec<u64> {
        let Ok(meta) = self.meta() else {
            return Vec::new();
        };
        if let Ok(Some(mut gather)) = self.gatherer() {
            let objects = objects.iter().copied();
            meta.mos.gather_objects(&mut gather, objects);
        }
        let head = |object: &u64| match meta.dir(*object) {
            Ok(dir) => dir.head_dataset,
            Err(_) => *object,
        };
        objects.iter().map(head).collect()
    }

    /// Prefetches heads or snapshots and everything that changing them reads. They stay in memory
    /// as long as the result is kept.
    fn gather_for_change(&self, objects: &[u64]) -> Vec<Arc<Dnode>> {
        let (Ok(meta), Ok(Some(mut gather))) = (self.meta(), self.gatherer()) else {
            return Vec::new();
        };
        let mos = &meta.mos;
        let gather = &mut gather;
        let mut held = mos.gather_contents(gather, objects.iter().copied());
        let parsed = |all: &[u64]| -> Vec<DslDatasetPhys> {
            all.iter().filter_map(|o| meta.ds(*o).ok()).collect()
        };
        let all = parsed(objects);
        let dirs: HashSet<u64> = all.iter().map(|p| p.dir).collect();
        held.extend(mos.gather_contents(gather, dirs.iter().copied()));
        let dirs: Vec<DslDirPhys> = dirs.iter().filter_map(|d| meta.dir(*d).ok()).collect();
        // The heads of snapshots, and the chain neighbours of all.
        let heads = dirs.iter().map(|d| d.head_dataset);
        let beside = all.iter().flat_map(|p| [p.prev_snap, p.next_snap]);
        let beside: HashSet<u64> = heads
            .chain(beside)
            .filter(|o| !objects.contains(o))
            .collect();
        let beside: Vec<u64> = beside.into_iter().collect();
        held.extend(mos.gather_contents(gather, beside.iter().copied()));
        let beside = parsed(&beside);
        let mut tables: HashSet<u64> = dirs.iter().map(|d| d.props).collect();
        for phys in all.iter().chain(&beside) {
            tables.extend([phys.deadlist, phys.snapnames, phys.next_clones]);
        }
        held.extend(mos.gather_contents(gather, tables));
        held
    }
}

/// Space that a directory is charged without being written.
fn reserved(phys: &DslDirPhys) -> u64 {
    let parts = phys.used_breakdown;
    let of = |kind: UsedKind| parts.get(kind as usize).copied().unwrap_or(0);
    of(UsedKind::ChildReservation).saturating_add(of(UsedKind::RefReservation))
}

impl Dsl {
    /// Bytes of all datasets together, without space that is only reserved.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn written(&self) -> Result<u64> {
        let _config = self.read_config();
        let (meta, name) = (self.meta()?, self.spa()?.name());
        let mut gather = self.gatherer()?;
        let tree = self.tree_below(&name, meta.root_dir, None, Needs::default(), &mut gather)?;
        let reserved = tree.iter().map(|met| met.reserved);
        let used = meta.dir(meta.root_dir)?.used_bytes;
        Ok(reserved.fold(used, u64::saturating_sub))
    }
}

/// Key of an object set in the metadata cache: first words of its address, and its birth.
pub(crate) fn root_key(bp: &BlockPointer) -> RootKey {
    let first = bp
        .dvas()
        .next()
        .map_or([0, 0], |d| [u64::from(d.vdev()), d.offset()]);
    [first[0], first[1], bp.physical_birth()]
}

/// Directories with their child maps, and their other data.
fn gather_dirs(
    meta: &Meta,
    gather: &mut Ahead,
    dirs: impl Iterator<Item = u64> + Clone,
    needs: Needs,
) {
    let mos = &meta.mos;
    mos.gather_objects(gather, dirs.clone());
    let all: Vec<DslDirPhys> = dirs.clone().filter_map(|d| meta.dir(d).ok()).collect();
    let maps = all.iter().map(|p| p.child_map);
    if needs.properties {
        mos.gather_contents(gather, maps.chain(all.iter().map(|p| p.props)).chain(dirs));
    } else {
        mos.gather_contents(gather, maps);
    }
}

/// Parents before children, each child followed by everything below it.
fn in_order(mut nodes: Vec<Node>) -> Vec<FoundDir> {
    let mut out = Vec::with_capacity(nodes.len());
    let mut stack = vec![0usize];
    while let Some(at) = stack.pop() {
        let Some(node) = nodes.get_mut(at) else { break };
        stack.extend(node.children.iter().rev());
        out.push(FoundDir {
            below: node.below,
            name: std::mem::take(&mut node.name),
            head: node.phys.head_dataset,
            reserved: reserved(&node.phys),
            half_received: node.half_received,
        });
    }
    out
}
