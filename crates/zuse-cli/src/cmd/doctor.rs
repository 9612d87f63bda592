//! `zuse doctor`: what the system lacks, and how to provide it.

use std::fs;
use std::path::Path;

use clap::Args;

use crate::error::{CommandError, Outcome};
use crate::session::Session;

/// Lines of a host's log that are printed.
const LINES: usize = 5;
/// Open files that a host with many mounts may need; each mount needs one.
const FILES: u64 = 4096;

/// Report what this system lacks for pools and mounts, and how to install it
///
/// Ends with 1 if nothing can be mounted.
#[derive(Args, Debug)]
pub struct Doctor {}

/// How a finding is meant.
enum Kind {
    Fine,
    Hint,
    Missing,
}

/// A result, and what the user can do.
struct Finding(Kind, String, Option<&'static str>);

impl Doctor {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let mut findings = vec![fuse(), helper(), others(), files(), memory(session)?];
        findings.extend(kernel_module());
        findings.push(state(session));
        let mut missing = false;
        for Finding(kind, what, repair) in findings {
            let word = match kind {
                Kind::Fine => "fine",
                Kind::Hint => "hint",
                Kind::Missing => "MISSING",
            };
            missing |= matches!(kind, Kind::Missing);
            session.ui.line(format!("{word:<8} {what}"))?;
            if let Some(repair) = repair {
                session.ui.line(format!("         {repair}"))?;
            }
        }
        for (pool, guid) in session.state.held() {
            let log = session.state.log(guid);
            let text = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(LINES).collect();
            if lines.is_empty() {
                continue;
            }
            session.ui.line(format!(
                "The host of '{pool}' says of late ({}):",
                log.display()
            ))?;
            for line in lines.iter().rev() {
                session.ui.line(format!("         {line}"))?;
            }
        }
        match missing {
            true => Err(CommandError::silent(1).into()),
            false => Ok(()),
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn fuse() -> Finding {
    let device = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    match device {
        Ok(_) => Finding(Kind::Fine, "/dev/fuse can be opened".into(), None),
        Err(e) => Finding(
            Kind::Missing,
            format!("/dev/fuse: {e}: nothing can be mounted"),
            Some(
                "'modprobe fuse' as root; in a container: --device /dev/fuse. 'zuse ls', 'cat' and 'cp' work without",
            ),
        ),
    }
}

fn helper() -> Finding {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|dir| dir.join("fusermount3").exists());
    match (there, is_root()) {
        (true, _) => Finding(Kind::Fine, "fusermount3 is there".into(), None),
        (false, true) => Finding(
            Kind::Hint,
            "fusermount3 is not there; root needs none".into(),
            None,
        ),
        (false, false) => Finding(
            Kind::Missing,
            "fusermount3 is not there: only root can mount".into(),
            Some("Debian: apt-get install fuse3"),
        ),
    }
}

fn others() -> Finding {
    let config = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if is_root() || config.lines().any(|l| l.trim() == "user_allow_other") {
        return Finding(
            Kind::Fine,
            "other users may be let into mounts".into(),
            None,
        );
    }
    Finding(
        Kind::Hint,
        "mounts are for their own user alone".into(),
        Some("'user_allow_other' in /etc/fuse.conf lets '-o allow_other' work"),
    )
}

fn files() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    match limit.current {
        Some(n) if n < FILES => Finding(
            Kind::Hint,
            format!("a process may open {n} files; a host needs one for each mount"),
            Some("'ulimit -n' or LimitNOFILE= of its unit raises that"),
        ),
        _ => Finding(Kind::Fine, "enough files can be opened".into(), None),
    }
}

fn memory(session: &Session) -> Outcome<Finding> {
    let cache = session.tuning()?.limits.cache;
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("MemTotal:"));
    let kib: Option<u64> = line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok());
    Ok(match kib.map(|kib| kib << 10) {
        Some(all) if cache as u64 > all / 2 => Finding(
            Kind::Hint,
            "a pool's cache may take more than half of the memory".into(),
            Some("the tunable zfs_arc_max makes it smaller"),
        ),
        _ => Finding(Kind::Fine, "the memory holds a pool's cache".into(), None),
    })
}

/// A real module takes pools, too.
fn kernel_module() -> Option<Finding> {
    Path::new("/sys/module/zfs").exists().then(|| {
        let what = "a ZFS kernel module is loaded: a pool belongs to one of the two at a time";
        Finding(Kind::Hint, what.into(), None)
    })
}

fn state(session: &Session) -> Finding {
    match session.state.dir() {
        Ok(dir) => Finding(
            Kind::Fine,
            format!("state is kept in '{}'", dir.display()),
            None,
        ),
        Err(_) => Finding(
            Kind::Missing,
            "the state directory cannot be used: no pool can be imported".into(),
            Some("set XDG_STATE_HOME to a directory of yours alone"),
        ),
    }
}
