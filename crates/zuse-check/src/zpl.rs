//! Files: names, links, parents, the unlinked set (chapter 03c of the format notes, §10).
//!
//! ```text
//!   1. every directory ──► each name counts for the object it leads to ─┐
//!      unlinked set, extended attributes' directories ──────────────────┴► notes, by object
//!   2. every object ──► its own attributes against its notes
//! ```
//! Memory: notes for [`WINDOW`] objects at a time. A file system with higher object numbers is
//! walked once per window.

use std::sync::Arc;

use zuse_base::{ObjectId, Result};
use zuse_dmu::sa::{Attr, SA_BONUS, SaTable, SaView, ZNODE_BONUS};
use zuse_dmu::zap::Zap;
use zuse_dmu::{Dnode, Objset};

use super::{Finding, Report};

/// Objects that are noted at a time, 16 bytes each.
pub const WINDOW: u64 = 4 << 20;

const MASTER_NODE: ObjectId = ObjectId(1);
const NUMBER: u64 = (1 << 48) - 1;
/// Types of files, as in MODE >> 12.
const DIRECTORY: u8 = 4;
const TYPES: [u8; 7] = [1, 2, DIRECTORY, 6, 8, 10, 12];
const DIRECTORY_CONTENTS: u8 = 20;

/// References to an object.
#[derive(Clone, Copy, Default)]
struct Note {
    /// The directory of the last name, or the file that has it as attribute directory.
    holder: u64,
    names: u32,
    /// File type according to its names; sub-directories of a directory are counted elsewhere.
    kind: u8,
    /// Bits below.
    flags: u8,
}

const EXISTS: u8 = 1;
const UNLINKED: u8 = 2;
const ATTRIBUTES: u8 = 4;
const MIXED: u8 = 8;

/// The notes of a window of object numbers.
struct Notes {
    from: u64,
    notes: Vec<Note>,
}

impl Notes {
    fn at(&mut self, object: u64) -> Option<&mut Note> {
        let at = usize::try_from(object.checked_sub(self.from)?).ok()?;
        self.notes.get_mut(at)
    }
}

struct Files<'a> {
    set: &'a Arc<Objset>,
    table: Arc<SaTable>,
    place: &'a str,
    /// Names include the type of their target.
    typed: bool,
    root: u64,
    queue: Option<u64>,
    shares: u64,
}

/// Looks at the files of a file system.
///
/// # Errors
/// Something cannot be read.
pub(super) fn check(set: &Arc<Objset>, place: &str, report: &mut Report) -> Result<()> {
    let mut lacks = |what: &str| report.problem(Finding::MasterNode, place, what);
    let Ok(master) = set.dnode(MASTER_NODE).and_then(|d| Zap::open(&d)) else {
        lacks("there is none");
        return Ok(());
    };
    let number = |name: &str| master.lookup_u64(name.as_bytes());
    let version = number("VERSION")?.unwrap_or(0);
    let root = number("ROOT")?.unwrap_or(0);
    let queue = number("DELETE_QUEUE")?;
    if !(1..=5).contains(&version) {
        lacks(&format!("version {version}"));
        return Ok(());
    }
    if root == 0 {
        lacks("ROOT");
    }
    if queue.is_none() {
        lacks("DELETE_QUEUE");
    }
    let table = match number("SA_ATTRS")? {
        Some(master) => SaTable::open(set, ObjectId(master))?,
        None if version >= 5 => {
            lacks("SA_ATTRS");
            return Ok(());
        }
        None => SaTable::legacy(set),
    };
    let files = Files {
        set,
        table,
        place,
        typed: version >= 2,
        root,
        queue,
        shares: number("SHARES")?.unwrap_or(0),
    };
    let objects = set.meta().max_block().saturating_add(1).saturating_mul(32);
    let mut last = ObjectId(0);
    // The next window begins at the next object that exists.
    while let Some(next) = set.next_object(last)?.filter(|o| o.0 < objects) {
        let from = if last.0 == 0 { 0 } else { next.0 };
        files.window(from, (objects - from).min(WINDOW), report)?;
        last = ObjectId(from + WINDOW - 1);
    }
    Ok(())
}

/// The attributes of an object that are checked.
struct Facts {
    kind: u8,
    links: u64,
    size: u64,
    parent: u64,
    attributes: u64,
}

impl Facts {
    fn of(view: &SaView) -> Result<Self> {
        let number = |attr| Ok::<u64, zuse_base::Error>(view.u64(attr)?.unwrap_or(0));
        let xattr = match view.u64(Attr::Xattr) {
            Ok(object) => object.unwrap_or(0),
            Err(_) => 0,
        };
        Ok(Self {
            kind: u8::try_from(number(Attr::Mode)? >> 12).unwrap_or(0),
            links: number(Attr::Links)?,
            size: number(Attr::Size)?,
            parent: number(Attr::Parent)?,
            attributes: xattr,
        })
    }
}

impl Files<'_> {
    fn at(&self, object: u64) -> String {
        format!("{}, object {object}", self.place)
    }

    /// Calls `f` for each object that is a file.
    fn each(&self, f: &mut dyn FnMut(u64, &Arc<Dnode>) -> Result<()>) -> Result<()> {
        let mut last = ObjectId(0);
        while let Some(object) = self.set.next_object(last)? {
            last = object;
            // The walk of the object set has reported it.
            let Ok(dnode) = self.set.dnode(object) else {
                continue;
            };
            if matches!(dnode.bonus_type(), SA_BONUS | ZNODE_BONUS) {
                f(object.0, &dnode)?;
            }
        }
        Ok(())
    }

    fn window(&self, from: u64, size: u64, report: &mut Report) -> Result<()> {
        let room = usize::try_from(size).unwrap_or(usize::MAX);
        // Its size follows the object numbers in use.
        let mut notes = Notes {
            from,
            notes: vec![Note::default(); room],
        };
        self.each(&mut |object, dnode| {
            if let Some(note) = notes.at(object) {
                note.flags |= EXISTS;
            }
            self.names(object, dnode, &mut notes);
            Ok(())
        })?;
        self.unlinked(&mut notes, report)?;
        self.each(&mut |object, dnode| {
            if let Some(note) = notes.at(object).copied() {
                self.file(object, dnode, note, report);
            }
            Ok(())
        })?;
        for (at, note) in notes.notes.iter().enumerate() {
            if note.names > 0 && note.flags & EXISTS == 0 {
                let place = self.at(note.holder);
                let what = format!("object {}", from + at as u64);
                report.problem(Finding::DanglingName, place, what);
            }
        }
        Ok(())
    }

    /// Notes the references from an object: the names of a directory, its extended attributes.
    fn names(&self, object: u64, dnode: &Arc<Dnode>, notes: &mut Notes) {
        // An object with unreadable attributes or names is reported when it is checked itself.
        let facts = self.table.view(dnode).and_then(|view| Facts::of(&view));
        if let Ok(facts) = facts
            && facts.attributes != 0
            && let Some(note) = notes.at(facts.attributes)
        {
            note.flags |= ATTRIBUTES;
            note.holder = object;
        }
        if dnode.object_type() != DIRECTORY_CONTENTS {
            return;
        }
        let listed = Zap::open(dnode).and_then(|zap| {
            zap.list(0, &mut |_, value, _| {
                if let Some(note) = notes.at(value & NUMBER) {
                    let kind = (value >> 60) as u8;
                    if note.names > 0 && note.kind != kind {
                        note.flags |= MIXED;
                    }
                    note.holder = object;
                    note.kind = kind;
                    note.names = note.names.saturating_add(1);
                }
                true
            })
        });
        let _ = listed;
    }

    /// Notes the objects that wait to be freed.
    fn unlinked(&self, notes: &mut Notes, report: &mut Report) -> Result<()> {
        let Some(queue) = self.queue else {
            return Ok(());
        };
        let mut cursor = Zap::open(&self.set.dnode(ObjectId(queue))?)?.cursor(0);
        while let Some(entry) = cursor.next()? {
            let object = entry.value.first().unwrap_or(0);
            let Some(note) = notes.at(object) else {
                continue;
            };
            note.flags |= UNLINKED;
            if note.flags & EXISTS == 0 {
                report.problem(Finding::UnlinkedMissing, self.at(object), "");
            }
            if note.names > 0 {
                let what = format!("directory {} has a name for it", note.holder);
                report.problem(Finding::UnlinkedInUse, self.at(object), what);
            }
        }
        Ok(())
    }

    /// Compares an object with the references to it.
    fn file(&self, object: u64, dnode: &Arc<Dnode>, note: Note, report: &mut Report) {
        let place = self.at(object);
        let facts = match self.table.view(dnode).and_then(|view| Facts::of(&view)) {
            Ok(facts) => facts,
            Err(e) => return report.problem(Finding::Attributes, place, e),
        };
        if !TYPES.contains(&facts.kind) {
            return report.problem(Finding::FileType, place, format!("type {}", facts.kind));
        }
        let is_dir = facts.kind == DIRECTORY;
        if is_dir != (dnode.object_type() == DIRECTORY_CONTENTS) {
            let what = format!("type {}, DMU type {}", facts.kind, dnode.object_type());
            report.problem(Finding::FileType, place.as_str(), what);
        }
        if self.typed && note.names > 0 && (note.kind != facts.kind || note.flags & MIXED != 0) {
            let what = format!("the name says {}, it is {}", note.kind, facts.kind);
            report.problem(Finding::NameType, place.as_str(), what);
        }
        if is_dir {
            self.directory(object, dnode, &facts, note, report);
        } else if note.names > 0 || note.flags & UNLINKED != 0 {
            let names = u64::from(note.names);
            report.differ(Finding::LinkCount, &place, facts.links, names);
        }
        let named = note.names > 0 || note.flags & (UNLINKED | ATTRIBUTES) != 0;
        if !named && object != self.root && object != self.shares {
            let (finding, what) = match facts.links {
                0 => (Finding::NotUnlinked, "0 links"),
                _ => (Finding::Orphan, ""),
            };
            report.problem(finding, place, what);
        }
    }

    fn directory(
        &self,
        object: u64,
        dnode: &Arc<Dnode>,
        facts: &Facts,
        note: Note,
        report: &mut Report,
    ) {
        let place = self.at(object);
        let (mut entries, mut below) = (0u64, 0u64);
        let listed = Zap::open(dnode).and_then(|zap| {
            zap.list(0, &mut |_, value, _| {
                entries += 1;
                below += u64::from((value >> 60) as u8 == DIRECTORY);
                true
            })
        });
        if let Err(e) = listed {
            return report.problem(Finding::Unreadable, place, e);
        }
        // Its own and its parent's entry count, and are not stored (03c-zpl).
        report.differ(Finding::DirSize, &place, facts.size, entries + 2);
        // An object that waits to be freed has no links any more.
        if self.typed && note.flags & UNLINKED == 0 {
            report.differ(Finding::DirLinkCount, &place, facts.links, below + 2);
        }
        if note.names > 1 {
            report.problem(Finding::ManyParents, place, format!("{} names", note.names));
        } else if note.names == 1 || note.flags & ATTRIBUTES != 0 {
            report.differ(Finding::Parent, &place, facts.parent, note.holder);
        } else if object == self.root {
            report.differ(Finding::Parent, &place, facts.parent, object);
        }
    }
}
