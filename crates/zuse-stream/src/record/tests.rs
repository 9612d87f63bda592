use super::*;

/// Any 312 bytes with a known type read back as they were written, in both byte orders.
#[test]
fn records_come_back_in_both_byte_orders() {
    let mut seed = 0x9e37_79b9u64;
    let mut next = || {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (seed >> 33) as u8
    };
    for kind in 0..=10u8 {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut bytes = [0u8; HEADER];
            for b in &mut bytes {
                *b = next() % 100 + 1;
            }
            bytes[..8].fill(0);
            bytes[if order == ByteOrder::Little { 0 } else { 3 }] = kind;
            if kind == 0 {
                bytes[300..].fill(0);
            }
            let record = Record::parse(&bytes, order).unwrap();
            let mut out = [0u8; HEADER];
            record.write(&mut out, order);
            assert_eq!(Record::parse(&out, order).unwrap(), record, "{record:?}");
        }
    }
}

#[test]
fn a_payload_larger_than_a_block_is_refused() {
    let write = Record::Write(WriteRecord {
        logical_size: PAYLOAD_MAX + 1,
        ..WriteRecord::default()
    });
    assert_eq!(write.payload_len(), Err(Flaw::Payload(PAYLOAD_MAX + 1)));
    let begin = Record::Begin(Begin {
        payload_len: u32::MAX,
        ..Begin::default()
    });
    assert!(begin.payload_len().is_err());
}
