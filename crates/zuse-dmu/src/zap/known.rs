//! Facts from the last access to block 0, kept next to the ZAP's lock.
//!
//! ```text
//!   fresh:  look-up ─► (nothing of block 0) ─► table block ─► leaf          add ─► leaf, header in place
//!   else:   block 0 is found, checked and parsed first, as ever
//! ```
//! They are valid while the object's stamp ([`Dnode::stamp`]) is unchanged. Every change of the
//! object changes the stamp, a sync too. A change of the ZAP itself renews the facts at its end,
//! under the lock.
//!
//! Memory: the header's words and two references for each open ZAP. Blocks are held weakly: only
//! the cache and the txg keep them in memory. An embedded block is never in the cache. If it has at
//! most [`SMALL`] bytes it is kept here, so that it is not decompressed for each look-up. The tree
//! is held too. The tree of an idle ZAP may be an old one, but it holds pointers only, no block.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use zuse_base::Txg;
use zuse_io::Block;

use super::header::Header;
use super::micro::MicroHeader;
use super::{Kind, Zap, kind};
use crate::dirty::{DirtyBlock, Synced};
use crate::dnode::Dnode;

/// After this many look-ups one goes through the cache for a micro ZAP's block. That tells the
/// cache that the block is in use.
const USES: u32 = 32;

/// Largest embedded block that is kept.
const SMALL: usize = 1024;

/// What is known about block 0.
#[derive(Default)]
pub(super) enum What {
    #[default]
    Nothing,
    /// A fat ZAP; with the tree if nothing of the object is dirty.
    Fat {
        header: Header,
        tree: Option<Arc<Synced>>,
    },
    /// A micro ZAP that is not dirty.
    Micro {
        header: MicroHeader,
        block: Weak<Block>,
        uses: AtomicU32,
        /// The block itself, if the cache does not have it.
        kept: Option<Arc<Block>>,
    },
    /// A micro ZAP whose block was changed in the txg of [`Known::own`].
    Changed { header: MicroHeader },
}

/// What is known about a ZAP.
#[derive(Default)]
pub(super) struct Known {
    stamp: u64,
    /// The stamp when a look-up last had no valid facts.
    missed: AtomicU64,
    what: What,
    /// Longest name with its NUL in the fat form.
    pub(super) longest: usize,
    /// The version of block 0 that belongs to a txg.
    own: Option<(Txg, Weak<DirtyBlock>)>,
}

impl Known {
    /// The facts, if they are still valid.
    #[inline]
    pub(super) fn fresh(&self, dnode: &Dnode) -> &What {
        if self.stamp == dnode.stamp() {
            &self.what
        } else {
            &What::Nothing
        }
    }

    /// The dirty version of block 0 in a txg, if it is known and valid.
    #[inline]
    pub(super) fn own(&self, dnode: &Dnode, txg: Txg) -> Option<Arc<DirtyBlock>> {
        match &self.own {
            Some((of, block)) if *of == txg && self.stamp == dnode.stamp() => block.upgrade(),
            _ => None,
        }
    }

    /// A look-up had no valid facts. Returns whether to learn them now: nothing has changed since
    /// the look-up before.
    pub(super) fn missed(&self, dnode: &Dnode) -> bool {
        let now = dnode.stamp();
        self.missed.swap(now, Relaxed) == now && self.stamp != now
    }

    /// Called after a change, by the holder of the lock.
    pub(super) fn changed(
        &mut self,
        dnode: &Dnode,
        longest: usize,
        what: What,
        own: Option<(Txg, &Arc<DirtyBlock>)>,
    ) {
        self.what = what;
        self.longest = longest;
        self.own = own.map(|(txg, block)| (txg, Arc::downgrade(block)));
        self.stamp = dnode.stamp();
    }

    /// As [`Self::changed`], if block 0 is still the same version.
    #[inline]
    pub(super) fn renew(&mut self, dnode: &Dnode) {
        self.stamp = dnode.stamp();
    }

    /// As [`Self::renew`], with the current header.
    #[inline]
    pub(super) fn renew_fat(&mut self, dnode: &Dnode, header: Header) {
        self.what = What::Fat { header, tree: None };
        self.stamp = dnode.stamp();
    }
}

impl What {
    /// The cached block of a micro ZAP, by its shortcut.
    #[inline]
    pub(super) fn micro(&self) -> Option<(MicroHeader, Arc<Block>)> {
        let What::Micro {
            header,
            block,
            uses,
            kept,
        } = self
        else {
            return None;
        };
        if let Some(block) = kept {
            return Some((*header, block.clone()));
        }
        let left = uses.load(Relaxed);
        if left == 0 {
            uses.store(USES, Relaxed);
            return None;
        }
        uses.store(left - 1, Relaxed);
        Some((*header, block.upgrade()?))
    }
}

impl Zap {
    /// Reads block 0 for later look-ups; does nothing if that would wait or fail.
    #[cold]
    pub(super) fn learn(&self) {
        let Some(mut known) = self.shared.lock.try_write() else {
            return;
        };
        let (stamp, tree) = self.dnode.stamp_and_tree();
        *known = Known::default();
        let longest = self.longest();
        // If nothing can be known, that is remembered too.
        known.what = self.look(tree).ok().flatten().unwrap_or_default();
        known.longest = longest;
        known.stamp = stamp;
    }

    fn look(&self, tree: Option<Arc<Synced>>) -> zuse_base::Result<Option<What>> {
        let header = self
            .dnode
            .with_block_by_shortcut(0, |view| match kind(view.bytes()) {
                Ok(Kind::Fat) => Header::parse(view.bytes()).ok(),
                _ => None,
            })?;
        if let Some(header) = header {
            return Ok(Some(What::Fat { header, tree }));
        }
        // An encrypted block has no shortcut, because it is looked up with its key only.
        let Some(tree) = tree.filter(|_| !self.dnode.is_encrypted()) else {
            return Ok(None);
        };
        let Some(block) = self.dnode.read_tree(&tree, 0)? else {
            return Ok(None);
        };
        let is_micro = kind(block.bytes()).is_ok_and(|k| k == Kind::Micro);
        let Ok(header) = MicroHeader::parse(block.bytes()) else {
            return Ok(None);
        };
        let in_pointer = tree.levels == 1 && tree.root(0).is_some_and(|bp| bp.is_embedded());
        let kept = (in_pointer && block.bytes().len() <= SMALL).then(|| block.clone());
        Ok(is_micro.then(|| What::Micro {
            header,
            block: Arc::downgrade(&block),
            uses: AtomicU32::new(USES),
            kept,
        }))
    }
}

#[cfg(test)]
mod tests;
