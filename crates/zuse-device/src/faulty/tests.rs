use super::*;
use crate::MemDevice;

fn device() -> FaultyDevice {
    let mem = MemDevice::new("mem", 1 << 16);
    mem.write_at(&[5; 1 << 16], 0).unwrap();
    FaultyDevice::new(Arc::new(mem))
}

#[test]
fn a_rule_hits_its_kind_of_operation_in_its_span() {
    let device = device();
    let id = device.add(Rule::broken(Op::Read).within(Span::new(1000, 10)));
    device.read_at(&mut [0; 10], 990).unwrap();
    device.read_at(&mut [0; 10], 1010).unwrap();
    device.write_at(&[1; 10], 1000).unwrap();
    let error = device.read_at(&mut [0; 100], 950).unwrap_err();
    assert_eq!(
        (error.errno, error.cause, error.offset),
        (Errno::IO, Cause::Injected, 950)
    );
    assert_eq!(device.fired(id), 1);
    device.enable(false);
    device.read_at(&mut [0; 100], 950).unwrap();
    device.enable(true);
    device.remove(id);
    device.read_at(&mut [0; 100], 950).unwrap();
}

#[test]
fn a_rule_waits_and_wears_out() {
    let device = device();
    device.add(Rule::broken(Op::Flush).after(2).times(1));
    let results: Vec<bool> = (0..4).map(|_| device.flush().is_ok()).collect();
    assert_eq!(results, [true, true, false, true]);
}

#[test]
fn rotten_bytes_are_all_wrong_and_always_the_same() {
    let device = device();
    device.add(Rule::new(Op::Read, Fault::Rot).within(Span::new(100, 50)));
    let (mut a, mut b) = ([0; 200], [0; 200]);
    device.read_at(&mut a, 0).unwrap();
    device.read_at(&mut b, 0).unwrap();
    assert_eq!(a, b);
    assert!(a[..100].iter().chain(&a[150..]).all(|&x| x == 5));
    assert!(a[100..150].iter().all(|&x| x != 5));
    let mut inside = [0; 10];
    device.read_at(&mut inside, 120).unwrap();
    assert_eq!(inside, a[120..130]);
}

#[test]
fn a_lost_write_claims_success() {
    let device = device();
    device.add(Rule::new(Op::Write, Fault::Lose).times(1));
    let mut buf = [0; 4];
    device.write_at(&[1; 4], 0).unwrap();
    device.read_at(&mut buf, 0).unwrap();
    assert_eq!(buf, [5; 4]);
    device.write_at(&[1; 4], 0).unwrap();
    device.read_at(&mut buf, 0).unwrap();
    assert_eq!(buf, [1; 4]);
}

#[test]
fn a_disk_fills_up_and_small_writes_still_fit() {
    let device = device();
    device.add(Rule::new(Op::Write, Fault::FullAfter(1000)));
    device.write_at(&[1; 600], 0).unwrap();
    assert_eq!(
        device.write_at(&[1; 600], 0).unwrap_err().errno,
        Errno::NOSPC
    );
    device.write_at(&[1; 400], 0).unwrap();
    assert_eq!(device.write_at(&[1; 1], 0).unwrap_err().errno, Errno::NOSPC);
    device.clear();
    device.write_at(&[1; 600], 0).unwrap();
}
