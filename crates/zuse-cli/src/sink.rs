//! Where events go besides `zpool events`: a file of JSON lines, and a command for each event.
//!
//! ```text
//!   events of the pool ──follow──► one thread ──► zuse_events_file      one line each, {"eid":…,"class":…}
//!                                        └──────► zuse_events_command   environment as ZED's scripts get it, the line on its input
//! ```
//! - The pool never waits for it. A thread that is too slow loses events, and a line says how many.
//! - One command runs at a time, no longer than [`LONGEST_COMMAND`].
//! - A file of [`LONGEST_FILE`] bytes is renamed (`.old`), and the one before it is removed.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use zuse::Pool;
use zuse::events::{EventValue, Events, PostedEvent};

use crate::error::Outcome;
use crate::json::Json;
use crate::session::Session;

/// The tunables that say where events go.
pub const FILE: &str = "zuse_events_file";
/// As [`FILE`].
pub const COMMAND: &str = "zuse_events_command";

/// The time limit for a command that handles an event.
const LONGEST_COMMAND: Duration = Duration::from_secs(10);
/// Bytes of a file of events.
const LONGEST_FILE: u64 = 16 << 20;
/// Polling interval for the end of this thread or of a command.
const TICK: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_millis(10);

/// Forwards events until it is dropped. Events that were posted by then are forwarded first.
pub struct Sink {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Places {
    file: Option<PathBuf>,
    command: Option<String>,
}

impl Sink {
    /// Begins, if tunables name a place.
    pub fn begin(session: &Session, pool: &Pool) -> Outcome<Self> {
        let tuning = session.tuning()?;
        let places = Places {
            file: tuning.text(FILE).map(PathBuf::from),
            command: tuning.text(COMMAND).map(str::to_owned),
        };
        let over = Arc::new(AtomicBool::new(false));
        if places.file.is_none() && places.command.is_none() {
            return Ok(Self { over, thread: None });
        }
        let (events, end) = (pool.events().clone(), over.clone());
        let thread = std::thread::Builder::new()
            .name("zuse-events".into())
            .spawn(move || send_on(&events, &places, &end))?;
        Ok(Self {
            over,
            thread: Some(thread),
        })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn send_on(events: &Events, places: &Places, end: &AtomicBool) {
    let mut last = 0;
    loop {
        // Read before the events: those posted until the end was asked for are still sent.
        let ending = end.load(SeqCst);
        let batch = events.wait_after(last, if ending { Duration::ZERO } else { TICK });
        if batch.missed > 0 {
            let missed = Json::object([("missed", Json::Number(batch.missed))]);
            places.write(&missed.to_string());
        }
        for event in &batch.events {
            last = event.eid;
            let line = line(event);
            places.write(&line);
            places.run(event, &line);
        }
        if ending || batch.ended {
            return;
        }
    }
}

impl Places {
    /// Appends a line to the file. A full disk loses events, but does not stop the pool.
    fn write(&self, line: &str) {
        if let Some(path) = &self.file {
            let _ = append(path, line);
        }
    }

    fn run(&self, event: &PostedEvent, line: &str) {
        let Some(command) = &self.command else {
            return;
        };
        let child = Command::new("/bin/sh")
            .args(["-c", command])
            .envs(variables(event))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if let Ok(child) = child {
            wait_for(child, line);
        }
    }
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    let open = || OpenOptions::new().append(true).create(true).open(path);
    let mut file: File = open()?;
    if file.metadata()?.len() > LONGEST_FILE {
        let mut old = path.as_os_str().to_owned();
        old.push(".old");
        std::fs::rename(path, old)?;
        file = open()?;
    }
    file.write_all(format!("{line}\n").as_bytes())
}

fn wait_for(mut child: Child, line: &str) {
    if let Some(mut input) = child.stdin.take() {
        // Usually shorter than a pipe's buffer. A command that does not read it is not waited for.
        let text = format!("{line}\n");
        let most = text.len().min(4096);
        let _ = input.write_all(&text.as_bytes()[..most]);
        if most < text.len() {
            let rest = text[most..].to_owned();
            let writer = std::thread::Builder::new().name("zuse-events-input".into());
            let _ = writer.spawn(move || input.write_all(rest.as_bytes()));
        }
    }
    let since = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if since.elapsed() > LONGEST_COMMAND {
            // It would hold up all later events.
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        std::thread::sleep(SOON);
    }
}

fn value(of: &EventValue) -> Json {
    match of {
        EventValue::Number(n) => Json::Number(*n),
        EventValue::Numbers(all) => Json::Array(all.iter().map(|n| Json::Number(*n)).collect()),
        EventValue::Text(text) => Json::Text(text.clone()),
        EventValue::Named(word, _) => Json::Text((*word).to_owned()),
        EventValue::Nested(fields) => {
            Json::object(fields.iter().map(|(name, v)| (*name, value(v))))
        }
    }
}

/// An event as one line.
fn line(event: &PostedEvent) -> String {
    let time = vec![
        Json::Number(event.time.unsigned_secs()),
        Json::Number(u64::from(event.time.nanos)),
    ];
    let head = [
        ("eid", Json::Number(event.eid)),
        ("time", Json::Array(time)),
    ];
    let fields = event.fields.iter().map(|(name, v)| (*name, value(v)));
    Json::object(head.into_iter().chain(fields)).to_string()
}

/// The variables that ZED gives to its scripts.
fn variables(event: &PostedEvent) -> Vec<(String, String)> {
    let mut all = vec![
        ("ZEVENT_EID".to_owned(), event.eid.to_string()),
        ("ZEVENT_CLASS".to_owned(), event.class.clone()),
        ("ZEVENT_TIME_SECS".to_owned(), event.time.secs.to_string()),
        ("ZEVENT_TIME_NSECS".to_owned(), event.time.nanos.to_string()),
    ];
    let sub = event
        .class
        .rsplit_once(".fs.zfs.")
        .map_or("", |(_, sub)| sub);
    all.push(("ZEVENT_SUBCLASS".to_owned(), sub.to_owned()));
    for (name, value) in &event.fields {
        all.extend(variable(name, value));
    }
    all
}

fn variable(name: &str, value: &EventValue) -> Option<(String, String)> {
    let text = match value {
        EventValue::Number(n) => format!("{n:#x}"),
        EventValue::Text(text) if !text.contains('\0') => text.clone(),
        EventValue::Named(word, _) => (*word).to_owned(),
        _ => return None,
    };
    Some((format!("ZEVENT_{}", name.to_uppercase()), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zuse::events::{Event, EventField};

    #[test]
    fn an_event_is_a_line_and_variables() {
        let events = Events::default();
        let field: EventField = ("vdev_state", EventValue::Named("ONLINE", 7));
        let event = Event::system("vdev_attach").number("vdev_guid", 10);
        events.post(event.with(field.0, field.1));
        let batch = events.after(0);
        let line = line(&batch.events[0]);
        assert!(line.starts_with("{\"eid\":1,\"time\":["), "{line}");
        assert!(
            line.ends_with("\"vdev_guid\":10,\"vdev_state\":\"ONLINE\"}"),
            "{line}"
        );
        let variables = variables(&batch.events[0]);
        let has = |name: &str, value: &str| {
            let pair = (name.to_owned(), value.to_owned());
            assert!(variables.contains(&pair), "{variables:?}");
        };
        has("ZEVENT_SUBCLASS", "vdev_attach");
        has("ZEVENT_VDEV_GUID", "0xa");
        has("ZEVENT_VDEV_STATE", "ONLINE");
    }
}
