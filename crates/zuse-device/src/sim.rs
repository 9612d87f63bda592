//! A simulated disk with a volatile write cache, for cutting the power at any operation.
//!
//! ```text
//!   write ──► current (what reads see)
//!        └──► log of unflushed writes ──flush──► durable
//!   crash:  durable + any subset of the log, each write whole, torn at a sector, or lost
//! ```
//!
//! Rules, as of a disk that guarantees what a flush covers, and nothing else:
//! - what was written before a successful flush survives every crash;
//! - of what was written after that flush, any sectors may survive, in any combination; a sector is
//!   never half new;
//! - when a surviving write overlaps an earlier one, the later wins.
//!
//! All disks of a pool share one [`PowerSupply`]. The write during which the power fails returns an
//! error, yet may reach the disk. The seed given to `crash` decides everything.
//! [`SimDisk::ignore_flushes`] makes the disk ignore flushes: a test that still passes then shows
//! nothing about flushes.

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zuse_base::sync::{Mutex, MutexGuard};

use zuse_base::{Entropy, Errno, SeededPrng};

use crate::block_device::{BlockDevice, check, total};
use crate::error::{Cause, DeviceError, Op};
use crate::mem::{MemDevice, MemImage};

/// The power of all disks of a simulation.
#[derive(Debug)]
pub struct PowerSupply(Mutex<Power>);

#[derive(Debug)]
struct Power {
    on: bool,
    /// Operations until the power fails.
    left: Option<u64>,
    done: u64,
}

/// What the power does during an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Current {
    Steady,
    GoesOff,
    Off,
}

impl PowerSupply {
    /// Power without end.
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Power {
            on: true,
            left: None,
            done: 0,
        })))
    }

    /// Lets `operations` more writes, flushes and discards succeed, on all disks together. The
    /// power fails during the next one.
    ///
    /// Reads do not count: a cut between two reads leaves the same disks as a cut before both.
    pub fn cut_after(&self, operations: u64) {
        self.power().left = Some(operations);
    }

    /// Off, now.
    pub fn cut(&self) {
        self.power().on = false;
    }

    /// Power on again, without a limit. Replace the disks by the results of [`SimDisk::crash`].
    pub fn restore(&self) {
        let mut power = self.power();
        power.on = true;
        power.left = None;
    }

    /// Whether disks work.
    pub fn is_on(&self) -> bool {
        self.power().on
    }

    /// Writes, flushes and discards so far, on all disks together.
    pub fn operations(&self) -> u64 {
        self.power().done
    }

    fn spend(&self) -> Current {
        let mut power = self.power();
        match power.left {
            _ if !power.on => return Current::Off,
            Some(0) => {
                power.on = false;
                return Current::GoesOff;
            }
            Some(n) => power.left = Some(n - 1),
            None => {}
        }
        power.done += 1;
        Current::Steady
    }

    fn power(&self) -> MutexGuard<'_, Power> {
        self.0.lock()
    }
}

/// A disk whose writes are safe only after a flush.
pub struct SimDisk {
    current: MemDevice,
    cache: Mutex<Cache>,
    power: Arc<PowerSupply>,
    ignore_flushes: AtomicBool,
}

struct Cache {
    durable: MemDevice,
    log: VecDeque<Unflushed>,
    bytes: usize,
}

struct Unflushed {
    offset: u64,
    change: Change,
}

enum Change {
    Write(Box<[u8]>),
    /// Discarded bytes read as zero.
    Zero(u64),
}

impl SimDisk {
    /// Bytes that the write cache holds. Beyond that the oldest writes become durable, as in a real
    /// disk.
    pub const CACHE: usize = 256 << 20;

    /// An empty disk.
    pub fn new(
        path: impl Into<String>,
        size: u64,
        sector_shift: u32,
        power: Arc<PowerSupply>,
    ) -> Self {
        Self::with_content(
            path,
            &MemDevice::with_sector_shift("", size, sector_shift).snapshot(),
            power,
        )
    }

    /// A disk with durable content, for example the result of a crash.
    pub fn with_content(
        path: impl Into<String>,
        image: &MemImage,
        power: Arc<PowerSupply>,
    ) -> Self {
        let path = path.into();
        let durable = MemDevice::from_image(path.clone(), image);
        Self {
            current: MemDevice::from_image(path, image),
            cache: Mutex::new(Cache {
                durable,
                log: VecDeque::new(),
                bytes: 0,
            }),
            power,
            ignore_flushes: AtomicBool::new(false),
        }
    }

    /// Lets flushes report success without doing anything (or stops that).
    pub fn ignore_flushes(&self, ignore: bool) {
        self.ignore_flushes.store(ignore, Ordering::Relaxed);
    }

    /// Number of writes and discards that a crash may lose.
    pub fn unflushed(&self) -> usize {
        self.cache().log.len()
    }

    /// The content of the disk if the power failed now. `prng` chooses which writes survive. The
    /// disk itself is not changed.
    pub fn crash(&self, prng: &SeededPrng) -> MemDevice {
        let cache = self.cache();
        let left = MemDevice::from_image(self.path(), &cache.durable.snapshot());
        // The extremes (everything lost, everything kept) find most mistakes, so each gets a fixed
        // share of the crashes.
        let (keep, tears) = match prng.below(4) {
            0 => (0, false),
            1 => (16, false),
            _ => (prng.below(17), true),
        };
        for unflushed in &cache.log {
            if tears && prng.chance(1, 4) {
                unflushed.tear(&left, prng);
            } else if prng.chance(keep, 16) {
                unflushed.apply(&left);
            }
        }
        left
    }

    /// The content that is certain to be on the disk, after a crash that loses everything
    /// unflushed.
    pub fn durable(&self) -> MemImage {
        self.cache().durable.snapshot()
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock()
    }

    fn change(
        &self,
        op: Op,
        offset: u64,
        len: u64,
        make: impl FnOnce() -> Change,
    ) -> Result<(), DeviceError> {
        check(self, op, offset, len)?;
        let mut cache = self.cache();
        // Under the cache's lock, so that the log has the order in which the power was used.
        let current = self.power.spend();
        if current == Current::Off {
            return Err(self.dark(op, offset, len));
        }
        let unflushed = Unflushed {
            offset,
            change: make(),
        };
        unflushed.apply(&self.current);
        cache.push(unflushed);
        if current == Current::GoesOff {
            Err(self.dark(op, offset, len))
        } else {
            Ok(())
        }
    }

    fn dark(&self, op: Op, offset: u64, len: u64) -> DeviceError {
        DeviceError::new(self.path(), op, (offset, len), Errno::IO, Cause::PowerOff)
    }
}

impl Cache {
    fn push(&mut self, unflushed: Unflushed) {
        self.bytes += unflushed.cost();
        self.log.push_back(unflushed);
        while self.bytes > SimDisk::CACHE {
            self.write_oldest();
        }
    }

    fn write_oldest(&mut self) {
        match self.log.pop_front() {
            Some(oldest) => {
                self.bytes -= oldest.cost();
                oldest.apply(&self.durable);
            }
            None => self.bytes = 0,
        }
    }
}

impl Unflushed {
    fn cost(&self) -> usize {
        match &self.change {
            Change::Write(data) => data.len() + 64,
            Change::Zero(_) => 64,
        }
    }

    fn apply(&self, device: &MemDevice) {
        match &self.change {
            // The offset was checked when the write arrived.
            Change::Write(data) => drop(device.write_at(data, self.offset)),
            Change::Zero(len) => device.zero(self.offset, *len),
        }
    }

    /// Apply some of the sectors.
    fn tear(&self, device: &MemDevice, prng: &SeededPrng) {
        let sector = 1u64 << device.sector_shift();
        match &self.change {
            Change::Write(data) => {
                let mut at = self.offset;
                let mut rest = &data[..];
                while !rest.is_empty() {
                    let len = rest.len().min((sector - at % sector) as usize);
                    if prng.chance(1, 2) {
                        // The place was checked when the write arrived.
                        let _ = device.write_at(&rest[..len], at);
                    }
                    rest = &rest[len..];
                    at += len as u64;
                }
            }
            // A discard may be large: it stops at some sector.
            Change::Zero(len) => device.zero(self.offset, prng.below(len / sector + 1) * sector),
        }
    }
}

impl BlockDevice for SimDisk {
    fn size(&self) -> u64 {
        self.current.size()
    }

    fn sector_shift(&self) -> u32 {
        self.current.sector_shift()
    }

    fn path(&self) -> &str {
        self.current.path()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn bypasses_cache(&self) -> bool {
        // There is no page cache to bypass. With this, large blocks are gathered as on a disk that
        // has one.
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        if !self.power.is_on() {
            return Err(self.dark(Op::Read, offset, buf.len() as u64));
        }
        self.current.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DeviceError> {
        self.change(Op::Write, offset, buf.len() as u64, || {
            Change::Write(buf.into())
        })
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        // One operation: the power cannot go off between the buffers, but the write can be torn.
        let join = || Change::Write(bufs.iter().flat_map(|b| b.iter().copied()).collect());
        self.change(Op::Write, offset, total(bufs), join)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut cache = self.cache();
        if self.power.spend() != Current::Steady {
            return Err(self.dark(Op::Flush, 0, 0));
        }
        if !self.ignore_flushes.load(Ordering::Relaxed) {
            while !cache.log.is_empty() {
                cache.write_oldest();
            }
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<bool, DeviceError> {
        self.change(Op::Discard, offset, len, || Change::Zero(len))
            .map(|()| true)
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SimDisk({}, {} bytes, {} unflushed)",
            self.path(),
            self.size(),
            self.unflushed()
        )
    }
}

#[cfg(test)]
mod tests;
