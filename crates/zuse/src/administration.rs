//! Clones, holds, bookmarks: operations on whole datasets, except creating and destroying them.

use std::collections::BTreeMap;

use zuse_base::{Errno, Error, Result};
use zuse_dsl::property::Value;
use zuse_dsl::{DatasetKind, ListedKinds};
use zuse_pool::{VdevWorkKind, VdevWorkOrder};
use zuse_vdev::VdevState;

use crate::property::parse;
use crate::{BusyMount, DestroyOptions, Pool, Recursion};

/// A tag on a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hold {
    /// The snapshot's full name.
    pub snapshot: String,
    /// The tag.
    pub tag: String,
    /// Seconds since 1970 of its creation.
    pub time: u64,
}

/// How a pool's guid changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuidChange {
    /// The guid before.
    pub old: u64,
    /// The guid now.
    pub new: u64,
}

impl Pool {
    /// Creates a filesystem or volume from a snapshot.
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(EXIST)`, `Refused(INVAL)` for names and properties.
    pub fn clone_snapshot(
        &self,
        snapshot: &str,
        name: &str,
        properties: &[(String, String)],
    ) -> Result<()> {
        let dataset = self.dsl().dataset(snapshot)?;
        let kind = if dataset.is_volume()? {
            DatasetKind::Volume
        } else {
            DatasetKind::Filesystem
        };
        drop(dataset);
        let values = properties
            .iter()
            .map(|(name, text)| parse(name, text, kind))
            .collect::<Result<Vec<(String, Value)>>>()?;
        self.dsl().clone_snapshot(snapshot, name, &values)?;
        self.notify_mounts(|m| m.created(name));
        Ok(())
    }

    /// Changes the pool's guid to the given one, or to a random one.
    ///
    /// # Errors
    /// `Refused(BUSY)` with a checkpoint, `Refused(NXIO)` if a device is not healthy,
    /// `Refused(EXIST)` for a guid of this pool, `Refused(ROFS)`.
    pub fn reguid(&self, guid: Option<u64>) -> Result<GuidChange> {
        let (old, new) = self.spa().reguid(guid)?;
        Ok(GuidChange { old, new })
    }

    /// Starts or stops initializing or trimming devices. Returns for each whether that was
    /// possible.
    ///
    /// # Errors
    /// `Refused(ROFS)`; the MOS cannot be changed.
    pub fn order_vdev_work(
        &self,
        kind: VdevWorkKind,
        order: VdevWorkOrder,
        devices: &[u64],
    ) -> Result<Vec<Result<()>>> {
        self.spa().order_vdev_work(kind, order, devices)
    }

    /// Lets the vdev of a device, or all vdevs, use new space on their devices. Returns the number
    /// of bytes added.
    ///
    /// # Errors
    /// `Refused(NODEV)`, `Refused(EXIST)` with a checkpoint, `Refused(ROFS)`.
    pub fn expand(&self, device: Option<u64>) -> Result<u64> {
        self.spa().grow(device)
    }

    /// Tries to open failed or missing devices again, and reads the sizes of all. With the property
    /// `autoexpand` their vdevs use new space.
    ///
    /// # Errors
    /// `Refused(ROFS)`; the MOS cannot be changed.
    pub fn reopen(&self) -> Result<()> {
        for leaf in self.spa().vdevs().leaves() {
            if matches!(
                leaf.health().state,
                VdevState::CantOpen | VdevState::Removed
            ) {
                self.online(leaf.guid())?;
            }
        }
        if self.is_writable() {
            self.spa().look_at_devices()?;
        }
        let expands = self.pool_property("autoexpand")?;
        // No vdev may grow while there is a checkpoint. That is no reason for reopening to fail.
        if expands.is_some_and(|p| p.value.as_deref() == Some("on"))
            && !self.spa().keeps_checkpoint()
            && !self.spa().is_discarding()
        {
            self.expand(None)?;
        }
        Ok(())
    }

    /// Makes a clone independent of its origin: it takes over the shared snapshots.
    ///
    /// # Errors
    /// `Refused(INVAL)` if it is no clone, `Refused(EXIST)` if snapshot names conflict
    /// ([`Self::conflicts`]).
    pub fn promote(&self, name: &str) -> Result<()> {
        let origin = self.dsl().stat(&*self.dsl().dataset(name)?)?.origin;
        self.dsl().promote(name)?;
        if let Some((from, _)) = origin.as_deref().and_then(|o| o.split_once('@')) {
            for snapshot in self.snapshots(name)? {
                let own = snapshot.split('@').nth(1).unwrap_or_default();
                self.notify_mounts(|m| {
                    m.destroyed(&format!("{from}@{own}"));
                    m.created(&snapshot);
                });
            }
        }
        Ok(())
    }

    /// Snapshot names that prevent promoting a clone, and the dataset that has them, too.
    ///
    /// # Errors
    /// `Refused(NOENT)`.
    pub fn conflicts(&self, name: &str) -> Result<(String, Vec<String>)> {
        let origin = self.dsl().stat(&*self.dsl().dataset(name)?)?.origin;
        let Some((from, last)) = origin.as_deref().and_then(|o| o.split_once('@')) else {
            return Ok((String::new(), Vec::new()));
        };
        let own = |full: &String| full.split('@').nth(1).unwrap_or_default().to_owned();
        let mine: Vec<String> = self.snapshots(name)?.iter().map(own).collect();
        let mut clashes = Vec::new();
        for snapshot in self.snapshots(from)?.iter().map(own) {
            let end = snapshot == last;
            if mine.contains(&snapshot) {
                clashes.push(snapshot);
            }
            // The snapshots after the origin stay with the old dataset.
            if end {
                break;
            }
        }
        Ok((from.to_owned(), clashes))
    }

    /// These snapshots, and with [`Recursion::Below`] those of the same names below them.
    fn with_below(&self, snapshots: &[String], recursion: Recursion) -> Result<Vec<String>> {
        if !recursion.is_below() {
            return Ok(snapshots.to_vec());
        }
        let mut out = Vec::new();
        for snapshot in snapshots {
            let Some((dataset, own)) = snapshot.split_once('@') else {
                return Err(Error::refused(
                    Errno::INVAL,
                    format!("'{snapshot}' is not a snapshot"),
                ));
            };
            for below in self.list(dataset, None, ListedKinds::HEADS)? {
                let name = format!("{}@{own}", below.name);
                if self.exists(&name)? {
                    out.push(name);
                }
            }
        }
        if out.is_empty() {
            return Err(Error::refused(Errno::NOENT, "no such snapshot"));
        }
        Ok(out)
    }

    /// Puts a tag on snapshots, on all of them or none.
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(EXIST)` if one has the tag.
    pub fn hold(&self, snapshots: &[String], tag: &str, recursion: Recursion) -> Result<()> {
        self.dsl()
            .hold(&self.with_below(snapshots, recursion)?, tag)
    }

    /// Removes a tag from snapshots, from all of them or none. A deferred snapshot without holds is
    /// destroyed.
    ///
    /// # Errors
    /// `Refused(NOENT)` if one does not have the tag.
    pub fn release(&self, snapshots: &[String], tag: &str, recursion: Recursion) -> Result<()> {
        let all = self.with_below(snapshots, recursion)?;
        self.dsl().release(&all, tag)?;
        for name in all {
            if !self.exists(&name)? {
                self.notify_mounts(|m| m.destroyed(&name));
            }
        }
        Ok(())
    }

    /// Tags of snapshots.
    ///
    /// # Errors
    /// `Refused(NOENT)`.
    pub fn holds(&self, snapshots: &[String], recursion: Recursion) -> Result<Vec<Hold>> {
        let mut out = Vec::new();
        for snapshot in self.with_below(snapshots, recursion)? {
            let tags = self.dsl().holds(&snapshot)?;
            out.extend(tags.into_iter().map(|(tag, time)| Hold {
                snapshot: snapshot.clone(),
                tag,
                time,
            }));
        }
        Ok(out)
    }

    /// Creates a bookmark of a snapshot or another bookmark.
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(EXIST)`, `Refused(INVAL)`.
    pub fn bookmark(&self, source: &str, bookmark: &str) -> Result<()> {
        self.dsl().create_bookmark(source, bookmark)
    }

    /// Destroys a bookmark.
    ///
    /// # Errors
    /// `Refused(NOENT)`.
    pub fn destroy_bookmark(&self, bookmark: &str) -> Result<()> {
        self.dsl().destroy_bookmark(bookmark)
    }

    /// Destroys snapshots, all in one txg or none. Nothing is below them: `recursive` changes
    /// nothing.
    ///
    /// # Errors
    /// `Refused(BUSY)` for held ones, `Refused(EXIST)` for cloned ones, `Refused(NOENT)`.
    pub fn destroy_snapshots(&self, names: &[String], options: DestroyOptions) -> Result<()> {
        let DestroyOptions { force, defer, .. } = options;
        let mut by_dataset: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for name in names {
            let Some((dataset, snapshot)) = name.split_once('@') else {
                return Err(Error::refused(
                    Errno::INVAL,
                    format!("'{name}' is not a snapshot"),
                ));
            };
            by_dataset.entry(dataset).or_default().push(snapshot);
        }
        let specs: Vec<String> = by_dataset
            .into_iter()
            .map(|(dataset, snapshots)| format!("{dataset}@{}", snapshots.join(",")))
            .collect();
        if let Some(mounts) = self.mounts() {
            for name in names {
                // No request may be inside a snapshot when its blocks are freed.
                mounts.before_destroy(name, BusyMount::of(force))?;
            }
        }
        self.dsl().destroy_all(&specs, false, defer)?;
        if let Some(mounts) = self.mounts() {
            for name in names {
                if !defer || !self.exists(name)? {
                    mounts.destroyed(name);
                }
            }
        }
        Ok(())
    }
}
