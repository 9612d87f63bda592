//! Tail calls of our library's functions.
//!
//! `return string.rep(x)` would remove its caller's frame before `rep` begins, because `rep` is in
//! Lua here. ZFS's is in C: its caller is still there, and an error is reported in its line. So it
//! becomes `return __zall(string.rep(x))`. Only calls by the name of a library function are
//! recognized.

/// Names at the beginning of such calls.
const OURS: [&[u8]; 10] = [
    b"zfs",
    b"string",
    b"table",
    b"coroutine",
    b"assert",
    b"error",
    b"tonumber",
    b"setmetatable",
    b"ipairs",
    b"pairs",
];
const AROUND: (&[u8], &[u8]) = (b"__zall(", b")");

/// A call that may be the tail call of a `return`.
struct Tail {
    /// Its start in the output, and the end of its known part.
    start: usize,
    end: usize,
    /// Number of brackets open around it.
    depth: usize,
    /// The last token ended the arguments of a call.
    called: bool,
    /// The last token was a `.` or `:`.
    joint: bool,
}

/// The running calls, the innermost last.
#[derive(Default)]
pub(super) struct Tails {
    open: Vec<Tail>,
    depth: usize,
    /// The last word was `return`.
    wants: bool,
}

impl Tails {
    /// Processes a token before it is written; `is_text` for a string.
    pub(super) fn before(&mut self, token: &[u8], is_text: bool, out: &mut Vec<u8>) {
        let depth = self.depth;
        if let Some(top) = self.open.last_mut().filter(|top| top.depth == depth) {
            let was_joint = std::mem::replace(&mut top.joint, matches!(token, b"." | b":"));
            let goes_on = match token {
                b"(" | b"{" => true,
                _ if is_text => true,
                b"." | b":" | b"[" => true,
                _ => was_joint,
            };
            if goes_on {
                top.called = is_text;
            } else {
                self.finish_before(token, out);
            }
        }
        if std::mem::replace(&mut self.wants, token == b"return") && OURS.contains(&token) {
            self.open.push(Tail {
                start: out.len(),
                end: out.len(),
                depth,
                called: false,
                joint: false,
            });
        }
        match token {
            b"(" | b"{" | b"[" => self.depth += 1,
            b")" | b"}" | b"]" => {
                // A call inside brackets ends with them.
                let depth = self.depth;
                self.open.retain(|tail| tail.depth < depth);
                self.depth = depth.saturating_sub(1);
            }
            _ => {}
        }
    }

    /// It is written.
    pub(super) fn after(&mut self, token: &[u8], out: &[u8]) {
        let depth = self.depth;
        if let Some(top) = self.open.last_mut().filter(|top| top.depth == depth) {
            top.end = out.len();
            top.called |= matches!(token, b")" | b"}");
        }
    }

    /// Ends the current call: it is a tail call if a block ends, too.
    pub(super) fn finish_before(&mut self, token: &[u8], out: &mut Vec<u8>) {
        let Some(tail) = self.open.pop() else {
            return;
        };
        let is_end = matches!(token, b"" | b";" | b"end" | b"else" | b"elseif" | b"until");
        if is_end && tail.called {
            out.splice(tail.end..tail.end, AROUND.1.iter().copied());
            out.splice(tail.start..tail.start, AROUND.0.iter().copied());
        }
    }
}
