//! `zuse stream …`: what is in streams, without a pool.
//!
//! A stream (a full one, then its incrementals) is received into a pool in a nameless file; the
//! ordinary verbs then work on that pool.

mod diff;
mod mount;

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use zuse::stream::record::{HEADER, Header, Record};
use zuse::stream::{ResumeToken, StreamReader, features};
use zuse::{Pool, STREAM_DATASET, STREAM_POOL};

use super::cp::{How, copy_all_out};
use super::zstream::{input, said};
use crate::error::{CommandError, Explain, Outcome, explain};
use crate::session::Session;
use crate::target::Target;

/// Look into send streams: list, read and extract files, without a pool
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
    /// Does it.
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
            // Why was said; what is whole was given.
            Ok(()) if session.flawed => Err(CommandError::new("").into()),
            other => other,
        }
    }
}

/// Streams, and where to unpack them.
#[derive(Args, Debug)]
struct Sources {
    /// Unpack into a nameless file in this directory
    #[arg(long, value_name = "DIR")]
    tmp: Option<PathBuf>,
    /// A full stream and its incrementals, in order; the last may name a snapshot, or of a package
    /// a file system below its top (FILE@/CHILD@SNAPSHOT). '-' is standard input
    #[arg(required = true, value_name = "STREAM[@SNAPSHOT]")]
    streams: Vec<PathBuf>,
}

/// Whether there was no room for what a stream unpacks to.
fn is_room(error: &zuse::Error) -> bool {
    matches!(error, zuse::Error::Suspended { .. }) || error.is(zuse::Errno::NOSPC)
}

fn no_room(folder: &Path) -> String {
    format!("no room in '{}' to unpack it", folder.display())
}

/// Why nothing of a stream can be read.
fn unread(error: &zuse::Error, folder: &Path) -> CommandError {
    let cannot = "cannot read stream";
    if error.is(zuse::Errno::NOENT) && matches!(error, zuse::Error::Refused { .. }) {
        let what = "it is an incremental one, and what it builds on is not there";
        return CommandError::new(format!("{cannot}: {what}"))
            .hint("name the full stream before it, then the incremental ones in order");
    }
    match is_room(error) {
        true => CommandError::new(format!("{cannot}: {}", no_room(folder)))
            .hint("--tmp DIR unpacks it elsewhere"),
        false => explain(cannot, error, false),
    }
}

impl Sources {
    /// Receives the streams; the snapshot to be looked at.
    fn open(&self, session: &mut Session) -> Outcome<String> {
        Ok(self.open_all(session, STREAM_POOL)?.0)
    }

    /// Says which file systems a package holds besides the one that is shown.
    fn tell_others(&self, session: &mut Session, snapshots: &[String]) {
        // Behind the pool's name and the top's: what is left of names below it.
        let below = |s: &String| {
            let (_, inside) = s.split_once('/')?;
            inside
                .find('/')
                .and_then(|at| inside.get(at..))
                .map(str::to_owned)
        };
        let others: Vec<String> = snapshots.iter().filter_map(below).collect();
        if !others.is_empty() {
            session.ui.say(format!(
                "the stream holds more file systems, which are shown one at a time: {}",
                others.join(" ")
            ));
            session.ui.say("FILE@/CHILD@SNAPSHOT names one");
        }
    }

    /// Receives the streams into a pool of that name; the snapshot to be looked at, and all that
    /// there are.
    fn open_all(&self, session: &mut Session, pool: &str) -> Outcome<(String, Vec<String>)> {
        let mut wanted = None;
        let mut inputs: Vec<Box<dyn Read>> = Vec::new();
        for path in &self.streams {
            let (file, own) = split(session, path);
            if own.is_some() {
                wanted = own;
            }
            inputs.push(input(session, Some(&file))?);
        }
        let folder = match &self.tmp {
            Some(dir) => session.path(dir),
            None => std::env::temp_dir(),
        };
        let env = session.environment()?;
        let top = top_of(pool);
        let (pool, snapshots, flaw) = Pool::of_streams(env, pool, &folder, inputs)
            .map_err(|error| unread(&error, &folder))?;
        session.adopt(pool);
        if let Some(flaw) = flaw {
            session.flawed = true;
            let ui = &mut session.ui;
            match is_room(&flaw) {
                true => ui.say(format!("the stream is not whole: {}", no_room(&folder))),
                false => ui.say(format!("the stream is not whole: {flaw}")),
            }
            ui.say("this is what it holds; what it does not hold is an error");
        }
        let found = match &wanted {
            None => {
                self.tell_others(session, &snapshots);
                let of_top = |s: &&String| s.split('@').next() == Some(top.as_str());
                let last = snapshots.iter().rev().find(of_top);
                last.or(snapshots.last()).cloned()
            }
            Some(own) => snapshots
                .iter()
                .find(|s| **s == format!("{top}@{own}") || s.strip_prefix(&top) == Some(own))
                .cloned(),
        };
        match found {
            Some(found) => Ok((found, snapshots)),
            None => {
                let own = wanted.unwrap_or_default();
                Err(
                    CommandError::new(format!("there is no snapshot '{own}' in the stream"))
                        .hint(format!("it has: {}", snapshots.join(" ")))
                        .into(),
                )
            }
        }
    }
}

/// The dataset that a stream's top becomes in a pool of that name.
fn top_of(pool: &str) -> String {
    STREAM_DATASET.replacen(STREAM_POOL, pool, 1)
}

/// A file and the snapshot behind its name: `FILE@SNAPSHOT`, or `FILE@/CHILD@SNAPSHOT` of a file
/// system below the top.
fn split(session: &Session, path: &Path) -> (PathBuf, Option<String>) {
    if session.path(path).exists() {
        return (path.to_owned(), None);
    }
    let text = path.to_string_lossy();
    let child = text.find("@/").map(|at| text.split_at(at));
    if let Some((file, own)) = child.filter(|(file, _)| session.path(file.as_ref()).exists()) {
        return (
            PathBuf::from(file),
            own.strip_prefix('@').map(str::to_owned),
        );
    }
    match text.rsplit_once('@') {
        Some((file, own)) => (PathBuf::from(file), Some(own.to_owned())),
        None => (path.to_owned(), None),
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

fn inside(snapshot: &str, path: &str) -> OsString {
    format!("{snapshot}:/{}", path.trim_start_matches('/')).into()
}

/// List a directory in a stream
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
        let snapshot = self.sources.open(session)?;
        let mut words: Vec<OsString> = vec!["ls".into()];
        if self.long {
            words.push("-l".into());
        }
        if self.recursive {
            words.push("-R".into());
        }
        words.push(inside(&snapshot, &self.path));
        verb(session, &words)
    }
}

/// Write files in a stream to standard output
#[derive(Args, Debug)]
struct Cat {
    /// Go on behind what the stream does not hold, with zeros in its place
    #[arg(short = 'k', long)]
    keep_going: bool,
    /// The file (may be repeated)
    #[arg(short, long, required = true, value_name = "PATH")]
    path: Vec<String>,
    #[command(flatten)]
    sources: Sources,
}

impl Cat {
    fn run(self, session: &mut Session) -> Outcome {
        let snapshot = self.sources.open(session)?;
        let mut words: Vec<OsString> = vec!["cat".into()];
        if self.keep_going {
            words.push("-k".into());
        }
        words.extend(self.path.iter().map(|p| inside(&snapshot, p)));
        verb(session, &words)
    }
}

/// Copy files out of a stream
///
/// The directory is made if there is none. Nothing outside of it is touched, and nothing in it that
/// is there already. A file that the stream does not hold whole is named and left out (-k keeps
/// what there is of it), and the exit status is 1.
#[derive(Args, Debug)]
struct Extract {
    /// What to copy (may be repeated); everything if nothing is named
    #[arg(short, long, default_value = "/", value_name = "PATH")]
    path: Vec<String>,
    /// Where to
    #[arg(short = 'C', long = "to", default_value = ".", value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    sources: Sources,
}

impl Extract {
    fn run(self, session: &mut Session) -> Outcome {
        let snapshot = self.sources.open(session)?;
        let places = self.path.iter().map(|p| inside(&snapshot, p));
        let sources: Vec<Target> = places.filter_map(|p| Target::parse(&p)).collect();
        let to = session.path(&self.to);
        let whole = matches!(&sources[..], [one] if one.path.is_empty());
        if !whole && !to.is_dir() {
            let cannot = || format!("cannot make '{}'", to.display());
            std::fs::create_dir(&to).or_cannot(cannot)?;
        }
        copy_all_out(session, &sources, &to, self.how.outward(true, false))
    }
}

/// List every path of a stream with its checksum, as JSON
///
/// What the stream does not hold whole is a line with its path and an error, and the exit status is
/// 1.
#[derive(Args, Debug)]
struct Manifest {
    /// Accepted: what cannot be read never ends the rest
    #[arg(short = 'k', long)]
    keep_going: bool,
    #[command(flatten)]
    sources: Sources,
}

impl Manifest {
    fn run(self, session: &mut Session) -> Outcome {
        let snapshot = self.sources.open(session)?;
        verb(session, &["manifest".into(), snapshot.into()])
    }
}

/// Say which snapshots a stream holds
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
                Err(e) => return Err(said(e)),
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
    /// In none, or behind it.
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
                Err(e) => return Err(said(e)),
            }
        }
        let bytes = reader.offset();
        session.ui.line(format!(
            "{records} records, {bytes} bytes: all checksums hold"
        ))?;
        Ok(())
    }
}

/// Say with which token a stream that was cut can be gone on with
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
        // A record counts once the one behind it is there.
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
