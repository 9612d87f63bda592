//! What a command says when it cannot do what it was asked, and with which code it ends.
//!
//! ```text
//! cannot open 'tank/x': dataset does not exist        message
//! use 'zfs list' to see what there is                 hints: what to do next
//! ```
//! A command that meets a pool which another process holds stops with [`Stop::Held`] before it printed
//! anything: the whole command line then goes to that process.

use zuse_base::{Errno, Error};

/// Result of a command or of a part of it.
pub type Outcome<T = ()> = Result<T, Stop>;

/// Why a command ends early.
#[derive(Debug)]
pub enum Stop {
    /// It failed.
    Failed(CommandError),
    /// Another process holds the pool with this guid and can do it.
    Held(u64),
    /// Whoever read our output went away.
    Hangup,
}

/// A failure as the user sees it.
#[derive(Debug, Clone)]
pub struct CommandError {
    /// One line: `ACTION: DESCRIPTION`. Empty if everything was said already.
    pub message: String,
    /// Lines that say what can be done about it.
    pub hints: Vec<String>,
    /// Exit code: 1 failed, 2 wrong usage.
    pub code: u8,
}

impl CommandError {
    /// A failure with exit code 1.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hints: Vec::new(),
            code: 1,
        }
    }

    /// Wrong usage: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            ..Self::new(message)
        }
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
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::Hangup;
        }
        Self::Failed(CommandError::new(error.to_string()))
    }
}

/// Gives a library error the words of the ZFS commands.
pub trait Explain<T> {
    /// `action` is what could not be done: `cannot open 'tank/x'`. Numbers read as for datasets.
    fn or_cannot(self, action: impl FnOnce() -> String) -> Outcome<T>;
    /// The same, numbers reading as for pools.
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
            let text = e.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            CommandError::new(format!("{}: {text}", action())).into()
        })
    }

    fn or_cannot_pool(self, action: impl FnOnce() -> String) -> Outcome<T> {
        self.or_cannot(action)
    }
}

/// The message for a library error.
pub fn explain(action: &str, error: &Error, pool: bool) -> CommandError {
    match error {
        Error::Refused { errno, what } => {
            let class = class_of(*errno, pool);
            let says_more = what.contains(' ') && !action.contains(what.as_str());
            let text = match (class, says_more) {
                (Some(class), false) => class.to_owned(),
                (Some(class), true)
                    if !is_of_limit(what)
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
            let error = CommandError::new(format!("{action}: {text}"));
            match *errno {
                Errno::NOSPC | Errno::DQUOT if !is_of_limit(what) => error.hint("destroy snapshots or delete files to make room; 'zfs list -o space' shows what takes it"),
                Errno::ROFS => error.hint("the pool is open read-only: leave out readonly=on, or export it where it is in use"),
                _ => error,
            }
        }
        Error::Suspended { what, .. } => {
            CommandError::new(format!("{action}: pool I/O is currently suspended: {what}"))
        }
        Error::Unsupported { .. } => CommandError::new(format!("{action}: {error}")),
        Error::Device { .. } => CommandError::new(format!("{action}: I/O error: {error}"))
            .hint("'zpool status' shows which device fails"),
        Error::Corrupt { .. } => CommandError::new(format!("{action}: {error}")),
    }
}

/// Whether a limit is told not to fit: nothing was written, and no room is lacking.
fn is_of_limit(what: &str) -> bool {
    what.starts_with("size is ")
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
