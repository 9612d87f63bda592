//! `zuse cp`

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use zuse::{Credentials, Errno};

use crate::args::Devices;
use crate::copy::{copy_in, copy_out};
use crate::error::{CommandError, Explain, Outcome};
use crate::progress::Progress;
use crate::session::{Need, Session};
use crate::target::Target;

/// Bytes of a volume that are copied at a time.
const CHUNK: usize = 1 << 20;

/// Copy files between the host and a dataset, without a mount
///
/// A place in a dataset is written DATASET:/PATH or DATASET@SNAPSHOT:/PATH. Modes, times, symbolic and hard links, extended
/// attributes and holes are kept, owners too when run as root. A volume is
/// VOLUME: or VOLUME@SNAPSHOT:, and is copied as one file.
#[derive(Args, Debug)]
pub struct Cp {
    /// Copy directories with all that is in them
    #[arg(short, visible_short_alias = 'R')]
    recursive: bool,
    /// Accepted: attributes are always kept
    #[arg(short = 'a', short_alias = 'p')]
    archive: bool,
    #[command(flatten)]
    devices: Devices,
    /// What to copy, then where to
    #[arg(required = true, num_args = 2.., value_name = "SOURCE… DESTINATION")]
    paths: Vec<OsString>,
}

impl Cp {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let recursive = self.recursive || self.archive;
        let Some((to, sources)) = self.paths.split_last() else {
            return Ok(());
        };
        let targets: Vec<Option<Target>> = sources.iter().map(|s| Target::parse(s)).collect();
        match Target::parse(to) {
            Some(to) if targets.iter().all(Option::is_none) => copy_all_in(session, sources, &to, recursive),
            None if targets.iter().all(Option::is_some) => {
                let to = session.path(to.as_ref());
                copy_all_out(session, &targets.into_iter().flatten().collect::<Vec<_>>(), &to, recursive)
            }
            Some(_) => Err(CommandError::usage("cannot copy from dataset to dataset").hint("copy out to the host first, or mount both").into()),
            None => Err(CommandError::usage("cannot copy: neither side is in a dataset")
                .hint("write places in datasets as DATASET:/PATH, for example tank/home:/notes.txt")
                .into()),
        }
    }
}

fn copy_all_in(
    session: &mut Session,
    sources: &[OsString],
    to: &Target,
    recursive: bool,
) -> Outcome {
    let pool = session.pool_for(&to.dataset, Need::Write)?;
    let cannot = || format!("cannot copy to '{to}'");
    if is_volume(&pool, to)? {
        return write_volume(session, &pool, sources, to);
    }
    let fs = pool.file_system(&to.dataset).or_cannot(cannot)?;
    let me = Credentials::root();
    // An existing directory takes the sources in; anything else is the new name.
    let there = match fs.resolve(&me, &to.path) {
        Ok(znode) => Some(znode),
        Err(e) if e.is(Errno::NOENT) => None,
        Err(e) => return Err(e).or_cannot(cannot),
    };
    let into = there.clone().filter(|z| z.is_dir());
    if into.is_none() && sources.len() > 1 {
        return Err(CommandError::new(format!("{}: it is not a directory", cannot())).into());
    }
    let progress = Progress::new(&session.ui, session.holder.is_some());
    let holder = session.holder.clone();
    for source in sources {
        let from = session.path(source.as_ref());
        let (dir, name) = match &into {
            Some(dir) => (dir.clone(), base_name(&from, source)),
            None => {
                let (parent, name) = split(&to.path);
                let dir = fs.resolve(&me, parent).or_cannot(cannot)?;
                (dir, name.to_vec())
            }
        };
        copy_in(
            &fs,
            &to.dataset,
            holder.as_ref(),
            &progress,
            &from,
            (&dir, &name),
            recursive,
        )?;
    }
    drop(progress);
    session.ui.flush()?;
    Ok(())
}

/// The name under which a source appears; empty for `DIR/.`, which means what is in it.
fn base_name(path: &Path, given: &OsString) -> Vec<u8> {
    let given = given.as_bytes();
    if given == b"." || given.ends_with(b"/.") {
        return Vec::new();
    }
    path.file_name()
        .map(|n| n.as_bytes().to_vec())
        .unwrap_or_default()
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (
            path.get(..at).unwrap_or_default(),
            path.get(at + 1..).unwrap_or_default(),
        ),
        None => (b"", path),
    }
}

fn copy_all_out(session: &mut Session, sources: &[Target], to: &Path, recursive: bool) -> Outcome {
    let into = to.is_dir();
    if !into && sources.len() > 1 {
        return Err(CommandError::new(format!(
            "cannot copy to '{}': it is not a directory",
            to.display()
        ))
        .into());
    }
    let progress = Progress::new(&session.ui, session.holder.is_some());
    for source in sources {
        let cannot = || format!("cannot copy '{source}'");
        let pool = session.pool_for(&source.dataset, Need::Read)?;
        if is_volume(&pool, source)? {
            let mut out = std::fs::File::create(to)
                .or_cannot(|| format!("cannot create '{}'", to.display()))?;
            read_volume(&pool, source, &mut out)?;
            continue;
        }
        let fs = pool.file_system(&source.dataset).or_cannot(cannot)?;
        let from = fs
            .resolve(&Credentials::root(), &source.path)
            .map_err(|e| super::ls::missing(&cannot(), &e))?;
        let (_, name) = split(&source.path);
        let target = match (into, name.is_empty()) {
            (true, false) => to.join(std::ffi::OsStr::from_bytes(name)),
            _ => to.to_owned(),
        };
        copy_out(&fs, &progress, &from, &target, recursive)?;
    }
    Ok(())
}

/// Whether a place is a volume as a whole.
pub fn is_volume(pool: &zuse::Pool, target: &Target) -> Outcome<bool> {
    if !target.path.is_empty() {
        return Ok(false);
    }
    let name = &target.dataset;
    let entry = pool
        .dsl()
        .dataset(name)
        .and_then(|d| d.is_volume())
        .or_cannot(|| format!("cannot open '{name}'"))?;
    Ok(entry)
}

/// Writes a volume's bytes out.
pub fn read_volume(pool: &zuse::Pool, from: &Target, out: &mut dyn Write) -> Outcome {
    let cannot = || format!("cannot read '{}'", from.dataset);
    let volume = pool.volume(&from.dataset).or_cannot(cannot)?;
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let got = volume.read(at, &mut buffer).or_cannot(cannot)?;
        if got == 0 {
            return Ok(());
        }
        out.write_all(buffer.get(..got).unwrap_or_default())?;
        at += got as u64;
    }
}

/// Writes one file or device over a volume from its beginning. Runs of zeros become holes.
fn write_volume(
    session: &mut Session,
    pool: &zuse::Pool,
    sources: &[OsString],
    to: &Target,
) -> Outcome {
    let cannot = || format!("cannot copy to '{}'", to.dataset);
    let [source] = sources else {
        return Err(CommandError::usage(format!("{}: a volume takes one file", cannot())).into());
    };
    let path = session.path(source.as_ref());
    let mut file =
        std::fs::File::open(&path).or_cannot(|| format!("cannot open '{}'", path.display()))?;
    let volume = pool.volume(&to.dataset).or_cannot(cannot)?;
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let got = std::io::Read::read(&mut file, &mut buffer)?;
        let Some(part) = buffer.get(..got).filter(|p| !p.is_empty()) else {
            break;
        };
        if part.iter().all(|b| *b == 0) {
            volume.discard(at, part.len() as u64).or_cannot(cannot)?;
        } else {
            volume.write(at, part).or_cannot(cannot)?;
        }
        at += got as u64;
    }
    volume.flush().or_cannot(cannot)
}
