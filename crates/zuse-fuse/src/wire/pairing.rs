//! When the workers go to the processor of who asks, and background work keeps off it ([`zuse_base::apart`]).
//!
//! The watch decides at each of its ticks: while one thread alone asks, one message right after the other, and there is work for the
//! background. Several who ask, or one who waits for more than one answer at a time or asks seldom, are served wherever the
//! scheduler likes: one processor would not do for them, and what is written for them may need all.
//!
//! ```text
//!   free ──fast, alone, background at work──> apart ──not so for LINGER, or TERM over──> free
//! ```
//! Where it asks from is read from its `stat`, at each tick: the scheduler moves it to whatever processor is idle, and it stays there for
//! some 50 to 250 ms, asking from where the background works. So the workers come after it when it was seen elsewhere [`STRAYED`] times in a
//! row: 5 to 8 times in 0.6 s, 47 and 52 µs (best and middle) for an attribute of 64 KiB where it was 52 and 55. (Workers who stay where they are leave the asker on the background's processor: 64 KiB
//! attributes were set in 111 µs so, in 93 where workers came to it.)
//!
//! Cost: per message two relaxed loads; while they are apart a read of `stat` at each tick (5 µs), and a system call for each thread
//! when they move.

use std::fs;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use zuse_base::apart::{self, Group};

/// Messages come right after one another when there are so many in a second.
const FAST: f64 = 16_000.0;
/// How long they stay apart when it is not worth it: pieces of work come in bursts.
const LINGER: Duration = Duration::from_millis(50);
/// How long at all, before the scheduler may have another look at where there is room.
const TERM: Duration = Duration::from_secs(1);

/// How often in a row, tick by tick, who asks is seen on another processor before the workers come after it.
const STRAYED: u32 = 4;

/// Who asks, and who serves, as the workers see it.
#[derive(Debug, Default)]
pub(super) struct Asked {
    by: AtomicU32,
    /// How often somebody else asked than before.
    changes: AtomicU64,
}

impl Asked {
    /// A message of this thread was taken; 0 is the kernel itself. Whether it is the one that asked before.
    pub(super) fn note(&self, thread: u32) -> bool {
        let is_same = self.by.load(Relaxed) == thread;
        if thread != 0 && !is_same {
            self.by.store(thread, Relaxed);
            self.changes.fetch_add(1, Relaxed);
        }
        is_same
    }

    /// Who asked last.
    pub(super) fn by(&self) -> u32 {
        self.by.load(Relaxed)
    }
}

/// What was counted until a tick.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Messages taken.
    taken: u64,
    /// How often somebody else asked.
    changes: u64,
    /// Pieces of background work begun.
    begun: u64,
    /// Whether one is being done.
    is_busy: bool,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Stay,
    Apart,
    Free,
}

/// What the watch knows.
#[derive(Debug)]
pub(super) struct Pairing {
    group: Group,
    at: Instant,
    last: Counts,
    /// Since when they are apart, and when it was worth it last.
    apart: Option<(Instant, Instant)>,
    /// Where that is, and how often in a row who asks was seen elsewhere.
    place: (usize, u32),
}

impl Pairing {
    pub(super) fn new(group: Group) -> Self {
        Self {
            group,
            at: Instant::now(),
            last: Counts::default(),
            apart: None,
            place: (0, 0),
        }
    }

    /// Looks at what came since the last time. Whether who serves is beside who asks from now on.
    pub(super) fn tick(&mut self, taken: u64, asked: &Asked) -> bool {
        let (begun, is_busy) = apart::background();
        let counts = Counts {
            taken,
            changes: asked.changes.load(Relaxed),
            begun,
            is_busy,
        };
        match self.judge(Instant::now(), counts) {
            Verdict::Stay => {
                if self.apart.is_some()
                    && let Some(cpu) = processor_of(asked.by())
                    && self.has_strayed(cpu)
                {
                    self.keep(cpu);
                }
            }
            Verdict::Free => self.part(),
            Verdict::Apart => match processor_of(asked.by()) {
                Some(cpu) => self.keep(cpu),
                None => self.apart = None,
            },
        }
        self.apart.is_some()
    }

    /// Who asks was seen on that processor: whether it has settled elsewhere.
    fn has_strayed(&mut self, cpu: usize) -> bool {
        let (place, strayed) = &mut self.place;
        *strayed = if cpu == *place { 0 } else { *strayed + 1 };
        *strayed >= STRAYED
    }

    fn keep(&mut self, cpu: usize) {
        self.place = (cpu, 0);
        if !apart::keep(self.group, cpu) {
            self.apart = None;
        }
    }

    fn judge(&mut self, now: Instant, counts: Counts) -> Verdict {
        let (passed, last) = (now - self.at, self.last);
        (self.at, self.last) = (now, counts);
        let fast = (counts.taken - last.taken) as f64 >= FAST * passed.as_secs_f64();
        let works = counts.is_busy || counts.begun != last.begun;
        let is_worth_it = fast && works && counts.changes == last.changes;
        match &mut self.apart {
            None if is_worth_it => {
                self.apart = Some((now, now));
                Verdict::Apart
            }
            None => Verdict::Stay,
            Some((since, until)) => {
                if is_worth_it {
                    *until = now;
                }
                if now - *until > LINGER || now - *since > TERM {
                    Verdict::Free
                } else {
                    Verdict::Stay
                }
            }
        }
    }

    fn part(&mut self) {
        if self.apart.take().is_some() {
            apart::release(self.group);
        }
    }
}

impl Drop for Pairing {
    fn drop(&mut self) {
        self.part();
    }
}

/// Where a thread runs, or ran last.
pub(super) fn processor_of(thread: u32) -> Option<usize> {
    processor_in(&fs::read(format!("/proc/{thread}/stat")).ok()?)
}

/// The processor that a `stat` names: the 39th field. The second one is in brackets, and may hold anything.
fn processor_in(stat: &[u8]) -> Option<usize> {
    let end = stat.iter().rposition(|b| *b == b')')?;
    let text = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    text.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A watch that ticks once in a millisecond.
    struct Watch {
        pairing: Pairing,
        counts: Counts,
        now: Instant,
    }

    impl Watch {
        fn new() -> Self {
            let pairing = Pairing::new(Group::new());
            let now = pairing.at;
            Self {
                pairing,
                counts: Counts::default(),
                now,
            }
        }

        /// So many messages came, and something was begun in the background meanwhile or not.
        fn tick(&mut self, messages: u64, works: bool) -> Verdict {
            self.now += MS;
            self.counts.taken += messages;
            self.counts.begun += u64::from(works);
            let verdict = self.pairing.judge(self.now, self.counts);
            if verdict == Verdict::Free {
                self.pairing.part();
            }
            verdict
        }
    }

    #[test]
    fn a_processor_is_found_behind_whatever_a_program_is_called() {
        let stat = b"7 (a) R (b) 1) S 1 7 7 0 -1 64 1 0 0 0 1 2 0 0 20 0 1 0 9 5 6 7 8 9 10 11 12 0 0 0 0 0 0 0 17 3 0 0 0 0";
        assert_eq!(processor_in(stat), Some(3));
        assert_eq!(processor_in(b"7 (a) S 1"), None);
        assert_eq!(processor_in(b""), None);
        let me = rustix::thread::gettid().as_raw_pid();
        assert!(processor_of(me as u32).is_some());
        assert_eq!(processor_of(u32::MAX), None);
    }

    #[test]
    fn one_who_asks_fast_while_work_is_done_is_served_apart() {
        let mut watch = Watch::new();
        assert_eq!(watch.tick(40, false), Verdict::Stay, "nothing to keep off");
        assert_eq!(watch.tick(3, true), Verdict::Stay, "asks seldom");
        assert_eq!(watch.tick(40, true), Verdict::Apart);
        assert_eq!(watch.tick(40, true), Verdict::Stay);
    }

    #[test]
    fn a_long_piece_of_work_counts_though_none_was_begun() {
        let mut watch = Watch::new();
        watch.counts.is_busy = true;
        assert_eq!(watch.tick(40, false), Verdict::Apart);
    }

    #[test]
    fn several_who_ask_are_served_anywhere() {
        let mut watch = Watch::new();
        for _ in 0..10 {
            watch.counts.changes += 1;
            assert_eq!(watch.tick(40, true), Verdict::Stay);
        }
    }

    #[test]
    fn pauses_of_the_work_do_not_end_it_a_long_one_does() {
        let mut watch = Watch::new();
        assert_eq!(watch.tick(40, true), Verdict::Apart);
        for _ in 0..5 {
            assert!((0..40).all(|_| watch.tick(40, false) == Verdict::Stay));
            assert_eq!(watch.tick(40, true), Verdict::Stay);
        }
        let end = (0..100).position(|_| watch.tick(40, false) == Verdict::Free);
        assert_eq!(end, Some(50));
    }

    #[test]
    fn who_asks_has_strayed_when_seen_elsewhere_several_times_in_a_row() {
        let mut pairing = Pairing::new(Group::new());
        pairing.place = (1, 0);
        let mut strayed = |cpus: &[usize]| {
            let seen: Vec<bool> = cpus.iter().map(|cpu| pairing.has_strayed(*cpu)).collect();
            seen.iter().position(|has| *has)
        };
        assert_eq!(strayed(&[1, 0, 0, 1, 0, 0, 0, 1]), None);
        assert_eq!(strayed(&[0; 8]), Some(STRAYED as usize - 1));
    }

    #[test]
    fn a_message_says_whether_somebody_else_asks_now() {
        let asked = Asked::default();
        assert!(!asked.note(7));
        assert!(asked.note(7));
        // The kernel's own belong to nobody, and change nothing.
        assert!(!asked.note(0));
        assert!(asked.note(7));
        assert!(!asked.note(8));
        assert_eq!(asked.changes.load(Relaxed), 2);
    }

    #[test]
    fn the_scheduler_has_a_look_once_in_a_while() {
        let mut watch = Watch::new();
        let verdicts: Vec<_> = (0..2500).map(|_| watch.tick(40, true)).collect();
        let begun = verdicts.iter().filter(|v| **v == Verdict::Apart).count();
        let ended = verdicts.iter().filter(|v| **v == Verdict::Free).count();
        assert_eq!((begun, ended), (3, 2));
    }
}
