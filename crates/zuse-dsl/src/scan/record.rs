//! The scan state in the MOS directory: `scan`, and its progress (chapter 04b §3.1 of the format
//! notes).

use std::collections::BTreeMap;

use zuse_base::{Error, Result};
use zuse_pool::dedup::SharedAt;

/// Words of the array; pools with an old defect have one more before the flags.
const WORDS: usize = 24;
/// Objset of a bookmark that is in no dataset.
pub(crate) const NOWHERE: u64 = u64::MAX;
/// The bookmark's dataset lost its shared blocks to the next one, which is visited instead.
const VISIT_AGAIN: u64 = 1;
const PAUSED: u64 = 2;

/// The kind and purpose of the scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Function {
    /// Nothing yet.
    #[default]
    None,
    /// Every copy of every block is read.
    Scrub,
    /// Leaves are filled with the blocks they lack.
    Resilver,
    /// Blocks of the error log are read again.
    ErrorScrub,
}

impl Function {
    fn of(word: u64) -> Self {
        match word {
            1 => Self::Scrub,
            2 => Self::Resilver,
            3 => Self::ErrorScrub,
            _ => Self::None,
        }
    }

    /// Its number on disk.
    pub fn number(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Scrub => 1,
            Self::Resilver => 2,
            Self::ErrorScrub => 3,
        }
    }
}

/// The position to continue from: object and level-0 block of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bookmark {
    pub objset: u64,
    pub object: u64,
    pub level: u64,
    pub blkid: u64,
}

impl Bookmark {
    /// No dataset is in progress: the next one comes from the queue.
    pub const NOWHERE: Self = Self {
        objset: NOWHERE,
        object: 0,
        level: 0,
        blkid: 0,
    };
}

/// How far a scan is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub bookmark: Bookmark,
    /// Births visited in the current dataset: after the first, up to the second.
    pub cur_min: u64,
    pub cur_max: u64,
    /// The current dataset is visited once more, from `cur_max` on.
    pub again: bool,
    /// Datasets in the queue, with the txg after which their blocks are visited.
    pub queue: BTreeMap<u64, u64>,
    /// Progress in the dedup tables, which come first.
    pub tables: SharedAt,
}

impl Position {
    /// Whether nothing is left.
    pub fn is_end(&self) -> bool {
        self.bookmark.objset == NOWHERE && self.queue.is_empty()
    }

    /// A snapshot was taken: it has the head's blocks.
    pub fn snapshot_taken(&mut self, head: u64, new: u64) {
        if self.bookmark.objset == head {
            self.bookmark.objset = new;
        }
        // The head follows as the snapshot's successor, for its younger blocks.
        if let Some(min) = self.queue.remove(&head) {
            self.queue.insert(new, min);
        }
    }

    /// A snapshot was destroyed: the next dataset has the rest of its blocks.
    pub fn snapshot_destroyed(&mut self, gone: u64, next: u64) {
        if self.bookmark.objset == gone {
            self.bookmark.objset = next;
            self.again = true;
        }
        if let Some(min) = self.queue.remove(&gone) {
            let known = self.queue.entry(next).or_insert(min);
            // The earlier one covers what had to be visited in either.
            *known = min.min(*known);
        }
    }

    /// A head was destroyed, with its own blocks.
    pub fn head_destroyed(&mut self, gone: u64) {
        if self.bookmark.objset == gone {
            self.bookmark = Bookmark::NOWHERE;
            self.again = false;
        }
        self.queue.remove(&gone);
    }

    /// Two datasets swapped their content.
    pub fn swapped(&mut self, a: u64, b: u64) {
        if self.bookmark.objset == a {
            self.bookmark.objset = b;
        } else if self.bookmark.objset == b {
            self.bookmark.objset = a;
        }
        // Each min txg is that of a content, and follows it.
        let (of_a, of_b) = (self.queue.remove(&a), self.queue.remove(&b));
        self.queue.extend(of_a.map(|min| (b, min)));
        self.queue.extend(of_b.map(|min| (a, min)));
    }
}

/// The array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub function: Function,
    /// 0 none, 1 scanning, 2 finished, 3 canceled.
    pub state: u64,
    pub queue_object: u64,
    /// Blocks with births between the two are visited.
    pub min_txg: u64,
    pub max_txg: u64,
    pub start: u64,
    pub end: u64,
    pub to_examine: u64,
    pub examined: u64,
    pub skipped: u64,
    pub processed: u64,
    pub errors: u64,
    /// Blocks in dedup tables up to this class were verified before the trees are walked, where
    /// they are skipped.
    pub ddt_class_max: u64,
    pub paused: bool,
}

/// States.
pub(crate) const SCANNING: u64 = 1;
pub(crate) const FINISHED: u64 = 2;
pub(crate) const CANCELED: u64 = 3;

impl Record {
    /// Reads the array; the queue is not in it.
    pub fn parse(words: &[u64]) -> Result<(Self, Position)> {
        let flags_at = match words.len() {
            WORDS => WORDS - 1,
            // An old defect put a word of junk before the flags (errata 2094, 04b-dedup-brt-scan).
            25 => WORDS,
            n => {
                let what = format!("{n} numbers");
                return Err(Error::corrupt("the MOS directory's entry scan", what));
            }
        };
        let at = |i: usize| words.get(i).copied().unwrap_or(0);
        let flags = at(flags_at);
        let record = Self {
            function: Function::of(at(0)),
            state: at(1),
            queue_object: at(2),
            min_txg: at(3),
            max_txg: at(4),
            start: at(7),
            end: at(8),
            to_examine: at(9),
            examined: at(10),
            skipped: at(11),
            processed: at(12),
            errors: at(13),
            ddt_class_max: at(14),
            paused: flags & PAUSED != 0,
        };
        let position = Position {
            bookmark: Bookmark {
                objset: at(19),
                object: at(20),
                level: at(21),
                blkid: at(22),
            },
            cur_min: at(5),
            cur_max: at(6),
            again: flags & VISIT_AGAIN != 0,
            queue: BTreeMap::new(),
            tables: SharedAt::stored(at(15), at(17), at(18)),
        };
        Ok((record, position))
    }

    /// The array as it is stored.
    pub fn words(&self, position: &Position) -> Vec<u64> {
        let flags = if position.again { VISIT_AGAIN } else { 0 };
        let flags = flags | if self.paused { PAUSED } else { 0 };
        let Bookmark {
            objset,
            object,
            level,
            blkid,
        } = position.bookmark;
        let tables = position.tables;
        vec![
            self.function.number(),
            self.state,
            self.queue_object,
            self.min_txg,
            self.max_txg,
            position.cur_min,
            position.cur_max,
            self.start,
            self.end,
            self.to_examine,
            self.examined,
            self.skipped,
            self.processed,
            self.errors,
            self.ddt_class_max,
            tables.class,
            // There is one type of stores.
            0,
            u64::from(tables.checksum),
            tables.position,
            objset,
            object,
            level,
            blkid,
            flags,
        ]
    }

    /// Whether a scan is going on, or pauses.
    pub fn is_scanning(&self) -> bool {
        self.state == SCANNING
    }

    /// Whether blocks with that birth are visited.
    pub fn wants(&self, birth: u64) -> bool {
        self.min_txg < birth && birth < self.max_txg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(objset: u64, queue: &[(u64, u64)]) -> Position {
        Position {
            bookmark: Bookmark {
                objset,
                object: 7,
                level: 0,
                blkid: 9,
            },
            cur_min: 3,
            cur_max: 8,
            again: false,
            queue: queue.iter().copied().collect(),
            tables: SharedAt::END,
        }
    }

    #[test]
    fn a_finished_scrub_of_openzfs_is_read_and_written_as_it_was() {
        // Chapter 04b §8.4.
        let words = [
            1,
            2,
            0,
            0,
            12,
            1,
            12,
            1_795_288_965,
            1_795_288_966,
            274_432,
            274_432,
            135_168,
            0,
            0,
            1,
            3,
            0,
            0,
            0,
            NOWHERE,
            0,
            0,
            0,
            0,
        ];
        let (record, position) = Record::parse(&words).unwrap();
        assert_eq!(record.function, Function::Scrub);
        assert!(!record.is_scanning() && position.is_end());
        assert_eq!(record.words(&position), words);
        let mut junk = words.to_vec();
        junk.insert(23, 77);
        junk[24] = PAUSED;
        assert!(Record::parse(&junk).unwrap().0.paused, "errata 2094");
        assert!(Record::parse(&words[..20]).is_err());
    }

    #[test]
    fn what_happens_to_datasets_happens_to_where_a_scan_is() {
        let mut p = at(54, &[(60, 5)]);
        p.snapshot_taken(54, 70);
        p.snapshot_taken(60, 71);
        assert_eq!(p, at(70, &[(71, 5)]));
        p.snapshot_destroyed(70, 80);
        p.snapshot_destroyed(71, 80);
        let again = Position {
            again: true,
            ..at(80, &[(80, 5)])
        };
        assert_eq!(p, again);
        p.head_destroyed(80);
        assert!(p.is_end() && !p.again);
    }

    #[test]
    fn datasets_that_exchange_their_content_exchange_their_turns() {
        let mut p = at(1, &[(2, 5)]);
        p.swapped(1, 2);
        assert_eq!(p, at(2, &[(1, 5)]));
        let mut p = at(9, &[(1, 5), (2, 6)]);
        p.swapped(1, 2);
        // What was written between the two txgs is in one content only.
        assert_eq!(p, at(9, &[(1, 6), (2, 5)]));
        p.swapped(1, 3);
        assert_eq!(p, at(9, &[(2, 5), (3, 6)]));
    }
}
