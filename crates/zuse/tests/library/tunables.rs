//! Each tunable has the effect that the table describes, in a real pool on a file.

use std::path::PathBuf;
use std::sync::Arc;

use zuse::tools::{FileSystem, Layers as _};
use zuse::{
    Credentials, Environment, Limits, NewDevice, NewPool, Pool, PoolAccess, Search, tunable,
};

struct Place {
    dir: tempfile::TempDir,
}

fn limits(pairs: &[(&str, &str)]) -> Limits {
    let mut limits = Limits::default();
    for (name, value) in pairs {
        tunable::tunable(name)
            .expect("in the table")
            .set(&mut limits, value)
            .expect("in its range");
    }
    limits
}

fn environment(pairs: &[(&str, &str)]) -> Environment {
    Environment {
        limits: limits(pairs),
        ..Environment::default()
    }
}

impl Place {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
        }
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("tank.img")
    }

    fn create(&self, pairs: &[(&str, &str)]) -> Arc<Pool> {
        let new = NewPool {
            name: "tank".into(),
            devices: vec![NewDevice {
                path: self.image(),
                make: Some(256 << 20),
            }],
            ..NewPool::default()
        };
        Pool::create(environment(pairs), &new).expect("made")
    }

    fn open(&self, pairs: &[(&str, &str)]) -> Arc<Pool> {
        let scan = Search::new([self.image()]).run();
        let access = PoolAccess {
            writable: true,
            ours: true,
            ..PoolAccess::default()
        };
        Pool::open(environment(pairs), &scan.pools[0], &access).expect("opens")
    }
}

fn root() -> Credentials {
    Credentials::root()
}

fn fill(fs: &Arc<FileSystem>, dir: &[u8], files: usize) {
    let top = fs.root().expect("root");
    let dir = fs.mkdir(&root(), &top, dir, 0o755).expect("made");
    for n in 0..files {
        fs.create(&root(), &dir, format!("file-{n:08}").as_bytes(), 0o644)
            .expect("made");
    }
}

/// Block size, indirect shift and whether it has more than one block, for the object of a path.
fn shape(fs: &Arc<FileSystem>, path: &[u8]) -> (u32, u8, bool) {
    let znode = fs.resolve(&root(), path).expect("there");
    let dnode = znode.dnode();
    (
        dnode.block_size(),
        dnode.indirect_shift(),
        dnode.max_block() > 0,
    )
}

fn write(fs: &Arc<FileSystem>, name: &[u8], bytes: usize) {
    let top = fs.root().expect("root");
    let file = fs.create(&root(), &top, name, 0o644).expect("made");
    let noise: Vec<u8> = (0..bytes as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect();
    fs.write(&file, 0, &noise, Default::default())
        .expect("written");
}

fn read(fs: &Arc<FileSystem>, name: &[u8], bytes: usize) {
    let file = fs.resolve(&root(), name).expect("there");
    let mut buf = vec![0; bytes];
    assert_eq!(fs.read(&file, 0, &mut buf).expect("read"), bytes);
}

#[test]
fn directories_stay_micro_up_to_their_limit_and_indirect_blocks_have_the_size_asked_for() {
    let place = Place::new();
    let pool = place.create(&[("zap_micro_max_size", "1M"), ("zfs_default_ibs", "15")]);
    let fs = pool.file_system("tank").expect("opens");
    fill(&fs, b"large", 5_000);
    let (size, ibs, more) = shape(&fs, b"large");
    assert!(size > 128 << 10 && !more, "one block of {size} bytes");
    assert_eq!(ibs, 15);
    pool.sync().expect("synced");
    let feature = |pool: &Pool| {
        pool.spa()
            .features()
            .refcount("com.klarasystems:large_microzap")
    };
    assert!(feature(&pool) > 0, "the feature is in use");
    // While the pool is open.
    pool.set_limits(limits(&[
        ("zap_micro_max_size", "16K"),
        ("zfs_default_ibs", "12"),
    ]))
    .expect("taken over");
    fill(&fs, b"small", 1_000);
    let (_, ibs, more) = shape(&fs, b"small");
    assert!(more, "a fat ZAP has several blocks");
    assert_eq!(ibs, 12);
    assert!(!shape(&fs, b"large").2, "what is there stays as it is");
}

#[test]
fn properties_are_overridden_while_the_pool_is_open_and_not_stored() {
    let place = Place::new();
    let pool = place.create(&[("recordsize", "16K"), ("atime", "off")]);
    let fs = pool.file_system("tank").expect("opens");
    write(&fs, b"a", 100_000);
    assert_eq!(shape(&fs, b"a").0, 16 << 10);
    assert!(!fs.props().atime);
    pool.set_limits(limits(&[("recordsize", "32K")]))
        .expect("taken over");
    write(&fs, b"b", 100_000);
    assert_eq!(shape(&fs, b"b").0, 32 << 10);
    assert!(fs.props().atime, "the property counts again");
    drop(fs);
    pool.export().expect("exported");
    drop(pool);
    let pool = place.open(&[]);
    let fs = pool.file_system("tank").expect("opens");
    write(&fs, b"c", 300_000);
    assert_eq!(shape(&fs, b"c").0, 128 << 10);
}

#[test]
fn primarycache_says_what_the_cache_keeps() {
    const BYTES: usize = 4 << 20;
    let place = Place::new();
    let pool = place.create(&[]);
    let fs = pool.file_system("tank").expect("opens");
    write(&fs, b"a", BYTES);
    drop(fs);
    pool.export().expect("exported");
    drop(pool);
    let kept = |value: &str| {
        let pool = place.open(&[("primarycache", value)]);
        let fs = pool.file_system("tank").expect("opens");
        read(&fs, b"a", BYTES);
        let first = pool.spa().io().cache().stats();
        (0..3).for_each(|_| read(&fs, b"a", BYTES));
        let second = pool.spa().io().cache().stats();
        drop(fs);
        pool.close().expect("closed");
        (first.used - first.metadata, second.hits - first.hits)
    };
    let (data, hits) = kept("all");
    assert!(data >= BYTES && hits >= 32, "{data} bytes, {hits} hits");
    // The one indirect block: it is remembered for the following blocks, and looked up in the cache
    // from time to time.
    let (data, hits) = kept("metadata");
    assert!(
        data < 1 << 20 && (1..32).contains(&hits),
        "{data} bytes, {hits} hits"
    );
    let (data, hits) = kept("none");
    assert!(data < 1 << 20 && hits == 0, "{data} bytes, {hits} hits");
}

#[test]
fn the_cache_keeps_to_its_size_and_to_the_share_of_metadata() {
    let place = Place::new();
    let pool = place.create(&[("zfs_arc_max", "8M"), ("zfs_arc_meta_limit_percent", "25")]);
    let fs = pool.file_system("tank").expect("opens");
    let stats = || pool.spa().io().cache().stats();
    assert_eq!(stats().limit, 8 << 20);
    fill(&fs, b"d", 6_000);
    write(&fs, b"a", 32 << 20);
    pool.sync().expect("synced");
    read(&fs, b"a", 32 << 20);
    let now = stats();
    assert!(now.used <= (8 << 20) + (1 << 20), "{now:?}");
    assert!(now.metadata <= (2 << 20) + (1 << 20), "{now:?}");
    pool.set_limits(limits(&[("zfs_arc_max", "64M")]))
        .expect("taken over");
    read(&fs, b"a", 32 << 20);
    assert!(stats().used > 32 << 20, "{:?}", stats());
}

#[test]
fn dirty_data_and_the_time_of_a_txg_are_bounded() {
    let place = Place::new();
    let pool = place.create(&[("zfs_dirty_data_max", "4M"), ("zfs_txg_timeout", "3600")]);
    let fs = pool.file_system("tank").expect("opens");
    let before = pool.spa().synced_txg();
    write(&fs, b"small", 4096);
    assert_eq!(pool.spa().synced_txg(), before, "nobody waits for it");
    write(&fs, b"a", 32 << 20);
    let after = pool.spa().synced_txg();
    assert!(after.0 >= before.0 + 2, "{before:?} {after:?}");
    // A timeout that has passed already is seen at once.
    pool.set_limits(limits(&[("zfs_txg_timeout", "1")]))
        .expect("taken over");
    let open = pool.spa().open_txg();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while pool.spa().open_txg() == open && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(pool.spa().open_txg() > open);
}

/// 32 MiB of values in one txg that nothing else closes.
#[test]
fn changed_values_of_attributes_have_memory_beside_the_cache() {
    let txgs_for = |values: &str| {
        let place = Place::new();
        let pool = place.create(&[
            ("zfs_arc_max", "8M"),
            ("zfs_dirty_data_max", "4M"),
            ("zfs_txg_timeout", "3600"),
            ("zuse_dirty_values_max", values),
        ]);
        let fs = pool.file_system("tank").expect("opens");
        let top = fs.root().expect("root");
        let value = vec![7; 65_536];
        let files: Vec<_> = (0..512)
            .map(|i| {
                let name = format!("f{i}").into_bytes();
                fs.create(&root(), &top, &name, 0o644).expect("made")
            })
            .collect();
        pool.spa()
            .wait_synced(pool.spa().open_txg())
            .expect("written");
        let before = pool.spa().open_txg().0;
        for file in &files {
            // Half in spill blocks, half in hidden directories.
            let size = if file.object().0 % 2 == 0 {
                16_384
            } else {
                65_536
            };
            fs.set_xattr(
                &root(),
                file,
                b"user.x",
                &value[..size],
                zuse::tools::XattrMode::Any,
            )
            .expect("set");
        }
        pool.spa().open_txg().0 - before
    };
    assert_eq!(txgs_for("64M"), 0, "no txg ends because of them");
    assert!(txgs_for("0") >= 2, "they count as data of files");
}

#[test]
fn user_attributes_are_stored_bare_when_asked_for_and_read_in_both_forms() {
    let place = Place::new();
    let pool = place.create(&[("xattr_compat", "on")]);
    let fs = pool.file_system("tank").expect("opens");
    let top = fs.root().expect("root");
    let file = fs.create(&root(), &top, b"f", 0o644).expect("made");
    let set = |value: &[u8]| {
        fs.set_xattr(
            &root(),
            &file,
            b"user.x",
            value,
            zuse::tools::XattrMode::Any,
        )
        .expect("set");
    };
    let stored = || {
        let bytes = file.dnode().bonus_vec();
        let has = |name: &[u8]| bytes.windows(name.len()).any(|w| w == name);
        (has(b"user.x"), has(b"\0\0\0\x01x\0\0\0"))
    };
    let seen = || {
        let names = fs.list_xattrs(&root(), &file).expect("lists");
        let value = fs.get_xattr(&root(), &file, b"user.x").expect("there");
        assert_eq!(names, [b"user.x".to_vec()]);
        value
    };
    set(b"one");
    assert_eq!(stored(), (false, true));
    assert_eq!(seen(), b"one");
    pool.set_limits(limits(&[("xattr_compat", "off")]))
        .expect("taken over");
    assert_eq!(seen(), b"one");
    set(b"two");
    assert_eq!(stored(), (true, false));
    assert_eq!(seen(), b"two");
    fs.remove_xattr(&root(), &file, b"user.x").expect("removed");
    assert!(fs.list_xattrs(&root(), &file).expect("lists").is_empty());
}
