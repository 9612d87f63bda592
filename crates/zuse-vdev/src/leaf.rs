//! One device of a pool: its data area, its health, its error counters.
//!
//! ```text
//!            open                          clear / online
//!   Closed ───────► Healthy ◄──────────────────────────────┐
//!      │               │ offline │ fault │ device vanishes  │
//!      │ no device,    ▼         ▼       ▼                  │
//!      └─ bad label ► Offline, Faulted, Removed, CantOpen ──┘
//! ```
//!
//! - The lock guards the state: which device is open, and its health. It is held for a pointer
//!   copy, never over I/O.
//! - An I/O error is counted and returned, and does not close the device: a bad sector is not a bad
//!   disk. Only an error number that says that the device is gone closes it.
//! - A write that failed here and succeeded on a sibling leaves a mark ([`Leaf::take_missed`]): the
//!   pool puts the txg into the leaf's DTL.
//! - A write is counted *after* it returned, and a flush covers those counted *before* it starts.
//!   The other order would lose a write that ends in between.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use zuse_base::sync::RankedWriteGuard;
use zuse_base::sync::RwLock;
use zuse_base::tripwire::{Tripwire, Watched, at};
use zuse_base::{Counter, Errno, Error, Events, RankedRwLock, Result, Span, Txg};
use zuse_device::{BlockDevice, Fresh};

use crate::geometry::{self, LABEL_START};
use crate::health::{Aux, Health, VdevState};
use crate::op_figures::{AllOps, OpCounters};
use crate::watch::{Kind, Thresholds, Watch};

/// Rank of the lock of the state: nothing is taken below it.
const STATE_RANK: u32 = 950;

/// Errors and operations since the last `zpool clear`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Reads the device refused.
    pub read_errors: Counter,
    /// Writes and flushes the device refused.
    pub write_errors: Counter,
    /// Blocks whose bytes were not what was written.
    pub checksum_errors: Counter,
    /// Blocks rewritten with good bytes.
    pub repaired: Counter,
    /// Reads that succeeded.
    pub reads: Counter,
    /// Bytes read.
    pub read_bytes: Counter,
    /// Writes that succeeded.
    pub writes: Counter,
    /// Bytes written.
    pub written_bytes: Counter,
    /// Times and sizes of what succeeded.
    pub ops: AllOps<OpCounters>,
}

impl Counters {
    /// Sets the three error counters to zero.
    pub fn clear_errors(&self) {
        self.read_errors.reset(0);
        self.write_errors.reset(0);
        self.checksum_errors.reset(0);
    }
}

/// One device of a pool.
pub struct Leaf {
    /// Changes when a mirror shrinks to this leaf.
    guid: AtomicU64,
    state: RankedRwLock<State, STATE_RANK>,
    counters: Counters,
    pending: AtomicU32,
    sector_shift: AtomicU8,
    /// Writes so far, and how many of them the last successful flush covers. Two threads may flush
    /// at the same time. Neither may take the other's flush for done too early.
    written: AtomicU64,
    flushed: AtomicU64,
    missed: AtomicBool,
    /// Number of writes that missed the leaf, and of failed flushes.
    misses: AtomicU64,
    outdated: AtomicBool,
    /// Txgs of which it may lack blocks, in order; empty if unknown.
    missing: RwLock<Box<[Span]>>,
    sits_out: AtomicBool,
    watch: Watch,
    /// Reference time for its errors.
    made: Instant,
    /// Kinds of errors that exceeded their threshold, one bit each.
    exceeded: AtomicU8,
    /// Set to tell the tree that some leaf exceeded a threshold.
    alarm: OnceLock<Arc<AtomicBool>>,
    tripwire: OnceLock<Arc<Tripwire>>,
    pub(crate) events: OnceLock<Arc<Events>>,
}

struct State {
    device: Option<Arc<dyn BlockDevice>>,
    /// Bytes of the data area of the device.
    asize: u64,
    /// Bytes of the device; they stay known where it was taken out.
    psize: u64,
    health: Health,
    path: Option<Arc<str>>,
}

impl Leaf {
    /// A leaf without a device; `path` is where it was last seen.
    pub fn closed(guid: u64, path: Option<&str>) -> Self {
        Self {
            guid: AtomicU64::new(guid),
            state: RankedRwLock::new(State {
                device: None,
                asize: 0,
                psize: 0,
                health: Health::new(VdevState::Closed, Aux::None),
                path: path.map(Arc::from),
            }),
            counters: Counters::default(),
            pending: AtomicU32::new(0),
            sector_shift: AtomicU8::new(geometry::ASHIFT_MIN),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            missed: AtomicBool::new(false),
            misses: AtomicU64::new(0),
            outdated: AtomicBool::new(false),
            missing: RwLock::default(),
            sits_out: AtomicBool::new(false),
            watch: Watch::default(),
            made: Instant::now(),
            exceeded: AtomicU8::new(0),
            alarm: OnceLock::new(),
            tripwire: OnceLock::new(),
            events: OnceLock::new(),
        }
    }

    fn change_state(&self) -> Watched<'_, RankedWriteGuard<'_, State>> {
        let wire = self.tripwire.get().map(|wire| &**wire);
        Watched::of(wire, at::DEVICE, self.state.write())
    }

    /// Sets the device. One that is too small for a leaf is rejected.
    pub fn set_device(&self, device: Arc<dyn BlockDevice>) {
        let path: Arc<str> = Arc::from(device.path());
        let psize = device.size();
        let asize = geometry::leaf_asize(psize);
        let shift = u8::try_from(device.sector_shift()).unwrap_or(u8::MAX);
        self.sector_shift
            .store(shift.min(geometry::ASHIFT_MAX), Ordering::Relaxed);
        // After all requests to the device, so that the lock is not held over I/O.
        let mut state = self.change_state();
        let before = state.health;
        state.path = Some(path);
        match asize {
            _ if shift > geometry::ASHIFT_MAX => {
                state.device = None;
                state.health = Health::new(VdevState::CantOpen, Aux::AshiftTooBig);
            }
            Some(asize) => {
                state.asize = asize;
                state.psize = psize;
                state.device = Some(device);
                state.health = Health::GOOD;
            }
            None => {
                state.device = None;
                state.health = Health::new(VdevState::CantOpen, Aux::TooSmall);
            }
        }
        // Released first: a reader of the event may look at this leaf.
        drop(state);
        self.report_state(before);
    }

    /// Reads the size of the device again. Returns whether it changed.
    pub fn look_again(&self) -> bool {
        let Some(device) = self.device() else {
            return false;
        };
        let Some(asize) = geometry::leaf_asize(device.look_again()) else {
            return false;
        };
        let mut state = self.change_state();
        // A device that shrank keeps its recorded size: access to its end gives errors.
        let grew = state.device.is_some() && asize > state.asize;
        if grew {
            state.asize = asize;
        }
        grew
    }

    /// Takes the device out, for that reason.
    pub fn close_device(&self, health: Health) {
        if self.is_unflushed() {
            // Writes that the device had not made durable may be lost.
            self.note_missed();
        }
        let (gone, before) = {
            let mut state = self.change_state();
            let before = std::mem::replace(&mut state.health, health);
            (state.device.take(), before)
        };
        // After the lock is released: closing a device may block.
        drop(gone);
        self.report_state(before);
    }

    /// Marks the leaf as degraded, or as healthy again. A leaf without a device keeps its state.
    pub fn set_degraded(&self, why: Option<Aux>) {
        let mut state = self.change_state();
        let before = state.health;
        if state.device.is_some() {
            state.health = why.map_or(Health::GOOD, |why| Health::new(VdevState::Degraded, why));
        }
        // Released first, as in `set_device`.
        drop(state);
        self.report_state(before);
    }

    /// The guid.
    pub fn guid(&self) -> u64 {
        self.guid.load(Ordering::Relaxed)
    }

    /// Changes its path: a new device has taken the old one's place.
    pub fn set_path(&self, path: &str) {
        self.change_state().path = Some(Arc::from(path));
    }

    /// Changes its guid to that of the mirror whose last child it is.
    pub(crate) fn rename(&self, guid: u64) {
        self.guid.store(guid, Ordering::Relaxed);
    }

    /// Where the device is, or was.
    pub fn path(&self) -> Option<Arc<str>> {
        self.state.read().path.clone()
    }

    /// Its health.
    pub fn health(&self) -> Health {
        self.state.read().health
    }

    /// Whether it can be read and written.
    pub fn is_usable(&self) -> bool {
        let state = self.state.read();
        state.device.is_some() && state.health.state.is_usable()
    }

    /// The device, if it is open.
    pub fn device(&self) -> Option<Arc<dyn BlockDevice>> {
        self.state.read().device.clone()
    }

    /// Bytes of the device's data area; 0 without a device.
    pub fn asize(&self) -> u64 {
        let state = self.state.read();
        if state.device.is_some() {
            state.asize
        } else {
            0
        }
    }

    /// Bytes of the whole device, if it is there or was taken out by this process; 0 of others.
    pub fn psize(&self) -> u64 {
        let state = self.state.read();
        match &state.device {
            Some(device) => device.size(),
            None if matches!(state.health.state, VdevState::Offline | VdevState::Faulted) => {
                state.psize
            }
            None => 0,
        }
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sector of the device, as a shift.
    pub fn sector_shift(&self) -> u8 {
        self.sector_shift.load(Ordering::Relaxed)
    }

    /// I/Os in progress.
    pub fn pending(&self) -> u32 {
        self.pending.load(Ordering::Relaxed)
    }

    /// Whether the leaf may lack blocks (its DTL is not empty): it is read last.
    pub fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Relaxed)
    }

    /// Says whether the leaf's DTL is not empty. The txgs in it are unknown then.
    pub fn set_outdated(&self, outdated: bool) {
        // Without a list the leaf lacks everything. The list goes first, so that no reader trusts
        // an old one meanwhile.
        *self.missing.write() = Box::default();
        self.outdated.store(outdated, Ordering::Relaxed);
    }

    /// Sets the leaf's DTL: the txgs of which it may lack blocks, in order.
    pub fn set_missing(&self, txgs: &[Span]) {
        *self.missing.write() = txgs.into();
        self.outdated.store(!txgs.is_empty(), Ordering::Relaxed);
    }

    /// Whether the leaf may lack blocks that were born in a txg.
    pub fn lacks(&self, birth: Txg) -> bool {
        if !self.is_outdated() {
            return false;
        }
        let missing = self.missing.read();
        let at = missing.partition_point(|txgs| txgs.start <= birth.0);
        // Outdated without a list: it may lack blocks of any txg.
        missing.is_empty()
            || at
                .checked_sub(1)
                .and_then(|i| missing.get(i))
                .is_some_and(|txgs| birth.0 - txgs.start < txgs.size)
    }

    /// Whether the leaf is not read as long as its siblings and parity suffice (property
    /// `sit_out`).
    pub fn sits_out(&self) -> bool {
        self.sits_out.load(Ordering::Relaxed)
    }

    /// Sets whether the leaf sits out.
    pub fn set_sits_out(&self, yes: bool) {
        self.sits_out.store(yes, Ordering::Relaxed);
    }

    /// Sets the error thresholds.
    pub fn set_thresholds(&self, thresholds: Thresholds) {
        self.watch.set(thresholds);
    }

    /// Sets the flag that reports too many errors; once only.
    pub(crate) fn set_alarm(&self, alarm: &Arc<AtomicBool>, tripwire: &Arc<Tripwire>) {
        let _ = self.alarm.set(alarm.clone());
        let _ = self.tripwire.set(tripwire.clone());
    }

    /// Whether checksum errors, and I/O errors, exceeded their thresholds since the last call.
    pub(crate) fn take_exceeded(&self) -> (bool, bool) {
        // Cleared on reading: two threads must not both fault the leaf.
        let bits = self.exceeded.swap(0, Ordering::AcqRel);
        (bits & 1 != 0, bits & 2 != 0)
    }

    /// Resets the error counters, and the errors that count towards a threshold.
    pub(crate) fn clear_errors(&self) {
        self.counters.clear_errors();
        // Errors that an administrator has cleared do not count towards the next alarm.
        self.watch.forget();
        self.exceeded.store(0, Ordering::Release);
    }

    /// Counts a block with wrong bytes.
    pub(crate) fn note_checksum_error(&self) {
        self.counters.checksum_errors.bump();
        self.report_checksum();
        self.watch(Kind::Checksum);
    }

    fn watch(&self, kind: Kind) {
        if self.watch.note(kind, self.made.elapsed()) {
            let bit = match kind {
                Kind::Checksum => 1,
                Kind::Io => 2,
            };
            self.exceeded.fetch_or(bit, Ordering::AcqRel);
            // After the bit, which a thread that sees the alarm looks for.
            if let Some(alarm) = self.alarm.get() {
                alarm.store(true, Ordering::Release);
            }
        }
    }

    /// Whether a write missed the leaf since the last call.
    pub fn take_missed(&self) -> bool {
        self.missed.swap(false, Ordering::AcqRel)
    }

    /// Whether a write missed the leaf since the last [`Leaf::take_missed`].
    pub fn has_missed(&self) -> bool {
        self.missed.load(Ordering::Acquire)
    }

    /// Notes that a write missed the leaf.
    pub fn note_missed(&self) {
        self.misses.fetch_add(1, Ordering::AcqRel);
        self.missed.store(true, Ordering::Release);
    }

    /// Number of writes that missed the leaf, and of failed flushes. If the number after a flush
    /// differs from that before the write, the write may be lost. [`Leaf::take_missed`] does not
    /// change it.
    pub(crate) fn misses(&self) -> u64 {
        self.misses.load(Ordering::Acquire)
    }

    /// Whether something was written since the last flush.
    pub fn is_unflushed(&self) -> bool {
        self.written.load(Ordering::Acquire) > self.flushed.load(Ordering::Acquire)
    }

    /// The name that messages use for the leaf.
    pub fn name(&self) -> String {
        match self.path() {
            Some(path) => path.to_string(),
            None => format!("vdev {}", self.guid()),
        }
    }

    fn open_device(&self) -> Result<(Arc<dyn BlockDevice>, u64)> {
        let state = self.state.read();
        match &state.device {
            Some(device) => Ok((device.clone(), state.asize)),
            None => {
                let what = format!("{} {}", state.health.word(), state.health.why);
                // Released first, because `name` takes this lock.
                drop(state);
                Err(Error::device(self.name(), Errno::NXIO, what.trim_end()))
            }
        }
    }

    /// Device byte of an offset in the data area.
    fn place(&self, offset: u64, len: usize, asize: u64) -> Result<u64> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= asize => Ok(offset + LABEL_START),
            _ => Err(Error::truncated(
                format!("{}, offset {offset:#x}", self.name()),
                format!("{len} bytes there do not fit the device's {asize:#x}"),
            )),
        }
    }

    /// Reads from the data area.
    ///
    /// # Errors
    /// `Device` when the device is missing or refuses, `Corrupt` for a range outside it.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (device, asize) = self.open_device()?;
        let at = self.place(offset, buf.len(), asize)?;
        self.pending.fetch_add(1, Ordering::Relaxed);
        let ops = &self.counters.ops.reads;
        let result = ops.time(buf.len(), 1, || device.read_at(buf, at));
        self.pending.fetch_sub(1, Ordering::Relaxed);
        match result {
            Ok(()) => {
                self.counters.reads.bump();
                self.counters.read_bytes.add(buf.len() as u64);
                Ok(())
            }
            Err(error) => {
                self.counters.read_errors.bump();
                Err(self.failed(error))
            }
        }
    }

    /// Reads ranges of the data area, each into memory of its own. Failures are not counted as
    /// errors.
    pub(crate) fn read_apart(&self, offset: u64, parts: &[Range<usize>]) -> Option<Vec<Fresh>> {
        let len = parts.last()?.end;
        let (device, asize) = self.open_device().ok()?;
        let at = self.place(offset, len, asize).ok()?;
        self.pending.fetch_add(1, Ordering::Relaxed);
        let ops = &self.counters.ops.reads;
        let read = ops.time(len, 1, || device.read_apart(parts, at).ok_or(()));
        self.pending.fetch_sub(1, Ordering::Relaxed);
        if read.is_ok() {
            self.counters.reads.bump();
            self.counters.read_bytes.add(len as u64);
        }
        read.ok()
    }

    /// A hint that bytes of the data area will be read soon.
    pub(crate) fn will_read(&self, offset: u64, len: usize) {
        if let Ok((device, asize)) = self.open_device()
            && let Ok(at) = self.place(offset, len, asize)
        {
            device.will_read(at, len as u64);
        }
    }

    /// Reads by device byte: a label or the boot area.
    ///
    /// # Errors
    /// `Device` when the device is missing or refuses.
    pub(crate) fn read_raw(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let (device, _) = self.open_device()?;
        device.read_at(buf, at).map_err(|error| {
            self.counters.read_errors.bump();
            self.failed(error)
        })
    }

    /// Writes to the data area, the parts one after another.
    ///
    /// # Errors
    /// As [`Leaf::read`].
    pub fn write(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let len = parts.iter().map(|p| p.len()).sum();
        let (device, asize) = self.open_device()?;
        let at = self.place(offset, len, asize)?;
        self.pending.fetch_add(1, Ordering::Relaxed);
        let ops = &self.counters.ops.writes;
        let result = ops.time(len, parts.len(), || match parts {
            [one] => device.write_at(one, at),
            many => device.write_vectored_at(many, at),
        });
        self.pending.fetch_sub(1, Ordering::Relaxed);
        // A failed write, too, may have left bytes in the device's cache.
        self.written.fetch_add(1, Ordering::AcqRel);
        match result {
            Ok(()) => {
                self.counters.writes.bump();
                self.counters.written_bytes.add(len as u64);
                Ok(())
            }
            Err(error) => {
                self.counters.write_errors.bump();
                Err(self.failed(error))
            }
        }
    }

    /// Writes to a label or the boot area, by device byte.
    ///
    /// # Errors
    /// `Device` when the device is missing or refuses.
    pub(crate) fn write_raw(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let (device, _) = self.open_device()?;
        let ops = &self.counters.ops.labels;
        let result = ops.time(bytes.len(), 1, || device.write_at(bytes, at));
        // Also after a failure: some of the bytes may be in the device's cache.
        self.written.fetch_add(1, Ordering::AcqRel);
        result.map_err(|error| {
            self.counters.write_errors.bump();
            self.failed(error)
        })
    }

    /// Makes everything durable that was written before this call.
    ///
    /// # Errors
    /// `Device` when the device is missing or refuses; the leaf stays unflushed.
    pub fn flush(&self) -> Result<()> {
        let (device, _) = self.open_device()?;
        // Before the flush: a write that ends meanwhile may not be covered by it.
        let written = self.written.load(Ordering::Acquire);
        let done = device.flush().map_err(|error| {
            self.counters.write_errors.bump();
            // The host may have dropped what it could not write, so the leaf may lack it.
            self.note_missed();
            self.failed(error)
        });
        if done.is_ok() {
            // Two flushes may end in any order, and the number must not go back.
            self.flushed.fetch_max(written, Ordering::AcqRel);
        }
        done
    }

    /// Discards a range of the data area; false if the device cannot.
    ///
    /// # Errors
    /// As [`Leaf::read`].
    pub fn discard(&self, offset: u64, len: u64) -> Result<bool> {
        let (device, asize) = self.open_device()?;
        let fits = usize::try_from(len)
            .map_err(|_| Error::corrupt(self.name(), format!("discard of {len} bytes")))?;
        let at = self.place(offset, fits, asize)?;
        let ops = &self.counters.ops.trims;
        // A device without discard performs no operation, so none is counted.
        let result = ops.time(fits, 1, || match device.discard(at, len) {
            Ok(true) => Ok(()),
            Ok(false) => Err(None),
            Err(error) => Err(Some(error)),
        });
        match result {
            Ok(()) => Ok(true),
            Err(None) => Ok(false),
            Err(Some(error)) => Err(self.failed(error)),
        }
    }

    /// Converts the error; a device that is gone is closed.
    fn failed(&self, error: impl Into<Error>) -> Error {
        let error = error.into();
        if matches!(error.errno(), Errno::NXIO | Errno::NODEV) {
            // Only these numbers say that the device is gone. Another error may be one bad sector.
            self.close_device(Health::new(VdevState::Removed, Aux::None));
        } else {
            self.report_io(&error);
            self.watch(Kind::Io);
        }
        error
    }
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leaf({}, {:?})", self.name(), self.health())
    }
}
