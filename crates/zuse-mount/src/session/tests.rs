use super::*;

use std::path::Path;

use zuse::{Environment, NewDevice, NewPool, Pool, PoolAccess, Search};

use crate::pool::PoolTree;

fn name(i: u32) -> Vec<u8> {
    format!("file {i}").into_bytes()
}

/// A pool whose file system has eight files, none of them in memory.
fn stored(dir: &Path) -> Arc<Pool> {
    let new = NewPool {
        name: "tank".into(),
        devices: vec![NewDevice {
            path: dir.join("disk"),
            make: Some(256 << 20),
        }],
        ..NewPool::default()
    };
    let pool = Pool::create(Environment::default(), &new).unwrap();
    let fs = pool.file_system("tank").unwrap();
    let root = fs.root().unwrap();
    for i in 0..8 {
        let who = judged(&Caller::default());
        fs.create(&who, &root, &name(i), 0o10_0644).unwrap();
    }
    drop((root, fs));
    pool.export().unwrap();
    drop(pool);
    let scan = Search::new([dir.join("disk")]).run();
    let access = PoolAccess {
        writable: true,
        ours: true,
        ..PoolAccess::default()
    };
    Pool::open(Environment::default(), &scan.pools[0], &access).unwrap()
}

#[test]
fn what_will_be_used_is_taken_in_between_its_look_up_and_its_use() {
    let dir = tempfile::tempdir().unwrap();
    let pool = stored(dir.path());
    let slots = Arc::<Slots>::default();
    let fs = pool.file_system("tank").unwrap();
    let volume = Volume::new(&slots, fs, "tank".into(), true, false).unwrap();
    let tree = PoolTree {
        pool: pool.clone(),
        unmounted: Arc::default(),
    };
    let session = Session::new(Arc::new(tree), slots, volume.clone());
    session.give_root(&volume).unwrap();
    let look_up = |i| {
        let caller = Caller::default();
        session.lookup(&caller, number::ROOT, &name(i)).unwrap().ino
    };
    let is_listed = |ino| matches!(session.table.get(ino).unwrap().what, What::Listed(..));
    let pause = || session.idle(&|| false);
    for i in 0..4 {
        let ino = look_up(i);
        pause();
        assert!(is_listed(ino), "{i}: too few have been used");
        session.node(ino).unwrap();
        assert!(!is_listed(ino));
    }
    let fifth = look_up(4);
    session.idle(&|| true);
    assert!(is_listed(fifth), "somebody asked for something else");
    pause();
    assert!(!is_listed(fifth));
    session.node(fifth).unwrap();
    // Who only looks is not believed to use the next one.
    let looked_at = [look_up(5), look_up(6)];
    pause();
    assert_eq!(looked_at.map(is_listed), [true, true]);
    let last = look_up(7);
    pause();
    assert!(is_listed(last));
    drop((session, volume));
    pool.export().unwrap();
}
