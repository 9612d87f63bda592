//! Records of the pool's own objects: directories, datasets, lists of pointers, configurations.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use zuse::tools::Dnode;
use zuse::tools::Objset;
use zuse::{ObjectId, Result};
use zuse_format::BlockPointer;
use zuse_format::dsl::{BpobjPhys, DslDatasetPhys, DslDirPhys};
use zuse_format::nvlist::NvList;

use super::{label, pointer};
use crate::date;
use crate::nicenum::nicenum;

/// Largest configuration that is printed.
const MAX_PACKED: u64 = 64 << 20;
/// Lists within lists.
const DEEPEST: u32 = 32;

/// Lines `name = value`, each behind two tabs.
fn lines(out: &mut Vec<u8>, rows: &[(&str, String)]) {
    for (name, value) in rows {
        let _ = writeln!(out, "\t\t{name} = {value}");
    }
}

/// A DSL directory.
///
/// # Errors
/// The bonus is too short.
pub fn dir(out: &mut Vec<u8>, bonus: &[u8], place: &dyn std::fmt::Display) -> Result<()> {
    let d = DslDirPhys::parse(bonus).map_err(|e| e.at(place.to_string()))?;
    lines(
        out,
        &[
            ("creation_time", date::ctime(d.creation_time)),
            ("head_dataset_obj", d.head_dataset.to_string()),
            ("parent_dir_obj", d.parent.to_string()),
            ("origin_obj", d.origin.to_string()),
            ("child_dir_zapobj", d.child_map.to_string()),
            ("used_bytes", nicenum(d.used_bytes)),
            ("compressed_bytes", nicenum(d.compressed_bytes)),
            ("uncompressed_bytes", nicenum(d.uncompressed_bytes)),
            ("quota", nicenum(d.quota)),
            ("reserved", nicenum(d.reserved)),
            ("props_zapobj", d.props.to_string()),
            ("deleg_zapobj", d.delegations.to_string()),
            ("flags", format!("{:x}", d.flags)),
        ],
    );
    let names = ["HEAD", "SNAP", "CHILD", "CHILD_RSRV", "REFRSRV"];
    for (name, used) in names.iter().zip(d.used_breakdown) {
        let _ = writeln!(out, "\t\tused_breakdown[{name}] = {}", nicenum(used));
    }
    lines(out, &[("clones", d.clones.to_string())]);
    Ok(())
}

/// A dataset.
///
/// # Errors
/// The bonus is too short.
pub fn dataset(out: &mut Vec<u8>, bonus: &[u8], place: &dyn std::fmt::Display) -> Result<()> {
    let d = DslDatasetPhys::parse(bonus).map_err(|e| e.at(place.to_string()))?;
    lines(
        out,
        &[
            ("dir_obj", d.dir.to_string()),
            ("prev_snap_obj", d.prev_snap.to_string()),
            ("prev_snap_txg", d.prev_snap_txg.to_string()),
            ("next_snap_obj", d.next_snap.to_string()),
            ("snapnames_zapobj", d.snapnames.to_string()),
            ("num_children", d.num_children.to_string()),
            ("userrefs_obj", d.userrefs.to_string()),
            ("creation_time", date::ctime(d.creation_time)),
            ("creation_txg", d.creation_txg.to_string()),
            ("deadlist_obj", d.deadlist.to_string()),
            ("used_bytes", nicenum(d.referenced_bytes)),
            ("compressed_bytes", nicenum(d.compressed_bytes)),
            ("uncompressed_bytes", nicenum(d.uncompressed_bytes)),
            ("unique", nicenum(d.unique_bytes)),
            ("fsid_guid", d.fsid_guid.to_string()),
            ("guid", d.guid.to_string()),
            ("flags", format!("{:x}", d.flags)),
            ("next_clones_obj", d.next_clones.to_string()),
            ("props_obj", d.props.to_string()),
            ("bp", pointer::full(&d.bp)),
        ],
    );
    Ok(())
}

/// Where the history begins and ends.
pub fn history(out: &mut Vec<u8>, bonus: &[u8]) {
    let names = [
        "pool_create_len",
        "phys_max_off",
        "bof",
        "eof",
        "records_lost",
    ];
    for (name, word) in names.iter().zip(bonus.as_chunks::<8>().0) {
        let _ = writeln!(out, "\t\t{name} = {}", u64::from_le_bytes(*word));
    }
}

/// A packed configuration.
///
/// # Errors
/// It cannot be read, or is none.
pub fn nvlist(out: &mut Vec<u8>, dnode: &Arc<Dnode>) -> Result<()> {
    let size = dnode.with_bonus(|b| {
        b.first_chunk::<8>()
            .map_or(0, |w| u64::from_le_bytes(*w))
            .min(MAX_PACKED)
    });
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    dnode.read_at(0, &mut bytes)?;
    let list = NvList::decode(&bytes).map_err(|e| e.at(dnode.place().to_string()))?;
    out.extend_from_slice(label::text(&list, 8).as_bytes());
    Ok(())
}

/// A list of block pointers in an object.
pub struct PointerList {
    dnode: Arc<Dnode>,
    /// Its header.
    pub phys: BpobjPhys,
}

impl PointerList {
    /// Opens the list of an object.
    ///
    /// # Errors
    /// There is no such list.
    pub fn open(mos: &Arc<Objset>, object: u64) -> Result<Self> {
        let dnode = mos.dnode(ObjectId(object))?;
        let phys =
            BpobjPhys::parse(&dnode.bonus_vec()).map_err(|e| e.at(dnode.place().to_string()))?;
        Ok(Self { dnode, phys })
    }

    /// The list of an object that has been read.
    ///
    /// # Errors
    /// The bonus is too short.
    pub fn of(dnode: &Arc<Dnode>) -> Result<Self> {
        let phys =
            BpobjPhys::parse(&dnode.bonus_vec()).map_err(|e| e.at(dnode.place().to_string()))?;
        Ok(Self {
            dnode: dnode.clone(),
            phys,
        })
    }

    fn at(&self, index: u64) -> Result<BlockPointer> {
        let mut raw = [0; 128];
        self.dnode.read_at(index.saturating_mul(128), &mut raw)?;
        Ok(BlockPointer::at(&raw, 0).unwrap_or_default())
    }

    /// The header, and with `pointers` one line for each pointer.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn dump(&self, out: &mut Vec<u8>, level: u8) -> Result<()> {
        let p = &self.phys;
        lines(
            out,
            &[
                ("num_blkptrs", p.num_blkptrs.to_string()),
                ("bytes", nicenum(p.bytes)),
            ],
        );
        if p.has_sizes() {
            lines(
                out,
                &[("comp", nicenum(p.comp)), ("uncomp", nicenum(p.uncomp))],
            );
        }
        if p.has_subobjs() {
            lines(
                out,
                &[
                    ("subobjs", p.subobjs.to_string()),
                    ("num_subobjs", p.num_subobjs.to_string()),
                ],
            );
            lines(out, &[("num_freed", p.num_freed.to_string())]);
        }
        if level < 5 {
            return Ok(());
        }
        for i in 0..self.limit() {
            self.line(out, i, level)?;
        }
        Ok(())
    }

    /// The most pointers that the list can have.
    fn limit(&self) -> u64 {
        let room = self
            .dnode
            .max_block()
            .saturating_add(1)
            .saturating_mul(u64::from(self.dnode.block_size()))
            / 128;
        self.phys.num_blkptrs.min(room)
    }

    /// All pointers of the list itself, and whether each is a freed one.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn all(&self) -> Result<Vec<(BlockPointer, bool)>> {
        let pointers = (0..self.limit()).map(|i| self.at(i));
        let marked = pointers.map(|bp| bp.map(|bp| (bp, BpobjPhys::is_freed(&bp))));
        marked.collect()
    }

    fn line(&self, out: &mut Vec<u8>, index: u64, level: u8) -> Result<()> {
        let bp = self.at(index)?;
        let _ = writeln!(
            out,
            "\t{}",
            pointer::short(&bp, level, BpobjPhys::is_freed(&bp))
        );
        Ok(())
    }

    /// A summary line. From level 5 on also its content and that of the lists inside it, newest
    /// first.
    ///
    /// # Errors
    /// A list cannot be read.
    pub fn summary(
        &self,
        mos: &Arc<Objset>,
        out: &mut Vec<u8>,
        title: &str,
        level: u8,
    ) -> Result<()> {
        self.sum_up(mos, out, title, level, 0)
    }

    fn sum_up(
        &self,
        mos: &Arc<Objset>,
        out: &mut Vec<u8>,
        title: &str,
        level: u8,
        depth: u32,
    ) -> Result<()> {
        let p = &self.phys;
        let indent = "    ".repeat(depth as usize + 1);
        let number = self.dnode.object().0;
        let mut text = format!("{indent}{title}: object {number}, {}", p.num_blkptrs);
        let has_lists = p.has_subobjs() && p.subobjs != 0;
        text.push_str(if has_lists {
            " local blkptrs"
        } else {
            " blkptrs"
        });
        if p.has_freed() {
            let _ = write!(text, ", {} freed", p.num_freed);
        }
        if has_lists {
            let _ = write!(text, ", {} subobjs in object {}", p.num_subobjs, p.subobjs);
        }
        let _ = write!(text, ", {}", nicenum(p.bytes));
        if has_lists {
            let _ = write!(text, " ({}/{} comp)", nicenum(p.comp), nicenum(p.uncomp));
        }
        let _ = writeln!(out, "{text}");
        if has_lists {
            let subs = mos.dnode(ObjectId(p.subobjs))?;
            for i in 0..p.num_subobjs.min(1 << 24) {
                let mut raw = [0; 8];
                subs.read_at(i * 8, &mut raw)?;
                let sub = Self::open(mos, u64::from_le_bytes(raw))?;
                if depth < DEEPEST {
                    sub.sum_up(mos, out, "subobj", level, depth + 1)?;
                }
            }
        }
        if level >= 5 {
            for i in (0..self.limit()).rev() {
                self.line(out, i, level)?;
            }
            out.push(b'\n');
        }
        Ok(())
    }
}
