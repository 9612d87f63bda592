//! Tables as the ZFS commands print them: two spaces between columns for people, one TAB and no header for scripts.
//!
//! Widths are those of the longest cell; numbers stand right, words left; a last column that stands left has no
//! blanks after it.

use std::fmt::Write as _;

/// Which side a column's cells stand on.
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
    /// Where cells stand.
    pub side: Side,
    /// Least width.
    pub least: usize,
}

impl Column {
    /// At least that wide.
    pub fn at_least(self, least: usize) -> Self {
        Self { least, ..self }
    }

    /// A column as wide as it needs to be.
    pub fn new(header: &str, side: Side) -> Self {
        Self {
            header: header.to_uppercase(),
            side,
            least: 0,
        }
    }
}

/// Prints rows below headers; `scripted` leaves the headers out and separates cells by TABs.
pub fn render(columns: &[Column], rows: &[Vec<String>], scripted: bool) -> String {
    let mut out = String::new();
    if scripted {
        for row in rows {
            out.push_str(&row.join("\t"));
            out.push('\n');
        }
        return out;
    }
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(i, c)| {
            let cells = rows
                .iter()
                .filter_map(|r| r.get(i))
                .map(|c| c.chars().count());
            cells
                .chain([c.header.chars().count(), c.least])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let header: Vec<String> = columns.iter().map(|c| c.header.clone()).collect();
    for row in std::iter::once(&header).chain(rows) {
        let last = columns.len().saturating_sub(1);
        for (i, (column, width)) in columns.iter().zip(&widths).enumerate() {
            let cell = row.get(i).map_or("", String::as_str);
            let gap = if i == 0 { "" } else { "  " };
            let _ = match column.side {
                Side::Right => write!(out, "{gap}{cell:>width$}"),
                Side::Left if i == last => write!(out, "{gap}{cell}"),
                Side::Left => write!(out, "{gap}{cell:<width$}"),
            };
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests;
