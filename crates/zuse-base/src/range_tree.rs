//! Sets of disjoint ranges of numbers: free space, freed space, missing transactions.
//!
//! Invariants
//! - No range is empty; ranges neither overlap nor touch (neighbours are merged), so the same set
//!   always has the same ranges. A new range is compared with its neighbours.
//! - `space` is the sum of the sizes, and the index has each range once. Checked when a set becomes
//!   empty; [`Ranges::check_invariants`] checks the whole set.
//!
//! Adding a range that is there, or removing one that is not, is an error, not a no-op. In an
//! allocator either means that one block is about to be allocated twice. [`Ranges::add_missing`]
//! and [`Ranges::clear_span`] are for sets where this is normal.
//!
//! [`RangeTree`] knows the ranges by place; [`SizedRangeTree`] also by size, for best fit. Each
//! range costs two words in a B-tree (four in the sized one): millions are fine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// `size` numbers from `start` on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first number.
    pub start: u64,
    /// How many.
    pub size: u64,
}

impl Span {
    /// `size` numbers from `start` on.
    pub const fn new(start: u64, size: u64) -> Self {
        Self { start, size }
    }

    /// The numbers from `start` up to but without `end`; empty if `end` is lower.
    pub const fn between(start: u64, end: u64) -> Self {
        Self {
            start,
            size: end.saturating_sub(start),
        }
    }

    /// The first number after it.
    pub const fn end(self) -> u64 {
        self.start.saturating_add(self.size)
    }

    /// Whether `inner` is a part of it.
    pub const fn contains(self, inner: Span) -> bool {
        self.start <= inner.start && inner.end() <= self.end()
    }

    /// The common part of both, if any.
    pub fn overlap(self, other: Span) -> Option<Span> {
        let common = Span::between(self.start.max(other.start), self.end().min(other.end()));
        (common.size > 0).then_some(common)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x}", self.start, self.size)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a set was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// A part of the span is in the set already.
    #[error("range {asked} is added, but {found} is there already")]
    Overlap {
        /// What was to be added.
        asked: Span,
        /// An existing range that overlaps.
        found: Span,
    },
    /// The span, or a part of it, is not in the set.
    #[error("range {asked} is removed, but is not all there")]
    Absent {
        /// What was to be removed.
        asked: Span,
    },
    /// The span is empty or ends behind 2^64 - 1.
    #[error("range {asked} is empty or too long")]
    Invalid {
        /// The range of the call.
        asked: Span,
    },
}

/// Additional data next to the ranges by place.
pub trait SizeIndex: Default {
    /// A range was added.
    fn insert(&mut self, span: Span);
    /// A range was removed.
    fn remove(&mut self, span: Span);
    /// No ranges are left.
    fn clear(&mut self);
    /// Number of ranges, if it counts them.
    fn count(&self) -> Option<usize> {
        None
    }
}

/// No index.
#[derive(Clone, Debug, Default)]
pub struct ByPlace;

impl SizeIndex for ByPlace {
    fn insert(&mut self, _: Span) {}
    fn remove(&mut self, _: Span) {}
    fn clear(&mut self) {}
}

/// The ranges ordered by size, then place.
#[derive(Clone, Debug, Default)]
pub struct BySize(BTreeSet<(u64, u64)>);

impl SizeIndex for BySize {
    fn insert(&mut self, span: Span) {
        self.0.insert((span.size, span.start));
    }

    fn remove(&mut self, span: Span) {
        self.0.remove(&(span.size, span.start));
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn count(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// A set of ranges by place.
pub type RangeTree = Ranges<ByPlace>;

/// A set of ranges by place and by size.
pub type SizedRangeTree = Ranges<BySize>;

/// A set of disjoint ranges; see [`RangeTree`] and [`SizedRangeTree`].
#[derive(Clone, Default)]
pub struct Ranges<I> {
    /// Start → end.
    map: BTreeMap<u64, u64>,
    space: u64,
    index: I,
}

impl<I: SizeIndex> Ranges<I> {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Add a span, merging it with its neighbours.
    ///
    /// # Errors
    /// When a part of it is in the set already; the set is unchanged then.
    pub fn add(&mut self, span: Span) -> Result<(), RangeError> {
        let end = valid_end(span)?;
        let before = self.at_or_before(span.start);
        if let Some(before) = before.filter(|b| b.end() > span.start) {
            return Err(RangeError::Overlap {
                asked: span,
                found: before,
            });
        }
        let after = self
            .map
            .range(span.start..=end)
            .next()
            .map(|(&s, &e)| Span::between(s, e));
        if let Some(after) = after.filter(|a| a.start < end) {
            return Err(RangeError::Overlap {
                asked: span,
                found: after,
            });
        }
        let mut merged = span;
        if let Some(after) = after {
            self.map.remove(&after.start);
            self.index.remove(after);
            merged.size += after.size;
        }
        if let Some(before) = before.filter(|b| b.end() == span.start) {
            self.index.remove(before);
            merged = Span::new(before.start, before.size + merged.size);
        }
        self.map.insert(merged.start, merged.end());
        self.index.insert(merged);
        self.space += span.size;
        debug_assert!(self.is_apart(merged), "{merged} touches a neighbour");
        Ok(())
    }

    /// Remove a span, splitting the range that holds it.
    ///
    /// # Errors
    /// When not all of it is in the set; the set is unchanged then.
    pub fn remove(&mut self, span: Span) -> Result<(), RangeError> {
        valid_end(span)?;
        match self.at_or_before(span.start) {
            Some(holder) if holder.contains(span) => {
                self.cut(holder, span);
                Ok(())
            }
            _ => Err(RangeError::Absent { asked: span }),
        }
    }

    /// Whether a range of the set touches neither the one before nor the one behind.
    fn is_apart(&self, range: Span) -> bool {
        let before = self.map.range(..range.start).next_back();
        let behind = self.map.range(range.start + 1..).next();
        range.size > 0
            && before.is_none_or(|(_, end)| *end < range.start)
            && behind.is_none_or(|(start, _)| *start > range.end())
    }

    /// Take `span` out of `holder`, a range of the set that contains it.
    fn cut(&mut self, holder: Span, span: Span) {
        self.index.remove(holder);
        let lead = Span::between(holder.start, span.start);
        let rest = Span::between(span.end(), holder.end());
        if lead.size > 0 {
            self.map.insert(lead.start, lead.end());
            self.index.insert(lead);
        } else {
            self.map.remove(&holder.start);
        }
        if rest.size > 0 {
            self.map.insert(rest.start, rest.end());
            self.index.insert(rest);
        }
        self.space -= span.size;
        debug_assert!(
            !self.map.is_empty() || self.space == 0,
            "{} bytes in no range",
            self.space
        );
    }

    /// Panics if the set breaks the invariants of this module; walks all of it.
    #[cfg(debug_assertions)]
    pub fn check_invariants(&self) {
        for range in self.iter() {
            assert!(self.is_apart(range), "{range} touches a neighbour");
        }
        let sum: u64 = self.iter().map(|r| r.size).sum();
        assert_eq!(sum, self.space, "the ranges and their sum");
        if let Some(indexed) = self.index.count() {
            assert_eq!(indexed, self.len(), "the ranges and their index");
        }
    }

    /// Removes the part of `span` that is in the set; returns its size.
    pub fn clear_span(&mut self, span: Span) -> u64 {
        let mut removed = 0;
        let mut rest = span;
        while let Some(holder) = self.next_overlap(rest) {
            let Some(common) = holder.overlap(rest) else {
                break;
            };
            self.cut(holder, common);
            removed += common.size;
            rest = Span::between(common.end(), span.end());
        }
        removed
    }

    /// Adds the part of `span` that is not in the set; returns its size.
    pub fn add_missing(&mut self, span: Span) -> u64 {
        if valid_end(span).is_err() {
            return 0;
        }
        // One merged range, not one per gap.
        let present = self.clear_span(span);
        match self.add(span) {
            Ok(()) => span.size - present,
            Err(_) => 0,
        }
    }

    /// Empty the set.
    pub fn clear(&mut self) {
        self.map.clear();
        self.index.clear();
        self.space = 0;
    }

    /// Whether all of `span` is in the set. An empty span never is.
    pub fn contains(&self, span: Span) -> bool {
        span.size > 0
            && self
                .at_or_before(span.start)
                .is_some_and(|r| r.contains(span))
    }

    /// The range that holds `point`.
    pub fn find(&self, point: u64) -> Option<Span> {
        self.at_or_before(point).filter(|r| r.end() > point)
    }

    /// The ranges that overlap `span`, in full, in order.
    pub fn overlapping(&self, span: Span) -> impl Iterator<Item = Span> + '_ {
        let from = self
            .find(span.start)
            .filter(|_| span.size > 0)
            .map_or(span.start, |r| r.start);
        let to = if span.size > 0 { span.end() } else { from };
        self.map.range(from..to).map(|(&s, &e)| Span::between(s, e))
    }

    /// The parts of `span` that are in the set, in order.
    pub fn parts_in(&self, span: Span) -> impl Iterator<Item = Span> + '_ {
        self.overlapping(span).filter_map(move |r| r.overlap(span))
    }

    /// The parts of `span` that are not in the set, in order.
    pub fn gaps_in(&self, span: Span) -> impl Iterator<Item = Span> + '_ {
        let ends = self
            .overlapping(span)
            .chain((span.size > 0).then_some(Span::new(span.end(), 0)));
        let mut at = span.start;
        ends.filter_map(move |next| {
            let gap = Span::between(at, next.start);
            at = next.end();
            (gap.size > 0).then_some(gap)
        })
    }

    /// Whether anything of `span` is in the set.
    pub fn intersects(&self, span: Span) -> bool {
        self.next_overlap(span).is_some()
    }

    /// All ranges, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Span> + '_ {
        self.map.iter().map(|(&s, &e)| Span::between(s, e))
    }

    /// The lowest range.
    pub fn first(&self) -> Option<Span> {
        self.iter().next()
    }

    /// The highest range.
    pub fn last(&self) -> Option<Span> {
        self.iter().next_back()
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Sum of the sizes.
    pub fn space(&self) -> u64 {
        self.space
    }

    /// How many ranges there are of each size: slot `n` counts sizes from 2^n to 2^(n+1) - 1.
    pub fn histogram(&self) -> [u64; 64] {
        let mut counts = [0; 64];
        for range in self.iter() {
            if let Some(log) = range.size.checked_ilog2() {
                counts[log as usize] += 1;
            }
        }
        counts
    }

    fn at_or_before(&self, point: u64) -> Option<Span> {
        self.map
            .range(..=point)
            .next_back()
            .map(|(&s, &e)| Span::between(s, e))
    }

    fn next_overlap(&self, span: Span) -> Option<Span> {
        self.overlapping(span).next()
    }
}

impl Ranges<BySize> {
    /// The largest range; of several the highest.
    pub fn largest(&self) -> Option<Span> {
        self.index
            .0
            .last()
            .map(|&(size, start)| Span::new(start, size))
    }

    /// The smallest range of at least `size`; of several the lowest.
    pub fn pick(&self, size: u64) -> Option<Span> {
        self.at_least(size).next()
    }

    /// The ranges of at least `size`, smallest first.
    pub fn at_least(&self, size: u64) -> impl DoubleEndedIterator<Item = Span> + '_ {
        self.index
            .0
            .range((size, 0)..)
            .map(|&(size, start)| Span::new(start, size))
    }

    /// Best fit: a place in the smallest range where `size` numbers fit at a multiple of `align`.
    pub fn best_fit(&self, size: u64, align: u64) -> Option<Span> {
        self.at_least(size)
            .find_map(|range| fit(range, size, align))
    }
}

/// The first `size` numbers of `range` that start at a multiple of `align`.
fn fit(range: Span, size: u64, align: u64) -> Option<Span> {
    let start = range.start.checked_next_multiple_of(align.max(1))?;
    let end = start.checked_add(size)?;
    (size > 0 && end <= range.end()).then_some(Span::new(start, size))
}

fn valid_end(span: Span) -> Result<u64, RangeError> {
    span.start
        .checked_add(span.size)
        .filter(|_| span.size > 0)
        .ok_or(RangeError::Invalid { asked: span })
}

impl<I: SizeIndex> FromIterator<Span> for Ranges<I> {
    /// The union of the spans.
    fn from_iter<S: IntoIterator<Item = Span>>(spans: S) -> Self {
        let mut set = Self::new();
        for span in spans {
            if set.add(span).is_err() {
                set.add_missing(span);
            }
        }
        set
    }
}

impl<I, J> PartialEq<Ranges<J>> for Ranges<I> {
    fn eq(&self, other: &Ranges<J>) -> bool {
        self.map == other.map
    }
}

impl<I> fmt::Debug for Ranges<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.map.iter().map(|(&s, &e)| Span::between(s, e)))
            .finish()
    }
}

#[cfg(test)]
mod tests;
