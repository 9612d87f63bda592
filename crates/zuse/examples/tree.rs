//! Lists every file of every dataset and snapshot of a pool, without mounting it:
//!
//! `cargo run -p zuse --example tree -- DEVICE…`

use std::error::Error;
use std::ffi::OsString;

use zuse::fs::FileType;
use zuse::{DatasetKind, ListedKinds};

fn main() -> Result<(), Box<dyn Error>> {
    let devices: Vec<OsString> = std::env::args_os().skip(1).collect();
    let pool = zuse::OpenOptions::new().open_in(&devices)?;
    for dataset in pool.list(&pool.name(), None, ListedKinds::WITH_SNAPSHOTS)? {
        println!("{}", dataset.name);
        if dataset.kind == DatasetKind::Volume || pool.dataset(&dataset.name)?.is_inconsistent()? {
            continue;
        }
        let files = match pool.files(&dataset.name) {
            Ok(files) => files,
            // An encrypted dataset without its key, or a snapshot of a volume.
            Err(error) => {
                println!("  ({error})");
                continue;
            }
        };
        for entry in files.walk("/")? {
            let entry = match entry {
                Ok(entry) => entry,
                // Damage is reported, and the walk goes on.
                Err(error) => {
                    eprintln!("{error}");
                    continue;
                }
            };
            let size = match entry.file_type() {
                FileType::File => entry.metadata()?.len().to_string(),
                other => format!("{other:?}").to_lowercase(),
            };
            println!("  {size:>12}  /{}", entry.path().display());
        }
    }
    Ok(())
}
