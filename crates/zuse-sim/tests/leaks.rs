//! Leaked space is reported to the last sector, on every layout.

use zuse::PoolAccess;
use zuse::tools::traverse::{Options, Report, Verify, traverse};
use zuse_pool::Environment;
use zuse_sim::golden::{Golden, open_whole};
use zuse_sim::leak::{SIZES, leak};

fn report(golden: &Golden) -> Report {
    let access = PoolAccess::default();
    let pool = open_whole(Environment::default(), &golden.block_devices(), &access)
        .expect("the pool opens");
    let options = Options {
        verify: Verify::Metadata,
        space: true,
        ..Options::default()
    };
    let report = traverse(&pool, &options, &|_| {}).expect("a report");
    pool.close().expect("closed");
    report
}

#[test]
fn what_leaks_is_told_to_the_last_sector() {
    for name in ["stripe", "mirrors", "raidz2", "draid"] {
        let golden = Golden::load(name);
        let before = report(&golden);
        assert_eq!(before.leaks, Some(Vec::new()), "{name}");
        let access = PoolAccess {
            writable: true,
            ..PoolAccess::default()
        };
        let pool = open_whole(Environment::default(), &golden.block_devices(), &access)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let leaked = leak(&pool, SIZES).unwrap_or_else(|e| panic!("{name}: {e}"));
        pool.close().expect("closed");
        let after = report(&golden);
        assert!(leaked.len() > 1, "{name}: {leaked:?}");
        let sum: u64 = leaked.iter().map(|l| l.size).sum();
        assert_eq!(after.leaks, Some(leaked), "{name}");
        assert_eq!((after.leaked, after.failed), (sum, 0), "{name}");
    }
}
