//! Usage and limits of users, groups and projects: `userused@1000`, `groupquota@50`,
//! `zfs userspace`.

use std::collections::BTreeMap;

use zuse_base::{Errno, Error, Result};
use zuse_dsl::DatasetKind;
use zuse_format::property::parse_number;
use zuse_zpl::{QuotaKind, QuotaOwner};

use crate::Pool;

/// A property of a user, group or project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerProperty {
    /// User, group or project.
    pub owner: QuotaOwner,
    /// Bytes or objects.
    pub kind: QuotaKind,
    /// The limit, not the usage.
    pub limit: bool,
    /// Whose.
    pub id: u64,
}

/// Prefixes, by owner, kind and whether it is a limit.
const PREFIXES: [(&str, QuotaOwner, QuotaKind, bool); 12] = [
    ("userused@", QuotaOwner::User, QuotaKind::Space, false),
    ("groupused@", QuotaOwner::Group, QuotaKind::Space, false),
    ("projectused@", QuotaOwner::Project, QuotaKind::Space, false),
    ("userobjused@", QuotaOwner::User, QuotaKind::Objects, false),
    (
        "groupobjused@",
        QuotaOwner::Group,
        QuotaKind::Objects,
        false,
    ),
    (
        "projectobjused@",
        QuotaOwner::Project,
        QuotaKind::Objects,
        false,
    ),
    ("userquota@", QuotaOwner::User, QuotaKind::Space, true),
    ("groupquota@", QuotaOwner::Group, QuotaKind::Space, true),
    ("projectquota@", QuotaOwner::Project, QuotaKind::Space, true),
    ("userobjquota@", QuotaOwner::User, QuotaKind::Objects, true),
    (
        "groupobjquota@",
        QuotaOwner::Group,
        QuotaKind::Objects,
        true,
    ),
    (
        "projectobjquota@",
        QuotaOwner::Project,
        QuotaKind::Objects,
        true,
    ),
];

impl OwnerProperty {
    /// Splits a property name into its prefix and the id as text, which may be a user's name.
    pub fn split(name: &str) -> Option<(&'static str, &str)> {
        PREFIXES
            .iter()
            .find_map(|(prefix, ..)| Some((*prefix, name.strip_prefix(prefix)?)))
    }

    /// A property with a decimal id.
    pub fn parse(name: &str) -> Option<Self> {
        PREFIXES.iter().find_map(|(prefix, owner, kind, limit)| {
            Some(Self {
                owner: *owner,
                kind: *kind,
                limit: *limit,
                id: name.strip_prefix(prefix)?.parse().ok()?,
            })
        })
    }
}

/// Usage and limits of one id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceRow {
    /// The id.
    pub id: u64,
    /// Bytes used.
    pub used: u64,
    /// Most bytes; 0 for no limit.
    pub quota: u64,
    /// Objects used.
    pub objects: u64,
    /// Most objects; 0 for no limit.
    pub object_quota: u64,
}

impl Pool {
    pub(crate) fn accounted_value(&self, name: &str, what: &OwnerProperty) -> Result<u64> {
        let fs = self.file_system(name)?;
        if what.limit {
            Ok(fs.quota(what.owner, what.kind, what.id)?.unwrap_or(0))
        } else {
            match fs.usage(what.owner, what.kind, what.id) {
                // Objects of a raw receive are counted on the first request.
                Err(e) if e.is(Errno::NOTSUP) => {
                    let mut found = 0;
                    fs.each_usage(what.owner, what.kind, &mut |id, n| {
                        if id == what.id {
                            found = n;
                        }
                    })?;
                    Ok(found)
                }
                other => other,
            }
        }
    }

    /// Usage of the users, groups or projects of a filesystem or snapshot, by id. Object counts are
    /// 0 if they are not kept.
    ///
    /// # Errors
    /// `Refused(NOENT)`; `Refused(NOTSUP)` where space is not counted.
    pub fn space_by_owner(&self, name: &str, owner: QuotaOwner) -> Result<Vec<SpaceRow>> {
        let fs = self.file_system(name)?;
        let mut rows: BTreeMap<u64, SpaceRow> = BTreeMap::new();
        let mut put = |id: u64, set: &dyn Fn(&mut SpaceRow)| {
            set(rows.entry(id).or_insert(SpaceRow {
                id,
                ..SpaceRow::default()
            }));
        };
        fs.each_usage(owner, QuotaKind::Space, &mut |id, n| {
            put(id, &|r| r.used = n)
        })?;
        match fs.each_usage(owner, QuotaKind::Objects, &mut |id, n| {
            put(id, &|r| r.objects = n);
        }) {
            // Older pools count space only.
            Err(e) if e.is(Errno::NOTSUP) => {}
            other => other?,
        }
        fs.each_quota(owner, QuotaKind::Space, &mut |id, n| {
            put(id, &|r| r.quota = n)
        })?;
        fs.each_quota(owner, QuotaKind::Objects, &mut |id, n| {
            put(id, &|r| r.object_quota = n);
        })?;
        Ok(rows.into_values().collect())
    }
}

impl Pool {
    pub(crate) fn set_limit(
        &self,
        dataset: &str,
        name: &str,
        text: &str,
        kind: DatasetKind,
    ) -> Result<()> {
        fn refuse<T>(why: String) -> Result<T> {
            Err(Error::refused(Errno::INVAL, why))
        }
        let Some(what) = OwnerProperty::parse(name) else {
            return refuse(format!("invalid property '{name}'"));
        };
        if !what.limit {
            return refuse(format!("'{name}' is readonly"));
        }
        if kind != DatasetKind::Filesystem {
            return refuse(format!("'{name}' does not apply to datasets of this type"));
        }
        let limit = match text {
            "none" => 0,
            text => parse_number(text).or_else(|e| refuse(e.to_string()))?,
        };
        let fs = self.file_system(dataset)?;
        fs.set_quota(what.owner, what.kind, what.id, limit)?;
        self.sync()
    }
}
