//! The zero test: a block of zeros becomes a hole instead of being stored.

/// Whether all bytes are zero (true for an empty slice).
///
/// Combines 128 bytes at a time, so that it runs at memory speed on zeros. It stops at the first
/// group with a set bit, so it costs almost nothing on data.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (groups, rest) = bytes.as_chunks::<128>();
    groups.iter().all(|g| {
        let (words, _) = g.as_chunks::<8>();
        words.iter().fold(0, |or, w| or | u64::from_ne_bytes(*w)) == 0
    }) && rest.iter().all(|&b| b == 0)
}

#[cfg(test)]
mod tests {
    use super::is_zero;

    #[test]
    fn any_single_bit_anywhere_makes_it_non_zero() {
        for len in [0, 1, 127, 128, 129, 512, 1000] {
            let mut v = vec![0u8; len];
            assert!(is_zero(&v));
            for i in 0..len {
                v[i] = 1 << (i % 8);
                assert!(!is_zero(&v), "byte {i} of {len}");
                v[i] = 0;
            }
        }
    }
}
