//! `null-fuse [options] MOUNTPOINT`: mounts a file system that does nothing, in the foreground, until SIGTERM or
//! SIGINT.
//!
//! Options: `--threads N`, `--handles` (open and close by message), `--write-back`,
//! `--flush`, `--no-negative`, `--read-ahead KIB`; for the floor of a server that has its attributes on a disk `--values FILE` (what
//! they hold is read from there, around the host's cache, and summed), `--keep FILE` (what is set is kept in memory, `--keep-mib N`
//! (384, 128 at least) of it, and the rest summed and written there) and `--io-threads N` (2).

mod keep;
mod tree;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use zuse_fuse::{MountOptions, mount};

use keep::Keep;
use tree::{Attributes, Tree};
use values::Values;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("null-fuse: {message}");
            ExitCode::FAILURE
        }
    }
}

fn number(word: OsString) -> Result<u32, String> {
    let text = word.to_str().and_then(|n| n.parse().ok());
    text.ok_or_else(|| format!("{} is not a number", word.display()))
}

fn run() -> Result<(), String> {
    let mut options = MountOptions {
        source: "null".into(),
        subtype: "null".into(),
        handleless_files: true,
        ..MountOptions::default()
    };
    let (mut point, mut values, mut keep) = (None, None, None);
    let (mut keep_mib, mut io_threads) = (384, 2);
    let mut args = std::env::args_os().skip(1);
    while let Some(arg) = args.next() {
        let mut word = || args.next().ok_or("an option's value is missing");
        match arg.to_str() {
            Some("--threads") => options.threads = number(word()?)? as usize,
            Some("--read-ahead") => options.max_readahead = number(word()?)? * 1024,
            Some("--keep-mib") => keep_mib = number(word()?)? as usize,
            Some("--io-threads") => io_threads = number(word()?)? as usize,
            Some("--values") => values = Some(PathBuf::from(word()?)),
            Some("--keep") => keep = Some(PathBuf::from(word()?)),
            Some("--handles") => options.handleless_files = false,
            Some("--write-back") => options.writeback_cache = true,
            Some("--flush") => options.flush_on_close = true,
            Some("--no-negative") => options.negative_ttl = Duration::ZERO,
            _ => point = Some(arg),
        }
    }
    if io_threads == 0 {
        // Who asks for a value, or sets more than the memory holds, would wait for ever.
        return Err("--io-threads is at least 1".into());
    }
    let values = values.map(|path| Values::new(&path, io_threads));
    let keep = keep.map(|path| Keep::new(&path, keep_mib, io_threads));
    let attributes = Attributes {
        values: values.transpose().map_err(|e| e.to_string())?,
        keep: keep.transpose().map_err(|e| e.to_string())?,
    };
    let point = point.ok_or("usage: null-fuse [options] MOUNTPOINT")?;
    let mut signals = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGINT,
    ])
    .map_err(|e| e.to_string())?;
    let mounted = mount(Arc::new(Tree::new(attributes)), point.as_ref(), &options)
        .map_err(|e| e.to_string())?;
    let mounted = Arc::new(mounted);
    let (ours, handle) = (Arc::clone(&mounted), signals.handle());
    let waiter = std::thread::spawn(move || {
        if signals.forever().next().is_some()
            && let Err(error) = ours.unmount_or_detach()
        {
            eprintln!("null-fuse: {error}");
        }
    });
    let result = mounted.join().map_err(|e| e.to_string());
    handle.close();
    let _ = waiter.join();
    result
}
