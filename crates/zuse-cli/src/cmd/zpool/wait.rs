//! `zpool wait`

use std::time::Duration;

use clap::Args;

use zuse::VdevWorkKind;
use zuse::tools::Layers as _;

use super::repeat::Stamp;
use crate::args::parts;
use crate::error::{CommandError, Explain, Outcome};
use crate::nicenum::nicenum;
use crate::session::{Need, Session};

/// Wait until background work of a pool is done
///
/// Zuse frees, discards checkpoints, scrubs, resilvers, replaces, initializes and trims. It does
/// not continue removals and expansions of another host, and refuses to wait for an unfinished one.
#[derive(Args, Debug)]
pub struct Wait {
    /// With an interval: no header, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// With an interval: exact numbers
    #[arg(short)]
    parsable: bool,
    #[command(flatten)]
    stamp: Stamp,
    /// What to wait for: discard, free, initialize, replace, remove, resilver, scrub, trim,
    /// raidz_expand, condense; all by default
    #[arg(short = 't', value_name = "ACTIVITY,…")]
    activities: Option<String>,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: String,
    /// Seconds between reports of the remaining work
    #[arg(value_name = "INTERVAL", value_parser = seconds)]
    interval: Option<f64>,
}

/// An interval: what is none is one operand too many.
fn seconds(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "too many arguments".into())
}

const ACTIVITIES: [&str; 10] = [
    "discard",
    "free",
    "initialize",
    "replace",
    "remove",
    "resilver",
    "scrub",
    "trim",
    "raidz_expand",
    // Nothing is condensed in the background here.
    "condense",
];

/// Minimum characters of a column, and those between columns.
const MIN_WIDTH: usize = 6;
const GAP: usize = 2;

/// Work of a pool that Zuse does.
#[derive(Clone, Copy)]
enum Work {
    Discard,
    Free,
    Resilver,
    Scrub,
    Initialize,
    Replace,
    Trim,
}

/// Polling interval for a scan.
const LOOK: Duration = Duration::from_millis(100);

impl Work {
    const ALL: [Self; 7] = [
        Self::Discard,
        Self::Free,
        Self::Initialize,
        Self::Replace,
        Self::Resilver,
        Self::Scrub,
        Self::Trim,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Discard => "discard",
            Self::Free => "free",
            Self::Resilver => "resilver",
            Self::Scrub => "scrub",
            Self::Initialize => "initialize",
            Self::Replace => "replace",
            Self::Trim => "trim",
        }
    }

    /// Its remaining bytes.
    fn left(self, pool: &zuse::Pool) -> zuse::Result<u64> {
        match self {
            Self::Discard => pool.left_to_discard(),
            Self::Free => pool.dsl().waiting_frees(),
            Self::Scrub => Ok(left_to_scan(pool, 1)),
            // Devices are whole when no further one is needed, and not when this one has ended.
            Self::Resilver => pool.resilver_waiting().map(|()| left_to_scan(pool, 2)),
            Self::Replace if pool.is_replacing() => Ok(left_to_scan(pool, 2).max(1)),
            Self::Replace => Ok(0),
            Self::Initialize => Ok(pool.spa().vdev_work_left(VdevWorkKind::Initialize)),
            Self::Trim => Ok(pool.spa().vdev_work_left(VdevWorkKind::Trim)),
        }
    }

    /// Whether each txg does a part of it.
    fn is_by_txg(self) -> bool {
        matches!(self, Self::Discard | Self::Free)
    }
}

/// Bytes that a scan has still to read; 0 if no scan of that number is running.
fn left_to_scan(pool: &zuse::Pool, function: u64) -> u64 {
    let scan = pool
        .scan()
        .filter(|s| s.state == zuse::ScanState::Running && !s.paused);
    let scan = scan.filter(|s| s.function.number() == function);
    scan.map_or(0, |s| {
        let all = s.to_examine.saturating_sub(s.skipped);
        all.saturating_sub(s.issued).max(1)
    })
}

impl Wait {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let wanted = match &self.activities {
            Some(text) => parts(text),
            None => ACTIVITIES.iter().map(ToString::to_string).collect(),
        };
        if let Some(odd) = wanted.iter().find(|a| !ACTIVITIES.contains(&a.as_str())) {
            return Err(CommandError::usage(format!("invalid activity '{odd}'")).into());
        }
        let pause = match self.interval {
            None => None,
            Some(seconds) => Some(
                Duration::try_from_secs_f64(seconds)
                    .ok()
                    .filter(|p| !p.is_zero())
                    .ok_or_else(|| CommandError::usage("interval cannot be zero"))?,
            ),
        };
        let name = &self.pool;
        let cannot = || format!("cannot wait for pool '{name}'");
        let pool = session.pool(name, Need::Write)?;
        let status = pool.vdev_status();
        let unfinished = |v: &zuse::VdevStatus| v.removing;
        if wanted.iter().any(|a| a == "remove") && status.children.iter().any(unfinished) {
            return Err(CommandError::new(format!(
                "{}: a removal that another host began does not go on here",
                cannot()
            ))
            .into());
        }
        // Activities that are running, in the order of the columns.
        let asked = |w: &Work| wanted.iter().any(|a| a == w.name());
        let works: Vec<Work> = Work::ALL.into_iter().filter(asked).collect();
        let mut shown = false;
        while !works.is_empty() {
            let left: Vec<u64> = works
                .iter()
                .map(|work| work.left(&pool).or_cannot_pool(cannot))
                .collect::<Outcome<_>>()?;
            let all: u64 = left.iter().fold(0, |sum, n| sum.saturating_add(*n));
            if let Some(pause) = pause {
                let cells = self.columns(&wanted, &works, &left);
                self.report(session, &cells, !shown)?;
                shown = true;
                if all > 0 {
                    session.pause(pause)?;
                }
            }
            if all == 0 {
                return Ok(());
            }
            if let Some(why) = pool.dsl().stuck() {
                return Err(CommandError::new(format!("{}: {why}", cannot())).into());
            }
            let by_txg = works.iter().zip(&left);
            if by_txg
                .into_iter()
                .any(|(work, left)| work.is_by_txg() && *left > 0)
            {
                // Each txg does a part, and an idle pool has none of its own accord.
                pool.sync().or_cannot_pool(cannot)?;
                // It ends the command once its client has disconnected.
                session.pause(Duration::ZERO)?;
            } else {
                session.pause(LOOK)?;
            }
        }
        Ok(())
    }

    /// The activities that have a column, with the bytes that are left: those of OpenZFS 2.3, and
    /// others that were named.
    fn columns(&self, wanted: &[String], works: &[Work], left: &[u64]) -> Vec<(&'static str, u64)> {
        let named = self.activities.is_some();
        let is_shown =
            |name: &&str| wanted.iter().any(|word| word == name) && (named || *name != "condense");
        let left_of = |name: &str| {
            let place = works.iter().position(|work| work.name() == name);
            place.and_then(|at| left.get(at)).copied().unwrap_or(0)
        };
        let shown = ACTIVITIES.into_iter().filter(is_shown);
        shown.map(|name| (name, left_of(name))).collect()
    }

    /// Prints bytes that are left, below the names of the activities.
    fn report(&self, session: &mut Session, cells: &[(&str, u64)], first: bool) -> Outcome {
        if let Some(time) = self.stamp.line() {
            session.ui.line(time)?;
        }
        let row = |text: &dyn Fn(&str, u64) -> String| {
            let cells = cells.iter().map(|(name, left)| {
                let text = text(name, *left);
                match self.scripted {
                    true => text,
                    false => format!("{text:>width$}", width = name.len().max(MIN_WIDTH) + GAP),
                }
            });
            let gap = if self.scripted { "\t" } else { "" };
            cells.collect::<Vec<_>>().join(gap)
        };
        if first && !self.scripted {
            session.ui.line(row(&|name, _| name.to_uppercase()))?;
        }
        session.ui.line(row(&|_, left| match self.parsable {
            true => left.to_string(),
            false => nicenum(left),
        }))?;
        session.ui.flush()?;
        Ok(())
    }
}
