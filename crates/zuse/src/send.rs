//! Send streams of an open pool's snapshots: of one, or a package of several with data about their
//! datasets.

mod planned;
mod resume;

use std::io::Write;
use std::sync::Arc;

use zuse_base::{Errno, Error, Refusal, Result};
use zuse_dsl::property::Value;
use zuse_dsl::{Dataset as Handle, Owner, SendSource};
use zuse_format::nvlist::{NvList, NvValue};
use zuse_stream::record::{Begin, HEADER, Header, Record};
use zuse_stream::{Send, SendOptions, SendProgress, StreamWriter, features};

use crate::Pool;

pub use planned::PlannedStream;

/// What to send.
#[derive(Clone, Debug, Default)]
pub struct SendRequest {
    /// The snapshot, or a filesystem or volume that is not in use.
    pub to: String,
    /// The source: a full name, or `@snapshot`, `#bookmark` of the same dataset.
    pub from: Option<String>,
    /// All snapshots between (`-I`).
    pub intermediate: bool,
    /// Everything below, with properties (`-R`).
    pub recursive: bool,
    /// With properties (`-p`).
    pub properties: bool,
    /// With properties, except those of encryption (`-U`): an encrypted dataset is sent in clear.
    pub unencrypted: bool,
    /// With received properties instead of local ones (`-b`).
    pub received_only: bool,
    /// With holds (`-h`).
    pub holds: bool,
    /// Pass over datasets without the snapshot (`-s`).
    pub skip_missing: bool,
    /// Leave out these datasets, with everything below (`-X`).
    pub exclude: Vec<String>,
    /// Without the blocks in this redaction bookmark of the snapshot (`--redact`); its short or
    /// full name.
    pub redact: Option<String>,
    /// Form of the blocks.
    pub options: SendOptions,
    /// Only sizes are needed, which takes no keys.
    pub sizes_only: bool,
}

/// The properties of a dataset's encryption.
const OF_ENCRYPTION: [&str; 5] = [
    "encryption",
    "keyformat",
    "keylocation",
    "pbkdf2iters",
    "pbkdf2salt",
];

/// Everything to be written, in order.
pub struct SendPlan {
    /// The substreams.
    pub streams: Vec<PlannedStream>,
    /// Notes on datasets that are left out.
    pub notes: Vec<String>,
    /// Requested snapshots that cannot be sent: error messages, and the index of the following
    /// substream.
    pub failures: Vec<(usize, [String; 2])>,
    front: Option<(String, Option<NvList>, u64)>,
}

/// Several snapshots were requested of a name without one.
const ONE_SNAPSHOT: &str = "Error: Unsupported flag with filesystem or bookmark.";
/// Several snapshots were requested from a bookmark.
const SEVERAL_FROM_BOOKMARK: &str = "Error: multiple snapshots cannot be sent from a bookmark.";
/// Several snapshots were requested from a snapshot of another dataset that is not the origin.
const FROM_ELSEWHERE: &str = "incremental source must be in same filesystem";

impl SendPlan {
    /// Expected bytes in all.
    pub fn estimate(&self) -> u64 {
        self.streams.iter().map(|s| s.estimate).sum()
    }

    /// Writes it. Calls `report` before each substream.
    ///
    /// # Errors
    /// A block cannot be read, or the output's error.
    pub fn run<W: Write>(
        &self,
        out: &mut StreamWriter<W>,
        progress: &SendProgress,
        report: &mut dyn FnMut(&PlannedStream),
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
            report(stream);
            stream.run(out, progress)?;
        }
        if self.front.is_some() {
            out.bare(&Record::End {
                // The last END of a package has no checksum.
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
    /// Nothing of it is sent. It is in the list nevertheless, because receivers take missing
    /// datasets for destroyed.
    excluded: bool,
    /// The given source, as an index.
    source: Option<usize>,
    /// The same, if it is one of them.
    from: Option<usize>,
    /// Why nothing of it can be sent from the given source.
    impossible: Option<[String; 2]>,
    origin: Option<(String, u64)>,
}

impl Pool {
    /// Prepares a stream of a snapshot, full or from an earlier snapshot or bookmark. `from` is a
    /// full name, or begins with `@` or `#` and belongs to the same dataset.
    ///
    /// # Errors
    /// `Refused`: NOENT, XDEV if `from` is no earlier point of the same history.
    pub fn send(
        self: &Arc<Self>,
        to: &str,
        from: Option<&str>,
        options: SendOptions,
    ) -> Result<PlannedStream> {
        let from = from.map(|f| full_source(to, f));
        self.planned(to, from, None, options, false)
    }

    fn planned(
        &self,
        to: &str,
        from: Option<String>,
        redact: Option<&str>,
        options: SendOptions,
        sizes_only: bool,
    ) -> Result<PlannedStream> {
        let dataset = self.dsl().dataset(to)?;
        let owner = match dataset.is_snapshot() || !self.is_writable() {
            true => None,
            false => Some(self.own_head(&dataset, to, sizes_only)?),
        };
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
        let send = Send::redacted(&dataset, to, source.as_ref(), mark.as_deref(), options);
        let estimate = self.estimated(&dataset, source.as_ref(), options)?;
        let (send, estimate) = match (send, estimate) {
            // Sizes are known without the key, and nothing is going to be read.
            (Err(e), Some(bytes)) if sizes_only && e.is_for(Refusal::KeyNotLoaded) => (None, bytes),
            (Ok(send), Some(bytes)) if !send.is_redacted() => (Some(send), bytes),
            (send, _) => {
                let send = send?;
                let bytes = send.exact_size()?;
                (Some(send), bytes)
            }
        };
        let send = send.map(|mut send| {
            if let Some(owner) = owner {
                // The head must not change until its stream has ended.
                send.keep(owner);
            }
            send
        });
        Ok(PlannedStream {
            to: to.to_owned(),
            from,
            estimate,
            send,
        })
    }

    /// Owns a head of a writable pool, so that no file in it changes while it is sent. What was
    /// written before goes to disk first, because a send reads only what is there.
    fn own_head(&self, head: &Arc<Handle>, name: &str, sizes_only: bool) -> Result<Owner> {
        let owner = head.own().map_err(|_| {
            let what = format!("'{name}' is in use: a snapshot of it can be sent");
            Error::refused(Errno::BUSY, what)
        })?;
        if !sizes_only {
            self.sync()?;
        }
        Ok(owner)
    }

    /// A substream of a package.
    fn packed_substream(
        &self,
        to: &str,
        from: Option<String>,
        shown: &Shown,
        request: &SendRequest,
    ) -> Result<PlannedStream> {
        let options = request.options;
        let mut stream = self.planned(to, from, None, options, request.sizes_only)?;
        match shown {
            Shown::Whole => {
                stream.from = None;
                let dataset = self.dsl().dataset(to)?;
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

    /// The usual estimate, from the datasets' sizes (chapter 05b §8 of the format notes).
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
        self.check_names(request)?;
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
                request.sizes_only,
            )?;
            return Ok(SendPlan {
                streams: vec![stream],
                notes: Vec::new(),
                failures: Vec::new(),
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
            return Err(Error::refused(Errno::INVAL, ONE_SNAPSHOT));
        };
        let request = &self.normalized(request, top)?;
        let mut notes = Vec::new();
        let members = self.members(request, top, tosnap, &mut notes)?;
        // The permission for a list is checked before a key is needed.
        let list = if wants_list {
            Some(self.front(request, tosnap, &members)?)
        } else {
            None
        };
        let (mut streams, mut failures) = (Vec::new(), Vec::new());
        for step in order(&members, request) {
            match step {
                Step::Stream { to, from, shown } => {
                    streams.push(self.packed_substream(&to, from, &shown, request)?);
                }
                Step::Impossible(lines) => failures.push((streams.len(), lines)),
            }
        }
        let word = if request.holds { features::HOLDS } else { 0 };
        Ok(SendPlan {
            streams,
            notes,
            failures,
            front: Some((request.to.clone(), list, word)),
        })
    }

    /// Refuses missing names and invalid combinations.
    fn check_names(&self, request: &SendRequest) -> Result<()> {
        let to = request.to.as_str();
        let several = request.recursive || request.intermediate;
        let refuse = |what: &str| Err(Error::refused_for(Refusal::Whole, Errno::INVAL, what));
        if several && !to.contains('@') {
            return refuse(ONE_SNAPSHOT);
        }
        if to.contains('#') {
            return refuse(&format!(
                "cannot open '{to}': bookmark delimiter '#' is not expected here"
            ));
        }
        let there = |name: &str| self.dsl().dataset(name).map_err(|e| not_there(name, e));
        if several && let Some(top) = dataset_of(to) {
            there(top)?;
        }
        there(to)?;
        let wants_list = request.properties || request.holds || request.received_only;
        if wants_list && !to.contains('@') {
            let what = format!("cannot send {to}@: snapshot {to}@ does not exist");
            return Err(Error::refused_for(Refusal::Unsendable, Errno::INVAL, what));
        }
        match request.from.as_deref() {
            Some(from) if from.contains('#') && several => refuse(SEVERAL_FROM_BOOKMARK),
            // Otherwise a full stream would be made instead of an incremental one.
            Some(from) if !from.contains('#') => there(&full_source(to, from)).map(drop),
            _ => Ok(()),
        }
    }

    /// Several snapshots of a clone may be sent from its origin, which means its whole history.
    fn normalized(&self, request: &SendRequest, top: &str) -> Result<SendRequest> {
        let mut request = request.clone();
        if let Some(from) = &request.from
            && (request.recursive || request.intermediate)
            && dataset_of(from).is_some_and(|dataset| dataset != top)
        {
            let head = self
                .dsl()
                .dataset(top)
                .map_err(|e| not_there(&request.to, e))?;
            if self.dsl().stat(&head)?.origin.as_ref() != Some(from) {
                return Err(Error::refused_for(
                    Refusal::Usage,
                    Errno::XDEV,
                    FROM_ELSEWHERE,
                ));
            }
            request.from = None;
            request.intermediate = true;
        }
        Ok(request)
    }

    /// The datasets to send, with the parts of each; skipped ones are noted.
    fn members(
        &self,
        request: &SendRequest,
        top: &str,
        tosnap: &str,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Member>> {
        let dsl = self.dsl();
        let all = self.entries(request, top)?;
        let last = dsl.dataset(&request.to);
        let last_txg = last
            .map_err(|e| not_there(&request.to, e))?
            .phys()?
            .creation_txg;
        let mut skipped: Vec<String> = Vec::new();
        let mut members = Vec::new();
        for entry in all {
            let below = |root: &String| is_in(&entry.name, root);
            if skipped.iter().any(below) {
                continue;
            }
            let head = dsl.dataset_by_object(entry.dataset)?;
            let snaps = self.snapshots_of(&entry.name)?;
            let Some(to) = snaps.iter().position(|s| s.own == tosnap) else {
                let is_later = head.phys()?.creation_txg > last_txg;
                notes.push(skip_without(request, &entry.name, tosnap, is_later)?);
                skipped.push(entry.name.clone());
                continue;
            };
            for late in snaps[to + 1..].iter().filter(|_| request.recursive) {
                notes.push(format!(
                    "skipping snapshot {}@{} because it was created after the destination snapshot ({tosnap})",
                    entry.name, late.own
                ));
            }
            let source = request
                .from
                .as_deref()
                .filter(|f| dataset_of(f).is_none_or(|d| d == top));
            let source = source.and_then(|f| f.split('@').nth(1));
            let at = source.and_then(|own| snaps.iter().position(|s| s.own == own));
            let from = at.filter(|at| *at < to);
            let impossible = source
                .filter(|_| from.is_none() && at.is_some())
                .map(|own| {
                    // Without -R only the last snapshot matters.
                    let is_known = request.recursive || at == Some(to);
                    why_impossible(&entry.name, tosnap, own, is_known)
                });
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
                excluded: request.exclude.iter().any(below),
                source: at,
                from,
                impossible,
                origin,
            });
        }
        Ok(members)
    }

    /// The dataset to send, with `-R` those below it too.
    fn entries(&self, request: &SendRequest, top: &str) -> Result<Vec<zuse_dsl::DirEntry>> {
        if request.recursive {
            return self.dsl().tree_as_stored(top);
        }
        Ok(vec![zuse_dsl::DirEntry {
            name: top.to_owned(),
            dataset: self.dsl().dataset(top)?.object(),
        }])
    }

    fn snapshots_of(&self, dataset: &str) -> Result<Vec<Snap>> {
        let mut snaps = Vec::new();
        for snap in self.dsl().snapshots(dataset)? {
            let phys = self.dsl().dataset_by_object(snap.dataset)?.phys()?;
            let own = snap.name.split('@').nth(1).unwrap_or_default().to_owned();
            snaps.push(Snap {
                own,
                guid: phys.guid,
            });
        }
        Ok(snaps)
    }

    /// The list at the beginning of a package: the contents of each dataset.
    fn front(&self, request: &SendRequest, tosnap: &str, members: &[Member]) -> Result<NvList> {
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
            let parent = if i == 0 {
                None
            } else {
                let above = member.name.rsplit_once('/').map(|(p, _)| p);
                members.iter().find(|m| Some(m.name.as_str()) == above)
            };
            let fs = self.front_entry(request, member, parent)?;
            fss.insert(&format!("0x{:x}", member.head.guid()?), fs);
        }
        list.insert("fss", fss);
        Ok(list)
    }

    /// The list's entry for one dataset.
    fn front_entry(
        &self,
        request: &SendRequest,
        member: &Member,
        parent: Option<&Member>,
    ) -> Result<NvList> {
        let dsl = self.dsl();
        let mut fs = NvList::new();
        fs.insert("name", member.name.as_str());
        let from_parent = parent.map_or(0, |p| p.snaps[p.from.unwrap_or(p.to)].guid);
        fs.insert("parentfromsnap", from_parent);
        if let Some((_, guid)) = &member.origin {
            fs.insert("origin", *guid);
        }
        let encryption = dsl.encryption(&member.name)?;
        if encryption.is_some() && !request.options.raw && !request.unencrypted {
            return Err(Error::refused_for(
                Refusal::Unsendable,
                Errno::INVAL,
                format!(
                    "cannot send {}: encrypted dataset {} may not be sent with properties without the raw flag",
                    request.to, member.name
                ),
            ));
        }
        if request.recursive || request.properties || request.received_only {
            let mut own = dsl.own_properties(&member.head, request.received_only)?;
            if request.unencrypted {
                own.retain(|(name, _)| !OF_ENCRYPTION.contains(&name.as_str()));
            }
            fs.insert("props", list_of(own));
        }
        if request.options.raw && encryption.is_some_and(|e| e.is_root) {
            fs.insert_flag("is_encroot");
        }
        self.put_snapshots(request, member, &mut fs)?;
        Ok(fs)
    }

    /// Adds a dataset's snapshots to the list, with their properties and holds.
    fn put_snapshots(&self, request: &SendRequest, member: &Member, fs: &mut NvList) -> Result<()> {
        let dsl = self.dsl();
        let first = if request.recursive {
            0
        } else if member.impossible.is_some() {
            member.to + 1
        } else if request.intermediate {
            member.from.map_or(0, |f| f + 1)
        } else {
            member.to
        };
        let (mut snaps, mut props, mut holds) = (NvList::new(), NvList::new(), NvList::new());
        if let Some(from) = member
            .source
            .filter(|at| !request.recursive && request.intermediate && *at <= member.to)
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
        Ok(())
    }
}

/// Whether a dataset is `root` or below it.
fn is_in(name: &str, root: &str) -> bool {
    let below = name.strip_prefix(root);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The note on a dataset without the snapshot. One that is older than the snapshot is skipped only
/// on request.
fn skip_without(request: &SendRequest, name: &str, tosnap: &str, is_later: bool) -> Result<String> {
    if is_later {
        return Ok(format!(
            "skipping dataset {name}: snapshot {tosnap} does not exist"
        ));
    }
    if request.skip_missing {
        return Ok(format!(
            "WARNING: skipping dataset {name} and its children: snapshot {tosnap} does not exist"
        ));
    }
    Err(Error::refused_for(
        Refusal::Unsendable,
        Errno::NOENT,
        format!(
            "cannot send {} recursively: snapshot {name}@{tosnap} does not exist",
            request.to
        ),
    ))
}

/// Why nothing of a dataset can be sent from its snapshot `own`, which is not before `tosnap`.
fn why_impossible(name: &str, tosnap: &str, own: &str, is_known: bool) -> [String; 2] {
    let why = match is_known {
        true => "is not earlier than it",
        false => "does not exist",
    };
    [
        format!("WARNING: could not send {name}@{tosnap}:"),
        format!("incremental source ({name}@{own}) {why}"),
    ]
}

/// How the source of a substream is shown.
enum Shown {
    /// By its full name.
    Full,
    /// By its short name, as one of the same dataset.
    Short,
    /// Not at all: as if all were sent.
    Whole,
}

/// One substream of a package.
enum Step {
    /// A snapshot, from its source.
    Stream {
        to: String,
        from: Option<String>,
        shown: Shown,
    },
    /// None, and why.
    Impossible([String; 2]),
}

/// The substreams of a package in order. A dataset follows its parent and its origin.
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
            // They wait for each other: sent in the present order.
            for member in later.drain(..) {
                streams_of(member, members, request, &mut out);
            }
        }
        waiting = later;
    }
    out
}

fn streams_of(member: &Member, members: &[Member], request: &SendRequest, out: &mut Vec<Step>) {
    // Without a source, the whole history is sent.
    let all = request.intermediate || request.recursive && request.from.is_none();
    let name = |i: usize| format!("{}@{}", member.name, member.snaps[i].own);
    let origin = member.origin.as_ref().map(|(o, _)| o.clone());
    let is_package = request.intermediate || request.recursive;
    if member.excluded {
        return;
    }
    if is_package && let Some(lines) = &member.impossible {
        out.push(Step::Impossible(lines.clone()));
        return;
    }
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
            (None, None) => (origin.clone().filter(|_| is_package), Shown::Whole),
        };
        out.push(Step::Stream { to, from, shown });
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

/// The dataset in the name of a source, if there is one.
fn dataset_of(source: &str) -> Option<&str> {
    source.split(['@', '#']).next().filter(|d| !d.is_empty())
}

/// The error for a missing snapshot, with the command's message.
fn not_there(name: &str, error: Error) -> Error {
    match error.is(Errno::NOENT) {
        true => Error::refused_for(
            Refusal::Whole,
            Errno::NOENT,
            format!("cannot open '{name}': dataset does not exist"),
        ),
        false => error,
    }
}

/// The full name of a source that may be short.
fn full_source(to: &str, from: &str) -> String {
    let dataset = to.split('@').next().unwrap_or(to);
    if from.starts_with(['@', '#']) {
        format!("{dataset}{from}")
    } else {
        from.to_owned()
    }
}
