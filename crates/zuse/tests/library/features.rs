//! Features of pools that are in use.

use std::path::Path;
use std::sync::Arc;

use zuse::QuotaOwner;
use zuse::compatibility::Compatibility;
use zuse::tools::Layers as _;
use zuse::{Credentials, Environment, Errno, HEAD_ERRLOG, NewDevice, NewPool, Pool, QuotaKind};
use zuse_dmu::zap::{Zap, ZapOptions, ZapValue};
use zuse_format::object_type;

fn without_features(dir: &Path) -> Arc<Pool> {
    let new = NewPool {
        name: "tank".into(),
        devices: vec![NewDevice {
            path: dir.join("tank.img"),
            make: Some(64 << 20),
        }],
        features: Some(Vec::new()),
        ..NewPool::default()
    };
    Pool::create(Environment::default(), &new).unwrap()
}

fn names(pool: &Pool) -> Vec<&'static str> {
    let all = pool.features_to_enable(&Compatibility::Off).unwrap();
    all.iter().map(|f| f.guid).collect()
}

/// Entries of an error log mean something else once logs are kept by head dataset.
#[test]
fn an_error_log_of_the_older_form_keeps_its_meaning() {
    let dir = tempfile::tempdir().unwrap();
    let pool = without_features(dir.path());
    assert!(names(&pool).contains(&HEAD_ERRLOG));
    let log = |pool: &Pool, entry: bool| {
        pool.spa()
            .sync_task(
                |_| Ok(()),
                move |ctx| {
                    let directory = ctx.pool.directory()?;
                    let zap = match directory.lookup_u64(b"errlog_scrub")? {
                        Some(object) => Zap::open(&ctx.pool.mos().dnode(zuse::ObjectId(object))?)?,
                        None => {
                            let options = ZapOptions::default();
                            let kind = object_type::ERROR_LOG;
                            let zap = Zap::create(ctx.pool.mos(), ctx.tx, kind, &options)?;
                            directory.add_u64(ctx.tx, b"errlog_scrub", zap.dnode().object().0)?;
                            zap
                        }
                    };
                    if entry {
                        zap.add(ctx.tx, b"36:2:0:0", &ZapValue::text(""))
                    } else {
                        zap.remove(ctx.tx, b"36:2:0:0")
                    }
                },
            )
            .unwrap();
    };
    log(&pool, true);
    assert!(!names(&pool).contains(&HEAD_ERRLOG));
    let refused = pool.set_pool_property("feature@head_errlog", "enabled");
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("older form"), "{why}");
    let others = pool.features_to_enable(&Compatibility::Off).unwrap();
    pool.enable_features(others).unwrap();
    assert_eq!(names(&pool), Vec::<&str>::new());
    assert!(!pool.spa().features().is_enabled(HEAD_ERRLOG));
    log(&pool, false);
    assert_eq!(names(&pool), [HEAD_ERRLOG]);
    pool.set_pool_property("feature@head_errlog", "enabled")
        .unwrap();
    assert!(pool.spa().features().is_active(HEAD_ERRLOG));
    pool.export().unwrap();
}

/// Projects and objects of owners are counted in a pool's own file system from its first file on.
#[test]
fn the_own_file_system_of_a_new_pool_counts_projects_and_objects_if_the_pool_does() {
    let dir = tempfile::tempdir().unwrap();
    let every = || {
        let new = NewPool {
            name: "tank".into(),
            devices: vec![NewDevice {
                path: dir.path().join("all.img"),
                make: Some(64 << 20),
            }],
            ..NewPool::default()
        };
        Pool::create(Environment::default(), &new).unwrap()
    };
    let pool = every();
    let fs = pool.file_system("tank").unwrap();
    let (root, top) = (Credentials::root(), fs.root().unwrap());
    let file = fs.create(&root, &top, b"file", 0o644).unwrap();
    fs.set_project(&root, &file, 7).unwrap();
    fs.sync().unwrap();
    let used = |owner, kind, id| fs.usage(owner, kind, id).unwrap();
    assert_eq!(used(QuotaOwner::Project, QuotaKind::Objects, 7), 1);
    assert_eq!(used(QuotaOwner::User, QuotaKind::Objects, 0), 2);
    drop((fs, top, file));
    pool.close().unwrap();

    let dir = tempfile::tempdir().unwrap();
    let pool = without_features(dir.path());
    let fs = pool.file_system("tank").unwrap();
    let top = fs.root().unwrap();
    let file = fs.create(&root, &top, b"file", 0o644).unwrap();
    let refused = fs.set_project(&root, &file, 7).unwrap_err();
    assert!(refused.is(Errno::NOTSUP), "{refused}");
    drop((fs, top, file));
    pool.close().unwrap();
}
