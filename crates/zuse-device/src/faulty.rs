//! A device with faults that a test chooses: errors, corrupted bytes, lost writes, a full disk.
//!
//! Each operation is compared with every rule, oldest first. The first rule that fires decides.

use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zuse_base::sync::RwLock;

use zuse_base::{Counter, Errno, Span};

use crate::block_device::{BlockDevice, total};
use crate::error::{Cause, DeviceError, Op};

/// What happens when a rule fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails with this number and does nothing.
    Fail(Errno),
    /// A read succeeds, but every byte inside the rule's span is wrong. The wrong bytes are the
    /// same each time.
    Rot,
    /// A write, flush or discard reports success, but does nothing.
    Lose,
    /// Writes fail with `ENOSPC` once this many bytes were written inside the span.
    FullAfter(u64),
}

/// When a fault happens. [`Rule::new`] makes a rule, and the other methods narrow it.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    op: Op,
    fault: Fault,
    span: Span,
    skip: u64,
    times: u64,
}

impl Rule {
    /// Every operation of a kind, everywhere, always.
    pub const fn new(op: Op, fault: Fault) -> Self {
        Self {
            op,
            fault,
            span: Span::new(0, u64::MAX),
            skip: 0,
            times: u64::MAX,
        }
    }

    /// Every operation of a kind fails with an I/O error.
    pub const fn broken(op: Op) -> Self {
        Self::new(op, Fault::Fail(Errno::IO))
    }

    /// Only operations that touch this span (a flush touches every span).
    pub const fn within(mut self, span: Span) -> Self {
        self.span = span;
        self
    }

    /// Not for the first `n` operations that match.
    pub const fn after(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// Only `n` times.
    pub const fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }
}

/// Names a rule of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(u64);

struct Armed {
    id: RuleId,
    rule: Rule,
    seen: Counter,
    fired: Counter,
    written: Counter,
}

/// A wrapper that fails as its rules say.
pub struct FaultyDevice {
    inner: Arc<dyn BlockDevice>,
    armed: RwLock<Vec<Armed>>,
    enabled: AtomicBool,
    next_id: AtomicU64,
}

impl FaultyDevice {
    /// A wrapper without rules: no faults.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self {
            inner,
            armed: RwLock::default(),
            enabled: AtomicBool::new(true),
            next_id: AtomicU64::new(0),
        }
    }

    /// Add a rule.
    pub fn add(&self, rule: Rule) -> RuleId {
        let id = RuleId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let (seen, fired, written) = Default::default();
        self.write().push(Armed {
            id,
            rule,
            seen,
            fired,
            written,
        });
        id
    }

    /// Take a rule away.
    pub fn remove(&self, id: RuleId) {
        self.write().retain(|a| a.id != id);
    }

    /// Take all rules away.
    pub fn clear(&self) {
        self.write().clear();
    }

    /// Switch all faults on or off; rules count nothing while off.
    pub fn enable(&self, on: bool) {
        self.enabled.store(on, Ordering::Relaxed);
    }

    /// How often a rule fired.
    pub fn fired(&self, id: RuleId) -> u64 {
        let armed = self.armed.read();
        armed
            .iter()
            .find(|a| a.id == id)
            .map_or(0, |a| a.fired.get())
    }

    /// The underlying device, for access without faults.
    pub fn inner(&self) -> &Arc<dyn BlockDevice> {
        &self.inner
    }

    fn write(&self) -> zuse_base::sync::RwLockWriteGuard<'_, Vec<Armed>> {
        self.armed.write()
    }

    /// The fault of an operation, and the span of its rule.
    fn fault(&self, op: Op, offset: u64, len: u64) -> Option<(Fault, Span)> {
        if !self.enabled.load(Ordering::Relaxed) {
            return None;
        }
        let asked = Span::new(offset, len);
        let armed = self.armed.read();
        let hit = armed
            .iter()
            .find(|a| a.rule.op == op && a.fires(op, asked))?;
        Some((hit.rule.fault, hit.rule.span))
    }

    /// Err: it fails. Ok(false): it only reports success.
    fn change(&self, op: Op, offset: u64, len: u64) -> Result<bool, DeviceError> {
        match self.fault(op, offset, len) {
            Some((Fault::Fail(errno), _)) => Err(self.injected(op, offset, len, errno)),
            Some((Fault::FullAfter(_), _)) => Err(self.injected(op, offset, len, Errno::NOSPC)),
            Some((Fault::Lose, _)) => Ok(false),
            Some((Fault::Rot, _)) | None => Ok(true),
        }
    }

    fn injected(&self, op: Op, offset: u64, len: u64, errno: Errno) -> DeviceError {
        DeviceError::new(self.path(), op, (offset, len), errno, Cause::Injected)
    }
}

impl Armed {
    fn fires(&self, op: Op, asked: Span) -> bool {
        let common = self.rule.span.overlap(asked);
        if op != Op::Flush && common.is_none() {
            return false;
        }
        if self.seen.add(1) < self.rule.skip || self.fired.get() >= self.rule.times {
            return false;
        }
        if let Fault::FullAfter(room) = self.rule.fault {
            let bytes = common.map_or(0, |c| c.size);
            let before = self.written.add(bytes);
            if before.saturating_add(bytes) <= room {
                return false;
            }
            // A write that fails takes no room.
            self.written.sub(bytes);
        }
        self.fired.bump();
        true
    }
}

impl BlockDevice for FaultyDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn look_again(&self) -> u64 {
        self.inner.look_again()
    }

    fn sector_shift(&self) -> u32 {
        self.inner.sector_shift()
    }

    fn physical_shift(&self) -> u32 {
        self.inner.physical_shift()
    }

    fn path(&self) -> &str {
        self.inner.path()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        let len = buf.len() as u64;
        let fault = self.fault(Op::Read, offset, len);
        if let Some((Fault::Fail(errno), _)) = fault {
            return Err(self.injected(Op::Read, offset, len, errno));
        }
        self.inner.read_at(buf, offset)?;
        if let Some((Fault::Rot, span)) = fault
            && let Some(common) = span.overlap(Span::new(offset, len))
        {
            let rotten = &mut buf[(common.start - offset) as usize..][..common.size as usize];
            for (at, byte) in (common.start..).zip(rotten) {
                // Never 0, so that every byte changes; differs along the span.
                *byte ^= (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1;
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DeviceError> {
        if self.change(Op::Write, offset, buf.len() as u64)? {
            self.inner.write_at(buf, offset)
        } else {
            Ok(())
        }
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        if self.change(Op::Write, offset, total(bufs))? {
            self.inner.write_vectored_at(bufs, offset)
        } else {
            Ok(())
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.change(Op::Flush, 0, 0)? {
            self.inner.flush()
        } else {
            Ok(())
        }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<bool, DeviceError> {
        if self.change(Op::Discard, offset, len)? {
            self.inner.discard(offset, len)
        } else {
            Ok(true)
        }
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.inner.start_writeback(offset, len);
    }

    fn accept_lost_writes(&self) {
        self.inner.accept_lost_writes();
    }
}

impl fmt::Debug for FaultyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.armed.read().len();
        write!(f, "FaultyDevice({:?}, {rules} rules)", self.inner)
    }
}

#[cfg(test)]
mod tests;
