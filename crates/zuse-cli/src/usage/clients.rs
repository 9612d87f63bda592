//! The command lines with which other programs call `zfs` and `zpool`. The suites in
//! `tests/consumers` have recorded them (`RECORD`), with names of the run replaced.

use std::path::Path;

use clap::Parser as _;
use clap::error::ErrorKind;

/// Programs call these to see from the usage text whether there is such a sub-command.
const REFUSED: [&str; 4] = ["zfs destroy", "zfs load-key", "zfs receive", "zfs send"];

/// Splits a line that bash has quoted with `%q`.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let word = words.last_mut().expect("the first is there");
        match letter {
            ' ' => words.push(String::new()),
            '\\' => word.extend(letters.next()),
            // An empty word.
            '\'' if word.is_empty() && letters.next_if_eq(&'\'').is_some() => {}
            // Control characters, in the notation of C.
            '$' if letters.next_if_eq(&'\'').is_some() => {
                word.extend(letters.by_ref().take_while(|c| *c != '\''));
            }
            _ => word.push(letter),
        }
    }
    words
}

#[test]
fn command_lines_of_other_programs_are_accepted() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/consumers/corpus");
    let mut refused = Vec::new();
    let mut seen = 0;
    for file in std::fs::read_dir(&corpus).expect("the corpus") {
        let file = file.expect("a file").path();
        let text = std::fs::read_to_string(&file).expect("text");
        for line in text.lines() {
            seen += 1;
            let argv = ["zuse".to_owned()].into_iter().chain(words(line));
            match crate::cmd::Cli::try_parse_from(argv) {
                Err(error) if error.kind() != ErrorKind::DisplayVersion => {
                    refused.push(line.to_owned());
                }
                _ => {}
            }
        }
    }
    assert!(seen > 2000, "{seen} lines");
    refused.sort();
    assert_eq!(refused, REFUSED);
}
