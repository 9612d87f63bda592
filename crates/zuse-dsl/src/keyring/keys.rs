//! The keys in memory.
//!
//! Invariants
//! - A dataset's key is in `loaded` only if the wrapping key of its root is in `wrapping`.
//!   Unloading or replacing a root's key removes both. Asserted after each change.
//! - A returned key belongs to the requested object, and its root's key is loaded. Asserted where
//!   it is returned.

use std::collections::HashMap;
use std::sync::Arc;

use zuse_codec::crypt::WrappingKey;
use zuse_io::DatasetKey;

/// See the head of the module.
#[derive(Clone, Default)]
pub(crate) struct Keyring {
    /// By the directory of the encryption root.
    wrapping: HashMap<u64, WrappingKey>,
    /// By key object, with the directory of its root.
    loaded: HashMap<u64, (u64, Arc<DatasetKey>)>,
}

impl Keyring {
    /// The wrapping key of an encryption root.
    pub fn wrapping(&self, root: u64) -> Option<&WrappingKey> {
        self.wrapping.get(&root)
    }

    /// All wrapping keys, by the root's directory.
    pub fn all_wrapping(&self) -> impl Iterator<Item = (u64, &WrappingKey)> {
        self.wrapping.iter().map(|(root, key)| (*root, key))
    }

    /// A wrapping key is that of a root.
    pub fn keep_wrapping(&mut self, root: u64, key: WrappingKey) {
        self.wrapping.insert(root, key);
    }

    /// Removes a root's key, and all keys that it unwrapped.
    pub fn drop_root(&mut self, root: u64) {
        self.wrapping.remove(&root);
        self.loaded.retain(|_, (of, _)| *of != root);
        self.check_invariants();
    }

    /// The keys of a key object, if they are unwrapped.
    pub fn get(&self, object: u64) -> Option<&Arc<DatasetKey>> {
        let (root, key) = self.loaded.get(&object)?;
        assert!(
            self.wrapping.contains_key(root),
            "the key of object {object} is given out without that of its root {root}"
        );
        Some(key)
    }

    /// Keeps the keys of a key object that was just created, or rewrapped with its root's key.
    pub fn keep(&mut self, object: u64, root: u64, key: Arc<DatasetKey>) {
        self.loaded.insert(object, (root, key));
        self.check_invariants();
    }

    /// As [`Self::keep`], for an object that other threads may have unwrapped meanwhile. The first
    /// keys stay, because they count the uses of their salt. `None` if the root's key is not loaded
    /// any more.
    pub fn enter(
        &mut self,
        object: u64,
        root: u64,
        key: Arc<DatasetKey>,
    ) -> Option<Arc<DatasetKey>> {
        self.wrapping.get(&root)?;
        let (_, key) = self.loaded.entry(object).or_insert((root, key));
        Some(key.clone())
    }

    /// Assigns key objects to another root.
    pub fn move_to(&mut self, objects: &[u64], root: u64) {
        let is_loaded = self.wrapping.contains_key(&root);
        for object in objects {
            if !is_loaded {
                self.loaded.remove(object);
            } else if let Some(entry) = self.loaded.get_mut(object) {
                entry.0 = root;
            }
        }
        self.check_invariants();
    }

    /// A key object is freed.
    pub fn forget(&mut self, object: u64) {
        self.loaded.remove(&object);
    }

    /// Key objects of a root whose keys are unwrapped.
    pub fn objects_of(&self, root: u64) -> Vec<u64> {
        let of_root = self.loaded.iter().filter(|(_, (of, _))| *of == root);
        of_root.map(|(object, _)| *object).collect()
    }

    /// Keys change seldom, and few are loaded: all of them are checked each time.
    fn check_invariants(&self) {
        let stray = (self.loaded.iter()).find(|(_, (root, _))| !self.wrapping.contains_key(root));
        debug_assert!(
            stray.is_none(),
            "the key of object {:?} is kept without that of its root",
            stray.map(|(object, _)| object)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use zuse_base::SeededPrng;
    use zuse_codec::crypt::{MasterKey, Suite};

    fn wrapping() -> WrappingKey {
        WrappingKey::from_raw(&[7; 32]).expect("32 bytes")
    }

    fn key(byte: u8) -> Arc<DatasetKey> {
        let master = MasterKey::new(Suite::Aes256Gcm, &[byte; 32], &[2; 64]);
        Arc::new(DatasetKey::new(master, 1, Arc::new(SeededPrng::new(1))))
    }

    /// Roots 10 and 20 with an object each.
    fn ring() -> (Keyring, [Arc<DatasetKey>; 2]) {
        let (mut ring, keys) = (Keyring::default(), [key(1), key(2)]);
        for (root, object, key) in [(10, 1, &keys[0]), (20, 2, &keys[1])] {
            ring.keep_wrapping(root, wrapping());
            ring.keep(object, root, key.clone());
        }
        (ring, keys)
    }

    fn has(ring: &Keyring, object: u64, key: &Arc<DatasetKey>) -> bool {
        ring.get(object)
            .is_some_and(|there| Arc::ptr_eq(there, key))
    }

    #[test]
    fn what_a_root_unwrapped_goes_with_its_key() {
        let (mut ring, keys) = ring();
        assert!(has(&ring, 1, &keys[0]) && has(&ring, 2, &keys[1]));
        ring.drop_root(10);
        assert!(ring.get(1).is_none() && ring.wrapping(10).is_none());
        assert!(has(&ring, 2, &keys[1]));
        // A thread that unwrapped it before that is too late.
        assert!(ring.enter(1, 10, keys[0].clone()).is_none());
        assert!(ring.get(1).is_none());
        assert!(
            ring.enter(2, 20, key(3))
                .is_some_and(|k| Arc::ptr_eq(&k, &keys[1]))
        );
    }

    #[test]
    fn a_key_object_that_gets_another_root_needs_the_key_of_that() {
        let (mut ring, keys) = ring();
        ring.move_to(&[1], 20);
        assert!(has(&ring, 1, &keys[0]));
        let mut objects = ring.objects_of(20);
        objects.sort_unstable();
        assert_eq!(objects, [1, 2]);
        ring.move_to(&[1], 30);
        assert!(ring.get(1).is_none() && has(&ring, 2, &keys[1]));
    }

    #[test]
    #[should_panic(expected = "the key of object 1 is given out without that of its root 10")]
    fn a_key_is_never_given_out_without_that_of_its_root() {
        let (mut ring, _) = ring();
        ring.wrapping.remove(&10);
        ring.get(1);
    }

    #[test]
    #[should_panic(expected = "is kept without that of its root")]
    fn a_key_is_never_kept_without_that_of_its_root() {
        ring().0.keep(3, 30, key(3));
    }
}
