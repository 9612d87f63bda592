//! Integers at fixed offsets.
//!
//! Readers never fail: a field after the end of the slice reads as zero. On-disk structures have
//! grown at their ends, and a missing end means zeros. Parsers check the mandatory length first.
//! Writers get buffers from this project's own code, so a short buffer is a bug and panics.

use zuse_base::ByteOrder;

macro_rules! fields {
    ($($get:ident, $get_in:ident, $put:ident, $ty:ty, $size:literal;)*) => {$(
        /// Little-endian integer at a byte offset; zero past the end.
        #[inline]
        pub fn $get(bytes: &[u8], at: usize) -> $ty {
            match bytes.get(at..).and_then(|tail| tail.first_chunk::<$size>()) {
                Some(raw) => <$ty>::from_le_bytes(*raw),
                None => 0,
            }
        }

        /// Integer of either byte order at a byte offset; zero past the end.
        #[inline]
        pub fn $get_in(bytes: &[u8], at: usize, order: ByteOrder) -> $ty {
            let value = $get(bytes, at);
            match order {
                ByteOrder::Little => value,
                ByteOrder::Big => value.swap_bytes(),
            }
        }

        /// Stores a little-endian integer at a byte offset.
        #[inline]
        pub fn $put(bytes: &mut [u8], at: usize, value: $ty) {
            bytes[at..at + $size].copy_from_slice(&value.to_le_bytes());
        }
    )*};
}

fields! {
    u16_at, u16_in, put_u16, u16, 2;
    u32_at, u32_in, put_u32, u32, 4;
    u64_at, u64_in, put_u64, u64, 8;
}

/// Byte at an offset; zero past the end.
#[inline]
pub fn u8_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// Reverses the bytes of every whole `width`-byte integer of a slice (width 2, 4 or 8).
pub fn swap_array(bytes: &mut [u8], width: usize) {
    match width {
        2 => bytes
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .for_each(|c| c.reverse()),
        4 => bytes
            .as_chunks_mut::<4>()
            .0
            .iter_mut()
            .for_each(|c| c.reverse()),
        8 => bytes
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .for_each(|c| c.reverse()),
        _ => {}
    }
}

/// Reverses the bytes of the integer at `at`, if it is inside the slice.
pub(crate) fn swap_one(bytes: &mut [u8], at: usize, width: usize) {
    if let Some(field) = bytes.get_mut(at..at + width) {
        field.reverse();
    }
}
