//! Support for sends: the source of an incremental send, and the features in use.

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_dmu::MetaShape;
use zuse_dmu::zap::ZapValue;
use zuse_format::ObjsetPhys;
use zuse_format::dsl::{BOOKMARK_HAS_FBN, BookmarkPhys};
use zuse_format::property::{ignore_unknown_key, inherit_key};

use crate::context::Dsl;
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::dir::DirEntry;
use crate::meta::is_public;
use crate::name::split_snapshot;
use crate::property::Value;
use crate::receive::RawReceive;
use crate::snapshot::IVSET_GUID;

/// An earlier point of a dataset's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendSource {
    /// Identity of the snapshot, or of the snapshot that the bookmark was made of.
    pub guid: u64,
    /// Its txg: blocks born later are sent.
    pub txg: u64,
    /// It belongs to another dataset, so the receiver has to create a clone.
    pub other_dataset: bool,
    /// The bookmark, if it is one.
    pub bookmark: Option<BookmarkPhys>,
    /// IV set guid of an encrypted one, 0 for none.
    pub ivset: u64,
    /// Redaction snapshots, if it is redacted.
    pub redacted_by: Option<Vec<u64>>,
}

impl Dsl {
    /// The source of an incremental send to `to`: `from` is a snapshot or bookmark by its full
    /// name.
    ///
    /// # Errors
    /// `Refused(NOENT)`; `Refused(XDEV)` if it is not an earlier point of the same history.
    pub fn send_source(&self, to: &Dataset, from: &str) -> Result<SendSource> {
        let _config = self.read_config();
        let meta = self.meta()?;
        let target = to.phys()?;
        let later = || Error::refused(Errno::XDEV, "not an earlier snapshot from the same fs");
        if let Some((dataset, mark)) = from.split_once('#') {
            let head = self.find_ds(dataset)?;
            let all = self.bookmarks_of(head)?;
            let (_, phys) = all
                .into_iter()
                .find(|(name, _)| name == mark)
                .ok_or_else(|| {
                    Error::refused(Errno::NOENT, format!("bookmark '{from}' does not exist"))
                })?;
            let dir = meta.ds(head)?.dir;
            // The history of the target, up to its branch from that dataset.
            let mut at = target;
            for _ in 0..MAX_HISTORY {
                if at.dir == dir {
                    break;
                }
                let origin = meta.dir(at.dir)?.origin;
                if origin == 0 {
                    return Err(later());
                }
                at = meta.ds(origin)?;
            }
            if at.dir != dir || phys.creation_txg > at.creation_txg || phys.guid == target.guid {
                return Err(later());
            }
            return Ok(SendSource {
                guid: phys.guid,
                txg: phys.creation_txg,
                other_dataset: dir != target.dir,
                ivset: phys.ivset_guid,
                bookmark: Some(phys),
                redacted_by: None,
            });
        }
        if split_snapshot(from).1.is_none() {
            return Err(Error::refused(
                Errno::INVAL,
                format!("'{from}' is not a snapshot or bookmark"),
            ));
        }
        let object = self.find_ds(from)?;
        let mut at = target.prev_snap;
        let mut steps = 0;
        while at != object {
            if at == 0 || steps == MAX_HISTORY {
                return Err(later());
            }
            at = meta.ds(at)?.prev_snap;
            steps += 1;
        }
        let phys = meta.ds(object)?;
        Ok(SendSource {
            guid: phys.guid,
            txg: phys.creation_txg,
            other_dataset: phys.dir != target.dir,
            bookmark: None,
            ivset: self.ivset_of(object)?,
            redacted_by: self.redacted_by(ObjectId(object))?,
        })
    }

    /// IV set guid of a snapshot, 0 for none.
    pub(crate) fn ivset_of(&self, ds: u64) -> Result<u64> {
        let found = self.meta()?.extension_value(ds, IVSET_GUID)?;
        Ok(found.and_then(|v| v.first()).unwrap_or(0))
    }

    /// Whether a pool feature is in use.
    ///
    /// # Errors
    /// No pool is open.
    pub fn pool_feature_active(&self, guid: &str) -> Result<bool> {
        Ok(self.spa()?.feature_count(guid) > 0)
    }

    /// Whether a pool feature may be used.
    ///
    /// # Errors
    /// No pool is open.
    pub fn pool_feature_enabled(&self, guid: &str) -> Result<bool> {
        Ok(self.spa()?.feature_enabled(guid))
    }
}

/// Longest chain of snapshots that is followed.
const MAX_HISTORY: u32 = 10_000_000;

impl Dataset {
    /// Whether a dataset uses a per-dataset feature.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn uses_feature(&self, guid: &str) -> Result<bool> {
        let meta = self.dsl.meta()?;
        Ok(meta.extension_value(self.object().0, guid)?.is_some())
    }

    /// The contents of a raw stream about an encrypted dataset's keys, and about its object set.
    ///
    /// # Errors
    /// `Unsupported` for keys of the first development version; the MOS cannot be read.
    pub fn raw_keys(&self, objset: &ObjsetPhys, from: Option<&SendSource>) -> Result<RawReceive> {
        let _config = self.dsl.read_config();
        let dir = self.phys()?.dir;
        let key = self.dsl.key_object(dir)?.ok_or_else(|| {
            Error::missing(format!("directory {dir}"), "its key object is missing")
        })?;
        if key.version == 0 {
            return Err(Error::unsupported(
                format!("key object {}", key.object),
                "raw streams of keys of version 0 (errata 3)",
            ));
        }
        let (format, salt, rounds) = self.dsl.derivation(key.root_dir)?;
        let meta = &objset.meta_dnode;
        Ok(RawReceive {
            suite: key.suite,
            guid: key.guid,
            wrapped: key.wrapped,
            format,
            rounds,
            salt,
            to_ivset: self.dsl.ivset_of(self.object().0)?,
            from_ivset: from.map_or(0, |f| f.ivset),
            shape: MetaShape {
                levels: meta.levels,
                indirect_shift: meta.indirect_shift,
                max_block: meta.max_block_id,
                checksum: meta.checksum,
                compress: meta.compress,
                portable_mac: objset.portable_mac,
            },
        })
    }

    /// The pool's pipeline.
    ///
    /// # Errors
    /// No pool is open.
    pub fn io(&self) -> Result<std::sync::Arc<zuse_io::Pipeline>> {
        Ok(self.dsl.spa()?.io().clone())
    }
}

impl Dsl {
    /// All filesystems and volumes from a name downward, parents first, children in the order of
    /// their table: the order of packages.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn tree_as_stored(&self, name: &str) -> Result<Vec<DirEntry>> {
        let _config = self.read_config();
        let mut out = Vec::new();
        let mut todo = vec![(name.to_owned(), self.find_dir(name)?)];
        let meta = self.meta()?;
        while let Some((name, dir)) = todo.pop() {
            let phys = meta.dir(dir)?;
            out.push(DirEntry {
                name: name.clone(),
                dataset: ObjectId(phys.head_dataset),
            });
            let children = meta.table(phys.child_map)?.numbers()?;
            let public = children.into_iter().filter(|(child, _)| is_public(child));
            let below: Vec<_> = public
                .map(|(child, object)| (format!("{name}/{child}"), object))
                .collect();
            todo.extend(below.into_iter().rev());
        }
        Ok(out)
    }

    /// Properties that were set on a dataset itself or received, in the order of their table. With
    /// `received_only`, the received ones alone.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn own_properties(
        &self,
        ds: &Dataset,
        received_only: bool,
    ) -> Result<Vec<(String, Value)>> {
        let _config = self.read_config();
        let meta = self.meta()?;
        let phys = ds.phys()?;
        let object = if phys.is_snapshot() {
            phys.props
        } else {
            meta.dir(phys.dir)?.props
        };
        if object == 0 {
            return Ok(Vec::new());
        }
        let entries = meta.table(object)?.entries()?;
        let has = |key: &str| entries.iter().any(|(k, _)| k == key);
        let value = |v: &ZapValue| match v {
            ZapValue::U64(n) => Some(Value::Number(*n)),
            other => other.as_text().map(|t| Value::Text(t.to_owned())),
        };
        let mut out = Vec::new();
        for (key, stored) in &entries {
            // A value unknown to older software is stored in a separate entry. That software sees
            // its default.
            let newer = entries
                .iter()
                .find(|(k, _)| !received_only && *k == ignore_unknown_key(key));
            let stored = newer.map_or(stored, |(_, value)| value);
            let (name, received) = match key.split_once('$') {
                None => (key.as_str(), false),
                Some((name, "recvd")) if !name.is_empty() => (name, true),
                Some(_) => continue,
            };
            let shown = if received_only {
                received
            } else if received {
                !has(name) && !has(&inherit_key(name))
            } else {
                true
            };
            if shown && let Some(value) = value(stored) {
                out.push((name.to_owned(), value));
            }
        }
        if !phys.is_snapshot() && !received_only {
            let dir = meta.dir(phys.dir)?;
            for (name, number) in [("quota", dir.quota), ("reservation", dir.reserved)] {
                if number != 0 && !out.iter().any(|(n, _)| n == name) {
                    out.push((name.to_owned(), Value::Number(number)));
                }
            }
        }
        Ok(out)
    }

    /// Uncompressed and compressed bytes of a stream that is about to be sent; `None` if that takes
    /// a walk.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn send_figures(
        &self,
        to: &Dataset,
        from: Option<&SendSource>,
    ) -> Result<Option<[u64; 2]>> {
        let _config = self.read_config();
        let meta = self.meta()?;
        let target = to.phys()?;
        let Some(from) = from else {
            return Ok(Some([target.uncompressed_bytes, target.compressed_bytes]));
        };
        let mut sums = [
            target.uncompressed_bytes as i64,
            target.compressed_bytes as i64,
        ];
        let mut at = target;
        for _ in 0..MAX_HISTORY {
            let freed = Deadlist::open(meta, at.deadlist)?.range(0, from.txg)?;
            sums[0] = sums[0].wrapping_add(freed.uncomp);
            sums[1] = sums[1].wrapping_add(freed.comp);
            if at.prev_snap_txg <= from.txg {
                break;
            }
            at = meta.older(&at)?;
        }
        let start = if at.prev_snap_txg == from.txg {
            let source = meta.ds(at.prev_snap)?;
            [source.uncompressed_bytes, source.compressed_bytes]
        } else {
            match &from.bookmark {
                Some(b) if b.flags & BOOKMARK_HAS_FBN != 0 => [
                    b.uncompressed.wrapping_sub(b.freed_before_next[2]),
                    b.compressed.wrapping_sub(b.freed_before_next[1]),
                ],
                // An old bookmark has no sizes, and its snapshot may be gone.
                _ => return Ok(None),
            }
        };
        Ok(Some([
            sums[0].wrapping_sub(start[0] as i64).max(0) as u64,
            sums[1].wrapping_sub(start[1] as i64).max(0) as u64,
        ]))
    }
}
