//! Writes the disk images after power cuts under file systems with intent logs, for examination by
//! other programs:
//!
//! ```text
//! cargo run --example cut_images -- DIR FROM..TO      DIR/SEED-N-STATE/sim0, a pool `promises`
//! ```
//! The states are `unclaimed`, `claimed` and `replayed`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;

use zuse_device::{BlockDevice, MemDevice, MemImage};
use zuse_sim::promised_files::{Rules, chain_shown};

const PIECE: usize = 64 << 10;

fn write_out(dir: &Path, image: &MemImage) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let device = MemDevice::from_image("sim", image);
    let file = File::create(dir.join("sim0"))?;
    file.set_len(device.size())?;
    let mut bytes = vec![0; PIECE];
    for at in (0..device.size()).step_by(PIECE) {
        device
            .read_at(&mut bytes, at)
            .map_err(std::io::Error::other)?;
        if bytes.iter().any(|b| *b != 0) {
            file.write_all_at(&bytes, at)?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seeds = args.get(1).and_then(|s| s.split_once(".."));
    let numbers = seeds.and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let (Some(dir), Some((from, to))) = (args.first(), numbers) else {
        eprintln!("cut_images DIR FROM..TO");
        return ExitCode::FAILURE;
    };
    for seed in from..to {
        let mut shown = 0;
        let mut failed = None;
        let mut show = |state: &str, image: &MemImage| {
            shown += u64::from(state == "unclaimed");
            let dir = Path::new(dir).join(format!("{seed}-{shown}-{state}"));
            failed = failed.take().or(write_out(&dir, image).err());
        };
        let done = chain_shown(&Rules::of_seed(seed), seed, &mut show);
        if let Err(error) = done {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
        if let Some(error) = failed {
            eprintln!("{dir}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
