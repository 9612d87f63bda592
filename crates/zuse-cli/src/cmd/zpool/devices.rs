//! Devices that are named on command lines of `zpool attach`, `replace`, `detach`, `offline`,
//! `online`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use zuse::{AttachOptions, Errno, Error, Pool, Refusal};

use crate::error::{CommandError, Explain, Outcome, Stop, explain};
use crate::session::Session;

/// Polling interval for the end of a resilver.
const LOOK: Duration = Duration::from_millis(200);

/// The guid of a device of a pool; `cannot` begins the message if there is none.
pub fn find(session: &Session, pool: &Pool, name: &str, cannot: &str) -> Outcome<u64> {
    let path = session.path(Path::new(name)).to_string_lossy().into_owned();
    let found = pool.vdev_by_name(&path).or_else(|| pool.vdev_by_name(name));
    let found = found.or_else(|| pool.vdev_by_name(&format!("/dev/{name}")));
    let spares = pool.spares().unwrap_or_default();
    let is_spare = || spares.iter().any(|s| s.name == path || s.name == name);
    found.ok_or_else(|| {
        let why = match is_spare() {
            true => "device is reserved as a hot spare",
            false => "no such device in pool",
        };
        CommandError::new(format!("{cannot}: {why}")).into()
    })
}

/// The path of a new device: a path, or a short name below /dev.
pub fn path_of(session: &Session, word: &Path) -> PathBuf {
    let path = session.path(word);
    let short = Path::new("/dev").join(word);
    match !path.exists() && !word.to_string_lossy().starts_with('/') && short.exists() {
        true => short,
        false => path,
    }
}

/// Reports why one of several devices was refused. The command continues with the others.
pub fn say(session: &mut Session, error: &CommandError) {
    crate::say_error(&mut session.ui, error);
    session.worst = session.worst.max(error.code);
}

/// How devices may be taken.
pub fn taking(session: &Session, force: bool) -> Outcome<AttachOptions> {
    Ok(AttachOptions {
        force,
        imported: session.state.taken()?,
    })
}

/// The message if a new device is refused.
pub fn refusal(cannot: &str, error: &Error) -> CommandError {
    match error {
        Error::Refused {
            why: Refusal::Whole,
            what,
            ..
        } => CommandError::new(what.clone()),
        Error::Refused {
            errno: errno @ (Errno::BUSY | Errno::EXIST),
            why: Refusal::Plain,
            what,
        } => {
            let hint = match *errno {
                Errno::BUSY => "the following errors must be manually repaired:",
                _ => "use '-f' to override the following errors:",
            };
            CommandError::new("invalid vdev specification")
                .hint(hint)
                .hint(what.clone())
        }
        error => leaked(explain(cannot, error, true)),
    }
}

/// The exit status of `attach`, `detach` and `replace` if the pool refuses: the library's −1, as in
/// OpenZFS.
fn leaked(error: CommandError) -> CommandError {
    CommandError { code: 255, ..error }
}

/// The same for what a step of them returns.
pub fn leaking<T>(done: Outcome<T>) -> Outcome<T> {
    done.map_err(|stop| match stop {
        Stop::Failed(error) => leaked(error).into(),
        stop => stop,
    })
}

/// Waits until no device is replaced or resilvered any more.
pub fn wait(session: &Session, pool: &Arc<Pool>) -> Outcome {
    while pool.has_pending_resilver() && pool.suspended().is_none() {
        session.pause(LOOK)?;
    }
    // The labels of removed devices are updated on disk too.
    pool.sync()
        .or_cannot_pool(|| format!("cannot wait for pool '{}'", pool.name()))
}

/// Properties of new devices: there is only `ashift`, which their vdev decides.
pub fn check_options(options: &[(String, String)]) -> Outcome {
    for (name, value) in options {
        if name != "ashift" {
            return Err(CommandError::usage_alone().into());
        }
        let fits = |n: u64| n == 0 || (9..=16).contains(&n);
        if !value.parse::<u64>().is_ok_and(fits) {
            let what = format!(
                "invalid 'ashift={value}' property: only values between 9 and 16 are allowed."
            );
            return Err(CommandError::new(what).into());
        }
    }
    Ok(())
}

/// Slots are not looked at.
pub fn refuse_power(power: bool) -> Outcome {
    match power {
        true => Err(
            CommandError::new("cannot turn the power of slots on or off")
                .hint("on Linux /sys/class/enclosure does")
                .into(),
        ),
        false => Ok(()),
    }
}
