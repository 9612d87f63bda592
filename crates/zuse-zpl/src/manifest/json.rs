//! A manifest entry as a JSON object, in the layout of the recorded manifests.
//!
//! Text is ASCII: other characters are `\u` escapes. Bytes that are not UTF-8 are the escapes of
//! lone surrogates U+DC80…U+DCFF, so that any path survives.

use std::fmt::Write;

use super::{ManifestEntry, Unreadable, hex};

/// Adds a JSON string.
pub(crate) fn push_text(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                ' '..='~' => out.push(c),
                _ => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\udc{byte:02x}");
        }
    }
    out.push('"');
}

impl ManifestEntry {
    /// The entry as JSON, one member per line.
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(256);
        out.push_str("{\n\"path\": ");
        push_text(&mut out, &self.path);
        let _ = write!(
            out,
            ",\n\"mode\": \"0o{:o}\",\n\"uid\": {},\n\"gid\": {},\n\"nlink\": {},\n\"ino\": {},\n\"mtime_ns\": {},\n\"atime_ns\": {}",
            self.mode, self.uid, self.gid, self.nlink, self.ino, self.mtime_ns, self.atime_ns
        );
        if let Some((size, sum, blocks)) = &self.file {
            let _ = write!(out, ",\n\"size\": {size}");
            if let Some(sum) = sum {
                let _ = write!(out, ",\n\"sha256\": \"{}\"", hex(sum));
            }
            let _ = write!(out, ",\n\"blocks\": {blocks}");
        }
        if let Some(target) = &self.target {
            out.push_str(",\n\"target\": ");
            push_text(&mut out, target);
        }
        if let Some((major, minor)) = self.rdev {
            let _ = write!(out, ",\n\"rdev\": [\n{major},\n{minor}\n]");
        }
        if !self.xattrs.is_empty() {
            out.push_str(",\n\"xattrs\": {");
            for (i, (name, value)) in self.xattrs.iter().enumerate() {
                out.push_str(if i == 0 { "\n" } else { ",\n" });
                push_text(&mut out, name);
                let _ = write!(out, ": \"{value}\"");
            }
            out.push_str("\n}");
        }
        out.push_str("\n}");
        out
    }
}

impl Unreadable {
    /// The line as JSON, one member per line.
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(128);
        out.push_str("{\n\"path\": ");
        push_text(&mut out, &self.path);
        out.push_str(",\n\"error\": ");
        push_text(&mut out, self.error.to_string().as_bytes());
        out.push_str("\n}");
        out
    }
}

#[cfg(test)]
mod tests;
