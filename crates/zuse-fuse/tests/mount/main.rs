//! A file system in memory, mounted for real.
//!
//! These tests need `/dev/fuse`. Where it is missing they fail when `CI=true` and say so loudly
//! otherwise.

mod cache;
mod files;
mod memory;
mod names;
mod session;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use memory::MemoryFs;
use zuse_fuse::{MountError, MountOptions, Mounted, ThreadPool, mount};

/// A mounted file system, unmounted at the end of the test.
struct Fixture {
    fs: Arc<MemoryFs>,
    mounted: Option<Mounted>,
    dir: tempfile::TempDir,
}

impl Fixture {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }

    fn mounted(&self) -> &Mounted {
        self.mounted.as_ref().unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take()
            && !std::thread::panicking()
        {
            unmount(&mounted);
            mounted.join().unwrap();
        }
    }
}

/// Unmounts. Tests that run side by side fork, and a fork holds our files until it turns into the
/// other program: such moments are waited out.
fn unmount(mounted: &Mounted) {
    for _ in 0..500 {
        match mounted.unmount() {
            Err(MountError::Busy(_)) => std::thread::sleep(std::time::Duration::from_millis(10)),
            other => return other.unwrap(),
        }
    }
    panic!("the test left something open");
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

fn fixture_with(change: impl FnOnce(&mut MountOptions)) -> Option<Fixture> {
    if !fuse_is_there() {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let fs = Arc::new(MemoryFs::new());
    let mut options = MountOptions {
        source: "tank/home".into(),
        ..MountOptions::default()
    };
    change(&mut options);
    let mounted = mount(
        Arc::clone(&fs),
        dir.path(),
        &options,
        &ThreadPool::new().unwrap(),
    )
    .unwrap();
    Some(Fixture {
        fs,
        mounted: Some(mounted),
        dir,
    })
}

fn fixture() -> Option<Fixture> {
    fixture_with(|_| {})
}
