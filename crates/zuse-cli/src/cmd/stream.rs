//! `zuse stream …`: what is in streams, without a pool.
//!
//! A stream (a full one, then its incrementals) is received into a pool in an unlinked file. The
//! ordinary verbs then work on that pool.

mod diff;
mod members;
mod mount;
mod sources;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use zuse::stream::record::{HEADER, Header, Record};
use zuse::stream::{ResumeToken, StreamReader, features};
use zuse_zpl::Hashing;

use self::members::Place;
use self::sources::Sources;
use super::cp::{CopyOptions, copy_all_out, copy_one_out};
use super::zstream::{input, stream_failure};
use crate::cmd;
use crate::copy::{Below, CopyOutOptions, Report};
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::progress::Progress;
use crate::session::Session;
use crate::target::Target;

/// Read send streams without a pool: list, read and extract files
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct Stream {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Ls(Ls),
    Cat(Cat),
    Extract(Extract),
    Manifest(Manifest),
    Mount(mount::Mount),
    Diff(diff::Diff),
    Info(Info),
    Verify(Verify),
    Token(Token),
}

impl Stream {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let done = match self.command {
            Command::Ls(c) => c.run(session),
            Command::Cat(c) => c.run(session),
            Command::Extract(c) => c.run(session),
            Command::Manifest(c) => c.run(session),
            Command::Mount(c) => c.run(session),
            Command::Diff(c) => c.run(session),
            Command::Info(c) => c.run(session),
            Command::Verify(c) => c.run(session),
            Command::Token(c) => c.run(session),
        };
        match done {
            // The errors were reported and the readable part was printed. Only the exit status is
            // left.
            Ok(()) if session.flawed => Err(CommandError::new("").into()),
            other => other,
        }
    }
}

/// Runs another verb of the command line.
fn verb(session: &mut Session, words: &[OsString]) -> Outcome {
    let mut argv = vec![OsString::from("zuse")];
    argv.extend_from_slice(words);
    let cli = super::Cli::try_parse_from(argv)
        .map_err(|e| CommandError::usage(e.to_string().trim_end().to_owned()))?;
    cli.run(session)
}

/// List a directory in a stream
///
/// In a package with several datasets each is listed under its name, and paths are those of one
/// tree. A dataset hides a directory of its name in its parent. --dataset chooses one.
#[derive(Args, Debug)]
struct Ls {
    /// With modes, links, owners, sizes and times
    #[arg(short)]
    long: bool,
    /// With all directories below
    #[arg(short = 'R')]
    recursive: bool,
    /// The directory
    #[arg(short, long, default_value = "/", value_name = "PATH")]
    path: String,
    #[command(flatten)]
    sources: Sources,
}

impl Ls {
    fn run(self, session: &mut Session) -> Outcome {
        let members = self.sources.open(session)?;
        let places = members.tree(&self.path)?.into_iter();
        let places: Vec<_> = places.map(|p| (p.target, self.path.clone())).collect();
        cmd::ls::Ls::of(self.long, self.recursive).list(session, &places)
    }
}

/// Write files in a stream to standard output
#[derive(Args, Debug)]
struct Cat {
    /// Write zeros for what the stream lacks, and continue
    #[arg(short = 'k', long)]
    keep_going: bool,
    /// The file, or a volume (may be repeated)
    #[arg(short, long, required = true, value_name = "PATH")]
    path: Vec<String>,
    #[command(flatten)]
    sources: Sources,
}

impl Cat {
    fn run(self, session: &mut Session) -> Outcome {
        let members = self.sources.open(session)?;
        let targets = self.path.iter().map(|p| members.place(p));
        let targets: Vec<Target> = targets.collect::<Outcome<_>>()?;
        cmd::cat::each(session, &targets, self.keep_going)
    }
}

/// Copy files out of a stream
///
/// The directory is created if it does not exist. Nothing outside of it is changed, and no existing
/// file. The exit status is 1 if a file is incomplete in the stream. It is reported and left out;
/// -k keeps what there is of it. Of a package all datasets are copied, each into a directory of its
/// name. A volume becomes a file.
#[derive(Args, Debug)]
struct Extract {
    /// What to copy (may be repeated); everything if nothing is named
    #[arg(short, long, default_value = "/", value_name = "PATH")]
    path: Vec<String>,
    /// Where to
    #[arg(short = 'C', long = "to", default_value = ".", value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    how: CopyOptions,
    #[command(flatten)]
    sources: Sources,
}

impl Extract {
    fn run(self, session: &mut Session) -> Outcome {
        let members = self.sources.open(session)?;
        let places = self.path.iter().map(|p| members.tree(p));
        let places: Vec<Place> = places.collect::<Outcome<Vec<_>>>()?.concat();
        let to = session.path(&self.to);
        let options = self.how.outward(true, false);
        if let [one] = &places[..]
            && one.below.is_empty()
            && one.target.path.is_empty()
            && !one.is_volume
        {
            // The directory becomes the copy of the dataset's root.
            return copy_all_out(session, std::slice::from_ref(&one.target), &to, options);
        }
        // Existing directories are not changed. New ones get the attributes of the roots, also if a
        // dataset covers a directory.
        let is_new = |p: &Place| to.join(&p.below).symlink_metadata().is_err();
        let new: Vec<bool> = places.iter().map(is_new).collect();
        if !to.is_dir() {
            let cannot = || format!("cannot make '{}'", to.display());
            std::fs::create_dir(&to).or_cannot(cannot)?;
        }
        let progress = Progress::new(&session.ui, session.holder.is_some());
        let report = Report::new(&session.ui)?;
        let below = Below::open(&to).or_cannot(|| format!("cannot open '{}'", to.display()))?;
        for (place, is_new) in places.iter().zip(new) {
            let options = CopyOutOptions {
                change_existing: is_new,
                ..options
            };
            let there = (&below, to.as_path(), place.below.as_bytes());
            let done = copy_one_out(session, (&progress, &report), &place.target, there, options);
            report.take(done)?;
        }
        report.finish()
    }
}

/// List every path of a stream with its checksum, as JSON
///
/// A file that is incomplete in the stream has a line with its path and an error, and the exit
/// status is 1. In a package with several datasets each line names its dataset.
#[derive(Args, Debug)]
struct Manifest {
    /// Accepted, without effect: errors never end the list
    #[arg(short = 'k', long)]
    keep_going: bool,
    #[command(flatten)]
    sources: Sources,
}

impl Manifest {
    fn run(self, session: &mut Session) -> Outcome {
        let places = self.sources.open(session)?.tree("/")?;
        let named = places.len() > 1;
        let mut failed = None;
        for place in &places {
            match cmd::manifest::list(session, &place.target, Hashing::All, named) {
                Err(Stop::Failed(error)) => {
                    if let Some(before) = failed.replace(error) {
                        crate::say_error(&mut session.ui, &before);
                    }
                }
                other => other?,
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// List the snapshots of a stream
#[derive(Args, Debug)]
struct Info {
    /// The stream; standard input if none is named
    file: Option<PathBuf>,
}

impl Info {
    fn run(self, session: &mut Session) -> Outcome {
        let mut reader = StreamReader::new(input(session, self.file.as_deref())?);
        let mut began = 0;
        loop {
            let item = match reader.next_record() {
                Ok(Some(item)) => item,
                Ok(None) => return Ok(()),
                Err(e) => return Err(stream_failure(e)),
            };
            match &item.record {
                Record::Begin(b) => {
                    began = item.offset;
                    let kind = match b.header() {
                        Header::Package => "package",
                        _ if b.from_guid == 0 => "full",
                        _ => "incremental",
                    };
                    let mut line = format!("{kind}\t{}", b.to_name);
                    if b.header() != Header::Package {
                        line += &format!("\tguid {:#x}", b.to_guid);
                    }
                    if b.from_guid != 0 {
                        line += &format!("\tfrom {:#x}", b.from_guid);
                    }
                    let flags = features::names(b.features()).collect::<Vec<_>>().join(",");
                    if !flags.is_empty() {
                        line += &format!("\t{flags}");
                    }
                    session.ui.line(line)?;
                }
                Record::End { to_guid, .. } if *to_guid != 0 => {
                    let bytes = item.offset + HEADER as u64 - began;
                    session.ui.line(format!("\t{bytes} bytes"))?;
                }
                _ => {}
            }
            reader.recycle(item.payload);
        }
    }
}

/// Check every checksum of a stream
#[derive(Args, Debug)]
struct Verify {
    /// The stream; standard input if none is named
    file: Option<PathBuf>,
}

/// Where in a package a reader is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Package {
    /// Outside of all packages.
    None,
    /// In its front.
    Front,
    /// Among its snapshots.
    Inside,
}

impl Verify {
    fn run(self, session: &mut Session) -> Outcome {
        let mut reader = StreamReader::new(input(session, self.file.as_deref())?);
        let (mut records, mut open, mut package) = (0u64, false, Package::None);
        loop {
            match reader.next_record() {
                Ok(Some(item)) => {
                    records += 1;
                    package = match (&item.record, package) {
                        (Record::Begin(b), _) if b.header() == Header::Package => Package::Front,
                        (Record::End { .. }, Package::Front) => Package::Inside,
                        // The END of the package, not of a snapshot in it.
                        (Record::End { .. }, Package::Inside) if !open => Package::None,
                        (_, package) => package,
                    };
                    match item.record {
                        Record::Begin(_) => open = true,
                        Record::End { .. } => open = false,
                        _ => {}
                    }
                    reader.recycle(item.payload);
                }
                Ok(None) if records == 0 => {
                    return Err(CommandError::new("this is no stream: it is empty").into());
                }
                Ok(None) if open || package != Package::None => {
                    return Err(CommandError::new("the stream ends without its END").into());
                }
                Ok(None) => break,
                Err(e) => return Err(stream_failure(e)),
            }
        }
        let bytes = reader.offset();
        session.ui.line(format!(
            "{records} records, {bytes} bytes: all checksums hold"
        ))?;
        Ok(())
    }
}

/// Print the token with which an interrupted stream can be resumed
#[derive(Args, Debug)]
struct Token {
    /// The stream
    #[arg(long = "from-file", value_name = "STREAM")]
    file: PathBuf,
}

impl Token {
    fn run(self, session: &mut Session) -> Outcome {
        let mut reader = StreamReader::new(input(session, Some(&self.file))?);
        let mut token: Option<ResumeToken> = None;
        let mut start = 0;
        // A record counts only when the next one has arrived.
        let mut last: Option<(Option<(u64, u64)>, u64)> = None;
        loop {
            let item = match reader.next_record() {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(e) if e.is_truncated() => break,
                Err(e) => {
                    session.ui.say(format!("{e}"));
                    break;
                }
            };
            if let (Some((place, end)), Some(token)) = (last.take(), &mut token) {
                token.bytes = end - start;
                if let Some((object, offset)) = place {
                    (token.object, token.offset) = (object, offset);
                }
            }
            match &item.record {
                Record::Begin(b) if b.header() == Header::Substream => {
                    start = item.offset + HEADER as u64;
                    token = Some(ResumeToken {
                        from_guid: b.from_guid,
                        to_guid: b.to_guid,
                        to_name: b.to_name.clone(),
                        object: 1,
                        large_blocks: b.features() & features::LARGE_BLOCKS != 0,
                        embed: b.features() & features::EMBED_DATA != 0,
                        compressed: b.features() & features::COMPRESSED != 0,
                        raw: b.features() & features::RAW != 0,
                        ..ResumeToken::default()
                    });
                }
                // The snapshot is complete.
                Record::End { .. } => token = None,
                record => {
                    let place = match record {
                        Record::Object(o) => Some((o.object, 0)),
                        Record::Write(w) => Some((w.object, w.offset)),
                        Record::WriteEmbedded(e) if !e.is_spill() => Some((e.object, e.offset)),
                        _ => None,
                    };
                    last = Some((place, reader.offset()));
                }
            }
            reader.recycle(item.payload);
        }
        match token {
            Some(token) => session.ui.line(token.to_text())?,
            None => {
                return Err(
                    CommandError::new("the stream is whole: there is nothing to resume").into(),
                );
            }
        }
        Ok(())
    }
}
