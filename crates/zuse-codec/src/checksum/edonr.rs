//! Edon-R/512 (second-round tweak), salted: the first 32 bytes of H(H(salt) ‖ H(H(salt)) ‖ data).
//!
//! The salt's two hashes fill exactly one block, so the state after that block is computed once.
//! Words and length are little-endian.

const BLOCK: usize = 128;

type State = [u64; 16];

/// The state behind the salt's block.
#[derive(Clone)]
pub(super) struct SaltedEdonr(State);

impl SaltedEdonr {
    pub(super) fn new(salt: &[u8; 32]) -> Self {
        let once = hash(initial(), 0, salt);
        let twice = hash(initial(), 0, &once);
        let mut prefix = [0; BLOCK];
        prefix[..64].copy_from_slice(&once);
        prefix[64..].copy_from_slice(&twice);
        let mut state = initial();
        compress(&mut state, &prefix);
        Self(state)
    }

    pub(super) fn digest(&self, data: &[u8]) -> [u8; 32] {
        let full = hash(self.0, BLOCK, data);
        let mut out = [0; 32];
        out.copy_from_slice(&full[..32]);
        out
    }
}

/// Bytes 0x80, 0x81, … 0xff as big-endian words.
fn initial() -> State {
    std::array::from_fn(|i| u64::from_be_bytes(std::array::from_fn(|b| (0x80 + 8 * i + b) as u8)))
}

/// The digest of a message whose first `before` bytes (whole blocks) are already in the state.
fn hash(mut state: State, before: usize, data: &[u8]) -> [u8; 64] {
    let (blocks, tail) = data.as_chunks::<BLOCK>();
    for block in blocks {
        compress(&mut state, block);
    }
    let bits = ((before + data.len()) as u64).wrapping_mul(8);
    let mut block = [0; BLOCK];
    block[..tail.len()].copy_from_slice(tail);
    block[tail.len()] = 0x80;
    // The length does not fit any more: it gets a block of its own.
    if tail.len() + 9 > BLOCK {
        compress(&mut state, &block);
        block = [0; BLOCK];
    }
    block[BLOCK - 8..].copy_from_slice(&bits.to_le_bytes());
    compress(&mut state, &block);
    let mut out = [0; 64];
    for (bytes, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(&state[8..]) {
        *bytes = word.to_le_bytes();
    }
    out
}

type Half = [u64; 8];

const K: u64 = 0xaaaa_aaaa_aaaa_aaaa;

macro_rules! sum {
    ($v:ident, $start:expr, $($i:literal)*) => { $start$(.wrapping_add($v[$i]))* };
}

/// The quasigroup operation.
#[inline(always)]
fn q(x: Half, y: Half) -> Half {
    let s0 = sum!(x, K, 0 1 2 4 7);
    let s1 = sum!(x, 0u64, 0 1 3 4 7).rotate_left(5);
    let s2 = sum!(x, 0u64, 0 1 4 6 7).rotate_left(15);
    let s3 = sum!(x, 0u64, 2 3 5 6 7).rotate_left(22);
    let s4 = sum!(x, 0u64, 1 2 3 5 6).rotate_left(31);
    let s5 = sum!(x, 0u64, 0 2 3 4 5).rotate_left(40);
    let s6 = sum!(x, 0u64, 0 1 5 6 7).rotate_left(50);
    let s7 = sum!(x, 0u64, 2 3 4 5 6).rotate_left(59);
    let t0 = sum!(y, !K, 0 1 2 5 7);
    let t1 = sum!(y, 0u64, 0 1 3 4 6).rotate_left(10);
    let t2 = sum!(y, 0u64, 0 1 2 3 5).rotate_left(19);
    let t3 = sum!(y, 0u64, 2 3 4 6 7).rotate_left(29);
    let t4 = sum!(y, 0u64, 0 1 3 4 5).rotate_left(36);
    let t5 = sum!(y, 0u64, 2 4 5 6 7).rotate_left(44);
    let t6 = sum!(y, 0u64, 1 2 5 6 7).rotate_left(48);
    let t7 = sum!(y, 0u64, 0 3 4 6 7).rotate_left(55);
    [
        (s0 ^ s1 ^ s4).wrapping_add(t0 ^ t1 ^ t5),
        (s0 ^ s4 ^ s7).wrapping_add(t2 ^ t6 ^ t7),
        (s1 ^ s6 ^ s7).wrapping_add(t0 ^ t1 ^ t3),
        (s2 ^ s3 ^ s4).wrapping_add(t0 ^ t3 ^ t4),
        (s0 ^ s1 ^ s7).wrapping_add(t1 ^ t2 ^ t5),
        (s3 ^ s5 ^ s6).wrapping_add(t3 ^ t4 ^ t6),
        (s2 ^ s5 ^ s6).wrapping_add(t2 ^ t5 ^ t7),
        (s2 ^ s3 ^ s5).wrapping_add(t4 ^ t6 ^ t7),
    ]
}

fn compress(state: &mut State, block: &[u8; BLOCK]) {
    let (words, _) = block.as_chunks::<8>();
    let low: Half = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
    let high: Half = std::array::from_fn(|i| u64::from_le_bytes(words[8 + i]));
    let old_low: Half = std::array::from_fn(|i| state[i]);
    let old_high: Half = std::array::from_fn(|i| state[8 + i]);
    let reversed = |h: Half| -> Half { std::array::from_fn(|i| h[7 - i]) };

    let mut a = q(reversed(high), low);
    let mut b = q(a, high);
    a = q(old_high, a);
    b = q(a, b);
    a = q(a, old_low);
    b = q(b, a);
    a = q(reversed(low), a);
    b = q(a, b);
    for i in 0..8 {
        state[i] ^= high[i] ^ a[i];
        state[8 + i] ^= low[i] ^ b[i];
    }
}
