//! A name that will be added soon: its leaf is found and prefetched into the processor's caches
//! while the caller does something else.
//!
//! ```text
//!   expect ─► hash, word of the table                    prefetches the address of the leaf's version
//!   expect_version ─► where that is                      prefetches the version, the leaf's header, its bucket
//!   expect_leaf ─► the version                           prefetches the free chunks that the entry will take
//!   add_expected ─► the entry
//! ```
//! In a directory of a million names, a name's leaf is rarely in the processor's caches. An add
//! would wait for one cache line after the other. That takes half a microsecond, a fifth of
//! creating a file. A caller that creates a file can create the object during that time.
//!
//! It is a hint. It is used while the object's stamp ([`Dnode::stamp`]) is unchanged; otherwise the
//! add searches again.

use std::sync::Arc;

use zuse_base::Txg;

use super::Zap;
use super::fat::{self, Target};
use super::key::{self, Ask};
use super::known::What;
use super::leaf::Leaf;
use crate::dirty::{Content, DirtyBlock};
use crate::dnode::Dnode;
use crate::tx::Tx;

/// What is known about a name that will be added.
#[derive(Default)]
pub struct Expected<'n> {
    name: &'n [u8],
    /// The object's stamp at that time; 0 if nothing is known.
    stamp: u64,
    pub(super) target: Target,
    own: Option<(Txg, Arc<DirtyBlock>)>,
}

impl<'n> Expected<'n> {
    /// The query for a name. It includes the hash, if this is the expected name and the stamp is
    /// unchanged.
    #[inline]
    pub(super) fn ask<'a>(&self, dnode: &Dnode, name: &'a [u8]) -> Ask<'a> {
        if self.holds(dnode) && self.name == name {
            Ask::Hashed(name, self.target.hash)
        } else {
            Ask::Name(name)
        }
    }

    /// Whether something is known and still valid.
    #[inline]
    pub(super) fn holds(&self, dnode: &Dnode) -> bool {
        self.stamp != 0 && self.stamp == dnode.stamp()
    }

    /// The dirty version of the leaf in a txg, and its number.
    #[inline]
    pub(super) fn own(&self, txg: Txg) -> Option<(u64, &DirtyBlock)> {
        let own = self.own.as_ref().filter(|(of, _)| *of == txg);
        own.map(|(_, block)| (self.target.leaf, &**block))
    }
}

impl Zap {
    /// Prefetches the memory that adding this name will need first, as far as that is known without
    /// waiting.
    pub fn expect<'n>(&self, name: &'n [u8]) -> Expected<'n> {
        let Some(known) = self.shared.lock.try_read() else {
            return Expected::default();
        };
        let stamp = self.dnode.stamp();
        if let What::Fat { header, .. } = known.fresh(&self.dnode)
            && name.len() < known.longest
            // An error is ignored here: the add has the same error and reports it.
            && let Ok(hash) = key::hash_of(header, name)
            && let Ok(target) = fat::expect(&self.blocks(), header, hash)
            && target.leaf != 0
        {
            return Expected {
                name,
                stamp,
                target,
                own: None,
            };
        }
        Expected::default()
    }

    /// Asks for the leaf, a while after [`Self::expect`].
    pub fn expect_version(&self, expected: &Expected<'_>) {
        if expected.holds(&self.dnode) {
            let target = &expected.target;
            self.dnode.expect_block(target.leaf, target.head);
        }
    }

    /// Prefetches the rest, some time after [`Self::expect_version`] and before
    /// [`Self::add_expected`].
    pub fn expect_leaf(&self, tx: &Tx, expected: &mut Expected<'_>) {
        if !expected.holds(&self.dnode) {
            return;
        }
        let Some(own) = self.dnode.owned(tx, expected.target.leaf) else {
            return;
        };
        if let Some(content) = own.content.try_read()
            && let Content::Dirty { bytes, .. } = &*content
            && let Ok(leaf) = Leaf::parse(bytes)
        {
            leaf.expect_add(expected.target.hash, expected.target.depth);
        }
        expected.own = Some((tx.txg(), own));
    }
}

#[cfg(test)]
mod tests;
