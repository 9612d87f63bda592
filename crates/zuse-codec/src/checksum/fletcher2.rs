//! fletcher2: over pairs of 64-bit words, `a += f; b += a`, separately for even and odd words.
//!
//! Lanes: pair number `L·k + j` goes to lane j. A lane sees its pair with weight t = n−k where the
//! one-lane sum has weight `L·t − j`, so the true second sum is `Σ L·B_j − j·A_j`.

use zuse_base::ByteOrder;

/// A running fletcher2 sum: words (a0, a1, b0, b1).
#[derive(Clone, Copy, Default)]
pub(super) struct Fletcher2([u64; 4]);

impl Fletcher2 {
    /// Adds bytes; a tail shorter than 16 bytes is not summed.
    pub(super) fn update(&mut self, data: &[u8], order: ByteOrder) {
        let (a, b) = match order {
            ByteOrder::Little => dispatch::<false>(data),
            ByteOrder::Big => dispatch::<true>(data),
        };
        let pairs = (data.len() / 16) as u64;
        let s = &mut self.0;
        for i in 0..2 {
            s[2 + i] = s[2 + i]
                .wrapping_add(b[i])
                .wrapping_add(pairs.wrapping_mul(s[i]));
            s[i] = s[i].wrapping_add(a[i]);
        }
    }

    pub(super) fn words(self) -> [u64; 4] {
        self.0
    }
}

/// fletcher2 of whole pairs of words.
pub(super) fn fletcher2(data: &[u8], order: ByteOrder) -> [u64; 4] {
    let mut sum = Fletcher2::default();
    sum.update(data, order);
    sum.words()
}

type Sums = ([u64; 2], [u64; 2]);

fn dispatch<const BIG: bool>(data: &[u8]) -> Sums {
    #[cfg(target_arch = "x86_64")]
    // Below that the start-up of the lanes costs more than they save.
    if data.len() >= 256 {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            // SAFETY: the two features it is compiled for were just detected.
            return unsafe { sum_avx512::<BIG>(data) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the feature it is compiled for was just detected.
            return unsafe { sum_avx2::<BIG>(data) };
        }
    }
    sum::<1, BIG>(data)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn sum_avx512<const BIG: bool>(data: &[u8]) -> Sums {
    sum::<8, BIG>(data)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2<const BIG: bool>(data: &[u8]) -> Sums {
    sum::<4, BIG>(data)
}

#[inline(always)]
fn word<const BIG: bool>(bytes: [u8; 8]) -> u64 {
    if BIG {
        u64::from_be_bytes(bytes)
    } else {
        u64::from_le_bytes(bytes)
    }
}

/// The sums over L interleaved lanes, joined; pairs behind the last full row are added one by one.
#[inline(always)]
fn sum<const L: usize, const BIG: bool>(data: &[u8]) -> Sums {
    let (words, _) = data.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    let (rows, tail) = pairs.as_chunks::<L>();
    let mut la = [[0u64; 2]; L];
    let mut lb = [[0u64; 2]; L];
    for row in rows {
        for j in 0..L {
            for i in 0..2 {
                la[j][i] = la[j][i].wrapping_add(word::<BIG>(row[j][i]));
                lb[j][i] = lb[j][i].wrapping_add(la[j][i]);
            }
        }
    }
    let (mut a, mut b) = ([0u64; 2], [0u64; 2]);
    for j in 0..L {
        for i in 0..2 {
            a[i] = a[i].wrapping_add(la[j][i]);
            b[i] = b[i]
                .wrapping_add((L as u64).wrapping_mul(lb[j][i]))
                .wrapping_sub((j as u64).wrapping_mul(la[j][i]));
        }
    }
    for pair in tail {
        for i in 0..2 {
            a[i] = a[i].wrapping_add(word::<BIG>(pair[i]));
            b[i] = b[i].wrapping_add(a[i]);
        }
    }
    (a, b)
}

#[cfg(test)]
pub(super) fn one_lane(data: &[u8], order: ByteOrder) -> [u64; 4] {
    let (a, b) = match order {
        ByteOrder::Little => sum::<1, false>(data),
        ByteOrder::Big => sum::<1, true>(data),
    };
    [a[0], a[1], b[0], b[1]]
}
