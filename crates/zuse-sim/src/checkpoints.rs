//! A pool with checkpoints against a model, with power cuts in everything.
//!
//! ```text
//!   files at work, cut ─► make, cut ─► files at work, cut ─► go back, cut │ discard, cut ─► …
//!                          └ model as of then                 └ it is the model again
//! ```
//! After each cut the pool is in one of the two states that the cut may leave: before the running
//! change, or after it. The pool itself shows which one.

use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{Errno, PoolAccess};
use zuse_base::{Entropy, ManualClock, SeededPrng, Timestamp};
use zuse_device::{BlockDevice, MemDevice, MemImage, PowerSupply, SimDisk};
use zuse_vdev::PoolState;

use crate::files::{Files, Model};
use crate::golden::open_whole;
use crate::power::{self, Rules, Workload};
use zuse_check::{Depth, check};

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Checkpoints made.
    pub made: u32,
    /// How often the pool was rewound.
    pub rewound: u32,
    /// Discards that were completed.
    pub discarded: u32,
    /// Discards that were interrupted by a cut.
    pub half: u32,
}

impl Counts {
    /// The sums of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            made: self.made + other.made,
            rewound: self.rewound + other.rewound,
            discarded: self.discarded + other.discarded,
            half: self.half + other.half,
        }
    }
}

type Found<T> = std::result::Result<T, String>;

/// A pool between two times of work.
struct Run<'a> {
    files: &'a Files,
    rules: Rules,
    prng: SeededPrng,
    clock: Arc<ManualClock>,
    images: Vec<MemImage>,
    model: Model,
    /// The model of the checkpoint, if there is one.
    kept: Option<Model>,
    counts: Counts,
}

/// Rounds of work with a checkpoint each.
///
/// # Errors
/// The first violation, as text.
pub fn rounds(files: &Files, rules: Rules, seed: u64, rounds: u32) -> Found<Counts> {
    let start = power::create(files, &rules, seed).map_err(|e| format!("create: {e}"))?;
    let mut run = Run {
        files,
        rules,
        prng: SeededPrng::new(seed),
        clock: Arc::new(ManualClock::new(Timestamp::new(1_700_001_000, 0))),
        images: start.0,
        model: start.1,
        kept: None,
        counts: Counts::default(),
    };
    for round in 0..rounds {
        let done = run.round();
        done.map_err(|e| format!("seed {seed}, round {round}: {e}"))?;
    }
    Ok(run.counts)
}

impl Run<'_> {
    fn round(&mut self) -> Found<()> {
        self.work()?;
        self.make()?;
        self.work()?;
        match self.prng.chance(1, 2) {
            true => self.go_back(),
            false => self.discard(),
        }
    }

    /// Files at work, with cuts.
    fn work(&mut self) -> Found<()> {
        let start = (self.images.clone(), self.model.clone());
        let seed = self.prng.u64();
        let (_, end) = power::chain_to(self.files, &self.rules, &start, seed)?;
        (self.images, self.model) = end;
        Ok(())
    }

    fn access(&self, writable: bool, checkpoint: bool) -> PoolAccess {
        PoolAccess {
            writable,
            checkpoint,
            ours: true,
            ..PoolAccess::default()
        }
    }

    /// Opens the pool on disks whose power fails after some operations, does something, and keeps
    /// the content of the disks. Returns whether it was completed.
    fn cut_in<R>(
        &mut self,
        checkpoint: bool,
        within: u64,
        act: impl FnOnce(&Arc<zuse::Pool>) -> zuse::Result<R>,
    ) -> bool {
        let power = PowerSupply::new();
        let disks: Vec<Arc<SimDisk>> = (0..)
            .zip(&self.images)
            .map(|(i, image)| {
                let name = format!("sim{i}");
                Arc::new(SimDisk::with_content(name, image, power.clone()))
            })
            .collect();
        let devices: Vec<_> = disks
            .iter()
            .map(|d| d.clone() as Arc<dyn BlockDevice>)
            .collect();
        power.cut_after(self.prng.below(within));
        let env = power::environment(&self.prng, &self.clock);
        let access = self.access(true, checkpoint);
        let done = open_whole(env, &devices, &access).is_ok_and(|pool| {
            // No administrator can clear a suspended pool here.
            pool.spa().set_wait_for_clear(false);
            let done = act(&pool).is_ok();
            power.cut();
            let _ = pool.spa().close(PoolState::Active);
            done
        });
        power.cut();
        self.images = disks
            .iter()
            .map(|d| d.crash(&self.prng).snapshot())
            .collect();
        done
    }

    /// Examines the pool in its present state.
    fn look<R>(
        &self,
        checkpoint: bool,
        see: impl FnOnce(&Arc<zuse::Pool>) -> Found<R>,
    ) -> Found<Option<R>> {
        let devices: Vec<Arc<dyn BlockDevice>> = (0..)
            .zip(&self.images)
            .map(|(i, image)| Arc::new(MemDevice::from_image(format!("sim{i}"), image)) as _)
            .collect();
        let env = power::environment(&self.prng, &self.clock);
        let pool = match open_whole(env, &devices, &self.access(false, checkpoint)) {
            Ok(pool) => pool,
            Err(e) if checkpoint && e.is(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(format!("the pool does not open: {e}")),
        };
        let seen = see(&pool);
        let _ = pool.spa().close(PoolState::Active);
        seen.map(Some)
    }

    fn differs(&self, pool: &Arc<zuse::Pool>, model: &Model) -> Vec<String> {
        let mut wrong = self.files.compare(pool, model);
        match check(pool.spa(), Depth::Metadata) {
            Ok(report) => wrong.extend(report.not_of_labels().iter().map(ToString::to_string)),
            Err(e) => wrong.push(e.to_string()),
        }
        wrong.truncate(12);
        wrong
    }

    /// Checks that the pool and its checkpoint match the models.
    fn check(&self) -> Found<()> {
        let whole = |wrong: Vec<String>, what: &str| match wrong.is_empty() {
            true => Ok(()),
            false => Err(format!("{what}:\n  {}", wrong.join("\n  "))),
        };
        self.look(false, |pool| whole(self.differs(pool, &self.model), "now"))?;
        let seen = self.look(true, |pool| match &self.kept {
            Some(kept) => whole(self.files.compare(pool, kept), "checkpoint"),
            None => Err("there is a checkpoint".to_owned()),
        })?;
        match (&self.kept, seen) {
            (Some(_), None) => Err("the checkpoint is gone".to_owned()),
            _ => Ok(()),
        }
    }

    fn has_checkpoint(&self) -> Found<bool> {
        Ok(self.look(true, |_| Ok(()))?.is_some())
    }

    fn make(&mut self) -> Found<()> {
        let done = self.cut_in(false, 120, |pool| pool.make_checkpoint());
        let mut there = self.has_checkpoint()?;
        if done && !there {
            return Err("the checkpoint that was made is not there".to_owned());
        }
        if !there {
            let done = self.cut_in(false, u64::MAX, |pool| pool.make_checkpoint());
            there = done && self.has_checkpoint()?;
        }
        if !there {
            return Err("no checkpoint is made with the power on".to_owned());
        }
        self.counts.made += 1;
        self.kept = Some(self.model.clone());
        self.check()
    }

    fn go_back(&mut self) -> Found<()> {
        let kept = self.kept.clone();
        let Some(kept) = kept else {
            return Err("there is nothing to go back to".to_owned());
        };
        for within in [60, u64::MAX] {
            let done = self.cut_in(true, within, |_| Ok(()));
            if !self.has_checkpoint()? {
                self.counts.rewound += 1;
                self.model = kept;
                self.kept = None;
                return self.check();
            }
            if done {
                return Err("the pool went back, and its checkpoint is still there".to_owned());
            }
            self.check()?;
        }
        Err("the pool does not go back with the power on".to_owned())
    }

    fn discard(&mut self) -> Found<()> {
        let begin = |pool: &Arc<zuse::Pool>| {
            pool.spa().set_discard_step(7);
            if pool.spa().keeps_checkpoint() {
                pool.discard_checkpoint()?;
            }
            while pool.left_to_discard()? > 0 {
                pool.sync()?;
            }
            // The txg that discarded the last range may still be on its way to the disk.
            pool.sync()
        };
        for within in [80, 80, u64::MAX] {
            let done = self.cut_in(false, within, begin);
            if !self.has_checkpoint()? {
                self.kept = None;
            } else if done {
                return Err("the checkpoint that was discarded is still there".to_owned());
            }
            self.check()?;
            if done {
                self.counts.discarded += 1;
                let left = self.look(false, |pool| pool.checkpoint().map_err(|e| e.to_string()))?;
                return match left.flatten() {
                    None => Ok(()),
                    Some(left) => Err(format!("of the discarded checkpoint is left: {left:?}")),
                };
            }
            self.counts.half += u32::from(self.kept.is_none());
            self.work()?;
        }
        Err("a discard does not end with the power on".to_owned())
    }
}
