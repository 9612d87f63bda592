//! Space and objects by user, group and project (chapter 02 §14.2 of the format notes).
//!
//! Each changed file counts by the difference of its old and new state; the old state counts only
//! if its dnode flags say so. The sums of a txg are added to the three accounting ZAPs before the
//! objset block is written. So a snapshot of that txg has consistent numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse_base::{ObjectId, Result};
use zuse_format::dnode::{FLAG_USEROBJUSED_ACCOUNTED, FLAG_USERUSED_ACCOUNTED};
use zuse_format::object_type;
use zuse_format::objset::{OBJSET_PROJECT_QUOTA, OBJSET_USEROBJ_ACCOUNTING};

use super::Objset;
use crate::dirty::Synced;
use crate::dnode::sync::SyncedObject;
use crate::dnode::{Dnode, DnodeSpec, State};
use crate::tx::Tx;
use crate::zap::{Zap, ZapOptions};

/// Changes of one txg: per kind (user, group, project) and id: bytes, objects.
#[derive(Default)]
pub(super) struct Sums([BTreeMap<u64, (i64, i64)>; 3]);

impl Sums {
    fn count(&mut self, object: &Synced, sign: i64, objects: bool) {
        let Some(ids) = crate::sa::owner_ids(object.head.bonus_type, &object.head.bonus) else {
            return;
        };
        // The dnode itself counts as 512 bytes (02-blocks §14.2).
        let bytes = sign * (512 + object.used as i64);
        for (sums, id) in self.0.iter_mut().zip([ids.uid, ids.gid, ids.projid]) {
            let sum = sums.entry(id).or_default();
            sum.0 += bytes;
            sum.1 += if objects { sign } else { 0 };
        }
    }

    /// Adds other sums.
    pub fn join(&mut self, other: Self) {
        for (sums, others) in self.0.iter_mut().zip(other.0) {
            for (id, (bytes, objects)) in others {
                let sum = sums.entry(id).or_default();
                sum.0 += bytes;
                sum.1 += objects;
            }
        }
    }

    /// Adds the changes of one object in a sync.
    pub fn add(&mut self, change: &SyncedObject, objects: bool) {
        if let Some(before) = change
            .before
            .as_deref()
            .filter(|b| b.flags & FLAG_USERUSED_ACCOUNTED != 0)
        {
            self.count(before, -1, before.flags & FLAG_USEROBJUSED_ACCOUNTED != 0);
        }
        if let Some(after) = change.after.as_deref() {
            self.count(after, 1, objects);
        }
    }
}

impl Objset {
    /// Dnode flags that say a changed object was counted.
    pub(super) fn accounting_flags(&self) -> u8 {
        if !self.accounts_users() {
            return 0;
        }
        FLAG_USERUSED_ACCOUNTED
            | if self.counted() & OBJSET_USEROBJ_ACCOUNTING != 0 {
                FLAG_USEROBJUSED_ACCOUNTED
            } else {
                0
            }
    }

    /// Adds the sums of a txg to the accounting objects.
    pub(super) fn apply_accounting(self: &Arc<Self>, tx: &Tx, sums: Sums) -> Result<()> {
        let flags = self.counted();
        for (which, sums) in sums.0.into_iter().enumerate() {
            if which == 2 && flags & OBJSET_PROJECT_QUOTA == 0 {
                continue;
            }
            if sums.values().all(|(b, o)| *b == 0 && *o == 0) {
                continue;
            }
            let zap = Zap::open(&self.own_accounting_object(tx, which)?)?;
            for (id, (bytes, objects)) in sums {
                if bytes != 0 {
                    zap.increment(tx, format!("{id:x}").as_bytes(), bytes)?;
                }
                if objects != 0 {
                    zap.increment(tx, format!("obj-{id:x}").as_bytes(), objects)?;
                }
            }
        }
        Ok(())
    }

    fn own_accounting_object(self: &Arc<Self>, tx: &Tx, which: usize) -> Result<Arc<Dnode>> {
        if let Some(there) = self.accounting_object(which) {
            return Ok(there);
        }
        let mut state = State::default();
        let spec = DnodeSpec::new(object_type::USERGROUP_USED);
        let mut d = crate::dirty::DirtyTxg::new(tx.txg(), spec.head(&self.core.settings()));
        d.born = true;
        state.dirty.push(d);
        let dnode = Dnode::new(self.core.clone(), ObjectId(u64::MAX - which as u64), state);
        Zap::create_in(&dnode, tx, &ZapOptions::default())?;
        self.special.write()[which] = Some(dnode.clone());
        Ok(dnode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_several_batches_are_added() {
        let of = |kind: usize, id, sum| {
            let mut sums = Sums::default();
            sums.0[kind].insert(id, sum);
            sums
        };
        let mut all = of(0, 7, (100, 1));
        all.join(of(0, 7, (-30, -1)));
        all.join(of(0, 8, (5, 1)));
        all.join(of(2, 7, (9, 0)));
        let expected = [
            BTreeMap::from([(7, (70, 0)), (8, (5, 1))]),
            BTreeMap::new(),
            BTreeMap::from([(7, (9, 0))]),
        ];
        assert_eq!(all.0, expected);
    }
}
