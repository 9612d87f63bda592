//! Writes one file of a pool to standard output, from a dataset or a snapshot:
//!
//! `cargo run -p zuse --example copy_out -- IMAGE DATASET[@SNAPSHOT] PATH > FILE`

use std::error::Error;
use std::ffi::OsString;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [image, dataset, path] = &args[..] else {
        return Err("usage: copy_out IMAGE DATASET[@SNAPSHOT] PATH".into());
    };
    let pool = zuse::OpenOptions::new().open(image)?;
    let files = pool.files(&dataset.to_string_lossy())?;
    let mut file = files.open(path)?;
    let bytes = std::io::copy(&mut file, &mut std::io::stdout().lock())?;
    let modified = file.metadata().modified();
    eprintln!("{bytes} bytes, {} s old", modified.elapsed()?.as_secs());
    Ok(())
}
