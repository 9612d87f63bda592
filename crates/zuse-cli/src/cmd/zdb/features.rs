//! Whether the reference counts of features match the number of their users.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::tools::Zap;
use zuse::{ObjectId, Pool, Result, VdevKind, feature};
use zuse_format::dsl::BOOKMARK_HAS_FBN;

use super::objects::{Directory, Found};

/// Users of features, by guid, and their description.
#[derive(Default)]
pub struct Users {
    counts: BTreeMap<&'static str, u64>,
}

/// Features that are not counted by the keys of datasets.
pub const LIVELIST: &str = "com.delphix:livelist";
const REDACTION: &str = "com.delphix:redaction_bookmarks";
const WRITTEN: &str = "com.delphix:bookmark_written";
const SPILL: &str = "com.delphix:redaction_list_spill";
const REMOVAL: &str = "com.delphix:device_removal";
const OBSOLETE: &str = "com.delphix:obsolete_counts";

fn add(users: &mut Users, guid: &'static str) {
    *users.counts.entry(guid).or_default() += 1;
}

impl Users {
    /// Counts what a dataset uses.
    ///
    /// # Errors
    /// Its attributes or bookmarks cannot be read.
    pub fn dataset(&mut self, pool: &Arc<Pool>, found: &Found) -> Result<()> {
        let mos = pool.spa().mos();
        let dnode = mos.dnode(ObjectId(found.object))?;
        if super::object::is_zap(dnode.object_type()) {
            let zap = Zap::open(&dnode)?;
            for feature in feature::FEATURES.iter().filter(|f| f.per_dataset()) {
                if zap.lookup(feature.guid.as_bytes())?.is_some() {
                    add(self, feature.guid);
                }
            }
        }
        if found.is_snapshot {
            return Ok(());
        }
        for (_, bookmark) in pool.dsl().bookmarks(&found.name)? {
            if bookmark.redaction_obj != 0 {
                add(self, REDACTION);
                if mos.dnode(ObjectId(bookmark.redaction_obj))?.has_spill() {
                    add(self, SPILL);
                }
            }
            if bookmark.flags & BOOKMARK_HAS_FBN != 0 {
                add(self, WRITTEN);
            }
        }
        Ok(())
    }

    /// Counts what a directory uses.
    ///
    /// # Errors
    /// Its attributes cannot be read.
    pub fn directory(&mut self, pool: &Arc<Pool>, dir: &Directory) -> Result<()> {
        let dnode = pool.spa().mos().dnode(ObjectId(dir.object))?;
        if super::object::is_zap(dnode.object_type())
            && Zap::open(&dnode)?.lookup(LIVELIST.as_bytes())?.is_some()
        {
            add(self, LIVELIST);
        }
        Ok(())
    }

    /// Compares with the pool's counts; true if all match.
    ///
    /// # Errors
    /// A removed vdev's attributes cannot be read.
    pub fn compare(mut self, pool: &Arc<Pool>, out: &mut String) -> Result<bool> {
        for _ in super::livelists::deleted(pool)? {
            add(&mut self, LIVELIST);
        }
        for child in &pool.config().vdev_tree.children {
            if child.kind != VdevKind::Indirect {
                continue;
            }
            add(&mut self, REMOVAL);
            let mos = pool.spa().mos();
            if let Some(mapping) = &child.indirect {
                // The fourth word of the header: an object with counts of obsolete bytes.
                let bonus = mos.dnode(ObjectId(mapping.object))?.bonus_vec();
                if bonus
                    .as_chunks::<8>()
                    .0
                    .get(3)
                    .is_some_and(|w| *w != [0; 8])
                {
                    add(&mut self, OBSOLETE);
                }
            }
            let Some(zap) = child.zap_top else { continue };
            let zap = Zap::open(&mos.dnode(ObjectId(zap))?)?;
            for key in [
                "com.delphix:indirect_obsolete_sm",
                "com.delphix:obsolete_counts_are_precise",
            ] {
                if zap.lookup(key.as_bytes())?.is_some() {
                    add(&mut self, OBSOLETE);
                }
            }
        }
        let features = pool.spa().features();
        let mut sound = true;
        let mut line = |guid: &str, name: &str, users: u64| {
            let count = features.refcount(guid);
            let _ = if count == users {
                writeln!(
                    out,
                    "Verified {name} feature refcount of {count} is correct"
                )
            } else {
                sound = false;
                writeln!(
                    out,
                    "{name} feature refcount mismatch: {users} consumers != {count} refcount"
                )
            };
        };
        let by_key = [LIVELIST, REDACTION, WRITTEN, SPILL];
        for f in &feature::FEATURES {
            let counted = f.per_dataset() || by_key.contains(&f.guid);
            if counted && features.is_enabled(f.guid) {
                let users = self.counts.get(f.guid).copied().unwrap_or(0);
                line(f.guid, f.name(), users);
            }
        }
        let users = |guid| self.counts.get(guid).copied().unwrap_or(0);
        line(REMOVAL, "device_removal", users(REMOVAL));
        line(OBSOLETE, "indirect_refcount", users(OBSOLETE));
        Ok(sound)
    }
}
