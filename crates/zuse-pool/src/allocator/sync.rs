//! The allocator's part of a sync.

use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Result, Span, Txg};

use super::Allocator;
use super::vdev::VdevSpace;
use crate::metaslab::SyncPass;
use crate::space_map::MapWriter;

/// Space that became allocatable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The vdev.
    pub vdev: u32,
    /// The bytes.
    pub span: Span,
}

impl Allocator {
    /// Whether there were allocations, frees or claims in `txg`, or log entries have to be flushed.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        let spaces = self.spaces();
        let mut removed = spaces.removed.values();
        spaces
            .vdevs
            .values()
            .any(|vdev| vdev.is_dirty(txg) || vdev.kept.is_dirty())
            || removed.any(|removed| removed.obsolete.is_dirty())
    }

    /// Whether log space maps of an earlier writer wait for the first writable txg.
    pub fn has_logs(&self) -> bool {
        self.logs.lock().is_some()
    }

    /// Creates the metaslab arrays of new vdevs, so that the configuration can name them. Returns
    /// whether any was created.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    pub fn create_arrays(&self, writer: &dyn MapWriter) -> Result<bool> {
        let mut made = false;
        for vdev in self
            .spaces()
            .vdevs
            .values()
            .filter(|vdev| vdev.array().is_none())
        {
            // Before the configuration is written, which names the arrays.
            vdev.set_array(writer.create_array()?);
            made = true;
        }
        Ok(made)
    }

    /// Appends the changes of the writer's txg since its last pass. Returns whether anything was
    /// written.
    ///
    /// # Errors
    /// The MOS cannot be changed. The txg must not be committed then; another call retries.
    pub fn sync_pass(&self, writer: &dyn MapWriter) -> Result<bool> {
        let options = self.options();
        // Counted here, because this is called more often than the MOS is written.
        let pass = self.next_pass(writer.txg());
        let how = SyncPass {
            writer,
            pass,
            shape: options.shape(),
            two_words: options.two_words,
        };
        let mut written = false;
        let spaces = self.spaces();
        for vdev in spaces.vdevs.values() {
            written |= self.sync_vdev(vdev, how)?;
            let (wrote, made) = vdev.kept.sync(how)?;
            self.count_maps(made);
            written |= wrote;
        }
        for removed in spaces.removed.values() {
            let (wrote, made) = removed.obsolete.sync(how)?;
            self.count_maps(made);
            // The feature `obsolete_counts` counts these maps (01b §6).
            self.obsolete_delta.fetch_add(made.maps, Relaxed);
            written |= wrote;
        }
        // The logs may be freed only when every metaslab has its entries.
        let mut logs = self.logs.lock();
        if let Some(state) = &*logs {
            let spaces = self.spaces();
            let waiting = spaces.vdevs.values().flat_map(|vdev| vdev.metaslabs());
            assert!(
                !waiting.into_iter().any(|m| m.has_unflushed()),
                "the logs go before their entries are in the maps"
            );
            self.histogram_delta
                .fetch_sub(state.retire(writer)?, Relaxed);
            *logs = None;
            written = true;
        }
        Ok(written)
    }

    /// Drops the list of metaslabs with changes.
    #[cfg(test)]
    pub(crate) fn forget_work(&self, txg: Txg) {
        for vdev in self.spaces().vdevs.values() {
            vdev.take_dirty(txg);
        }
    }

    fn next_pass(&self, txg: Txg) -> u32 {
        let mut pass = self.pass.lock();
        *pass = if pass.0 == txg {
            (txg, pass.1.saturating_add(1))
        } else {
            (txg, 1)
        };
        pass.1
    }

    fn sync_vdev(&self, vdev: &VdevSpace, how: SyncPass<'_>) -> Result<bool> {
        let txg = how.writer.txg();
        let metaslabs = vdev.metaslabs();
        let mut written = false;
        let mut dirty = vdev.take_dirty(txg).into_iter();
        let mut one = |index: usize| {
            let Some(metaslab) = metaslabs.get(index) else {
                return Ok(());
            };
            // Some frees were recorded while the tree was not loaded. Checking that the space was
            // allocated takes the tree.
            if metaslab.frees_unseen(txg) {
                metaslab.load(&*self.store())?;
            }
            let done = metaslab.sync(how)?;
            if done.defers {
                // Its deferred space advances with the next txg on disk, even without other
                // changes.
                vdev.mark_defers(index);
            }
            written |= done.appended;
            if let Some(object) = done.unlisted {
                let array = match vdev.array() {
                    Some(array) => array,
                    None => how.writer.create_array()?,
                };
                vdev.set_array(array);
                how.writer
                    // The array names the map for the next import, in the txg that created it.
                    .write_at(array, index as u64 * 8, &object.0.to_le_bytes())?;
                self.histogram_delta
                    .fetch_add(i64::from(metaslab.set_listed()), Relaxed);
                written = true;
            }
            Ok(())
        };
        while let Some(index) = dirty.next() {
            if let Err(error) = one(index) {
                // The rest stays dirty for a retry.
                [index]
                    .into_iter()
                    .chain(dirty)
                    .for_each(|index| vdev.mark_dirty(txg, index));
                return Err(error);
            }
        }
        Ok(written)
    }

    /// The change of the reference count of `spacemap_histogram` since the last call.
    pub fn take_histogram_delta(&self) -> i64 {
        self.histogram_delta.swap(0, Relaxed)
    }

    /// `txg` is on disk: space freed two committed txgs before becomes allocatable. Call it once
    /// for each txg that wrote an uberblock. Returns the space if requested
    /// ([`Allocator::set_report_released`]). Before trimming, exclude it from allocation with
    /// [`Allocator::hold_free`].
    pub fn sync_done(&self, txg: Txg) -> Vec<Released> {
        debug_assert!(
            !self.is_dirty(txg),
            "txg {txg} is on disk, but has changes that are not"
        );
        #[cfg(debug_assertions)]
        for vdev in self.spaces().vdevs.values() {
            for metaslab in vdev.metaslabs() {
                let region = metaslab.region();
                assert!(
                    metaslab.is_synced(txg),
                    "{region}: txg {txg} is on disk without what changed here"
                );
            }
        }
        let report = self.report_released.load(Relaxed);
        let mut released = Vec::new();
        for vdev in self.spaces().vdevs.values() {
            let metaslabs = vdev.metaslabs();
            for index in vdev.take_defers() {
                let Some(metaslab) = metaslabs.get(index) else {
                    continue;
                };
                let (bytes, waits) = metaslab.committed(|span| {
                    if report {
                        released.push(Released {
                            vdev: vdev.info.vdev,
                            span,
                        });
                    }
                });
                vdev.deferred.fetch_sub(bytes, Relaxed);
                if waits {
                    vdev.mark_defers(index);
                }
            }
        }
        // After the frees are advanced: a metaslab with pending ones cannot be unloaded.
        self.unload_idle();
        released
    }
}
