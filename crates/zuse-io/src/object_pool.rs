//! A pool of reusable objects, such as buffers.
//!
//! A thread takes an object that another thread has put back, or makes a new one. There are never
//! more objects than were in use at once. An object in use by a thread that panics is lost.

use zuse_base::sync::Mutex;

/// The objects that are not in use.
pub(crate) struct ObjectPool<T>(Mutex<Vec<T>>);

impl<T> Default for ObjectPool<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Default> ObjectPool<T> {
    /// Calls `work` with an object that no other thread has meanwhile.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let taken = self.0.lock().pop();
        let mut one = taken.unwrap_or_default();
        let result = work(&mut one);
        self.0.lock().push(one);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::ObjectPool;

    #[test]
    fn there_are_as_many_as_were_in_use_at_once() {
        let pool = ObjectPool::<Vec<u8>>::default();
        for _ in 0..3 {
            pool.with(|outer| {
                outer.push(1);
                pool.with(|inner| inner.push(2));
            });
        }
        let free = pool.0.lock();
        assert_eq!(*free, [vec![2; 3], vec![1; 3]]);
    }
}
