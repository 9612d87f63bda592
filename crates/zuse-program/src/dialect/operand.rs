//! Where the operand before a `^` begins, as far as [`super::translate`] needs it.
//!
//! No operator binds closer than `^`. So the operand is a name, a number, a string, a constructor
//! or a bracketed expression, with the calls and fields after it.

const NO_VALUES: [&[u8]; 19] = [
    b"and",
    b"break",
    b"do",
    b"else",
    b"elseif",
    b"end",
    b"for",
    b"function",
    b"goto",
    b"if",
    b"in",
    b"local",
    b"not",
    b"or",
    b"repeat",
    b"return",
    b"then",
    b"until",
    b"while",
];

/// What came last.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Last {
    /// A token that `^` cannot follow.
    #[default]
    Other,
    /// The end of an operand, or of its first part.
    Operand,
    /// A `.` or `:` behind one.
    Joint,
}

/// The current operand, and those with open brackets.
#[derive(Default)]
pub(super) struct Operands {
    /// Its first byte in the output.
    start: Option<usize>,
    last: Last,
    open: Vec<Option<usize>>,
}

impl Operands {
    /// A word that begins there.
    pub(super) fn word(&mut self, word: &[u8], at: usize) {
        match self.last {
            Last::Joint => self.last = Last::Operand,
            _ if NO_VALUES.contains(&word) => self.other(),
            _ => self.value(at),
        }
    }

    /// A number or `...`.
    pub(super) fn value(&mut self, at: usize) {
        self.start = Some(at);
        self.last = Last::Operand;
    }

    /// A string: after an operand it is a call argument.
    pub(super) fn text(&mut self, at: usize) {
        if self.last != Last::Operand {
            self.value(at);
        }
    }

    /// Anything else except blanks and comments; true if it continues the operand.
    pub(super) fn sign(&mut self, sign: &[u8], at: usize) {
        match sign {
            b"." | b":" if self.last == Last::Operand => self.last = Last::Joint,
            b"..." => self.value(at),
            b"(" | b"{" | b"[" => {
                let begins = sign != b"[" && self.last != Last::Operand;
                let start = if begins { Some(at) } else { self.start };
                self.open.push(start);
                self.other();
            }
            b")" | b"}" | b"]" => {
                self.start = self.open.pop().flatten();
                self.last = match self.start {
                    Some(_) => Last::Operand,
                    None => Last::Other,
                };
            }
            _ => self.other(),
        }
    }

    fn other(&mut self) {
        (self.start, self.last) = (None, Last::Other);
    }

    /// Where the operand that ends here begins.
    pub(super) fn start(&self) -> Option<usize> {
        self.start.filter(|_| self.last == Last::Operand)
    }
}
