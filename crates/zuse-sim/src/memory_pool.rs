//! A new pool on one device in memory.

use std::sync::Arc;
use std::time::Duration;

use zuse::Pool;
use zuse_base::Result;
use zuse_device::MemDevice;
use zuse_pool::{Environment, Limits, VdevSpec};

/// Limits of a pool that receives untrusted streams: one thread, txgs that only a sync ends.
pub fn narrow(memory: u64) -> Limits {
    Limits {
        cache: memory as usize,
        dirty: memory,
        dirty_metadata: memory,
        threads: 1,
        txg_timeout: Duration::from_secs(3600),
        ..Limits::default()
    }
}

/// A new pool of `size` bytes with sectors of `1 << ashift`, and its device.
///
/// # Errors
/// None that a sound build has.
pub fn memory_pool(
    name: &str,
    size: u64,
    ashift: u8,
    limits: Limits,
) -> Result<(Arc<Pool>, Arc<MemDevice>)> {
    let device = Arc::new(MemDevice::new(format!("/sim/{name}"), size));
    let spec = VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(ashift),
    };
    let env = Environment {
        limits,
        ..Environment::default()
    };
    let pool = Pool::create_on_devices(env, name, vec![spec], None, &[])?;
    Ok((pool, device))
}
