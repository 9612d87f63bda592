//! Background work on the free space of a device: initializing writes a pattern, trimming discards
//! (chapter 01 §6.6 of the format notes).
//!
//! ```text
//!            start              end of the device
//!   none ───────────▶ active ─────────────────────▶ complete ──start──▶ active, from the beginning
//!                     │    ▲ start: goes on
//!              suspend▼    │         cancel
//!                   suspended ─────────────────▶ canceled
//! ```
//! State and position are in the device's own ZAP. So the work continues after an export wherever
//! the pool is imported next: here, or in a kernel.
//!
//! Invariants
//! - Only allocatable space is touched, not recently freed space or that of a checkpoint. Meanwhile
//!   it cannot be allocated ([`crate::Allocator`], `hold_free`).
//! - The position on disk is never ahead of the work: after a power cut some of it is repeated.
//!   Places where a device fails are skipped, and count as its errors.
//! - The caller gets an answer when the new state is on disk.
//!
//! One thread works for all devices in turn, while something is active. It holds no lock while it
//! reads or writes.

mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use zuse_base::sync::Mutex;
use zuse_base::{Errno, Error, ObjectId, Refusal, Result};
use zuse_dmu::zap::{Zap, ZapValue};

use crate::{Pool, SyncCtx};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VdevWorkKind {
    /// A pattern is written.
    Initialize,
    /// The host gets the space back.
    Trim,
}

/// Keys in the ZAP of a device: state, position, time of the last change.
impl VdevWorkKind {
    const ALL: [Self; 2] = [Self::Initialize, Self::Trim];

    fn keys(self) -> [&'static [u8]; 3] {
        match self {
            Self::Initialize => [
                b"com.delphix:vdev_initialize_state",
                b"com.delphix:next_offset_to_initialize",
                b"com.delphix:vdev_initialize_action_time",
            ],
            Self::Trim => [
                b"org.zfsonlinux:vdev_trim_state",
                b"org.zfsonlinux:next_offset_to_trim",
                b"org.zfsonlinux:vdev_trim_action_time",
            ],
        }
    }
}

const RATE: &[u8] = b"org.zfsonlinux:vdev_trim_rate";
const PARTIAL: &[u8] = b"org.zfsonlinux:vdev_trim_partial";
const SECURE: &[u8] = b"org.zfsonlinux:vdev_trim_secure";

/// The state of initializing or trimming a device, as its ZAP has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VdevWorkState {
    /// It was never done.
    #[default]
    None = 0,
    /// It is running.
    Active = 1,
    /// It was canceled.
    Canceled = 2,
    /// It is suspended, and continues from its position.
    Suspended = 3,
    /// It is complete.
    Complete = 4,
}

impl VdevWorkState {
    /// Its number on disk.
    pub fn number(self) -> u64 {
        self as u64
    }

    /// The state for a number on disk. Unknown numbers mean that it was never done.
    pub fn of(number: u64) -> Self {
        match number {
            1 => Self::Active,
            2 => Self::Canceled,
            3 => Self::Suspended,
            4 => Self::Complete,
            _ => Self::None,
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VdevWorkOrder {
    /// Begin, or continue.
    Start {
        /// Bytes per second at most; 0 for no limit.
        rate: u64,
    },
    /// Stop, and forget the position.
    Cancel,
    /// Stop for now.
    Suspend,
    /// Reset to never done.
    Forget,
}

/// One device's work.
#[derive(Clone, Debug)]
struct LeafWork {
    /// The device's ZAP: its guid may change.
    zap: u64,
    kind: VdevWorkKind,
    state: VdevWorkState,
    /// Bytes of the device that are done.
    next: u64,
    rate: u64,
    /// It differs from disk.
    dirty: bool,
}

/// The work of a pool.
#[derive(Default)]
pub(crate) struct VdevWorkList {
    /// Active work, and finished work that is not on disk as finished yet.
    all: Mutex<Vec<LeafWork>>,
    /// A txg is needed to write changes.
    due: AtomicBool,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl VdevWorkList {
    /// Whether the work needs a txg.
    pub fn is_due(&self) -> bool {
        self.due.load(Relaxed)
    }
}

fn refused(errno: Errno, what: &str) -> Error {
    Error::refused_for(Refusal::Known, errno, what)
}

impl Pool {
    /// Starts or stops such work on devices. Returns for each whether that was possible; the
    /// changes are on disk.
    ///
    /// # Errors
    /// `Refused(ROFS)`; the MOS cannot be changed.
    pub fn order_vdev_work(
        self: &Arc<Self>,
        kind: VdevWorkKind,
        order: VdevWorkOrder,
        devices: &[u64],
    ) -> Result<Vec<Result<()>>> {
        let devices = devices.to_vec();
        let done = self.sync_task(
            |_| Ok(()),
            move |ctx| {
                let one = |guid: &u64| match ctx.pool.order_one(ctx, kind, order, *guid) {
                    Ok(()) => Ok(Ok(())),
                    Err(error @ Error::Refused { .. }) => Ok(Err(error)),
                    Err(error) => Err(error),
                };
                devices.iter().map(one).collect::<Result<Vec<_>>>()
            },
        )?;
        self.start_vdev_work()?;
        Ok(done)
    }

    /// Bytes that are left of the active work of a kind, on the devices that can be reached. No
    /// caller may wait for a device that is absent.
    pub fn vdev_work_left(&self, kind: VdevWorkKind) -> u64 {
        let all = self.vdev_work.all.lock().clone();
        let active = all
            .iter()
            .filter(|s| s.kind == kind && s.state == VdevWorkState::Active);
        let left = active.filter_map(|s| {
            let leaf = self.leaf_of_zap(s.zap).filter(|leaf| leaf.is_usable())?;
            // Never 0 while it is active, because 0 means that it has ended.
            Some(leaf.asize().saturating_sub(s.next).max(1))
        });
        left.fold(0, u64::saturating_add)
    }

    /// Progress of the active work on a device, by its ZAP; the state on disk may be behind.
    pub fn vdev_work_position(&self, kind: VdevWorkKind, zap: u64) -> Option<u64> {
        let all = self.vdev_work.all.lock();
        let own = all.iter().find(|s| s.kind == kind && s.zap == zap);
        own.map(|s| s.next)
    }

    fn leaf_of_zap(&self, zap: u64) -> Option<Arc<zuse_vdev::Leaf>> {
        let mut guid = None;
        self.config.lock().vdev_tree.visit(&mut |node| {
            if node.zap_leaf == Some(zap) {
                guid = Some(node.guid);
            }
        });
        self.vdevs.leaf(guid?)
    }

    fn order_one(
        &self,
        ctx: &SyncCtx<'_>,
        kind: VdevWorkKind,
        order: VdevWorkOrder,
        guid: u64,
    ) -> Result<()> {
        let zap = {
            let config = self.config.lock();
            let node = config.vdev_tree.find(guid).filter(|n| n.kind.is_device());
            let node = node.ok_or_else(|| refused(Errno::NODEV, "no such device in pool"))?;
            node.zap_leaf.filter(|zap| *zap != 0)
        };
        let zap = zap.ok_or_else(|| {
            refused(
                Errno::NOTSUP,
                "operation not supported on this type of vdev",
            )
        })?;
        let usable = self.vdevs.leaf(guid).is_some_and(|leaf| leaf.is_usable());
        let table = Zap::open(&self.mos().dnode(ObjectId(zap))?)?;
        let mut work = self.known_vdev_work(&table, zap, kind)?;
        let active = work.state == VdevWorkState::Active;
        let (busy, idle) = match kind {
            VdevWorkKind::Initialize => (
                "currently initializing",
                "there is no active initialization",
            ),
            VdevWorkKind::Trim => ("currently trimming", "there is no active trim"),
        };
        match order {
            VdevWorkOrder::Start { .. } | VdevWorkOrder::Forget if active => {
                return Err(refused(Errno::BUSY, busy));
            }
            VdevWorkOrder::Start { .. } if !usable => {
                return Err(refused(
                    Errno::NXIO,
                    "one or more devices is currently unavailable",
                ));
            }
            VdevWorkOrder::Start { rate } => {
                if work.state != VdevWorkState::Suspended {
                    work.next = 0;
                }
                (work.state, work.rate) = (VdevWorkState::Active, rate);
            }
            VdevWorkOrder::Cancel if active || work.state == VdevWorkState::Suspended => {
                (work.state, work.next) = (VdevWorkState::Canceled, 0);
            }
            VdevWorkOrder::Suspend if active => work.state = VdevWorkState::Suspended,
            VdevWorkOrder::Cancel | VdevWorkOrder::Suspend => {
                return Err(refused(Errno::NOENT, idle));
            }
            VdevWorkOrder::Forget => (work.state, work.next) = (VdevWorkState::None, 0),
        }
        self.write_vdev_work(ctx, &table, &work, true)?;
        let mut all = self.vdev_work.all.lock();
        all.retain(|s| (s.zap, s.kind) != (zap, kind));
        if work.state == VdevWorkState::Active {
            all.push(work);
        }
        Ok(())
    }

    /// The present state of the work on a device.
    fn known_vdev_work(&self, table: &Zap, zap: u64, kind: VdevWorkKind) -> Result<LeafWork> {
        let all = self.vdev_work.all.lock();
        // Newer than the ZAP, which has only what the last txg wrote.
        if let Some(own) = all.iter().find(|s| (s.zap, s.kind) == (zap, kind)) {
            return Ok(own.clone());
        }
        // Released before the ZAP is read.
        drop(all);
        let [state, next, _] = kind.keys();
        let number = |key: &[u8]| -> Result<u64> {
            let found = table.lookup(key)?;
            Ok(found.as_ref().and_then(ZapValue::first).unwrap_or(0))
        };
        let rate = match kind {
            VdevWorkKind::Trim => number(RATE)?,
            VdevWorkKind::Initialize => 0,
        };
        Ok(LeafWork {
            zap,
            kind,
            state: VdevWorkState::of(number(state)?),
            next: number(next)?,
            rate,
            dirty: false,
        })
    }

    /// `begun`: the state was changed by a request, or at its end.
    fn write_vdev_work(
        &self,
        ctx: &SyncCtx<'_>,
        table: &Zap,
        work: &LeafWork,
        begun: bool,
    ) -> Result<()> {
        let [state, next, time] = work.kind.keys();
        let put = |key: &[u8], value: u64| table.update(ctx.tx, key, &ZapValue::U64(value));
        put(next, work.next)?;
        if begun {
            self.post_trim_event(table, work)?;
            put(time, self.env.clock.now().unsigned_secs())?;
            if work.kind == VdevWorkKind::Trim {
                put(RATE, work.rate)?;
                put(PARTIAL, 0)?;
                put(SECURE, 0)?;
            }
            put(state, work.state as u64)?;
        }
        Ok(())
    }

    /// Posts an event about a trim; OpenZFS has no such events for initializing. The table has the
    /// state before.
    fn post_trim_event(&self, table: &Zap, work: &LeafWork) -> Result<()> {
        let [state, ..] = work.kind.keys();
        let before = table.lookup(state)?.as_ref().and_then(ZapValue::first);
        let name = match (work.kind, work.state) {
            (VdevWorkKind::Initialize, _) | (_, VdevWorkState::None) => return Ok(()),
            (_, VdevWorkState::Active) if before == Some(VdevWorkState::Suspended as u64) => {
                "trim_resume"
            }
            (_, VdevWorkState::Active) => "trim_start",
            (_, VdevWorkState::Suspended) => "trim_suspend",
            (_, VdevWorkState::Canceled) => "trim_cancel",
            (_, VdevWorkState::Complete) => "trim_finish",
        };
        if let Some(leaf) = self.leaf_of_zap(work.zap) {
            self.vdevs.post(name, leaf.guid());
        }
        Ok(())
    }

    /// Writes the progress of the work, within the syncing txg.
    pub(crate) fn sync_vdev_work(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        // Cleared before the list is read: later changes ask for another txg.
        self.vdev_work.due.store(false, Relaxed);
        let dirty: Vec<LeafWork> = {
            let mut all = self.vdev_work.all.lock();
            let dirty = all.iter_mut().filter(|s| s.dirty);
            dirty
                .map(|s| {
                    s.dirty = false;
                    s.clone()
                })
                .collect()
        };
        for work in &dirty {
            // The device may have left the pool.
            if self.leaf_of_zap(work.zap).is_some() {
                let table = Zap::open(&self.mos().dnode(ObjectId(work.zap))?)?;
                self.write_vdev_work(ctx, &table, work, work.state != VdevWorkState::Active)?;
            }
        }
        let mut all = self.vdev_work.all.lock();
        // Finished work leaves the list once its end is in the ZAP.
        all.retain(|s| s.state == VdevWorkState::Active || s.dirty);
        Ok(())
    }

    /// Continues the work that was active when the pool was last open.
    pub(crate) fn load_vdev_work(self: &Arc<Self>) -> Result<()> {
        let mut zaps = Vec::new();
        let tree = self.config.lock().vdev_tree.clone();
        tree.visit(&mut |node| zaps.extend(node.zap_leaf.filter(|zap| *zap != 0)));
        for zap in zaps {
            let table = Zap::open(&self.mos().dnode(ObjectId(zap))?)?;
            for kind in VdevWorkKind::ALL {
                let work = self.known_vdev_work(&table, zap, kind)?;
                if work.state == VdevWorkState::Active {
                    self.vdev_work.all.lock().push(work);
                }
            }
        }
        self.start_vdev_work()
    }

    /// Makes sure that a thread works while something is active.
    fn start_vdev_work(self: &Arc<Self>) -> Result<()> {
        let mut thread = self.vdev_work.thread.lock();
        let active = self
            .vdev_work
            .all
            .lock()
            .iter()
            .any(|s| s.state == VdevWorkState::Active);
        let works = thread.as_ref().is_some_and(|t| !t.is_finished());
        if !active || works || self.vdev_work.stop.load(Relaxed) {
            return Ok(());
        }
        let pool = self.clone();
        let made = std::thread::Builder::new()
            .name("zuse-vdev-work".into())
            .spawn(move || worker::Worker::new(pool).run());
        let made = made.map_err(|e| Error::refused(Errno::AGAIN, format!("no thread: {e}")))?;
        if let Some(ended) = thread.replace(made) {
            // It has ended already, so this does not wait.
            let _ = ended.join();
        }
        Ok(())
    }

    /// Stops the work; the state on disk stays active.
    pub(crate) fn stop_vdev_work(&self) {
        self.vdev_work.stop.store(true, Relaxed);
        let thread = self.vdev_work.thread.lock().take();
        if let Some(thread) = thread {
            // It may be parked for a device that cannot be used now.
            thread.thread().unpark();
            let _ = thread.join();
        }
        // The txg that closes the pool writes the last positions.
        let dirty = self.vdev_work.all.lock().iter().any(|s| s.dirty);
        self.vdev_work.due.store(dirty, Relaxed);
    }
}
