//! The checkpoint of a pool: a state to which the whole pool can be rewound (chapter 01 §8 of the
//! format notes).
//!
//! ```text
//!  none ──make──▶ kept: directory key = uberblock of txg C, feature counted
//!   ▲               │ discard: the key goes, blocks born up to C may be freed again
//!   └── maps empty ─▼ discarding: no key, feature counted; some entries of the maps in each txg
//! ```
//!
//! Invariants
//! - The checkpoint is created before anything of its txg is written. Every block of the stored
//!   uberblock was born in C or before, every later block after C.
//! - While it exists no block born up to C is overwritten ([`crate::Allocator`]).
//! - The key is removed before any of its blocks is freed. After a power cut between the two, the
//!   discard continues at the next import.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use zuse_base::sync::Mutex;
use zuse_base::{Errno, Error, ObjectId, Refusal, Result, Txg};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_format::uberblock::Uberblock;
use zuse_vdev::VdevKind;

use crate::allocator::{Discarding, SideKind};
use crate::space_map::MosWriter;
use crate::{Pool, SyncCtx};

/// Key in the MOS directory: the uberblock to rewind to.
const KEY: &[u8] = b"com.delphix:zpool_checkpoint";
const FEATURE: &str = "com.delphix:zpool_checkpoint";
/// The name of a discard in the history.
const DISCARD: &str = "spa discard checkpoint";
/// Entries of the checkpoint's maps that one txg frees: two blocks of them.
const STEP: usize = 2 * 16384;

/// The checkpoint of an open pool.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    kept: AtomicBool,
    discarding: AtomicBool,
    step: AtomicUsize,
    /// The error that stops the discard until the pool is opened again.
    trouble: Mutex<Option<Error>>,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self {
            kept: AtomicBool::new(false),
            discarding: AtomicBool::new(false),
            step: AtomicUsize::new(STEP),
            trouble: Mutex::new(None),
        }
    }
}

fn refused(errno: Errno, what: &str) -> Error {
    Error::refused_for(Refusal::Known, errno, what)
}

impl Pool {
    /// Whether the pool has a checkpoint to rewind to.
    pub fn keeps_checkpoint(&self) -> bool {
        self.checkpoint.kept.load(Relaxed)
    }

    /// Whether a checkpoint is being discarded.
    pub fn is_discarding(&self) -> bool {
        self.checkpoint.discarding.load(Relaxed)
    }

    /// The error that stops a discard, if any.
    pub fn discard_trouble(&self) -> Option<Error> {
        self.checkpoint.trouble.lock().clone()
    }

    /// Limits the entries that one txg removes from the checkpoint's maps.
    pub fn set_discard_step(&self, entries: usize) {
        self.checkpoint.step.store(entries.max(1), Relaxed);
    }

    /// The uberblock of the checkpoint, if the pool has one.
    ///
    /// # Errors
    /// It cannot be read, or is invalid.
    pub fn checkpointed(&self) -> Result<Option<Uberblock>> {
        let place = || format!("pool {}, checkpoint", self.name());
        let ints = match self.directory()?.lookup(KEY)? {
            None => return Ok(None),
            Some(ZapValue::Array { int_size: 8, ints }) => ints,
            Some(_) => return Err(Error::corrupt(place(), "it is no uberblock")),
        };
        let bytes: Vec<u8> = ints.iter().flat_map(|w| w.to_le_bytes()).collect();
        let (uberblock, _) = Uberblock::parse(&bytes).map_err(|e| e.at(place()))?;
        // A checkpoint cannot be newer than the pool, so these bytes do not belong to this pool.
        if uberblock.txg == 0 || uberblock.txg >= self.uberblock().txg {
            let what = format!("it is of txg {}", uberblock.txg);
            return Err(Error::corrupt(place(), what));
        }
        Ok(Some(uberblock))
    }

    /// Finds the checkpoint of a pool that was opened for writing, or a discard in progress.
    pub(crate) fn open_checkpoint(&self) -> Result<()> {
        self.open_kept_maps()?;
        let Some(allocator) = self.allocator.get() else {
            return Ok(());
        };
        if let Some(uberblock) = self.checkpointed()? {
            if !self.features.is_active(FEATURE) {
                let place = format!("pool {}, checkpoint", self.name());
                return Err(Error::contradiction(place, "its feature is not in use"));
            }
            allocator.set_checkpoint(Txg(uberblock.txg));
            self.checkpoint.kept.store(true, Relaxed);
        // A discard was interrupted. Its first step removed the uberblock, and the feature stays
        // active until all maps are empty.
        } else if self.features.is_active(FEATURE) {
            self.checkpoint.discarding.store(true, Relaxed);
        }
        Ok(())
    }

    /// Opens the checkpoint's maps, existing or future ones, in the allocator.
    fn open_kept_maps(&self) -> Result<()> {
        let Some(allocator) = self.allocator.get() else {
            return Ok(());
        };
        for top in self.vdevs.tops().iter().filter(|t| t.is_concrete()) {
            let (zap, map) = self.side_map(top.id(), SideKind::Kept)?;
            allocator.open_kept(top.id(), zap, map)?;
        }
        Ok(())
    }

    /// The ZAP of a top-level vdev (0 for none), and the map that it names.
    pub(crate) fn side_map(
        &self,
        vdev: u32,
        kind: SideKind,
    ) -> Result<(ObjectId, Option<ObjectId>)> {
        let config = self.config.lock();
        let node = config.vdev_tree.children.get(vdev as usize);
        let zap = ObjectId(node.and_then(|n| n.zap_top).unwrap_or(0));
        // Released before the MOS is read.
        drop(config);
        if zap == ObjectId::ZERO {
            return Ok((zap, None));
        }
        let found = Zap::open(&self.mos().dnode(zap)?)?.lookup_u64(kind.key().as_bytes())?;
        Ok((zap, found.map(ObjectId)))
    }

    /// Creates a checkpoint of the pool as of its last uberblock. Returns that uberblock's txg.
    ///
    /// # Errors
    /// `Refused(EXIST)` if there is a checkpoint, `Refused(BUSY)` during a discard,
    /// `Refused(NOTSUP)` without the feature, `Refused(ROFS)`.
    pub fn make_checkpoint(self: &Arc<Self>) -> Result<Txg> {
        let check = |ctx: &SyncCtx<'_>| ctx.pool.check_checkpoint();
        let apply = |ctx: &SyncCtx<'_>| {
            let pool = ctx.pool;
            assert!(
                !pool.mos().is_dirty(ctx.txg),
                "a checkpoint is made after its txg began to be written"
            );
            let last = pool.uberblock();
            let stored = Uberblock {
                checkpoint_txg: last.txg,
                ..last
            };
            let value = ZapValue::Array {
                int_size: 8,
                ints: stored.to_words().to_vec(),
            };
            // A map of an earlier checkpoint may still exist, empty.
            pool.open_kept_maps()?;
            pool.directory()?.add(ctx.tx, KEY, &value)?;
            pool.features.add(ctx, FEATURE, 1)?;
            if let Some(allocator) = pool.allocator.get() {
                // Before any free of this txg: from now on blocks of that txg or before are kept.
                allocator.set_checkpoint(Txg(last.txg));
            }
            pool.checkpoint.kept.store(true, Relaxed);
            let text = format!("checkpointed uberblock txg={}", last.txg);
            pool.hooks.record(ctx, "spa checkpoint", &text)?;
            Ok(Txg(last.txg))
        };
        self.early_task(check, apply)
    }

    fn check_checkpoint(&self) -> Result<()> {
        if !self.features.is_enabled(FEATURE) {
            let what = "operation not supported on this type of pool";
            return Err(refused(Errno::NOTSUP, what));
        }
        if self.keeps_checkpoint() {
            return Err(refused(Errno::EXIST, "checkpoint exists"));
        }
        if self.is_discarding() {
            return Err(refused(Errno::BUSY, "currently discarding checkpoint"));
        }
        let config = self.config.lock();
        for (top, node) in self.vdevs.tops().iter().zip(&config.vdev_tree.children) {
            if top.is_removing() {
                return Err(refused(Errno::BUSY, "device removal in progress"));
            }
            if matches!(
                node.kind,
                VdevKind::Raidz {
                    expanding: true,
                    ..
                }
            ) {
                return Err(refused(Errno::BUSY, "raidz expansion in progress"));
            }
            // The map of kept space covers a whole vdev, and one word has 47 bits for the sector.
            let wide = self.features.is_active("com.delphix:spacemap_v2");
            if !wide && top.asize() >> top.ashift().min(16) >= 1 << 47 {
                return Err(refused(Errno::NOTSUP, "device exceeds supported size"));
            }
        }
        Ok(())
    }

    /// Discards the checkpoint. Blocks that only it has are freed in the following txgs. Returns
    /// once that has begun.
    ///
    /// # Errors
    /// `Refused(NOENT)` without a checkpoint; `Refused(ROFS)`.
    pub fn discard_checkpoint(self: &Arc<Self>) -> Result<()> {
        let check = |ctx: &SyncCtx<'_>| match ctx.pool.keeps_checkpoint() {
            true => Ok(()),
            false if ctx.pool.is_discarding() => {
                Err(refused(Errno::BUSY, "currently discarding checkpoint"))
            }
            false => Err(refused(Errno::NOENT, "checkpoint does not exist")),
        };
        let apply = |ctx: &SyncCtx<'_>| {
            // First, rewinding becomes impossible. Then its blocks are freed, over many txgs.
            ctx.pool.directory()?.remove(ctx.tx, KEY)?;
            if let Some(allocator) = ctx.pool.allocator.get() {
                allocator.set_checkpoint(Txg::ZERO);
            }
            ctx.pool.checkpoint.kept.store(false, Relaxed);
            ctx.pool.checkpoint.discarding.store(true, Relaxed);
            let text = "started discarding checkpointed state from the pool";
            ctx.pool.hooks.record(ctx, DISCARD, text)
        };
        self.early_task(check, apply)
    }

    /// Frees some blocks of a discarded checkpoint, in the syncing txg.
    pub(crate) fn discard_some(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        let Some(allocator) = self.allocator.get().filter(|_| self.is_discarding()) else {
            return Ok(());
        };
        let writer = MosWriter::new(self.mos(), ctx.tx);
        let step = self.checkpoint.step.load(Relaxed);
        match allocator.discard_some(&writer, step)? {
            Discarding::More => return Ok(()),
            Discarding::Done => {
                // All uses: each vdev with a map may have counted one.
                let uses = i64::try_from(self.features.refcount(FEATURE)).unwrap_or(1);
                self.features.add(ctx, FEATURE, -uses)?;
                let text = "finished discarding checkpointed state from the pool";
                self.hooks.record(ctx, DISCARD, text)?;
            }
            // A map that cannot be read costs only its space.
            Discarding::Stuck(error) => *self.checkpoint.trouble.lock() = Some(error),
        }
        self.checkpoint.discarding.store(false, Relaxed);
        Ok(())
    }
}
