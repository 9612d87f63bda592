//! The offline judge of a pool that nobody is changing.
//!
//! ```text
//!   uberblock ─► MOS ─► datasets, snapshots ─► every block pointer ─┐
//!   queues of freed blocks ──────────────────────────────────────────┤ claims
//!   space maps, log space maps ──────────► allocated ranges ─────────┴► equal, each byte once
//! ```
//! It reads with its own walk (only the pipeline and the parsers are shared with the reader under
//! test), and holds on the way:
//! - each block is claimed by one pointer, each allocated byte by one block (dedup and cloned
//!   blocks excepted);
//! - each space map says what its header says, frees only what is allocated, allocates only what is
//!   free;
//! - a dedup table counts the pointers to its blocks;
//! - a pointer's fill count is the sum of its children's, the root's is the number of objects;
//! - a dnode's `used` is the space of its blocks, a dataset's `referenced` is the space of all its
//!   blocks;
//! - levels, types and births of pointers fit the place they are found in;
//! - a clone's livelist has each block of its head that is younger than the origin.
//!
//! A problem is a [`Finding`] with a place; the walk goes on after it. Pools are checked when
//! quiet: what a txg in flight would do is not known here.

mod beside;
mod claims;
mod clones;
mod dedup;
mod finding;
mod livelists;
mod maps;
mod walk;

use std::collections::BTreeMap;

use zuse_base::{ObjectId, Result};
use zuse_dmu::zap::Zap;
use zuse_format::dnode::DnodeView;
use zuse_format::dsl::{BpobjPhys, BptreeEntry, DslDatasetPhys, DslDirPhys};
use zuse_format::{BlockPointer, object_type};
use zuse_pool::Pool;

pub use finding::{Finding, Problem};

use claims::{Allocated, Claims};
use walk::{Extent, Walk};

/// How much is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Everything but the contents of files and volumes.
    Metadata,
    /// Every block.
    All,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is wrong, each with its place. At most [`Report::MOST`].
    pub problems: Vec<Problem>,
    /// Bytes that pointers claim.
    pub claimed: u64,
    /// Bytes that space maps hold allocated.
    pub allocated: u64,
    /// Bytes claimed by more than one pointer, as dedup and cloning may.
    pub shared: u64,
    /// Objects of all object sets, the MOS included.
    pub objects: u64,
    /// Datasets and snapshots.
    pub datasets: u64,
    /// Blocks with an address.
    pub blocks: u64,
    /// Gang blocks among them.
    pub gangs: u64,
    /// Bytes of removed vdevs that are noted as obsolete.
    pub obsolete: u64,
    /// Clones with a livelist.
    pub livelists: u64,
    /// Lists of destroyed clones.
    pub waiting_livelists: u64,
}

impl Report {
    /// Problems that are kept; a broken root would bring millions.
    pub const MOST: usize = 200;

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    pub(crate) fn problem(
        &mut self,
        finding: Finding,
        place: impl Into<String>,
        detail: impl ToString,
    ) {
        if self.problems.len() < Self::MOST {
            self.problems.push(Problem {
                finding,
                place: place.into(),
                detail: detail.to_string(),
            });
        }
    }
}

/// A dataset or snapshot, as the MOS has it.
struct Found {
    object: u64,
    phys: DslDatasetPhys,
}

impl Found {
    /// An object of the MOS, if it is a dataset.
    fn of(object: u64, view: &DnodeView<'_>) -> Option<Self> {
        if view.bonus_type() != object_type::DSL_DATASET {
            return None;
        }
        let phys = DslDatasetPhys::parse(view.bonus()).ok()?;
        Some(Self { object, phys })
    }
}

/// Checks an open pool at its last uberblock.
///
/// # Errors
/// None so far: what cannot be read is a problem in the report. Memory: 32 bytes a block.
pub fn check(pool: &Pool, depth: Depth) -> Result<Report> {
    let mut report = Report::default();
    let mut claims = Claims::default();
    match dedup::Tables::load(pool, &mut report) {
        Ok(tables) => claims.tables = tables,
        Err(e) => report.problem(Finding::Unreadable, "dedup tables", e),
    }
    let mut found = Vec::new();
    let root = pool.uberblock().root;
    let mut dirs = Vec::new();
    {
        let mut walk = Walk::new(pool.io(), &mut report, &mut claims, "MOS".into(), depth, 0);
        walk.objset(&root, &mut |object, view| {
            found.extend(Found::of(object, view));
            if view.bonus_type() == object_type::DSL_DIR
                && view.object_type() != object_type::DSL_DIR
                && let Ok(phys) = DslDirPhys::parse(view.bonus())
            {
                dirs.push((object, phys));
            }
        });
    }
    found.sort_by_key(|f| (f.phys.creation_txg, f.object));
    let lists = livelists::of_heads(pool, &dirs, &found).unwrap_or_else(|e| {
        report.problem(Finding::Unreadable, "livelists", e);
        BTreeMap::new()
    });
    for dataset in &found {
        let list = lists.get(&dataset.object).copied();
        check_dataset(pool, depth, dataset, list, &mut report, &mut claims);
    }
    report.livelists = lists.len() as u64;
    if let Err(e) = pending_frees(pool, depth, &mut report, &mut claims) {
        report.problem(Finding::Unreadable, "queues of freed blocks", e);
    }
    livelists::count(
        pool,
        report.livelists + report.waiting_livelists,
        &mut report,
    );
    let mut maps = match maps::allocated(pool, &mut report) {
        Ok(maps) => maps,
        Err(e) => {
            report.problem(Finding::Unreadable, "space maps", e);
            return Ok(report);
        }
    };
    claims.tables.compare(&mut report);
    if let Err(e) = claims.claim_idle(pool.io()) {
        report.problem(Finding::Unreadable, "dedup tables", e);
    }
    let sharing = pool.features().is_active("com.fudosecurity:block_cloning");
    if let Err(e) = clones::compare(pool, &claims.data, &mut report) {
        report.problem(Finding::Unreadable, "tables of cloned blocks", e);
    }
    if let Err(e) = check_beside(pool, depth, &mut claims, &mut maps, &mut report) {
        report.problem(Finding::Unreadable, "checkpoint and removed vdevs", e);
    }
    claims.compare(&maps, sharing, &mut report);
    Ok(report)
}

/// What only the checkpoint has is taken out of what is allocated; claims on removed vdevs become
/// claims of the copies.
fn check_beside(
    pool: &Pool,
    depth: Depth,
    claims: &mut Claims,
    maps: &mut Allocated,
    report: &mut Report,
) -> Result<()> {
    let obsolete = beside::obsolete(pool, report)?;
    report.obsolete = obsolete.values().map(|ranges| ranges.space()).sum();
    claims.settle(pool.vdevs(), &obsolete, report);
    beside::checkpoint(pool, depth, maps, report)?;
    beside::take_kept(pool, maps, report)
}

fn check_dataset(
    pool: &Pool,
    depth: Depth,
    dataset: &Found,
    list: Option<(u64, u64)>,
    report: &mut Report,
    claims: &mut Claims,
) {
    let place = format!("dataset {}", dataset.object);
    report.datasets += 1;
    let phys = &dataset.phys;
    let mut walk = Walk::new(
        pool.io(),
        report,
        claims,
        place.clone(),
        depth,
        phys.prev_snap_txg,
    );
    if !phys.is_snapshot() {
        walk.with_log(pool.uberblock().txg);
    }
    if let Some((_, since)) = list {
        walk.note_own(since);
    }
    walk.objset(&phys.bp, &mut |_, _| {});
    let Extent { used, comp, uncomp } = walk.extent();
    let complete = walk.is_complete();
    let own = walk.own();
    if let (Some((list, _)), Some(own), true) = (list, own, complete)
        && let Err(e) = livelists::compare(pool, &place, list, own, report)
    {
        report.problem(Finding::Unreadable, format!("{place}, livelist"), e);
    }
    // An origin without blocks and a dataset that is being received keep other books.
    if complete && !phys.bp.is_hole() {
        for (what, stored, real) in [
            ("referenced", phys.referenced_bytes, used),
            ("compressed", phys.compressed_bytes, comp),
            ("uncompressed", phys.uncompressed_bytes, uncomp),
        ] {
            if stored != real {
                let difference = stored as i64 - real as i64;
                report.problem(
                    Finding::DatasetBooks,
                    place.as_str(),
                    format!("{what} is {stored}, its blocks have {real}, difference {difference}"),
                );
            }
        }
    }
}

/// Blocks that no tree holds any more but that are still allocated: they wait to be freed.
fn pending_frees(
    pool: &Pool,
    depth: Depth,
    report: &mut Report,
    claims: &mut Claims,
) -> Result<()> {
    let directory = pool.directory()?;
    for key in ["sync_bplist", "free_bpobj", "com.delphix:obsolete_bpobj"] {
        if let Some(object) = directory.lookup_u64(key.as_bytes())? {
            each_pointer(pool, object, 0, &mut |bp, _| {
                if let Err(e) = claims.claim(pool.io(), &bp, key) {
                    report.problem(Finding::Unreadable, key, e);
                }
            })?;
        }
    }
    if let Some(object) = directory.lookup_u64(b"bptree_obj")? {
        let dnode = pool.mos().dnode(ObjectId(object))?;
        let words: Vec<u64> = dnode
            .bonus_vec()
            .as_chunks::<8>()
            .0
            .iter()
            .map(|w| u64::from_le_bytes(*w))
            .collect();
        let (begin, end) = (
            words.first().copied().unwrap_or(0),
            words.get(1).copied().unwrap_or(0),
        );
        for index in begin..end.min(begin + (1 << 20)) {
            let mut raw = [0; BptreeEntry::SIZE];
            dnode.read_at(index * BptreeEntry::SIZE as u64, &mut raw)?;
            let entry = BptreeEntry::parse(&raw).map_err(|e| e.at("bptree"))?;
            if entry.birth_txg == u64::MAX {
                continue;
            }
            let place = format!("tree {index} waiting to be freed");
            let mut walk = Walk::new(pool.io(), report, claims, place, depth, entry.birth_txg);
            walk.resume_at(entry.resume);
            walk.objset(&entry.bp, &mut |_, _| {});
        }
    }
    if let Some(object) = directory.lookup_u64(b"com.delphix:deleted_clones")? {
        let set = Zap::open(&pool.mos().dnode(ObjectId(object))?)?;
        let mut cursor = set.cursor(0);
        while let Some(entry) = cursor.next()? {
            let Ok(text) = String::from_utf8(entry.name.clone()) else {
                continue;
            };
            let livelist = u64::from_str_radix(&text, 16).unwrap_or(0);
            deleted_livelist(pool, livelist, report, claims)?;
        }
    }
    Ok(())
}

/// The live blocks of a destroyed clone.
fn deleted_livelist(
    pool: &Pool,
    object: u64,
    report: &mut Report,
    claims: &mut Claims,
) -> Result<()> {
    report.waiting_livelists += 1;
    let place = format!("livelist {object}");
    for part in livelists::parts(pool, object)? {
        let (live, unmatched) = livelists::live(pool, part)?;
        for bp in live {
            if let Err(e) = claims.claim(pool.io(), &bp, "livelist") {
                report.problem(Finding::Unreadable, place.as_str(), e);
            }
        }
        if unmatched > 0 {
            let what = format!("{unmatched} blocks are freed that are not allocated");
            report.problem(Finding::Livelist, place.as_str(), what);
        }
    }
    Ok(())
}

/// Calls `f` for every pointer in a list and its sub-lists.
fn each_pointer(
    pool: &Pool,
    object: u64,
    nested: u32,
    f: &mut dyn FnMut(BlockPointer, bool),
) -> Result<()> {
    let place = || format!("MOS, object {object}");
    if nested > 32 {
        return Err(zuse_base::Error::endless(
            place(),
            "lists of pointers are nested too deep",
        ));
    }
    let dnode = pool.mos().dnode(ObjectId(object))?;
    let header = BpobjPhys::parse(&dnode.bonus_vec()).map_err(|e| e.at(place()))?;
    let mut raw = [0; 128];
    for i in 0..header.num_blkptrs {
        dnode.read_at(i * 128, &mut raw)?;
        let bp = BlockPointer::parse(&raw, zuse_base::ByteOrder::Little);
        if bp == BlockPointer::HOLE {
            return Err(zuse_base::Error::corrupt(
                place(),
                format!("entry {i} of {} is empty", header.num_blkptrs),
            ));
        }
        f(bp, BpobjPhys::is_freed(&bp));
    }
    if header.has_subobjs() && header.subobjs != 0 {
        let array = pool.mos().dnode(ObjectId(header.subobjs))?;
        for i in 0..header.num_subobjs {
            let mut word = [0; 8];
            array.read_at(8 * i, &mut word)?;
            each_pointer(pool, u64::from_le_bytes(word), nested + 1, f)?;
        }
    }
    Ok(())
}
