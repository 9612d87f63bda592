//! Hashes of keys: CRC-64 started at the salt, cut to the bits that a ZAP keeps; and the cookies
//! made of them.
//!
//! All decisions use the **high** bits: 28 of them normally, 48 with the HASH64 flag; the rest is
//! zero.
//!
//! This CRC takes eight bytes per step (eight tables, independent loads), because opening a small
//! directory hashes every name in it. The tests compare it with a byte-wise one.

const POLYNOMIAL: u64 = 0xC96C_5795_D787_0F42;

static TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut t = [[0; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u64;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 == 1 {
                (c >> 1) ^ POLYNOMIAL
            } else {
                c >> 1
            };
            bit += 1;
        }
        t[0][i] = c;
        i += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            let c = t[k - 1][i];
            t[k][i] = (c >> 8) ^ t[0][(c & 0xff) as usize];
            i += 1;
        }
        k += 1;
    }
    t
}

#[inline(always)]
fn step8(h: u64, word: u64) -> u64 {
    let x = (h ^ word).to_le_bytes();
    TABLES[7][usize::from(x[0])]
        ^ TABLES[6][usize::from(x[1])]
        ^ TABLES[5][usize::from(x[2])]
        ^ TABLES[4][usize::from(x[3])]
        ^ TABLES[3][usize::from(x[4])]
        ^ TABLES[2][usize::from(x[5])]
        ^ TABLES[1][usize::from(x[6])]
        ^ TABLES[0][usize::from(x[7])]
}

/// The low `n` (0..=7) bytes of `word`.
#[inline(always)]
fn step_tail(h: u64, word: u64, n: usize) -> u64 {
    // Leading zeros do not change the sum. So eight bytes are processed for every n, without a
    // branch.
    let n = n & 7;
    (h >> (8 * n)) ^ step8(0, ((h ^ word) << (63 - 8 * n)) << 1)
}

/// The full 64-bit hash of a byte string.
#[inline]
pub(crate) fn crc(salt: u64, bytes: &[u8]) -> u64 {
    let mut h = salt;
    let (words, tail) = bytes.as_chunks::<8>();
    for w in words {
        h = step8(h, u64::from_le_bytes(*w));
    }
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    step_tail(h, u64::from_le_bytes(last), tail.len())
}

/// The full hash and the length of a NUL-terminated name in a 50-byte field; `None` without a NUL.
#[inline]
pub(crate) fn crc_field(salt: u64, field: &[u8; 50]) -> Option<(u64, usize)> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let mut h = salt;
    let (words, tail) = field.as_chunks::<8>();
    for (i, w) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*w);
        let zeros = word.wrapping_sub(LOW) & !word & HIGH;
        if zeros != 0 {
            let n = zeros.trailing_zeros() as usize / 8;
            return Some((step_tail(h, word, n), i * 8 + n));
        }
        h = step8(h, word);
    }
    let n = tail.iter().position(|&b| b == 0)?;
    Some((step_tail(h, u64::from(tail[0]), n), 48 + n))
}

/// The full hash of a key of 64-bit words, least significant byte first.
pub(crate) fn crc_words(salt: u64, words: &[u64]) -> u64 {
    words.iter().fold(salt, |h, &w| step8(h, w))
}

/// How many of a hash's top bits a ZAP keeps, and how its cookies are packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HashBits(pub u32);

impl HashBits {
    /// Micro ZAPs and plain fat ones.
    pub(crate) const NORMAL: Self = Self(28);
    /// ZAPs with the HASH64 flag.
    pub(crate) const WIDE: Self = Self(48);

    /// Zeroes the bits that are not kept.
    pub(crate) fn cut(self, hash: u64) -> u64 {
        hash & (!0 << (64 - self.0))
    }

    /// The position of `(hash, cd)` as one number.
    pub(crate) fn cookie(self, hash: u64, cd: u64) -> u64 {
        (hash >> (64 - self.0)) | (cd << self.0)
    }

    /// The position that a cookie means.
    pub(crate) fn position(self, cookie: u64) -> (u64, u32) {
        let cd = cookie >> self.0;
        let limit = if self == Self::WIDE {
            0xffff
        } else {
            u64::from(u32::MAX)
        };
        (
            cookie << (64 - self.0),
            if cd >= limit { 0 } else { cd as u32 },
        )
    }
}

/// The top `n` bits of a hash.
pub(crate) fn top_bits(hash: u64, n: u32) -> u64 {
    if n == 0 { 0 } else { hash >> (64 - n.min(64)) }
}

#[cfg(test)]
mod tests;
