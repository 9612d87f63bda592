//! Text from outside on a terminal: names, properties, history, and everything else from a disk or
//! stream.
//!
//! A terminal interprets control characters: they move the cursor, set titles, overwrite lines. So
//! they are escaped on a terminal, as `ls -b` does: `\n`, `\t`, `\033`. Pipes, files, `-H` and JSON
//! get exact bytes.

use std::borrow::Cow;

/// Whether a terminal only displays a character. Format characters that change the direction of
/// text do not count as harmless.
fn is_harmless(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn spell(out: &mut Vec<u8>, bytes: &[u8], keeps_lines: bool) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' | '\t' if keeps_lines => out.push(c as u8),
                '\n' => out.extend_from_slice(b"\\n"),
                '\t' => out.extend_from_slice(b"\\t"),
                c if is_harmless(c) => {
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                c => octal(out, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        octal(out, chunk.invalid());
    }
}

fn octal(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.extend_from_slice(format!("\\{byte:03o}").as_bytes());
    }
}

fn is_plain(bytes: &[u8], keeps_lines: bool) -> bool {
    bytes
        .iter()
        .all(|b| matches!(b, b' '..=b'~') || keeps_lines && matches!(b, b'\n' | b'\t'))
}

/// One name or value: line breaks and tabs are escaped too.
pub fn name(bytes: &[u8]) -> Cow<'_, [u8]> {
    if is_plain(bytes, false) {
        return bytes.into();
    }
    let mut out = Vec::with_capacity(bytes.len() + 16);
    spell(&mut out, bytes, false);
    out.into()
}

/// As [`name`], of text.
pub fn text(text: &str) -> Cow<'_, str> {
    match name(text.as_bytes()) {
        Cow::Borrowed(_) => text.into(),
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
    }
}

/// As [`text`], for a value with a longer lifetime.
pub fn cell(value: Cow<'_, str>) -> Cow<'_, str> {
    if is_plain(value.as_bytes(), false) {
        return value;
    }
    text(&value).into_owned().into()
}

/// Output of one or more lines: everything is escaped except text, line breaks and tabs.
pub fn output(bytes: &[u8]) -> Cow<'_, [u8]> {
    if is_plain(bytes, true) {
        return bytes.into();
    }
    let mut out = Vec::with_capacity(bytes.len() + 16);
    spell(&mut out, bytes, true);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::{name, output};

    #[test]
    fn no_order_to_a_terminal_is_left_and_text_stays() {
        let raw = "\x1b]0;t\x07 \r\u{9b}2J \u{202e}ä日\n\t".as_bytes();
        let spelled = r"\033]0;t\007 \015\302\2332J \342\200\256ä日\n\t";
        assert_eq!(name(raw), spelled.as_bytes());
        assert!(output(raw).ends_with("ä日\n\t".as_bytes()));
        assert_eq!(&*name(b"\x9b \xff"), br"\233 \377");
        assert_eq!(&*output(b"plain\n"), b"plain\n");
    }
}
