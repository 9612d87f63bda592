//! `zuse host`: the processes that hold imported pools.

mod metrics;

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::handover;
use crate::json::{Json, envelope};
use crate::session::{Need, Session};
use crate::table::{Column, Side, render};
use crate::wire;

/// Time limit for a host to write its dirty data and to unmount.
const ENDING: Duration = Duration::from_secs(60);
/// Polling interval for the end of a host.
const LOOK: Duration = Duration::from_millis(50);

/// The processes that hold imported pools
///
/// 'zpool create' and 'zpool import' start a host for the pool, 'zpool export' and 'zpool destroy'
/// end it. A command for an imported pool without a host starts one. The tunable zuse_host_linger
/// is the time that a host stays without work; 0 means no hosts.
#[derive(Args, Debug)]
pub struct Host {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the hosts
    List(List),
    /// Start a host for each imported pool, and end them all at SIGTERM. It is for a service
    /// manager, which is notified when all are ready
    Run,
    /// Write dirty data, unmount, and end hosts; the pools stay imported
    Stop(Pools),
    /// Replace hosts by new processes, for another version of zuse; all mounts stay
    ///
    /// Open files, working directories and locks stay, and keys stay loaded. Requests to the mounts
    /// wait meanwhile. A host that cannot hand over to this version unmounts and ends, and another
    /// one mounts again.
    Restart(Pools),
    Metrics(metrics::Metrics),
}

#[derive(Args, Debug, Default)]
struct List {
    /// As JSON
    #[arg(short, long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Pools {
    /// The pools; all by default
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// A host.
struct Row {
    pool: String,
    guid: u64,
    process: u32,
}

impl Host {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        match self.command {
            None => list(session, false),
            Some(Command::List(l)) => list(session, l.json),
            Some(Command::Run) => run(session),
            Some(Command::Metrics(m)) => m.run(session),
            Some(Command::Stop(p)) => stop(session, &p.pools),
            Some(Command::Restart(p)) => restart(session, &p.pools),
        }
    }
}

/// Running hosts, of these pools or of all.
fn rows(session: &Session, pools: &[String]) -> Vec<Row> {
    let held = session.state.held().into_iter();
    let named = held.filter(|(name, _)| pools.is_empty() || pools.contains(name));
    let row = |(pool, guid)| {
        let process = wire::process_behind(&session.state.socket(guid))?;
        Some(Row {
            pool,
            guid,
            process,
        })
    };
    named.filter_map(row).collect()
}

fn list(session: &mut Session, json: bool) -> Outcome {
    let rows = rows(session, &[]);
    if json {
        let of = |r: &Row| {
            let log = session.state.log(r.guid).display().to_string();
            let fields = vec![
                ("pid".to_owned(), Json::Text(r.process.to_string())),
                ("log".to_owned(), Json::Text(log)),
            ];
            (r.pool.clone(), Json::Object(fields))
        };
        let hosts = Json::Object(rows.iter().map(of).collect());
        let line = envelope("zuse host list", vec![("hosts".to_owned(), hosts)]);
        return Ok(session.ui.line(line.to_string())?);
    }
    let columns = [
        Column::new("pool", Side::Left),
        Column::new("pid", Side::Right),
        Column::new("log", Side::Left),
    ];
    let line = |r: &Row| {
        let log = session.state.log(r.guid).display().to_string();
        vec![r.pool.clone(), r.process.to_string(), log]
    };
    let lines: Vec<Vec<String>> = rows.iter().map(line).collect();
    let style = session.ui.style(false);
    session.ui.print(render(&columns, &lines, style))?;
    Ok(())
}

/// Starts hosts of imported pools, and reports those that cannot be opened.
fn start(session: &mut Session, pools: &[String]) -> Outcome {
    let mut failed = false;
    for name in pools {
        match session.pool(name, Need::Write) {
            Ok(_) | Err(Stop::Held(_)) => {}
            Err(Stop::Failed(error)) => {
                failed = true;
                crate::say_error(&mut session.ui, &error);
            }
            Err(stop) => return Err(stop),
        }
    }
    match failed {
        true => Err(CommandError::silent(1).into()),
        false => Ok(()),
    }
}

/// Lets new processes replace hosts.
fn restart(session: &mut Session, pools: &[String]) -> Outcome {
    let mut failed = false;
    for row in named(session, pools)? {
        let done = match handover::start(session, &row.pool, row.guid, row.process) {
            Ok(true) => wait_for_end(session, &row),
            Ok(false) => {
                let pool = &row.pool;
                session.ui.say(format!(
                    "the host of '{pool}' cannot hand its mounts over to this version of zuse: they are unmounted and mounted again"
                ));
                end(session, &row).and_then(|()| start(session, std::slice::from_ref(pool)))
            }
            Err(stop) => Err(stop),
        };
        match done {
            Err(Stop::Failed(error)) => {
                failed = true;
                crate::say_error(&mut session.ui, &error);
            }
            other => other?,
        }
    }
    match failed {
        true => Err(CommandError::silent(1).into()),
        false => Ok(()),
    }
}

/// Those that were named, or all.
fn named(session: &Session, pools: &[String]) -> Outcome<Vec<Row>> {
    let rows = rows(session, pools);
    let found = |name: &String| rows.iter().any(|r| r.pool == *name);
    if let Some(none) = pools.iter().find(|name| !found(name)) {
        return Err(CommandError::new(format!("'{none}' has no host"))
            .hint("'zuse host' lists those that run")
            .into());
    }
    Ok(rows)
}

/// Ends hosts, and waits until they are gone.
fn stop(session: &mut Session, pools: &[String]) -> Outcome {
    let rows = named(session, pools)?;
    rows.iter().try_for_each(|row| end(session, row))
}

fn end(session: &Session, row: &Row) -> Outcome {
    use rustix::process::{Pid, Signal, kill_process};
    let cannot = || format!("cannot end the host of '{}'", row.pool);
    let pid = Pid::from_raw(row.process.cast_signed());
    let pid = pid.ok_or_else(|| CommandError::new(cannot()))?;
    // The host then writes, unmounts and closes; the pool stays imported.
    kill_process(pid, Signal::TERM)
        .map_err(std::io::Error::from)
        .or_cannot(cannot)?;
    wait_for_end(session, row)
}

/// Waits until a host is gone.
fn wait_for_end(session: &Session, row: &Row) -> Outcome {
    let cannot = || format!("cannot end the host of '{}'", row.pool);
    let until = Instant::now() + ENDING;
    while is_running(row.process) {
        if Instant::now() > until {
            return Err(CommandError::new(format!("{}: it goes on", cannot()))
                .hint(format!(
                    "its log is '{}'",
                    session.state.log(row.guid).display()
                ))
                .into());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Whether a process exists and has not ended. A zombie has ended, but its parent has not waited
/// for it.
fn is_running(process: u32) -> bool {
    let stat = Path::new("/proc").join(process.to_string()).join("stat");
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    // The name in front of the state may contain anything, except for the last bracket.
    let state = text.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|s| !s.starts_with(['Z', 'X']))
}

/// Starts all, tells the service manager, waits for SIGTERM, and ends them.
fn run(session: &mut Session) -> Outcome {
    let mut signals = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGINT,
    ])?;
    let pools: Vec<String> = session.state.imported()?.into_keys().collect();
    // A pool that cannot be opened does not keep the others from starting.
    let started = start(session, &pools);
    // Also after a failure: the other pools are ready, and the service must not be restarted.
    notify("READY=1");
    if let Err(Stop::Failed(error)) = started {
        crate::say_error(&mut session.ui, &error);
    }
    signals.forever().next();
    notify("STOPPING=1");
    // Before this process ends: a service manager kills what is left of the service.
    stop(session, &[])
}

/// Notifies systemd, if it started this process and listens.
fn notify(what: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    // An abstract name begins with '@' there.
    let sent = match socket.to_str().and_then(|s| s.strip_prefix('@')) {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            std::os::unix::net::SocketAddr::from_abstract_name(name)
                .and_then(|to| UnixDatagram::unbound()?.send_to_addr(what.as_bytes(), &to))
        }
        None => UnixDatagram::unbound().and_then(|s| s.send_to(what.as_bytes(), &socket)),
    };
    // A service manager that does not listen does not wait for the message either.
    drop(sent);
}
