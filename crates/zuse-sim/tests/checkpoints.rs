//! Checkpoints created, rewound to and discarded, with power cuts at any moment. `ZUSE_SIM_SEEDS`
//! makes the run longer.

use zuse_sim::checkpoints::{Counts, rounds};
use zuse_sim::files::Files;
use zuse_sim::power::Rules;
use zuse_sim::seeds::seeds;

const ROUNDS: u32 = 4;

#[test]
fn a_pool_goes_back_to_its_checkpoint_or_forgets_it_after_any_cut() {
    let range = seeds(2);
    let seeds = range.end - range.start;
    let rules = Rules {
        cuts: 1,
        within: 200,
        steps: 10,
        ..Rules::default()
    };
    let all: Vec<_> = std::thread::scope(|scope| {
        let one = |first| {
            let range = range.clone();
            move || {
                let mine = range.filter(|s| s % 2 == first);
                mine.map(|seed| {
                    let disks = 1 + u32::from(seed % 2 > 0);
                    rounds(&Files::default(), Rules { disks, ..rules }, seed, ROUNDS)
                })
                .collect::<Vec<_>>()
            }
        };
        let threads = [0, 1].map(|first| scope.spawn(one(first)));
        threads.map(|t| t.join().expect("a thread")).concat()
    });
    let mut counts = Counts::default();
    for result in all {
        counts = counts.plus(result.unwrap_or_else(|e| panic!("{e}")));
    }
    println!("{counts:?}");
    assert!(
        counts.made == ROUNDS * u32::try_from(seeds).expect("few")
            && counts.rewound > 0
            && counts.discarded > 0,
        "{counts:?}"
    );
    assert!(counts.half > 0, "no discard was cut: {counts:?}");
}
