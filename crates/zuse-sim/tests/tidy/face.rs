//! The public interface of the library: which types its methods use, and whether a program can name
//! them.

use std::collections::BTreeSet;

/// Types of the standard library, and what is written like a type.
const KNOWN: [&str; 35] = [
    "Arc",
    "AsRef",
    "BTreeMap",
    "BTreeSet",
    "Box",
    "Cow",
    "Debug",
    "Duration",
    "Err",
    "Fn",
    "FnMut",
    "FnOnce",
    "HashMap",
    "HashSet",
    "Into",
    "IntoIterator",
    "Item",
    "Iterator",
    "Ok",
    "Option",
    "OsStr",
    "OsString",
    "Output",
    "Path",
    "PathBuf",
    "Read",
    "Seek",
    "SeekFrom",
    "Self",
    "Send",
    "String",
    "Sync",
    "SystemTime",
    "Vec",
    "Write",
];

/// Words that look like types: they begin with a capital letter and are longer than a parameter.
fn types(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|w| w.len() > 1 && w.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// What the text of a module gives to programs: re-exports, and what it makes itself.
pub fn exported(text: &str) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = KNOWN.iter().map(|k| (*k).to_owned()).collect();
    for part in text.split("pub use ").skip(1) {
        all.extend(types(part.split(';').next().unwrap_or_default()).map(str::to_owned));
    }
    for kind in ["pub struct ", "pub enum ", "pub trait ", "pub type "] {
        let made = text
            .split(kind)
            .skip(1)
            .filter_map(|part| types(part).next());
        all.extend(made.map(str::to_owned));
    }
    all
}

/// Whole crates that are given under another name, or with all that is in them.
pub fn whole_crates(text: &str) -> Vec<String> {
    let uses = text.split("pub use ").skip(1);
    let uses = uses.filter_map(|part| part.split(';').next());
    let whole = |u: &&str| {
        let path = u.split(" as ").next().unwrap_or_default().trim();
        path.starts_with("zuse_") && (!path.contains("::") || path.ends_with("::*"))
    };
    uses.filter(whole).map(str::to_owned).collect()
}

/// Names of types in the signatures of methods of public types: method and type.
pub fn named(text: &str, exported: &BTreeSet<String>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut of_public = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("impl") {
            let whose = line.split(" for ").last().unwrap_or_default();
            of_public = types(whose).any(|t| exported.contains(t) && !KNOWN.contains(&t));
        }
        let Some(signature) = line.strip_prefix("    pub fn ").filter(|_| of_public) else {
            continue;
        };
        let method = signature.split(['(', '<']).next().unwrap_or_default();
        let mut whole = signature.to_owned();
        while !whole.trim_end().ends_with(['{', ';']) {
            whole.push_str(lines.next().expect("a signature ends"));
        }
        found.extend(types(&whole).map(|t| (method.to_owned(), t.to_owned())));
    }
    found
}

#[test]
fn types_that_cannot_be_named_are_found() {
    let face =
        "pub use zuse_x as x;\npub use zuse_y::*;\npub use zuse_z::{A1, b};\npub struct Own;";
    assert_eq!(whole_crates(face), ["zuse_x as x", "zuse_y::*"]);
    let all = exported(face);
    assert!(all.contains("A1") && all.contains("Own") && !all.contains("Own2"));
    let text = "impl Own {\n    pub fn f(\n        a: A1,\n    ) -> Option<B2> {\n    fn g(c: C3) {\nimpl D4 {\n    pub fn h(e: E5) {\n";
    let pair = |t: &str| ("f".to_owned(), t.to_owned());
    assert_eq!(named(text, &all), [pair("A1"), pair("Option"), pair("B2")]);
}
