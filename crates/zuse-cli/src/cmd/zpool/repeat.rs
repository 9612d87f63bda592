//! What the reports of `list`, `status` and `iostat` share: the interval, the time stamp, and the
//! names of vdevs.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::date;
use crate::error::{CommandError, Outcome};
use crate::json::Json;
use crate::query::{PoolRow, VdevRow};
use crate::session::Session;

/// How often a command reports: once, or at an interval, without end or for a number of reports.
#[derive(Debug, Default)]
pub struct Repeat {
    pause: Option<Duration>,
    count: Option<u64>,
    shown: u64,
}

impl Repeat {
    /// Removes `[INTERVAL [COUNT]]` from the operands of a command.
    ///
    /// # Errors
    /// The interval is zero, or not a time.
    pub fn take(words: &mut Vec<String>) -> Outcome<Self> {
        let mut numbers = Vec::new();
        while numbers.len() < 2
            && let Some(n) = words.last().and_then(|w| number(w))
        {
            numbers.push(n);
            words.pop();
        }
        let count = (numbers.len() == 2).then(|| numbers.remove(0) as u64);
        let Some(seconds) = numbers.pop() else {
            return Ok(Self::default());
        };
        if seconds == 0.0 || count == Some(0) {
            return Err(CommandError::usage("interval cannot be zero").into());
        }
        let pause = Duration::try_from_secs_f64(seconds)
            .map_err(|_| CommandError::usage("invalid interval"))?;
        Ok(Self {
            pause: Some(pause),
            count,
            shown: 0,
        })
    }

    /// Whether there is an interval.
    pub fn repeats(&self) -> bool {
        self.pause.is_some()
    }

    /// Reports shown so far.
    pub fn shown(&self) -> u64 {
        self.shown
    }

    /// Flushes a report, and counts it.
    pub fn show(&mut self, session: &mut Session) -> Outcome {
        self.shown += 1;
        session.ui.flush()?;
        Ok(())
    }

    /// Waits for the next report, and returns whether there is one. Other commands may use the
    /// pools meanwhile.
    pub fn again(&self, session: &mut Session) -> Outcome<bool> {
        let Some(pause) = self
            .pause
            .filter(|_| self.count.is_none_or(|n| self.shown < n))
        else {
            return Ok(false);
        };
        session.finish()?;
        session.pause(pause)?;
        Ok(true)
    }
}

/// A word that is a number; `nan` and `inf` are names of pools.
fn number(word: &str) -> Option<f64> {
    let is_number = word.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    is_number.then(|| word.parse().ok()).flatten()
}

/// The time before a report.
#[derive(Args, Debug, Default)]
pub struct Stamp {
    /// A time before each report: d as a date, u in seconds
    #[arg(short = 'T', value_name = "d|u", value_parser = ["d", "u"])]
    time: Option<String>,
}

impl Stamp {
    /// The line, if one is asked for.
    pub fn line(&self) -> Option<String> {
        let form = self.time.as_deref()?;
        Some(match form {
            "u" => now().to_string(),
            _ => date::seconds(now()),
        })
    }

    /// The same for JSON, with its key.
    pub fn json(&self, as_int: bool) -> Option<(String, Json)> {
        let form = self.time.as_deref()?;
        let time = match form {
            "u" => Json::number(now(), as_int),
            _ => Json::Text(date::seconds(now())),
        };
        Some(("time".to_owned(), time))
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}

/// The form of vdev names.
#[derive(Args, Debug, Default)]
pub struct VdevNames {
    /// Vdevs by guid instead of name
    #[arg(short = 'g')]
    guids: bool,
    /// Paths of devices with their links followed
    #[arg(short = 'L')]
    real: bool,
    /// Accepted: paths are always full
    #[arg(short = 'P')]
    full: bool,
}

impl VdevNames {
    /// The name of one.
    pub fn of(&self, vdev: &VdevRow) -> String {
        if self.guids {
            return vdev.guid.to_string();
        }
        let real = || std::fs::canonicalize(Path::new(&vdev.name)).ok();
        match self.real && vdev.name.starts_with('/') {
            true => real().map_or_else(|| vdev.name.clone(), |p| p.display().to_string()),
            false => vdev.name.clone(),
        }
    }

    /// Sets the printed names of all vdevs of a pool; the pool's own are kept.
    pub fn put_on(&self, pool: &mut PoolRow) {
        let all = pool.vdevs.children.iter_mut();
        for vdev in all.chain(&mut pool.cache).chain(&mut pool.spares) {
            self.put_below(vdev);
        }
    }

    fn put_below(&self, vdev: &mut VdevRow) {
        vdev.name = self.of(vdev);
        vdev.children.iter_mut().for_each(|c| self.put_below(c));
    }
}

#[cfg(test)]
mod tests {
    use super::Repeat;

    fn taken(words: &[&str]) -> (Vec<String>, Option<f64>, Option<u64>) {
        let mut words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let repeat = Repeat::take(&mut words).expect("good words");
        (words, repeat.pause.map(|p| p.as_secs_f64()), repeat.count)
    }

    #[test]
    fn interval_and_count_come_last() {
        let names = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(taken(&["tank"]), (names(&["tank"]), None, None));
        assert_eq!(taken(&["tank", "2"]), (names(&["tank"]), Some(2.0), None));
        assert_eq!(
            taken(&["a", ".5", "3"]),
            (names(&["a"]), Some(0.5), Some(3))
        );
        // Names of pools, though Rust parses them as numbers.
        assert_eq!(taken(&["nan", "inf"]), (names(&["nan", "inf"]), None, None));
        for bad in [&["0"][..], &["tank", "0", "3"], &["tank", "1", "0"]] {
            let mut words = names(bad);
            assert!(Repeat::take(&mut words).is_err(), "{bad:?}");
        }
    }
}
