//! `zuse host metrics`: figures for monitoring, in the text format of Prometheus.
//!
//! Metrics of pools and datasets have the names of `zfs_exporter`, so that its dashboards work.
//! Those that only Zuse has begin with `zuse_`. No state is kept between two requests.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;

use super::super::zpool::ask_for;
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::query::{Answer, DatasetRow, Details, PoolRow, Question, ScanRow};
use crate::session::Session;

/// Longest accepted request.
const LONGEST: usize = 8 << 10;
/// Time limit for a client to send its request, and to receive the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay after a failed accept.
const PAUSE: Duration = Duration::from_millis(200);

/// Print figures of pools and datasets for monitoring, or serve them
#[derive(Args, Debug)]
pub struct Metrics {
    /// Serve them at `/metrics`: on a socket at this path, which only this user can reach, or at
    /// HOST:PORT of the loopback interface
    #[arg(long, value_name = "PATH|HOST:PORT")]
    listen: Option<String>,
}

/// A property, its metric, and the help text.
type Shown = (&'static str, &'static str, &'static str);

const POOL: [Shown; 10] = [
    ("allocated", "allocated_bytes", "Bytes that are allocated"),
    (
        "capacity",
        "capacity_ratio",
        "Share of the room that is allocated",
    ),
    ("dedupratio", "deduplication_ratio", "Deduplication ratio"),
    (
        "expandsize",
        "expand_size_bytes",
        "Bytes that the pool could grow by",
    ),
    (
        "fragmentation",
        "fragmentation_ratio",
        "Fragmentation of free space",
    ),
    ("free", "free_bytes", "Bytes that are free"),
    (
        "freeing",
        "freeing_bytes",
        "Bytes that are still to be freed",
    ),
    ("leaked", "leaked_bytes", "Bytes that were leaked"),
    ("readonly", "readonly", "Whether the pool can only be read"),
    ("size", "size_bytes", "Bytes of the pool's devices"),
];

const DATASET: [Shown; 17] = [
    ("available", "available_bytes", "Bytes that can be written"),
    ("compressratio", "compression_ratio", "Compression ratio"),
    (
        "logicalused",
        "logical_used_bytes",
        "Bytes used, before compression",
    ),
    (
        "logicalreferenced",
        "logical_referenced_bytes",
        "Bytes it refers to, before compression",
    ),
    (
        "quota",
        "quota_bytes",
        "Most bytes that it and what is below may use",
    ),
    ("referenced", "referenced_bytes", "Bytes that it refers to"),
    (
        "refcompressratio",
        "referenced_compression_ratio",
        "Compression ratio of what it refers to",
    ),
    (
        "refquota",
        "reference_quota_bytes",
        "Most bytes that it may refer to",
    ),
    (
        "refreservation",
        "reference_reservation_bytes",
        "Bytes kept for what it refers to",
    ),
    (
        "reservation",
        "reservation_bytes",
        "Bytes kept for it and what is below",
    ),
    ("used", "used_bytes", "Bytes used by it and what is below"),
    (
        "usedbychildren",
        "used_by_children_bytes",
        "Bytes used by what is below",
    ),
    (
        "usedbydataset",
        "used_by_dataset_bytes",
        "Bytes used by itself",
    ),
    (
        "usedbyrefreservation",
        "used_by_refreservation_bytes",
        "Bytes used by its reservation",
    ),
    (
        "usedbysnapshots",
        "used_by_snapshot_bytes",
        "Bytes used by its snapshots",
    ),
    ("volsize", "volume_size_bytes", "Bytes of a volume"),
    (
        "written",
        "written_bytes",
        "Bytes written since its last snapshot",
    ),
];

/// States of a pool, by their numbers in the metric.
const HEALTH: [&str; 7] = [
    "ONLINE",
    "DEGRADED",
    "FAULTED",
    "OFFLINE",
    "UNAVAIL",
    "REMOVED",
    "SUSPENDED",
];

impl Metrics {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        match &self.listen {
            None => {
                let text = text(session)?;
                Ok(session.ui.print(text)?)
            }
            Some(place) => serve(session, place),
        }
    }
}

/// A text in quotation marks.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('\n', "\\n"))
}

/// A value in exact form as a number: `1.50x`, `on`.
fn number(value: &str) -> Option<f64> {
    match value {
        "on" => return Some(1.0),
        "off" => return Some(0.0),
        "none" => return Some(0.0),
        _ => {}
    }
    value.strip_suffix('x').unwrap_or(value).parse().ok()
}

/// Metrics by name, each with its help and its rows.
#[derive(Default)]
struct Page(Vec<(String, &'static str, String)>);

impl Page {
    fn put(&mut self, name: &str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        let at = self.0.iter().position(|(n, ..)| n == name);
        let at = at.unwrap_or_else(|| {
            self.0.push((name.to_owned(), help, String::new()));
            self.0.len() - 1
        });
        let Some((_, _, rows)) = self.0.get_mut(at) else {
            return;
        };
        let labels: Vec<String> = labels
            .iter()
            .map(|(key, text)| format!("{key}={}", quoted(text)))
            .collect();
        let _ = writeln!(rows, "{name}{{{}}} {value}", labels.join(","));
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for (name, help, rows) in &self.0 {
            let kind = if name.ends_with("_total") {
                "counter"
            } else {
                "gauge"
            };
            let _ = write!(out, "# HELP {name} {help}.\n# TYPE {name} {kind}\n{rows}");
        }
        out
    }
}

fn put_pool(page: &mut Page, row: &PoolRow) {
    let pool = [("pool", row.name.as_str())];
    for (property, metric, help) in POOL {
        let cell = row.cells.iter().find(|(name, _)| name == property);
        let value = cell.and_then(|(_, cell)| number(cell.value.as_deref()?));
        // `capacity` and `fragmentation` are percentages without a sign in exact form.
        let share = metric.ends_with("_ratio") && property != "dedupratio";
        if let Some(value) = value {
            let value = if share { value / 100.0 } else { value };
            page.put(&format!("zfs_pool_{metric}"), help, &pool, value);
        }
    }
    let state = if row.suspended.is_some() {
        "SUSPENDED"
    } else {
        row.state.as_str()
    };
    if let Some(at) = HEALTH.iter().position(|h| *h == state) {
        let help =
            "Health: 0 ONLINE, 1 DEGRADED, 2 FAULTED, 3 OFFLINE, 4 UNAVAIL, 5 REMOVED, 6 SUSPENDED";
        page.put("zfs_pool_health", help, &pool, at as f64);
    }
    page.put(
        "zuse_pool_txg",
        "Transaction group of the configuration",
        &pool,
        row.txg as f64,
    );
    page.put(
        "zuse_pool_open_seconds",
        "Seconds since it was opened",
        &pool,
        row.seconds,
    );
    for (metric, n) in ["reads", "writes", "read_bytes", "written_bytes"]
        .iter()
        .zip(row.vdevs.traffic)
    {
        let help = "Requested from the devices since it was opened";
        page.put(
            &format!("zuse_device_{metric}_total"),
            help,
            &pool,
            n as f64,
        );
    }
    for (name, n) in &row.logs {
        let help = "Of intent logs since it was opened: how fsync was answered";
        page.put(&format!("zuse_log_{name}"), help, &pool, *n as f64);
    }
    put_operations(page, pool, row);
    if let Some(scan) = &row.activity.scan {
        put_scan(page, pool, scan);
    }
    for tier in &row.tiers {
        let labels = [pool[0], ("tier", tier.name.as_str())];
        let names = ["hits_total", "misses_total", "entries", "bytes", "limit"];
        for (metric, n) in names.iter().zip(tier.figures) {
            page.put(
                &format!("zuse_cache_{metric}"),
                "What is kept in memory",
                &labels,
                n as f64,
            );
        }
    }
}

/// Reads, writes and trims, with their time. The quotient is the time of one operation.
fn put_operations(page: &mut Page, [pool]: [(&str, &str); 1], row: &PoolRow) {
    for (name, op) in ["read", "write", "label", "trim"]
        .iter()
        .zip(&row.vdevs.ops)
    {
        let labels = [pool, ("operation", *name)];
        let help = "Seconds that operations of the devices took, all together";
        let seconds = op.nanoseconds as f64 / 1e9;
        page.put("zuse_device_seconds_total", help, &labels, seconds);
        let help = "Operations of the devices";
        let count: u64 = op.latency.iter().sum();
        page.put("zuse_device_operations_total", help, &labels, count as f64);
    }
}

/// The last scrub or resilver.
fn put_scan(page: &mut Page, [pool]: [(&str, &str); 1], scan: &ScanRow) {
    let function = match scan.function {
        1 => "scrub",
        2 => "resilver",
        _ => "errorscrub",
    };
    let labels = [pool, ("function", function)];
    let help = "The last scan: 1 scanning, 2 finished, 3 canceled";
    page.put("zuse_scan_state", help, &labels, scan.state as f64);
    let help = "Bytes of the last scan";
    let bytes = ["to_examine", "examined", "skipped", "repaired"];
    for (name, n) in bytes
        .iter()
        .zip(scan.bytes)
        .chain([(&"issued", scan.issued)])
    {
        let labels = [pool, ("function", function), ("what", *name)];
        page.put("zuse_scan_bytes", help, &labels, n as f64);
    }
    let help = "Blocks that the last scan could not repair";
    page.put("zuse_scan_errors", help, &labels, scan.errors as f64);
    let [began, ended] = scan.times;
    for (name, time) in [
        ("zuse_scan_start_seconds", began),
        ("zuse_scan_end_seconds", ended),
    ] {
        let help = "When the last scan began, or ended, in seconds since 1970";
        page.put(name, help, &labels, time as f64);
    }
}

fn put_dataset(page: &mut Page, pool: &str, row: &DatasetRow) {
    let labels = [
        ("name", row.name.as_str()),
        ("pool", pool),
        ("type", &*row.kind),
    ];
    for (at, (property, metric, help)) in DATASET.iter().enumerate() {
        let cell = row.cell_at(at, property);
        if let Some(value) = cell.and_then(|c| number(c.value.as_deref()?)) {
            page.put(&format!("zfs_dataset_{metric}"), help, &labels, value);
        }
    }
}

/// All figures of all pools. A pool that cannot be asked is reported as down; the others are
/// reported as usual.
fn text(session: &mut Session) -> Outcome<String> {
    let mut page = Page::default();
    for pool in session.pool_names()? {
        let began = Instant::now();
        let up = match of_pool(session, &pool, &mut page) {
            Ok(()) => 1.0,
            Err(Stop::Failed(_)) => 0.0,
            Err(stop) => return Err(stop),
        };
        let label = [("pool", pool.as_str())];
        page.put("zuse_pool_up", "Whether the pool answered", &label, up);
        let took = began.elapsed().as_secs_f64();
        page.put(
            "zuse_scrape_seconds",
            "How long the answer took",
            &label,
            took,
        );
    }
    Ok(page.text())
}

fn of_pool(session: &mut Session, pool: &str, page: &mut Page) -> Outcome {
    let names: Vec<String> = POOL.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let details = Details {
        activity: true,
        ..Details::default()
    };
    for row in ask_for(session, &[pool.to_owned()], Some(&names), details)? {
        put_pool(page, &row);
    }
    let question = Question::Datasets {
        root: pool.to_owned(),
        depth: None,
        filesystems: true,
        volumes: true,
        snapshots: false,
        bookmarks: false,
        received: false,
        properties: Some(
            DATASET
                .iter()
                .map(|(name, ..)| (*name).to_owned())
                .collect(),
        ),
    };
    if let Answer::Datasets(rows) = question.ask(session)? {
        rows.iter().for_each(|row| put_dataset(page, pool, row));
    }
    Ok(())
}

/// Answers one request after the other, until it is interrupted.
fn serve(session: &mut Session, place: &str) -> Outcome {
    let cannot = || format!("cannot listen on '{place}'");
    if place.starts_with('/') {
        let listener = bind(Path::new(place)).or_cannot(cannot)?;
        return each(
            || listener.accept().map(|(stream, _)| stream),
            |stream| {
                let _ = stream.set_read_timeout(Some(CLIENT_TIMEOUT));
                let _ = stream.set_write_timeout(Some(CLIENT_TIMEOUT));
                answer(session, stream)
            },
        );
    }
    let mut places = place.to_socket_addrs().or_cannot(cannot)?;
    let loopback = places.find(|p| p.ip().is_loopback()).ok_or_else(|| {
        CommandError::usage(format!(
            "{}: it is not of this machine's loopback",
            cannot()
        ))
        .hint("127.0.0.1:PORT, or a path for a socket")
    })?;
    let listener = TcpListener::bind(loopback).or_cannot(cannot)?;
    each(
        || listener.accept().map(|(stream, _)| stream),
        |stream| {
            let _ = stream.set_read_timeout(Some(CLIENT_TIMEOUT));
            let _ = stream.set_write_timeout(Some(CLIENT_TIMEOUT));
            answer(session, stream)
        },
    )
}

/// A socket of this user. A stale socket is replaced; any other file is kept.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse && is_dead(path) => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(listener)
}

/// Whether a path is a socket on which no process listens.
fn is_dead(path: &Path) -> bool {
    let is_socket = |m: std::fs::Metadata| m.file_type().is_socket();
    let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    std::fs::symlink_metadata(path).is_ok_and(is_socket)
        && UnixStream::connect(path).is_err_and(refused)
}

/// Serves one client after the other. A failed accept (no more open files) is retried after a
/// delay.
fn each<S>(
    mut accept: impl FnMut() -> io::Result<S>,
    mut serve: impl FnMut(S) -> Outcome,
) -> Outcome {
    loop {
        match accept() {
            Ok(stream) => serve(stream)?,
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Reads a request and answers it. Errors of the client are ignored.
fn answer(session: &mut Session, mut stream: impl Read + Write) -> Outcome {
    let mut request = Vec::new();
    let mut piece = [0; 512];
    while !request.windows(4).any(|w| w == b"\r\n\r\n") && request.len() < LONGEST {
        match stream.read(&mut piece) {
            Ok(n) if n > 0 => request.extend_from_slice(piece.get(..n).unwrap_or_default()),
            _ => return Ok(()),
        }
    }
    let (status, body) = if request.starts_with(b"GET /metrics ") {
        match text(session) {
            Ok(page) => ("200 OK", page),
            // An error of this request; the next one is tried all the same.
            Err(Stop::Failed(e)) => ("500 Internal Server Error", format!("{}\n", e.message)),
            Err(stop) => return Err(stop),
        }
    } else {
        ("404 Not Found", "the figures are at /metrics\n".to_owned())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let sent = stream.write_all(head.as_bytes());
    let _ = sent.and_then(|()| stream.write_all(body.as_bytes()));
    Ok(())
}
