//! `zuse cat`

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use zuse::Credentials;

use super::ls::{missing, place};
use crate::args::Devices;
use crate::error::{Explain, Outcome};
use crate::session::{Need, Session};

/// Bytes handed out at a time.
const CHUNK: u64 = 1 << 20;

/// Write files of a dataset or snapshot, or a volume (VOLUME:), to standard output, without a mount
#[derive(Args, Debug)]
pub struct Cat {
    #[command(flatten)]
    devices: Devices,
    /// The files, or volumes
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT][:/PATH]")]
    files: Vec<OsString>,
}

impl Cat {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        for text in &self.files {
            let target = place(text)?;
            let cannot = || format!("cannot read '{target}'");
            let pool = session.pool_for(&target.dataset, Need::Read)?;
            if super::cp::is_volume(&pool, &target)? {
                let mut out = session.ui.raw_out()?;
                super::cp::read_volume(&pool, &target, &mut out)?;
                continue;
            }
            let fs = pool
                .file_system(&target.dataset)
                .or_cannot(|| format!("cannot open '{}'", target.dataset))?;
            let file = fs
                .resolve(&Credentials::root(), &target.path)
                .map_err(|e| missing(&cannot(), &e))?;
            let size = file.size();
            let mut at = 0;
            let mut out = session.ui.raw_out()?;
            let mut buffer = vec![0; CHUNK.min(size.max(1)) as usize];
            while at < size {
                let got = fs
                    .read(&file, at, &mut buffer)
                    .map_err(|e| missing(&cannot(), &e))?;
                if got == 0 {
                    break;
                }
                out.write_all(buffer.get(..got).unwrap_or_default())?;
                at += got as u64;
            }
        }
        Ok(())
    }
}
