//! fletcher4: over 32-bit words, `a += f; b += a; c += b; d += c`, mod 2^64.
//!
//! Word m from the end (m = 1 for the last) counts with weights 1, m, m(m+1)/2, m(m+1)(m+2)/6.
//! Lanes: word number `L·k + j` goes to lane j. The lane sees it as its own word t = n−k from the
//! end. Its true place is `m = L·t − j`. Writing the weights of m in those of t gives, for the four
//! sums A, B, C, D of lane j:
//!
//! ```text
//! a = Σ A
//! b = Σ L·B − j·A
//! c = Σ L²·C − (L² − L + 2Lj)/2·B + j(j−1)/2·A
//! d = Σ L³·D − L²(L−1+j)·C + (L³ − 3L² + 2L + 3L²j − 6Lj + 3Lj²)/6·B − j(j−1)(j−2)/6·A
//! ```
//!
//! All divisions are exact. The plain loops below become vector code under `target_feature`.

use zuse_base::ByteOrder;

/// Bytes summed at once: the weights of one chunk stay far below 2^128.
const CHUNK: usize = 8 << 20;

/// Below this length the start-up of the lanes costs more than they save.
const LANES_FROM: usize = 256;

/// A running fletcher4 sum, as streams keep one over all their records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fletcher4 {
    order: ByteOrder,
    sums: [u64; 4],
    /// Bytes of a word that is not complete yet.
    pending: [u8; 4],
    have: usize,
}

impl Fletcher4 {
    /// An empty sum over little-endian words.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty sum over words of that byte order.
    pub fn with_order(order: ByteOrder) -> Self {
        Self {
            order,
            ..Self::default()
        }
    }

    /// A sum that continues from known words.
    pub fn resume(order: ByteOrder, sums: [u64; 4]) -> Self {
        Self {
            order,
            sums,
            ..Self::default()
        }
    }

    /// Adds bytes, split at any place. A word is summed when its fourth byte arrives.
    pub fn update(&mut self, mut data: &[u8]) {
        if self.have > 0 {
            let take = data.len().min(4 - self.have);
            let (head, rest) = data.split_at(take);
            self.pending[self.have..self.have + take].copy_from_slice(head);
            self.have += take;
            data = rest;
            if self.have < 4 {
                return;
            }
            let word = self.pending;
            self.have = 0;
            append(&mut self.sums, &word, self.order);
        }
        let (whole, tail) = data.split_at(data.len() & !3);
        append(&mut self.sums, whole, self.order);
        self.pending[..tail.len()].copy_from_slice(tail);
        self.have = tail.len();
    }

    /// The four sums so far.
    pub fn words(&self) -> [u64; 4] {
        self.sums
    }
}

/// fletcher4 of whole words.
pub(super) fn fletcher4(data: &[u8], order: ByteOrder) -> [u64; 4] {
    let mut sums = [0; 4];
    append(&mut sums, data, order);
    sums
}

fn append(state: &mut [u64; 4], data: &[u8], order: ByteOrder) {
    if data.len() < LANES_FROM {
        return match order {
            ByteOrder::Little => one_by_one::<false>(state, data),
            ByteOrder::Big => one_by_one::<true>(state, data),
        };
    }
    for chunk in data.chunks(CHUNK) {
        let sums = match order {
            ByteOrder::Little => dispatch::<false>(chunk),
            ByteOrder::Big => dispatch::<true>(chunk),
        };
        join(state, sums, (chunk.len() / 4) as u64);
    }
}

/// Appends the sums of a chunk of n words to a state.
fn join(state: &mut [u64; 4], sums: [u64; 4], n: u64) {
    let wide = u128::from(n);
    let n2 = (wide * (wide + 1) / 2) as u64;
    let n3 = (wide * (wide + 1) * (wide + 2) / 6) as u64;
    let [a, b, c, d] = *state;
    let mul = u64::wrapping_mul;
    *state = [
        a.wrapping_add(sums[0]),
        b.wrapping_add(sums[1]).wrapping_add(mul(n, a)),
        c.wrapping_add(sums[2])
            .wrapping_add(mul(n, b))
            .wrapping_add(mul(n2, a)),
        d.wrapping_add(sums[3])
            .wrapping_add(mul(n, c))
            .wrapping_add(mul(n2, b))
            .wrapping_add(mul(n3, a)),
    ];
}

fn dispatch<const BIG: bool>(data: &[u8]) -> [u64; 4] {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            // SAFETY: the two features it is compiled for were just detected.
            return unsafe { sum_avx512::<BIG>(data) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the feature it is compiled for was just detected.
            return unsafe { sum_avx2::<BIG>(data) };
        }
    }
    sum::<4, BIG>(data)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn sum_avx512<const BIG: bool>(data: &[u8]) -> [u64; 4] {
    sum::<16, BIG>(data)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2<const BIG: bool>(data: &[u8]) -> [u64; 4] {
    sum::<8, BIG>(data)
}

#[inline(always)]
fn word<const BIG: bool>(bytes: [u8; 4]) -> u64 {
    u64::from(if BIG {
        u32::from_be_bytes(bytes)
    } else {
        u32::from_le_bytes(bytes)
    })
}

#[inline(always)]
fn one_by_one<const BIG: bool>(state: &mut [u64; 4], data: &[u8]) {
    let [mut a, mut b, mut c, mut d] = *state;
    for bytes in data.as_chunks::<4>().0 {
        a = a.wrapping_add(word::<BIG>(*bytes));
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    }
    *state = [a, b, c, d];
}

/// The sums over L interleaved lanes, joined; words behind the last full row are added one by one.
#[inline(always)]
fn sum<const L: usize, const BIG: bool>(data: &[u8]) -> [u64; 4] {
    let (words, _) = data.as_chunks::<4>();
    let (rows, tail) = words.as_chunks::<L>();
    let mut a = [0u64; L];
    let mut b = [0u64; L];
    let mut c = [0u64; L];
    let mut d = [0u64; L];
    for row in rows {
        for j in 0..L {
            a[j] = a[j].wrapping_add(word::<BIG>(row[j]));
        }
        for j in 0..L {
            b[j] = b[j].wrapping_add(a[j]);
        }
        for j in 0..L {
            c[j] = c[j].wrapping_add(b[j]);
        }
        for j in 0..L {
            d[j] = d[j].wrapping_add(c[j]);
        }
    }
    let mut state = [0u64; 4];
    for lane in 0..L {
        let (l, j) = (L as i64, lane as i64);
        let mul = |k: i64, v: u64| (k as u64).wrapping_mul(v);
        let (a, b, c, d) = (a[lane], b[lane], c[lane], d[lane]);
        let terms = [
            [mul(1, a), 0, 0, 0],
            [mul(-j, a), mul(l, b), 0, 0],
            [
                mul(j * (j - 1) / 2, a),
                mul(-(l * l - l + 2 * l * j) / 2, b),
                mul(l * l, c),
                0,
            ],
            [
                mul(-j * (j - 1) * (j - 2) / 6, a),
                mul(
                    (l * l * l - 3 * l * l + 2 * l + 3 * l * l * j - 6 * l * j + 3 * l * j * j) / 6,
                    b,
                ),
                mul(-l * l * (l - 1 + j), c),
                mul(l * l * l, d),
            ],
        ];
        for (sum, term) in state.iter_mut().zip(terms) {
            *sum = term.iter().fold(*sum, |s, &t| s.wrapping_add(t));
        }
    }
    one_by_one::<BIG>(&mut state, tail.as_flattened());
    state
}

#[cfg(test)]
pub(super) fn one_lane(data: &[u8], order: ByteOrder) -> [u64; 4] {
    let mut state = [0; 4];
    match order {
        ByteOrder::Little => one_by_one::<false>(&mut state, data),
        ByteOrder::Big => one_by_one::<true>(&mut state, data),
    }
    state
}

#[cfg(test)]
pub(super) fn in_lanes(lanes: usize, data: &[u8], order: ByteOrder) -> [u64; 4] {
    let big = order == ByteOrder::Big;
    match (lanes, big) {
        (4, false) => sum::<4, false>(data),
        (4, true) => sum::<4, true>(data),
        (8, false) => sum::<8, false>(data),
        (8, true) => sum::<8, true>(data),
        (_, false) => sum::<16, false>(data),
        (_, true) => sum::<16, true>(data),
    }
}
