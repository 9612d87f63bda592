//! Events of devices, for readers of the pool's events.
//!
//! ```text
//!   leaf: state changes, wrong bytes, refused I/O ─┐
//!   a command: attached, removed, online           ─┴─► Events of the pool
//! ```
//! No lock of a leaf is held while an event is posted.

use zuse_base::{Error, Event, EventValue};

use crate::health::{Aux, Health, VdevState};
use crate::leaf::Leaf;
use crate::tree::Vdevs;

/// OpenZFS's number for wrong bytes, on Linux.
const WRONG_BYTES: u64 = 52;

fn state(name: &'static str, health: Health) -> (&'static str, EventValue) {
    let word = match health.state {
        VdevState::Closed => "CLOSED",
        state => state.word(Aux::None),
    };
    (name, EventValue::Named(word, number(health.state)))
}

/// Its number, as the interface has it.
fn number(state: VdevState) -> u64 {
    match state {
        VdevState::Unknown => 0,
        VdevState::Closed => 1,
        VdevState::Offline => 2,
        VdevState::Removed => 3,
        VdevState::CantOpen => 4,
        VdevState::Faulted => 5,
        VdevState::Degraded => 6,
        VdevState::Healthy => 7,
    }
}

impl Leaf {
    fn name_in(&self, event: Event) -> Event {
        let (name, now) = state("vdev_state", self.health());
        let event = event.number("vdev_guid", self.guid()).with(name, now);
        match self.path() {
            Some(path) => event.text("vdev_path", &*path),
            None => event,
        }
    }

    /// Posts an event if the state of the leaf has changed. Its first state is posted by
    /// [`Vdevs::report_bad`], once its place in the tree is known.
    pub(crate) fn report_state(&self, before: Health) {
        if let Some(events) = self.events.get()
            // The first open is no change of state.
            && before.state != VdevState::Closed
            && before.state != self.health().state
        {
            let (name, last) = state("vdev_laststate", before);
            let event = self.name_in(Event::resource("statechange"));
            events.post(event.with(name, last));
        }
    }

    fn report_error(&self, name: &'static str, errno: u64) {
        let Some(events) = self.events.get() else {
            return;
        };
        let mut event = Event::report(name, Some(self.guid())).number("vdev_guid", self.guid());
        if let Some(path) = self.path() {
            event = event.text("vdev_path", &*path);
        }
        let counters = self.counters();
        for (name, counter) in [
            ("vdev_read_errors", &counters.read_errors),
            ("vdev_write_errors", &counters.write_errors),
            ("vdev_cksum_errors", &counters.checksum_errors),
        ] {
            event = event.number(name, counter.get());
        }
        events.post(event.number("zio_err", errno));
    }

    pub(crate) fn report_checksum(&self) {
        self.report_error("checksum", WRONG_BYTES);
    }

    pub(crate) fn report_io(&self, error: &Error) {
        let number = error.errno().0.unsigned_abs();
        self.report_error("io", u64::from(number));
    }
}

impl Vdevs {
    /// Posts a system event about a vdev: `vdev_attach`, `vdev_remove`, `vdev_online`, ….
    pub fn post(&self, name: &'static str, guid: u64) {
        let event = Event::system(name);
        let event = match self.leaf(guid) {
            Some(leaf) => leaf.name_in(event),
            None => event.number("vdev_guid", guid),
        };
        self.events().post(event);
    }

    /// Posts an event for each leaf that is not healthy when the pool is opened.
    pub fn report_bad(&self) {
        for top in self.tops().iter() {
            for leaf in top.leaves() {
                let health = leaf.health();
                if health.state != VdevState::Healthy {
                    let (name, last) =
                        state("vdev_laststate", Health::new(VdevState::Unknown, Aux::None));
                    let event = leaf.name_in(Event::resource("statechange"));
                    self.events().post(event.with(name, last));
                }
            }
        }
    }
}
