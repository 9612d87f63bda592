//! Every file system and snapshot of the golden pools, against the manifest of what OpenZFS saw in them.

use std::sync::Arc;

use serde_json::Value;
use zuse_base::{Clock, Errno, Error, Result, SystemClock, Txg};
use zuse_dmu::{Objset, Tx};
use zuse_dsl::{Dataset, Dsl};
use zuse_pool::{Environment, OpenOptions, Pool};
use zuse_sim::golden::{self, Golden, NAMES};
use zuse_zpl::{
    Backing, FileSystem, Hashing, MountProps, PoolFeatures, SpaceFacts, XattrPlace, manifest,
};

struct ReadOnly {
    pool: Arc<Pool>,
    objset: Arc<Objset>,
    props: Arc<MountProps>,
    _dataset: Arc<Dataset>,
}

impl Backing for ReadOnly {
    fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }
    fn begin(&self, _bytes: u64, _frees: bool) -> Result<Tx> {
        Err(Error::refused(Errno::ROFS, "a golden pool"))
    }
    fn wait_synced(&self, _txg: Txg) -> Result<()> {
        Ok(())
    }
    fn open_txg(&self) -> Txg {
        self.pool.open_txg()
    }
    fn synced_txg(&self) -> Txg {
        self.pool.synced_txg()
    }
    fn props(&self) -> Arc<MountProps> {
        self.props.clone()
    }
    fn space(&self) -> SpaceFacts {
        SpaceFacts::default()
    }
    fn clock(&self) -> &dyn Clock {
        &SystemClock
    }
    fn features(&self) -> PoolFeatures {
        PoolFeatures::all()
    }
}

fn mount(pool: &Arc<Pool>, dsl: &Dsl, name: &str) -> Result<Arc<FileSystem>> {
    let dataset = dsl.dataset(name)?;
    let props = MountProps {
        read_only: true,
        posix_acl: dsl.property_number(&dataset, "acltype")? == 1,
        record_size: dsl.property_number(&dataset, "recordsize")? as u32,
        xattr: if dsl.property_number(&dataset, "xattr")? == 1 {
            XattrPlace::Dir
        } else {
            XattrPlace::Sa
        },
        ..MountProps::default()
    };
    let objset = dataset.objset()?;
    let backing = ReadOnly {
        pool: pool.clone(),
        objset,
        props: Arc::new(props),
        _dataset: dataset,
    };
    FileSystem::open(Arc::new(backing))
}

/// What differs between an expected and a real entry; access times change by reading.
fn differences(expected: &Value, real: &Value) -> Vec<String> {
    let (Some(e), Some(r)) = (expected.as_object(), real.as_object()) else {
        return vec!["no object".into()];
    };
    let keys: std::collections::BTreeSet<&String> = e
        .keys()
        .chain(r.keys())
        .filter(|k| *k != "atime_ns")
        .collect();
    keys.into_iter()
        .filter(|k| e.get(*k) != r.get(*k))
        .map(|k| format!("{k}: expected {:?}, is {:?}", e.get(k), r.get(k)))
        .collect()
}

/// JSON whose lone surrogates, which are no text for `serde_json`, are spelled as the expected manifest spells them.
fn parse(json: &str) -> Value {
    let mut out = String::new();
    let mut rest = json;
    while let Some(at) = rest.find("\\udc") {
        let (head, tail) = rest.split_at(at);
        out.push_str(head);
        let pair = head.len() >= 6 && head[head.len() - 6..].starts_with("\\ud");
        out.push_str(if pair { "\\udc" } else { "\\uf7" });
        rest = &tail[4..];
    }
    out.push_str(rest);
    serde_json::from_str(&out).expect("JSON")
}

#[test]
fn the_golden_pools_hold_what_openzfs_saw() {
    let mut failures = Vec::new();
    let mut entries = 0;
    for name in NAMES {
        let golden = Golden::load(name);
        let dsl = Dsl::new();
        let pool = golden::open(
            Environment::default(),
            &golden.block_devices(),
            &OpenOptions::default(),
            dsl.clone(),
        )
        .expect(name);
        let expected = golden.manifest();
        let datasets = expected["datasets"].as_object().expect("datasets");
        for (dataset, list) in datasets {
            let fs = match mount(&pool, &dsl, dataset) {
                Ok(fs) => fs,
                Err(error) => {
                    failures.push(format!("{dataset}: {error}"));
                    continue;
                }
            };
            let live = !dataset.contains('@');
            let list = list.as_array().expect("a list");
            let (mut at, mut left_out) = (0, 0);
            let mut found = Vec::new();
            let walked = manifest(&fs, Hashing::Default, &mut |entry| {
                found.push(entry);
                Ok(())
            });
            if let Err(error) = walked {
                failures.push(format!("{dataset}: {error}"));
            }
            for entry in found {
                let mut real = parse(&entry.to_json());
                let path = real["path"].as_str().expect("a path").to_owned();
                let wanted = list.get(at);
                if wanted.is_none_or(|w| w["path"] != real["path"]) {
                    // The manifest leaves out the empty directories that child file systems were mounted on.
                    let children = datasets
                        .keys()
                        .filter(|d| d.starts_with(&format!("{dataset}/")) && !d.contains('@'));
                    left_out += 1;
                    if live
                        && real["mode"] == "0o40755"
                        && real["nlink"] == 2
                        && left_out <= children.count()
                    {
                        continue;
                    }
                    failures.push(format!(
                        "{dataset}: expected {:?}, found {path}",
                        wanted.map(|w| &w["path"])
                    ));
                    break;
                }
                let wanted = wanted.expect("just compared");
                if !live && path == "." {
                    // The root of a snapshot was seen through `.zfs`, under a virtual number.
                    real["ino"] = wanted["ino"].clone();
                }
                let different = differences(wanted, &real);
                if !different.is_empty() {
                    failures.push(format!("{dataset}/{path}: {}", different.join("; ")));
                }
                at += 1;
                entries += 1;
            }
            if at < list.len() {
                failures.push(format!(
                    "{dataset}: ends after {at} of {} entries",
                    list.len()
                ));
            }
        }
    }
    println!("{entries} entries");
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures[..failures.len().min(30)].join("\n")
    );
    assert!(entries > 4900);
}
