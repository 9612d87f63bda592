//! Making a stream of a snapshot.
//!
//! ```text
//!   walk (one thread) ─ batches of events ─► makers (read, verify, decompress) ─► in order ─► checksum, output
//! ```
//! Batches are numbered by their place in a bounded queue. The writer waits for the oldest; makers
//! take any batch. So several device reads are in flight, and memory is bounded by the length of
//! the queue times a batch.

mod payload;
pub(crate) mod walk;

use std::cell::RefCell;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use zuse_base::cut::fit32;
use zuse_base::sync::Mutex;

use zuse_base::{Error, Result};
use zuse_dmu::zap::Zap;
use zuse_dsl::{Dataset, Owner, RedactionList, ResumeState, SendSource};
use zuse_format::dsl::{BookmarkPhys, DS_FLAG_CI_DATASET, DslDatasetPhys};
use zuse_format::nvlist::{NvEncoding, NvList};
use zuse_format::{ObjsetPhys, ObjsetType};
use zuse_io::{DatasetKey, Pipeline};

use crate::record::{
    Begin, FLAG_CI_DATA, FLAG_CLONE, FLAG_FREERECORDS, FLAG_SPILL_BLOCK, Header, Record,
};
use crate::redact::{Cover, check_list};
use crate::writer::StreamWriter;
use crate::{features, keydata};
use payload::{Form, Made, make};
use walk::{Event, Step, Walk};

/// Logical bytes of a batch.
const BATCH_BYTES: u64 = 1 << 20;
/// Events of a batch.
const BATCH_EVENTS: usize = 512;
/// Batches under way at once.
const IN_FLIGHT: usize = 8;

/// How to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Send blocks above 128 KiB unchanged (`-L`).
    pub large_blocks: bool,
    /// Send embedded blocks unchanged (`-e`).
    pub embed: bool,
    /// Send compressed blocks unchanged (`-c`).
    pub compressed: bool,
    /// Send encrypted blocks unchanged (`-w`).
    pub raw: bool,
    /// Continue at this object and offset.
    pub resume: Option<(u64, u64)>,
    /// Send a partial receive up to this object and offset, without END: the receiver stays
    /// resumable (`-S`).
    pub saved: Option<(u64, u64)>,
    /// Read through the cache like other readers, to measure the cost for them.
    pub through_cache: bool,
}

/// Progress of a running send.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct SendProgress {
    /// Stream bytes written.
    pub bytes: AtomicU64,
    /// Blocks sent.
    pub blocks: AtomicU64,
    /// Set this to cancel it.
    pub cancel: AtomicBool,
}

/// One snapshot to be sent.
pub struct Send {
    dataset: Arc<Dataset>,
    io: Arc<Pipeline>,
    begin: Begin,
    payload: Vec<u8>,
    objset: ObjsetPhys,
    from_txg: u64,
    options: SendOptions,
    /// Keys of an encrypted dataset that is sent in clear.
    key: Option<Arc<DatasetKey>>,
    /// Blocks that are left out.
    redact: Option<RedactionList>,
    /// Blocks that the source lacks, so the receiver may not have them.
    missing: Option<RedactionList>,
    /// A head, or a partial receive, that does not change while it is sent.
    owner: Option<Owner>,
}

impl Send {
    /// Prepares a send of a snapshot (or of a head that is not being changed), with the name `name`
    /// in the stream.
    ///
    /// # Errors
    /// `Refused` for invalid options, `Refused(ACCES)` for an encrypted dataset whose key is not
    /// loaded, unless it is sent raw. The object set cannot be read.
    pub fn new(
        dataset: &Arc<Dataset>,
        name: &str,
        from: Option<&SendSource>,
        options: SendOptions,
    ) -> Result<Self> {
        Self::redacted(dataset, name, from, None, options)
    }

    /// As [`Self::new`], without the blocks in a redaction bookmark of the snapshot.
    ///
    /// # Errors
    /// As [`Self::new`]; `Refused(INVAL)` for a bookmark of something else, or one that is not
    /// complete.
    pub fn redacted(
        dataset: &Arc<Dataset>,
        name: &str,
        from: Option<&SendSource>,
        redact: Option<&BookmarkPhys>,
        options: SendOptions,
    ) -> Result<Self> {
        let phys = dataset.phys()?;
        let io = dataset.io()?;
        let is_encrypted = dataset.uses_feature("com.datto:encryption")?;
        let options = effective(options, is_encrypted);
        let key = match is_encrypted && !options.raw {
            true if options.saved.is_some() => dataset.objset_received()?.key().cloned(),
            true => dataset.objset()?.key().cloned(),
            false => None,
        };
        let place = format!("{name}, objset block");
        let block = io.read_uncached_keyed(&phys.bp, key.as_deref(), &place)?;
        let objset = ObjsetPhys::parse(block.bytes()).map_err(|e| e.at(place.as_str()))?;
        let mut features = feature_word(dataset, &objset, options)?;
        let list = match redact {
            Some(bookmark) => {
                check_list(bookmark.guid, phys.guid, options.raw)?;
                features |= features::REDACTED;
                dataset.dsl().redaction_list(bookmark)?
            }
            None => None,
        };
        let missing = match from.and_then(|f| f.bookmark.as_ref()) {
            Some(bookmark) => dataset.dsl().redaction_list(bookmark)?,
            None => None,
        };
        let flags = flags_of(&phys, from);
        let to_name = if phys.is_snapshot() || name.contains('@') {
            name.to_owned()
        } else {
            format!("{name}@--head--")
        };
        let known = Known {
            redact,
            list: &list,
            missing: &missing,
        };
        let payload = known.payload(dataset, &objset, from, options)?;
        let begin = Begin {
            version_info: Begin::version_word(Header::Substream, features),
            creation_time: phys.creation_time,
            objset_type: objset.objset_type.number(),
            flags,
            to_guid: phys.guid,
            from_guid: from.map_or(0, |f| f.guid),
            to_name,
            payload_len: fit32(payload.len()),
        };
        Ok(Self {
            dataset: dataset.clone(),
            io,
            begin,
            payload,
            objset,
            from_txg: from.map_or(0, |f| f.txg),
            options,
            key,
            redact: list,
            missing,
            owner: None,
        })
    }

    /// Prepares a send of the saved part of an interrupted receive. The receive cannot be continued
    /// until the send is dropped.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn saved(partial: Owner, state: &ResumeState, from: Option<&SendSource>) -> Result<Self> {
        let options = SendOptions {
            large_blocks: state.large_blocks,
            embed: state.embed,
            compressed: state.compressed,
            raw: state.raw,
            saved: Some((state.object, state.offset)),
            resume: None,
            through_cache: false,
        };
        let mut send = Self::new(partial.dataset(), &state.to_name, from, options)?;
        send.begin.to_guid = state.to_guid;
        send.owner = Some(partial);
        Ok(send)
    }

    /// Keeps the dataset owned until the send is dropped, so that nothing else changes it.
    pub fn keep(&mut self, owner: Owner) {
        self.owner = Some(owner);
    }

    /// The record that the stream begins with.
    pub fn begin(&self) -> &Begin {
        &self.begin
    }

    /// Whether blocks are left out, or sent again because the source was redacted.
    pub fn is_redacted(&self) -> bool {
        self.redact.is_some() || self.missing.is_some()
    }

    /// What is sent.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Writes the substream.
    ///
    /// # Errors
    /// A block cannot be read, or the output's error. The output is a truncated stream then.
    pub fn run<W: Write>(&self, out: &mut StreamWriter<W>, progress: &SendProgress) -> Result<()> {
        let base = progress.bytes.load(Relaxed);
        let start = out.offset();
        out.record(&Record::Begin(self.begin.clone()), &self.payload)?;
        let form = Form {
            features: self.begin.features(),
            to_guid: self.begin.to_guid,
            in_clear: self.key.is_some(),
            through_cache: self.options.through_cache,
        };
        let workers = std::thread::available_parallelism().map_or(2, |n| n.get().clamp(1, 8));
        let (job_in, job_out) = sync_channel::<Job>(IN_FLIGHT);
        let (order_in, order_out) = sync_channel::<Receiver<Result<Made>>>(IN_FLIGHT);
        let jobs = Mutex::new(job_out);
        std::thread::scope(|scope| {
            scope.spawn(|| self.walk(job_in, order_in));
            for _ in 0..workers {
                scope.spawn(|| {
                    loop {
                        let next = jobs.lock().recv();
                        let Ok(job) = next else { return };
                        let made = match job.events {
                            Ok(events) => make(
                                &self.io,
                                self.key.as_deref(),
                                form,
                                &self.begin.to_name,
                                events,
                            ),
                            Err(e) => Err(e),
                        };
                        // If the output failed, no thread waits any more.
                        let _ = job.done.send(made);
                    }
                });
            }
            let written = (|| {
                while let Ok(next) = order_out.recv() {
                    let Ok(made) = next.recv() else { break };
                    let mut made = made?;
                    if progress.cancel.load(Relaxed) {
                        return Err(Error::refused(
                            zuse_base::Errno::INTR,
                            "the send was interrupted",
                        ));
                    }
                    let mut headers = std::mem::take(&mut made.headers);
                    out.batch(&mut headers, &|i| made.payload(i))?;
                    progress.blocks.fetch_add(made.blocks, Relaxed);
                    progress.bytes.store(base + out.offset() - start, Relaxed);
                }
                Ok(())
            })();
            // The walk notices that its receiver is gone and ends; the makers end with it.
            drop(order_out);
            written
        })?;
        if self.options.saved.is_some() {
            out.flush()?;
        } else {
            out.end(self.begin.to_guid)?;
        }
        progress.bytes.store(base + out.offset() - start, Relaxed);
        Ok(())
    }

    /// Size of the stream in bytes, computed by a walk without reading data.
    ///
    /// # Errors
    /// Metadata cannot be read.
    pub fn exact_size(&self) -> Result<u64> {
        // A partial receive has no END.
        let ends = if self.options.saved.is_some() { 1 } else { 2 };
        let mut total = ends * crate::record::HEADER as u64 + self.payload.len() as u64;
        let form = Form {
            features: self.begin.features(),
            to_guid: 0,
            in_clear: self.key.is_some(),
            through_cache: false,
        };
        self.walker().run(&self.objset.meta_dnode, &mut |event| {
            total = total.saturating_add(payload::size_of(form, &event));
            Step::Continue(())
        })?;
        Ok(total)
    }

    /// The contents of the stream in order, without data.
    pub(crate) fn walk_events(&self, sink: &mut dyn FnMut(Event) -> Step) -> Result<()> {
        self.walker().run(&self.objset.meta_dnode, sink)
    }

    fn walker(&self) -> Walk<'_> {
        let cover =
            |list: &Option<RedactionList>| list.clone().map(|l| RefCell::new(Cover::new(l)));
        Walk {
            io: &self.io,
            name: &self.begin.to_name,
            from_txg: self.from_txg,
            large_blocks: self.begin.features() & features::LARGE_BLOCKS != 0,
            resume: self.options.resume,
            key: self.key.as_deref(),
            raw: self.options.raw,
            until: self.options.saved,
            redact: cover(&self.redact),
            missing: cover(&self.missing),
        }
    }

    fn walk(&self, jobs: SyncSender<Job>, order: SyncSender<Receiver<Result<Made>>>) {
        let mut batch = Vec::new();
        let mut bytes = 0;
        let hand_over = |events: Result<Vec<Event>>| {
            let (done, wait) = sync_channel(1);
            // First its place in the output, because the writer takes batches in this order.
            order.send(wait).is_ok() && jobs.send(Job { events, done }).is_ok()
        };
        let walked = self.walker().run(&self.objset.meta_dnode, &mut |event| {
            bytes += match &event {
                Event::Data { bp, .. } | Event::Spill { bp, .. } => bp.lsize(),
                _ => 0,
            };
            batch.push(event);
            if batch.len() < BATCH_EVENTS && bytes < BATCH_BYTES {
                return Step::Continue(());
            }
            bytes = 0;
            if hand_over(Ok(std::mem::take(&mut batch))) {
                Step::Continue(())
            } else {
                Step::Break(Ok(()))
            }
        });
        match walked {
            Ok(()) => {
                hand_over(Ok(batch));
            }
            Err(e) => {
                hand_over(Err(e));
            }
        }
    }
}

struct Job {
    events: Result<Vec<Event>>,
    done: SyncSender<Result<Made>>,
}

/// The features that a stream of this dataset uses.
fn feature_word(dataset: &Arc<Dataset>, objset: &ObjsetPhys, options: SendOptions) -> Result<u64> {
    let dsl = dataset.dsl();
    let mut word = 0;
    if objset.objset_type == ObjsetType::Zfs && zpl_version(dataset, options.saved.is_some())? >= 5
    {
        word |= features::SA_SPILL;
    }
    if options.large_blocks && dataset.uses_feature("org.open-zfs:large_blocks")? {
        word |= features::LARGE_BLOCKS;
    }
    if options.embed && dsl.pool_feature_active("com.delphix:embedded_data")? {
        word |= features::EMBED_DATA;
    }
    if options.compressed {
        word |= features::COMPRESSED;
    }
    if options.raw {
        word |= features::RAW;
    }
    if word & (features::EMBED_DATA | features::COMPRESSED | features::RAW) != 0
        && dsl.pool_feature_active("org.illumos:lz4_compress")?
    {
        word |= features::LZ4;
    }
    if word & (features::COMPRESSED | features::RAW) != 0
        && dataset.uses_feature("org.freebsd:zstd_compress")?
    {
        word |= features::ZSTD;
    }
    if options.resume.is_some_and(|at| at != (0, 0)) {
        word |= features::RESUMING;
    }
    for (guid, bit) in [
        ("org.zfsonlinux:large_dnode", features::LARGE_DNODE),
        ("org.zfsonlinux:longname", features::LONGNAME),
        ("com.klarasystems:large_microzap", features::LARGE_MICROZAP),
    ] {
        if dataset.uses_feature(guid)? {
            word |= bit;
        }
    }
    if word & features::LARGE_MICROZAP != 0 && word & features::LARGE_BLOCKS == 0 {
        return Err(Error::refused(
            zuse_base::Errno::INVAL,
            "source snapshot contains large microzaps, need -L (--large-block) or -w (--raw) to generate stream",
        ));
    }
    Ok(word)
}

fn zpl_version(dataset: &Arc<Dataset>, is_partial: bool) -> Result<u64> {
    let objset = match is_partial {
        true => dataset.objset_received_in_clear()?,
        false => dataset.objset_in_clear()?,
    };
    let master = match objset.dnode(zuse_base::ObjectId(1)) {
        // Nothing came yet.
        Err(e) if is_partial && e.is(zuse_base::Errno::NOENT) => return Ok(0),
        other => other?,
    };
    Ok(Zap::open(&master)?.lookup_u64(b"VERSION")?.unwrap_or(0))
}

/// The redaction lists of a send.
struct Known<'a> {
    redact: Option<&'a BookmarkPhys>,
    /// The list of the bookmark.
    list: &'a Option<RedactionList>,
    /// Blocks that the source of an incremental lacks.
    missing: &'a Option<RedactionList>,
}

impl Known<'_> {
    /// The payload of BEGIN.
    fn payload(
        &self,
        dataset: &Arc<Dataset>,
        objset: &ObjsetPhys,
        from: Option<&SendSource>,
        options: SendOptions,
    ) -> Result<Vec<u8>> {
        let mut pairs = NvList::new();
        if let Some((object, offset)) = options.resume {
            pairs.insert("resume_object", object);
            pairs.insert("resume_offset", offset);
        }
        let by = match (self.redact, self.list) {
            (Some(_), list) => Some(list.as_ref().map_or(&[][..], |l| l.snapshots()).to_vec()),
            (None, _) => dataset.dsl().redacted_by(dataset.object())?,
        };
        if let Some(by) = by {
            pairs.insert("redact_snaps", by);
        }
        let lacks = match (self.missing, from) {
            (Some(list), _) => Some(list.snapshots().to_vec()),
            (None, Some(from)) => from.redacted_by.clone(),
            (None, None) => None,
        };
        if let Some(lacks) = lacks {
            pairs.insert("redact_from_snaps", lacks);
        }
        if options.raw {
            let keys = dataset.raw_keys(objset, from)?;
            pairs.insert("crypt_keydata", keydata::list_of(&keys));
        }
        let payload = if pairs.is_empty() {
            Vec::new()
        } else {
            pairs.encode(NvEncoding::Native)
        };
        Ok(payload)
    }
}

fn flags_of(phys: &DslDatasetPhys, from: Option<&SendSource>) -> u32 {
    let mut flags = FLAG_FREERECORDS | FLAG_SPILL_BLOCK;
    if phys.flags & DS_FLAG_CI_DATASET != 0 {
        flags |= FLAG_CI_DATA;
    }
    if from.is_some_and(|f| f.other_dataset) {
        flags |= FLAG_CLONE;
    }
    flags
}

/// The possible options for a request. Raw means: everything in its stored form.
fn effective(options: SendOptions, is_encrypted: bool) -> SendOptions {
    SendOptions {
        large_blocks: options.large_blocks || options.raw,
        embed: (options.embed || options.raw) && !is_encrypted,
        compressed: options.compressed || options.raw,
        raw: options.raw && is_encrypted,
        ..options
    }
}
