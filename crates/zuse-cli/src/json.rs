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

fn quote(text: &str, out: &mut String) {
    out.push('"');
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
