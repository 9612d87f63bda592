//! Items that a program lists are prefetched in batches before they are changed, and so are those
//! of `snapshot -r`: counted by device reads.

use std::sync::Arc;

use zuse_device::{MemDevice, RecordingDevice};
use zuse_dsl::{Batch, Operation};

use crate::bench::*;

/// Enough for three chunks: the first is waited for, the others are prefetched by another thread.
const DATASETS: u64 = 1200;

/// A pool of so many clones with a snapshot each, opened again, and its device.
fn many(name: &str) -> (Bench, Arc<RecordingDevice>) {
    let device = Arc::new(RecordingDevice::new(Arc::new(MemDevice::new(
        name,
        1 << 30,
    ))));
    device.record(false);
    let bench = Bench::on(device.clone(), name);
    bench.create(&format!("{name}/base"));
    bench.snap(&format!("{name}/base@s"));
    bench.create(&format!("{name}/all"));
    let (from, into) = (format!("{name}/base@s"), format!("{name}/all/c"));
    changed(&bench, move |batch| {
        for i in 0..DATASETS {
            done(batch, &Operation::Clone(from.clone(), format!("{into}{i}")));
        }
    });
    let all = [format!("{name}/all@r")];
    bench.dsl.snapshot(&all, true, &[]).expect("snapshots");
    let bench = bench.reopen(true);
    device.reset();
    (bench, device)
}

fn changed(bench: &Bench, f: impl FnOnce(&Batch<'_>) + Send + 'static) {
    bench.dsl.batch(true, f).expect("a batch");
}

fn done(batch: &Batch<'_>, operation: &Operation) {
    let outcome = batch.run(operation, true).expect("an operation");
    assert_eq!(outcome.errno, 0, "{operation:?}");
}

/// Each dataset has five objects of its own that the change reads, in separate blocks. One after
/// the other, that is more than two reads for each.
fn check_reads(reads: u64, what: &str) {
    assert!(
        reads < DATASETS / 2,
        "{what} of {DATASETS} datasets read {reads} times"
    );
}

#[test]
fn a_program_reads_what_it_listed_in_few_pieces() {
    let (bench, device) = many("listed");
    changed(&bench, |batch| {
        let above = batch.entry("listed/all").expect("read").expect("there");
        for child in batch.children(&above).expect("children") {
            done(batch, &Operation::Snapshot(format!("{child}@p")));
        }
    });
    check_reads(device.counts().reads, "snapshots by a program");
    bench.sound("snapshots by a program");

    let bench = bench.reopen(true);
    device.reset();
    changed(&bench, |batch| {
        let above = batch.entry("listed/all").expect("read").expect("there");
        for child in batch.children(&above).expect("children") {
            done(batch, &Operation::Destroy(format!("{child}@r"), false));
        }
    });
    check_reads(device.counts().reads, "destroys by a program");
    bench.close();
}

#[test]
fn a_recursive_change_reads_in_few_pieces() {
    let (bench, device) = many("below");
    let all = ["below/all@p".to_owned()];
    bench.dsl.snapshot(&all, true, &[]).expect("snapshots");
    check_reads(device.counts().reads, "snapshot -r");
    bench.close();
}

#[test]
fn opening_a_pool_for_writing_looks_for_logs_in_few_pieces() {
    let (bench, device) = many("opened");
    let bench = bench.reopen(true);
    check_reads(device.counts().reads, "opening");
    bench.close();
}
