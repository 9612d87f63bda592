//! Walks one object set: visits every pointer and checks it.
//!
//! All blocks are visited; those born after `since` are claimed. The others belong to an older
//! snapshot, which claims them. Sizes are summed over all.

use std::collections::BTreeSet;

use zuse_base::Result;
use zuse_codec::Compression;
use zuse_dmu::Settings;
use zuse_format::block_pointer::CHECKSUM_LIMIT;
use zuse_format::dnode::{DNODE_SLOT, DnodeView};
use zuse_format::objset::{ObjsetPhys, ZIL_HEADER_SIZE};
use zuse_format::zil::ZilHeader;
use zuse_format::{BlockPointer, BpKind, DnodePhys, object_type};
use zuse_io::Pipeline;
use zuse_pool::Pool;

use super::claims::Claims;
use super::livelists::Own;
use super::{Depth, Finding, Progress, Report, Watcher};

/// Space of blocks, in the three measures of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub used: u64,
    pub comp: u64,
    pub uncomp: u64,
}

/// Sees each object of the set.
pub(super) type Visit<'v> = &'v mut dyn FnMut(u64, &DnodeView<'_>);

pub(super) struct Walk<'a> {
    io: &'a Pipeline,
    report: &'a mut Report,
    watch: Watcher<'a>,
    claims: &'a mut Claims,
    place: String,
    depth: Depth,
    since: u64,
    extent: Extent,
    /// Size of blocks younger than the snapshot before, and than the origin.
    young: u64,
    of_head: u64,
    origin: u64,
    complete: bool,
    /// Objset, object, level, block of the first block that is not freed yet; all zero for none.
    resume: [u64; 4],
    /// Objects whose dnode blocks are freed already.
    past: u64,
    follow_log: bool,
    last_txg: u64,
    own: Option<Own>,
}

/// Properties of the tree of a pointer.
#[derive(Clone, Copy)]
struct Tree {
    object: u64,
    object_type: u8,
    lsize: u64,
    indirect_shift: u8,
    max_block: u64,
}

impl<'a> Walk<'a> {
    pub fn new(
        pool: &'a Pool,
        (report, watch): (&'a mut Report, Watcher<'a>),
        claims: &'a mut Claims,
        place: String,
        depth: Depth,
        since: u64,
    ) -> Self {
        Self {
            io: pool.io(),
            report,
            watch,
            claims,
            place,
            depth,
            since,
            extent: Extent::default(),
            young: 0,
            of_head: 0,
            origin: u64::MAX,
            complete: true,
            resume: [0; 4],
            past: 0,
            follow_log: false,
            last_txg: pool.uberblock().txg,
            own: None,
        }
    }

    /// Everything before this bookmark is freed already.
    pub fn resume_at(&mut self, bookmark: [u64; 4]) {
        self.resume = bookmark;
    }

    /// The set is a head, so its intent log belongs to it.
    pub fn with_log(&mut self) {
        self.follow_log = true;
    }

    /// The set is a head: sums its blocks younger than its origin.
    pub fn sum_head(&mut self, origin: u64) {
        self.origin = origin;
    }

    /// Size of blocks younger than the snapshot before, and than the origin.
    pub fn own_space(&self) -> (u64, u64) {
        (self.young, self.of_head)
    }

    /// The set is a clone's head with a livelist: notes its blocks younger than this.
    pub fn note_own(&mut self, since: u64) {
        self.own = Some(Own::new(since));
    }

    /// What was noted.
    pub fn own(&mut self) -> Option<Own> {
        self.own.take()
    }

    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Whether everything was readable, so that sums can be compared.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    fn problem(&mut self, finding: Finding, at: &str, what: impl std::fmt::Display) {
        let place = format!("{}{at}", self.place);
        self.report.problem(finding, place, what);
    }

    fn lost(&mut self, at: &str, what: impl std::fmt::Display) {
        self.complete = false;
        self.problem(Finding::Unreadable, at, what);
    }

    /// Reports its progress from time to time.
    fn report_progress(&mut self) {
        if self.report.blocks.is_multiple_of(256) {
            let done = Progress {
                phase: "blocks",
                done: self.claims.space,
                total: self.claims.total,
            };
            self.report.stopped |= !(self.watch)(done);
        }
    }

    fn claim(&mut self, bp: &BlockPointer, at: &str) {
        let metadata = Settings::is_metadata(bp.object_type(), bp.level());
        match bp.kind() {
            BpKind::Normal => {
                let used = self.io.dsize(bp);
                let birth = bp.allocation_birth();
                self.extent.used = self.extent.used.wrapping_add(used);
                if birth > self.since {
                    self.young = self.young.wrapping_add(used);
                }
                if birth > self.origin {
                    self.of_head = self.of_head.wrapping_add(used);
                }
                self.extent.comp += bp.psize();
                self.extent.uncomp += if metadata { bp.psize() } else { bp.lsize() };
                self.report.blocks += 1;
                if let Some(own) = &mut self.own {
                    own.count(bp);
                }
                // Older blocks are claimed with the snapshot that they belong to.
                if birth > self.since {
                    let place = format!("{}{at}", self.place);
                    let claimed = self.claims.claim(self.io, bp, &place, self.report);
                    if let Err(e) = claimed {
                        self.lost(at, e);
                    }
                }
                self.report_progress();
            }
            BpKind::Embedded if !metadata => self.extent.uncomp += bp.lsize(),
            _ => {}
        }
    }

    /// Walks an object set from its root pointer.
    pub fn objset(&mut self, root: &BlockPointer, visit: Visit<'_>) {
        if root.is_hole() {
            return;
        }
        self.claim(root, "");
        let block = match self.io.read(root, &self.place) {
            Ok(block) => block,
            Err(e) => return self.lost("", e),
        };
        let phys = match ObjsetPhys::parse(block.bytes()) {
            Ok(phys) => phys,
            Err(e) => return self.lost("", e),
        };
        let objects = self.meta(&phys.meta_dnode, visit);
        if objects != root.fill() {
            self.problem(
                Finding::ObjectCount,
                "",
                format!(
                    "the root counts {} objects, there are {objects}",
                    root.fill()
                ),
            );
        }
        for (dnode, name) in [
            (&phys.project_used, u64::MAX - 2),
            (&phys.group_used, u64::MAX - 1),
            (&phys.user_used, u64::MAX),
        ] {
            if let Some(dnode) = dnode {
                let bytes = dnode.to_bytes();
                if let Ok(Some(view)) = DnodeView::parse(&bytes) {
                    self.dnode(name, &view);
                }
            }
        }
        if self.follow_log {
            self.log(&phys.zil_header);
        }
    }

    /// Claims the chain of the intent log. The chain ends at the first block that does not belong
    /// to it, which is claimed too. Blocks in records are claimed as well, if the log waits to be
    /// replayed.
    fn log(&mut self, header: &[u8; ZIL_HEADER_SIZE]) {
        let header = ZilHeader::parse(header);
        let mut bp = header.log;
        let mut written = BTreeSet::new();
        for block in 0..1_000_000 {
            // The space of a block from a later txg is not allocated on disk.
            if bp.is_hole() || bp.kind() != BpKind::Normal || bp.logical_birth() > self.last_txg {
                return;
            }
            // The claimed part may end before the chain does: at a record whose data is missing.
            if bp.checksum()[3] > header.block_limit() {
                return;
            }
            let at = format!(", intent log block {block}");
            let place = format!("{}{at}", self.place);
            if let Err(e) = self.claims.claim(self.io, &bp, &place, self.report) {
                return self.problem(Finding::Unreadable, &at, e);
            }
            let verifier = bp.checksum();
            let mut buf = Vec::new();
            let mut order = None;
            let read = self.io.vdevs().read_perhaps(
                zuse_vdev::Address::new(
                    bp.dva(0).vdev(),
                    bp.dva(0).offset(),
                    zuse_base::Txg(bp.physical_birth()),
                ),
                &mut buf,
                bp.psize() as usize,
                &mut |bytes| {
                    order = zuse_io::log_block_order(&bp, bytes);
                    order.is_some()
                },
            );
            let Some(order) = order.filter(|_| read.is_ok()) else {
                return;
            };
            // Before the claim, blocks in records are free space.
            if header.is_claimed() {
                for block in self.claims.note_logged(&buf, (&bp, order), &header) {
                    let first = block.dva(0);
                    let new = written.insert((first.vdev(), first.offset()));
                    if new && let Err(e) = self.claims.claim(self.io, &block, &place, self.report) {
                        self.problem(Finding::Unreadable, &at, e);
                    }
                }
            }
            bp = BlockPointer::at(&buf, 8).unwrap_or_default();
            let [a, b, c, seq] = verifier;
            if bp.checksum() != [a, b, c, seq.wrapping_add(1)] {
                return;
            }
        }
    }

    fn meta(&mut self, meta: &DnodePhys, visit: Visit<'_>) -> u64 {
        let mut found = 0;
        let tree = Tree {
            object: 0,
            object_type: object_type::DNODE,
            lsize: meta.data_block_size(),
            indirect_shift: meta.indirect_shift,
            max_block: meta.max_block_id,
        };
        if meta.object_type != object_type::DNODE {
            self.problem(
                Finding::MetaDnode,
                ", meta dnode",
                format!("type {}", meta.object_type),
            );
        }
        let before = self.extent.used;
        let mut blocks = Vec::new();
        let mut fill = 0;
        for (i, bp) in meta.blkptrs().iter().enumerate() {
            fill += self.tree(bp, tree, meta.levels - 1, i as u64, &mut Some(&mut blocks));
        }
        let own = self.extent.used - before;
        if self.resume == [0; 4] && own != meta.used_bytes() {
            self.problem(
                Finding::Used,
                ", meta dnode",
                format!("used is {}, its blocks have {own}", meta.used_bytes()),
            );
        }
        let per_block = meta.data_block_size() / DNODE_SLOT as u64;
        let mut counts: Vec<(u64, u64, u64)> = Vec::new();
        for (id, bp) in blocks {
            let at = format!(", dnode block {id}");
            let block = match self.io.read(&bp, &format!("{}{at}", self.place)) {
                Ok(block) => block,
                Err(e) => {
                    self.lost(&at, e);
                    continue;
                }
            };
            let here = self.dnodes(block.bytes(), id * per_block, visit);
            counts.push((id, bp.fill(), here));
            found += here;
        }
        for (id, says, is) in counts {
            if says != is {
                self.problem(
                    Finding::ObjectCount,
                    &format!(", dnode block {id}"),
                    format!("counts {says} objects, holds {is}"),
                );
            }
        }
        found += std::mem::take(&mut self.past);
        if fill != found {
            self.problem(
                Finding::ObjectCount,
                ", meta dnode",
                format!("counts {fill} objects, there are {found}"),
            );
        }
        found
    }

    /// Checks the dnodes of a block, the first of which has this number; returns how many there
    /// are.
    fn dnodes(&mut self, bytes: &[u8], first: u64, visit: Visit<'_>) -> u64 {
        let mut here = 0;
        let mut slot = 0;
        while slot * DNODE_SLOT < bytes.len() {
            let object = first + slot as u64;
            let slots = match DnodeView::parse(&bytes[slot * DNODE_SLOT..]) {
                Ok(None) => 1,
                Ok(Some(view)) => {
                    here += 1;
                    self.report.objects += 1;
                    if object == 0 {
                        self.problem(Finding::ObjectZero, "", "");
                    }
                    visit(object, &view);
                    self.dnode(object, &view);
                    view.slots()
                }
                Err(e) => {
                    // The next slot may be sound again.
                    self.lost(&format!(", object {object}"), e);
                    1
                }
            };
            slot += slots;
        }
        here
    }

    fn dnode(&mut self, object: u64, view: &DnodeView<'_>) {
        let at = format!(", object {}", object as i64);
        let tree = Tree {
            object,
            object_type: view.object_type(),
            lsize: u64::from(view.data_block_sectors()) * 512,
            indirect_shift: view.indirect_shift(),
            max_block: view.max_block_id(),
        };
        let before = self.extent.used;
        for i in 0..view.nblkptr() {
            self.tree(
                &view.blkptr(i),
                tree,
                view.levels() - 1,
                i as u64,
                &mut None,
            );
        }
        if let Some(spill) = view.spill() {
            self.spill(&spill, object);
        }
        let own = self.extent.used - before;
        // After a resume the sums are incomplete.
        if self.complete && self.resume == [0; 4] && own != view.used_bytes() {
            self.problem(
                Finding::Used,
                &at,
                format!("used is {}, its blocks have {own}", view.used_bytes()),
            );
        }
    }

    fn spill(&mut self, bp: &BlockPointer, object: u64) {
        let at = format!(", object {}, spill block", object as i64);
        if bp.is_hole() {
            self.problem(Finding::SpillHole, &at, "");
            return;
        }
        if self.is_freed(object, u64::MAX - 1) {
            return;
        }
        self.claim(bp, &at);
        if let Err(e) = self.look_at(bp, &at) {
            self.lost(&at, e);
        }
    }

    /// Whether a block can be read; for an encrypted one, whether its ciphertext has the right
    /// checksum.
    fn look_at(&self, bp: &BlockPointer, at: &str) -> Result<()> {
        let place = format!("{}{at}", self.place);
        if bp.encrypted() {
            return self.io.read_stored(bp, &place).map(|_| ());
        }
        self.io.read_around(bp, &place).map(|_| ())
    }

    fn is_freed(&self, object: u64, block: u64) -> bool {
        self.resume != [0; 4] && (object, block) < (self.resume[1], self.resume[3]) && object != 0
    }

    /// Whether everything below a pointer was freed before the pause, so that it is freed itself.
    fn is_past(&self, tree: Tree, level: u8, id: u64) -> bool {
        let fanout = u32::from(tree.indirect_shift.saturating_sub(7));
        let below = 1u64.checked_shl(fanout * u32::from(level));
        let end = id
            .saturating_add(1)
            .saturating_mul(below.unwrap_or(u64::MAX));
        if tree.object == 0 {
            let slots = tree.lsize / DNODE_SLOT as u64;
            return self.resume != [0; 4] && end.saturating_mul(slots) <= self.resume[1];
        }
        self.is_freed(tree.object, end - 1)
    }

    /// Walks a pointer at a level of a tree; returns its fill. Level-0 pointers are added to
    /// `leaves` if that is given.
    fn tree(
        &mut self,
        bp: &BlockPointer,
        tree: Tree,
        level: u8,
        id: u64,
        leaves: &mut Option<&mut Vec<(u64, BlockPointer)>>,
    ) -> u64 {
        if bp.is_hole() || self.report.stopped {
            return 0;
        }
        let at = format!(", object {}, level {level}, block {id}", tree.object as i64);
        self.pointer(bp, tree, level, &at);
        if (level > 0 || tree.object == 0) && self.is_past(tree, level, id) {
            self.past += if tree.object == 0 { bp.fill() } else { 0 };
            return bp.fill();
        }
        if level == 0 {
            return self.leaf(bp, tree, id, &at, leaves);
        }
        self.claim(bp, &at);
        let block = match self.io.read(bp, &format!("{}{at}", self.place)) {
            Ok(block) => block,
            Err(e) => {
                self.lost(&at, e);
                return bp.fill();
            }
        };
        let fanout = u32::from(tree.indirect_shift) - 7;
        let mut fill = 0;
        for i in 0..block.bytes().len() / 128 {
            let Some(child) = BlockPointer::at(block.bytes(), i * 128) else {
                continue;
            };
            if child.is_hole() {
                continue;
            }
            if child.logical_birth() > bp.logical_birth() {
                self.problem(
                    Finding::Birth,
                    &at,
                    format!(
                        "child {i} was born in {}, it in {}",
                        child.logical_birth(),
                        bp.logical_birth()
                    ),
                );
            }
            let Some(child_id) = id
                .checked_mul(1 << fanout)
                .and_then(|n| n.checked_add(i as u64))
            else {
                self.problem(Finding::BeyondEnd, &at, "its number is out of range");
                continue;
            };
            fill += self.tree(&child, tree, level - 1, child_id, leaves);
        }
        if bp.fill() != fill {
            self.problem(
                Finding::FillCount,
                &at,
                format!(
                    "its fill count is {}, its children's sum is {fill}",
                    bp.fill()
                ),
            );
        }
        bp.fill()
    }

    /// Whether the properties of a pointer match those of its object.
    fn pointer(&mut self, bp: &BlockPointer, tree: Tree, level: u8, at: &str) {
        if bp.level() != level && !bp.is_embedded() {
            self.problem(Finding::PointerLevel, at, format!("level {}", bp.level()));
        }
        if bp.object_type() != tree.object_type {
            self.problem(
                Finding::PointerType,
                at,
                format!(
                    "its pointer says type {}, the object has {}",
                    bp.object_type(),
                    tree.object_type
                ),
            );
        }
        let lsize = if level == 0 {
            tree.lsize
        } else {
            1 << tree.indirect_shift
        };
        if bp.lsize() != lsize {
            self.problem(
                Finding::PointerSize,
                at,
                format!(
                    "it has {} bytes, the object's blocks have {lsize}",
                    bp.lsize()
                ),
            );
        }
        if bp.compression() == Compression::Inherit.to_u8()
            || bp.compression() == Compression::On.to_u8()
        {
            self.problem(Finding::PointerCompression, at, bp.compression());
        }
        if bp.kind() != BpKind::Normal {
            return;
        }
        if bp.checksum_kind() < 2 || bp.checksum_kind() >= CHECKSUM_LIMIT {
            self.problem(Finding::PointerChecksum, at, bp.checksum_kind());
        }
        let born = bp.logical_birth().max(bp.physical_birth());
        if born > self.last_txg {
            let what = format!("born in {born}, the pool is at {}", self.last_txg);
            self.problem(Finding::BirthInFuture, at, what);
        }
    }

    /// Checks a level-0 block, or adds its pointer to `leaves`; returns its fill.
    fn leaf(
        &mut self,
        bp: &BlockPointer,
        tree: Tree,
        id: u64,
        at: &str,
        leaves: &mut Option<&mut Vec<(u64, BlockPointer)>>,
    ) -> u64 {
        if id > tree.max_block {
            self.problem(
                Finding::BeyondEnd,
                at,
                format!("the object's last block is {}", tree.max_block),
            );
        }
        if self.is_freed(tree.object, id) {
            return bp.fill();
        }
        self.claim(bp, at);
        let is_data = !Settings::is_metadata(tree.object_type, 0);
        if let Some(leaves) = leaves {
            leaves.push((id, *bp));
        } else {
            // An older snapshot reads the same block, too.
            let first = bp.allocation_birth() > self.since;
            if (!is_data || self.depth == Depth::All && first)
                && let Err(e) = self.look_at(bp, at)
            {
                match is_data {
                    true => self.problem(Finding::DataUnreadable, at, e),
                    false => self.lost(at, e),
                }
            }
            if bp.kind() == BpKind::Normal && bp.fill() != 1 {
                self.problem(
                    Finding::FillCount,
                    at,
                    format!("its fill count is {}", bp.fill()),
                );
            }
        }
        if bp.kind() == BpKind::Normal {
            bp.fill()
        } else {
            1
        }
    }
}
