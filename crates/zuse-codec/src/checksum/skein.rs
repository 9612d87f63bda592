//! Skein-512 with 256 bits of output in MAC mode (Skein 1.3), keyed with 32 bytes.
//!
//! Chain: key block → configuration block → message blocks → output block, each through UBI. UBI is
//! Threefish-512 with a tweak of position, block type and first/final flags, xored with its input.
//! Key and configuration never change, so the state after them is computed once.

/// Number of key words plus one.
const PARITY: u64 = 0x1BD1_1BDA_A9FC_1A22;

const TYPE_KEY: u64 = 0;
const TYPE_CONFIG: u64 = 4;
const TYPE_MESSAGE: u64 = 48;
const TYPE_OUTPUT: u64 = 63;

const FIRST: u64 = 1 << 62;
const FINAL: u64 = 1 << 63;

const BLOCK: usize = 64;

/// The state behind key and configuration.
#[derive(Clone)]
pub(super) struct SkeinMac([u64; 8]);

impl SkeinMac {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let mut state = [0; 8];
        ubi(&mut state, TYPE_KEY, key);
        let mut config = [0; 32];
        config[..4].copy_from_slice(b"SHA3");
        config[4] = 1; // version
        config[8..16].copy_from_slice(&256u64.to_le_bytes());
        ubi(&mut state, TYPE_CONFIG, &config);
        Self(state)
    }

    pub(super) fn mac(&self, message: &[u8]) -> [u8; 32] {
        let mut state = self.0;
        ubi(&mut state, TYPE_MESSAGE, message);
        ubi(&mut state, TYPE_OUTPUT, &[0; 8]);
        let mut out = [0; 32];
        for (bytes, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(state) {
            *bytes = word.to_le_bytes();
        }
        out
    }
}

/// One UBI pass: the whole of `data` as blocks of that type; the last one is padded with zeros.
fn ubi(state: &mut [u64; 8], kind: u64, data: &[u8]) {
    // The last block goes apart even if it is full: it has the final flag.
    let whole = data.len().saturating_sub(1) / BLOCK * BLOCK;
    let (head, last) = data.split_at(whole);
    let mut flags = kind << 56 | FIRST;
    let mut position = 0u64;
    for block in head.as_chunks::<BLOCK>().0 {
        position += BLOCK as u64;
        threefish(state, position, flags, block);
        flags &= !FIRST;
    }
    let mut block = [0; BLOCK];
    block[..last.len()].copy_from_slice(last);
    threefish(state, position + last.len() as u64, flags | FINAL, &block);
}

macro_rules! mix {
    ($x:ident, $($a:literal $b:literal $r:literal),*) => {$(
        $x[$a] = $x[$a].wrapping_add($x[$b]);
        $x[$b] = $x[$b].rotate_left($r) ^ $x[$a];
    )*};
}

macro_rules! inject {
    ($x:ident, $k:ident, $t:ident, $s:expr) => {
        for i in 0..8 {
            $x[i] = $x[i].wrapping_add($k[($s + i) % 9]);
        }
        $x[5] = $x[5].wrapping_add($t[$s % 3]);
        $x[6] = $x[6].wrapping_add($t[($s + 1) % 3]);
        $x[7] = $x[7].wrapping_add($s as u64);
    };
}

/// Eight rounds, written with the word permutation folded into the indices (four rounds restore
/// it).
macro_rules! eight_rounds {
    ($x:ident, $k:ident, $t:ident, $($half:literal)*) => {$(
        inject!($x, $k, $t, 2 * $half);
        mix!($x, 0 1 46, 2 3 36, 4 5 19, 6 7 37);
        mix!($x, 2 1 33, 4 7 27, 6 5 14, 0 3 42);
        mix!($x, 4 1 17, 6 3 49, 0 5 36, 2 7 39);
        mix!($x, 6 1 44, 0 7 9, 2 5 54, 4 3 56);
        inject!($x, $k, $t, 2 * $half + 1);
        mix!($x, 0 1 39, 2 3 30, 4 5 34, 6 7 24);
        mix!($x, 2 1 13, 4 7 50, 6 5 10, 0 3 17);
        mix!($x, 4 1 25, 6 3 29, 0 5 39, 2 7 43);
        mix!($x, 6 1 8, 0 7 35, 2 5 56, 4 3 22);
    )*};
}

/// Threefish-512 under the chaining value; the result xor the input is the new chaining value.
fn threefish(state: &mut [u64; 8], position: u64, flags: u64, block: &[u8; BLOCK]) {
    let t = [position, flags, position ^ flags];
    let mut k = [0u64; 9];
    k[..8].copy_from_slice(state);
    k[8] = state.iter().fold(PARITY, |p, w| p ^ w);
    let mut input = [0u64; 8];
    for (w, bytes) in input.iter_mut().zip(block.as_chunks::<8>().0) {
        *w = u64::from_le_bytes(*bytes);
    }
    let mut x = input;
    eight_rounds!(x, k, t, 0 1 2 3 4 5 6 7 8);
    inject!(x, k, t, 18usize);
    for i in 0..8 {
        state[i] = x[i] ^ input[i];
    }
}
