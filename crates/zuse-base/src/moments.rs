//! Whether a thread that serves has idle moments.
//!
//! Where who asks goes on on another processor, the thread that has answered has some microseconds before the next question, and what takes
//! no waiting is best done in them. Where both share a processor there are none: each step would keep who asks from asking.
//! Who serves says which it is before each question; whoever leaves work for such moments looks first.
//!
//! Cost: a look at a variable of the thread.

use std::cell::Cell;

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread will have idle moments from now on, or none.
pub fn expect(any: bool) {
    EXPECTED.set(any);
}

/// Whether the calling thread has idle moments. One that has not said so has none.
pub fn are_expected() -> bool {
    EXPECTED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_speaks_for_itself() {
        assert!(!are_expected());
        expect(true);
        assert!(are_expected());
        assert!(!std::thread::spawn(are_expected).join().expect("asked"));
        expect(false);
        assert!(!are_expected());
    }
}
