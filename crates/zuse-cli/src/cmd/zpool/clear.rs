//! `zpool clear`

use clap::Args;

use crate::error::{CommandError, Explain, Outcome};
use crate::query::VdevRow;
use crate::session::{Need, Session};

/// Reset error counts, and resume a suspended pool
#[derive(Args, Debug)]
pub struct Clear {
    /// The pool
    pool: String,
    /// One device, by path or guid; all by default
    device: Option<String>,
}

impl Clear {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let name = &self.pool;
        let pool = session.pool(name, Need::Write)?;
        let guid = match &self.device {
            None => None,
            Some(device) => {
                let tree = VdevRow::of(&pool.vdev_status());
                let path = session.path(device.as_ref()).to_string_lossy().into_owned();
                let found = find(&tree, &path).or_else(|| find(&tree, device));
                Some(found.ok_or_else(|| {
                    CommandError::new(format!(
                        "cannot clear errors for {device}: no such device in pool"
                    ))
                })?)
            }
        };
        let was_suspended = pool.suspended().is_some();
        pool.clear(guid)
            .or_cannot_pool(|| format!("cannot clear errors for {name}"))?;
        if !was_suspended {
            // The pool may be suspended again in a moment: then the note would have to wait, and
            // this command with it.
            session.log(&pool);
        }
        Ok(())
    }
}

fn find(vdev: &VdevRow, name: &str) -> Option<u64> {
    if vdev.name == name || vdev.guid.to_string() == name {
        return Some(vdev.guid);
    }
    vdev.children.iter().find_map(|c| find(c, name))
}
