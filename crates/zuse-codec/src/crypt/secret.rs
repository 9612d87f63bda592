//! Bytes of a key at rest in memory.
//!
//! A secret has one address for its life, so no copies stay behind. It is wiped on drop, and its
//! page is locked against swapping. If the host does not permit that (RLIMIT_MEMLOCK), the page may
//! be swapped like any other.

use std::ops::Deref;

use zeroize::Zeroize;

pub(super) struct Secret<const N: usize>(Box<[u8; N]>);

impl<const N: usize> Secret<N> {
    pub(super) fn new(bytes: &[u8; N]) -> Self {
        let mut place = Box::new([0; N]);
        // SAFETY: the range is that of a live box, and locking a page has no effect that a program
        // can see. The page is never unlocked: other keys may share it, and the heap reuses it.
        let _ = unsafe { rustix::mm::mlock(place.as_mut_ptr().cast(), N) };
        place.copy_from_slice(bytes);
        Self(place)
    }
}

impl<const N: usize> Deref for Secret<N> {
    type Target = [u8; N];

    fn deref(&self) -> &[u8; N] {
        &self.0
    }
}

impl<const N: usize> Clone for Secret<N> {
    fn clone(&self) -> Self {
        Self::new(self)
    }
}

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    /// Kilobytes of this process that are locked against swapping.
    fn locked() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("status");
        let line = status.lines().find(|l| l.starts_with("VmLck:"));
        let words = line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok());
        words.expect("VmLck")
    }

    #[test]
    fn a_key_is_kept_out_of_the_swap_where_that_is_allowed() {
        let key = Secret::new(&[7; 32]);
        assert_eq!(*key.clone(), [7; 32]);
        let may = rustix::process::getrlimit(rustix::process::Resource::Memlock);
        if may.current != Some(0) {
            assert!(locked() > 0);
        }
    }
}
