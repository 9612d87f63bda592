//! Objects against a model over many txgs: a read gives the newest version, a reopen gives the
//! synced one.

use std::sync::Arc;

use zuse_base::{Entropy, Result, SeededPrng, Txg};
use zuse_format::{BlockPointer, BpProps, Dva};
use zuse_io::Shared;

use super::DnodeSpec;
use crate::stored::StoredBlock;
use crate::zap::tests::pool::TestPool;
use crate::{Dnode, Settings, Tx};

const LIMIT: usize = 600_000;

fn check(dnode: &Arc<Dnode>, model: &[u8], what: &str) {
    let mut got = vec![0u8; model.len() + 5000];
    dnode.read_at(0, &mut got).expect("read");
    let wrong = got
        .iter()
        .zip(model.iter().chain(std::iter::repeat(&0)))
        .position(|(a, b)| a != b);
    assert_eq!(wrong, None, "{what}: first wrong byte");
}

fn noise(prng: &SeededPrng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    prng.fill(&mut bytes);
    if prng.chance(1, 3) {
        bytes.fill(b'x');
    }
    bytes
}

fn write_some(prng: &SeededPrng, dnode: &Arc<Dnode>, tx: &Tx, model: &mut Vec<u8>) {
    let at = prng.below(LIMIT as u64) as usize;
    let len = 1 + prng.below(if prng.chance(1, 5) { 150_000 } else { 3000 }) as usize;
    let bytes = noise(prng, len);
    dnode.write_at(tx, at as u64, &bytes).expect("write");
    if model.len() < at + len {
        model.resize(at + len, 0);
    }
    model[at..at + len].copy_from_slice(&bytes);
}

fn punch_some(prng: &SeededPrng, dnode: &Arc<Dnode>, tx: &Tx, model: &mut [u8]) {
    let at = prng.below(LIMIT as u64) as usize;
    let len = prng.below(200_000) as usize;
    dnode.free_range(tx, at as u64, len as u64).expect("punch");
    let end = (at + len).min(model.len());
    if at < end {
        model[at..end].fill(0);
    }
}

/// One object, three txgs in flight, synced oldest first at random moments.
fn run(seed: u64, block_size: u32) {
    let prng = SeededPrng::new(seed);
    let mut pool = TestPool::new(Settings::default());
    let first = pool.txg;
    let object = pool
        .os
        .allocate(
            &Tx::syncing(first),
            &DnodeSpec::new(19).block_size(block_size),
        )
        .expect("allocate")
        .object();
    let mut open = first;
    let mut model: Vec<u8> = Vec::new();
    let mut dnode = pool.os.dnode(object).expect("dnode");
    let mut closed: Vec<(Txg, Vec<u8>)> = Vec::new();
    for step in 0..400 {
        let tx = Tx::syncing(open);
        match prng.below(10) {
            0..=4 => {
                write_some(&prng, &dnode, &tx, &mut model);
            }
            5 | 6 => {
                punch_some(&prng, &dnode, &tx, &mut model);
            }
            7 if prng.chance(1, 3) => {
                let at = prng.below(LIMIT as u64) as usize;
                dnode
                    .free_range(&tx, at as u64, u64::MAX)
                    .expect("truncate");
                model.truncate(at);
            }
            8 if closed.len() < 2 => {
                closed.push((open, model.clone()));
                open = open.next();
            }
            9 if !closed.is_empty() => {
                let (txg, then) = closed.remove(0);
                assert_eq!(txg, pool.txg, "txgs are synced in order");
                pool.sync();
                let again = pool.reopened();
                check(
                    &again.dnode(object).expect("dnode on disk"),
                    &then,
                    &format!("seed {seed}, step {step}, txg {} on disk", txg.0),
                );
                if prng.chance(1, 4) {
                    pool.drop_cache();
                }
            }
            _ => {}
        }
        if step % 5 == 0 {
            check(&dnode, &model, &format!("seed {seed}, step {step}"));
        }
    }
    for _ in 0..=closed.len() {
        pool.sync();
    }
    drop(dnode);
    pool.drop_cache();
    dnode = pool.os.dnode(object).expect("dnode");
    check(&dnode, &model, "at the end");
    check_holes(&dnode, &model);
    // Freeing it returns all its space.
    let tx = Tx::syncing(pool.txg);
    pool.os.free(&tx, object).expect("free");
    pool.sync();
    assert!(pool.os.dnode(object).is_err());
}

/// Data is found where it is, and not in holes.
fn check_holes(dnode: &Arc<Dnode>, model: &[u8]) {
    let size = u64::from(dnode.block_size());
    let mut at = 0;
    while let Some(data) = dnode.seek(at, false).expect("seek") {
        assert!(
            model[(at as usize).min(model.len())..(data as usize).min(model.len())]
                .iter()
                .all(|b| *b == 0)
        );
        let hole = dnode
            .seek(data, true)
            .expect("seek")
            .expect("a hole at the end");
        assert!(hole > data && (hole.is_multiple_of(size) || hole >= model.len() as u64));
        at = hole;
    }
}

#[test]
fn an_object_reads_as_a_model_does_over_many_txgs() {
    for seed in 0..6 {
        run(seed, 4096);
    }
    run(100, 131_072);
    run(101, 512);
}

#[test]
fn the_highest_block_is_within_reach_though_it_was_freed_at_once() {
    let mut pool = TestPool::new(Settings::default());
    let dnode = pool
        .os
        .allocate(&pool.tx(), &DnodeSpec::new(19).block_size(4096))
        .expect("allocate");
    dnode.write_at(&pool.tx(), 0, b"near").expect("write");
    pool.sync();
    dnode.write_at(&pool.tx(), 1 << 30, b"far").expect("write");
    dnode
        .free_range(&pool.tx(), 1 << 30, 4096)
        .expect("punched");
    pool.sync();
    let phys = pool.reopened().dnode(dnode.object()).expect("dnode");
    let shift = (u32::from(phys.indirect_shift()) - 7) * (u32::from(phys.levels()) - 1);
    assert!(u64::from(phys.pointer_count()) << shift > phys.max_block());
    let mut buf = [1; 4];
    phys.read_at(0, &mut buf).expect("read");
    assert_eq!(&buf, b"near");
    phys.read_at(1 << 30, &mut buf).expect("read");
    assert_eq!(buf, [0; 4]);
}

#[test]
fn a_block_far_away_costs_only_the_way_to_it() {
    let mut pool = TestPool::new(Settings::default());
    let dnode = pool
        .os
        .allocate(&pool.tx(), &DnodeSpec::new(19).block_size(131_072))
        .expect("allocate");
    dnode.write_at(&pool.tx(), 0, b"near").expect("write");
    pool.sync();
    dnode.write_at(&pool.tx(), 1 << 40, b"far").expect("write");
    pool.sync();
    assert!(
        dnode.used_bytes() < 2 << 20,
        "{} bytes for two blocks",
        dnode.used_bytes()
    );
    let object = dnode.object();
    let dnode = pool.reopened().dnode(object).expect("dnode");
    let mut buf = [0; 4];
    dnode.read_at(0, &mut buf).expect("read");
    assert_eq!(&buf, b"near");
    dnode.read_at(1 << 40, &mut buf).expect("read");
    assert_eq!(&buf, b"far\0");
    assert_eq!(dnode.seek(131_072, false).expect("seek"), Some(1 << 40));
    assert_eq!(dnode.seek(0, true).expect("seek"), Some(131_072));
}

#[test]
fn object_numbers_are_unique_and_come_back_after_they_are_freed() {
    let mut pool = TestPool::new(Settings::default());
    let prng = SeededPrng::new(5);
    let mut alive = std::collections::BTreeMap::new();
    for round in 0..30 {
        let tx = pool.tx();
        for _ in 0..200 {
            let slots = *prng.pick(&[1u8, 1, 2, 4, 32]).expect("one of them");
            let dnode = pool
                .os
                .allocate(&tx, &DnodeSpec::new(19).slots(slots))
                .expect("allocate");
            let object = dnode.object().0;
            for taken in object..object + u64::from(slots) {
                assert!(
                    alive.insert(taken, object).is_none(),
                    "number {taken} was given out twice"
                );
            }
        }
        let starts: Vec<u64> = alive.values().copied().collect();
        for object in starts {
            if prng.chance(1, 3) && alive.contains_key(&object) {
                pool.os
                    .free(&tx, zuse_base::ObjectId(object))
                    .expect("free");
                alive.retain(|_, start| *start != object);
            }
        }
        let mut listed = Vec::new();
        let mut at = zuse_base::ObjectId(0);
        while let Some(next) = pool.os.next_object(at).expect("next") {
            listed.push(next.0);
            at = next;
        }
        let mut expected: Vec<u64> = alive.values().copied().collect();
        expected.dedup();
        assert_eq!(listed, expected, "round {round}");
        pool.sync();
        assert_eq!(pool.os.object_count(), expected.len() as u64);
    }
}

#[test]
fn fsync_waits_for_changes_that_are_written_and_not_yet_committed() {
    let mut pool = TestPool::new(Settings::default());
    let txg = pool.txg;
    let dnode = pool
        .os
        .allocate(&pool.tx(), &DnodeSpec::new(19))
        .expect("allocate");
    dnode.write_at(&pool.tx(), 0, b"precious").expect("write");
    let other = pool
        .os
        .allocate(&pool.tx(), &DnodeSpec::new(19))
        .expect("allocate")
        .object();
    assert_eq!(dnode.changed_in(), txg);
    pool.sync();
    // The blocks are written, but no uberblock leads to them yet.
    assert!(!dnode.is_dirty());
    assert_eq!(dnode.changed_in(), txg);
    // Loading it again does not change that.
    assert_eq!(pool.os.dnode(other).expect("dnode").changed_in(), txg);
    // A txg that changes other objects does not make it wait again.
    pool.os
        .dnode(other)
        .expect("dnode")
        .touch(&pool.tx())
        .expect("touch");
    pool.sync();
    assert_eq!(dnode.changed_in(), txg);
}

#[test]
fn a_number_that_could_not_be_taken_stays_free() {
    let mut pool = TestPool::new(Settings::default());
    let number = zuse_base::ObjectId(77);
    let spec = DnodeSpec::new(19);
    let held = pool
        .os
        .allocate_at(&pool.tx(), number, &spec)
        .expect("allocate");
    pool.sync();
    pool.os.free(&pool.tx(), number).expect("free");
    pool.sync();
    // A handle still holds the freed object.
    assert!(pool.os.allocate_at(&pool.tx(), number, &spec).is_err());
    drop(held);
    assert_eq!(
        pool.os.next_object(zuse_base::ObjectId(0)).expect("next"),
        None
    );
    pool.os
        .allocate_at(&pool.tx(), number, &spec)
        .expect("the number is free");
}

#[test]
fn the_cache_makes_room_for_changed_data_until_it_is_written() {
    let mut pool = TestPool::new(Settings::default());
    let tx = Tx::syncing(pool.txg);
    let spec = DnodeSpec::new(19).block_size(128 << 10);
    let dnode = pool.os.allocate(&tx, &spec).expect("allocate");
    let cache = pool.os.io().cache().clone();
    cache.set_limit(2 << 20, 75);
    for block in 0..8 {
        dnode
            .write_at(&tx, block * (128 << 10), &[7; 128 << 10])
            .expect("write");
    }
    assert!(cache.lend(4096).is_none(), "half is lent to what is dirty");
    pool.sync();
    assert!(cache.lend(1 << 20).is_some());
    assert!(cache.stats().used <= 2 << 20);
}

/// They used to count as dirty file data. Every 32 MiB of them ended a txg, which was then written
/// beside the writers, and at 64 MiB these waited.
#[test]
fn values_of_attributes_are_not_counted_as_dirty_while_the_cache_has_room_to_spare() {
    const LEN: usize = 64 << 10;
    let mut pool = TestPool::new(Settings::default());
    let tx = Tx::syncing(pool.txg);
    let spec = DnodeSpec::new(19).block_size(LEN as u32).bonus(44, 8);
    let new = |tx: &Tx| pool.os.allocate(tx, &spec).expect("allocate");
    let (object, file) = (new(&tx), new(&tx));
    let meter = object.core.meter.clone();
    let cache = pool.os.io().cache().clone();
    cache.set_limit(8 * LEN, 75);
    let spill = |pool: &TestPool, len| {
        let tx = Tx::syncing(pool.txg);
        object.set_spill(&tx, Some(vec![1; len])).expect("spill");
    };
    let value = |pool: &TestPool| {
        let tx = Tx::syncing(pool.txg);
        file.write_value(&tx, vec![2; LEN]).expect("value");
    };
    spill(&pool, LEN);
    spill(&pool, 2 * LEN);
    value(&pool);
    assert_eq!(meter.data(), 0);
    assert_eq!(meter.values_of(pool.txg), LEN as u64 + 256);
    assert!(cache.lend(LEN).is_some(), "three of four are lent");
    assert!(cache.lend(LEN + 1).is_none(), "and no fewer");

    pool.sync();
    assert!(cache.lend(4 * LEN).is_some(), "all was given back");
    let used = cache.stats().used;
    assert!(used >= 2 * LEN, "what was written is cached");
    cache.set_limit(used + LEN - 1, 75);
    assert!(
        cache.lend(LEN).is_some(),
        "at the expense of what is cached"
    );
    spill(&pool, LEN);
    assert_eq!(meter.data(), LEN as u64);
    spill(&pool, 2 * LEN);
    assert_eq!(meter.data(), 2 * LEN as u64, "only what it has grown");
    value(&pool);
    assert!(meter.data() >= 3 * LEN as u64);
}

#[test]
fn a_peek_shows_what_is_stored_of_objects_that_nobody_has() {
    let mut pool = TestPool::new(Settings::default());
    let tx = Tx::syncing(pool.txg);
    let made: Vec<_> = (0..100)
        .map(|_| {
            pool.os
                .allocate(&tx, &DnodeSpec::new(19))
                .expect("allocate")
        })
        .collect();
    let mut numbers: Vec<_> = made.iter().map(|d| d.object()).collect();
    numbers.sort();
    let seen = |pool: &TestPool| -> Vec<bool> {
        let mut peek = pool.os.peek(numbers.iter().copied(), 0);
        let look = |object| peek.look(object, |d| Some(d.object_type())) == Some(19);
        numbers.iter().copied().map(look).collect()
    };
    assert!(!seen(&pool).contains(&true), "in memory only");
    pool.sync();
    assert!(!seen(&pool).contains(&true), "in memory and stored");
    drop(made);
    assert!(!seen(&pool).contains(&false), "stored, and at hand");
    pool.drop_cache();
    assert!(!seen(&pool).contains(&false), "stored, and read for it");
    let held = pool.os.dnode(numbers[3]).expect("dnode");
    pool.os
        .free(&Tx::syncing(pool.txg), numbers[7])
        .expect("free");
    let now = seen(&pool);
    assert!(!now[3] && !now[7] && now.iter().filter(|s| **s).count() == 98);
    drop(held);
    pool.sync();
    let now = seen(&pool);
    assert!(now[3] && !now[7] && now.iter().filter(|s| **s).count() == 99);
}

/// Blocks of dnodes are built when their turn to be written comes. All of a txg's at once (a
/// million files' are 500 MiB) would fill what the cache lends. Leaves of directories would count
/// as dirty from then on, and the open txg would end early.
#[test]
fn writing_a_txg_dirties_no_blocks_of_dnodes() {
    const COUNT: u64 = 3000;
    let mut pool = TestPool::new(Settings::default());
    let bonus = |round: u64, i: u64| (round << 32 | i).to_le_bytes().repeat(3);
    let objects: Vec<Arc<Dnode>> = (0..COUNT)
        .map(|i| {
            let spec = DnodeSpec::new(19).bonus(44, 24);
            let dnode = pool.os.allocate(&pool.tx(), &spec).expect("allocate");
            dnode.set_bonus(&pool.tx(), &bonus(0, i)).expect("bonus");
            dnode
        })
        .collect();
    let numbers: Vec<_> = objects.iter().map(|d| d.object()).collect();
    let meter = objects[0].core.meter.clone();
    let mut round_of: Vec<Option<u64>> = vec![Some(0); COUNT as usize];
    for round in 0..4 {
        let txg = pool.txg;
        if round > 0 {
            // In each block some objects change, some go, some stay.
            for (i, now) in round_of.iter_mut().enumerate() {
                if now.is_none() {
                    continue;
                }
                match (i as u64 * 7 + round) % 5 {
                    0 | 1 => {
                        let dnode = pool.os.dnode(numbers[i]).expect("dnode");
                        dnode
                            .set_bonus(&pool.tx(), &bonus(round, i as u64))
                            .expect("bonus");
                        *now = Some(round);
                    }
                    2 if i % 3 == 0 => {
                        pool.os.free(&pool.tx(), numbers[i]).expect("free");
                        *now = None;
                    }
                    _ => {}
                }
            }
        }
        let (blocks, dirty) = (meter.fresh_and_again(txg), meter.of(txg));
        pool.sync();
        assert_eq!(meter.fresh_and_again(txg), blocks, "round {round}");
        // The meta dnode itself, and what counts the owners' space.
        assert!(meter.of(txg) <= dirty + 8192, "round {round}");
        let there = pool.reopened();
        for (i, now) in round_of.iter().enumerate() {
            let found = there.dnode(numbers[i]).ok().map(|d| d.bonus_vec());
            let wanted = now.map(|round| bonus(round, i as u64));
            assert_eq!(found, wanted, "object {i} after round {round}");
        }
    }
}

/// A txg with mostly blocks of new objects is written at once, because waiting would spare no
/// writes. Leaves of a new, already large directory are different: new names fall into each of
/// them.
#[test]
fn blocks_of_a_new_large_directory_count_as_written_again() {
    let pool = TestPool::new(Settings::default());
    let directory = || {
        let spec = DnodeSpec::new(20).block_size(512);
        pool.os.allocate(&pool.tx(), &spec).expect("allocate")
    };
    let (small, large) = (directory(), directory());
    let fill = |dnode: &Dnode, blocks: std::ops::Range<u64>| {
        for blkid in blocks {
            dnode
                .edit_block(&pool.tx(), blkid, |mut b| b.bytes_mut()[0] = 1)
                .expect("edit");
        }
        dnode.core.meter.fresh_and_again(pool.txg)
    };
    let (fresh, again) = fill(&small, 0..200);
    assert!(fresh >= 200 * 512 && again == 0, "{fresh} {again}");
    let (_, again) = fill(&large, 0..1000);
    assert!(again >= 700 * 512, "{again}");
    let few = fill(&large, 0..1000);
    assert_eq!(few.1, again, "a block counts once");
}

#[test]
#[should_panic(expected = "is older than the last change")]
fn an_object_never_changes_in_a_txg_before_its_last_one() {
    let pool = TestPool::new(Settings::default());
    let (now, next) = (Tx::syncing(pool.txg), Tx::syncing(pool.txg.next()));
    let dnode = pool.os.allocate(&now, &DnodeSpec::new(19)).expect("made");
    dnode.write_at(&next, 0, b"new").expect("written");
    let _ = dnode.write_at(&now, 0, b"old");
}

#[test]
#[should_panic(expected = "changes of another txg leave")]
fn what_a_newer_txg_changed_is_not_taken_for_written() {
    let pool = TestPool::new(Settings::default());
    let tx = pool.tx();
    let dnode = pool.os.allocate(&tx, &DnodeSpec::new(19)).expect("made");
    dnode.complete_sync(pool.txg.next(), None);
}

#[test]
#[should_panic(expected = "a fourth txg")]
fn an_object_has_changes_of_three_txgs_at_most() {
    let pool = TestPool::new(Settings::default());
    let mut txg = pool.txg;
    let dnode = pool.os.allocate(&pool.tx(), &DnodeSpec::new(19)).unwrap();
    for _ in 0..3 {
        txg = txg.next();
        dnode.write_at(&Tx::syncing(txg), 0, b"new").expect("room");
    }
}

type Change<'a> = &'a dyn Fn(&Arc<Dnode>, &Tx);

/// A received object set without its key accepts only data with MACs.
#[test]
fn nothing_in_clear_is_written_into_an_object_set_without_key() {
    let sync = |change: Change<'_>| {
        let pool = TestPool::new(Settings::default());
        let (os, tx) = (pool.raw(), pool.tx());
        let spec = DnodeSpec::new(19).bonus(zuse_format::object_type::SA, 0);
        let dnode = os.allocate(&tx, &spec).expect("made");
        change(&dnode, &tx);
        let refused = os.sync(pool.txg, 1).map(|_| ()).expect_err("in clear");
        refused.to_string()
    };
    let clear = StoredBlock {
        bytes: vec![1; 512],
        logical_size: 512,
        compression: zuse_codec::Compression::Off.to_u8(),
        crypt: None,
    };
    let changes: [Change<'_>; 4] = [
        &|dnode, tx| dnode.write_at(tx, 0, b"new").expect("dirty"),
        &|dnode, tx| dnode.set_spill(tx, Some(vec![1; 512])).expect("dirty"),
        &|dnode, tx| dnode.set_spill_stored(tx, clear.clone()).expect("dirty"),
        &|dnode, tx| {
            let block = StoredBlock {
                bytes: vec![1; dnode.block_size() as usize],
                logical_size: dnode.block_size(),
                ..clear.clone()
            };
            dnode.write_stored(tx, 0, block).expect("dirty");
        },
    ];
    for (i, change) in changes.iter().enumerate() {
        let said = sync(change);
        assert!(said.contains("in clear"), "{i}: {said}");
    }
    let said = sync(&|_, _| ());
    assert!(said.contains("no salt, IV and MAC came"), "{said}");
}

struct Counted;

impl Shared for Counted {
    fn refer(&self, _: Txg, _: &BlockPointer, _: u64) -> Result<()> {
        Ok(())
    }
    fn withdraw(&self, _: Txg, _: &BlockPointer, _: u64) {}
    fn drop_reference(&self, _: &BlockPointer, _: u64) -> Result<bool> {
        Ok(false)
    }
}

/// A log or a file's tree may hold any pointer.
#[test]
fn a_clone_of_a_block_of_a_txg_to_come_is_refused() {
    let pool = TestPool::new(Settings::default());
    pool.os.io().set_shared(Arc::new(Counted));
    let tx = pool.tx();
    let dnode = pool.os.allocate(&tx, &DnodeSpec::new(19)).expect("made");
    let size = u64::from(dnode.block_size());
    let clone = |birth: u64| {
        let mut bp = BlockPointer::with_props(BpProps {
            lsize: size,
            psize: size,
            compression: zuse_codec::Compression::Off.to_u8(),
            checksum: 7,
            object_type: 19,
            level: 0,
            dedup: false,
            crypt: false,
            order: zuse_base::ByteOrder::Little,
        });
        bp.set_dva(0, Dva::new(0, 1 << 20, size, false));
        bp.set_birth(birth, birth);
        let reference = pool.os.io().refer(tx.txg(), &bp).expect("counted");
        dnode.write_clone(&tx, 0, reference)
    };
    let said = clone(tx.txg().0 + 1).expect_err("refused").to_string();
    assert!(said.contains("a block of txg 11"), "{said}");
    clone(tx.txg().0).expect("taken");
}
