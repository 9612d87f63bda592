//! One SA buffer: header, lengths, values. Reads both byte orders, writes little-endian.

use super::MAGIC;
use super::attribute::Class;
use super::dxattr::List;
use super::layout::{Layout, header_len, round8};
use crate::zap::flaw::{Checked, Flaw};
use std::ops::Range;

/// A u64 at an offset; 0 beyond the end.
pub(crate) fn u64_in(b: &[u8], at: usize, swapped: bool) -> u64 {
    let v = b
        .get(at..at + 8)
        .and_then(|s| s.try_into().ok())
        .map_or(0, u64::from_le_bytes);
    if swapped { v.swap_bytes() } else { v }
}

/// Byte order and header length; `None` for a buffer without attributes.
pub(crate) fn header_of(b: &[u8]) -> Checked<Option<(bool, usize)>> {
    Ok(parse_header(b)?.map(|h| (h.swapped, h.len)))
}

/// A buffer's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub swapped: bool,
    pub layout: u16,
    pub len: usize,
}

/// Reads the header; `None` for a buffer without attributes (magic 0, layout 0 or 1, or too short
/// to have one).
pub(crate) fn parse_header(b: &[u8]) -> Checked<Option<Header>> {
    let Some(head) = b.first_chunk::<8>() else {
        return Ok(None);
    };
    let magic = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let info = u16::from_le_bytes([head[4], head[5]]);
    let (swapped, info) = match magic {
        0 => return Ok(None),
        MAGIC => (false, info),
        m if m.swap_bytes() == MAGIC => (true, info.swap_bytes()),
        _ => return Err(Flaw("a buffer of system attributes without its magic")),
    };
    let layout = info & 0x3ff;
    if layout <= 1 {
        return Ok(None);
    }
    let len = usize::from(info >> 10) * 8;
    if len < 8 || len > b.len() {
        return Err(Flaw("a header of system attributes longer than its buffer"));
    }
    Ok(Some(Header {
        swapped,
        layout,
        len,
    }))
}

fn variable_len(b: &[u8], h: &Header, which: usize) -> usize {
    let at = 6 + 2 * which;
    let bytes = [
        b.get(at).copied().unwrap_or(0),
        b.get(at + 1).copied().unwrap_or(0),
    ];
    usize::from(if h.swapped {
        u16::from_be_bytes(bytes)
    } else {
        u16::from_le_bytes(bytes)
    })
}

/// The range of each attribute of a layout. Fails if the buffer is too short for it.
pub(crate) fn ranges(b: &[u8], h: &Header, layout: &Layout) -> Checked<Vec<Range<usize>>> {
    if h.len != header_len(layout.variable) {
        return Err(Flaw(
            "a header of system attributes that does not fit its layout",
        ));
    }
    let mut out = Vec::with_capacity(layout.attrs.len());
    let (mut at, mut which) = (h.len, 0);
    for info in &layout.attrs {
        let len = if info.len != 0 {
            usize::from(info.len)
        } else {
            which += 1;
            variable_len(b, h, which - 1)
        };
        let start = round8(at);
        at = start + len;
        if at > b.len() {
            return Err(Flaw("system attributes that run past their buffer"));
        }
        out.push(start..at);
    }
    Ok(out)
}

/// The range of one attribute, by its position in the layout; without allocating.
pub(crate) fn range_of(
    b: &[u8],
    h: &Header,
    layout: &Layout,
    position: usize,
) -> Checked<Range<usize>> {
    if h.len != header_len(layout.variable) {
        return Err(Flaw(
            "a header of system attributes that does not fit its layout",
        ));
    }
    let (mut at, mut which) = (h.len, 0);
    for (i, info) in layout.attrs.iter().enumerate() {
        let len = if info.len != 0 {
            usize::from(info.len)
        } else {
            which += 1;
            variable_len(b, h, which - 1)
        };
        let start = round8(at);
        at = start + len;
        if at > b.len() {
            break;
        }
        if i == position {
            return Ok(start..at);
        }
    }
    Err(Flaw("system attributes that run past their buffer"))
}

/// Converts a buffer of the other byte order to little-endian, in place.
pub(crate) fn swap(b: &mut [u8], h: &Header, layout: &Layout) -> Checked<()> {
    if !h.swapped {
        return Ok(());
    }
    let ranges = ranges(b, h, layout)?;
    b[..4].reverse();
    b[4..6].reverse();
    for pair in b[6..h.len].as_chunks_mut::<2>().0 {
        pair.reverse();
    }
    for (range, info) in ranges.into_iter().zip(&layout.attrs) {
        swap_value(&mut b[range], info.class);
    }
    Ok(())
}

fn swap_value(value: &mut [u8], class: Class) {
    match class {
        Class::U64 => value.chunks_exact_mut(8).for_each(<[u8]>::reverse),
        Class::U32 => value.chunks_exact_mut(4).for_each(<[u8]>::reverse),
        Class::U16 => value.chunks_exact_mut(2).for_each(<[u8]>::reverse),
        Class::Bytes => {}
        Class::Acl => swap_aces(value),
    }
}

/// Access control entries in the other order: mask, flags, type, then `who` if the entry has one.
fn swap_aces(mut aces: &mut [u8]) {
    while aces.len() >= 8 {
        aces[..2].reverse();
        aces[2..4].reverse();
        aces[4..8].reverse();
        let kind = u16::from_le_bytes([aces[0], aces[1]]);
        let flags = u16::from_le_bytes([aces[2], aces[3]]) & 0x7040;
        let size = match (kind, flags) {
            (5..=8, _) => 48,
            (0 | 1, 0x1000 | 0x2040 | 0x4000) => 8,
            _ => 16,
        };
        if size > 8 && aces.len() >= 16 {
            aces[8..16].reverse();
        }
        let step = size.min(aces.len());
        aces = &mut aces[step..];
    }
}

/// The spill block for a layout that consists of a list of extended attributes.
pub(crate) fn around(layout: &Layout, list: List) -> Vec<u8> {
    let len = list.len() as u16;
    let mut out = list.into_bytes();
    debug_assert_eq!(
        (layout.attrs.len(), header_len(layout.variable)),
        (1, List::LEAD)
    );
    out[..4].copy_from_slice(&MAGIC.to_le_bytes());
    let info = layout.number | ((List::LEAD / 8) as u16) << 10;
    out[4..6].copy_from_slice(&info.to_le_bytes());
    out[6..8].copy_from_slice(&len.to_le_bytes());
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

/// Builds a buffer with exactly `layout` and `values`, padded to at least `room` bytes and to whole
/// sectors.
pub(crate) fn build(layout: &Layout, values: &[&[u8]], room: usize) -> Vec<u8> {
    let header = header_len(layout.variable);
    let bytes = values.iter().map(|v| round8(v.len())).sum::<usize>();
    let mut out = Vec::with_capacity((header + bytes).next_multiple_of(512).max(room));
    out.resize(header, 0);
    out[..4].copy_from_slice(&MAGIC.to_le_bytes());
    let info = layout.number | ((header / 8) as u16) << 10;
    out[4..6].copy_from_slice(&info.to_le_bytes());
    let mut at = 6;
    for (info, value) in layout.attrs.iter().zip(values) {
        if info.len == 0 {
            out[at..at + 2].copy_from_slice(&(value.len() as u16).to_le_bytes());
            at += 2;
        }
        out.resize(round8(out.len()), 0);
        out.extend_from_slice(value);
    }
    out
}
