//! Zeros for whoever needs some to write, to send or to hash.

/// As many as the longest usual block has.
pub static ZEROS: [u8; 128 << 10] = [0; 128 << 10];
