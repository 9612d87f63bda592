//! Compares the content of a pool with its manifest: for golden pools, and for mutated copies of
//! them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use zuse::tools::Layers as _;
use zuse_base::Result;
use zuse_zpl::{Hashing, ManifestEntry, manifest};

use crate::golden::spelled;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// An entry in the manifest's own words, without `atime_ns`.
pub fn entry(e: &ManifestEntry) -> Value {
    let mut out = json!({
        "path": spelled(&e.path),
        "mode": format!("0o{:o}", e.mode),
        "uid": e.uid, "gid": e.gid, "nlink": e.nlink, "ino": e.ino,
        "mtime_ns": e.mtime_ns as i64,
    });
    if let Some((size, sum, blocks)) = &e.file {
        out["size"] = json!(size);
        out["blocks"] = json!(blocks);
        if let Some(sum) = sum {
            out["sha256"] = json!(hex(sum));
        }
    }
    if let Some(target) = &e.target {
        out["target"] = json!(spelled(target));
    }
    if let Some((major, minor)) = e.rdev {
        out["rdev"] = json!([major, minor]);
    }
    if !e.xattrs.is_empty() {
        out["xattrs"] = e
            .xattrs
            .iter()
            .map(|(k, v)| (spelled(k), json!(v)))
            .collect();
    }
    out
}

/// All entries of a dataset or snapshot, by path.
///
/// # Errors
/// The first thing that cannot be read.
pub fn of_dataset(
    pool: &std::sync::Arc<zuse::Pool>,
    name: &str,
) -> Result<BTreeMap<String, Value>> {
    let fs = pool.file_system(name)?;
    let mut all = BTreeMap::new();
    manifest(&fs, Hashing::Default, &mut |e| {
        all.insert(spelled(&e.path), entry(&e));
        Ok(())
    })?;
    Ok(all)
}

/// The checksum of a volume's bytes.
///
/// # Errors
/// It cannot be read.
pub fn of_volume(pool: &zuse::Pool, name: &str) -> Result<String> {
    pool.volume(name)?.sha256()
}

/// What a manifest lists, dataset by dataset, by path.
pub fn expected(golden: &Value) -> BTreeMap<String, BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for (name, entries) in golden["datasets"].as_object().into_iter().flatten() {
        let mut by_path = BTreeMap::new();
        for e in entries.as_array().into_iter().flatten() {
            let mut e = e.clone();
            if let Some(fields) = e.as_object_mut() {
                fields.remove("atime_ns");
                if fields
                    .get("xattrs")
                    .and_then(Value::as_object)
                    .is_some_and(serde_json::Map::is_empty)
                {
                    fields.remove("xattrs");
                }
            }
            by_path.insert(e["path"].as_str().unwrap_or_default().to_owned(), e);
        }
        all.insert(name.clone(), by_path);
    }
    all
}

/// Differences of one dataset, in words. Directories that other datasets were mounted on
/// (`mount_points`, from the pool's name on) are missing from live manifests by rule.
pub fn differences(
    name: &str,
    want: &BTreeMap<String, Value>,
    have: &BTreeMap<String, Value>,
    mount_points: &[String],
) -> Vec<String> {
    let mut out = Vec::new();
    for (path, w) in want {
        match have.get(path) {
            None => out.push(format!("{name}:{path} is missing")),
            Some(h) if h == w => {}
            Some(h) => {
                let fields: std::collections::BTreeSet<&String> = [w, h]
                    .iter()
                    .filter_map(|v| v.as_object())
                    .flat_map(|o| o.keys())
                    .collect();
                for field in fields {
                    if w.get(field) != h.get(field) {
                        out.push(format!(
                            "{name}:{path}: {field} is {}, expected {}",
                            text(h.get(field)),
                            text(w.get(field))
                        ));
                    }
                }
            }
        }
    }
    for path in have.keys().filter(|p| !want.contains_key(*p)) {
        let is_mount_point = mount_points.iter().any(|m| *m == format!("{name}/{path}"));
        if !is_mount_point {
            out.push(format!("{name}:{path} should not be there"));
        }
    }
    out
}

fn text(value: Option<&Value>) -> String {
    value.map_or("missing".into(), ToString::to_string)
}
