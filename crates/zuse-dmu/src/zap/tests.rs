use super::fat::tests::audit;
use super::*;
use crate::Settings;
use pool::TestPool;
use std::collections::BTreeMap;
use zuse_base::ObjectId;

pub(crate) mod pool;

fn new_zap(pool: &TestPool) -> Zap {
    Zap::create(
        &pool.os,
        &pool.tx(),
        DIRECTORY,
        &ZapOptions {
            salt: 1,
            ..ZapOptions::default()
        },
    )
    .unwrap()
}

fn names(zap: &Zap) -> Vec<(String, u64)> {
    let mut out = Vec::new();
    let end = zap
        .list(0, &mut |name, v, _| {
            out.push((String::from_utf8(name.to_vec()).unwrap(), v));
            true
        })
        .unwrap();
    assert_eq!(end, u64::MAX);
    out
}

fn reopened(pool: &mut TestPool, object: ObjectId) -> Zap {
    pool.reopen();
    Zap::open(&pool.os.dnode(object).unwrap()).unwrap()
}

#[test]
fn a_micro_zap_grows_by_512_bytes_and_becomes_fat_at_2048() {
    let mut pool = TestPool::new(Settings::default());
    let zap = new_zap(&pool);
    for i in 0..2048u64 {
        let before = zap.dnode().block_size();
        zap.add_u64(&pool.tx(), format!("file{i:07}").as_bytes(), i)
            .unwrap();
        let want = match i + 1 {
            2048 => 16384,
            n => 512 * (n / 8 + 1) as u32,
        };
        assert_eq!(
            zap.dnode().block_size(),
            want,
            "after {} (was {before})",
            i + 1
        );
        if i % 300 == 0 {
            pool.sync();
        }
        if i == 1000 {
            pool.drop_cache();
        }
    }
    assert!(zap.is_fat().unwrap());
    assert_eq!(zap.count().unwrap(), 2048);
    let listed = names(&zap);
    let object = zap.dnode().object();
    drop(zap);
    let zap = reopened(&mut pool, object);
    assert_eq!(names(&zap), listed);
    let h = audit(&zap.blocks());
    assert_eq!((h.salt, h.entries), (1, 2048));
    for i in 0..2048 {
        assert_eq!(
            zap.lookup_u64(format!("file{i:07}").as_bytes()).unwrap(),
            Some(i)
        );
        assert_eq!(zap.lookup(format!("file{i:07}x").as_bytes()).unwrap(), None);
    }
}

#[test]
fn a_large_micro_zap_is_used_where_it_is_allowed() {
    let mut pool = TestPool::new(Settings {
        micro_zap_max: 1 << 20,
        ..Settings::default()
    });
    let zap = new_zap(&pool);
    for i in 0..16383u64 {
        zap.add_u64(&pool.tx(), format!("f{i}").as_bytes(), i)
            .unwrap();
    }
    assert_eq!(zap.dnode().block_size(), 1 << 20);
    pool.sync();
    zap.add_u64(&pool.tx(), b"last", 1).unwrap();
    assert!(zap.is_fat().unwrap());
    assert_eq!(audit(&zap.blocks()).entries, 16384);
}

#[test]
fn what_a_micro_zap_cannot_hold_makes_it_fat() {
    let pool = TestPool::new(Settings::default());
    let values = [
        (vec![b'n'; 49], ZapValue::U64(1), false),
        (vec![b'n'; 50], ZapValue::U64(1), true),
        (b"text".to_vec(), ZapValue::text("hello"), true),
        (b"pair".to_vec(), ZapValue::u64s(&[1, 2]), true),
        (vec![b'l'; 1023], ZapValue::U64(7), true),
    ];
    for (name, value, fat) in values {
        let zap = new_zap(&pool);
        zap.add_u64(&pool.tx(), b"first", 5).unwrap();
        zap.add(&pool.tx(), &name, &value).unwrap();
        assert_eq!(zap.is_fat().unwrap(), fat);
        assert_eq!(zap.lookup(&name).unwrap(), Some(value));
        assert_eq!(zap.lookup_u64(b"first").unwrap(), Some(5));
        assert!(
            zap.add_u64(&pool.tx(), &name, 1)
                .unwrap_err()
                .is(Errno::EXIST)
        );
        assert_eq!(
            zap.is_fat().unwrap(),
            fat,
            "a refused addition changes nothing"
        );
    }
    let zap = new_zap(&pool);
    assert!(
        zap.add_u64(&pool.tx(), &[b'x'; 1024], 1)
            .unwrap_err()
            .is(Errno::NAMETOOLONG)
    );
    assert!(
        zap.add_u64(&pool.tx(), b"", 1)
            .unwrap_err()
            .is(Errno::INVAL)
    );
    assert!(
        zap.remove(&pool.tx(), b"none")
            .unwrap_err()
            .is(Errno::NOENT)
    );
    assert!(!zap.is_fat().unwrap());
}

#[test]
fn the_upgrade_keeps_hash_order_and_numbers_of_collisions() {
    let pool = TestPool::new(Settings::default());
    let zap = new_zap(&pool);
    let tx = pool.tx();
    for (name, v) in [
        ("faa495f7", 1),
        ("d7f14be2", 2),
        ("c19ab7b5", 3),
        ("zzz", 9),
    ] {
        zap.add_u64(&tx, name.as_bytes(), v).unwrap();
    }
    zap.remove(&tx, b"faa495f7").unwrap();
    zap.add_u64(&tx, b"newname", 4).unwrap();
    zap.add_u64(&tx, b"faa495f7", 5).unwrap();
    let before: Vec<_> = {
        let mut c = zap.cursor(0);
        std::iter::from_fn(|| c.next().unwrap())
            .map(|e| (e.name, e.cookie_after, e.cd))
            .collect()
    };
    zap.add(&tx, b"makes it fat", &ZapValue::text("x")).unwrap();
    zap.remove(&tx, b"makes it fat").unwrap();
    let after: Vec<_> = {
        let mut c = zap.cursor(0);
        std::iter::from_fn(|| c.next().unwrap())
            .map(|e| (e.name, e.cookie_after, e.cd))
            .collect()
    };
    assert_eq!(before, after);
    // The published leaf.
    let leaf = zap.dnode().with_block(1, |b| b.bytes().to_vec()).unwrap();
    assert_eq!(leaf[48 + 2 * 326..][..2], [12, 0]);
    assert_eq!(
        leaf[0x430 + 24 * 12..][..24],
        [
            0xfc, 8, 3, 0, 0xd, 0, 9, 0, 0xe, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x11, 0xa3
        ]
    );
    assert_eq!(
        leaf[0x430 + 24 * 3..][..16],
        [0xfc, 8, 6, 0, 4, 0, 9, 0, 5, 0, 1, 0, 1, 0, 0, 0]
    );
}

#[test]
fn cookies_are_the_published_ones_and_survive_changes() {
    let pool = TestPool::new(Settings::default());
    let zap = new_zap(&pool);
    for (name, v) in [("alpha", 5), ("beta", 6), ("gamma", 7)] {
        zap.add_u64(&pool.tx(), name.as_bytes(), v).unwrap();
    }
    let mut cookies = Vec::new();
    zap.list(0, &mut |n, _, after| {
        cookies.push((n.to_vec(), after));
        true
    })
    .unwrap();
    assert_eq!(
        cookies,
        [
            (b"alpha".to_vec(), 0x10e4_dcbf),
            (b"gamma".to_vec(), 0x1386_21d5),
            (b"beta".to_vec(), 0x19a2_a2b1)
        ]
    );

    // A listing in small steps, while names come and go and the ZAP becomes fat, gives the old
    // names once each.
    for i in 0..1500u64 {
        zap.add_u64(&pool.tx(), format!("stay{i}").as_bytes(), i)
            .unwrap();
    }
    let mut seen = BTreeMap::new();
    let mut cookie = 0;
    let mut round = 0u64;
    while cookie != u64::MAX {
        let mut left = 7;
        cookie = zap
            .list(cookie, &mut |n, _, _| {
                *seen
                    .entry(String::from_utf8(n.to_vec()).unwrap())
                    .or_insert(0) += 1;
                left -= 1;
                left > 0
            })
            .unwrap();
        for i in 0..10 {
            zap.add_u64(&pool.tx(), format!("new{round}-{i}").as_bytes(), i)
                .unwrap();
        }
        if round.is_multiple_of(3) {
            let _ = zap.remove(&pool.tx(), format!("new{}-3", round / 2).as_bytes());
        }
        round += 1;
    }
    assert!(zap.is_fat().unwrap());
    for i in 0..1500 {
        assert_eq!(seen.get(&format!("stay{i}")), Some(&1), "stay{i}");
    }
}

#[test]
fn any_history_gives_what_a_map_gives() {
    let mut pool = TestPool::new(Settings {
        micro_zap_max: 4096,
        ..Settings::default()
    });
    let mut zap = new_zap(&pool);
    let object = zap.dnode().object();
    let mut model: BTreeMap<String, u64> = BTreeMap::new();
    let mut state = 3u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..30_000u64 {
        let phase = (round / 6000) % 2;
        let name = format!("{}", random() % 3000);
        let tx = pool.tx();
        match random() % 10 {
            0 => {
                zap.update_u64(&tx, name.as_bytes(), round).unwrap();
                model.insert(name, round);
            }
            1..=4 if phase == 0 => match zap.add_u64(&tx, name.as_bytes(), round) {
                Ok(()) => assert!(model.insert(name, round).is_none()),
                Err(e) => assert!(e.is(Errno::EXIST) && model.contains_key(&name)),
            },
            1..=8 => match zap.remove(&tx, name.as_bytes()) {
                Ok(()) => assert!(model.remove(&name).is_some()),
                Err(e) => assert!(e.is(Errno::NOENT) && !model.contains_key(&name)),
            },
            _ => assert_eq!(
                zap.lookup_u64(name.as_bytes()).unwrap(),
                model.get(&name).copied()
            ),
        }
        if round % 4999 == 0 {
            drop(zap);
            zap = reopened(&mut pool, object);
            let mut listed = names(&zap);
            listed.sort();
            assert!(listed.iter().map(|(n, v)| (n, v)).eq(model.iter()));
            assert_eq!(zap.count().unwrap(), model.len() as u64);
            if zap.is_fat().unwrap() {
                audit(&zap.blocks());
            }
        }
    }
}

#[test]
fn integer_keys_are_hex_and_increments_remove_at_zero() {
    let pool = TestPool::new(Settings::default());
    let zap = new_zap(&pool);
    let tx = pool.tx();
    for key in [0u64, 1, 0xf, 0x10, 0xdead_beef, u64::MAX] {
        zap.add_int(&tx, key, key).unwrap();
        assert_eq!(
            zap.lookup_u64(format!("{key:x}").as_bytes()).unwrap(),
            Some(key)
        );
        assert_eq!(zap.lookup_int(key).unwrap(), Some(key));
    }
    zap.remove_int(&tx, 0x10).unwrap();
    assert_eq!(zap.lookup_int(0x10).unwrap(), None);
    zap.increment(&tx, b"3e8", 512).unwrap();
    zap.increment(&tx, b"3e8", -100).unwrap();
    assert_eq!(zap.lookup_u64(b"3e8").unwrap(), Some(412));
    zap.increment(&tx, b"3e8", -412).unwrap();
    assert_eq!(zap.lookup_u64(b"3e8").unwrap(), None);
    assert_eq!(
        zap.search_value(0xdead_0000, 0xffff_0000).unwrap(),
        Some(b"deadbeef".to_vec())
    );
}

#[test]
fn keys_of_words_live_in_a_fat_zap_from_birth() {
    let mut pool = TestPool::new(Settings::default());
    let flags = ZapFlags {
        hash64: true,
        uint64_key: true,
        prehashed: true,
    };
    let options = ZapOptions {
        flags,
        block_shift: 15,
        ..ZapOptions::default()
    };
    let zap = Zap::create(&pool.os, &pool.tx(), 196, &options).unwrap();
    let object = zap.dnode().object();
    let key = |i: u64| [i.wrapping_mul(0x9e37_79b9_7f4a_7c15), i, 3, 4, 5];
    for i in 0..3000 {
        zap.add_words(&pool.tx(), &key(i), &ZapValue::Bytes(vec![i as u8; 20]))
            .unwrap();
    }
    drop(zap);
    let zap = reopened(&mut pool, object);
    assert_eq!(zap.dnode().block_size(), 32768);
    audit(&zap.blocks());
    assert_eq!(
        zap.lookup_words(&key(77)).unwrap(),
        Some(ZapValue::Bytes(vec![77; 20]))
    );
    let mut cursor = zap.cursor(0);
    let mut n = 0;
    while let Some(e) = cursor.next().unwrap() {
        assert_eq!(e.words()[0], key(e.words()[1])[0]);
        n += 1;
    }
    assert_eq!(n, 3000);
    zap.remove_words(&pool.tx(), &key(5)).unwrap();
    assert!(
        zap.remove_words(&pool.tx(), &key(5))
            .unwrap_err()
            .is(Errno::NOENT)
    );
    assert!(zap.lookup(b"name").unwrap_err().is(Errno::INVAL));
}

#[test]
fn a_directory_that_folds_case_finds_and_removes_by_normal_form() {
    let pool = TestPool::new(Settings::default());
    let options = ZapOptions {
        normflags: normalize::TOUPPER,
        salt: 1,
        ..ZapOptions::default()
    };
    let zap = Zap::create(&pool.os, &pool.tx(), DIRECTORY, &options).unwrap();
    zap.add_u64(&pool.tx(), b"Readme.TXT", 1).unwrap();
    zap.add_u64(&pool.tx(), b"README.txt", 2).unwrap();
    for _ in 0..2 {
        let m = zap
            .lookup_match(b"readme.txt", MatchType::Normalize)
            .unwrap()
            .unwrap();
        assert_eq!((m.name.as_slice(), m.conflict), (&b"Readme.TXT"[..], true));
        let m = zap
            .lookup_match(b"README.txt", MatchType::NormalizeMatchCase)
            .unwrap()
            .unwrap();
        assert_eq!((m.value, m.conflict), (ZapValue::U64(2), false));
        assert_eq!(zap.lookup(b"readme.txt").unwrap(), None);
        let _ = zap.add(&pool.tx(), b"fat", &ZapValue::text("now"));
    }
    zap.remove_match(&pool.tx(), b"readme.TXT", MatchType::Normalize)
        .unwrap();
    assert_eq!(zap.lookup_u64(b"README.txt").unwrap(), Some(2));
    assert_eq!(zap.lookup_u64(b"Readme.TXT").unwrap(), None);
}

#[test]
fn an_object_that_is_no_zap_is_corrupt_with_its_place() {
    let pool = TestPool::new(Settings::default());
    let zap = new_zap(&pool);
    zap.dnode()
        .edit_block(&pool.tx(), 0, |mut b| b.bytes_mut()[0] = 9)
        .unwrap();
    let text = zap.lookup(b"a").unwrap_err().to_string();
    assert!(
        text.contains("test/fs, object") && text.contains("block 0"),
        "{text}"
    );
}

#[test]
fn threads_that_open_the_same_object_share_its_lock() {
    let pool = TestPool::new(Settings::default());
    let zap = new_zap(&pool);
    let (object, os, txg) = (zap.dnode().object(), &pool.os, pool.txg);
    std::thread::scope(|s| {
        for t in 0..3u64 {
            s.spawn(move || {
                let zap = Zap::open(&os.dnode(object).unwrap()).unwrap();
                let tx = crate::Tx::syncing(txg);
                for i in 0..2000u64 {
                    zap.add_u64(&tx, format!("{t}-{i}").as_bytes(), i).unwrap();
                    zap.increment(&tx, b"sum", 1).unwrap();
                    if i % 4 == 3 {
                        zap.remove(&tx, format!("{t}-{}", i - 1).as_bytes())
                            .unwrap();
                    }
                }
            });
        }
        s.spawn(move || {
            let zap = Zap::open(&os.dnode(object).unwrap()).unwrap();
            for _ in 0..30 {
                let mut last = 0;
                zap.list(0, &mut |_, _, after| {
                    let position = super::hash::HashBits::NORMAL.position(after);
                    assert!(position.0 >= last);
                    last = position.0;
                    true
                })
                .unwrap();
            }
        });
    });
    assert_eq!(zap.lookup_u64(b"sum").unwrap(), Some(6000));
    assert_eq!(zap.count().unwrap(), 4501);
    assert_eq!(audit(&zap.blocks()).entries, 4501);
}

#[test]
fn a_directory_that_falls_back_to_a_few_names_is_micro_again() {
    let mut pool = TestPool::new(Settings {
        indirect_shift: 12,
        ..Settings::default()
    });
    let zap = new_zap(&pool);
    let name = |i: u64| format!("file{i:07}");
    for i in 0..5000 {
        zap.add_u64(&pool.tx(), name(i).as_bytes(), i).unwrap();
    }
    pool.sync();
    assert!(zap.is_fat().unwrap() && zap.dnode().levels() > 1);
    let listed = names(&zap);
    // Names are removed while a listing is halfway; the last thirty in hash order stay.
    let (gone, kept) = listed.split_at(listed.len() - 30);
    let mut cookie = 0;
    let mut seen = Vec::new();
    zap.list(0, &mut |n, _, after| {
        seen.push(String::from_utf8(n.to_vec()).unwrap());
        cookie = after;
        seen.len() < 4990
    })
    .unwrap();
    for (i, (name, _)) in gone.iter().enumerate() {
        zap.remove(&pool.tx(), name.as_bytes()).unwrap();
        if i % 1500 == 0 {
            pool.sync();
        }
    }
    assert!(!zap.is_fat().unwrap());
    let size = zap.dnode().block_size();
    assert!(size <= 4608, "{size} bytes");
    assert_eq!(names(&zap), kept);
    zap.list(cookie, &mut |n, _, _| {
        seen.push(String::from_utf8(n.to_vec()).unwrap());
        true
    })
    .unwrap();
    assert!(seen[4970..].iter().eq(kept.iter().map(|(n, _)| n)));
    let object = zap.dnode().object();
    drop(zap);
    let zap = reopened(&mut pool, object);
    assert_eq!(names(&zap), kept);
    assert!(
        zap.dnode().used_bytes() <= 16384,
        "{} bytes",
        zap.dnode().used_bytes()
    );
    // It grows like any other.
    for i in 10_000..13_000 {
        zap.add_u64(&pool.tx(), name(i).as_bytes(), i).unwrap();
    }
    assert!(zap.is_fat().unwrap());
    let zap = reopened(&mut pool, object);
    assert_eq!(audit(&zap.blocks()).entries, 3030);
    for (name, value) in kept {
        assert_eq!(zap.lookup_u64(name.as_bytes()).unwrap(), Some(*value));
    }
}

#[test]
fn a_directory_with_a_long_name_stays_fat() {
    let pool = TestPool::new(Settings::default());
    let zap = new_zap(&pool);
    let long = [b'l'; 60];
    zap.add_u64(&pool.tx(), &long, 1).unwrap();
    for i in 0..40u64 {
        zap.add_u64(&pool.tx(), format!("f{i}").as_bytes(), i)
            .unwrap();
    }
    for i in 0..40u64 {
        zap.remove(&pool.tx(), format!("f{i}").as_bytes()).unwrap();
    }
    assert!(zap.is_fat().unwrap());
    assert_eq!(zap.lookup_u64(&long).unwrap(), Some(1));
    zap.remove(&pool.tx(), &long).unwrap();
    assert!(!zap.is_fat().unwrap());
    assert_eq!((zap.count().unwrap(), zap.dnode().block_size()), (0, 512));
}
