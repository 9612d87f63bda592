//! The commit of a txg: flush, even labels, uberblock, odd labels (chapter 01 §4.1 of the format
//! notes).
//!
//! Crash rules
//! - Before the uberblock, the odd labels match the old uberblock. Blocks of the new txg are free
//!   space then, by the space maps of the old one.
//! - After the uberblock, the even labels match it.
//! - No uberblock is written after a panic that may have left an inconsistent state. The tripwire
//!   is checked before the first label and right before the uberblock.
//! - The flush before the uberblock makes every block of its tree durable. Without it a power cut
//!   could leave an uberblock whose blocks never reached the disk.

use zuse_base::{Error, Event, Result, Txg};
use zuse_format::uberblock::{MMP_MAGIC, SPA_VERSION, Uberblock};
use zuse_vdev::{LabelPair, PoolConfig, UberblockTargets};

use crate::Pool;

impl Pool {
    /// Makes the older state that was opened the newest one, before anything is written on top of
    /// it. `checkpoint`: the state is marked as a rewound checkpoint until the first txg.
    pub(crate) fn commit_rewind(&self, txg: Txg, checkpoint: bool) -> Result<()> {
        // The first ordinary txg has 0 there again (01-pool §8).
        let of = if checkpoint {
            self.uberblock.lock().txg
        } else {
            0
        };
        let config = self.config_for(txg);
        self.commit_as(txg, Some(config), of)
    }

    pub(crate) fn commit(&self, txg: Txg, config: Option<PoolConfig>) -> Result<()> {
        let last = self.uberblock.lock().txg;
        // The ring is ordered by txg: an uberblock that is not newer would lose or hide this one.
        assert!(
            txg.0 > last,
            "uberblock of {txg:?} after that of txg {last}"
        );
        self.commit_as(txg, config, 0)
    }

    fn commit_as(&self, txg: Txg, config: Option<PoolConfig>, checkpoint_txg: u64) -> Result<()> {
        let last = *self.uberblock.lock();
        let uberblock = Uberblock {
            version: self.version(),
            txg: txg.0,
            guid_sum: self.vdevs.guid_sum(),
            // Not before the last one: of equal txgs the later time wins (01-pool §3.3).
            timestamp: self.env.clock.now().unsigned_secs().max(last.timestamp),
            root: self.mos().root(),
            software_version: SPA_VERSION,
            mmp_magic: MMP_MAGIC,
            mmp_delay: 0,
            mmp_config: 0,
            checkpoint_txg,
            raidz_reflow: last.raidz_reflow,
        };
        // A root that did not change in this txg stays as it was read.
        let born = uberblock.root.logical_birth();
        if born > txg.0 {
            return Err(Error::contradiction(
                format!("pool {}, txg {}", self.name(), txg.0),
                format!("the root was born in txg {born}"),
            ));
        }
        // Gathered writes go out first: the flush below covers only what the devices have.
        self.io.drain()?;
        debug_assert!(
            self.io.is_drained(),
            "blocks are on their way to the devices"
        );
        self.suspension.check_no_panic()?;
        // A failed flush cannot be retried: the host may have dropped the data.
        self.vdevs.flush_written()?;
        // A leaf that missed a write of its siblings is read last from now on.
        for guid in self.vdevs.take_missed() {
            if let Some(leaf) = self.vdevs.leaf(guid) {
                leaf.set_outdated(true);
            }
            match self.dtls.note_late(guid, txg) {
                true => self.config_changed(),
                // Its missing txgs are recorded already.
                false => self.set_leaf_missing(guid),
            }
        }
        let targets = match &config {
            Some(config) => {
                self.io
                    .insist(|| self.vdevs.commit_labels(LabelPair::Even, config, None))?;
                UberblockTargets::All
            }
            None => UberblockTargets::From(self.env.entropy.u64() as u32),
        };
        // Up to here the old uberblock leads to the whole old state; from here on there is no way
        // back.
        self.suspension.check_no_panic()?;
        self.io
            .insist(|| self.vdevs.commit_uberblock(&uberblock, false, targets))?;
        if let Some(config) = &config {
            self.io
                .insist(|| self.vdevs.commit_labels(LabelPair::Odd, config, None))?;
        }
        *self.uberblock.lock() = uberblock;
        if config.is_some() {
            self.events().post(Event::system("config_sync"));
        }
        Ok(())
    }
}
