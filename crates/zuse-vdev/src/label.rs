//! The four labels of a device.
//!
//! | offset in label | bytes | content |
//! |---|---|---|
//! | 0 | 8 KiB | left to foreign disk labels, never written |
//! | 0x2000 | 8 KiB | boot environment |
//! | 0x4000 | 112 KiB | configuration: XDR nvlist, zeros, checksum trailer |
//! | 0x20000 | 128 KiB | ring of uberblocks |
//!
//! Each block's checksum includes its device offset, so a label that was copied elsewhere is
//! invalid. A block whose checksum fails counts as absent. Damage to one of the four copies is no
//! error.
//!
//! Labels 0 and 2 are written before the uberblock, 1 and 3 after it. Whatever the moment of a
//! crash, two labels agree with the newest uberblock on disk.

use zuse_base::{Error, Result};
use zuse_codec::{open_trailer, seal_trailer};
use zuse_device::BlockDevice;
use zuse_format::label::{
    BOOT_ENV_AT, BOOT_ENV_SIZE, CONFIG_AT, CONFIG_SIZE, LABEL_SIZE, LABELS, RING_AT, RING_SIZE,
    Trailer, decode_config, encode_config, label_offset,
};
use zuse_format::nvlist::NvList;

use crate::config::{LabelConfig, PoolConfig, VdevConfig};
use crate::geometry::{ASHIFT_MAX, ASHIFT_MIN};

/// Two labels that are written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelPair {
    /// Labels 0 and 2: before the uberblock.
    Even,
    /// Labels 1 and 3: after the uberblock.
    Odd,
}

impl LabelPair {
    /// The numbers of the two labels.
    pub fn labels(self) -> [usize; 2] {
        match self {
            Self::Even => [0, 2],
            Self::Odd => [1, 3],
        }
    }
}

/// One label's configuration: as stored and as understood.
#[derive(Clone, Debug)]
pub struct LabelContent {
    /// The list as stored.
    pub list: NvList,
    /// The parsed configuration; an error when it breaks the rules.
    pub config: Result<LabelConfig>,
}

/// The configurations of a device's four labels.
#[derive(Clone, Debug)]
pub struct Labels {
    slots: [Result<LabelContent>; LABELS],
    /// Set if the labels name several pools: the newest txg in the uberblock rings.
    written: Option<u64>,
}

impl Labels {
    /// Reads all four labels. Never fails: an unreadable label holds its error.
    pub fn read(device: &dyn BlockDevice) -> Self {
        let mut labels = Self {
            slots: [0, 1, 2, 3].map(|label| read_label(device, label)),
            written: None,
        };
        if labels.other_pool().is_some() {
            // Only if two pools claim the device, because reading the rings costs more than reading
            // the labels.
            labels.written = labels.newest(u64::MAX).map(|l| written_txg(device, l));
        }
        labels
    }

    /// The labels, 0 to 3.
    pub fn slots(&self) -> &[Result<LabelContent>; LABELS] {
        &self.slots
    }

    /// Numbers and contents of the valid labels.
    pub fn good(&self) -> impl Iterator<Item = (usize, &LabelConfig)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(i, slot)| Some((i, slot.as_ref().ok()?.config.as_ref().ok()?)))
    }

    /// The pool config with the greatest txg that is not above the limit. Labels with txg 0 are
    /// skipped: such a device is not yet a member of a pool.
    pub fn newest(&self, limit: u64) -> Option<&PoolConfig> {
        self.good()
            .filter_map(|(_, config)| config.member())
            // Txg 0: the device is being added to a pool, or removed from one.
            .filter(|c| c.txg != 0 && c.txg <= limit)
            .max_by_key(|c| c.txg)
    }

    /// The newest label that names another pool than the newest label does.
    fn other_pool(&self) -> Option<&PoolConfig> {
        let newest = self.newest(u64::MAX)?;
        self.good()
            .filter_map(|(_, config)| config.member())
            .filter(|c| c.txg != 0 && c.pool_guid != newest.pool_guid)
            .max_by_key(|c| c.txg)
    }

    /// The newest label; and the label that counts instead, if no device of that pool has an
    /// uberblock of its txg. Then power was lost while the device was changing its pool.
    pub fn claims(&self) -> (Option<&PoolConfig>, Option<&PoolConfig>) {
        let newest = self.newest(u64::MAX);
        let written = self.written.unwrap_or(u64::MAX);
        let other_pool = self
            .other_pool()
            // The newest label's txg has no uberblock here, so the other pool may still be right.
            .filter(|_| newest.is_some_and(|n| n.txg > written));
        (newest, other_pool)
    }

    /// Whether the device lacks the uberblock of its newest label's txg, and any later one. Either
    /// power was lost while it joined a pool, or its rings are damaged.
    pub fn is_ahead(&self, device: &dyn BlockDevice) -> bool {
        let newest = self.newest(u64::MAX);
        newest.is_some_and(|label| label.txg > written_txg(device, label))
    }

    /// The label of a device that is or was part of a pool, txg 0 included. The first valid one if
    /// none has a txg within the limit.
    pub fn any_up_to(&self, limit: u64) -> Option<&PoolConfig> {
        self.newest(limit).or_else(|| {
            self.good()
                .filter_map(|(_, c)| c.member())
                .find(|c| c.txg == 0)
        })
    }
}

/// The newest txg with an uberblock on the device.
fn written_txg(device: &dyn BlockDevice, label: &PoolConfig) -> u64 {
    let shift = label.vdev_tree.top.as_ref().map_or(0, |t| t.ashift);
    // It comes from a label: whatever it says, a slot must have some size.
    let shift = u8::try_from(shift)
        .unwrap_or(u8::MAX)
        .clamp(ASHIFT_MIN, ASHIFT_MAX);
    let rings = (0..LABELS).filter_map(|l| crate::ring::read_ring(device, l, shift).ok());
    let txgs = rings.flatten().map(|entry| entry.uberblock.txg);
    txgs.max().unwrap_or(0)
}

/// Reads and checks one label's configuration.
fn read_label(device: &dyn BlockDevice, label: usize) -> Result<LabelContent> {
    if device.size() < LABELS as u64 * LABEL_SIZE {
        return Err(Error::truncated(
            device.path(),
            "the device is too small for labels",
        ));
    }
    let at = label_offset(device.size(), label) + CONFIG_AT;
    let place = || format!("{}, label {label}", device.path());
    let mut block = vec![0; CONFIG_SIZE];
    device.read_at(&mut block, at)?;
    open_trailer(&block, Trailer::label_verifier(at)).map_err(|e| Error::corrupt(place(), e))?;
    let list = decode_config(&block).map_err(|e| e.at(place()))?;
    let config = LabelConfig::parse(&list, &place());
    Ok(LabelContent { list, config })
}

/// The config block of a label, ready to be written, without its trailer.
///
/// # Errors
/// `Refused` when the list does not fit.
pub fn pack_config(list: &NvList) -> Result<Vec<u8>> {
    encode_config(list).map_err(|e| Error::refused(zuse_base::Errno::NOSPC, e))
}

/// Seals a block of a label for its place and hands it to `write` with its device byte.
pub(crate) fn write_sealed(
    size: u64,
    label: usize,
    at: u64,
    block: &mut [u8],
    write: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    // The checksum includes the offset, so that a copied label is invalid.
    let at = label_offset(size, label) + at;
    seal_trailer(block, Trailer::label_verifier(at));
    write(at, block)
}

fn write_to(device: &dyn BlockDevice) -> impl FnMut(u64, &[u8]) -> Result<()> {
    move |at, block| Ok(device.write_at(block, at)?)
}

/// Writes one label's configuration. Not flushed.
///
/// # Errors
/// `Device`, or `Refused` when the list does not fit.
pub fn write_config(device: &dyn BlockDevice, label: usize, list: &NvList) -> Result<()> {
    let mut block = pack_config(list)?;
    write_sealed(
        device.size(),
        label,
        CONFIG_AT,
        &mut block,
        &mut write_to(device),
    )
}

/// Initialises a new device. All four labels get this configuration, an empty boot environment and
/// an empty ring; then it flushes. The configuration of a leaf has txg 0, so that a crash leaves no
/// pool.
///
/// Old signatures of other systems are wiped. These are a file system's head before the boot
/// environment, and signatures after the last label. Otherwise other programs still see that file
/// system or those partitions, and write there.
///
/// # Errors
/// `Device` when any label could not be written.
pub fn init(device: &dyn BlockDevice, list: &NvList) -> Result<()> {
    let mut config = pack_config(list)?;
    let mut boot = vec![0; BOOT_ENV_SIZE];
    let mut ring = vec![0; RING_SIZE as usize];
    let write = &mut write_to(device);
    // Bytes after the last label may look like the label of a smaller device.
    let end = label_offset(device.size(), LABELS - 1) + LABEL_SIZE;
    let behind = device.size().saturating_sub(end).min(LABEL_SIZE);
    write(end, &vec![0; behind as usize])?;
    for label in 0..LABELS {
        write(
            label_offset(device.size(), label),
            &vec![0; BOOT_ENV_AT as usize],
        )?;
        write_sealed(device.size(), label, CONFIG_AT, &mut config, write)?;
        // Sealed although empty, so that it does not look damaged.
        write_sealed(device.size(), label, BOOT_ENV_AT, &mut boot, write)?;
        // One trailer at the ring's end: the last slot looks sealed and fails its own checksum.
        write_sealed(device.size(), label, RING_AT, &mut ring, write)?;
    }
    Ok(device.flush()?)
}

/// Wipes the labels: all but the space for foreign disk labels becomes zero.
///
/// # Errors
/// `Device` when any label could not be written.
pub fn clear(device: &dyn BlockDevice) -> Result<()> {
    // The first bytes stay: a boot sector or a partition table may be there.
    let zeros = vec![0; (LABEL_SIZE - BOOT_ENV_AT) as usize];
    if device.size() < LABELS as u64 * LABEL_SIZE {
        return Err(Error::refused(
            zuse_base::Errno::OVERFLOW,
            format!("{} is too small for labels", device.path()),
        ));
    }
    for label in 0..LABELS {
        device.write_at(&zeros, label_offset(device.size(), label) + BOOT_ENV_AT)?;
    }
    Ok(device.flush()?)
}

/// The label of a leaf that is being added in `txg`: the final content, but with txg 0, so that it
/// is no member yet.
pub fn initial_label(pool: &PoolConfig, top: &VdevConfig, leaf: &VdevConfig, txg: u64) -> NvList {
    let mut pool = pool.clone();
    // Not yet a member: the first commit with this device writes its txg.
    pool.txg = 0;
    pool.create_txg = Some(txg);
    pool.to_label_nvlist(top, leaf)
}

/// Marks the labels of a device that left its pool, by txg 0. Damaged labels stay as they are.
///
/// # Errors
/// `Device` when a label could not be written.
pub fn retire(device: &dyn BlockDevice) -> Result<()> {
    for (label, slot) in Labels::read(device).slots.into_iter().enumerate() {
        if let Ok(mut content) = slot {
            // The rest stays, so that an administrator can see which pool the device was part of.
            content.list.replace("txg", 0u64);
            write_config(device, label, &content.list)?;
        }
    }
    Ok(device.flush()?)
}

#[cfg(test)]
mod tests;
