//! `zpool events`

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use zuse::events::{EventField, EventValue, PostedEvent};

use crate::date;
use crate::error::{CommandError, Outcome};
use crate::forward;
use crate::session::{Need, Session};

/// How long a follower waits before it checks whether its client still exists.
const CLIENT_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Show what has happened to pools
///
/// Each process that holds a pool keeps its last events (tunable zfs_zevent_len_max). A pool that
/// no process holds has none. Tunables zuse_events_file and zuse_events_command forward them.
#[derive(Args, Debug)]
pub struct Events {
    /// Also the fields of each event
    #[arg(short)]
    verbose: bool,
    /// No header, a tab between the columns
    #[arg(short = 'H')]
    scripted: bool,
    /// Follow new events
    #[arg(short)]
    follow: bool,
    /// Forget all events
    #[arg(short)]
    clear: bool,
    /// The pool; all by default
    #[arg(value_name = "POOL")]
    pool: Option<String>,
}

impl Events {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        if self.clear && (self.verbose || self.scripted || self.follow || self.pool.is_some()) {
            return Err(CommandError::usage("invalid options combined with -c").into());
        }
        if let Some(name) = self
            .pool
            .as_deref()
            .filter(|n| zuse::check_pool_name(n).is_err())
        {
            return Err(CommandError::usage(format!("invalid pool name '{name}'")).into());
        }
        if session.holder.is_some() {
            return self.here(session);
        }
        let mut held = Vec::new();
        for name in session.pool_names()? {
            if self.pool.as_ref().is_none_or(|wanted| *wanted == name) {
                held.push(session.guid_of(&name)?);
            }
        }
        if self.clear {
            let mut all = 0u64;
            for guid in held {
                let answer = forward::answer(session, guid, &["zuse", "zpool", "events", "-c"])?;
                let number = answer
                    .split_whitespace()
                    .nth(1)
                    .and_then(|n| n.parse().ok());
                all += number.unwrap_or(0);
            }
            session.ui.line(format!("cleared {all} events"))?;
            return Ok(());
        }
        if !self.scripted {
            session.ui.line(format!("{:<30} CLASS", "TIME"))?;
        }
        if self.follow {
            return self.follow_all(session, &held);
        }
        let mut all = Vec::new();
        for guid in held {
            let answer = forward::answer(session, guid, &["zuse", "zpool", "events", "-vH"])?;
            all.extend(answer.split("\n\n").filter_map(EventText::of));
        }
        all.sort_by_key(|event| event.time);
        for event in all {
            let text = event.text(self.verbose, self.scripted);
            session.ui.print(text)?;
        }
        Ok(())
    }

    /// One process for each held pool. Their events are printed as they arrive.
    fn follow_all(&self, session: &mut Session, held: &[u64]) -> Outcome {
        let mut words = vec!["zuse", "zpool", "events", "-f"];
        words.extend(self.verbose.then_some("-v"));
        words.extend(self.scripted.then_some("-H"));
        session.ui.flush()?;
        let mut lines = Vec::new();
        for guid in held {
            lines.push(forward::Line::new(session, *guid, &words)?);
        }
        std::thread::scope(|scope| {
            for line in &lines {
                scope.spawn(|| line.send());
            }
        });
        Ok(())
    }

    /// In the process that holds a pool.
    fn here(&self, session: &mut Session) -> Outcome {
        let Some(holder) = session.holder.clone() else {
            return Ok(());
        };
        let name = holder.pool().name();
        if self.pool.as_ref().is_some_and(|wanted| *wanted != name) {
            return Ok(());
        }
        let pool = session.pool(&name, Need::Read)?;
        let events = pool.events().clone();
        if self.clear {
            session
                .ui
                .line(format!("cleared {} events", events.clear()))?;
            return Ok(());
        }
        let interruption = session.interruption()?;
        let mut last = 0;
        loop {
            let batch = match self.follow {
                true => events.wait_after(last, CLIENT_CHECK_INTERVAL),
                false => events.after(last),
            };
            for event in &batch.events {
                last = event.eid;
                let text = EventText::from(event);
                let text = text.text(self.verbose, self.scripted);
                session.ui.print(text)?;
            }
            session.ui.flush()?;
            if !self.follow || batch.ended || interruption.is_wanted() {
                return Ok(());
            }
        }
    }
}

/// An event as text.
struct EventText {
    /// Seconds and nanoseconds, the sort key.
    time: (u64, u64),
    date: String,
    class: String,
    fields: String,
}

impl EventText {
    fn from(event: &Arc<PostedEvent>) -> Self {
        let mut fields = String::new();
        for field in &event.fields {
            show(field, 8, &mut fields);
        }
        let (secs, nanos) = (event.time.unsigned_secs(), u64::from(event.time.nanos));
        show(
            &("time", EventValue::Numbers(vec![secs, nanos])),
            8,
            &mut fields,
        );
        show(&("eid", EventValue::Number(event.eid)), 8, &mut fields);
        Self {
            time: (secs, nanos),
            date: date::event(event.time.secs, event.time.nanos),
            class: event.class.clone(),
            fields,
        }
    }

    /// Parses the events of another process.
    fn of(block: &str) -> Option<Self> {
        let (head, fields) = block.trim_start_matches('\n').split_once('\n')?;
        let (date, class) = head.split_once('\t')?;
        let time = fields
            .lines()
            .rev()
            .find_map(|l| l.trim_start().strip_prefix("time = "))?;
        let mut numbers = time.split_whitespace().filter_map(|n| {
            let digits = n.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        });
        Some(Self {
            time: (numbers.next()?, numbers.next()?),
            date: date.to_owned(),
            class: class.to_owned(),
            fields: format!("{}\n", fields.trim_end_matches('\n')),
        })
    }

    fn text(&self, verbose: bool, scripted: bool) -> String {
        let between = if scripted { '\t' } else { ' ' };
        let mut text = format!("{:<30}{between}{}\n", self.date, self.class);
        if verbose {
            text.push_str(&self.fields);
            text.push('\n');
        }
        text
    }
}

fn show((name, value): &EventField, indent: usize, out: &mut String) {
    let _ = match value {
        EventValue::Number(n) => writeln!(out, "{:indent$}{name} = {n:#x}", ""),
        EventValue::Numbers(all) => {
            let _ = write!(out, "{:indent$}{name} = ", "");
            for n in all {
                let _ = write!(out, "{n:#x} ");
            }
            writeln!(out)
        }
        EventValue::Text(text) => writeln!(out, "{:indent$}{name} = \"{text}\"", ""),
        EventValue::Named(word, n) => writeln!(out, "{:indent$}{name} = \"{word}\" ({n:#x})", ""),
        EventValue::Nested(fields) => {
            let _ = writeln!(out, "{:indent$}{name} = (embedded nvlist)", "");
            for field in fields {
                show(field, indent + 8, out);
            }
            writeln!(out, "{:indent$}(end {name})", "")
        }
    };
}
