//! What `zpool status -j` says of a pool: keys, their order and which are left out (chapter 06 §1.6
//! of the format notes).

use super::super::list::head_json;
use super::{Status, activity, reason};
use crate::date;
use crate::json::Json;
use crate::nicenum::{nicebytes, nicenum};
use crate::query::{DedupRow, PoolRow, VdevRow, WorkRow};

/// Entries of an object, in their order.
type Entries = Vec<(String, Json)>;

fn text(text: &str) -> Json {
    Json::Text(text.to_owned())
}

impl Status {
    pub(super) fn pool_json(&self, row: &PoolRow) -> Json {
        let as_int = self.json_int;
        let mut entries: Vec<_> = head_json(row, as_int)
            .into_iter()
            .filter(|(k, _)| k != "type")
            .collect();
        if let Some(reason) = reason::of(row) {
            let plain = |words: &str| Json::Text(words.replace("\n\t", " "));
            entries.push(("status".into(), plain(&reason.status)));
            entries.push(("action".into(), plain(&reason.action)));
            if let Some(id) = reason.message {
                entries.push(("msgid".into(), text(id)));
                entries.push((
                    "moreinfo".into(),
                    plain(&format!("{}{id}", reason::MESSAGES)),
                ));
            }
        }
        let size = |n: u64| self.bytes_json(n);
        let count = |n: u64| Json::number(n, as_int);
        entries.extend(activity::json(row, &size, &count, &|n| self.time_json(n)));
        if self.json_flat_vdevs {
            entries.push(("vdevs".into(), self.flat_json(row)));
        } else {
            let root = (row.name.clone(), self.root_json(row));
            entries.push(("vdevs".into(), Json::object([root])));
            entries.extend(self.classes_json(row));
        }
        entries.extend(row.dedup.as_ref().map(|d| self.dedup_json(d)));
        entries.push((
            "error_count".into(),
            Json::number(row.lost_blocks.max(row.warnings.len() as u64), as_int),
        ));
        if !row.damaged.is_empty() {
            let names = row.damaged.iter().map(|d| Json::Text(d.name.clone()));
            entries.push(("errlist".into(), Json::Array(names.collect())));
        }
        Json::Object(entries)
    }

    fn dedup_json(&self, dedup: &DedupRow) -> (String, Json) {
        if dedup.entries == 0 {
            let none = Json::object(Vec::<(&str, Json)>::new());
            let count = Json::number(0, self.json_int);
            let empty = [("obj_count", count), ("ddt_object_stats", none)];
            return ("dedup_stats".to_owned(), Json::object(empty));
        }
        let figures = [
            ("entries", dedup.entries),
            ("dspace", dedup.on_disk),
            ("mspace", dedup.in_memory),
        ];
        let figures = figures.map(|(k, n)| (k, Json::number(n, self.json_int)));
        ("dedup_stats".to_owned(), Json::object(figures))
    }

    /// A number of bytes, for people or exact.
    fn bytes_json(&self, n: u64) -> Json {
        match self.parsable || self.json_int {
            true => Json::number(n, self.json_int),
            false => Json::Text(nicebytes(n)),
        }
    }

    /// A count, for people or exact.
    fn count_json(&self, n: u64) -> Json {
        match self.parsable || self.json_int {
            true => Json::number(n, self.json_int),
            false => Json::Text(nicenum(n)),
        }
    }

    /// A time: a date, or the seconds where numbers are wanted.
    fn time_json(&self, time: u64) -> Json {
        match time {
            time if self.parsable || self.json_int => Json::number(time, self.json_int),
            0 => text("-"),
            time => Json::Text(date::with_zone(time)),
        }
    }

    /// The pool as a vdev, with the vdevs of ordinary data below it.
    fn root_json(&self, row: &PoolRow) -> Json {
        let mut entries = self.root_head(row);
        let tops = row.vdevs.children.iter().filter(|c| c.class == "normal");
        let mut tops = tops.peekable();
        if tops.peek().is_some() {
            entries.push(("vdevs".into(), self.group_json(tops)));
        }
        Json::Object(entries)
    }

    fn root_head(&self, row: &PoolRow) -> Entries {
        let root = VdevRow {
            children: Vec::new(),
            kind: "root".into(),
            state: row.state.clone(),
            class: "normal".into(),
            space: Some((row.size, row.allocated)),
            ..row.vdevs.clone()
        };
        self.vdev_head(&root, None)
    }

    /// The vdevs that are not of ordinary data.
    fn classes_json(&self, row: &PoolRow) -> Entries {
        classes(row)
            .into_iter()
            .map(|(title, vdevs)| (title.to_owned(), self.group_json(vdevs.into_iter())))
            .collect()
    }

    fn group_json<'v>(&self, vdevs: impl Iterator<Item = &'v VdevRow>) -> Json {
        let all = vdevs.map(|v| (v.name.clone(), self.vdev_json(v)));
        Json::Object(all.collect())
    }

    fn vdev_json(&self, vdev: &VdevRow) -> Json {
        let mut entries = self.vdev_head(vdev, None);
        if !vdev.children.is_empty() {
            entries.push(("vdevs".into(), self.group_json(vdev.children.iter())));
        }
        Json::Object(entries)
    }

    /// All vdevs beside each other, each after those below it, which it carries too. Vdevs that are
    /// not of ordinary data come last, and have no parent.
    fn flat_json(&self, row: &PoolRow) -> Json {
        let mut all = Entries::new();
        let tops = row.vdevs.children.iter().filter(|c| c.class == "normal");
        for top in tops {
            self.flatten(top, Some(&row.name), &mut all);
        }
        let mut root = self.root_head(row);
        root.push(("vdevs".into(), Json::Object(all.clone())));
        all.push((row.name.clone(), Json::Object(root)));
        for (_, vdevs) in classes(row) {
            for vdev in vdevs {
                self.flatten(vdev, None, &mut all);
            }
        }
        Json::Object(all)
    }

    /// Those below a vdev, and the vdev.
    fn flatten(&self, vdev: &VdevRow, parent: Option<&str>, out: &mut Entries) {
        let mut below = Entries::new();
        for child in &vdev.children {
            self.flatten(child, Some(&vdev.name), &mut below);
        }
        let mut entries = self.vdev_head(vdev, parent);
        if !below.is_empty() {
            entries.push(("vdevs".into(), Json::Object(below.clone())));
        }
        out.extend(below);
        out.push((vdev.name.clone(), Json::Object(entries)));
    }

    /// A vdev without those below it. Bytes are left out where there are none.
    fn vdev_head(&self, vdev: &VdevRow, parent: Option<&str>) -> Entries {
        let mut entries = vec![
            ("name".to_owned(), text(&vdev.name)),
            ("vdev_type".into(), text(&vdev.kind)),
            ("guid".into(), Json::number(vdev.guid, self.json_int)),
        ];
        // A distributed spare lies on no device: its name stands for it.
        let own_name = Some(&vdev.name).filter(|_| vdev.kind == "dspare");
        if let Some(path) = vdev.path.as_ref().or(own_name) {
            entries.push(("path".into(), text(path)));
        }
        entries.push(("class".into(), text(&vdev.class)));
        entries.push(("state".into(), text(&vdev.state)));
        if let Some(parent) = parent {
            entries.push(("parent".into(), text(parent)));
        }
        // A spare that waits is not opened: nothing more is known of it.
        if vdev.class != "spare" {
            let (total, allocated) = vdev.space.unwrap_or_default();
            let figures = [
                ("alloc_space", allocated),
                ("total_space", total),
                ("def_space", vdev.deflated),
                ("rep_dev_size", vdev.least),
                ("self_healed", vdev.repaired),
                ("phys_space", vdev.psize),
            ];
            let known = figures.into_iter().filter(|(_, n)| *n > 0);
            entries.extend(known.map(|(k, n)| (k.to_owned(), self.bytes_json(n))));
            let names = ["read_errors", "write_errors", "checksum_errors"];
            let counts = names.into_iter().zip(vdev.errors);
            entries.extend(counts.map(|(k, n)| (k.to_owned(), self.count_json(n))));
            if vdev.path.is_some() {
                entries.push(("slow_ios".into(), self.count_json(vdev.slow)));
            }
        }
        if self.direct {
            entries.push(("dio_verify_errors".into(), self.count_json(0)));
        }
        entries.extend(self.sweeps_json(vdev));
        entries
    }

    /// How far a device is initialized and trimmed, where that is asked for.
    fn sweeps_json(&self, vdev: &VdevRow) -> Entries {
        let mut entries = Entries::new();
        // Of a device that is not in use nothing is noted.
        let nothing = [WorkRow::default(); 2];
        let aside = matches!(vdev.class.as_str(), "spare" | "l2cache").then_some(&nothing);
        let Some([initialize, trim]) = vdev.work.as_ref().or(aside) else {
            return entries;
        };
        if self.initialized {
            entries.extend(self.work_json(&INITIALIZE, initialize));
        }
        if self.trimmed {
            entries.extend(self.work_json(&TRIM, trim));
            if trim.state == 0 {
                // What is not there cannot say whether it could be trimmed.
                let unknown = u64::from(vdev.psize == 0);
                entries.push(("trim_notsup".into(), Json::number(unknown, self.json_int)));
            }
        }
        entries
    }

    /// How far work on a device is; where none was done only that is said.
    fn work_json(&self, words: &WorkWords, work: &WorkRow) -> Entries {
        let state = match work.state {
            1 => "ACTIVE",
            2 => "CANCELED",
            3 => "SUSPENDED",
            4 => "COMPLETE",
            _ => return vec![(words.names[0].to_owned(), text(words.none))],
        };
        let [done, all] = work.bytes.map(|n| self.bytes_json(n));
        let since = self.time_json(work.since);
        let values = [text(state), done, all, since, self.count_json(0)];
        let names = words.names.iter();
        names.map(|n| (*n).to_owned()).zip(values).collect()
    }
}

/// The vdevs that are not of ordinary data, by what they are for.
fn classes(row: &PoolRow) -> Vec<(&'static str, Vec<&VdevRow>)> {
    let of_class = |class: &str| {
        let tops = row.vdevs.children.iter();
        tops.filter(|c| c.class == class).collect::<Vec<_>>()
    };
    let mut all = vec![
        ("dedup", of_class("dedup")),
        ("special", of_class("special")),
        ("logs", of_class("log")),
        ("l2cache", row.cache.iter().collect()),
        ("spares", row.spares.iter().collect()),
    ];
    all.retain(|(_, vdevs)| !vdevs.is_empty());
    all
}

/// How work on a device is called in JSON.
struct WorkWords {
    /// State, bytes that are done, all bytes, time, errors.
    names: [&'static str; 5],
    /// The state of a device on which none was done.
    none: &'static str,
}

const INITIALIZE: WorkWords = WorkWords {
    names: [
        "init_state",
        "initialized",
        "to_initialize",
        "init_time",
        "init_errors",
    ],
    none: "UNINITIALIZED",
};

const TRIM: WorkWords = WorkWords {
    names: [
        "trim_state",
        "trimmed",
        "to_trim",
        "trim_time",
        "trim_errors",
    ],
    none: "UNTRIMMED",
};
