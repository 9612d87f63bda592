//! Explicit narrowing of numbers: keeping the low bits on purpose, or a number that is known to
//! fit.
//!
//! Crates that parse external bytes use no narrowing `as`. A reader could not tell which of the two
//! was meant.

/// The low 8 bits.
pub const fn low8(n: u64) -> u8 {
    n.to_le_bytes()[0]
}

/// The low 16 bits.
pub const fn low16(n: u64) -> u16 {
    let [a, b, ..] = n.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// The low 32 bits.
pub const fn low32(n: u64) -> u32 {
    let [a, b, c, d, ..] = n.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The high 32 bits.
pub const fn high32(n: u64) -> u32 {
    low32(n >> 32)
}

/// A number that our own code keeps below 2^8.
///
/// # Panics
/// It is not.
pub fn fit8(n: impl TryInto<u8>) -> u8 {
    n.try_into().ok().expect("a number that fits 8 bits")
}

/// A number that our own code keeps below 2^16.
///
/// # Panics
/// It is not.
pub fn fit16(n: impl TryInto<u16>) -> u16 {
    n.try_into().ok().expect("a number that fits 16 bits")
}

/// A number that our own code keeps below 2^32.
///
/// # Panics
/// It is not.
pub fn fit32(n: impl TryInto<u32>) -> u32 {
    n.try_into().ok().expect("a number that fits 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_bits_are_cut_off_and_the_rest_has_to_fit() {
        let n = 0x1122_3344_5566_7788;
        assert_eq!((low8(n), low16(n)), (0x88, 0x7788));
        assert_eq!((low32(n), high32(n)), (0x5566_7788, 0x1122_3344));
        assert_eq!(
            (fit8(255u64), fit16(65_535usize), fit32(7u8)),
            (255, 65_535, 7)
        );
        assert!(std::panic::catch_unwind(|| fit8(256u32)).is_err());
    }
}
