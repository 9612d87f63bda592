//! `zuse mount`, and `mount -t fuse.zuse` through `mount.fuse.zuse`.

use std::path::{Path, PathBuf};

use clap::Args;
use zuse_mount::{MountOptions, ServerOptions};

use super::serve;
use crate::args::{Devices, list, tunables};
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::orphan;
use crate::session::Session;
use crate::target::pool_of;
use crate::wire;

/// Mount a dataset or snapshot on a directory
///
/// Child datasets appear inside, snapshots under .zfs/snapshot. The command returns when the
/// dataset is mounted. A process in the background holds the pool until the last mount is gone.
/// Meanwhile it runs all zuse commands for that pool.
#[derive(Args, Debug)]
pub struct Mount {
    #[command(flatten)]
    mount: MountArgs,
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    #[command(flatten)]
    devices: Devices,
}

/// What to mount where.
#[derive(Args, Debug, Clone)]
pub struct MountArgs {
    /// The dataset or snapshot
    pub dataset: String,
    /// The directory
    pub mountpoint: PathBuf,
    /// Options, separated by commas: ro, rw, allow_other, (no)suid, (no)dev, (no)exec, (no)atime,
    /// (no)symfollow, btime, writeback, sync, threads=N, and tunables as NAME=VALUE
    #[arg(short = 'o', value_name = "OPTION,…")]
    pub options: Vec<String>,
}

impl MountArgs {
    /// The options as the mount server takes them.
    pub fn parse(&self) -> Outcome<ServerOptions> {
        let mut options = ServerOptions {
            mount: MountOptions {
                source: self.dataset.clone(),
                ..MountOptions::default()
            },
            ..ServerOptions::default()
        };
        for option in self.options.iter().flat_map(|o| list(o)) {
            apply(&mut options.mount, &option)?;
        }
        // An option only restricts what the property permits.
        let mount = &options.mount;
        let given = |word: &str| self.options.iter().flat_map(|o| list(o)).any(|o| o == word);
        for (word, holds, property, value) in [
            ("ro", mount.read_only, "readonly", "on"),
            ("noatime", !mount.atime, "atime", "off"),
            ("nodev", !mount.dev, "devices", "off"),
            ("noexec", !mount.exec, "exec", "off"),
            ("nosuid", !mount.suid, "setuid", "off"),
        ] {
            if holds && given(word) {
                options.overridden.push((property, value));
            }
        }
        Ok(options)
    }
}

/// Sets what one option says.
fn apply(mount: &mut MountOptions, option: &str) -> Outcome {
    let (name, value) = option
        .split_once('=')
        .map_or((option, None), |(n, v)| (n, Some(v)));
    match (name, value) {
        ("ro", None) => mount.read_only = true,
        ("rw", None) => mount.read_only = false,
        ("allow_other", None) => mount.allow_other = true,
        ("noallow_other", None) => mount.allow_other = false,
        ("suid" | "nosuid", None) => mount.suid = name == "suid",
        ("dev" | "nodev", None) => mount.dev = name == "dev",
        ("exec" | "noexec", None) => mount.exec = name == "exec",
        ("atime" | "noatime", None) => mount.atime = name == "atime",
        ("symfollow" | "nosymfollow", None) => mount.symfollow = name == "symfollow",
        ("sync" | "writethrough", None) => mount.writeback_cache = false,
        ("btime", None) => mount.birth_times = true,
        ("writeback", None) => mount.writeback_cache = true,
        ("threads", Some(n)) => {
            let n = n.parse().ok().filter(|n| (1..=256).contains(n));
            mount.threads = n.ok_or_else(|| {
                CommandError::usage(format!("invalid mount option '{option}': 1 to 256 threads"))
            })?;
        }
        _ if means_nothing(name, value) => {}
        _ if name.starts_with("x-") || name == "device" => {}
        // Taken by `tunables`.
        (_, Some(_)) if zuse::tunable::tunable(name).is_some() => {}
        _ => {
            return Err(
                CommandError::usage(format!("invalid mount option '{option}'"))
                    .hint("'zuse mount --help' lists the options")
                    .into(),
            );
        }
    }
    Ok(())
}

/// Whether mount(8) and fstab pass on an option that has no meaning here.
fn means_nothing(name: &str, value: Option<&str>) -> bool {
    match value {
        None => matches!(
            name,
            "defaults"
                | "auto"
                | "noauto"
                | "user"
                | "nouser"
                | "users"
                | "nofail"
                | "_netdev"
                | "relatime"
                | "zfsutil"
                | "default_permissions"
                | "async"
                | "diratime"
                | "nodiratime"
                | "norelatime"
                | "strictatime"
                | "nostrictatime"
                | "lazytime"
                | "nolazytime"
                | "mand"
                | "nomand"
                | "group"
                | "owner"
                | "silent"
                | "loud"
                // Properties decide about these.
                | "xattr"
                | "user_xattr"
                | "acl"
                | "posixacl"
                // Directories are synced with everything else.
                | "dirsync"
                // Every open is asked for.
                | "strict_open"
        ),
        Some(_) => matches!(
            name,
            "comment"
                | "fsname"
                | "subtype"
                | "max_read"
                | "blksize"
                // mount(8) passes back the options that the kernel shows for a mount.
                | "user_id"
                | "group_id"
                | "rootmode"
        ),
    }
}

/// Why a directory cannot be used for a mount: there is none, or it is another kind of file.
pub fn no_directory(cannot: &str, path: &Path) -> CommandError {
    let place = path.display();
    match path.symlink_metadata() {
        Err(_) => CommandError::new(format!("{cannot}: directory '{place}' does not exist"))
            .hint("make it first, or name another one"),
        Ok(_) => CommandError::new(format!("{cannot}: '{place}' is not a directory")),
    }
}

/// Checks that the mount's place is a directory. A dead mount there is unmounted.
fn check_place(session: &mut Session, mount: &MountArgs) -> Outcome {
    let path = orphan::absolute(&session.path(&mount.mountpoint));
    for gone in orphan::orphans(|_, dir| dir == path) {
        session.ui.say(format!(
            "'{}' was mounted there by a process that has ended: that mount is taken away",
            gone.source
        ));
        gone.take_away()?;
    }
    if !path.is_dir() {
        let cannot = format!("cannot mount '{}'", mount.dataset);
        return Err(no_directory(&cannot, &path).into());
    }
    Ok(())
}

/// Mounts in the process that holds the pool: this one, or one that is started.
pub fn mount(session: &mut Session, mount: &MountArgs, foreground: bool) -> Outcome {
    let options = mount.parse()?;
    session.tune(tunables(&mount.options))?;
    // The client checks it: a holder that accessed its own mount could deadlock.
    if session.holder.is_none() {
        check_place(session, mount)?;
    }
    if let Some(holder) = session
        .holder
        .clone()
        .filter(|h| h.pool().name() == pool_of(&mount.dataset))
    {
        // A mount that was removed from outside may still have the place in the list.
        for message in holder.end_gone()? {
            session.ui.say(message);
        }
        let already = holder
            .mounted()
            .into_iter()
            .find(|(_, path)| *path == session.path(&mount.mountpoint));
        if let Some((name, path)) = already {
            return Err(CommandError::new(format!(
                "cannot mount '{}': '{name}' is mounted on '{}' already",
                mount.dataset,
                path.display()
            ))
            .into());
        }
        let mounted = holder.mount(&mount.dataset, &session.path(&mount.mountpoint), &options);
        return mounted.map(drop);
    }
    let name = pool_of(&mount.dataset);
    let guid = session.guid_of(name)?;
    // The process that holds the pool has to mount: no other can open it.
    if wire::is_live(&session.state.socket(guid)) {
        return Err(Stop::Held(guid));
    }
    let imported = session.state.imported()?;
    if !foreground && imported.contains_key(name) && session.wants_host()? {
        crate::host::start(session, name)?;
        return Err(Stop::Held(guid));
    }
    if foreground {
        return serve::serve(session, std::slice::from_ref(mount), true);
    }
    serve::start(session, mount)
}

impl Mount {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        mount(session, &self.mount, self.foreground)
    }
}

/// Mount helper of mount(8): mount -t fuse.zuse DATASET DIR
///
/// In fstab: "tank/home  /home/me/mnt  fuse.zuse  device=/path/tank.img,noauto,user  0 0".
/// device=PATH may be given several times.
#[derive(Args, Debug)]
pub struct Helper {
    #[command(flatten)]
    mount: MountArgs,
    /// Accepted for mount(8)
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Ignore options that are not known
    #[arg(short = 's')]
    sloppy: bool,
    /// Say what is done
    #[arg(short)]
    verbose: bool,
}

impl Helper {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let devices: Vec<PathBuf> = self
            .mount
            .options
            .iter()
            .flat_map(|o| list(o))
            .filter_map(|o| o.strip_prefix("device=").map(PathBuf::from))
            .collect();
        session.look_in(&devices);
        let given = || self.mount.options.iter().flat_map(|o| list(o));
        if given().any(|o| o == "remount") {
            return self.remount(session, given().filter(|o| *o != "remount"));
        }
        let mut args = self.mount.clone();
        if self.sloppy {
            args.options.retain(|o| {
                MountArgs {
                    options: vec![o.clone()],
                    ..self.mount.clone()
                }
                .parse()
                .is_ok()
            });
        }
        mount(session, &args, false)
    }

    /// `mount -o remount,…`: the kernel's flags of the mount change, the properties stay.
    fn remount(&self, session: &Session, words: impl Iterator<Item = String>) -> Outcome {
        use rustix::mount::mount_remount;
        let args = MountArgs {
            options: words.collect(),
            ..self.mount.clone()
        };
        let flags = args.parse()?.mount.kernel_flags();
        let path = session.path(&self.mount.mountpoint);
        mount_remount(&path, flags, c"")
            .map_err(std::io::Error::from)
            .or_cannot(|| format!("cannot remount '{}'", path.display()))
    }
}
