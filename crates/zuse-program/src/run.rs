//! Running a program: the interpreter, its limits, and the functions behind `zfs.*`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use mlua::chunk::ChunkMode;
use mlua::{
    Error as LuaError, HookTriggers, Lua, LuaOptions, MultiValue, Result as LuaResult, StdLib,
    Table, Value, Variadic, VmState,
};
use zuse_base::Result;
use zuse_dsl::property::Source;
use zuse_dsl::{Batch, Dsl, Entry, Kind, Operation};
use zuse_format::property::{PropertyKind, dataset_property, is_user_property};

use crate::dialect::translate;
use crate::tree::Tree;
use crate::words;

/// What the interpreter and its libraries count for in a memory limit.
const INTERPRETER: u64 = 16 * 1024;
/// Instructions between two looks at the counter.
const TICK: u32 = 100;

/// Ticks between two times that a program out of time is stopped, and how often that is done gently.
const GRACE: u64 = 5;
const GRACE_MAX: u64 = 100;

const NO_MEMORY: &str = "Memory limit exhausted.";

const PRELUDE: &str = include_str!("prelude.lua");

const NOT_IN_DRY_RUN: &str = "running functions from the zfs.sync submodule requires passing sync=TRUE to lzc_channel_program() (i.e. do not specify the \"-n\" command line argument)";

#[rustfmt::skip]
const ERRNO: [(&str, i64); 38] = [
    ("EPERM", 1), ("ENOENT", 2), ("ESRCH", 3), ("EINTR", 4), ("EIO", 5), ("ENXIO", 6), ("E2BIG", 7), ("ENOEXEC", 8),
    ("EBADF", 9), ("ECHILD", 10), ("EAGAIN", 11), ("ENOMEM", 12), ("EACCES", 13), ("EFAULT", 14), ("ENOTBLK", 15),
    ("EBUSY", 16), ("EEXIST", 17), ("EXDEV", 18), ("ENODEV", 19), ("ENOTDIR", 20), ("EISDIR", 21), ("EINVAL", 22),
    ("ENFILE", 23), ("EMFILE", 24), ("ENOTTY", 25), ("ETXTBSY", 26), ("EFBIG", 27), ("ENOSPC", 28), ("ESPIPE", 29),
    ("EROFS", 30), ("EMLINK", 31), ("EPIPE", 32), ("EDOM", 33), ("ERANGE", 34), ("EDEADLK", 35), ("ENAMETOOLONG", 36),
    ("ENOTSUP", 95), ("EDQUOT", 122),
];

/// Bounds of a program.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most instructions.
    pub instructions: u64,
    /// Most bytes.
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            instructions: 10_000_000,
            memory: 10 * 1024 * 1024,
        }
    }
}

/// A program with what it is given.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its text.
    pub text: Vec<u8>,
    /// Its arguments: the table `argv`.
    pub arguments: Vec<String>,
    /// Its bounds.
    pub limits: Limits,
    /// It only looks: `zfs.sync` is refused.
    pub dry_run: bool,
    /// Stops it once this is true.
    pub cancel: Arc<AtomicBool>,
}

/// Runs a program on a pool, all of it in one txg.
///
/// The inner result is what the program came to: its value (`None` without one), or the text of its error with the
/// traceback. What it changed before an error of its own stays, as with OpenZFS. A program that is stopped because it reached a
/// limit, or was canceled, leaves nothing: what it did is undone before its txg is written.
///
/// # Errors
/// The pool is read-only, or cannot be read.
pub fn run(dsl: &Dsl, program: Program) -> Result<std::result::Result<Option<Tree>, String>> {
    let Limits {
        instructions,
        memory,
    } = program.limits;
    let fits = (1..=crate::MAX_INSTRUCTIONS).contains(&instructions)
        && (1..=crate::MAX_MEMORY).contains(&memory);
    if !fits {
        return Ok(Err("Invalid instruction or memory limit.".into()));
    }
    if memory <= INTERPRETER {
        return Ok(Err(NO_MEMORY.into()));
    }
    // A text that is none costs no txg.
    let text = match translate(&program.text) {
        Ok(text) => text,
        Err((line, why)) => {
            return Ok(Err(format!("[string \"channel program\"]:{line}: {why}")));
        }
    };
    let changing = !program.dry_run;
    dsl.batch(changing, move |batch| {
        let machine = match Machine::new() {
            Ok(machine) => machine,
            Err(e) => return Err(plain(&e)),
        };
        let ran = machine.run(batch, &text, &program);
        let ended = ran.unwrap_or_else(|e| Err(machine.stopped().unwrap_or_else(|| plain(&e))));
        if let Err(why) = &ended
            && (machine.stop.get().is_some() || why == NO_MEMORY)
        {
            batch.undo();
        }
        ended
    })
}

fn plain(error: &LuaError) -> String {
    match error {
        LuaError::MemoryError(_) => NO_MEMORY.into(),
        LuaError::SyntaxError { message, .. } => words::message(message),
        LuaError::CallbackError { cause, .. } => plain(cause),
        other => words::message(&other.to_string()),
    }
}

/// Why a program is stopped from outside.
#[derive(Clone, Copy)]
enum Stop {
    TimedOut,
    Canceled,
}

impl Stop {
    fn text(self) -> &'static str {
        match self {
            Self::TimedOut => "Channel program timed out.",
            Self::Canceled => "Channel program was canceled.",
        }
    }
}

struct Machine {
    lua: Lua,
    /// Instructions so far.
    count: Rc<Cell<u64>>,
    stop: Rc<Cell<Option<Stop>>>,
    /// Where it was when it was stopped.
    place: Rc<RefCell<Option<String>>>,
}

impl Machine {
    fn new() -> LuaResult<Self> {
        let lua = Lua::new_with(
            StdLib::TABLE | StdLib::STRING | StdLib::COROUTINE,
            LuaOptions::new().catch_rust_panics(false),
        )?;
        let machine = Self {
            lua,
            count: Rc::default(),
            stop: Rc::default(),
            place: Rc::default(),
        };
        Ok(machine)
    }

    /// Begins to count.
    fn watch(&self, limit: u64, cancel: Arc<AtomicBool>) -> LuaResult<()> {
        let (count, stop) = (self.count.clone(), self.stop.clone());
        let place = self.place.clone();
        let grace = Cell::new(0u64);
        self.lua.set_global_hook(
            HookTriggers::new().every_nth_instruction(TICK),
            move |lua, _| {
                if stop.get().is_none() {
                    count.set(count.get() + u64::from(TICK));
                    if count.get() > limit {
                        stop.set(Some(Stop::TimedOut));
                    } else if cancel.load(Relaxed) {
                        stop.set(Some(Stop::Canceled));
                    }
                }
                let Some(why) = stop.get() else {
                    return Ok(VmState::Continue);
                };
                if place.borrow().is_none() {
                    let trace = lua.traceback(None, 0).map(|t| t.to_string_lossy());
                    *place.borrow_mut() = trace.ok();
                }
                // The handler of the error must be able to say where it was; a program that catches it goes no further.
                grace.set(grace.get() + 1);
                if grace.get() % GRACE != 1 && grace.get() < GRACE * GRACE_MAX {
                    return Ok(VmState::Continue);
                }
                Err(LuaError::RuntimeError(why.text().into()))
            },
        )
    }

    fn run(
        &self,
        batch: &Batch<'_>,
        text: &[u8],
        program: &Program,
    ) -> LuaResult<std::result::Result<Option<Tree>, String>> {
        let lua = &self.lua;
        lua.scope(|scope| {
            let host = lua.create_table()?;
            let errno = lua.create_table()?;
            for (name, number) in ERRNO
                .into_iter()
                .chain([("ENOLCK", 37), ("ECANCELED", 125)])
            {
                errno.set(name, number)?;
            }
            host.set("errno", errno)?;
            host.set(
                "integer",
                scope.create_function(|_, text: mlua::LuaString| Ok(integer(&text.as_bytes())))?,
            )?;
            host.set(
                "exists",
                scope.create_function(|_, name: String| {
                    Ok(match in_pool(batch, &name) {
                        false => (
                            Value::Nil,
                            Value::String(lua.create_string(format!(
                                "dataset '{name}' is not in the target pool"
                            ))?),
                        ),
                        true => (
                            Value::Boolean(true),
                            Value::Boolean(matches!(batch.entry(&name), Ok(Some(_)))),
                        ),
                    })
                })?,
            )?;
            host.set(
                "there",
                scope.create_function(|_, name: String| {
                    Ok(batch.is_there(&name).unwrap_or(false))
                })?,
            )?;
            host.set(
                "debug",
                scope.create_function(|_, _: mlua::LuaString| Ok(true))?,
            )?;
            host.set(
                "get_prop",
                scope.create_function(|lua, (name, property): (String, String)| {
                    answer(lua, get_prop(lua, batch, &name, &property)?)
                })?,
            )?;
            host.set(
                "list",
                scope.create_function(|lua, (what, name): (String, String)| {
                    answer(lua, list(lua, batch, &what, &name)?)
                })?,
            )?;
            host.set(
                "operate",
                scope.create_function(
                    |lua, (name, doing, defer, args): (String, bool, bool, Variadic<Option<String>>)| {
                        answer(lua, operate(lua, batch, &name, doing, defer, &args)?)
                    },
                )?,
            )?;
            let traceback = scope.create_function(|lua, ()| lua.traceback(None, 1))?;
            let (world, start): (Table, mlua::Function) = lua
                .load(PRELUDE)
                .set_name("=[C]")
                .set_mode(ChunkMode::Text)
                .call((host, traceback))?;
            let chunk = lua
                .load(text)
                .set_name("channel program")
                .set_mode(ChunkMode::Text)
                .set_environment(world)
                .into_function()?;
            let arguments = lua.create_table()?;
            if !program.arguments.is_empty() {
                arguments.set("argv", lua.create_sequence_from(program.arguments.clone())?)?;
            }
            self.watch(program.limits.instructions, program.cancel.clone())?;
            let own = lua.used_memory() as u64;
            let room = program.limits.memory.saturating_sub(INTERPRETER);
            lua.set_memory_limit((own + room) as usize)?;
            let results: MultiValue = start.call((chunk, arguments))?;
            // What is taken out does not count.
            lua.set_memory_limit(0)?;
            Ok(self.outcome(results.into_vec()))
        })
    }

    /// What is said of a program that was stopped from outside.
    fn stopped(&self) -> Option<String> {
        let why = self.stop.get()?;
        let place = self.place.borrow();
        let trace = words::traceback(place.as_deref().unwrap_or_default());
        let text = why.text();
        Some(match why {
            Stop::TimedOut => format!("{text}\n{trace}\n{} Lua instructions", self.count.get()),
            Stop::Canceled => format!("{text}\n{trace}"),
        })
    }

    fn outcome(&self, results: Vec<Value>) -> std::result::Result<Option<Tree>, String> {
        // Also where it has caught that and come to an end: it did not do what it says.
        if let Some(text) = self.stopped() {
            return Err(text);
        }
        let mut results = results.into_iter();
        if let Some(Value::Boolean(true)) = results.next() {
            let count = results.next().and_then(|v| v.as_integer()).unwrap_or(0);
            return match (count, results.next()) {
                (0, _) => Ok(None),
                (1, Some(value)) => Tree::of(&value, "return", 0).map(Some),
                (1, None) => Ok(Some(Tree::Nil)),
                _ => Err("Multiple return values not supported".into()),
            };
        }
        let error = results.next().unwrap_or(Value::Nil);
        let trace = match results.next() {
            Some(Value::String(s)) => words::traceback(&s.to_string_lossy()),
            _ => "stack traceback:".into(),
        };
        let message = match &error {
            Value::String(s) => words::message(&s.to_string_lossy()),
            Value::Integer(n) => n.to_string(),
            Value::Error(e) => {
                let text = plain(e);
                if text == NO_MEMORY {
                    return Err(text);
                }
                text
            }
            _ => return Err(trace),
        };
        if message == "not enough memory" {
            return Err(NO_MEMORY.into());
        }
        Err(format!("{message}\n{trace}"))
    }
}

/// A text as an integer, as Lua reads one; `None` for anything else.
fn integer(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = digits.strip_prefix("0x").or(digits.strip_prefix("0X"));
    let (digits, base) = hex.map_or((digits, 10), |h| (h, 16));
    if digits.is_empty() {
        return None;
    }
    let mut value = 0i64;
    for c in digits.chars() {
        let digit = c.to_digit(base)?;
        value = value
            .wrapping_mul(i64::from(base))
            .wrapping_add(i64::from(digit));
    }
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

fn in_pool(batch: &Batch<'_>, name: &str) -> bool {
    name.split(['/', '@', '#']).next() == Some(batch.pool().as_str())
}

/// Results behind true, or nil and a message.
type Answered = std::result::Result<Vec<Value>, String>;

fn answer(lua: &Lua, answered: Answered) -> LuaResult<MultiValue> {
    Ok(match answered {
        Ok(values) => std::iter::once(Value::Boolean(true))
            .chain(values)
            .collect(),
        Err(message) => [Value::Nil, Value::String(lua.create_string(message)?)]
            .into_iter()
            .collect(),
    })
}

/// The entry that a function works on, or the message that there is none.
fn target(batch: &Batch<'_>, name: &str, function: &str) -> std::result::Result<Entry, String> {
    let bad = |why: String| format!("bad argument #1 to '{function}' ({why})");
    if !in_pool(batch, name) {
        return Err(bad(format!(
            "dataset '{name}' is not in the target pool '{}'",
            batch.pool()
        )));
    }
    match batch.entry(name) {
        Ok(Some(entry)) => Ok(entry),
        Ok(None) => Err(bad(format!("no such dataset '{name}'"))),
        Err(_) => Err(format!("I/O error while accessing dataset '{name}'")),
    }
}

fn get_prop(lua: &Lua, batch: &Batch<'_>, name: &str, property: &str) -> LuaResult<Answered> {
    let entry = match target(batch, name, "get_prop") {
        Ok(entry) => entry,
        Err(e) => return Ok(Err(e)),
    };
    let known = dataset_property(property);
    if zuse_dsl::is_accounted(property) {
        let Ok(found) = batch.accounted(&entry, property) else {
            return Ok(Err(format!("I/O error while accessing dataset '{name}'")));
        };
        return Ok(Ok(match found {
            Some(n) => {
                let from = Value::String(lua.create_string(&entry.name)?);
                vec![Value::Integer(n as i64), from]
            }
            None => vec![Value::Nil, Value::Nil],
        }));
    }
    let pseudo = property.starts_with("written@");
    if known.is_none() && !is_user_property(property) && !pseudo {
        return Ok(Err(format!("'{property}' is not a valid property")));
    }
    let Ok(found) = batch.property(&entry, property) else {
        return Ok(Err(format!("I/O error while accessing dataset '{name}'")));
    };
    let counts = matches!(property, "filesystem_count" | "snapshot_count");
    let Some((text, source)) = found.filter(|(t, _)| !(counts && t == "none")) else {
        return Ok(Ok(vec![Value::Nil, Value::Nil]));
    };
    let value = match known {
        Some(p) if p.name == "clones" => {
            Value::Table(lua.create_sequence_from(text.split(',').map(str::to_owned))?)
        }
        Some(p) if p.kind == PropertyKind::Number => Value::Integer(number(&text, p.none)),
        None if property.starts_with("written@") => {
            Value::Integer(integer(text.as_bytes()).unwrap_or(0))
        }
        _ => Value::String(lua.create_string(text.as_ref())?),
    };
    let from = match source {
        Source::None => None,
        Source::Default => Some("default".to_owned()),
        Source::Local | Source::Received | Source::Temporary => Some(entry.name.clone()),
        Source::Inherited(from) => Some(from),
    };
    let from = match from {
        Some(text) => Value::String(lua.create_string(text)?),
        None => Value::Nil,
    };
    Ok(Ok(vec![value, from]))
}

/// A number property's text as the raw number; ratios in hundredths.
fn number(text: &str, none: zuse_format::property::NoneMeans) -> i64 {
    use zuse_format::property::NoneMeans;
    if let Some((whole, part)) = text.split_once('.') {
        let whole: i64 = whole.parse().unwrap_or(0);
        return whole * 100 + part.parse::<i64>().unwrap_or(0);
    }
    match text.parse::<u64>() {
        Ok(n) => n as i64,
        Err(_) if none == NoneMeans::Max => -1,
        Err(_) => 0,
    }
}

fn list(lua: &Lua, batch: &Batch<'_>, what: &str, name: &str) -> LuaResult<Answered> {
    let entry = match target(batch, name, what) {
        Ok(entry) => entry,
        Err(e) => return Ok(Err(e)),
    };
    let snapshot = entry.kind == Kind::Snapshot;
    let bad = |why: String| Ok(Err(format!("bad argument #1 to '{what}' ({why})")));
    match what {
        "clones" | "holds" if !snapshot => return bad(format!("{name} is not a snapshot")),
        "children" | "snapshots" | "bookmarks" if snapshot => {
            return bad(format!("argument {name} cannot be a snapshot"));
        }
        _ => {}
    }
    let names = |all: Result<Vec<String>>| all.map(|a| a.into_iter().map(|n| vec![n]).collect());
    let rows: Result<Vec<Vec<String>>> = match what {
        "children" => names(batch.children(&entry)),
        "snapshots" => names(batch.snapshots(&entry)),
        "clones" => names(batch.clones(&entry)),
        "bookmarks" => names(batch.bookmarks(&entry)),
        "user_properties" => batch.user_properties(&entry).map(|all| {
            let from = |s: Source| match s {
                Source::Inherited(from) => from,
                _ => entry.name.clone(),
            };
            all.into_iter()
                .map(|(n, v, s)| vec![n.into_owned(), v.into_owned(), from(s)])
                .collect()
        }),
        "system_properties" => {
            let all = batch.native_properties(&entry);
            return Ok(match all {
                Ok(all) => Ok(vec![Value::Table(lua.create_sequence_from(all)?)]),
                Err(_) => Err(format!("I/O error while accessing dataset '{name}'")),
            });
        }
        _ => {
            let Ok(all) = batch.holds(&entry) else {
                return Ok(Err(format!("I/O error while accessing dataset '{name}'")));
            };
            let table = lua.create_table()?;
            for (tag, time) in all {
                let row = lua.create_table()?;
                row.push(tag)?;
                row.push(time as i64)?;
                table.push(row)?;
            }
            return Ok(Ok(vec![Value::Table(table)]));
        }
    };
    let Ok(rows) = rows else {
        return Ok(Err(format!("I/O error while accessing dataset '{name}'")));
    };
    let table = lua.create_table()?;
    for row in rows {
        table.push(lua.create_sequence_from(row)?)?;
    }
    Ok(Ok(vec![Value::Table(table)]))
}

fn operate(
    lua: &Lua,
    batch: &Batch<'_>,
    name: &str,
    doing: bool,
    defer: bool,
    args: &[Option<String>],
) -> LuaResult<Answered> {
    if doing && !batch.is_changing() {
        return Ok(Err(NOT_IN_DRY_RUN.into()));
    }
    let arg = |i: usize| args.get(i).cloned().flatten().unwrap_or_default();
    let operation = match name {
        "destroy" => {
            if defer && !arg(0).contains('@') {
                return Ok(Err(format!(
                    "'deferred' kwarg only supported for snapshots: {}",
                    arg(0)
                )));
            }
            Operation::Destroy(arg(0), defer)
        }
        "snapshot" => Operation::Snapshot(arg(0)),
        "clone" => Operation::Clone(arg(0), arg(1)),
        "promote" => Operation::Promote(arg(0)),
        "rollback" => Operation::Rollback(arg(0)),
        "rename_snapshot" => Operation::RenameSnapshot(arg(0), arg(1), arg(2)),
        "inherit" => Operation::Inherit(arg(0), arg(1)),
        "bookmark" => Operation::Bookmark(arg(0), arg(1)),
        _ => Operation::SetProperty(arg(0), arg(1), arg(2)),
    };
    let Ok(outcome) = batch.run(&operation, doing) else {
        return Ok(Err(format!(
            "I/O error while accessing dataset '{}'",
            arg(0)
        )));
    };
    let mut values = vec![Value::Integer(outcome.errno)];
    if !outcome.names.is_empty() {
        values.push(Value::Table(lua.create_sequence_from(outcome.names)?));
    } else if let Some(target) = outcome.target {
        let table = lua.create_table()?;
        table.set("target", target)?;
        values.push(Value::Table(table));
    }
    Ok(Ok(values))
}

impl From<&str> for Program {
    fn from(text: &str) -> Self {
        Self {
            text: text.as_bytes().to_vec(),
            ..Self::default()
        }
    }
}
