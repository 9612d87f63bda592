//! Every dataset, snapshot and volume of the golden pools reads as it did while OpenZFS had it
//! mounted.

use std::collections::BTreeMap;
use zuse::ListedKinds;
use zuse::tools::Layers as _;

use serde_json::Value;
use zuse_pool::Environment;
use zuse_sim::golden::{Golden, NAMES, READ_ONLY, REDUNDANT, open_whole};
use zuse_sim::manifests::{differences, expected, of_dataset, of_volume};

/// Snapshots were listed below `.zfs`, where Linux shows a made-up inode number for the root: 2^48
/// − 4 − dataset object.
fn snapshot_root(pool: &zuse::Pool, name: &str, entries: &mut BTreeMap<String, Value>) {
    let object = pool.dsl().dataset(name).expect("snapshot").object().0;
    let root = entries.get_mut(".").expect("a root");
    assert_eq!(
        root["ino"].as_u64(),
        Some((1 << 48) - 4 - object),
        "{name}: the root's number"
    );
    let real = pool.file_system(name).expect("file system").root_id().0;
    root["ino"] = real.into();
}

/// Where file systems were mounted, without the `/mnt/` before the pool's own.
fn mount_points(golden: &Golden) -> Vec<String> {
    if is_replayed(golden.name) {
        return Vec::new();
    }
    let list = golden.text("zfs-get.txt");
    let rows = list.lines().filter_map(|l| l.split_once("\tmountpoint\t"));
    rows.filter_map(|(_, rest)| {
        rest.split('\t')
            .next()?
            .strip_prefix("/mnt/")
            .map(str::to_owned)
    })
    .collect()
}

/// Pools that were copied while they were imported: their logs are replayed.
fn is_replayed(name: &str) -> bool {
    matches!(name, "zil" | "zil-slog")
}

/// Data that is not in the log: times of changes, and space that is allocated when a txg is
/// written.
fn forget_untold(entries: &mut BTreeMap<String, Value>) {
    for entry in entries.values_mut().filter_map(Value::as_object_mut) {
        entry.remove("mtime_ns");
        entry.remove("blocks");
    }
}

fn compare(name: &'static str) {
    let golden = Golden::load(name);
    let manifest = golden.manifest();
    let mut want = expected(&manifest);
    let pool = open_whole(
        Environment::default(),
        &golden.block_devices(),
        &zuse::PoolAccess::default(),
    )
    .expect("open");
    assert_eq!(Some(pool.name().as_str()), manifest["pool"].as_str());
    let keys = golden.keys();
    let roots = pool.try_keys(&keys).expect("keys");
    assert_eq!(
        roots,
        pool.encryption_roots(&pool.name()).expect("roots"),
        "encryption roots that were opened"
    );
    let mut wrong = Vec::new();
    for (snapshot, entries) in want.iter_mut().filter(|(name, _)| name.contains('@')) {
        snapshot_root(&pool, snapshot, entries);
    }
    if is_replayed(name) {
        want.values_mut().for_each(forget_untold);
    }
    let mount_points = mount_points(&golden);
    let mut entries = 0;
    for (dataset, want) in &want {
        match of_dataset(&pool, dataset) {
            Ok(mut have) => {
                if is_replayed(name) {
                    forget_untold(&mut have);
                }
                entries += want.len();
                wrong.extend(differences(dataset, want, &have, &mount_points));
            }
            Err(e) => wrong.push(format!("{dataset}: {e}")),
        }
    }
    for (volume, sum) in manifest["volumes"].as_object().into_iter().flatten() {
        match of_volume(&pool, volume) {
            Ok(have) if Some(have.as_str()) == sum.as_str() => {}
            other => wrong.push(format!("{volume}: {other:?}, expected {sum}")),
        }
    }
    tell_unknown(&pool, &want, &manifest);
    // If blocks are shared, the sums are not those of the blocks found.
    if !matches!(name, "brt" | "dedup" | "dedup-legacy") {
        let flaws = zuse_dsl::check_accounting(pool.dsl());
        let told = flaws.iter().map(|f| format!("accounting: {f:?}"));
        // `dd` is deduplicated.
        wrong.extend(told.filter(|f| !f.contains("crypt/aes-256-gcm/dd:")));
    }
    pool.close().expect("close");
    println!("{name}: {} datasets, {entries} entries", want.len());
    assert!(
        entries > 0 && wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong
            .iter()
            .take(40)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    );
}

/// Reports datasets that the pool lists and the manifest does not.
fn tell_unknown(
    pool: &zuse::Pool,
    want: &BTreeMap<String, BTreeMap<String, Value>>,
    manifest: &Value,
) {
    for listed in pool
        .list(&pool.name(), None, ListedKinds::WITH_SNAPSHOTS)
        .expect("list")
    {
        let known = want.contains_key(&listed.name) || !manifest["volumes"][&listed.name].is_null();
        let of_volume = listed
            .name
            .split_once('@')
            .is_some_and(|(d, _)| !manifest["volumes"][d].is_null());
        if !known && !of_volume {
            println!("not in the manifest: {}", listed.name);
        }
    }
}

macro_rules! pools {
    ($($test:ident: $name:literal;)*) => {
        $(#[test] fn $test() { compare($name); })*
        #[test]
        fn no_pool_is_forgotten() {
            let all: Vec<_> = NAMES.into_iter().chain(REDUNDANT).chain(READ_ONLY).collect();
            assert_eq!(all, [$($name),*]);
        }
    };
}

pools! {
    features_reads_as_its_manifest: "features";
    codecs_reads_as_its_manifest: "codecs";
    bigblocks_reads_as_its_manifest: "bigblocks";
    stripe_reads_as_its_manifest: "stripe";
    gang_reads_as_its_manifest: "gang";
    compat07_reads_as_its_manifest: "compat07";
    dsl_reads_as_its_manifest: "dsl";
    crypt_reads_as_its_manifest: "crypt";
    raidz1_reads_as_its_manifest: "raidz1";
    raidz2_reads_as_its_manifest: "raidz2";
    raidz3_reads_as_its_manifest: "raidz3";
    expanded_reads_as_its_manifest: "expanded";
    draid_reads_as_its_manifest: "draid";
    removed_reads_as_its_manifest: "removed";
    classes_reads_as_its_manifest: "classes";
    mirror_reads_as_its_manifest: "mirror";
    mirrors_reads_as_its_manifest: "mirrors";
    deg_mirror_reads_as_its_manifest: "deg-mirror";
    deg_raidz1_reads_as_its_manifest: "deg-raidz1";
    deg_raidz2_reads_as_its_manifest: "deg-raidz2";
    names_reads_as_its_manifest: "names";
    v28_reads_as_its_manifest: "v28";
    v28_fs3_reads_as_its_manifest: "v28-fs3";
    v28_fs4_reads_as_its_manifest: "v28-fs4";
    brt_reads_as_its_manifest: "brt";
    dedup_reads_as_its_manifest: "dedup";
    dedup_legacy_reads_as_its_manifest: "dedup-legacy";
    checkpoint_reads_as_its_manifest: "checkpoint";
    zil_reads_as_its_manifest_after_its_log: "zil";
    zil_slog_reads_as_its_manifest_after_its_log: "zil-slog";
}
