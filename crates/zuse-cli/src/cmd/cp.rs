//! `zuse cp`

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use zuse::tools::Layers as _;
use zuse::{Credentials, Errno};

use crate::args::Devices;
use crate::copy::{
    Below, CopyInOptions, CopyOutOptions, Replace, Report, copy_in, copy_out, in_the_way,
};
use crate::error::{CommandError, Explain, Outcome};
use crate::progress::Progress;
use crate::session::{Need, Session};
use crate::target::Target;

/// Bytes of a volume copied at a time.
const CHUNK: usize = 1 << 20;

/// Copy files between the host and a dataset, without a mount
///
/// A place in a dataset is written DATASET:/PATH or DATASET@SNAPSHOT:/PATH. Modes, times, symbolic
/// and hard links, extended attributes and holes are kept. Owners, set-id bits and capabilities are
/// kept too when run as root. A volume is VOLUME: or VOLUME@SNAPSHOT:, and is copied as one file.
///
/// Files that cannot be copied are reported, the others are copied, and the exit status is 1.
/// Existing files of the host are kept unless -f is given. Only a file that the command line names
/// itself is replaced.
#[derive(Args, Debug)]
pub struct Cp {
    /// Copy directories with their content
    #[arg(short, visible_short_alias = 'R')]
    recursive: bool,
    /// Accepted: attributes are always kept
    #[arg(short = 'a', short_alias = 'p')]
    archive: bool,
    #[command(flatten)]
    how: CopyOptions,
    #[command(flatten)]
    devices: Devices,
    /// What to copy, then where to
    #[arg(required = true, num_args = 2.., value_name = "SOURCE… DESTINATION")]
    paths: Vec<OsString>,
}

/// What is asked of a copy besides.
#[derive(Args, Debug, Clone, Copy)]
pub struct CopyOptions {
    /// Keep what can be read of a file that cannot be read whole, with zeros for the rest
    #[arg(short = 'k', long)]
    pub keep_going: bool,
    /// Replace existing files and links of the host (never directories)
    #[arg(short, long)]
    pub force: bool,
    /// As root: do not copy owners, set-id bits and capabilities
    #[arg(long)]
    pub no_same_owner: bool,
    /// Leave out devices, FIFOs and sockets
    #[arg(long)]
    pub no_special: bool,
}

impl CopyOptions {
    /// How to copy to the host, for sources of a command line (`trusted`) or of a stream.
    pub fn outward(self, recursive: bool, trusted: bool) -> CopyOutOptions {
        let replace = match self.force {
            true => Replace::FilesAndLinks,
            false => Replace::Nothing,
        };
        CopyOutOptions {
            recursive,
            keep_going: self.keep_going,
            owners: !self.no_same_owner,
            special: !self.no_special,
            replace_named: match replace {
                Replace::Nothing if trusted => Replace::File,
                other => other,
            },
            replace,
            change_existing: trusted,
        }
    }
}

impl Cp {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let recursive = self.recursive || self.archive;
        let Some((to, sources)) = self.paths.split_last() else {
            return Ok(());
        };
        let targets: Vec<Option<Target>> = sources.iter().map(|s| Target::parse(s)).collect();
        match Target::parse(to) {
            Some(place) if targets.iter().all(Option::is_none) => {
                let is_dir = to.as_bytes().ends_with(b"/");
                let options = CopyInOptions { recursive, keep_going: self.how.keep_going,
                    special: !self.how.no_special, is_dir };
                copy_all_in(session, sources, &place, options)
            }
            None if targets.iter().all(Option::is_some) => {
                let to = session.path(to.as_ref());
                let options = self.how.outward(recursive, true);
                copy_all_out(session, &targets.into_iter().flatten().collect::<Vec<_>>(), &to,
                    options)
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
    options: CopyInOptions,
) -> Outcome {
    let pool = session.pool_for(&to.dataset, Need::Write)?;
    session.writes = true;
    let cannot = || format!("cannot copy to '{to}'");
    if is_volume(&pool, to)? {
        return write_volume(session, &pool, sources, to);
    }
    let fs = pool.file_system(&to.dataset).or_cannot(cannot)?;
    let me = Credentials::root();
    // An existing directory receives the sources; any other destination is the new name.
    let there = match fs.resolve(&me, &to.path) {
        Ok(znode) => Some(znode),
        Err(e) if e.is(Errno::NOENT) => None,
        Err(e) => return Err(e).or_cannot(cannot),
    };
    let into = there.clone().filter(|z| z.is_dir());
    if into.is_none() && (sources.len() > 1 || options.is_dir && !options.recursive) {
        return Err(CommandError::new(format!("{}: it is not a directory", cannot())).into());
    }
    let progress = Progress::new(&session.ui, session.holder.is_some());
    let report = Report::new(&session.ui)?;
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
        if into.is_none() && options.is_dir && !from.is_dir() {
            return Err(CommandError::new(format!("{}: it is not a directory", cannot())).into());
        }
        let copied = copy_in(
            &fs,
            &to.dataset,
            holder.as_ref(),
            (&progress, &report),
            &from,
            (&dir, &name),
            options,
        );
        report.take(copied)?;
    }
    drop(progress);
    session.ui.flush()?;
    report.finish()
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

/// Copies places of datasets to a path of the host.
pub fn copy_all_out(
    session: &mut Session,
    sources: &[Target],
    to: &Path,
    options: CopyOutOptions,
) -> Outcome {
    let into = to.is_dir();
    let one_file = sources.len() == 1 && !to.as_os_str().as_bytes().ends_with(b"/");
    if !(into || one_file || sources.len() == 1 && options.recursive) {
        return Err(CommandError::new(format!(
            "cannot copy to '{}': it is not a directory",
            to.display()
        ))
        .into());
    }
    let progress = Progress::new(&session.ui, session.holder.is_some());
    let report = Report::new(&session.ui)?;
    // Links in the path that the user gave are followed, but no link below it.
    let parent = to.parent().unwrap_or(Path::new("/"));
    let top = if into { to } else { parent };
    let cannot_open = || format!("cannot open '{}'", top.display());
    for source in sources {
        let below = Below::open(top).or_cannot(cannot_open)?;
        let name = match into {
            true => name_of(source),
            false => to.file_name().map_or(&b""[..], OsStr::as_bytes),
        };
        copy_one_out(
            session,
            (&progress, &report),
            source,
            (&below, top, name),
            options,
        )?;
    }
    report.finish()
}

/// The name of a place of a dataset on the host; empty for the content of a directory.
fn name_of(source: &Target) -> &[u8] {
    match split(&source.path).1 {
        // The content of that directory, not a directory of that name.
        b".." => b"",
        name => name,
    }
}

/// Copies one place to a path below an open directory. With an empty name a volume keeps its own
/// name.
pub fn copy_one_out(
    session: &mut Session,
    (progress, report): (&Progress, &Report),
    source: &Target,
    (below, top, name): (&Below, &Path, &[u8]),
    options: CopyOutOptions,
) -> Outcome {
    let cannot = || format!("cannot copy '{source}'");
    let pool = session.pool_for(&source.dataset, Need::Read)?;
    if is_volume(&pool, source)? {
        let own = source.called.as_ref().unwrap_or(&source.dataset);
        let own = own.split('@').next().unwrap_or_default();
        let name = match name {
            b"" => split(own.as_bytes()).1,
            name => name,
        };
        let shown = top.join(OsStr::from_bytes(name));
        return report.take(volume_out(&pool, source, (below, name, &shown), options));
    }
    let fs = pool.file_system(&source.dataset).or_cannot(cannot)?;
    let from = fs
        .resolve(&Credentials::root(), &source.path)
        .map_err(|e| super::ls::missing(&cannot(), &e))?;
    copy_out(&fs, progress, report, &from, (below, top, name), options)
}

/// Copies a volume out as one file, created like any other file. A named disk is overwritten.
fn volume_out(
    pool: &zuse::Pool,
    source: &Target,
    (below, name, shown): (&Below, &[u8], &Path),
    options: CopyOutOptions,
) -> Outcome {
    let cannot = || format!("cannot create '{}'", shown.display());
    let (parent, name) = split(name);
    let dir = below.dir(parent).or_cannot(cannot)?;
    let place = below.place(&dir, name, options.replace_named);
    if let Some(mut disk) = place.disk().or_cannot(cannot)? {
        return read_volume(pool, source, options.keep_going, &mut disk);
    }
    let (mut file, made) = place.file().map_err(in_the_way).or_cannot(cannot)?;
    let done = read_volume(pool, source, options.keep_going, &mut file);
    if done.is_err() && !options.keep_going {
        made.drop_it();
        return done;
    }
    made.keep().map_err(in_the_way).or_cannot(cannot)?;
    done
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

/// Writes a volume's bytes out, optionally with zeros for unreadable ones.
pub fn read_volume(
    pool: &zuse::Pool,
    from: &Target,
    keep_going: bool,
    out: &mut dyn Write,
) -> Outcome {
    let cannot = || format!("cannot read '{}'", from.dataset);
    let incomplete =
        |why: String| CommandError::new(format!("'{}' is incomplete: {why}", from.dataset));
    let volume = pool.volume(&from.dataset).or_cannot(cannot)?;
    let mut buffer = vec![0; CHUNK];
    let size = volume.size().or_cannot(cannot)?;
    let (mut at, mut missing) = (0, None);
    while at < size {
        let want = (size - at).min(CHUNK as u64) as usize;
        buffer.resize(want, 0);
        let got = match volume.read(at, &mut buffer) {
            Ok(0) => return Err(incomplete(format!("it ends at byte {at}")).into()),
            Ok(got) => got,
            Err(e) if !keep_going => return Err(incomplete(e.to_string()).into()),
            Err(e) => {
                missing.get_or_insert((at, e));
                volume_blocks(&volume, at, &mut buffer);
                want
            }
        };
        out.write_all(buffer.get(..got).unwrap_or_default())?;
        at += got as u64;
    }
    match missing {
        None => Ok(()),
        Some((at, e)) => {
            Err(incomplete(format!("bytes are missing, the first behind {at}: {e}")).into())
        }
    }
}

/// Reads the readable blocks of a part of a volume, zeros for the rest.
fn volume_blocks(volume: &zuse::Volume, at: u64, buffer: &mut [u8]) {
    let mut offset = at;
    for part in buffer.chunks_mut(4096) {
        if volume.read(offset, part).is_err() {
            part.fill(0);
        }
        offset += part.len() as u64;
    }
}

/// Writes one file or device to a volume from its beginning. Runs of zeros become holes.
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
    volume.sync().or_cannot(cannot)
}
