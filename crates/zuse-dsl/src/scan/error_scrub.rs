//! The error scrub: blocks of the error log are read again, and removed from the log if they are
//! readable. Chapter 04b §3.6 of the format notes.
//!
//! The position on disk is always the beginning of the log, in which only lost blocks remain. So a
//! kernel can continue from there.

use std::collections::BTreeSet;

use zuse_base::{Errno, Error, Place, Refusal, Result};
use zuse_dmu::zap::ZapValue;
use zuse_format::dnode::{SLOTS_PER_BLOCK, scan_block};
use zuse_format::{BlockPointer, BpKind, DnodePhys, ObjsetPhys};
use zuse_io::{LostBlock, Pipeline};

use super::ERROR_SCRUB;
use super::record::{Function, Record};
use super::state::ScanState;
use super::stop::Stop;
use super::verifier::{Counts, ROOT_LEVEL, VerifiedBlock, Verifier};
use crate::context::{Ctx, Dsl};

const SPILL: u64 = u64::MAX - 1;
/// Entries that are checked between two txgs.
const AT_ONCE: usize = 256;
/// Datasets that are searched for one block, at most.
const HOLDERS: usize = 1000;

/// The array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorScrub {
    /// What it is doing, or how it ended.
    pub state: ScanState,
    /// Seconds since 1970 of its begin.
    pub start: u64,
    /// Seconds since 1970 of its end; 0 while it runs.
    pub end: u64,
    /// Blocks of the log.
    pub to_examine: u64,
    /// Blocks read.
    pub examined: u64,
    /// Blocks that stay lost.
    pub errors: u64,
    /// It pauses.
    pub paused: bool,
}

impl ErrorScrub {
    pub(super) fn parse(words: &[u64]) -> Self {
        let at = |i: usize| words.get(i).copied().unwrap_or(0);
        Self {
            state: ScanState::of(at(1)),
            start: at(3),
            end: at(4),
            to_examine: at(5),
            examined: at(6),
            errors: at(7),
            paused: at(8) != 0,
        }
    }

    fn words(&self) -> Vec<u64> {
        // OpenZFS continues from this place of the log (04b §3.6).
        let cursor = 0;
        vec![
            Function::ErrorScrub.number(),
            self.state.number(),
            cursor,
            self.start,
            self.end,
            self.to_examine,
            self.examined,
            self.errors,
            u64::from(self.paused),
        ]
    }

    /// Whether it is running or paused.
    pub fn is_running(&self) -> bool {
        self.state == ScanState::ErrorScrubbing
    }
}

impl Ctx<'_> {
    fn put_error_scrub(&self, record: ErrorScrub) -> Result<()> {
        let words = ZapValue::Array {
            int_size: 8,
            ints: record.words(),
        };
        self.dsl.scan.state.lock().error_scrub = record;
        self.meta.directory()?.put(self.tx, ERROR_SCRUB, &words)
    }

    /// Begins an error scrub; a paused one continues.
    pub(super) fn setup_error_scrub(&self, entries: u64) -> Result<()> {
        let record = self.dsl.scan.state.lock().error_scrub;
        if record.is_running() {
            if !record.paused {
                let what = "currently scrubbing; use 'zpool scrub -s' to cancel scrub";
                return Err(Error::refused_for(Refusal::Known, Errno::BUSY, what));
            }
            self.log_pool("error scrub", "resumed")?;
            return self.put_error_scrub(ErrorScrub {
                paused: false,
                ..record
            });
        }
        self.log_pool("error scrub setup", &format!("func=3 entries={entries}"))?;
        self.put_error_scrub(ErrorScrub {
            state: ScanState::ErrorScrubbing,
            start: self.spa.now().0,
            to_examine: entries,
            ..ErrorScrub::default()
        })
    }

    /// Pauses a running one, or cancels it. False if there is none.
    pub(super) fn stop_error_scrub(&self, pause: bool) -> Result<bool> {
        let record = self.dsl.scan.state.lock().error_scrub;
        if !record.is_running() || pause && record.paused {
            return Ok(false);
        }
        let record = match pause {
            true => ErrorScrub {
                paused: true,
                ..record
            },
            false => ErrorScrub {
                state: ScanState::Canceled,
                end: self.spa.now().0,
                paused: false,
                ..record
            },
        };
        self.put_error_scrub(record)?;
        self.log_pool("error scrub", if pause { "paused" } else { "canceled" })?;
        Ok(true)
    }
}

impl Dsl {
    /// How far the last error scrub is.
    pub fn error_scrub(&self) -> ErrorScrub {
        self.scan.state.lock().error_scrub
    }

    /// Looks at the blocks of the log again.
    pub(super) fn error_scrub_all(&self, stop: &Stop) -> Result<()> {
        let log = self.error_log()?;
        // In portions: a crash repeats one, and few frees have to be recorded for each.
        for some in log.blocks.chunks(AT_ONCE) {
            self.wait_while_held(stop)?;
            if stop.is_set() {
                return Ok(());
            }
            let spa = self.spa()?;
            // From now on freed places are noted.
            self.task(
                |_| Ok(()),
                |ctx| {
                    ctx.spa.io().watch_frees();
                    Ok(())
                },
            )?;
            let counts = Counts::default();
            let record = Record {
                max_txg: u64::MAX,
                ..Record::default()
            };
            let verifier = Verifier::new(spa, record, &counts);
            let mut repaired = BTreeSet::new();
            let mut lost = 0;
            for block in some {
                match self.look_again(&verifier, block, log.by_head) {
                    true => lost += 1,
                    false => {
                        repaired.insert(*block);
                    }
                }
            }
            let examined = some.len() as u64;
            self.task(
                |_| Ok(()),
                move |ctx| {
                    ctx.remove_from_log(&repaired)?;
                    let record = ctx.dsl.error_scrub();
                    ctx.put_error_scrub(ErrorScrub {
                        examined: record.examined + examined,
                        errors: record.errors + lost,
                        ..record
                    })
                },
            )?;
        }
        self.task(
            |_| Ok(()),
            |ctx| {
                ctx.spa.io().unwatch_frees();
                let record = ctx.dsl.error_scrub();
                // It was paused or canceled after the last portion.
                if !record.is_running() || record.paused {
                    return Ok(());
                }
                ctx.put_error_scrub(ErrorScrub {
                    state: ScanState::Finished,
                    end: ctx.spa.now().0,
                    ..record
                })?;
                ctx.log_pool("error scrub done", &format!("errors={}", record.errors))
            },
        )
    }

    /// Whether a block of the log is still lost. A block that no dataset has any more is not.
    fn look_again(&self, verifier: &Verifier<'_>, block: &LostBlock, by_head: bool) -> bool {
        let mut is_lost = false;
        for (dataset, root) in self.roots(block, by_head) {
            let name = LostBlock { dataset, ..*block };
            match find(verifier.spa.io(), &root, block) {
                // 0 is unknown (04a-dsl-props §5). With another birth it is another block at that
                // place.
                Ok(Some(bp)) if block.birth == 0 || bp.physical_birth() == block.birth => {
                    is_lost |= matches!(verifier.verify_pointers(&bp, name), VerifiedBlock::Lost);
                }
                Ok(_) => {}
                // The block above it is lost itself.
                Err(_) => is_lost = true,
            }
        }
        is_lost
    }

    /// The datasets that may have a block, with their roots. For an entry by head, its whole
    /// directory.
    fn roots(&self, block: &LostBlock, by_head: bool) -> Vec<(u64, BlockPointer)> {
        let _config = self.read_config();
        let (Ok(meta), Ok(spa)) = (self.meta(), self.spa()) else {
            return Vec::new();
        };
        if block.dataset == 0 {
            return vec![(0, spa.0.uberblock().root)];
        }
        let mut found = Vec::new();
        let mut at = block.dataset;
        while at != 0 && found.len() < HOLDERS {
            let Ok(phys) = meta.ds(at) else { break };
            found.push((at, phys.bp));
            at = if by_head { phys.prev_snap } else { 0 };
        }
        found
    }
}

/// A block by its place in the tree of an object set; `None` for a hole.
fn find(io: &Pipeline, root: &BlockPointer, block: &LostBlock) -> Result<Option<BlockPointer>> {
    if block.level == ROOT_LEVEL {
        return Ok(Some(*root));
    }
    let place = Place::new("an entry of the error log");
    if root.kind() != BpKind::Normal {
        return Ok(None);
    }
    let objset = io.read_around(root, &place)?;
    let phys = ObjsetPhys::parse(objset.bytes()).map_err(|e| e.at("an object set"))?;
    let descend = |dnode: &DnodePhys, level: u8, blkid: u64| -> Result<Option<BlockPointer>> {
        // The spill block is not in the tree of indirect blocks.
        if blkid == SPILL {
            return Ok(dnode.spill);
        }
        let shift = dnode.fanout_shift();
        let mut at = dnode.levels.saturating_sub(1);
        let index = |at: u8| {
            let up = shift * u32::from(at.saturating_sub(level));
            blkid.checked_shr(up).unwrap_or(0)
        };
        let first = usize::try_from(index(at)).unwrap_or(usize::MAX);
        let mut bp = dnode.blkptrs().get(first).copied();
        while at > level {
            let Some(above) = bp.filter(|bp| bp.kind() == BpKind::Normal) else {
                return Ok(None);
            };
            at -= 1;
            let bytes = io.read_around(&above, &place)?;
            let slot = (index(at) & ((1 << shift) - 1)) as usize;
            bp = BlockPointer::at(bytes.bytes(), slot * 128);
        }
        Ok(bp.filter(|bp| bp.kind() == BpKind::Normal))
    };
    let accounting = match block.object {
        0 => Some(&phys.meta_dnode),
        n if n == u64::MAX => phys.user_used.as_ref(),
        n if n == u64::MAX - 1 => phys.group_used.as_ref(),
        n if n == u64::MAX - 2 => phys.project_used.as_ref(),
        _ => None,
    };
    if let Some(dnode) = accounting {
        return descend(dnode, block.level, block.block);
    }
    let slots = SLOTS_PER_BLOCK as u64;
    let Some(bp) = descend(&phys.meta_dnode, 0, block.object / slots)? else {
        return Ok(None);
    };
    let dnodes = io.read_around(&bp, &place)?;
    let slot = (block.object % slots) as usize;
    let view = scan_block(dnodes.bytes()).find(|(at, _)| *at == slot);
    match view {
        Some((_, Ok(view))) => descend(&view.to_phys(), block.level, block.block),
        _ => Ok(None),
    }
}
