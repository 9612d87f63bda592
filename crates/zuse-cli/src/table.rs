//! Tables as the ZFS commands print them: two spaces between columns for people, one TAB and no
//! header for scripts.
//!
//! A column is as wide as its longest cell. Numbers are aligned right, words left. A last column
//! that is aligned left has no trailing blanks.

use std::borrow::Cow;
use std::io;

use crate::shown;

/// The reader of a table: a program or a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Programs: exact, no headers.
    Scripted,
    /// A file.
    Plain,
    /// A terminal, which interprets control characters: cells are escaped.
    Spelled,
}

impl From<bool> for Style {
    fn from(scripted: bool) -> Self {
        if scripted {
            Self::Scripted
        } else {
            Self::Plain
        }
    }
}

/// Alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Header, in capitals.
    pub header: String,
    /// How cells are aligned.
    pub side: Side,
    /// Minimum width.
    pub min_width: usize,
    /// `min_width` is its width: no cell needs to be measured.
    pub exact: bool,
}

impl Column {
    /// Sets the minimum width.
    pub fn min_width(self, min_width: usize) -> Self {
        Self { min_width, ..self }
    }

    /// A column as wide as its longest cell.
    pub fn new(header: &str, side: Side) -> Self {
        Self {
            header: header.to_uppercase(),
            side,
            min_width: 0,
            exact: false,
        }
    }
}

/// Prints rows below headers; scripts get no headers, and cells separated by TABs.
pub fn render(columns: &[Column], rows: &[Vec<String>], style: impl Into<Style>) -> String {
    let mut out = String::new();
    let mut put = |line: &str| {
        out.push_str(line);
        Ok(())
    };
    // A String takes everything.
    let _ = stream(
        columns,
        rows.iter(),
        style,
        |row, i| text_at(row, i),
        &mut put,
    );
    out
}

fn text_at(row: &[String], i: usize) -> Cow<'_, str> {
    row.get(i).map_or("", String::as_str).into()
}

/// As [`render`], for any number of lines. They are iterated twice (the first time to measure) and
/// written as they are made. A column with `exact` set is not measured.
///
/// # Errors
/// Those of `put`.
pub fn stream<'a, L: Copy + 'a>(
    columns: &[Column],
    lines: impl Iterator<Item = L> + Clone,
    style: impl Into<Style>,
    cell: impl Fn(L, usize) -> Cow<'a, str>,
    put: &mut dyn FnMut(&str) -> io::Result<()>,
) -> io::Result<()> {
    let style = style.into();
    let scripted = style == Style::Scripted;
    let cell = |line, i| match style {
        Style::Spelled => shown::cell(cell(line, i)),
        Style::Scripted | Style::Plain => cell(line, i),
    };
    let mut out = String::with_capacity(BATCH + 4096);
    let last = columns.len().saturating_sub(1);
    let mut widths: Vec<usize> = columns
        .iter()
        .map(|c| c.min_width.max(c.header.chars().count()))
        .collect();
    if !scripted {
        for line in lines.clone() {
            for (i, column) in columns.iter().enumerate() {
                // The last column needs no width.
                if !(column.exact || i == last && column.side == Side::Left) {
                    widths[i] = widths[i].max(wide(&cell(line, i)));
                }
            }
        }
        for (i, column) in columns.iter().enumerate() {
            put_cell(&mut out, &column.header, column.side, widths[i], i, last);
        }
        out.push('\n');
    }
    for line in lines {
        for (i, column) in columns.iter().enumerate() {
            let text = cell(line, i);
            if scripted {
                if i > 0 {
                    out.push('\t');
                }
                out.push_str(&text);
            } else {
                put_cell(&mut out, &text, column.side, widths[i], i, last);
            }
        }
        out.push('\n');
        if out.len() >= BATCH {
            put(&out)?;
            out.clear();
        }
    }
    put(&out)
}

/// Bytes per write.
const BATCH: usize = 64 << 10;

fn wide(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.chars().count()
    }
}

fn put_cell(out: &mut String, text: &str, side: Side, width: usize, i: usize, last: usize) {
    const BLANKS: &str = "                                                                ";
    let blanks = |mut n: usize, out: &mut String| {
        while n > 0 {
            let some = n.min(BLANKS.len());
            out.push_str(&BLANKS[..some]);
            n -= some;
        }
    };
    if i > 0 {
        out.push_str("  ");
    }
    let missing = width.saturating_sub(wide(text));
    match side {
        Side::Right => {
            blanks(missing, out);
            out.push_str(text);
        }
        Side::Left => {
            out.push_str(text);
            if i != last {
                blanks(missing, out);
            }
        }
    }
}

#[cfg(test)]
mod tests;
