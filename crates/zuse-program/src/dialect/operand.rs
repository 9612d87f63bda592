//! Where the operand begins that stands before a `^`, as far as [`super::translate`] has to know.
//!
//! No operator binds closer than `^`. So what stands before it is a name, a number, a text, a
//! constructor or something in brackets, with the calls and fields behind that.

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
    /// Nothing that `^` could follow.
    #[default]
    Other,
    /// The end of an operand, or of its first part.
    Operand,
    /// A `.` or `:` behind one.
    Joint,
}

/// The operand in hand, and those that brackets are open in.
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

    /// A text: behind an operand it is what that is called with.
    pub(super) fn text(&mut self, at: usize) {
        if self.last != Last::Operand {
            self.value(at);
        }
    }

    /// Anything else but blanks and comments; true for what goes on with the operand.
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

    /// Where the operand begins that ends here.
    pub(super) fn start(&self) -> Option<usize> {
        self.start.filter(|_| self.last == Last::Operand)
    }
}
