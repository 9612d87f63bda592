use super::*;

#[test]
fn every_buffer_starts_on_a_page() {
    for len in [1, 511, 4096, 100_000] {
        let buf = AlignedBuf::zeroed(len);
        let copy = buf.clone();
        for b in [&buf, &copy] {
            assert_eq!(b.as_ptr().addr() % AlignedBuf::ALIGN, 0);
            assert_eq!(b.len(), len);
            assert!(b.iter().all(|&x| x == 0));
        }
        let moved = Box::new(buf);
        assert_eq!(moved.as_ptr().addr() % AlignedBuf::ALIGN, 0);
    }
    assert!(AlignedBuf::default().is_empty());
}

#[test]
fn growing_keeps_the_bytes_and_adds_zeroes() {
    let mut buf = AlignedBuf::copy_of(&[7; 100]);
    buf.resize(50);
    buf.resize(80);
    assert_eq!(&buf[..50], &[7; 50]);
    assert_eq!(&buf[50..], &[0; 30]);
    buf.resize(1 << 20);
    assert_eq!(&buf[..50], &[7; 50]);
    assert!(buf[50..].iter().all(|&x| x == 0));
    assert_eq!(buf.as_ptr().addr() % AlignedBuf::ALIGN, 0);
    buf.truncate(3);
    assert_eq!(&buf[..], &[7; 3]);
}
