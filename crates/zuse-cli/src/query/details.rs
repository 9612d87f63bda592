//! Details of a pool that are read only on request, because they take longer.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zuse::tools::Layers as _;
use zuse::tools::dedup::{Histogram, Table, tables};
use zuse::{DamagedObject, Pool, ScanState, VdevWork};

use super::{PoolRow, VdevRow, unless_unread};

/// The requested details.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Details {
    /// The dedup tables.
    #[serde(default)]
    pub dedup: bool,
    /// How far devices were initialized and trimmed.
    #[serde(default)]
    pub work: bool,
    /// Scans, removals, expansions, the checkpoint.
    #[serde(default)]
    pub activity: bool,
    /// Names of the damaged files.
    #[serde(default)]
    pub lost: bool,
}

/// An object with lost blocks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LostRow {
    /// Dataset and path, or their numbers, as they are printed.
    pub name: String,
    /// The dataset and the path in it, if both are known.
    pub file: Option<(String, String)>,
}

/// Work on a whole pool.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ActivityRow {
    /// See [`zuse::LastScan`].
    pub scan: Option<ScanRow>,
    /// See [`zuse::ErrorScrub`]: state, start, end, blocks to read, blocks read, whether it is
    /// paused.
    pub error_scrub: Option<[u64; 6]>,
    /// See [`zuse::Removal`]: state, vdev, its guid, start, end, bytes to copy, copied, of
    /// mappings.
    pub removal: Option<[u64; 8]>,
    /// See [`zuse::Checkpoint`]: time, bytes.
    pub checkpoint: Option<[u64; 2]>,
    /// See [`zuse::Expansion`]: state, guid of the vdev, start, end, bytes copied.
    pub expansion: Option<[u64; 5]>,
    /// See [`zuse::Rebuild`]: guid of the vdev, state, start, end, bytes scanned, issued, rebuilt,
    /// in all, errors.
    #[serde(default)]
    pub rebuilds: Vec<[u64; 9]>,
}

/// See [`zuse::LastScan`].
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct ScanRow {
    /// 1 scrub, 2 resilver, 3 error scrub.
    pub function: u64,
    /// 1 scanning, 2 finished, 3 canceled.
    pub state: u64,
    /// Start and end.
    pub times: [u64; 2],
    /// Bytes: to examine, examined, skipped, repaired.
    pub bytes: [u64; 4],
    /// Blocks that could not be repaired.
    pub errors: u64,
    /// It is paused.
    pub paused: bool,
    /// Of this pass: its start, when it was paused, seconds spent paused, bytes examined, issued.
    pub pass: [u64; 5],
    /// Bytes issued in all.
    pub issued: u64,
}

/// Dedup tables of a pool, all together.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DedupRow {
    /// Entries.
    pub entries: u64,
    /// Bytes on disk.
    pub on_disk: u64,
    /// Bytes in memory if all of them were loaded.
    pub in_memory: u64,
    /// The histogram of all tables, as [`Histogram::words`].
    pub histogram: Vec<u64>,
}

/// Work that runs over a device once: see [`VdevWork`].
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct WorkRow {
    /// 0 none, 1 active, 2 canceled, 3 suspended, 4 complete.
    pub state: u64,
    /// Bytes done, bytes in all.
    pub bytes: [u64; 2],
    /// Seconds since 1970.
    pub since: u64,
}

impl LostRow {
    fn of(lost: &DamagedObject) -> Self {
        let path = lost.path.as_ref().map(|p| String::from_utf8_lossy(p));
        let path = path.map(|p| p.into_owned());
        Self {
            name: lost.to_string(),
            file: lost.dataset.clone().zip(path),
        }
    }

    /// Prefixes a file's path by its mount point.
    pub fn put_below(&mut self, mounts: &[(String, PathBuf)]) {
        let Some((dataset, path)) = &self.file else {
            return;
        };
        if let Some((_, at)) = mounts.iter().find(|(d, _)| d == dataset) {
            let at = at.to_string_lossy();
            self.name = format!("{}{path}", at.trim_end_matches('/'));
        }
    }
}

impl WorkRow {
    fn of(work: VdevWork) -> Self {
        Self {
            state: work.state.number(),
            bytes: [work.done.min(work.size), work.size],
            since: work.since,
        }
    }

    /// Percent done.
    pub fn percent(&self) -> u64 {
        match (self.state, self.bytes) {
            (4, _) => 100,
            (_, [_, 0]) => 0,
            (_, [done, all]) => (u128::from(done) * 100 / u128::from(all)) as u64,
        }
    }
}

impl Details {
    /// Reads the details and adds them to the row.
    pub fn put_on(self, pool: &Arc<Pool>, row: &mut PoolRow) {
        let mut unread = None;
        if self.dedup {
            row.dedup = unless_unread(dedup(pool), &mut unread);
        }
        if self.work {
            unless_unread(work(pool, &mut row.vdevs), &mut unread);
        }
        if let Some(e) = unread {
            row.unreadable = true;
            row.warnings.push(e.to_string());
        }
        if self.activity {
            row.activity = activity(pool, &mut row.warnings);
            row.lost_blocks = pool.lost_blocks().unwrap_or_else(|e| {
                row.warnings.push(e.to_string());
                0
            }) as u64;
        }
        if self.lost && row.lost_blocks > 0 {
            match pool.damage() {
                Ok(all) => row.damaged = all.iter().map(LostRow::of).collect(),
                Err(e) => row.warnings.push(e.to_string()),
            }
        }
    }
}

/// Read errors become warnings, because the other information about a damaged pool is needed all
/// the more.
fn activity(pool: &Pool, warnings: &mut Vec<String>) -> ActivityRow {
    fn or_warning<T>(found: zuse::Result<Option<T>>, warnings: &mut Vec<String>) -> Option<T> {
        found.unwrap_or_else(|e| {
            warnings.push(e.to_string());
            None
        })
    }
    let config = pool.config();
    let guid = |id: u64| {
        let top = usize::try_from(id).ok();
        let top = top.and_then(|id| config.vdev_tree.children.get(id));
        top.map_or(0, |v| v.guid)
    };
    ActivityRow {
        scan: pool
            .scan()
            .filter(|s| s.state != ScanState::None)
            .map(|s| ScanRow {
                function: s.function.number(),
                state: s.state.number(),
                times: [s.start, s.end],
                bytes: [s.to_examine, s.examined, s.skipped, s.processed],
                errors: s.errors,
                paused: s.paused,
                pass: [
                    s.pass_start,
                    s.pass_paused,
                    s.pass_spent_paused,
                    s.pass_examined,
                    s.pass_issued,
                ],
                issued: s.issued,
            }),
        error_scrub: Some(pool.error_scrub())
            .filter(|e| e.state != ScanState::None)
            .map(|e| {
                [
                    e.state.number(),
                    e.start,
                    e.end,
                    e.to_examine,
                    e.examined,
                    u64::from(e.paused),
                ]
            }),
        removal: or_warning(pool.removal(), warnings).map(|r| {
            [
                r.state.number(),
                r.vdev,
                guid(r.vdev),
                r.start,
                r.end,
                r.to_copy,
                r.copied,
                r.mappings,
            ]
        }),
        checkpoint: or_warning(pool.checkpoint(), warnings).map(|c| [c.since, c.bytes]),
        expansion: or_warning(pool.expansion(), warnings)
            .map(|e| [e.state.number(), guid(e.vdev), e.start, e.end, e.copied]),
        rebuilds: pool
            .spa()
            .rebuilds()
            .unwrap_or_default()
            .iter()
            .map(rebuild_words)
            .collect(),
    }
}

fn rebuild_words(r: &zuse::Rebuild) -> [u64; 9] {
    let bytes = [r.scanned, r.issued, r.rebuilt, r.estimate];
    let [scanned, issued, rebuilt, all] = bytes;
    [
        r.vdev,
        r.state.number(),
        r.start,
        r.end,
        scanned,
        issued,
        rebuilt,
        all,
        r.errors,
    ]
}

fn dedup(pool: &Arc<Pool>) -> zuse::Result<DedupRow> {
    let all = tables(pool.spa())?;
    let stores = || all.iter().flat_map(|t| &t.stores);
    let mut sum = Histogram::default();
    for table in &all {
        sum.merge(&table.histogram(pool.spa().io()));
    }
    Ok(DedupRow {
        entries: all.iter().map(Table::entries).sum(),
        on_disk: stores().map(|s| s.on_disk).sum(),
        in_memory: stores().map(|s| s.in_memory).sum(),
        histogram: sum.words(),
    })
}

fn work(pool: &Pool, vdev: &mut VdevRow) -> zuse::Result<()> {
    if vdev.path.is_some() {
        let both = pool.vdev_work(vdev.guid, vdev.psize)?;
        vdev.work = Some([both.initialize, both.trim].map(WorkRow::of));
    }
    let mut below = vdev.children.iter_mut();
    below.try_for_each(|child| work(pool, child))
}

/// Adds to each device the work on it, or the pending work.
pub fn set_doing(pool: &Pool, vdevs: &mut VdevRow) {
    fn set(vdev: &mut VdevRow, guids: &[u64], what: &str) {
        if vdev.doing.is_empty() && guids.contains(&vdev.guid) {
            what.clone_into(&mut vdev.doing);
        }
        let children = vdev.children.iter_mut();
        children.for_each(|child| set(child, guids, what));
    }
    set(vdevs, &pool.spa().deferred(), "awaiting resilver");
    // As in OpenZFS, nothing is reported as long as nothing was written.
    if pool.is_resilvering() && pool.scan().is_some_and(|scan| scan.processed > 0) {
        set(vdevs, &pool.spa().lacking(), "resilvering");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zuse::tools::{Zap, ZapValue};
    use zuse::{Environment, NewDevice, NewPool};

    #[test]
    fn what_cannot_be_read_of_a_damaged_pool_is_a_warning() {
        let dir = tempfile::tempdir().expect("a directory");
        let new = NewPool {
            name: "tank".into(),
            devices: vec![NewDevice {
                path: dir.path().join("tank.img"),
                make: Some(128 << 20),
            }],
            ..NewPool::default()
        };
        let pool = Pool::create(Environment::default(), &new).expect("made");
        let mut warnings = Vec::new();
        activity(&pool, &mut warnings);
        assert!(warnings.is_empty(), "{warnings:?}");
        let damage = pool.spa().sync_task(
            |_| Ok(()),
            |ctx| {
                let zap = Zap::open(&ctx.pool.mos().dnode(zuse::ObjectId(1))?)?;
                let none = ZapValue::u64s(&[0; 27]);
                zap.update(ctx.tx, b"com.delphix:zpool_checkpoint", &none)
            },
        );
        damage.expect("written");
        let row = activity(&pool, &mut warnings);
        assert!(row.checkpoint.is_none());
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("checkpoint"), "{warnings:?}");
        pool.close().expect("closed");
    }
}
