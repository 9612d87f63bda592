//! Creates a pool in an image file and copies a directory of the host into it:
//!
//! `cargo run -p zuse --example make_image -- IMAGE MEBIBYTES DIRECTORY`

use std::error::Error;
use std::ffi::OsString;
use std::path::Path;

use zuse::fs::Files;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [image, size, from] = &args[..] else {
        return Err("usage: make_image IMAGE MEBIBYTES DIRECTORY".into());
    };
    let mebibytes: u64 = size.to_string_lossy().parse()?;
    let pool = zuse::CreateOptions::new("tank")
        .file(image, mebibytes << 20)
        .root_property("compression", "zstd")
        .create()?;
    let files = pool.files("tank")?;
    copy_in(Path::new(from), &files, Path::new("/"))?;
    drop(files);
    // An exported pool can be imported by any host.
    pool.export()?;
    Ok(())
}

fn copy_in(from: &Path, files: &Files, to: &Path) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (here, there) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files.create_dir(&there)?;
            copy_in(&here, files, &there)?;
        } else if kind.is_symlink() {
            files.symlink(std::fs::read_link(&here)?, &there)?;
        } else if kind.is_file() {
            let mut source = std::fs::File::open(&here)?;
            std::io::copy(&mut source, &mut files.create(&there)?)?;
        }
    }
    Ok(())
}
