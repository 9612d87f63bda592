//! One thread at a time opens a dataset's files and applies its log.
//!
//! - Threads that open the same dataset wait for each other. Those that open other datasets do not.
//! - The lock is a leaf, and no I/O is done under it.

use std::collections::HashSet;

use zuse_base::sync::{Condvar, Mutex};

/// Datasets that are being opened, by object.
#[derive(Default)]
pub(crate) struct Opening {
    objects: Mutex<HashSet<u64>>,
    ended: Condvar,
}

/// A dataset is being opened; until this is dropped.
pub(crate) struct OpeningGuard<'a> {
    opening: &'a Opening,
    object: u64,
}

impl Opening {
    /// Waits until no other thread opens the dataset, and keeps others from it.
    pub fn begin(&self, object: u64) -> OpeningGuard<'_> {
        let mut objects = self.objects.lock();
        while !objects.insert(object) {
            objects = self.ended.wait(objects);
        }
        OpeningGuard {
            opening: self,
            object,
        }
    }

    /// Waits until no dataset is being opened.
    pub fn wait_for_all(&self) {
        let mut objects = self.objects.lock();
        while !objects.is_empty() {
            objects = self.ended.wait(objects);
        }
    }
}

impl Drop for OpeningGuard<'_> {
    fn drop(&mut self) {
        self.opening.objects.lock().remove(&self.object);
        self.opening.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datasets_are_opened_at_the_same_time_and_each_by_one_thread() {
        let opening = Opening::default();
        let order = Mutex::new(Vec::new());
        let first = opening.begin(1);
        // With one lock for all this would never return.
        let other = opening.begin(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _second = opening.begin(1);
                order.lock().push("second");
            });
            order.lock().push("first");
            drop(first);
        });
        assert_eq!(*order.lock(), ["first", "second"]);
        drop(other);
        opening.wait_for_all();
    }
}
