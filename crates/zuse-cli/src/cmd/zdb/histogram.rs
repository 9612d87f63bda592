//! Histograms as lines of stars.

use std::fmt::Write as _;

/// Stars of the longest line.
const WIDTH: u64 = 40;

/// The buckets between the first and the last nonzero one, each after `pad`. The first bucket is
/// number `first`.
pub fn lines(out: &mut String, pad: &str, row: &[u64], first: usize) {
    let Some(begin) = row.iter().position(|n| *n != 0) else {
        return;
    };
    let end = row.iter().rposition(|n| *n != 0).unwrap_or(begin);
    let most = row.iter().copied().max().unwrap_or(0).max(WIDTH);
    for (i, n) in row.iter().enumerate().take(end + 1).skip(begin) {
        let stars = WIDTH - (most - n).saturating_mul(WIDTH) / most;
        let _ = writeln!(
            out,
            "{pad}{:>3}: {n:>6} {}",
            first + i,
            "*".repeat(stars as usize)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn the_longest_line_has_forty_stars_and_gaps_inside_are_shown() {
        let mut out = String::new();
        lines(&mut out, "", &[0, 1, 0, 100, 0], 0);
        assert_eq!(
            out,
            format!(
                "  1:      1 *\n  2:      0 \n  3:    100 {}\n",
                "*".repeat(40)
            )
        );
    }
}
