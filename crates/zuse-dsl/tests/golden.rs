//! Pools made by OpenZFS: this layer gives the same values as OpenZFS, and their accounting adds
//! up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use zuse_device::{Access, BlockDevice, FileDevice, RecordingDevice};
use zuse_dsl::property::{Source, Text};
use zuse_dsl::{Dsl, ListedKinds, Needs, check_accounting};
use zuse_pool::{Environment, OpenOptions, Pool};
use zuse_vdev::{PoolState, assemble};

fn unpack(name: &str, tag: &str) -> PathBuf {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = std::env::temp_dir().join(format!("zuse-dsl-{name}-{tag}-{}", std::process::id()));
    let done = Command::new(top.join("scripts/unpack-golden"))
        .arg(name)
        .arg(&dir)
        .status()
        .expect("unpack-golden");
    assert!(done.success());
    dir
}

fn open(dir: &Path, writable: bool) -> (Arc<Pool>, Arc<Dsl>) {
    let (pool, dsl, _) = open_recorded(dir, writable);
    (pool, dsl)
}

type Opened = (Arc<Pool>, Arc<Dsl>, Vec<Arc<RecordingDevice>>);

fn open_recorded(dir: &Path, writable: bool) -> Opened {
    let mut recorded = Vec::new();
    let mut devices: Vec<Arc<dyn BlockDevice>> = Vec::new();
    for entry in std::fs::read_dir(dir).expect("folder").flatten() {
        if entry.path().extension().is_some_and(|e| e == "img") {
            let access = if writable {
                Access::Write
            } else {
                Access::Probe
            };
            let file = FileDevice::open(entry.path(), access).expect("device");
            let device = Arc::new(RecordingDevice::new(Arc::new(file)));
            recorded.push(device.clone());
            devices.push(device);
        }
    }
    let scan = assemble::assemble(&assemble::read_labels(&devices));
    let found = scan.pools.first().expect("a pool");
    let by_guid: BTreeMap<u64, Arc<dyn BlockDevice>> = found
        .devices
        .iter()
        .map(|(guid, path)| {
            let device = devices
                .iter()
                .find(|d| d.path() == path)
                .expect("found device");
            (*guid, device.clone())
        })
        .collect();
    let dsl = Dsl::new();
    let options = OpenOptions {
        writable,
        force: true,
        ..OpenOptions::default()
    };
    let pool = Pool::open(
        Environment::default(),
        &found.config,
        &by_guid,
        &options,
        dsl.clone(),
    )
    .expect("open");
    (pool, dsl, recorded)
}

type Row = (String, Vec<(String, String, Source)>);

/// Everything in the pool with all its properties, and how many device reads that took.
fn list(dir: &Path, gathered: bool) -> (Vec<Row>, u64) {
    let (pool, dsl, devices) = open_recorded(dir, false);
    dsl.set_metadata_cache(gathered);
    let reads = || devices.iter().map(|d| d.counts().reads).sum::<u64>();
    let before = reads();
    let mut rows = Vec::new();
    let root = pool.name();
    dsl.walk_for(&root, None, ListedKinds::ALL, Needs::ALL, &mut |entry| {
        let all = dsl.entry_properties(&entry)?.into_iter();
        let all = all.map(|(name, value, source)| (name.into(), value.into(), source));
        rows.push((entry.name.clone(), all.collect()));
        Ok(())
    })
    .expect("walk");
    (rows, reads() - before)
}

#[test]
fn a_listing_that_gathers_what_it_reads_says_the_same_in_fewer_reads() {
    let dir = unpack("dsl", "gather");
    let (plain, many) = list(&dir, false);
    let (gathered, few) = list(&dir, true);
    assert_eq!(gathered, plain);
    assert!(plain.len() > 1, "there is something to list");
    assert!(few < many, "{few} reads of {many}");
    let _ = std::fs::remove_dir_all(&dir);
}

/// Properties of `zfs get` that belong to other layers: mounts, values inside object sets, and
/// figures derived from those.
const ELSEWHERE: &[&str] = &[
    "mounted",
    "keystatus",
    "version",
    "utf8only",
    "normalization",
    "casesensitivity",
    "volsize",
    "volblocksize",
    "defaultuserquota",
    "defaultgroupquota",
    "defaultprojectquota",
    "defaultuserobjquota",
    "defaultgroupobjquota",
    "defaultprojectobjquota",
];

fn compare(name: &str) {
    let dir = unpack(name, "read");
    compare_in(&dir);
    let _ = std::fs::remove_dir_all(&dir);
}
/// Properties with their sources.
type Properties = BTreeMap<String, (String, String)>;

/// The output of `zfs get` for each dataset.
fn wanted(text: &str) -> BTreeMap<String, Properties> {
    let mut wanted: BTreeMap<String, Properties> = BTreeMap::new();
    for line in text.lines() {
        let mut f = line.split('\t');
        let (Some(ds), Some(property), Some(value), Some(source)) =
            (f.next(), f.next(), f.next(), f.next())
        else {
            continue;
        };
        wanted
            .entry(ds.into())
            .or_default()
            .insert(property.into(), (value.into(), source.into()));
    }
    wanted
}

fn in_words(all: Vec<(Text, Text, Source)>) -> Properties {
    all.into_iter()
        .map(|(property, value, source)| {
            let source = match source {
                Source::None => "-".to_owned(),
                Source::Default => "default".into(),
                Source::Local => "local".into(),
                Source::Received => "received".into(),
                Source::Temporary => "temporary".into(),
                Source::Inherited(from) => format!("inherited from {from}"),
            };
            (property.into_owned(), (value.into_owned(), source))
        })
        .collect()
}

fn compare_in(dir: &Path) {
    let (pool, dsl) = open(dir, false);
    let text = std::fs::read_to_string(dir.join("zfs-get.txt")).expect("zfs-get.txt");
    let wanted = wanted(&text);
    let root = pool.name();
    let then: i64 = wanted[&root]["used"].0.parse().expect("number");
    let later = then
        - dsl
            .stat(&dsl.dataset(&root).expect("root"))
            .expect("stat")
            .used as i64;
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (ds, want) in &wanted {
        if let Some((head, bookmark)) = ds.split_once('#') {
            let all = dsl.bookmarks(head).expect("bookmarks");
            let (_, phys) = all.iter().find(|(n, _)| n == bookmark).expect("bookmark");
            assert_eq!(phys.guid.to_string(), want["guid"].0);
            continue;
        }
        let handle = dsl.dataset(ds).expect(ds);
        let have = in_words(dsl.properties(&handle).expect(ds));
        for property in want.keys().chain(have.keys()).collect::<BTreeSet<_>>() {
            if ELSEWHERE.contains(&property.as_str()) {
                continue;
            }
            // The export wrote the MOS once more after the figures were printed.
            if ds == &root && ["used", "usedbychildren", "logicalused"].contains(&property.as_str())
            {
                continue;
            }
            compared += 1;
            let number = |v: &BTreeMap<String, (String, String)>, p: &str| {
                v.get(p).and_then(|v| v.0.parse::<i64>().ok())
            };
            if property == "available" {
                // Space that was being freed at that moment was not available yet.
                let freeing = number(&have, "available").unwrap_or(0)
                    - later
                    - number(want, "available").unwrap_or(0);
                if (0..64 * 1024).contains(&freeing) {
                    continue;
                }
            }
            if want.get(property) != have.get(property) {
                wrong.push(format!(
                    "{ds} {property}: OpenZFS {:?}, here {:?}",
                    want.get(property),
                    have.get(property)
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {compared} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(compared > 50);
    let flaws = check_accounting(&dsl);
    assert!(flaws.is_empty(), "{flaws:#?}");
    pool.close(PoolState::Active).expect("close");
}

#[test]
fn snapshots_clones_and_bookmarks_read_as_openzfs_shows_them() {
    compare("dsl");
}

#[test]
fn a_pool_with_all_features_reads_as_openzfs_shows_it() {
    compare("features");
}

#[test]
fn every_compression_and_checksum_property_reads_as_openzfs_shows_it() {
    compare("codecs");
}

#[test]
fn large_blocks_stripes_and_gangs_read_as_openzfs_shows_them() {
    compare("bigblocks");
    compare("stripe");
    compare("gang");
}

#[test]
fn a_pool_of_an_older_system_reads_as_openzfs_shows_it() {
    compare("compat07");
}

#[test]
fn what_openzfs_made_can_be_changed_and_taken_apart() {
    let dir = unpack("dsl", "write");
    let (pool, dsl) = open(&dir, true);
    let sound = |step: &str| {
        pool.sync_now().expect("sync");
        let flaws = check_accounting(&dsl);
        assert!(flaws.is_empty(), "after {step}: {flaws:#?}");
    };
    sound("opening");
    dsl.snapshot(&["dsl@new".into()], true, &[])
        .expect("snapshot");
    sound("snapshot");
    for name in ["dsl/many/a0@all", "dsl/home@s5"] {
        dsl.destroy(name, false, true).expect(name);
        sound(name);
    }
    dsl.rename("dsl/many/renamed", "dsl/moved", false)
        .expect("rename");
    sound("rename");
    dsl.destroy("dsl/clone1", true, false)
        .expect("a clone with a livelist");
    sound("destroying a clone");
    dsl.destroy("dsl/many", true, false).expect("a tree");
    sound("destroying a tree");
    for _ in 0..6 {
        pool.note_frees();
        pool.sync_now().expect("sync");
    }
    sound("freeing");
    pool.close(PoolState::Exported).expect("close");
    if std::env::var("ZUSE_KEEP_POOL").is_err() {
        let _ = std::fs::remove_dir_all(&dir);
    } else {
        eprintln!("kept {}", dir.display());
    }
}
