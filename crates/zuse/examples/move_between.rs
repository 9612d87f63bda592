//! Shows the files of a pool with their attributes, and writes a file into it. Then it sends
//! everything to another pool, which it creates:
//!
//! `cargo run -p zuse --example move_between -- IMAGE FILE NEW-IMAGE`

use std::error::Error;
use std::ffi::OsString;
use std::io::{Read, Write};
use zuse::Recursion;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [image, file, other] = &args[..] else {
        return Err("usage: move_between IMAGE FILE NEW-IMAGE".into());
    };
    let pool = zuse::OpenOptions::new().write(true).open(image)?;
    let name = pool.name();
    let files = pool.files(&name)?;
    for entry in files.walk("/")? {
        let entry = entry?;
        let meta = entry.metadata()?;
        let path = entry.path().display();
        println!("{:o} {:>12} {path}", meta.mode(), meta.len());
        for xattr in files.xattrs(entry.path())? {
            let value = files.xattr(entry.path(), &xattr)?.unwrap_or_default();
            println!("    {xattr}: {} bytes", value.len());
        }
    }
    files.create_dir_all("/incoming")?;
    let mut there = files.create("/incoming/file")?;
    std::io::copy(&mut std::fs::File::open(file)?, &mut there)?;
    there.flush()?;
    files.set_xattr("/incoming/file", "user.origin", b"host")?;
    drop((there, files));

    // Two pools in one process: a stream goes from one into the other through memory.
    let now = format!("{name}@moved");
    pool.snapshot(std::slice::from_ref(&now), Recursion::One, &[])?;
    let mut stream = Vec::new();
    pool.send_to(&now, None, &mut stream)?;
    let copy = zuse::CreateOptions::new("copy")
        .file(other, 256 << 20)
        .create()?;
    copy.receive_from(&stream[..], "copy/all")?;

    let all = copy.files("copy/all")?;
    let mut bytes = Vec::new();
    all.open("/incoming/file")?.read_to_end(&mut bytes)?;
    let origin = all.xattr("/incoming/file", "user.origin")?;
    println!("{} bytes came, from {origin:?}", bytes.len());
    drop(all);
    copy.export()?;
    pool.export()?;
    Ok(())
}
