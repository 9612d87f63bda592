//! The four labels of a device.
//!
//! | offset in label | bytes | content |
//! |---|---|---|
//! | 0 | 8 KiB | left to foreign disk labels, never written |
//! | 0x2000 | 8 KiB | boot environment |
//! | 0x4000 | 112 KiB | configuration: XDR nvlist, zeros, checksum trailer |
//! | 0x20000 | 128 KiB | ring of uberblocks |
//!
//! Each block's checksum covers the device byte where it starts, so a label copied elsewhere is no
//! label. A block whose checksum fails does not exist; no damage of one copy is an error by itself.
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
    /// What it means; an error when it breaks the rules.
    pub config: Result<LabelConfig>,
}

/// The configurations of a device's four labels.
#[derive(Clone, Debug)]
pub struct Labels {
    slots: [Result<LabelContent>; LABELS],
    /// Where the labels are of several pools: the newest txg of the rings.
    written: Option<u64>,
}

impl Labels {
    /// Reads all four labels. Never fails: a label that cannot be read says why in its place.
    pub fn read(device: &dyn BlockDevice) -> Self {
        let mut labels = Self {
            slots: [0, 1, 2, 3].map(|label| read_label(device, label)),
            written: None,
        };
        if labels.rival().is_some() {
            // Only where two pools claim it: the rings are more to read than the labels.
            labels.written = labels.newest(u64::MAX).map(|l| written_txg(device, l));
        }
        labels
    }

    /// The labels, 0 to 3.
    pub fn slots(&self) -> &[Result<LabelContent>; LABELS] {
        &self.slots
    }

    /// Numbers and meaning of the labels that are whole.
    pub fn good(&self) -> impl Iterator<Item = (usize, &LabelConfig)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(i, slot)| Some((i, slot.as_ref().ok()?.config.as_ref().ok()?)))
    }

    /// The pool config with the greatest txg that is not 0 and not above the limit. The half-made
    /// (txg 0) are not members of a pool.
    pub fn newest(&self, limit: u64) -> Option<&PoolConfig> {
        self.good()
            .filter_map(|(_, config)| config.member())
            // Txg 0 is a device that is on its way into a pool or out of one.
            .filter(|c| c.txg != 0 && c.txg <= limit)
            .max_by_key(|c| c.txg)
    }

    /// The newest label of another pool than the newest one is of.
    fn rival(&self) -> Option<&PoolConfig> {
        let newest = self.newest(u64::MAX)?;
        self.good()
            .filter_map(|(_, config)| config.member())
            .filter(|c| c.txg != 0 && c.pool_guid != newest.pool_guid)
            .max_by_key(|c| c.txg)
    }

    /// The newest label; and the one that counts in its place if no device of that pool has an
    /// uberblock of its txg. The power went while the device was changing its pool.
    pub fn claims(&self) -> (Option<&PoolConfig>, Option<&PoolConfig>) {
        let newest = self.newest(u64::MAX);
        let written = self.written.unwrap_or(u64::MAX);
        let rival = self
            .rival()
            // The newest label is of a txg whose uberblock never came: the other pool may still be
            // right.
            .filter(|_| newest.is_some_and(|n| n.txg > written));
        (newest, rival)
    }

    /// Whether the newest label is of a txg of which the device has no uberblock, nor of a later
    /// one. The power went while it was on its way into a pool, or its rings are damaged.
    pub fn is_ahead(&self, device: &dyn BlockDevice) -> bool {
        let newest = self.newest(u64::MAX);
        newest.is_some_and(|label| label.txg > written_txg(device, label))
    }

    /// The label of a device that is (or was) part of a pool, half-made ones too. The first whole
    /// one when none has a txg within the limit.
    pub fn any_up_to(&self, limit: u64) -> Option<&PoolConfig> {
        self.newest(limit).or_else(|| {
            self.good()
                .filter_map(|(_, c)| c.member())
                .find(|c| c.txg == 0)
        })
    }
}

/// The newest txg of which the device has an uberblock.
fn written_txg(device: &dyn BlockDevice, label: &PoolConfig) -> u64 {
    let shift = label.vdev_tree.top.as_ref().map_or(0, |t| t.ashift);
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
    // The checksum covers the place, so that a label that was copied elsewhere is not believed.
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

/// Makes a new device ready: in all four labels this configuration, an empty boot environment and
/// an empty ring; then a flush. The configuration of a leaf has txg 0, so that a crash leaves no
/// pool.
///
/// What marked the device as something else is wiped. A file system's head in the space before the
/// first boot environment, and marks behind the last label. Else other programs go on seeing that
/// file system, or the partitions of a disk, and write there.
///
/// # Errors
/// `Device` when any label could not be written.
pub fn init(device: &dyn BlockDevice, list: &NvList) -> Result<()> {
    let mut config = pack_config(list)?;
    let mut boot = vec![0; BOOT_ENV_SIZE];
    let mut ring = vec![0; RING_SIZE as usize];
    let write = &mut write_to(device);
    // What lies behind the last label may look like one of a smaller device.
    let end = label_offset(device.size(), LABELS - 1) + LABEL_SIZE;
    let behind = device.size().saturating_sub(end).min(LABEL_SIZE);
    write(end, &vec![0; behind as usize])?;
    for label in 0..LABELS {
        write(
            label_offset(device.size(), label),
            &vec![0; BOOT_ENV_AT as usize],
        )?;
        write_sealed(device.size(), label, CONFIG_AT, &mut config, write)?;
        // Sealed although empty, so that nobody takes it for damaged.
        write_sealed(device.size(), label, BOOT_ENV_AT, &mut boot, write)?;
        // One trailer at the ring's end: the last slot looks sealed and fails its own checksum.
        write_sealed(device.size(), label, RING_AT, &mut ring, write)?;
    }
    Ok(device.flush()?)
}

/// Wipes the labels: everything but the space of foreign disk labels becomes zero.
///
/// # Errors
/// `Device` when any label could not be written.
pub fn clear(device: &dyn BlockDevice) -> Result<()> {
    // Not the first bytes: a boot sector or a partition table may be there.
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

/// The label of a leaf that is being added in `txg`: as it will be, but not yet a member (txg 0).
pub fn initial_label(pool: &PoolConfig, top: &VdevConfig, leaf: &VdevConfig, txg: u64) -> NvList {
    let mut pool = pool.clone();
    // A member of nothing yet: the first commit that knows the device writes its txg.
    pool.txg = 0;
    pool.create_txg = Some(txg);
    pool.to_label_nvlist(top, leaf)
}

/// Makes the labels of a device that left its pool say so: txg 0. Labels that are not whole stay.
///
/// # Errors
/// `Device` when a label could not be written.
pub fn retire(device: &dyn BlockDevice) -> Result<()> {
    for (label, slot) in Labels::read(device).slots.into_iter().enumerate() {
        if let Ok(mut content) = slot {
            // The rest stays, so that a person can see what the device was part of.
            content.list.replace("txg", 0u64);
            write_config(device, label, &content.list)?;
        }
    }
    Ok(device.flush()?)
}

#[cfg(test)]
mod tests;
