//! Delegated permissions: which user may change what of a dataset, as `zfs allow` records it.
//!
//! ```text
//!   directory ── ZAP: whokey ──► ZAP: names of permissions → 0
//!   whokey = WHO SCOPE $ ID      ul$1000  gd$50  el$  c-$  s-$@backup; WHO in capitals: the names are sets (@backup)
//! ```
//! Chapter 04a §2 of the format notes. Permissions are kept and shown. They are not enforced:
//! a user who can write the pool's devices can do everything.

use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Errno, Error, Result};
use zuse_format::object_type as ot;

use crate::admission::Reserve;
use crate::context::{Ctx, Dsl};
use crate::table::Table;
use crate::version::VERSION_DELEGATION;

/// Bytes of the longest key or name.
const LONGEST: usize = 255;

/// Names of permissions or sets under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The key: `ul$1000`.
    pub who: String,
    /// The names, sorted. In a change that takes permissions away, none means all.
    pub names: Vec<String>,
}

impl Dsl {
    /// The permissions of a dataset and of its ancestors that have any, nearest first, each sorted
    /// by key.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn delegations(&self, dataset: &str) -> Result<Vec<(String, Vec<Grant>)>> {
        let _config = self.read_config();
        let meta = self.meta()?;
        let mut out = Vec::new();
        let mut name = dataset;
        for dir in meta.ancestry(self.find_dir(dataset)?)? {
            let outer = meta.dir(dir)?.delegations;
            if outer != 0 {
                let mut grants = Vec::new();
                for (who, jump) in meta.table(outer)?.numbers()? {
                    let mut names: Vec<String> = meta
                        .table(jump)?
                        .numbers()?
                        .into_iter()
                        .map(|(n, _)| n)
                        .collect();
                    names.sort();
                    grants.push(Grant { who, names });
                }
                grants.sort_by(|a, b| a.who.cmp(&b.who));
                if !grants.is_empty() {
                    out.push((name.to_owned(), grants));
                }
            }
            name = name.rsplit_once('/').map_or("", |(parent, _)| parent);
        }
        Ok(out)
    }

    /// Grants or revokes permissions, all in one txg.
    ///
    /// # Errors
    /// `Refused`: NOENT, INVAL for keys and names, NOTSUP for pools older than version 8, NOSPC,
    /// ROFS.
    pub fn delegate(&self, dataset: &str, changes: &[Grant], allow: bool) -> Result<()> {
        for change in changes {
            let fits = |t: &String| !t.is_empty() && t.len() <= LONGEST;
            if !is_key(&change.who)
                || !change.names.iter().all(fits)
                || allow && change.names.is_empty()
            {
                return Err(Error::refused(
                    Errno::INVAL,
                    format!("'{}' is no permission", change.who),
                ));
            }
        }
        let (name, changes) = (dataset.to_owned(), changes.to_vec());
        let checked = name.clone();
        self.task(
            move |ctx| {
                if ctx.meta.version() < VERSION_DELEGATION {
                    let why = "pool must be upgraded to delegate permissions";
                    return Err(Error::refused(Errno::NOTSUP, why));
                }
                ctx.dsl.find_dir(&checked)?;
                ctx.dsl.check_room(Reserve::Half, 64 * 1024)
            },
            move |ctx| {
                let dir = ctx.dsl.find_dir(&name)?;
                for change in &changes {
                    if allow {
                        ctx.allow(dir, &name, change)?;
                    } else {
                        ctx.unallow(dir, &name, change)?;
                    }
                }
                Ok(())
            },
        )
    }
}

impl Dsl {
    /// Sets which user creates datasets from now on. That user gets the permissions that ancestors
    /// grant at creation.
    pub fn set_creator(&self, uid: u64) {
        self.creator.store(uid, Relaxed);
    }
}

/// Whether a key is well formed.
fn is_key(key: &str) -> bool {
    let mut chars = key.chars();
    let (who, scope, sign) = (chars.next(), chars.next(), chars.next());
    let id = chars.as_str();
    let fits = match who.map(|c| c.to_ascii_lowercase()) {
        Some('u' | 'g') => matches!(scope, Some('l' | 'd')) && id.parse::<u32>().is_ok(),
        Some('e') => matches!(scope, Some('l' | 'd')) && id.is_empty(),
        Some('c') => scope == Some('-') && id.is_empty(),
        Some('s') => scope == Some('-') && id.len() > 1 && id.starts_with('@'),
        _ => false,
    };
    fits && sign == Some('$') && key.len() <= LONGEST
}

impl Ctx<'_> {
    /// Grants the creator of a new directory the permissions that its ancestors grant at creation.
    pub(crate) fn allow_creator(&self, dir: u64) -> Result<()> {
        let uid = self.dsl.creator.load(Relaxed);
        for above in self.meta.ancestry(dir)?.into_iter().skip(1) {
            let outer = self.meta.dir(above)?.delegations;
            if outer == 0 {
                continue;
            }
            let outer = self.meta.table(outer)?;
            for (who, own) in [("c-$", "ul$"), ("C-$", "Ul$")] {
                if let Some(jump) = outer.get_u64(who)? {
                    let own = self.permissions_of(dir, &format!("{own}{uid}"))?;
                    for (name, _) in self.meta.table(jump)?.numbers()? {
                        own.put_u64(self.tx, &name, 0)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The permission names under a key; the table is created if missing.
    fn permissions_of(&self, dir: u64, who: &str) -> Result<Table> {
        let outer = match self.meta.dir(dir)?.delegations {
            0 => {
                let made = Table::create(&self.meta.mos, self.tx, ot::DSL_PERMS, 0)?;
                self.meta.edit_dir(self.tx, dir, |d| d.delegations = made)?;
                made
            }
            there => there,
        };
        let outer = self.meta.table(outer)?;
        let jump = match outer.get_u64(who)? {
            Some(jump) => jump,
            None => {
                let made = Table::create(&self.meta.mos, self.tx, ot::DSL_PERMS, 0)?;
                outer.put_u64(self.tx, who, made)?;
                made
            }
        };
        self.meta.table(jump)
    }

    fn allow(&self, dir: u64, dataset: &str, grant: &Grant) -> Result<()> {
        let jump = self.permissions_of(dir, &grant.who)?;
        for name in &grant.names {
            jump.put_u64(self.tx, name, 0)?;
            self.note_permission("permission update", dir, dataset, &grant.who, name)?;
        }
        Ok(())
    }

    fn unallow(&self, dir: u64, dataset: &str, grant: &Grant) -> Result<()> {
        let outer = self.meta.dir(dir)?.delegations;
        if outer == 0 {
            return Ok(());
        }
        let outer = self.meta.table(outer)?;
        let Some(object) = outer.get_u64(&grant.who)? else {
            return Ok(());
        };
        let jump = self.meta.table(object)?;
        let names = if grant.names.is_empty() {
            jump.numbers()?.into_iter().map(|(n, _)| n).collect()
        } else {
            grant.names.clone()
        };
        for name in &names {
            if jump.remove(self.tx, name)? {
                self.note_permission("permission remove", dir, dataset, &grant.who, name)?;
            }
        }
        if jump.is_empty()? {
            self.free(object)?;
            outer.remove(self.tx, &grant.who)?;
        }
        Ok(())
    }

    fn note_permission(
        &self,
        event: &str,
        dir: u64,
        dataset: &str,
        who: &str,
        name: &str,
    ) -> Result<()> {
        let head = self.meta.dir(dir)?.head_dataset;
        self.log_named(event, dataset, head, &format!("whokey={who} {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::is_key;

    #[test]
    fn keys_name_who_where_and_which_id() {
        for good in [
            "ul$1000", "Ud$0", "gl$50", "el$", "Ed$", "c-$", "C-$", "s-$@a", "S-$@b",
        ] {
            assert!(is_key(good), "{good}");
        }
        for bad in [
            "",
            "u",
            "ul",
            "ul$",
            "ul$x",
            "u-$1",
            "el$1",
            "c-$1",
            "s-$a",
            "s-$@",
            "x-$",
            "ul1000",
            "ul$99999999999",
        ] {
            assert!(!is_key(bad), "{bad}");
        }
    }
}
