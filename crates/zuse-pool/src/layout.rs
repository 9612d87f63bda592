//! The top-level vdevs of a new pool: devices in groups, with their redundancy and class.

use zuse_base::{Errno, Error, Refusal, Result};
use zuse_vdev::config::TopConfig;
use zuse_vdev::{VdevClass, VdevConfig, VdevKind, draid_asize, geometry};

use crate::create::{FIRST_TXG, VdevSpec};

/// Data columns of a dRAID group, by default.
const DRAID_DATA: u8 = 8;

/// How the devices of a top-level vdev store blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A single device.
    Single,
    /// Every device has the same blocks.
    Mirror,
    /// With 1 to 3 columns of parity.
    Raidz {
        /// Columns of parity.
        nparity: u8,
    },
    /// Groups with parity, distributed over all devices, with spare space among them.
    Draid {
        /// Columns of parity of a group.
        nparity: u8,
        /// Columns of data of a group; `None` for as many as there is room for, up to 8.
        ndata: Option<u8>,
        /// Distributed spares.
        nspares: u8,
    },
}

impl Shape {
    /// Minimum number of devices.
    pub fn min_devices(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Mirror => 2,
            Self::Raidz { nparity } => usize::from(nparity) + 1,
            Self::Draid {
                nparity,
                ndata,
                nspares,
            } => usize::from(nparity) + usize::from(ndata.unwrap_or(1)) + usize::from(nspares),
        }
    }
}

impl VdevSpec {
    /// Sector shift of a vdev over the device alone.
    pub fn sector_shift(&self) -> u8 {
        measure(self).map_or(geometry::ASHIFT_MIN, |(shift, _)| shift)
    }
}

/// One top-level vdev of a new pool, over the next devices of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopSpec {
    /// Its redundancy.
    pub shape: Shape,
    /// Number of devices.
    pub devices: usize,
    /// Its class.
    pub class: VdevClass,
}

impl TopSpec {
    /// Single devices for everything.
    pub const SINGLE: Self = Self {
        shape: Shape::Single,
        devices: 1,
        class: VdevClass::Normal,
    };

    pub(crate) fn is_draid(&self) -> bool {
        matches!(self.shape, Shape::Draid { .. })
    }

    fn kind(&self) -> Result<VdevKind> {
        let n = self.devices;
        let refuse = |what: String| Err(Error::refused(Errno::INVAL, what));
        if n < self.shape.min_devices() || n > 255 {
            return refuse(format!("{n} devices cannot make up a {:?}", self.shape));
        }
        Ok(match self.shape {
            Shape::Single => VdevKind::Disk,
            Shape::Mirror => VdevKind::Mirror,
            Shape::Raidz { nparity } if (1..=3).contains(&nparity) => VdevKind::Raidz {
                nparity,
                expanding: false,
                expand_txgs: Vec::new(),
            },
            Shape::Draid {
                nparity,
                ndata,
                nspares,
            } if (1..=3).contains(&nparity) && nspares <= 100 => {
                let room = n - usize::from(nspares) - usize::from(nparity);
                let most = u8::try_from(room).unwrap_or(u8::MAX).min(DRAID_DATA);
                let ndata = ndata.unwrap_or(most);
                let group = usize::from(ndata) + usize::from(nparity);
                let in_use = n - usize::from(nspares);
                // The groups must fill whole rows of the children in use (01b §5).
                let ngroups = (1..=255usize)
                    .find(|g| (g * group).is_multiple_of(in_use))
                    .and_then(|g| u8::try_from(g).ok());
                match ngroups {
                    Some(ngroups) if ndata > 0 => VdevKind::Draid {
                        nparity,
                        ndata,
                        nspares,
                        ngroups,
                    },
                    _ => {
                        return refuse(format!("dRAID with {ndata} data columns over {n} devices"));
                    }
                }
            }
            shape => return refuse(format!("{shape:?} cannot be")),
        })
    }

    /// The configuration of the vdev over its devices.
    pub(crate) fn config(
        &self,
        id: u64,
        devices: &[VdevSpec],
        guid: &mut dyn FnMut() -> u64,
    ) -> Result<VdevConfig> {
        let kind = self.kind()?;
        let (mut ashift, mut smallest) = (geometry::ASHIFT_MIN, u64::MAX);
        let mut leaves = Vec::new();
        for (at, spec) in devices.iter().enumerate() {
            let (shift, asize) = measure(spec)?;
            ashift = ashift.max(shift);
            smallest = smallest.min(asize);
            leaves.push(leaf(spec, at as u64, guid()));
        }
        let unit = 1u64 << ashift;
        let n = devices.len();
        let (asize, min_alloc) = match &kind {
            VdevKind::Raidz { .. } => (smallest.saturating_mul(n as u64), unit),
            VdevKind::Draid {
                nparity,
                ndata,
                nspares,
                ..
            } => {
                let group = u64::from(*ndata) + u64::from(*nparity);
                (
                    draid_asize(smallest, n, *nspares, group),
                    u64::from(*ndata) * unit,
                )
            }
            _ => (smallest, unit),
        };
        if asize == 0 {
            return Err(Error::refused(
                Errno::OVERFLOW,
                "the devices are too small for that dRAID",
            ));
        }
        let mut top = match leaves.pop() {
            Some(mut only) if self.shape == Shape::Single => {
                only.id = Some(id);
                only
            }
            Some(last) => {
                leaves.push(last);
                let mut top = VdevConfig::new(kind, id, guid());
                top.children = leaves;
                top.create_txg = Some(FIRST_TXG.0);
                top
            }
            None => return Err(Error::refused(Errno::INVAL, "a vdev without devices")),
        };
        top.top = Some(TopConfig {
            metaslab_array: 0,
            metaslab_shift: u64::from(geometry::metaslab_shift(asize)),
            ashift: u64::from(ashift),
            asize,
            min_alloc: Some(min_alloc),
            is_log: self.class == VdevClass::Log,
            non_allocating: false,
            removing: false,
            expansion_time: None,
        });
        top.check("the new vdev")?;
        Ok(top)
    }
}

/// Cuts a list of devices into the groups of a layout.
pub(crate) fn groups<'a>(
    devices: &'a [VdevSpec],
    layout: &[TopSpec],
) -> Result<Vec<(TopSpec, &'a [VdevSpec])>> {
    if layout.is_empty() {
        return Ok(devices
            .chunks(1)
            .map(|one| (TopSpec::SINGLE, one))
            .collect());
    }
    let mut rest = devices;
    let mut groups = Vec::new();
    for spec in layout {
        let (here, after) = rest.split_at_checked(spec.devices).unwrap_or((&[], &[]));
        if here.is_empty() || spec.shape == Shape::Single && here.len() != 1 {
            return Err(Error::refused(Errno::INVAL, "a vdev without devices"));
        }
        groups.push((*spec, here));
        rest = after;
    }
    if !rest.is_empty() {
        return Err(Error::refused(Errno::INVAL, "devices without a vdev"));
    }
    Ok(groups)
}

fn leaf(spec: &VdevSpec, id: u64, guid: u64) -> VdevConfig {
    let kind = if spec.is_disk {
        VdevKind::Disk
    } else {
        VdevKind::File
    };
    let mut leaf = VdevConfig::new(kind, id, guid);
    leaf.path = Some(spec.device.path().to_owned());
    leaf.whole_disk = spec.is_disk.then_some(0);
    leaf.create_txg = Some(FIRST_TXG.0);
    leaf
}

/// Sector shift and usable bytes of a device.
pub(crate) fn measure(spec: &VdevSpec) -> Result<(u8, u64)> {
    let device = &spec.device;
    let ashift = match spec.ashift {
        Some(shift) => shift,
        None => (device.sector_shift().max(9) as u8)
            .clamp(geometry::ASHIFT_MIN, geometry::ASHIFT_AUTO_MAX),
    };
    if !(geometry::ASHIFT_MIN..=geometry::ASHIFT_MAX).contains(&ashift) {
        return Err(Error::refused(
            Errno::INVAL,
            format!("{}: ashift {ashift} is not between 9 and 16", device.path()),
        ));
    }
    if u32::from(ashift) < device.sector_shift() {
        return Err(Error::refused(
            Errno::INVAL,
            format!(
                "{}: ashift {ashift} is below the device's sector size",
                device.path()
            ),
        ));
    }
    let small = || {
        Error::refused_for(
            Refusal::TooSmall,
            Errno::OVERFLOW,
            format!("{} is smaller than 64 MiB", device.path()),
        )
    };
    let asize = geometry::leaf_asize(device.size()).ok_or_else(small)?;
    if device.size() < 64 << 20 {
        return Err(small());
    }
    Ok((ashift, asize))
}
