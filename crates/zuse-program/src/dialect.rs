//! Translates a text in ZFS's Lua into one that Lua 5.4 runs with the same meaning.
//!
//! `/` must divide integers towards zero, `%` must have the sign of the dividend, `^` must give
//! integers. 5.4's own operators do not. Turning an infix operator into a call takes parsing. But
//! it can become two operators of the same precedence with a value between them. So `a / b` is
//! written `a // __zdiv // b`: there `a // __zdiv` makes a pending division (through `__idiv`),
//! which the second `//` carries out. `%` has the precedence of `*` too. `a ^ b` becomes
//! `__zpow(a) ^ b`: the result of that function implements the operator, whatever `a` is
//! (`operand.rs`). Each name is followed by the number of its operator. An error uses it to find
//! the names of the operands (`names.rs`).
//!
//! Nothing may run when a scope is left, because that would go on after a program was stopped. So
//! `<close>` is rejected, and a `for … in` gets three values. A fourth one would be closed at its
//! end (`scopes.rs`).
//!
//! Line numbers are kept.

mod names;
mod operand;
mod scopes;
mod tail;

pub(crate) use names::{Side, operand as operand_name};
use operand::Operands;
use scopes::Scopes;
use tail::Tails;

/// The replacements of the operators: `a // __zdiv0 // b`, `a // __zmod1 // b`, `__zpow2(a) ^ b`.
fn between(name: &str, number: usize) -> String {
    format!("// __z{name}{number} //")
}

/// A syntax error: line and message.
pub(crate) type Wrong = (usize, String);

/// Rewrites a program.
///
/// # Errors
/// Numbers and operators that do not exist in ZFS's Lua.
pub(crate) fn translate(text: &[u8]) -> Result<Vec<u8>, Wrong> {
    let mut out = Vec::with_capacity(text.len() + 64);
    let (mut at, mut line, mut operators) = (first(text), 1, 0);
    let mut scopes = Scopes::default();
    let mut operands = Operands::default();
    let mut tails = Tails::default();
    while let Some(&byte) = text.get(at) {
        let rest = text.get(at..).unwrap_or_default();
        let token = token(rest, &out);
        let taken = rest.get(..token.len()).unwrap_or(rest);
        let is_blank = matches!(token, Token::Blank(_));
        if !is_blank {
            let word = if taken.is_empty() { b"0" } else { taken };
            tails.before(word, matches!(token, Token::Text(_)), &mut out);
        }
        let start = out.len();
        match token {
            Token::Blank(_) => out.extend(taken),
            Token::Number => {
                let len = number(rest, line, &mut out)?;
                scopes.other(byte);
                operands.value(start);
                at += len;
                continue;
            }
            Token::Word(_) => {
                let (before, after) = scopes.word(taken);
                out.extend(before.as_bytes());
                operands.word(taken, out.len());
                out.extend(taken);
                out.extend(after.as_bytes());
            }
            Token::Text(_) => {
                scopes.other(byte);
                operands.text(start);
                out.extend(taken);
            }
            Token::Sign(_) => {
                known(rest, line, &scopes)?;
                scopes.other(byte);
                match (byte, operands.start()) {
                    (b'/', _) => out.extend(between("div", operators).bytes()),
                    (b'%', _) => out.extend(between("mod", operators).bytes()),
                    (b'^', Some(left)) => {
                        out.splice(left..left, format!("__zpow{operators}(").bytes());
                        out.extend(b") ^");
                    }
                    _ => out.extend(taken),
                }
                operators += usize::from(matches!(byte, b'/' | b'%' | b'^'));
                operands.sign(taken, start);
            }
        }
        if !is_blank {
            tails.after(taken, &out);
        }
        line += taken.iter().filter(|b| **b == b'\n').count();
        at += taken.len().max(1);
    }
    tails.finish_before(b"", &mut out);
    Ok(out)
}

/// The beginning of a program: a first line with `#` is skipped.
fn first(text: &[u8]) -> usize {
    match text.first() {
        Some(b'#') => text.iter().position(|b| *b == b'\n').unwrap_or(text.len()),
        _ => 0,
    }
}

/// A token of a program, with its length.
enum Token {
    /// A blank or a comment.
    Blank(usize),
    /// A number, or something that begins like one.
    Number,
    Word(usize),
    Text(usize),
    Sign(usize),
}

impl Token {
    fn len(&self) -> usize {
        match self {
            Self::Blank(n) | Self::Word(n) | Self::Text(n) | Self::Sign(n) => *n,
            Self::Number => 0,
        }
    }
}

/// The first token of the rest.
fn token(rest: &[u8], out: &[u8]) -> Token {
    let byte = rest.first().copied().unwrap_or_default();
    let next = rest.get(1).copied();
    match byte {
        _ if byte.is_ascii_whitespace() => Token::Blank(1),
        b'-' if next == Some(b'-') => Token::Blank(comment(rest)),
        b'[' => long_bracket(rest).map_or(Token::Sign(1), Token::Text),
        b'"' | b'\'' => Token::Text(quoted(rest, byte)),
        b'0'..=b'9' => Token::Number,
        b'.' if next.is_some_and(|n| n.is_ascii_digit()) && !follows_dot(out) => Token::Number,
        b'.' => Token::Sign(rest.iter().take(3).take_while(|b| **b == b'.').count()),
        b':' if next == Some(b':') => Token::Sign(2),
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
            let ends = |b: &u8| !b.is_ascii_alphanumeric() && *b != b'_';
            Token::Word(rest.iter().position(ends).unwrap_or(rest.len()))
        }
        _ => Token::Sign(1),
    }
}

/// Rejects operators that only newer Lua has.
fn known(rest: &[u8], line: usize, scopes: &Scopes) -> Result<(), Wrong> {
    let byte = rest.first().copied().unwrap_or_default();
    let next = rest.get(1).copied();
    let is_new = match byte {
        b'<' if scopes.names_local() => true,
        b'/' | b'<' | b'>' => next == Some(byte),
        b'~' => next != Some(b'='),
        b'&' | b'|' => true,
        _ => false,
    };
    match is_new {
        true => Err((line, unexpected(&char::from(byte).to_string()))),
        false => Ok(()),
    }
}

fn unexpected(token: &str) -> String {
    format!("unexpected symbol near '{token}'")
}

fn malformed(token: &[u8]) -> String {
    format!("malformed number near '{}'", String::from_utf8_lossy(token))
}

fn follows_dot(out: &[u8]) -> bool {
    out.last() == Some(&b'.')
}

/// Length of something that begins like a number.
fn numeral(rest: &[u8]) -> usize {
    let hex = rest.get(..2).is_some_and(|p| p.eq_ignore_ascii_case(b"0x"));
    let mut at = 0;
    while let Some(&b) = rest.get(at) {
        let signed = matches!(b, b'+' | b'-')
            && at > 0
            && !hex
            && rest
                .get(at - 1)
                .is_some_and(|p| p.eq_ignore_ascii_case(&b'e'));
        let dots = b == b'.' && rest.get(at + 1) == Some(&b'.');
        if dots || !(b.is_ascii_alphanumeric() || b == b'.' || b == b'_' || signed) {
            break;
        }
        at += 1;
    }
    at
}

/// Copies an integer, wrapped around to 64 bits; returns its length.
fn number(rest: &[u8], line: usize, out: &mut Vec<u8>) -> Result<usize, Wrong> {
    let len = numeral(rest);
    let token = rest.get(..len).unwrap_or(rest);
    let wrong = || (line, malformed(token));
    let (digits, base) = match token.get(..2) {
        Some(p) if p.eq_ignore_ascii_case(b"0x") => (token.get(2..).unwrap_or_default(), 16),
        _ if token.first() == Some(&b'0') => (token, 8),
        _ => (token, 10),
    };
    if digits.is_empty() {
        return Err(wrong());
    }
    let mut value = 0u64;
    for d in digits {
        let digit = char::from(*d).to_digit(base).ok_or_else(wrong)?;
        value = value
            .wrapping_mul(u64::from(base))
            .wrapping_add(u64::from(digit));
    }
    // Hexadecimal numerals wrap around in 5.4 too; decimal ones would become floats.
    out.extend(format!("0x{value:x}").as_bytes());
    if rest.get(len) == Some(&b'.') {
        out.push(b' ');
    }
    Ok(len)
}

fn comment(rest: &[u8]) -> usize {
    if let Some(len) = rest.get(2..).and_then(long_bracket) {
        return len + 2;
    }
    rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
}

/// Length of `[[…]]`, `[=[…]=]`; `None` if it is neither.
fn long_bracket(rest: &[u8]) -> Option<usize> {
    let level = rest.get(1..)?.iter().take_while(|b| **b == b'=').count();
    if rest.first() != Some(&b'[') || rest.get(1 + level) != Some(&b'[') {
        return None;
    }
    let mut close = vec![b']'];
    close.extend(std::iter::repeat_n(b'=', level));
    close.push(b']');
    let body = rest.get(2 + level..)?;
    let end = body.windows(close.len()).position(|w| w == close);
    Some(end.map_or(rest.len(), |e| 2 + level + e + close.len()))
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(&b) = rest.get(at) {
        match b {
            b'\\' => at += 2,
            b'\n' => return at,
            _ if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests;
