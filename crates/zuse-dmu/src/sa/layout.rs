//! A layout: the sequence of attributes in a buffer, and the offsets of those before the first
//! attribute of variable length.

use super::attribute::{Attr, Class};

/// What REGISTRY says about an attribute number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttrInfo {
    pub number: u16,
    /// 0 = variable.
    pub len: u16,
    pub class: Class,
}

const NOWHERE: u16 = u16::MAX;

/// One layout, with everything precomputed.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub number: u16,
    pub attrs: Vec<AttrInfo>,
    /// Number of attributes with variable length.
    pub variable: usize,
    /// Per known attribute: its position in `attrs`.
    position: [u16; 22],
    /// Per known attribute: offset from the end of the header, if no variable attribute comes
    /// before.
    fixed: [u16; 22],
}

/// `n` rounded up to a multiple of 8.
pub(crate) fn round8(n: usize) -> usize {
    n.next_multiple_of(8)
}

/// Bytes of a buffer's header for that many variable attributes.
pub(crate) fn header_len(variable: usize) -> usize {
    8 + round8(2 * variable.saturating_sub(1))
}

impl Layout {
    /// Computes the offsets. `known` maps the known attributes to their numbers in this object set.
    pub(crate) fn new(number: u16, attrs: Vec<AttrInfo>, known: &[Option<u16>; 22]) -> Self {
        let mut position = [NOWHERE; 22];
        let mut fixed = [NOWHERE; 22];
        let mut offset = Some(0usize);
        for (i, info) in attrs.iter().enumerate() {
            if let Some(which) = known.iter().position(|&n| n == Some(info.number)) {
                position[which] = i as u16;
                fixed[which] = offset
                    .and_then(|o| u16::try_from(round8(o)).ok())
                    .unwrap_or(NOWHERE);
            }
            offset = match (offset, info.len) {
                (Some(o), len) if len != 0 => Some(round8(o) + usize::from(len)),
                _ => None,
            };
        }
        let variable = attrs.iter().filter(|a| a.len == 0).count();
        Self {
            number,
            attrs,
            variable,
            position,
            fixed,
        }
    }

    /// Where an attribute is in the sequence.
    pub(crate) fn position(&self, attr: Attr) -> Option<usize> {
        let p = self.position[attr as usize];
        (p != NOWHERE).then_some(usize::from(p))
    }

    /// Its offset from the end of the header, if that is the same in every buffer.
    pub(crate) fn fixed(&self, attr: Attr) -> Option<usize> {
        let o = self.fixed[attr as usize];
        (o != NOWHERE).then_some(usize::from(o))
    }
}
