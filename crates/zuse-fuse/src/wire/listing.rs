//! Listings of directories, written straight into fuser's replies.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use super::convert::{wire_attr, wire_type};
use crate::{Attr, DirSink, MountOptions};

/// A listing of names and types.
pub(super) struct Names(pub(super) ReplyDirectory);

impl DirSink for Names {
    fn plus(&self) -> bool {
        false
    }

    fn add(&mut self, ino: u64, next: u64, mode: u32, name: &[u8], _attr: Option<&Attr>) -> bool {
        self.0
            .add(INodeNo(ino), next, wire_type(mode), OsStr::from_bytes(name))
    }
}

/// A listing that brings attributes along.
pub(super) struct Entries<'a> {
    pub(super) reply: ReplyDirectoryPlus,
    pub(super) options: &'a MountOptions,
}

impl DirSink for Entries<'_> {
    fn plus(&self) -> bool {
        true
    }

    fn add(&mut self, ino: u64, next: u64, mode: u32, name: &[u8], attr: Option<&Attr>) -> bool {
        let (attr, ttl) = match attr {
            Some(attr) => (*attr, self.options.attr_ttl.min(self.options.entry_ttl)),
            // Number and type only: valid for no time, so the kernel looks the name up before it uses it.
            None => {
                let known = Attr {
                    ino,
                    mode,
                    ..Attr::default()
                };
                (known, Duration::ZERO)
            }
        };
        let name = OsStr::from_bytes(name);
        self.reply.add(
            INodeNo(ino),
            next,
            name,
            &ttl,
            &wire_attr(&attr),
            Generation(attr.generation),
        )
    }
}
