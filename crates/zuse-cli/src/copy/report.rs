//! Reports failures of a copy when they occur. A file that cannot be copied does not end the copy.
//!
//! Only an error that all other files would have, too (a full disk, an interrupted pool), ends the
//! copy.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{CommandError, Meaning, Outcome, Stop};
use crate::shown;
use crate::ui::Ui;

/// The most lines that are printed; further failures are only counted.
const LINES: u64 = 10_000;

/// The failures of one command.
pub struct Report {
    err: File,
    spells: bool,
    bad: AtomicU64,
}

impl Report {
    /// For a command, on its error stream.
    ///
    /// # Errors
    /// Too many files are open.
    pub fn new(ui: &Ui) -> std::io::Result<Self> {
        let err = ui.err().try_clone()?;
        Ok(Self {
            spells: err.is_terminal(),
            err,
            bad: AtomicU64::new(0),
        })
    }

    /// A name or path from outside, escaped.
    pub fn name(&self, bytes: &[u8]) -> String {
        match self.spells {
            true => String::from_utf8_lossy(&shown::name(bytes)).into_owned(),
            false => String::from_utf8_lossy(bytes).into_owned(),
        }
    }

    /// Reports a failure.
    pub fn bad(&self, what: &str) {
        self.bad_lines(&[what]);
    }

    fn bad_lines(&self, lines: &[&str]) {
        if self.bad.fetch_add(1, Relaxed) >= LINES {
            return;
        }
        let mut text = String::new();
        for line in lines {
            match self.spells {
                true => text.push_str(&shown::text(line)),
                false => text.push_str(line),
            }
            text.push('\n');
        }
        // One write, because several threads report.
        let _ = (&self.err).write_all(text.as_bytes());
    }

    /// Handles the result of one object. Returns errors that end the copy.
    ///
    /// # Errors
    /// It ends everything.
    pub fn take(&self, result: Outcome) -> Outcome {
        match result {
            Err(Stop::Failed(error)) if error.meaning != Meaning::Lasting => {
                let said = [&error.message].into_iter().chain(&error.hints);
                self.bad_lines(&said.map(String::as_str).collect::<Vec<_>>());
                Ok(())
            }
            other => other,
        }
    }

    /// Success if there was no failure, else the error that ends the command.
    ///
    /// # Errors
    /// Something was.
    pub fn finish(&self) -> Outcome {
        match self.bad.load(Relaxed) {
            0 => Ok(()),
            n => Err(CommandError::new(format!(
                "{n} {} not copied whole",
                if n == 1 { "object was" } else { "objects were" }
            ))
            .into()),
        }
    }
}
