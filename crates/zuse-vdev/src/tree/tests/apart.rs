//! Reads straight into their final memory.

use super::*;

#[test]
fn ranges_of_a_lone_disk_are_read_apart_and_counted_once() {
    let (_shelf, vdevs) = create(&pool(vec![top(disk(0, 10)), mirror(1, 20, &[21, 22])]));
    vdevs.write(at(0, 0), &[5; 8192]).unwrap();
    vdevs.write(at(1, 0), &[6; 8192]).unwrap();
    let leaf = vdevs.leaf(10).unwrap();
    let before = leaf.counters().read_bytes.get();
    let read = vdevs.read_apart(0, 0, &[0..100, 4096..8192]).unwrap();
    assert!(*read[0] == [5; 100] && *read[1] == [5; 4096]);
    assert_eq!(leaf.counters().read_bytes.get(), before + 8192);
    // A mirror's copies are tried one after the other, by a reader that can verify them.
    assert!(vdevs.read_apart(1, 0, &[0..100, 4096..8192]).is_none());
    for (vdev, offset) in [(0, SIZE), (0, u64::MAX), (7, 0)] {
        assert!(
            vdevs
                .read_apart(vdev, offset, &[0..512, 600..4096])
                .is_none()
        );
    }
    assert_eq!(leaf.counters().read_errors.get(), 0);
}
