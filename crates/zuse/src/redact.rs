//! Redaction bookmarks: creating them, and finding the one that a stream was made with.

use std::sync::Arc;

use zuse_base::{Errno, Error, Result};
use zuse_dsl::{DatasetKind, ListedDataset};
use zuse_format::dsl::BookmarkPhys;

use crate::Pool;

impl Pool {
    /// Creates the redaction bookmark `pool/fs#book` of `snapshot`. It lists the blocks that all of
    /// `snaps` (later snapshots, and snapshots of clones) have changed or freed.
    ///
    /// # Errors
    /// `Refused`: NOENT, EXIST, NOTSUP without the pool feature, XDEV if one of `snaps` does not
    /// descend from `snapshot`.
    pub fn redact(&self, snapshot: &str, bookmark: &str, snaps: &[String]) -> Result<()> {
        zuse_stream::redact(self.dsl(), snapshot, bookmark, snaps)
    }

    /// The redaction bookmark of a dataset being sent, by its short or full name.
    pub(crate) fn redaction_bookmark(&self, to: &str, name: &str) -> Result<Arc<BookmarkPhys>> {
        let dataset = to.split('@').next().unwrap_or(to);
        let full = match name.split_once('#') {
            Some(("", own)) => format!("{dataset}#{own}"),
            Some(_) => name.to_owned(),
            None => format!("{dataset}#{name}"),
        };
        match self.dsl().entry(&full)?.bookmark {
            Some(mark) if mark.redaction_obj != 0 => Ok(mark),
            _ => Err(Error::refused(
                Errno::INVAL,
                "not a redaction bookmark".to_owned(),
            )),
        }
    }

    /// The redaction bookmark of a snapshot for exactly these redaction snapshots.
    pub(crate) fn redaction_bookmark_by(
        &self,
        to: &str,
        guid: u64,
        snaps: &[u64],
    ) -> Result<Option<String>> {
        let dataset = to.split('@').next().unwrap_or(to);
        for (own, mark) in self.dsl().bookmarks(dataset)? {
            if mark.guid == guid
                && let Ok(Some(list)) = self.dsl().redaction_list(&mark)
                && same(list.snapshots(), snaps)
            {
                return Ok(Some(format!("{dataset}#{own}")));
            }
        }
        Ok(None)
    }

    /// The guids in `redact_snaps`.
    pub(crate) fn redact_snaps(&self, entry: &ListedDataset) -> Result<Option<Vec<u64>>> {
        match (&entry.bookmark, entry.kind) {
            (Some(mark), _) => Ok(self
                .dsl()
                .redaction_list(mark)?
                .map(|list| list.snapshots().to_vec())),
            (None, DatasetKind::Bookmark) => Ok(None),
            (None, _) => self.dsl().redacted_by(entry.object),
        }
    }
}

fn same(a: &[u64], b: &[u64]) -> bool {
    a.len() == b.len() && a.iter().all(|guid| b.contains(guid))
}
