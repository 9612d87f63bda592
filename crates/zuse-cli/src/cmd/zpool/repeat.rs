//! What the reports of `list`, `status` and `iostat` have in common: how often they come, with
//! which time, and what vdevs go by.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::date;
use crate::error::{CommandError, Outcome};
use crate::json::Json;
use crate::query::{PoolRow, VdevRow};
use crate::session::Session;

/// How often a command reports: once, or every so many seconds, for ever or so many times.
#[derive(Debug, Default)]
pub struct Repeat {
    pause: Option<Duration>,
    count: Option<u64>,
    shown: u64,
}

impl Repeat {
    /// Takes `[INTERVAL [COUNT]]` off the words of a command.
    ///
    /// # Errors
    /// The interval is zero, or no time at all.
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

    /// Notes that a report was shown: it is on its way to the reader.
    pub fn show(&mut self, session: &mut Session) -> Outcome {
        self.shown += 1;
        session.ui.flush()?;
        Ok(())
    }

    /// Whether another report is due. Waits until it is; others may have the pools meanwhile.
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

/// What vdevs go by.
#[derive(Args, Debug, Default)]
pub struct VdevNames {
    /// Numbers of vdevs instead of names
    #[arg(short = 'g')]
    guids: bool,
    /// Links in the paths of devices are followed
    #[arg(short = 'L')]
    real: bool,
    /// Full paths; they always are
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

    /// Gives all vdevs of a pool their names; the pool keeps its own.
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
        // Names of pools, though they read as numbers elsewhere.
        assert_eq!(taken(&["nan", "inf"]), (names(&["nan", "inf"]), None, None));
        for bad in [&["0"][..], &["tank", "0", "3"], &["tank", "1", "0"]] {
            let mut words = names(bad);
            assert!(Repeat::take(&mut words).is_err(), "{bad:?}");
        }
    }
}
