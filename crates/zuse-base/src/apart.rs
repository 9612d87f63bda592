//! Threads that work in the background keep off the processor of who is being served.
//!
//! A program that asks one thing after the other, and the thread that answers it, take turns. What works beside them (bringing blocks
//! ahead, writing a txg) takes the processor from one or the other wherever the scheduler happens to put it: who is woken on a
//! processor that runs something else comes 5 to 10 µs later, which is as much as a whole message costs, and who serves is put aside in the
//! middle of an answer. So as long as both kinds of work are there, who serves is bound to the processor of who asks, as only one of the two
//! runs at a time, and what works in the background to the others. Who asks is not ours to place.
//!
//! ```text
//!   free ──keep(cpu)──> apart: serving on cpu, background on all others ──release()──> free
//! ```
//! While nobody serves apart, a member can be kept off one processor that somebody is about to hold for long ([`avoid`], [`put_back`]).
//!
//! A process has this once, as it has its processors once. Who decides is whoever counts messages (the watch of a FUSE session).
//!
//! Invariants
//! - Nobody is ever bound to a processor that the process was not allowed at its start; with one processor nothing is ever bound.
//! - After [`release`] every member may run wherever the process might at its start.
//! - It is a hint: what the host refuses is as if it had not been asked.
//!
//! Cost: nothing per message; a system call per member when the state changes. Memory: a few words per member.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Threads that serve the same door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(u64);

impl Group {
    /// A new one.
    pub fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Relaxed))
    }
}

impl Default for Group {
    fn default() -> Self {
        Self::new()
    }
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Answers somebody who waits.
    Serving(Group),
    /// Works for nobody in particular.
    Background,
}

#[derive(Default)]
struct Members {
    list: Vec<(Pid, Role)>,
    /// Who serves apart from the others, and on which processor.
    apart: Option<(Group, usize)>,
    /// They have been: a new thread may have inherited where its maker was bound.
    were_apart: bool,
}

struct Apart {
    /// What the process was allowed when this was asked first.
    allowed: Option<CpuSet>,
    members: Mutex<Members>,
    /// Pieces of background work that were begun.
    begun: AtomicU64,
    /// Pieces that are being worked on.
    busy: AtomicU64,
}

fn apart() -> &'static Apart {
    static APART: OnceLock<Apart> = OnceLock::new();
    APART.get_or_init(|| Apart {
        allowed: sched_getaffinity(None).ok().filter(|set| set.count() > 1),
        members: Mutex::default(),
        begun: AtomicU64::new(0),
        busy: AtomicU64::new(0),
    })
}

impl Apart {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a member may run.
    fn place(&self, role: Role, apart: Option<(Group, usize)>) -> Option<CpuSet> {
        let mut set = self.allowed?;
        match (apart, role) {
            (Some((_, cpu)), Role::Background) => set.unset(cpu),
            (Some((group, cpu)), Role::Serving(own)) if group == own => {
                set = CpuSet::new();
                set.set(cpu);
            }
            _ => {}
        }
        Some(set)
    }

    fn bind(&self, (thread, role): (Pid, Role), apart: Option<(Group, usize)>) {
        if let Some(set) = self.place(role, apart) {
            // Refused, or the thread is just ending.
            let _ = sched_setaffinity(Some(thread), &set);
        }
    }

    /// Does so if these serve apart, or nobody does.
    fn change(&self, group: Group, cpu: Option<usize>) -> bool {
        let mut members = self.members();
        if members.apart.is_some_and(|(other, _)| other != group) {
            return false;
        }
        let to = cpu.map(|cpu| (group, cpu));
        if members.apart != to {
            members.apart = to;
            members.were_apart = true;
            members
                .list
                .iter()
                .for_each(|member| self.bind(*member, to));
        }
        true
    }
}

/// This thread is bound as its role says until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Member(Pid);

/// Makes the calling thread a member. To be kept by it, to its end.
pub fn join(role: Role) -> Member {
    let (apart, me) = (apart(), gettid());
    let mut members = apart.members();
    members.list.push((me, role));
    if members.were_apart {
        apart.bind((me, role), members.apart);
    }
    Member(me)
}

impl Drop for Member {
    fn drop(&mut self) {
        apart()
            .members()
            .list
            .retain(|(member, _)| *member != self.0);
    }
}

/// Background work is being done until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Busy(());

/// Says that the caller works in the background from now on.
pub fn busy() -> Busy {
    let apart = apart();
    apart.begun.fetch_add(1, Relaxed);
    apart.busy.fetch_add(1, Relaxed);
    Busy(())
}

impl Drop for Busy {
    fn drop(&mut self) {
        apart().busy.fetch_sub(1, Relaxed);
    }
}

/// Pieces of background work that were begun until now, and whether any is being done.
pub fn background() -> (u64, bool) {
    let apart = apart();
    (apart.begun.load(Relaxed), apart.busy.load(Relaxed) > 0)
}

/// Keeps background work off this processor, and the threads of a group on it. False where that cannot be: the process may not use
/// it, or has no other, or another group serves apart.
pub fn keep(group: Group, cpu: usize) -> bool {
    let apart = apart();
    let may = apart
        .allowed
        .is_some_and(|set| cpu < CpuSet::MAX_CPU && set.is_set(cpu));
    may && apart.change(group, Some(cpu))
}

/// Keeps a member off the processor that the caller is on, until it is [`put_back`]: the caller is about to hold that for long. Nothing is
/// changed while some serve apart.
pub fn avoid(thread: Pid) {
    let apart = apart();
    let mut members = apart.members();
    let here = sched_getcpu();
    if let (None, Some(mut set)) = (members.apart, apart.allowed)
        && here < CpuSet::MAX_CPU
    {
        members.were_apart = true;
        set.unset(here);
        let _ = sched_setaffinity(Some(thread), &set);
    }
}

/// Lets a member run where its role says.
pub fn put_back(thread: Pid) {
    let apart = apart();
    let members = apart.members();
    if let Some(member) = members.list.iter().find(|(member, _)| *member == thread) {
        apart.bind(*member, members.apart);
    }
}

/// Lets everybody run anywhere again, if this group served apart.
pub fn release(group: Group) {
    apart().change(group, None);
}

#[cfg(test)]
mod tests;
