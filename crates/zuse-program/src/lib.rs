//! Channel programs: Lua scripts that look at and change the datasets of a pool inside one txg.
//!
//! ```text
//!   text ─ dialect (operators, literals) ─ Lua 5.4, walled in ─ zfs.* (prelude.lua) ─ Batch ─ one sync task
//! ```
//! ZFS's Lua is 5.2 with 64-bit integers and no floats. Lua 5.4 has those integers. What differs is
//! adapted when the text is loaded (`dialect.rs`: `/`, `%` and `^` work on integers). Messages are
//! translated when they come out (`words.rs`: 5.2's words). The behaviour is that of chapter 06c of
//! the format notes.
//!
//! What no program can break (`pattern/tests.rs` and `zuse-cli/tests/stopped.rs` try)
//! - A program can neither read nor write anything outside of Lua but through `zfs.*`.
//! - The sync thread waits for it: instructions are counted, memory is bounded, time is bounded,
//!   and each limit has an upper bound. The interpreter has a thread of its own (`machine.rs`), so
//!   time ends it inside of Lua's C too.
//! - Nothing of Lua's library runs long: what could is rewritten and counts (`library.lua`,
//!   `pattern.rs`). There are no finalizers and no `collectgarbage`.
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

/// Most instructions that a program may ask for.
pub const MAX_INSTRUCTIONS: u64 = 100_000_000;
/// Most bytes of a program's text: what is longer would take the compiler long.
pub const MAX_TEXT: usize = 1 << 20;
/// Most bytes that a program may ask for.
pub const MAX_MEMORY: u64 = 104_857_600;
