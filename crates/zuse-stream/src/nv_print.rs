//! Prints a name-value list like `zstream` and `zfs send -v`: one pair per line, nested lists one
//! tab deeper.

use std::fmt::{Display, LowerHex, Write};

use zuse_format::nvlist::{NvList, NvValue};

/// The text of a list.
pub fn text(list: &NvList) -> String {
    let mut out = String::new();
    print(list, 0, &mut out);
    out
}

fn tabs(depth: usize, out: &mut String) {
    out.extend(std::iter::repeat_n('\t', depth));
}

fn line(depth: usize, name: &str, value: impl Display, out: &mut String) {
    tabs(depth, out);
    let _ = writeln!(out, "{name} = {value}");
}

fn joined<T: LowerHex>(values: &[T]) -> String {
    let words: Vec<String> = values.iter().map(|v| format!("{v:#x}")).collect();
    words.join(" ")
}

fn print(list: &NvList, depth: usize, out: &mut String) {
    tabs(depth, out);
    out.push_str("nvlist version: 0\n");
    for (name, value) in &list.pairs {
        pair(name, value, depth + 1, out);
    }
}

fn pair(name: &str, value: &NvValue, depth: usize, out: &mut String) {
    match value {
        NvValue::Boolean => line(depth, name, 1, out),
        NvValue::BooleanValue(v) => line(depth, name, u8::from(*v), out),
        NvValue::Byte(v) | NvValue::Uint8(v) => line(depth, name, format_args!("{v:#x}"), out),
        NvValue::Int8(v) => line(depth, name, v, out),
        NvValue::Int16(v) => line(depth, name, v, out),
        NvValue::Uint16(v) => line(depth, name, format_args!("{v:#x}"), out),
        NvValue::Int32(v) => line(depth, name, v, out),
        NvValue::Uint32(v) => line(depth, name, format_args!("{v:#x}"), out),
        NvValue::Int64(v) => line(depth, name, v, out),
        NvValue::Uint64(v) => line(depth, name, format_args!("{v:#x}"), out),
        NvValue::Hrtime(v) => line(depth, name, format_args!("{v:#x}"), out),
        NvValue::Double(v) => line(depth, name, v, out),
        NvValue::String(v) => line(depth, name, v, out),
        NvValue::ByteArray(v) | NvValue::Uint8Array(v) => line(depth, name, joined(v), out),
        NvValue::Int8Array(v) => line(depth, name, joined(v), out),
        NvValue::Int16Array(v) => line(depth, name, joined(v), out),
        NvValue::Uint16Array(v) => line(depth, name, joined(v), out),
        NvValue::Int32Array(v) => line(depth, name, joined(v), out),
        NvValue::Uint32Array(v) => line(depth, name, joined(v), out),
        NvValue::Int64Array(v) => line(depth, name, joined(v), out),
        NvValue::Uint64Array(v) => line(depth, name, joined(v), out),
        NvValue::BooleanArray(v) => {
            let words: Vec<&str> = v.iter().map(|b| if *b { "1" } else { "0" }).collect();
            line(depth, name, words.join(" "), out);
        }
        NvValue::StringArray(v) => line(depth, name, v.join(" "), out),
        NvValue::List(v) => {
            line(depth, name, "(embedded nvlist)", out);
            print(v, depth, out);
            tabs(depth, out);
            let _ = writeln!(out, "(end {name})\n");
        }
        NvValue::ListArray(v) => {
            line(depth, name, "(array of embedded nvlists)", out);
            for (i, list) in v.iter().enumerate() {
                tabs(depth, out);
                let _ = writeln!(out, "(start {name}[{i}])");
                print(list, depth, out);
                tabs(depth, out);
                let _ = writeln!(out, "(end {name}[{i}])");
            }
        }
    }
}
