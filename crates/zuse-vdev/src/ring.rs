//! Uberblock rings: the slots of a label, and which uberblock is the newest.
//!
//! A commit of txg T writes slot `T mod slots` in all four labels of the chosen leaves. A txg that
//! changed nothing writes none, so a ring has gaps. The newest uberblock is the greatest by txg,
//! then time, then multihost sequence. A slot whose checksum or magic fails counts as absent.

use zuse_base::{ByteOrder, Result};
use zuse_codec::{open_trailer, seal_trailer};
use zuse_device::BlockDevice;
use zuse_format::label::{
    LABEL_SIZE, LABELS, RING_AT, RING_SIZE, Trailer, label_offset, slot_count, slot_for_txg,
    slot_offset, slot_size,
};
use zuse_format::uberblock::{ReflowState, Uberblock};

/// A valid uberblock in a ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RingEntry {
    /// Guid of the leaf; 0 when read from a bare device.
    pub leaf: u64,
    /// Label, 0 to 3.
    pub label: usize,
    /// Slot in the ring.
    pub slot: usize,
    /// Byte order of its writer.
    pub order: ByteOrder,
    /// The uberblock.
    pub uberblock: Uberblock,
}

/// Reads the valid uberblocks of one label's ring, for the sector shift of the top-level vdev.
///
/// # Errors
/// `Device` when the ring cannot be read.
pub fn read_ring(device: &dyn BlockDevice, label: usize, ashift: u8) -> Result<Vec<RingEntry>> {
    if device.size() < LABELS as u64 * LABEL_SIZE {
        return Ok(Vec::new());
    }
    let at = label_offset(device.size(), label) + RING_AT;
    let mut ring = vec![0; RING_SIZE as usize];
    device.read_at(&mut ring, at)?;
    let size = slot_size(u32::from(ashift));
    let mut found = Vec::new();
    for (slot, bytes) in ring.chunks_exact(size).enumerate() {
        // The magic is checked first: most slots of a young pool are empty, and hashing them is
        // expensive.
        if let Ok((uberblock, order)) = Uberblock::parse(bytes)
            && open_trailer(bytes, Trailer::label_verifier(at + (slot * size) as u64)).is_ok()
        {
            found.push(RingEntry {
                leaf: 0,
                label,
                slot,
                order,
                uberblock,
            });
        }
    }
    Ok(found)
}

/// The slot of a commit.
pub fn commit_slot(uberblock: &Uberblock, ashift: u8, multihost: bool) -> u64 {
    // While the scratch area of an expansion holds the valid data, the previous txg's slot is
    // rewritten. The state must change without a new txg.
    let scratch = uberblock.reflow_state() == ReflowState::ScratchValid;
    slot_for_txg(
        uberblock.txg.saturating_sub(u64::from(scratch)),
        u32::from(ashift),
        multihost,
    )
}

/// The slot reserved for heartbeats.
pub fn heartbeat_slot(ashift: u8) -> u64 {
    slot_count(u32::from(ashift)) - 1
}

/// Writes a slot of one label through `write` (device byte, bytes).
pub(crate) fn write_slot(
    device_size: u64,
    label: usize,
    slot: u64,
    ashift: u8,
    uberblock: &Uberblock,
    write: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut bytes = vec![0; slot_size(u32::from(ashift))];
    uberblock.write_le(&mut bytes);
    let at = label_offset(device_size, label) + slot_offset(slot, u32::from(ashift));
    seal_trailer(&mut bytes, Trailer::label_verifier(at));
    write(at, &bytes)
}

/// The winner among those with a txg of 1 up to the limit.
pub fn best(entries: &[RingEntry], limit: u64) -> Option<&RingEntry> {
    entries
        .iter()
        // Txg 0 is that of a device which is no member yet (01-pool §4.3).
        .filter(|e| e.uberblock.txg != 0 && e.uberblock.txg <= limit)
        .max_by_key(|e| e.uberblock.rank())
}

#[cfg(test)]
mod tests;
