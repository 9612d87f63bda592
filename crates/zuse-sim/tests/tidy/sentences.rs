//! Sentences of comments and documents, and their lengths.

/// A sentence: the line where its paragraph begins, its words, its text.
pub struct Sentence {
    pub line: usize,
    pub words: usize,
    pub text: String,
}

/// The sentences of comments.
pub fn of_comments(text: &str) -> Vec<Sentence> {
    let lines = text.lines().map(|line| {
        let comment = line.trim_start().strip_prefix("//");
        comment
            .unwrap_or_default()
            .trim_start_matches(['/', '!', ' '])
    });
    sentences(lines)
}

/// The sentences of a document, but for code, tables and what a bench has written.
pub fn of_document(text: &str) -> Vec<Sentence> {
    let mut written_by_bench = false;
    let lines = text.lines().map(move |line| {
        if line.starts_with("<!-- begin ") {
            written_by_bench = true;
        } else if line.starts_with("<!-- end ") {
            written_by_bench = false;
        }
        let left_out = written_by_bench || line.starts_with("    ");
        if left_out { "" } else { line.trim() }
    });
    sentences(lines)
}

/// The sentences in the cells of a document's tables. Cells without a space are values.
pub fn of_tables(text: &str) -> Vec<Sentence> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some(row) = line.strip_prefix('|') else {
            continue;
        };
        let row = row.replace("\\|", "/");
        for cell in row.split('|') {
            // A semicolon ends a clause of a list.
            for clause in cell.split("; ") {
                found.extend(split(clause.trim(), number + 1));
            }
        }
    }
    found
}

/// The sentences of a script's comments. Indented lines are tables and examples.
pub fn of_script(text: &str) -> Vec<Sentence> {
    let lines = text.lines().map(|line| {
        let comment = line.trim_start().strip_prefix('#').unwrap_or_default();
        let text = comment.strip_prefix(' ').unwrap_or_default();
        let is_table = text.starts_with(' ') || text.trim_end().contains("  ");
        if is_table { "" } else { text }
    });
    sentences(lines)
}

/// A paragraph ends at an empty line, a drawing, a table or a heading; an item of a list is one.
fn sentences<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Sentence> {
    let mut found = Vec::new();
    let (mut paragraph, mut first) = (String::new(), 0);
    let mut drawn = false;
    for (number, line) in lines.chain([""]).enumerate() {
        let fence = line.starts_with("```");
        drawn ^= fence;
        let outside = ["|", "#", "<!--", "!["];
        let ends = line.is_empty() || drawn || fence || outside.iter().any(|o| line.starts_with(o));
        let item = item_of(line);
        if ends || item.is_some() {
            found.extend(split(&paragraph, first));
            paragraph.clear();
        }
        if ends {
            continue;
        }
        if paragraph.is_empty() {
            first = number + 1;
        }
        paragraph.push_str(item.unwrap_or(line));
        paragraph.push(' ');
    }
    found
}

/// What an item of a list says.
fn item_of(line: &str) -> Option<&str> {
    if let Some(text) = line.strip_prefix("- ").or(line.strip_prefix("* ")) {
        return Some(text);
    }
    let (number, text) = line.split_once(". ")?;
    let is_number = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
    is_number.then_some(text)
}

/// A sentence ends with a full stop, a question or exclamation mark before a space. What stands
/// between backticks is one word, and ends none.
fn split(paragraph: &str, line: usize) -> Vec<Sentence> {
    let mut found = Vec::new();
    let (mut text, mut words, mut counted, mut code) = (String::new(), 0, false, false);
    let mut chars = paragraph.chars().peekable();
    while let Some(c) = chars.next() {
        code ^= c == '`';
        text.push(c);
        if c.is_whitespace() && !code {
            counted = false;
        } else if !counted && (c.is_alphanumeric() || c == '`') {
            words += 1;
            counted = true;
        }
        let stop = matches!(c, '.' | '?' | '!') && !code;
        let after_short = ["e.g.", "i.e.", "etc.", "cf."]
            .iter()
            .any(|s| text.ends_with(s));
        if stop && !after_short && chars.peek().is_none_or(|n| n.is_whitespace()) {
            let text = std::mem::take(&mut text).trim().to_owned();
            found.push(Sentence { line, words, text });
            words = 0;
        }
    }
    if words > 0 {
        let text = text.trim().to_owned();
        found.push(Sentence { line, words, text });
    }
    found
}

#[test]
fn sentences_are_counted_as_people_count_them() {
    let head = "//! One. Two words, `a b. c` too!\n//!\n//! - An item that\n//!   goes on.\n//! ```text\n//! drawn. a\n//! ```\n//! Last\n";
    let found: Vec<(usize, usize, String)> = of_comments(head)
        .into_iter()
        .map(|s| (s.line, s.words, s.text))
        .collect();
    let expected = [
        (1, 1, "One."),
        (1, 4, "Two words, `a b. c` too!"),
        (3, 5, "An item that goes on."),
        (8, 1, "Last"),
    ];
    assert_eq!(found, expected.map(|(l, w, t)| (l, w, t.to_owned())));
    let page = "| a table. of |\n<!-- begin x -->\nA bench wrote this.\n<!-- end x -->\n    code. here\nText (see [it](a.md)).\n";
    let found = of_document(page);
    assert_eq!((found.len(), found[0].words), (1, 3));
}
