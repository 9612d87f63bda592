//! What a host mounts without a `mount` command: the same that ZFS mounts.
//!
//! ```text
//!   zpool create, zpool import     all with canmount=on, a mountpoint and their keys
//!   zfs create, clone, receive     the new ones
//!   zfs set, inherit, rename       mounted ones move; those that now should be mounted are, and the
//!                                  others are unmounted
//! ```
//! Root's datasets have mounts of their own, at their mountpoints. Datasets of other users are
//! inside their parents' mounts, or on directories of the user or below an alternate root. The
//! kernel does not let other users mount elsewhere. A message names each dataset that is left
//! unmounted, and what to do.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zuse_mount::{MountOptions, MountServer, Place, Present, ServerOptions, place_of, places};

use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::holder::{Holder, not_unmounted};
use crate::orphan;
use crate::session::Session;
use crate::target::pool_of;

/// Messages of mounting.
#[derive(Default)]
pub struct MountMessages {
    /// One line each.
    pub lines: Vec<String>,
    /// Something that this user may mount could not be mounted.
    pub failed: bool,
}

impl MountMessages {
    fn of(error: CommandError) -> Self {
        let mut lines = vec![error.message];
        lines.extend(error.hints);
        Self {
            lines,
            failed: true,
        }
    }

    /// Prints it.
    pub fn print(&self, session: &mut Session) {
        self.lines.iter().for_each(|line| session.ui.say(line));
    }
}

/// Whether this process mounts anywhere, and for all users.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Why this user may not mount there.
fn why_not(path: &Path, below_root: bool) -> Option<String> {
    if path == Path::new("/") {
        return Some("it would cover the root directory".into());
    }
    if is_root() || below_root {
        return None;
    }
    let there = path.ancestors().find_map(|p| Some((p, p.metadata().ok()?)));
    let (dir, meta) = there?;
    let mine = meta.uid() == rustix::process::geteuid().as_raw();
    (!mine).then(|| format!("'{}' is not yours", dir.display()))
}

impl Holder {
    /// Mounts all file systems of the pool that are to be mounted. Dead mounts of a killed process
    /// are unmounted first.
    pub fn mount_all(&self) -> MountMessages {
        let name = self.pool().name();
        let mut dead = orphan::orphans(|source, _| pool_of(source) == name);
        // Unmounting an outer mount would remove those inside.
        dead.sort_by_key(|gone| gone.dir.components().count());
        for gone in &dead {
            let _ = gone.take_away();
        }
        let messages = self.mount_below(&name);
        // Mounting so many file systems used memory that is probably not needed again soon.
        self.give_memory_back();
        messages
    }

    /// Mounts a file system and those below it, as far as they are to be mounted.
    pub fn mount_below(&self, root: &str) -> MountMessages {
        match places(self.pool(), root) {
            Ok(all) => self.mount_wanted(&all),
            Err(e) => MountMessages::of(CommandError::new(format!("cannot mount '{root}': {e}"))),
        }
    }

    /// Mounts those of new file systems that are to be mounted.
    pub fn mount_new(&self, datasets: &[String]) -> MountMessages {
        let place = |name: &String| place_of(self.pool(), name).ok();
        let all: Vec<Place> = datasets.iter().filter_map(place).collect();
        self.mount_wanted(&all)
    }

    fn mount_wanted(&self, all: &[Place]) -> MountMessages {
        let mut messages = MountMessages::default();
        let mut more = 0usize;
        let mut present = Present::default();
        for place in all {
            let Some(path) = place.wanted().filter(|_| !place.dataset.contains('%')) else {
                continue;
            };
            self.mounts().look_at(&mut present);
            // A dataset that appears inside its parent's mount is mounted already.
            let dataset = place.dataset.as_str();
            if present.serves(dataset) || present.lacks(dataset) && self.mount_child(dataset) {
                continue;
            }
            let done = match self.why_unmounted(&place.dataset, path) {
                Some(left) => Err((left, false)),
                None => match self.mount_placed(place, path, ServerOptions::default(), false) {
                    Err(Stop::Failed(error)) => Err((error, true)),
                    Err(_) => Ok(()),
                    Ok(server) => {
                        present.add(&server);
                        Ok(())
                    }
                },
            };
            let Err((error, failed)) = done else { continue };
            messages.failed |= failed;
            if messages.lines.is_empty() {
                messages.lines = MountMessages::of(error).lines;
            } else {
                more += 1;
            }
        }
        if more > 0 {
            messages
                .lines
                .push(format!("and {more} others are not mounted"));
        }
        messages
    }

    /// Why a file system is not mounted at its mountpoint, if this user may not mount there.
    fn why_unmounted(&self, dataset: &str, path: &Path) -> Option<CommandError> {
        let altroot = self.pool().temporary_properties().altroot;
        let below_root = altroot.is_some_and(|root| path.starts_with(root));
        let why = why_not(path, below_root)?;
        let text = format!("'{dataset}' is not mounted on '{}': {why}", path.display());
        let place_it = format!("'zuse mount {dataset} DIR' mounts it on a directory of yours");
        Some(CommandError::new(text).hint(place_it))
    }

    /// Mounts a file system at its mountpoint. With `overlay` also on a directory that is not
    /// empty.
    pub fn mount_placed(
        &self,
        place: &Place,
        path: &Path,
        asked: ServerOptions,
        overlay: bool,
    ) -> Outcome<Arc<MountServer>> {
        let dataset = place.dataset.as_str();
        if let Some(error) = self.why_unmounted(dataset, path) {
            return Err(error.into());
        }
        std::fs::create_dir_all(path).or_cannot(|| format!("cannot mount '{}'", path.display()))?;
        let property = |d: zuse::Dataset| d.property("overlay");
        let covers = self.pool().dataset(dataset).and_then(property);
        if !overlay
            && covers.is_ok_and(|found| found.is_some_and(|p| p.value == "off"))
            && path.read_dir()?.next().is_some()
        {
            return Err(CommandError::new(format!(
                "cannot mount '{}': directory is not empty",
                path.display()
            ))
            .into());
        }
        let options = ServerOptions {
            mount: MountOptions {
                source: dataset.to_owned(),
                ..asked.mount
            },
            alone: is_root(),
            placed: true,
            clears: !place.named,
            ..asked
        };
        self.mount(dataset, path, &options)
    }

    /// Refuses a change that would move mounts of a file system, or of those below it, while a
    /// process uses them.
    pub fn check_movable(&self, root: &str) -> Outcome {
        self.check_unused(&self.placed_below(root))
    }

    /// The mounts of a file system and of those below it that are at their mountpoints.
    fn placed_below(&self, root: &str) -> Vec<String> {
        let within = |d: &str| {
            let rest = d.strip_prefix(root);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let servers = self.servers();
        let placed = servers.iter().filter(|s| s.is_placed() && !s.is_over());
        placed
            .map(|s| s.dataset())
            .filter(|name| within(name))
            .collect()
    }

    /// Call it after mountpoints or names of a file system, or of those below it, have changed.
    /// Mounts at an old place are moved or unmounted. The file system itself is mounted `newly` if
    /// it was not before.
    pub fn follow_places(self: &Arc<Self>, root: &str, newly: bool) -> MountMessages {
        let all = match places(self.pool(), root) {
            Ok(all) => all,
            Err(e) => {
                return MountMessages::of(CommandError::new(format!("cannot mount '{root}': {e}")));
            }
        };
        let mut messages = MountMessages::default();
        let mut moved = Vec::new();
        // The deepest first, since others may contain them.
        for place in all.iter().rev() {
            let servers = self.servers();
            let fits = |s: &&Arc<MountServer>| {
                s.is_placed() && !s.is_over() && s.dataset() == place.dataset
            };
            let Some(server) = servers.iter().find(fits) else {
                if newly && place.dataset == root {
                    moved.push(place.clone());
                }
                continue;
            };
            let at: PathBuf = server.mount_point().to_owned();
            let stays = place.path.as_ref() == Some(&at) && place.can != "off";
            if stays {
                continue;
            }
            match self.end_mount(server) {
                Ok(()) => {
                    if server.clears_directory() {
                        // Only an empty directory goes: rmdir(2) refuses one with files of the
                        // user.
                        let _ = std::fs::remove_dir(&at);
                    }
                    let mut again = place.clone();
                    // It was mounted by a command, so it moves although nothing else would mount
                    // it.
                    if again.can == "noauto" {
                        again.can = "on".into();
                    }
                    moved.push(again);
                }
                Err(e) => messages = MountMessages::of(not_unmounted(&at, &e)),
            }
        }
        // The outermost first: a mount point may be inside another mount.
        moved.reverse();
        let mounted = self.mount_wanted(&moved);
        messages.lines.extend(mounted.lines);
        messages.failed |= mounted.failed;
        messages
    }
}

/// Call it after a command has created file systems. Mounts them, or hides them in their parents'
/// mounts if they are not to be mounted.
///
/// # Errors
/// A file system could not be mounted. It was created all the same.
pub fn made(session: &mut Session, datasets: &[String], unmounted: bool) -> Outcome {
    let Some(holder) = session.holder.clone().filter(|h| h.mounts_by_itself()) else {
        return Ok(());
    };
    if unmounted {
        datasets.iter().for_each(|name| holder.keep_out(name));
        return Ok(());
    }
    let messages = holder.mount_new(datasets);
    messages.print(session);
    match messages.failed {
        true => Err(CommandError::new("filesystem successfully created, but not mounted").into()),
        false => Ok(()),
    }
}

/// The directories to remove with some datasets, the deepest first. These are the ones made from
/// their names, mounted or not.
pub fn places_of(session: &Session, datasets: &[String]) -> Vec<PathBuf> {
    let holder = session.holder.as_ref().filter(|h| h.mounts_by_itself());
    let Some(holder) = holder else {
        return Vec::new();
    };
    let place = |name: &String| place_of(holder.pool(), name).ok();
    let unnamed = datasets.iter().filter_map(place).filter(|p| !p.named);
    let mut dirs: Vec<PathBuf> = unnamed.filter_map(|p| p.path).collect();
    dirs.sort_by_key(|dir| std::cmp::Reverse(dir.components().count()));
    dirs
}

/// The same for everything mounted of the pool.
pub fn all_places(session: &Session) -> Vec<PathBuf> {
    let holder = session.holder.as_ref();
    places_of(session, &holder.map_or_else(Vec::new, |h| h.datasets()))
}

/// Removes the mount directories of destroyed datasets, if they are empty.
pub fn clear_places(dirs: &[PathBuf]) {
    for dir in dirs {
        let _ = std::fs::remove_dir(dir);
    }
}

/// Whether a property decides where a file system is mounted.
pub fn decides(property: &str) -> bool {
    matches!(property, "mountpoint" | "canmount")
}

/// Refuses a change of names or mountpoints of a dataset and those below it, while a process uses a
/// mount that would move.
pub fn check_movable(session: &Session, dataset: &str) -> Outcome {
    let holder = session.holder.as_ref().filter(|h| h.mounts_by_itself());
    holder.map_or(Ok(()), |h| h.check_movable(dataset))
}

/// Call it after names or mountpoints of a dataset and those below it have changed: moves the
/// mounts.
///
/// # Errors
/// A mount could not be moved, or a file system not mounted at its new place.
pub fn follow(session: &mut Session, dataset: &str, newly: bool) -> Outcome {
    let Some(holder) = session.holder.clone().filter(|h| h.mounts_by_itself()) else {
        return Ok(());
    };
    let messages = holder.follow_places(dataset, newly);
    messages.print(session);
    match messages.failed {
        true => {
            let what = "property may be set but unable to remount filesystem";
            Err(CommandError::new(what).into())
        }
        false => Ok(()),
    }
}
