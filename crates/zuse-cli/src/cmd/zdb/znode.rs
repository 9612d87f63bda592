//! Attributes of files: from system attributes or from an old znode, with the path of the file.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;

use zuse::tools::{Attr, Dnode, FLAG_PROJID, SaTable, SaView, dxattr};
use zuse::tools::{Objset, Zap};
use zuse::{ObjectId, Result};

use crate::date;

/// The master node of a file system.
const MASTER: ObjectId = ObjectId(1);
/// Flag of hidden objects: extended attributes and their directories.
const IS_XATTR: u64 = 1;
/// Deeper paths are no paths.
const DEEPEST: usize = 4096;
/// Directory entries kept for looking up names of objects.
const MOST_NAMES: usize = 1 << 20;

/// The tables needed to read the attributes of a file system's objects.
pub struct Znodes {
    objset: Arc<Objset>,
    sa: Arc<SaTable>,
    root: u64,
    queue: u64,
    /// Name by object, of the directories read so far.
    names: HashMap<u64, HashMap<u64, Vec<u8>>>,
    kept: usize,
    /// Files without a path.
    pub leaked: u64,
}

impl Znodes {
    /// Reads the tables of a file system.
    ///
    /// # Errors
    /// The master node or the tables cannot be read.
    pub fn open(objset: &Arc<Objset>) -> Result<Self> {
        let master = Zap::open(&objset.dnode(MASTER)?)?;
        let sa = match master.lookup_u64(b"SA_ATTRS")? {
            Some(object) => SaTable::open(objset, ObjectId(object))?,
            None => SaTable::legacy(objset),
        };
        Ok(Self {
            objset: objset.clone(),
            sa,
            root: master.lookup_u64(b"ROOT")?.unwrap_or(0),
            queue: master.lookup_u64(b"DELETE_QUEUE")?.unwrap_or(0),
            names: HashMap::new(),
            kept: 0,
            leaked: 0,
        })
    }

    /// Prints the attributes of an object; with `path` also its path.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn dump(&mut self, out: &mut Vec<u8>, dnode: &Arc<Dnode>, path: bool) -> Result<()> {
        let view = self.sa.view(dnode)?;
        if view.is_empty() {
            return Ok(());
        }
        let word = |attr| Ok::<u64, zuse::Error>(view.u64(attr)?.unwrap_or(0));
        if path {
            self.write_path(out, dnode, word(Attr::Links)?);
        }
        let mode = word(Attr::Mode)?;
        if mode & 0xf000 == 0xa000 {
            out.extend_from_slice(b"\ttarget\t");
            out.extend_from_slice(&target(&view, dnode)?);
            out.push(b'\n');
        }
        let flags = word(Attr::Flags)?;
        let _ = writeln!(out, "\tuid     {}", word(Attr::Uid)?);
        let _ = writeln!(out, "\tgid     {}", word(Attr::Gid)?);
        for (name, attr) in [
            ("atime", Attr::Atime),
            ("mtime", Attr::Mtime),
            ("ctime", Attr::Ctime),
            ("crtime", Attr::Crtime),
        ] {
            let seconds = view.time(attr)?.map_or(0, |(s, _)| s);
            let _ = writeln!(out, "\t{name}\t{}", date::ctime_signed(seconds));
        }
        let _ = writeln!(out, "\tgen\t{}", word(Attr::Gen)?);
        let _ = writeln!(out, "\tmode\t{mode:o}");
        let _ = writeln!(out, "\tsize\t{}", word(Attr::Size)?);
        let _ = writeln!(out, "\tparent\t{}", word(Attr::Parent)?);
        let _ = writeln!(out, "\tlinks\t{}", word(Attr::Links)?);
        let _ = writeln!(out, "\tpflags\t{flags:x}");
        if flags & FLAG_PROJID != 0 {
            let _ = writeln!(out, "\tprojid\t{}", word(Attr::Projid)?);
        }
        match word(Attr::Xattr)? {
            0 if !view.is_legacy() => {}
            object => {
                let _ = writeln!(out, "\txattr\t{object}");
            }
        }
        if (view.is_legacy() || matches!(mode & 0xf000, 0x2000 | 0x6000))
            && let Some(rdev) = view.u64(Attr::Rdev)?
        {
            let _ = writeln!(out, "\trdev\t0x{rdev:016x}");
        }
        if !view.is_legacy()
            && let Some(packed) = view.get(Attr::Dxattr)?
        {
            xattrs(out, packed)?;
        }
        Ok(())
    }

    fn write_path(&mut self, out: &mut Vec<u8>, dnode: &Arc<Dnode>, links: u64) {
        match self.path(dnode) {
            Ok(path) => {
                out.extend_from_slice(b"\tpath\t");
                out.extend_from_slice(&path);
                out.push(b'\n');
            }
            Err(_) if links == 0 || self.is_queued(dnode.object().0) => {
                out.extend_from_slice(b"\tpath\ton delete queue\n");
            }
            Err(_) => {
                self.leaked += 1;
                out.extend_from_slice(b"\tpath not found, possibly leaked\n");
            }
        }
    }

    fn is_queued(&self, object: u64) -> bool {
        let look = || -> Result<Option<u64>> {
            let queue = Zap::open(&self.objset.dnode(ObjectId(self.queue))?)?;
            queue.lookup_u64(format!("{object:x}").as_bytes())
        };
        matches!(look(), Ok(Some(_)))
    }

    fn path(&mut self, dnode: &Arc<Dnode>) -> Result<Vec<u8>> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = dnode.clone();
        let lost = |at: &Dnode| {
            zuse::Error::refused(
                zuse::Errno::NOENT,
                format!("{}: no directory has it", at.place()),
            )
        };
        while at.object().0 != self.root {
            // Parents come from disk: damaged ones may form a circle.
            if parts.len() > DEEPEST {
                return Err(lost(&at));
            }
            let view = self.sa.view(&at)?;
            let parent = view.u64(Attr::Parent)?.unwrap_or(0);
            let above = self.objset.dnode(ObjectId(parent))?;
            let above_is_dir =
                self.sa.view(&above)?.u64(Attr::Mode)?.unwrap_or(0) & 0xf000 == 0x4000;
            let mode = view.u64(Attr::Mode)?.unwrap_or(0);
            let hidden = view.u64(Attr::Flags)?.unwrap_or(0) & IS_XATTR != 0;
            if hidden && mode & 0xf000 == 0x4000 {
                parts.push(b"<xattrdir>".to_vec());
            } else if above_is_dir {
                let name = self.name_in(&above, at.object().0)?;
                parts.push(name.ok_or_else(|| lost(&at))?);
            } else {
                return Err(lost(&at));
            }
            at = above;
        }
        if parts.is_empty() {
            return Ok(b"/".to_vec());
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        Ok(path)
    }

    fn name_in(&mut self, dir: &Arc<Dnode>, object: u64) -> Result<Option<Vec<u8>>> {
        let number = dir.object().0;
        if !self.names.contains_key(&number) {
            if self.kept > MOST_NAMES {
                self.names.clear();
                self.kept = 0;
            }
            let mut names = HashMap::new();
            Zap::open(dir)?.list(0, &mut |name, value, _| {
                // The upper bits of an entry are the type of the file.
                let object = value & ((1 << 48) - 1);
                names.entry(object).or_insert_with(|| name.to_vec());
                names.len() < MOST_NAMES
            })?;
            self.kept += names.len();
            self.names.insert(number, names);
        }
        Ok(self
            .names
            .get(&number)
            .and_then(|names| names.get(&object))
            .cloned())
    }
}

/// The target of a symbolic link: an attribute, the bytes behind an old znode, or the object's
/// data.
fn target(view: &SaView, dnode: &Arc<Dnode>) -> Result<Vec<u8>> {
    if let Some(text) = view.get(Attr::Symlink)? {
        let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
        return Ok(text.get(..end).unwrap_or_default().to_vec());
    }
    // The size comes from disk: a wrong one must not decide how much memory is taken.
    let size = view.u64(Attr::Size)?.unwrap_or(0).min(4096);
    let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
    dnode.read_at(0, &mut text)?;
    Ok(text)
}

fn xattrs(out: &mut Vec<u8>, packed: &[u8]) -> Result<()> {
    let mut all = Vec::new();
    dxattr::walk(packed, |name, value| {
        all.push((name, value));
        true
    })?;
    let _ = writeln!(
        out,
        "\tSA xattrs: {} bytes, {} entries\n",
        packed.len(),
        all.len()
    );
    for (name, value) in all {
        out.extend_from_slice(b"\t\t");
        out.extend_from_slice(name);
        out.extend_from_slice(b" = ");
        if value.iter().all(|b| (0x20..0x7f).contains(b)) {
            out.extend_from_slice(value);
        } else {
            for b in value {
                let _ = write!(out, "\\{b:03o}");
            }
        }
        out.push(b'\n');
    }
    Ok(())
}
