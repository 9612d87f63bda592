//! Encrypted datasets: data can be read with the key and not without. Damage is reported, never
//! decrypted.

use std::sync::Arc;
use std::time::Duration;

use zuse::tools::Layers as _;
use zuse::{
    Credentials, DestroyOptions, Errno, Error, KeyChange, KeyFormat, KeyMaterial, Pool, PoolAccess,
    Recursion,
};
use zuse_device::{BlockDevice, MemDevice};
use zuse_format::{BlockPointer, Protection};

use zuse_check::{Depth, check};
use zuse_pool::{Environment, VdevSpec};
use zuse_sim::golden::{Golden, open_whole};

fn key(byte: u8) -> KeyMaterial {
    KeyMaterial::new(vec![byte; 32])
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
    list.iter().map(own).collect()
}

fn device() -> Arc<MemDevice> {
    Arc::new(MemDevice::new("/mem/crypt", 128 << 20))
}

fn make(device: &Arc<MemDevice>) -> Arc<Pool> {
    let spec = VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    };
    Pool::create_on_devices(Environment::default(), "tank", vec![spec], None, &[]).expect("create")
}

fn open(device: &Arc<MemDevice>) -> Arc<Pool> {
    let access = PoolAccess {
        writable: true,
        ..PoolAccess::default()
    };
    let devices = [device.clone() as Arc<dyn BlockDevice>];
    open_whole(Environment::default(), &devices, &access).expect("open")
}

fn encrypted(pool: &Pool, name: &str, suite: &str, byte: u8) {
    let properties = pairs(&[("encryption", suite), ("keyformat", "raw")]);
    pool.create_filesystem_with_key(name, &properties, (0, 0), Some(&key(byte)))
        .expect("encrypted dataset");
}

fn put(pool: &Pool, dataset: &str, name: &str, bytes: &[u8]) {
    let fs = pool.file_system(dataset).expect("file system");
    let root = Credentials::root();
    let file = fs
        .create(&root, &fs.root().expect("root"), name.as_bytes(), 0o644)
        .expect("file");
    fs.write(&file, 0, bytes, zuse_zpl::WriteOptions::default())
        .expect("write");
    fs.sync().expect("sync");
}

fn get(pool: &Pool, dataset: &str, name: &str) -> zuse::Result<Vec<u8>> {
    let fs = pool.file_system(dataset)?;
    let root = Credentials::root();
    let file = fs.lookup(&root, &fs.root()?, name.as_bytes())?;
    let size = file.size() as usize;
    let mut bytes = vec![0; size];
    let n = fs.read(&file, 0, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Whether the bytes occur anywhere on a device.
fn holds(device: &MemDevice, needle: &[u8]) -> bool {
    let mut buf = vec![0; 1 << 20];
    (0..device.size() / buf.len() as u64).any(|i| {
        device.read_at(&mut buf, i << 20).expect("read");
        buf.windows(needle.len()).any(|w| w == needle)
    })
}

fn sound(pool: &Pool) {
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{flaws:?}");
}

const SECRET: &[u8] = b"a secret that no device may show";

#[test]
fn what_is_written_is_read_with_its_key_and_not_without() {
    let device = device();
    let pool = make(&device);
    let suites = [
        "aes-128-ccm",
        "aes-192-ccm",
        "aes-256-ccm",
        "aes-128-gcm",
        "aes-192-gcm",
        "on",
    ];
    let content: Vec<u8> = SECRET.iter().copied().cycle().take(300_001).collect();
    for (i, suite) in suites.iter().enumerate() {
        let name = format!("tank/{i}");
        encrypted(&pool, &name, suite, i as u8);
        put(&pool, &name, "file", &content);
        put(&pool, &name, "small", SECRET);
        put(&pool, &name, "zeros", &[0; 200_000]);
    }
    pool.close().expect("close");
    assert!(!holds(&device, SECRET));

    let pool = open(&device);
    sound(&pool);
    let closed = pool.file_system("tank/0").map(drop).unwrap_err();
    assert!(closed.is(Errno::ACCES), "{closed}");
    let keys: Vec<KeyMaterial> = (0..6).map(key).collect();
    assert_eq!(pool.try_keys(&keys).expect("keys").len(), 6);
    for i in 0..6 {
        let name = format!("tank/{i}");
        assert!(
            get(&pool, &name, "file").expect("read") == content,
            "{name}"
        );
        assert_eq!(get(&pool, &name, "small").expect("read"), SECRET);
        assert_eq!(get(&pool, &name, "zeros").expect("read"), [0; 200_000]);
        put(&pool, &name, "more", &content);
    }
    sound(&pool);
    pool.close().expect("close");
}

#[test]
fn keys_are_loaded_changed_inherited_and_forgotten() {
    let device = device();
    let pool = make(&device);
    encrypted(&pool, "tank/a", "on", 1);
    pool.create_filesystem("tank/a/child", &[], (0, 0))
        .expect("child");
    put(&pool, "tank/a/child", "file", SECRET);
    let info = pool
        .encryption("tank/a/child")
        .expect("info")
        .expect("encrypted");
    assert_eq!((info.root.as_str(), info.loaded), ("tank/a", true));

    // A dataset in use keeps its key.
    let held = pool.file_system("tank/a/child").expect("file system");
    assert!(pool.unload_key("tank/a").unwrap_err().is(Errno::BUSY));
    drop(held);
    // If another thread uses one without an owner for a moment, the change waits for that.
    let child = pool.dsl().dataset("tank/a/child").expect("dataset");
    let objset = child.objset().expect("objset");
    let passing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        drop(objset);
    });
    pool.unload_key("tank/a").expect("unload");
    passing.join().expect("joined");
    assert!(
        get(&pool, "tank/a/child", "file")
            .unwrap_err()
            .is(Errno::ACCES)
    );
    let wrong = pool.load_key("tank/a", &key(2)).unwrap_err();
    assert!(wrong.is(Errno::ACCES), "{wrong}");
    pool.load_key("tank/a", &key(1)).expect("load");

    pool.change_key("tank/a", &KeyChange::new(&key(3), KeyFormat::Raw))
        .expect("change");
    pool.change_key("tank/a/child", &KeyChange::new(&key(4), KeyFormat::Raw))
        .expect("a root of its own");
    assert!(pool.check_key("tank/a", &key(1)).is_err());
    pool.check_key("tank/a", &key(3)).expect("the new key");
    pool.check_key("tank/a/child", &key(4))
        .expect("its own key");
    let renamed = pool.dsl().rename("tank/a/child", "tank/child", false);
    renamed.expect("a root may go where it likes");
    pool.dsl()
        .rename("tank/child", "tank/a/child", false)
        .expect("back");
    pool.inherit_key("tank/a/child").expect("inherit");
    let info = pool
        .encryption("tank/a/child")
        .expect("info")
        .expect("encrypted");
    assert_eq!(info.root, "tank/a");
    let refused = pool
        .dsl()
        .rename("tank/a/child", "tank/child", false)
        .unwrap_err();
    assert!(refused.is(Errno::ACCES), "{refused}");
    pool.close().expect("close");

    let pool = open(&device);
    assert_eq!(pool.try_keys(&[key(3)]).expect("keys"), ["tank/a"]);
    assert_eq!(get(&pool, "tank/a/child", "file").expect("read"), SECRET);
    sound(&pool);
    pool.close().expect("close");
}

#[test]
fn clones_share_keys_and_a_promoted_one_takes_the_root() {
    let device = device();
    let pool = make(&device);
    encrypted(&pool, "tank/a", "aes-192-gcm", 1);
    put(&pool, "tank/a", "file", SECRET);
    pool.snapshot(&["tank/a@s".to_owned()], Recursion::One, &[])
        .expect("snapshot");
    pool.dsl()
        .clone_snapshot("tank/a@s", "tank/b", &[])
        .expect("clone");
    put(&pool, "tank/b", "more", SECRET);
    assert_eq!(get(&pool, "tank/b", "file").expect("read"), SECRET);
    pool.dsl().promote("tank/b").expect("promote");
    let root = |name: &str| {
        pool.encryption(name)
            .expect("info")
            .expect("encrypted")
            .root
    };
    assert_eq!(
        (root("tank/a"), root("tank/b")),
        ("tank/b".into(), "tank/b".into())
    );
    pool.dsl().destroy("tank/a", false, false).expect("destroy");
    sound(&pool);
    pool.close().expect("close");

    let pool = open(&device);
    assert_eq!(pool.try_keys(&[key(1)]).expect("keys"), ["tank/b"]);
    assert_eq!(get(&pool, "tank/b", "file").expect("read"), SECRET);
    assert_eq!(get(&pool, "tank/b@s", "file").expect("read"), SECRET);
    // Without a key everything can still be destroyed.
    pool.close().expect("close");
    let pool = open(&device);
    pool.destroy_dataset("tank/b", DestroyOptions::RECURSIVE)
        .expect("destroy");
    pool.sync().expect("sync");
    sound(&pool);
    pool.close().expect("close");
}

/// Every block below an object set that X protects, from its root.
fn blocks(pool: &Pool, name: &str) -> Vec<BlockPointer> {
    let objset = pool
        .dsl()
        .dataset(name)
        .expect("dataset")
        .objset()
        .expect("objset");
    let mut all = vec![objset.root()];
    let mut at = zuse::ObjectId(0);
    all.extend(objset.meta().block_pointers());
    while let Some(object) = objset.next_object(at).expect("objects") {
        all.extend(objset.dnode(object).expect("dnode").block_pointers());
        at = object;
    }
    let mut from = 0;
    while let Some(bp) = all.get(from).copied() {
        from += 1;
        if bp.level() == 0 || bp.is_hole() {
            continue;
        }
        let block = pool.spa().io().read(&bp, &"walk").expect("indirect block");
        let children = block.as_chunks::<128>().0.iter();
        all.extend(children.map(|raw| BlockPointer::parse(raw, bp.byte_order())));
    }
    all.retain(|bp| !bp.is_hole());
    all
}

#[test]
fn changed_pointers_and_ciphertext_fail_to_authenticate() {
    let golden = Golden::load("crypt");
    let pool = open_whole(
        Environment::default(),
        &golden.block_devices(),
        &PoolAccess::default(),
    )
    .expect("open");
    pool.try_keys(&golden.keys()[..2]).expect("keys");
    let io = pool.spa().io();
    let mut tried = [0; 3];
    for name in ["crypt/aes-256-gcm", "crypt/aes-256-ccm"] {
        let objset = pool
            .dsl()
            .dataset(name)
            .expect("dataset")
            .objset()
            .expect("objset");
        let key = objset.key().expect("key").clone();
        let all = blocks(&pool, name);
        io.cache().clear();
        for good in all {
            io.read_around_keyed(&good, Some(&key), &"good")
                .expect("as it is");
            let Some(flipped) = flips(&good, &mut tried) else {
                continue;
            };
            for (word, bit) in flipped {
                let mut bad = good;
                bad.words[word] ^= bit;
                let error = io.read_around_keyed(&bad, Some(&key), &"bad").unwrap_err();
                assert!(
                    matches!(error, Error::Corrupt { .. })
                        && error.to_string().contains("authentication failed"),
                    "{name}: word {word}: {error}"
                );
            }
        }
        // Another dataset's key.
        let other = pool
            .dsl()
            .dataset("crypt/aes-256-gcm/child")
            .expect("dataset");
        let other = other.objset().expect("objset").key().expect("key").clone();
        let root = objset.root();
        let error = io
            .read_around_keyed(&root, Some(&other), &"root")
            .unwrap_err();
        assert!(
            error.to_string().contains("authentication failed"),
            "{error}"
        );
    }
    assert!(tried.iter().all(|n| *n > 0), "{tried:?}");
    pool.close().expect("close");
}

/// Bits of a pointer, each of which alone must make its block fail, by word. `tried` counts the
/// kinds of protection. None for an object set's block.
fn flips(good: &BlockPointer, tried: &mut [u64; 3]) -> Option<Vec<(usize, u64)>> {
    let mut flipped: Vec<(usize, u64)> = vec![];
    match good.protection() {
        Protection::None => panic!("{good:?} is not protected"),
        Protection::Encrypted => {
            tried[0] += 1;
            // Salt, IV and its tail, MAC.
            flipped.extend([(4, 1), (5, 1 << 40), (11, 1 << 50), (14, 2), (15, 1 << 63)]);
        }
        Protection::Authenticated if good.object_type() == 11 => return None,
        Protection::Authenticated => {
            tried[1] += 1;
            flipped.extend([(14, 1), (15, 1)]);
        }
        Protection::IndirectMac => {
            tried[2] += 1;
            flipped.extend([(14, 1), (15, 1)]);
        }
    }
    Some(flipped)
}
