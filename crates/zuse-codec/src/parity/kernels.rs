//! The loops over bytes.

use super::multiply;

/// The high bits of eight bytes.
const HIGH: u64 = 0x8080_8080_8080_8080;
/// The polynomial in eight bytes.
const POLYNOMIAL: u64 = 0x1d1d_1d1d_1d1d_1d1d;

/// Eight products with 2.
#[inline(always)]
fn double(x: u64) -> u64 {
    let carry = x & HIGH;
    // All bits of each byte whose highest bit falls out.
    let mask = (carry << 1).wrapping_sub(carry >> 7);
    ((x ^ carry) << 1) ^ (mask & POLYNOMIAL)
}

#[inline(always)]
fn xor_loop(sum: &mut [u8], column: &[u8]) {
    for (s, c) in sum.iter_mut().zip(column) {
        *s ^= c;
    }
}

/// `sum = sum · 2^TIMES + column`; a short column counts as zeros at its end.
#[inline(always)]
fn horner_loop<const TIMES: usize>(sum: &mut [u8], column: &[u8]) {
    let both = sum.len().min(column.len());
    let (with, without) = sum.split_at_mut(both);
    let grow = |mut x: u64| {
        for _ in 0..TIMES {
            x = double(x);
        }
        x
    };
    let (words, rest) = with.as_chunks_mut::<8>();
    let (columns, columns_rest) = column[..both].as_chunks::<8>();
    for (w, c) in words.iter_mut().zip(columns) {
        *w = (grow(u64::from_ne_bytes(*w)) ^ u64::from_ne_bytes(*c)).to_ne_bytes();
    }
    for (w, c) in rest.iter_mut().zip(columns_rest) {
        *w = grow(u64::from(*w)) as u8 ^ c;
    }
    let (words, rest) = without.as_chunks_mut::<8>();
    for w in words {
        *w = grow(u64::from_ne_bytes(*w)).to_ne_bytes();
    }
    for w in rest {
        *w = grow(u64::from(*w)) as u8;
    }
}

macro_rules! dispatched {
    ($(#[$doc:meta])* $name:ident, $avx2:ident, $scalar:ident, $body:expr) => {
        $(#[$doc])*
        pub fn $name(sum: &mut [u8], column: &[u8]) {
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the feature it is compiled for was just detected.
                return unsafe { $avx2(sum, column) };
            }
            $scalar(sum, column);
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        fn $avx2(sum: &mut [u8], column: &[u8]) {
            $body(sum, column);
        }

        pub(super) fn $scalar(sum: &mut [u8], column: &[u8]) {
            $body(sum, column);
        }
    };
}

dispatched! {
    /// `sum ^= column`, as far as both reach.
    xor, xor_avx2, xor_scalar, xor_loop
}
dispatched! {
    /// `sum = 2 · sum + column`; a short column counts as zeros at its end.
    double_then_xor, double_avx2, double_scalar, horner_loop::<1>
}
dispatched! {
    /// `sum = 4 · sum + column`; a short column counts as zeros at its end.
    quadruple_then_xor, quadruple_avx2, quadruple_scalar, horner_loop::<2>
}

/// Products of a constant with all low and all high halves of a byte.
fn halves(factor: u8) -> ([u8; 16], [u8; 16]) {
    let of = |shift: u32| std::array::from_fn(|i| multiply(factor, (i as u8) << shift));
    (of(0), of(4))
}

/// `sum += factor · column`, as far as both reach.
pub fn multiply_xor(sum: &mut [u8], column: &[u8], factor: u8) {
    let tables = halves(factor);
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the feature it is compiled for was just detected.
            return unsafe { multiply_avx2(sum, column, &tables) };
        }
        if is_x86_feature_detected!("ssse3") {
            // SAFETY: the feature it is compiled for was just detected.
            return unsafe { multiply_ssse3(sum, column, &tables) };
        }
    }
    multiply_scalar(sum, column, &tables);
}

/// Tables of products for the low and the high half of a byte.
pub(super) type Halves = ([u8; 16], [u8; 16]);

pub(super) fn multiply_scalar(sum: &mut [u8], column: &[u8], (low, high): &Halves) {
    for (s, c) in sum.iter_mut().zip(column) {
        *s ^= low[usize::from(c & 15)] ^ high[usize::from(c >> 4)];
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! shuffled {
    ($name:ident, $feature:literal, $bytes:literal, $load:ident, $store:ident, $table:expr,
        $set:ident, $and:ident, $shift:ident,
     $shuffle:ident, $xor:ident) => {
        #[target_feature(enable = $feature)]
        pub(super) fn $name(sum: &mut [u8], column: &[u8], halves: &Halves) {
            use std::arch::x86_64::*;
            let table = |bytes: &[u8; 16]| {
                // SAFETY: reads the 16 bytes of the array, without alignment.
                let one = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
                $table(one)
            };
            let (low, high, mask) = (table(&halves.0), table(&halves.1), $set(15));
            let n = sum.len().min(column.len());
            let (sums, sums_rest) = sum[..n].as_chunks_mut::<$bytes>();
            let (columns, columns_rest) = column[..n].as_chunks::<$bytes>();
            for (s, c) in sums.iter_mut().zip(columns) {
                // SAFETY: both arrays have as many bytes as are read, without alignment.
                let (old, bytes) = unsafe { ($load(s.as_ptr().cast()), $load(c.as_ptr().cast())) };
                let products = $xor(
                    $shuffle(low, $and(bytes, mask)),
                    $shuffle(high, $and($shift::<4>(bytes), mask)),
                );
                // SAFETY: the array has as many bytes as are written, without alignment.
                unsafe { $store(s.as_mut_ptr().cast(), $xor(old, products)) };
            }
            multiply_scalar(sums_rest, columns_rest, halves);
        }
    };
}

#[cfg(target_arch = "x86_64")]
shuffled!(
    multiply_avx2,
    "avx2",
    32,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    |one| _mm256_broadcastsi128_si256(one),
    _mm256_set1_epi8,
    _mm256_and_si256,
    _mm256_srli_epi64,
    _mm256_shuffle_epi8,
    _mm256_xor_si256
);
#[cfg(target_arch = "x86_64")]
shuffled!(
    multiply_ssse3,
    "ssse3",
    16,
    _mm_loadu_si128,
    _mm_storeu_si128,
    |one| one,
    _mm_set1_epi8,
    _mm_and_si128,
    _mm_srli_epi64,
    _mm_shuffle_epi8,
    _mm_xor_si128
);
