//! The return value of a program: as a tree, and as text.

use std::cell::RefCell;
use std::fmt::Write as _;

use mlua::Value;

/// Deepest nesting of tables.
const DEPTH_MAX: usize = 20;
/// Memory of each value besides its strings.
const NODE: u64 = 48;

/// Why a value cannot be taken out.
pub(crate) enum Wrong {
    /// It cannot be converted: the message.
    Value(String),
    /// It is too large. Shared tables are copied for each reference, so the tree may be larger than
    /// the original.
    TooLarge,
}

/// A value outside the interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tree {
    /// `nil`.
    Nil,
    /// A boolean.
    Boolean(bool),
    /// A number.
    Number(i64),
    /// A string.
    Text(Vec<u8>),
    /// A table with its keys as strings.
    Table(Vec<(String, Tree)>),
}

impl Tree {
    /// Copies a value out of the interpreter.
    ///
    /// # Errors
    /// It cannot be converted, or takes more than that many bytes in all.
    pub(crate) fn of(
        value: &Value,
        key: &str,
        depth: usize,
        room: &RefCell<u64>,
    ) -> Result<Self, Wrong> {
        let text = value.as_string().map_or(0, |s| s.as_bytes().len());
        let taken = NODE + key.len() as u64 + text as u64;
        let less = room.borrow().checked_sub(taken);
        *room.borrow_mut() = less.ok_or(Wrong::TooLarge)?;
        Ok(match value {
            Value::Nil => Self::Nil,
            Value::Boolean(b) => Self::Boolean(*b),
            Value::Integer(n) => Self::Number(*n),
            Value::Number(n) => Self::Number(*n as i64),
            Value::String(s) => {
                let bytes = s.as_bytes();
                // The result is an nvlist, whose strings end at a NUL.
                let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
                Self::Text(bytes.get(..end).unwrap_or_default().to_vec())
            }
            Value::Table(table) => {
                if depth >= DEPTH_MAX {
                    return Err(Wrong::Value(format!(
                        "Maximum table depth ({DEPTH_MAX}) exceeded for table"
                    )));
                }
                let mut out: Vec<(String, Self)> = Vec::new();
                let mut seen = std::collections::HashSet::new();
                for pair in table.pairs::<Value, Value>() {
                    let (k, v) = pair.map_err(|e| Wrong::Value(e.to_string()))?;
                    let name = match &k {
                        Value::String(s) => s.to_string_lossy(),
                        Value::Integer(n) => n.to_string(),
                        Value::Boolean(b) => b.to_string(),
                        other => {
                            return Err(Wrong::Value(format!(
                                "Invalid key type '{}' in table",
                                other.type_name()
                            )));
                        }
                    };
                    if !seen.insert(name.clone()) {
                        return Err(Wrong::Value(format!("Collision of key '{name}' in table")));
                    }
                    let value = Self::of(&v, &name, depth + 1, room)?;
                    out.push((name, value));
                }
                out.sort_by(|(a, _), (b, _)| key_order(a).cmp(&key_order(b)));
                Self::Table(out)
            }
            other => {
                return Err(Wrong::Value(format!(
                    "Invalid value type '{}' for key '{key}'",
                    other.type_name()
                )));
            }
        })
    }

    /// Appends `key: value` lines in the command's format.
    pub fn dump(&self, key: &str, indent: usize, out: &mut Vec<u8>) {
        out.extend(std::iter::repeat_n(b' ', indent));
        out.extend(key.as_bytes());
        match self {
            Self::Nil => {}
            Self::Boolean(b) => out.extend(format!(": {b}").as_bytes()),
            Self::Number(n) => out.extend(format!(": {n}").as_bytes()),
            Self::Text(t) => {
                out.extend(b": '");
                out.extend(t);
                out.push(b'\'');
            }
            Self::Table(entries) => {
                out.extend(b":\n");
                for (k, v) in entries {
                    v.dump(k, indent + 4, out);
                }
                return;
            }
        }
        out.push(b'\n');
    }

    /// As JSON: tables are objects, nil is true.
    pub fn json(&self) -> String {
        let mut out = String::new();
        self.json_into(&mut out);
        out
    }

    fn json_into(&self, out: &mut String) {
        match self {
            Self::Nil => out.push_str("true"),
            Self::Boolean(b) => {
                let _ = write!(out, "{b}");
            }
            Self::Number(n) => {
                let _ = write!(out, "{n}");
            }
            Self::Text(t) => out.push_str(&quoted(&String::from_utf8_lossy(t))),
            Self::Table(entries) => {
                out.push('{');
                for (i, (k, v)) in entries.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    out.push_str(&quoted(k));
                    out.push(':');
                    v.json_into(out);
                }
                out.push('}');
            }
        }
    }
}

/// The place of a key in a table: numbers come first. The interpreter has no fixed order.
fn key_order(name: &str) -> (bool, i64, &str) {
    let number = name.parse();
    (number.is_err(), number.unwrap_or(0), name)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
