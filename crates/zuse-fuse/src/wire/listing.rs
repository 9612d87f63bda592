//! Directory listings, encoded directly in the buffer of the answer.

use std::time::Duration;

use super::abi;
use super::message::Out;
use crate::{Attr, Attributes, DirSink};

/// The bytes of a READDIR or READDIRPLUS.
pub(super) struct Listing<'a> {
    out: &'a mut Out,
    limit: usize,
    /// How long names and attributes stay valid; `None` for a plain listing.
    ttls: Option<(Duration, Duration)>,
    /// What of them is wanted.
    attributes: Attributes,
}

impl<'a> Listing<'a> {
    /// An empty listing of at most `limit` bytes.
    pub(super) fn new(
        out: &'a mut Out,
        limit: usize,
        ttls: Option<(Duration, Duration)>,
        attributes: Attributes,
    ) -> Self {
        out.0.clear();
        Self {
            out,
            limit,
            ttls,
            attributes,
        }
    }
}

impl DirSink for Listing<'_> {
    fn attributes(&self) -> Attributes {
        self.attributes
    }

    fn room(&self) -> usize {
        self.limit.saturating_sub(self.out.0.len())
    }

    fn add(&mut self, ino: u64, next: u64, mode: u32, name: &[u8], attr: Option<&Attr>) -> bool {
        let fixed = abi::DIRENT
            + if self.ttls.is_some() {
                abi::ENTRY_OUT
            } else {
                0
            };
        let len = (fixed + name.len()).next_multiple_of(8);
        let Ok(name_len) = u32::try_from(name.len()) else {
            return false;
        };
        if self.out.0.len() + len > self.limit {
            return true;
        }
        match (self.ttls, attr) {
            (Some((entry_ttl, attr_ttl)), Some(attr)) => {
                self.out.entry(ino, attr, entry_ttl, attr_ttl);
            }
            // Without a node number the kernel uses number and type, and looks up when it needs
            // more.
            (Some(_), None) => self.out.zeros(abi::ENTRY_OUT),
            (None, _) => {}
        }
        self.out.u64(ino);
        self.out.u64(next);
        self.out.u32(name_len);
        self.out.u32((mode & 0o170_000) >> 12);
        self.out.0.extend_from_slice(name);
        self.out.zeros(len - fixed - name.len());
        false
    }
}
