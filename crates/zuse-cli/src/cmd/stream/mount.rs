//! `zuse stream mount`: a stream as a directory.
//!
//! The process in the background holds the temporary pool of the stream, in an unlinked file. Both
//! end with the mount.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;

use clap::Args;
use zuse::{ReceivedSnapshot, STREAM_POOL};

use super::members::Member;
use super::sources::{Sources, top_of};
use crate::cmd::mount::{MountArgs, no_directory};
use crate::cmd::serve;
use crate::error::{CommandError, Outcome};
use crate::session::Session;

/// Mount a stream read-only on a directory, without a pool
///
/// Datasets of a package appear inside their parents; --dataset mounts one alone. The last argument
/// is the directory. Before it come a full stream and its incrementals. 'zuse umount DIR' or
/// 'fusermount3 -u DIR' unmounts it.
#[derive(Args, Debug)]
pub struct Mount {
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// Options, separated by commas, as of 'zuse mount'
    #[arg(short = 'o', value_name = "OPTION,…")]
    options: Vec<String>,
    /// This is the process in the background
    #[arg(long, hide = true)]
    served: bool,
    #[command(flatten)]
    sources: Sources,
}

impl Mount {
    /// Runs the command.
    pub fn run(mut self, session: &mut Session) -> Outcome {
        let directory = self.sources.streams.pop().unwrap_or_default();
        if self.sources.streams.is_empty() {
            return Err(CommandError::usage(
                "missing argument: a stream and a directory".to_owned(),
            )
            .into());
        }
        let path = session.path(&directory);
        if !path.is_dir() {
            return Err(no_directory("cannot mount", &path).into());
        }
        if !self.foreground && !self.served {
            return self.start(session, &path);
        }
        // Commands find a mounted pool by its name. So two mounts at once, or a pool of the user's,
        // must have different names.
        let unique = session.environment()?.entropy.u64();
        let name = format!("{STREAM_POOL}-{unique:016x}");
        let (members, all) = self.sources.open_all(session, &name)?;
        let top = top_of(&name);
        let last = |dataset: &str| {
            let own = |s: &&ReceivedSnapshot| s.to.split('@').next() == Some(dataset);
            all.iter().rev().find(own).map(|s| s.to.as_str())
        };
        let is_last = |m: &Member| m.snapshot.split('@').next().and_then(last) == Some(&m.snapshot);
        let dataset = match members.all() {
            // Datasets appear inside their parent, but not inside a snapshot. Each is in the state
            // of its last snapshot, since nothing else was received.
            several @ [first, _, ..] if first.below.is_empty() && several.iter().all(is_last) => {
                top
            }
            [first, others @ ..] => {
                let left: Vec<&str> = others.iter().map(|m| m.name.as_str()).collect();
                if !left.is_empty() {
                    let left = left.join(" ");
                    let ui = &mut session.ui;
                    ui.say(format!("only '{}' is mounted, not: {left}", first.name));
                    ui.say("--dataset NAME mounts another one");
                }
                first.snapshot.clone()
            }
            [] => top,
        };
        let mut options = self.options;
        options.push("ro".to_owned());
        let mount = MountArgs {
            dataset,
            mountpoint: path,
            options,
        };
        serve::serve(session, &[mount], self.foreground)
    }

    fn start(&self, session: &mut Session, path: &std::path::Path) -> Outcome {
        let mut words: Vec<OsString> = ["stream", "mount", "--served"].map(OsString::from).into();
        for option in &self.options {
            words.extend(["-o".into(), option.into()]);
        }
        if let Some(dataset) = &self.sources.dataset {
            words.push(format!("--dataset={dataset}").into());
        }
        if let Some(dir) = &self.sources.tmp {
            words.extend(["--tmp".into(), session.path(dir).into()]);
        }
        words.push("--".into());
        let is_input = |p: &PathBuf| p.as_os_str() == "-";
        words.extend(self.sources.streams.iter().map(|p| match is_input(p) {
            true => p.into(),
            false => session.path(p).into(),
        }));
        words.push(path.into());
        let input = match self.sources.streams.iter().any(is_input) {
            true => Stdio::from(session.ui.input.try_clone()?),
            false => Stdio::null(),
        };
        serve::start_as(session, &words, input)
    }
}
