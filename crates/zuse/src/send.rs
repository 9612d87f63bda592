//! Send streams of an open pool's snapshots: one, or a package of several with what is known of their datasets.

use std::io::Write;
use std::sync::Arc;

use zuse_base::{Errno, Error, Refusal, Result};
use zuse_dsl::property::Value;
use zuse_dsl::{Dataset as Handle, SendSource};
use zuse_format::nvlist::{NvList, NvValue};
use zuse_stream::record::{Begin, HEADER, Header, Record};
use zuse_stream::{ResumeToken, Send, SendOptions, SendProgress, StreamWriter, features};

use crate::Pool;

/// What to send.
#[derive(Clone, Debug, Default)]
pub struct SendRequest {
    /// The snapshot, or a head that nobody changes.
    pub to: String,
    /// The source: a full name, or `@snapshot`, `#bookmark` of the same dataset.
    pub from: Option<String>,
    /// All snapshots between (`-I`).
    pub intermediate: bool,
    /// Everything below, with properties (`-R`).
    pub recursive: bool,
    /// With properties (`-p`).
    pub properties: bool,
    /// With received properties instead of local ones (`-b`).
    pub received_only: bool,
    /// With holds (`-h`).
    pub holds: bool,
    /// Pass over datasets without the snapshot (`-s`).
    pub skip_missing: bool,
    /// Leave these out, with everything below (`-X`).
    pub exclude: Vec<String>,
    /// Without the blocks that this redaction bookmark of the snapshot lists (`--redact`); its own name, or all of it.
    pub redact: Option<String>,
    /// Form of the blocks.
    pub options: SendOptions,
}

/// One substream of a plan.
pub struct PlannedStream {
    /// The snapshot.
    pub to: String,
    /// The source as it is shown: its full name, in a package of several `@snapshot`; `None` also where a clone's origin is
    /// the source without having been named.
    pub from: Option<String>,
    /// Bytes of stream that are expected.
    pub estimate: u64,
    send: Send,
}

/// Everything that will be written, in order.
pub struct SendPlan {
    /// The substreams.
    pub streams: Vec<PlannedStream>,
    /// Remarks about what is left out.
    pub notes: Vec<String>,
    front: Option<(String, Option<NvList>, u64)>,
}

impl SendPlan {
    /// Bytes that are expected in all.
    pub fn estimate(&self) -> u64 {
        self.streams.iter().map(|s| s.estimate).sum()
    }

    /// Writes it. `tell` hears of each substream before it begins.
    ///
    /// # Errors
    /// A block cannot be read, or the output's error.
    pub fn run<W: Write>(
        &self,
        out: &mut StreamWriter<W>,
        progress: &SendProgress,
        tell: &mut dyn FnMut(&PlannedStream),
    ) -> Result<()> {
        if let Some((name, list, features)) = &self.front {
            let payload = list.as_ref().map(NvList::encode_xdr).unwrap_or_default();
            let begin = Begin {
                version_info: Begin::version_word(Header::Package, *features),
                to_name: name.clone(),
                payload_len: payload.len() as u32,
                ..Begin::default()
            };
            out.record(&Record::Begin(begin), &payload)?;
            let checksum = out.sums();
            out.bare(&Record::End {
                checksum,
                to_guid: 0,
            })?;
        }
        for stream in &self.streams {
            tell(stream);
            stream.send.run(out, progress)?;
        }
        if self.front.is_some() {
            out.bare(&Record::End {
                checksum: [0; 4],
                to_guid: 0,
            })?;
        }
        Ok(out.flush()?)
    }
}

/// A snapshot of a dataset in a package.
struct Snap {
    own: String,
    guid: u64,
}

/// A dataset in a package.
struct Member {
    name: String,
    head: Arc<Handle>,
    snaps: Vec<Snap>,
    to: usize,
    from: Option<usize>,
    origin: Option<(String, u64)>,
}

impl Pool {
    /// Prepares a stream of a snapshot, from nothing or from an earlier snapshot or bookmark. `from` is a full name, or
    /// begins with `@` or `#` and is of the same dataset.
    ///
    /// # Errors
    /// `Refused`: NOENT, XDEV if `from` is no earlier point of the same history.
    pub fn send(
        self: &Arc<Self>,
        to: &str,
        from: Option<&str>,
        options: SendOptions,
    ) -> Result<Send> {
        let from = from.map(|f| full_source(to, f));
        Ok(self.planned(to, from, None, options)?.send)
    }

    fn planned(
        &self,
        to: &str,
        from: Option<String>,
        redact: Option<&str>,
        options: SendOptions,
    ) -> Result<PlannedStream> {
        let dataset = self.dsl().dataset(to)?;
        if !dataset.is_snapshot() && self.is_writable() && dataset.is_owned() {
            return Err(Error::refused(
                Errno::BUSY,
                format!("'{to}' is in use: a snapshot of it can be sent"),
            ));
        }
        let options = SendOptions {
            through_cache: options.through_cache || !self.limits().send_bypass,
            ..options
        };
        let source = match &from {
            Some(name) => Some(self.dsl().send_source(&dataset, name)?),
            None => None,
        };
        let mark = match redact {
            Some(name) => Some(self.redaction_bookmark(to, name)?),
            None => None,
        };
        let send = Send::redacted(&dataset, to, source.as_ref(), mark.as_deref(), options)?;
        let estimate = self.estimated(&dataset, source.as_ref(), options)?;
        let estimate = match estimate {
            Some(bytes) if !send.is_redacted() => bytes,
            _ => send.exact_size()?,
        };
        Ok(PlannedStream {
            to: to.to_owned(),
            from,
            estimate,
            send,
        })
    }

    /// A substream of a package.
    fn packed_substream(&self, step: &Step, options: SendOptions) -> Result<PlannedStream> {
        let mut stream = self.planned(&step.to, step.from.clone(), None, options)?;
        match step.shown {
            Shown::Whole => {
                stream.from = None;
                let dataset = self.dsl().dataset(&step.to)?;
                if let Some(bytes) = self.estimated(&dataset, None, options)? {
                    stream.estimate = bytes;
                }
            }
            Shown::Short => {
                let own = stream
                    .from
                    .as_deref()
                    .and_then(|f| f.find('@').map(|at| &f[at..]));
                stream.from = own.map(str::to_owned);
            }
            Shown::Full => {}
        }
        Ok(stream)
    }

    /// The usual estimate, from the datasets' figures (chapter 05b §8 of the format notes).
    fn estimated(
        &self,
        dataset: &Arc<Handle>,
        from: Option<&SendSource>,
        options: SendOptions,
    ) -> Result<Option<u64>> {
        let Some([plain, packed]) = self.dsl().send_figures(dataset, from)? else {
            return Ok(None);
        };
        let name = if dataset.is_volume()? {
            "volblocksize"
        } else {
            "recordsize"
        };
        let block = self.dsl().property_number(dataset, name)?.max(512);
        let header = HEADER as u64;
        let blocks = plain / block;
        let data = if options.compressed { packed } else { plain };
        Ok(Some(
            data.saturating_sub(128 * blocks) + header * blocks + 2 * header,
        ))
    }

    /// Plans a send.
    ///
    /// # Errors
    /// As [`Self::send`], for any of the snapshots.
    pub fn plan_send(self: &Arc<Self>, request: &SendRequest) -> Result<SendPlan> {
        let wants_list =
            request.recursive || request.properties || request.holds || request.received_only;
        let packs = wants_list || request.intermediate;
        if !packs {
            let from = request.from.as_deref();
            let stream = self.planned(
                &request.to,
                from.map(|f| full_source(&request.to, f)),
                request.redact.as_deref(),
                request.options,
            )?;
            return Ok(SendPlan {
                streams: vec![stream],
                notes: Vec::new(),
                front: None,
            });
        }
        if request.redact.is_some() {
            return Err(Error::refused(
                Errno::INVAL,
                "a redacted stream holds one snapshot, without properties and holds",
            ));
        }
        let Some((top, tosnap)) = request.to.split_once('@') else {
            return Err(Error::refused(
                Errno::INVAL,
                format!("'{}': only snapshots can be sent with others", request.to),
            ));
        };
        // A source that is not there must not make a full stream of what was to be a small one.
        if let Some(from) = request.from.as_deref()
            && (request.recursive || request.intermediate)
        {
            if from.contains('#') {
                let what = "multiple snapshots cannot be sent from a bookmark";
                return Err(Error::refused(Errno::INVAL, what));
            }
            self.dsl().dataset(&full_source(&request.to, from))?;
        }
        let mut notes = Vec::new();
        let members = self.members(request, top, tosnap, &mut notes)?;
        let mut streams = Vec::new();
        for step in order(&members, request) {
            streams.push(self.packed_substream(&step, request.options)?);
        }
        let list = if wants_list {
            Some(self.front(request, tosnap, &members)?)
        } else {
            None
        };
        let word = if request.holds { features::HOLDS } else { 0 };
        Ok(SendPlan {
            streams,
            notes,
            front: Some((request.to.clone(), list, word)),
        })
    }

    fn members(
        &self,
        request: &SendRequest,
        top: &str,
        tosnap: &str,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Member>> {
        let dsl = self.dsl();
        let all = if request.recursive {
            dsl.tree_as_stored(top)?
        } else {
            let head = dsl.dataset(top)?.object();
            vec![zuse_dsl::DirEntry {
                name: top.to_owned(),
                dataset: head,
            }]
        };
        let last_txg = dsl.dataset(&request.to)?.phys()?.creation_txg;
        let mut skipped: Vec<String> = request.exclude.clone();
        let mut members = Vec::new();
        for entry in all {
            let below = |root: &String| {
                entry.name == *root
                    || entry
                        .name
                        .strip_prefix(root.as_str())
                        .is_some_and(|r| r.starts_with('/'))
            };
            if skipped.iter().any(below) {
                continue;
            }
            let head = dsl.dataset_by_object(entry.dataset)?;
            let mut snaps = Vec::new();
            for snap in dsl.snapshots(&entry.name)? {
                let phys = dsl.dataset_by_object(snap.dataset)?.phys()?;
                let own = snap.name.split('@').nth(1).unwrap_or_default().to_owned();
                snaps.push(Snap {
                    own,
                    guid: phys.guid,
                });
            }
            let Some(to) = snaps.iter().position(|s| s.own == tosnap) else {
                if head.phys()?.creation_txg > last_txg {
                    notes.push(format!(
                        "skipping dataset {}: snapshot {tosnap} does not exist",
                        entry.name
                    ));
                    skipped.push(entry.name.clone());
                    continue;
                }
                if request.skip_missing {
                    notes.push(format!(
                        "WARNING: skipping dataset {} and its children: snapshot {tosnap} does not exist",
                        entry.name
                    ));
                    skipped.push(entry.name.clone());
                    continue;
                }
                return Err(Error::refused_for(
                    Refusal::Unsendable,
                    Errno::NOENT,
                    format!(
                        "cannot send {} recursively: snapshot {}@{tosnap} does not exist",
                        request.to, entry.name
                    ),
                ));
            };
            for late in snaps[to + 1..].iter().filter(|_| request.recursive) {
                notes.push(format!(
                    "skipping snapshot {}@{} because it was created after the destination snapshot ({tosnap})",
                    entry.name, late.own
                ));
            }
            let source = request.from.as_deref().and_then(|f| f.split('@').nth(1));
            let from = source.and_then(|own| snaps[..to].iter().position(|s| s.own == own));
            let origin = match dsl.stat(&head)?.origin {
                Some(name) => {
                    let guid = dsl.dataset(&name)?.guid()?;
                    Some((name, guid))
                }
                None => None,
            };
            members.push(Member {
                name: entry.name.clone(),
                head,
                snaps,
                to,
                from,
                origin,
            });
        }
        Ok(members)
    }

    fn front(&self, request: &SendRequest, tosnap: &str, members: &[Member]) -> Result<NvList> {
        let dsl = self.dsl();
        let mut list = NvList::new();
        let packed = request.recursive || request.intermediate;
        if packed && let Some(own) = request.from.as_deref().and_then(|f| f.split('@').nth(1)) {
            list.insert("fromsnap", own);
        }
        list.insert("tosnap", tosnap);
        if !request.recursive {
            list.insert_flag("not_recursive");
        }
        if request.options.raw {
            list.insert_flag("raw");
        }
        let mut fss = NvList::new();
        for (i, member) in members.iter().enumerate() {
            let mut fs = NvList::new();
            fs.insert("name", member.name.as_str());
            let parent = if i == 0 {
                None
            } else {
                let above = member.name.rsplit_once('/').map(|(p, _)| p);
                members.iter().find(|m| Some(m.name.as_str()) == above)
            };
            let from_parent = parent.map_or(0, |p| p.snaps[p.from.unwrap_or(p.to)].guid);
            fs.insert("parentfromsnap", from_parent);
            if let Some((_, guid)) = &member.origin {
                fs.insert("origin", *guid);
            }
            let encryption = dsl.encryption(&member.name)?;
            if encryption.is_some() && !request.options.raw {
                return Err(Error::refused(
                    Errno::INVAL,
                    format!(
                        "could not send {}: encrypted dataset {} may not be sent with properties without the raw flag",
                        request.to, member.name
                    ),
                ));
            }
            if request.recursive || request.properties || request.received_only {
                let own = dsl.own_properties(&member.head, request.received_only)?;
                fs.insert("props", list_of(own));
            }
            if request.options.raw && encryption.is_some_and(|e| e.is_root) {
                fs.insert_flag("is_encroot");
            }
            let first = if request.recursive {
                0
            } else if request.intermediate {
                member.from.map_or(0, |f| f + 1)
            } else {
                member.to
            };
            let (mut snaps, mut props, mut holds) = (NvList::new(), NvList::new(), NvList::new());
            if let Some(from) = member
                .from
                .filter(|_| !request.recursive && request.intermediate)
            {
                snaps.insert(&member.snaps[from].own, member.snaps[from].guid);
            }
            for snap in &member.snaps[first..=member.to] {
                snaps.insert(&snap.own, snap.guid);
                let name = format!("{}@{}", member.name, snap.own);
                let handle = dsl.dataset(&name)?;
                let own = dsl.own_properties(&handle, request.received_only)?;
                props.insert(&snap.own, list_of(own));
                if request.holds {
                    let mut tags = NvList::new();
                    for (tag, time) in dsl.holds(&name)? {
                        tags.insert(&tag, time);
                    }
                    holds.insert(&snap.own, tags);
                }
            }
            fs.insert("snaps", snaps);
            fs.insert("snapprops", props);
            if request.holds {
                fs.insert("snapholds", holds);
            }
            fss.insert(&format!("0x{:x}", member.head.guid()?), fs);
        }
        list.insert("fss", fss);
        Ok(list)
    }

    /// Plans what goes on where an interrupted receive ended.
    ///
    /// # Errors
    /// The snapshot or its source is not here any more.
    pub fn plan_resume(self: &Arc<Self>, token: &ResumeToken) -> Result<SendPlan> {
        let gone = || {
            Error::refused(
                Errno::NOENT,
                format!(
                    "'{}' used in the initial send no longer exists",
                    token.to_name
                ),
            )
        };
        let dataset = token.to_name.split('@').next().unwrap_or_default();
        let same = self
            .dsl()
            .dataset(&token.to_name)
            .ok()
            .filter(|d| d.guid().is_ok_and(|g| g == token.to_guid));
        let to = match same {
            Some(_) => token.to_name.clone(),
            None => self
                .dsl()
                .snapshot_by_guid(dataset, token.to_guid)?
                .ok_or_else(gone)?,
        };
        let from = if token.from_guid == 0 {
            None
        } else {
            let found = match &token.book_redact_snaps {
                Some(snaps) => self.redaction_bookmark_by(&to, token.from_guid, snaps)?,
                None => None,
            };
            let found = match found {
                Some(name) => Some(name),
                None => self.point_by_guid(&to, token.from_guid)?,
            };
            Some(found.ok_or_else(|| {
                Error::refused(
                    Errno::NOENT,
                    format!("incremental source {:#x} no longer exists", token.from_guid),
                )
            })?)
        };
        let redact = match &token.redact_snaps {
            // A snapshot that is redacted itself says so without a bookmark.
            Some(snaps)
                if self
                    .dsl()
                    .redacted_by(self.dsl().dataset(&to)?.object())?
                    .is_none() =>
            {
                let found = self.redaction_bookmark_by(&to, token.to_guid, snaps)?;
                Some(found.ok_or_else(|| {
                    Error::refused(
                        Errno::NOENT,
                        "the redaction bookmark used in the initial send no longer exists",
                    )
                })?)
            }
            _ => None,
        };
        let options = SendOptions {
            large_blocks: token.large_blocks,
            embed: token.embed,
            compressed: token.compressed,
            raw: token.raw,
            resume: Some((token.object, token.offset)),
            ..SendOptions::default()
        };
        let mut stream = self.planned(&to, from, redact.as_deref(), options)?;
        stream.estimate = stream.estimate.saturating_sub(token.bytes);
        Ok(SendPlan {
            streams: vec![stream],
            notes: Vec::new(),
            front: None,
        })
    }

    /// Plans a send of what an interrupted receive into `target` has so far.
    ///
    /// # Errors
    /// `Refused(INVAL)` if there is none; its source is not here any more.
    pub fn plan_saved(self: &Arc<Self>, target: &str) -> Result<SendPlan> {
        let (partial, state) = self.dsl().saved_receive(target)?;
        let from = match state.from_guid {
            0 => None,
            guid => match self.point_by_guid(target, guid)? {
                None => {
                    return Err(Error::refused(
                        Errno::NOENT,
                        format!(
                            "the snapshot with guid {guid:#x} that it builds on does not exist any more"
                        ),
                    ));
                }
                found => found,
            },
        };
        let source = match &from {
            Some(name) => {
                let mut source = self.dsl().send_source(partial.dataset(), name)?;
                // What is received beside a dataset belongs to it: no clone is to be made of its own snapshot.
                source.other_dataset = name.split(['@', '#']).next() != Some(target);
                Some(source)
            }
            None => None,
        };
        let send = Send::saved(partial, &state, source.as_ref())?;
        let stream = PlannedStream {
            to: state.to_name.clone(),
            from,
            estimate: send.exact_size()?,
            send,
        };
        Ok(SendPlan {
            streams: vec![stream],
            notes: Vec::new(),
            front: None,
        })
    }

    /// A snapshot or bookmark with a guid, near a snapshot.
    fn point_by_guid(&self, near: &str, guid: u64) -> Result<Option<String>> {
        let dataset = near.split('@').next().unwrap_or(near);
        if let Some(name) = self.dsl().snapshot_by_guid(dataset, guid)? {
            return Ok(Some(name));
        }
        let marks = self.dsl().bookmarks(dataset)?;
        Ok(marks
            .into_iter()
            .find(|(_, b)| b.guid == guid)
            .map(|(name, _)| format!("{dataset}#{name}")))
    }
}

/// How the source of a substream is shown.
enum Shown {
    /// By its full name.
    Full,
    /// By its own name, as of the same dataset.
    Short,
    /// Not at all: as if all were sent.
    Whole,
}

/// One substream of a package.
struct Step {
    to: String,
    from: Option<String>,
    shown: Shown,
}

/// The substreams of a package in order: a dataset comes when the one above it and the one that it is a clone of have come.
fn order(members: &[Member], request: &SendRequest) -> Vec<Step> {
    let mut out: Vec<Step> = Vec::new();
    let mut sent: Vec<&str> = Vec::new();
    let mut waiting: Vec<&Member> = members.iter().collect();
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut later = Vec::new();
        for member in waiting {
            let above = member.name.rsplit_once('/').map(|(above, _)| above);
            let origin = member
                .origin
                .as_ref()
                .and_then(|(o, _)| o.split('@').next());
            let is_waiting = |name: &str| {
                members
                    .iter()
                    .any(|m| m.name == name && m.name != member.name)
                    && !sent.contains(&name)
            };
            if above.is_some_and(is_waiting) || origin.is_some_and(is_waiting) {
                later.push(member);
            } else {
                sent.push(&member.name);
                streams_of(member, members, request, &mut out);
            }
        }
        if later.len() == before {
            // They wait for each other: send what there is.
            for member in later.drain(..) {
                streams_of(member, members, request, &mut out);
            }
        }
        waiting = later;
    }
    out
}

fn streams_of(member: &Member, members: &[Member], request: &SendRequest, out: &mut Vec<Step>) {
    // Without a source, all of the history goes.
    let all = request.intermediate || request.recursive && request.from.is_none();
    let name = |i: usize| format!("{}@{}", member.name, member.snaps[i].own);
    let origin = member.origin.as_ref().map(|(o, _)| o.clone());
    let is_package = request.intermediate || request.recursive;
    let mut last: Option<usize> = member.from;
    let first = member.from.map_or(0, |f| f + 1);
    for i in first..=member.to {
        let to = name(i);
        let is_origin = request.recursive
            && members
                .iter()
                .any(|m| m.origin.as_ref().is_some_and(|(o, _)| *o == to));
        if i != member.to && !all && !is_origin {
            continue;
        }
        let given = request.from.as_deref().filter(|_| !request.recursive);
        let (from, shown) = match (last, given) {
            (Some(at), _) if is_package => (Some(name(at)), Shown::Short),
            (Some(at), _) => (Some(name(at)), Shown::Full),
            (None, Some(given)) => (Some(full_source(&to, given)), Shown::Full),
            (None, None) => (origin.clone().filter(|_| request.recursive), Shown::Whole),
        };
        out.push(Step { to, from, shown });
        last = Some(i);
    }
}

fn list_of(values: Vec<(String, Value)>) -> NvList {
    let mut out = NvList::new();
    for (name, value) in values {
        let value = match value {
            Value::Number(n) => NvValue::Uint64(n),
            Value::Text(t) => NvValue::String(t),
        };
        out.insert(&name, value);
    }
    out
}

/// The full name of a source that may be given short.
fn full_source(to: &str, from: &str) -> String {
    let dataset = to.split('@').next().unwrap_or(to);
    if from.starts_with(['@', '#']) {
        format!("{dataset}{from}")
    } else {
        from.to_owned()
    }
}
