//! Streams read without a pool of the user's. They are received into a temporary pool, in a
//! nameless file that is freed with the process.
//!
//! Memory is bounded by that pool's cache and dirty data, not by the stream. The disk needs room
//! for what the stream unpacks to, compressed.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use zuse_base::Result;
use zuse_device::FileDevice;
use zuse_pool::{Environment, Limits, VdevSpec};

use crate::{Pool, ReceiveRequest, ReceivedSnapshot};

/// Name of the pool that streams are read through, where no other command sees it.
pub const STREAM_POOL: &str = "stream";
/// The dataset in it that a stream's top dataset becomes.
pub const STREAM_DATASET: &str = "stream/s";
/// That dataset without its pool.
const TOP: &str = "s";
/// Sparse: only what is written takes space.
const SIZE: u64 = 1 << 40;
/// Memory of the pool's cache.
const CACHE: usize = 48 << 20;
/// Memory of what is not yet written.
const DIRTY: u64 = 24 << 20;

impl Pool {
    /// Makes a pool in a nameless file in `folder` and receives streams into it, in order; gives
    /// that pool and the snapshots in it. What a stream that ends early holds is there too; its
    /// error is returned beside the pool. One that other commands find by its name needs a `name`
    /// that no other pool has.
    ///
    /// # Errors
    /// The file cannot be made, or the first stream gives nothing.
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
        // Nobody else shall find it, and nothing is left if the process is killed.
        let _ = std::fs::remove_file(&path);
        let spec = VdevSpec {
            device: Arc::new(device),
            is_disk: false,
            ashift: Some(9),
        };
        let pool = Self::create_on_devices(env, name, vec![spec], None, &[])?;
        pool.set_patient(false);
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
