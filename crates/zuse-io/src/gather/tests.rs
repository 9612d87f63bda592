use std::sync::mpsc;
use zuse_base::sync::Mutex;

use zuse_base::{Errno, Error, Result, Txg};

use zuse_device::PAGE;

use super::{BULK, DUE, FULL, Gather, OPEN, Run, SMALL};

const T: Txg = Txg(7);

/// Remembers what was written: vdev, start, bytes.
#[derive(Default)]
struct Device(Mutex<Vec<(u32, u64, Vec<u8>)>>);

impl Device {
    fn take(&self) -> Vec<(u32, u64, Vec<u8>)> {
        std::mem::take(&mut *self.0.lock())
    }

    fn write(&self, run: &Run) -> Result<()> {
        let one = (run.vdev, run.start, run.bytes().to_vec());
        self.0.lock().push(one);
        Ok(())
    }
}

fn put(gather: &Gather, device: &Device, start: u64, bytes: &[u8]) {
    gather
        .put((T, 0, start), bytes, 4096, false, &|run| device.write(run))
        .expect("fine");
}

fn put_large(gather: &Gather, start: u64, bytes: &[u8], write: &dyn Fn(&Run) -> Result<()>) {
    let place = (T, 0, start);
    gather
        .put(place, bytes, bytes.len() as u64, true, write)
        .expect("fine");
}

fn drain(gather: &Gather, device: &Device) {
    gather.drain(&|run| device.write(run)).expect("fine");
}

#[test]
fn neighbours_are_written_at_once_and_padded_to_their_places() {
    let (gather, device) = (Gather::default(), Device::default());
    put(&gather, &device, 0, &[1; 4096]);
    put(&gather, &device, 4096, &[2; 512]);
    put(&gather, &device, 8192, &[3; 4096]);
    assert!(device.take().is_empty(), "nothing is due yet");
    drain(&gather, &device);
    let want = [vec![1; 4096], vec![2; 512], vec![0; 3584], vec![3; 4096]].concat();
    assert_eq!(device.take(), [(0, 0, want)]);
    drain(&gather, &device);
    assert!(device.take().is_empty(), "each byte is written once");
}

#[test]
fn neighbours_that_come_out_of_order_are_joined() {
    let (gather, device) = (Gather::default(), Device::default());
    for start in [8192, 0, 4096, 12288] {
        put(&gather, &device, start, &[start as u8; 4096]);
        put(&gather, &device, start + (1 << 20), &[9; 4096]);
    }
    drain(&gather, &device);
    let mut written = device.take();
    written.sort();
    let places: Vec<_> = written.iter().map(|(v, s, b)| (*v, *s, b.len())).collect();
    assert_eq!(places, [(0, 0, 16384), (0, 1 << 20, 16384)]);
}

#[test]
fn a_full_run_is_written_without_being_asked() {
    let (gather, device) = (Gather::default(), Device::default());
    for i in 0..(FULL as u64 / 4096) {
        put(&gather, &device, i * 4096, &[i as u8; 4096]);
    }
    let written = device.take();
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].2.len(), FULL);
}

#[test]
fn large_blocks_lie_in_memory_as_in_pages_and_their_runs_end_with_one() {
    let (gather, device) = (Gather::default(), Device::default());
    let write = |run: &Run| {
        let memory = run.bytes().as_ptr().addr() as u64;
        assert_eq!(memory % PAGE as u64, run.start % PAGE as u64);
        device.write(run)
    };
    // Beginning in the middle of a page, and 512 bytes longer than half the most.
    let (start, len) = (512, BULK / 2 + 512);
    let blocks: Vec<Vec<u8>> = (0..4u8).map(|n| vec![n + 1; len]).collect();
    // The second one comes first.
    for i in [1, 0, 2, 3] {
        put_large(&gather, start + (i * len) as u64, &blocks[i], &write);
    }
    let mut written = device.take();
    assert!(!written.is_empty(), "full runs do not wait");
    for (_, start, bytes) in &written {
        assert_eq!((start + bytes.len() as u64) % PAGE as u64, 0);
    }
    gather.drain(&write).expect("fine");
    written.extend(device.take());
    written.sort();
    let starts: Vec<_> = written.iter().map(|w| w.1).collect();
    let ends = written.iter().map(|w| w.1 + w.2.len() as u64);
    let follow: Vec<_> = std::iter::once(start).chain(ends).collect();
    assert_eq!(starts, follow[..starts.len()], "no gap, and nothing twice");
    let all: Vec<u8> = written.into_iter().flat_map(|w| w.2).collect();
    assert!(all == blocks.concat());
}

#[test]
fn a_block_across_the_end_of_a_run_is_not_read_by_halves() {
    let (gather, device) = (Gather::default(), Device::default());
    let write = |run: &Run| device.write(run);
    let len = BULK / 2 + 512;
    let (first, second) = (512, 512 + len as u64);
    put_large(&gather, first, &vec![1; len], &write);
    put_large(&gather, second, &vec![2; len], &write);
    // The run was full and has landed, but for what was behind its last page.
    assert!(gather.peek(T, 0, second, len).is_none());
    assert!(!gather.holds_part(T, 0, first, len));
    assert!(gather.holds_part(T, 0, second, len));
    gather.make_way(0, second, len, &write).expect("fine");
    assert!(!gather.holds_part(T, 0, second, len));
    let mut written = device.take();
    written.sort();
    let all: Vec<u8> = written.into_iter().flat_map(|w| w.2).collect();
    assert!(all == [vec![1; len], vec![2; len]].concat());
}

#[test]
fn a_small_block_may_follow_large_ones_but_not_the_other_way_round() {
    let (gather, device) = (Gather::default(), Device::default());
    let write = |run: &Run| device.write(run);
    put_large(&gather, 0, &[1; 2 * SMALL], &write);
    put(&gather, &device, 2 * SMALL as u64, &[2; 4096]);
    put(&gather, &device, 1 << 20, &[3; 4096]);
    put_large(&gather, (1 << 20) + 4096, &[4; 2 * SMALL], &write);
    drain(&gather, &device);
    let mut places: Vec<_> = device.take().iter().map(|w| (w.1, w.2.len())).collect();
    places.sort_unstable();
    let large = 2 * SMALL;
    let want = [
        (0, large + 4096),
        (1 << 20, 4096),
        ((1 << 20) + 4096, large),
    ];
    assert_eq!(places, want);
}

#[test]
fn large_blocks_that_wait_are_read_and_changed_in_their_run() {
    let (gather, device) = (Gather::default(), Device::default());
    let write = |run: &Run| device.write(run);
    let (start, len) = (1536, 2 * SMALL);
    let next = start + len as u64;
    put_large(&gather, start, &vec![1; len], &write);
    put_large(&gather, next, &vec![2; len], &write);
    assert!(gather.peek(T, 0, next, len) == Some(vec![2; len]));
    put_large(&gather, start, &vec![3; len], &write);
    drain(&gather, &device);
    assert!(device.take() == [(0, start, [vec![3; len], vec![2; len]].concat())]);
}

#[test]
fn of_too_many_runs_the_oldest_is_written() {
    let (gather, device) = (Gather::default(), Device::default());
    for i in 0..=OPEN as u64 {
        put(&gather, &device, i << 20, &[1; 4096]);
    }
    let starts: Vec<_> = device.take().into_iter().map(|w| w.1).collect();
    assert_eq!(starts, [0]);
}

#[test]
fn a_block_that_is_rewritten_in_place_changes_in_its_run() {
    let (gather, device) = (Gather::default(), Device::default());
    put(&gather, &device, 0, &[1; 4096]);
    put(&gather, &device, 4096, &[2; 4096]);
    put(&gather, &device, 0, &[3; 4096]);
    drain(&gather, &device);
    let want = [vec![3; 4096], vec![2; 4096]].concat();
    assert_eq!(device.take(), [(0, 0, want)]);
}

#[test]
fn who_writes_directly_comes_after_what_waits_there() {
    let (gather, device) = (Gather::default(), Device::default());
    put(&gather, &device, 0, &[1; 4096]);
    put(&gather, &device, 1 << 20, &[1; 4096]);
    let write = |run: &Run| device.write(run);
    gather.make_way(0, 0, 2 * SMALL, &write).expect("fine");
    let starts: Vec<_> = device.take().into_iter().map(|w| w.1).collect();
    assert_eq!(starts, [0], "the other run stays");
}

#[test]
fn what_waits_can_be_read() {
    let (gather, device) = (Gather::default(), Device::default());
    put(&gather, &device, 4096, &[5; 4096]);
    let there = gather.peek(T, 0, 4096, 512);
    assert_eq!(there.as_deref(), Some(&[5; 512][..]));
    assert!(gather.peek(T, 1, 4096, 512).is_none(), "another vdev");
    assert!(gather.peek(T, 0, 4096, 8192).is_none(), "more than waits");
    // Also while the device has it.
    let write = |run: &Run| {
        assert!(gather.peek(T, 0, run.start, 4096).is_some());
        device.write(run)
    };
    gather.drain(&write).expect("fine");
    assert!(gather.peek(T, 0, 4096, 512).is_none());
}

#[test]
fn a_run_that_cannot_be_written_is_an_error_and_not_a_hang() {
    let gather = Gather::default();
    let fails = |_: &Run| -> Result<()> { Err(Error::device("disk", Errno::IO, "gone")) };
    gather
        .put((T, 0, 0), &[1; 512], 4096, false, &fails)
        .expect("waits");
    assert!(gather.drain(&fails).is_err());
    gather.drain(&fails).expect("nothing is left");
}

/// Puts a full run.
fn put_full(gather: &Gather, start: u64, write: &dyn Fn(&Run) -> Result<()>) -> Result<()> {
    (0..FULL as u64 / 4096).try_for_each(|i| {
        let place = (T, 0, start + i * 4096);
        gather.put(place, &[i as u8; 4096], 4096, false, write)
    })
}

#[test]
fn what_is_due_is_left_with_the_thread_that_writes() {
    let (gather, device) = (Gather::default(), Device::default());
    let (began, begun) = mpsc::channel();
    let (go_on, held) = mpsc::channel::<()>();
    std::thread::scope(|s| {
        let (gather, device) = (&gather, &device);
        // Dropped where this panics, so that the writer does not wait for ever.
        let go_on = go_on;
        let writer = s.spawn(move || {
            let write = |run: &Run| {
                if run.start == 0 {
                    began.send(()).expect("somebody listens");
                    held.recv().expect("it is let go");
                }
                device.write(run)
            };
            put_full(gather, 0, &write)
        });
        begun.recv().expect("it writes");
        let nobody = |_: &Run| -> Result<()> { panic!("the other thread writes") };
        for i in 1..=DUE as u64 {
            put_full(gather, i << 20, &nobody).expect("left there");
            assert!(gather.peek(T, 0, i << 20, 4096).is_some(), "readable");
        }
        assert!(device.take().is_empty());
        go_on.send(()).expect("it waits");
        writer.join().expect("no panic").expect("no error");
    });
    let starts: Vec<_> = device.take().into_iter().map(|w| w.1).collect();
    let want: Vec<_> = (0..=DUE as u64).map(|i| i << 20).collect();
    assert_eq!(starts, want, "the oldest first");
    drain(&gather, &device);
    assert!(device.take().is_empty());
}

#[test]
fn who_drains_waits_for_what_others_write_and_learns_of_their_errors() {
    let gather = Gather::default();
    let (began, begun) = mpsc::channel();
    let (go_on, held) = mpsc::channel::<()>();
    std::thread::scope(|s| {
        let gather = &gather;
        let go_on = go_on;
        s.spawn(move || {
            let write = |run: &Run| {
                if run.start != 0 {
                    return Err(Error::device("disk", Errno::IO, "gone"));
                }
                began.send(()).expect("somebody listens");
                held.recv().expect("it is let go");
                Ok(())
            };
            put_full(gather, 0, &write)
        });
        begun.recv().expect("it writes");
        let nobody = |_: &Run| -> Result<()> { panic!("the other thread writes") };
        put_full(gather, 1 << 20, &nobody).expect("left there");
        go_on.send(()).expect("it waits");
        assert!(gather.drain(&|_| Ok(())).is_err());
    });
    drain(&gather, &Device::default());
}

#[test]
#[should_panic(expected = "a run is due that nobody writes")]
fn a_run_that_is_left_without_a_writer_is_noticed() {
    let (gather, device) = (Gather::default(), Device::default());
    let left = Run::new(T, 1, 0, false, Vec::new());
    gather.lock().due.push(std::sync::Arc::new(left));
    put(&gather, &device, 0, &[1; 4096]);
    drain(&gather, &device);
}
