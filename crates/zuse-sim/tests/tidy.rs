//! The rules of `docs/design/STYLE.md`, executed. Each finding names file and line.

#[path = "tidy/face.rs"]
mod face;
#[path = "tidy/sentences.rs"]
mod sentences;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/statics.rs"]
mod statics;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use source::{functions, is_test, markdown, of_crates, scripts, top};

/// The number that STYLE.md gives in a sentence: `{before}NUMBER{after}`.
fn limit(before: &str, after: &str) -> usize {
    let style = std::fs::read_to_string(top().join("docs/design/STYLE.md")).expect("STYLE.md");
    let style = style.split_whitespace().collect::<Vec<_>>().join(" ");
    let found: Vec<usize> = style
        .match_indices(before)
        .filter_map(|(at, _)| {
            let rest = &style[at + before.len()..];
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let number = rest[..digits].parse().ok()?;
            rest[digits..].starts_with(after).then_some(number)
        })
        .collect();
    assert_eq!(
        found.len(),
        1,
        "STYLE.md says {before:?} NUMBER {after:?} once"
    );
    found[0]
}

fn none(rule: &str, findings: &[String]) {
    assert!(
        findings.is_empty(),
        "{rule}: {} findings\n{}",
        findings.len(),
        findings.join("\n")
    );
}

/// Drawings and tables keep their width, and literals cannot be broken everywhere.
#[test]
fn lines_are_short() {
    let most = limit("Lines have at most ", " columns");
    let mut findings = Vec::new();
    for source in of_crates() {
        let mut drawn = false;
        let mut literal = false;
        for (number, line) in source.lines() {
            let comment = line.trim_start().starts_with("//");
            let text = line
                .trim_start()
                .trim_start_matches(['/', '!'])
                .trim_start();
            if comment && text.starts_with("```") {
                drawn = !drawn;
            }
            let may = match comment {
                true => drawn || text.starts_with('|') || text.starts_with("```"),
                false => literal || line.contains('"') || line.trim_start().starts_with("(0x"),
            };
            literal = !comment && line.ends_with('\\') && (literal || line.contains('"'));
            if line.chars().count() > most && !may {
                findings.push(format!("{}:{number}: {}", source.name, line.trim()));
            }
        }
    }
    none(&format!("lines above {most} columns"), &findings);
}

#[test]
fn files_are_short() {
    let most = limit("A file has at most ", " lines");
    let long = of_crates().into_iter().filter_map(|s| {
        let count = s.lines().count();
        (count > most).then(|| format!("{}: {count} lines", s.name))
    });
    none(
        &format!("files above {most} lines"),
        &long.collect::<Vec<_>>(),
    );
}

/// The notes on the format are tables of facts, `commands.md` is made of help texts.
fn is_prose(name: &str) -> bool {
    let page = !name.contains('/') || name.starts_with("docs/") || name.ends_with("/README.md");
    page && !name.starts_with("docs/format/") && name != "docs/commands.md"
}

/// The sentences of comments, pages and the heads of scripts, by file.
fn all_sentences() -> Vec<(String, Vec<sentences::Sentence>)> {
    let crates = of_crates().into_iter();
    let comments = crates.map(|s| (sentences::of_comments(&s.text), s.name));
    let pages = markdown().into_iter().filter(|s| is_prose(&s.name));
    let pages = pages.map(|s| (sentences::of_document(&s.text), s.name));
    let scripts = scripts().into_iter();
    let heads = scripts.map(|s| (sentences::of_script(&s.text), s.name));
    let all = comments.chain(pages).chain(heads);
    all.map(|(sentences, name)| (name, sentences)).collect()
}

#[test]
fn sentences_are_short() {
    let most = limit("cells of tables have at most ", " words");
    let mut findings = Vec::new();
    for (name, all) in all_sentences() {
        let long = all.into_iter().filter(|s| s.words > most);
        let told = long.map(|s| format!("{name}:{}: {} words: {}", s.line, s.words, s.text));
        findings.extend(told);
    }
    none(&format!("sentences above {most} words"), &findings);
}

/// A cell is read at once: what is longer becomes several rows, or a list.
#[test]
fn sentences_in_tables_are_short() {
    let most = limit("cells of tables have at most ", " words");
    let mut findings = Vec::new();
    for page in markdown().into_iter().filter(|s| is_prose(&s.name)) {
        let all = sentences::of_tables(&page.text).into_iter();
        let long = all.filter(|s| s.words > most);
        let name = &page.name;
        let told = long.map(|s| format!("{name}:{}: {} words: {}", s.line, s.words, s.text));
        findings.extend(told);
    }
    none(&format!("cells above {most} words"), &findings);
}

#[test]
fn every_tunable_is_on_its_page() {
    let page = std::fs::read_to_string(top().join("docs/tunables.md")).expect("the page");
    let missing = zuse::TUNABLES
        .iter()
        .map(|t| format!("`{}`", t.name))
        .filter(|name| !page.contains(name));
    none("tunables without a row", &missing.collect::<Vec<_>>());
}

/// A sentence in which the reader has to guess who or what is meant.
#[test]
fn sentences_say_who_and_what() {
    let list = include_str!("tidy/comment_words.txt");
    let rows = list.lines().filter(|l| !l.starts_with('#'));
    let words: Vec<(&str, &str)> = rows.filter_map(|l| l.split_once(" = ")).collect();
    assert!(words.len() > 5, "the list is read");
    let mut findings = Vec::new();
    for (name, all) in all_sentences() {
        for sentence in all {
            let low = sentence.text.to_ascii_lowercase();
            let low: String = low
                .chars()
                .map(|c| if c.is_alphanumeric() { c } else { ' ' })
                .collect();
            let low = format!(" {low} ");
            let bad = words
                .iter()
                .filter(|(w, _)| low.contains(&format!(" {w} ")));
            let line = sentence.line;
            findings.extend(bad.map(|(w, better)| format!("{name}:{line}: \"{w}\": say {better}")));
        }
    }
    none("sentences that do not say who or what", &findings);
}

/// Words of this project alone, which no other project uses.
#[test]
fn words_are_those_of_the_field() {
    let forbidden = include_str!("tidy/forbidden_words.txt");
    let rows = forbidden
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    let words: Vec<(&str, &str)> = rows.filter_map(|l| l.split_once(" = ")).collect();
    assert!(words.len() > 5, "the list is read");
    let mut findings = Vec::new();
    let pages = markdown().into_iter().filter(|s| is_prose(&s.name));
    for source in of_crates().into_iter().chain(pages) {
        if source.name.contains("/tests/tidy") {
            continue;
        }
        for (number, line) in source.lines() {
            let low = line.to_ascii_lowercase();
            for (word, better) in words.iter().filter(|(word, _)| low.contains(word)) {
                let at = format!("{}:{number}", source.name);
                findings.push(format!("{at}: \"{word}\": say {better}"));
            }
        }
    }
    none("private words", &findings);
}

#[test]
fn the_page_about_the_house_is_short() {
    let most = limit("`ARCHITECTURE.md` at most ", " lines");
    let text = std::fs::read_to_string(top().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let count = text.lines().count();
    assert!(
        count <= most,
        "ARCHITECTURE.md: {count} lines, at most {most}"
    );
}

/// The list may only shrink: an entry that is short, or gone, must be removed.
#[test]
fn functions_are_short() {
    let most = limit("A function has at most ", " lines");
    let listed: BTreeSet<&str> = include_str!("tidy/long_functions.txt")
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .collect();
    let mut found = BTreeSet::new();
    for source in of_crates() {
        for (name, line, length) in functions(&source) {
            if length > most {
                found.insert((format!("{} {name}", source.name), line, length));
            }
        }
    }
    let mut findings: Vec<String> = found
        .iter()
        .filter(|(name, ..)| !listed.contains(name.as_str()))
        .map(|(name, line, length)| format!("{name}, line {line}: {length} lines"))
        .collect();
    let long: BTreeSet<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
    let outdated = listed.iter().filter(|name| !long.contains(*name));
    findings.extend(outdated.map(|name| format!("{name}: take it out of long_functions.txt")));
    none(&format!("functions above {most} lines"), &findings);
}

/// `try_from`, or a helper whose name says what is cut off.
#[test]
fn nothing_is_cut_off_in_silence_where_bytes_of_others_are_read() {
    let mut findings = Vec::new();
    for source in of_crates() {
        let hostile = ["zuse-format", "zuse-stream", "zuse-vdev"]
            .iter()
            .any(|name| source.name.starts_with(&format!("crates/{name}/src/")));
        if !hostile || is_test(&source.name) {
            continue;
        }
        for (number, line) in source.lines().filter(|(n, _)| !source.in_tests(*n)) {
            let code = line.split("//").next().unwrap_or_default();
            let narrows = |kind: &&str| {
                code.match_indices(&format!(" as {kind}"))
                    .any(|(at, found)| {
                        let behind = code[at + found.len()..].chars().next();
                        !behind.is_some_and(|c| c.is_alphanumeric() || c == '_')
                    })
            };
            if ["u8", "u16", "u32", "i8", "i16", "i32"].iter().any(narrows) {
                findings.push(format!("{}:{number}: {}", source.name, line.trim()));
            }
        }
    }
    none("`as` that narrows", &findings);
}

/// A file that no `mod` leads to is never compiled.
#[test]
fn every_source_file_is_reached() {
    let mut reached = BTreeSet::new();
    let mut all = BTreeSet::new();
    for source in of_crates() {
        let path = top().join(&source.name);
        let Some((_, below)) = source.name.split_once("/src/") else {
            continue;
        };
        all.insert(path.clone());
        if matches!(below, "lib.rs" | "main.rs") || below.starts_with("bin/") {
            reach(&path, true, &mut reached);
        }
    }
    let dead: Vec<String> = all
        .difference(&reached)
        .map(|p| p.display().to_string())
        .collect();
    none("files that no `mod` leads to", &dead);
}

fn reach(path: &Path, is_root: bool, reached: &mut BTreeSet<PathBuf>) {
    let Ok(text) = std::fs::read_to_string(path) else {
        return;
    };
    reached.insert(path.to_owned());
    let dir = match is_root {
        true => path.parent().expect("a folder").to_owned(),
        false => path.with_extension(""),
    };
    let mut given = None;
    for line in text.lines().map(str::trim) {
        if let Some(path) = line.strip_prefix("#[path = \"") {
            given = path.split('"').next().map(str::to_owned);
            continue;
        }
        let words = line.strip_prefix("pub ").unwrap_or(line);
        let words = match words.split_once(") ") {
            Some((before, behind)) if before.starts_with("pub(") => behind,
            _ => words,
        };
        if let Some(name) = words.strip_prefix("mod ").and_then(|w| w.strip_suffix(';')) {
            let file = match given.take() {
                Some(file) => path.parent().expect("a folder").join(file),
                None => dir.join(format!("{name}.rs")),
            };
            reach(&file, false, reached);
        }
    }
}

/// A program names all that the library's methods take and give, without `zuse::tools`. No crate
/// below is handed out whole: its functions take what only the layers themselves have.
#[test]
fn what_the_library_takes_and_gives_can_be_named() {
    let src = |name: &str| name.strip_prefix("crates/zuse/src/").map(str::to_owned);
    let all: Vec<(String, String)> = of_crates()
        .into_iter()
        .filter_map(|s| src(&s.name).map(|name| (name, s.text)))
        .filter(|(name, _)| !name.starts_with("tools") && !is_test(name))
        .collect();
    let mut exported = BTreeSet::new();
    let mut findings = Vec::new();
    for (name, text) in &all {
        if name == "lib.rs" || name == "fs.rs" {
            exported.append(&mut face::exported(text));
            findings.extend(face::whole_crates(text));
        }
    }
    for (name, text) in &all {
        let named = face::named(text, &exported).into_iter();
        let hidden = named.filter(|(_, kind)| !exported.contains(kind));
        findings.extend(hidden.map(|(method, kind)| format!("{name}: {method}: {kind}")));
    }
    none("types that a program cannot name", &findings);
}

/// `zuse-io::cache` is `crates/zuse-io/src/cache.rs`.
#[test]
fn modules_that_documents_name_are_there() {
    let mut findings = Vec::new();
    for source in markdown().iter().filter(|s| is_prose(&s.name)) {
        for (number, line) in source.lines() {
            for word in line.split('`').skip(1).step_by(2) {
                let Some((name, path)) = word.split_once("::") else {
                    continue;
                };
                let plain = |c: char| c.is_ascii_lowercase() || "_:".contains(c);
                if !name.starts_with("zuse-") || !path.chars().all(plain) {
                    continue;
                }
                let file = format!("crates/{name}/src/{}.rs", path.replace("::", "/"));
                if !top().join(&file).exists() {
                    findings.push(format!("{}:{number}: {word}", source.name));
                }
            }
        }
    }
    none("modules that are not there", &findings);
}

/// Links, and paths of this project in backticks.
#[test]
fn what_the_documents_point_to_is_there() {
    let mut findings = Vec::new();
    for source in markdown() {
        let folder = top().join(&source.name);
        let folder = folder.parent().expect("a folder");
        for (number, line) in source.lines() {
            let links = line.split("](").skip(1).filter_map(|l| l.split(')').next());
            for link in links.filter(|l| !l.contains("://") && !l.starts_with('#')) {
                let file = link.split('#').next().unwrap_or_default();
                if !folder.join(file).exists() {
                    findings.push(format!("{}:{number}: {link}", source.name));
                }
            }
            for path in line.split('`').skip(1).step_by(2) {
                let ours = [
                    "docs/",
                    "crates/",
                    "scripts/",
                    "tests/",
                    "bench/",
                    "testdata/",
                ];
                let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
                if ours.iter().any(|o| path.starts_with(o))
                    && path.chars().all(plain)
                    && !top().join(path).exists()
                    && !folder.join(path).exists()
                {
                    findings.push(format!("{}:{number}: {path}", source.name));
                }
            }
        }
    }
    none("dead links", &findings);
}
