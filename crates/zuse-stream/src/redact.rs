//! Redaction: finding the blocks that a redacted stream leaves out, and looking them up in stream
//! order.
//!
//! ```text
//!   redaction snapshot 1 ─ walk from S ─► what it changed or freed ─┐
//!   redaction snapshot 2 ─ walk from S ─► …                        ─┼─ all of them? ─► list of the bookmark
//!   S ─ walk ─► its blocks of files and volumes ────────────────────┘
//! ```
//! Every walk returns its ranges by object and offset, so they are compared on the way: memory is
//! bounded by the queues.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use zuse_base::{Error, Result};
use zuse_dsl::{Dsl, REDACTION_PIECE, RedactedBlocks, RedactionList};
use zuse_format::object_type::{PLAIN_FILE_CONTENTS, ZVOL};

use crate::send::walk::{Event, Step};
use crate::send::{Send, SendOptions};

/// Ranges that are passed at a time.
const BATCH: usize = 1024;

/// A place in an object set: object, offset.
type At = (u64, u64);

/// A list that is searched in stream order.
pub(crate) struct Cover {
    list: RedactionList,
    /// Entries that were read ahead, the next one first.
    ready: std::collections::VecDeque<RedactedBlocks>,
    read: u64,
}

impl Cover {
    pub fn new(list: RedactionList) -> Self {
        Self {
            list,
            ready: Default::default(),
            read: 0,
        }
    }

    /// The first range that ends after a place.
    fn first_behind(&mut self, at: At) -> Result<Option<(At, At)>> {
        loop {
            if self.ready.is_empty() {
                let more = self.list.read(self.read)?;
                if more.is_empty() {
                    return Ok(None);
                }
                self.read += more.len() as u64;
                self.ready = more.into();
            }
            if let Some(b) = self.ready.front() {
                let (from, to) = (b.first * b.size, (b.first + b.count) * b.size);
                if (b.object, to) > at {
                    return Ok(Some(((b.object, from), (b.object, to))));
                }
                self.ready.pop_front();
            }
        }
    }

    /// Whether a block is on the list.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn covers(&mut self, object: u64, offset: u64, size: u64) -> Result<bool> {
        let range = self.first_behind((object, offset))?;
        Ok(range.is_some_and(|(from, to)| {
            from <= (object, offset) && to >= (object, offset.saturating_add(size))
        }))
    }

    /// Whether anything between two places is on the list.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn meets(&mut self, from: At, to: At) -> Result<bool> {
        Ok(self
            .first_behind(from)?
            .is_some_and(|(start, _)| start < to))
    }
}

/// The changes of a redaction snapshot, in order.
struct Changes {
    queue: Receiver<Result<Vec<(At, At)>>>,
    ready: std::collections::VecDeque<(At, At)>,
}

impl Changes {
    fn first_behind(&mut self, at: At) -> Result<Option<(At, At)>> {
        loop {
            while let Some(range) = self.ready.front() {
                if range.1 > at {
                    return Ok(Some(*range));
                }
                self.ready.pop_front();
            }
            match self.queue.recv() {
                Ok(more) => self.ready = more?.into(),
                Err(_) => return Ok(None),
            }
        }
    }

    fn cover(&mut self, from: At, to: At) -> Result<bool> {
        let mut at = from;
        while at < to {
            match self.first_behind(at)? {
                Some((start, end)) if start <= at => at = end,
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Sorts the events of a walk into ranges: the free tail of an object comes before its blocks.
#[derive(Default)]
struct Ranges {
    tail: Option<(At, At)>,
    out: Vec<(At, At)>,
}

impl Ranges {
    fn push(&mut self, event: &Event) {
        let range = match event {
            Event::FreeObjects { first, count } => ((*first, 0), (first.saturating_add(*count), 0)),
            Event::Free {
                object,
                offset,
                length: u64::MAX,
            } => {
                self.end_object();
                self.tail = Some(((*object, *offset), (object.saturating_add(1), 0)));
                return;
            }
            Event::Free {
                object,
                offset,
                length,
            }
            | Event::Redact {
                object,
                offset,
                length,
            } => (
                (*object, *offset),
                (*object, offset.saturating_add(*length)),
            ),
            Event::Data {
                object, offset, bp, ..
            } => (
                (*object, *offset),
                (*object, offset.saturating_add(bp.lsize())),
            ),
            Event::Object(..) | Event::Range { .. } | Event::Spill { .. } => return,
        };
        match self.tail {
            // The free tail covers it already.
            Some((from, to)) if range.0 >= from && range.0 < to => {}
            Some((_, to)) if range.0 >= to => {
                self.end_object();
                self.out.push(range);
            }
            _ => self.out.push(range),
        }
    }

    fn end_object(&mut self) {
        self.out.extend(self.tail.take());
    }
}

/// Creates a redaction bookmark (`pool/fs#book`) of a snapshot. It lists the blocks of files and
/// volumes that every one of the redaction snapshots has changed or freed.
///
/// # Errors
/// `Refused`: NOENT, EXIST, NOTSUP without the feature, XDEV if a redaction snapshot does not
/// descend from the snapshot; metadata cannot be read. The bookmark is gone then.
pub fn redact(dsl: &Arc<Dsl>, snapshot: &str, bookmark: &str, snaps: &[String]) -> Result<()> {
    let options = SendOptions {
        large_blocks: true,
        ..SendOptions::default()
    };
    let source = dsl.dataset(snapshot)?;
    let whole = Send::new(&source, snapshot, None, options)?;
    let mut walks = Vec::new();
    let mut guids = Vec::new();
    for name in snaps {
        let dataset = dsl.dataset(name)?;
        let from = dsl.send_source(&dataset, snapshot)?;
        guids.push(dataset.guid()?);
        walks.push(Send::new(&dataset, name, Some(&from), options)?);
    }
    // The list counts as incomplete until its last piece: after a crash no send uses it.
    let object = dsl.begin_redaction(snapshot, bookmark, &guids)?;
    let done = write_list(dsl, object, &whole, &walks);
    if done.is_err() {
        let _ = dsl.destroy_bookmark(bookmark);
    }
    done
}

fn write_list(dsl: &Arc<Dsl>, object: u64, whole: &Send, walks: &[Send]) -> Result<()> {
    std::thread::scope(|scope| {
        let mut changes: Vec<Changes> = Vec::new();
        for walk in walks {
            let (give, queue) = sync_channel(4);
            changes.push(Changes {
                queue,
                ready: Default::default(),
            });
            scope.spawn(move || {
                let mut ranges = Ranges::default();
                let walked = walk.walk_events(&mut |event| {
                    ranges.push(&event);
                    let full = ranges.out.len() >= BATCH;
                    match full && give.send(Ok(std::mem::take(&mut ranges.out))).is_err() {
                        true => Step::Break(Ok(())),
                        false => Step::Continue(()),
                    }
                });
                ranges.end_object();
                // If the other side failed, no thread waits any more.
                let _ = give.send(walked.map(|()| ranges.out));
            });
        }
        let mut piece: Vec<RedactedBlocks> = Vec::new();
        whole.walk_events(
            &mut |event| match take(dsl, object, &mut changes, &mut piece, &event) {
                Ok(()) => Step::Continue(()),
                Err(e) => Step::Break(Err(e)),
            },
        )?;
        if !piece.is_empty() {
            dsl.append_redaction(object, piece)?;
        }
        dsl.append_redaction(object, Vec::new())
    })
}

/// Adds a block to the list if every redaction snapshot has changed it.
fn take(
    dsl: &Arc<Dsl>,
    list: u64,
    changes: &mut [Changes],
    piece: &mut Vec<RedactedBlocks>,
    event: &Event,
) -> Result<()> {
    let Event::Data {
        object,
        object_type: PLAIN_FILE_CONTENTS | ZVOL,
        offset,
        bp,
    } = event
    else {
        return Ok(());
    };
    let size = bp.lsize();
    let to = (*object, offset.saturating_add(size));
    for change in changes {
        // One snapshot that kept a part of the block needs it.
        if !change.cover((*object, *offset), to)? {
            return Ok(());
        }
    }
    let first = offset / size.max(1);
    match piece.last_mut() {
        Some(last)
            if last.object == *object && last.size == size && last.first + last.count == first =>
        {
            last.count += 1;
        }
        _ => {
            if piece.len() >= REDACTION_PIECE {
                dsl.append_redaction(list, std::mem::take(piece))?;
            }
            piece.push(RedactedBlocks {
                object: *object,
                first,
                count: 1,
                size,
            });
        }
    }
    Ok(())
}

/// Refuses a list that belongs to another snapshot.
pub(crate) fn check_list(bookmark_guid: u64, to_guid: u64, raw: bool) -> Result<()> {
    if raw {
        return Err(Error::refused(
            zuse_base::Errno::INVAL,
            "a redacted stream cannot be raw",
        ));
    }
    if bookmark_guid != to_guid {
        return Err(Error::refused(
            zuse_base::Errno::INVAL,
            "the redaction bookmark is not one of the snapshot that is sent",
        ));
    }
    Ok(())
}
