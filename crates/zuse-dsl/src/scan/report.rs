//! Scan events, for readers of the pool's events.

use zuse_base::Event;

use super::record::Function;
use crate::context::Ctx;

/// A step in a scan's life.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Begun,
    Paused,
    Resumed,
    Given,
    Done,
}

impl Ctx<'_> {
    /// Posts an event about a step of a scan; OpenZFS has events for some steps only.
    pub(super) fn post_scan_event(&self, function: Function, step: Step) {
        let name = match (function, step) {
            (Function::Scrub, Step::Begun) => "scrub_start",
            (Function::Scrub, Step::Paused) => "scrub_paused",
            (Function::Scrub, Step::Resumed) => "scrub_resume",
            (Function::Scrub, Step::Given) => "scrub_abort",
            (Function::Scrub, Step::Done) => "scrub_finish",
            (Function::Resilver, Step::Begun) => "resilver_start",
            (Function::Resilver, Step::Done) => "resilver_finish",
            _ => return,
        };
        let event = Event::system(name);
        let event = match function {
            Function::Resilver => event.text("resilver_type", "healing"),
            _ => event,
        };
        self.spa.0.events().post(event);
    }
}
