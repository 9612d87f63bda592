//! `zuse ls`

use std::ffi::OsString;
use std::sync::Arc;

use clap::Args;
use zuse::{Credentials, Errno, FileSystem};
use zuse_zpl::{Znode, mode};

use crate::args::Devices;
use crate::date;
use crate::error::{CommandError, Explain, Outcome, Stop, explain};
use crate::nicenum::nicenum;
use crate::session::{Need, Session};
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

/// A place that was named, or why it is none.
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

/// What is said of a path that is not there, or of another failure.
pub fn missing(action: &str, error: &zuse::Error) -> Stop {
    if error.is(Errno::NOENT) || error.is(Errno::NOTDIR) {
        return CommandError::new(format!("{action}: {}", error.errno())).into();
    }
    explain(action, error, false).into()
}

impl Ls {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let several = self.places.len() > 1 || self.recursive;
        for (i, text) in self.places.iter().enumerate() {
            let target = place(text)?;
            let pool = session.pool_for(&target.dataset, Need::Read)?;
            let fs = pool
                .file_system(&target.dataset)
                .or_cannot(|| format!("cannot open '{}'", target.dataset))?;
            let znode = fs
                .resolve(&Credentials::root(), &target.path)
                .map_err(|e| missing(&format!("cannot list '{target}'"), &e))?;
            if !znode.is_dir() || self.directory {
                let name = text.to_string_lossy().into_owned();
                self.lines(session, &fs, &[(name.into_bytes(), znode)])?;
                continue;
            }
            if several && i > 0 {
                session.ui.line("")?;
            }
            self.directory(session, &fs, &znode, &target.to_string(), several)?;
        }
        Ok(())
    }

    fn directory(
        &self,
        session: &mut Session,
        fs: &Arc<FileSystem>,
        dir: &Arc<Znode>,
        name: &str,
        titled: bool,
    ) -> Outcome {
        if titled {
            session.ui.line(format!("{name}:"))?;
        }
        let mut names = Vec::new();
        fs.readdir(dir, 0, false, &mut |e| {
            if !matches!(e.name, b"." | b".." | b".zfs") && (self.all || !e.name.starts_with(b"."))
            {
                names.push((e.name.to_vec(), e.object));
            }
            true
        })
        .or_cannot(|| format!("cannot list '{name}'"))?;
        names.sort_unstable();
        let entries: Vec<(Vec<u8>, Arc<Znode>)> = names
            .into_iter()
            .map(|(n, object)| fs.znode(object).map(|z| (n, z)))
            .collect::<zuse::Result<_>>()
            .or_cannot(|| format!("cannot list '{name}'"))?;
        self.lines(session, fs, &entries)?;
        if self.recursive {
            for (child, znode) in entries.iter().filter(|(_, z)| z.is_dir()) {
                session.ui.line("")?;
                let path = format!(
                    "{}/{}",
                    name.trim_end_matches('/'),
                    String::from_utf8_lossy(child)
                );
                self.directory(session, fs, znode, &path, true)?;
            }
        }
        Ok(())
    }

    fn lines(
        &self,
        session: &mut Session,
        fs: &Arc<FileSystem>,
        entries: &[(Vec<u8>, Arc<Znode>)],
    ) -> Outcome {
        let size = |z: &Znode| {
            if mode::is_device(z.attributes().mode) {
                let (major, minor) = fs.getattr(z).device();
                return format!("{major}, {minor}");
            }
            if self.human {
                nicenum(z.size())
            } else {
                z.size().to_string()
            }
        };
        let widths = entries.iter().fold([1, 1, 1, 1], |[a, b, c, d], (_, z)| {
            let at = z.attributes();
            [
                a.max(at.links.to_string().len()),
                b.max(at.uid.to_string().len()),
                c.max(at.gid.to_string().len()),
                d.max(size(z).len()),
            ]
        });
        for (name, znode) in entries {
            let mut line = Vec::new();
            if self.inode {
                line.extend_from_slice(format!("{:>8} ", znode.object().0).as_bytes());
            }
            if self.long {
                let a = znode.attributes();
                let [links, uid, gid, len] = widths;
                line.extend_from_slice(
                    format!(
                        "{} {:>links$} {:>uid$} {:>gid$} {:>len$} {} ",
                        mode_text(a.mode),
                        a.links,
                        a.uid,
                        a.gid,
                        size(znode),
                        date::listing(a.mtime.secs)
                    )
                    .as_bytes(),
                );
            }
            line.extend_from_slice(name);
            if self.long && znode.kind() == mode::SYMLINK {
                line.extend_from_slice(b" -> ");
                line.extend_from_slice(
                    &fs.readlink(znode)
                        .or_cannot(|| "cannot read a link".into())?,
                );
            }
            session.ui.line(line)?;
        }
        Ok(())
    }
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
