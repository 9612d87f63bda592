//! Walks an object set: the contents of a stream, in order, without the data.
//!
//! ```text
//!   meta dnode tree ─► dnode blocks ─► dnodes in slot order ─► their blocks in offset order ─► spill
//! ```
//! Only pointers born after the source (and holes of unknown age) are followed. Neighbouring
//! indirect and dnode blocks are read together; nothing enters the cache.
//!
//! A pointer is followed only if its level and the size of its block are right for its place;
//! otherwise it is `Corrupt`. So memory is bounded by the depth of the tree times a few indirect
//! blocks.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;
use zuse_base::cut::{fit8, fit32};

use zuse_base::{ByteOrder, Error, Result};
use zuse_format::block_pointer::BP_SIZE;
use zuse_format::dnode::{DNODE_BLOCK, DNODE_CORE, DNODE_SLOT, DnodeView, SLOTS_PER_BLOCK};
use zuse_format::{BlockPointer, BpKind, DnodePhys, object_type};
use zuse_io::{Block, DatasetKey, Pipeline};

use crate::record::{OBJECT_SPILL, ObjectRecord, RAW_BYTESWAP, SPILL_UNMODIFIED};
use crate::redact::Cover;

/// Largest block of a stream without the large-block feature.
pub(crate) const OLD_MAX_BLOCK: u64 = 128 << 10;
/// Metadata blocks read at once.
const TOGETHER: usize = 32;

/// The events of a walk.
#[derive(Debug)]
pub(crate) enum Event {
    /// A block of dnodes, for a raw stream.
    Range {
        first: u64,
        bp: BlockPointer,
    },
    Object(Box<ObjectRecord>, Vec<u8>),
    FreeObjects {
        first: u64,
        count: u64,
    },
    Free {
        object: u64,
        offset: u64,
        length: u64,
    },
    Redact {
        object: u64,
        offset: u64,
        length: u64,
    },
    Data {
        object: u64,
        object_type: u8,
        offset: u64,
        bp: BlockPointer,
    },
    Spill {
        object: u64,
        flags: u8,
        bp: BlockPointer,
    },
}

impl Event {
    /// Object and offset where it begins; for the tail of an object, which comes first, only the
    /// object.
    fn place(&self) -> (u64, u64) {
        match self {
            Self::Range { first, .. } | Self::FreeObjects { first, .. } => (*first, 0),
            Self::Object(record, _) => (record.object, 0),
            Self::Free {
                object,
                length: u64::MAX,
                ..
            }
            | Self::Spill {
                object,
                flags: SPILL_UNMODIFIED,
                ..
            } => (*object, 0),
            Self::Spill { object, .. } => (*object, u64::MAX),
            Self::Free { object, offset, .. }
            | Self::Redact { object, offset, .. }
            | Self::Data { object, offset, .. } => (*object, *offset),
        }
    }
}

/// What to walk.
pub(crate) struct Walk<'a> {
    pub io: &'a Pipeline,
    /// Name of the dataset, for messages.
    pub name: &'a str,
    /// Blocks born later are sent.
    pub from_txg: u64,
    /// Blocks above 128 KiB keep their size.
    pub large_blocks: bool,
    /// Object and offset to continue from.
    pub resume: Option<(u64, u64)>,
    /// Keys of an encrypted dataset that is sent in clear.
    pub key: Option<&'a DatasetKey>,
    /// Ciphertext is sent unchanged.
    pub raw: bool,
    /// Last object and offset to send: later ones were not received yet.
    pub until: Option<(u64, u64)>,
    /// Blocks that are left out.
    pub redact: Option<RefCell<Cover>>,
    /// Old blocks that are sent nevertheless, because the source was redacted.
    pub missing: Option<RefCell<Cover>>,
}

/// A walk ends early if its events are not needed any more.
pub(crate) type Step = ControlFlow<Result<()>>;

struct Merger<'a> {
    sink: &'a mut dyn FnMut(Event) -> Step,
    pending: Option<Event>,
    /// First object number that cannot exist.
    object_limit: u64,
}

impl Merger<'_> {
    fn flush(&mut self) -> Step {
        match self.pending.take() {
            Some(event) => (self.sink)(event),
            None => Step::Continue(()),
        }
    }

    /// Passes an event on; one that may be merged with its neighbours waits for the next.
    fn push(&mut self, event: Event) -> Step {
        match (&mut self.pending, &event) {
            (
                Some(Event::Free {
                    object,
                    offset,
                    length,
                }),
                Event::Free {
                    object: o,
                    offset: at,
                    length: more,
                },
            )
            | (
                Some(Event::Redact {
                    object,
                    offset,
                    length,
                }),
                Event::Redact {
                    object: o,
                    offset: at,
                    length: more,
                },
            ) if object == o && offset.checked_add(*length) == Some(*at) => {
                *length = length.saturating_add(*more);
                return Step::Continue(());
            }
            (
                Some(Event::FreeObjects { first, count }),
                Event::FreeObjects {
                    first: at,
                    count: more,
                },
            ) if first.checked_add(*count) == Some(*at) => {
                *count = count.saturating_add(*more);
                return Step::Continue(());
            }
            _ => {}
        }
        self.flush()?;
        match event {
            Event::Free { .. } | Event::Redact { .. } | Event::FreeObjects { .. } => {
                self.pending = Some(event);
                Step::Continue(())
            }
            other => (self.sink)(other),
        }
    }

    fn free_objects(&mut self, first: u64, count: u64) -> Step {
        let end = first.saturating_add(count).min(self.object_limit);
        // Object 0 is the meta dnode.
        let first = first.max(1);
        if first >= end {
            return Step::Continue(());
        }
        self.push(Event::FreeObjects {
            first,
            count: end - first,
        })
    }
}

/// One block tree.
struct Tree<'a> {
    object: u64,
    dnode: &'a DnodePhys,
    /// Where the walk begins, in blocks.
    first: u64,
}

impl Tree<'_> {
    fn fanout(&self) -> u32 {
        self.dnode.fanout_shift()
    }

    /// Blocks below a pointer of a level; `u64::MAX` if beyond 64 bits.
    fn span(&self, level: u8) -> u64 {
        1u64.checked_shl(self.fanout() * u32::from(level))
            .unwrap_or(u64::MAX)
    }
}

fn stop<T>(error: Error) -> ControlFlow<Result<()>, T> {
    ControlFlow::Break(Err(error))
}

fn tried<T>(result: Result<T>) -> ControlFlow<Result<()>, T> {
    match result {
        Ok(v) => ControlFlow::Continue(v),
        Err(e) => stop(e),
    }
}

impl Walk<'_> {
    /// Walks an object set by its meta dnode.
    ///
    /// # Errors
    /// A metadata block cannot be read or is invalid.
    pub fn run(&self, meta: &DnodePhys, sink: &mut dyn FnMut(Event) -> Step) -> Result<()> {
        let mut sink = |event: Event| match self.until {
            Some(last) if event.place() > last => Step::Break(Ok(())),
            _ => sink(event),
        };
        let mut out = Merger {
            sink: &mut sink,
            pending: None,
            object_limit: meta
                .max_block_id
                .saturating_add(1)
                .saturating_mul(SLOTS_PER_BLOCK as u64),
        };
        let first = self
            .resume
            .map_or(0, |(object, _)| object / SLOTS_PER_BLOCK as u64);
        let tree = Tree {
            object: 0,
            dnode: meta,
            first,
        };
        let walked = match self.tops(&tree, &mut out) {
            Step::Continue(()) => out.flush(),
            done => done,
        };
        match walked {
            Step::Continue(()) => Ok(()),
            Step::Break(result) => result,
        }
    }

    fn place(&self, tree: &Tree<'_>, level: u8, blkid: u64) -> String {
        format!(
            "{}, object {}, level {level} block {blkid}",
            self.name, tree.object
        )
    }

    fn is_visited(&self, bp: &BlockPointer) -> bool {
        let birth = bp.logical_birth();
        // A hole without a birth is of unknown age: the receiver may have data there.
        birth > self.from_txg || birth == 0 && bp.is_hole()
    }

    /// Whether something below an unvisited pointer has to be sent nevertheless.
    fn is_missed(&self, tree: &Tree<'_>, begins: u64, span: u64) -> Result<bool> {
        let Some(missing) = &self.missing else {
            return Ok(false);
        };
        let ends = begins.saturating_add(span);
        let (from, to) = if tree.object == 0 {
            let per = SLOTS_PER_BLOCK as u64;
            (
                (begins.saturating_mul(per), 0),
                (ends.saturating_mul(per), 0),
            )
        } else {
            let size = tree.dnode.data_block_size();
            let at = |blocks: u64| (tree.object, blocks.saturating_mul(size));
            (at(begins), at(ends))
        };
        missing.borrow_mut().meets(from, to)
    }

    fn is_left_out(&self, object: u64, offset: u64, size: u64) -> Result<bool> {
        match &self.redact {
            Some(list) => list.borrow_mut().covers(object, offset, size),
            None => Ok(false),
        }
    }

    fn tops(&self, tree: &Tree<'_>, out: &mut Merger<'_>) -> Step {
        let level = tree.dnode.levels.saturating_sub(1);
        let tops = tree.dnode.blkptrs().to_vec();
        self.children(tree, level, 0, &tops, out)
    }

    /// Visits the pointers of an indirect block (or of a dnode); `first` is the index of the first
    /// in their level.
    fn children(
        &self,
        tree: &Tree<'_>,
        level: u8,
        first: u64,
        bps: &[BlockPointer],
        out: &mut Merger<'_>,
    ) -> Step {
        let is_meta = tree.object == 0;
        let deep = level > 0 || is_meta;
        let mut ahead: Vec<Option<Arc<Block>>> = Vec::new();
        let mut ahead_from = 0;
        for (i, bp) in bps.iter().enumerate() {
            let id = first + i as u64;
            let span = tree.span(level);
            let begins = id.saturating_mul(span);
            // An earlier attempt has sent it.
            if begins.saturating_add(span) <= tree.first {
                continue;
            }
            let visited = self.is_visited(bp);
            if !visited && (bp.is_hole() || !tried(self.is_missed(tree, begins, span))?) {
                continue;
            }
            if bp.is_hole() {
                self.hole(tree, begins, span, out)?;
                continue;
            }
            if bp.level() != level {
                return stop(Error::contradiction(
                    self.place(tree, level, id),
                    format!("its pointer says level {}", bp.level()),
                ));
            }
            if !deep {
                self.leaf(tree, id, bp, visited, out)?;
                continue;
            }
            if i >= ahead_from + ahead.len() {
                ahead = tried(self.read_ahead(tree, level, first, bps, i))?;
                ahead_from = i;
            }
            let block = match ahead.get_mut(i - ahead_from).and_then(Option::take) {
                Some(block) => block,
                None => tried(self.io.read_uncached_keyed(
                    bp,
                    self.key,
                    &self.place(tree, level, id),
                ))?,
            };
            if level > 0 {
                let below = tried(self.pointers(tree, level, id, &block))?;
                let shift = tree.fanout();
                self.children(tree, level - 1, id << shift, &below, out)?;
            } else {
                self.dnodes(id, bp, &block, visited, out)?;
            }
        }
        Step::Continue(())
    }

    /// Reads the next metadata blocks, starting at `from`.
    fn read_ahead(
        &self,
        tree: &Tree<'_>,
        level: u8,
        first: u64,
        bps: &[BlockPointer],
        from: usize,
    ) -> Result<Vec<Option<Arc<Block>>>> {
        let mut out = Vec::new();
        let mut wanted = Vec::new();
        let mut slots = Vec::new();
        for bp in &bps[from..] {
            if slots.len() == TOGETHER {
                break;
            }
            let slot = out.len();
            out.push(None);
            if bp.kind() != BpKind::Normal || !self.is_visited(bp) || bp.level() != level {
                continue;
            }
            match self.io.peek(bp) {
                Some(block) => out[slot] = Some(block),
                // Encrypted ones are read with their key, one by one.
                None if !bp.uses_crypt() => {
                    wanted.push(*bp);
                    slots.push(slot);
                }
                None => {}
            }
        }
        let number = |i: usize| first + (from + slots.get(i).copied().unwrap_or(0)) as u64;
        // The walk reads an unreadable block again, separately, if it gets there.
        let Ok(run) = self
            .io
            .read_stored_run(&wanted, &|i| self.place(tree, level, number(i)))
        else {
            return Ok(out);
        };
        for (i, (bp, slot)) in wanted.iter().zip(&slots).enumerate() {
            let place = self.place(tree, level, number(i));
            let bytes = self.io.decode_stored(bp, run.get(i), &place)?;
            out[*slot] = Some(Arc::new(Block::new(bytes)));
        }
        Ok(out)
    }

    fn pointers(
        &self,
        tree: &Tree<'_>,
        level: u8,
        id: u64,
        block: &Block,
    ) -> Result<Vec<BlockPointer>> {
        let bytes = block.bytes();
        if bytes.len() != 1usize << tree.dnode.indirect_shift {
            return Err(Error::corrupt(
                self.place(tree, level, id),
                format!("an indirect block of {} bytes", bytes.len()),
            ));
        }
        Ok(bytes
            .as_chunks::<BP_SIZE>()
            .0
            .iter()
            .map(|raw| BlockPointer::parse(raw, zuse_base::ByteOrder::Little))
            .collect())
    }

    fn hole(&self, tree: &Tree<'_>, begins: u64, span: u64, out: &mut Merger<'_>) -> Step {
        if tree.object == 0 {
            let per = SLOTS_PER_BLOCK as u64;
            return match begins.checked_mul(per) {
                Some(first) => out.free_objects(first, span.saturating_mul(per)),
                None => Step::Continue(()),
            };
        }
        let size = tree.dnode.data_block_size();
        let past = begins > tree.dnode.max_block_id;
        if past && !object_type::is_metadata(tree.dnode.object_type) {
            return Step::Continue(());
        }
        let (Some(offset), Some(length)) = (begins.checked_mul(size), span.checked_mul(size))
        else {
            return Step::Continue(());
        };
        out.push(Event::Free {
            object: tree.object,
            offset,
            length,
        })
    }

    fn leaf(
        &self,
        tree: &Tree<'_>,
        id: u64,
        bp: &BlockPointer,
        visited: bool,
        out: &mut Merger<'_>,
    ) -> Step {
        let size = tree.dnode.data_block_size();
        let Some(offset) = id.checked_mul(size) else {
            return stop(Error::corrupt(
                self.place(tree, 0, id),
                "a block beyond 64 bits",
            ));
        };
        let left_out = bp.is_redacted() || tried(self.is_left_out(tree.object, offset, size))?;
        if left_out && !visited {
            // The source lacks it as well.
            return Step::Continue(());
        }
        if left_out {
            return out.push(Event::Redact {
                object: tree.object,
                offset,
                length: size,
            });
        }
        if bp.lsize() != size {
            return stop(Error::corrupt(
                self.place(tree, 0, id),
                format!(
                    "a block of {} bytes in an object of {size}-byte blocks",
                    bp.lsize()
                ),
            ));
        }
        out.push(Event::Data {
            object: tree.object,
            object_type: tree.dnode.object_type,
            offset,
            bp: *bp,
        })
    }

    fn dnodes(
        &self,
        blkid: u64,
        bp: &BlockPointer,
        block: &Block,
        visited: bool,
        out: &mut Merger<'_>,
    ) -> Step {
        let bytes = block.bytes();
        let first = blkid.saturating_mul(SLOTS_PER_BLOCK as u64);
        if bytes.len() != DNODE_BLOCK {
            return stop(Error::corrupt(
                format!("{}, dnode block {blkid}", self.name),
                format!("a dnode block of {} bytes", bytes.len()),
            ));
        }
        let mut stored = None;
        if self.raw {
            out.push(Event::Range { first, bp: *bp })?;
            if bp.byte_order() == ByteOrder::Big {
                // The block here is swapped, while its MAC covers the stored bytes.
                let place = format!("{}, dnode block {blkid}", self.name);
                stored = Some(tried(self.io.read_stored(bp, &place))?);
            }
        }
        let stored = stored.as_deref().unwrap_or(bytes);
        let mut slot = 0;
        while slot < SLOTS_PER_BLOCK {
            let object = first + slot as u64;
            let place = || format!("{}, object {object}", self.name);
            let parsed = DnodeView::parse(&bytes[slot * DNODE_SLOT..]);
            let dnode = match tried(parsed.map_err(|e| e.at(place())))? {
                Some(view) => view.to_phys(),
                None => {
                    if visited && !self.is_skipped(object) {
                        out.free_objects(object, 1)?;
                    }
                    slot += 1;
                    continue;
                }
            };
            let room = stored.get(slot * DNODE_SLOT..).unwrap_or_default();
            slot += dnode.slots();
            if object != 0 && !self.is_skipped(object) && !visited {
                let tree = Tree {
                    object,
                    dnode: &dnode,
                    first: self.first_block(object, dnode.data_block_size()),
                };
                self.tops(&tree, out)?;
            } else if object != 0 && !self.is_skipped(object) {
                self.object(object, &dnode, room, bp.byte_order(), out)?;
            }
        }
        Step::Continue(())
    }

    fn is_skipped(&self, object: u64) -> bool {
        self.resume.is_some_and(|(first, _)| object < first)
    }

    /// Where the walk of an object begins.
    fn first_block(&self, object: u64, size: u64) -> u64 {
        match self.resume {
            Some((at, offset)) if at == object => offset / size,
            _ => 0,
        }
    }

    fn object(
        &self,
        object: u64,
        dnode: &DnodePhys,
        stored: &[u8],
        order: ByteOrder,
        out: &mut Merger<'_>,
    ) -> Step {
        let size = dnode.data_block_size();
        let spill = dnode.spill.filter(|bp| !bp.is_hole());
        let (record, bonus) = self.record_of(object, dnode, stored, order);
        out.push(Event::Object(Box::new(record), bonus))?;
        // The tail is passed on at once: it is never merged with the holes after it.
        if let Some(offset) = dnode
            .max_block_id
            .checked_add(1)
            .and_then(|n| n.checked_mul(size))
        {
            out.flush()?;
            (out.sink)(Event::Free {
                object,
                offset,
                length: u64::MAX,
            })?;
        }
        let modified = spill.is_some_and(|bp| bp.logical_birth() > self.from_txg);
        if let Some(bp) = spill.filter(|_| !modified) {
            out.push(Event::Spill {
                object,
                flags: SPILL_UNMODIFIED,
                bp,
            })?;
        }
        let tree = Tree {
            object,
            dnode,
            first: self.first_block(object, size),
        };
        self.tops(&tree, out)?;
        match spill.filter(|_| modified) {
            Some(bp) => out.push(Event::Spill {
                object,
                flags: 0,
                bp,
            }),
            None => Step::Continue(()),
        }
    }

    /// The OBJECT record of a dnode, and its bonus.
    fn record_of(
        &self,
        object: u64,
        dnode: &DnodePhys,
        stored: &[u8],
        order: ByteOrder,
    ) -> (ObjectRecord, Vec<u8>) {
        let size = dnode.data_block_size();
        // The receiver's blocks have the size in which they are sent.
        let told = if self.large_blocks {
            size
        } else {
            size.min(OLD_MAX_BLOCK)
        };
        let mut bonus = dnode.bonus.clone();
        bonus.resize(bonus.len().next_multiple_of(8), 0);
        let spill = dnode.spill.filter(|bp| !bp.is_hole());
        let mut record = ObjectRecord {
            object,
            object_type: dnode.object_type.into(),
            bonus_type: dnode.bonus_type.into(),
            block_size: fit32(told),
            bonus_len: fit32(dnode.bonus.len()),
            checksum: dnode.checksum,
            compress: dnode.compress,
            slots: fit8(dnode.slots()),
            flags: if spill.is_some() { OBJECT_SPILL } else { 0 },
            ..ObjectRecord::default()
        };
        if self.raw {
            // MACs cover the whole bonus area, and the shape of the tree.
            if !dnode.bonus.is_empty() {
                let from = DNODE_CORE + BP_SIZE * usize::from(dnode.nblkptr);
                let room = stored.get(from..from + dnode.bonus_room());
                bonus = room.unwrap_or_default().to_vec();
                record.raw_bonus_len = fit32(bonus.len());
            }
            record.indirect_shift = dnode.indirect_shift;
            record.levels = dnode.levels;
            record.nblkptr = dnode.nblkptr;
            record.max_block = dnode.max_block_id;
            if order == ByteOrder::Big {
                record.flags |= RAW_BYTESWAP;
            }
        }
        (record, bonus)
    }
}
