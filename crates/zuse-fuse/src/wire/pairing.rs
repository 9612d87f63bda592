//! When the workers go to the processor of who asks, and background work keeps off it ([`zuse_base::apart`]).
//!
//! The watch decides at each of its ticks: while one thread alone asks, one message right after the other, and there is work for the
//! background. Several who ask, or one who waits for more than one answer at a time or asks seldom, are served wherever the
//! scheduler likes: one processor would not do for them, and what is written for them may need all.
//!
//! ```text
//!   at ease ──fast, alone, background at work──> placed: anywhere <──trial, kept if it serves more──> beside the asker
//!      ^                                            └──────────────────not so for LINGER──────────────────┘
//! ```
//! Whether it is good to be beside the asker is a matter of the machine and of the work: where two processors are two halves of one core,
//! an attribute of 64 KiB was got in 54 to 63 µs beside and 70 to 95 anywhere; where they are two cores with caches of their own, one of 16 KiB was set in 49 to 53
//! beside and in 35 to 44 anywhere, but one of 64 KiB got in 46 beside and in 64 anywhere. So both are tried ([`Trial`]): what serves more messages in
//! a [`WINDOW`] stays, and the other one is tried again, the less often the more often it was worse.
//!
//! Where it asks from is read from its `stat`, at each tick: the scheduler moves it to whatever processor is idle, and it stays there for
//! some 50 to 250 ms, asking from where the background works. So the workers come after it when it was seen elsewhere [`STRAYED`] times in a
//! row: 5 to 8 times in 0.6 s, 47 and 52 µs (best and middle) for an attribute of 64 KiB where it was 52 and 55. (Workers who stay where they are leave the asker on the background's processor: 64 KiB
//! attributes were set in 111 µs so, in 93 where workers came to it.)
//!
//! Cost: per message two relaxed loads; while they are beside a read of `stat` at each tick (5 µs), and a system call for each thread
//! when they move.

use std::fs;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use zuse_base::apart::{self, Group};

/// Messages come right after one another when there are so many in a second.
const FAST: f64 = 16_000.0;
/// How long placing goes on when it is not worth it: pieces of work come in bursts.
const LINGER: Duration = Duration::from_millis(50);
/// How long messages are counted to compare two ways.
const WINDOW: Duration = Duration::from_millis(16);
/// What is so many times as fast is better.
const BETTER: f64 = 1.04;
/// Who asks nothing for so many ticks in a row is doing something else: a stall of the way that is tried counts against it.
const PAUSE: u32 = 8;
/// What is only so many times as fast after a quarter of a window is not tried to its end.
const MUCH_WORSE: f64 = 0.75;
/// How long one way is kept before the other is tried again: at first, and at last.
const KEPT: Duration = Duration::from_millis(64);
const KEPT_LONG: Duration = Duration::from_secs(2);

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
    /// Go beside who asks.
    Beside,
    /// Be wherever the scheduler likes.
    Free,
}

/// Which of the two ways serves more, while it is worth asking.
#[derive(Debug)]
struct Trial {
    /// The way of now.
    is_beside: bool,
    /// Whether that is only tried; else it is the usual one.
    is_tried: bool,
    /// Messages a second that the usual way had, once it is known.
    usual: Option<f64>,
    /// Since when messages of this window are counted, and how many there were before it.
    window: (Instant, u64),
    /// Ticks in a row without a message.
    silent: u32,
    /// The first window tells of nothing but beginnings.
    is_first: bool,
    /// When the other way is tried, and how long after that once more if it is worse.
    next: (Instant, Duration),
    /// When it was worth it last.
    worth_it: Instant,
}

impl Trial {
    fn new(is_beside: bool, now: Instant, taken: u64) -> Self {
        Self {
            is_beside,
            is_tried: false,
            usual: None,
            window: (now, taken),
            silent: 0,
            is_first: true,
            next: (now, KEPT),
            worth_it: now,
        }
    }

    fn usual_way(&self) -> bool {
        self.is_beside != self.is_tried
    }

    /// Time has passed; whether the way changes.
    fn goes_on(&mut self, now: Instant, taken: u64) -> bool {
        let (since, before) = self.window;
        let passed = now - since;
        let rate = (taken - before) as f64 / passed.as_secs_f64();
        let has_failed = self.is_tried
            && passed >= WINDOW / 4
            && self.usual.is_some_and(|usual| rate < usual * MUCH_WORSE);
        if passed < WINDOW && !has_failed {
            return false;
        }
        self.window = (now, taken);
        if std::mem::take(&mut self.is_first) {
            return false;
        }
        let changes = match self.usual {
            Some(usual) if self.is_tried => {
                self.is_tried = false;
                let is_better = rate > usual * BETTER;
                let kept = if is_better {
                    self.usual = Some(rate);
                    KEPT
                } else {
                    (self.next.1 * 2).min(KEPT_LONG)
                };
                self.next = (now + kept, kept);
                !is_better
            }
            usual => {
                self.usual = Some(usual.map_or(rate, |usual| (usual + rate) / 2.0));
                self.is_tried = now >= self.next.0;
                self.is_tried
            }
        };
        self.is_beside ^= changes;
        changes
    }

    /// What was counted in this window does not count: nobody asked, or somebody else.
    fn begin_window(&mut self, now: Instant, taken: u64) {
        self.window = (now, taken);
    }

    /// They could not go beside who asks.
    fn was_refused(&mut self) {
        (self.is_beside, self.is_tried) = (false, false);
        self.next = (self.window.0 + KEPT_LONG, KEPT_LONG);
    }
}

/// What the watch knows.
#[derive(Debug)]
pub(super) struct Pairing {
    group: Group,
    at: Instant,
    last: Counts,
    trial: Option<Trial>,
    /// What served more in the last one.
    was_beside: bool,
    /// Whether they are beside who asks.
    is_beside: bool,
    /// Where that is, and how often in a row who asks was seen elsewhere.
    place: (usize, u32),
}

impl Pairing {
    pub(super) fn new(group: Group) -> Self {
        Self {
            group,
            at: Instant::now(),
            last: Counts::default(),
            trial: None,
            was_beside: false,
            is_beside: false,
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
                if self.is_beside
                    && let Some(cpu) = processor_of(asked.by())
                    && self.has_strayed(cpu)
                {
                    self.keep(cpu);
                }
            }
            Verdict::Free => self.part(),
            Verdict::Beside => match processor_of(asked.by()) {
                Some(cpu) => self.keep(cpu),
                None => self.was_refused(),
            },
        }
        self.is_beside
    }

    /// Who asks was seen on that processor: whether it has settled elsewhere.
    fn has_strayed(&mut self, cpu: usize) -> bool {
        let (place, strayed) = &mut self.place;
        *strayed = if cpu == *place { 0 } else { *strayed + 1 };
        *strayed >= STRAYED
    }

    fn keep(&mut self, cpu: usize) {
        self.place = (cpu, 0);
        self.is_beside = apart::keep(self.group, cpu);
        if !self.is_beside {
            self.was_refused();
        }
    }

    fn was_refused(&mut self) {
        if let Some(trial) = &mut self.trial {
            trial.was_refused();
        }
    }

    fn judge(&mut self, now: Instant, counts: Counts) -> Verdict {
        let (passed, last) = (now - self.at, self.last);
        (self.at, self.last) = (now, counts);
        let taken = counts.taken - last.taken;
        let fast = taken as f64 >= FAST * passed.as_secs_f64();
        let works = counts.is_busy || counts.begun != last.begun;
        let is_alone = counts.changes == last.changes;
        let is_worth_it = fast && works && is_alone;
        let Some(trial) = &mut self.trial else {
            if is_worth_it {
                self.trial = Some(Trial::new(self.was_beside, now, counts.taken));
            }
            return if is_worth_it && self.was_beside {
                Verdict::Beside
            } else {
                Verdict::Stay
            };
        };
        if is_worth_it {
            trial.worth_it = now;
        }
        if now - trial.worth_it > LINGER {
            self.was_beside = trial.usual_way();
            let was = trial.is_beside;
            self.trial = None;
            return if was { Verdict::Free } else { Verdict::Stay };
        }
        trial.silent = if taken == 0 { trial.silent + 1 } else { 0 };
        if trial.silent >= PAUSE || !is_alone {
            trial.begin_window(now, counts.taken);
            return Verdict::Stay;
        }
        match trial.goes_on(now, counts.taken) {
            true if trial.is_beside => Verdict::Beside,
            true => Verdict::Free,
            false => Verdict::Stay,
        }
    }

    fn part(&mut self) {
        if std::mem::take(&mut self.is_beside) {
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

        fn ticks(&mut self, messages: u64, works: bool, ticks: usize) -> Vec<Verdict> {
            (0..ticks).map(|_| self.tick(messages, works)).collect()
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
    fn only_for_one_who_asks_fast_while_work_is_done_both_ways_are_tried() {
        let mut watch = Watch::new();
        assert!(
            (0..100).all(|_| watch.tick(40, false) == Verdict::Stay),
            "nothing to keep off"
        );
        assert!(
            (0..100).all(|_| watch.tick(3, true) == Verdict::Stay),
            "asks seldom"
        );
        assert!(
            (0..31).all(|_| watch.tick(40, true) == Verdict::Stay),
            "begins"
        );
        assert_eq!(
            watch.ticks(40, true, 3),
            [Verdict::Stay, Verdict::Beside, Verdict::Stay]
        );
    }

    #[test]
    fn a_long_piece_of_work_counts_though_none_was_begun() {
        let mut watch = Watch::new();
        watch.counts.is_busy = true;
        assert!(watch.ticks(40, false, 40).contains(&Verdict::Beside));
    }

    #[test]
    fn several_who_ask_are_served_anywhere() {
        let mut watch = Watch::new();
        for _ in 0..100 {
            watch.counts.changes += 1;
            assert_eq!(watch.tick(40, true), Verdict::Stay);
        }
    }

    /// Ticks in so many milliseconds in which it was beside, and how often it changed, if it serves so many messages beside and anywhere.
    fn where_it_is(beside: u64, anywhere: u64, ms: usize) -> (usize, usize) {
        let mut watch = Watch::new();
        let (mut is_beside, mut ticks, mut changes) = (false, 0, 0);
        for _ in 0..ms {
            match watch.tick(if is_beside { beside } else { anywhere }, true) {
                Verdict::Stay => {}
                now => (is_beside, changes) = (now == Verdict::Beside, changes + 1),
            }
            ticks += usize::from(is_beside);
        }
        (ticks, changes)
    }

    #[test]
    fn the_way_that_serves_more_is_kept_and_the_other_tried_seldom() {
        let (ticks, changes) = where_it_is(40, 30, 10_000);
        assert!(
            ticks > 9_800 && changes <= 19,
            "{ticks} of 10,000, {changes} changes"
        );
        let (ticks, changes) = where_it_is(30, 40, 10_000);
        assert!(
            (16..200).contains(&ticks) && changes <= 20,
            "{ticks} of 10,000, {changes} changes"
        );
        // What is much worse is given up after a quarter.
        let (ticks, changes) = where_it_is(20, 40, 10_000);
        assert!(
            ticks < 60 && changes <= 20,
            "{ticks} of 10,000, {changes} changes"
        );
        // A little more is chance.
        let (ticks, _) = where_it_is(101, 100, 10_000);
        assert!(ticks < 200, "{ticks} of 10,000");
    }

    #[test]
    fn what_was_better_the_last_time_comes_first() {
        let mut watch = Watch::new();
        let mut is_beside = false;
        for _ in 0..200 {
            match watch.tick(if is_beside { 60 } else { 40 }, true) {
                Verdict::Stay => {}
                now => is_beside = now == Verdict::Beside,
            }
        }
        assert!(is_beside);
        let has_ended = (0..100).any(|_| {
            watch.tick(0, false);
            watch.pairing.trial.is_none()
        });
        assert!(has_ended, "work has");
        assert_eq!(watch.tick(40, true), Verdict::Beside);
    }

    #[test]
    fn pauses_of_the_work_do_not_end_it_a_long_one_does() {
        let mut watch = Watch::new();
        watch.pairing.was_beside = true;
        assert_eq!(watch.tick(40, true), Verdict::Beside);
        assert_eq!(watch.ticks(40, false, 10), [Verdict::Stay; 10]);
        assert_eq!(watch.tick(40, true), Verdict::Stay);
        let end = (0..100).position(|_| {
            watch.tick(0, false);
            watch.pairing.trial.is_none()
        });
        assert_eq!(end, Some(50));
        assert_eq!(watch.tick(40, false), Verdict::Stay);
    }

    #[test]
    fn a_window_in_which_nobody_asked_does_not_count() {
        let mut watch = Watch::new();
        for _ in 0..20 {
            assert_eq!(watch.ticks(40, true, 6), [Verdict::Stay; 6]);
            assert_eq!(watch.ticks(0, true, 8), [Verdict::Stay; 8]);
        }
        // A short stall is part of how it is.
        let stalls = (0..20).flat_map(|_| [watch.tick(0, true), watch.tick(40, true)]);
        assert!(stalls.collect::<Vec<_>>().contains(&Verdict::Beside));
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
}
