//! `zuse replicate`

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use clap::Args;
use zuse::stream::{ResumeToken, SendOptions, SendProgress, StreamWriter};
use zuse::tools::{Layer as _, Layers as _};
use zuse::{Pool, ReceiveRequest, SendPlan, SendRequest};

use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::progress::Progress;
use crate::session::{Need, Session};

/// Update a copy of a dataset elsewhere to a snapshot here
///
/// It sends from the newest snapshot or bookmark that both sides have. The next run resumes an
/// interrupted one. The other side is a pool of this user, or the pool that --via reaches. For
/// example, --via 'ssh host zuse zfs', or --via 'ssh host zfs' where OpenZFS receives.
#[derive(Args, Debug)]
pub struct Replicate {
    /// Command that runs 'zfs' on the other side
    #[arg(long, value_name = "COMMAND")]
    via: Option<String>,
    /// Only the newest snapshot, not those between
    #[arg(long)]
    newest: bool,
    /// Roll the other side back to the common snapshot
    #[arg(short = 'F')]
    force: bool,
    /// Only print what would be sent
    #[arg(short = 'n', long = "dryrun")]
    dry_run: bool,
    /// The dataset, whose newest snapshot is sent, or a snapshot
    #[arg(value_name = "DATASET[@SNAPSHOT]")]
    from: String,
    /// Dataset on the other side
    #[arg(value_name = "DATASET")]
    to: String,
}

/// The receiving side.
enum Other {
    Here(Arc<Pool>),
    There(Vec<String>),
}

impl Other {
    /// Runs a command there and returns its output; `None` if it failed.
    fn ask(words: &[String], args: &[&str]) -> Option<String> {
        let (program, rest) = words.split_first()?;
        let out = Command::new(program)
            .args(rest)
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        out.status
            .success()
            .then(|| String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Guids of the snapshots of a dataset there.
    fn guids(&self, dataset: &str) -> Outcome<Vec<u64>> {
        match self {
            Self::Here(pool) => {
                let Ok(snaps) = pool.dsl().snapshots(dataset) else {
                    return Ok(Vec::new());
                };
                let guid = |name: &str| pool.dataset(name)?.handle().guid();
                snaps
                    .iter()
                    .map(|s| guid(&s.name).or_cannot(|| format!("cannot open '{}'", s.name)))
                    .collect()
            }
            Self::There(words) => {
                let args = [
                    "list", "-Hp", "-d", "1", "-t", "snapshot", "-o", "guid", dataset,
                ];
                let text = Self::ask(words, &args).unwrap_or_default();
                Ok(text.lines().filter_map(|l| l.trim().parse().ok()).collect())
            }
        }
    }

    fn token(&self, dataset: &str) -> Option<ResumeToken> {
        match self {
            Self::Here(pool) => pool.resume_token(dataset).ok().flatten(),
            Self::There(words) => {
                let args = ["get", "-H", "-o", "value", "receive_resume_token", dataset];
                ResumeToken::parse(Self::ask(words, &args)?.trim()).ok()
            }
        }
    }
}

impl Replicate {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        // The pool that is written is opened first, since both sides may be in it.
        let other = match &self.via {
            Some(command) => Other::There(command.split_whitespace().map(str::to_owned).collect()),
            None => Other::Here(session.pool_for(&self.to, Need::Write)?),
        };
        let source = session.pool_for(&self.from, Need::Read)?;
        let wanted = self.wanted(&source)?;
        if let Some(token) = other.token(&self.to)
            && !self.dry_run
        {
            session
                .ui
                .line(format!("going on with {}", token.to_name))?;
            let plan = source
                .plan_resume(&token)
                .or_cannot(|| "cannot resume send".to_owned())?;
            self.transfer(session, &other, &plan)?;
        }
        let Some(request) = self.request(&source, &other, &wanted)? else {
            session.ui.line(format!("{} is up to date", self.to))?;
            return Ok(());
        };
        let plan = source
            .plan_send(&request)
            .or_cannot(|| format!("cannot send '{wanted}'"))?;
        if let Some((_, lines)) = plan.failures.first() {
            return Err(CommandError::new(lines.join(" ")).into());
        }
        for stream in &plan.streams {
            let line = match &stream.from {
                None => format!("full {}", stream.to),
                Some(from) => format!("from {from} to {}", stream.to),
            };
            session.ui.line(line)?;
        }
        session.ui.flush()?;
        if self.dry_run {
            return Ok(());
        }
        self.transfer(session, &other, &plan)
    }

    /// The snapshot that the other side must have in the end.
    fn wanted(&self, source: &Arc<Pool>) -> Outcome<String> {
        if self.from.contains('@') {
            return Ok(self.from.clone());
        }
        let all = source
            .dsl()
            .snapshots(&self.from)
            .or_cannot(|| format!("cannot open '{}'", self.from))?;
        let newest = all.last().map(|e| e.name.clone());
        newest.ok_or_else(|| {
            CommandError::new(format!(
                "cannot replicate '{}': it has no snapshots",
                self.from
            ))
            .hint(format!("zuse zfs snapshot {}@NAME", self.from))
            .into()
        })
    }

    /// The send request for what the other side lacks; `None` if it lacks nothing.
    fn request(
        &self,
        source: &Arc<Pool>,
        other: &Other,
        wanted: &str,
    ) -> Outcome<Option<SendRequest>> {
        let cannot = || format!("cannot open '{wanted}'");
        let there = other.guids(&self.to)?;
        let dataset = wanted.split('@').next().unwrap_or(wanted);
        let target = source
            .dataset(wanted)
            .and_then(|d| d.stat())
            .or_cannot(cannot)?;
        if there.contains(&target.guid) {
            return Ok(None);
        }
        let mut points = Vec::new();
        for snap in source.dsl().snapshots(dataset).or_cannot(cannot)? {
            let stat = source
                .dataset(&snap.name)
                .and_then(|d| d.stat())
                .or_cannot(cannot)?;
            let own = snap.name.split('@').nth(1).unwrap_or_default().to_owned();
            points.push((stat.create_txg, true, stat.guid, format!("@{own}")));
        }
        for (name, mark) in source.dsl().bookmarks(dataset).or_cannot(cannot)? {
            points.push((mark.creation_txg, false, mark.guid, format!("#{name}")));
        }
        points.retain(|(txg, _, guid, _)| *txg < target.create_txg && there.contains(guid));
        // The newest; a snapshot is preferred to its bookmark.
        let from = points.into_iter().max_by_key(|p| (p.0, p.1));
        let between = from.as_ref().is_none_or(|p| p.1) && !self.newest;
        if from.is_none() && !there.is_empty() {
            return Err(CommandError::new(format!(
                "cannot replicate to '{}': it has no snapshot in common with '{dataset}'",
                self.to
            ))
            .into());
        }
        Ok(Some(SendRequest {
            to: wanted.to_owned(),
            intermediate: between && from.is_some(),
            from: from.map(|p| p.3),
            options: SendOptions {
                large_blocks: true,
                embed: true,
                compressed: true,
                ..SendOptions::default()
            },
            ..SendRequest::default()
        }))
    }

    fn transfer(&self, session: &mut Session, other: &Other, plan: &SendPlan) -> Outcome {
        let bar = Progress::new(&session.ui, session.holder.is_some());
        let (input, output) = std::io::pipe()?;
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| self.receive(other, input));
            let progress = SendProgress::default();
            let counted = Counted { output, bar: &bar };
            let mut writer = StreamWriter::new(counted);
            let sent = plan.run(&mut writer, &progress, &mut |_| {});
            // The receiving side ends when this end of the pipe is closed.
            drop(writer);
            let received = receiving.join().unwrap_or_else(|_| {
                Err(CommandError::new("the receiving side ended early").into())
            });
            // First: if the receiver fails, the sender only sees a closed pipe.
            received?;
            sent.or_cannot(|| format!("cannot send '{}'", self.from))
        })
    }

    fn receive(&self, other: &Other, mut input: impl Read) -> Outcome {
        let cannot = || format!("cannot receive into '{}'", self.to);
        match other {
            Other::Here(pool) => {
                let request = ReceiveRequest {
                    target: self.to.clone(),
                    force: self.force,
                    resumable: true,
                    ..ReceiveRequest::default()
                };
                let input = std::io::BufReader::with_capacity(1 << 20, input);
                pool.receive(input, &request, &mut |_| {}).or_cannot(cannot)
            }
            Other::There(words) => {
                let Some((program, rest)) = words.split_first() else {
                    return Err(CommandError::usage("--via names no command").into());
                };
                let mut command = Command::new(program);
                command.args(rest).args(["receive", "-s"]);
                if self.force {
                    command.arg("-F");
                }
                let mut child = command.arg(&self.to).stdin(Stdio::piped()).spawn()?;
                let copied = match child.stdin.take() {
                    Some(mut stdin) => std::io::copy(&mut input, &mut stdin),
                    None => Ok(0),
                };
                let status = child.wait()?;
                if !status.success() {
                    return Err(CommandError::new(cannot()).into());
                }
                copied.map(|_| ()).map_err(Stop::from)
            }
        }
    }
}

/// Output that counts its bytes.
struct Counted<'a, W> {
    output: W,
    bar: &'a Progress,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.output.write(bytes)?;
        self.bar.add(n as u64);
        Ok(n)
    }
    fn write_vectored(&mut self, slices: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
        let n = self.output.write_vectored(slices)?;
        self.bar.add(n as u64);
        Ok(n)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.output.flush()
    }
}
