//! The rule of style about `static` items, checked in the sources.
//!
//! - A library has no state of the process or of a thread: a program that opens two pools has two
//!   of everything. Tables that never change are no state. The command (`zuse-cli`) and this test
//!   bench may have some.

use std::fs;
use std::path::{Path, PathBuf};

/// Statics that are allowed: file, name, reason.
const ALLOWED: [(&str, &str, &str); 1] = [(
    "zuse-base/src/sync.rs",
    "RANKS",
    "debug builds alone: a thread's locks by rank, which only the thread can know",
)];

/// Crates that are programs.
const PROGRAMS: [&str; 2] = ["zuse-cli", "zuse-sim"];

/// Words of types that change behind a shared reference.
const CHANGING: [&str; 7] = [
    "Atomic", "Mutex", "RwLock", "Once", "Lazy", "Cell", "Condvar",
];

/// What is written in a library's file that is no test, line by line.
struct Source {
    name: String,
    text: String,
}

fn sources() -> Vec<Source> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for entry in fs::read_dir(&crates).expect("the crates") {
        let path = entry.expect("a crate").path();
        let is_program = PROGRAMS.iter().any(|p| path.ends_with(p));
        if !is_program && path.join("src").is_dir() {
            enter(&path.join("src"), &crates, &mut found);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn enter(folder: &Path, crates: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path: PathBuf = entry.expect("an entry").path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        if is_test {
            continue;
        }
        if path.is_dir() {
            enter(&path, crates, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let name = path.strip_prefix(crates).expect("a crate's file");
            let name = name.to_str().expect("a plain name").to_owned();
            let text = fs::read_to_string(&path).expect("a source");
            found.push(Source { name, text });
        }
    }
}

/// Lines before the tests at a file's end, with their numbers; comments are empty.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let end = text.find("\n#[cfg(test)]\nmod tests {");
    let code = text.get(..end.unwrap_or(text.len())).unwrap_or(text);
    let lines = code.lines().map(str::trim);
    let bare = lines.map(|line| if line.starts_with("//") { "" } else { line });
    (1..).zip(bare)
}

/// The static of a line that may change, or whose type does not show that it cannot.
fn state(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("static ")?;
    // Not of a lifetime, and not at the end of another word.
    if before.ends_with(|c: char| c == '\'' || c.is_alphanumeric() || c == '_') {
        return None;
    }
    let rest = rest.strip_prefix("ref ").unwrap_or(rest);
    let (name, kind) = rest.split_once(": ")?;
    if let Some(name) = name.strip_prefix("mut ") {
        return Some(name);
    }
    let kind = kind.split(" = ").next().unwrap_or(kind);
    let is_table = kind.starts_with('[') || kind.starts_with("&[") || kind.starts_with("&str");
    let changes = CHANGING.iter().any(|word| kind.contains(word));
    (changes || !is_table).then_some(name)
}

#[test]
fn libraries_have_no_state_of_the_process_or_of_a_thread() {
    let (mut wrong, mut met) = (Vec::new(), Vec::new());
    for source in sources() {
        for (number, line) in code(&source.text) {
            let Some(name) = state(line) else { continue };
            let is_it = |row: &&(&str, &str, &str)| row.0 == source.name && row.1 == name;
            match ALLOWED.iter().find(is_it) {
                Some(row) => met.push(row),
                None => wrong.push(format!("crates/{}:{number}: {line}", source.name)),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "state of the process: let its user hold it, or make it a const\n{}",
        wrong.join("\n")
    );
    for row in &ALLOWED {
        assert!(
            met.contains(&row),
            "statics.rs: {row:?} is gone: delete its row"
        );
    }
}

#[test]
fn state_is_known_by_its_type() {
    for (line, name) in [
        ("static COUNT: AtomicU64 = AtomicU64::new(0);", "COUNT"),
        ("pub(crate) static NOTED: Places = Places::new();", "NOTED"),
        (
            "thread_local!(static DICE: Cell<u32> = const { Cell::new(1) });",
            "DICE",
        ),
        (
            "static SLOTS: [Mutex<u8>; 2] = [const { Mutex::new(0) }; 2];",
            "SLOTS",
        ),
        ("static mut ROOM: [u8; 4] = [0; 4];", "ROOM"),
        (
            "static BY_NAME: LazyLock<HashMap<&'static str, u8>> =",
            "BY_NAME",
        ),
        ("static ref TABLE: Table = Table::new();", "TABLE"),
    ] {
        assert_eq!(state(line), Some(name), "{line}");
    }
    for line in [
        "pub static ROWS: &[Row] = &[",
        "static ZEROS: [u8; 4] = [0; 4];",
        "fn word(name: &'static str) -> u8 {",
        "let ecstatic = 1;",
    ] {
        assert_eq!(state(line), None, "{line}");
    }
    let text = "// static A: Cell<u8> = 1;\n\n#[cfg(test)]\nmod tests {\nstatic B: Cell<u8> = 1;";
    assert!(code(text).all(|(_, line)| state(line).is_none()));
}
