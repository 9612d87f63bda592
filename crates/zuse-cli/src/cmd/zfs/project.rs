//! `zfs project`

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use clap::Args;
use zuse::Credentials;
use zuse::tools::{FileSystem, Layers as _};
use zuse_zpl::{SETTABLE_FLAGS, Znode, flags, mode};

use crate::cmd::ls::{missing, place};
use crate::error::{CommandError, Explain, Outcome, host_error_text};
use crate::orphan::absolute;
use crate::place::{is_path, mount_of, target_at};
use crate::session::{Need, Session};
use crate::target::Target;

/// Show, set, check or clear project ids of files and directories
///
/// Without -c, -C, -p and -s it lists: project id, P where new files inherit it, path.
#[derive(Args, Debug)]
pub struct Project {
    /// The directory itself, not what is in it
    #[arg(short)]
    directory: bool,
    /// With everything below it
    #[arg(short)]
    recursive: bool,
    /// List files whose id is not that of -p or of the directory, and directories that do not pass
    /// it on
    #[arg(short, conflicts_with_all = ["clear", "set"])]
    check: bool,
    /// Clear the id and the inheritance
    #[arg(short = 'C', conflicts_with_all = ["set", "project"])]
    clear: bool,
    /// With -C: clear only the inheritance
    #[arg(short = 'k')]
    keep: bool,
    /// This id; that of the directory by default
    #[arg(short, value_name = "ID", allow_negative_numbers = true, value_parser = id)]
    project: Option<u32>,
    /// New files inherit it
    #[arg(short)]
    set: bool,
    /// With -c: names alone, each ended by a zero byte
    #[arg(short = '0')]
    zero: bool,
    /// Where
    #[arg(required = true, value_name = "PATH|DATASET:/PATH")]
    places: Vec<OsString>,
}

/// A project's id. The largest number is none.
fn id(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Err(_) => Err("project ID must be less than 4294967295".into()),
        Ok(n) => match u32::try_from(n) {
            Ok(id) if id != u32::MAX => Ok(id),
            _ => Err("invalid project ID".into()),
        },
    }
}

/// One command at work on one dataset.
struct Work<'a> {
    how: &'a Project,
    session: &'a mut Session,
    fs: Arc<FileSystem>,
    root: Credentials,
    /// The id to set or to expect.
    id: u32,
}

impl Project {
    /// Refuses options that mean nothing together.
    fn check_options(&self) -> Outcome {
        let sets = self.set || self.project.is_some() && !self.check;
        let why = match () {
            () if self.zero && !self.check => "'-0' is only valid together with '-c'",
            () if self.keep && !self.clear => "'-k' is only valid together with '-C'",
            () if self.directory && self.clear => "'-d' is useless together with '-C'",
            () if self.directory && sets => {
                "'-d' is useless for set project ID and/or inherit flag"
            }
            () => return Ok(()),
        };
        Err(CommandError::usage(why).into())
    }

    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        self.check_options()?;
        let changes = self.clear || (self.set || self.project.is_some()) && !self.check;
        let need = if changes { Need::Write } else { Need::Read };
        session.writes = changes;
        for text in &self.places {
            let word = text.to_string_lossy();
            let on_host = is_on_host(session, text);
            let target = match on_host {
                true => host_target(session, &word)?,
                false => place(text)?,
            };
            let pool = session.pool_for(&target.dataset, need)?;
            let fs = pool
                .file_system(&target.dataset)
                .or_cannot(|| format!("cannot open '{}'", target.dataset))?;
            let root = Credentials::root();
            let znode = fs
                .resolve(&root, &target.path)
                .map_err(|e| missing(&format!("cannot open '{target}'"), &e))?;
            let id = self.project.unwrap_or(znode.attributes().projid as u32);
            // Paths are printed as they were given.
            let name = match on_host {
                true => word.into_owned(),
                false => target.to_string(),
            };
            let mut work = Work {
                how: &self,
                session: &mut *session,
                fs,
                root,
                id,
            };
            let lists = !changes && !self.check;
            let inside = znode.is_dir() && !self.directory && (lists || self.recursive);
            work.one(&znode, &name, changes)?;
            if inside {
                work.below(&znode, name.trim_end_matches('/'), changes)?;
            }
            drop(work);
            if changes {
                session.log(&pool);
            }
        }
        Ok(())
    }
}

/// Exit code of a path that has no project.
const FAILED: u8 = 255;

/// Whether a word is a path of the host: one marked as such, or an existing one.
fn is_on_host(session: &Session, word: &OsStr) -> bool {
    let is_there = || session.path(word.as_ref()).symlink_metadata().is_ok();
    Target::parse(word).is_none() && (is_path(&word.to_string_lossy()) || is_there())
}

/// The place in a dataset that a path of the host leads to.
fn host_target(session: &mut Session, word: &str) -> Outcome<Target> {
    let path = session.path(word.as_ref());
    let refused = |what: String| CommandError {
        code: FAILED,
        ..CommandError::new(what)
    };
    if let Err(e) = path.symlink_metadata() {
        let why = host_error_text(&e);
        return Err(refused(format!("failed to stat {word}: {why}")).into());
    }
    if mount_of(&absolute(&path)).is_none() {
        let why = "Inappropriate ioctl for device";
        return Err(refused(format!("failed to get xattr for {word}: {why}")).into());
    }
    target_at(session, word)
}

impl Work<'_> {
    fn below(&mut self, dir: &Arc<Znode>, name: &str, changes: bool) -> Outcome {
        let mut found = Vec::new();
        self.fs
            .readdir(dir, 0, false, &mut |e| {
                if !matches!(e.name, b"." | b".." | b".zfs") {
                    found.push((e.name.to_vec(), e.object));
                }
                true
            })
            .or_cannot(|| format!("cannot list '{name}'"))?;
        found.sort_unstable();
        for (own, object) in found {
            let path = format!("{name}/{}", String::from_utf8_lossy(&own));
            let znode = self
                .fs
                .znode(object)
                .or_cannot(|| format!("cannot open '{path}'"))?;
            self.one(&znode, &path, changes)?;
            if self.how.recursive && znode.is_dir() {
                self.below(&znode, &path, changes)?;
            }
        }
        Ok(())
    }

    fn one(&mut self, znode: &Arc<Znode>, path: &str, changes: bool) -> Outcome {
        let a = znode.attributes();
        let hands_down = a.flags & flags::PROJINHERIT != 0;
        if changes {
            return self.change(znode, path);
        }
        if !self.how.check {
            let mark = if hands_down { 'P' } else { '-' };
            self.session
                .ui
                .line(format!("{:5} {mark} {path}", a.projid))?;
            return Ok(());
        }
        let mut faults = Vec::new();
        if a.projid != u64::from(self.id) {
            faults.push(format!(
                "project ID is not set properly ({}/{})",
                a.projid, self.id
            ));
        }
        if !hands_down {
            faults.push("project inherit flag is not set".to_owned());
        }
        for fault in &faults {
            if self.how.zero {
                self.session.ui.print(format!("{path}\0"))?;
                break;
            }
            self.session.ui.line(format!("{path} - {fault}"))?;
        }
        Ok(())
    }

    fn change(&mut self, znode: &Arc<Znode>, path: &str) -> Outcome {
        if !matches!(znode.kind(), mode::REGULAR | mode::DIRECTORY) {
            // Links and devices have no project.
            return Ok(());
        }
        let cannot = || format!("cannot set project of '{path}'");
        let old = znode.attributes().flags & SETTABLE_FLAGS;
        let new = if self.how.clear {
            old & !flags::PROJINHERIT
        } else if self.how.set {
            old | flags::PROJINHERIT
        } else {
            old
        };
        let id = match (self.how.clear, self.how.keep) {
            (true, true) => None,
            (true, false) => Some(0),
            _ => Some(self.id),
        };
        if let Some(id) = id {
            self.fs
                .set_project(&self.root, znode, id)
                .or_cannot(cannot)?;
        }
        if new != old {
            self.fs
                .set_flags(&self.root, znode, new)
                .or_cannot(cannot)?;
        }
        Ok(())
    }
}
