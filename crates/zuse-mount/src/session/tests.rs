use super::*;

use std::path::Path;

use zuse::tools::Layers as _;
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
        let who = credentials(&Caller::default());
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
fn most_of_what_the_kernel_knows_is_not_held() {
    let dir = tempfile::tempdir().unwrap();
    let pool = stored(dir.path());
    let slots = Arc::<Slots>::default();
    let fs = pool.file_system("tank").unwrap();
    let volume = Volume::new(&slots, fs.clone(), "tank".into(), true, false).unwrap();
    let tree = PoolTree {
        alone: false,
        pool: pool.clone(),
        unmounted: Arc::default(),
    };
    let mut session = Session::new(
        Arc::new(tree),
        slots,
        volume.clone(),
        &MountOptions::default(),
    );
    // Four neighbours share a shard: one object of each shard may be held.
    session.table = Arc::new(Table::new(1));
    session.give_root(&volume).unwrap();
    let root = fs.root().unwrap();
    let who = credentials(&Caller::default());
    let make = |i| {
        let made = fs.create(&who, &root, &name(i), 0o10_0644).unwrap();
        session.give(&fs, &volume, &made).ino
    };
    let is_held = |ino| matches!(session.table.get(ino).unwrap().what, What::Object(..));
    let inos: Vec<u64> = (100..1_000).map(make).collect();
    let held = inos.iter().filter(|ino| is_held(**ino)).count();
    assert!(held <= 64, "{held} of 900 are held");
    // A released object is the same file at its next use, and stays usable without a name.
    let (ino, first) = (inos[0], name(100));
    assert!(!is_held(ino));
    let before = session.node(ino).unwrap();
    let (_, znode) = before.object().unwrap();
    assert_eq!(volume.ino(znode.object()), ino);
    drop(before);
    inos[1..].iter().for_each(|ino| {
        session.node(*ino).unwrap();
    });
    assert!(!is_held(ino), "others were used since");
    fs.unlink(&who, &root, &first).unwrap();
    assert!(is_held(ino), "its last name went");
    for i in 1_000..2_000 {
        make(i);
    }
    let unlinked = session.node(ino).unwrap();
    assert_eq!(unlinked.object().unwrap().1.attributes().links, 0);
    drop((unlinked, session, volume, root, fs));
    pool.export().unwrap();
}
