//! The JSON of `zpool status -j` for a pool: keys, their order and which are left out (chapter 06
//! §1.6 of the format notes).

use zuse::dedup::{Figures, Histogram};

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
            // With the line breaks of the printed text.
            let lines = |words: &str| Json::Text(format!("{words}\n"));
            entries.push(("status".into(), lines(&reason.status)));
            entries.push(("action".into(), lines(&reason.action)));
            if let Some(id) = reason.message {
                entries.push(("msgid".into(), text(id)));
                entries.push((
                    "moreinfo".into(),
                    text(&format!("{}{id}", reason::MESSAGES)),
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
        let count = ("obj_count", self.count_json(dedup.entries));
        if dedup.entries == 0 {
            let none = Json::Object(Entries::new());
            let empty = [count, ("ddt_object_stats", none)];
            return ("dedup_stats".to_owned(), Json::object(empty));
        }
        let histogram = Histogram::parse(&dedup.histogram);
        let (stored, referenced) = histogram.total();
        let rows = histogram.rows().map(|(references, stored, referenced)| {
            let bucket = references.checked_ilog2().unwrap_or_default();
            (bucket.to_string(), self.blocks_json(stored, referenced))
        });
        let tables = [
            ("total", self.blocks_json(&stored, &referenced)),
            ("histogram", Json::Object(rows.collect())),
        ];
        let entries = [
            count,
            ("dspace", self.bytes_json(dedup.on_disk)),
            ("mspace", self.bytes_json(dedup.in_memory)),
            // No part of a table counts as cached here.
            ("cspace", self.count_json(0)),
            ("ddt_stats", Json::object(tables)),
        ];
        ("dedup_stats".to_owned(), Json::object(entries))
    }

    fn blocks_json(&self, stored: &Figures, referenced: &Figures) -> Json {
        Json::object([
            ("blocks", self.count_json(stored.blocks)),
            ("logical_size", self.bytes_json(stored.lsize)),
            ("physical_size", self.bytes_json(stored.psize)),
            ("deflated_size", self.bytes_json(stored.dsize)),
            ("ref_blocks", self.count_json(referenced.blocks)),
            ("ref_lsize", self.bytes_json(referenced.lsize)),
            ("ref_psize", self.bytes_json(referenced.psize)),
            ("ref_dsize", self.bytes_json(referenced.dsize)),
        ])
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
            state_number: None,
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

    /// All vdevs in one object, each after those below it, which it contains too. Vdevs that are
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

    /// Those below a vdev, then the vdev.
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

    /// A vdev without those below it. Sizes are left out if there are none.
    fn vdev_head(&self, vdev: &VdevRow, parent: Option<&str>) -> Entries {
        let mut entries = vec![
            ("name".to_owned(), text(&vdev.name)),
            ("vdev_type".into(), text(&vdev.kind)),
            ("guid".into(), Json::number(vdev.guid, self.json_int)),
        ];
        // A distributed spare lies on no device: its name stands for it.
        let is_distributed = vdev.kind == "dspare";
        let own_name = Some(&vdev.name).filter(|_| is_distributed);
        if let Some(path) = vdev.path.as_ref().or(own_name) {
            entries.push(("path".into(), text(path)));
        }
        let class: &str = if is_distributed { "spare" } else { &vdev.class };
        entries.push(("class".into(), text(class)));
        entries.push(("state".into(), text(vdev.json_state())));
        if let Some(parent) = parent {
            entries.push(("parent".into(), text(parent)));
        }
        // An idle spare is not opened, so nothing more is known of it.
        if vdev.class != "spare" {
            let (total, allocated) = vdev.space.unwrap_or_default();
            let figures = [
                ("alloc_space", allocated),
                ("total_space", total),
                ("def_space", vdev.deflated),
                ("rep_dev_size", vdev.min_size),
                ("self_healed", vdev.repaired),
                ("phys_space", vdev.psize),
            ];
            let known = figures.into_iter().filter(|(_, n)| *n > 0);
            entries.extend(known.map(|(k, n)| (k.to_owned(), self.bytes_json(n))));
            let names = ["read_errors", "write_errors", "checksum_errors"];
            let counts = names.into_iter().zip(vdev.errors);
            entries.extend(counts.map(|(k, n)| (k.to_owned(), self.count_json(n))));
            if vdev.path.is_some() || is_distributed {
                entries.push(("slow_ios".into(), self.count_json(vdev.slow)));
            }
        }
        entries.extend(self.reason_json(vdev));
        if self.direct {
            entries.push(("dio_verify_errors".into(), self.count_json(0)));
        }
        entries.extend(self.vdev_work_json(vdev));
        entries
    }

    /// Where a missing device was, or why a vdev is not well.
    fn reason_json(&self, vdev: &VdevRow) -> Entries {
        if vdev.is_lost {
            let was = text(vdev.path.as_deref().unwrap_or_default());
            let missing = ("not_present".into(), self.count_json(1));
            return vec![missing, ("was".into(), was)];
        }
        let aux = vdev.json_aux().map(|why| ("aux".into(), text(why)));
        aux.into_iter().collect()
    }

    /// The progress of initialize and trim on a device, if requested.
    fn vdev_work_json(&self, vdev: &VdevRow) -> Entries {
        let mut entries = Entries::new();
        // A device that is not in use has no record of such work.
        let nothing = [WorkRow::default(); 2];
        let aside = matches!(vdev.class.as_str(), "spare" | "l2cache").then_some(&nothing);
        let Some([initialize, trim]) = vdev.work.as_ref().or(aside) else {
            return entries;
        };
        if self.initialized {
            entries.extend(self.work_json(&INITIALIZE, initialize));
        }
        if self.trimmed {
            let unknown = vdev.was_never_opened();
            if !unknown {
                entries.extend(self.work_json(&TRIM, trim));
            }
            if trim.state == 0 {
                let value = Json::number(u64::from(unknown), self.json_int);
                entries.push(("trim_notsup".into(), value));
            }
        }
        entries
    }

    /// The progress of work on a device; only the state if none was done.
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

/// The vdevs that are not of ordinary data, by class.
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

/// The JSON names of work on a device.
struct WorkWords {
    /// State, bytes that are done, all bytes, time, errors.
    names: [&'static str; 5],
    /// The state of a device without such work.
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
