//! `.zfs`: the snapshots of a file system as directories.
//!
//! ```text
//!   ROOT/.zfs                 inode number …FFFF
//!        └── snapshot         …FFFD
//!            └── NAME         listed as …FFFC − n; looking it up opens the snapshot and gives its root
//! ```
//! A snapshot is opened by the first look-up of its name and kept while the kernel knows its root.
//! `mkdir`, `rmdir` and `rename` in `.zfs/snapshot` create, destroy and rename snapshots, for root
//! and the user of this process. `snapdir` hidden: `.zfs` is found and not listed; visible: listed;
//! disabled: not there.

use std::sync::Arc;

use zuse_base::Errno;
use zuse_fuse::{Attr, Attributes, Caller, DirSink};
use zuse_zpl::{FileSystem, SnapDir};

use crate::attributes;
use crate::number;
use crate::session::{Answer, Session, no};
use crate::table::What;
use crate::volume::Volume;

const DIRECTORY: u32 = 0o040_000;

impl Session {
    /// Gives the kernel a reference on `.zfs`.
    pub fn dot_zfs(&self, fs: &FileSystem, volume: &Arc<Volume>) -> Answer<Attr> {
        if volume.is_snapshot || fs.props().snapdir == SnapDir::Disabled {
            return Err(Errno::NOENT);
        }
        let ino = number::dot_zfs(volume.slot);
        self.table.enter(ino, What::DotZfs(volume.clone()));
        Ok(attributes::of_control(fs, ino, 3))
    }

    /// Finds a name in `.zfs`.
    pub fn in_dot_zfs(&self, volume: &Arc<Volume>, name: &[u8]) -> Answer<Attr> {
        if name != b"snapshot" {
            return Err(Errno::NOENT);
        }
        let fs = volume.enter()?;
        let ino = number::snapshots(volume.slot);
        self.table.enter(ino, What::Snapshots(volume.clone()));
        Ok(attributes::of_control(&fs, ino, 2))
    }

    /// Finds a snapshot by name, and opens it if it is not open.
    pub fn snapshot(&self, volume: &Arc<Volume>, name: &[u8]) -> Answer<Attr> {
        // A snapshot that is being destroyed is not returned: its gate stays closed.
        drop(volume.enter()?);
        let there = volume
            .snapshots
            .lock()
            .get(name)
            .and_then(std::sync::Weak::upgrade);
        if let Some(there) = there
            && there.file_system().is_some()
        {
            return self.give_root(&there);
        }
        let dataset = volume.name();
        let fs = self.tree.open_snapshot(&dataset, name).map_err(no)?;
        let full = format!("{dataset}@{}", String::from_utf8_lossy(name));
        let opened = Volume::new(&self.slots, fs, full, false, true)?;
        opened.set_above(number::snapshots(volume.slot));
        let volume = {
            let mut all = volume.snapshots.lock();
            match all
                .get(name)
                .and_then(std::sync::Weak::upgrade)
                .filter(|v| v.file_system().is_some())
            {
                Some(first) => first,
                None => {
                    all.retain(|_, v| v.strong_count() > 0);
                    all.insert(name.to_vec(), Arc::downgrade(&opened));
                    opened
                }
            }
        };
        self.give_root(&volume)
    }

    /// Whether a user may create and destroy snapshots: root, and the user of this process.
    fn check_snapshot_permission(&self, caller: &Caller) -> Answer<()> {
        let own = rustix::process::geteuid().as_raw();
        match caller.uid == 0 || caller.uid == own {
            true => Ok(()),
            false => Err(Errno::PERM),
        }
    }

    /// `mkdir` in `.zfs/snapshot` makes a snapshot.
    pub fn make_snapshot(
        &self,
        caller: &Caller,
        volume: &Arc<Volume>,
        name: &[u8],
    ) -> Answer<Attr> {
        self.check_snapshot_permission(caller)?;
        self.tree.make_snapshot(&volume.name(), name).map_err(no)?;
        self.snapshot(volume, name)
    }

    /// `rmdir` there destroys a snapshot.
    pub fn destroy_snapshot(
        &self,
        caller: &Caller,
        volume: &Arc<Volume>,
        name: &[u8],
    ) -> Answer<()> {
        self.check_snapshot_permission(caller)?;
        self.tree.destroy_snapshot(&volume.name(), name).map_err(no)
    }

    /// A rename there renames a snapshot.
    pub fn rename_snapshot(
        &self,
        caller: &Caller,
        volume: &Arc<Volume>,
        (from, to): (&[u8], &[u8]),
    ) -> Answer<()> {
        self.check_snapshot_permission(caller)?;
        self.tree
            .rename_snapshot(&volume.name(), from, to)
            .map_err(no)
    }

    /// Lists `.zfs`.
    pub fn list_dot_zfs(
        &self,
        volume: &Arc<Volume>,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Answer<()> {
        let slot = volume.slot;
        let entries: [(u64, &[u8]); 3] = [
            (number::dot_zfs(slot), b"."),
            (volume.root, b".."),
            (number::snapshots(slot), b"snapshot"),
        ];
        for (i, (ino, name)) in entries
            .into_iter()
            .enumerate()
            .skip(usize::try_from(offset).unwrap_or(usize::MAX))
        {
            let attr = if i == 2 && sink.attributes() != Attributes::No {
                Some(self.in_dot_zfs(volume, name)?)
            } else {
                None
            };
            if sink.add(ino, i as u64 + 1, DIRECTORY, name, attr.as_ref()) {
                if attr.is_some() {
                    // An entry that did not fit is not sent: its reference is taken back.
                    self.forget(ino, 1);
                }
                break;
            }
        }
        Ok(())
    }

    /// Lists the snapshots. None is opened for that: the kernel asks when it needs more.
    pub fn list_snapshots(
        &self,
        volume: &Arc<Volume>,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Answer<()> {
        let slot = volume.slot;
        let dots: [(u64, &[u8]); 2] = [
            (number::snapshots(slot), b"."),
            (number::dot_zfs(slot), b".."),
        ];
        for (i, (ino, name)) in dots.into_iter().enumerate() {
            if offset <= i as u64 && sink.add(ino, i as u64 + 1, DIRECTORY, name, None) {
                return Ok(());
            }
        }
        let mut all = self.tree.snapshots(&volume.name()).map_err(no)?;
        // Positions are object numbers, which stay valid when snapshots are created and destroyed.
        all.sort_unstable_by_key(|s| s.object);
        for entry in &all {
            let position = entry.object.saturating_add(2);
            let ino = number::snapshot_entry(slot, entry.object);
            if position > offset && sink.add(ino, position, DIRECTORY, &entry.name, None) {
                break;
            }
        }
        Ok(())
    }
}
