//! Checks the space accounting: the sums in directories, datasets and deadlists, against the blocks
//! that exist.

use std::collections::{BTreeMap, BTreeSet};

use zuse_base::{Place, Result};
use zuse_format::dnode::scan_block;
use zuse_format::dsl::{BptreePhys, DIR_FLAG_USED_BREAKDOWN, DslDatasetPhys, DslDirPhys, UsedKind};
use zuse_format::{BlockPointer, DnodePhys, ObjsetPhys};

use crate::bpobj::{Bpobj, EMPTY_FEATURE, EMPTY_KEY};
use crate::context::Dsl;
use crate::deadlist::{Deadlist, chain_keys};
use crate::livelist::{DELETED, LIVELIST};
use crate::meta::Meta;
use crate::sizes::Sizes;
use crate::snapshot::REMAP_DEADLIST;

/// Compares all accounting of a pool with the result of walking its datasets. Returns one sentence
/// per difference. For tests, because everything is read. Nothing may be written meanwhile.
pub fn check_accounting(dsl: &Dsl) -> Vec<String> {
    let mut flaws = Vec::new();
    if let Err(e) = Check::run(dsl, &mut flaws) {
        flaws.push(format!("the check could not go on: {e}"));
    }
    flaws
}

struct Check<'a> {
    dsl: &'a Dsl,
    meta: &'a Meta,
    flaws: &'a mut Vec<String>,
    /// Blocks of each walked dataset: identity and number of the pointer (clones made in one txg
    /// are equal) → (birth, sizes).
    trees: BTreeMap<u64, Tree>,
    /// Clone heads by the directory of their origin: as found, and as listed.
    clones: BTreeMap<u64, BTreeSet<u64>>,
    listed_clones: BTreeMap<u64, BTreeSet<u64>>,
    /// The shared empty list, and the number of entries that refer to it.
    empty: Option<u64>,
    empty_lists: u64,
    /// Livelists of clones, and of destroyed ones.
    livelists: u64,
}

type Tree = BTreeMap<([u64; 7], u64), (u64, Sizes)>;

/// The identity of a block. A block from a removed vdev has the same identity under its old and its
/// new address.
fn identity(io: &zuse_io::Pipeline, bp: &BlockPointer) -> [u64; 7] {
    let w = &bp.words;
    if bp.is_embedded_bit() {
        let rest = w[6] ^ w[4].rotate_left(7);
        return [w[0], w[1], w[2], w[3], w[9], w[10], rest];
    }
    let first = bp.dva(0);
    let (mut vdev, mut offset) = (first.vdev(), first.offset());
    // Each step leads to a vdev that was not removed before this one.
    for _ in 0..64 {
        let Some(mapping) = io.vdevs().mapping(vdev) else {
            break;
        };
        let Some(part) = mapping.first_part(offset, 512) else {
            break;
        };
        (vdev, offset) = (part.vdev, part.to);
    }
    [u64::from(vdev), offset, w[2], w[3], 0, w[10], 0]
}

impl<'a> Check<'a> {
    fn run(dsl: &'a Dsl, flaws: &'a mut Vec<String>) -> Result<()> {
        let _config = dsl.read_config();
        let meta = dsl.meta()?;
        let mut check = Self {
            dsl,
            meta,
            flaws,
            trees: BTreeMap::new(),
            clones: BTreeMap::new(),
            listed_clones: BTreeMap::new(),
            empty: meta.directory()?.get_u64(EMPTY_KEY)?,
            empty_lists: 0,
            livelists: 0,
        };
        check.dir(meta.root_dir, &dsl.spa()?.name())?;
        if meta.version() >= crate::version::VERSION_DEADLISTS {
            check.clones.retain(|_, heads| !heads.is_empty());
            check.listed_clones.retain(|_, heads| !heads.is_empty());
            if check.clones != check.listed_clones {
                let text = format!(
                    "clones by directory: found {:?}, listed {:?}",
                    check.clones, check.listed_clones
                );
                check.flaws.push(text);
            }
        }
        check.free_account()?;
        let counted = dsl.spa()?.feature_count(EMPTY_FEATURE);
        let found = check.empty_lists;
        check.differ("entries with the shared empty list", counted, found);
        if check.empty.is_some() != (counted > 0) {
            let text = format!("{counted} entries have an empty list {:?}", check.empty);
            check.flaws.push(text);
        }
        let counted = dsl.spa()?.feature_count(LIVELIST);
        let found = check.livelists;
        check.differ("livelists", counted, found);
        Ok(())
    }

    /// Counts the entries of a deadlist that are empty.
    fn note_empty(&mut self, list: &Deadlist<'_>) {
        let same = |(_, list): &(u64, u64)| Some(*list) == self.empty;
        self.empty_lists += list.entries().iter().filter(|e| same(e)).count() as u64;
    }

    /// As [`Self::note_empty`], for a deadlist that an extension entry refers to. Returns that
    /// deadlist.
    fn note_empty_of(&mut self, object: u64, key: &str) -> Result<Option<u64>> {
        let Some(table) = self.meta.extension(object)? else {
            return Ok(None);
        };
        let list = table.get_u64(key)?;
        if let Some(list) = list {
            self.note_empty(&Deadlist::open(self.meta, list)?);
        }
        Ok(list)
    }

    fn differ(&mut self, what: &str, stored: impl PartialEq<u64> + std::fmt::Display, found: u64) {
        if stored != found {
            self.flaws
                .push(format!("{what}: stored {stored}, found {found}"));
        }
    }

    fn dir(&mut self, object: u64, name: &str) -> Result<()> {
        let dir = self.meta.dir(object)?;
        let broken_down = dir.flags & DIR_FLAG_USED_BREAKDOWN != 0;
        if broken_down {
            self.differ(
                &format!("{name}: used"),
                dir.used_bytes,
                dir.used_breakdown.iter().sum(),
            );
        }
        let (mut child_used, mut child_rsrv) = (0u64, 0u64);
        for (child, c) in self.meta.children(&dir)? {
            let phys = self.meta.dir(c)?;
            self.differ(&format!("{name}/{child}: parent"), phys.parent, object);
            child_used += phys.used_bytes;
            child_rsrv += phys.reserved.saturating_sub(phys.used_bytes);
            self.dir(c, &format!("{name}/{child}"))?;
        }
        if broken_down {
            self.differ(
                &format!("{name}: CHILD"),
                dir.used_breakdown[UsedKind::Child as usize],
                child_used,
            );
            let rsrv = dir.used_breakdown[UsedKind::ChildReservation as usize];
            self.differ(&format!("{name}: CHILD_RSRV"), rsrv, child_rsrv);
        }
        if dir.clones != 0 {
            self.listed_clones.insert(
                object,
                self.meta.table(dir.clones)?.ints()?.into_iter().collect(),
            );
        }
        if dir.origin != 0 {
            let above = self.meta.ds(dir.origin)?.dir;
            self.clones
                .entry(above)
                .or_default()
                .insert(dir.head_dataset);
        }
        if dir.head_dataset != 0 {
            self.datasets(object, name)?;
        }
        self.livelist(object, name)
    }

    /// The list of a clone must have the space of the head's own blocks.
    fn livelist(&mut self, dir: u64, name: &str) -> Result<()> {
        let Some(list) = self.note_empty_of(dir, LIVELIST)? else {
            return Ok(());
        };
        self.livelists += 1;
        let phys = self.meta.dir(dir)?;
        let own = phys.used_breakdown[UsedKind::Head as usize];
        let totals = Deadlist::totals_of(self.meta, list)?;
        self.differ(&format!("{name}: livelist"), totals.used as u64, own);
        let mut parts = Sizes::default();
        for (_, part) in Deadlist::open(self.meta, list)?.entries() {
            parts += Bpobj::open(&self.meta.mos, part)?.totals()?;
        }
        if parts != totals {
            let flaw = format!("{name}: livelist says {totals:?}, its parts {parts:?}");
            self.flaws.push(flaw);
        }
        Ok(())
    }

    fn datasets(&mut self, object: u64, name: &str) -> Result<()> {
        let dir = self.meta.dir(object)?;
        let head = dir.head_dataset;
        let phys = self.meta.ds(head)?;
        let otxg = self.meta.origin_txg(&dir)?;
        let mut chain = vec![(name.to_owned(), head, phys)];
        let snaps = self.dsl.snapshots_of(&phys)?;
        for (snap, o) in snaps.iter().rev() {
            chain.push((format!("{name}@{snap}"), *o, self.meta.ds(*o)?));
        }
        let mut snap_bytes = 0;
        for (i, (name, o, ds)) in chain.iter().enumerate() {
            self.links(&chain, i)?;
            snap_bytes += self.deadlist(name, ds, otxg)?;
            self.tree(name, *o, ds)?;
            self.deadlist_content(name, *o, ds)?;
            self.note_empty_of(*o, REMAP_DEADLIST)?;
        }
        self.uniques(&chain)?;
        if dir.flags & DIR_FLAG_USED_BREAKDOWN != 0 {
            self.breakdown(name, &dir, &phys, snap_bytes)?;
        }
        Ok(())
    }

    /// Whether the datasets of a chain point to their neighbours.
    fn links(&mut self, chain: &[(String, u64, DslDatasetPhys)], i: usize) -> Result<()> {
        let (name, _, ds) = &chain[i];
        let prev = if ds.prev_snap == 0 {
            None
        } else {
            Some(self.meta.ds(ds.prev_snap)?)
        };
        if let Some(prev) = &prev {
            self.differ(
                &format!("{name}: prev_snap_txg"),
                ds.prev_snap_txg,
                prev.creation_txg,
            );
        }
        if i > 0 {
            self.differ(&format!("{name}: next_snap"), ds.next_snap, chain[i - 1].1);
            let clones = self.dsl.branches_of(chain[i].1, ds)?.len() as u64;
            self.differ(
                &format!("{name}: num_children"),
                ds.num_children,
                1 + clones,
            );
        }
        Ok(())
    }

    /// The unique space of each dataset of a chain: the head's from its own numbers, a snapshot's
    /// from the next deadlist.
    fn uniques(&mut self, chain: &[(String, u64, DslDatasetPhys)]) -> Result<()> {
        for i in 0..chain.len() {
            let (name, _, ds) = &chain[i];
            let unique = if i == 0 {
                let dead = Deadlist::totals_of(self.meta, ds.deadlist)?.used as u64;
                let before = if ds.prev_snap == 0 {
                    0
                } else {
                    self.meta.ds(ds.prev_snap)?.referenced_bytes
                };
                ds.referenced_bytes.wrapping_sub(before.wrapping_sub(dead))
            } else {
                Deadlist::open(self.meta, chain[i - 1].2.deadlist)?
                    .range(ds.prev_snap_txg, u64::MAX)?
                    .used as u64
            };
            self.differ(&format!("{name}: unique"), ds.unique_bytes, unique);
        }
        Ok(())
    }

    /// Checks the categories of a directory's used space.
    fn breakdown(
        &mut self,
        name: &str,
        dir: &DslDirPhys,
        phys: &DslDatasetPhys,
        snap_bytes: u64,
    ) -> Result<()> {
        let head = dir.head_dataset;
        let otxg = self.meta.origin_txg(dir)?;
        let heads: u64 = self
            .trees
            .get(&head)
            .into_iter()
            .flatten()
            .filter(|(_, (b, _))| *b > otxg)
            .map(|(_, (_, s))| s.used as u64)
            .sum();
        if self.trees.contains_key(&head) {
            self.differ(
                &format!("{name}: HEAD"),
                dir.used_breakdown[UsedKind::Head as usize],
                heads,
            );
        }
        self.differ(
            &format!("{name}: SNAP"),
            dir.used_breakdown[UsedKind::Snap as usize],
            snap_bytes,
        );
        let reserved = self.dsl.number_of(head, "refreservation")?;
        let unused = reserved.saturating_sub(phys.unique_bytes);
        self.differ(
            &format!("{name}: REFRSRV"),
            dir.used_breakdown[UsedKind::RefReservation as usize],
            unused,
        );
        Ok(())
    }

    /// Checks keys, places and totals of a deadlist; returns how many of its bytes this directory
    /// is charged for.
    fn deadlist(&mut self, name: &str, ds: &DslDatasetPhys, otxg: u64) -> Result<u64> {
        let list = Deadlist::open(self.meta, ds.deadlist)?;
        self.note_empty(&list);
        let totals = list.totals()?;
        let mut sum = Sizes::default();
        let mut ours = 0;
        let keys: BTreeSet<u64> = list.keys().into_iter().collect();
        if !list.is_flat() && ds.prev_snap != 0 {
            for key in chain_keys(self.meta, ds.prev_snap)? {
                if !keys.contains(&key) {
                    self.flaws
                        .push(format!("{name}: its deadlist has no key {key:x}"));
                }
            }
        }
        let mut listed = Sizes::default();
        for (_, bpobj) in list.entries() {
            listed += Bpobj::open(&self.meta.mos, bpobj)?.totals()?;
        }
        let io = self.meta.io.clone();
        let flaws = &mut *self.flaws;
        list.for_each(&mut |key, bp| {
            let birth = bp.allocation_birth();
            let size = Sizes::of_block(&io, bp);
            sum += size;
            if birth > otxg {
                ours += size.used as u64;
            }
            let high = keys.range(key + 1..).next().copied().unwrap_or(u64::MAX);
            if !keys.is_empty() && (birth <= key || birth > high) || birth > ds.prev_snap_txg {
                flaws.push(format!(
                    "{name}: a block born in {birth} is in the deadlist under key {key:x}"
                ));
            }
            Ok(())
        })?;
        if sum != totals || !list.is_flat() && listed != totals {
            self.flaws.push(format!(
                "{name}: its deadlist says {totals:?}, its lists {listed:?}, its blocks {sum:?}"
            ));
        }
        Ok(ours)
    }

    /// Sizes of everything reachable.
    fn tree(&mut self, name: &str, object: u64, ds: &DslDatasetPhys) -> Result<()> {
        let mut tree = Tree::new();
        let mut sum = Sizes::default();
        self.objset(&ds.bp, &mut |bp, sizes| {
            sum += sizes;
            let block = identity(&self.meta.io, bp);
            let met = tree.range((block, 0)..=(block, u64::MAX)).next_back();
            let next = met.map_or(0, |((_, n), _)| n + 1);
            tree.insert((block, next), (bp.allocation_birth(), sizes));
        })?;
        self.differ(
            &format!("{name}: referenced"),
            ds.referenced_bytes,
            sum.used as u64,
        );
        self.differ(
            &format!("{name}: compressed"),
            ds.compressed_bytes,
            sum.comp as u64,
        );
        self.differ(
            &format!("{name}: uncompressed"),
            ds.uncompressed_bytes,
            sum.uncomp as u64,
        );
        self.trees.insert(object, tree);
        Ok(())
    }

    /// A deadlist holds exactly the blocks that the snapshot before has and the dataset has not.
    fn deadlist_content(&mut self, name: &str, object: u64, ds: &DslDatasetPhys) -> Result<()> {
        if ds.prev_snap == 0 {
            return Ok(());
        }
        if !self.trees.contains_key(&ds.prev_snap) {
            let prev = self.meta.ds(ds.prev_snap)?;
            self.tree(&format!("dataset {}", ds.prev_snap), ds.prev_snap, &prev)?;
        }
        let (Some(mine), Some(before)) = (self.trees.get(&object), self.trees.get(&ds.prev_snap))
        else {
            return Ok(());
        };
        let want: i64 = before
            .iter()
            .filter(|(k, _)| !mine.contains_key(*k))
            .map(|(_, (_, s))| s.used)
            .sum();
        let has = Deadlist::totals_of(self.meta, ds.deadlist)?.used;
        if want != has {
            self.flaws.push(format!("{name}: its deadlist has {has} bytes, {want} were given up since the snapshot before"));
        }
        Ok(())
    }

    fn objset(&self, root: &BlockPointer, f: &mut dyn FnMut(&BlockPointer, Sizes)) -> Result<()> {
        if root.is_hole() {
            return Ok(());
        }
        let block = self.read(root)?;
        f(root, Sizes::of_block(&self.meta.io, root));
        let phys = ObjsetPhys::parse(block.bytes()).map_err(|e| e.at("an objset block"))?;
        self.dnode(&phys.meta_dnode, true, f)?;
        for dnode in [&phys.user_used, &phys.group_used, &phys.project_used]
            .into_iter()
            .flatten()
        {
            self.dnode(dnode, false, f)?;
        }
        Ok(())
    }

    fn read(&self, bp: &BlockPointer) -> Result<std::sync::Arc<zuse_io::Block>> {
        self.meta
            .io
            .read_around(bp, &Place::new("accounting check"))
    }

    fn dnode(
        &self,
        dnode: &DnodePhys,
        meta: bool,
        f: &mut dyn FnMut(&BlockPointer, Sizes),
    ) -> Result<()> {
        for bp in dnode.blkptrs().iter().chain(&dnode.spill) {
            self.block(bp, meta, f)?;
        }
        Ok(())
    }

    fn block(
        &self,
        bp: &BlockPointer,
        meta: bool,
        f: &mut dyn FnMut(&BlockPointer, Sizes),
    ) -> Result<()> {
        if bp.is_hole() {
            return Ok(());
        }
        f(bp, Sizes::of_block(&self.meta.io, bp));
        if bp.level() > 0 {
            let block = self.read(bp)?;
            for i in 0..block.bytes().len() / 128 {
                if let Some(child) = BlockPointer::at(block.bytes(), i * 128) {
                    self.block(&child, meta, f)?;
                }
            }
        } else if meta {
            let block = self.read(bp)?;
            for (_, view) in scan_block(block.bytes()) {
                let view = view.map_err(|e| e.at("a dnode block"))?;
                self.dnode(&view.to_phys(), false, f)?;
            }
        }
        Ok(())
    }

    /// Compares the blocks waiting to be freed with the pool's account of them.
    fn free_account(&mut self) -> Result<()> {
        if self.meta.free_bpobj() == 0 {
            return Ok(());
        }
        let mut waits = Sizes::default();
        let list = Bpobj::open(&self.meta.mos, self.meta.free_bpobj())?;
        let io = self.meta.io.clone();
        list.for_each(&mut |bp, _| {
            waits += Sizes::of_block(&io, bp);
            Ok(())
        })?;
        if waits != list.totals()? {
            self.flaws.push(format!(
                "free_bpobj says {:?}, its blocks {waits:?}",
                list.totals()?
            ));
        }
        let directory = self.meta.directory()?;
        if let Some(object) = directory.get_u64("bptree_obj")? {
            let dnode = self.meta.dnode(object)?;
            let tree = dnode
                .with_bonus(BptreePhys::parse)
                .map_err(|e| e.at("bptree_obj"))?;
            waits += Sizes::of(tree.bytes, tree.comp, tree.uncomp);
        }
        if let Some(set) = directory.get_u64(DELETED)? {
            for object in self.meta.table(set)?.ints()? {
                let list = Deadlist::open(self.meta, object)?;
                for (_, part) in list.entries() {
                    waits += Bpobj::open(&self.meta.mos, part)?.totals()?;
                }
                self.note_empty(&list);
                self.livelists += 1;
            }
        }
        let free = self.meta.dir(self.meta.free_dir())?;
        self.differ("$FREE: used", free.used_bytes, waits.used as u64);
        self.differ(
            "$FREE: compressed",
            free.compressed_bytes,
            waits.comp as u64,
        );
        self.differ(
            "$FREE: uncompressed",
            free.uncompressed_bytes,
            waits.uncomp as u64,
        );
        Ok(())
    }
}
