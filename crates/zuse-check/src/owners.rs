//! Compares space and objects of each user, group and project with the accounting objects.

use std::collections::HashMap;
use std::sync::Arc;

use zuse_base::Result;
use zuse_dmu::zap::Zap;
use zuse_dmu::{Objset, sa};
use zuse_format::dnode::{DnodeView, FLAG_USEROBJUSED_ACCOUNTED, FLAG_USERUSED_ACCOUNTED};

use super::{Finding, Report};

/// Bytes charged for each object besides its blocks, whatever its dnode's size.
const DNODE_BYTES: u64 = 512;
/// Flags of an object set: users, objects of users, and projects are counted.
const USERS: u64 = 1;
const OBJECTS: u64 = 2;
const PROJECTS: u64 = 4;

/// Bytes and objects by owner.
type Counts = HashMap<u64, [u64; 2]>;

/// The usage found: by user, group and project.
#[derive(Default)]
pub(super) struct Owners {
    by: [Counts; 3],
    /// An object is not counted yet.
    uncounted: bool,
}

impl Owners {
    /// An object was visited.
    pub fn count(&mut self, view: &DnodeView<'_>) {
        let bonus = view.bonus_type();
        if bonus != sa::SA_BONUS && bonus != sa::ZNODE_BONUS {
            return;
        }
        let Some(ids) = sa::owner_ids(bonus, view.bonus()) else {
            self.uncounted = true;
            return;
        };
        self.uncounted |= view.flags() & FLAG_USERUSED_ACCOUNTED == 0;
        let objects = u64::from(view.flags() & FLAG_USEROBJUSED_ACCOUNTED != 0);
        for (counts, id) in self.by.iter_mut().zip([ids.uid, ids.gid, ids.projid]) {
            let [bytes, count] = counts.entry(id).or_default();
            *bytes = bytes.saturating_add(DNODE_BYTES.saturating_add(view.used_bytes()));
            *count += objects;
        }
    }

    /// Compares the usage found with the accounting objects.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn compare(&self, set: &Arc<Objset>, place: &str, report: &mut Report) -> Result<()> {
        let flags = set.flags();
        // Sums without some objects cannot be compared.
        if flags & USERS == 0 || self.uncounted {
            return Ok(());
        }
        let kinds = [Finding::UserUsed, Finding::GroupUsed, Finding::ProjectUsed];
        for (which, (finding, counts)) in kinds.into_iter().zip(&self.by).enumerate() {
            if which == 2 && flags & PROJECTS == 0 {
                continue;
            }
            let mut stored = Counts::new();
            if let Some(dnode) = set.accounting_object(which) {
                let mut cursor = Zap::open(&dnode)?.cursor(0);
                while let Some(entry) = cursor.next()? {
                    let name = String::from_utf8_lossy(&entry.name).into_owned();
                    let (id, at) = match name.strip_prefix("obj-") {
                        Some(id) => (id, 1),
                        None => (name.as_str(), 0),
                    };
                    let Ok(id) = u64::from_str_radix(id, 16) else {
                        report.problem(finding, place, format!("'{name}' is no owner"));
                        continue;
                    };
                    stored.entry(id).or_default()[at] = entry.value.first().unwrap_or(0);
                }
            }
            compare(
                counts,
                &stored,
                flags & OBJECTS != 0,
                (finding, place),
                report,
            );
        }
        Ok(())
    }
}

fn compare(
    counts: &Counts,
    stored: &Counts,
    objects: bool,
    (finding, place): (Finding, &str),
    report: &mut Report,
) {
    let mut all: Vec<u64> = counts.keys().chain(stored.keys()).copied().collect();
    all.sort_unstable();
    all.dedup();
    for id in all {
        let real = counts.get(&id).copied().unwrap_or_default();
        let says = stored.get(&id).copied().unwrap_or_default();
        if real[0] != says[0] || objects && real[1] != says[1] {
            let what = format!(
                "owner {id}: stored {} bytes and {} objects, found {} and {}",
                says[0], says[1], real[0], real[1]
            );
            report.problem(finding, place, what);
        }
    }
}
