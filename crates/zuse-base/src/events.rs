//! Events of a pool, for their readers: `zpool events`, alerts, monitors.
//!
//! ```text
//!   devices, scans, txgs, commands ──post──► ring of the last events ──► `zpool events`
//!                                                    └──► followers: each has its own place in it
//! ```
//! - Posting never waits for a reader: the ring is bounded, and the oldest event is dropped.
//! - A follower that falls behind is told how many events it missed.
//! - Device errors come in floods. A bounded number per second of each class is kept
//!   ([`Events::REPORTS_PER_SECOND`]).
//! - Its lock is a leaf: only events are moved under it.
//!
//! Classes and fields have OpenZFS's names (chapter 06 §2.4 of the format notes).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};
use crate::{Clock, SystemClock, Timestamp};

#[cfg(test)]
mod tests;

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventValue {
    /// A number.
    Number(u64),
    /// Numbers.
    Numbers(Vec<u64>),
    /// A text.
    Text(String),
    /// A number that has a name: the state of a device.
    Named(&'static str, u64),
    /// Nested fields.
    Nested(Vec<EventField>),
}

/// Name and value.
pub type EventField = (&'static str, EventValue);

/// The source of an event: it determines the first part of the class and the leading fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    System,
    Resource,
    Report,
}

impl Family {
    fn prefix(self) -> &'static str {
        match self {
            Self::System => "sysevent.fs.zfs.",
            Self::Resource => "resource.fs.zfs.",
            Self::Report => "ereport.fs.zfs.",
        }
    }
}

/// An event that is about to be posted.
#[derive(Clone, Debug)]
pub struct Event {
    family: Family,
    name: &'static str,
    detector: Option<u64>,
    fields: Vec<EventField>,
}

impl Event {
    /// Longest text of a field; longer texts are truncated.
    pub const MOST_TEXT: usize = 4096;

    fn of(family: Family, name: &'static str) -> Self {
        Self {
            family,
            name,
            detector: None,
            fields: Vec::new(),
        }
    }

    /// Something was done: `scrub_start` becomes `sysevent.fs.zfs.scrub_start`.
    pub fn system(name: &'static str) -> Self {
        Self::of(Family::System, name)
    }

    /// A state has changed: `resource.fs.zfs.NAME`.
    pub fn resource(name: &'static str) -> Self {
        Self::of(Family::Resource, name)
    }

    /// An error occurred: `ereport.fs.zfs.NAME`, with the guid of the vdev, if it was one.
    pub fn report(name: &'static str, vdev: Option<u64>) -> Self {
        Self {
            detector: vdev,
            ..Self::of(Family::Report, name)
        }
    }

    /// With a number.
    #[must_use]
    pub fn number(self, name: &'static str, value: u64) -> Self {
        self.with(name, EventValue::Number(value))
    }

    /// With a text.
    #[must_use]
    pub fn text(self, name: &'static str, value: impl Into<String>) -> Self {
        let mut text: String = value.into();
        let end = (0..=Self::MOST_TEXT.min(text.len())).rev();
        let end = { end }.find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        self.with(name, EventValue::Text(text))
    }

    /// With a value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: EventValue) -> Self {
        self.fields.push((name, value));
        self
    }
}

/// An event in the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostedEvent {
    /// Its number; they count from 1.
    pub eid: u64,
    /// When it was posted.
    pub time: Timestamp,
    /// The full class name.
    pub class: String,
    /// All fields but `time` and `eid`, which come last, in OpenZFS's order.
    pub fields: Vec<EventField>,
}

/// The pool of the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Its name.
    pub pool: String,
    /// Its guid.
    pub guid: u64,
    /// Its state, by the number in labels: 0 is active, 1 exported, 2 destroyed.
    pub state: u64,
    /// The operation in progress: 0 none, 1 open, 2 import, 6 create.
    pub context: u64,
    /// Property `failmode`.
    pub fail_mode: &'static str,
}

/// Events after a position, in the order in which they were posted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EventBatch {
    /// Those that are still kept, oldest first.
    pub events: Vec<Arc<PostedEvent>>,
    /// Number of events after the position that are not kept any more.
    pub missed: u64,
    /// Nothing is posted any more.
    pub ended: bool,
}

#[derive(Debug)]
struct Ring {
    events: VecDeque<Arc<PostedEvent>>,
    capacity: usize,
    /// Number of the last event.
    last: u64,
    /// Events up to this number were cleared on request.
    cleared: u64,
    subject: Subject,
    clock: Arc<dyn Clock>,
    ended: bool,
    /// Reports of a class in the current second, and its beginning.
    floods: Vec<(&'static str, Duration, u32)>,
}

/// The events of a pool.
#[derive(Debug)]
pub struct Events {
    ring: Mutex<Ring>,
    more: Condvar,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            ring: Mutex::new(Ring {
                events: VecDeque::new(),
                capacity: Self::DEFAULT_CAPACITY,
                last: 0,
                cleared: 0,
                subject: Subject {
                    fail_mode: "wait",
                    ..Subject::default()
                },
                clock: Arc::new(SystemClock::default()),
                ended: false,
                floods: Vec::new(),
            }),
            more: Condvar::new(),
        }
    }
}

impl Events {
    /// Events that are kept by default (OpenZFS's `zfs_zevent_len_max`).
    pub const DEFAULT_CAPACITY: usize = 512;
    /// Error reports of a class that are kept per second.
    pub const REPORTS_PER_SECOND: u32 = 20;

    /// Sets the pool of the events, and the clock for their times.
    pub fn belong_to(&self, subject: Subject, clock: Arc<dyn Clock>) {
        let mut ring = self.ring.lock();
        ring.subject = subject;
        ring.clock = clock;
    }

    /// Changes the description of the pool.
    pub fn change_subject(&self, change: impl FnOnce(&mut Subject)) {
        change(&mut self.ring.lock().subject);
    }

    /// Sets how many events are kept.
    pub fn set_capacity(&self, capacity: usize) {
        let mut ring = self.ring.lock();
        ring.capacity = capacity;
        ring.shrink();
    }

    /// Posts an event.
    pub fn post(&self, event: Event) {
        let mut ring = self.ring.lock();
        if event.family == Family::Report && ring.is_flooded(event.name) {
            return;
        }
        ring.last += 1;
        let posted = PostedEvent {
            eid: ring.last,
            time: ring.clock.now(),
            class: format!("{}{}", event.family.prefix(), event.name),
            fields: fields(&ring.subject, event, ring.last),
        };
        ring.events.push_back(Arc::new(posted));
        ring.shrink();
        drop(ring);
        self.more.notify_all();
    }

    /// The kept events after `eid`.
    pub fn after(&self, eid: u64) -> EventBatch {
        self.ring.lock().after(eid)
    }

    /// As [`Self::after`], but waits for an event. Returns none after that time, or if no more
    /// events will come.
    pub fn wait_after(&self, eid: u64, time: Duration) -> EventBatch {
        let ring = self.ring.lock();
        let nothing = |ring: &mut Ring| ring.last <= eid && !ring.ended;
        let (ring, _) = self.more.wait_timeout_while(ring, time, nothing);
        ring.after(eid)
    }

    /// Drops the kept events; returns how many there were.
    pub fn clear(&self) -> usize {
        let mut ring = self.ring.lock();
        ring.cleared = ring.last;
        let gone = std::mem::take(&mut ring.events);
        gone.len()
    }

    /// No more events will be posted: followers end.
    pub fn end(&self) {
        self.ring.lock().ended = true;
        self.more.notify_all();
    }
}

impl Ring {
    fn shrink(&mut self) {
        while self.events.len() > self.capacity {
            self.events.pop_front();
        }
    }

    fn after(&self, eid: u64) -> EventBatch {
        let seen = eid.max(self.cleared);
        let events: Vec<_> = self
            .events
            .iter()
            .filter(|e| e.eid > seen)
            .cloned()
            .collect();
        let gone = (self.last - seen.min(self.last)) - events.len() as u64;
        EventBatch {
            events,
            missed: gone,
            ended: self.ended,
        }
    }

    /// Counts a report, and returns whether its class had enough reports within this second.
    fn is_flooded(&mut self, name: &'static str) -> bool {
        let now = self.clock.monotonic();
        let at = match self.floods.iter().position(|(n, ..)| *n == name) {
            Some(at) => at,
            None => {
                self.floods.push((name, now, 0));
                self.floods.len() - 1
            }
        };
        let (_, since, count) = &mut self.floods[at];
        if now.saturating_sub(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count > Events::REPORTS_PER_SECOND
    }
}

/// All fields in OpenZFS's order.
fn fields(subject: &Subject, event: Event, eid: u64) -> Vec<EventField> {
    let class = format!("{}{}", event.family.prefix(), event.name);
    let mut all = Vec::with_capacity(event.fields.len() + 9);
    let report = event.family == Family::Report;
    if !report {
        all.push(("version", EventValue::Number(0)));
    }
    all.push(("class", EventValue::Text(class)));
    if report {
        let mut detector = vec![
            ("version", EventValue::Number(0)),
            ("scheme", EventValue::Text("zfs".into())),
            ("pool", EventValue::Number(subject.guid)),
        ];
        detector.extend(
            event
                .detector
                .map(|vdev| ("vdev", EventValue::Number(vdev))),
        );
        // Reports of one error share a number; here each error has only one report.
        all.push(("ena", EventValue::Number(eid << 12 | 1)));
        all.push(("detector", EventValue::Nested(detector)));
    }
    all.push(("pool", EventValue::Text(subject.pool.clone())));
    all.push(("pool_guid", EventValue::Number(subject.guid)));
    all.push(("pool_state", EventValue::Number(subject.state)));
    all.push(("pool_context", EventValue::Number(subject.context)));
    if report {
        let mode = subject.fail_mode.to_owned();
        all.push(("pool_failmode", EventValue::Text(mode)));
    }
    all.extend(event.fields);
    all
}
