//! Values that will be asked for next, read into a cache that processors share.
//!
//! What was brought ahead ([`super::ahead`]) was last in a processor's cache some 10 ms before it is asked for, with 16 MiB behind it.
//! Copying 64 KiB of it into an answer takes 6 µs then, and 3.4 to 4.5 where another processor has read it a moment before. So who keeps a mount's other processor awake,
//! and who brings values, between two of them, reads a byte of each line of the next ones.
//!
//! ```text
//!   given ─┐  ┌── AHEAD bytes ──┐
//!   … · · ·│· ·│█ █ █ █ · · · · · · · · noted
//!          └ the one right behind is left alone: it is asked for in this moment
//! ```
//! Where processors share no cache that is of no use: a copy took 6.0 to 7.1 µs then, an answer 1 to 2 µs more than without. A virtual machine's processors
//! are near each other at one moment and far at the next. So some values are always left alone, or read where it does not pay, and
//! it is done for as long as answers of values that were read take less than answers of others.
//!
//! Budget of a step: a look at what was given last and at one place ([`super::places`]), and a value read, 4 to 10 µs of 64 KiB; when there is
//! nothing, that one look. Who serves writes to one line and looks at the clock twice for each long value. Memory: as many words as there are values in `AHEAD`.

use std::collections::VecDeque;
use std::hint;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};
use std::time::Instant;

use super::places::{NOTED, Places};

/// Bytes read ahead of who asks. In turn, near processors: 4 values of 64 KiB 3.4 to 4.5 µs for a copy, 3 of them 4.1, 8 3.8, none 5.7 to 6.9.
const AHEAD: usize = 256 << 10;
/// What is shorter is copied in no time.
const SHORT: usize = 8 << 10;
/// How far ahead numbers are looked at: the values of so many objects in a row may be gone already, or not be noted yet.
const REACH: u64 = 64;
/// One value of so many is treated in the way that does not seem to pay.
const TRIED: u64 = 16;
/// Steps between two pieces of other work.
const STEPS: usize = 4;
/// Bytes that a processor reads at once.
const LINE: usize = 64;

/// Whose value was given last, and what giving took: a line of its own, which who serves writes and who reads ahead looks at.
#[repr(align(128))]
pub(super) struct Given {
    file_system: AtomicU64,
    object: AtomicU64,
    /// Nanoseconds that an answer takes, of values that were left alone and of those brought nearer: half of them took less. 0 until there was one.
    took: [AtomicU32; 2],
}

impl Given {
    pub(super) const fn new() -> Self {
        Self {
            file_system: AtomicU64::new(0),
            object: AtomicU64::new(0),
            took: [const { AtomicU32::new(0) }; 2],
        }
    }

    pub(super) fn note(&self, file_system: u64, object: u64) {
        self.file_system.store(file_system, Relaxed);
        self.object.store(object, Relaxed);
    }

    /// The file system and the object that were noted last.
    pub(super) fn last(&self) -> (u64, u64) {
        (self.file_system.load(Relaxed), self.object.load(Relaxed))
    }

    /// Answers with a value, and learns from it.
    pub(super) fn timed<T>(&self, value: &[u8], is_near: bool, f: impl FnOnce(&[u8]) -> T) -> T {
        if value.len() < SHORT {
            return f(value);
        }
        let since = Instant::now();
        let answer = f(value);
        self.learn(is_near, since.elapsed().as_nanos() as u64);
        answer
    }

    /// An answer took so long. Who was put aside meanwhile took any time: so only more or less counts, and how much less.
    fn learn(&self, is_near: bool, nanos: u64) {
        let [alone, near] = &self.took;
        let took = if is_near { near } else { alone };
        let before = took.load(Relaxed);
        let (nanos, step) = (u32::try_from(nanos).unwrap_or(u32::MAX), before / 64 + 1);
        let after = match before {
            0 => nanos,
            _ if nanos < before / 2 => before / 2,
            _ if nanos < before => before - step,
            _ if nanos > before => before.saturating_add(step),
            _ => before,
        };
        took.store(after, Relaxed);
    }

    /// What it has learned: of values that were left alone, and of those brought nearer.
    pub(super) fn took(&self) -> [u32; 2] {
        self.took.each_ref().map(|took| took.load(Relaxed))
    }

    /// Whether reading ahead seems to pay.
    fn pays(&self) -> bool {
        let [alone, near] = self.took();
        near <= alone || alone == 0
    }
}

/// How far the reading is.
struct Nearer {
    file_system: u64,
    /// The first object that was not looked at.
    next: u64,
    /// Those whose values were read, or left alone, and not yet given, with their lengths.
    ahead: VecDeque<(u64, usize)>,
    bytes: usize,
    /// Long values that were found.
    found: u64,
}

/// What a step did.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Read(u64),
    /// Looked at an object whose value is left alone, or that has none worth it.
    Passed,
    /// Nothing: it is far enough ahead.
    Nothing,
}

impl Nearer {
    const fn new() -> Self {
        Self {
            file_system: 0,
            next: 0,
            ahead: VecDeque::new(),
            bytes: 0,
            found: 0,
        }
    }

    fn step(&mut self, places: &Places) -> Step {
        let given = &places.given;
        let (file_system, last) = given.last();
        if self.file_system != file_system {
            // Going on with the count: asked in turn, each file system would begin with one that is tried.
            *self = Self {
                file_system,
                found: self.found,
                ..Self::new()
            };
        }
        let reach = last + 2..=last + REACH;
        while let Some((object, len)) = self.ahead.front()
            && !reach.contains(object)
        {
            self.bytes -= len;
            self.ahead.pop_front();
        }
        if !(last + 2..=last + REACH + 1).contains(&self.next) {
            self.next = last + 2;
        }
        if last == 0 || self.bytes >= AHEAD || !reach.contains(&self.next) {
            return Step::Nothing;
        }
        let object = self.next;
        self.next += 1;
        let pays = given.pays();
        let mut len = 0;
        let place = places.bring_nearer(file_system, object, |bytes| {
            len = bytes;
            let is_tried = self.found.is_multiple_of(TRIED);
            bytes >= SHORT && pays != is_tried
        });
        if len < SHORT {
            return Step::Passed;
        }
        self.found += 1;
        self.ahead.push_back((object, len));
        self.bytes += len;
        let Some(place) = place else {
            return Step::Passed;
        };
        for line in place.bytes().chunks(LINE) {
            hint::black_box(line.first().copied());
        }
        Step::Read(object)
    }
}

fn step() -> Step {
    static NEARER: Mutex<Nearer> = Mutex::new(Nearer::new());
    let mut nearer = match NEARER.try_lock() {
        Ok(nearer) => nearer,
        Err(TryLockError::Poisoned(nearer)) => nearer.into_inner(),
        // Another thread is at it.
        Err(TryLockError::WouldBlock) => return Step::Nothing,
    };
    nearer.step(&NOTED)
}

/// Reads a value that will be asked for soon, of whichever file system was asked last, if there is one and it pays. Whether it did.
pub fn bring_nearer() -> bool {
    matches!(step(), Step::Read(_))
}

/// The same for who has other work, between two pieces of it: as many as are asked for during one.
pub(super) fn bring_some_nearer() {
    (0..STEPS).any(|_| step() == Step::Nothing);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use zuse_dmu::Block;

    use super::*;

    #[test]
    fn what_half_of_the_answers_take_is_learned_whatever_the_others_take() {
        let given = Given::new();
        assert!(given.pays(), "nothing known");
        let mut late = 0;
        let mut answers = |is_near, nanos: u64, count| {
            for _ in 0..count {
                late += 1;
                let put_aside = u64::from(late % 5 == 0) * 200_000;
                given.learn(is_near, nanos + late % 7 * 100 + put_aside);
            }
            given.pays()
        };
        answers(false, 12_000, 500);
        assert!(answers(true, 9_000, 100));
        assert!(!answers(true, 13_000, 500), "far since");
        assert!(answers(true, 9_500, 500));
        assert!(!answers(false, 8_000, 500));
        let [alone, near] = given.took();
        assert!((8_000..9_000).contains(&alone), "{alone}");
        assert!((9_500..10_500).contains(&near), "{near}");
    }

    #[test]
    fn the_first_answer_may_have_taken_any_time() {
        let given = Given::new();
        given.learn(false, u64::MAX);
        (0..50).for_each(|_| given.learn(false, 10_000));
        (0..50).for_each(|_| given.learn(true, 14_000));
        assert!(!given.pays());
        (0..100).for_each(|_| given.learn(true, 0));
        assert!(given.pays(), "no less than nothing");
    }

    #[test]
    fn only_answers_with_long_values_are_timed() {
        let given = Given::new();
        let value = vec![7; SHORT];
        assert_eq!(given.timed(&value[1..], true, <[u8]>::len), SHORT - 1);
        assert_eq!(given.took(), [0, 0]);
        assert_eq!(given.timed(&value, true, <[u8]>::len), SHORT);
        assert_eq!(given.took().map(|took| took > 0), [false, true]);
        assert_eq!(given.timed(&value, false, <[u8]>::len), SHORT);
        assert_eq!(given.took().map(|took| took > 0), [true, true]);
    }

    /// Values of objects from 1 on, of so many bytes each, noted for a file system; 0 is none.
    fn noted(lengths: &[usize]) -> (Places, Vec<Arc<Block>>) {
        let places = Places::new();
        let mut blocks = Vec::new();
        for (object, len) in (1..).zip(lengths).filter(|(_, len)| **len > 0) {
            let block = Arc::new(Block::new(vec![object as u8; *len]));
            places.put(FS, object, &block);
            blocks.push(block);
        }
        (places, blocks)
    }

    const FS: u64 = 3;

    /// All steps there are, and what was read in them.
    fn steps(nearer: &mut Nearer, places: &Places) -> Vec<u64> {
        let mut read = Vec::new();
        loop {
            match nearer.step(places) {
                Step::Nothing => return read,
                Step::Passed => {}
                Step::Read(object) => read.push(object),
            }
        }
    }

    #[test]
    fn the_next_long_values_are_read_up_to_so_many_bytes() {
        const LONG: usize = AHEAD / 4;
        let lengths = [LONG, LONG, LONG, SHORT - 1, 0, LONG, LONG, LONG, LONG, LONG];
        let (places, _blocks) = noted(&lengths);
        let mut nearer = Nearer::new();
        // So that what is tried does not fall among these.
        nearer.found = 1;
        assert_eq!(steps(&mut nearer, &places), [], "nothing was given");
        places.given.note(FS, 1);
        nearer.file_system = FS;
        assert_eq!(steps(&mut nearer, &places), [3, 6, 7, 8]);
        assert_eq!(steps(&mut nearer, &places), []);
        places.given.note(FS, 2);
        assert_eq!(steps(&mut nearer, &places), [9], "one more");
        places.given.note(FS, 6);
        assert_eq!(steps(&mut nearer, &places), [10], "the last");
        // Overtaken, then asked from the beginning, then of another file system.
        places.given.note(FS, 500);
        assert_eq!(steps(&mut nearer, &places), []);
        assert_eq!((nearer.bytes, nearer.ahead.len()), (0, 0));
        places.given.note(FS, 1);
        assert_eq!(steps(&mut nearer, &places), [3, 6, 7, 8]);
        let found = nearer.found;
        places.given.note(FS + 1, 1);
        assert_eq!(steps(&mut nearer, &places), []);
        assert_eq!((nearer.bytes, nearer.found), (0, found));
    }

    #[test]
    fn what_does_not_pay_is_tried_once_in_a_while() {
        let (places, _blocks) = noted(&[SHORT; 60]);
        for (alone, near, read) in [(0, 0, 15), (9, 8, 15), (9, 10, 1)] {
            let [was_alone, was_near] = &places.given.took;
            was_alone.store(alone, Relaxed);
            was_near.store(near, Relaxed);
            let mut nearer = Nearer::new();
            let mut count = 0;
            for object in 1..=16 {
                places.given.note(FS, object);
                // One step each, so that it stays right ahead.
                nearer.next = object + 2;
                nearer.file_system = FS;
                count += usize::from(matches!(nearer.step(&places), Step::Read(_)));
            }
            assert_eq!(count, read, "{alone} {near}");
        }
    }
}
