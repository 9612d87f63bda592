//! `null-fuse [options] MOUNTPOINT`: mounts a file system that does nothing, in the foreground,
//! until SIGTERM or SIGINT.
//!
//! Options: `--threads N`, `--handles` (open and close by message), `--write-back`,
//! `--flush`, `--no-negative`, `--read-ahead KIB`.

mod tree;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use zuse_fuse::{Crew, MountOptions, mount};

use tree::Tree;

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
    let mut point = None;
    let mut args = std::env::args_os().skip(1);
    while let Some(arg) = args.next() {
        let mut word = || args.next().ok_or("an option's value is missing");
        match arg.to_str() {
            Some("--threads") => options.threads = number(word()?)? as usize,
            Some("--read-ahead") => options.max_readahead = number(word()?)? * 1024,
            Some("--handles") => options.handleless_files = false,
            Some("--write-back") => options.writeback_cache = true,
            Some("--flush") => options.flush_on_close = true,
            Some("--no-negative") => options.negative_ttl = Duration::ZERO,
            _ => point = Some(arg),
        }
    }
    let point = point.ok_or("usage: null-fuse [options] MOUNTPOINT")?;
    let mut signals = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGINT,
    ])
    .map_err(|e| e.to_string())?;
    let crew = Crew::new().map_err(|e| e.to_string())?;
    let mounted = mount(Arc::new(Tree::new()), point.as_ref(), &options, &crew)
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
