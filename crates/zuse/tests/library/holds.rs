//! Holds of snapshots.

use std::path::Path;
use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{
    DestroyOptions, Environment, NewDevice, NewPool, ObjectId, Pool, PoolAccess, Recursion, Search,
};
use zuse_dmu::zap::{Zap, ZapOptions};

/// Type of a table of holds.
const HOLDS: u8 = 41;

fn open(disk: &Path, writable: bool) -> Arc<Pool> {
    let access = PoolAccess {
        writable,
        ..PoolAccess::default()
    };
    let scan = Search::new([disk]).run();
    Pool::open(Environment::default(), &scan.pools[0], &access).unwrap()
}

/// Marks a hold as one of a process, as `zfs send` and `zfs diff` of OpenZFS do.
fn make_temporary(pool: &Pool, entries: Vec<String>) {
    let note = move |ctx: &zuse_pool::SyncCtx<'_>| {
        let (mos, directory) = (ctx.pool.mos(), ctx.pool.directory()?);
        let table = match directory.lookup_u64(b"tmp_userrefs")? {
            Some(table) => Zap::open(&mos.dnode(ObjectId(table))?)?,
            None => {
                let made = Zap::create(mos, ctx.tx, HOLDS, &ZapOptions::default())?;
                directory.add_u64(ctx.tx, b"tmp_userrefs", made.dnode().object().0)?;
                made
            }
        };
        (entries.iter()).try_for_each(|e| table.add_u64(ctx.tx, e.as_bytes(), 1))
    };
    pool.spa().sync_task(|_| Ok(()), note).unwrap();
}

/// A killed process leaves its hold behind, and with it a snapshot that cannot be destroyed.
#[test]
fn holds_of_processes_that_are_no_more_end_when_a_pool_is_opened_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("tank.img");
    let new = NewPool {
        name: "tank".into(),
        devices: vec![NewDevice {
            path: disk.clone(),
            make: Some(64 << 20),
        }],
        ..NewPool::default()
    };
    let pool = Pool::create(Environment::default(), &new).unwrap();
    let names = ["tank@kept", "tank@sent", "tank@diff"].map(str::to_owned);
    for name in names.chunks(1) {
        pool.snapshot(name, Recursion::One, &[]).unwrap();
    }
    pool.dsl().hold(&names[..1], "mine").unwrap();
    pool.dsl().hold(&names[1..], ".send-1-1").unwrap();
    pool.destroy_snapshots(&names[2..], DestroyOptions::ONE.defer(true))
        .unwrap();
    let object = |name: &str| pool.dsl().dataset(name).unwrap().object().0;
    let of = |name: &str| format!("{:x}-.send-1-1", object(name));
    let mut entries = vec![of("tank@sent"), of("tank@diff")];
    // For a snapshot without that hold, for no snapshot, and an invalid entry.
    entries.extend([of("tank@kept"), "ffff-.send-1-1".into(), "nonsense".into()]);
    make_temporary(&pool, entries);
    pool.close().unwrap();

    let pool = open(&disk, false);
    assert_eq!(pool.dsl().holds("tank@sent").unwrap().len(), 1);
    assert!(pool.exists("tank@diff").unwrap());
    pool.close().unwrap();

    let pool = open(&disk, true);
    assert!(pool.dsl().holds("tank@sent").unwrap().is_empty());
    assert_eq!(pool.dsl().holds("tank@kept").unwrap().len(), 1);
    assert!(!pool.exists("tank@diff").unwrap(), "it waited for that");
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{flaws:?}");
    pool.close().unwrap();
}
