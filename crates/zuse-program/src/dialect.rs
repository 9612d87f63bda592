//! A text of ZFS's Lua as one that Lua 5.4 runs with the same meaning.
//!
//! `/` must divide integers towards zero, `%` must have the sign of the dividend, `^` must give
//! integers. 5.4's own do not. An infix operator cannot become a call without parsing, but it can
//! become two operators of the same rank with a value between them. So `a / b` is written
//! `a // __zdiv // b`: there `a // __zdiv` makes a waiting division (through `__idiv`), which the
//! second `*` carries out. `%` has the rank of `*` too. `^` binds to the right, so that
//! `a ^ __zpow ^ b` asks for `__zpow ^ b` first.
//!
//! Nothing may run when a scope is left, since that would go on after a program was stopped. So
//! `<close>` is not known, and a `for … in` gets three values. A fourth one would be closed at its
//! end (`scopes.rs`).
//!
//! Line numbers stay as they are.

mod scopes;

use scopes::Scopes;

/// What the operators become.
const DIVIDE: &str = "// __zdiv //";
const REMAINDER: &str = "// __zmod //";
const POWER: &str = "^ __zpow ^";

/// A place in the text where it is wrong: line and message.
pub(crate) type Wrong = (usize, String);

/// Rewrites a program.
///
/// # Errors
/// Numbers and operators that ZFS's Lua does not know.
pub(crate) fn translate(text: &[u8]) -> Result<Vec<u8>, Wrong> {
    let mut out = Vec::with_capacity(text.len() + 64);
    let (mut at, mut line) = (0, 1);
    let mut scopes = Scopes::default();
    if text.first() == Some(&b'#') {
        // A first line with `#` is skipped.
        let end = text.iter().position(|b| *b == b'\n').unwrap_or(text.len());
        at = end;
    }
    while let Some(&byte) = text.get(at) {
        let rest = text.get(at..).unwrap_or_default();
        let next = text.get(at + 1).copied();
        let len = match byte {
            b'\n' => {
                line += 1;
                1
            }
            b'-' if next == Some(b'-') => comment(rest),
            b'[' => long_bracket(rest).unwrap_or(1),
            b'"' | b'\'' => quoted(rest, byte),
            b'0'..=b'9' => number(rest, line, &mut out).map(|n| {
                at += n;
                0
            })?,
            b'.' if next.is_some_and(|n| n.is_ascii_digit()) && !follows_dot(&out) => {
                let len = numeral(rest);
                return Err((line, malformed(rest.get(..len).unwrap_or(rest))));
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                at += copy_word(rest, &mut scopes, &mut out);
                0
            }
            b'<' if scopes.names_local() => return Err((line, unexpected("<"))),
            b'/' if next == Some(b'/') => return Err((line, unexpected("/"))),
            b'~' if next != Some(b'=') => return Err((line, unexpected("~"))),
            b'<' | b'>' if next == Some(byte) => {
                return Err((line, unexpected(&char::from(byte).to_string())));
            }
            b'&' | b'|' => return Err((line, unexpected(&char::from(byte).to_string()))),
            b'/' | b'%' | b'^' => {
                out.extend(match byte {
                    b'/' => DIVIDE.as_bytes(),
                    b'%' => REMAINDER.as_bytes(),
                    _ => POWER.as_bytes(),
                });
                at += 1;
                0
            }
            _ => 1,
        };
        let taken = rest.get(..len).unwrap_or(rest);
        let blank = byte.is_ascii_whitespace() || taken.starts_with(b"--");
        let word = byte.is_ascii_alphabetic() || byte == b'_';
        if !blank && !word {
            scopes.other(byte);
        }
        if byte != b'\n' {
            line += taken.iter().filter(|b| **b == b'\n').count();
        }
        if !matches!(byte, b'/' | b'%' | b'^' | b'0'..=b'9') && !word {
            out.extend(taken);
            at += taken.len().max(1);
        }
    }
    Ok(out)
}

/// Copies a word, with what its scope puts around it. Returns its length.
fn copy_word(rest: &[u8], scopes: &mut Scopes, out: &mut Vec<u8>) -> usize {
    let len = rest
        .iter()
        .position(|b| !b.is_ascii_alphanumeric() && *b != b'_')
        .unwrap_or(rest.len());
    let word = rest.get(..len).unwrap_or(rest);
    let (before, after) = scopes.word(word);
    out.extend(before.as_bytes());
    out.extend(word);
    out.extend(after.as_bytes());
    len
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

/// Bytes of something that begins like a number.
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

/// Copies an integer, wrapped around to 64 bits; gives its length.
fn number(rest: &[u8], line: usize, out: &mut Vec<u8>) -> Result<usize, Wrong> {
    let len = numeral(rest);
    let token = rest.get(..len).unwrap_or(rest);
    let wrong = || (line, malformed(token));
    let (digits, base) = match token.get(..2) {
        Some(p) if p.eq_ignore_ascii_case(b"0x") => (token.get(2..).unwrap_or_default(), 16),
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

/// Bytes of `[[…]]`, `[=[…]=]`; `None` if it is none.
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
