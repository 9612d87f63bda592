use super::*;
use crate::StreamWriter;
use crate::record::{Begin, Header, WriteRecord};

fn sample(order: ByteOrder) -> Vec<u8> {
    let mut w = StreamWriter::with_order(Vec::new(), order);
    let begin = Begin {
        version_info: Begin::version_word(Header::Substream, 4),
        to_guid: 7,
        to_name: "p/f@s".into(),
        ..Begin::default()
    };
    w.record(&Record::Begin(begin), &[]).unwrap();
    for i in 0..20u64 {
        let write = WriteRecord {
            object: 2,
            object_type: 19,
            offset: i * 512,
            logical_size: 512,
            ..WriteRecord::default()
        };
        w.record(&Record::Write(write), &[i as u8; 512]).unwrap();
    }
    w.end(7).unwrap();
    w.into_inner().unwrap()
}

fn read_all(bytes: &[u8]) -> StreamResult<u64> {
    let mut reader = StreamReader::new(bytes);
    let mut n = 0;
    while reader.next_record()?.is_some() {
        n += 1;
    }
    Ok(n)
}

#[test]
fn streams_of_both_byte_orders_are_verified_and_read() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        assert_eq!(read_all(&sample(order)).unwrap(), 22);
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let good = sample(ByteOrder::Little);
    for at in 0..good.len() {
        // BEGIN's own fields are covered by the checksum of the next record.
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        assert!(read_all(&bad).is_err(), "byte {at}");
    }
}

#[test]
fn a_cut_stream_gives_what_it_holds_and_says_where_it_ends() {
    let good = sample(ByteOrder::Little);
    for cut in (1..good.len()).step_by(97) {
        let mut reader = StreamReader::new(&good[..cut]);
        let error = loop {
            match reader.next_record() {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(e) => break Some(e),
            }
        };
        match error {
            None => assert_eq!(reader.offset(), cut as u64),
            Some(StreamError::Flaw { offset, flaw, .. }) => {
                assert_eq!(flaw, Flaw::Truncated);
                assert_eq!(offset, reader.offset());
                assert!(offset < cut as u64);
            }
            Some(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_length_is_not_believed_before_its_bytes_are_there() {
    let mut bytes = sample(ByteOrder::Little);
    bytes.truncate(HEADER);
    bytes[4..8].copy_from_slice(&(60u32 << 20).to_le_bytes());
    let mut reader = StreamReader::new(&bytes[..]);
    assert!(reader.next_record().unwrap_err().is_truncated());
}
