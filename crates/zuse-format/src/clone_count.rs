//! The number of pointers of a block beyond its first, as eight bytes in a table of cloned blocks
//! (chapter 04b, 2). They are in their writer's byte order, which is not recorded. No block has 2³²
//! pointers. So both byte orders are tried, and the smaller number is the right one.

use zuse_base::ByteOrder;

/// The number in an entry's bytes, and their order. `None`: not eight bytes, or no pointers.
pub fn read(bytes: &[u8]) -> Option<(u64, ByteOrder)> {
    let raw: [u8; 8] = bytes.try_into().ok()?;
    let (little, big) = (u64::from_le_bytes(raw), u64::from_be_bytes(raw));
    let found = if big < little {
        (big, ByteOrder::Big)
    } else {
        (little, ByteOrder::Little)
    };
    (found.0 > 0).then_some(found)
}

/// The bytes of a number.
pub fn write(count: u64, order: ByteOrder) -> [u8; 8] {
    match order {
        ByteOrder::Little => count.to_le_bytes(),
        ByteOrder::Big => count.to_be_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_and_written_in_the_order_it_has() {
        for count in [1, 2, 255, 256, 0x0102_0304, u64::from(u32::MAX)] {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                assert_eq!(read(&write(count, order)), Some((count, order)));
            }
        }
        assert_eq!(read(&[0; 8]), None);
        assert_eq!(read(&[1; 7]), None);
    }
}
