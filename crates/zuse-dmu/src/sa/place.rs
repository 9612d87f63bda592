//! Which attributes stay in the bonus and which go to the spill block.
//!
//! The rule has to be followed byte for byte, because other implementations check it and depend on
//! it. See chapter 03b, section 3.2, of the format notes.

use super::layout::round8;

/// The placement of a set of attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// How many attributes stay in the bonus; all if there is no spill.
    pub in_bonus: usize,
    /// Whether the rest needs a spill block.
    pub spills: bool,
    /// Bytes of the bonus in use.
    pub bonus_len: usize,
}

/// Places attributes of these `(length, is variable)` in a bonus of `capacity` bytes.
pub(crate) fn place(attrs: &[(usize, bool)], capacity: usize) -> Placement {
    const SPILL_POINTER: usize = 128;
    let spill_room = capacity.saturating_sub(SPILL_POINTER);
    let (mut total, mut header, mut variable, mut extra) = (0usize, 8usize, 0usize, 0usize);
    let mut first_out = None;
    let mut spills = false;
    for (i, &(len, is_variable)) in attrs.iter().enumerate() {
        total = round8(total) + len;
        if spills {
            continue;
        }
        variable += usize::from(is_variable);
        let longer = is_variable && variable > 1;
        let tried = header + if longer { 2 } else { 0 };
        // Should a spill become necessary, its pointer takes room here.
        let might = first_out.is_none() && total + round8(tried) > spill_room;
        if longer {
            if tried + total < capacity {
                header = tried;
                if first_out.is_some() || might {
                    extra += 2;
                }
            } else {
                first_out = first_out.or(Some(i));
                spills = true;
                continue;
            }
        }
        if might {
            first_out = Some(i);
        }
        if total + round8(header) > capacity {
            spills = true;
        }
    }
    if spills {
        // Lengths of the attributes that move to the spill.
        header -= extra;
    }
    let header = round8(header);
    if spills {
        let in_bonus = first_out.unwrap_or(0);
        Placement {
            in_bonus,
            spills,
            bonus_len: spill_room.min(total + header),
        }
    } else {
        Placement {
            in_bonus: attrs.len(),
            spills,
            bonus_len: total + header,
        }
    }
}
