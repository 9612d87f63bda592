//! Features that datasets use: the pool counts the datasets that have their keys.

use std::collections::BTreeMap;

use zuse_base::{ObjectId, Result};
use zuse_dmu::zap::Zap;
use zuse_pool::Pool;

use super::{Finding, Found, Report};

/// Features whose key is in each dataset that uses them.
const OF_DATASETS: [&str; 15] = [
    "org.open-zfs:large_blocks",
    "org.zfsonlinux:large_dnode",
    "org.illumos:sha512",
    "org.illumos:skein",
    "org.illumos:edonr",
    "com.delphix:redacted_datasets",
    "org.zfsonlinux:userobj_accounting",
    "com.datto:encryption",
    "org.zfsonlinux:project_quota",
    "org.freebsd:zstd_compress",
    "org.openzfs:zilsaxattr",
    "org.openzfs:blake3",
    "org.zfsonlinux:longname",
    "com.klarasystems:large_microzap",
    "com.truenas:physical_rewrite",
];

/// Counts the datasets that use each feature.
pub(super) fn check(pool: &Pool, datasets: &[Found], report: &mut Report) -> Result<()> {
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    for dataset in datasets.iter().filter(|d| d.extended) {
        let keys = Zap::open(&pool.mos().dnode(ObjectId(dataset.object))?)?;
        for guid in OF_DATASETS {
            if keys.lookup(guid.as_bytes())?.is_some() {
                *found.entry(guid).or_default() += 1;
            }
        }
    }
    for guid in OF_DATASETS {
        let counted = pool.features().refcount(guid);
        let there = found.get(guid).copied().unwrap_or(0);
        let place = format!("feature {guid}");
        report.differ(Finding::FeatureCount, &place, counted, there);
    }
    let waits = pool.directory()?.lookup_u64(b"bptree_obj")?.is_some();
    let counted = pool.features().refcount("com.delphix:async_destroy");
    let place = "feature async_destroy";
    report.differ(Finding::FeatureCount, place, counted, u64::from(waits));
    Ok(())
}
