//! Holds: tags that keep a snapshot from being destroyed.

use zuse_base::{Errno, Error, Result};
use zuse_format::dsl::DS_FLAG_DEFER_DESTROY;
use zuse_format::object_type as ot;

use crate::context::{Ctx, Dsl};
use crate::meta::DIRECTORY;
use crate::table::Table;
use crate::version::{VERSION_HOLDS, too_old};

const TEMPORARY: &str = "tmp_userrefs";

impl Dsl {
    /// Puts a tag on snapshots, on all of them or none.
    ///
    /// # Errors
    /// `Refused`: NOENT, EXIST if one has the tag.
    pub fn hold(&self, snapshots: &[String], tag: &str) -> Result<()> {
        if tag.is_empty() || tag.len() > 255 {
            return Err(Error::refused(
                zuse_dmu::zap::TOO_BIG,
                "a hold's tag has 1 to 255 bytes",
            ));
        }
        let (names, tag) = (snapshots.to_vec(), tag.to_owned());
        let (n, t) = (names.clone(), tag.clone());
        self.task(
            move |ctx| {
                if ctx.meta.version() < VERSION_HOLDS {
                    return Err(too_old());
                }
                for name in &n {
                    let phys = ctx.meta.ds(ctx.find_snap(name)?)?;
                    if phys.userrefs != 0 && ctx.meta.table(phys.userrefs)?.get(&t)?.is_some() {
                        return Err(Error::refused(
                            Errno::EXIST,
                            format!("snapshot '{name}' has hold '{t}'"),
                        ));
                    }
                }
                Ok(())
            },
            move |ctx| {
                for name in &names {
                    let object = ctx.find_snap(name)?;
                    let mut table = ctx.meta.ds(object)?.userrefs;
                    if table == 0 {
                        table = Table::create(&ctx.meta.mos, ctx.tx, ot::USERREFS, 0)?;
                        ctx.meta.edit_ds(ctx.tx, object, |s| s.userrefs = table)?;
                    }
                    ctx.meta
                        .table(table)?
                        .put_u64(ctx.tx, &tag, ctx.spa.now().0)?;
                    let refs = ctx.meta.table(table)?.count()?;
                    ctx.log_named(
                        "hold",
                        name,
                        object,
                        &format!("tag={tag} temp=0 refs={refs}"),
                    )?;
                }
                Ok(())
            },
        )
    }

    /// Removes a tag from snapshots, from all of them or none. A deferred snapshot without holds is
    /// destroyed.
    ///
    /// # Errors
    /// `Refused(NOENT)` if one does not have the tag.
    pub fn release(&self, snapshots: &[String], tag: &str) -> Result<()> {
        let (names, tag) = (snapshots.to_vec(), tag.to_owned());
        let (n, t) = (names.clone(), tag.clone());
        self.task(
            move |ctx| {
                for name in &n {
                    let phys = ctx.meta.ds(ctx.find_snap(name)?)?;
                    if phys.userrefs == 0 || ctx.meta.table(phys.userrefs)?.get(&t)?.is_none() {
                        return Err(Error::refused(
                            Errno::NOENT,
                            format!("snapshot '{name}' has no hold '{t}'"),
                        ));
                    }
                }
                Ok(())
            },
            move |ctx| {
                names
                    .iter()
                    .try_for_each(|name| ctx.release_hold(ctx.find_snap(name)?, &tag))
            },
        )
    }

    /// Tags of a snapshot with their creation times in seconds.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn holds(&self, snapshot: &str) -> Result<Vec<(String, u64)>> {
        let _config = self.read_config();
        let meta = self.meta()?;
        let phys = meta.ds(self.find_ds(snapshot)?)?;
        if phys.userrefs == 0 {
            Ok(Vec::new())
        } else {
            meta.table(phys.userrefs)?.numbers()
        }
    }

    /// Releases temporary holds (`zfs send`, `zfs diff`) of processes that were killed. They cannot
    /// be in use, because a pool open for writing has no other user. A deferred snapshot without
    /// holds is destroyed. If the table cannot be read, the holds stay, and can be released one by
    /// one.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    pub fn release_temporary_holds(&self) -> Result<()> {
        let left = match self.meta()?.directory()?.get_u64(TEMPORARY)? {
            Some(object) => self.meta()?.table(object).and_then(|t| t.numbers()),
            None => return Ok(()),
        };
        match left {
            Ok(left) if left.is_empty() => Ok(()),
            Ok(_) => self.task(|_| Ok(()), |ctx| ctx.release_temporary()),
            Err(Error::Corrupt { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }
}

impl Ctx<'_> {
    fn find_snap(&self, name: &str) -> Result<u64> {
        let object = self.dsl.find_ds(name)?;
        if !self.meta.ds(object)?.is_snapshot() {
            return Err(Error::refused(
                Errno::INVAL,
                format!("'{name}' is not a snapshot"),
            ));
        }
        Ok(object)
    }

    fn release_temporary(&self) -> Result<()> {
        let Some(object) = self.meta.table(DIRECTORY)?.get_u64(TEMPORARY)? else {
            return Ok(());
        };
        // All entries are read first, because a release changes the table.
        for (key, _) in self.meta.table(object)?.numbers()? {
            self.meta.table(object)?.remove(self.tx, &key)?;
            let Some((snap, tag)) = key.split_once('-') else {
                continue;
            };
            // A forged entry (no such snapshot or hold) is only removed.
            if let Ok(snap) = u64::from_str_radix(snap, 16)
                && self.has_hold(snap, tag)
            {
                self.release_hold(snap, tag)?;
            }
        }
        Ok(())
    }

    fn has_hold(&self, object: u64, tag: &str) -> bool {
        let phys = self.meta.ds(object).ok().filter(|s| s.is_snapshot());
        let table = phys.filter(|s| s.userrefs != 0);
        let table = table.and_then(|s| self.meta.table(s.userrefs).ok());
        table.is_some_and(|t| matches!(t.get(tag), Ok(Some(_))))
    }

    fn release_hold(&self, object: u64, tag: &str) -> Result<()> {
        let phys = self.meta.ds(object)?;
        if phys.userrefs == 0 {
            return Ok(());
        }
        let table = self.meta.table(phys.userrefs)?;
        table.remove(self.tx, tag)?;
        let refs = table.count()?;
        self.log("release", object, &format!("tag={tag} refs={refs}"))?;
        // An entry that stays would release a later hold of this tag at the next import.
        if let Some(temporary) = self.meta.table(DIRECTORY)?.get_u64(TEMPORARY)? {
            self.meta
                .table(temporary)?
                .remove(self.tx, &format!("{object:x}-{tag}"))?;
        }
        // One child is the next dataset, so there is no clone.
        if table.is_empty()? && phys.num_children == 1 && phys.flags & DS_FLAG_DEFER_DESTROY != 0 {
            self.destroy_snapshot(object)?;
            self.spa.note_frees();
        }
        Ok(())
    }
}
