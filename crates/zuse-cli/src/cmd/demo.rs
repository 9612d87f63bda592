//! `zuse demo`: the main job end to end, each step as a user would type it.
//!
//! Every command shown is run for real, as a child process of this program, with a state directory
//! of the demo's own. Its result is checked afterwards; the first unexpected result ends the demo
//! with an error.

mod tree;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use clap::Args;

use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::session::Session;

/// Show what Zuse does: create, copy, mount, snapshot, roll back, export, import
///
/// It works in a new directory below DIR, by default the temporary directory. It needs about half a
/// gigabyte there for a minute, and changes nothing else.
#[derive(Args, Debug)]
pub struct Demo {
    /// Leave everything in place at the end
    #[arg(long)]
    keep: bool,
    /// Without the FUSE mount
    #[arg(long)]
    no_mount: bool,
    /// The tree to copy in; /usr/include and /usr/share/doc by default
    #[arg(long, value_name = "DIR")]
    tree: Vec<PathBuf>,
    /// Where to work
    dir: Option<PathBuf>,
}

/// The demo at work.
struct Stage<'a> {
    session: &'a mut Session,
    program: PathBuf,
    bin: PathBuf,
    dir: PathBuf,
    started: Instant,
    mounted: bool,
}

impl Demo {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let base = self
            .dir
            .as_ref()
            .map_or_else(std::env::temp_dir, |d| session.path(d));
        let dir = base.join(format!("zuse-demo-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("mnt"))
            .or_cannot(|| format!("cannot make '{}'", dir.display()))?;
        let dir = dir.canonicalize()?;
        let program = std::env::current_exe().or_cannot(|| "cannot find this program".into())?;
        let bin = dir.join("bin");
        std::fs::create_dir_all(&bin)?;
        for name in ["zuse", "zpool", "zfs", "zdb"] {
            std::os::unix::fs::symlink(&program, bin.join(name))?;
        }
        let mut stage = Stage {
            session,
            program,
            bin,
            dir: dir.clone(),
            started: Instant::now(),
            mounted: false,
        };
        let result = self.play(&mut stage);
        if result.is_err() && stage.mounted {
            let _ = stage.child("zuse umount -f mnt").output();
        }
        let failed = result.is_err();
        if let Err(Stop::Failed(error)) = &result {
            stage
                .session
                .ui
                .say_lines(&format!("\nThe demo failed: {}", error.message));
            for hint in &error.hints {
                stage.session.ui.say(hint);
            }
            let log = stage.dir.clone();
            stage
                .session
                .ui
                .say(format!("What it left is in {}", log.display()));
        }
        if !failed && !self.keep {
            std::fs::remove_dir_all(&dir)
                .or_cannot(|| format!("cannot remove '{}'", dir.display()))?;
        }
        match result {
            Err(Stop::Failed(_)) => Err(CommandError::silent(1).into()),
            other => other,
        }
    }

    fn sources(&self) -> Outcome<Vec<PathBuf>> {
        let chosen: Vec<PathBuf> = if self.tree.is_empty() {
            ["/usr/include", "/usr/share/doc"]
                .iter()
                .map(PathBuf::from)
                .filter(|p| p.is_dir())
                .collect()
        } else {
            self.tree.clone()
        };
        if chosen.is_empty() {
            return Err(CommandError::new(
                "there is neither /usr/include nor /usr/share/doc to copy",
            )
            .hint("name a tree with --tree DIR")
            .into());
        }
        Ok(chosen)
    }

    /// The steps, in their order.
    fn play(&self, stage: &mut Stage<'_>) -> Outcome {
        let sources = self.sources()?;
        let tops: Vec<String> = sources
            .iter()
            .filter_map(|p| p.file_name())
            .map(|n| n.to_string_lossy().into_owned())
            .collect();
        let top = tops.first().cloned().unwrap_or_default();
        let expected = tree::of_host(&sources)?;
        stage.make_pool()?;
        stage.copy_in(&sources, &top, expected.len())?;

        let file = expected.largest_text().unwrap_or_default();
        if self.no_mount {
            stage.show("zfs snapshot tank/home@monday")?;
        } else {
            stage.look_through_mount(&top, &file, &sources[0])?;
            stage.keep_monday(&top, &file, &sources[0])?;
            stage.roll_back(&file)?;
        }

        stage.leave_and_come_back()?;
        stage.compare(&expected)?;
        stage.show("zpool export tank")?;
        let seconds = stage.started.elapsed().as_secs_f64();
        stage.say(&format!("All of it worked, in {seconds:.1} seconds."))
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn lines(output: &Output) -> Vec<String> {
    text(output).lines().map(str::to_owned).collect()
}

impl Stage<'_> {
    fn say(&mut self, text: &str) -> Outcome {
        self.session.ui.line(format!("\n# {text}"))?;
        self.session.ui.flush()?;
        Ok(())
    }

    fn check(&mut self, what: &str, holds: bool) -> Outcome {
        if !holds {
            return Err(CommandError::new(format!("not so: {what}")).into());
        }
        self.session.ui.line(format!("  ok: {what}"))?;
        Ok(())
    }

    /// A shell command in the demo's directory and with its state.
    fn shell(&self, line: &str) -> Command {
        let mut path = self.bin.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(line)
            .current_dir(&self.dir)
            .env("PATH", path)
            .env("XDG_STATE_HOME", self.dir.join("state"))
            .stdin(Stdio::null());
        command
    }

    /// A command of this program itself, without a shell.
    fn child(&self, line: &str) -> Command {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or("zuse");
        let mut command = Command::new(&self.program);
        command
            .args((name != "zuse").then_some(name))
            .args(words.map(OsStr::new));
        command
            .current_dir(&self.dir)
            .env("XDG_STATE_HOME", self.dir.join("state"))
            .stdin(Stdio::null());
        command
    }

    /// Prints a command, runs it, prints its output; it must succeed.
    fn show(&mut self, line: &str) -> Outcome<Output> {
        let output = self.shell(line);
        self.perform(line, output, true)
    }

    /// The same, but the output is only examined here.
    fn quiet(&mut self, shown: &str, line: &str) -> Outcome<Output> {
        let command = self.child(line);
        self.perform(shown, command, false)
    }

    fn perform(&mut self, line: &str, mut command: Command, print: bool) -> Outcome<Output> {
        self.session.ui.line(format!("$ {line}"))?;
        self.session.ui.flush()?;
        let began = Instant::now();
        let output = command
            .output()
            .or_cannot(|| format!("cannot run '{line}'"))?;
        if print {
            let all = text(&output);
            let shown: Vec<&str> = all.lines().take(12).collect();
            for line in &shown {
                self.session.ui.line(line)?;
            }
            let more = all.lines().count() - shown.len();
            if more > 0 {
                self.session.ui.line(format!("… {more} lines more"))?;
            }
        }
        self.session.ui.print(&output.stderr)?;
        let seconds = began.elapsed().as_secs_f64();
        if seconds > 0.5 {
            self.session.ui.line(format!("  ({seconds:.1} s)"))?;
        }
        self.session.ui.flush()?;
        if !output.status.success() {
            return Err(CommandError::new(format!("'{line}' ended with {}", output.status)).into());
        }
        Ok(output)
    }

    /// Makes the pool and its filesystems.
    fn make_pool(&mut self) -> Outcome {
        self.say("A pool in a file, which is made on the way; two filesystems, one of them compressed with zstd.")?;
        self.show("zpool create -m none tank tank.img --size 4G")?;
        self.show("zfs create -o compression=zstd tank/home")?;
        self.show("zfs create -o recordsize=1M tank/home/notes")?;
        self.show("zpool list")?;
        self.show("zfs list -o name,used,available,referenced,compression,mountpoint")?;
        Ok(())
    }

    /// Copies the trees in and lists the first of them.
    fn copy_in(&mut self, sources: &[PathBuf], top: &str, objects: usize) -> Outcome {
        let words: Vec<String> = sources.iter().map(|p| p.display().to_string()).collect();
        self.say(&format!(
            "A real tree goes in, without a mount: {objects} objects."
        ))?;
        self.show(&format!("zuse cp -r {} tank/home:/", words.join(" ")))?;
        self.show("zfs list -o name,used,referenced,compressratio,logicalused -r tank/home")?;
        let listing = self.show(&format!("zuse ls tank/home:/{top}"))?;
        self.check(
            "the directory lists what the source has",
            lines(&listing) == tree::names(&sources[0])?,
        )?;
        Ok(())
    }

    /// Mounts the filesystem, and compares the first tree in it with its source.
    fn look_through_mount(&mut self, top: &str, file: &str, source: &Path) -> Outcome {
        self.say(
            "Mounted through FUSE, as an ordinary user may: it is a directory like any other.",
        )?;
        self.show("zuse mount tank/home mnt")?;
        self.mounted = true;
        self.show("zfs mount")?;
        self.show("df -h mnt")?;
        let found = self.show(&format!("find mnt/{top} | wc -l"))?;
        let there = self
            .shell(&format!("find {} | wc -l", source.display()))
            .output()?;
        self.check(
            "find sees as many objects as in the source",
            text(&found).trim() == text(&there).trim(),
        )?;
        self.show(&format!("head -n 3 mnt/{file}"))?;
        // Links may lead out of the tree, so they may be broken in the copy.
        let same = self
            .shell(&format!(
                "diff -r --no-dereference {} mnt/{top}",
                source.display()
            ))
            .output()?;
        self.check(
            &format!(
                "diff -r --no-dereference finds no difference between {} and mnt/{top}",
                source.display()
            ),
            same.status.success(),
        )?;
        self.show("cp /etc/passwd mnt/notes/ && ls -l mnt/notes")?;
        Ok(())
    }

    /// Takes a snapshot, damages the filesystem and looks at what the snapshot still has.
    fn keep_monday(&mut self, top: &str, file: &str, tree: &Path) -> Outcome {
        self.say(
            "A snapshot. Then everything is changed and deleted, and the snapshot still has it.",
        )?;
        self.show("zfs snapshot -r tank/home@monday")?;
        self.show(&format!(
            "rm -rf mnt/{top} && echo overwritten > mnt/{} 2>/dev/null; ls mnt",
            "damage.txt"
        ))?;
        self.check(
            "the tree is gone from the mount",
            !self.dir.join("mnt").join(top).exists(),
        )?;
        self.show(&format!("ls mnt/.zfs/snapshot/monday/{top} | head -n 5"))?;
        let kept = self
            .child(&format!("zuse cat tank/home@monday:/{file}"))
            .output()?;
        let source = tree.parent().unwrap_or(Path::new("/")).join(file);
        self.check(
            "the snapshot has the bytes of the source",
            kept.stdout == std::fs::read(&source)?,
        )?;
        self.show("zfs list -t snapshot -o name,used,referenced")?;
        Ok(())
    }

    /// Goes back to the snapshot and unmounts.
    fn roll_back(&mut self, file: &str) -> Outcome {
        self.say("Back to Monday, while it is mounted.")?;
        self.show("zfs rollback tank/home@monday")?;
        self.show("ls mnt")?;
        self.check(
            "the damage is undone",
            self.dir.join("mnt").join(file).exists() && !self.dir.join("mnt/damage.txt").exists(),
        )?;
        self.show("zuse umount mnt")?;
        self.mounted = false;
        Ok(())
    }

    /// Exports the pool and imports it again.
    fn leave_and_come_back(&mut self) -> Outcome {
        self.say("The pool goes away and comes back; any OpenZFS could take it now.")?;
        self.show("zpool export tank")?;
        let left = self.child("zpool list").output()?;
        self.check(
            "no pool is imported",
            String::from_utf8_lossy(&left.stdout).contains("no pools available"),
        )?;
        self.show("zpool import -d tank.img")?;
        self.show("zpool import -d tank.img tank")?;
        self.show("zpool status tank")?;
        Ok(())
    }

    /// Compares the filesystem and the snapshot with what was copied.
    fn compare(&mut self, expected: &tree::Tree) -> Outcome {
        self.say("Every path, mode, owner, time, link and checksum is compared with the source.")?;
        let manifest = self.quiet(
            "zuse manifest --sha256=all tank/home > manifest.json",
            "zuse manifest --sha256=all tank/home",
        )?;
        let got = tree::of_manifest(&manifest.stdout)?;
        let snapshot = self.quiet(
            "zuse manifest --sha256=all tank/home@monday > monday.json",
            "zuse manifest --sha256=all tank/home@monday",
        )?;
        for (name, tree) in [
            ("tank/home", &got),
            ("tank/home@monday", &tree::of_manifest(&snapshot.stdout)?),
        ] {
            if let Some(difference) = expected.difference(tree) {
                return Err(CommandError::new(format!(
                    "{name} is not what was copied: {difference}"
                ))
                .into());
            }
            self.check(
                &format!("{name} equals the source: {} objects", tree.len()),
                true,
            )?;
        }
        Ok(())
    }
}
