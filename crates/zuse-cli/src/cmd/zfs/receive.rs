//! `zfs receive`

use std::io::BufReader;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use zuse::tools::Layers as _;
use zuse::{Naming, ReceiveRequest, ReceivedSnapshot, received_key_request};

use crate::args::Unfit;
use crate::error::{CommandError, Explain, Outcome, explain};
use crate::keys::obtain;
use crate::nicenum::nicebytes;
use crate::session::{Need, Session};
use crate::ui::Ui;

/// Make a snapshot out of a stream from standard input
#[derive(Args, Debug)]
#[command(visible_alias = "recv", disable_help_flag = true)]
pub struct Receive {
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Roll the dataset back to the source of the stream, or overwrite it
    #[arg(short = 'F')]
    force: bool,
    /// Only print what would be done
    #[arg(short = 'n')]
    dry_run: bool,
    /// Do not mount what is received
    #[arg(short = 'u')]
    unmounted: bool,
    /// Print what is received
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    verbose: u8,
    /// Name: the sent name without its pool, below the target
    #[arg(short = 'd', conflicts_with = "last")]
    drop_pool: bool,
    /// Name: the last component of the sent name, below the target
    #[arg(short = 'e')]
    last: bool,
    /// Keep what was received if the stream ends early, so that it can be resumed
    #[arg(short = 's')]
    resumable: bool,
    /// Discard what an interrupted receive has kept
    #[arg(short = 'A')]
    abort: bool,
    /// Repair damaged blocks of an existing snapshot with a stream of it
    #[arg(short = 'c', conflicts_with_all = ["force", "resumable", "drop_pool", "last", "abort", "unmounted"])]
    heal: bool,
    /// Accepted: mounts never prevent it
    #[arg(short = 'M')]
    force_unmount: bool,
    /// Leave out holds
    #[arg(short = 'h')]
    no_holds: bool,
    /// Set a property of the dataset, or make it a clone: origin=SNAPSHOT
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    set: Vec<String>,
    /// Ignore a property of the stream
    #[arg(short = 'x', value_name = "PROPERTY")]
    exclude: Vec<String>,
    /// The target
    #[arg(value_name = "DATASET|SNAPSHOT")]
    target: String,
}

/// Properties that are part of the stream's content, or cannot be set. They can be neither excluded
/// nor overridden.
fn is_fixed(property: &str) -> bool {
    if property.contains([':', '@']) {
        return false;
    }
    zuse::property_table::dataset_property(property).is_none_or(|p| {
        let of_content = ["normalization", "utf8only", "casesensitivity", "volsize"];
        of_content.contains(&p.name) || p.is_readonly() && !p.is_set_once()
    })
}

/// What was received so far.
struct Progress<'a> {
    pool: &'a Arc<zuse::Pool>,
    ui: &'a mut Ui,
    says: bool,
    dry_run: bool,
    /// When the stream now coming began.
    began: Instant,
    incremental: bool,
    /// Datasets that are new.
    new: Vec<String>,
    /// The dataset now coming.
    current: String,
}

impl Progress<'_> {
    /// Notes the beginning or end of a snapshot, and prints it.
    fn show_snapshot(&mut self, s: &ReceivedSnapshot) {
        self.incremental = s.incremental;
        let line = match s.bytes {
            None if s.skipped => format!("snap {} already exists; ignoring", s.to),
            None => self.begin(s),
            Some(bytes) => {
                let seconds = self.began.elapsed().as_secs_f64().max(0.01);
                format!(
                    "received {} stream in {seconds:.2} seconds ({}/sec)",
                    nicebytes(bytes),
                    nicebytes((bytes as f64 / seconds) as u64)
                )
            }
        };
        for refused in s.refused.iter().filter(|_| s.bytes.is_some()) {
            self.ui.say(refused);
        }
        if self.says {
            let _ = self.ui.line(line);
            let _ = self.ui.flush();
        }
    }

    /// Notes a snapshot that begins; returns the line about it.
    fn begin(&mut self, s: &ReceivedSnapshot) -> String {
        self.began = Instant::now();
        let head = s.to.split('@').next().unwrap_or(&s.to);
        head.clone_into(&mut self.current);
        // A dataset that an earlier receive began and that is complete now is new, too.
        let old = self.pool.dataset(head).and_then(|d| d.is_inconsistent());
        if old.unwrap_or(true) {
            self.new.push(head.to_owned());
        }
        let kind = if s.incremental { "incremental" } else { "full" };
        let verb = if self.dry_run {
            "would receive"
        } else {
            "receiving"
        };
        format!("{verb} {kind} stream of {} into {}", s.from, s.to)
    }
}

impl Receive {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let target = &self.target;
        if self.abort {
            self.check_abort()?;
            let pool = session.pool_for(target, Need::Write)?;
            return self.abort_kept(session, &pool);
        }
        let mut request = self.request()?;
        let pool = session.pool_for(target, Need::Write)?;
        if self.heal {
            return self.heal(session, &pool);
        }
        if !self.dry_run
            && let Some(wanted) = received_key_request(&request.set)
                .map_err(|e| self.failure(&pool, "new filesystem", "", &e))?
        {
            let key = obtain(
                session,
                "cannot receive",
                wanted.format,
                &wanted.location,
                None,
                true,
            )?;
            request.key = Some(key);
        }
        let input = BufReader::with_capacity(1 << 20, session.input()?);
        let mut progress = Progress {
            pool: &pool,
            ui: &mut session.ui,
            says: self.verbose > 0 || self.dry_run,
            dry_run: self.dry_run,
            began: Instant::now(),
            incremental: false,
            new: Vec::new(),
            current: String::new(),
        };
        let done = pool.receive(input, &request, &mut |s| progress.show_snapshot(s));
        let Progress {
            incremental,
            new,
            current,
            ..
        } = progress;
        // Datasets that were received before a failure are kept, too.
        let mounted = crate::automount::made(session, &new, self.unmounted);
        if let Err(error) = done {
            let kind = if incremental {
                "incremental"
            } else {
                "new filesystem"
            };
            return Err(self.failure(&pool, kind, &current, &error).into());
        }
        session.log(&pool);
        mounted
    }

    /// Throwing away what is kept goes with no other option, and is of a dataset.
    fn check_abort(&self) -> Outcome {
        if self.dry_run || self.resumable || self.force || self.unmounted {
            return Err(CommandError::usage("invalid option").into());
        }
        super::check_head_or(&self.target, 2)
    }

    /// Throws away what an interrupted receive has kept.
    fn abort_kept(&self, session: &Session, pool: &zuse::Pool) -> Outcome {
        let target = &self.target;
        if !pool
            .exists(target)
            .or_cannot(|| format!("cannot open '{target}'"))?
        {
            let what = format!("cannot open '{target}': dataset does not exist");
            return Err(CommandError::usage(what).into());
        }
        if pool.resume_token(target).ok().flatten().is_none() {
            let what = "does not have any resumable receive state to abort";
            return Err(CommandError::new(format!("'{target}' {what}")).into());
        }
        pool.dsl()
            .abort_receive(target)
            .or_cannot(|| format!("cannot abort receive of '{target}'"))?;
        session.log(pool);
        Ok(())
    }

    /// The request to the library, without the key.
    fn request(&self) -> Outcome<ReceiveRequest> {
        let mut request = ReceiveRequest {
            owner: crate::caller::owner(),
            target: self.target.clone(),
            naming: match (self.drop_pool, self.last) {
                (true, _) => Naming::DropPool,
                (_, true) => Naming::LastOnly,
                _ => Naming::Exact,
            },
            force: self.force,
            resumable: self.resumable,
            dry_run: self.dry_run,
            exclude: self.exclude.clone(),
            no_holds: self.no_holds,
            ..ReceiveRequest::default()
        };
        for pair in &self.set {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(CommandError::usage(Unfit::Pair.to_string()).into());
            };
            if name == "origin" {
                request.origin = Some(value.to_owned());
            } else {
                request.set.push((name.to_owned(), value.to_owned()));
            }
        }
        let twice = |(i, (name, _)): &(usize, &(String, String))| {
            let again = request.set.iter().take(*i).any(|(n, _)| n == name);
            again || self.exclude.contains(name)
        };
        if let Some((_, (name, _))) = request.set.iter().enumerate().find(twice) {
            let what = format!("property '{name}' specified multiple times");
            return Err(CommandError::usage(what).into());
        }
        let given = request.set.iter().map(|(name, _)| name);
        if let Some(name) = self.exclude.iter().chain(given).find(|name| is_fixed(name)) {
            return Err(CommandError::new(format!(
                "cannot receive: cannot receive: invalid property '{name}'"
            ))
            .into());
        }
        Ok(request)
    }

    fn heal(&self, session: &mut Session, pool: &std::sync::Arc<zuse::Pool>) -> Outcome {
        let input = BufReader::with_capacity(1 << 20, session.input()?);
        let healing = match pool.heal(input, &self.target) {
            Ok(healing) => healing,
            Err(error) => return Err(self.failure(pool, "corrective", "", &error).into()),
        };
        session.log(pool);
        if self.verbose > 0 {
            session.ui.line(format!(
                "{}: {} blocks of the stream looked at, {} healed, {} cannot be healed by it",
                self.target, healing.blocks, healing.healed, healing.bad
            ))?;
        }
        if healing.bad > 0 {
            return Err(CommandError::new(
                "cannot receive corrective stream: corrective receive was not able to reconstruct the data needed for healing.",
            )
            .into());
        }
        Ok(())
    }

    /// Whether the target's parent is missing.
    fn is_orphan(&self, pool: &zuse::Pool) -> bool {
        let parent = self.target.rsplit_once('/').map(|(parent, _)| parent);
        parent.is_some_and(|parent| pool.exists(parent).is_ok_and(|there| !there))
    }

    /// The failure in the words of the command, and how to continue.
    fn failure(
        &self,
        pool: &zuse::Pool,
        kind: &str,
        current: &str,
        error: &zuse::Error,
    ) -> CommandError {
        let action = format!("cannot receive {kind} stream");
        match error {
            zuse::Error::Refused { what, .. } if error.is_for(zuse::Refusal::Whole) => {
                CommandError::of_lines(what)
            }
            zuse::Error::Refused { what, .. } if error.is_for(zuse::Refusal::NoStream) => {
                CommandError::of_lines(&format!("cannot receive: {what}"))
            }
            zuse::Error::Refused { .. } if error.is(zuse::Errno::NOENT) && self.is_orphan(pool) => {
                let parent = self
                    .target
                    .rsplit_once('/')
                    .map_or("", |(parent, _)| parent);
                CommandError::new(format!("cannot open '{parent}': dataset does not exist"))
                    .hint(format!("{action}: unable to restore to destination"))
            }
            zuse::Error::Refused { what, .. } if what.contains(' ') => {
                CommandError::of_lines(&format!("{action}: {what}"))
            }
            zuse::Error::Corrupt {
                kind: zuse::Corruption::Truncated,
                ..
            } if current.is_empty() => {
                CommandError::new("cannot receive: failed to read from stream")
            }
            zuse::Error::Corrupt { kind, .. } => {
                let what = match kind {
                    zuse::Corruption::Truncated if !self.resumable => "incomplete stream",
                    zuse::Corruption::Checksum if !self.resumable => "checksum mismatch",
                    _ => "checksum mismatch or incomplete stream.",
                };
                let failed = CommandError::new(format!("{action}: {what}"));
                let failed = match pool.resume_token(current).ok().flatten() {
                    Some(token) => failed
                        .hint("Partially received snapshot is saved.")
                        .hint(
                            "A resuming stream can be generated on the sending system by running:",
                        )
                        .hint(format!("    zfs send -t {}", token.to_text())),
                    None => failed,
                };
                // Where, for people.
                failed.hint(error.to_string())
            }
            other => explain(&action, other, false),
        }
    }
}
