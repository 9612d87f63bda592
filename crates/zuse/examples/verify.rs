//! Reads every block of a pool, checks its invariants, and lists the contents of send streams:
//!
//! `cargo run -p zuse --example verify -- IMAGE [STREAM]…`

use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;

use zuse::check::Depth;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let Some((image, streams)) = args.split_first() else {
        return Err("usage: verify IMAGE [STREAM]…".into());
    };
    let pool = zuse::OpenOptions::new().open(image)?;
    let report = pool.check(Depth::All)?;
    for problem in &report.problems {
        println!("{problem}");
    }
    println!("{}: {} bytes in use", pool.name(), report.allocated);

    let mut whole = report.is_clean();
    for stream in streams {
        let input = BufReader::new(File::open(stream)?);
        match zuse::Pool::of_stream(input, std::env::temp_dir()) {
            Ok((_, snapshots)) => {
                for snapshot in snapshots {
                    println!("{}: {}", stream.display(), snapshot.from);
                }
            }
            Err(error) => {
                println!("{}: {error}", stream.display());
                whole = false;
            }
        }
    }
    Ok(if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
