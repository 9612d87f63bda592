use super::*;
use crate::MemDevice;

#[test]
fn operations_are_listed_in_order_and_counted() {
    let device = RecordingDevice::new(Arc::new(MemDevice::new("mem", 4096)));
    device
        .write_vectored_at(&[IoSlice::new(&[1; 10]), IoSlice::new(&[2; 5])], 100)
        .unwrap();
    device.flush().unwrap();
    device.read_at(&mut [0; 7], 101).unwrap();
    device.discard(0, 512).unwrap();
    let op = |op, offset, len| Operation { op, offset, len };
    assert_eq!(
        device.take(),
        [
            op(Op::Write, 100, 15),
            op(Op::Flush, 0, 0),
            op(Op::Read, 101, 7),
            op(Op::Discard, 0, 512)
        ]
    );
    device.record(false);
    assert!(device.read_at(&mut [0; 7], 4096).is_err());
    assert!(device.operations().is_empty());
    let counts = device.counts();
    assert_eq!(
        (
            counts.reads,
            counts.read_bytes,
            counts.writes,
            counts.written_bytes
        ),
        (2, 14, 1, 15)
    );
    assert_eq!(
        (counts.flushes, counts.discards, counts.discarded_bytes),
        (1, 1, 512)
    );
    device.reset();
    assert_eq!(device.counts(), OperationCounts::default());
}
