//! What `zpool initialize` and `zpool trim` have in common.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use zuse::tools::Layers as _;
use zuse::{Pool, VdevStatus, VdevWorkKind, VdevWorkOrder};

use crate::error::{CommandError, Explain, Outcome, Stop, explain};
use crate::session::{Need, Session};

/// Polling interval for the end of the work.
const LOOK: Duration = Duration::from_millis(100);
/// The exit code of OpenZFS's commands if a device failed.
const FAILED: u8 = 255;

/// An order for devices of pools.
pub struct WorkOrder<'a> {
    /// The kind of work.
    pub kind: VdevWorkKind,
    /// Begin, or end.
    pub order: VdevWorkOrder,
    /// Return when it is done.
    pub wait: bool,
    /// The devices; all of the pool if empty.
    pub devices: &'a [String],
}

impl WorkOrder<'_> {
    fn word(&self) -> &'static str {
        match self.kind {
            VdevWorkKind::Initialize => "initialize",
            VdevWorkKind::Trim => "trim",
        }
    }

    /// Runs it on one pool.
    pub fn run(&self, session: &mut Session, name: &str) -> Outcome {
        let pool = session.pool(name, Need::Write).map_err(with_code)?;
        let devices = self.find(session, &pool)?;
        let guids: Vec<u64> = devices.iter().map(|(guid, _)| *guid).collect();
        let word = self.word();
        let cannot = || format!("cannot {word} '{name}'");
        let done = pool.order_vdev_work(self.kind, self.order, &guids);
        let done = done.or_cannot_pool(cannot).map_err(with_code)?;
        let mut failed = false;
        for ((_, device), result) in devices.iter().zip(done) {
            if let Err(error) = result {
                failed = true;
                let said = explain(&format!("cannot {word} '{device}'"), &error, true);
                crate::say_error(&mut session.ui, &said);
            }
        }
        if failed {
            return Err(CommandError::silent(FAILED).into());
        }
        session.log(&pool);
        while self.wait && pool.spa().vdev_work_left(self.kind) > 0 {
            if let Some(why) = pool.suspended() {
                return Err(why).or_cannot_pool(cannot);
            }
            session.pause(LOOK)?;
        }
        Ok(())
    }

    /// Guids and names of the devices.
    fn find(&self, session: &Session, pool: &Arc<Pool>) -> Outcome<Vec<(u64, String)>> {
        let mut all = Vec::new();
        leaves(&pool.vdev_status(), &mut all);
        if self.devices.is_empty() {
            return Ok(all);
        }
        let one = |name: &String| {
            let here = session.path(Path::new(name));
            let found = pool.find_vdev(name);
            let guid = found.or_else(|| pool.find_vdev(&here.to_string_lossy()));
            let why = match guid {
                Some(guid) if all.iter().any(|(g, _)| *g == guid) => {
                    return Ok((guid, name.clone()));
                }
                Some(_) => "invalid device",
                None => "no such device in pool",
            };
            let what = format!("cannot {} '{name}': {why}", self.word());
            Err(CommandError {
                code: FAILED,
                ..CommandError::new(what)
            }
            .into())
        };
        self.devices.iter().map(one).collect()
    }
}

fn leaves(vdev: &VdevStatus, all: &mut Vec<(u64, String)>) {
    if vdev.kind.is_device() {
        all.push((vdev.guid, vdev.name.clone()));
    }
    vdev.children.iter().for_each(|c| leaves(c, all));
}

/// A failure with the exit code of these commands.
fn with_code(stop: Stop) -> Stop {
    match stop {
        Stop::Failed(error) if error.code == 1 => CommandError {
            code: FAILED,
            ..error
        }
        .into(),
        stop => stop,
    }
}

/// Runs it on all imported pools. If another process holds a pool, the command is sent there.
pub fn each(
    session: &mut Session,
    words: &[&str],
    run: &dyn Fn(&mut Session, &str) -> Outcome,
) -> Outcome {
    for name in session.pool_names()? {
        match run(session, &name) {
            Err(Stop::Held(guid)) => {
                let mut line = vec!["zuse", "zpool"];
                line.extend(words);
                line.push(&name);
                crate::forward::command(session, guid, &line)?;
            }
            done => done?,
        }
    }
    Ok(())
}

/// Refuses options that exclude each other.
pub fn alone(letters: &[(char, bool)]) -> Outcome {
    let given: Vec<char> = letters
        .iter()
        .filter(|(_, on)| *on)
        .map(|(c, _)| *c)
        .collect();
    match given.last() {
        Some(last) if given.len() > 1 => {
            let what = format!("-{last} cannot be combined with other options");
            Err(CommandError::usage(what).into())
        }
        _ => Ok(()),
    }
}
