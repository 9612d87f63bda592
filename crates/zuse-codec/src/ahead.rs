//! Prefetching bytes from memory into the processor's caches.

/// A line of the processor's caches.
const LINE: usize = 64;

/// Prefetches bytes into the CPU cache. A caller that reads many places prefetches all of them
/// first, and so waits for memory only once. Without effect on other CPUs.
#[inline]
pub fn read_soon(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and cannot fault; the address is inside a slice besides.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, LINE);
}

/// The same for a cache line at an address. The memory may have been freed: nothing is read.
#[inline]
pub fn read_soon_at(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and cannot fault, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_bytes_may_be_asked_for() {
        let bytes = [7u8; 300];
        super::read_soon(&bytes);
        super::read_soon(&bytes[..0]);
        super::read_soon(&bytes[299..]);
        assert_eq!(bytes, [7; 300]);
    }

    #[test]
    fn any_address_may_be_asked_for() {
        for address in [0, 1, 0x1000, usize::MAX / 2, usize::MAX] {
            super::read_soon_at(address);
        }
    }
}
