//! Everything at once, on one pool, with power cuts, against a model of every byte. Administration,
//! dedup, cloned ranges, streams, encrypted datasets, checkpoints, vdevs that were removed.
//!
//! ```text
//!   images ─► steps, cut ─► crash ─► a state that the cut may leave, the checker clean ─► …
//!                │                        └─ now and then: back to the checkpoint
//!                └─ the last time without a cut
//! ```

use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{DestroyOptions, Pool, PoolAccess, Result};
use zuse_base::{Entropy, ManualClock, SeededPrng, Timestamp};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice, MemImage, PowerSupply, SimDisk};
use zuse_format::feature::FEATURES;
use zuse_pool::VdevSpec;
use zuse_vdev::PoolState;

use crate::administration::{Administered, Administration};
use crate::clones;
use crate::golden::{Golden, open_whole};
use crate::power;

/// Parts of work in most histories; all but the last one end with a cut.
const PIECES: u64 = 2;
/// Steps of a part, at least.
const STEPS: u64 = 4;
/// The number of operations within which the power is cut.
const WITHIN: u64 = 220;
const SIZE: u64 = 128 << 20;

/// What histories did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Cuts.
    pub cuts: u64,
    /// Cuts after which the pool was newer than the last state known to be on disk.
    pub newer: u64,
    /// How often a pool was rewound to its checkpoint.
    pub rewound: u64,
    /// Checkpoints found after a cut.
    pub checkpoints: u64,
    /// Livelists, blocks with several pointers, and obsolete bytes, as the checker saw them.
    pub lists: u64,
    /// See [`Self::lists`].
    pub shared: u64,
    /// See [`Self::lists`].
    pub obsolete: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.cuts += other.cuts;
        self.newer += other.newer;
        self.rewound += other.rewound;
        self.checkpoints += other.checkpoints;
        self.lists += other.lists;
        self.shared += other.shared;
        self.obsolete += other.obsolete;
    }
}

/// Where histories begin.
pub struct Start {
    images: Vec<MemImage>,
    /// The dataset of this workload.
    top: String,
}

/// A history at work.
struct Run {
    prng: SeededPrng,
    clock: Arc<ManualClock>,
    images: Vec<MemImage>,
    top: String,
    model: Administered,
    counts: Counts,
}

type Found<T> = std::result::Result<T, String>;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::new(1_800_000_000, 0)))
}

/// A new pool: with the fast form of dedup or the old one.
fn made(ashift: u8, fast: bool) -> Result<Start> {
    let device = Arc::new(MemDevice::new("sim0", SIZE));
    let spec = VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(ashift),
    };
    let features = FEATURES.iter();
    let features = features.filter(|f| fast || f.guid != "com.klarasystems:fast_dedup");
    let env = power::environment(&SeededPrng::new(ashift.into()), &clock());
    let features = Some(features.collect());
    let pool = Pool::create_on_devices(env, "tank", vec![spec], features, &[])?;
    pool.export()?;
    Ok(Start {
        images: vec![device.snapshot()],
        top: "tank".to_owned(),
    })
}

/// A kernel's pool whose first vdev was removed and still holds referenced blocks and snapshots.
fn removed() -> Result<Start> {
    let golden = Golden::load("gone");
    let env = power::environment(&SeededPrng::new(1), &clock());
    let pool = open_whole(env, &golden.block_devices(), &access(true, false))?;
    let top = "gone/mix";
    pool.create_filesystem(top, &[], (0, 0))?;
    pool.clone_snapshot("gone/a@one", "gone/b", &[])?;
    pool.export()?;
    let images = golden.devices.iter().map(|d| d.snapshot()).collect();
    Ok(Start {
        images,
        top: top.to_owned(),
    })
}

/// Pools that histories begin with, by seed.
///
/// # Errors
/// The pools'.
pub fn starts() -> Result<Vec<Start>> {
    Ok(vec![made(12, true)?, removed()?, made(9, false)?])
}

fn access(writable: bool, checkpoint: bool) -> PoolAccess {
    PoolAccess {
        writable,
        checkpoint,
        force: true,
        ..PoolAccess::default()
    }
}

/// One history.
///
/// # Errors
/// The first violation, as text.
pub fn history(starts: &[Start], seed: u64) -> Found<Counts> {
    let start = &starts[(seed % starts.len() as u64) as usize];
    let mut run = Run {
        prng: SeededPrng::new(seed),
        clock: clock(),
        images: start.images.clone(),
        top: start.top.clone(),
        model: Administered::default(),
        counts: Counts::default(),
    };
    let pieces = PIECES + u64::from(seed.is_multiple_of(4));
    for piece in 0..pieces {
        let done = run.piece(piece + 1 < pieces);
        done.map_err(|e| format!("seed {seed}, piece {piece}: {e}"))?;
    }
    Ok(run.counts)
}

impl Run {
    fn piece(&mut self, cut: bool) -> Found<()> {
        if self.model.has_checkpoint() && self.prng.chance(1, 3) {
            self.go_back()?;
        }
        let power = PowerSupply::new();
        let disks: Vec<Arc<SimDisk>> = (0..)
            .zip(&self.images)
            .map(|(i, image)| {
                let name = format!("sim{i}");
                Arc::new(SimDisk::with_content(name, image, power.clone()))
            })
            .collect();
        if cut {
            power.cut_after(self.prng.below(WITHIN));
        }
        let trail = self.work(&disks, &power)?;
        power.cut();
        self.counts.cuts += u64::from(cut);
        self.images = disks
            .iter()
            .map(|d| d.crash(&self.prng).snapshot())
            .collect();
        self.check_image(trail)
    }

    /// Runs steps until they are done or the power fails. Returns the states that this may leave.
    fn work(&self, disks: &[Arc<SimDisk>], power: &Arc<PowerSupply>) -> Found<Vec<Administered>> {
        let devices: Vec<_> = disks
            .iter()
            .map(|d| d.clone() as Arc<dyn BlockDevice>)
            .collect();
        let env = power::environment(&self.prng, &self.clock);
        let lost = |e: zuse::Error| match power.is_on() {
            true => Err(e.to_string()),
            false => Ok(()),
        };
        let pool = match open_whole(env, &devices, &access(true, false)) {
            Ok(pool) => pool,
            Err(e) => return lost(e).map(|()| vec![self.model.clone()]),
        };
        pool.spa().set_wait_for_clear(false);
        let seed = self.prng.u64();
        let mut work = Administration::mixed(&pool, &self.top, seed, self.model.clone());
        let done = clones::switch_on(&pool)
            .and_then(|()| work.load_keys())
            .and_then(|()| work.clear_partial())
            .and_then(|()| self.touch_old(&pool))
            .and_then(|()| work.run(STEPS + self.prng.below(4)));
        let trail = work.trail();
        drop(work);
        let end = match (done, power.is_on()) {
            (Ok(()), true) => pool.export(),
            (done, _) => {
                let _ = pool.spa().close(PoolState::Active);
                done
            }
        };
        end.or_else(lost)?;
        Ok(trail)
    }

    /// Changes data that the kernel had written to the removed vdev.
    fn touch_old(&self, pool: &Arc<Pool>) -> Result<()> {
        let root = zuse::Credentials::root();
        for name in ["gone/a", "gone/b"] {
            if !self.top.starts_with("gone") || self.prng.chance(1, 2) {
                continue;
            }
            let Ok(fs) = pool.file_system(name) else {
                continue;
            };
            let dir = fs.root()?;
            for number in 0..40 {
                let file = format!("f{number}");
                if fs.resolve(&root, file.as_bytes()).is_ok() && self.prng.chance(1, 6) {
                    fs.unlink(&root, &dir, file.as_bytes())?;
                }
            }
        }
        match self.prng.below(8) {
            0 => pool.destroy_dataset("gone/b", DestroyOptions::ONE),
            1 => pool.destroy_snapshots(&["gone/a@two".to_owned()], DestroyOptions::ONE),
            _ => Ok(()),
        }
        .or_else(|e| match e {
            zuse::Error::Refused { .. } => Ok(()),
            other => Err(other),
        })
    }

    /// Examines the pool in its present state, without changing it.
    fn look<R>(&self, checkpoint: bool, see: impl FnOnce(&Arc<Pool>) -> Found<R>) -> Found<R> {
        let devices: Vec<Arc<dyn BlockDevice>> = (0..)
            .zip(&self.images)
            .map(|(i, image)| Arc::new(MemDevice::from_image(format!("sim{i}"), image)) as _)
            .collect();
        let env = power::environment(&self.prng, &self.clock);
        let pool = open_whole(env, &devices, &access(false, checkpoint));
        let pool = pool.map_err(|e| format!("the pool does not open: {e}"))?;
        let seen = see(&pool);
        let _ = pool.spa().close(PoolState::Active);
        seen
    }

    fn check_image(&mut self, trail: Vec<Administered>) -> Found<()> {
        let report = self.look(false, |pool| {
            let report = check(pool.spa(), Depth::Metadata).map_err(|e| e.to_string())?;
            let mut wrong: Vec<String> = (report.not_of_labels().iter())
                .map(ToString::to_string)
                .collect();
            wrong.truncate(12);
            match wrong.is_empty() {
                true => Ok(report),
                false => Err(format!("the checker finds:\n  {}", wrong.join("\n  "))),
            }
        })?;
        self.counts.lists += report.livelists;
        self.counts.shared += u64::from(report.shared > 0);
        self.counts.obsolete += u64::from(report.obsolete > 0);
        let mut flaws = Vec::new();
        // The newest first.
        for (age, model) in trail.iter().rev().enumerate() {
            let agrees = self.look(false, |pool| {
                let same = Administration::mixed(pool, &self.top, 0, model.clone());
                same.check_reopened().map_err(|e| e.to_string())
            });
            match agrees {
                Ok(()) => {
                    self.counts.newer += u64::from(trail.len() > 1 && age == 0);
                    self.model = model.clone();
                    return self.check_checkpoint();
                }
                Err(e) => flaws.push(e),
            }
        }
        Err(format!("none of its states:\n  {}", flaws.join("\n  ")))
    }

    /// The checkpoint, if there is one, is as it was made.
    fn check_checkpoint(&mut self) -> Found<()> {
        let Some(kept) = self.model.checkpoint().cloned() else {
            return Ok(());
        };
        self.counts.checkpoints += 1;
        self.look(true, |pool| {
            let same = Administration::mixed(pool, &self.top, 0, kept);
            same.check_checkpoint()
                .map_err(|e| format!("checkpoint: {e}"))
        })
    }

    fn go_back(&mut self) -> Found<()> {
        let Some(kept) = self.model.checkpoint().cloned() else {
            return Ok(());
        };
        let devices: Vec<Arc<MemDevice>> = (0..)
            .zip(&self.images)
            .map(|(i, image)| Arc::new(MemDevice::from_image(format!("sim{i}"), image)))
            .collect();
        let all: Vec<_> = (devices.iter())
            .map(|d| d.clone() as Arc<dyn BlockDevice>)
            .collect();
        let env = power::environment(&self.prng, &self.clock);
        open_whole(env, &all, &access(true, true))
            .and_then(|pool| pool.export())
            .map_err(|e| format!("going back: {e}"))?;
        self.images = devices.iter().map(|d| d.snapshot()).collect();
        self.counts.rewound += 1;
        self.check_image(vec![kept])
    }
}
