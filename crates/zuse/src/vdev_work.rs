//! Progress of initializing and trimming devices, from their ZAPs (chapter 01 §11 of the format
//! notes).

use zuse_base::{ObjectId, Result};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_format::label::leaf_asize;
use zuse_pool::{VdevWorkKind, VdevWorkState};

use crate::Pool;

/// Background work over the whole of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VdevWork {
    /// Whether it runs, stopped or is complete.
    pub state: VdevWorkState,
    /// Bytes done so far.
    pub done: u64,
    /// Bytes of the device for data.
    pub size: u64,
    /// Seconds since 1970 of the last change of the state.
    pub since: u64,
}

/// Background work over a device, by its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceWork {
    /// Writing a pattern over the free space.
    pub initialize: VdevWork,
    /// Discarding the free space.
    pub trim: VdevWork,
}

const INITIALIZE: [&str; 3] = [
    "com.delphix:vdev_initialize_state",
    "com.delphix:next_offset_to_initialize",
    "com.delphix:vdev_initialize_action_time",
];
const TRIM: [&str; 3] = [
    "org.zfsonlinux:vdev_trim_state",
    "org.zfsonlinux:next_offset_to_trim",
    "org.zfsonlinux:vdev_trim_action_time",
];

impl Pool {
    /// Progress of initializing and trimming the device with this guid, of `psize` bytes. Nothing
    /// for a device without a ZAP.
    ///
    /// # Errors
    /// The ZAP cannot be read.
    pub fn vdev_work(&self, guid: u64, psize: u64) -> Result<DeviceWork> {
        let config = self.config();
        let leaf = config.vdev_tree.find(guid).and_then(|c| c.zap_leaf);
        let Some(zap) = leaf.filter(|zap| *zap != 0) else {
            return Ok(DeviceWork::default());
        };
        let number = zap;
        let zap = Zap::open(&self.spa().mos().dnode(ObjectId(zap))?)?;
        let value = |name: &str| -> Result<u64> {
            let found = zap.lookup(name.as_bytes())?;
            Ok(found.as_ref().and_then(ZapValue::first).unwrap_or(0))
        };
        let work = |kind, [state, done, since]: [&str; 3]| -> Result<VdevWork> {
            // Running work is ahead of the position on disk.
            let now = self.spa().vdev_work_position(kind, number);
            Ok(VdevWork {
                state: VdevWorkState::of(value(state)?),
                done: now.map_or_else(|| value(done), Ok)?,
                size: leaf_asize(psize),
                since: value(since)?,
            })
        };
        Ok(DeviceWork {
            initialize: work(VdevWorkKind::Initialize, INITIALIZE)?,
            trim: work(VdevWorkKind::Trim, TRIM)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use zuse_base::ObjectId;
    use zuse_dmu::zap::{Zap, ZapValue};
    use zuse_pool::VdevWorkState;

    use super::{DeviceWork, INITIALIZE, TRIM, VdevWork};
    use crate::{Environment, NewDevice, NewPool, Pool};

    #[test]
    fn what_another_host_wrote_down_of_its_work_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let new = NewPool {
            name: "tank".into(),
            devices: vec![NewDevice {
                path: dir.path().join("tank.img"),
                make: Some(128 << 20),
            }],
            ..NewPool::default()
        };
        let pool = Pool::create(Environment::default(), &new).expect("made");
        let status = pool.vdev_status();
        let (guid, psize) = (status.children[0].guid, status.children[0].psize);
        let work = || pool.vdev_work(guid, psize).expect("a ZAP");
        let none = VdevWork {
            // Without four labels and the place for a boot loader.
            size: (128 << 20) - (9 << 19),
            ..VdevWork::default()
        };
        let both = |initialize, trim| DeviceWork { initialize, trim };
        assert_eq!(work(), both(none, none));
        let config = pool.config();
        let leaf = config.vdev_tree.find(guid).and_then(|c| c.zap_leaf);
        let leaf = ObjectId(leaf.expect("a ZAP of its own"));
        let write = move |ctx: &zuse_pool::SyncCtx<'_>| {
            let zap = Zap::open(&ctx.pool.mos().dnode(leaf)?)?;
            let names = INITIALIZE.iter().chain(&TRIM);
            for (name, value) in names.zip([3, 1 << 20, 77, 4, 2 << 20, 78]) {
                zap.update(ctx.tx, name.as_bytes(), &ZapValue::U64(value))?;
            }
            Ok(())
        };
        pool.spa().sync_task(|_| Ok(()), write).expect("written");
        let of = |state, done, since| VdevWork {
            state: VdevWorkState::of(state),
            done,
            since,
            ..none
        };
        assert_eq!(work(), both(of(3, 1 << 20, 77), of(4, 2 << 20, 78)));
        // The root has none, and a device of another pool is unknown.
        let unknown = pool.vdev_work(1, psize).expect("no ZAP");
        assert_eq!(unknown, DeviceWork::default());
        pool.close().expect("closed");
    }
}
