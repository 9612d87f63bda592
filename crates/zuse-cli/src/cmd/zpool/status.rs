//! `zpool status`

use std::fmt::Write as _;

use clap::Args;

use super::list::{ask, head_json, json_key};
use crate::args::Devices;
use crate::error::Outcome;
use crate::json::{Json, envelope};
use crate::nicenum::{nicebytes, nicenum};
use crate::query::{PoolRow, VdevRow};
use crate::session::Session;

/// Show how well pools are
#[derive(Args, Debug)]
pub struct Status {
    /// Only pools that are not well
    #[arg(short = 'x')]
    unhealthy: bool,
    /// Exact numbers
    #[arg(short)]
    parsable: bool,
    /// Everything that is known of errors
    #[arg(short)]
    verbose: bool,
    /// Full paths; they always are
    #[arg(short = 'P')]
    paths: bool,
    /// As JSON
    #[arg(short, long)]
    json: bool,
    /// With --json: numbers as numbers, exact
    #[arg(long, requires = "json")]
    json_int: bool,
    /// With --json: pools by their guids
    #[arg(long, requires = "json")]
    json_pool_key_guid: bool,
    /// With --json: all vdevs at the first level too, each with its parent
    #[arg(long, requires = "json")]
    json_flat_vdevs: bool,
    #[command(flatten)]
    devices: Devices,
    /// The pools; all by default
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl Status {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let mut rows = ask(session, &self.pools, Some(&[]))?;
        let exact = self.parsable || self.json_int;
        if self.json {
            let pools: Vec<_> = rows
                .iter()
                .map(|r| {
                    let pool = pool_json(r, exact, self.json_int, self.json_flat_vdevs);
                    (json_key(r, self.json_pool_key_guid), pool)
                })
                .collect();
            let payload = vec![("pools".to_owned(), Json::Object(pools))];
            session
                .ui
                .line(envelope("zpool status", payload).to_string())?;
            return Ok(());
        }
        if rows.is_empty() {
            session.ui.say("no pools available");
            return Ok(());
        }
        if self.unhealthy {
            let well = rows.len();
            rows.retain(|r| !is_well(r));
            if rows.is_empty() {
                let text = match (self.pools.as_slice(), well) {
                    ([one], _) => format!("pool '{one}' is healthy"),
                    _ => "all pools are healthy".into(),
                };
                session.ui.line(text)?;
                return Ok(());
            }
        }
        let texts: Vec<String> = rows.iter().map(|r| text(r, self.parsable)).collect();
        session.ui.print(texts.join("\n"))?;
        Ok(())
    }
}

fn is_well(row: &PoolRow) -> bool {
    row.state == "ONLINE" && row.warnings.is_empty() && !any(&row.vdevs, &|v| v.errors != [0; 3])
}

fn any(vdev: &VdevRow, what: &dyn Fn(&VdevRow) -> bool) -> bool {
    what(vdev) || vdev.children.iter().any(|c| any(c, what))
}

/// What is wrong, and what to do: the most important reason only.
fn reason(row: &PoolRow) -> Option<(String, String)> {
    let some = |status: &str, action: &str| Some((status.to_owned(), action.to_owned()));
    if let Some(why) = &row.suspended {
        let action = if row.lost {
            format!(
                "Make sure the affected devices are connected (and the host's disk is\n\tnot full), then run 'zpool export -f {0}' and mount or import '{0}' again.",
                row.name
            )
        } else {
            "Make sure the affected devices are connected (and the host's disk is\n\tnot full), then run 'zpool clear'.".into()
        };
        return Some((
            format!("One or more devices failed, and I/O is suspended:\n\t{why}"),
            action,
        ));
    }
    if any(&row.vdevs, &|v| {
        v.is_leaf() && matches!(v.state.as_str(), "UNAVAIL" | "REMOVED")
    }) {
        let usable = row.state == "ONLINE" || row.state == "DEGRADED";
        return if usable {
            some(
                "One or more devices could not be opened.  Sufficient replicas exist for\n\tthe pool to continue functioning in a degraded state.",
                "Attach the missing device and run 'zpool clear'.",
            )
        } else {
            some(
                "One or more devices could not be opened.  There are insufficient\n\treplicas for the pool to continue functioning.",
                "Attach the missing device and run 'zpool clear'.",
            )
        };
    }
    if any(&row.vdevs, &|v| v.errors != [0; 3]) {
        return some(
            "One or more devices has experienced an unrecoverable error.  An\n\tattempt was made to correct the error.  Applications are unaffected.",
            "Determine if the device needs to be replaced, and clear the errors\n\tusing 'zpool clear'.",
        );
    }
    if any(&row.vdevs, &|v| v.is_leaf() && v.state == "OFFLINE") {
        return some(
            "One or more devices has been taken offline by the administrator.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
            "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
        );
    }
    if row.disabled_features > 0 {
        return some(
            "Some supported and requested features are not enabled on the pool.\n\tThe pool can still be used, but some features are unavailable.",
            "Enable features with 'zpool set feature@NAME=enabled'. Once this is done,\n\tthe pool may no longer be accessible by software that does not support\n\tthe features.",
        );
    }
    None
}

fn text(row: &PoolRow, exact: bool) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "  pool: {}\n state: {}", row.name, row.state);
    if let Some((status, action)) = reason(row) {
        let _ = writeln!(out, "status: {status}\naction: {action}");
    }
    let aux = row.cache.iter().chain(&row.spares).map(|v| width(v, 1));
    let width = aux.fold(width(&row.vdevs, 0).max(4), usize::max);
    let _ = writeln!(
        out,
        "config:\n\n\t{:<width$}  {:<8} {:>5} {:>5} {:>5}",
        "NAME", "STATE", "READ", "WRITE", "CKSUM"
    );
    let mut root = row.vdevs.clone();
    root.state.clone_from(&row.state);
    root.children.retain(|c| c.class == "normal");
    vdev_lines(&root, 0, width, exact, &mut out);
    for (class, title) in [("dedup", "dedup"), ("special", "special"), ("log", "logs")] {
        let vdevs = row.vdevs.children.iter().filter(|c| c.class == class);
        for (i, vdev) in vdevs.enumerate() {
            if i == 0 {
                let _ = writeln!(out, "\t{title}\t");
            }
            vdev_lines(vdev, 1, width, exact, &mut out);
        }
    }
    if !row.cache.is_empty() {
        out.push_str("\tcache\n");
        row.cache
            .iter()
            .for_each(|c| vdev_lines(c, 1, width, exact, &mut out));
    }
    if !row.spares.is_empty() {
        out.push_str("\tspares\n");
        for spare in &row.spares {
            let note = if spare.note.is_empty() {
                String::new()
            } else {
                format!("  {}", spare.note)
            };
            let name = format!("  {}", spare.name);
            let _ = writeln!(out, "\t{name:<width$}  {:<8}{note}", spare.state);
        }
    }
    out.push('\n');
    match row.warnings.first() {
        None => out.push_str("errors: No known data errors\n"),
        Some(first) => {
            let _ = writeln!(out, "errors: {first}");
        }
    }
    out
}

/// Width of the longest indented name.
fn width(vdev: &VdevRow, level: usize) -> usize {
    let own = 2 * level + vdev.name.chars().count();
    vdev.children
        .iter()
        .map(|c| width(c, level + 1))
        .fold(own, usize::max)
}

fn vdev_lines(vdev: &VdevRow, level: usize, width: usize, exact: bool, out: &mut String) {
    let name = format!("{}{}", "  ".repeat(level), vdev.name);
    let count = |n: u64| if exact { n.to_string() } else { nicenum(n) };
    let [reads, writes, checksums] = vdev.errors.map(count);
    let note = if vdev.note.is_empty() {
        String::new()
    } else {
        format!("  {}", vdev.note)
    };
    let _ = writeln!(
        out,
        "\t{name:<width$}  {:<8} {reads:>5} {writes:>5} {checksums:>5}{note}",
        vdev.state
    );
    for child in &vdev.children {
        vdev_lines(child, level + 1, width, exact, out);
    }
}

fn pool_json(row: &PoolRow, exact: bool, as_int: bool, flat: bool) -> Json {
    let mut entries: Vec<_> = head_json(row, as_int)
        .into_iter()
        .filter(|(k, _)| k != "type")
        .collect();
    if let Some((status, action)) = reason(row) {
        entries.push(("status".into(), Json::Text(status.replace("\n\t", " "))));
        entries.push(("action".into(), Json::Text(action.replace("\n\t", " "))));
    }
    let mut root = row.vdevs.clone();
    root.kind = "root".into();
    root.state.clone_from(&row.state);
    let tree = vdev_json(&root, Some(row), exact, as_int);
    let mut vdevs = vec![(row.name.clone(), tree)];
    if flat {
        flatten(&root, &row.name, &mut |vdev, parent| {
            let mut json = vdev_json(vdev, None, exact, as_int);
            if let Json::Object(entries) = &mut json {
                entries.insert(
                    3.min(entries.len()),
                    ("parent".into(), Json::Text(parent.to_owned())),
                );
            }
            vdevs.push((vdev.name.clone(), json));
        });
    }
    entries.push(("vdevs".into(), Json::Object(vdevs)));
    entries.push((
        "error_count".into(),
        Json::number(row.warnings.len() as u64, as_int),
    ));
    Json::Object(entries)
}

/// Calls `f` with all vdevs below one and the names of their parents.
fn flatten(vdev: &VdevRow, name: &str, f: &mut dyn FnMut(&VdevRow, &str)) {
    for child in &vdev.children {
        f(child, name);
        flatten(child, &child.name, f);
    }
}

fn vdev_json(vdev: &VdevRow, pool: Option<&PoolRow>, exact: bool, as_int: bool) -> Json {
    let text = |t: &str| Json::Text(t.to_owned());
    let size = |n: u64| {
        if exact {
            Json::number(n, as_int)
        } else {
            Json::Text(nicebytes(n))
        }
    };
    let count = |n: u64| {
        if exact {
            Json::number(n, as_int)
        } else {
            Json::Text(nicenum(n))
        }
    };
    let mut entries = vec![
        ("name".to_owned(), text(&vdev.name)),
        ("vdev_type".into(), text(&vdev.kind)),
        ("guid".into(), Json::number(vdev.guid, as_int)),
    ];
    if vdev.is_leaf() {
        entries.push(("path".into(), text(&vdev.name)));
    }
    entries.push(("class".into(), text(&vdev.class)));
    entries.push(("state".into(), text(&vdev.state)));
    if let Some(pool) = pool {
        entries.push(("alloc_space".into(), size(pool.allocated)));
        entries.push(("total_space".into(), size(pool.size)));
        entries.push(("def_space".into(), size(pool.size)));
    }
    if vdev.asize > 0 {
        entries.push(("rep_dev_size".into(), size(vdev.asize)));
    }
    for (name, n) in ["read_errors", "write_errors", "checksum_errors"]
        .iter()
        .zip(vdev.errors)
    {
        entries.push(((*name).to_owned(), count(n)));
    }
    if !vdev.children.is_empty() {
        let children: Vec<_> = vdev
            .children
            .iter()
            .map(|c| (c.name.clone(), vdev_json(c, None, exact, as_int)))
            .collect();
        entries.push(("vdevs".into(), Json::Object(children)));
    }
    Json::Object(entries)
}
