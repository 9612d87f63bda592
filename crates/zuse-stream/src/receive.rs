//! Receiving one substream into a dataset.
//!
//! ```text
//!   input ─ StreamReader ─ parse (verify, decompress, swap) ─ batches ─► apply (one transaction each) ─► finish
//! ```
//! The caller's thread reads input, another one applies the batches. The number of batches in
//! progress is bounded.

mod apply;
mod demands;
mod heal;
mod parse;
mod raw;

use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use zuse_base::{Errno, Error, Result};
use zuse_dmu::CompletePart;
use zuse_dsl::property::{PropertyUndo, ReceivedProperties};
use zuse_dsl::{Dsl, ReceiveBegin, ReceiveProgress, ReceivedEncryption, Receiving, ResumeState};
use zuse_format::ObjsetType;
use zuse_format::nvlist::NvList;

use crate::error::{Flaw, StreamResult};
use crate::reader::{Item, StreamReader};
use crate::record::{
    Begin, FLAG_CI_DATA, FLAG_CLONE, FLAG_FREERECORDS, FLAG_SPILL_BLOCK, Header, Record,
};
use crate::{features, keydata};
use apply::Applier;
pub use heal::{Healing, heal};

/// Batches under way.
const IN_FLIGHT: usize = 4;

/// How to receive.
#[derive(Clone, Debug, Default)]
pub struct ReceiveOptions {
    /// Destroy snapshots and changes newer than the source, replace an existing dataset (`-F`).
    pub force: bool,
    /// Keep received data if the stream ends early (`-s`).
    pub resumable: bool,
    /// Treat the received part of a stream that ends early as complete: for reading it.
    pub salvage: bool,
    /// Make the new dataset a clone of this snapshot (`-o origin=`).
    pub origin: Option<String>,
    /// Properties of the target, set before the data, which depends on them.
    pub properties: ReceivedProperties,
    /// The encryption of a new dataset, unless the stream is raw.
    pub encryption: ReceivedEncryption,
}

/// A substream that is being received; nothing is visible before [`Self::finish`].
pub struct Received {
    receiving: Receiving,
    undo: PropertyUndo,
    /// Bytes of stream.
    pub bytes: u64,
    /// The error that ended a salvaged stream, and how far the content is complete.
    pub flaw: Option<(Error, CompletePart)>,
}

impl Received {
    /// Whether an existing dataset gets a new content, so that its mount must release it first.
    pub fn replaces(&self) -> Option<&str> {
        self.receiving.replaces().then(|| self.receiving.target())
    }

    /// Properties of the stream that could not be set, as messages.
    pub fn refused(&self) -> &[String] {
        &self.undo.refused
    }

    /// Full name of the snapshot.
    pub fn snapshot(&self) -> String {
        self.receiving.snapshot()
    }

    /// Gives the target its content and its snapshot, in one txg.
    ///
    /// # Errors
    /// The target was changed meanwhile, or a limit is reached. The received data is destroyed
    /// then, and properties are restored.
    pub fn finish(mut self) -> Result<()> {
        let done = self.receiving.finish();
        if done.is_err() {
            let _ = self.receiving.abandon(false);
            if self.receiving.replaces() {
                let dsl = self.receiving.dataset().dsl();
                dsl.undo_properties(self.receiving.target(), &self.undo)?;
            }
        }
        done
    }
}

/// The list behind a BEGIN.
fn list_of(item: &Item) -> StreamResult<NvList> {
    if item.payload.is_empty() {
        return Ok(NvList::new());
    }
    NvList::decode(&item.payload).map_err(|e| item.invalid(format!("the list of BEGIN: {e}")))
}

/// Checks what a BEGIN asks for, and returns it.
///
/// # Errors
/// Unknown flags, or a header of another kind.
pub fn check_begin(item: &Item) -> StreamResult<&Begin> {
    let Record::Begin(begin) = &item.record else {
        return Err(item.flaw(Flaw::Magic));
    };
    if begin.header() != Header::Substream {
        return Err(item.invalid("a package header where one snapshot begins"));
    }
    if begin.features() & (features::DEDUP | features::DEDUPPROPS) != 0 {
        return Err(item.invalid("stream is deduplicated; 'zstream redup' makes a stream without"));
    }
    if begin.features() & !features::SUPPORTED != 0 {
        return Err(item.flaw(Flaw::Features(begin.features())));
    }
    Ok(begin)
}

/// Receives the substream whose BEGIN is `item` into `target` as snapshot `snapshot`.
///
/// # Errors
/// The refusals of chapter 05b §9.2 before anything is created; errors in the stream. Then the
/// received data is destroyed or, if the receive is resumable, kept with its state.
pub fn receive<R: Read>(
    dsl: &Arc<Dsl>,
    reader: &mut StreamReader<R>,
    item: &Item,
    target: &str,
    snapshot: &str,
    options: &ReceiveOptions,
) -> Result<Received> {
    let begin = check_begin(item)?;
    let list = list_of(item)?;
    let raw = match begin.features() & features::RAW != 0 {
        true => Some(check_raw(item, begin, &list)?),
        false => None,
    };
    check_features(dsl, begin, target)?;
    let resuming = begin.features() & features::RESUMING != 0;
    let before = progress_before(dsl, item, &list, target, resuming)?;
    let mut plan = plan(
        dsl, item, begin, target, snapshot, options, before, resuming,
    )?;
    plan.raw = raw;
    let guids = |name: &str| list.get_u64s(name).map(<[u64]>::to_vec);
    plan.redacted_by = guids("redact_snaps");
    plan.source_redacted_by = guids("redact_from_snaps");
    if begin.features() & features::REDACTED != 0 && plan.redacted_by.is_none() {
        return Err(item
            .invalid("a redacted stream that does not say by what")
            .into());
    }
    if let Some(state) = &mut plan.resumable {
        state.redacted_by.clone_from(&plan.redacted_by);
        state
            .source_redacted_by
            .clone_from(&plan.source_redacted_by);
    }
    let full = begin.from_guid == 0;
    let mut receiving = dsl.begin_receive(plan)?;
    let mut undo = PropertyUndo::default();
    let mut part = CompletePart::default();
    let outcome = dsl
        .receive_properties(target, &options.properties)
        .and_then(|done| {
            undo = done;
            transfer(reader, item, begin, &receiving, full, before, &mut part)
        });
    let flaw = match outcome {
        Ok(()) => None,
        Err(e) if options.salvage => Some((e, part)),
        Err(e) => {
            let replaces = receiving.replaces();
            let kept = receiving.abandon(options.resumable);
            drop(receiving);
            // A new target is destroyed, or keeps its properties for the rest of the stream.
            if replaces {
                dsl.undo_properties(target, &undo)?;
            }
            return kept.and(Err(e));
        }
    };
    Ok(Received {
        bytes: reader.offset() - item.offset,
        receiving,
        undo,
        flaw,
    })
}

/// Whether the pool has enabled the features that the stream requires.
fn check_features(dsl: &Arc<Dsl>, begin: &Begin, target: &str) -> Result<()> {
    for guid in features::needed(begin.features()) {
        if !dsl.pool_feature_enabled(guid)? {
            return Err(Error::unsupported(
                target.to_owned(),
                format!("the stream needs the pool feature {guid}, which is not enabled"),
            ));
        }
    }
    Ok(())
}

/// Progress of the earlier receive that this one continues.
fn progress_before(
    dsl: &Arc<Dsl>,
    item: &Item,
    list: &NvList,
    target: &str,
    resuming: bool,
) -> Result<ReceiveProgress> {
    let at = if resuming {
        let number = |name: &str| {
            list.get_u64(name)
                .ok_or_else(|| item.invalid(format!("a resuming stream without {name}")))
        };
        Some((number("resume_object")?, number("resume_offset")?))
    } else {
        None
    };
    let before = match at {
        Some((object, offset)) => {
            let have = dsl.resume_state(target)?;
            ReceiveProgress {
                object,
                offset,
                // Not in the stream: only the target knows how much came before.
                bytes: have.map_or(0, |h| h.bytes),
            }
        }
        None => ReceiveProgress {
            object: 1,
            offset: 0,
            bytes: 0,
        },
    };
    Ok(before)
}

/// Additional requirements for a raw stream.
fn check_raw(item: &Item, begin: &Begin, list: &NvList) -> StreamResult<zuse_dsl::RawReceive> {
    if begin.features() & features::EMBED_DATA != 0 {
        return Err(item.invalid("a raw stream with embedded data"));
    }
    if begin.flags & FLAG_SPILL_BLOCK == 0 {
        return Err(item.invalid(
            "the stream is raw and lacks the flag that makes its spill blocks sure (errata of old senders)",
        ));
    }
    keydata::parse(item, list)
}

#[allow(clippy::too_many_arguments)]
fn plan(
    dsl: &Arc<Dsl>,
    item: &Item,
    begin: &Begin,
    target: &str,
    snapshot: &str,
    options: &ReceiveOptions,
    at: ReceiveProgress,
    resuming: bool,
) -> Result<ReceiveBegin> {
    let word = begin.features();
    let kind = ObjsetType::from_number(begin.objset_type.into())
        .filter(|k| matches!(k, ObjsetType::Zfs | ObjsetType::Zvol))
        .ok_or_else(|| item.invalid(format!("an object set of type {}", begin.objset_type)))?;
    let origin = origin_of(dsl, begin, target, snapshot, options, resuming)?;
    let mut features = Vec::new();
    for (bit, guid) in [
        (features::LARGE_BLOCKS, "org.open-zfs:large_blocks"),
        (features::LONGNAME, "org.zfsonlinux:longname"),
        (features::LARGE_MICROZAP, "com.klarasystems:large_microzap"),
    ] {
        if word & bit != 0 {
            features.push(guid);
        }
    }
    let state = ResumeState {
        from_guid: begin.from_guid,
        to_guid: begin.to_guid,
        to_name: begin.to_name.clone(),
        object: at.object,
        offset: at.offset,
        bytes: at.bytes,
        large_blocks: word & features::LARGE_BLOCKS != 0,
        embed: word & features::EMBED_DATA != 0,
        compressed: word & features::COMPRESSED != 0,
        raw: word & features::RAW != 0,
        ..ResumeState::default()
    };
    Ok(ReceiveBegin {
        target: target.to_owned(),
        snapshot: snapshot.to_owned(),
        to_guid: begin.to_guid,
        from_guid: begin.from_guid,
        creation_time: begin.creation_time,
        kind,
        case_insensitive: begin.flags & FLAG_CI_DATA != 0,
        accounts_users: word & features::SA_SPILL != 0,
        origin,
        force: options.force,
        features,
        resumable: (options.resumable || resuming).then_some(state),
        resuming,
        raw: None,
        redacted_by: None,
        source_redacted_by: None,
        encryption: options.encryption.clone(),
    })
}

/// The origin of the stream's dataset, if it becomes a clone.
fn origin_of(
    dsl: &Arc<Dsl>,
    begin: &Begin,
    target: &str,
    snapshot: &str,
    options: &ReceiveOptions,
    resuming: bool,
) -> Result<Option<String>> {
    let mut origin = options.origin.clone();
    if origin.is_none()
        && begin.flags & FLAG_CLONE != 0
        && !resuming
        && dsl.dataset(target).is_err()
    {
        origin = dsl.snapshot_by_guid(target, begin.from_guid)?;
        if origin.is_none() {
            return Err(Error::refused(
                Errno::NOENT,
                format!("local origin for clone {target}@{snapshot} does not exist"),
            ));
        }
    }
    // Ranges that the stream leaves out would keep the content of the origin.
    if origin.is_some() && begin.from_guid == 0 && begin.flags & FLAG_FREERECORDS == 0 {
        return Err(Error::refused(
            Errno::INVAL,
            "a full stream without FREE records cannot become a clone",
        ));
    }
    Ok(origin)
}

/// Reads and applies everything up to END; `part` is how far that completes the object set.
fn transfer<R: Read>(
    reader: &mut StreamReader<R>,
    item: &Item,
    begin: &Begin,
    receiving: &Receiving,
    full: bool,
    before: ReceiveProgress,
    part: &mut CompletePart,
) -> Result<()> {
    let start = item.offset + crate::record::HEADER as u64;
    let spill_flags = begin.flags & FLAG_SPILL_BLOCK != 0;
    let mut applier = Applier::new(receiving, start, full, spill_flags, before, reader.order())?;
    std::thread::scope(|scope| {
        let (give, take) = sync_channel(IN_FLIGHT);
        let work = scope.spawn(move || {
            let done = take.iter().try_for_each(|batch| applier.batch(batch));
            (done, applier)
        });
        let raw = receiving.is_raw();
        let read = parse::batches(reader, raw, &mut |batch| give.send(batch).is_ok());
        // The applier ends when no more batches can come.
        drop(give);
        let (applied, mut applier) = work
            .join()
            .map_err(|_| Error::truncated("receive", "the applying thread ended early"))?;
        *part = std::mem::take(&mut applier.complete_part);
        // An error while applying is returned first: it usually causes the read error.
        applied?;
        read?;
        applier.ended()
    })
}

/// Reads a substream to its END and checks each record separately, as [`receive`] does before it
/// applies any.
///
/// # Errors
/// An error in the stream: [`receive`] finds the same, unless an earlier record does not fit the
/// objects.
pub fn examine<R: Read>(reader: &mut StreamReader<R>, item: &Item) -> StreamResult<()> {
    let begin = check_begin(item)?;
    let list = list_of(item)?;
    let raw = begin.features() & features::RAW != 0;
    if raw {
        check_raw(item, begin, &list)?;
    }
    parse::batches(reader, raw, &mut |_| true)
}

/// Reads a substream to its END without checking it.
///
/// # Errors
/// An error in the stream.
pub fn skip<R: Read>(reader: &mut StreamReader<R>) -> StreamResult<()> {
    while let Some(item) = reader.next_record()? {
        if matches!(item.record, Record::End { .. }) {
            return Ok(());
        }
        reader.recycle(item.payload);
    }
    Err(reader.flaw(Flaw::Truncated))
}
