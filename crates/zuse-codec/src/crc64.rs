//! The hash of ZAP keys: CRC-64 (ECMA-182, reflected), started at the ZAP's salt, not inverted.
//!
//! The result here is the full 64 bits; a ZAP keeps only the top 28 or 48 of them and decides
//! everything by the high bits. Masking is the ZAP's business.

const POLYNOMIAL: u64 = 0xC96C_5795_D787_0F42;

static TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut t = [0; 256];
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
        t[i] = c;
        i += 1;
    }
    t
}

/// Hash of a (normalised) name, without its NUL.
pub fn crc64_zap(salt: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(salt, |h, &b| (h >> 8) ^ TABLE[usize::from(h as u8 ^ b)])
}

/// Hash of a key of 64-bit words: each word counts least significant byte first.
pub fn crc64_zap_words(salt: u64, words: &[u64]) -> u64 {
    words
        .iter()
        .fold(salt, |h, w| crc64_zap(h, &w.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_published_one() {
        assert_eq!(TABLE[1], 0xb32e_4cbe_03a7_5f6f);
        assert_eq!(TABLE[2], 0xf484_3657_a840_a05b);
        assert_eq!(TABLE[128], POLYNOMIAL);
        assert_eq!(TABLE[255], 0xe0ad_a173_6467_3f59);
    }

    #[test]
    fn names_hash_as_a_real_pool_hashes_them() {
        let salt = 0x1234_5678_9abc_def1;
        for (name, one, other) in [
            (&b"a"[..], 0x9f81_69ba_49a5_4b33, 0xb4e5_c2fb_fe2e_d5d5),
            (b"ROOT", 0xa1ab_3e3e_0a69_ba5c, 0x3894_fa44_baa4_aee1),
            (b"VERSION", 0x4139_f0ac_af56_a2d1, 0x95f7_ec8d_2336_8172),
            (
                b"DELETE_QUEUE",
                0x8b68_b7f4_93d4_607f,
                0x559d_2225_46a4_c5b5,
            ),
            (b"file.txt", 0xa5d0_78a7_ca4d_cc5e, 0xd0f5_d9b7_35c7_9099),
            (b"alpha", 0x0e4d_cbfb_3452_e733, 0x7e4b_48d1_6906_3284),
            (b"caf\xc3\xa9", 0x0311_13d1_7e5a_81df, 0x7317_90fb_230e_5468),
        ] {
            assert_eq!(crc64_zap(1, name), one);
            assert_eq!(crc64_zap(salt, name), other);
        }
        assert_eq!(crc64_zap(0x3a449, b"2") >> 36, 0x521_1356);
    }

    #[test]
    fn word_keys_hash_as_a_real_pool_hashes_them() {
        assert_eq!(
            crc64_zap_words(0x9bfa5, &[0x1234_5678]) >> 16,
            0xe7c7_f9b0_e6eb
        );
        assert_eq!(crc64_zap_words(0x9bfa5, &[1, 2]) >> 16, 0xa4d1_565c_0ccd);
    }
}
