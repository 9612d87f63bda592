//! Listings of directories.
//!
//! Positions are those of the file system below (`.`, `..`, then ZAP positions that stay valid over
//! changes). Names that exist only because something is mounted there come last, after [`EXTRA`].
//! The position of `.zfs` is the file system's.

use std::sync::Arc;

use zuse_fuse::{Attr, Attributes, DirSink};
use zuse_zpl::{DirEntry, Wanted, Znode};

use crate::covers::Cover;
use crate::number;
use crate::session::{Answer, Session, no};
use crate::table::What;
use crate::volume::{Inside, Volume};

const DIRECTORY: u32 = 0o040_000;
/// Bytes of an entry with attributes and a name of common length.
const LIKELY_ENTRY: usize = 168;
/// Most entries of the first answer with attributes: each may take a device read, even for a client
/// that needs names only.
const FIRST: usize = 64;
/// The same for a directory of more than [`LARGE`] entries, in which neighbours are rare, so that
/// each would take a device read. Entries that are not cached come without attributes.
const FIRST_OF_LARGE: usize = 16;
const LARGE: u64 = 512;
/// Positions from here on are those of extra names.
const EXTRA: u64 = 1 << 62;

impl Session {
    pub fn readdir(&self, ino: u64, offset: u64, sink: &mut dyn DirSink) -> Answer<()> {
        let node = self.node(ino)?;
        match &node.what {
            What::Object(volume, dir) => {
                let full = if offset < EXTRA {
                    let fs = volume.enter()?;
                    self.list_object(ino, &fs, volume, dir, offset, sink)?
                } else {
                    false
                };
                if full {
                    Ok(())
                } else {
                    self.list_extra(ino, Some((volume, dir)), offset, sink)
                }
            }
            What::Virtual(dir) => {
                let dots: [(u64, &[u8]); 2] = [(dir.ino, b"."), (dir.parent, b"..")];
                for (i, (number, name)) in dots.into_iter().enumerate() {
                    if offset <= i as u64 && sink.add(number, i as u64 + 1, DIRECTORY, name, None) {
                        return Ok(());
                    }
                }
                self.list_extra(ino, None, offset, sink)
            }
            What::DotZfs(volume) => self.list_dot_zfs(volume, offset, sink),
            What::Snapshots(volume) => self.list_snapshots(volume, offset, sink),
            What::Listed(..) | What::Gone(..) => Err(zuse_base::Errno::STALE),
        }
    }

    /// Lists the directory's own entries; `true` if there are more.
    fn list_object(
        &self,
        ino: u64,
        fs: &Inside<'_>,
        volume: &Arc<Volume>,
        dir: &Arc<Znode>,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Answer<bool> {
        let attributes = sink.attributes();
        let covers = self.covers();
        let covered = covers.names(ino);
        let mut full = false;
        let likely = if attributes != Attributes::No {
            sink.room() / LIKELY_ENTRY
        } else {
            // Names alone cost little to fetch.
            usize::MAX
        };
        let (wanted, most) = extent(attributes, dir.size());
        let (mut given, mut last) = (0, 0);
        let ended = fs.readdir_some(dir, offset, wanted, (likely, most), &mut |entry| {
            let cover = covered.and_then(|c| c.get(entry.name));
            let place = (ino, fs, volume);
            let Some((number, attr)) = self.shown(place, cover, &entry, wanted) else {
                return true;
            };
            full = sink.add(number, entry.next, entry.kind, entry.name, attr.as_ref());
            if full && attr.is_some() {
                // It did not fit: the kernel did not get this reference.
                self.forget(number, 1);
            }
            if !full {
                (given, last) = (given + 1, entry.next);
            }
            !full
        });
        let ended = ended.map_err(no)?;
        if ended {
            self.accessed(fs, dir);
        }
        let goes_on = full || !ended;
        if goes_on && last > 3 {
            // After the first answer the kernel may not need attributes any more: then only names
            // are prepared.
            let (wanted, some) = if most == usize::MAX {
                (wanted, given)
            } else {
                (Wanted::Names, usize::MAX)
            };
            // Prepared while the client works on this answer.
            fs.expect_listing(dir, last, wanted, some);
            self.note_work(volume);
        }
        Ok(goes_on)
    }

    /// Number and attributes of an entry of directory `ino`; `None` leaves it out.
    fn shown(
        &self,
        (ino, fs, volume): (u64, &Inside<'_>, &Arc<Volume>),
        cover: Option<&Cover>,
        entry: &DirEntry<'_>,
        wanted: Wanted,
    ) -> Option<(u64, Option<Attr>)> {
        Some(match (cover, entry.znode, entry.attr) {
            (Some(Cover::Root(v)), ..) => (number::mount_entry(v.root), None),
            (Some(Cover::Virtual(v)), ..) => (number::mount_entry(v.ino), None),
            (_, Some(znode), _) => {
                let attr = self.give(fs, volume, znode);
                (attr.ino, Some(attr))
            }
            (_, None, Some(stored)) => {
                let attr = self.give_listed(fs, volume, stored);
                (attr.ino, Some(attr))
            }
            _ if entry.name == b".." && ino == volume.root => {
                (self.shown_number(volume.above()), None)
            }
            _ if entry.object == zuse_zpl::DOT_ZFS => {
                let attr = if wanted != Wanted::Names {
                    self.dot_zfs(fs, volume).ok()
                } else {
                    None
                };
                (number::dot_zfs(volume.slot), attr)
            }
            // It cannot be read, or it is not cached: the kernel asks if it needs the attributes.
            _ if wanted == Wanted::Attributes && !matches!(entry.name, b"." | b"..") => {
                return None;
            }
            // The number that `stat` shows: the kernel uses another one for the root.
            _ => (number::of(volume.slot, entry.object), None),
        })
    }

    /// Lists names that exist only because something is mounted at or below them.
    fn list_extra(
        &self,
        ino: u64,
        real: Option<(&Arc<Volume>, &Arc<Znode>)>,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Answer<()> {
        let covers = self.covers();
        let Some(names) = covers.names(ino) else {
            return Ok(());
        };
        let from = offset.saturating_sub(EXTRA);
        for (i, (name, cover)) in names.iter().enumerate() {
            let position = i as u64 + 1;
            if position <= from {
                continue;
            }
            let number = match cover {
                Cover::Root(volume) => number::mount_entry(volume.root),
                Cover::Virtual(dir) => number::mount_entry(dir.ino),
                // It is the directory's own entry, listed at its own position.
                Cover::Through(_) => continue,
            };
            // The directory has an entry of that name itself: it was listed at its own position.
            if let Some((volume, dir)) = real
                && volume
                    .enter()?
                    .lookup(&zuse_zpl::Credentials::root(), dir, name)
                    .is_ok()
            {
                continue;
            }
            if sink.add(number, EXTRA + position, DIRECTORY, name, None) {
                break;
            }
        }
        Ok(())
    }
}

/// Which data a listing provides besides names, and for how many entries at most.
fn extent(attributes: Attributes, size: u64) -> (Wanted, usize) {
    match attributes {
        Attributes::No => (Wanted::Names, usize::MAX),
        Attributes::Some if size > LARGE => (Wanted::Cached, FIRST_OF_LARGE),
        Attributes::Some => (Wanted::Attributes, FIRST),
        Attributes::All => (Wanted::Attributes, usize::MAX),
    }
}
