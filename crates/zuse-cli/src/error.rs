//! The messages and exit codes of commands that fail.
//!
//! ```text
//! cannot open 'tank/x': dataset does not exist        message
//! use 'zfs list' to see what there is                 hints: what to do next
//! ```
//! A command for a pool that another process holds returns [`Stop::Held`] before it has printed
//! anything. The whole command line is then sent to that process.

use std::io::ErrorKind;

use serde::{Deserialize, Serialize};
use zuse_base::{Errno, Error, Refusal};

/// Result of a command or of a part of it.
pub type Outcome<T = ()> = Result<T, Stop>;

/// Why a command ends early.
#[derive(Debug)]
pub enum Stop {
    /// It failed.
    Failed(CommandError),
    /// Another process holds the pool with this guid and can run the command.
    Held(u64),
    /// A new process must run the command, and keeps the pool that the command creates or imports.
    NewProcess,
    /// The reader of our output has closed it.
    Hangup,
}

/// The kind of a failure, for code that handles it. The message is for people only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Meaning {
    /// No special kind.
    Plain,
    /// No pool of that name is known.
    NoSuchPool,
    /// The pool has no dataset of that name.
    NoSuchDataset,
    /// The key of a dataset is not loaded.
    KeyNotLoaded,
    /// The command line is valid, but its object was not found.
    NotFound,
    /// Every further attempt would fail in the same way: a full disk, a suspended pool.
    Lasting,
}

/// A failure as the user sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommandError {
    /// One line: `ACTION: DESCRIPTION`. Empty if everything was printed already.
    pub message: String,
    /// Lines that say what the user can do.
    pub hints: Vec<String>,
    /// Exit code: 1 failed, 2 wrong usage.
    pub code: u8,
    /// Its kind, for the caller.
    pub meaning: Meaning,
}

impl CommandError {
    /// A failure with exit code 1.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hints: Vec::new(),
            code: 1,
            meaning: Meaning::Plain,
        }
    }

    /// A failure of several lines: the message and its hints.
    pub fn of_lines(text: &str) -> Self {
        let mut lines = text.lines();
        let failed = Self::new(lines.next().unwrap_or_default());
        lines.fold(failed, |failed, line| failed.hint(line))
    }

    /// A command that ends with that code and has printed the reason already.
    pub fn silent(code: u8) -> Self {
        Self {
            code,
            ..Self::new("")
        }
    }

    /// Wrong usage: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            ..Self::new(message)
        }
    }

    /// Wrong usage that the usage itself explains.
    pub fn usage_alone() -> Self {
        Self::usage(" ")
    }

    /// Whether the command line is at fault.
    pub fn is_usage(&self) -> bool {
        self.code == 2 && self.meaning != Meaning::NotFound && !self.message.is_empty()
    }

    /// Sets the kind.
    #[must_use]
    pub fn meaning(mut self, meaning: Meaning) -> Self {
        self.meaning = meaning;
        self
    }

    /// Adds a line that says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

impl From<CommandError> for Stop {
    fn from(error: CommandError) -> Self {
        Self::Failed(error)
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        // The reader has enough, as in `zfs list | head`: no failure to report.
        if error.kind() == ErrorKind::BrokenPipe {
            return Self::Hangup;
        }
        Self::Failed(CommandError::new(error.to_string()))
    }
}

/// Turns a library error into the messages of the ZFS commands.
pub trait Explain<T> {
    /// `action` is what failed: `cannot open 'tank/x'`. Error numbers have the meaning that they
    /// have for datasets.
    fn or_cannot(self, action: impl FnOnce() -> String) -> Outcome<T>;
    /// The same, with the meaning of error numbers for pools.
    fn or_cannot_pool(self, action: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T> Explain<T> for zuse_base::Result<T> {
    fn or_cannot(self, action: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|e| explain(&action(), &e, false).into())
    }

    fn or_cannot_pool(self, action: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|e| explain(&action(), &e, true).into())
    }
}

impl<T> Explain<T> for std::io::Result<T> {
    fn or_cannot(self, action: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|e| {
            let text = host_error_text(&e);
            let meaning = match e.kind() {
                ErrorKind::StorageFull
                | ErrorKind::QuotaExceeded
                | ErrorKind::ReadOnlyFilesystem => Meaning::Lasting,
                _ => Meaning::Plain,
            };
            CommandError::new(format!("{}: {text}", action()))
                .meaning(meaning)
                .into()
        })
    }

    fn or_cannot_pool(self, action: impl FnOnce() -> String) -> Outcome<T> {
        self.or_cannot(action)
    }
}

/// The host's text for an error, without its number.
pub fn host_error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next();
    text.unwrap_or_default().to_owned()
}

/// Errors that the host returns for files, rather than for failing disks.
const REFUSALS: [Errno; 5] = [
    Errno::ACCES,
    Errno::PERM,
    Errno::NOENT,
    Errno::ROFS,
    Errno::NOTDIR,
];

/// The message for a library error.
pub fn explain(action: &str, error: &Error, pool: bool) -> CommandError {
    match error {
        Error::Refused { errno, why, what } => {
            let of_limit = matches!(why, Refusal::Limit | Refusal::Known);
            let class = class_of(*errno, pool);
            let says_more = what.contains(' ') && !action.contains(what.as_str());
            let text = match (class, says_more) {
                (Some(class), false) => class.to_owned(),
                (Some(class), true)
                    if !of_limit
                        && matches!(
                            *errno,
                            Errno::NOENT | Errno::EXIST | Errno::NOSPC | Errno::DQUOT
                        ) =>
                {
                    class.to_owned()
                }
                (_, true) => what.clone(),
                (None, false) => errno.text().to_owned(),
            };
            let meaning = match *errno {
                _ if *why == Refusal::KeyNotLoaded => Meaning::KeyNotLoaded,
                Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::AGAIN => Meaning::Lasting,
                Errno::NOENT if !pool && !of_limit => Meaning::NoSuchDataset,
                _ => Meaning::Plain,
            };
            let error = CommandError::new(format!("{action}: {text}")).meaning(meaning);
            match *errno {
                Errno::NOSPC | Errno::DQUOT if !of_limit => error.hint("destroy snapshots or delete files to make room; 'zfs list -o space' shows what takes it"),
                Errno::ROFS => error.hint("the pool is open read-only: leave out readonly=on, or export it where it is in use"),
                _ => error,
            }
        }
        Error::Suspended { what, .. } => {
            CommandError::new(format!("{action}: pool I/O is currently suspended: {what}"))
                .meaning(Meaning::Lasting)
        }
        // These errors come from the host, not from the pool's devices.
        Error::Device { errno, .. } if REFUSALS.contains(errno) => {
            CommandError::new(format!("{action}: {error}"))
        }
        Error::Device { .. } => CommandError::new(format!("{action}: I/O error: {error}"))
            .hint("'zpool status' shows which device fails"),
        _ => CommandError::new(format!("{action}: {error}")),
    }
}

fn class_of(errno: Errno, pool: bool) -> Option<&'static str> {
    Some(match (errno, pool) {
        (Errno::PERM | Errno::ACCES, _) => "permission denied",
        (Errno::IO, _) => "I/O error",
        (Errno::NXIO | Errno::NODEV, false) => "I/O error",
        (Errno::NXIO, true) => "one or more devices is currently unavailable",
        (Errno::NODEV, true) => "no such device in pool",
        (Errno::NOENT, false) => "dataset does not exist",
        (Errno::NOENT, true) => "no such pool or dataset",
        (Errno::NOSPC | Errno::DQUOT, _) => "out of space",
        (Errno::EXIST, false) => "dataset already exists",
        (Errno::EXIST, true) => "pool already exists",
        (Errno::BUSY, false) => "dataset is busy",
        (Errno::BUSY, true) => "pool is busy",
        (Errno::ROFS, _) => "pool is read-only",
        (Errno::NAMETOOLONG, _) => "dataset name is too long",
        (Errno::AGAIN, _) => "pool I/O is currently suspended",
        _ => return None,
    })
}
