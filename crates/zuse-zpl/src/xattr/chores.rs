//! Extended attributes brought ahead between two questions, by the thread that is asked.
//!
//! Who asks over a mount needs some microseconds for each answer, in which the thread that gave it looks for the next question.
//! Another thread that works in the meantime takes a core from one of the two: per value of 256 bytes 2.7 µs, half of them for
//! changing places, and 5 more for each answer that finds the asker's core busy. So what takes no waiting is done here, in steps of
//! about the length of such a moment; what does (the host would have to ask a disk, values in hidden directories) is given to the
//! pool's threads, with as many neighbours as there are.
//!
//! ```text
//!   objects ahead ──dnode block──> spill blocks, by place ──short read──> cache
//!        └ not in the cache            └ not at hand
//!                └──────────────> behind ──> pool
//! ```
//! Budget of a step: one dnode block looked over, or one read of at most 32 KiB; no thread is woken, nothing is waited for. Memory:
//! the pointers of one dnode block, the numbers of one piece's objects, one read.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};

use zuse_base::moments;
use zuse_dmu::GlanceOver;
use zuse_dmu::sa::{Attr, SA_BONUS, SaGlance};
use zuse_format::BlockPointer;

use super::ahead::limit;
use crate::file_system::FileSystem;

/// Objects whose attributes wait for a pool's thread at most.
const BEHIND: usize = 1024;

/// What is to be brought in idle moments ([`zuse_base::moments`]), by whoever calls [`FileSystem::bring_some`] then.
#[derive(Default)]
pub(crate) struct Chores {
    any: AtomicBool,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// Objects that have not been looked at.
    objects: Range<u64>,
    /// Spill blocks of some, by place, with their objects, and how many of them are dealt with.
    found: Vec<(u64, BlockPointer)>,
    done: usize,
    /// Objects that a pool's thread is to look after.
    behind: Vec<u64>,
    scratch: Vec<u8>,
    /// Objects of this piece that were looked at, and decoded bytes that were brought for them.
    looked: u64,
    brought: u64,
}

impl Chores {
    /// Takes a piece over, if the calling thread has idle moments and nothing else is left to do.
    pub(super) fn take(&self, objects: &Range<u64>) -> bool {
        if !moments::are_expected() {
            return false;
        }
        let Some(mut list) = self.free() else {
            return false;
        };
        if !list.is_done() {
            return false;
        }
        list.objects = objects.clone();
        (list.looked, list.brought) = (0, 0);
        self.any.store(true, Relaxed);
        true
    }

    fn free(&self) -> Option<MutexGuard<'_, List>> {
        match self.list.try_lock() {
            Ok(list) => Some(list),
            Err(TryLockError::Poisoned(list)) => Some(list.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl List {
    fn is_done(&self) -> bool {
        self.objects.is_empty() && self.done == self.found.len()
    }

    /// The objects of the spill blocks that are left go to a pool's thread.
    fn leave_found(&mut self) {
        self.behind
            .extend(self.found[self.done..].iter().map(|f| f.0));
        self.done = self.found.len();
    }

    fn leave_all(&mut self) {
        self.leave_found();
        self.behind.extend(std::mem::take(&mut self.objects));
    }
}

impl FileSystem {
    /// Whether there is something to bring ahead.
    pub fn has_some_to_bring(&self) -> bool {
        self.chores.any.load(Relaxed)
    }

    /// Brings some of what will probably be asked for next, without waiting for a device; some microseconds' work. False: there
    /// is nothing, or somebody else is at it.
    pub fn bring_some(&self) -> bool {
        if !self.chores.any.load(Relaxed) {
            return false;
        }
        let Some(mut list) = self.chores.free() else {
            return false;
        };
        if list.done < list.found.len() {
            self.bring_found(&mut list);
        } else if !list.objects.is_empty() {
            self.look_at_next(&mut list);
        }
        if list.is_done() || list.behind.len() >= BEHIND {
            self.end_piece(&mut list);
        }
        true
    }

    /// Somebody had to wait for a value, or has no idle moments any more: what is left of the piece is a matter of the pool's threads.
    pub(super) fn leave_chores(&self) {
        if self.chores.any.load(Relaxed)
            && let Some(mut list) = self.chores.free()
        {
            list.leave_all();
            self.end_piece(&mut list);
        }
    }

    fn look_at_next(&self, list: &mut List) {
        let io = self.objset.io();
        let sa = self.store.table().glance();
        let List {
            objects,
            found,
            behind,
            ..
        } = list;
        found.clear();
        let glance = self.objset.glance_over(objects, |object, dnode| {
            if dnode.bonus_type() != SA_BONUS || has_space(&sa, dnode.bonus()) {
                // Of older kinds nobody knows without a closer look.
                behind.push(object);
            } else if let Some(bp) = dnode.spill().filter(|bp| io.may_bring(bp)) {
                match io.glance(&bp) {
                    Some(there) if has_space(&sa, there.bytes()) => behind.push(object),
                    Some(_) => {}
                    None => found.push((object, bp)),
                }
            }
        });
        list.done = 0;
        let by_place = |(_, bp): &(u64, BlockPointer)| (bp.dva(0).vdev(), bp.dva(0).offset());
        list.found.sort_unstable_by_key(by_place);
        let next = self.objset.next_dnode_block(list.objects.start);
        let next = next.min(list.objects.end);
        if let GlanceOver::Missing(bp) = glance {
            let came = io.may_bring(&bp)
                && io.bring_at_hand(&[(0, bp)], &mut list.scratch, |_, _| ()) > 0
                && io.glance(&bp).is_some();
            if came {
                return;
            }
            list.behind.extend(list.objects.start..next);
        }
        list.looked += next - list.objects.start;
        list.objects.start = next;
    }

    fn bring_found(&self, list: &mut List) {
        let sa = self.store.table().glance();
        let List {
            found,
            done,
            behind,
            scratch,
            brought,
            ..
        } = list;
        let dealt = self
            .objset
            .io()
            .bring_at_hand(&found[*done..], scratch, |object, block| {
                *brought += block.bytes().len() as u64;
                if has_space(&sa, block.bytes()) {
                    behind.push(object);
                }
            });
        *done += dealt;
        if dealt == 0 {
            list.leave_found();
        }
    }

    /// What could not be brought here goes to the pool's threads; the next piece is as long as this one was useful.
    fn end_piece(&self, list: &mut List) {
        if list.is_done() {
            self.chores.any.store(false, Relaxed);
        }
        if list.behind.is_empty() {
            self.xattrs_ahead
                .learn(list.looked, list.brought, limit(&self.objset));
            if list.brought == 0 {
                self.xattrs_ahead.all_there();
            }
        } else {
            self.bring_by_pool(std::mem::take(&mut list.behind));
        }
    }
}

/// Whether a buffer of attributes, as it is stored, names a hidden directory.
fn has_space(sa: &SaGlance, buffer: &[u8]) -> bool {
    sa.u64(buffer, Attr::Xattr).is_some_and(|space| space != 0)
}
