//! The name that 5.2 uses for an operand of `/`, `%` or `^` in an error: `local 't'`, `field 'x'`.
//!
//! Those operators are functions here, and a caller keeps no names of arguments. So the program is
//! parsed again after such an error. Operators are numbered in the order of the text. Variables and
//! fields have names, results have none, as in 5.2.

use super::{Token, numeral, token};

/// A token, as far as this parser distinguishes it.
type Piece<'a> = (Kind, &'a [u8]);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Name,
    Keyword,
    /// A number.
    Number,
    Text,
    Sign,
}

const KEYWORDS: [&[u8]; 22] = [
    b"and",
    b"break",
    b"do",
    b"else",
    b"elseif",
    b"end",
    b"false",
    b"for",
    b"function",
    b"goto",
    b"if",
    b"in",
    b"local",
    b"nil",
    b"not",
    b"or",
    b"repeat",
    b"return",
    b"then",
    b"true",
    b"until",
    b"while",
];

/// Which operand of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// The name of an operand of that operator.
pub(crate) fn operand(text: &[u8], number: usize, side: Side) -> Option<String> {
    let pieces = pieces(text);
    let is_operator = |piece: &Piece<'_>| matches!(piece, (Kind::Sign, b"/" | b"%" | b"^"));
    let (at, _) = pieces
        .iter()
        .enumerate()
        .filter(|(_, p)| is_operator(p))
        .nth(number)?;
    let reader = Reader { pieces: &pieces };
    let (named, key) = match side {
        Side::Left => reader.left(at)?,
        Side::Right => reader.right(at)?,
    };
    let name = String::from_utf8_lossy(key);
    Some(match named {
        Named::Variable => format!("{} '{name}'", reader.kind(key, at)),
        Named::Field => format!("field '{name}'"),
    })
}

fn pieces(text: &[u8]) -> Vec<Piece<'_>> {
    let (mut at, mut found) = (super::first(text), Vec::new());
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let token = token(rest, text.get(..at).unwrap_or_default());
        let len = match token {
            Token::Number => numeral(rest),
            _ => token.len(),
        };
        let taken = rest.get(..len.max(1)).unwrap_or(rest);
        let kind = match token {
            Token::Blank(_) => None,
            Token::Number => Some(Kind::Number),
            Token::Text(_) => Some(Kind::Text),
            Token::Sign(_) => Some(Kind::Sign),
            Token::Word(_) if KEYWORDS.contains(&taken) => Some(Kind::Keyword),
            Token::Word(_) => Some(Kind::Name),
        };
        found.extend(kind.map(|kind| (kind, taken)));
        at += taken.len();
    }
    found
}

#[derive(Clone, Copy)]
enum Named {
    Variable,
    Field,
}

/// The name of an operand, if it has one.
type Called<'a> = Option<(Named, &'a [u8])>;

struct Reader<'a> {
    pieces: &'a [Piece<'a>],
}

impl<'a> Reader<'a> {
    fn piece(&self, at: usize) -> Option<Piece<'a>> {
        self.pieces.get(at).copied()
    }

    fn is_sign(&self, at: usize, signs: &[&[u8]]) -> bool {
        matches!(self.piece(at), Some((Kind::Sign, sign)) if signs.contains(&sign))
    }

    /// Whether an operand, or a part of one, ends there.
    fn ends_operand(&self, at: usize) -> bool {
        match self.piece(at) {
            Some((Kind::Name | Kind::Number | Kind::Text, _)) => true,
            Some((Kind::Keyword, word)) => {
                [b"nil".as_slice(), b"true", b"false", b"end"].contains(&word)
            }
            Some((Kind::Sign, sign)) => [b")".as_slice(), b"]", b"}", b"..."].contains(&sign),
            None => false,
        }
    }

    /// The opening bracket of a closing one.
    fn opened(&self, at: usize) -> Option<usize> {
        let mut depth = 0usize;
        (0..=at).rev().find(|&i| {
            if self.is_sign(i, &[b")", b"]", b"}"]) {
                depth += 1;
            } else if self.is_sign(i, &[b"(", b"[", b"{"]) {
                depth = depth.saturating_sub(1);
            }
            depth == 0
        })
    }

    /// The closing bracket of an opening one.
    fn closed(&self, at: usize) -> Option<usize> {
        let mut depth = 0usize;
        (at..self.pieces.len()).find(|&i| {
            if self.is_sign(i, &[b"(", b"[", b"{"]) {
                depth += 1;
            } else if self.is_sign(i, &[b")", b"]", b"}"]) {
                depth = depth.saturating_sub(1);
            }
            depth == 0
        })
    }

    /// The start of the operand before an operator.
    fn start(&self, operator: usize) -> Option<usize> {
        let mut at = operator.checked_sub(1)?;
        loop {
            let goes_on = match self.piece(at)? {
                (Kind::Sign, b")" | b"]" | b"}") => {
                    at = self.opened(at)?;
                    at > 0 && self.ends_operand(at - 1) && !self.is_sign(at - 1, &[b"}", b"..."])
                }
                (Kind::Text, _) => at > 0 && self.ends_operand(at - 1),
                (Kind::Name, _) if at > 0 && self.is_sign(at - 1, &[b".", b":"]) => {
                    at -= 1;
                    true
                }
                _ => false,
            };
            if !goes_on {
                return Some(at);
            }
            at = at.checked_sub(1)?;
        }
    }

    fn left(&self, operator: usize) -> Called<'a> {
        let start = self.start(operator)?;
        let binds = |at: usize| match self.piece(at) {
            Some((Kind::Sign, b"*" | b"/" | b"%" | b"^" | b"#")) => true,
            Some((Kind::Sign, b"-")) => at == 0 || !self.ends_operand(at - 1),
            Some((Kind::Keyword, b"not")) => true,
            _ => false,
        };
        if start > 0 && binds(start - 1) && !self.is_sign(operator, &[b"^"]) {
            return None;
        }
        let (end, called) = self.path(start)?;
        called.filter(|_| end == operator)
    }

    fn right(&self, operator: usize) -> Called<'a> {
        let (end, called) = self.path(operator + 1)?;
        called.filter(|_| !self.is_sign(end, &[b"^"]))
    }

    /// Variables and fields from there on: the next token, and the name.
    fn path(&self, start: usize) -> Option<(usize, Called<'a>)> {
        let (mut at, mut called) = match self.piece(start)? {
            (Kind::Name, name) => (start + 1, Some((Named::Variable, name))),
            (Kind::Sign, b"(") => {
                let close = self.closed(start)?;
                let inner = self.path(start + 1).filter(|(end, _)| *end == close);
                (close + 1, inner.and_then(|(_, called)| called))
            }
            _ => return None,
        };
        loop {
            match self.piece(at) {
                Some((Kind::Sign, b".")) => {
                    called = Some((Named::Field, self.piece(at + 1)?.1));
                    at += 2;
                }
                Some((Kind::Sign, b"[")) => {
                    let close = self.closed(at)?;
                    called = Some((Named::Field, self.key(at + 1, close)));
                    at = close + 1;
                }
                Some((Kind::Sign, b":")) => at += 2,
                Some((Kind::Sign, b"(" | b"{")) => {
                    (at, called) = (self.closed(at)? + 1, None);
                }
                Some((Kind::Text, _)) => (at, called) = (at + 1, None),
                _ => return Some((at, called)),
            }
        }
    }

    /// The key between two brackets, if it is a string.
    fn key(&self, start: usize, end: usize) -> &'a [u8] {
        match self.piece(start) {
            Some((Kind::Text, text)) if start + 1 == end && !text.starts_with(b"[") => text
                .get(1..text.len().saturating_sub(1))
                .unwrap_or_default(),
            _ => b"?",
        }
    }

    /// The kind of a variable at a position: `local`, `upvalue`, `global`.
    fn kind(&self, name: &[u8], place: usize) -> &'static str {
        let mut scopes = Variables::default();
        for at in 0..place {
            scopes.step(self, at);
        }
        scopes.complete_local(self, place);
        scopes.kind(name)
    }
}

/// A scope that is open.
struct Scope<'a> {
    names: Vec<&'a [u8]>,
    is_function: bool,
    /// It is a function before its parameters.
    is_fresh: bool,
    /// Its head, up to `do` or `)`, is not complete.
    in_head: bool,
}

/// The names of a `local`, which become valid after its values.
struct Coming<'a> {
    names: Vec<&'a [u8]>,
    /// Scopes and brackets open around it.
    depth: (usize, usize),
    /// All names are read: values follow.
    has_values: bool,
}

/// The variables in scope at a position.
#[derive(Default)]
struct Variables<'a> {
    scopes: Vec<Scope<'a>>,
    outermost: Vec<&'a [u8]>,
    coming: Vec<Coming<'a>>,
    brackets: usize,
}

impl<'a> Variables<'a> {
    fn declare(&mut self, name: &'a [u8]) {
        match self.scopes.last_mut() {
            Some(scope) => scope.names.push(name),
            None => self.outermost.push(name),
        }
    }

    fn open(&mut self, is_function: bool, in_head: bool) {
        self.scopes.push(Scope {
            names: Vec::new(),
            is_function,
            is_fresh: is_function,
            in_head,
        });
    }

    /// Completes a `local` that ends before that position.
    fn complete_local(&mut self, reader: &Reader<'a>, at: usize) {
        let depth = (self.scopes.len(), self.brackets);
        let begins = match reader.piece(at) {
            Some((Kind::Name, _)) => true,
            Some((Kind::Keyword, word)) => word != b"and" && word != b"or",
            Some((Kind::Sign, sign)) => sign == b";" || sign == b"::",
            _ => false,
        };
        while let Some(last) = self.coming.last() {
            let over = match last.has_values {
                true => begins && at > 0 && reader.ends_operand(at - 1),
                false => !reader.is_sign(at, &[b"=", b","]) && !reader.is_sign(at - 1, &[b","]),
            };
            let named =
                last.has_values || at > 0 && matches!(reader.piece(at - 1), Some((Kind::Name, _)));
            if last.depth != depth || !over || !named {
                return;
            }
            for name in self.coming.pop().map(|c| c.names).unwrap_or_default() {
                self.declare(name);
            }
        }
    }

    fn step(&mut self, reader: &Reader<'a>, at: usize) {
        self.complete_local(reader, at);
        let Some((kind, taken)) = reader.piece(at) else {
            return;
        };
        match kind {
            Kind::Keyword => self.keyword(reader, at, taken),
            Kind::Name => self.name(taken),
            Kind::Sign => self.sign(taken),
            Kind::Number | Kind::Text => {}
        }
    }

    fn name(&mut self, name: &'a [u8]) {
        let depth = (self.scopes.len(), self.brackets);
        if let Some(last) = self
            .coming
            .last_mut()
            .filter(|c| c.depth == depth && !c.has_values)
        {
            last.names.push(name);
        } else if let Some(scope) = self.scopes.last_mut().filter(|s| s.in_head) {
            scope.names.push(name);
        }
    }

    fn sign(&mut self, sign: &[u8]) {
        match sign {
            b"(" | b"[" | b"{" => {
                self.brackets += 1;
                if let Some(scope) = self.scopes.last_mut().filter(|s| s.is_fresh) {
                    (scope.is_fresh, scope.in_head) = (false, true);
                }
            }
            b")" | b"]" | b"}" => {
                self.brackets = self.brackets.saturating_sub(1);
                if let Some(scope) = self.scopes.last_mut().filter(|s| s.is_function) {
                    scope.in_head = false;
                }
            }
            b"=" => {
                let depth = (self.scopes.len(), self.brackets);
                if let Some(last) = self.coming.last_mut().filter(|c| c.depth == depth) {
                    last.has_values = true;
                }
            }
            _ => {}
        }
    }

    fn keyword(&mut self, reader: &Reader<'a>, at: usize, word: &[u8]) {
        match word {
            b"local" => {
                // A function knows itself.
                if let (Some((_, b"function")), Some((_, name))) =
                    (reader.piece(at + 1), reader.piece(at + 2))
                {
                    self.declare(name);
                    return;
                }
                let depth = (self.scopes.len(), self.brackets);
                self.coming.push(Coming {
                    names: Vec::new(),
                    depth,
                    has_values: false,
                });
            }
            b"function" => self.function(reader, at),
            b"for" => self.open(false, true),
            b"do" => match self.scopes.last_mut().filter(|s| s.in_head) {
                Some(scope) => scope.in_head = false,
                None => self.open(false, false),
            },
            b"repeat" | b"then" => self.open(false, false),
            b"else" | b"elseif" | b"end" | b"until" => {
                self.scopes.pop();
                if word == b"else" {
                    self.open(false, false);
                }
            }
            _ => {}
        }
    }

    /// Its parameters are names of its scope.
    fn function(&mut self, reader: &Reader<'a>, at: usize) {
        self.open(true, false);
        let head =
            (at..).take_while(|i| !reader.is_sign(*i, &[b"("]) && reader.piece(*i).is_some());
        if head.into_iter().any(|i| reader.is_sign(i, &[b":"])) {
            self.declare(b"self");
        }
    }

    fn kind(&self, name: &[u8]) -> &'static str {
        let mut left = false;
        for scope in self.scopes.iter().rev() {
            if scope.names.contains(&name) {
                return if left { "upvalue" } else { "local" };
            }
            left |= scope.is_function;
        }
        match (self.outermost.contains(&name), left) {
            (true, false) => "local",
            (true, true) => "upvalue",
            (false, _) => "global",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Side, operand};

    /// The names of both operands of the last operator.
    fn names(program: &str) -> [Option<String>; 2] {
        let count = program.bytes().filter(|b| b"/%^".contains(b)).count();
        [Side::Left, Side::Right].map(|side| operand(program.as_bytes(), count - 1, side))
    }

    #[test]
    fn variables_are_known_by_their_scopes() {
        for (program, left, right) in [
            ("return x / y", "global 'x'", "global 'y'"),
            ("local x return x % y", "local 'x'", "global 'y'"),
            ("local x, y = 1 return y ^ x", "local 'y'", "local 'x'"),
            ("local x = x / 2", "global 'x'", "-"),
            ("local x = 1 local y = x / y", "local 'x'", "global 'y'"),
            (
                "local x = f(function(y) return y / x end)",
                "local 'y'",
                "global 'x'",
            ),
            (
                "local x local function f(a) return x / a end",
                "upvalue 'x'",
                "local 'a'",
            ),
            ("local function f() return f / 2 end", "upvalue 'f'", "-"),
            ("do local x end return x / 2", "global 'x'", "-"),
            ("if a then local x else return x / 2 end", "global 'x'", "-"),
            (
                "for i = 1, 2 do return i / j end",
                "local 'i'",
                "global 'j'",
            ),
            ("for k, v in f() do end return k / 2", "global 'k'", "-"),
            ("function t:m() return self / 2 end", "local 'self'", "-"),
            (
                "repeat local a until b local c return a / c",
                "global 'a'",
                "local 'c'",
            ),
        ] {
            let shown = names(program).map(|n| n.unwrap_or_else(|| "-".into()));
            assert_eq!(shown, [left, right], "{program}");
        }
    }

    #[test]
    fn fields_have_names_and_results_have_none() {
        for (program, left, right) in [
            ("return a.b.c / d['e']", "field 'c'", "field 'e'"),
            ("return a[1] / a[k]", "field '?'", "field '?'"),
            ("return a.b() / a:b(c)", "-", "-"),
            ("return (x) / (y)", "global 'x'", "global 'y'"),
            ("return (x + 1) / (1 + y)", "-", "-"),
            ("return 1 + x / 'y'", "global 'x'", "-"),
            ("return a * x / -y", "-", "-"),
            ("return -x / 2", "-", "-"),
            ("return z - x / 2", "global 'x'", "-"),
            ("return x .. a / {}", "global 'a'", "-"),
            ("return f'x' / #y", "-", "-"),
        ] {
            let shown = names(program).map(|n| n.unwrap_or_else(|| "-".into()));
            assert_eq!(shown, [left, right], "{program}");
        }
        assert_eq!(operand(b"return x ^ y ^ z", 0, Side::Right), None);
    }
}
