//! A name that will be added soon: its leaf is found, and brought near, while the caller does something else.
//!
//! ```text
//!   expect ─► hash, word of the table                    asks for where the leaf's version is
//!   expect_version ─► where that is                      asks for the version, the leaf's header, its bucket
//!   expect_leaf ─► the version                           asks for the free chunks that the entry will take
//!   add_expected ─► the entry
//! ```
//! In a directory of a million names each name's leaf lies somewhere else, in none of the processor's caches, and an add waits for one line
//! of it after the other: half a microsecond, a fifth of making a file. Who makes a file has its object to make before the name.
//!
//! Where the leaf was changed in this txg before, a way leads from the hash to the version ([`super::ways`]), and `expect_version` has nothing to do.
//!
//! It is a hint. What was found is used while the object's stamp ([`Dnode::stamp`]) is the one of then; else the add finds it again.

use std::sync::Arc;

use zuse_base::Txg;

use super::Zap;
use super::fat::{self, Target};
use super::header::Header;
use super::key::{self, Ask};
use super::known::{Known, What};
use super::leaf::Leaf;
use super::ways::{MANY, Ways};
use crate::dirty::{Content, DirtyBlock};
use crate::dnode::Dnode;
use crate::tx::Tx;

/// What was found out about a name that will be added.
#[derive(Default)]
pub struct Expected<'n> {
    name: &'n [u8],
    /// The object's stamp then; 0 if nothing was found out.
    stamp: u64,
    target: Target,
    /// The leaf is known by a way, of which only `expect_leaf` sees where it ends.
    by_way: bool,
    own: Option<(Txg, Arc<DirtyBlock>)>,
}

impl<'n> Expected<'n> {
    /// What is asked for a name: with its hash, if it is the name that was expected and that still holds.
    #[inline]
    pub(super) fn ask<'a>(&self, dnode: &Dnode, name: &'a [u8]) -> Ask<'a> {
        if self.holds(dnode) && self.name == name {
            Ask::Hashed(name, self.target.hash)
        } else {
            Ask::Name(name)
        }
    }

    /// Whether something was found out that still holds.
    #[inline]
    pub(super) fn holds(&self, dnode: &Dnode) -> bool {
        self.stamp != 0 && self.stamp == dnode.stamp()
    }

    /// Where the name belongs, if that is known and still holds.
    #[inline]
    pub(super) fn target(&self, dnode: &Dnode) -> Option<&Target> {
        let is_sure = !self.by_way || self.own.is_some();
        (is_sure && self.holds(dnode)).then_some(&self.target)
    }

    /// Whether a way led to the leaf.
    #[inline]
    pub(super) fn came_by_way(&self) -> bool {
        self.by_way && self.own.is_some()
    }

    /// The leaf as it is changed in a txg, and its number.
    #[inline]
    pub(super) fn own(&self, txg: Txg) -> Option<(u64, &DirtyBlock)> {
        let own = self.own.as_ref().filter(|(of, _)| *of == txg);
        own.map(|(_, block)| (self.target.leaf, &**block))
    }
}

impl Zap {
    /// Asks the memory for what adding this name will need first, where that is known without waiting.
    pub fn expect<'n>(&self, name: &'n [u8]) -> Expected<'n> {
        let Ok(known) = self.shared.lock.try_read() else {
            return Expected::default();
        };
        let stamp = self.dnode.stamp();
        if let What::Fat { header, .. } = known.fresh(&self.dnode)
            && name.len() < known.longest
            // What goes wrong from here on goes wrong again in the add, which says so.
            && let Ok(hash) = key::hash_of(header, name)
        {
            let way = known.ways.as_ref().and_then(|w| w.lead(hash, header));
            let by_way = way.is_some();
            let target = match way {
                Some(target) => target,
                None => fat::expect(&self.blocks(), header, hash).unwrap_or_default(),
            };
            if target.leaf != 0 {
                return Expected {
                    name,
                    stamp,
                    target,
                    by_way,
                    own: None,
                };
            }
        }
        Expected::default()
    }

    /// Asks for the leaf, a while after [`Self::expect`].
    pub fn expect_version(&self, expected: &Expected<'_>) {
        if !expected.by_way && expected.holds(&self.dnode) {
            let target = &expected.target;
            self.dnode.expect_block(target.leaf, target.head);
        }
    }

    /// Asks for the rest, a while after [`Self::expect_version`] and before [`Self::add_expected`].
    pub fn expect_leaf(&self, tx: &Tx, expected: &mut Expected<'_>) {
        if !expected.holds(&self.dnode) {
            return;
        }
        let Some(own) = self.expected_version(tx, expected) else {
            return;
        };
        let (hash, depth) = (expected.target.hash, expected.target.depth);
        let mut owned = !expected.by_way;
        if let Ok(content) = own.content.try_read()
            && let Content::Dirty { bytes, .. } = &*content
            && let Ok(leaf) = Leaf::parse(bytes)
        {
            leaf.expect_add(hash, depth);
            // Where a way ends may be the half of a leaf that was split.
            if expected.by_way && leaf.must_own(hash).is_ok() {
                expected.target.depth = leaf.prefix_len();
                owned = true;
            }
        }
        if owned {
            expected.own = Some((tx.txg(), own));
        }
    }

    /// The version of the leaf that belongs to tx's txg.
    #[inline]
    fn expected_version(&self, tx: &Tx, expected: &Expected<'_>) -> Option<Arc<DirtyBlock>> {
        if !expected.by_way {
            return self.dnode.owned(tx, expected.target.leaf);
        }
        let known = self.shared.lock.try_read().ok()?;
        let ways = known
            .ways
            .as_ref()
            .filter(|_| expected.holds(&self.dnode))?;
        ways.go(expected.target.hash, tx.txg())
    }

    /// After an add: the next one of almost the same hash finds the leaf by a way.
    pub(super) fn note_way(&self, known: &mut Known, tx: &Tx, header: &Header, hash: u64) {
        if header.leafs < MANY {
            return;
        }
        let Ok(target) = fat::expect(&self.blocks(), header, hash) else {
            return;
        };
        let Some(block) = self.dnode.owned(tx, target.leaf) else {
            return;
        };
        if known.ways.as_ref().is_none_or(|w| !w.fit(tx.txg(), header)) {
            known.ways = Some(Box::new(Ways::new(tx.txg(), header)));
        }
        if let Some(ways) = &mut known.ways {
            ways.note(&target, &block);
        }
    }
}

#[cfg(test)]
mod tests;
