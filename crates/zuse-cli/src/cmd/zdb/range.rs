//! Ranges of requested objects: `N`, or `FIRST:LAST[:FLAGS]`.

use std::sync::Arc;

use zuse::ObjectId;
use zuse::tools::Objset;
use zuse_format::object_type as t;

use super::Style;
use super::object::{Table, is_zap};
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::session::Session;

/// Kinds of objects, one bit each.
const DIRECTORIES: u8 = 1;
const FILES: u8 = 2;
const MAPS: u8 = 4;
const ZAPS: u8 = 8;
const OTHERS: u8 = 16;
const ALL: u8 = 31;

/// Objects of a range of numbers, of some kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    first: i64,
    last: i64,
    kinds: u8,
    lone: bool,
}

fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(|n| n as i64),
        None => text.parse().ok(),
    }
}

impl Range {
    /// Reads it.
    ///
    /// # Errors
    /// The text is neither a number nor a range.
    pub fn parse(text: &str) -> Result<Self, Stop> {
        let bad = |why: &str| {
            Stop::from(CommandError::new(format!(
                "zdb: Bad object or range: '{text}': {why}"
            )))
        };
        let mut parts = text.splitn(3, ':');
        let first = parts.next().and_then(number);
        let first = first.ok_or_else(|| bad("Invalid characters in object ID"))?;
        let Some(last) = parts.next() else {
            return Ok(Self {
                first,
                last: first,
                kinds: ALL,
                lone: true,
            });
        };
        let last = number(last).ok_or_else(|| bad("Invalid characters in end object ID"))?;
        let last = if last == -1 { i64::MAX } else { last };
        if first > last {
            return Err(bad("Start object ID may not exceed end object ID"));
        }
        let kinds = match parts.next() {
            None => ALL,
            Some(flags) => kinds(flags).ok_or_else(|| bad("Invalid flag"))?,
        };
        Ok(Self {
            first,
            last,
            kinds,
            lone: false,
        })
    }

    /// Prints the objects.
    ///
    /// # Errors
    /// A number that was named does not exist.
    pub fn print(
        &self,
        session: &mut Session,
        objset: &Arc<Objset>,
        table: &mut Table,
        style: Style,
    ) -> Outcome {
        if self.lone {
            return self.print_one(session, objset, table, style);
        }
        let cannot = || format!("cannot read the objects of {}", objset.place());
        let mut at = ObjectId(u64::try_from(self.first.saturating_sub(1)).unwrap_or(0));
        if self.first <= 0 && self.kinds == ALL {
            table.print(session, 0, objset.meta(), style)?;
        }
        while let Some(object) = objset.next_object(at).or_cannot(cannot)? {
            if object.0 > self.last as u64 {
                break;
            }
            at = object;
            let dnode = objset.dnode(object).or_cannot(cannot)?;
            if kind_of(dnode.object_type()) & self.kinds != 0 {
                table.print(session, object.0 as i64, &dnode, style)?;
            }
        }
        Ok(())
    }

    fn print_one(
        &self,
        session: &mut Session,
        objset: &Arc<Objset>,
        table: &mut Table,
        style: Style,
    ) -> Outcome {
        let missing = || Stop::from(CommandError::new("zdb: dmu_object_info() failed, errno 2"));
        let dnode = match self.first {
            0 => objset.meta().clone(),
            n @ -3..0 => objset
                .accounting_object((-1 - n) as usize)
                .ok_or_else(missing)?,
            n => objset.dnode(ObjectId(n as u64)).map_err(|_| missing())?,
        };
        table.print(session, self.first, &dnode, style)
    }
}

fn kinds(flags: &str) -> Option<u8> {
    let (mut kinds, mut negated) = (0u8, false);
    let mut only_negated = true;
    for c in flags.chars() {
        let bit = match c {
            '-' => {
                negated = true;
                continue;
            }
            'A' => ALL,
            'd' => DIRECTORIES,
            'f' => FILES,
            'm' => MAPS,
            'z' => ZAPS,
            _ => return None,
        };
        if negated {
            if kinds == 0 && only_negated {
                kinds = ALL;
            }
            kinds &= !bit;
        } else {
            only_negated = false;
            kinds |= bit;
        }
        negated = false;
    }
    Some(kinds)
}

fn kind_of(object_type: u8) -> u8 {
    match object_type {
        t::DIRECTORY_CONTENTS => DIRECTORIES,
        t::PLAIN_FILE_CONTENTS => FILES,
        t::SPACE_MAP => MAPS,
        other if is_zap(other) => ZAPS,
        _ => OTHERS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_an_end_and_kinds() {
        let all = Range::parse("5").unwrap();
        assert_eq!((all.first, all.last, all.lone), (5, 5, true));
        let open = Range::parse("34:-1:d").unwrap();
        assert_eq!((open.first, open.last), (34, i64::MAX));
        assert_eq!(open.kinds, DIRECTORIES);
        assert_eq!(Range::parse("0:9:A-z").unwrap().kinds, ALL & !ZAPS);
        assert_eq!(Range::parse("0:9:-f").unwrap().kinds, ALL & !FILES);
        assert!(Range::parse("9:3").is_err());
        assert!(Range::parse("x").is_err());
        assert!(Range::parse("1:2:q").is_err());
    }
}
