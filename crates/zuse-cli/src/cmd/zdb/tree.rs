//! The block tree of an object: every pointer, and which parts hold data.

use std::fmt::Write as _;
use std::sync::Arc;

use zuse::Error;
use zuse::tools::Dnode;
use zuse::tools::Objset;
use zuse_format::BlockPointer;
use zuse_format::dnode::scan_block;

use super::{Style, pointer};
use crate::error::Outcome;
use crate::session::Session;

/// Why a walk ends early.
enum Fault {
    /// A block cannot be read.
    Read(Error),
    /// The reader has closed the stream.
    Print(std::io::Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Read(error)
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::Print(error)
    }
}

/// A walk over one tree.
pub struct Tree<'a> {
    objset: &'a Arc<Objset>,
    levels: u8,
    fanout_shift: u32,
    block_size: u64,
    is_meta: bool,
    object_type: u8,
    style: Style,
    /// Pointers of the top level.
    top: Vec<BlockPointer>,
    /// A run of data that may continue.
    open: Option<(u64, u64)>,
    segments: Vec<(u64, u64)>,
    wrong: bool,
}

impl<'a> Tree<'a> {
    /// The tree of an object. `is_meta`: of the one that contains the dnodes.
    pub fn new(objset: &'a Arc<Objset>, dnode: &Dnode, is_meta: bool, style: Style) -> Self {
        Self {
            objset,
            levels: dnode.levels(),
            fanout_shift: u32::from(dnode.indirect_shift()).saturating_sub(7),
            block_size: dnode.block_size().into(),
            is_meta,
            object_type: dnode.object_type(),
            style,
            top: dnode.block_pointers(),
            open: None,
            segments: Vec::new(),
            wrong: false,
        }
    }

    /// Prints one line per block, then the segments. True if the tree is inconsistent. The inner
    /// error: a block of the tree cannot be read.
    pub fn dump(mut self, session: &mut Session) -> Outcome<zuse::Result<bool>> {
        session.ui.line("Indirect blocks:")?;
        let top = std::mem::take(&mut self.top);
        let mut read = Ok(());
        for (i, bp) in top.iter().enumerate() {
            read = self.visit(session, bp, self.levels.saturating_sub(1), i as u64);
            if read.is_err() {
                break;
            }
        }
        session.ui.line("")?;
        self.segments.extend(self.open.take());
        for (from, to) in &self.segments {
            session.ui.line(format!(
                "\t\tsegment [{from:016x}, {to:016x}) size {:>5}",
                self.style.number(to.saturating_sub(*from))
            ))?;
        }
        match read {
            Ok(()) => Ok(Ok(self.wrong)),
            Err(Fault::Read(e)) => Ok(Err(e)),
            Err(Fault::Print(e)) => Err(e.into()),
        }
    }

    fn line(&mut self, bp: &BlockPointer, level: u8, offset: u64) -> String {
        let mut out = format!("{offset:>16x} ");
        for l in (-1..i16::from(self.levels)).rev() {
            if l == i16::from(level) {
                let _ = write!(out, "L{level:x}");
            } else {
                out.push(' ');
            }
        }
        out.push_str(&pointer::short(bp, self.style.level, false));
        if !bp.is_hole() {
            if bp.object_type() != self.object_type {
                self.wrong = true;
                let _ = write!(
                    out,
                    " (ERROR: Block pointer type ({}) does not match dnode type ({}))",
                    bp.object_type(),
                    self.object_type
                );
            }
            if bp.level() != level {
                self.wrong = true;
                let _ = write!(
                    out,
                    " (ERROR: Block pointer level ({}) does not match level ({level}))",
                    bp.level()
                );
            }
        }
        out.push('\n');
        out
    }

    fn visit(
        &mut self,
        session: &mut Session,
        bp: &BlockPointer,
        level: u8,
        block: u64,
    ) -> Result<(), Fault> {
        if bp.logical_birth() == 0 {
            return Ok(());
        }
        let first = block
            .checked_shl(self.fanout_shift * u32::from(level))
            .unwrap_or(u64::MAX);
        let offset = first.saturating_mul(self.block_size);
        let line = self.line(bp, level, offset);
        session.ui.print(line)?;
        if bp.is_hole() {
            return Ok(());
        }
        if level == 0 {
            self.data(bp, offset)?;
            return Ok(());
        }
        // A block of another level is not walked: its content would be taken for pointers.
        if bp.is_redacted() || bp.level() != level {
            return Ok(());
        }
        let place = format!("{}, level {level}, block {block}", self.objset.place());
        let read = self
            .objset
            .io()
            .read_keyed(bp, self.objset.key().map(AsRef::as_ref), &place)?;
        let count = 1usize << self.fanout_shift;
        let mut fill = 0u64;
        for i in 0..count {
            let Some(child) = BlockPointer::at(read.bytes(), i * 128) else {
                break;
            };
            if !child.is_hole() {
                fill = fill.saturating_add(child.fill());
            }
            let number = block
                .checked_shl(self.fanout_shift)
                .unwrap_or(u64::MAX)
                .saturating_add(i as u64);
            self.visit(session, &child, level - 1, number)?;
        }
        if fill != bp.fill() {
            self.wrong = true;
            session.ui.line(format!(
                "{offset:>16x}: Block pointer fill ({}) does not match calculated value ({fill})",
                bp.fill()
            ))?;
        }
        Ok(())
    }

    /// Notes the location of data: a block, or the dnodes in use of a block of dnodes.
    fn data(&mut self, bp: &BlockPointer, offset: u64) -> zuse::Result<()> {
        if !self.is_meta {
            self.run(offset, self.block_size);
            return Ok(());
        }
        let block = self.objset.io().read_keyed(
            bp,
            self.objset.key().map(AsRef::as_ref),
            &self.objset.place(),
        )?;
        for (slot, dnode) in scan_block(block.bytes()) {
            if let Ok(dnode) = dnode {
                self.run(offset + slot as u64 * 512, dnode.slots() as u64 * 512);
            }
        }
        Ok(())
    }

    fn run(&mut self, from: u64, bytes: u64) {
        match &mut self.open {
            Some((_, to)) if *to == from => *to += bytes,
            _ => {
                self.segments.extend(self.open.take());
                self.open = Some((from, from.saturating_add(bytes)));
            }
        }
    }
}
