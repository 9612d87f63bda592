use super::*;
use crate::Settings;
use crate::zap::flaw::{Checked, Flaw};
use crate::zap::key::Ask;
use crate::zap::store::{Blocks, ObjectBlocks};
use crate::zap::tests::pool::TestPool;
use crate::zap::{FatLookup, MatchType, ZapFlags, ZapOptions, ZapValue, fat};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use zuse_base::{Errno, Error, Result};

const DIRECTORY: u8 = 20;

fn new_zap(pool: &TestPool) -> Zap {
    Zap::create(&pool.os, &pool.tx(), DIRECTORY, &ZapOptions::default()).unwrap()
}

fn name(i: u64) -> Vec<u8> {
    format!("file-{i:08}").into_bytes()
}

fn is_known(zap: &Zap) -> bool {
    let known = zap.read_lock();
    !matches!(known.fresh(&zap.dnode), What::Nothing)
}

/// Looks up every name of the model and some others, twice: the second round uses facts from the
/// first.
fn agrees(zap: &Zap, model: &BTreeMap<u64, u64>, at_most: u64) {
    for _ in 0..2 {
        for i in 0..at_most {
            let want = model.get(&i).copied();
            assert_eq!(zap.lookup_u64(&name(i)).unwrap(), want, "{i}");
        }
    }
    assert_eq!(zap.count().unwrap(), model.len() as u64);
    if let Some((i, v)) = model.first_key_value() {
        assert_eq!(zap.lookup(&name(*i)).unwrap(), Some(ZapValue::U64(*v)));
    }
}

#[test]
fn what_is_known_agrees_with_the_blocks_through_growth_syncs_and_a_way_back() {
    let mut pool = TestPool::new(Settings::default());
    let zap = new_zap(&pool);
    let mut model = BTreeMap::new();
    let mut state = 7u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // Up: micro, then fat, then a table of its own; down again to a micro ZAP.
    for (round, share) in [(0, 95), (1, 100), (2, 60), (3, 2), (4, 50)] {
        for _ in 0..6_000 {
            let (i, v) = (random() % 9_000, random() % 1000);
            match random() % 100 {
                n if n < share => {
                    let added = zap.add_u64(&pool.tx(), &name(i), v);
                    match model.entry(i) {
                        std::collections::btree_map::Entry::Vacant(slot) => {
                            added.unwrap();
                            slot.insert(v);
                        }
                        _ => assert!(added.is_err_and(|e| e.is(Errno::EXIST))),
                    }
                }
                _ if random() % 4 == 0 => {
                    zap.update_u64(&pool.tx(), &name(i), v).unwrap();
                    model.insert(i, v);
                }
                _ => {
                    let removed = zap.remove(&pool.tx(), &name(i));
                    assert_eq!(removed.is_ok(), model.remove(&i).is_some());
                }
            }
            let (i, v) = (random() % 9_000, random());
            assert_eq!(zap.lookup_u64(&name(i)).unwrap(), model.get(&i).copied());
            if v % 700 == 0 {
                pool.sync();
            }
            if v % 1_900 == 0 {
                pool.drop_cache();
            }
        }
        if round == 3 {
            for (i, _) in std::mem::take(&mut model) {
                zap.remove(&pool.tx(), &name(i)).unwrap();
            }
            assert!(!zap.is_fat().unwrap());
        } else {
            assert!(zap.is_fat().unwrap() || round == 4);
        }
        agrees(&zap, &model, 9_000);
        pool.sync();
        agrees(&zap, &model, 9_000);
        assert!(is_known(&zap));
    }
}

#[test]
fn what_comes_after_a_txg_was_closed_is_not_written_with_it() {
    let mut pool = TestPool::new(Settings::default());
    for count in [20, 5_000] {
        let zap = new_zap(&pool);
        for i in 0..count {
            zap.add_u64(&pool.tx(), &name(i), i).unwrap();
        }
        assert!(is_known(&zap));
        // Nothing of the object changes between the two, so the facts stay valid, except the dirty
        // version of block 0.
        let closed = pool.close_txg();
        zap.add_u64(&pool.tx(), &name(count), count).unwrap();
        let os = pool.written(closed);
        let then = Zap::open(&os.dnode(zap.dnode.object()).unwrap()).unwrap();
        assert_eq!(then.count().unwrap(), count);
        assert_eq!(then.lookup_u64(&name(count)).unwrap(), None);
        assert_eq!(zap.count().unwrap(), count + 1);
        pool.sync();
        assert_eq!(zap.lookup_u64(&name(count)).unwrap(), Some(count));
    }
}

#[test]
fn a_change_by_somebody_else_is_not_missed() {
    let mut pool = TestPool::new(Settings::default());
    for fat in [false, true] {
        let zap = new_zap(&pool);
        let other = new_zap(&pool);
        for i in 0..20 {
            zap.add_u64(&pool.tx(), &name(i), i).unwrap();
            other.add_u64(&pool.tx(), &name(i + 100), i).unwrap();
        }
        if fat {
            for z in [&zap, &other] {
                z.add(&pool.tx(), b"text", &ZapValue::text("x")).unwrap();
            }
        }
        pool.sync();
        for _ in 0..3 {
            assert_eq!(zap.lookup_u64(&name(3)).unwrap(), Some(3));
        }
        assert!(is_known(&zap));
        // As a stream does: whole blocks, without the ZAP's lock.
        for blkid in 0..=other.dnode().max_block() {
            let bytes = other.dnode().with_block(blkid, |b| b.bytes().to_vec());
            let dnode = zap.dnode();
            dnode
                .write_block(&pool.tx(), blkid, bytes.unwrap())
                .unwrap();
        }
        assert!(!is_known(&zap));
        for _ in 0..3 {
            assert_eq!(zap.lookup_u64(&name(3)).unwrap(), None);
            assert_eq!(zap.lookup_u64(&name(103)).unwrap(), Some(3));
        }
        // And in place.
        zap.add_u64(&pool.tx(), &name(5), 1).unwrap();
        assert_eq!(zap.lookup_u64(&name(5)).unwrap(), Some(1));
        let before = zap.dnode().stamp();
        zap.dnode().edit_block(&pool.tx(), 0, |_| ()).unwrap();
        assert_ne!(zap.dnode().stamp(), before);
        assert_eq!(zap.lookup_u64(&name(5)).unwrap(), Some(1));
        zap.add_u64(&pool.tx(), &name(6), 2).unwrap();
        assert_eq!(zap.lookup_u64(&name(6)).unwrap(), Some(2));
    }
}

#[test]
fn keys_of_words_and_names_too_long_are_refused_by_what_is_known_too() {
    let mut pool = TestPool::new(Settings::default());
    let words = Zap::create(
        &pool.os,
        &pool.tx(),
        DIRECTORY,
        &ZapOptions {
            flags: ZapFlags {
                uint64_key: true,
                ..ZapFlags::default()
            },
            ..ZapOptions::default()
        },
    )
    .unwrap();
    words
        .add_words(&pool.tx(), &[1, 2], &ZapValue::U64(3))
        .unwrap();
    let long = vec![b'n'; 300];
    let zap = Zap::create(&pool.os, &pool.tx(), 1, &ZapOptions::default()).unwrap();
    zap.add(&pool.tx(), b"text", &ZapValue::text("x")).unwrap();
    pool.sync();
    for _ in 0..4 {
        let refused = words.lookup_u64(b"name");
        assert!(refused.is_err_and(|e| e.is(Errno::INVAL)));
        assert_eq!(words.lookup_words(&[1, 2]).unwrap(), Some(ZapValue::U64(3)));
        let refused = zap.lookup_u64(&long);
        assert!(refused.is_err_and(|e| e.is(Errno::NAMETOOLONG)));
        assert!(zap.lookup(b"text").unwrap().is_some());
    }
    assert!(is_known(&zap));
}

/// Counts the blocks that are looked at.
struct Counting<'a> {
    blocks: ObjectBlocks<'a>,
    views: Cell<u32>,
}

impl Blocks for Counting<'_> {
    fn view<R>(&self, blkid: u64, f: impl FnOnce(&[u8]) -> Checked<R>) -> Result<R> {
        self.views.set(self.views.get() + 1);
        self.blocks.view(blkid, f)
    }
    fn view_by_shortcut<R>(&self, blkid: u64, f: impl FnOnce(&[u8]) -> Checked<R>) -> Result<R> {
        self.views.set(self.views.get() + 1);
        self.blocks.view_by_shortcut(blkid, f)
    }
    fn corrupt(&self, blkid: u64, flaw: Flaw) -> Error {
        self.blocks.corrupt(blkid, flaw)
    }
}

#[test]
fn a_random_lookup_in_a_large_directory_looks_at_two_blocks() {
    let many = if std::env::var_os("ZUSE_LONG").is_some() {
        1_000_000
    } else {
        150_000
    };
    for ibs in [15, 17] {
        let mut pool = TestPool::new(Settings {
            indirect_shift: ibs,
            ..Settings::default()
        });
        let zap = new_zap(&pool);
        for i in 0..many {
            zap.add_u64(&pool.tx(), &name(i), i).unwrap();
            if i % 100_000 == 0 {
                pool.sync();
            }
        }
        pool.sync();
        let leaves = zap.dnode().max_block();
        pool.drop_cache();
        assert_eq!(zap.lookup_u64(&name(1)).unwrap(), Some(1));
        assert_eq!(zap.lookup_u64(&name(2)).unwrap(), Some(2));
        // Too small for the leaves, large enough for the blocks above them.
        pool.limit_cache((leaves as usize * 16384 / 8).max(2 << 20));
        let known = zap.read_lock();
        let What::Fat { header, tree } = known.fresh(&zap.dnode) else {
            panic!("not known");
        };
        let before = pool.misses();
        let mut at = 0;
        for _ in 0..3_000u64 {
            at = (at + 617_411) % many;
            let name = name(at);
            let aim = FatLookup::by(header, Ask::Name(&name), MatchType::Exact, 256).unwrap();
            let s = Counting {
                blocks: zap.blocks_of(tree.as_ref()),
                views: Cell::new(0),
            };
            assert_eq!(fat::lookup_u64(&s, aim).unwrap(), Some(Some(at)));
            assert_eq!(s.views.get(), 2, "the table and the leaf");
        }
        // Mostly only the leaf had to be read.
        let read = pool.misses() - before;
        assert!((1_500..4_500).contains(&read), "ibs {ibs}: {read} reads");
    }
}

#[test]
fn whoever_reads_while_names_come_and_txgs_are_written_sees_each_change() {
    let mut pool = TestPool::new(Settings::default());
    let zap = new_zap(&pool);
    // Names below `gone` are removed, those from there up to `made` exist, the others never did.
    let (gone, made, end) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|threads| {
        for seed in 1..=2u64 {
            let (zap, gone, made, end) = (&zap, &gone, &made, &end);
            threads.spawn(move || {
                let mut state = seed;
                while !end.load(SeqCst) {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let there = made.load(SeqCst);
                    let i = (state >> 33) % 8_000;
                    let found = zap.lookup_u64(&name(i)).unwrap();
                    let removed = gone.load(SeqCst);
                    if i < there && i > removed {
                        assert_eq!(found, Some(i), "{there} made, {removed} removed");
                    } else if let Some(found) = found {
                        assert_eq!(found, i);
                    }
                    if i < removed && i < there {
                        assert_eq!(zap.lookup_u64(&name(i)).unwrap(), None);
                    }
                }
            });
        }
        for i in 0..6_000u64 {
            zap.add_u64(&pool.tx(), &name(i), i).unwrap();
            made.store(i + 1, SeqCst);
            if i >= 3_000 {
                let old = i - 3_000;
                // Announced before it is done: in between both answers are right.
                gone.store(old, SeqCst);
                zap.remove(&pool.tx(), &name(old)).unwrap();
            }
            if i % 150 == 0 {
                pool.sync();
            }
        }
        end.store(true, SeqCst);
    });
    assert_eq!(zap.count().unwrap(), 3_000);
}

#[test]
fn a_block_that_is_part_of_its_pointer_is_kept_and_no_other() {
    let mut pool = TestPool::new(Settings::default());
    let noise = |i: u64| format!("{:x}", (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes();
    let names: [&dyn Fn(u64) -> Vec<u8>; 2] = [&name, &noise];
    for (name, (in_pointer, few)) in names.into_iter().zip([(true, 2), (false, 6)]) {
        let zap = new_zap(&pool);
        for i in 0..few {
            zap.add_u64(&pool.tx(), &name(i), i).unwrap();
        }
        let all = |count| (0..count).all(|i| zap.lookup_u64(&name(i)).unwrap() == Some(i));
        let keeps = || {
            let known = zap.read_lock();
            matches!(known.fresh(&zap.dnode), What::Micro { kept: Some(_), .. })
        };
        pool.sync();
        assert!((0..3).all(|_| all(few)));
        assert_eq!(keeps(), in_pointer);
        // A change is visible, before it is written and after.
        zap.add_u64(&pool.tx(), &name(few), few).unwrap();
        assert!(!keeps() && all(few + 1));
        pool.sync();
        assert!((0..3).all(|_| all(few + 1)));
        assert_eq!(zap.lookup_u64(b"none").unwrap(), None);
    }
}
