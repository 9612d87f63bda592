//! JSON as `zfs list -j` writes it: one line, no blanks, order kept, only ASCII.

use std::fmt::Write as _;

/// A value.
#[derive(Clone, Debug)]
pub enum Json {
    /// A string.
    Text(String),
    /// A number.
    Number(u64),
    /// An object, in this order.
    Object(Vec<(String, Json)>),
    /// A list.
    Array(Vec<Json>),
}

impl Json {
    /// An object of these entries.
    pub fn object<K: Into<String>>(entries: impl IntoIterator<Item = (K, Json)>) -> Self {
        Self::Object(entries.into_iter().map(|(k, v)| (k.into(), v)).collect())
    }

    /// A number as text, or as a number where integers are wanted.
    pub fn number(n: u64, as_int: bool) -> Self {
        if as_int {
            Self::Number(n)
        } else {
            Self::Text(n.to_string())
        }
    }

    /// Text that becomes a number if it is all digits and integers are wanted.
    pub fn text(text: &str, as_int: bool) -> Self {
        match text.parse() {
            Ok(n) if as_int && text.bytes().all(|b| b.is_ascii_digit()) => Self::Number(n),
            _ => Self::Text(text.to_owned()),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => quote(text, out),
            Self::Number(n) => {
                let _ = write!(out, "{n}");
            }
            Self::Array(values) => {
                out.push('[');
                for (i, value) in values.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    value.write(out);
                }
                out.push(']');
            }
            Self::Object(entries) => {
                out.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    quote(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

impl std::fmt::Display for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = String::new();
        self.write(&mut out);
        f.write_str(&out)
    }
}

/// Whether a character needs no escape.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    if text.bytes().all(is_plain) {
        out.push_str(text);
        out.push('"');
        return;
    }
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

/// Bytes per write.
const BATCH: usize = 64 << 10;

/// Prints the line of an [`envelope`] with one object `key`, whose entries are written as they are
/// made. Only a few of them are in memory at a time.
///
/// # Errors
/// Those of `put`.
pub fn stream(
    command: &str,
    key: &str,
    entries: impl Iterator<Item = (String, Json)>,
    put: &mut dyn FnMut(&str) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut out = String::with_capacity(BATCH + 4096);
    envelope(command, Vec::new()).write(&mut out);
    // The last bracket is removed, so that more can follow.
    out.pop();
    out.push(',');
    quote(key, &mut out);
    out.push_str(":{");
    for (i, (name, value)) in entries.enumerate() {
        if i > 0 {
            out.push(',');
        }
        quote(&name, &mut out);
        out.push(':');
        value.write(&mut out);
        if out.len() >= BATCH {
            put(&out)?;
            out.clear();
        }
    }
    out.push_str("}}\n");
    put(&out)
}

/// The envelope of a command's output.
pub fn envelope(command: &str, payload: Vec<(String, Json)>) -> Json {
    let version = Json::object([
        ("command", Json::Text(command.to_owned())),
        ("vers_major", Json::Number(0)),
        ("vers_minor", Json::Number(1)),
    ]);
    let mut entries = vec![("output_version".to_owned(), version)];
    entries.extend(payload);
    Json::Object(entries)
}

#[cfg(test)]
mod tests {
    use super::{Json, envelope, stream};

    #[test]
    fn a_stream_of_entries_is_the_line_of_their_envelope() {
        for n in [0usize, 1, 3000] {
            let entry = |i: usize| {
                let text = Json::Text(format!("a \"quoted\" one: ä {i}"));
                (format!("pool/{i}"), Json::object([("value", text)]))
            };
            let all = Json::Object((0..n).map(entry).collect());
            let whole = envelope("zfs get", vec![("datasets".to_owned(), all)]);
            let (mut streamed, mut pieces) = (String::new(), 0);
            let mut put = |some: &str| {
                streamed.push_str(some);
                pieces += 1;
                Ok(())
            };
            stream("zfs get", "datasets", (0..n).map(entry), &mut put).expect("takes all");
            assert_eq!(streamed, format!("{whole}\n"));
            assert!(n < 3000 || pieces > 1, "it comes in pieces");
        }
    }
}
