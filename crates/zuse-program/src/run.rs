//! Running a program: its limits, and the sync thread's side of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use zuse_base::{Errno, Error, Result};
use zuse_dsl::{Batch, Dsl};

use crate::dialect::translate;
use crate::host;
use crate::machine::{self, Ended, FromProgram, ToProgram};
use crate::meter::Stop;
use crate::tree::Tree;

/// Memory that is charged for the interpreter and its libraries.
pub(crate) const INTERPRETER: u64 = 16 * 1024;

pub(crate) const NO_MEMORY: &str = "Memory limit exhausted.";

/// The least time of a program.
const TIME_LEAST: Duration = Duration::from_secs(5);
/// Time limit per allowed instruction.
const TIME_EACH: Duration = Duration::from_nanos(500);
/// Time that a program gets to report its position when it is stopped.
const LEAVE: Duration = Duration::from_millis(500);
/// Interval of checks whether to stop it.
const LOOK: Duration = Duration::from_millis(20);
/// The interpreter's stack: Lua bounds its own depth to a fraction of that.
const STACK: usize = 8 << 20;

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

impl Limits {
    /// The time limit of the pool: 5 s, or half a microsecond per allowed instruction, if that is
    /// more.
    #[must_use]
    pub fn time(&self) -> Duration {
        let each = self.instructions.min(crate::MAX_INSTRUCTIONS) as u32;
        TIME_LEAST.max(TIME_EACH * each)
    }
}

/// A program with its input.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its text.
    pub text: Vec<u8>,
    /// Its arguments: the Lua table `argv`.
    pub arguments: Vec<String>,
    /// Its bounds.
    pub limits: Limits,
    /// Read-only: `zfs.sync` is refused.
    pub dry_run: bool,
    /// Stops the program when it becomes true.
    pub cancel: Arc<AtomicBool>,
}

/// Runs a program on a pool, in one txg.
///
/// The inner result is the program's value (`None` without one), or the text of its error with the
/// traceback. Changes before an error of its own stay, as in OpenZFS. If a program is stopped by a
/// limit or canceled, all its changes are reverted before its txg is written.
///
/// # Errors
/// The pool is read-only, or cannot be read; or no thread can be started.
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
    if program.text.len() > crate::MAX_TEXT {
        let most = crate::MAX_TEXT;
        return Ok(Err(format!("The program has more than {most} bytes.")));
    }
    // A text with syntax errors costs no txg.
    let text = match translate(&program.text) {
        Ok(text) => text,
        Err((line, why)) => {
            return Ok(Err(format!("[string \"channel program\"]:{line}: {why}")));
        }
    };
    let changing = !program.dry_run;
    let mut interpreter = Interpreter::start(text, program)?;
    if let Some(ended) = interpreter.compile() {
        return Ok(ended.result);
    }
    dsl.batch(changing, move |batch| {
        let ended = interpreter.run(batch);
        if ended.stopped {
            batch.undo();
        }
        ended.result
    })
}

/// The thread of a program, seen from outside. If this is dropped, the thread ends by itself soon.
struct Interpreter {
    from_program: Receiver<FromProgram>,
    to_program: Sender<ToProgram>,
    left: Arc<AtomicBool>,
    cancel: Arc<AtomicBool>,
    time: Duration,
}

impl Interpreter {
    fn start(text: Vec<u8>, program: Program) -> Result<Self> {
        let (to_host, from_program) = channel();
        let (to_program, from_host) = channel();
        let me = Self {
            from_program,
            to_program,
            left: Arc::default(),
            cancel: program.cancel.clone(),
            time: program.limits.time(),
        };
        let left = me.left.clone();
        std::thread::Builder::new()
            .name("zuse-program".into())
            .stack_size(STACK)
            .spawn(move || machine::run(&text, &program, to_host, from_host, left))
            .map_err(|e| Error::refused(Errno::AGAIN, format!("no thread: {e}")))?;
        Ok(me)
    }

    /// Waits until the program can run; then returns nothing.
    fn compile(&mut self) -> Option<Ended> {
        let deadline = Instant::now() + self.time;
        match self.next_message(deadline) {
            Ok(FromProgram::Done(ended)) => Some(ended),
            Ok(_) => None,
            Err(ended) => Some(ended),
        }
    }

    /// Runs it, and executes its calls.
    fn run(&mut self, batch: &Batch<'_>) -> Ended {
        let deadline = Instant::now() + self.time;
        let mut next = ToProgram::Go(deadline);
        loop {
            // If the thread has ended, there is nothing more to receive.
            let _ = self.to_program.send(next);
            match self.next_message(deadline) {
                Ok(FromProgram::Ask(call)) => next = ToProgram::Answer(host::serve(batch, call)),
                Ok(FromProgram::Done(ended)) => return ended,
                Ok(FromProgram::Ready) => next = ToProgram::Go(deadline),
                Err(ended) => return ended,
            }
        }
    }

    /// Its next message, or the reason to stop waiting.
    fn next_message(&self, deadline: Instant) -> std::result::Result<FromProgram, Ended> {
        let mut over: Option<(Instant, Stop)> = None;
        loop {
            match self.from_program.recv_timeout(LOOK) {
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(left("internal error: the interpreter panicked".into()));
                }
            }
            let now = Instant::now();
            match over {
                Some((until, why)) if now >= until => {
                    let text = why.text();
                    return Err(left(format!(
                        "{text}\nstack traceback:\nIt was inside of one instruction that did not end, and was left there."
                    )));
                }
                Some(_) => {}
                None if self.cancel.load(Relaxed) => over = Some((now + LEAVE, Stop::Canceled)),
                None if now >= deadline => over = Some((now + LEAVE, Stop::Time)),
                None => {}
            }
        }
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        self.left.store(true, Relaxed);
    }
}

fn left(why: String) -> Ended {
    Ended {
        result: Err(why),
        stopped: true,
    }
}

impl From<&str> for Program {
    fn from(text: &str) -> Self {
        Self {
            text: text.as_bytes().to_vec(),
            ..Self::default()
        }
    }
}
