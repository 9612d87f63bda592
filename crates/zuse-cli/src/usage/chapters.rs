//! Every sub-command and option that the chapters of the format notes name is in the list.

use super::openzfs::{self, Command};

const INTERFACE: &str = include_str!("../../../../docs/format/06-interface.md");
const DEBUGGERS: &str = include_str!("../../../../docs/format/06d-zdb.md");

/// What the notes say in code style, with the command that a section is about.
fn spans(chapter: &'static str) -> Vec<(&'static str, &'static str)> {
    let (mut of, mut is_block, mut found) = ("", false, Vec::new());
    for line in chapter.lines() {
        if line.starts_with("```") {
            is_block = !is_block;
        } else if is_block {
            found.extend(line.strip_prefix("$ ").map(|typed| (of, typed)));
        } else if let Some(title) = line.strip_prefix("## ") {
            of = match title.split_once(". ").map_or("", |(_, title)| title) {
                "zpool" => "zpool",
                "zfs" => "zfs",
                "zstream" => "zstream",
                _ => "",
            };
        }
        if !is_block {
            found.extend(line.split('`').skip(1).step_by(2).map(|span| (of, span)));
        }
    }
    found
}

/// The sub-command that a text is a synopsis of, and the rest of it.
fn synopsis<'a>(of: &'a str, span: &'a str) -> Option<(&'a str, &'a str, &'a str)> {
    let (first, rest) = span.split_once(' ').unwrap_or((span, ""));
    match first {
        "zdb" => Some((first, "", rest)),
        "zpool" | "zfs" | "zstream" => {
            let (sub, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            let is_name = !sub.is_empty() && sub.bytes().all(|b| b.is_ascii_lowercase());
            is_name.then_some((first, sub, rest))
        }
        // `attach [-fsw] …` in the section of its command.
        _ => (!of.is_empty() && rest.starts_with("[-")).then_some((of, first, rest)),
    }
}

/// Options that a synopsis names: `-f`, `--json`.
fn options(rest: &str) -> Vec<String> {
    let words = rest.split(|c: char| c.is_whitespace() || "[]|<>,…)".contains(c));
    let mut found = Vec::new();
    for word in words.filter(|w| w.len() > 1 && w.starts_with('-')) {
        if word.starts_with("--") {
            found.extend(word.split('=').next().map(str::to_owned));
            continue;
        }
        let letters = word.trim_start_matches('-').chars();
        let letters = letters.take_while(char::is_ascii_alphanumeric);
        found.extend(letters.map(|c| format!("-{c}")));
    }
    found
}

/// What is named and not in the list.
fn missing(chapter: &'static str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (of, span) in spans(chapter) {
        let Some((of, sub, rest)) = synopsis(of, span) else {
            continue;
        };
        for sub in sub.split('|') {
            let Some(command): Option<Command> = openzfs::command(of, sub) else {
                wrong.push(format!("{of} {sub} (`{span}`)"));
                continue;
            };
            let lacks = |form: &String| command.option(form).is_none();
            let lacking = options(rest).into_iter().filter(lacks);
            wrong.extend(lacking.map(|form| format!("{of} {sub} {form} (`{span}`)")));
        }
    }
    wrong
}

#[test]
fn what_the_chapters_name_is_in_the_list() {
    let wrong = [missing(INTERFACE), missing(DEBUGGERS)].concat();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let count = |chapter| {
        spans(chapter)
            .iter()
            .filter(|(o, s)| synopsis(o, s).is_some())
            .count()
    };
    let (interface, debuggers) = (count(INTERFACE), count(DEBUGGERS));
    assert!(
        interface > 120 && debuggers > 20,
        "{interface}, {debuggers}"
    );
}

/// The letters of `zdb` stand in one paragraph, without a synopsis.
#[test]
fn every_letter_of_zdb_is_in_the_list() {
    let line = DEBUGGERS.lines().find(|l| l.starts_with("- Letters: "));
    let line = line.expect("the paragraph of letters");
    let zdb = openzfs::command("zdb", "").expect("zdb");
    let letters: Vec<_> = line
        .split('`')
        .skip(1)
        .step_by(2)
        .flat_map(options)
        .collect();
    assert!(letters.len() > 20, "{letters:?}");
    let wrong: Vec<_> = letters.iter().filter(|f| zdb.option(f).is_none()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
