//! Where the workers are, seen from the processor of who asks ([`zuse_base::apart`]).
//!
//! The watch decides at each of its ticks: while one thread alone asks, one message right after the other. Several who ask, or one who waits
//! for more than one answer at a time or asks seldom, are served wherever the
//! scheduler likes: one processor would not do for them, and what is written for them may need all.
//!
//! ```text
//!   at ease ──fast, alone──> opposite, or anywhere where there is one core <──trial──> held <──trial──> anywhere
//!      ^                          └──background at work──> opposite <──trial──> beside <──trial──> held <──trial──> anywhere
//!      └───────────────────not so for LINGER───────────────────┘
//! ```
//! Beside, who asks stays only while the other processors are busy: whoever is woken goes to an idle one. Where there is just one other, it can be
//! kept from being idle ([`super::doorstop`]). In a virtual machine whose host takes 25 µs to wake a processor that sleeps (a round between two threads 50 µs on two
//! processors, 4.3 on one) a message to null-fuse took 21 to 27 µs opposite and 9 held, with work in the background 50 where who asks had left and 11 to 13 held. Where processors wake each
//! other in 3 µs opposite takes 8 to 9. So holding is tried first where it may pay. It costs the other processor's time, as all ways but beside do, whose workers look for the next message there. A way that
//! serves much less than it did (`FALLEN`) is doubted at once: beside, that is who asks having left, and it is held from then on.
//!
//! Which way is good is a matter of the machine and of the work. Where two processors are two halves of one core,
//! an attribute of 64 KiB was got in 54 to 63 µs beside and 70 to 95 anywhere; where they are two cores with caches of their own, one of 16 KiB was set in 49 to 53
//! beside and in 35 to 44 anywhere, but one of 64 KiB got in 46 beside and in 64 anywhere. There the scheduler has the two share a processor for the first 1,500 to 2,000 messages
//! of a program, or for all: a message takes 10 µs so, and 8 on two. So all ways are tried ([`Trial`]): what serves more messages in
//! a `WINDOW` stays, and another one is tried again, the less often the more often it was worse. On cores of their own they begin opposite.
//!
//! Where it is held, who keeps the other processor awake reads what will be asked for ([`super::doorstop`]). That saves 3 of 40 µs for a value of 64 KiB where
//! the two share a cache, which is less than two windows differ by chance: so where it does read, holding only has to be no worse than another way.
//!
//! Where it asks from is read from its `stat`, at each tick: the scheduler moves it to whatever processor is idle, and it stays there for
//! some 50 to 250 ms, asking from where the background works. So the workers come after it when it was seen elsewhere [`STRAYED`] times in a
//! row: 5 to 8 times in 0.6 s, 47 and 52 µs (best and middle) for an attribute of 64 KiB where it was 52 and 55. (Workers who stay where they are leave the asker on the background's processor: 64 KiB
//! attributes were set in 111 µs so, in 93 where workers came to it.) From opposite it does not stray: 0 to 2 times in a run.
//!
//! Cost: per message two relaxed loads and an addition; while they are placed a read of `stat` at each tick (5 µs), and a system call for each thread
//! when they move.

use std::fs;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use zuse_base::apart::{self, Group, Place};

use super::trial::{LINGER, May, Trial, Way};

/// Messages come right after one another when there are so many in a second.
const FAST: f64 = 16_000.0;
/// Who asks nothing for so many ticks in a row is doing something else: a stall of the way that is tried counts against it.
const PAUSE: u32 = 8;

/// How often in a row, tick by tick, who asks is seen on another processor before the workers come after it.
const STRAYED: u32 = 4;
/// The same where it is held: it leaves when that begins, if at all.
const STRAYED_HELD: u32 = 2;

/// After so many messages it is seen whether holding helps beyond keeping a processor awake: it does if for one of so many something was read ahead. A value takes two, and
/// another thread may have read it.
const SEEN: u64 = 256;
const HELPS: u64 = 16;

/// Who asks, and who serves, as the workers see it.
#[derive(Debug, Default)]
pub(super) struct Asked {
    by: AtomicU32,
    /// How often somebody else asked than before.
    changes: AtomicU64,
    /// What was asked, not counting what the kernel says itself: it takes back a million references at once.
    count: AtomicU64,
}

impl Asked {
    /// A message of this thread was taken; 0 is the kernel itself. Whether it is the one that asked before.
    pub(super) fn note(&self, thread: u32) -> bool {
        let is_same = self.by.load(Relaxed) == thread;
        self.count.fetch_add(u64::from(thread != 0), Relaxed);
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
    /// What was read before it was asked for, by who keeps a processor awake.
    read: u64,
}

/// What the watch knows.
#[derive(Debug)]
pub(super) struct Pairing {
    group: Group,
    at: Instant,
    last: Counts,
    trial: Option<Trial>,
    may: May,
    /// What served most the last time there was no work in the background, and the last time there was.
    was: [Option<Way>; 2],
    /// Where they are.
    way: Way,
    /// Messages taken while held, since it was last seen what that is good for, and what was read ahead meanwhile; and whether that was enough
    /// the last time.
    held: (u64, u64),
    helps: bool,
    /// The processor of who asks then, and how often in a row it was seen elsewhere.
    place: (usize, u32),
}

impl Pairing {
    pub(super) fn new(group: Group) -> Self {
        Self::with(group, May::here())
    }

    fn with(group: Group, may: May) -> Self {
        Self {
            group,
            at: Instant::now(),
            last: Counts::default(),
            trial: None,
            may,
            was: [None; 2],
            way: Way::Anywhere,
            held: (0, 0),
            helps: false,
            place: (0, 0),
        }
    }

    /// Looks at what came since the last time, and at what was read ahead. Where who serves is from now on.
    pub(super) fn tick(&mut self, asked: &Asked, read: u64) -> Way {
        let (begun, is_busy) = apart::background();
        let counts = Counts {
            taken: asked.count.load(Relaxed),
            changes: asked.changes.load(Relaxed),
            begun,
            is_busy,
            read,
        };
        let way = self.judge(Instant::now(), counts);
        if way == Way::Anywhere {
            self.part();
        } else {
            match processor_of(asked.by()) {
                Some(cpu) if way != self.way || self.has_strayed(cpu) => self.keep(way, cpu),
                None if way != self.way => self.was_refused(),
                _ => {}
            }
        }
        self.way
    }

    /// Who asks was seen on that processor: whether it has settled elsewhere.
    fn has_strayed(&mut self, cpu: usize) -> bool {
        let (place, strayed) = &mut self.place;
        *strayed = if cpu == *place { 0 } else { *strayed + 1 };
        *strayed
            >= match self.way {
                Way::Held => STRAYED_HELD,
                _ => STRAYED,
            }
    }

    fn keep(&mut self, way: Way, cpu: usize) {
        let place = match way {
            Way::Opposite => Place::Off(cpu),
            _ => Place::On(cpu),
        };
        self.place = (cpu, 0);
        if apart::keep(self.group, place) {
            self.way = way;
        } else {
            self.was_refused();
        }
    }

    fn was_refused(&mut self) {
        self.part();
        if let Some(trial) = &mut self.trial {
            trial.was_refused();
        }
    }

    /// The way to go now.
    fn judge(&mut self, now: Instant, counts: Counts) -> Way {
        let (passed, last) = (now - self.at, self.last);
        (self.at, self.last) = (now, counts);
        let taken = counts.taken - last.taken;
        self.see_help(taken, counts.read - last.read);
        let is_fast = taken as f64 >= FAST * passed.as_secs_f64();
        let works = counts.is_busy || counts.begun != last.begun;
        let is_alone = counts.changes == last.changes;
        let [quiet, at_work] = &mut self.was;
        if self.trial.is_none() && is_fast && is_alone {
            self.trial = Some(Trial::new(*quiet, self.may, now, counts.taken));
        }
        let Some(trial) = &mut self.trial else {
            return Way::Anywhere;
        };
        if is_fast && is_alone {
            trial.fast = now;
        }
        let usual = trial.usual;
        if works && trial.works(now) {
            *quiet = trial.learned().or(*quiet);
            trial.usual = at_work.unwrap_or(trial.usual);
            trial.compared = None;
        } else if trial.is_done(now) {
            *at_work = trial.learned().or(*at_work);
            trial.usual = quiet.unwrap_or(self.may.first());
            trial.next = Trial::first_quiet(*quiet, self.may, now);
            trial.last = Way::Anywhere;
            trial.compared = None;
        }
        if trial.usual != usual {
            (trial.tried, trial.rate, trial.low) = (None, None, 0);
            trial.settles = None;
            trial.begin_window(now, counts.taken);
        }
        if now - trial.fast > LINGER {
            let was = if trial.worked.is_some() {
                at_work
            } else {
                quiet
            };
            *was = trial.learned().or(*was);
            self.trial = None;
            return Way::Anywhere;
        }
        trial.silent = if taken == 0 { trial.silent + 1 } else { 0 };
        if trial.silent >= PAUSE || !is_alone {
            trial.begin_window(now, counts.taken);
        } else {
            trial.goes_on(now, counts.taken, self.may, self.helps);
        }
        trial.way()
    }

    /// Whether what is read ahead where it is held is a good part of what is asked for.
    fn see_help(&mut self, taken: u64, read: u64) {
        let is_held = self.trial.as_ref().is_some_and(|t| t.way() == Way::Held);
        if !is_held {
            self.held = (0, 0);
            return;
        }
        let (all, ahead) = &mut self.held;
        (*all, *ahead) = (*all + taken, *ahead + read);
        if *all >= SEEN {
            self.helps = *ahead * HELPS >= *all;
            self.held = (0, 0);
        }
    }

    fn part(&mut self) {
        if self.way != Way::Anywhere {
            self.way = Way::Anywhere;
            apart::release(self.group);
        }
    }
}

impl Drop for Pairing {
    fn drop(&mut self) {
        self.part();
    }
}

/// Whether it can be of use to keep a processor from being idle.
pub(super) fn may_hold() -> bool {
    May::here().hold
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
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    use Way::{Anywhere, Beside, Held, Opposite};

    const ONE_CORE: May = May {
        oppose: false,
        hold: false,
    };
    const CORES: May = May {
        oppose: true,
        ..ONE_CORE
    };
    const TWO_CORES: May = May {
        hold: true,
        ..CORES
    };

    /// A watch that ticks once in a millisecond.
    struct Watch {
        pairing: Pairing,
        counts: Counts,
        now: Instant,
    }

    impl Watch {
        fn new(may: May) -> Self {
            let pairing = Pairing::with(Group::new(), may);
            let now = pairing.at;
            Self {
                pairing,
                counts: Counts::default(),
                now,
            }
        }

        /// So many messages came, and something was begun in the background meanwhile or not. The way from now on.
        fn tick(&mut self, messages: u64, works: bool) -> Way {
            self.now += MS;
            self.counts.taken += messages;
            self.counts.begun += u64::from(works);
            self.pairing.judge(self.now, self.counts)
        }

        fn ticks(&mut self, messages: u64, works: bool, ticks: usize) -> Vec<Way> {
            (0..ticks).map(|_| self.tick(messages, works)).collect()
        }

        /// Ticks of so many that each way had, and how often it changed, if ways serve so many messages.
        fn run(
            &mut self,
            serves: impl Fn(Way) -> u64,
            works: bool,
            ticks: usize,
        ) -> ([usize; 4], usize) {
            let (mut had, mut changes) = ([0; 4], 0);
            let mut way = self.pairing.trial.as_ref().map_or(Anywhere, Trial::way);
            for _ in 0..ticks {
                let next = self.tick(serves(way), works);
                changes += usize::from(next != way);
                way = next;
                had[way as usize] += 1;
            }
            (had, changes)
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
    fn one_who_asks_fast_is_served_from_another_core_if_there_is_one() {
        let mut watch = Watch::new(CORES);
        assert_eq!(watch.ticks(3, true, 100), [Anywhere; 100], "asks seldom");
        assert_eq!(watch.ticks(40, false, 100), [Opposite; 100]);
        // Several who ask.
        for _ in 0..200 {
            watch.counts.changes += 1;
            watch.tick(40, false);
        }
        assert_eq!(watch.tick(40, false), Opposite, "alone again");
        let end = watch.ticks(0, false, 100);
        assert_eq!(end.iter().position(|way| *way == Anywhere), Some(50));
        let mut watch = Watch::new(ONE_CORE);
        assert_eq!(watch.ticks(40, false, 2000), [Anywhere; 2000]);
    }

    #[test]
    fn several_who_ask_are_served_anywhere() {
        let mut watch = Watch::new(CORES);
        for _ in 0..100 {
            watch.counts.changes += 1;
            assert_eq!(watch.tick(40, true), Anywhere);
        }
    }

    #[test]
    fn without_work_anywhere_is_tried_and_never_beside() {
        let serves = |way| if way == Opposite { 50 } else { 40 };
        let (had, changes) = Watch::new(CORES).run(serves, false, 10_000);
        assert!(
            had[Anywhere as usize] < 200 && had[Beside as usize] == 0,
            "{had:?}"
        );
        assert!((2..30).contains(&changes), "{changes}");
        let serves = |way| if way == Opposite { 40 } else { 50 };
        let (had, _) = Watch::new(CORES).run(serves, false, 10_000);
        assert!(
            had[Opposite as usize] < 600 && had[Beside as usize] == 0,
            "{had:?}"
        );
    }

    #[test]
    fn on_one_core_both_ways_are_tried_only_while_there_is_work() {
        let mut watch = Watch::new(ONE_CORE);
        assert_eq!(watch.ticks(40, true, 33)[..32], [Anywhere; 32]);
        assert_eq!(watch.tick(40, true), Beside);
        let mut watch = Watch::new(ONE_CORE);
        watch.counts.is_busy = true;
        assert!(watch.ticks(40, false, 40).contains(&Beside), "a long piece");
    }

    #[test]
    fn the_way_that_serves_more_is_kept_and_the_others_tried_seldom() {
        for best in Way::ALL {
            for may in [ONE_CORE, CORES, TWO_CORES] {
                if (best == Opposite && !may.oppose) || (best == Held && !may.hold) {
                    continue;
                }
                let serves = |way| if way == best { 40 } else { 32 };
                let (had, changes) = Watch::new(may).run(serves, true, 10_000);
                assert!(
                    had[best as usize] > 9_300 && changes <= 28,
                    "{best:?}: {had:?}, {changes} changes"
                );
                // What is much worse is given up after half a window.
                let serves = |way| if way == best { 40 } else { 20 };
                let (had, changes) = Watch::new(may).run(serves, true, 10_000);
                assert!(
                    had[best as usize] > 9_400 && changes <= 28,
                    "{best:?}: {had:?}, {changes} changes"
                );
                // A little more is chance.
                let serves = |way| if way == best { 101 } else { 100 };
                let (had, _) = Watch::new(may).run(serves, true, 10_000);
                let first = may.first();
                assert!(had[first as usize] > 9_500, "{best:?}: {had:?}");
            }
        }
    }

    #[test]
    fn what_was_best_at_work_comes_first_the_next_time() {
        for best in [Beside, Anywhere] {
            let mut watch = Watch::new(CORES);
            let serves = |way| if way == best { 60 } else { 40 };
            watch.run(serves, true, 800);
            assert_eq!(watch.tick(60, true), best);
            // The work has ended, the asking has not.
            let quiet = watch.ticks(60, false, 60);
            assert_eq!(quiet.iter().position(|way| *way == Opposite), Some(50));
            assert_eq!(watch.tick(60, true), best);
            watch.ticks(60, true, 10);
            // Both have.
            assert_eq!(watch.ticks(0, false, 60).last(), Some(&Anywhere));
            assert_eq!(watch.tick(60, false), Opposite);
            assert_eq!(watch.tick(60, true), best);
        }
    }

    #[test]
    fn with_one_other_core_it_is_held_without_work_if_that_is_worth_it() {
        let serves = |way| if way == Held { 80 } else { 40 };
        let mut watch = Watch::new(TWO_CORES);
        let (had, _) = watch.run(serves, false, 10_000);
        assert!(had[Held as usize] > 9_600, "{had:?}");
        assert_eq!(had[Beside as usize], 0);
        // Known the next time.
        assert_eq!(watch.ticks(0, false, 60).last(), Some(&Anywhere));
        assert_eq!(watch.tick(80, false), Held);
        // What was not compared is not known: after short bursts, and after work, it is tried at once.
        let mut watch = Watch::new(TWO_CORES);
        for _ in 0..3 {
            watch.run(serves, false, 30);
            watch.ticks(0, false, 60);
        }
        let (had, _) = watch.run(serves, false, 100);
        assert!(had[Held as usize] > 50, "{had:?}");
        let mut watch = Watch::new(TWO_CORES);
        watch.run(|way| if way == Opposite { 80 } else { 40 }, true, 1000);
        watch.run(serves, false, 60);
        let (had, _) = watch.run(serves, false, 100);
        assert!(had[Held as usize] > 50, "{had:?}");
        // Tried at once, and found to serve hardly more.
        let serves = |way| if way == Held { 41 } else { 40 };
        let mut watch = Watch::new(TWO_CORES);
        let (had, _) = watch.run(serves, false, 60);
        assert!(had[Held as usize] > 15, "{had:?}");
        let (had, _) = watch.run(serves, false, 10_000);
        assert!(had[Opposite as usize] > 9_600, "{had:?}");
        // With a third one who asks would go there.
        let (had, _) = Watch::new(CORES).run(|_| 40, false, 10_000);
        assert_eq!(had[Held as usize], 0);
    }

    #[test]
    fn holding_that_helps_has_to_be_no_worse() {
        // Ticks held of 4,000 in which that serves so much where others serve 40, with something read ahead for one of so many messages.
        let held = |serves: u64, of: u64| {
            let mut watch = Watch::new(TWO_CORES);
            let (mut way, mut held) = (Anywhere, 0);
            for _ in 0..4_000 {
                let messages = if way == Held { serves } else { 40 };
                watch.counts.read += u64::from(way == Held) * messages / of;
                way = watch.tick(messages, true);
                held += usize::from(way == Held);
            }
            held
        };
        assert!(held(41, 1000) < 400, "nothing was read: chance");
        assert!(held(41, 30) < 400, "what is tried where it does not pay");
        assert!(held(41, 4) > 3_400);
        assert!(held(38, 4) < 400, "worse");
    }

    #[test]
    fn another_way_than_holding_that_helps_has_to_be_much_better() {
        for (others, of, is_left) in [(42, 4, false), (45, 4, true), (43, 1000, true)] {
            let mut watch = Watch::new(TWO_CORES);
            let (mut way, mut held) = (Anywhere, 0);
            for tick in 0..6_000 {
                let messages = match (way, tick) {
                    (Held, _) => 40,
                    (_, ..1_000) => 30,
                    _ => others,
                };
                watch.counts.read += u64::from(way == Held) * messages / of;
                way = watch.tick(messages, true);
                held += usize::from(way == Held && tick >= 5_000);
            }
            assert_eq!(held < 100, is_left, "{others} {of}: {held}");
        }
    }

    #[test]
    fn a_way_that_serves_much_less_than_before_is_doubted_at_once() {
        let mut watch = Watch::new(TWO_CORES);
        let serves = |way| if way == Beside { 80 } else { 50 };
        watch.run(serves, true, 10_000);
        let fallen = |way| match way {
            Beside => 20,
            Held => 60,
            _ => 40,
        };
        let (had, changes) = watch.run(fallen, true, 100);
        assert!(had[Held as usize] > 50 && changes == 1, "{had:?}");
        // Nor is it tried again soon.
        let (had, _) = watch.run(fallen, true, 1_500);
        assert_eq!(had[Beside as usize], 0);
        // The first moments do not count against what helps then; if it does not help, another way is found.
        for (at_last, best) in [(60, Held), (20, Opposite)] {
            let mut watch = Watch::new(TWO_CORES);
            watch.run(serves, true, 10_000);
            let mut held = 0;
            let mut way = Beside;
            for _ in 0..400 {
                held += u32::from(way == Held);
                let serves = match way {
                    Held if held < 20 => 10,
                    Held => at_last,
                    Opposite => 40,
                    _ => 20,
                };
                way = watch.tick(serves, true);
            }
            let usual = watch.pairing.trial.as_ref().map(|trial| trial.usual);
            assert_eq!(usual, Some(best));
        }
        // One bad window is not a fall.
        let mut watch = Watch::new(TWO_CORES);
        watch.run(serves, true, 10_000);
        let mut elsewhere = 0;
        for _ in 0..20 {
            for (part, ticks) in [(8, 8), (1, 56)] {
                let (had, _) = watch.run(|way| serves(way) / part, true, ticks);
                elsewhere += ticks - had[Beside as usize];
            }
        }
        assert!(elsewhere < 80, "{elsewhere}");
    }

    #[test]
    fn the_move_to_another_way_does_not_count_against_it() {
        let mut watch = Watch::new(TWO_CORES);
        let (mut way, mut since) = (Opposite, 0);
        for _ in 0..300 {
            let serves = match way {
                Held if since < 5 => 0,
                Held => 60,
                _ => 40,
            };
            let next = watch.tick(serves, true);
            since = if next == way { since + 1 } else { 0 };
            way = next;
        }
        let usual = watch.pairing.trial.as_ref().map(|trial| trial.usual);
        assert_eq!(usual, Some(Held));
    }

    #[test]
    fn a_window_in_which_nobody_asked_does_not_count() {
        let mut watch = Watch::new(CORES);
        for _ in 0..20 {
            assert_eq!(watch.ticks(40, true, 6), [Opposite; 6]);
            assert_eq!(watch.ticks(0, true, 8), [Opposite; 8]);
        }
        // A short stall is part of how it is.
        let stalls = (0..20).flat_map(|_| [watch.tick(0, true), watch.tick(40, true)]);
        assert!(stalls.collect::<Vec<_>>().contains(&Beside));
    }

    #[test]
    fn at_work_beside_is_tried_first_then_the_others() {
        // Whether work is there from the beginning or comes later, when anywhere was tried and found worse.
        for quiet in [0, 1000] {
            let mut watch = Watch::new(CORES);
            let serves = |way| if way == Opposite { 50 } else { 45 };
            watch.run(serves, false, quiet);
            let mut order: Vec<Way> = Vec::new();
            let mut way = Opposite;
            for _ in 0..400 {
                way = watch.tick(serves(way), true);
                if way != Opposite && order.last() != Some(&way) {
                    order.push(way);
                }
            }
            assert_eq!(order[..2], [Beside, Anywhere], "{quiet}");
        }
    }

    #[test]
    fn who_cannot_be_placed_is_anywhere_for_a_while() {
        let mut watch = Watch::new(CORES);
        assert_eq!(watch.tick(40, true), Opposite);
        watch.pairing.was_refused();
        assert_eq!(watch.ticks(40, true, 1900), [Anywhere; 1900]);
        assert!(
            watch
                .ticks(40, true, 300)
                .iter()
                .any(|way| *way != Anywhere)
        );
        // Where it went then is not what served most.
        let mut watch = Watch::new(CORES);
        watch.run(|way| if way == Opposite { 40 } else { 30 }, false, 1000);
        watch.pairing.was_refused();
        assert_eq!(watch.ticks(0, false, 60).last(), Some(&Anywhere));
        assert_eq!(watch.tick(40, false), Opposite);
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
        pairing.way = Held;
        assert!(!pairing.has_strayed(1));
        pairing.place = (1, 0);
        assert!(!pairing.has_strayed(0) && pairing.has_strayed(0));
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
        assert_eq!(asked.count.load(Relaxed), 4);
    }
}
