//! A shared buffer of zeros, for writing, sending or hashing holes.

/// As many as the longest usual block has.
pub static ZEROS: [u8; 128 << 10] = [0; 128 << 10];
