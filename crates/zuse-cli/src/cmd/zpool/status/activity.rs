//! Work on a whole pool in `zpool status`: the lines before the table, and their JSON. Chapter 06
//! §1.6 and §2.3 of the format notes.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::date;
use crate::json::Json;
use crate::nicenum::{nicebytes, nicenum};
use crate::query::{PoolRow, ScanRow};

/// States of such work: 1 running, 2 finished, 3 canceled.
const GOES_ON: u64 = 1;
const FINISHED: u64 = 2;
const CANCELED: u64 = 3;
/// Bytes a second below which no remaining time is printed.
const SLOW: u64 = 1;

/// `00:01:02`, preceded by days if there are any.
fn duration(from: u64, to: u64) -> String {
    let seconds = to.saturating_sub(from);
    let days = match seconds / 86400 {
        0 => String::new(),
        n => format!("{n} days "),
    };
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{days}{h:02}:{m:02}:{s:02}")
}

fn percent(done: u64, all: u64) -> f64 {
    match all {
        0 => 100.0,
        all => done as f64 * 100.0 / all as f64,
    }
}

/// The lines of all work.
pub fn text(row: &PoolRow) -> String {
    let name = |guid: u64, or: String| {
        let vdev = row.vdevs.children.iter().find(|v| v.guid == guid);
        vdev.map_or(or, |v| v.name.clone())
    };
    let activity = &row.activity;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    let scan = activity.scan.as_ref();
    let mut out = scan.map(|scan| scan_text(scan, now)).unwrap_or_default();
    for rebuild in &activity.rebuilds {
        out += &rebuild_text(rebuild, &name(rebuild[0], rebuild[0].to_string()), now);
    }
    if let Some(errors) = &activity.error_scrub {
        out += &error_scrub_text(errors);
    }
    if let Some(removal) = &activity.removal {
        let [_, vdev, guid, ..] = *removal;
        out += &removal_text(removal, &name(guid, format!("vdev {vdev}")));
    }
    if let Some([since, bytes]) = activity.checkpoint {
        out += &checkpoint_text(since, bytes);
    }
    if let Some(expansion) = &activity.expansion {
        let guid = expansion[1];
        out += &expansion_text(expansion, &name(guid, guid.to_string()));
    }
    out
}

/// The scrub of the error log.
fn error_scrub_text(errors: &[u64; 6]) -> String {
    let [state, start, end, all, examined, paused] = *errors;
    match state {
        FINISHED => {
            let seconds = end.saturating_sub(start);
            let (d, h, m, s) = (
                seconds / 86400,
                seconds / 3600 % 24,
                seconds / 60 % 60,
                seconds % 60,
            );
            format!(
                " scrub: scrubbed {examined} error blocks in {d} days {h:02}:{m:02}:{s:02} on {}\n",
                date::ctime(end)
            )
        }
        CANCELED => format!(" scrub: error scrub canceled on {}\n", date::ctime(end)),
        _ => {
            let how = if paused != 0 { "paused" } else { "in progress" };
            format!(
                " scrub: error scrub {how}, begun on {}\n\tscrubbed {examined} of {all} error blocks\n",
                date::ctime(start)
            )
        }
    }
}

/// A sequential rebuild of another host: the last one of a vdev.
fn rebuild_text(rebuild: &[u64; 9], name: &str, now: u64) -> String {
    let [_, state, start, end, scanned, issued, rebuilt, all, errors] = *rebuild;
    match state {
        GOES_ON => {
            let elapsed = now.saturating_sub(start).max(1);
            let done = percent(issued.min(all), all);
            format!(
                "  scan: resilver ({name}) in progress since {}\n\t{} / {} scanned at {}/s, {} issued, {} total\n\t{} resilvered, {done:.2}% done\n",
                date::ctime(start),
                nicebytes(scanned),
                nicebytes(all),
                nicebytes(scanned / elapsed),
                nicebytes(issued),
                nicebytes(all),
                nicebytes(rebuilt),
            )
        }
        CANCELED => format!(
            "  scan: resilver ({name}) canceled on {}\n",
            date::ctime(end)
        ),
        _ => format!(
            "  scan: resilvered ({name}) {} in {} with {errors} errors on {}\n",
            nicebytes(rebuilt),
            duration(start, end),
            date::ctime(end)
        ),
    }
}

fn removal_text(removal: &[u64; 8], name: &str) -> String {
    let [state, vdev, _, start, end, to_copy, copied, mappings] = *removal;
    let mut out = match state {
        GOES_ON => format!(
            "remove: Evacuation of {name} in progress since {}\n\t{} copied out of {}, {:.2}% done\n",
            date::ctime(start),
            nicebytes(copied),
            nicebytes(to_copy),
            percent(copied, to_copy)
        ),
        FINISHED => {
            let minutes = end.saturating_sub(start) / 60;
            format!(
                "remove: Removal of vdev {vdev} copied {} in {}h{}m, completed on {}\n",
                nicebytes(copied),
                minutes / 60,
                minutes % 60,
                date::ctime(end)
            )
        }
        _ => format!(
            "remove: Removal of {name} canceled on {}\n",
            date::ctime(end)
        ),
    };
    if mappings > 0 {
        let bytes = nicenum(mappings);
        let _ = writeln!(out, "\t{bytes} memory used for removed device mappings");
    }
    out
}

fn checkpoint_text(since: u64, bytes: u64) -> String {
    let bytes = nicebytes(bytes);
    match since {
        0 => format!("checkpoint: discarding, {bytes} remaining.\n"),
        since => format!(
            "checkpoint: created {}, consumes {bytes}\n",
            date::ctime(since)
        ),
    }
}

fn expansion_text(expansion: &[u64; 5], name: &str) -> String {
    let [state, _, start, end, copied] = *expansion;
    let copied = nicebytes(copied);
    match state {
        GOES_ON => format!(
            "expand: expansion of {name} in progress since {}\n\t{copied} copied\n",
            date::ctime(start)
        ),
        FINISHED => format!(
            "expand: expanded {name} copied {copied} in {}, on {}\n",
            duration(start, end),
            date::ctime(end)
        ),
        _ => format!(
            "expand: expansion of {name} canceled on {}\n",
            date::ctime(end)
        ),
    }
}

fn scan_text(scan: &ScanRow, now: u64) -> String {
    let [start, end] = scan.times;
    let (verb, done) = match scan.function {
        1 => ("scrub", "scrub repaired"),
        2 => ("resilver", "resilvered"),
        _ => return String::new(),
    };
    let (repaired, errors) = (nicebytes(scan.bytes[3]), scan.errors);
    match scan.state {
        GOES_ON => {
            let since = match scan.paused {
                true => format!(
                    "{verb} paused since {}\n\t{verb} started on {}",
                    date::ctime(scan.pass[1]),
                    date::ctime(start)
                ),
                false => format!("{verb} in progress since {}", date::ctime(start)),
            };
            format!("  scan: {since}\n{}", progress_text(scan, now))
        }
        FINISHED => {
            let took = duration(start, end);
            format!(
                "  scan: {done} {repaired} in {took} with {errors} errors on {}\n",
                date::ctime(end)
            )
        }
        _ => format!("  scan: {verb} canceled on {}\n", date::ctime(end)),
    }
}

/// Progress and speed of a scan, and when it may be done.
fn progress_text(scan: &ScanRow, now: u64) -> String {
    let [to_examine, examined, skipped, processed] = scan.bytes;
    let [pass_start, _, spent_paused, pass_examined, pass_issued] = scan.pass;
    let elapsed = now.saturating_sub(pass_start).saturating_sub(spent_paused);
    let rate = |bytes: u64| match scan.paused {
        true => 0,
        false => bytes / elapsed.max(1),
    };
    let at = |rate: u64| match rate {
        0 => String::new(),
        rate => format!(" at {}/s", nicebytes(rate)),
    };
    let all = to_examine.saturating_sub(skipped);
    let (scanning, issuing) = (rate(pass_examined), rate(pass_issued));
    let done = percent(scan.issued.min(all), all);
    let word = if scan.function == 1 {
        "repaired"
    } else {
        "resilvered"
    };
    let left = match issuing {
        _ if scan.paused => String::new(),
        rate if rate >= SLOW => {
            let seconds = all.saturating_sub(scan.issued) / rate;
            format!(", {} to go", duration(0, seconds))
        }
        _ => ", no estimated completion time".to_owned(),
    };
    format!(
        "\t{} / {} scanned{}, {} / {} issued{}\n\t{} {word}, {done:.2}% done{left}\n",
        nicebytes(examined),
        nicebytes(to_examine),
        at(scanning),
        nicebytes(scan.issued),
        nicebytes(all),
        at(issuing),
        nicebytes(processed),
    )
}

/// Its JSON. `size` formats bytes, `count` numbers.
pub fn json(
    row: &PoolRow,
    size: &dyn Fn(u64) -> Json,
    count: &dyn Fn(u64) -> Json,
    time: &dyn Fn(u64) -> Json,
) -> Vec<(String, Json)> {
    let mut out = Vec::new();
    let mut put = |name: &str, entries: Vec<(&str, Json)>| {
        out.push((name.to_owned(), Json::object(entries)));
    };
    if let Some(scan) = &row.activity.scan {
        put("scan_stats", scan_json(scan, size, count, time));
    }
    if let Some(removal) = &row.activity.removal {
        put("removal_stats", removal_json(removal, size, count, time));
    }
    if let Some([since, bytes]) = row.activity.checkpoint {
        let word = if since == 0 { "DISCARDING" } else { "EXISTS" };
        put(
            "checkpoint_stats",
            vec![
                ("state", word_json(word)),
                ("start_time", time(since)),
                ("space", size(bytes)),
            ],
        );
    }
    if let Some([at, guid, start, end, copied]) = row.activity.expansion {
        let vdev = row.vdevs.children.iter().find(|v| v.guid == guid);
        put(
            "raidz_expand_stats",
            vec![
                ("name", word_json(vdev.map_or("-", |v| &v.name))),
                ("state", state_json(at)),
                ("start_time", time(start)),
                ("end_time", time(end)),
                ("reflowed", size(copied)),
            ],
        );
    }
    out
}

fn scan_json(
    scan: &ScanRow,
    size: &dyn Fn(u64) -> Json,
    count: &dyn Fn(u64) -> Json,
    time: &dyn Fn(u64) -> Json,
) -> Vec<(&'static str, Json)> {
    let function = match scan.function {
        1 => "SCRUB",
        2 => "RESILVER",
        3 => "ERRORSCRUB",
        _ => "NONE",
    };
    let [to_examine, examined, skipped, processed] = scan.bytes;
    let [start, end] = scan.times;
    let [pass_start, paused, spent_paused, pass_examined, pass_issued] = scan.pass;
    vec![
        ("function", word_json(function)),
        ("state", state_json(scan.state)),
        ("start_time", time(start)),
        ("end_time", time(end)),
        ("to_examine", size(to_examine)),
        ("examined", size(examined)),
        ("skipped", size(skipped)),
        ("processed", size(processed)),
        ("errors", count(scan.errors)),
        ("bytes_per_scan", size(pass_examined)),
        ("pass_start", count(pass_start)),
        ("scrub_pause", time(paused)),
        ("scrub_spent_paused", count(spent_paused)),
        ("issued_bytes_per_scan", size(pass_issued)),
        ("issued", size(scan.issued)),
    ]
}

fn removal_json(
    removal: &[u64; 8],
    size: &dyn Fn(u64) -> Json,
    count: &dyn Fn(u64) -> Json,
    time: &dyn Fn(u64) -> Json,
) -> Vec<(&'static str, Json)> {
    let [at, vdev, _, start, end, to_copy, copied, mappings] = *removal;
    vec![
        ("state", state_json(at)),
        ("removing_vdev", count(vdev)),
        ("start_time", time(start)),
        ("end_time", time(end)),
        ("to_copy", size(to_copy)),
        ("copied", size(copied)),
        ("mapping_memory", size(mappings)),
    ]
}

fn word_json(word: &str) -> Json {
    Json::Text(word.to_owned())
}

fn state_json(state: u64) -> Json {
    word_json(match state {
        GOES_ON => "SCANNING",
        FINISHED => "FINISHED",
        3 => "CANCELED",
        _ => "NONE",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_795_288_965;

    #[test]
    fn scans_are_told_as_far_as_they_came() {
        let (start, end) = (date::ctime(START), date::ctime(START + 90_061));
        let of = |function, state, paused| {
            scan_text(
                &ScanRow {
                    function,
                    state,
                    times: [START, START + 90_061],
                    bytes: [1000 << 20, 350 << 20, 200 << 20, 3 << 10],
                    errors: 2,
                    paused,
                    pass: [START, START + 50, 0, 350 << 20, 150 << 20],
                    issued: 150 << 20,
                },
                START + 100,
            )
        };
        assert_eq!(
            of(1, 2, false),
            format!("  scan: scrub repaired 3K in 1 days 01:01:01 with 2 errors on {end}\n")
        );
        assert_eq!(
            of(2, 2, false),
            format!("  scan: resilvered 3K in 1 days 01:01:01 with 2 errors on {end}\n")
        );
        assert_eq!(
            of(2, 3, false),
            format!("  scan: resilver canceled on {end}\n")
        );
        let rest = |word| {
            format!(
                "\t350M / 1000M scanned at 3.50M/s, 150M / 800M issued at 1.50M/s\n\t3K {word}, 18.75% done, 00:07:13 to go\n"
            )
        };
        assert_eq!(
            of(1, 1, false),
            format!(
                "  scan: scrub in progress since {start}\n{}",
                rest("repaired")
            )
        );
        let paused = date::ctime(START + 50);
        assert_eq!(
            of(1, 1, true),
            format!(
                "  scan: scrub paused since {paused}\n\tscrub started on {start}\n\t350M / 1000M scanned, 150M / 800M issued\n\t3K repaired, 18.75% done\n"
            )
        );
        assert_eq!(
            of(2, 1, false),
            format!(
                "  scan: resilver in progress since {start}\n{}",
                rest("resilvered")
            )
        );
    }

    #[test]
    fn a_scrub_of_the_error_log_is_told() {
        let (start, end) = (date::ctime(START), date::ctime(START + 90_061));
        let of = |state, paused| error_scrub_text(&[state, START, START + 90_061, 5, 2, paused]);
        assert_eq!(
            of(2, 0),
            format!(" scrub: scrubbed 2 error blocks in 1 days 01:01:01 on {end}\n")
        );
        assert_eq!(of(3, 0), format!(" scrub: error scrub canceled on {end}\n"));
        assert_eq!(
            of(4, 0),
            format!(
                " scrub: error scrub in progress, begun on {start}\n\tscrubbed 2 of 5 error blocks\n"
            )
        );
        assert!(of(4, 1).contains("error scrub paused"));
    }

    #[test]
    fn other_work_is_told_as_far_as_it_came() {
        let (start, end) = (date::ctime(START), date::ctime(START + 7_320));
        let removal = |state| {
            removal_text(
                &[state, 3, 0, START, START + 7_320, 4 << 20, 1 << 20, 48],
                "mirror-3",
            )
        };
        let mappings = "\t48 memory used for removed device mappings\n";
        assert_eq!(
            removal(1),
            format!(
                "remove: Evacuation of mirror-3 in progress since {start}\n\t1M copied out of 4M, 25.00% done\n{mappings}"
            )
        );
        assert_eq!(
            removal(2),
            format!("remove: Removal of vdev 3 copied 1M in 2h2m, completed on {end}\n{mappings}")
        );
        assert_eq!(
            removal(3),
            format!("remove: Removal of mirror-3 canceled on {end}\n{mappings}")
        );
        assert_eq!(
            checkpoint_text(0, 1 << 20),
            "checkpoint: discarding, 1M remaining.\n"
        );
        let expansion =
            |state| expansion_text(&[state, 0, START, START + 7_320, 1 << 30], "raidz1-0");
        assert_eq!(
            expansion(1),
            format!("expand: expansion of raidz1-0 in progress since {start}\n\t1G copied\n")
        );
        assert_eq!(
            expansion(2),
            format!("expand: expanded raidz1-0 copied 1G in 02:02:00, on {end}\n")
        );
    }
}
