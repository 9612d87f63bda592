//! `zfs send`

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use zuse_base::sync::Mutex;

use clap::Args;
use zuse::stream::{ResumeToken, SendOptions, SendProgress, StreamWriter, nv_print};
use zuse::{PlannedStream, SendPlan, SendRequest};

use crate::date::clock_text;
use crate::error::{CommandError, Explain, Meaning, Outcome, Stop, explain};
use crate::nicenum::{nicebytes, nicenum};
use crate::session::{Need, Session};

/// Write snapshots as a stream to standard output
#[derive(Args, Debug)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Send {
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// From this earlier snapshot or bookmark
    #[arg(
        short = 'i',
        value_name = "SNAPSHOT|BOOKMARK",
        conflicts_with = "all_from"
    )]
    from: Option<String>,
    /// From this earlier snapshot, with all snapshots between
    #[arg(short = 'I', value_name = "SNAPSHOT")]
    all_from: Option<String>,
    /// Also all descendants, with properties, snapshots and clones
    #[arg(short = 'R', long = "replicate")]
    recursive: bool,
    /// With -R: skip datasets that lack the snapshot
    #[arg(short = 's', long = "skip-missing")]
    skip_missing: bool,
    /// With -R: leave these datasets out
    #[arg(
        short = 'X',
        long = "exclude",
        value_name = "DATASET,…",
        value_delimiter = ','
    )]
    exclude: Vec<String>,
    /// With the dataset's properties
    #[arg(short = 'p', long = "props")]
    properties: bool,
    /// With -p or -R: without the properties of encryption
    #[arg(short = 'U')]
    unencrypted: bool,
    /// With received properties instead of local ones
    #[arg(short = 'b', long = "backup")]
    received_only: bool,
    /// With holds
    #[arg(short = 'h', long = "holds")]
    holds: bool,
    /// Send blocks above 128 KiB whole
    #[arg(short = 'L', long = "large-block")]
    large_blocks: bool,
    /// Send embedded blocks as such
    #[arg(short = 'e', long = "embed")]
    embed: bool,
    /// Send compressed blocks as stored
    #[arg(short = 'c', long = "compressed")]
    compressed: bool,
    /// Send all blocks as stored, encrypted ones too
    #[arg(short = 'w', long = "raw")]
    raw: bool,
    /// Without the blocks that this redaction bookmark of the snapshot lists
    #[arg(short = 'd', long = "redact", value_name = "BOOKMARK")]
    redact: Option<String>,
    /// Refused: streams are not deduplicated any more
    #[arg(short = 'D', long = "dedup")]
    dedup: bool,
    /// Only print what would be sent, and how much
    #[arg(short = 'n', long = "dryrun")]
    dry_run: bool,
    /// Show the progress
    #[arg(short = 'v', long = "verbose", action = clap::ArgAction::Count)]
    verbose: u8,
    /// Accepted: the process title stays
    #[arg(short = 'V', long = "proctitle")]
    title: bool,
    /// Output for scripts: exact numbers and tabs
    #[arg(short = 'P', long = "parsable")]
    parsable: bool,
    /// Resume an interrupted receive
    #[arg(short = 't', value_name = "TOKEN")]
    token: Option<String>,
    /// Send what an interrupted receive into the dataset has kept
    #[arg(short = 'S', long = "saved")]
    saved: bool,
    /// The snapshot, or a filesystem that is not written to
    #[arg(value_name = "SNAPSHOT", required_unless_present = "token")]
    snapshot: Option<String>,
}

/// Exit code of a send that cannot be resumed.
const RESUME_FAILED: u8 = 255;

impl Send {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        if session.ui.out_is_terminal() && !self.dry_run {
            return Err(
                CommandError::new("Error: Stream can not be written to a terminal.")
                    .hint("You must redirect standard output.")
                    .into(),
            );
        }
        self.check_flags()?;
        let plan = match (&self.token, &self.snapshot) {
            (Some(token), _) => self.resumed(session, token)?,
            (None, Some(target)) if self.saved => session
                .pool_for(target, Need::Read)?
                .plan_saved(target)
                .or_cannot(|| format!("cannot send saved state of '{target}'"))?,
            (None, _) => self.planned(session)?,
        };
        if self.dedup {
            session
                .ui
                .say("WARNING: deduplicated send is no longer supported");
        }
        for note in &plan.notes {
            session.ui.say(note);
        }
        self.announce(session, &plan, self.speaks())?;
        if !self.dry_run {
            self.write(session, &plan)?;
        }
        match plan.failures.is_empty() {
            true => Ok(()),
            // The errors were printed where they occurred.
            false => Err(CommandError::new("").into()),
        }
    }

    /// Whether it says what it sends.
    fn speaks(&self) -> bool {
        self.verbose > 0 || self.parsable
    }

    /// Refuses flags that mean nothing where a stream goes on, or where a part of one is sent.
    fn check_flags(&self) -> Outcome {
        let of_packages = self.recursive || self.properties || self.received_only || self.holds;
        let of_sources = self.from.is_some() || self.all_from.is_some() || self.redact.is_some();
        let of_blocks = self.large_blocks || self.compressed || self.raw || self.embed;
        let not_alone = of_packages || of_sources;
        let is_snapshot = |name: &String| name.contains('@');
        let why = match () {
            // Flags for blocks are taken: clients give those of the first send again.
            () if self.token.is_some() && (not_alone || self.saved) => {
                "invalid flags combined with -t"
            }
            () if self.token.is_some() && self.snapshot.is_some() => "too many arguments",
            () if self.saved && (not_alone || of_blocks) => {
                "incompatible flags combined with saved send flag"
            }
            () if self.saved && self.snapshot.as_ref().is_some_and(is_snapshot) => {
                "saved send must specify the dataset with partially-received state"
            }
            () => return Ok(()),
        };
        Err(CommandError::usage(why).into())
    }

    fn options(&self) -> SendOptions {
        SendOptions {
            // A raw stream has the blocks as they are on disk: large, embedded or compressed.
            large_blocks: self.large_blocks || self.raw,
            embed: self.embed || self.raw,
            compressed: self.compressed || self.raw,
            raw: self.raw,
            ..SendOptions::default()
        }
    }

    fn check_target(&self, name: &str) -> Outcome {
        // Several snapshots of a bookmark are refused later, in words of their own.
        let several = self.recursive || self.all_from.is_some();
        if name.contains('#') && !several {
            super::check_head(name)?;
        }
        if self.skip_missing && !self.recursive {
            let what = "skip-missing flag can only be used in conjunction with replicate";
            return Err(CommandError::usage(what).into());
        }
        if !self.exclude.is_empty() && !self.recursive {
            let what = "Cannot specify dataset exclusion (-X) on a non-recursive send.";
            return Err(CommandError::new(what).into());
        }
        Ok(())
    }

    fn planned(&self, session: &mut Session) -> Outcome<SendPlan> {
        let name = self.snapshot.clone().unwrap_or_default();
        self.check_target(&name)?;
        let given = self.from.as_deref().or(self.all_from.as_deref());
        let from = given.map(|from| {
            if from.contains(['@', '#']) {
                return from.to_owned();
            }
            format!("@{from}")
        });
        let request = SendRequest {
            to: name.clone(),
            from,
            intermediate: self.all_from.is_some(),
            recursive: self.recursive,
            properties: self.properties,
            unencrypted: self.unencrypted,
            received_only: self.received_only,
            holds: self.holds,
            skip_missing: self.skip_missing,
            exclude: self.exclude.clone(),
            redact: self.redact.clone(),
            options: self.options(),
            sizes_only: self.dry_run,
        };
        let pool = session.pool_for(&name, Need::Read)?;
        // Several snapshots go from snapshots only.
        let untyped = self.from.as_ref().filter(|_| self.all_from.is_none());
        if untyped.is_some_and(|from| !from.contains(['@', '#'])) {
            session.ui.say("Warning: incremental source didn't specify type, assuming snapshot. Use '@' or '#' prefix to avoid ambiguity.");
        }
        if let Some(error) = self.unnamed_source(&request) {
            return Err(error.into());
        }
        let planned = pool.plan_send(&request);
        let failed = || format!("warning: cannot send '{name}'");
        if let Err(zuse::Error::Refused { what, why, .. }) = &planned {
            match why {
                zuse::Refusal::Unsendable => {
                    session.ui.say(what);
                    return Err(CommandError::new(format!("{}: backup failed", failed())).into());
                }
                zuse::Refusal::KeyNotLoaded => {
                    let whose = if self.all_from.is_some() {
                        "source"
                    } else {
                        "dataset"
                    };
                    let text = format!("{}: {whose} key must be loaded", failed());
                    return Err(CommandError::new(text)
                        .hint("'zfs load-key' loads it; '-w' sends without it")
                        .into());
                }
                zuse::Refusal::Usage => return Err(CommandError::usage(what).into()),
                zuse::Refusal::Whole => return Err(CommandError::new(what).into()),
                _ => {}
            }
        }
        planned.or_cannot(failed)
    }

    /// The message about a source that is only a delimiter.
    fn unnamed_source(&self, request: &SendRequest) -> Option<CommandError> {
        let head = request.to.split('@').next().unwrap_or_default();
        let said = match (request.from.as_deref()?, self.all_from.is_some()) {
            ("@", true) => format!("cannot send '{head}': zero-length incremental source"),
            ("@", false) if !self.recursive => format!(
                "cannot open '{head}@': empty component or misplaced '@' or '#' delimiter in name"
            ),
            ("#", false) => format!("warning: cannot send '{}': Invalid argument", request.to),
            _ => return None,
        };
        Some(CommandError::new(said))
    }

    fn resumed(&self, session: &mut Session, token: &str) -> Outcome<SendPlan> {
        let failed = |text: String| CommandError {
            code: RESUME_FAILED,
            ..CommandError::new(format!("cannot resume send: {text}"))
        };
        let mut token = ResumeToken::parse(token).map_err(|e| failed(e.to_string()))?;
        // Programs learn in this way what a token says, also where its pool is not.
        if self.speaks() {
            let text = format!(
                "resume token contents:\n{}",
                nv_print::text(&token.to_list())
            );
            if self.dry_run {
                session.ui.print(text)?;
            } else {
                session.ui.say_lines(&text);
            }
        }
        let pool = session
            .pool_for(&token.to_name, Need::Read)
            .map_err(|stop| match stop {
                Stop::Failed(e) if e.meaning == Meaning::NoSuchPool => {
                    let name = &token.to_name;
                    failed(format!(
                        "'{name}' used in the initial send no longer exists"
                    ))
                    .into()
                }
                stop => stop,
            })?;
        let asked = self.options();
        // The token's flags stay, whatever this command asks for: the receiver has begun with them.
        token.large_blocks |= asked.large_blocks;
        token.embed |= asked.embed;
        token.compressed |= asked.compressed;
        token.raw |= asked.raw;
        let gone = |e: &zuse::Error| match e {
            zuse::Error::Refused { what, .. } if e.is_for(zuse::Refusal::Whole) => {
                failed(what.to_string())
            }
            other => CommandError {
                code: RESUME_FAILED,
                ..explain("cannot resume send", other, false)
            },
        };
        pool.plan_resume(&token).map_err(|e| gone(&e).into())
    }

    /// Prints what will be sent if requested, and always what cannot be sent.
    fn announce(&self, session: &mut Session, plan: &SendPlan, speaks: bool) -> Outcome {
        let mut failures = plan.failures.iter().peekable();
        for i in 0..=plan.streams.len() {
            while let Some((_, lines)) = failures.next_if(|(at, _)| *at == i) {
                session.ui.flush()?;
                lines.iter().for_each(|line| session.ui.say(line));
            }
            let line = match plan.streams.get(i) {
                Some(stream) => self.line_of(stream),
                None if self.parsable => format!("size\t{}", plan.estimate()),
                None => format!("total estimated size is {}", nicebytes(plan.estimate())),
            };
            match (speaks, self.dry_run) {
                (false, _) => {}
                (true, true) => session.ui.line(line)?,
                (true, false) => session.ui.say(line),
            }
        }
        Ok(())
    }

    fn line_of(&self, stream: &PlannedStream) -> String {
        let (to, size) = (&stream.to, stream.estimate);
        if self.parsable {
            return match &stream.from {
                None => format!("full\t{to}\t{size}"),
                Some(from) => {
                    let shown = from.strip_prefix('@').unwrap_or(from);
                    format!("incremental\t{shown}\t{to}\t{size}")
                }
            };
        }
        let mut line = match &stream.from {
            None => format!("full send of {to}"),
            Some(from) => format!("send from {from} to {to}"),
        };
        if size > 0 {
            line += &format!(" estimated size is {}", nicebytes(size));
        }
        line
    }

    fn write(&self, session: &mut Session, plan: &SendPlan) -> Outcome {
        let progress = SendProgress::default();
        let current = Mutex::new(String::new());
        let done = AtomicBool::new(false);
        let mut err = session.ui.err().try_clone()?;
        let mut writer = StreamWriter::new(session.output()?);
        let sent = std::thread::scope(|scope| {
            if self.verbose > 0 {
                scope.spawn(|| self.report(&progress, &current, &done, &mut err));
            }
            let sent = plan.run(&mut writer, &progress, &mut |stream| {
                current.lock().clone_from(&stream.to);
            });
            done.store(true, Relaxed);
            sent
        });
        match sent {
            Err(zuse::Error::Refused {
                errno: zuse::Errno(32),
                ..
            }) => Err(Stop::Hangup),
            other => other.or_cannot(|| {
                let name = current.lock().clone();
                format!("warning: cannot send '{name}'")
            }),
        }
    }

    /// A line each second.
    fn report(
        &self,
        progress: &SendProgress,
        current: &Mutex<String>,
        done: &AtomicBool,
        err: &mut impl Write,
    ) {
        let mut shown = String::new();
        let mut next = Instant::now() + Duration::from_secs(1);
        while !done.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
            if Instant::now() < next {
                continue;
            }
            next += Duration::from_secs(1);
            let name = current.lock().clone();
            let blocks = progress.blocks.load(Relaxed);
            let bytes = progress.bytes.load(Relaxed);
            let mut text = String::new();
            if name != shown && !self.parsable {
                let column = if self.verbose > 1 { "   BLOCKS" } else { "" };
                text += &format!("TIME        SENT{column}   SNAPSHOT {name}\n");
                shown.clone_from(&name);
            }
            let time = clock_text();
            let more = self.verbose > 1;
            text += &match (self.parsable, more) {
                (true, false) => format!("{time}\t{bytes}\t{name}\n"),
                (true, true) => format!("{time}\t{bytes}\t{blocks}\t{name}\n"),
                (false, false) => format!("{time}   {:>5}   {name}\n", nicebytes(bytes)),
                (false, true) => {
                    format!(
                        "{time}   {:>5}   {:>6}   {name}\n",
                        nicebytes(bytes),
                        nicenum(blocks)
                    )
                }
            };
            let _ = err.write_all(text.as_bytes());
        }
    }
}
