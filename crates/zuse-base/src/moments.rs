//! Whether a thread that serves has idle moments.
//!
//! A thread that has answered has some microseconds before the next question, and what takes no waiting is best done in
//! them. Who serves says that it has such moments; whoever leaves work for them looks first.
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
