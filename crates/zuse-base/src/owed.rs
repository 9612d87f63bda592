//! Work that can wait until an answer was given.
//!
//! Some work belongs to no request, falls due in the middle of one, and holds a processor: having the system clear 2 MiB of fresh memory
//! takes 260 µs, in which who is woken on that processor comes late. A thread that serves says so ([`accept`]); what others would do at once, it then owes, and it
//! pays when it has answered.
//!
//! ```text
//!   in the middle of a request   owe(work)  ──> kept by this thread, if it accepts and owes nothing else
//!                                           ──> refused: the caller does it now
//!   after the answer             take()     ──> pay(), here or on another thread
//! ```
//! Cost: a look at a variable of the thread. Memory: three words a thread. Nothing here allocates: the heap itself owes.

use std::cell::Cell;

/// Something that is to be done.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Owed {
    work: fn(usize, usize),
    of: (usize, usize),
}

impl Owed {
    /// Does it.
    pub fn pay(self) {
        (self.work)(self.of.0, self.of.1);
    }
}

thread_local! {
    static ACCEPTS: Cell<bool> = const { Cell::new(false) };
    static OWES: Cell<Option<Owed>> = const { Cell::new(None) };
}

/// The calling thread will look at what it owes ([`take`]) from now on, often and to its end.
pub fn accept() {
    ACCEPTS.set(true);
}

/// Leaves `work` on these two numbers for later. False if the caller has to do it now: nobody would pay, or something else is owed
/// already.
pub fn owe(work: fn(usize, usize), of: (usize, usize)) -> bool {
    // There until the very end of a thread, as neither has anything to drop.
    let may = ACCEPTS.get() && OWES.get().is_none();
    if may {
        OWES.set(Some(Owed { work, of }));
    }
    may
}

/// What the calling thread owes, once.
pub fn take() -> Option<Owed> {
    OWES.take()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn who_accepts_owes_one_thing_until_it_is_taken() {
        static SUM: AtomicUsize = AtomicUsize::new(0);
        fn add(a: usize, b: usize) {
            SUM.fetch_add(a * b, SeqCst);
        }
        assert!(!owe(add, (2, 3)), "nobody would pay");
        assert!(take().is_none());
        accept();
        assert!(owe(add, (2, 3)) && !owe(add, (100, 100)));
        assert_eq!(SUM.load(SeqCst), 0);
        let owed = take().expect("owed");
        assert!(take().is_none());
        // Whoever pays.
        std::thread::spawn(move || owed.pay()).join().expect("paid");
        assert_eq!(SUM.load(SeqCst), 6);
        assert!(owe(add, (1, 1)), "again");
        let other = std::thread::spawn(move || (owe(add, (1, 1)), take().is_some()));
        assert_eq!(other.join().expect("asked"), (false, false));
    }
}
