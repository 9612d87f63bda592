//! Lost data by name: the pool's error log (`docs/format/04a-dsl-props.md` §5) as text.
//!
//! A log entry by head names a block of a head. It is searched for in the head, in its snapshots
//! and in clones of those. The result has those with the same block (number and birth). If one of
//! them cannot be read, its numbers are shown instead of a name. No dataset is left out.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use zuse_base::{Errno, ObjectId, Result};
use zuse_dsl::Dataset;
use zuse_io::LostBlock;

use crate::Pool;

/// Objects that are named, at most; the count includes all.
pub const NAMED_MAX: usize = 10_000;
/// Datasets that are searched for one block, at most.
const DATASETS_MAX: usize = 10_000;
/// The number of the object of dnodes.
const META_DNODE: u64 = 0;
/// The number of a spill block.
const SPILL: u64 = u64::MAX;

/// An object with lost blocks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct DamagedObject {
    /// Name of the dataset or snapshot; `None` if it does not exist any more, and for the pool's
    /// own metadata.
    pub dataset: Option<String>,
    /// Object of the dataset in the MOS; 0 for the pool's own metadata.
    pub number: ObjectId,
    /// The object in the dataset.
    pub object: ObjectId,
    /// Its path below the dataset's root, with a leading slash; `None` if none can be found.
    pub path: Option<Vec<u8>>,
}

impl std::fmt::Display for DamagedObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.dataset, self.number.0) {
            (Some(name), _) => write!(f, "{name}:")?,
            (None, 0) => write!(f, "<metadata>:")?,
            (None, number) => write!(f, "<{number:#x}>:")?,
        }
        match &self.path {
            Some(path) => write!(f, "{}", String::from_utf8_lossy(path)),
            None => write!(f, "<{:#x}>", self.object.0),
        }
    }
}

impl Pool {
    /// How many blocks the error log has.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn lost_blocks(&self) -> Result<usize> {
        Ok(self.dsl().error_log()?.blocks.len())
    }

    /// The objects in the error log.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn damage(&self) -> Result<Vec<DamagedObject>> {
        let log = self.dsl().error_log()?;
        let mut found: BTreeSet<(u64, u64)> = BTreeSet::new();
        for block in &log.blocks {
            if found.len() >= NAMED_MAX {
                break;
            }
            match block.dataset {
                number if number == 0 || !log.by_head => {
                    found.insert((number, block.object));
                }
                _ => {
                    let holders = self.holders(block);
                    found.extend(holders.into_iter().map(|number| (number, block.object)));
                }
            }
        }
        let mut out = Vec::new();
        let mut rest = found.into_iter().peekable();
        while let Some((number, first)) = rest.next() {
            let mut objects = vec![ObjectId(first)];
            while let Some((_, object)) = rest.next_if(|(n, _)| *n == number) {
                objects.push(ObjectId(object));
            }
            self.name_objects(number, &objects, &mut out);
        }
        Ok(out)
    }

    fn name_objects(&self, number: u64, objects: &[ObjectId], out: &mut Vec<DamagedObject>) {
        let named = |number: u64| {
            let dataset = self.dsl().dataset_by_object(ObjectId(number)).ok()?;
            dataset.name().ok()
        };
        let dataset = named(number).filter(|_| number != 0);
        let fs = dataset.as_ref().and_then(|n| self.file_system(n).ok());
        let paths = fs.map(|fs| zuse_zpl::paths_of(&fs, objects));
        let mut paths = paths.unwrap_or_default().into_iter();
        out.extend(objects.iter().map(|object| DamagedObject {
            dataset: dataset.clone(),
            number: ObjectId(number),
            object: *object,
            path: paths.next().flatten(),
        }));
    }

    /// The owners of a block in a log by head: the head, its snapshots and clones that have it.
    /// Empty if it was freed.
    fn holders(&self, block: &LostBlock) -> Vec<u64> {
        let (mut holders, mut seen) = (Vec::new(), HashSet::new());
        let mut heads = vec![block.dataset];
        while let Some(head) = heads.pop() {
            if !seen.insert(head) || seen.len() > DATASETS_MAX {
                continue;
            }
            let Ok(dataset) = self.dsl().dataset_by_object(ObjectId(head)) else {
                // No head has that number any more, and nothing else is known.
                holders.push(head);
                continue;
            };
            if has_block(&dataset, block) {
                holders.push(head);
            }
            // If the search fails, the owners found so far are shown.
            let _ = self.older_holders(&dataset, block, &mut seen, &mut holders, &mut heads);
        }
        holders
    }

    fn older_holders(
        &self,
        head: &Dataset,
        block: &LostBlock,
        seen: &mut HashSet<u64>,
        holders: &mut Vec<u64>,
        heads: &mut Vec<u64>,
    ) -> Result<()> {
        let (dir, mut at) = (head.phys()?.dir, head.phys()?.prev_snap);
        while at != 0 && seen.len() <= DATASETS_MAX && seen.insert(at) {
            let snapshot = self.dsl().dataset_by_object(ObjectId(at))?;
            let phys = snapshot.phys()?;
            if phys.dir != dir || phys.creation_txg < block.birth {
                break;
            }
            if has_block(&snapshot, block) {
                holders.push(at);
                for clone in self.dsl().stat(&snapshot)?.clones {
                    heads.push(self.dsl().dataset(&clone)?.object().0);
                }
            }
            at = phys.prev_snap;
        }
        Ok(())
    }
}

/// Whether a dataset has that very block; true if that cannot be found out.
fn has_block(dataset: &Arc<Dataset>, block: &LostBlock) -> bool {
    let Ok(objset) = dataset.objset() else {
        return true;
    };
    if block.object == META_DNODE {
        return true;
    }
    let dnode = match objset.dnode(ObjectId(block.object)) {
        Ok(dnode) => dnode,
        Err(e) => return !e.is(Errno::NOENT),
    };
    if block.birth == 0 || block.level != 0 || block.block == SPILL {
        return true;
    }
    match dnode.stored_pointer(block.block) {
        Ok(Some(bp)) => bp.physical_birth() == block.birth,
        Ok(None) => false,
        Err(_) => true,
    }
}
