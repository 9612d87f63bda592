//! Questions about pools and datasets, and their answers as plain rows.
//!
//! A listing may include pools that different processes hold. So it is composed of answers to
//! questions about one pool each. A question is answered here if the pool can be opened here, else
//! by its holder (`zuse answer`, see [`carry`]).

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zuse::feature::FEATURES;
use zuse::property_table::{Home, POOL_PROPERTIES, dataset_property};
use zuse::tools::Layers as _;
use zuse::{DatasetKind, ListedDataset, ListedKinds, Needs, Pool};

use crate::error::{CommandError, Explain, Meaning, Outcome, Stop};
use crate::forward;
use crate::present::source_text;
use crate::session::{Need, Session};
use crate::target::pool_of;

mod asked;
mod aux_devices;
mod carry;
mod details;
mod sizes;
mod vdev_row;

pub use carry::answer_here;
pub use details::{ActivityRow, DedupRow, Details, LostRow, ScanRow, WorkRow};
pub use vdev_row::{OpRow, VdevRow};

/// A question about one pool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Question {
    /// A dataset and what is below it.
    Datasets {
        /// The dataset or snapshot.
        root: String,
        /// Levels below it; `None` for all.
        depth: Option<usize>,
        /// With filesystems.
        filesystems: bool,
        /// With volumes.
        volumes: bool,
        /// With snapshots.
        snapshots: bool,
        /// With bookmarks.
        #[serde(default)]
        bookmarks: bool,
        /// With the values that were received.
        #[serde(default)]
        received: bool,
        /// These properties; `None` for all that `get all` shows.
        properties: Option<Vec<String>>,
    },
    /// The pool itself.
    Pool {
        /// Its name.
        name: String,
        /// These properties; `None` for all.
        properties: Option<Vec<String>>,
        /// Details to include.
        #[serde(default)]
        details: Details,
    },
    /// Vdevs of a pool.
    Vdevs {
        /// The pool's name.
        pool: String,
        /// Names of the vdevs, or `all-vdevs`.
        vdevs: Vec<String>,
        /// These properties; `None` for all.
        properties: Option<Vec<String>>,
    },
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Answer {
    /// Datasets: they are sent row by row.
    #[serde(skip)]
    Datasets(Vec<DatasetRow>),
    /// A pool.
    Pool(Box<PoolRow>),
    /// Vdevs of a pool.
    Vdevs(Box<VdevAnswer>),
}

/// Vdevs with properties of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VdevAnswer {
    /// Their pool, without properties.
    pub pool: PoolRow,
    /// Those that were found.
    pub vdevs: Vec<VdevCells>,
    /// Names that match none of its vdevs.
    pub unknown: Vec<String>,
}

/// A vdev with properties.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VdevCells {
    /// Name as shown.
    pub name: String,
    /// `mirror`, `file`, …
    pub kind: String,
    /// Guid.
    pub guid: u64,
    /// Path of a device.
    pub path: Option<String>,
    /// `normal`, `log`, …
    pub class: String,
    /// ONLINE, …
    pub state: String,
    /// Properties, in the order asked for.
    pub cells: Vec<(String, Cell)>,
}

/// A text; most are words of a table.
pub type Text = Cow<'static, str>;

/// A value with its source.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Exact form; `None` if the property has no value.
    pub value: Option<Text>,
    /// Word of the SOURCE column.
    pub source: Text,
    /// The value that was received, if that was asked for.
    pub received: Option<Box<str>>,
}

/// A dataset.
#[derive(Debug, Clone)]
pub struct DatasetRow {
    /// Full name.
    pub name: String,
    /// `filesystem`, `volume`, `snapshot` or `bookmark`.
    pub kind: Text,
    /// Txg of its creation.
    pub create_txg: u64,
    /// Properties, in the requested order; `None` if it has no property of that name.
    pub cells: Vec<(Text, Option<Cell>)>,
}

impl DatasetRow {
    /// A requested property, most likely at index `at`.
    pub fn cell_at(&self, at: usize, name: &str) -> Option<&Cell> {
        match self.cells.get(at) {
            Some((n, cell)) if n == name => cell.as_ref(),
            _ => self.cell(name),
        }
    }

    /// A requested property.
    pub fn cell(&self, name: &str) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|(n, _)| n == name)
            .and_then(|(_, c)| c.as_ref())
    }
}

/// A pool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PoolRow {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: u64,
    /// Txg of the configuration.
    pub txg: u64,
    /// ONLINE, DEGRADED, …
    pub state: String,
    /// Why it is suspended.
    pub suspended: Option<String>,
    /// It is suspended, and 'zpool clear' does not help.
    #[serde(default)]
    pub lost: bool,
    /// Properties, in the order asked for.
    pub cells: Vec<(String, Cell)>,
    /// Allocated bytes.
    pub allocated: u64,
    /// Bytes for data.
    pub size: u64,
    /// The vdev tree.
    pub vdevs: VdevRow,
    /// Hot and distributed spares.
    pub spares: Vec<VdevRow>,
    /// Cache devices.
    pub cache: Vec<VdevRow>,
    /// Features that an upgrade would enable.
    #[serde(default)]
    pub features_to_enable: Vec<String>,
    /// The version, if it is one before features; else 0.
    pub legacy: u64,
    /// The number of a known fault of older software in the pool; else 0.
    #[serde(default)]
    pub errata: u64,
    /// Not all of its own data could be read.
    #[serde(default)]
    pub unreadable: bool,
    /// Problems other than those of devices, one line each.
    pub warnings: Vec<String>,
    /// Seconds since the pool was opened.
    #[serde(default)]
    pub seconds: f64,
    /// The process that has it open: the caller, or the holder.
    #[serde(default)]
    pub process: u32,
    /// The cache tiers.
    #[serde(default)]
    pub tiers: Vec<TierRow>,
    /// Figures of intent logs: see [`zuse::Pool::log_figures`].
    #[serde(default)]
    pub logs: Vec<(String, u64)>,
    /// Dedup tables, if requested.
    #[serde(default)]
    pub dedup: Option<DedupRow>,
    /// Work on the whole pool, if requested.
    #[serde(default)]
    pub activity: ActivityRow,
    /// Blocks in the error log, if requested.
    #[serde(default)]
    pub lost_blocks: u64,
    /// Their files, if requested.
    #[serde(default)]
    pub damaged: Vec<LostRow>,
}

impl PoolRow {
    /// Adds the errors that the reads for this row met.
    fn count_again(&mut self, pool: &Pool) {
        pool.health_word().clone_into(&mut self.state);
        self.suspended = pool.suspended().map(|e| e.to_string());
        self.lost = pool.spa().is_lost();
        self.vdevs.take_health(&VdevRow::of(&pool.vdev_status()));
    }
}

/// A cache: see [`zuse::CacheFigures`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TierRow {
    /// Its name.
    pub name: String,
    /// Hits, misses, entries, bytes, bound.
    pub figures: [u64; 5],
}

impl Question {
    fn pool(&self) -> &str {
        match self {
            Self::Datasets { root, .. } => pool_of(root),
            Self::Pool { name, .. } => name,
            Self::Vdevs { pool, .. } => pool,
        }
    }

    /// Answers about an open pool. An imported pool that is open read-only for this question is not
    /// reported as read-only.
    pub fn answer(&self, pool: &Arc<Pool>, imported: bool) -> Outcome<Answer> {
        match self {
            Self::Datasets { .. } => {
                let mut rows = Vec::new();
                self.each_row(pool, &mut |row| {
                    rows.push(row);
                    Ok(())
                })?;
                Ok(Answer::Datasets(rows))
            }
            Self::Pool {
                properties,
                details,
                ..
            } => {
                let mut row = pool_row(pool, properties.as_deref());
                details.put_on(pool, &mut row);
                if row.unreadable {
                    row.count_again(pool);
                }
                // It was opened read-only for this question alone.
                if imported && !pool.temporary_properties().read_only {
                    for (_, cell) in row.cells.iter_mut().filter(|(n, _)| n == "readonly") {
                        cell.value = Some("off".into());
                    }
                }
                Ok(Answer::Pool(Box::new(row)))
            }
            Self::Vdevs {
                pool: name,
                vdevs,
                properties,
            } => vdevs_answer(pool, vdevs, properties.as_deref())
                .or_cannot_pool(|| format!("cannot open '{name}'")),
        }
    }

    /// Passes a row for each requested dataset; none for a question about a pool.
    fn each_row(
        &self,
        pool: &Arc<Pool>,
        put: &mut dyn FnMut(DatasetRow) -> zuse::Result<()>,
    ) -> Outcome {
        let Self::Datasets {
            root,
            depth,
            filesystems,
            volumes,
            snapshots,
            bookmarks,
            received,
            properties,
        } = self
        else {
            return Ok(());
        };
        let which = ListedKinds {
            filesystems: *filesystems,
            volumes: *volumes,
            snapshots: *snapshots,
            bookmarks: *bookmarks,
        };
        let names: Option<Vec<&str>> = properties
            .as_ref()
            .map(|names| names.iter().map(String::as_str).collect());
        let (names, needs) = (names.as_deref(), needs_of(names.as_deref()));
        pool.dsl()
            .walk_for(root, *depth, which, needs, &mut |entry| {
                put(dataset_row(pool, &entry, names, *received)?)
            })
            .or_cannot(|| format!("cannot open '{root}'"))
    }

    /// Answers here, or asks the process that holds the pool.
    pub fn ask(&self, session: &mut Session) -> Outcome<Answer> {
        match session.pool(self.pool(), Need::Read) {
            Ok(pool) => {
                let mut answer = self.answer(&pool, session.search.is_empty())?;
                answer.put_below_mounts(session);
                Ok(answer)
            }
            Err(Stop::Held(guid)) => match self.ask_holder(session, guid)? {
                Some(answer) => Ok(answer),
                // It has just ended, so its pool can be opened here soon.
                None => {
                    std::thread::sleep(forward::PAUSE);
                    self.ask(session)
                }
            },
            Err(Stop::Failed(e))
                if matches!(self, Self::Datasets { .. }) && e.meaning == Meaning::NoSuchPool =>
            {
                let Self::Datasets { root, .. } = self else {
                    return Err(e.into());
                };
                Err(CommandError {
                    message: format!("cannot open '{root}': dataset does not exist"),
                    ..e
                }
                .into())
            }
            Err(stop) => Err(stop),
        }
    }
}

impl Answer {
    /// Shows file systems mounted by this process at their place in the mount.
    fn put_below_mounts(&mut self, session: &Session) {
        if let (Self::Pool(row), Some(holder)) = (self, &session.holder)
            && !row.damaged.is_empty()
        {
            let mounts = holder.mounted();
            row.damaged.iter_mut().for_each(|d| d.put_below(&mounts));
        }
    }
}

/// What must be read to answer for these properties.
fn needs_of(names: Option<&[&str]>) -> Needs {
    let Some(names) = names else {
        return Needs::ALL;
    };
    let home = |n: &&str| dataset_property(n).map(|p| p.home);
    let inside = |n: &&str| matches!(home(n), Some(Home::MasterNode | Home::Volume));
    Needs {
        properties: names
            .iter()
            .any(|n| home(n) != Some(Home::Computed) && !inside(n) || beside(n)),
        inside: names.iter().any(inside),
        written: names.iter().any(|n| n.starts_with("written")),
    }
}

/// Whether a computed property needs only the directory, or the other properties too.
fn beside(name: &str) -> bool {
    matches!(
        name,
        "available" | "filesystem_count" | "snapshot_count" | "snapshots_changed"
    )
}

fn dataset_row(
    pool: &Arc<Pool>,
    entry: &ListedDataset,
    properties: Option<&[&str]>,
    received: bool,
) -> zuse::Result<DatasetRow> {
    let all = pool.properties_of(entry, properties)?;
    let mut cells = Vec::with_capacity(all.len());
    for (at, (name, found)) in all.into_iter().enumerate() {
        let received = if received {
            pool.dsl().received_value(entry, &name)?
        } else {
            None
        };
        let cell = found.map(|(value, source)| Cell {
            value: Some(value),
            source: source_text(&source),
            received: received.map(String::into_boxed_str),
        });
        // Under the requested name.
        let name = match properties.and_then(|names| names.get(at)) {
            Some(asked) if *asked != name => (*asked).to_owned().into(),
            _ => name,
        };
        cells.push((name, cell));
    }
    let kind = match entry.kind {
        DatasetKind::Filesystem => "filesystem",
        DatasetKind::Volume => "volume",
        DatasetKind::Snapshot => "snapshot",
        DatasetKind::Bookmark => "bookmark",
    };
    Ok(DatasetRow {
        name: entry.name.clone(),
        kind: kind.into(),
        create_txg: pool.dsl().create_txg(entry)?,
        cells,
    })
}

impl Cell {
    /// Of a property without a value.
    fn none() -> Self {
        Self {
            value: None,
            source: "-".into(),
            received: None,
        }
    }
}

impl From<zuse::PoolProperty> for Cell {
    fn from(p: zuse::PoolProperty) -> Self {
        Self {
            value: p.value.map(Into::into),
            source: source_text(&p.source),
            received: None,
        }
    }
}

fn vdevs_answer(
    pool: &Arc<Pool>,
    names: &[String],
    properties: Option<&[String]>,
) -> zuse::Result<Answer> {
    let (mut guids, mut unknown) = (Vec::new(), Vec::new());
    for name in names {
        match pool.find_vdev(name) {
            _ if name == "all-vdevs" => guids.extend(pool.vdev_guids()),
            Some(guid) => guids.push(guid),
            None => unknown.push(name.clone()),
        }
    }
    let found = pool.vdev_properties(&guids, properties)?;
    let vdevs = found.into_iter().map(|vdev| VdevCells {
        name: vdev.name,
        kind: vdev.kind.to_string(),
        guid: vdev.guid,
        path: vdev.path,
        class: vdev.class.to_string(),
        state: vdev.health.to_string(),
        cells: vdev
            .properties
            .into_iter()
            .map(|p| (p.name.clone(), p.into()))
            .collect(),
    });
    Ok(Answer::Vdevs(Box::new(VdevAnswer {
        pool: pool_row(pool, Some(&[])),
        vdevs: vdevs.collect(),
        unknown,
    })))
}

/// The requested pool properties, or all. One that cannot be read has no value.
fn pool_cells(
    pool: &Pool,
    properties: Option<&[String]>,
    unread: &mut Option<zuse::Error>,
) -> Vec<(String, Cell)> {
    let all = match properties {
        Some(_) => None,
        None => unless_unread(pool.pool_properties(), unread),
    };
    if let Some(all) = all {
        let cells = all.into_iter().map(|p| (p.name.clone(), p.into()));
        return cells.collect();
    }
    let names = match properties {
        Some(names) => names.to_vec(),
        None => {
            let native = POOL_PROPERTIES.iter().filter(|p| p.in_all);
            let features = FEATURES.iter().map(|f| format!("feature@{}", f.name()));
            native.map(|p| p.name.to_owned()).chain(features).collect()
        }
    };
    let cells = names.into_iter().map(|name| {
        let found = unless_unread(pool.pool_property(&name), unread).flatten();
        let cell = found.map_or_else(Cell::none, Cell::from);
        (name, cell)
    });
    cells.collect()
}

/// What was read. The first error is kept: the other information about a damaged pool is needed all
/// the more.
fn unless_unread<T>(found: zuse::Result<T>, unread: &mut Option<zuse::Error>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(e) => {
            unread.get_or_insert(e);
            None
        }
    }
}

/// The vdev tree with the space of each top-level vdev, and further figures that the properties
/// need.
fn vdevs_with_space(pool: &Pool, cells: &[(String, Cell)]) -> VdevRow {
    let mut vdevs = VdevRow::of(&pool.vdev_status());
    vdevs.name = pool.name();
    details::set_doing(pool, &mut vdevs);
    if cells.iter().any(|(name, _)| name == "expandsize") {
        set_expandable(pool, &mut vdevs);
    }
    let by_maps = match pool.is_writable() {
        false => zuse::tools::traverse::space_by_maps(pool).unwrap_or_default(),
        true => Default::default(),
    };
    let checkpoint = match cells.iter().any(|(name, _)| name == "checkpoint") {
        true => pool.checkpoint_space().unwrap_or_default(),
        false => Vec::new(),
    };
    for status in &pool.vdev_status().children {
        let row = vdevs.children.iter_mut().find(|v| v.guid == status.guid);
        if let (Some(row), Ok(id)) = (row, u32::try_from(status.id)) {
            let by_map = || by_maps.get(&id).copied();
            row.space = pool.spa().vdev_space(id).or_else(by_map);
            sizes::set_deflated(pool, row, id);
            if cells.iter().any(|(name, _)| name == "fragmentation") {
                row.fragmentation = pool.spa().fragmentation_of(id).ok().flatten();
            }
            let only = checkpoint.iter().find(|space| space.vdev == status.id);
            row.checkpoint = only.map(|space| space.bytes);
        }
    }
    // As the pool's size: log devices are not counted.
    let data = vdevs.children.iter().filter(|c| !c.is_log);
    vdevs.deflated = data.map(|c| c.deflated).sum();
    vdevs
}

/// Sets by how much each vdev below could grow.
fn set_expandable(pool: &Pool, vdev: &mut VdevRow) {
    for child in &mut vdev.children {
        child.expandable = pool.spa().expandable(child.guid);
        set_expandable(pool, child);
    }
}

/// The row of a pool. What cannot be read is left out of it.
pub fn pool_row(pool: &Arc<Pool>, properties: Option<&[String]>) -> PoolRow {
    let mut unread = None;
    let cells = pool_cells(pool, properties, &mut unread);
    let figures = unless_unread(pool.figures(), &mut unread);
    let vdevs = vdevs_with_space(pool, &cells);
    let config = pool.config();
    let mut aux = |list: &str| -> Vec<VdevRow> {
        let found = unless_unread(pool.spa().aux_devices(list), &mut unread);
        let found = found.unwrap_or_default();
        found
            .iter()
            .map(|c| aux_devices::row(c, list, &vdevs))
            .collect()
    };
    let (spares, cache) = (aux("spares"), aux("l2cache"));
    let stuck = pool.dsl().stuck();
    PoolRow {
        name: pool.name(),
        guid: pool.guid(),
        txg: config.txg.max(pool.uberblock().txg.min(config.txg.max(1))),
        state: pool.health_word().to_owned(),
        suspended: pool.suspended().map(|e| e.to_string()),
        lost: pool.spa().is_lost(),
        cells,
        allocated: figures.map_or(0, |f| f.allocated),
        size: figures.map_or(0, |f| f.size),
        spares,
        cache,
        vdevs,
        legacy: Some(pool.spa().version())
            .filter(|v| *v < zuse::SPA_VERSION)
            .unwrap_or(0),
        features_to_enable: features_to_enable(pool),
        errata: pool.errata(),
        unreadable: unread.is_some(),
        warnings: stuck.iter().chain(&unread).map(|e| e.to_string()).collect(),
        seconds: pool.age().as_secs_f64(),
        process: std::process::id(),
        tiers: pool
            .caches()
            .iter()
            .map(|t| TierRow {
                name: t.name.to_owned(),
                figures: [t.hits, t.misses, t.entries, t.bytes, t.limit],
            })
            .collect(),
        logs: named_log_figures(pool),
        dedup: None,
        activity: ActivityRow::default(),
        lost_blocks: 0,
        damaged: Vec::new(),
    }
}

/// Figures of intent logs, as they are sent to the client.
fn named_log_figures(pool: &Pool) -> Vec<(String, u64)> {
    let all = pool.log_figures().into_iter();
    all.map(|(name, n)| (name.to_owned(), n)).collect()
}

/// Empty if the pool's compatibility set is unknown here, or if the pool cannot be read.
fn features_to_enable(pool: &Pool) -> Vec<String> {
    if pool.spa().version() < zuse::SPA_VERSION {
        return Vec::new();
    }
    let wanted = crate::sets::requested(pool.config().compatibility.as_deref(), "");
    let missing = wanted.ok().and_then(|w| pool.features_to_enable(&w).ok());
    let names = missing.into_iter().flatten().map(|f| f.name().to_owned());
    names.collect()
}
