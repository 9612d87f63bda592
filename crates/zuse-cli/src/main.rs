//! The `zuse` command: `zuse zpool|zfs|zdb …` and verbs of its own; called as `zpool`, `zfs`, `zdb`
//! or `mount.zuse` it is that command.
//!
//! ```text
//!   argv ─ parse ─ Session (streams, directory, pools) ─ cmd/…
//!                     ├─ the pool has a host: the same argv goes to that process's socket
//!                     └─ it has none yet: one is started, then the same
//! ```
#![deny(unsafe_code)]

mod allocator;
mod args;
mod automount;
mod cache_file;
mod caller;
mod cmd;
mod copy;
mod date;
mod dedup_table;
mod error;
mod forward;
mod forwarded;
mod handover;
mod holder;
mod host;
mod ids;
mod inherited;
mod interruption;
mod json;
mod keys;
mod nicenum;
mod orphan;
mod place;
mod present;
mod progress;
mod query;
mod session;
mod sets;
mod shown;
mod sink;
mod split;
mod state;
mod table;
mod target;
mod trust;
mod tuning;
mod ui;
mod usage;
mod users;
mod vdev_spec;
mod wire;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use cmd::Cli;
use error::{CommandError, Meaning, Outcome, Stop};
use session::Session;
use state::State;
use ui::Ui;

/// Names under which the program is a command of its own.
const APPLETS: [&str; 5] = ["zpool", "zfs", "zdb", "zstream", HELPER];
/// What `mount -t fuse.zuse` calls.
const HELPER: &str = "mount.fuse.zuse";

/// How a command line ended.
pub enum Executed {
    /// With this exit code.
    Done(u8),
    /// The process that holds this pool must run it.
    Elsewhere(u64),
    /// A new process must run it.
    NewProcess,
}

fn main() -> ExitCode {
    if std::env::var_os(inherited::MARK).is_some() {
        // Before anything is opened: it closes all descriptors above the standard streams.
        inherited::drop_all();
    }
    allocator::configure();
    let argv: Vec<OsString> = std::env::args_os().collect();
    match run(&argv) {
        Ok(code) => ExitCode::from(code),
        Err(Stop::Failed(error)) => {
            if let Ok(mut ui) = Ui::own() {
                say_error(&mut ui, &error);
            }
            ExitCode::from(error.code)
        }
        Err(_) => ExitCode::from(1),
    }
}

fn run(argv: &[OsString]) -> Outcome<u8> {
    let state = State::from_environment()?;
    let mut worst = 0;
    let held = || {
        state
            .held()
            .into_iter()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    };
    let argv = applet(argv);
    let known = || {
        let mut names: Vec<String> = held();
        names.extend(state.imported().into_iter().flat_map(BTreeMap::into_keys));
        names.sort();
        names.dedup();
        names
    };
    let lines = split::over_all(&argv, known).unwrap_or_else(|| split::by_pool(&argv, held));
    for line in lines {
        worst = run_line(&line, &state)?.max(worst);
    }
    Ok(worst)
}

fn run_line(argv: &[OsString], state: &State) -> Outcome<u8> {
    let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
    loop {
        let mut session = Session::new(Ui::own()?, cwd.clone(), state.clone(), None);
        match execute(argv, &mut session) {
            Executed::Done(code) => return Ok(code),
            Executed::Elsewhere(guid) => match forward::line(&mut session, guid, argv)? {
                Some(code) => return Ok(code),
                // It has just ended, so its pool can be opened here soon.
                None => std::thread::sleep(forward::PAUSE),
            },
            Executed::NewProcess => return host::in_new_process(&mut session, argv),
        }
    }
}

/// Runs a command line in a session.
pub fn execute(argv: &[OsString], session: &mut Session) -> Executed {
    let argv = applet(argv);
    if let [_, command, word] = argv.as_slice()
        && word == "-?"
        && (command == "zfs" || command == "zpool")
        && let Some(usage) = usage::Usage::of(&argv)
    {
        let printed = session.ui.print(usage.alone());
        return Executed::Done(u8::from(printed.and(session.ui.flush()).is_err()));
    }
    let cli = match Cli::try_parse_from(&argv) {
        Ok(cli) => cli,
        Err(error) => return Executed::Done(usage(&error, &argv, session)),
    };
    session.command = command_text(&argv);
    let result = cli.run(session);
    // The command runs in another process: nothing was opened here that must be written.
    let closed = if matches!(result, Err(Stop::Held(_) | Stop::NewProcess)) {
        Ok(())
    } else {
        session.finish()
    };
    let flushed = session.ui.flush().map_err(Stop::from);
    match result.and(closed).and(flushed) {
        Ok(()) => Executed::Done(session.worst),
        Err(Stop::Held(guid)) => Executed::Elsewhere(guid),
        Err(Stop::NewProcess) => Executed::NewProcess,
        // The status of a process that SIGPIPE has ended.
        Err(Stop::Hangup) => Executed::Done(141),
        Err(Stop::Failed(mut error)) => {
            if error.meaning == Meaning::KeyNotLoaded {
                error = error.hint(if session.has_keys() {
                    "none of the keys given with --key is the right one"
                } else {
                    "--key FILE gives it to a command, 'zfs load-key' to a mount"
                });
            }
            if let Some(usage) = usage::Usage::of(&argv).filter(|_| error.is_usage()) {
                error.message = usage.text(&error.message, None);
                error.code = usage.code();
            }
            say_error(&mut session.ui, &error);
            Executed::Done(error.code)
        }
    }
}

/// Prints a failure: the message, then what the user can do.
pub fn say_error(ui: &mut Ui, error: &CommandError) {
    if !error.message.is_empty() {
        ui.say(&error.message);
    }
    for hint in &error.hints {
        ui.say(hint);
    }
}

/// Puts `zuse` in front if the program was called by a command's name.
fn applet(argv: &[OsString]) -> Vec<OsString> {
    let name = argv
        .first()
        .and_then(|a| Path::new(a).file_name())
        .unwrap_or(OsStr::new("zuse"));
    let mut out = vec![OsString::from("zuse")];
    // `mount -t zuse` calls the same helper.
    let name = match name.to_str() {
        Some("mount.zuse" | "mount.zfs") => OsStr::new(HELPER),
        _ => name,
    };
    if APPLETS.iter().any(|a| name == OsStr::new(a)) {
        out.push(name.to_owned());
    }
    out.extend(argv.iter().skip(1).cloned());
    // `zuse -?` is Zuse's own; for the ZFS commands it asks for the usage.
    if let [_, word] = out.as_mut_slice()
        && word == "-?"
    {
        *word = "--help".into();
    }
    // The ZFS commands print their version in their own format.
    if let [_, command, word] = out.as_mut_slice()
        && (command == "zfs" || command == "zpool")
        && (word == "--version" || word == "-V")
    {
        *word = "version".into();
    }
    out
}

/// The command line for the pool's history: without `zuse` in front of ZFS commands.
fn command_text(argv: &[OsString]) -> String {
    let words: Vec<_> = argv.iter().map(|a| a.to_string_lossy()).collect();
    let known = words.get(1).is_some_and(|w| APPLETS.iter().any(|a| a == w));
    words
        .get(usize::from(known)..)
        .unwrap_or_default()
        .join(" ")
}

fn usage(error: &clap::Error, argv: &[OsString], session: &mut Session) -> u8 {
    let short = error.kind() == ErrorKind::DisplayHelp && argv.iter().any(|word| word == "-h");
    let asked = !short
        && matches!(
            error.kind(),
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
        );
    if let Some(usage) = usage::Usage::of(argv).filter(|_| !asked) {
        let what = usage::complaint(&usage, error);
        if usage.is_plain(error) {
            session.ui.say(&what);
            return 1;
        }
        let option = usage::unknown_option(error);
        session.ui.say(usage.text(&what, option));
        return usage.code();
    }
    let text = error.render();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let text = if session.ui.out_is_terminal() {
                text.ansi().to_string()
            } else {
                text.to_string()
            };
            let _ = session.ui.print_styled(&text);
            let _ = session.ui.flush();
            0
        }
        _ => {
            let text = if session.ui.is_watched() {
                text.ansi().to_string()
            } else {
                text.to_string()
            };
            session.ui.say_styled(text.trim_end());
            2
        }
    }
}
