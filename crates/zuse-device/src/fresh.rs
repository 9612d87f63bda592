//! Bytes of a device that are read directly into their final memory.

use std::ops::Deref;
#[cfg(target_os = "linux")]
use std::{fs::File, ops::Range, os::fd::AsRawFd};

/// Bytes read from a device, in memory with the alignment that the device prefers.
#[derive(Debug, Default)]
pub struct Fresh {
    memory: Vec<u8>,
    /// Bytes before the first one.
    lead: usize,
}

impl Fresh {
    /// The memory, and the offset of the bytes in it.
    pub fn into_memory(self) -> (Vec<u8>, usize) {
        (self.memory, self.lead)
    }
}

impl From<Vec<u8>> for Fresh {
    fn from(memory: Vec<u8>) -> Self {
        Self { memory, lead: 0 }
    }
}

impl Deref for Fresh {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.memory.get(self.lead..).unwrap_or_default()
    }
}

#[cfg(target_os = "linux")]
impl Fresh {
    /// Room for `len` bytes, beginning at a multiple of `align`, a power of two. Only the bytes
    /// before them are cleared.
    fn room(len: usize, align: usize) -> Self {
        let mut memory: Vec<u8> = Vec::with_capacity(len + align - 1);
        let lead = memory.as_ptr().addr().wrapping_neg() & (align - 1);
        memory.resize(lead, 0);
        Self { memory, lead }
    }

    fn vector(&mut self, len: usize) -> libc::iovec {
        let room = self.memory.spare_capacity_mut();
        libc::iovec {
            iov_base: room.as_mut_ptr().cast(),
            iov_len: len.min(room.len()),
        }
    }
}

/// Ranges of a file, counted from `at`, in one read. The bytes between them are discarded. `None`
/// is for an error, the end of the file, ranges out of order, or more buffers than the host accepts
/// in one call.
#[cfg(target_os = "linux")]
pub(crate) fn read_parts(
    file: &File,
    parts: &[Range<usize>],
    at: u64,
    align: usize,
) -> Option<Vec<Fresh>> {
    let start = parts.first()?.start;
    let (mut end, mut longest) = (start, 0);
    for part in parts {
        longest = longest.max(part.start.checked_sub(end)?);
        end = part.end.max(part.start);
    }
    let mut gap = Fresh::room(longest, align);
    let mut rooms: Vec<Fresh> = Vec::with_capacity(parts.len());
    let mut vectors = Vec::with_capacity(2 * parts.len());
    let mut from = start;
    for part in parts {
        if part.start > from {
            // All gaps are read into the same memory, and nothing looks at it.
            vectors.push(gap.vector(part.start - from));
        }
        let mut room = Fresh::room(part.len(), align);
        vectors.push(room.vector(part.len()));
        rooms.push(room);
        from = part.end.max(part.start);
    }
    // `off_t` has 32 bits on some hosts. Offsets beyond are read in the ordinary way.
    let offset = libc::off_t::try_from(at.checked_add(start as u64)?).ok()?;
    let count = i32::try_from(vectors.len()).ok()?;
    // SAFETY: each vector points to the room of `gap` or of one of `rooms`. They live until the
    // call has returned, and none of their bytes is initialized yet. Moving a `Fresh` does not move
    // its memory.
    let got = unsafe { libc::preadv(file.as_raw_fd(), vectors.as_ptr(), count, offset) };
    // After an error or a short read the caller reads in the ordinary way, which returns the error.
    if usize::try_from(got).ok()? != end - start {
        return None;
    }
    for (part, room) in parts.iter().zip(&mut rooms) {
        // SAFETY: the call has read the total length of all vectors. So this one is filled,
        // directly after the cleared bytes.
        unsafe { room.memory.set_len(room.lead + part.len()) };
    }
    Some(rooms)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn parts_come_whole_and_where_they_were_wanted_or_not_at_all() {
        let mut file = tempfile::tempfile().expect("a file");
        let bytes: Vec<u8> = (0..40_000u32).map(|n| (n / 7) as u8).collect();
        file.write_all(&bytes).expect("written");
        for align in [1, 64, 4096] {
            let parts = [3..3, 5..1000, 1000..9000, 20_000..39_990];
            let read = read_parts(&file, &parts, 10, align).expect("all of them");
            for (part, fresh) in parts.iter().zip(&read) {
                assert_eq!(&**fresh, &bytes[10 + part.start..10 + part.end]);
                assert!(fresh.as_ptr().addr().is_multiple_of(align));
            }
        }
        let none = |parts: &[Range<usize>], at| read_parts(&file, parts, at, 64).is_none();
        assert!(none(&[], 0));
        assert!(none(&[0..10, 5..20], 0), "one lies in another");
        assert!(none(&[0..10, 20..40_001], 0), "beyond the end");
        assert!(none(&[0..1, 1..2], u64::MAX));
        let many: Vec<_> = (0..2000).map(|n| 2 * n..2 * n + 1).collect();
        assert!(none(&many, 0), "more than the host takes");
    }

    #[test]
    fn bytes_that_are_there_already_stay_where_they_are() {
        let fresh = Fresh::from(vec![1, 2, 3]);
        assert_eq!(*fresh, [1, 2, 3]);
        assert_eq!(fresh.into_memory(), (vec![1, 2, 3], 0));
    }
}
