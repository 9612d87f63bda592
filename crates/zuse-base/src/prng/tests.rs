use super::*;

#[test]
fn the_numbers_are_those_of_splitmix64() {
    // First numbers of the published reference for seed 1234567.
    let prng = SeededPrng::new(1_234_567);
    assert_eq!(prng.u64(), 6_457_827_717_110_365_317);
    assert_eq!(prng.u64(), 3_203_168_211_198_807_973);
    assert_eq!(prng.u64(), 9_817_491_932_198_370_423);
}

#[test]
fn a_clone_repeats_and_a_fork_differs() {
    let prng = SeededPrng::new(7);
    prng.u64();
    let twin = prng.clone();
    let a: Vec<u64> = (0..8).map(|_| prng.u64()).collect();
    let b: Vec<u64> = (0..8).map(|_| twin.u64()).collect();
    assert_eq!(a, b);
    let fork = prng.fork();
    assert_ne!(fork.u64(), prng.u64());
}

#[test]
fn bounded_numbers_stay_in_bounds_and_reach_both_ends() {
    let prng = SeededPrng::new(3);
    let mut seen = [0; 6];
    for _ in 0..1000 {
        seen[(prng.range(10..16) - 10) as usize] += 1;
    }
    assert!(seen.iter().all(|&n| n > 50), "{seen:?}");
    assert_eq!(prng.below(0), 0);
    assert_eq!(prng.range(5..5), 5);
    assert!(prng.chance(1, 1));
    assert!(!prng.chance(0, 9));
}

#[test]
fn shuffling_keeps_every_item() {
    let prng = SeededPrng::new(11);
    let mut items: Vec<u32> = (0..100).collect();
    prng.shuffle(&mut items);
    assert_ne!(items, (0..100).collect::<Vec<_>>());
    items.sort_unstable();
    assert_eq!(items, (0..100).collect::<Vec<_>>());
    assert!(prng.pick::<u8>(&[]).is_none());
}

#[test]
fn the_host_gives_different_guids() {
    let source: &dyn Entropy = &SystemEntropy;
    assert_ne!(source.guid(), source.guid());
    let mut bytes = [0; 33];
    SeededPrng::new(1).fill(&mut bytes);
    assert!(bytes.iter().any(|&b| b != 0));
}
