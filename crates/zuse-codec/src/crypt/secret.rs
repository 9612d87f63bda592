//! Bytes of a key at rest in memory.
//!
//! They have one place that does not move, so no copies stay behind. They are wiped when dropped,
//! and the system is asked not to write their page to its swap. Where it does not let us
//! (RLIMIT_MEMLOCK), they are as safe as all else.

use std::ops::Deref;

use zeroize::Zeroize;

pub(super) struct Secret<const N: usize>(Box<[u8; N]>);

impl<const N: usize> Secret<N> {
    pub(super) fn new(bytes: &[u8; N]) -> Self {
        let mut place = Box::new([0; N]);
        // SAFETY: the range is that of a live box, and locking a page changes nothing that a
        // program can see. The page is never unlocked: other keys may share it, and the heap uses
        // it again.
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

    /// Kilobytes that this process keeps from the swap.
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
