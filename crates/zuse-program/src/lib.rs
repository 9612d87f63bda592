//! Channel programs: Lua scripts that read and change the datasets of a pool inside one txg.
//!
//! ```text
//!   text ─ dialect (operators, literals) ─ Lua 5.4, walled in ─ zfs.* (prelude.lua) ─ Batch ─ one sync task
//! ```
//! ZFS's Lua is 5.2 with 64-bit integers and no floats. Lua 5.4 has those integers. Differences are
//! adapted when the text is loaded (`dialect.rs`: `/`, `%` and `^` work on integers). Messages are
//! translated to the wording of 5.2 (`words.rs`). The behaviour is that of chapter 06c of the
//! format notes.
//!
//! Guarantees for any program, also a hostile one (`pattern/tests.rs` and
//! `zuse-cli/tests/stopped.rs` try to break them)
//! - A program can access nothing outside of Lua except through `zfs.*`.
//! - The sync thread waits for a program, so instructions, memory and time are limited, and each
//!   limit has an upper bound. The interpreter runs in its own thread (`machine.rs`), so the time
//!   limit works inside Lua's C code too.
//! - No function of Lua's library runs long: such functions are rewritten and counted
//!   (`library.lua`, `pattern.rs`). There are no finalizers and no `collectgarbage`.
#![forbid(unsafe_code)]

mod dialect;
mod host;
mod machine;
mod meter;
mod pattern;
mod run;
mod tree;
mod words;

pub use run::{Limits, Program, run};
pub use tree::Tree;

/// Largest instruction limit that can be set.
pub const MAX_INSTRUCTIONS: u64 = 100_000_000;
/// Most bytes of a program's text: compiling a longer one would take too long.
pub const MAX_TEXT: usize = 1 << 20;
/// Largest memory limit that can be set, in bytes.
pub const MAX_MEMORY: u64 = 104_857_600;
