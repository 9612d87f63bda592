//! Reading streams without a pool of the user's. They are received into a temporary pool in an
//! unlinked file, which vanishes with the process.
//!
//! Memory is bounded by that pool's cache and dirty data, not by the stream. The disk needs space
//! for the unpacked stream, compressed.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use zuse_base::Result;
use zuse_device::FileDevice;
use zuse_pool::{Environment, Limits, VdevSpec};

use crate::{Pool, ReceiveRequest, ReceivedSnapshot};

/// Name of the pool for reading streams, if no other command needs to find it.
pub const STREAM_POOL: &str = "stream";
/// The dataset in it for a stream's top dataset.
pub const STREAM_DATASET: &str = "stream/s";
/// That dataset without its pool.
const TOP: &str = "s";
/// Sparse: only written parts take space.
const SIZE: u64 = 1 << 40;
/// Memory of the pool's cache.
const CACHE: usize = 48 << 20;
/// Memory for unwritten data.
const DIRTY: u64 = 24 << 20;

impl Pool {
    /// Creates a pool in an unlinked file in `folder` and receives streams into it, in order.
    /// Returns that pool and its snapshots. A stream that ends early is included as far as
    /// possible, and its error is returned together with the pool. If other commands should find
    /// the pool, it needs a unique `name`.
    ///
    /// # Errors
    /// The file cannot be created, or the first stream contains nothing usable.
    pub fn of_streams(
        env: Environment,
        name: &str,
        folder: &Path,
        inputs: Vec<Box<dyn Read>>,
    ) -> Result<(Arc<Self>, Vec<ReceivedSnapshot>, Option<zuse_base::Error>)> {
        let env = Environment {
            limits: Limits {
                cache: CACHE,
                dirty: DIRTY,
                ..env.limits
            },
            ..env
        };
        let unique = env.entropy.u64();
        let path = folder.join(format!(".zuse-stream-{unique:016x}"));
        let device = FileDevice::create(&path, SIZE)?;
        // Other processes cannot find it, and nothing is left if the process is killed.
        let _ = std::fs::remove_file(&path);
        let spec = VdevSpec {
            device: Arc::new(device),
            is_disk: false,
            ashift: Some(9),
        };
        let pool = Self::create_on_devices(env, name, vec![spec], None, &[])?;
        pool.set_wait_for_clear(false);
        let mut snapshots = Vec::new();
        let request = ReceiveRequest {
            target: format!("{name}/{TOP}"),
            salvage: true,
            ..ReceiveRequest::default()
        };
        for input in inputs {
            let done = pool.receive(input, &request, &mut |s| {
                if s.bytes.is_some() {
                    snapshots.push(s.clone());
                }
            });
            if let Err(error) = done {
                if snapshots.is_empty() {
                    let _ = pool.close();
                    return Err(error);
                }
                return Ok((pool, snapshots, Some(error)));
            }
        }
        Ok((pool, snapshots, None))
    }
}
