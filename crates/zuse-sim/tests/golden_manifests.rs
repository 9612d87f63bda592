//! Every dataset, snapshot and volume of the golden pools reads as it did while OpenZFS had it mounted.

use std::collections::BTreeMap;

use serde_json::Value;
use zuse_pool::Environment;
use zuse_sim::golden::{Golden, NAMES, open_whole};
use zuse_sim::manifests::{differences, expected, of_dataset, of_volume};

/// Snapshots were listed below `.zfs`, where Linux shows a made-up inode number for the root: 2^48 − 4 − dataset object.
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
    let mut wrong = Vec::new();
    for (snapshot, entries) in want.iter_mut().filter(|(name, _)| name.contains('@')) {
        snapshot_root(&pool, snapshot, entries);
    }
    let mount_points = mount_points(&golden);
    let mut entries = 0;
    for (dataset, want) in &want {
        match of_dataset(&pool, dataset) {
            Ok(have) => {
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
    // All datasets that the pool lists are in the manifest.
    for listed in pool.list(&pool.name(), None, true).expect("list") {
        let known = want.contains_key(&listed.name) || !manifest["volumes"][&listed.name].is_null();
        let of_volume = listed
            .name
            .split_once('@')
            .is_some_and(|(d, _)| !manifest["volumes"][d].is_null());
        if !known && !of_volume {
            println!("not in the manifest: {}", listed.name);
        }
    }
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    wrong.extend(flaws.iter().map(|f| format!("accounting: {f:?}")));
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

macro_rules! pools {
    ($($test:ident: $name:literal;)*) => {
        $(#[test] fn $test() { compare($name); })*
        #[test]
        fn no_pool_is_forgotten() {
            assert_eq!(NAMES, [$($name),*]);
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
}
