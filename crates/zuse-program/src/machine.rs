//! The interpreter: a thread of its own that runs one program.
//!
//! ```text
//!   the sync thread (run.rs)                       this thread
//!                                    ◄── Ready     the text is compiled
//!   Go: from now on time counts      ──►
//!   does it with the Batch           ◄── Ask       a function of zfs.* was called
//!   Answer                           ──►
//!                                    ◄── Done      what it came to
//! ```
//! A separate thread, because some of Lua's C code cannot be interrupted. Examples are garbage
//! collection, a chain of `__call`, and the compiler with a malicious text. The sync thread waits
//! for an answer no longer than the program's time limit, and then continues without it. The
//! interpreter's thread gets an error at its next instruction.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use mlua::chunk::ChunkMode;
use mlua::{
    Error as LuaError, Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue,
    Result as LuaResult, StdLib, Table, Value, Variadic, VmState,
};

use crate::dialect::{Side, operand_name};
use crate::host::{Answered, Call, ERRNO, Given};
use crate::meter::{Meter, Stop, TICK};
use crate::pattern::{self, Capture, Wrong};
use crate::run::{INTERPRETER, NO_MEMORY, Program};
use crate::tree::{self, Tree};
use crate::words;

const PRELUDE: &str = include_str!("prelude.lua");
const LIBRARY: &str = include_str!("library.lua");

/// Most work (comparisons times the longest string) of a sort that is not counted.
const ORDER_MAX: usize = 1 << 28;
/// Most values of such a sort: each is a reference into the interpreter meanwhile.
const ORDER_VALUES: usize = 100_000;

/// Bytes of a string that are read in about the time of an instruction.
const READ: u64 = 8;

/// Messages from the interpreter.
pub(crate) enum FromProgram {
    Ready,
    Ask(Call),
    Done(Ended),
}

/// Messages to the interpreter.
pub(crate) enum ToProgram {
    Go(Instant),
    Answer(Answered),
}

/// The result of a program.
pub(crate) struct Ended {
    pub(crate) result: Result<Option<Tree>, String>,
    /// It was stopped: all its changes are reverted.
    pub(crate) stopped: bool,
}

/// The interpreter thread's channels to the sync thread.
struct HostLink {
    to_host: Sender<FromProgram>,
    from_host: Receiver<ToProgram>,
    meter: Rc<Meter>,
}

impl HostLink {
    /// Sends a call to the sync thread, and waits for its answer.
    fn ask(&self, lua: &Lua, call: Call) -> LuaResult<Answered> {
        if let Some(why) = self.meter.charge(0) {
            return Err(self.meter.error(lua, why));
        }
        if self.to_host.send(FromProgram::Ask(call)).is_ok()
            && let Ok(ToProgram::Answer(answered)) = self.from_host.recv()
        {
            return Ok(answered);
        }
        Err(self.meter.error(lua, Stop::Canceled))
    }
}

/// Compiles and runs a program.
pub(crate) fn run(
    text: &[u8],
    program: &Program,
    to_host: Sender<FromProgram>,
    from_host: Receiver<ToProgram>,
    left: Arc<AtomicBool>,
) {
    let cancel = program.cancel.clone();
    let meter = Rc::new(Meter::new(program.limits.instructions, cancel, left));
    let link = Rc::new(HostLink {
        to_host,
        from_host,
        meter,
    });
    let machine = match Machine::new(link.clone()) {
        Ok(machine) => machine,
        Err(e) => return done(&link, Err(plain(&e))),
    };
    let ready = match machine.load(text, program) {
        Ok(ready) => ready,
        Err(e) => return done(&link, Err(plain(&e))),
    };
    if link.to_host.send(FromProgram::Ready).is_err() {
        return;
    }
    let Ok(ToProgram::Go(deadline)) = link.from_host.recv() else {
        return;
    };
    link.meter.begin(deadline);
    let ran = machine.run(ready, program);
    let ended = ran.unwrap_or_else(|e| Err(link.meter.message().unwrap_or_else(|| plain(&e))));
    done(&link, ended);
}

fn done(link: &HostLink, result: Result<Option<Tree>, String>) {
    let full = result.as_ref().is_err_and(|why| why == NO_MEMORY);
    let stopped = link.meter.stopped().is_some() || full;
    // A caller that has ended needs no answer.
    let _ = link
        .to_host
        .send(FromProgram::Done(Ended { result, stopped }));
}

fn plain(error: &LuaError) -> String {
    match error {
        LuaError::MemoryError(_) => NO_MEMORY.into(),
        LuaError::SyntaxError { message, .. } => words::message(message),
        LuaError::CallbackError { cause, .. } => plain(cause),
        other => words::message(&other.to_string()),
    }
}

/// A program ready to run: its starter, itself, its argument.
type Ready = (Function, Function, Table);

struct Machine {
    lua: Lua,
    link: Rc<HostLink>,
}

impl Machine {
    fn new(link: Rc<HostLink>) -> LuaResult<Self> {
        let lua = Lua::new_with(
            StdLib::TABLE | StdLib::STRING | StdLib::COROUTINE,
            // A program must not catch a panic of the code around it.
            LuaOptions::new().catch_rust_panics(false),
        )?;
        Ok(Self { lua, link })
    }

    /// Sets up the program's environment and compiles the program in it, within its memory limit.
    fn load(&self, text: &[u8], program: &Program) -> LuaResult<Ready> {
        let lua = &self.lua;
        let host = lua.create_table()?;
        let errno = lua.create_table()?;
        for (name, number) in ERRNO {
            errno.set(name, number)?;
        }
        host.set("errno", errno)?;
        self.offer_pool(&host)?;
        self.offer_work(&host)?;
        self.offer_names(&host, program.text.clone())?;
        let traceback = lua.create_function(|lua, ()| lua.traceback(None, 1))?;
        let of_ours = |text: &str| {
            let chunk = lua.load(text).set_name("=[C]");
            chunk.set_mode(ChunkMode::Text).into_function()
        };
        let library = of_ours(LIBRARY)?;
        let (world, start): (Table, Function) =
            of_ours(PRELUDE)?.call((host, traceback, library))?;
        // The environment is charged at a fixed amount, whatever this interpreter takes.
        let own = lua.used_memory() as u64;
        let room = program.limits.memory.saturating_sub(INTERPRETER);
        lua.set_memory_limit((own + room) as usize)?;
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
        Ok((start, chunk, arguments))
    }

    /// Functions that the pool implements.
    fn offer_pool(&self, host: &Table) -> LuaResult<()> {
        let lua = &self.lua;
        let link = self.link.clone();
        host.set(
            "exists",
            lua.create_function(move |lua, name: String| {
                answer(lua, link.ask(lua, Call::Exists(name))?)
            })?,
        )?;
        let link = self.link.clone();
        host.set(
            "there",
            lua.create_function(move |lua, name: String| {
                let answered = link.ask(lua, Call::There(name))?;
                Ok(answered.is_ok_and(|a| matches!(a.first(), Some(Given::Boolean(true)))))
            })?,
        )?;
        host.set("debug", lua.create_function(|_, _: LuaString| Ok(true))?)?;
        let link = self.link.clone();
        host.set(
            "get_prop",
            lua.create_function(move |lua, (name, property): (String, String)| {
                answer(lua, link.ask(lua, Call::GetProperty(name, property))?)
            })?,
        )?;
        let link = self.link.clone();
        host.set(
            "list",
            lua.create_function(move |lua, (what, name): (String, String)| {
                answer(lua, link.ask(lua, Call::List(what, name))?)
            })?,
        )?;
        let link = self.link.clone();
        type Operated = (String, bool, bool, Variadic<Option<String>>);
        host.set(
            "operate",
            lua.create_function(move |lua, (name, doing, defer, args): Operated| {
                let args = args.into_iter().collect();
                answer(lua, link.ask(lua, Call::Operate(name, doing, defer, args))?)
            })?,
        )
    }

    /// The name of an operand of a translated operator.
    fn offer_names(&self, host: &Table, text: Vec<u8>) -> LuaResult<()> {
        let meter = self.link.meter.clone();
        let name = self
            .lua
            .create_function(move |lua, (number, right): (usize, bool)| {
                // The whole text is read each time.
                if meter.charge(text.len() as u64 / READ).is_some() {
                    return Err(stop(lua, &meter));
                }
                let side = if right { Side::Right } else { Side::Left };
                Ok(operand_name(&text, number, side))
            })?;
        host.set("operand", name)
    }

    /// Functions that do long work, and count it.
    fn offer_work(&self, host: &Table) -> LuaResult<()> {
        let lua = &self.lua;
        host.set(
            "integer",
            lua.create_function(|_, text: LuaString| Ok(crate::host::integer(&text.as_bytes())))?,
        )?;
        // Also for a proxy of another table.
        let metatable = |_: &Lua, of: Table| Ok(of.metatable());
        host.set("metatable", lua.create_function(metatable)?)?;
        let meter = self.link.meter.clone();
        type Sought = (LuaString, LuaString, i64, bool, Option<i64>);
        host.set(
            "search",
            lua.create_function(move |lua, sought: Sought| search(lua, &meter, &sought))?,
        )?;
        let meter = self.link.meter.clone();
        host.set(
            "plain",
            lua.create_function(
                move |lua, (subject, what, from): (LuaString, LuaString, i64)| {
                    let (subject, what) = (subject.as_bytes(), what.as_bytes());
                    let from = usize::try_from(from - 1).unwrap_or(0);
                    match pattern::plain(&*meter, &subject, &what, from) {
                        Ok(Some(at)) => Ok((Some(at + 1), Some(at + what.len()))),
                        Ok(None) => Ok((None, None)),
                        Err(_) => Err(stop(lua, &meter)),
                    }
                },
            )?,
        )?;
        let meter = self.link.meter.clone();
        host.set(
            "order",
            lua.create_function(move |lua, (all, n): (Table, usize)| order(lua, &meter, all, n))?,
        )?;
        let meter = self.link.meter.clone();
        host.set(
            "stopping",
            lua.create_function(move |_, ()| Ok(meter.charge(0).is_some()))?,
        )
    }

    /// Begins to count.
    fn watch(&self) -> LuaResult<()> {
        let meter = self.link.meter.clone();
        let every = HookTriggers::new().every_nth_instruction(TICK);
        self.lua.set_global_hook(every, move |lua, _| {
            let Some(why) = meter.charge(u64::from(TICK)) else {
                return Ok(VmState::Continue);
            };
            let error = meter.error(lua, why);
            match meter.is_gentle() {
                true => Ok(VmState::Continue),
                false => Err(error),
            }
        })
    }

    fn run(
        &self,
        (start, chunk, arguments): Ready,
        program: &Program,
    ) -> LuaResult<Result<Option<Tree>, String>> {
        self.watch()?;
        let results: MultiValue = start.call((chunk, arguments))?;
        // The result has its own bound.
        self.lua.set_memory_limit(0)?;
        Ok(self.outcome(results.into_vec(), program.limits.memory))
    }

    fn outcome(&self, results: Vec<Value>, memory: u64) -> Result<Option<Tree>, String> {
        // Also if the program caught that error and ended: it did not complete.
        if let Some(text) = self.link.meter.message() {
            return Err(text);
        }
        let mut results = results.into_iter();
        if let Some(Value::Boolean(true)) = results.next() {
            let count = results.next().and_then(|v| v.as_integer()).unwrap_or(0);
            return match (count, results.next()) {
                (0, _) => Ok(None),
                (1, Some(value)) => {
                    let room = RefCell::new(memory);
                    let taken = Tree::of(&value, "return", 0, &room);
                    taken.map(Some).map_err(|why| match why {
                        tree::Wrong::Value(text) => text,
                        tree::Wrong::TooLarge => NO_MEMORY.into(),
                    })
                }
                (1, None) => Ok(Some(Tree::Nil)),
                _ => Err("Multiple return values not supported".into()),
            };
        }
        let error = results.next().unwrap_or(Value::Nil);
        let message = match &error {
            Value::String(s) => s.to_string_lossy(),
            _ => String::new(),
        };
        let trace = match results.next() {
            Some(Value::String(s)) => words::traceback(&s.to_string_lossy(), &message),
            _ => "stack traceback:".into(),
        };
        let message = match &error {
            Value::String(_) => words::message(&message),
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

fn stop(lua: &Lua, meter: &Meter) -> LuaError {
    let why = meter.stopped().unwrap_or(Stop::Instructions);
    meter.error(lua, why)
}

/// The next match: true, its first and last position, the number of captures, the captures. False
/// and a message for a bad pattern.
fn search(
    lua: &Lua,
    meter: &Meter,
    (subject, what, from, anchored, last): &(LuaString, LuaString, i64, bool, Option<i64>),
) -> LuaResult<MultiValue> {
    let (subject, what) = (subject.as_bytes(), what.as_bytes());
    let from = usize::try_from(from - 1).unwrap_or(0);
    let last = last.and_then(|at| usize::try_from(at).ok());
    let found = match pattern::search(meter, &subject, &what, from, last, *anchored) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(MultiValue::from_vec(vec![Value::Boolean(true)])),
        Err(Wrong::Pattern(why)) => {
            let why = Value::String(lua.create_string(why)?);
            return Ok(MultiValue::from_vec(vec![Value::Boolean(false), why]));
        }
        Err(Wrong::Spent) => return Err(stop(lua, meter)),
    };
    let mut out = vec![
        Value::Boolean(true),
        Value::Integer(found.start as i64 + 1),
        Value::Integer(found.end as i64),
        Value::Integer(found.captures.len() as i64),
    ];
    for capture in found.captures {
        out.push(match capture {
            Capture::Part(start, end) => {
                let part = subject.get(start..end).unwrap_or_default();
                Value::String(lua.create_string(part)?)
            }
            Capture::Place(at) | Capture::Open(at) => Value::Integer(at as i64 + 1),
        });
    }
    Ok(MultiValue::from_vec(out))
}

/// Sorts strings or numbers; `nil` for other values, or if sorting would take too long.
fn order(lua: &Lua, meter: &Meter, all: Table, n: usize) -> LuaResult<Option<Table>> {
    let rounds = n.checked_ilog2().unwrap_or(0) as usize + 1;
    if let Some(why) = meter.charge((n as u64).saturating_mul(rounds as u64) / 16) {
        return Err(meter.error(lua, why));
    }
    if n > ORDER_VALUES {
        return Ok(None);
    }
    let values: Vec<Value> = all.sequence_values().collect::<LuaResult<_>>()?;
    if values.len() != n {
        return Ok(None);
    }
    let numbers: Option<Vec<i64>> = values.iter().map(Value::as_integer).collect();
    if let Some(mut numbers) = numbers.filter(|_| values.iter().all(Value::is_integer)) {
        numbers.sort_unstable();
        return lua.create_sequence_from(numbers).map(Some);
    }
    let texts: Option<Vec<&LuaString>> = values.iter().map(Value::as_string).collect();
    let Some(mut texts) = texts else {
        return Ok(None);
    };
    let longest = texts.iter().map(|t| t.as_bytes().len()).max().unwrap_or(0);
    if n.saturating_mul(rounds).saturating_mul(longest) > ORDER_MAX {
        return Ok(None);
    }
    texts.sort_by_cached_key(|text| text.as_bytes().to_vec());
    lua.create_sequence_from(texts.into_iter().cloned())
        .map(Some)
}

/// An answer as Lua values: true and the result, or nil and the error.
fn answer(lua: &Lua, answered: Answered) -> LuaResult<MultiValue> {
    let values = match answered {
        Ok(given) => {
            let mut values = vec![Value::Boolean(true)];
            for one in given {
                values.push(value(lua, one)?);
            }
            values
        }
        Err(why) => vec![Value::Nil, Value::String(lua.create_string(why)?)],
    };
    Ok(MultiValue::from_vec(values))
}

fn value(lua: &Lua, given: Given) -> LuaResult<Value> {
    Ok(match given {
        Given::Nil => Value::Nil,
        Given::Boolean(b) => Value::Boolean(b),
        Given::Number(n) => Value::Integer(n),
        Given::Text(text) => Value::String(lua.create_string(text)?),
        Given::List(all) => {
            let table = lua.create_table()?;
            for one in all {
                table.push(value(lua, one)?)?;
            }
            Value::Table(table)
        }
        Given::Target(text) => {
            let table = lua.create_table()?;
            table.set("target", text)?;
            Value::Table(table)
        }
    })
}
