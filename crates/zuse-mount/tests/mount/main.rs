//! A pool on a sparse file, mounted for real.
//!
//! These tests need `/dev/fuse`. Where it is missing they fail when `CI=true` and say so loudly
//! otherwise.

mod datasets;
mod files;
mod listed;
mod snapshots;
mod stress;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use zuse::{Environment, Pool, Recursion};
use zuse::{NewDevice, NewPool};
use zuse_mount::{MountServer, PoolMounts, ServerOptions};

/// A mounted pool; exported at the end of the test.
struct Fixture {
    open: Option<(Arc<Pool>, Arc<PoolMounts>)>,
    server: Option<Arc<MountServer>>,
    options: ServerOptions,
    dir: tempfile::TempDir,
}

impl Fixture {
    fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.open.as_ref().unwrap().0
    }

    fn mounts(&self) -> &Arc<PoolMounts> {
        &self.open.as_ref().unwrap().1
    }

    fn server(&self) -> &Arc<MountServer> {
        self.server.as_ref().unwrap()
    }

    fn create(&self, dataset: &str, properties: &[(&str, &str)]) {
        let properties: Vec<(String, String)> = properties
            .iter()
            .map(|(a, b)| ((*a).into(), (*b).into()))
            .collect();
        self.pool()
            .create_filesystem(dataset, &properties, (0, 0))
            .unwrap();
        self.wait_for_notices();
    }

    fn snapshot(&self, name: &str) {
        self.pool()
            .snapshot(&[name.to_owned()], Recursion::One, &[])
            .unwrap();
        self.wait_for_notices();
    }

    fn set(&self, dataset: &str, property: &str, value: &str) {
        self.pool()
            .dataset(dataset)
            .unwrap()
            .set(&[(property.into(), value.into())])
            .unwrap();
        self.wait_for_notices();
    }

    /// Waits until the kernel has all notices.
    fn wait_for_notices(&self) {
        for server in self.mounts().servers() {
            server.wait_for_notices();
        }
    }

    fn unmount(&mut self) {
        let Some(server) = self.server.take() else {
            return;
        };
        for _ in 0..500 {
            // Tests that run side by side fork, and a fork holds our files until it turns into the
            // other program.
            match server.unmount() {
                Err(zuse_mount::MountError::Busy(_)) => {
                    std::thread::sleep(std::time::Duration::from_millis(10))
                }
                other => {
                    other.unwrap();
                    drop(server);
                    assert!(self.mounts().finish().unwrap());
                    return;
                }
            }
        }
        panic!("the test left something open");
    }

    /// Unmounts, exports, imports, mounts: everything visible afterwards has been on disk.
    fn again(&mut self) {
        self.unmount();
        self.pool().export().unwrap();
        // The devices are free when nobody has the pool any more.
        self.open = None;
        let pool = import(self.dir.path());
        let mounts = PoolMounts::new(pool.clone());
        self.server = Some(mounts.mount("tank", &self.root(), &self.options).unwrap());
        self.open = Some((pool, mounts));
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if let Some((_, mounts)) = &self.open {
                let _ = mounts.finish();
            }
            return;
        }
        self.unmount();
        self.pool().export().unwrap();
    }
}

fn import(dir: &Path) -> Arc<Pool> {
    let scan = zuse::Search::new([dir.join("disk")]).run();
    let found = scan.pools.first().expect("the pool is found");
    let access = zuse::PoolAccess {
        writable: true,
        ours: true,
        ..zuse::PoolAccess::default()
    };
    Pool::open(Environment::default(), found, &access).unwrap()
}

/// Whether FUSE can be used here.
fn fuse_is_there() -> bool {
    let there = Path::new("/dev/fuse").exists();
    if !there {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "/dev/fuse is missing, and CI=true asks for this test"
        );
        eprintln!("SKIPPED: /dev/fuse is missing");
    }
    there
}

fn new_pool(dir: &Path) -> Arc<Pool> {
    let new = NewPool {
        name: "tank".into(),
        devices: vec![NewDevice {
            path: dir.join("disk"),
            make: Some(2 << 30),
        }],
        root_properties: vec![("mountpoint".into(), "/tank".into())],
        ..NewPool::default()
    };
    Pool::create(Environment::default(), &new).unwrap()
}

fn fixture_with(change: impl FnOnce(&Arc<Pool>, &mut ServerOptions)) -> Option<Fixture> {
    if !fuse_is_there() {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("mnt")).unwrap();
    let pool = new_pool(dir.path());
    let mut options = ServerOptions::default();
    options.mount.source = "tank".into();
    change(&pool, &mut options);
    let mounts = PoolMounts::new(pool.clone());
    let server = Some(
        mounts
            .mount("tank", &dir.path().join("mnt"), &options)
            .unwrap(),
    );
    Some(Fixture {
        open: Some((pool, mounts)),
        server,
        options,
        dir,
    })
}

fn fixture() -> Option<Fixture> {
    fixture_with(|_, _| {})
}

/// The errno of a failure.
fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}
