//! Takes a snapshot of a dataset, shows what changed since the last one, and writes a send stream
//! of it into a folder. The first stream is full, each later one is incremental:
//!
//! `cargo run -p zuse --example backup -- IMAGE DATASET FOLDER`

use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use zuse::Recursion;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [image, dataset, folder] = &args[..] else {
        return Err("usage: backup IMAGE DATASET FOLDER".into());
    };
    let dataset = dataset.to_string_lossy();
    let pool = zuse::OpenOptions::new().write(true).open(image)?;

    let last = pool.snapshots(&dataset)?.pop();
    let number = pool.snapshots(&dataset)?.len();
    let new = format!("{dataset}@backup-{number:04}");
    pool.snapshot(std::slice::from_ref(&new), Recursion::One, &[])?;

    if let Some(last) = &last {
        pool.diff(last, &new, |change| {
            let path = change.path.unwrap_or_default();
            println!("{:?} {}", change.kind, String::from_utf8_lossy(&path));
            Ok(())
        })?;
    }
    let path = Path::new(folder).join(format!("{number:04}.zstream"));
    let output = BufWriter::new(File::create_new(&path)?);
    let bytes = pool.send_to(&new, last.as_deref(), output)?;
    println!("{}: {bytes} bytes", path.display());
    pool.export()?;
    Ok(())
}
