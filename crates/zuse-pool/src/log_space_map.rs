//! Log space maps (feature `log_spacemap`): reading them, and moving their entries into the space
//! maps.
//!
//! ```text
//! directory: com.delphix:log_spacemap_zap ─▶ ZAP: txg in hex ─▶ log: two-word entries of all metaslabs of all vdevs
//! top ZAP:   com.delphix:ms_unflushed_phys_txgs ─▶ array: U per metaslab
//! state of a metaslab = its own map, then its entries in logs with txg ≥ U, by txg; U = 0: no log counts
//! ```
//!
//! Zuse reads logs and writes none. In the first writable txg every metaslab appends its log
//! entries to its own map. Then the logs are freed, the ZAP emptied and every U set to 0. From then
//! on changes go straight to the maps. OpenZFS can load that state. The feature stays active.
//!
//! Invariants:
//! - Every U that is not 0 has a log of that txg; otherwise the pool's history is incomplete:
//!   `Corrupt`.
//! - The logs are freed not before the txg in which the last metaslab gets its entries. The
//!   allocator asserts that no entry is pending.
//!
//! Entries for vdevs without metaslabs (indirect, hole) are skipped.
//!
//! Memory: the net changes of all logs, as OpenZFS keeps them; each log streams through block by
//! block.

use std::collections::BTreeMap;

use zuse_base::{Error, ObjectId, Result, Span, Txg};
use zuse_format::space_map::{MapEntry, MapOp};

use crate::allocator::VdevInfo;
use crate::metaslab::Unflushed;
use crate::space_map::{MapStore, MapWriter, Region, SpaceMap};

/// U words are read and zeroed in chunks of this many bytes.
const PIECE: u64 = 64 << 10;

/// The objects of a pool's logs.
#[derive(Clone, Debug, Default)]
pub struct LogObjects {
    /// The ZAP of logs (directory key `com.delphix:log_spacemap_zap`).
    pub logs: ObjectId,
    /// The U array of each concrete top-level vdev that has one (top ZAP key
    /// `com.delphix:ms_unflushed_phys_txgs`).
    pub unflushed: BTreeMap<u32, ObjectId>,
}

/// Log entries by vdev and metaslab.
pub(crate) type Pending = BTreeMap<u32, BTreeMap<u64, Unflushed>>;

/// The logs of an earlier writer, to be retired in the first writable txg.
#[derive(Debug)]
pub(crate) struct LogState {
    zap: ObjectId,
    /// Name in the ZAP, object, whether its header has a histogram.
    logs: Vec<(String, ObjectId, bool)>,
    /// U arrays and their lengths.
    arrays: Vec<(ObjectId, u64)>,
}

impl LogState {
    /// Reads all logs that are still needed.
    ///
    /// # Errors
    /// The ZAP, an array or a log is unreadable or invalid.
    pub(crate) fn read(
        store: &dyn MapStore,
        vdevs: &[VdevInfo],
        objects: &LogObjects,
    ) -> Result<(Self, Pending)> {
        let mut logs = BTreeMap::new();
        store.read_zap(objects.logs, &mut |name, object| {
            let txg = u64::from_str_radix(name, 16);
            let txg = txg.map_err(|_| bad(objects.logs, format!("the name {name:?} is no txg")))?;
            logs.insert(Txg(txg), (name.to_owned(), ObjectId(object)));
            Ok(())
        })?;
        let mut unflushed_txgs = BTreeMap::new();
        for info in vdevs {
            if let Some(&array) = objects.unflushed.get(&info.vdev) {
                let txgs = read_txgs(store, array, info.metaslab_count())?;
                // Without that log the metaslab's state is unknown: space in use would be allocated
                // again.
                if let Some(u) = txgs.iter().find(|u| u.0 != 0 && !logs.contains_key(u)) {
                    return Err(bad(
                        objects.logs,
                        format!("vdev {}: the log of txg {u} is missing", info.vdev),
                    ));
                }
                unflushed_txgs.insert(info.vdev, txgs);
            }
        }
        let mut reading = Reading {
            infos: vdevs.iter().map(|info| (info.vdev, info)).collect(),
            unflushed_txgs,
            pending: Pending::new(),
        };
        let mut state = Self {
            zap: objects.logs,
            logs: Vec::new(),
            arrays: Vec::new(),
        };
        // By rising txg: a later entry overrides an earlier one of the same space (01-pool §5.5).
        for (&txg, (name, object)) in &logs {
            let map = SpaceMap::open(store, *object, LOG_REGION)?;
            state
                .logs
                .push((name.clone(), *object, map.header().histogram.is_some()));
            map.replay(store, &mut |entry| reading.note(&entry, *object, txg))?;
        }
        // Arrays of zeros are left alone. They would make every import write a txg for nothing.
        for (vdev, txgs) in &reading.unflushed_txgs {
            if let Some(&array) = objects
                .unflushed
                .get(vdev)
                .filter(|_| txgs.iter().any(|u| u.0 != 0))
            {
                state.arrays.push((array, txgs.len() as u64 * 8));
            }
        }
        Ok((state, reading.pending))
    }

    /// Whether there is nothing to retire.
    pub(crate) fn is_empty(&self) -> bool {
        self.logs.is_empty() && self.arrays.is_empty()
    }

    /// Frees the logs, empties the ZAP and zeroes the arrays. Returns how many histograms were
    /// freed.
    ///
    /// # Errors
    /// The MOS cannot be changed. The txg must not be committed then.
    pub(crate) fn retire(&self, writer: &dyn MapWriter) -> Result<i64> {
        // In one txg: an import never sees a U whose log is gone.
        for &(array, length) in &self.arrays {
            let zeros = vec![0; PIECE.min(length) as usize];
            let mut at = 0;
            while at < length {
                let take = (length - at).min(PIECE) as usize;
                writer.write_at(array, at, zeros.get(..take).unwrap_or(&zeros))?;
                at += take as u64;
            }
        }
        let mut histograms = 0;
        for (name, object, histogram) in &self.logs {
            writer.remove_name(self.zap, name)?;
            writer.free(*object)?;
            histograms += i64::from(*histogram);
        }
        Ok(histograms)
    }
}

/// A log has entries for all vdevs, in sectors of 512 bytes.
const LOG_REGION: Region = Region {
    vdev: u32::MAX,
    metaslab: u64::MAX,
    span: Span::new(0, u64::MAX),
    shift: 9,
};

fn bad(zap: ObjectId, what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("log space map ZAP {zap}"), what)
}

/// The U of each metaslab; 0 beyond the end of the array.
fn read_txgs(store: &dyn MapStore, array: ObjectId, count: u64) -> Result<Vec<Txg>> {
    let mut txgs = Vec::new();
    let mut piece = vec![0; PIECE.min(count * 8) as usize];
    while (txgs.len() as u64) < count {
        let take = ((count - txgs.len() as u64) * 8).min(PIECE) as usize;
        let Some(buf) = piece.get_mut(..take) else {
            break;
        };
        store.read_at(array, txgs.len() as u64 * 8, buf)?;
        txgs.extend(
            buf.as_chunks::<8>()
                .0
                .iter()
                .map(|word| Txg(u64::from_le_bytes(*word))),
        );
    }
    Ok(txgs)
}

/// State for applying the logs' entries.
struct Reading<'a> {
    infos: BTreeMap<u32, &'a VdevInfo>,
    unflushed_txgs: BTreeMap<u32, Vec<Txg>>,
    pending: Pending,
}

impl Reading<'_> {
    /// Applies an entry of the log `object` of a txg, unless the metaslab's own map includes it
    /// already.
    fn note(&mut self, entry: &MapEntry, object: ObjectId, txg: Txg) -> Result<()> {
        let place = || format!("log space map {object} of txg {txg}");
        let vdev = entry
            .vdev
            .ok_or_else(|| Error::corrupt(place(), "an entry names no vdev"))?;
        let (Some(info), Some(txgs)) = (self.infos.get(&vdev), self.unflushed_txgs.get(&vdev))
        else {
            return Ok(());
        };
        let metaslab = entry.offset >> info.metaslab_shift;
        let span = Span::new(entry.offset, entry.run);
        let Some(&since) = usize::try_from(metaslab).ok().and_then(|m| txgs.get(m)) else {
            return Err(Error::corrupt(
                place(),
                format!("range {span} is outside vdev {vdev}"),
            ));
        };
        let unit = 1u64 << info.ashift;
        let region = info.region(metaslab);
        // The entry comes from disk. A range across a boundary would change the wrong metaslab's
        // space.
        if !region.span.contains(span)
            || !span.start.is_multiple_of(unit)
            || !span.size.is_multiple_of(unit)
        {
            return Err(Error::corrupt(
                place(),
                format!("range {span} is not inside {region}"),
            ));
        }
        if since.0 == 0 || txg < since {
            return Ok(());
        }
        let unflushed = self
            .pending
            .entry(vdev)
            .or_default()
            .entry(metaslab)
            .or_default();
        let applied = unflushed.apply(entry.op == MapOp::Alloc, span);
        applied.map_err(|e| Error::corrupt(format!("{}, {region}", place()), e))
    }
}

#[cfg(test)]
mod tests;
