//! The numeric attributes of an object, read from and written to the bonus.
//!
//! New objects with a common set of attributes are written with a header that is kept, without a
//! table look-up. The layout of such a set never changes once it exists. Legacy znodes (ZPL 1–4)
//! are read and changed in place through the same view. In a file system of those versions new
//! objects have that form too.

use std::sync::{Arc, OnceLock};

use zuse_base::{Error, Result, Timestamp};
use zuse_dmu::sa::dxattr::List;
use zuse_dmu::sa::{Attr, MAGIC, SA_BONUS, SaTable, SaView, ZNODE_BONUS, ZNODE_SIZE};
use zuse_dmu::{Dnode, Tx};
use zuse_format::DnodeView;

use crate::acl::TrivialAcl;
use crate::{flags, mode};

/// The attributes of an object for `stat` and the layers above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The whole `st_mode`.
    pub mode: u32,
    /// Bytes of a file or link target; entries + 2 of a directory.
    pub size: u64,
    /// Txg of creation; distinguishes objects that had the same number.
    pub generation: u64,
    /// Owner (FUID).
    pub uid: u64,
    /// Group (FUID).
    pub gid: u64,
    /// Directory of the last link.
    pub parent: u64,
    /// FLAGS.
    pub flags: u64,
    /// Link count.
    pub links: u64,
    /// Project id.
    pub projid: u64,
    /// Device number as stored.
    pub rdev: u64,
    /// Extended attribute directory: 0 for none, `XATTR_UNREAD` if an unread spill block may name
    /// one.
    pub xattr: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the object.
    pub ctime: Timestamp,
    /// Creation.
    pub crtime: Timestamp,
}

/// The number of the extended attribute directory may be in the spill block, which is read only
/// when needed.
pub const XATTR_UNREAD: u64 = u64::MAX;

/// Sets of attributes to write.
pub(crate) mod field {
    pub const MODE: u32 = 1;
    pub const SIZE: u32 = 2;
    pub const UID: u32 = 4;
    pub const GID: u32 = 8;
    pub const PARENT: u32 = 16;
    pub const FLAGS: u32 = 32;
    pub const LINKS: u32 = 64;
    pub const PROJID: u32 = 128;
    pub const XATTR: u32 = 256;
    pub const ATIME: u32 = 512;
    pub const MTIME: u32 = 1024;
    pub const CTIME: u32 = 2048;
}

fn time_bytes(t: Timestamp) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&t.secs.to_le_bytes());
    out[8..].copy_from_slice(&u64::from(t.nanos).to_le_bytes());
    out
}

impl Attributes {
    /// The type bits of the mode.
    pub fn kind(&self) -> u32 {
        self.mode & mode::TYPE
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == mode::DIRECTORY
    }

    fn bytes_of(&self, attr: Attr, out: &mut [u8; 16]) -> usize {
        let number = match attr {
            Attr::Mode => u64::from(self.mode),
            Attr::Size => self.size,
            Attr::Gen => self.generation,
            Attr::Uid => self.uid,
            Attr::Gid => self.gid,
            Attr::Parent => self.parent,
            Attr::Flags => self.flags,
            Attr::Links => self.links,
            Attr::Projid => self.projid,
            Attr::Rdev => self.rdev,
            Attr::Xattr => self.xattr,
            Attr::Atime | Attr::Mtime | Attr::Ctime | Attr::Crtime => {
                let t = match attr {
                    Attr::Atime => self.atime,
                    Attr::Mtime => self.mtime,
                    Attr::Ctime => self.ctime,
                    _ => self.crtime,
                };
                *out = time_bytes(t);
                return 16;
            }
            _ => return 0,
        };
        out[..8].copy_from_slice(&number.to_le_bytes());
        8
    }
}

const FIELDS: [(u32, Attr); 12] = [
    (field::MODE, Attr::Mode),
    (field::SIZE, Attr::Size),
    (field::UID, Attr::Uid),
    (field::GID, Attr::Gid),
    (field::PARENT, Attr::Parent),
    (field::FLAGS, Attr::Flags),
    (field::ATIME, Attr::Atime),
    (field::MTIME, Attr::Mtime),
    (field::CTIME, Attr::Ctime),
    (field::LINKS, Attr::Links),
    (field::PROJID, Attr::Projid),
    (field::XATTR, Attr::Xattr),
];

/// The order of a new object's attributes, up to the ACL.
const CANONICAL: [Attr; 12] = [
    Attr::Mode,
    Attr::Size,
    Attr::Gen,
    Attr::Uid,
    Attr::Gid,
    Attr::Parent,
    Attr::Flags,
    Attr::Atime,
    Attr::Mtime,
    Attr::Ctime,
    Attr::Crtime,
    Attr::Links,
];

/// Reads and writes attributes of one file system.
pub(crate) struct AttributeStore {
    sa: Arc<SaTable>,
    /// New objects are legacy znodes.
    legacy: bool,
    /// ACLs of legacy znodes are of version 1.
    acl_version_1: bool,
    /// Layout info of new objects: index bit 0 with project id, bit 1 with device number.
    shapes: [OnceLock<u16>; 4],
    /// For files and directories with a list of extended attributes in the bonus: without and with
    /// project id.
    listed: [Option<u16>; 2],
}

/// Size of the canonical attributes, in words.
const CANONICAL_WORDS: usize = 16;

fn word(b: &[u8], at: usize) -> Option<u64> {
    let word = b.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*word))
}

/// The canonical attributes, which begin at `at`.
fn canonical(b: &[u8], at: usize) -> Option<Attributes> {
    let words = b.get(at..at + CANONICAL_WORDS * 8)?.as_chunks::<8>().0;
    let word = |i: usize| words.get(i).map_or(0, |w| u64::from_le_bytes(*w));
    // Nanoseconds come from disk: FUSE takes no more than a second of them.
    let time = |i: usize| Timestamp::new(word(i) as i64, word(i + 1).min(999_999_999) as u32);
    Some(Attributes {
        mode: word(0) as u32,
        size: word(1),
        generation: word(2),
        uid: word(3),
        gid: word(4),
        parent: word(5),
        flags: word(6),
        atime: time(7),
        mtime: time(9),
        ctime: time(11),
        crtime: time(13),
        links: word(15),
        ..Attributes::default()
    })
}

/// The attributes in a bonus of a common shape, if there may be a spill block, too.
fn beside(bonus: Attributes, has_spill: bool) -> Option<Attributes> {
    if !has_spill {
        return Some(bonus);
    }
    // The field may hold a device number or the number of a hidden directory.
    let xattr = match bonus.xattr {
        0 => XATTR_UNREAD,
        space => space,
    };
    (!mode::is_device(bonus.mode)).then_some(Attributes { xattr, ..bonus })
}

impl AttributeStore {
    pub fn new(sa: Arc<SaTable>, zpl_version: u64) -> Self {
        let info = |projid, rdev, list| {
            let rest = [
                Some(Attr::Projid).filter(|_| projid),
                Some(Attr::Rdev).filter(|_| rdev),
                Some(Attr::DaclCount),
                Some(Attr::DaclAces),
                Some(Attr::Dxattr).filter(|_| list),
            ];
            let all = CANONICAL.into_iter().chain(rest.into_iter().flatten());
            sa.layout_info(&all.collect::<Vec<Attr>>())
        };
        // Layouts of the common shapes are looked up when the file system is opened, so the first
        // new object needs no table.
        let shapes: [OnceLock<u16>; 4] = Default::default();
        for (i, shape) in shapes.iter().enumerate() {
            if let Some(info) = info(i & 1 != 0, i & 2 != 0, false) {
                let _ = shape.set(info);
            }
        }
        let listed = [info(false, false, true), info(true, false, true)];
        Self {
            sa,
            legacy: zpl_version < 5,
            acl_version_1: zpl_version >= 3,
            shapes,
            listed,
        }
    }

    /// Bonus type of new objects.
    pub fn bonus_type(&self) -> u8 {
        if self.legacy { ZNODE_BONUS } else { SA_BONUS }
    }

    /// Bonus length of a new object.
    pub fn bonus_len(&self) -> u16 {
        if self.legacy { 320 } else { 0 }
    }

    /// The tables of attributes.
    pub fn table(&self) -> &Arc<SaTable> {
        &self.sa
    }

    /// Reads the attributes of an object. A legacy znode has them at fixed offsets; otherwise the
    /// bonus is parsed.
    pub fn load(&self, dnode: &Arc<Dnode>) -> Result<Attributes> {
        if let Some(found) = self.load_now(dnode) {
            return Ok(found);
        }
        let view = self.sa.view(dnode)?;
        let missing = || Error::corrupt(dnode.place(), "a file without its attributes");
        let number = |attr| view.u64(attr).and_then(|v| v.ok_or_else(missing));
        let time = |attr| -> Result<Timestamp> {
            let (secs, nanos) = view.time(attr)?.ok_or_else(missing)?;
            Ok(Timestamp::new(secs, nanos.min(999_999_999) as u32))
        };
        let mut a = Attributes {
            mode: number(Attr::Mode)? as u32,
            size: number(Attr::Size)?,
            generation: number(Attr::Gen)?,
            uid: number(Attr::Uid)?,
            gid: number(Attr::Gid)?,
            parent: number(Attr::Parent)?,
            flags: number(Attr::Flags)?,
            links: number(Attr::Links)?,
            atime: time(Attr::Atime)?,
            mtime: time(Attr::Mtime)?,
            ctime: time(Attr::Ctime)?,
            crtime: time(Attr::Crtime)?,
            ..Attributes::default()
        };
        if a.flags & flags::PROJID != 0 {
            a.projid = view.u64(Attr::Projid)?.unwrap_or(0);
        }
        if mode::is_device(a.mode) {
            a.rdev = view.u64(Attr::Rdev)?.unwrap_or(0);
        }
        a.xattr = match view.u64_in_bonus(Attr::Xattr)? {
            Some(space) => space,
            None if dnode.has_spill() => XATTR_UNREAD,
            None => 0,
        };
        Ok(a)
    }

    /// The attributes, if they have the common shape, which needs no I/O.
    pub fn load_now(&self, dnode: &Arc<Dnode>) -> Option<Attributes> {
        let found = dnode.with_bonus(|b| self.load_fast(b))?;
        beside(found, dnode.has_spill())
    }

    /// The same, for a dnode in its block.
    pub fn load_stored(&self, dnode: &DnodeView<'_>) -> Option<Attributes> {
        if dnode.bonus_type() != SA_BONUS {
            return None;
        }
        let found = beside(self.load_fast(dnode.bonus())?, dnode.has_spill())?;
        (found.generation != 0 && mode::is_valid(found.mode)).then_some(found)
    }

    /// A bonus with the canonical attributes at fixed offsets. Most files and directories have one,
    /// which the header shows.
    fn load_fast(&self, b: &[u8]) -> Option<Attributes> {
        let head = b.first_chunk::<8>()?;
        if head[..4] != MAGIC.to_le_bytes() {
            return None;
        }
        let info = Some(u16::from_le_bytes([head[4], head[5]]));
        let [bare, full, ..] = &self.shapes;
        let (header, with_projid) = if info == full.get().copied() {
            (8, true)
        } else if info == self.listed[1] {
            (16, true)
        } else if info == bare.get().copied() {
            (8, false)
        } else if info == self.listed[0] {
            (16, false)
        } else {
            return self.load_laid_out(b);
        };
        let projid = if with_projid {
            word(b, header + CANONICAL_WORDS * 8)?
        } else {
            0
        };
        let found = canonical(b, header)?;
        Some(Attributes { projid, ..found })
    }

    /// A bonus of another shape that begins with the canonical attributes: a file with a hidden
    /// directory, or a symbolic link.
    fn load_laid_out(&self, b: &[u8]) -> Option<Attributes> {
        let sa = self.sa.peek();
        let mut found = canonical(b, sa.begins_with(b, &CANONICAL)?)?;
        if mode::is_device(found.mode) {
            return None;
        }
        if found.flags & flags::PROJID != 0 {
            found.projid = sa.u64(b, Attr::Projid)?;
        }
        if let Some(space) = sa.find(b, Attr::Xattr)? {
            found.xattr = word(space, 0)?;
        }
        Some(found)
    }

    /// Writes the named fields.
    pub fn store(&self, tx: &Tx, dnode: &Arc<Dnode>, a: &Attributes, fields: u32) -> Result<()> {
        self.store_with(tx, dnode, a, fields, None)
    }

    /// Writes the named fields and the list of extended attributes in one step.
    pub fn store_with(
        &self,
        tx: &Tx,
        dnode: &Arc<Dnode>,
        a: &Attributes,
        fields: u32,
        list: Option<List>,
    ) -> Result<()> {
        let mut bytes = [[0u8; 16]; 12];
        let mut lens = [(Attr::Mode, 0usize); 12];
        let mut n = 0;
        for (bit, attr) in FIELDS {
            if fields & bit != 0 {
                lens[n] = (attr, a.bytes_of(attr, &mut bytes[n]));
                n += 1;
            }
        }
        let mut changes: [(Attr, &[u8]); 12] = [(Attr::Mode, &[]); 12];
        for i in 0..n {
            changes[i] = (lens[i].0, &bytes[i][..lens[i].1]);
        }
        match list {
            Some(list) => self.sa.update_listed(tx, dnode, &changes[..n], list),
            None => self.sa.update(tx, dnode, &changes[..n]),
        }
    }

    /// Sets the attributes of a new object.
    pub fn write_new(
        &self,
        tx: &Tx,
        dnode: &Arc<Dnode>,
        a: &Attributes,
        acl: &TrivialAcl,
        target: Option<&[u8]>,
    ) -> Result<()> {
        if self.legacy {
            return self.write_legacy(tx, dnode, a, acl, target);
        }
        let with_projid = a.flags & flags::PROJID != 0;
        let with_rdev = mode::is_device(a.mode);
        let shape = &self.shapes[usize::from(with_projid) | usize::from(with_rdev) << 1];
        if let (Some(info), None) = (shape.get(), target) {
            return Self::write_known(tx, dnode, *info, a, acl);
        }
        let mut bytes = [[0u8; 16]; 15];
        let mut set: Vec<(Attr, usize)> = Vec::with_capacity(16);
        let rest = [
            Some(Attr::Projid).filter(|_| with_projid),
            Some(Attr::Rdev).filter(|_| with_rdev),
        ];
        for attr in CANONICAL.into_iter().chain(rest.into_iter().flatten()) {
            let len = a.bytes_of(attr, &mut bytes[set.len()]);
            set.push((attr, len));
        }
        let count = acl.count().to_le_bytes();
        let mut all: Vec<(Attr, &[u8])> = set
            .iter()
            .zip(&bytes)
            .map(|((attr, len), b)| (*attr, &b[..*len]))
            .collect();
        all.push((Attr::DaclCount, &count));
        all.push((Attr::DaclAces, acl.bytes()));
        if let Some(target) = target {
            all.push((Attr::Symlink, target));
        }
        self.sa.init(tx, dnode, &all)?;
        if target.is_none() && !dnode.has_spill() {
            let info = dnode.with_bonus(|b| {
                b.get(4..6)
                    .and_then(|i| i.try_into().ok())
                    .map(u16::from_le_bytes)
            });
            // The upper bits are the header's size: one of 8 bytes has a single variable length
            // (03b-sa).
            if let Some(info) = info.filter(|i| i >> 10 == 1) {
                let _ = shape.set(info);
            }
        }
        Ok(())
    }

    /// Writes the attributes of a new object with a known layout, in one step.
    fn write_known(
        tx: &Tx,
        dnode: &Arc<Dnode>,
        info: u16,
        a: &Attributes,
        acl: &TrivialAcl,
    ) -> Result<()> {
        let mut out = [0u8; 8 + 8 * 20 + 48];
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..6].copy_from_slice(&info.to_le_bytes());
        out[6..8].copy_from_slice(&(acl.bytes().len() as u16).to_le_bytes());
        let mut at = 8;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        let mut value = [0; 16];
        for attr in CANONICAL {
            let len = a.bytes_of(attr, &mut value);
            put(&value[..len]);
        }
        if a.flags & flags::PROJID != 0 {
            put(&a.projid.to_le_bytes());
        }
        if mode::is_device(a.mode) {
            put(&a.rdev.to_le_bytes());
        }
        put(&acl.count().to_le_bytes());
        put(acl.bytes());
        dnode.set_bonus(tx, &out[..at])
    }

    fn write_legacy(
        &self,
        tx: &Tx,
        dnode: &Arc<Dnode>,
        a: &Attributes,
        acl: &TrivialAcl,
        target: Option<&[u8]>,
    ) -> Result<()> {
        let mut out = Vec::with_capacity(320);
        for t in [a.atime, a.mtime, a.ctime, a.crtime] {
            out.extend_from_slice(&time_bytes(t));
        }
        let words = [
            a.generation,
            u64::from(a.mode),
            a.size,
            a.parent,
            a.links,
            0,
            a.rdev,
            a.flags,
            a.uid,
            a.gid,
        ];
        words
            .iter()
            .for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
        out.extend_from_slice(&[0; 32]);
        out.extend_from_slice(&acl.legacy(self.acl_version_1));
        debug_assert_eq!(out.len(), ZNODE_SIZE);
        if let Some(target) = target {
            if out.len() + target.len() <= 320 {
                out.extend_from_slice(target);
            } else {
                // Old links that do not fit their znode are file data (03b-sa §6).
                let size = target.len().next_multiple_of(512).max(512);
                dnode.set_block_size(tx, size as u32)?;
                dnode.write_at(tx, 0, target)?;
            }
        }
        dnode.set_bonus(tx, &out)
    }

    /// The object of an external ACL of a legacy znode, 0 for none.
    pub fn external_acl(&self, dnode: &Arc<Dnode>) -> u64 {
        if dnode.bonus_type() != ZNODE_BONUS {
            return 0;
        }
        dnode.with_bonus(|b| {
            b.get(176..184)
                .and_then(|w| w.try_into().ok())
                .map_or(0, u64::from_le_bytes)
        })
    }

    /// Replaces the ACL by the trivial one of a mode, together with the mode and flags in `a`.
    pub fn store_acl(&self, tx: &Tx, dnode: &Arc<Dnode>, acl: &TrivialAcl) -> Result<()> {
        if dnode.bonus_type() == ZNODE_BONUS {
            return self.sa.update(
                tx,
                dnode,
                &[(Attr::ZnodeAcl, &acl.legacy(self.acl_version_1))],
            );
        }
        self.store_entries(tx, dnode, acl.count(), acl.bytes())
    }

    /// Whether an object is a legacy znode.
    pub fn is_legacy(&self, dnode: &Arc<Dnode>) -> bool {
        dnode.bonus_type() == ZNODE_BONUS
    }

    /// Replaces the ACL of an object with system attributes.
    pub fn store_entries(
        &self,
        tx: &Tx,
        dnode: &Arc<Dnode>,
        count: u64,
        entries: &[u8],
    ) -> Result<()> {
        self.sa.update(
            tx,
            dnode,
            &[
                (Attr::DaclCount, &count.to_le_bytes()),
                (Attr::DaclAces, entries),
            ],
        )
    }

    /// Replaces the ACL area of a legacy znode.
    pub fn store_legacy_area(&self, tx: &Tx, dnode: &Arc<Dnode>, area: &[u8; 88]) -> Result<()> {
        self.sa.update(tx, dnode, &[(Attr::ZnodeAcl, area)])
    }

    /// All attributes, for searching. `None` for an object whose shape has no list of extended
    /// attributes and nothing besides the common attributes.
    pub fn view(&self, dnode: &Arc<Dnode>) -> Result<Option<SaView>> {
        let plain = dnode.with_bonus(|b| self.is_plain(b)) && !dnode.has_spill();
        if plain || dnode.bonus_type() != SA_BONUS {
            return Ok(None);
        }
        self.sa.view(dnode).map(Some)
    }

    fn is_plain(&self, b: &[u8]) -> bool {
        let Some(head) = b.first_chunk::<8>() else {
            return false;
        };
        head[..4] == MAGIC.to_le_bytes()
            && self
                .shapes
                .iter()
                .any(|s| s.get().is_some_and(|info| head[4..6] == info.to_le_bytes()))
    }

    /// An attribute of any length.
    pub fn bytes(&self, dnode: &Arc<Dnode>, attr: Attr) -> Result<Option<Vec<u8>>> {
        Ok(self.sa.view(dnode)?.get(attr)?.map(<[u8]>::to_vec))
    }
}
