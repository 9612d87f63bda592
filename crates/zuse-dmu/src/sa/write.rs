//! Changing the attributes of one object.
//!
//! Values of unchanged length are overwritten in place. A first list of extended attributes, or
//! their directory, is appended in place. Such a list may go unchanged into a spill block of its
//! own. Everything else rewrites the whole set: bonus attributes in order, then those of the spill.
//! A replaced attribute keeps its position, an added one comes last. The caller serialises changes
//! of one object.

use super::attribute::Attr;
use super::buffer;
use super::dxattr::List;
use super::layout::{header_len, round8};
use super::place::place;
use super::table::{ADDED, SaTable, Tables};
use super::view::{corrupt, find_in, legacy_range};
use super::{SA_BONUS, ZNODE_BONUS};
use crate::bonus::Bonus;
use crate::dnode::Dnode;
use crate::tx::Tx;
use crate::zap::flaw::{Checked, Flaw};
use std::ops::Range;
use std::sync::Arc;
use zuse_base::{Errno, Error, Result};

/// All attributes of one object together.
const MAX_SET: usize = 131_072;
const MAX_SPILL: usize = 131_072;

impl SaTable {
    /// Sets the attributes of a new object (bonus type 44), in canonical order whatever the order
    /// here.
    ///
    /// # Errors
    /// A value of the wrong length; no room for the attribute tables.
    pub fn init(&self, tx: &Tx, dnode: &Dnode, attrs: &[(Attr, &[u8])]) -> Result<()> {
        let tables = self.ready(tx)?;
        let mut sorted: Vec<&(Attr, &[u8])> = attrs.iter().collect();
        sorted.sort_by_key(|(attr, _)| attr.rank());
        let set: Result<Vec<_>> = sorted
            .into_iter()
            .map(|(attr, v)| Ok((number(&tables, *attr)?, *v)))
            .collect();
        self.write_set(tx, dnode, &set?, 0)
    }

    /// Sets attributes: in place if all are in the bonus with these lengths, otherwise the set is
    /// rewritten. New ones are appended. A new project id moves the set into canonical order.
    ///
    /// # Errors
    /// A value of the wrong length; `NOTSUP` for an attribute that a legacy znode cannot hold.
    pub fn update(&self, tx: &Tx, dnode: &Arc<Dnode>, changes: &[(Attr, &[u8])]) -> Result<()> {
        self.change(tx, dnode, changes, false).map(|_| ())
    }

    /// As [`Self::update`], with a list of extended attributes, which is not among the changes.
    ///
    /// # Errors
    /// Those of [`Self::update`]; `NOSPC` and `FBIG` if there is no room for the list.
    pub fn update_listed(
        &self,
        tx: &Tx,
        dnode: &Arc<Dnode>,
        changes: &[(Attr, &[u8])],
        list: List,
    ) -> Result<()> {
        let mut all = Vec::with_capacity(changes.len() + 1);
        all.extend_from_slice(changes);
        all.push((Attr::Dxattr, &*list));
        // If the layout of a lone list is in the table, the spill block needs nothing else. That is
        // known before any change.
        let tables = self.tables();
        let layout = tables.known[Attr::Dxattr as usize].and_then(|n| tables.find(&[n]));
        let is_left = self.change(tx, dnode, &all, layout.is_some())?;
        match layout {
            Some(layout) if is_left => dnode.set_spill(tx, Some(buffer::around(layout, list))),
            _ => Ok(()),
        }
    }

    /// With `may_spill` a list of extended attributes, the last of the changes, may be left to the
    /// caller. The result is true if the list belongs alone in a new spill block.
    fn change(
        &self,
        tx: &Tx,
        dnode: &Arc<Dnode>,
        changes: &[(Attr, &[u8])],
        may_spill: bool,
    ) -> Result<bool> {
        let tables = self.tables();
        let bonus_type = dnode.bonus_type();
        // An added attribute comes last, which is in the spill block if there is one.
        let may_add = bonus_type == SA_BONUS
            && changes.last().is_some_and(|(attr, _)| ADDED.contains(attr))
            && !dnode.has_spill();
        let done = dnode.dirty_bonus(tx, |head| match bonus_type {
            SA_BONUS => {
                let room = head.room(false);
                let b = &mut head.bonus;
                if overwrite(b, &tables, changes)? {
                    return Ok(Done::All);
                }
                if may_add {
                    return add_last(b, &tables, changes, room, may_spill);
                }
                Ok(Done::Nothing)
            }
            ZNODE_BONUS if overwrite_legacy(&mut head.bonus, changes) => Ok(Done::All),
            _ => Ok(Done::Nothing),
        })?;
        match done.map_err(|flaw| corrupt(dnode, flaw))? {
            Done::All => return Ok(false),
            Done::AllButList => return Ok(true),
            Done::Nothing => {}
        }
        if bonus_type != SA_BONUS {
            return Err(Error::refused(
                Errno::NOTSUP,
                "an old file without system attributes cannot hold this attribute",
            ));
        }
        let tables = self.ready(tx)?;
        let view = self.view(dnode)?;
        let mut set = view.all()?;
        let mut reorder = false;
        for (attr, value) in changes {
            let number = number(&tables, *attr)?;
            match set.iter_mut().find(|(n, _)| *n == number) {
                Some((_, there)) => *there = value,
                None => {
                    reorder |= *attr == Attr::Projid;
                    set.push((number, value));
                }
            }
        }
        if reorder {
            set.sort_by_key(|(n, _)| {
                Attr::ALL
                    .into_iter()
                    .find(|a| tables.known[*a as usize] == Some(*n))
                    .map_or(u8::MAX, Attr::rank)
            });
        }
        self.write_set(tx, dnode, &set, view.spill_len()?)?;
        Ok(false)
    }

    /// Removes an attribute; returns whether it was there.
    ///
    /// # Errors
    /// `NOTSUP` for a legacy znode.
    pub fn remove(&self, tx: &Tx, dnode: &Arc<Dnode>, attr: Attr) -> Result<bool> {
        let view = self.view(dnode)?;
        if view.get(attr)?.is_none() {
            return Ok(false);
        }
        if view.is_legacy() {
            return Err(Error::refused(
                Errno::NOTSUP,
                "an old file keeps all its attributes",
            ));
        }
        let tables = self.ready(tx)?;
        let number = number(&tables, attr)?;
        let mut set = view.all()?;
        set.retain(|(n, _)| *n != number);
        self.write_set(tx, dnode, &set, view.spill_len()?)?;
        Ok(true)
    }

    /// Writes a whole set, in this order. The spill block has `old` bytes and never shrinks while
    /// it exists.
    fn write_set(&self, tx: &Tx, dnode: &Dnode, set: &[(u16, &[u8])], old: usize) -> Result<()> {
        let tables = self.tables();
        let mut lengths = Vec::with_capacity(set.len());
        for (number, value) in set {
            let info = tables
                .info(*number)
                .ok_or_else(|| corrupt(dnode, Flaw("an attribute that is not registered")))?;
            let fits = if info.len == 0 {
                u16::try_from(value.len()).is_ok()
            } else {
                value.len() == usize::from(info.len)
            };
            if !fits {
                let errno = if info.len == 0 {
                    Errno::FBIG
                } else {
                    Errno::INVAL
                };
                return Err(Error::refused(
                    errno,
                    format!("{} bytes for a system attribute", value.len()),
                ));
            }
            lengths.push((value.len(), info.len == 0));
        }
        if lengths.iter().map(|(len, _)| len).sum::<usize>() > MAX_SET {
            return Err(Error::refused(
                Errno::FBIG,
                "the system attributes of one object",
            ));
        }
        let placement = place(&lengths, dnode.bonus_capacity());
        let (inside, outside) = set.split_at(placement.in_bonus.min(set.len()));
        let mut bonus = self.build(tx, inside, 0)?;
        if !placement.spills {
            debug_assert_eq!(bonus.len(), placement.bonus_len);
            if dnode.has_spill() {
                // First, because a longer bonus may take the place of the spill pointer.
                dnode.set_spill(tx, None)?;
            }
            return dnode.set_bonus(tx, &bonus);
        }
        let mut spill = self.build(tx, outside, old)?;
        bonus.resize(placement.bonus_len, 0);
        let size = spill.len().next_multiple_of(512).max(512).max(old);
        if size > MAX_SPILL {
            return Err(Error::refused(Errno::FBIG, "the spill block of an object"));
        }
        spill.resize(size, 0);
        // First, because the bonus must leave room for the spill pointer.
        dnode.set_bonus(tx, &bonus)?;
        dnode.set_spill(tx, Some(spill))
    }

    fn build(&self, tx: &Tx, set: &[(u16, &[u8])], room: usize) -> Result<Vec<u8>> {
        let sequence: Vec<u16> = set.iter().map(|(n, _)| *n).collect();
        let values: Vec<&[u8]> = set.iter().map(|(_, v)| *v).collect();
        if sequence.is_empty() {
            return match self.tables().layout(1) {
                Some(empty) => Ok(buffer::build(empty, &[], room)),
                None => Ok(Vec::new()),
            };
        }
        Ok(buffer::build(
            &*self.layout_for(tx, &sequence)?,
            &values,
            room,
        ))
    }
}

fn number(tables: &Tables, attr: Attr) -> Result<u16> {
    tables.known[attr as usize]
        .ok_or_else(|| Error::refused(Errno::INVAL, format!("{} is not registered", attr.name())))
}

/// Overwrites values of unchanged length. Returns `false` if one has another length; at most the
/// byte order has changed then.
pub(crate) fn overwrite(b: &mut [u8], tables: &Tables, changes: &[(Attr, &[u8])]) -> Checked<bool> {
    let Some(mut header) = buffer::parse_header(b)? else {
        return Ok(false);
    };
    let layout = tables
        .layout(header.layout)
        .ok_or(Flaw("a layout of attributes that is not in the table"))?;
    if header.swapped {
        buffer::swap(b, &header, layout)?;
        header.swapped = false;
    }
    let find = |b: &[u8], attr: Attr, value: &[u8]| -> Checked<Option<Range<usize>>> {
        Ok(find_in(b, &header, layout, attr)?.filter(|r| r.len() == value.len()))
    };
    // All are found before the first is written, so the set changes as a whole.
    for (attr, value) in changes {
        if find(b, *attr, value)?.is_none() {
            return Ok(false);
        }
    }
    for (attr, value) in changes {
        if let Some(range) = find(b, *attr, value)? {
            b[range].copy_from_slice(value);
        }
    }
    Ok(true)
}

/// How much of a change was done in place.
enum Done {
    Nothing,
    All,
    /// Everything except the list of extended attributes, which belongs alone in a spill block.
    AllButList,
}

/// Appends the last of the changes, one of [`ADDED`], and overwrites the other values. If `room` is
/// too small only for a list of extended attributes, the list is left out with `may_spill`. Nothing
/// is changed if the change needs more than that.
fn add_last(
    b: &mut Bonus,
    tables: &Tables,
    changes: &[(Attr, &[u8])],
    room: usize,
    may_spill: bool,
) -> Checked<Done> {
    let (Some(((attr, value), others)), Some(header)) =
        (changes.split_last(), buffer::parse_header(b)?)
    else {
        return Ok(Done::Nothing);
    };
    let Some(layout) = tables.layout(header.layout) else {
        return Ok(Done::Nothing);
    };
    let (is_variable, fits) = match attr.len() {
        0 => (true, u16::try_from(value.len()).is_ok()),
        len => (false, value.len() == usize::from(len)),
    };
    if header.swapped || !fits || layout.position(*attr).is_some() {
        return Ok(Done::Nothing);
    }
    let ranges = buffer::ranges(b, &header, layout)?;
    for (attr, value) in others {
        if find_in(b, &header, layout, *attr)?.is_none_or(|r| r.len() != value.len()) {
            return Ok(Done::Nothing);
        }
    }
    let Some(last) = ranges.last() else {
        return Ok(Done::Nothing);
    };
    let mut lengths = Vec::with_capacity(layout.attrs.len() + 1);
    lengths.extend(
        (ranges.iter().zip(&layout.attrs)).map(|(range, info)| (range.len(), info.len == 0)),
    );
    lengths.push((value.len(), is_variable));
    let placement = place(&lengths, room);
    if placement.spills {
        if !may_spill || placement.in_bonus != ranges.len() || placement.bonus_len < last.end {
            return Ok(Done::Nothing);
        }
        b.truncate(last.end);
        b.resize(placement.bonus_len);
        overwrite(b, tables, others)?;
        return Ok(Done::AllButList);
    }
    // Such a layout may be missing, in a file system that has only had long lists.
    let Some(longer) = tables.longer(header.layout, *attr) else {
        return Ok(Done::Nothing);
    };
    let new = header_len(longer.variable);
    b.truncate(last.end);
    b.reserve_for(placement.bonus_len);
    b.insert_zeros(header.len, new - header.len);
    b.resize(round8(b.len()));
    b.extend_from_slice(value);
    let info = longer.number | ((new / 8) as u16) << 10;
    b[4..6].copy_from_slice(&info.to_le_bytes());
    if is_variable {
        let at = 6 + 2 * layout.variable;
        b[at..at + 2].copy_from_slice(&(value.len() as u16).to_le_bytes());
    }
    debug_assert_eq!(b.len(), placement.bonus_len);
    overwrite(b, tables, others)?;
    Ok(Done::All)
}

fn overwrite_legacy(b: &mut [u8], changes: &[(Attr, &[u8])]) -> bool {
    let fits = |b: &[u8], attr: Attr, value: &[u8]| {
        legacy_range(b, attr).filter(|r| r.len() == value.len() && r.end <= b.len())
    };
    if changes
        .iter()
        .any(|(attr, value)| fits(b, *attr, value).is_none())
    {
        return false;
    }
    for (attr, value) in changes {
        if let Some(range) = fits(b, *attr, value) {
            b[range].copy_from_slice(value);
        }
    }
    true
}
