//! State attached to an object in memory: a ZAP's lock, a znode. At most one of each type.
//!
//! An object holds it weakly: it lives as long as it is in use. Most objects have one, which is
//! stored inline without an allocation.

use std::any::Any;
use std::sync::{Arc, Weak};
use zuse_base::sync::RwLock;

use zuse_base::Result;

use super::Dnode;

type Companion = Weak<dyn Any + Send + Sync>;

#[derive(Default)]
struct All {
    first: Option<Companion>,
    // The bare vector would make every object two words larger.
    #[allow(clippy::box_collection)]
    others: Option<Box<Vec<Companion>>>,
}

impl All {
    fn find<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let others = self.others.iter().flat_map(|o| o.iter());
        self.first
            .iter()
            .chain(others)
            .filter_map(Weak::upgrade)
            .find_map(|any| any.downcast::<T>().ok())
    }

    fn put(&mut self, companion: Companion) {
        let gone = |weak: &Companion| weak.strong_count() == 0;
        if self.first.as_ref().is_none_or(gone) {
            self.first = Some(companion);
            return;
        }
        let others = self.others.get_or_insert_default();
        others.retain(|weak| !gone(weak));
        others.push(companion);
    }
}

/// The companions of one object.
#[derive(Default)]
pub(super) struct Companions(RwLock<All>);

impl Dnode {
    /// The in-memory companion of this object of that type, made by `make` if there is none (any
    /// more).
    ///
    /// # Errors
    /// Those of `make`.
    pub fn companion<T: Send + Sync + 'static>(
        &self,
        make: impl FnOnce() -> Result<Arc<T>>,
    ) -> Result<Arc<T>> {
        let all = &self.companions.0;
        let there = all.read().find();
        if let Some(there) = there {
            return Ok(there);
        }
        let made = make()?;
        let mut all = all.write();
        if let Some(there) = all.find() {
            return Ok(there);
        }
        let any: Arc<dyn Any + Send + Sync> = made.clone();
        all.put(Arc::downgrade(&any));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_gone_make_room_and_each_type_is_found() {
        let weak = |any: &Arc<dyn Any + Send + Sync>| Arc::downgrade(any);
        let (one, two, three): (Arc<dyn Any + Send + Sync>, Arc<_>, Arc<_>) =
            (Arc::new(1u8), Arc::new(2u16), Arc::new(3u32));
        let (two, three): (Arc<dyn Any + Send + Sync>, Arc<dyn Any + Send + Sync>) = (two, three);
        let mut all = All::default();
        assert!(all.find::<u8>().is_none());
        all.put(weak(&one));
        all.put(weak(&two));
        all.put(weak(&three));
        assert_eq!(all.find::<u8>().as_deref(), Some(&1));
        assert_eq!(all.find::<u16>().as_deref(), Some(&2));
        assert_eq!(all.find::<u32>().as_deref(), Some(&3));
        drop((one, two));
        assert!(all.find::<u8>().is_none() && all.find::<u16>().is_none());
        let four: Arc<dyn Any + Send + Sync> = Arc::new(4u64);
        let five: Arc<dyn Any + Send + Sync> = Arc::new(5i8);
        all.put(weak(&four));
        all.put(weak(&five));
        assert_eq!(all.find::<u64>().as_deref(), Some(&4));
        assert_eq!(all.find::<i8>().as_deref(), Some(&5));
        assert_eq!(all.find::<u32>().as_deref(), Some(&3));
        assert_eq!(
            all.others.map(|o| o.len()),
            Some(2),
            "what is gone is not kept"
        );
    }
}
