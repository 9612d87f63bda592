//! Usage and limits of users, groups and projects, for channel programs: `userused@1000`,
//! `groupobjquota@50` (chapter 06c §3.1 of the format notes). The object set has the usage; tables
//! named by its master node have the limits.

use zuse_base::{Errno, ObjectId, Result};
use zuse_dmu::zap::Zap;
use zuse_format::objset::{
    OBJSET_PROJECT_QUOTA, OBJSET_USER_ACCOUNTING, OBJSET_USEROBJ_ACCOUNTING,
};

use crate::batch::Batch;
use crate::dataset::DatasetKind;
use crate::listing::ListedDataset;

/// The master node of a filesystem.
const MASTER_NODE: ObjectId = ObjectId(1);

/// A property of a user, group or project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnerProperty<'a> {
    /// `userquota@`, `groupobjused@`, …
    prefix: &'a str,
    /// Users, groups, projects.
    owner: usize,
    objects: bool,
    limit: bool,
    id: u64,
}

impl<'a> OwnerProperty<'a> {
    /// A property with a decimal id.
    fn parse(name: &'a str) -> Option<Self> {
        let at = name.find('@')? + 1;
        let (prefix, id) = name.split_at_checked(at)?;
        let owners = ["user", "group", "project"];
        let owner = owners.iter().position(|o| prefix.starts_with(o))?;
        let rest = prefix.strip_prefix(owners[owner])?;
        let (objects, rest) = match rest.strip_prefix("obj") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let limit = match rest {
            "used@" => false,
            "quota@" => true,
            _ => return None,
        };
        let digits = id.bytes().all(|b| b.is_ascii_digit());
        let id = id.parse().ok().filter(|_| digits)?;
        Some(Self {
            prefix,
            owner,
            objects,
            limit,
            id,
        })
    }
}

/// Whether a property is one of a user, group or project, by number.
pub fn is_accounted(property: &str) -> bool {
    OwnerProperty::parse(property).is_some()
}

impl Batch<'_> {
    /// Usage or limit (0 for none) of a user, group or project in a filesystem or snapshot, in
    /// bytes or objects. `None` if that is not counted: on volumes, in old filesystems, or without
    /// the key of the files.
    ///
    /// # Errors
    /// The MOS or the dataset cannot be read.
    pub fn accounted(&self, entry: &ListedDataset, property: &str) -> Result<Option<u64>> {
        let Some(what) = OwnerProperty::parse(property)
            .filter(|_| matches!(entry.kind, DatasetKind::Filesystem | DatasetKind::Snapshot))
        else {
            return Ok(None);
        };
        self.note(match self.read_accounted(entry, &what) {
            Err(e) if e.is(Errno::ACCES) || e.is(Errno::NXIO) => Ok(None),
            other => other,
        })
    }

    fn read_accounted(
        &self,
        entry: &ListedDataset,
        what: &OwnerProperty<'_>,
    ) -> Result<Option<u64>> {
        let objset = self.dsl().dataset_by_object(entry.object)?.objset()?;
        if objset.kind() != zuse_format::ObjsetType::Zfs {
            return Ok(None);
        }
        if what.limit {
            let master = Zap::open(&objset.dnode(MASTER_NODE)?)?;
            let table = master.lookup_u64(what.prefix.as_bytes())?;
            let own = match table {
                Some(table) => Zap::open(&objset.dnode(ObjectId(table))?)?.lookup_int(what.id)?,
                None => None,
            };
            if own.is_some() {
                return Ok(own);
            }
            let general = format!("default{}", what.prefix.trim_end_matches('@'));
            let general = master.lookup_u64(general.as_bytes())?;
            return Ok(Some(general.unwrap_or(0)));
        }
        let counted = match (what.owner, what.objects) {
            (2, _) => OBJSET_PROJECT_QUOTA,
            (_, true) => OBJSET_USEROBJ_ACCOUNTING,
            (_, false) => OBJSET_USER_ACCOUNTING,
        };
        if objset.flags() & counted == 0 {
            return Ok(None);
        }
        let Some(table) = objset.accounting_object(what.owner) else {
            return Ok(Some(0));
        };
        let table = Zap::open(&table)?;
        let found = match what.objects {
            false => table.lookup_int(what.id)?,
            true => table.lookup_u64(format!("obj-{:x}", what.id).as_bytes())?,
        };
        Ok(Some(found.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_who_what_and_whose() {
        let what = OwnerProperty::parse("groupobjquota@50").unwrap();
        let expected = OwnerProperty {
            prefix: "groupobjquota@",
            owner: 1,
            objects: true,
            limit: true,
            id: 50,
        };
        assert_eq!(what, expected);
        assert!(is_accounted("userused@0") && is_accounted("projectobjused@7"));
        for none in [
            "userused@",
            "userused@bob",
            "userused@+1",
            "written@s",
            "used@1",
            "userused",
            "user@1",
        ] {
            assert!(!is_accounted(none), "{none}");
        }
    }
}
