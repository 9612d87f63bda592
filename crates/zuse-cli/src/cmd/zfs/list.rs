//! `zfs list`

use std::borrow::Cow;
use std::cmp::Ordering;

use clap::Args;
use zuse::ListedKinds;
use zuse::property_table::{PropertyKind, dataset_property, is_user_property};

use crate::args::{parts, properties};
use crate::date;
use crate::error::{CommandError, Meaning, Outcome, Stop};
use crate::json::{self, Json};
use crate::place::resolved;
use crate::present::{dataset_value, is_number, source_json};
use crate::query::{Answer, DatasetRow, Question};
use crate::session::Session;
use crate::table::{Column, Side, stream};
use crate::target::pool_of;

/// Whether it failed because there is no such dataset.
fn is_missing(error: &CommandError) -> bool {
    matches!(error.meaning, Meaning::NoSuchDataset | Meaning::NoSuchPool)
}

/// List datasets
#[derive(Args, Debug)]
pub struct List {
    /// No header, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers
    #[arg(short)]
    parsable: bool,
    /// As JSON
    #[arg(short, long)]
    json: bool,
    /// With --json: numbers as numbers, exact
    #[arg(long, requires = "json")]
    json_int: bool,
    #[command(flatten)]
    scope: Scope,
    /// Properties to list, separated by commas; 'space' shows what takes the space
    #[arg(short, value_name = "PROPERTY,…", default_value = DEFAULT)]
    output: String,
    /// Sort by a property, smallest first (may be repeated)
    #[arg(short = 's', value_name = "PROPERTY")]
    ascending: Vec<String>,
    /// Sort by a property, largest first
    #[arg(short = 'S', value_name = "PROPERTY")]
    descending: Vec<String>,
}

const DEFAULT: &str = "name,used,available,referenced,mountpoint";
const SPACE: &str =
    "name,available,used,usedbysnapshots,usedbydataset,usedbyrefreservation,usedbychildren";

/// The datasets of a command.
#[derive(Args, Debug, Clone)]
pub struct Scope {
    /// Also all descendants
    #[arg(short)]
    pub recursive: bool,
    /// Descendants up to this depth
    #[arg(short, value_name = "LEVELS", allow_negative_numbers = true, value_parser = levels)]
    pub depth: Option<usize>,
    /// Kinds, separated by commas: filesystem, volume, snapshot, bookmark, all
    #[arg(short = 't', value_name = "KIND,…")]
    pub types: Option<String>,
    /// The datasets; all by default
    #[arg(value_name = "DATASET")]
    pub datasets: Vec<String>,
}

/// A number of levels.
fn levels(text: &str) -> Result<usize, String> {
    match text.parse::<i64>() {
        Ok(levels) => usize::try_from(levels).map_err(|_| "Depth can not be negative.".into()),
        Err(_) => Err(format!("{text} is not an integer")),
    }
}

impl Scope {
    /// The requested kinds, if any are named.
    pub fn kinds(&self) -> Outcome<Option<ListedKinds>> {
        let Some(types) = &self.types else {
            return Ok(None);
        };
        let mut kinds = ListedKinds::default();
        for word in parts(types) {
            match word.as_str() {
                "filesystem" | "fs" => kinds.filesystems = true,
                "volume" | "vol" => kinds.volumes = true,
                "snapshot" | "snap" => kinds.snapshots = true,
                "bookmark" => kinds.bookmarks = true,
                "all" => kinds = ListedKinds::ALL,
                other => return Err(CommandError::usage(format!("invalid type '{other}'")).into()),
            }
        }
        Ok(Some(kinds))
    }

    /// How many levels below each dataset are in scope.
    fn levels(&self, everything: bool) -> Option<usize> {
        match (self.recursive || everything, self.depth) {
            (_, Some(levels)) => Some(levels),
            (true, None) => None,
            (false, None) => Some(0),
        }
    }

    /// Asks about one dataset and the others in scope with it.
    fn ask_one(
        &self,
        session: &mut Session,
        root: String,
        fallback: ListedKinds,
        properties: Option<&[String]>,
        received: bool,
    ) -> Outcome<Vec<DatasetRow>> {
        let named = self.kinds()?;
        let root = resolved(session, root)?;
        let mut kinds = named.unwrap_or(fallback);
        let mut depth = self.levels(self.datasets.is_empty());
        kinds.snapshots |= named.is_none() && root.contains('@');
        kinds.bookmarks |= named.is_none() && root.contains('#');
        // `-t snapshot DATASET` means its snapshots.
        let points = |k: ListedKinds| (k.snapshots || k.bookmarks) && !k.filesystems && !k.volumes;
        let of_one = depth == Some(0)
            && self.depth.is_none()
            && !root.contains(['@', '#'])
            && named.is_some_and(points);
        if of_one {
            depth = Some(1);
        }
        let question = Question::Datasets {
            root: root.clone(),
            depth,
            filesystems: kinds.filesystems,
            volumes: kinds.volumes,
            snapshots: kinds.snapshots,
            bookmarks: kinds.bookmarks,
            received,
            properties: properties.map(<[String]>::to_vec),
        };
        let answer = question.ask(session).map_err(|stop| match stop {
            Stop::Failed(e) if root.contains('#') && is_missing(&e) => {
                let text = format!("cannot open '{root}': no such pool or dataset");
                CommandError::new(text).into()
            }
            stop => stop,
        });
        let Answer::Datasets(mut rows) = answer? else {
            return Ok(Vec::new());
        };
        // A named dataset of another kind than requested.
        if rows.is_empty() && named.is_some() && !of_one && depth == Some(0) {
            let what = super::WRONG_KIND;
            return Err(CommandError::new(format!("cannot open '{root}': {what}")).into());
        }
        if of_one {
            rows.retain(|r| r.name.split(['@', '#']).next() == Some(root.as_str()));
        }
        Ok(rows)
    }

    /// Asks about everything in scope. `fallback` is used if no kind is named.
    pub fn ask(
        &self,
        session: &mut Session,
        fallback: ListedKinds,
        properties: Option<&[String]>,
        received: bool,
    ) -> Outcome<Vec<DatasetRow>> {
        let roots = if self.datasets.is_empty() {
            session.pool_names()?
        } else {
            self.datasets.clone()
        };
        let mut rows = Vec::new();
        let mut failed = None;
        for root in roots {
            match self.ask_one(session, root, fallback, properties, received) {
                Ok(more) => rows.extend(more),
                Err(Stop::Failed(e)) => {
                    crate::say_error(&mut session.ui, &e);
                    failed = Some(e.code);
                }
                Err(stop) => return Err(stop),
            }
        }
        if let (Some(code), true) = (failed, rows.is_empty()) {
            return Err(CommandError::silent(code).into());
        }
        // The others are printed, and the command fails all the same.
        session.worst = session.worst.max(failed.unwrap_or(0));
        rows.sort_by(by_name);
        rows.dedup_by(|a, b| a.name == b.name);
        Ok(rows)
    }
}

/// Byte-wise by dataset. A dataset comes before its snapshots (by age), and bookmarks come last.
fn by_name(a: &DatasetRow, b: &DatasetRow) -> Ordering {
    let key = |r: &DatasetRow| match &*r.kind {
        "snapshot" => (1, r.create_txg),
        "bookmark" => (2, r.create_txg),
        _ => (0, 0),
    };
    let dataset = |r: &'_ DatasetRow| r.name.find(['@', '#']).unwrap_or(r.name.len());
    let (left, right) = (&a.name[..dataset(a)], &b.name[..dataset(b)]);
    left.cmp(right)
        .then_with(|| key(a).cmp(&key(b)))
        .then_with(|| a.name.cmp(&b.name))
}

/// Canonical name of a dataset property.
pub fn canonical(name: &str) -> Outcome<String> {
    if let Some(known) = dataset_property(name) {
        return Ok(known.name.to_owned());
    }
    if is_user_property(name) || name.starts_with("written@") || name.starts_with("written#") {
        return Ok(name.to_owned());
    }
    if let Some(name) = crate::ids::with_id(name)? {
        return Ok(name);
    }
    Err(CommandError::usage(format!("bad property list: invalid property '{name}'")).into())
}

impl List {
    /// Refuses names of snapshots and bookmarks if that kind is not requested.
    fn check_names(&self) -> Outcome {
        let named = self.scope.kinds()?;
        let bookmarks = named.is_some_and(|k| k.bookmarks);
        let snapshots = named.is_none_or(|k| k.snapshots);
        for name in &self.scope.datasets {
            let unexpected = match () {
                () if name.contains('#') && !bookmarks => "bookmark delimiter '#'",
                () if name.contains('@') && !snapshots => "snapshot delimiter '@'",
                () => continue,
            };
            let text = format!("cannot open '{name}': {unexpected} is not expected here");
            return Err(CommandError::new(text).into());
        }
        Ok(())
    }

    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let output = match self.output.as_str() {
            "space" => SPACE.to_owned(),
            "all" => all_columns(),
            other => other.to_owned(),
        };
        let columns = properties(&output, canonical)?;
        let mut keys = Vec::new();
        for (names, descending) in [(&self.ascending, false), (&self.descending, true)] {
            for name in names {
                let key = canonical(name)
                    .map_err(|_| CommandError::usage(format!("invalid property '{name}'")))?;
                keys.push((key, descending));
            }
        }
        self.check_names()?;
        let mut wanted = columns.clone();
        wanted.extend(
            keys.iter()
                .map(|(n, _)| n.clone())
                .filter(|n| !columns.contains(n)),
        );
        let mut rows = self
            .scope
            .ask(session, ListedKinds::HEADS, Some(&wanted), false)?;
        rows.sort_by(|a, b| {
            keys.iter().fold(Ordering::Equal, |o, (n, down)| {
                o.then_with(|| compare(a, b, n, *down))
            })
        });
        let exact = self.parsable || self.json_int;
        if self.json {
            if rows.is_empty() {
                session.ui.say("no datasets available");
            }
            let row =
                |r: &DatasetRow| (r.name.clone(), json_row(r, &columns, exact, self.json_int));
            json::stream("zfs list", "datasets", rows.iter().map(row), &mut |some| {
                session.ui.print(some)
            })?;
            return Ok(());
        }
        if rows.is_empty() {
            if !self.scripted {
                session.ui.say("no datasets available");
            }
            return Ok(());
        }
        let head: Vec<Column> = columns.iter().map(|n| column(n, exact)).collect();
        let cell = |row, i: usize| match columns.get(i) {
            Some(name) => value_at(row, i, name, exact),
            None => "".into(),
        };
        let style = session.ui.style(self.scripted);
        stream(&head, rows.iter(), style, cell, &mut |some| {
            session.ui.print(some)
        })?;
        Ok(())
    }
}

/// A cell for people.
fn value_at<'a>(row: &'a DatasetRow, i: usize, name: &str, exact: bool) -> Cow<'a, str> {
    if name == "name" {
        return row.name.as_str().into();
    }
    match row.cell_at(i, name).and_then(|c| c.value.as_deref()) {
        Some(text) => dataset_value(name, text, exact),
        None => "-".into(),
    }
}

/// `-o all`: every property that `get all` may show, the name first.
fn all_columns() -> String {
    let names = zuse::property_table::DATASET_PROPERTIES
        .iter()
        .filter(|p| p.in_all)
        .map(|p| p.name);
    std::iter::once("name")
        .chain(names)
        .collect::<Vec<_>>()
        .join(",")
}

fn column(name: &str, parsable: bool) -> Column {
    let known = dataset_property(name);
    let right = is_number(known)
        && known.is_some_and(|p| p.kind == PropertyKind::Number)
        && name != "creation";
    let header = known.map_or(name, |p| p.column());
    match known {
        _ if right => Column::new(header, Side::Right).min_width(5),
        _ if name == "creation" && !parsable => Column {
            exact: true,
            ..Column::new(header, Side::Left).min_width(date::MINUTES)
        },
        Some(p) if p.kind == PropertyKind::Index => {
            let longest = p.words.iter().map(|(w, _)| w.len()).max().unwrap_or(0);
            Column::new(header, Side::Left).min_width(longest)
        }
        _ => Column::new(header, Side::Left),
    }
}

/// Rows without the property come last either way.
fn compare(a: &DatasetRow, b: &DatasetRow, name: &str, down: bool) -> Ordering {
    let text = |r: &DatasetRow| {
        if name == "name" {
            Some(r.name.clone())
        } else {
            r.cell(name)
                .and_then(|c| c.value.as_deref().map(str::to_owned))
        }
    };
    match (text(a), text(b)) {
        (None, None) => Ordering::Equal,
        (None, _) => Ordering::Greater,
        (_, None) => Ordering::Less,
        (Some(a), Some(b)) => {
            let order = match (a.parse::<f64>(), b.parse::<f64>()) {
                (Ok(a), Ok(b)) => a.total_cmp(&b),
                _ => a.cmp(&b),
            };
            if down { order.reverse() } else { order }
        }
    }
}

/// A dataset as JSON.
pub fn json_row(row: &DatasetRow, columns: &[String], exact: bool, as_int: bool) -> Json {
    let text = |t: &str| Json::Text(t.to_owned());
    let mut entries = vec![
        ("name".to_owned(), text(&row.name)),
        ("type".into(), Json::Text(row.kind.to_uppercase())),
        ("pool".into(), text(pool_of(&row.name))),
        ("createtxg".into(), Json::number(row.create_txg, as_int)),
    ];
    if let Some((dataset, snapshot)) = row.name.split_once('@') {
        entries.push(("dataset".into(), text(dataset)));
        entries.push(("snapshot_name".into(), text(snapshot)));
    }
    let named = columns.iter().enumerate().filter(|(_, n)| *n != "name");
    let properties = named.map(|(i, name)| {
        let source = row.cell_at(i, name).map_or("-", |c| &c.source);
        (
            name.clone(),
            Json::object([
                ("value", Json::text(&value_at(row, i, name, exact), as_int)),
                ("source", source_json(source)),
            ]),
        )
    });
    entries.push((
        "properties".into(),
        Json::object(properties.collect::<Vec<_>>()),
    ));
    Json::Object(entries)
}
