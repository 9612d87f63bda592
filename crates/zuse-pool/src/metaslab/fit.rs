//! Choosing a free segment.
//!
//! With plenty of space, first fit from a moving cursor. Blocks written together are adjacent, and
//! the cursor avoids the small holes behind it. If the metaslab is nearly full, or only few
//! segments are long enough, best fit. It saves the long segments for large blocks.

use zuse_base::{SizedRangeTree, Span};

/// Segments that the cursor tries before it gives up.
const WALK: usize = 64;
/// With less than 1/SCARCE of its size free, a metaslab is nearly full.
const SCARCE: u64 = 25;

/// A span of `size` bytes in `tree`, at a multiple of `align`.
pub(super) fn choose(
    tree: &SizedRangeTree,
    region: Span,
    cursor: u64,
    size: u64,
    align: u64,
) -> Option<Span> {
    let longest = tree.largest().filter(|s| s.size >= size && size > 0)?;
    if tree.space() < region.size / SCARCE || longest.size < size.saturating_mul(2) {
        return tree.best_fit(size, align);
    }
    let place = |range: Span| {
        let start = range
            .start
            .max(cursor)
            .checked_next_multiple_of(align.max(1))?;
        let span = Span::new(start, size);
        range.contains(span).then_some(span)
    };
    let ahead = tree
        .overlapping(Span::between(cursor, region.end()))
        .take(WALK)
        .find_map(place);
    // Nothing fits ahead: the cursor continues in the longest segment.
    let restart = || {
        let start = longest.start.checked_next_multiple_of(align.max(1))?;
        let span = Span::new(start, size);
        longest.contains(span).then_some(span)
    };
    ahead
        .or_else(restart)
        .or_else(|| tree.best_fit(size, align))
}
