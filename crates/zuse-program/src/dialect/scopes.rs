//! Which scopes are open at a word of a program, as far as [`super::translate`] needs it.
//!
//! `for k, v in pairs(t) do` becomes
//! `for k, v in (function(f, s, c) return f, s, c end)(pairs(t)) do`: the expressions between `in`
//! and its `do` give three values. Between these two, another `do` can only be inside a function.

/// Stands behind `in`.
const THREE: &str = " (function(f, s, c) return f, s, c end)(";

/// A scope that a later word ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Up to `end`.
    Block,
    /// Up to `until`.
    Repeat,
    /// `while` or `for`, up to its `do`.
    Head,
    /// `for … in`, up to its `do`.
    Each,
}

/// Progress within the names of a `local`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Local {
    /// There are none.
    #[default]
    No,
    /// A name comes next.
    Wants,
    /// A name was the last word.
    Named,
}

/// The scopes that are open, the innermost last.
#[derive(Default)]
pub(super) struct Scopes {
    open: Vec<Scope>,
    local: Local,
}

impl Scopes {
    /// Processes a word; returns the text to insert before and after it.
    pub(super) fn word(&mut self, word: &[u8]) -> (&'static str, &'static str) {
        let top = self.open.last().copied();
        self.local = match self.local {
            Local::Wants => Local::Named,
            _ if word == b"local" => Local::Wants,
            _ => Local::No,
        };
        match word {
            b"function" | b"if" => self.open.push(Scope::Block),
            b"repeat" => self.open.push(Scope::Repeat),
            b"while" | b"for" => self.open.push(Scope::Head),
            b"in" if top == Some(Scope::Head) => {
                self.open.pop();
                self.open.push(Scope::Each);
                return ("", THREE);
            }
            b"do" => {
                if matches!(top, Some(Scope::Head | Scope::Each)) {
                    self.open.pop();
                }
                self.open.push(Scope::Block);
                if top == Some(Scope::Each) {
                    return (") ", "");
                }
            }
            b"end" if top == Some(Scope::Block) => drop(self.open.pop()),
            b"until" if top == Some(Scope::Repeat) => drop(self.open.pop()),
            _ => {}
        }
        ("", "")
    }

    /// Processes a byte of anything else except blanks and comments.
    pub(super) fn other(&mut self, byte: u8) {
        self.local = match (self.local, byte) {
            (Local::Named, b',') => Local::Wants,
            _ => Local::No,
        };
    }

    /// Whether a local variable was just named, so that no `<` may follow.
    pub(super) fn names_local(&self) -> bool {
        self.local == Local::Named
    }
}
