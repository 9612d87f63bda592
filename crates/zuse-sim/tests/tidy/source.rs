//! Files of the project as text.

use std::path::{Path, PathBuf};

/// A file: its path from the top of the project, and its text.
pub struct Source {
    pub name: String,
    pub text: String,
}

impl Source {
    /// Its lines, counted from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(i, line)| (i + 1, line))
    }

    /// Whether a line belongs to a module of tests at the end of a file.
    pub fn in_tests(&self, line: usize) -> bool {
        self.lines()
            .find(|(_, l)| l.trim() == "#[cfg(test)]")
            .is_some_and(|(first, _)| line >= first)
    }
}

/// The top of the project.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All Rust files of the crates.
pub fn of_crates() -> Vec<Source> {
    let mut all = Vec::new();
    walk("crates", "rs", &mut all);
    assert!(all.len() > 500, "{} files: too few to be all", all.len());
    all
}

/// All Markdown files, but those of dependencies and of what was built.
pub fn markdown() -> Vec<Source> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(top()).expect("readable").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            push(name, &mut all);
        }
    }
    for folder in ["bench", "crates", "docs", "fuzz", "testdata", "tests"] {
        walk(folder, "md", &mut all);
    }
    assert!(all.len() > 20, "{} files: too few to be all", all.len());
    all
}

/// All shell scripts of the project.
pub fn scripts() -> Vec<Source> {
    let mut all = Vec::new();
    for folder in ["bench", "scripts", "tests"] {
        walk(folder, "sh", &mut all);
    }
    for entry in std::fs::read_dir(top().join("scripts")).expect("readable") {
        let name = entry.expect("entry").file_name();
        let name = format!("scripts/{}", name.to_string_lossy());
        if !name.contains('.') && top().join(&name).is_file() {
            push(name, &mut all);
        }
    }
    assert!(all.len() > 50, "{} files: too few to be all", all.len());
    all
}

fn push(name: String, all: &mut Vec<Source>) {
    let text = std::fs::read_to_string(top().join(&name)).expect("text");
    all.push(Source { name, text });
}

fn walk(folder: &str, extension: &str, all: &mut Vec<Source>) {
    let entries = std::fs::read_dir(top().join(folder)).expect("readable");
    let mut names: Vec<_> = entries.flatten().collect();
    names.sort_by_key(std::fs::DirEntry::file_name);
    for entry in names {
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            if entry.file_name() != "target" {
                walk(&name, extension, all);
            }
        } else if name.ends_with(&format!(".{extension}")) {
            push(name, all);
        }
    }
}

/// Whether a file holds tests alone.
pub fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("tests.rs")
}

/// Name, first line and number of lines of each function, as rustfmt sets them.
pub fn functions(source: &Source) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let Some(name) = name_of(line) else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let end = lines[first..].iter().position(|l| {
            let own = l.len() - l.trim_start().len() == indent;
            own && (l.trim() == "}" || l.ends_with(';') || l.ends_with('}'))
        });
        if let Some(length) = end {
            found.push((name.to_owned(), first + 1, length + 1));
        }
    }
    found
}

fn name_of(line: &str) -> Option<&str> {
    let (before, behind) = line.split_once("fn ")?;
    let words = ["pub", "const", "async", "unsafe", "extern", "\"C\""];
    let plain = before
        .split_whitespace()
        .all(|w| words.contains(&w) || w.starts_with("pub("));
    let end = behind.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (plain && end > 0).then_some(&behind[..end])
}
