//! `zfs hold`, `zfs release`, `zfs holds`

use std::sync::Arc;

use clap::Args;
use zuse::{Errno, Pool, Recursion};

use crate::date;
use crate::error::{CommandError, Explain, Outcome, Stop, explain};
use crate::session::{Need, Session};
use crate::table::{Column, Side, render};
use crate::target::pool_of;

/// Keep snapshots from being destroyed
#[derive(Args, Debug)]
pub struct Hold {
    /// Also the snapshots of that name of all descendants
    #[arg(short)]
    recursive: bool,
    /// Name of the hold
    tag: String,
    /// The snapshots
    #[arg(required = true, value_name = "DATASET@SNAPSHOT")]
    snapshots: Vec<String>,
}

/// Release a hold of snapshots
#[derive(Args, Debug)]
pub struct Release {
    /// Also the snapshots of that name of all descendants
    #[arg(short)]
    recursive: bool,
    /// Name of the hold
    tag: String,
    /// The snapshots
    #[arg(required = true, value_name = "DATASET@SNAPSHOT")]
    snapshots: Vec<String>,
}

/// List the holds of snapshots
#[derive(Args, Debug)]
pub struct Holds {
    /// Also of the snapshots of that name of all descendants
    #[arg(short)]
    recursive: bool,
    /// No header, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// Times as seconds since 1970
    #[arg(short)]
    parsable: bool,
    /// The snapshots
    #[arg(required = true, value_name = "DATASET@SNAPSHOT")]
    snapshots: Vec<String>,
}

/// The pool of snapshots, all of which must exist.
fn pool_of_all(
    session: &mut Session,
    snapshots: &[String],
    recursive: bool,
    (need, cannot): (Need, &str),
) -> Outcome<Arc<Pool>> {
    let first = snapshots.first().map_or("", String::as_str);
    for name in snapshots {
        if !name.contains('@') {
            return Err(CommandError::new(format!("'{name}' is not a snapshot")).into());
        }
        if pool_of(name) != pool_of(first) {
            return Err(CommandError::new(format!(
                "cannot open '{name}': operation crosses datasets or pools"
            ))
            .hint("name snapshots of one pool at a time")
            .into());
        }
    }
    let pool = session.pool_for(first, need)?;
    for name in snapshots.iter().filter(|_| !recursive) {
        pool.dataset(name)
            .or_cannot(|| format!("{cannot} '{name}'"))?;
    }
    Ok(pool)
}

fn quoted(snapshots: &[String]) -> String {
    snapshots.first().cloned().unwrap_or_default()
}

impl Hold {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        if self.tag.starts_with('.') {
            return Err(CommandError::usage("tag may not start with '.'").into());
        }
        let pool = pool_of_all(
            session,
            &self.snapshots,
            self.recursive,
            (Need::Write, "cannot hold snapshot"),
        )?;
        let cannot = format!("cannot hold snapshot '{}'", quoted(&self.snapshots));
        pool.hold(&self.snapshots, &self.tag, Recursion::of(self.recursive))
            .map_err(|e| {
                if e.is(Errno::EXIST) {
                    CommandError::new(format!("{cannot}: tag already exists on this dataset"))
                } else if self.tag.len() >= 256 {
                    CommandError::new(format!("{cannot}: tag too long"))
                } else {
                    explain(&cannot, &e, false)
                }
            })?;
        session.log(&pool);
        Ok(())
    }
}

impl Release {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let pool = pool_of_all(
            session,
            &self.snapshots,
            self.recursive,
            (Need::Write, "cannot open"),
        )?;
        let cannot = format!(
            "cannot release hold from snapshot '{}'",
            quoted(&self.snapshots)
        );
        pool.release(&self.snapshots, &self.tag, Recursion::of(self.recursive))
            .map_err(|e| {
                if e.is(Errno::NOENT) {
                    CommandError::new(format!("{cannot}: no such tag on this dataset"))
                } else {
                    explain(&cannot, &e, false)
                }
            })?;
        session.log(&pool);
        Ok(())
    }
}

impl Holds {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let how = (Need::Read, "cannot open");
        let pool = pool_of_all(session, &self.snapshots, self.recursive, how);
        let pool = pool.map_err(|stop| match stop {
            Stop::Failed(e) => e.hint("no datasets available").into(),
            stop => stop,
        })?;
        let holds = pool
            .holds(&self.snapshots, Recursion::of(self.recursive))
            .or_cannot(|| format!("cannot open '{}'", quoted(&self.snapshots)))?;
        let columns = ["name", "tag", "timestamp"].map(|c| Column::new(c, Side::Left));
        let rows: Vec<Vec<String>> = holds
            .into_iter()
            .map(|h| {
                let time = if self.parsable {
                    h.time.to_string()
                } else {
                    date::minutes(h.time)
                };
                vec![h.snapshot, h.tag, time]
            })
            .collect();
        if !rows.is_empty() || !self.scripted {
            let style = session.ui.style(self.scripted);
            session.ui.print(render(&columns, &rows, style))?;
        }
        Ok(())
    }
}
