//! A pool made, written, closed and opened again, without any dataset.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse_base::{Errno, Result, Span, Txg};
use zuse_device::{BlockDevice, Fault, FaultyDevice, MemDevice, Op, Rule};
use zuse_dmu::zap::Zap;
use zuse_pool::{CreateOptions, DslHooks, Environment, OpenOptions, Pool, SyncCtx, VdevSpec};
use zuse_vdev::{PoolState, assemble};

struct NoDatasets;

impl DslHooks for NoDatasets {
    fn create(&self, _ctx: &SyncCtx<'_>) -> Result<()> {
        Ok(())
    }
    fn load(&self, _pool: &Arc<Pool>) -> Result<()> {
        Ok(())
    }
    fn sync(&self, _ctx: &SyncCtx<'_>) -> Result<()> {
        Ok(())
    }
    fn mos_delta(&self, _ctx: &SyncCtx<'_>, _delta: [i64; 3]) -> Result<()> {
        Ok(())
    }
    fn is_dirty(&self, _txg: Txg) -> bool {
        false
    }
    fn process_frees(&self, _ctx: &SyncCtx<'_>) -> Result<bool> {
        Ok(false)
    }
    fn synced(&self, _txg: Txg) {}
}

fn open(device: &Arc<dyn BlockDevice>, writable: bool) -> Result<Arc<Pool>> {
    let scan = assemble::assemble(&assemble::read_labels(std::slice::from_ref(device)));
    let found = scan.pools.first().expect("a pool");
    let devices: BTreeMap<u64, Arc<dyn BlockDevice>> = found
        .devices
        .keys()
        .map(|guid| (*guid, device.clone()))
        .collect();
    let options = OpenOptions {
        writable,
        ..OpenOptions::default()
    };
    Pool::open(
        Environment::default(),
        &found.config,
        &devices,
        &options,
        Arc::new(NoDatasets),
    )
}

fn create(device: &Arc<dyn BlockDevice>, ashift: u8) -> Arc<Pool> {
    try_create(device, ashift).expect("create")
}

fn try_create(device: &Arc<dyn BlockDevice>, ashift: u8) -> Result<Arc<Pool>> {
    let options = CreateOptions {
        name: "tank".into(),
        vdevs: vec![VdevSpec {
            device: device.clone(),
            is_disk: false,
            ashift: Some(ashift),
        }],
        features: None,
        version: zuse_format::uberblock::SPA_VERSION,
        comment: None,
        compatibility: None,
    };
    Pool::create(Environment::default(), options, Arc::new(NoDatasets))
}

#[test]
fn what_a_sync_task_writes_is_there_after_reopening() {
    for ashift in [9, 12, 13] {
        let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("mem", 256 << 20));
        let pool = create(&device, ashift);
        for round in 0..5u64 {
            pool.sync_task(
                |_| Ok(()),
                move |ctx| {
                    let zap = Zap::create(ctx.pool.mos(), ctx.tx, 27, &Default::default())?;
                    for i in 0..3000u64 {
                        zap.add_u64(ctx.tx, format!("name-{i}").as_bytes(), i * round)?;
                    }
                    ctx.pool.directory()?.add_u64(
                        ctx.tx,
                        format!("test{round}").as_bytes(),
                        zap.dnode().object().0,
                    )
                },
            )
            .expect("task");
        }
        let allocated = pool.space().allocated;
        assert!(pool.last_passes() <= 6, "{} passes", pool.last_passes());
        pool.close(PoolState::Exported).expect("close");

        let pool = open(&device, true).expect("open");
        for round in 0..5u64 {
            let object = pool
                .directory()
                .expect("directory")
                .lookup_u64(format!("test{round}").as_bytes())
                .expect("lookup")
                .expect("there");
            let zap = Zap::open(
                &pool
                    .mos()
                    .dnode(zuse_base::ObjectId(object))
                    .expect("dnode"),
            )
            .expect("zap");
            assert_eq!(zap.count().expect("count"), 3000);
            assert_eq!(
                zap.lookup_u64(b"name-77").expect("lookup"),
                Some(77 * round)
            );
        }
        let again = pool.space().allocated;
        assert!(
            again.abs_diff(allocated) < 4 << 20,
            "{allocated} before, {again} after"
        );
        pool.close(PoolState::Active).expect("close");
        let pool = open(&device, false).expect("open read-only");
        assert!(!pool.is_writable());
        pool.close(PoolState::Active).expect("close");
    }
}

#[test]
fn a_pool_that_another_host_left_active_needs_force() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("mem", 128 << 20));
    let host = |id, kernel_zfs| zuse_pool::Host {
        id,
        name: format!("host{id}"),
        kernel_zfs,
    };
    let env = |id, kernel_zfs| Environment {
        host: host(id, kernel_zfs),
        ..Environment::default()
    };
    let pool = Pool::create(env(1, false), tank_on(&device), Arc::new(NoDatasets)).expect("create");
    pool.close(PoolState::Active).expect("close");
    let open_as = |env: Environment, options: OpenOptions| {
        let scan = assemble::assemble(&assemble::read_labels(std::slice::from_ref(&device)));
        let found = scan.pools.first().expect("a pool");
        let devices: BTreeMap<u64, Arc<dyn BlockDevice>> = found
            .devices
            .keys()
            .map(|guid| (*guid, device.clone()))
            .collect();
        Pool::open(env, &found.config, &devices, &options, Arc::new(NoDatasets))
            .and_then(|p| p.close(PoolState::Active))
    };
    let write = || OpenOptions {
        writable: true,
        ..OpenOptions::default()
    };
    let refused = |result: Result<()>| result.is_err_and(|e| e.is(zuse_base::Errno::BUSY));
    assert!(
        refused(open_as(env(2, false), write())),
        "another host took it without force"
    );
    assert!(
        refused(open_as(env(1, true), write())),
        "it may be in this host's kernel"
    );
    assert!(
        open_as(env(2, false), OpenOptions::default()).is_ok(),
        "reading harms nobody"
    );
    assert!(open_as(env(1, false), write()).is_ok());
    assert!(
        open_as(
            env(1, true),
            OpenOptions {
                ours: true,
                ..write()
            }
        )
        .is_ok(),
        "this user left it so"
    );
    assert!(
        open_as(
            env(2, false),
            OpenOptions {
                force: true,
                ..write()
            }
        )
        .is_ok()
    );
}

fn tank_on(device: &Arc<dyn BlockDevice>) -> CreateOptions {
    CreateOptions {
        name: "tank".into(),
        vdevs: vec![VdevSpec {
            device: device.clone(),
            is_disk: false,
            ashift: None,
        }],
        features: None,
        version: zuse_format::uberblock::SPA_VERSION,
        comment: None,
        compatibility: None,
    }
}

/// The data area: labels and the boot area take writes.
const DATA: Span = Span::new(4 << 20, 100 << 20);

#[test]
fn a_write_that_failed_is_tried_again_after_clear() {
    let faulty = Arc::new(FaultyDevice::new(Arc::new(MemDevice::new(
        "/disk",
        128 << 20,
    ))));
    let device: Arc<dyn BlockDevice> = faulty.clone();
    let pool = create(&device, 12);
    faulty.add(
        Rule::new(Op::Write, Fault::Fail(Errno::NOSPC))
            .within(DATA)
            .times(2),
    );
    let writer = {
        let pool = pool.clone();
        std::thread::spawn(move || {
            pool.sync_task(
                |_| Ok(()),
                |ctx| ctx.pool.directory()?.add_u64(ctx.tx, b"answer", 42),
            )
        })
    };
    for _ in 0..2 {
        while pool.suspended().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(!writer.is_finished(), "nothing is acknowledged meanwhile");
        pool.clear(None).expect("clear");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    writer.join().expect("no panic").expect("the task is done");
    assert!(pool.suspended().is_none());
    pool.close(PoolState::Exported).expect("close");
    let pool = open(&device, false).expect("open");
    assert_eq!(
        pool.directory()
            .expect("directory")
            .lookup_u64(b"answer")
            .expect("lookup"),
        Some(42)
    );
}

#[test]
fn making_a_pool_on_a_device_that_takes_no_data_fails() {
    let faulty = Arc::new(FaultyDevice::new(Arc::new(MemDevice::new(
        "/disk",
        128 << 20,
    ))));
    faulty.add(Rule::broken(Op::Write).within(DATA));
    let device: Arc<dyn BlockDevice> = faulty;
    let (done, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(try_create(&device, 12).is_err()));
    let failed = result.recv_timeout(std::time::Duration::from_secs(20));
    assert!(failed.expect("it does not wait for a clear that nobody can give"));
}

#[test]
fn a_pool_with_a_dedup_table_that_cannot_be_read_is_not_written() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("/disk", 128 << 20));
    let pool = create(&device, 12);
    pool.sync_task(
        |_| Ok(()),
        |ctx| {
            let directory = ctx.pool.directory()?;
            directory.add_u64(ctx.tx, b"DDT-statistics", 77)?;
            directory.add_u64(ctx.tx, b"DDT-sha256-zap-duplicate", 78)
        },
    )
    .expect("task");
    pool.close(PoolState::Exported).expect("close");
    let refused = open(&device, true).expect_err("a free would take blocks from others");
    assert!(refused.to_string().contains("77"), "{refused}");
    open(&device, false).expect("it can be read");
}

#[test]
fn a_change_that_stops_half_way_does_not_reach_the_disk() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("mem", 128 << 20));
    let pool = create(&device, 12);
    let bad = || zuse_base::Error::corrupt("test", "met in the middle");
    let harmless: Result<()> = pool.sync_task(|_| Ok(()), move |_| Err(bad()));
    assert!(
        harmless.is_err() && pool.suspended().is_none(),
        "nothing was changed, so nothing is wrong"
    );
    let half: Result<()> = pool.sync_task(
        |_| Ok(()),
        move |ctx| {
            ctx.pool.directory()?.add_u64(ctx.tx, b"half", 1)?;
            Err(bad())
        },
    );
    assert!(half.is_err());
    assert!(pool.sync_now().is_err(), "the txg went on");
    let _ = pool.close(PoolState::Active);
    drop(pool);
    let pool = open(&device, true).expect("open");
    assert_eq!(
        pool.directory()
            .expect("directory")
            .lookup_u64(b"half")
            .expect("lookup"),
        None
    );
    pool.close(PoolState::Active).expect("close");
}
