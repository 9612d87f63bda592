//! Simple upper-case mappings of Unicode 5.0, the version that file names are frozen at.
//!
//! Runs of `(first, last, step, distance)`: each `step`-th character from `first` to `last` maps to
//! itself plus `distance`. Made from the Unicode character database: field 12, both sides assigned
//! by 5.0. The expanded map has 931 pairs; a test checks its SHA-256. Modern mappings of old
//! letters are left out on purpose.

static RUNS: [(u32, u32, u8, i32); 137] = [
    (0x0061, 0x007a, 1, -32),
    (0x00b5, 0x00b5, 1, 743),
    (0x00e0, 0x00f6, 1, -32),
    (0x00f8, 0x00fe, 1, -32),
    (0x00ff, 0x00ff, 1, 121),
    (0x0101, 0x012f, 2, -1),
    (0x0131, 0x0131, 1, -232),
    (0x0133, 0x0137, 2, -1),
    (0x013a, 0x0148, 2, -1),
    (0x014b, 0x0177, 2, -1),
    (0x017a, 0x017e, 2, -1),
    (0x017f, 0x017f, 1, -300),
    (0x0180, 0x0180, 1, 195),
    (0x0183, 0x0185, 2, -1),
    (0x0188, 0x0188, 1, -1),
    (0x018c, 0x018c, 1, -1),
    (0x0192, 0x0192, 1, -1),
    (0x0195, 0x0195, 1, 97),
    (0x0199, 0x0199, 1, -1),
    (0x019a, 0x019a, 1, 163),
    (0x019e, 0x019e, 1, 130),
    (0x01a1, 0x01a5, 2, -1),
    (0x01a8, 0x01a8, 1, -1),
    (0x01ad, 0x01ad, 1, -1),
    (0x01b0, 0x01b0, 1, -1),
    (0x01b4, 0x01b6, 2, -1),
    (0x01b9, 0x01b9, 1, -1),
    (0x01bd, 0x01bd, 1, -1),
    (0x01bf, 0x01bf, 1, 56),
    (0x01c5, 0x01c5, 1, -1),
    (0x01c6, 0x01c6, 1, -2),
    (0x01c8, 0x01c8, 1, -1),
    (0x01c9, 0x01c9, 1, -2),
    (0x01cb, 0x01cb, 1, -1),
    (0x01cc, 0x01cc, 1, -2),
    (0x01ce, 0x01dc, 2, -1),
    (0x01dd, 0x01dd, 1, -79),
    (0x01df, 0x01ef, 2, -1),
    (0x01f2, 0x01f2, 1, -1),
    (0x01f3, 0x01f3, 1, -2),
    (0x01f5, 0x01f5, 1, -1),
    (0x01f9, 0x021f, 2, -1),
    (0x0223, 0x0233, 2, -1),
    (0x023c, 0x023c, 1, -1),
    (0x0242, 0x0242, 1, -1),
    (0x0247, 0x024f, 2, -1),
    (0x0253, 0x0253, 1, -210),
    (0x0254, 0x0254, 1, -206),
    (0x0256, 0x0257, 1, -205),
    (0x0259, 0x0259, 1, -202),
    (0x025b, 0x025b, 1, -203),
    (0x0260, 0x0260, 1, -205),
    (0x0263, 0x0263, 1, -207),
    (0x0268, 0x0268, 1, -209),
    (0x0269, 0x0269, 1, -211),
    (0x026b, 0x026b, 1, 10743),
    (0x026f, 0x026f, 1, -211),
    (0x0272, 0x0272, 1, -213),
    (0x0275, 0x0275, 1, -214),
    (0x027d, 0x027d, 1, 10727),
    (0x0280, 0x0280, 1, -218),
    (0x0283, 0x0283, 1, -218),
    (0x0288, 0x0288, 1, -218),
    (0x0289, 0x0289, 1, -69),
    (0x028a, 0x028b, 1, -217),
    (0x028c, 0x028c, 1, -71),
    (0x0292, 0x0292, 1, -219),
    (0x0345, 0x0345, 1, 84),
    (0x037b, 0x037d, 1, 130),
    (0x03ac, 0x03ac, 1, -38),
    (0x03ad, 0x03af, 1, -37),
    (0x03b1, 0x03c1, 1, -32),
    (0x03c2, 0x03c2, 1, -31),
    (0x03c3, 0x03cb, 1, -32),
    (0x03cc, 0x03cc, 1, -64),
    (0x03cd, 0x03ce, 1, -63),
    (0x03d0, 0x03d0, 1, -62),
    (0x03d1, 0x03d1, 1, -57),
    (0x03d5, 0x03d5, 1, -47),
    (0x03d6, 0x03d6, 1, -54),
    (0x03d9, 0x03ef, 2, -1),
    (0x03f0, 0x03f0, 1, -86),
    (0x03f1, 0x03f1, 1, -80),
    (0x03f2, 0x03f2, 1, 7),
    (0x03f5, 0x03f5, 1, -96),
    (0x03f8, 0x03f8, 1, -1),
    (0x03fb, 0x03fb, 1, -1),
    (0x0430, 0x044f, 1, -32),
    (0x0450, 0x045f, 1, -80),
    (0x0461, 0x0481, 2, -1),
    (0x048b, 0x04bf, 2, -1),
    (0x04c2, 0x04ce, 2, -1),
    (0x04cf, 0x04cf, 1, -15),
    (0x04d1, 0x0513, 2, -1),
    (0x0561, 0x0586, 1, -48),
    (0x1d7d, 0x1d7d, 1, 3814),
    (0x1e01, 0x1e95, 2, -1),
    (0x1e9b, 0x1e9b, 1, -59),
    (0x1ea1, 0x1ef9, 2, -1),
    (0x1f00, 0x1f07, 1, 8),
    (0x1f10, 0x1f15, 1, 8),
    (0x1f20, 0x1f27, 1, 8),
    (0x1f30, 0x1f37, 1, 8),
    (0x1f40, 0x1f45, 1, 8),
    (0x1f51, 0x1f57, 2, 8),
    (0x1f60, 0x1f67, 1, 8),
    (0x1f70, 0x1f71, 1, 74),
    (0x1f72, 0x1f75, 1, 86),
    (0x1f76, 0x1f77, 1, 100),
    (0x1f78, 0x1f79, 1, 128),
    (0x1f7a, 0x1f7b, 1, 112),
    (0x1f7c, 0x1f7d, 1, 126),
    (0x1f80, 0x1f87, 1, 8),
    (0x1f90, 0x1f97, 1, 8),
    (0x1fa0, 0x1fa7, 1, 8),
    (0x1fb0, 0x1fb1, 1, 8),
    (0x1fb3, 0x1fb3, 1, 9),
    (0x1fbe, 0x1fbe, 1, -7205),
    (0x1fc3, 0x1fc3, 1, 9),
    (0x1fd0, 0x1fd1, 1, 8),
    (0x1fe0, 0x1fe1, 1, 8),
    (0x1fe5, 0x1fe5, 1, 7),
    (0x1ff3, 0x1ff3, 1, 9),
    (0x214e, 0x214e, 1, -28),
    (0x2170, 0x217f, 1, -16),
    (0x2184, 0x2184, 1, -1),
    (0x24d0, 0x24e9, 1, -26),
    (0x2c30, 0x2c5e, 1, -48),
    (0x2c61, 0x2c61, 1, -1),
    (0x2c65, 0x2c65, 1, -10795),
    (0x2c66, 0x2c66, 1, -10792),
    (0x2c68, 0x2c6c, 2, -1),
    (0x2c76, 0x2c76, 1, -1),
    (0x2c81, 0x2ce3, 2, -1),
    (0x2d00, 0x2d25, 1, -7264),
    (0xff41, 0xff5a, 1, -32),
    (0x10428, 0x1044f, 1, -40),
];

/// The upper-case form of one character, as Unicode 5.0 had it.
pub(crate) fn upper(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let c32 = u32::from(c);
    let at = RUNS.partition_point(|r| r.1 < c32);
    // Two runs of step 2 may interleave: look at the few that can hold the character.
    RUNS[at..]
        .iter()
        .take(2)
        .find(|&&(first, _, step, _)| c32 >= first && (c32 - first) % u32::from(step) == 0)
        .and_then(|&(_, _, _, distance)| char::from_u32(c32.wrapping_add_signed(distance)))
        .unwrap_or(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest;
    use std::fmt::Write;

    #[test]
    fn the_map_is_that_of_unicode_5() {
        let mut text = String::new();
        let mut pairs = 0;
        for c in (0..=0x10ffff).filter_map(char::from_u32) {
            let up = upper(c);
            if up != c {
                writeln!(text, "{:04X};{:04X}", u32::from(c), u32::from(up)).unwrap();
                pairs += 1;
            }
        }
        assert_eq!(pairs, 931);
        let digest: String = sha2::Sha256::digest(text.as_bytes())
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(
            digest,
            "2f983259643f5fd5f206479989b2c7438d8293bb898e30092b383342aa0cd60a"
        );
    }
}
