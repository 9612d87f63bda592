//! `zuse ls`

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::Arc;

use clap::Args;
use zuse::tools::{FileSystem, Layers as _};
use zuse::{Credentials, Errno, ObjectId};
use zuse_zpl::{DEEPEST, Znode, mode};

use super::cp::is_volume;
use crate::args::Devices;
use crate::date;
use crate::error::{CommandError, Explain, Outcome, Stop, explain};
use crate::nicenum::nicenum;
use crate::session::{Need, Session};
use crate::shown;
use crate::target::Target;

/// List a directory of a dataset or snapshot, without a mount
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Ls {
    /// With modes, links, owners, sizes and times
    #[arg(short)]
    long: bool,
    /// Also names that begin with a dot
    #[arg(short)]
    all: bool,
    /// With inode numbers
    #[arg(short)]
    inode: bool,
    /// With all directories below
    #[arg(short = 'R')]
    recursive: bool,
    /// Sizes with units
    #[arg(short = 'h')]
    human: bool,
    /// The directory itself, not what is in it
    #[arg(long)]
    directory: bool,
    #[command(flatten)]
    devices: Devices,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Where
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT]:/PATH")]
    places: Vec<OsString>,
}

/// A place that was named, or the reason why it is none.
pub fn place(text: &OsString) -> Outcome<Target> {
    Target::parse_dataset(text).ok_or_else(|| {
        Stop::from(
            CommandError::usage(format!(
                "'{}' is not a place in a dataset",
                text.to_string_lossy()
            ))
            .hint("write DATASET:/PATH or DATASET@SNAPSHOT:/PATH"),
        )
    })
}

/// The message for a missing path, or for another failure.
pub fn missing(action: &str, error: &zuse::Error) -> Stop {
    if error.is(Errno::NOENT) || error.is(Errno::NOTDIR) {
        return CommandError::new(format!("{action}: {}", error.errno())).into();
    }
    explain(action, error, false).into()
}

impl Ls {
    /// With modes and sizes, and recursively: options for the listing of a stream.
    pub fn of(long: bool, recursive: bool) -> Self {
        Self {
            long,
            all: false,
            inode: false,
            recursive,
            human: false,
            directory: false,
            devices: Devices::default(),
            help: None,
            places: Vec::new(),
        }
    }

    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let places = self.places.iter().map(|text| {
            let name = text.to_string_lossy().into_owned();
            Ok((place(text)?, name))
        });
        let places: Vec<(Target, String)> = places.collect::<Outcome<_>>()?;
        self.list(session, &places)
    }

    /// Lists places. Places that are not directories are printed under the given names.
    pub fn list(&self, session: &mut Session, places: &[(Target, String)]) -> Outcome {
        let several = places.len() > 1 || self.recursive;
        let mut bad = 0u64;
        for (i, (target, name)) in places.iter().enumerate() {
            let pool = session.pool_for(&target.dataset, Need::Read)?;
            if several && is_volume(&pool, target)? {
                if i > 0 {
                    session.ui.line("")?;
                }
                volume_line(session, &pool, target)?;
                continue;
            }
            let fs = pool
                .file_system(&target.dataset)
                .or_cannot(|| format!("cannot open '{}'", target.dataset))?;
            let znode = fs
                .resolve(&Credentials::root(), &target.path)
                .map_err(|e| missing(&format!("cannot list '{target}'"), &e))?;
            if !znode.is_dir() || self.directory {
                let name = name.as_bytes().to_vec();
                let entry = (name, znode.object(), znode.kind());
                bad += self.lines(session, &fs, (&target.to_string(), &[entry]))?;
                continue;
            }
            if several && i > 0 {
                session.ui.line("")?;
            }
            bad += self.tree(session, &fs, &znode, target, several)?;
        }
        match bad {
            0 => Ok(()),
            // Each error was printed already.
            _ => Err(CommandError::new("").into()),
        }
    }

    /// Lists a directory, and those below it if wanted. Returns how many could not be listed
    /// completely.
    fn tree(
        &self,
        session: &mut Session,
        fs: &Arc<FileSystem>,
        top: &Arc<Znode>,
        target: &Target,
        titled: bool,
    ) -> Outcome<u64> {
        let mut bad = 0;
        let first = target.to_string().into_bytes();
        // Without recursion: trees may be deeper than a thread's stack.
        let mut waiting = vec![(top.object(), None, first, 0)];
        while let Some((object, parent, name, depth)) = waiting.pop() {
            if depth > 0 {
                session.ui.line("")?;
            }
            if titled {
                let mut title = session.ui.name(&name).into_owned();
                title.push(b':');
                session.ui.line(title)?;
            }
            let dir = match parent {
                None => Ok(top.clone()),
                Some(_) if depth > DEEPEST => Err(zuse::Error::refused(
                    Errno::NAMETOOLONG,
                    format!("directories are more than {DEEPEST} deep"),
                )),
                Some(parent) => fs.subdirectory(parent, object, top.object()),
            };
            let (entries, flaw) = match dir {
                Ok(dir) => self.names(fs, &dir),
                Err(e) => (Vec::new(), Err(e)),
            };
            let shown = String::from_utf8_lossy(&name).into_owned();
            bad += self.lines(session, fs, (&shown, &entries))?;
            if let Err(e) = flaw {
                bad += 1;
                report(session, &name, &e);
            }
            if !self.recursive {
                continue;
            }
            let mut seen = HashSet::new();
            let below = entries.into_iter().filter(|e| e.2 == mode::DIRECTORY);
            let from = waiting.len();
            for (child, number, _) in below {
                let slash: &[u8] = if name.ends_with(b"/") { b"" } else { b"/" };
                let path = [&name, slash, &child].concat();
                if seen.insert(number) {
                    waiting.push((number, Some(object), path, depth + 1));
                } else {
                    bad += 1;
                    let what = "its directory lists it twice";
                    report(session, &path, &zuse::Error::corrupt(shown.as_str(), what));
                }
            }
            if let Some(new) = waiting.get_mut(from..) {
                new.reverse();
            }
        }
        Ok(bad)
    }

    /// The entries of a directory by name, and the reason if the list is incomplete.
    fn names(&self, fs: &Arc<FileSystem>, dir: &Arc<Znode>) -> (Vec<Entry>, zuse::Result<()>) {
        let mut names = Vec::new();
        let listed = fs.readdir(dir, 0, false, &mut |e| {
            if !matches!(e.name, b"." | b".." | b".zfs") && (self.all || !e.name.starts_with(b"."))
            {
                names.push((e.name.to_vec(), e.object, e.kind));
            }
            true
        });
        names.sort_unstable();
        (names, listed)
    }

    /// Prints a line for each entry. Returns how many of them could not be read.
    fn lines(
        &self,
        session: &mut Session,
        fs: &Arc<FileSystem>,
        (dir, entries): (&str, &[Entry]),
    ) -> Outcome<u64> {
        let (all, mut bad) = self.look_at(session, fs, (dir, entries));
        let widths = self.widths(fs, &all);
        for (name, object, znode) in &all {
            let znode = znode.as_ref().filter(|_| self.long);
            let mut line = self.columns(fs, *object, znode, widths);
            line.extend_from_slice(&session.ui.name(name));
            if let Some(znode) = znode.filter(|z| z.kind() == mode::SYMLINK) {
                line.extend_from_slice(b" -> ");
                match fs.readlink(znode) {
                    Ok(target) => line.extend_from_slice(&session.ui.name(&target)),
                    Err(e) => {
                        bad += 1;
                        report(session, &joined(dir, name), &e);
                    }
                }
            }
            session.ui.line(line)?;
        }
        Ok(bad)
    }

    /// The entries with their objects if needed, and how many could not be read.
    fn look_at<'a>(
        &self,
        session: &mut Session,
        fs: &Arc<FileSystem>,
        (dir, entries): (&str, &'a [Entry]),
    ) -> (Vec<Listed<'a>>, u64) {
        // Names alone need no objects. An unreadable object still has a name.
        let look = self.long || self.inode;
        let (mut all, mut bad) = (Vec::new(), 0);
        for (name, object, kind) in entries {
            let znode = match look {
                true => fs.listed_as(*object, *kind).map(Some),
                false => Ok(None),
            };
            let znode = znode.unwrap_or_else(|e| {
                bad += 1;
                report(session, &joined(dir, name), &e);
                None
            });
            all.push((name.as_slice(), *object, znode));
        }
        (all, bad)
    }

    /// The size of an object; the numbers of a device.
    fn size(&self, fs: &FileSystem, znode: &Arc<Znode>) -> String {
        if mode::is_device(znode.attributes().mode) {
            let (major, minor) = fs.getattr(znode).device();
            return format!("{major}, {minor}");
        }
        if self.human {
            nicenum(znode.size())
        } else {
            znode.size().to_string()
        }
    }

    /// Widths of the columns: links, owner, group, size.
    fn widths(&self, fs: &FileSystem, all: &[Listed<'_>]) -> [usize; 4] {
        let known = all.iter().filter_map(|(_, _, z)| z.as_ref());
        known.fold([1, 1, 1, 1], |[a, b, c, d], z| {
            let at = z.attributes();
            [
                a.max(at.links.to_string().len()),
                b.max(at.uid.to_string().len()),
                c.max(at.gid.to_string().len()),
                d.max(self.size(fs, z).len()),
            ]
        })
    }

    /// The columns before a name.
    fn columns(
        &self,
        fs: &FileSystem,
        object: ObjectId,
        znode: Option<&Arc<Znode>>,
        [links, uid, gid, len]: [usize; 4],
    ) -> Vec<u8> {
        let mut line = Vec::new();
        if self.inode {
            line.extend_from_slice(format!("{:>8} ", object.0).as_bytes());
        }
        if let Some(znode) = znode {
            let a = znode.attributes();
            line.extend_from_slice(
                format!(
                    "{} {:>links$} {:>uid$} {:>gid$} {:>len$} {} ",
                    mode_text(a.mode),
                    a.links,
                    a.uid,
                    a.gid,
                    self.size(fs, znode),
                    date::listing(a.mtime.secs)
                )
                .as_bytes(),
            );
        }
        if self.long && znode.is_none() {
            line.extend_from_slice(b"?????????? ");
        }
        line
    }
}

/// A volume among listed datasets has one line: its name and its size.
fn volume_line(session: &mut Session, pool: &zuse::Pool, target: &Target) -> Outcome {
    let cannot = || format!("cannot open '{target}'");
    let volume = pool.volume(&target.dataset).or_cannot(cannot)?;
    let size = volume.size().or_cannot(cannot)?;
    let line = format!("{target} a volume of {size} bytes");
    Ok(session.ui.line(session.ui.name(line.as_bytes()))?)
}

/// A name, its object, and the type that its directory lists.
type Entry = (Vec<u8>, ObjectId, u32);

/// A name, its object's number, and the object if it was needed and could be read.
type Listed<'a> = (&'a [u8], ObjectId, Option<Arc<Znode>>);

/// A name after the directory's, as messages have it.
fn joined(dir: &str, name: &[u8]) -> Vec<u8> {
    let dir = dir.strip_suffix('/').unwrap_or(dir);
    [dir.as_bytes(), b"/", name].concat()
}

/// Reports what could not be listed.
fn report(session: &mut Session, path: &[u8], error: &zuse::Error) {
    let path = String::from_utf8_lossy(&shown::name(path)).into_owned();
    session.ui.say(format!("cannot list '{path}': {error}"));
}

/// `drwxr-xr-x`
fn mode_text(bits: u32) -> String {
    let kind = match bits & mode::TYPE {
        mode::DIRECTORY => 'd',
        mode::SYMLINK => 'l',
        mode::FIFO => 'p',
        mode::SOCKET => 's',
        mode::BLOCK => 'b',
        mode::CHARACTER => 'c',
        _ => '-',
    };
    let mut text = String::from(kind);
    for (shift, special, small, large) in [
        (6, 0o4000, 's', 'S'),
        (3, 0o2000, 's', 'S'),
        (0, 0o1000, 't', 'T'),
    ] {
        let three = bits >> shift;
        text.push(if three & 4 != 0 { 'r' } else { '-' });
        text.push(if three & 2 != 0 { 'w' } else { '-' });
        text.push(match (three & 1 != 0, bits & special != 0) {
            (true, true) => small,
            (false, true) => large,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}
