//! One object: its row in the table, and its content.

use std::sync::Arc;

use zuse::tools::Objset;
use zuse::tools::{Dnode, SA_BONUS, ZNODE_BONUS};
use zuse::{Errno, Result};
use zuse_format::object_type::{self as t, SwapClass};

use super::record::{self, PointerList};
use super::tree::Tree;
use super::zap::{self, Meaning};
use super::znode::Znodes;
use super::{Style, pointer};
use crate::error::Outcome;
use crate::session::Session;

/// Flags of a dnode, in the order in which they are printed.
const FLAGS: [(u8, &str); 4] = [
    (1, "USED_BYTES "),
    (2, "USERUSED_ACCOUNTED "),
    (8, "USEROBJUSED_ACCOUNTED "),
    (4, "SPILL_BLKPTR"),
];

/// Type number of self-describing metadata of 32-bit numbers: how much of a removed vdev's mapping
/// is obsolete.
const COUNTS: u8 = 0xc2;

/// An object set whose objects are printed.
pub struct Table {
    objset: Arc<Objset>,
    /// The attribute tables of a file system, once an object needed them.
    znodes: Option<Znodes>,
    /// Whether the header of the table was printed.
    headed: bool,
    /// Objects that are inconsistent or cannot be read.
    pub wrong: u64,
}

/// Whether the level-0 content of a type is a ZAP.
pub fn is_zap(object_type: u8) -> bool {
    t::swap_class(object_type) == Some(SwapClass::Zap)
}

impl Table {
    /// Over an object set.
    pub fn new(objset: &Arc<Objset>) -> Self {
        Self {
            objset: objset.clone(),
            znodes: None,
            headed: false,
            wrong: 0,
        }
    }

    /// Files without a path.
    pub fn leaked(&self) -> u64 {
        self.znodes.as_ref().map_or(0, |z| z.leaked)
    }

    /// Prints an object under its usual number.
    ///
    /// # Errors
    /// The reader has closed the stream. Unreadable parts of the object are reported on the error
    /// stream and counted.
    pub fn print(
        &mut self,
        session: &mut Session,
        number: i64,
        dnode: &Arc<Dnode>,
        style: Style,
    ) -> Outcome {
        let mut out = Vec::new();
        if !self.headed || style.level > 3 {
            out.extend_from_slice(
                b"\n    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type\n",
            );
            self.headed = true;
        }
        out.extend_from_slice(row(number, dnode, style).as_bytes());
        if style.level > 3
            && let Err(e) = self.details(&mut out, dnode, number == 0, style)
        {
            session.ui.print(std::mem::take(&mut out))?;
            session.ui.say(format!("zdb: {e}"));
            self.wrong += 1;
        }
        session.ui.print(out)?;
        if style.level > 4 {
            if let Some(bp) = dnode.spill_pointer().filter(|bp| !bp.is_hole()) {
                let text = pointer::short(&bp, style.level, false);
                session.ui.line(format!("\nSpill block: {text}"))?;
            }
            let tree = Tree::new(&self.objset, dnode, number == 0, style);
            match tree.dump(session)? {
                Ok(wrong) => self.wrong += u64::from(wrong),
                Err(e) => {
                    session.ui.say(format!("zdb: {e}"));
                    self.wrong += 1;
                }
            }
        }
        Ok(())
    }

    fn details(
        &mut self,
        out: &mut Vec<u8>,
        dnode: &Arc<Dnode>,
        is_meta: bool,
        style: Style,
    ) -> Result<()> {
        let bonus = dnode.bonus_type();
        if bonus != 0 {
            let text = format!(
                "{:43}  {:>5}  {:>6}  {}\n",
                "",
                style.number(dnode.with_bonus(<[u8]>::len) as u64),
                "bonus",
                pointer::type_name(bonus)
            );
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(b"\tdnode flags: ");
        for (bit, name) in FLAGS {
            if dnode.flags() & bit != 0 {
                out.extend_from_slice(name.as_bytes());
            }
        }
        out.extend_from_slice(format!("\n\tdnode maxblkid: {}\n", dnode.max_block()).as_bytes());
        let locked = self.objset.is_locked();
        if locked && t::is_encrypted(bonus) {
            out.extend_from_slice(b"\t\t(bonus encrypted)\n");
        } else {
            self.bonus(out, dnode, style)?;
        }
        let kind = dnode.object_type();
        if locked && t::is_encrypted(kind) {
            out.extend_from_slice(b"\t\t(object encrypted)\n");
            return Ok(());
        }
        if is_meta {
            return Ok(());
        }
        content(out, dnode, kind)
    }

    fn bonus(&mut self, out: &mut Vec<u8>, dnode: &Arc<Dnode>, style: Style) -> Result<()> {
        let place = dnode.place();
        match dnode.bonus_type() {
            SA_BONUS | ZNODE_BONUS => {
                let mut znodes = match self.znodes.take() {
                    Some(znodes) => znodes,
                    None => Znodes::open(&self.objset)?,
                };
                let done = znodes.dump(out, dnode, style.level > 4);
                self.znodes = Some(znodes);
                match done {
                    Err(e) if e.is(Errno::INVAL) => Ok(()),
                    other => other,
                }
            }
            t::DSL_DIR => record::dir(out, &dnode.bonus_vec(), &place),
            t::DSL_DATASET => record::dataset(out, &dnode.bonus_vec(), &place),
            t::BPOBJ_HDR => PointerList::of(dnode)?.dump(out, style.level),
            t::SPA_HISTORY_OFFSETS => {
                dnode.with_bonus(|b| record::history(out, b));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn content(out: &mut Vec<u8>, dnode: &Arc<Dnode>, kind: u8) -> Result<()> {
    match kind {
        t::PACKED_NVLIST => record::nvlist(out, dnode),
        t::DDT_ZAP => zap::dump_figures(out, dnode),
        COUNTS => {
            out.extend_from_slice(b"\tUNKNOWN OBJECT TYPE\n");
            Ok(())
        }
        t::DIRECTORY_CONTENTS => zap::dump(out, dnode, Meaning::Directory),
        t::SA_ATTR_REGISTRATION => zap::dump(out, dnode, Meaning::Registry),
        t::SA_ATTR_LAYOUTS => zap::dump(out, dnode, Meaning::Layouts),
        // An object that became a ZAP only for more properties may have no block yet.
        other if is_zap(other) && dnode.block_pointers().iter().any(|bp| !bp.is_hole()) => {
            zap::dump(out, dnode, Meaning::Any)
        }
        _ => Ok(()),
    }
}

fn row(number: i64, dnode: &Dnode, style: Style) -> String {
    let block = u64::from(dnode.block_size());
    let size = dnode.max_block().saturating_add(1).saturating_mul(block);
    let fill: u64 = dnode
        .block_pointers()
        .iter()
        .filter(|bp| !bp.is_hole())
        .fold(0, |sum, bp| sum.saturating_add(bp.fill()));
    let mut full = 100.0 * fill as f64 * block as f64 / size.max(1) as f64;
    if number == 0 {
        full /= (block / 512).max(1) as f64;
    }
    let mut kind = pointer::type_name(dnode.object_type()).to_owned();
    if dnode.checksum() != 0 || style.level > 5 {
        kind.push_str(&format!(" (K={})", pointer::checksum(dnode.checksum())));
    }
    if dnode.compress() != 0 || style.level > 5 {
        kind.push_str(&format!(" (Z={})", pointer::compression(dnode.compress())));
    }
    format!(
        "{number:>10}  {:>3}  {:>5}  {:>5}  {:>5}  {:>6}  {:>5}  {full:>6.2}  {kind}\n",
        dnode.levels(),
        style.number(1 << dnode.indirect_shift().min(63)),
        style.number(block),
        style.number(dnode.used_bytes().saturating_add(256) / 512 * 512),
        style.number(u64::from(dnode.slots()) * 512),
        style.number(size),
    )
}
