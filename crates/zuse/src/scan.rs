//! Scrub and resilver of a pool: started here, running in the background.

use zuse_base::{Result, Txg};
use zuse_dsl::{ErrorScrub, NewScan, ScanState};

use crate::{LastScan, Pool};

const TIME_RINGS: [&str; 3] = [
    "com.klarasystems:txg_log_time:minutes",
    "com.klarasystems:txg_log_time:days",
    "com.klarasystems:txg_log_time:months",
];

impl Pool {
    /// Begins a scrub in the background, or continues a paused one. It verifies the blocks born
    /// after one txg and before another one: `Txg(0)` and `None` stand for all blocks.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("tank.img");
    /// # let pool = zuse::CreateOptions::new("tank").file(image, 64 << 20).create()?;
    /// # pool.files("tank")?.write("page", "text")?;
    /// pool.scrub(zuse::Txg(0), None)?;
    /// while pool.is_scanning() {
    ///     if let Some(scan) = pool.scan() {
    ///         println!("{} of {} bytes", scan.examined, scan.to_examine);
    ///     }
    ///     std::thread::sleep(std::time::Duration::from_millis(100));
    /// }
    /// let scan = pool.scan().ok_or("no scan")?;
    /// assert_eq!((scan.state, scan.errors), (zuse::ScanState::Finished, 0));
    /// assert!(pool.damage()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Refused(BUSY)` while another scan runs; `Refused(ROFS)`.
    pub fn scrub(&self, after: Txg, before: Option<Txg>) -> Result<()> {
        self.dsl().start_scan(NewScan::Scrub(after, before))
    }

    /// Reads the blocks of the error log again, and removes readable ones from the log.
    ///
    /// # Errors
    /// As [`Self::scrub`].
    pub fn scrub_errors(&self) -> Result<()> {
        self.dsl().start_scan(NewScan::ErrorScrub)
    }

    /// The last or current scrub of the error log.
    pub fn error_scrub(&self) -> ErrorScrub {
        self.dsl().error_scrub()
    }

    /// Whether a scan is running and not paused.
    pub fn is_scanning(&self) -> bool {
        let errors = self.error_scrub();
        self.scan()
            .is_some_and(|s| s.state == ScanState::Running && !s.paused)
            || errors.is_running() && !errors.paused
    }

    /// Pauses a scrub. Its results are kept.
    ///
    /// # Errors
    /// `Refused(NOENT)` if none is running; `Refused(BUSY)` if it is paused already.
    pub fn pause_scrub(&self) -> Result<()> {
        self.dsl().pause_scan()
    }

    /// Cancels a scrub.
    ///
    /// # Errors
    /// `Refused(NOENT)` if none is running; `Refused(BUSY)` while a resilver runs.
    pub fn cancel_scan(&self) -> Result<()> {
        self.dsl().cancel_scan()
    }

    /// Begins a resilver of all txgs that present devices lack, including devices that wait for the
    /// next resilver. A running resilver begins again, and a scrub ends. If no device lacks
    /// anything, nothing happens.
    ///
    /// # Errors
    /// `Refused(ROFS)`.
    pub fn restart_resilver(&self) -> Result<()> {
        self.dsl().restart_resilver()
    }

    /// The last or current scan; `None` if there never was one.
    pub fn scan(&self) -> Option<LastScan> {
        self.dsl().scan_status()
    }

    /// Completes a scan in the calling thread.
    ///
    /// # Errors
    /// The pool is suspended; the MOS cannot be read.
    pub fn finish_scan(&self) -> Result<()> {
        self.dsl().scan_to_the_end()
    }

    /// The txgs for a period of time, in seconds since 1970. All blocks written in it were born
    /// after the first txg and before the second. Records of old times are coarse, so the range may
    /// be too long, but not too short.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn txgs_between(&self, start: Option<u64>, end: Option<u64>) -> Result<(Txg, Option<Txg>)> {
        let points = self.dated_txgs()?;
        let dated = |at: u64| points.iter().filter(move |(time, _)| *time <= at);
        let after = start.map_or(0, |at| {
            dated(at.saturating_sub(1))
                .map(|(_, txg)| *txg)
                .max()
                .unwrap_or(0)
        });
        let before = end.and_then(|at| {
            let later = points.iter().filter(|(time, _)| *time > at);
            later.map(|(_, txg)| *txg).min()
        });
        // The txg at a point in time may also have later data.
        Ok((Txg(after.saturating_sub(1)), before.map(|txg| Txg(txg + 1))))
    }

    /// Times with their txgs: from OpenZFS's log of them, if there is one, and from the history.
    fn dated_txgs(&self) -> Result<Vec<(u64, u64)>> {
        let directory = self.spa().directory()?;
        let mut points = Vec::new();
        for ring in TIME_RINGS {
            let Some(words) = directory.lookup(ring.as_bytes())? else {
                continue;
            };
            let words = words.ints();
            let pairs = words.get(3..).unwrap_or(&[]).as_chunks::<2>().0;
            points.extend(pairs.iter().map(|[time, txg]| (*time, *txg)));
        }
        for record in self.dsl().history()? {
            let number = |name| record.get_u64(name);
            if let (Some(time), Some(txg)) = (number("history time"), number("history txg")) {
                points.push((time, txg));
            }
        }
        // Slots of a ring that were never used.
        points.retain(|(time, txg)| *time != 0 && *txg != 0);
        Ok(points)
    }

    /// As [`Self::finish_scan`], for at most that many batches.
    ///
    /// # Errors
    /// As [`Self::finish_scan`].
    pub fn scan_batches(&self, most: usize) -> Result<()> {
        self.dsl().scan_batches(most)
    }

    /// The txg up to which the last complete scrub has verified.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn last_scrubbed_txg(&self) -> Result<Txg> {
        let found = self.spa().directory()?.lookup_u64(b"last_scrubbed_txg")?;
        Ok(Txg(found.unwrap_or(0)))
    }
}
