//! Power cuts at any device operation, losing any subset of the writes since the last flush.

use zuse_sim::files::Files;
use zuse_sim::objects::Objects;
use zuse_sim::power::{Rules, run_chains};
use zuse_sim::seeds::seeds;

fn rules(ignore_flushes: bool) -> Vec<Rules> {
    let base = Rules {
        ignore_flushes,
        ..Rules::default()
    };
    vec![
        Rules { ashift: 9, ..base },
        Rules { ashift: 12, ..base },
        Rules {
            ashift: 13,
            within: 400,
            ..base
        },
        Rules {
            disks: 3,
            ashift: 12,
            ..base
        },
        Rules { within: 25, ..base },
        Rules {
            within: 600,
            steps: 100,
            cuts: 4,
            ..base
        },
    ]
}

fn none_failed(failures: &[String], seeds: u64) {
    let (count, first) = (failures.len(), failures.iter().take(5));
    let first: Vec<&str> = first.map(String::as_str).collect();
    let first = first.join("\n");
    assert!(count == 0, "{count} of {seeds} chains failed:\n{first}");
}

#[test]
fn files_come_back_as_of_the_last_txg_after_every_cut() {
    let range = seeds(12);
    let seeds = range.end - range.start;
    let (counts, failures) = run_chains(&Files::default(), &rules(false), range);
    println!("{counts:?}, {} failures", failures.len());
    none_failed(&failures, seeds);
    assert!(
        u64::from(counts.cuts) >= seeds * 9 && counts.advanced + counts.opening > 0,
        "{counts:?}"
    );
}

#[test]
fn files_come_back_although_freed_space_was_discarded() {
    let range = seeds(4);
    let seeds = range.end - range.start;
    let workload = Files {
        autotrim: true,
        ..Files::default()
    };
    let (counts, failures) = run_chains(&workload, &rules(false), range);
    println!("{counts:?}, {} failures", failures.len());
    none_failed(&failures, seeds);
    assert!(u64::from(counts.cuts) >= seeds * 9, "{counts:?}");
}

#[test]
fn files_that_share_blocks_come_back_after_every_cut() {
    let range = seeds(6);
    let seeds = range.end - range.start;
    let workload = Files::that_share();
    let (counts, failures) = run_chains(&workload, &rules(false), range);
    let sharing = workload.sharing.load(std::sync::atomic::Ordering::Relaxed);
    println!("{counts:?}, {sharing} shared, {} failures", failures.len());
    none_failed(&failures, seeds);
    assert!(
        u64::from(counts.cuts) >= seeds * 9 && sharing > u64::from(counts.cuts) / 2,
        "{counts:?}, {sharing} pools with shared blocks"
    );
}

#[test]
fn objects_come_back_as_of_the_last_txg_after_every_cut() {
    let range = seeds(6);
    let seeds = range.end - range.start;
    let (counts, failures) = run_chains(&Objects, &rules(false), range);
    println!("{counts:?}, {} failures", failures.len());
    none_failed(&failures, seeds);
    assert!(
        u64::from(counts.cuts) >= seeds * 9 && counts.advanced + counts.opening > 0,
        "{counts:?}"
    );
}

#[test]
fn without_flushes_the_cuts_do_damage() {
    let (counts, failures) = run_chains(&Objects, &rules(true), 0..12);
    println!(
        "{counts:?}, {} failures; the first: {:?}",
        failures.len(),
        failures.first()
    );
    assert!(
        !failures.is_empty(),
        "disks that ignore flushes were not noticed: the test proves nothing"
    );
}
