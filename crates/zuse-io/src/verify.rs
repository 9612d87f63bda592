//! Verifying a block with all its copies, for a scan. Every copy of a pointer is read from every
//! leaf, with gang headers and members. Wrong or missing copies are rewritten.
//!
//! - Bytes are written only to places that were not freed since the watch began
//!   ([`Pipeline::watch_frees`]). The caller holds a transaction, and freed space is not allocated
//!   again before its txg is on disk. So no other block can get such a place before the write has
//!   ended.
//! - The cache is not used: a scan verifies what the devices hold.

use std::fmt::Display;

use zuse_base::{Error, Result};
use zuse_codec::{open_trailer, open_trailer_truncated};
use zuse_format::{BlockPointer, BpKind, BpLimits, Dva};
use zuse_vdev::{BlockCheck, Verified};

use crate::Pipeline;
use crate::gang::{MAX_DEPTH, is_truncated};
use crate::pipeline::address_of;

impl Pipeline {
    /// From now on freed places are noted.
    pub fn watch_frees(&self) {
        self.freed.watch();
    }

    /// Freed places are not noted any more.
    pub fn unwatch_frees(&self) {
        self.freed.unwatch();
    }

    /// Whether so much was freed that the watch has overflowed.
    pub fn watch_is_blind(&self) -> bool {
        self.freed.is_blind()
    }

    /// Whether a block whose pointer was valid when the watch began may have been freed since.
    pub fn freed_since_watch(&self, bp: &BlockPointer) -> bool {
        self.freed.since_watch(bp)
    }

    /// Whether a resilver has to verify a block, because some leaf may lack it. For gang blocks and
    /// blocks on removed vdevs the pointer alone does not tell.
    pub fn may_lack(&self, bp: &BlockPointer) -> bool {
        bp.is_gang()
            || bp
                .dvas()
                .any(|dva| self.vdevs.may_lack(address_of(&dva, bp)))
    }

    /// Verifies a block: every copy, or with `lacking` only those on vdevs that may lack it.
    /// Returns its stored bytes too, unless nothing had to be read. `is_live` is called before
    /// anything is counted or written.
    ///
    /// # Errors
    /// `Corrupt` for an invalid pointer.
    pub fn verify_block(
        &self,
        bp: &BlockPointer,
        lacking: bool,
        is_live: &dyn Fn() -> bool,
        place: &dyn Display,
    ) -> Result<(Verified, Vec<u8>)> {
        if bp.kind() != BpKind::Normal {
            return Err(Error::corrupt(place.to_string(), "no block is stored"));
        }
        self.verify_tree(bp, lacking, is_live, place, 0)
    }

    fn verify_tree(
        &self,
        bp: &BlockPointer,
        lacking: bool,
        is_live: &dyn Fn() -> bool,
        place: &dyn Display,
        depth: u32,
    ) -> Result<(Verified, Vec<u8>)> {
        bp.validate(BpLimits::default())
            .map_err(|e| Error::corrupt(place.to_string(), e))?;
        if bp.is_gang() {
            return self.verify_gang(bp, is_live, place, depth);
        }
        let asked = |dva: &Dva| !lacking || self.vdevs.may_lack(address_of(dva, bp));
        let mut verify = |bytes: &[u8]| self.is_block(bp, bytes);
        let psize = bp.psize() as usize;
        let check = BlockCheck {
            verify: &mut verify,
            is_live,
            fills: lacking,
        };
        self.verify_copies(bp, psize, &asked, check, place)
    }

    /// Verifies the copies of a pointer, and rewrites a bad copy from a good one.
    fn verify_copies(
        &self,
        bp: &BlockPointer,
        size: usize,
        asked: &dyn Fn(&Dva) -> bool,
        mut check: BlockCheck<'_>,
        place: &dyn Display,
    ) -> Result<(Verified, Vec<u8>)> {
        let mut all = Verified::default();
        let (mut good, mut bad) = (None, Vec::new());
        let mut buf = Vec::new();
        for dva in bp.dvas().filter(|dva| asked(dva)) {
            let at = address_of(&dva, bp);
            match self.vdevs.verify_block(at, &mut buf, size, &mut check) {
                Ok(verified) if verified.good => {
                    all.add(verified);
                    // One good copy is kept, to repair the others.
                    good.get_or_insert_with(|| std::mem::take(&mut buf));
                }
                Ok(verified) => bad.push((at, verified)),
                Err(Error::Corrupt { .. }) => bad.push((at, Verified::default())),
                Err(e) => return Err(e),
            }
        }
        if good.is_none() && bad.len() < bp.dvas().count() {
            // The remaining copies.
            good = match bad.is_empty() || bp.is_gang() {
                true => Some(Vec::new()),
                false => self.read_stored(bp, place).ok(),
            };
        }
        all.good = good.is_some();
        for (at, verified) in bad {
            // Asked right before the write: the place may have been freed since the copies were
            // read.
            let right = good
                .as_deref()
                .filter(|_| !verified.stale && (check.is_live)());
            match right.map(|bytes| self.vdevs.write(at, bytes)) {
                Some(Ok(())) => all.repaired += size as u64,
                _ => all.add(verified),
            }
        }
        Ok((all, good.unwrap_or_default()))
    }

    /// The header first, with all its copies, then the members in their order.
    fn verify_gang(
        &self,
        bp: &BlockPointer,
        is_live: &dyn Fn() -> bool,
        place: &dyn Display,
        depth: u32,
    ) -> Result<(Verified, Vec<u8>)> {
        if depth >= MAX_DEPTH {
            return Err(Error::endless(
                place.to_string(),
                "gang headers are nested too deep",
            ));
        }
        let Ok((members, size)) = self.read_header(bp, place) else {
            // A header that was freed meanwhile is not damaged.
            let stale = !is_live();
            return Ok((
                Verified {
                    stale,
                    ..Verified::default()
                },
                Vec::new(),
            ));
        };
        let first = bp.dva(0);
        let verifier = [
            u64::from(first.vdev()),
            first.offset(),
            bp.physical_birth(),
            0,
        ];
        let mut verify = |bytes: &[u8]| match is_truncated(bp) {
            true => open_trailer_truncated(bytes, verifier).is_ok(),
            false => open_trailer(bytes, verifier).is_ok(),
        };
        let all = &|_: &Dva| true;
        let check = BlockCheck {
            verify: &mut verify,
            is_live,
            fills: false,
        };
        let (mut all, _) = self.verify_copies(bp, size as usize, all, check, place)?;
        let mut stored = Vec::new();
        for member in members.iter().filter(|m| !m.is_hole()) {
            if member.kind() != BpKind::Normal {
                let what = "an embedded pointer in a gang header";
                return Err(Error::corrupt(place.to_string(), what));
            }
            let (verified, bytes) = self.verify_tree(member, false, is_live, place, depth + 1)?;
            all.good &= verified.good;
            all.add(verified);
            stored.extend_from_slice(&bytes);
        }
        Ok((all, stored))
    }
}
