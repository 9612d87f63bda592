//! `zuse check`

use clap::Args;
use zuse::Pool;
use zuse::tools::Layers as _;
use zuse_check::{Depth, Finding, Report, check_watched};

use crate::args::Devices;
use crate::error::{CommandError, Explain, Outcome};
use crate::json::Json;
use crate::nicenum::nicebytes;
use crate::progress::Progress;
use crate::session::{Need, Session};

/// How often a check is repeated if the pool changes meanwhile.
const TRIES: u32 = 3;
/// Exit status when the pool could not be checked.
const NOT_CHECKED: u8 = 3;

/// Check whether all structures of a pool agree
///
/// Every block is read, and every invariant is checked. Blocks are compared with space maps, sums
/// of space, deadlists and tables of shared blocks. ZAPs, names and links of files, usage by owners
/// and labels are checked too. Nothing is changed. Each line is a place, the name of what is broken
/// there, and the numbers; docs/check.md lists the names. The pool must not be in use: export it
/// first. Exit status: 0 sound, 1 something is broken, 2 usage, 3 the pool could not be checked.
#[derive(Args, Debug)]
pub struct Check {
    /// Leave out the contents of files and volumes
    #[arg(long)]
    metadata: bool,
    /// The result as JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// List everything that a check can find, and exit
    #[arg(long, exclusive = true)]
    list: bool,
    #[command(flatten)]
    devices: Devices,
    /// The pool
    #[arg(value_name = "POOL", required_unless_present = "list")]
    pool: Option<String>,
}

impl Check {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        if self.list {
            for finding in Finding::ALL {
                let (name, sentence) = (finding.name(), finding.sentence());
                session.ui.line(format!("{name}\t{sentence}"))?;
            }
            return Ok(());
        }
        session.look_in(&self.devices.devices);
        let name = self.pool.clone().unwrap_or_default();
        let pool = session.pool(&name, Need::Read)?;
        let report = self.look(session, &name, &pool)?;
        if report.stopped {
            let message = format!("cannot check '{name}': interrupted");
            return Err(not_checked(message).into());
        }
        if self.json {
            session.ui.line(json(&name, &report).to_string())?;
        } else {
            say(session, &name, &report)?;
        }
        match report.is_clean() {
            true => Ok(()),
            false => Err(CommandError::silent(1).into()),
        }
    }

    /// Checks the pool, and again if it has changed meanwhile.
    fn look(&self, session: &mut Session, name: &str, pool: &Pool) -> Outcome<Report> {
        let depth = match self.metadata {
            true => Depth::Metadata,
            false => Depth::All,
        };
        let cannot = || format!("cannot check '{name}'");
        let interruption = session.interruption()?;
        let progress = Progress::new(&session.ui, session.holder.is_some());
        for _ in 0..TRIES {
            if pool.is_writable() {
                pool.sync().or_cannot_pool(cannot)?;
            }
            let before = pool.uberblock().txg;
            let report = check_watched(pool.spa(), depth, &|p| {
                progress.reached(p.phase, p.done, p.total);
                !interruption.is_wanted()
            });
            let report = report.or_cannot_pool(cannot)?;
            if report.is_clean() || report.stopped || pool.uberblock().txg == before {
                return Ok(report);
            }
        }
        let error = not_checked(format!("cannot check '{name}': it is being changed"));
        Err(error
            .hint("'zpool export' it first, then 'zuse check --in DEVICE POOL'")
            .into())
    }
}

fn not_checked(message: String) -> CommandError {
    CommandError {
        code: NOT_CHECKED,
        ..CommandError::new(message)
    }
}

fn say(session: &mut Session, name: &str, report: &Report) -> Outcome {
    for problem in &report.problems {
        let line = session.ui.text(&problem.to_string()).into_owned();
        session.ui.line(line)?;
    }
    for (finding, count) in &report.counts {
        if *count > Report::MOST {
            let more = count - Report::MOST;
            session
                .ui
                .line(format!("{}: {more} more", finding.name()))?;
        }
    }
    let closed = match report.closed {
        0 => String::new(),
        n => format!("; what is inside {n} encrypted ones was not looked at"),
    };
    session.ui.line(format!(
        "{name}: {} blocks, {} objects, {} datasets and snapshots, {} allocated{closed}",
        report.blocks,
        report.objects,
        report.datasets,
        nicebytes(report.allocated),
    ))?;
    let found: u64 = report.counts.values().sum();
    let verdict = match found {
        0 => "sound".to_owned(),
        1 => "1 thing is broken".to_owned(),
        n => format!("{n} things are broken"),
    };
    session.ui.line(format!("{name}: {verdict}"))?;
    Ok(())
}

fn json(name: &str, report: &Report) -> Json {
    let text = |text: &str| Json::Text(text.to_owned());
    let problems = report.problems.iter().map(|p| {
        Json::object([
            ("name", text(p.finding.name())),
            ("sentence", text(p.finding.sentence())),
            ("place", text(&p.place)),
            ("detail", text(&p.detail)),
        ])
    });
    let counts = report.counts.iter();
    let counts = counts.map(|(finding, n)| (finding.name(), Json::Number(*n)));
    Json::object([
        ("pool", text(name)),
        ("problems", Json::Array(problems.collect())),
        ("counts", Json::object(counts)),
        ("blocks", Json::Number(report.blocks)),
        ("objects", Json::Number(report.objects)),
        ("datasets", Json::Number(report.datasets)),
        ("encrypted", Json::Number(report.closed)),
        ("allocated", Json::Number(report.allocated)),
        ("claimed", Json::Number(report.claimed)),
        ("shared", Json::Number(report.shared)),
    ])
}
