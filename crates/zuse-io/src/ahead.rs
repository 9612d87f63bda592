//! Prefetching many blocks into the cache, in the order of their offsets on the devices.
//!
//! ```text
//!   pointers in any order ─► sorted by place ─► runs ─► one device read each ─► every block's checksum ─► cache
//! ```
//! - Blocks that one txg wrote are close to each other: those of an object set within some dozen
//!   KiB. So the bytes of the last runs are kept for a while, and a run begins somewhat before its
//!   first block. The next layer of a tree then often needs no device read.
//! - No block is read twice. A block that another thread is reading is left to that thread. A
//!   thread that needs a block of a run under way waits for that run. The blocks of a run are
//!   claimed when its turn comes, so a thread waits for at most one run.
//! - The device is told of the next [`TOLD`] runs, so that it works on them together. It is not
//!   told of a run that directly follows another one, because the host detects sequential reads
//!   itself. There the advice costs more than it saves: 20 µs of processor time for 64 KiB instead
//!   of 4.
//! - Neighbouring long uncompressed blocks on a single disk are read straight into their final
//!   memory, past the host's page cache ([`zuse_device::BlockDevice::read_apart`]). There is no
//!   intermediate buffer, and no memory is cleared. The host is not told of these: it would read
//!   them into its page cache. 64 KiB cost 18 µs of processor time this way instead of 33.
//!
//! Prefetching is only a hint. What cannot be read or verified this way is left to the reader that
//! needs it. That reader tries the other copies, heals, and reports what is wrong. Encrypted blocks
//! and blocks in several parts (raidz, gangs) are left out.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::WorkPool;
use zuse_codec::{ChecksumContext, ChecksumKind, verify, verify_truncated};
use zuse_format::{BlockPointer, BpKind};
use zuse_vdev::{Address, ReadOutcome};

use crate::bulk::{Spare, plain};
use crate::cache::Key;
use crate::gang::is_truncated;
use crate::pipeline::address_of;
use crate::{Block, Pipeline};

/// Gap between two blocks, in bytes, that is read and dropped rather than splitting the read.
const GAP: u64 = 128 << 10;
/// Bytes before the first block of a run that are read as well.
const BEFORE: u64 = 48 << 10;
/// Largest device read.
const RUN: u64 = 1 << 20;
/// Runs that the device is told of before they are read.
const TOLD: usize = 32;
/// Shortest block that is read straight into its final memory.
const APART: usize = 32 << 10;
/// Shortest run of such blocks.
const LONG: usize = 64 << 10;
/// Bytes of runs that are kept.
const KEPT: usize = 24 << 20;

/// Bytes of a device from one read.
struct Run {
    vdev: u32,
    start: u64,
    bytes: Vec<u8>,
    spare: Arc<Spare>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.spare.give_back(vec![std::mem::take(&mut self.bytes)]);
    }
}

impl Run {
    fn part(&self, bp: &BlockPointer) -> Option<&[u8]> {
        let dva = bp.dva(0);
        if dva.vdev() != self.vdev {
            return None;
        }
        let from = usize::try_from(dva.offset().checked_sub(self.start)?).ok()?;
        let len = usize::try_from(bp.psize()).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }
}

/// A prefetcher: reads blocks into the cache, layer by layer.
pub struct Ahead {
    io: Arc<Pipeline>,
    work: Arc<WorkPool>,
    runs: VecDeque<Arc<Run>>,
    kept: usize,
    room: u64,
    prefetched: u64,
    before: u64,
}

impl Ahead {
    /// A prefetcher that fills at most three quarters of the cache's budget.
    pub fn new(io: &Arc<Pipeline>, work: &Arc<WorkPool>) -> Self {
        Self {
            io: io.clone(),
            work: work.clone(),
            runs: VecDeque::new(),
            kept: 0,
            room: io.cache().stats().limit as u64 / 4 * 3,
            prefetched: 0,
            before: 0,
        }
    }

    /// For pointers that lead to others: each run begins somewhat before its first block.
    pub fn reaching_down(self) -> Self {
        Self {
            before: BEFORE,
            ..self
        }
    }

    /// What was prefetched so far has been used: the same amount may be prefetched again.
    pub fn allow_as_much_again(&mut self) {
        self.room = self.io.cache().stats().limit as u64 / 4 * 3;
    }

    /// Decoded bytes prefetched so far, without blocks that were cached already.
    pub fn prefetched(&self) -> u64 {
        self.prefetched
    }

    /// The pipeline that it reads through.
    pub fn io(&self) -> &Arc<Pipeline> {
        &self.io
    }

    /// Prefetches the blocks that are not cached.
    pub fn prefetch(&mut self, bps: impl IntoIterator<Item = BlockPointer>) {
        let mut seen = HashSet::new();
        let wanted: Vec<(usize, BlockPointer)> = bps
            .into_iter()
            .filter(|bp| self.io.can_prefetch(bp) && seen.insert(Key::of(bp)))
            .filter(|bp| self.io.peek(bp).is_none())
            .map(|bp| (0, bp))
            .collect();
        let (_, used) = self.read(wanted, Some(self.room), |_, bp, stored, io| {
            let decoded = io.decode_stored(bp, stored, &"a block").ok()?;
            io.remember(bp, Arc::new(Block::new(decoded)));
            None::<()>
        });
        self.room = self.room.saturating_sub(used);
        self.prefetched += used;
    }

    /// Calls `f` on each block, in their order, without keeping blocks in the cache. The result is
    /// `None` for a block that cannot be read here. `front` says how many of a block's first bytes
    /// are needed. `f` is given that many or more, and only those are unpacked.
    pub fn look<T: Send + 'static>(
        &mut self,
        bps: &[BlockPointer],
        front: impl Fn(usize) -> usize + Send + Sync + 'static,
        f: impl Fn(usize, &[u8]) -> Option<T> + Send + Sync + 'static,
    ) -> Vec<Option<T>> {
        let mut out: Vec<Option<T>> = bps.iter().map(|_| None).collect();
        let mut wanted = Vec::new();
        for (i, bp) in bps.iter().enumerate() {
            let there = match bp.kind() {
                BpKind::Embedded => self.io.read(bp, &"a block").ok(),
                _ => self.io.peek(bp),
            };
            match there {
                Some(block) => out[i] = f(i, block.bytes()),
                None if self.io.can_prefetch(bp) => wanted.push((i, *bp)),
                None => {}
            }
        }
        let (found, _) = self.read(wanted, None, move |i, bp, stored, io| {
            io.scratch.with(|scratch| {
                let size = usize::try_from(bp.lsize()).ok()?;
                if scratch.len() < size {
                    scratch.resize(size, 0);
                }
                let decoded = scratch.get_mut(..size)?;
                let wanted = front(i).min(size);
                if wanted < size && io.front_of(bp, stored, &mut decoded[..wanted]).is_some() {
                    return f(i, &decoded[..wanted]);
                }
                io.decompress_into(bp, stored, decoded, &"a block").ok()?;
                io.to_little(bp, decoded, &"a block").ok()?;
                f(i, decoded)
            })
        });
        for (i, value) in found {
            if let Some(slot) = out.get_mut(i) {
                *slot = Some(value);
            }
        }
        out
    }

    /// Reads blocks in device order, at most `room` decoded bytes of them. Returns the results of
    /// `f` by block number, and the number of decoded bytes.
    fn read<T: Send + 'static>(
        &mut self,
        mut wanted: Vec<(usize, BlockPointer)>,
        room: Option<u64>,
        f: impl Fn(usize, &BlockPointer, &[u8], &Pipeline) -> Option<T> + Send + Sync + 'static,
    ) -> (Vec<(usize, T)>, u64) {
        // In device order: neighbours become one read, and a disk moves in one direction.
        wanted.sort_unstable_by_key(|(_, bp)| (bp.dva(0).vdev(), bp.dva(0).offset()));
        let (mut jobs, mut from, mut sum) = (Vec::new(), 0, 0u64);
        while from < wanted.len() && room.is_none_or(|room| sum < room) {
            let to = from + run_length(&wanted[from..]);
            let some = &wanted[from..to];
            from = to;
            sum += some.iter().map(|(_, bp)| bp.lsize()).sum::<u64>();
            self.split(some, room.is_some(), &mut jobs);
        }
        let (io, before) = (self.io.clone(), self.before);
        let bypasses_cache =
            |job: &Job, vdev| io.parts(job).is_some() && io.vdevs().bypasses_cache(vdev);
        let told = |job: &Job| {
            let place = job.place(before);
            place.filter(|place| !bypasses_cache(job, place.0))
        };
        let mut places: Vec<Option<Place>> = jobs.iter().map(told).collect();
        leave_out_rows(&mut places);
        // A single read begins at once, so a hint would be one more call.
        if jobs.len() > 1 {
            places.iter().take(TOLD).for_each(|place| io.advise(place));
        }
        let jobs = jobs.into_iter().enumerate().collect();
        let done = self.work.try_run_all(jobs, move |(i, job)| {
            places.get(i + TOLD).into_iter().for_each(|p| io.advise(p));
            io.carry_out(job, before, &f)
        });
        let mut out = Vec::new();
        for (run, found) in done.into_iter().flatten() {
            out.extend(found);
            if let Some(run) = run {
                self.kept += run.bytes.len();
                self.runs.push_front(run);
            }
        }
        while self.kept > KEPT
            && let Some(old) = self.runs.pop_back()
        {
            self.kept -= old.bytes.len();
        }
        (out, sum)
    }

    /// Serves blocks from runs that are in memory; the others are read in one go.
    fn split(&self, some: &[(usize, BlockPointer)], keep: bool, jobs: &mut Vec<Job>) {
        let mut rest = some.to_vec();
        for run in &self.runs {
            let here: Vec<_> = rest
                .extract_if(.., |(_, bp)| run.part(bp).is_some())
                .collect();
            if !here.is_empty() {
                jobs.push(Job {
                    run: Some(run.clone()),
                    blocks: here,
                    keep,
                });
            }
            if rest.is_empty() {
                return;
            }
        }
        jobs.push(Job {
            run: None,
            blocks: rest,
            keep,
        });
    }
}

/// Blocks that come out of one run, with their numbers.
struct Job {
    run: Option<Arc<Run>>,
    blocks: Vec<(usize, BlockPointer)>,
    /// Whether the blocks are put into the cache.
    keep: bool,
}

/// A byte range that one read covers: vdev, first byte, length.
type Place = (u32, u64, usize);

impl Job {
    /// What it reads from a device.
    fn place(&self, before: u64) -> Option<Place> {
        if self.run.is_some() {
            return None;
        }
        let first = self.blocks.first()?.1.dva(0);
        let ends = self
            .blocks
            .iter()
            .map(|(_, bp)| bp.dva(0).offset().saturating_add(bp.psize()));
        let start = first.offset() - before.min(first.offset());
        let len = usize::try_from(ends.max()?.checked_sub(start)?).ok()?;
        Some((first.vdev(), start, len))
    }

    /// The offsets of its blocks, relative to the first block. `None` unless they are for the
    /// cache, long, and stored uncompressed.
    fn parts(&self) -> Option<Vec<Range<usize>>> {
        let (_, start, len) = self.place(0).filter(|_| self.keep)?;
        if len < LONG {
            return None;
        }
        let mut end = 0;
        let part = |(_, bp): &(usize, BlockPointer)| {
            let from = usize::try_from(bp.dva(0).offset().checked_sub(start)?).ok()?;
            let len = usize::try_from(bp.psize()).ok()?;
            let fits = len >= APART
                && bp.lsize() == bp.psize()
                && Pipeline::is_stored_plain(bp)
                && from >= end;
            end = from.checked_add(len)?;
            fits.then_some(from..end)
        };
        self.blocks.iter().map(part).collect()
    }
}

/// Drops the hints for runs that directly follow the run before: the host sees those by itself.
fn leave_out_rows(places: &mut [Option<Place>]) {
    let mut last = None;
    for place in places {
        let Some((vdev, start, len)) = *place else {
            continue;
        };
        if last.is_some_and(|(v, end)| v == vdev && start.saturating_sub(end) <= GAP) {
            *place = None;
        }
        last = Some((vdev, start.saturating_add(len as u64)));
    }
}

/// A run if it was read now, and the results for its blocks.
type Done<T> = (Option<Arc<Run>>, Vec<(usize, T)>);

impl Pipeline {
    /// Whether a block can be prefetched. A block that may not have reached the devices yet would
    /// look damaged there.
    pub fn can_prefetch(&self, bp: &BlockPointer) -> bool {
        plain(bp)
            && !bp.uses_crypt()
            && !self.gather.may_hold(bp.physical_birth())
            && self.is_linear(bp.dva(0).vdev())
    }

    /// Verifies blocks and hands them to `f`.
    fn carry_out<T>(
        &self,
        mut job: Job,
        before: u64,
        f: &impl Fn(usize, &BlockPointer, &[u8], &Pipeline) -> Option<T>,
    ) -> Done<T> {
        if !job.keep {
            return self.read_job(job, before, f);
        }
        let keys = job.blocks.iter().map(|(_, bp)| Key::of(bp));
        let taken = self.cache().claim_blocks(keys);
        // Blocks that are cached, or that another thread reads, are left to it.
        job.blocks.retain(|(_, bp)| taken.has(&Key::of(bp)));
        if self.prefetch_direct(&job) {
            taken.wait();
            return (None, Vec::new());
        }
        let done = self.read_job(job, before, f);
        // After its own blocks are in the cache: two threads could wait for each other.
        taken.wait();
        done
    }

    /// The offsets of a job's blocks, if they are to be read straight into their final memory.
    fn parts(&self, job: &Job) -> Option<Vec<Range<usize>>> {
        let may = self.brings_around.load(Relaxed);
        may.then(|| job.parts()).flatten()
    }

    /// Reads blocks that are stored uncompressed straight into their final memory. False if some of
    /// them are short or compressed.
    fn prefetch_direct(&self, job: &Job) -> bool {
        let (Some(parts), Some((vdev, start, _))) = (self.parts(job), job.place(0)) else {
            return false;
        };
        let Some(read) = self.vdevs().read_apart(vdev, start, &parts) else {
            return false;
        };
        let context = self.checksums();
        for ((_, bp), bytes) in job.blocks.iter().zip(read) {
            // A bad block is left to its reader, who tries other copies and reports it.
            if is_good(bp, &bytes, &context) {
                self.remember(bp, Arc::new(Block::from(bytes)));
            }
        }
        true
    }

    fn read_job<T>(
        &self,
        job: Job,
        before: u64,
        f: &impl Fn(usize, &BlockPointer, &[u8], &Pipeline) -> Option<T>,
    ) -> Done<T> {
        let fresh = job.run.is_none();
        let place = job.place(before);
        let read = |place| self.read_run(&job.blocks, place).map(Arc::new);
        let run = job.run.clone().or_else(|| place.and_then(read));
        let Some(run) = run else {
            return (None, Vec::new());
        };
        let context = self.checksums();
        let found = job.blocks.iter().filter_map(|(n, bp)| {
            let part = run.part(bp)?;
            // An older run: a block may have been written after it was read.
            if !fresh && !is_good(bp, part, &context) {
                return None;
            }
            Some((*n, f(*n, bp, part, self)?))
        });
        let found = found.collect();
        (fresh.then_some(run), found)
    }

    /// A hint that a run will be read soon.
    fn advise(&self, place: &Option<Place>) {
        if let Some((vdev, start, len)) = *place {
            self.vdevs().will_read(vdev, start, len);
        }
    }

    fn read_run(&self, blocks: &[(usize, BlockPointer)], (vdev, start, len): Place) -> Option<Run> {
        let (_, first) = blocks.first()?;
        // By the newest block, so that a mirror child that missed writes is not read.
        let (_, newest) = blocks.iter().max_by_key(|(_, bp)| bp.physical_birth())?;
        let place = Address {
            offset: start,
            ..address_of(&first.dva(0), newest)
        };
        let context = self.checksums();
        let spare = self.spare.clone();
        let mut bytes = if len as u64 > RUN / 4 {
            spare.take()
        } else {
            Vec::new()
        };
        let mut check = |bytes: &[u8]| {
            blocks.iter().all(|(_, bp)| {
                let from = (bp.dva(0).offset() - start) as usize;
                bytes
                    .get(from..from + bp.psize() as usize)
                    .is_some_and(|part| is_good(bp, part, &context))
            })
        };
        let found = self
            .vdevs()
            .read_and_heal_if(place, &mut bytes, len, &mut check, &|| false);
        let run = Run {
            vdev,
            start,
            bytes,
            spare,
        };
        matches!(found, Ok(ReadOutcome::Good)).then_some(run)
    }
}

fn is_good(bp: &BlockPointer, stored: &[u8], context: &ChecksumContext) -> bool {
    let Some(kind) = ChecksumKind::from_u8(bp.checksum_kind()) else {
        return false;
    };
    let (order, sum) = (bp.byte_order(), bp.checksum());
    let good = if is_truncated(bp) {
        verify_truncated(kind, stored, order, context, &sum)
    } else {
        verify(kind, stored, order, context, &sum)
    };
    good.unwrap_or(false)
}

/// How many of the sorted blocks, from the first on, one read covers.
fn run_length(blocks: &[(usize, BlockPointer)]) -> usize {
    let Some(first) = blocks.first().map(|(_, bp)| bp.dva(0)) else {
        return 0;
    };
    let mut end = first.offset();
    let fits = |(_, bp): &&(usize, BlockPointer)| {
        let dva = bp.dva(0);
        let fits = dva.vdev() == first.vdev()
            && dva.offset().saturating_sub(end) <= GAP
            && dva.offset().saturating_add(bp.psize()) - first.offset() <= RUN;
        end = end.max(dva.offset().saturating_add(bp.psize()));
        fits
    };
    blocks.iter().take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_right_behind_another_one_is_not_told_others_are() {
        let far = 64 * GAP;
        let mut places = [
            Some((0, 0, 4096)),
            Some((0, 4096 + GAP, 4096)),
            None,
            Some((0, 4096 + GAP + 4096, 4096)),
            Some((0, far, 4096)),
            Some((1, far + 4096, 4096)),
        ];
        let all = places;
        leave_out_rows(&mut places);
        assert_eq!(places, [all[0], None, None, None, all[4], all[5]]);
    }

    #[test]
    fn long_blocks_are_read_straight_into_their_places_from_64_kib_on() {
        use zuse_format::{BpProps, Dva};

        let blocks = |sizes: &[u64]| {
            let mut at = 0;
            let block = |size: &u64| {
                let mut bp = BlockPointer::with_props(BpProps {
                    lsize: *size,
                    psize: *size,
                    compression: 2,
                    checksum: 7,
                    object_type: 19,
                    level: 0,
                    dedup: false,
                    crypt: false,
                    order: zuse_base::ByteOrder::Little,
                });
                bp.set_dva(0, Dva::new(0, at, *size, false));
                at += size;
                (0, bp)
            };
            sizes.iter().map(block).collect()
        };
        let parts = |kib: &[u64], keep| {
            let sizes: Vec<u64> = kib.iter().map(|k| k << 10).collect();
            let (run, blocks) = (None, blocks(&sizes));
            Job { run, blocks, keep }.parts()
        };
        assert!(parts(&[64], true).is_some(), "one alone");
        assert!(parts(&[32, 32], true).is_some());
        assert!(parts(&[32], true).is_none(), "too short a run");
        assert!(parts(&[64, 16, 64], true).is_none(), "a short block");
        assert!(parts(&[64], false).is_none(), "not for the cache");
    }
}
