//! Where threads run that serve somebody, and those that work in the background.
//!
//! A program that asks one thing after the other, and the thread that answers it, take turns. What works beside them (bringing blocks
//! ahead, writing a txg) takes the processor from one or the other wherever the scheduler happens to put it: who is woken on a
//! processor that runs something else comes 5 to 10 µs later, which is as much as a whole message costs, and who serves is put aside in the
//! middle of an answer. So as long as both kinds of work are there, it can be good that who serves is bound to the processor of who asks, as only one of the two
//! runs at a time, and what works in the background to the others. Where they have cores of their own it can be good that the two never share one:
//! each finds its caches as it left them, and who serves looks for the next question while the other goes on. Who asks is not ours to place.
//!
//! ```text
//!            ┌──keep(On(cpu))───> serving on cpu, background on all others ─┐
//!   free ────┤                                                             ├──release()──> free
//!            └──keep(Off(cpu))──> serving on other cores than cpu's ───────┘
//! ```
//! Who looks for the next question gives his processor to who waits for it between two looks, and background work keeps it for 1 or 2 ms then.
//! Where those who serve have one processor, it keeps off that as well.
//!
//! While no background is kept off a processor, a member can be kept off one that somebody is about to hold for long ([`avoid`], [`put_back`]).
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

/// Where who serves is, seen from the processor of who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On that one, which is kept free of background work.
    On(usize),
    /// On none of its core. Where only one is left then, that one is kept free of background work.
    Off(usize),
}

#[derive(Default)]
struct Members {
    list: Vec<(Pid, Role)>,
    /// Who serves apart, and where.
    apart: Option<(Group, Place)>,
    /// They have been: a new thread may have inherited where its maker was bound.
    were_apart: bool,
}

struct Apart {
    /// What the process was allowed when this was asked first.
    allowed: Option<CpuSet>,
    /// For each processor up to the last of these those of other cores, found out when they are first needed.
    cores: OnceLock<Vec<CpuSet>>,
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
        cores: OnceLock::new(),
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
    fn place(&self, role: Role, apart: Option<(Group, Place)>) -> Option<CpuSet> {
        let mut set = self.allowed?;
        match (apart, role) {
            (Some((_, Place::On(cpu))), Role::Background) => set.unset(cpu),
            (Some((group, Place::On(cpu))), Role::Serving(own)) if group == own => {
                set = CpuSet::new();
                set.set(cpu);
            }
            (Some((group, Place::Off(cpu))), Role::Serving(own)) if group == own => {
                set = self.off(cpu)?;
            }
            (Some((_, Place::Off(cpu))), Role::Background) => {
                // Where there are more, the scheduler finds one that is free.
                let theirs = self.off(cpu)?;
                if theirs.count() == 1 {
                    let there = (0..CpuSet::MAX_CPU).find(|cpu| theirs.is_set(*cpu))?;
                    set.unset(there);
                }
            }
            _ => {}
        }
        Some(set)
    }

    /// The processors of other cores than this one's.
    fn off(&self, cpu: usize) -> Option<CpuSet> {
        let allowed = self.allowed?;
        let cores = self.cores.get_or_init(|| {
            let last = (0..CpuSet::MAX_CPU).rfind(|cpu| allowed.is_set(*cpu));
            let off = |cpu| {
                let mut set = allowed;
                siblings_of(cpu).iter().for_each(|cpu| set.unset(*cpu));
                set
            };
            last.map_or(Vec::new(), |last| (0..=last).map(off).collect())
        });
        cores.get(cpu).copied()
    }

    /// Whether members can be placed so.
    fn can_be(&self, place: Place) -> bool {
        let (Place::On(cpu) | Place::Off(cpu)) = place;
        let Some(allowed) = self.allowed else {
            return false;
        };
        if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
            return false;
        }
        match place {
            Place::On(_) => true,
            Place::Off(_) => self.off(cpu).is_some_and(|set| set.count() > 0),
        }
    }

    fn bind(&self, (thread, role): (Pid, Role), apart: Option<(Group, Place)>) {
        if let Some(set) = self.place(role, apart) {
            // Refused, or the thread is just ending.
            let _ = sched_setaffinity(Some(thread), &set);
        }
    }

    /// Does so if these serve apart, or nobody does.
    fn change(&self, group: Group, place: Option<Place>) -> bool {
        let mut members = self.members();
        if members.apart.is_some_and(|(other, _)| other != group) {
            return false;
        }
        let to = place.map(|place| (group, place));
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

/// Keeps the threads of a group in a place, and background work off it. False where that cannot be: the process may not use
/// the processor, or has no other one (of another core), or another group serves apart.
pub fn keep(group: Group, place: Place) -> bool {
    let apart = apart();
    apart.can_be(place) && apart.change(group, Some(place))
}

/// Whether the process may run on more than one core, as far as the system tells.
pub fn has_cores() -> bool {
    let apart = apart();
    let allowed = |set: CpuSet| (0..CpuSet::MAX_CPU).find(|cpu| set.is_set(*cpu));
    let first = apart.allowed.and_then(allowed);
    first.is_some_and(|cpu| apart.can_be(Place::Off(cpu)))
}

/// How many processors the process was allowed when this was asked first.
pub fn processors() -> usize {
    apart().allowed.map_or(1, |set| set.count() as usize)
}

/// The processors that are parts of the same core as this one, itself among them.
fn siblings_of(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let mut all = std::fs::read_to_string(path).map_or(Vec::new(), |text| numbers_in(&text));
    all.retain(|cpu| *cpu < CpuSet::MAX_CPU);
    all.push(cpu);
    all
}

/// The numbers of a list like `0-2,8`; what is none is left out.
fn numbers_in(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(first..=last.min(CpuSet::MAX_CPU))
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// Keeps a member off the processor that the caller is on, until it is [`put_back`]: the caller is about to hold that for long. Nothing is
/// changed while background work is kept off a processor.
pub fn avoid(thread: Pid) {
    let apart = apart();
    let mut members = apart.members();
    let here = sched_getcpu();
    if let Some(mut set) = apart.allowed
        && !matches!(members.apart, Some((_, Place::On(_))))
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
