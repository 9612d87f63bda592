//! Progress of long work, on the error stream, if that is a terminal.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::ui::Ui;

/// Counters of a copy or another long work, and the bar that shows them.
pub struct Progress {
    bar: ProgressBar,
    /// Objects done.
    pub objects: AtomicU64,
    /// Bytes done.
    pub bytes: AtomicU64,
}

impl Progress {
    /// A bar if the error stream is a terminal of this process, else only counters.
    pub fn new(ui: &Ui, forwarded: bool) -> Self {
        let bar = if ui.is_watched() && !forwarded {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {msg} {bytes} {bytes_per_sec} {elapsed}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        } else {
            ProgressBar::hidden()
        };
        Self {
            bar,
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// One more object is done.
    pub fn object(&self) {
        let n = self.objects.fetch_add(1, Relaxed) + 1;
        if n.is_multiple_of(64) {
            self.bar.set_message(format!("{n} objects"));
        }
    }

    /// A phase of the work has reached this count.
    pub fn reached(&self, phase: &'static str, done: u64, total: u64) {
        let percent = done.saturating_mul(100).checked_div(total).unwrap_or(0);
        self.bar.set_message(format!("{phase} {percent}%"));
        self.bar.set_position(done);
    }

    /// Adds bytes that are done.
    pub fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.bar.inc(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
