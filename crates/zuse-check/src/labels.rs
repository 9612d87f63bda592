//! Labels, and the configuration inside the pool.

use zuse_base::{ObjectId, Result};
use zuse_format::nvlist::NvList;
use zuse_pool::Pool;
use zuse_vdev::{LabelConfig, Labels, PoolConfig, VdevConfig};

use super::{Finding, Report};

/// More than any valid configuration has.
const MOST_CONFIG: u64 = 16 << 20;

/// Compares the labels of each device with the pool's own configuration.
pub(super) fn check(pool: &Pool, report: &mut Report) -> Result<()> {
    let mut newest: Option<PoolConfig> = None;
    for leaf in pool.vdevs().leaves() {
        let Some(device) = leaf.device() else {
            continue;
        };
        let place = device.path().to_owned();
        let labels = Labels::read(&*device);
        let mut members: Vec<PoolConfig> = Vec::new();
        for (at, slot) in labels.slots().iter().enumerate() {
            let place = format!("{place}, label {at}");
            let config = slot.as_ref().and_then(|s| s.config.as_ref());
            match config {
                Ok(LabelConfig::Member(config)) => {
                    let is_ours = config.pool_guid == pool.guid();
                    if !is_ours || config.guid != Some(leaf.guid()) {
                        let what = format!("pool {}, {:?}", config.pool_guid, config.guid);
                        report.problem(Finding::LabelPool, place, what);
                    }
                    members.push((**config).clone());
                }
                Ok(_) => {}
                Err(e) => report.problem(Finding::LabelUnreadable, place, e),
            }
        }
        for pair in members.windows(2) {
            // After a crash the labels of a device may be of two txgs.
            if pair[0].txg == pair[1].txg && pair[0] != pair[1] {
                let what = format!("txg {}", pair[0].txg);
                report.problem(Finding::LabelsDiffer, place.as_str(), what);
            }
        }
        let best = members.into_iter().max_by_key(|c| c.txg);
        if let Some(best) = best
            && newest.as_ref().is_none_or(|n| n.txg < best.txg)
        {
            newest = Some(best);
        }
    }
    let Some(inside) = inside(pool)? else {
        return Ok(());
    };
    if let Some(label) = newest {
        let places = [
            ("pool guid", inside.pool_guid, label.pool_guid),
            ("version", inside.version, label.version),
        ];
        for (what, inside, label) in places {
            let place = format!("configuration, {what}");
            report.differ(Finding::ConfigDiffers, &place, label, inside);
        }
    }
    objects(pool, &inside.vdev_tree, report);
    Ok(())
}

/// The configuration in the MOS.
fn inside(pool: &Pool) -> Result<Option<PoolConfig>> {
    let Some(object) = pool.directory()?.lookup_u64(b"config")? else {
        return Ok(None);
    };
    let dnode = pool.mos().dnode(ObjectId(object))?;
    let bonus = dnode.bonus_vec();
    let len = bonus
        .first_chunk::<8>()
        .map_or(0, |b| u64::from_le_bytes(*b));
    let place = "MOS config object";
    let mut bytes = vec![0; usize::try_from(len.min(MOST_CONFIG)).unwrap_or(0)];
    dnode.read_at(0, &mut bytes)?;
    let list = NvList::decode(&bytes).map_err(|e| e.at(place))?;
    PoolConfig::parse(&list, place).map(Some)
}

/// Objects of vdevs that the configuration names.
fn objects(pool: &Pool, node: &VdevConfig, report: &mut Report) {
    for object in [node.zap_top, node.zap_leaf].into_iter().flatten() {
        if object != 0 && pool.mos().dnode(ObjectId(object)).is_err() {
            let place = format!("vdev {}", node.guid);
            report.problem(Finding::VdevZap, place, format!("object {object}"));
        }
    }
    for child in &node.children {
        objects(pool, child, report);
    }
}
