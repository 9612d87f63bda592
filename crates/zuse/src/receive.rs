//! Receiving streams into an open pool: packages and single snapshots, names, mounts.

mod align;
mod properties;

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use zuse_base::{Errno, Error, Refusal, Result};
use zuse_dsl::property::{ReceivedProperties, SetAs, Value};
use zuse_dsl::{KeyMaterial, ReceivedEncryption};
use zuse_format::nvlist::{NvList, NvValue};
use zuse_format::property::{Access, Home, dataset_property, is_user_property};
use zuse_stream::record::{Begin, Header, Record};
use zuse_stream::{
    Flaw, Healing, Item, ReceiveOptions, Received, ResumeToken, StreamReader, check_begin, heal,
    receive, skip,
};

use crate::Pool;

/// The type number of a volume in a BEGIN record.
const ZVOL: u32 = 3;

/// How names in the stream are converted to names here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Naming {
    /// The target is the dataset (or snapshot) itself.
    #[default]
    Exact,
    /// The name without the pool is appended to the target (`-d`).
    DropPool,
    /// The last component is appended to the target (`-e`).
    LastOnly,
}

/// How to receive a stream.
#[derive(Clone, Debug, Default)]
pub struct ReceiveRequest {
    /// Dataset or snapshot.
    pub target: String,
    /// How names are converted.
    pub naming: Naming,
    /// Roll back and overwrite (`-F`).
    pub force: bool,
    /// Keep received data if the stream ends early (`-s`).
    pub resumable: bool,
    /// Receive the part of a stream that ends early, and return its error afterwards.
    pub salvage: bool,
    /// Only say what would be done (`-n`).
    pub dry_run: bool,
    /// Make the new dataset a clone of this snapshot.
    pub origin: Option<String>,
    /// Set these properties on the top dataset (`-o`), as text.
    pub set: Vec<(String, String)>,
    /// Ignore these properties of the stream (`-x`).
    pub exclude: Vec<String>,
    /// Leave out holds (`-h`).
    pub no_holds: bool,
    /// The key of the top dataset, if `set` makes it a new encryption root
    /// ([`received_key_request`]).
    ///
    /// [`received_key_request`]: crate::received_key_request
    pub key: Option<KeyMaterial>,
    /// The uid and gid of the root directories of missing parents, which are created.
    pub owner: (u32, u32),
}

/// A snapshot in the stream, before and after it was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceivedSnapshot {
    /// Its name in the stream.
    pub from: String,
    /// Its name here.
    pub to: String,
    /// It is incremental.
    pub incremental: bool,
    /// It existed here already.
    pub skipped: bool,
    /// Bytes of stream; `None` before it was received.
    pub bytes: Option<u64>,
    /// Properties in the stream that could not be set, as messages.
    pub refused: Vec<String>,
}

/// The description at the beginning of a package.
struct Package {
    top: String,
    list: NvList,
    /// The index of each dataset in the list: a package may have hundreds of thousands of datasets
    /// and as many snapshots.
    places: HashMap<String, usize>,
    /// The target of its top dataset existed before.
    on_top: bool,
}

impl Package {
    fn new(top: &str, list: NvList) -> Self {
        let mut places = HashMap::new();
        for (i, (_, value)) in list
            .get_list("fss")
            .into_iter()
            .flat_map(NvList::iter)
            .enumerate()
        {
            if let NvValue::List(fs) = value
                && let Some(name) = fs.get_str("name")
            {
                places.entry(name.to_owned()).or_insert(i);
            }
        }
        Self {
            top: top.to_owned(),
            list,
            places,
            on_top: false,
        }
    }

    /// The description of a dataset.
    fn dataset(&self, dataset: &str) -> Option<&NvList> {
        let at = *self.places.get(dataset)?;
        match self.list.get_list("fss")?.pairs.get(at) {
            Some((_, NvValue::List(fs))) => Some(fs),
            _ => None,
        }
    }

    fn is_raw(&self) -> bool {
        self.list.contains("raw")
    }

    /// The received properties of a dataset, as far as they can be stored; `None` if none were
    /// sent.
    fn properties(&self, dataset: &str) -> Option<Vec<(String, Value)>> {
        let props = self.dataset(dataset)?.get_list("props")?;
        let mut out = values_of(Some(props), &[]);
        // `keylocation` is set when the dataset has become an encryption root.
        out.retain(|(name, _)| name != "keylocation" || !self.is_raw());
        Some(out)
    }

    /// The received properties of a snapshot.
    fn snapshot_properties(
        &self,
        dataset: &str,
        own: &str,
        exclude: &[String],
    ) -> Vec<(String, Value)> {
        let props = self
            .dataset(dataset)
            .and_then(|fs| fs.get_list("snapprops")?.get_list(own));
        let mut out = values_of(props, exclude);
        out.retain(|(name, _)| is_user_property(name));
        out
    }

    /// The holds of a snapshot.
    fn holds(&self, dataset: &str, own: &str) -> Vec<String> {
        let tags = self
            .dataset(dataset)
            .and_then(|fs| fs.get_list("snapholds")?.get_list(own));
        tags.map_or_else(Vec::new, |t| {
            t.iter().map(|(tag, _)| tag.to_owned()).collect()
        })
    }
}

fn values_of(props: Option<&NvList>, exclude: &[String]) -> Vec<(String, Value)> {
    let value = |v: &NvValue| match v {
        NvValue::Uint64(n) => Some(Value::Number(*n)),
        NvValue::String(s) => Some(Value::Text(s.clone())),
        _ => None,
    };
    let Some(props) = props else {
        return Vec::new();
    };
    props
        .iter()
        .filter(|(name, _)| !exclude.iter().any(|x| x == name) && is_storable(name))
        .filter_map(|(name, v)| Some((name.to_owned(), value(v)?)))
        .collect()
}

/// Whether a received property can be stored; the others are computed.
fn is_storable(name: &str) -> bool {
    is_user_property(name)
        || dataset_property(name)
            .is_some_and(|p| p.home == Home::Props && !matches!(p.access, Access::ReadOnly))
}

impl Pool {
    /// Receives everything in a stream. Calls `report` for each snapshot before (`bytes` is `None`)
    /// and after it is received.
    ///
    /// # Errors
    /// The first snapshot that cannot be received ends the package; those before it stay.
    pub fn receive(
        self: &Arc<Self>,
        input: impl Read,
        request: &ReceiveRequest,
        report: &mut dyn FnMut(&ReceivedSnapshot),
    ) -> Result<()> {
        properties::check(request)?;
        let top = &request.target;
        if request.naming != Naming::Exact && !self.exists(top)? {
            return Err(receive_failure(format!(
                "specified fs ({top}) does not exist"
            )));
        }
        let mut reader = StreamReader::new(input);
        let first = match reader.next_record() {
            Ok(Some(first)) => first,
            Ok(None) => return Err(reader.flaw(Flaw::Truncated).into()),
            Err(error) => match error.flaw() {
                Some(Flaw::Magic) => return Err(no_stream("")),
                Some(Flaw::Packed(program)) => {
                    let hint = format!("\nit was packed: unpack it with '{program}' first");
                    return Err(no_stream(&hint));
                }
                _ => return Err(error.into()),
            },
        };
        let Record::Begin(begin) = &first.record else {
            return Err(first.invalid("the stream has no BEGIN").into());
        };
        if begin.header() != Header::Package {
            let mut package = Package::new(&begin.to_name, NvList::new());
            package.on_top = self.is_there(&package, request);
            return self.substream(&mut reader, &first, &package, request, report);
        }
        let list = if first.payload.is_empty() {
            NvList::new()
        } else {
            NvList::decode(&first.payload)
                .map_err(|e| Error::from(first.invalid(format!("the package's list: {e}"))))?
        };
        let mut package = Package::new(&begin.to_name, list);
        match reader.next_record()? {
            Some(end) if matches!(end.record, Record::End { .. }) => {}
            Some(other) => return Err(other.invalid("a package's front has an END").into()),
            None => return Err(first.invalid("the package ends behind its front").into()),
        }
        if package.is_raw() {
            properties::check_raw(request)?;
        }
        package.on_top = self.is_there(&package, request);
        if package.on_top && package.list.contains("fromsnap") {
            properties::check_on_top(request)?;
        }
        self.align(&package, request)?;
        loop {
            let Some(item) = reader.next_record()? else {
                let what = "the package ends without its END".to_owned();
                return Err(reader.flaw(Flaw::Invalid(what)).into());
            };
            if matches!(item.record, Record::End { .. }) {
                self.align(&package, request)?;
                return self.align_roots(&package, request);
            }
            self.substream(&mut reader, &item, &package, request, report)?;
        }
    }

    /// Heals bad blocks of an existing snapshot from a stream of it; from a package, with that
    /// snapshot's part.
    ///
    /// # Errors
    /// The stream is of another snapshot, or damaged. Blocks healed until then stay healed.
    pub fn heal(self: &Arc<Self>, input: impl Read, snapshot: &str) -> Result<Healing> {
        let guid = self.dsl().dataset(snapshot).and_then(|d| d.guid()).ok();
        let mut reader = StreamReader::new(input);
        let mut packed = false;
        let mut found = None;
        while let Some(item) = reader.next_record()? {
            match &item.record {
                Record::Begin(begin) if begin.header() == Header::Package => packed = true,
                Record::Begin(begin) if packed && Some(begin.to_guid) != guid => skip(&mut reader)?,
                Record::Begin(_) => {
                    found = Some(heal(self.dsl(), &mut reader, &item, snapshot)?);
                }
                Record::End { .. } => {}
                _ => return Err(item.invalid("a record outside of a snapshot").into()),
            }
        }
        found.ok_or_else(|| {
            let what = "local snapshot doesn't match the snapshot in the provided stream";
            Error::refused(Errno::NOTSUP, what)
        })
    }

    /// Whether the target of a package's top dataset exists.
    fn is_there(&self, package: &Package, request: &ReceiveRequest) -> bool {
        let here = package.here(dataset_of(&package.top), request);
        here.is_some_and(|name| self.dsl().dataset(&name).is_ok())
    }

    fn substream<R: Read>(
        self: &Arc<Self>,
        reader: &mut StreamReader<R>,
        item: &Item,
        package: &Package,
        request: &ReceiveRequest,
        report: &mut dyn FnMut(&ReceivedSnapshot),
    ) -> Result<()> {
        let begin = check_begin(item)?;
        let (target, name) = name_here(&package.top, begin, request).ok_or_else(|| {
            let what = format!("'{}' is no snapshot below '{}'", begin.to_name, package.top);
            Error::from(item.invalid(what))
        })?;
        let mut snapshot = ReceivedSnapshot {
            from: begin.to_name.clone(),
            to: format!("{target}@{name}"),
            incremental: begin.from_guid != 0,
            skipped: false,
            bytes: None,
            refused: Vec::new(),
        };
        // A single full stream is never received into an existing dataset.
        let may_be_there = snapshot.incremental || !package.list.is_empty();
        let there = self
            .dsl()
            .dataset(&snapshot.to)
            .ok()
            .filter(|_| may_be_there);
        if let Some(there) = there
            && there.guid()? == begin.to_guid
        {
            snapshot.skipped = true;
            report(&snapshot);
            return Ok(skip(reader)?);
        }
        report(&snapshot);
        if request.dry_run {
            return Ok(skip(reader)?);
        }
        if request.naming != Naming::Exact {
            self.make_parents(&target, request.owner)?;
        }
        let exists = self.dsl().dataset(&target).is_ok();
        let (options, late) = self.options_for(begin, package, request, &target, exists)?;
        let received = receive(self.dsl(), reader, item, &target, &name, &options)?;
        snapshot.bytes = Some(received.bytes);
        let mut received = received;
        let flaw = received.flaw.take();
        snapshot.refused = received.refused().to_vec();
        self.put_in_place(received)?;
        if let Some(late) = late {
            let done = self.dsl().receive_properties(&target, &late)?;
            snapshot.refused.extend(done.refused);
        }
        if !exists && let Some(mounts) = self.mounts() {
            mounts.created(&target);
        }
        if let Some(mounts) = self.mounts() {
            mounts.created(&snapshot.to);
        }
        self.after_snapshot(begin, &snapshot, package, request, !exists)?;
        report(&snapshot);
        let Some((error, complete_part)) = flaw else {
            return Ok(());
        };
        for name in [snapshot.to.as_str(), dataset_of(&snapshot.to)] {
            self.note_complete_part(&*self.dsl().dataset(name)?, complete_part.clone());
        }
        Err(error)
    }

    /// The options for receiving a snapshot, and the properties to set afterwards.
    fn options_for(
        self: &Arc<Self>,
        begin: &Begin,
        package: &Package,
        request: &ReceiveRequest,
        target: &str,
        exists: bool,
    ) -> Result<(ReceiveOptions, Option<ReceivedProperties>)> {
        let is_top = dataset_of(&begin.to_name) == dataset_of(&package.top);
        let sent = package.properties(dataset_of(&begin.to_name));
        let kind = match begin.objset_type {
            ZVOL => zuse_dsl::DatasetKind::Volume,
            _ => zuse_dsl::DatasetKind::Filesystem,
        };
        if begin.features() & zuse_stream::features::RAW != 0 {
            properties::check_raw(request)?;
        }
        if is_top && package.on_top && begin.from_guid != 0 {
            properties::check_on_top(request)?;
        }
        let encryption = match properties::given_encryption(request) {
            None if properties::in_clear(sent.is_some(), request) => ReceivedEncryption::Off,
            Some(own) if is_top && exists => {
                self.check_is_encrypted(target, &own)?;
                ReceivedEncryption::AsParent
            }
            Some(own) if is_top => {
                let new = self.new_encryption(target, &own, request.key.as_ref())?;
                new.map_or(ReceivedEncryption::Off, ReceivedEncryption::Given)
            }
            // Datasets below the top use its key.
            Some(_) | None => ReceivedEncryption::AsParent,
        };
        let (properties, late) = properties::of(sent, request, kind, is_top)?;
        let options = ReceiveOptions {
            force: request.force,
            resumable: request.resumable,
            salvage: request.salvage,
            origin: request.origin.clone().filter(|_| is_top && !exists),
            encryption,
            properties,
        };
        Ok((options, late))
    }

    /// Applies a package's data about a snapshot: properties and holds; also for a new encrypted
    /// dataset.
    fn after_snapshot(
        self: &Arc<Self>,
        begin: &Begin,
        snapshot: &ReceivedSnapshot,
        package: &Package,
        request: &ReceiveRequest,
        is_new: bool,
    ) -> Result<()> {
        let dsl = self.dsl();
        let (sent, own) = begin
            .to_name
            .split_once('@')
            .unwrap_or((&begin.to_name, ""));
        let values = package.snapshot_properties(sent, own, &request.exclude);
        if !values.is_empty() {
            dsl.set_properties(&snapshot.to, &values, SetAs::Received)?;
        }
        if !request.no_holds {
            for tag in package.holds(sent, own) {
                match dsl.hold(std::slice::from_ref(&snapshot.to), &tag) {
                    // An earlier attempt may have set it, and ended after that.
                    Err(e) if e.is(Errno::EXIST) => {}
                    other => other?,
                }
            }
        }
        if is_new && package.is_raw() {
            let target = dataset_of(&snapshot.to);
            let Some(fs) = package.dataset(sent) else {
                return Ok(());
            };
            if !fs.contains("is_encroot") {
                // The top dataset has another parent here. So it is opened with the key of its root
                // at the sender.
                return match sent == dataset_of(&package.top) {
                    true => Ok(()),
                    false => dsl.inherit_received_key(target),
                };
            }
            let location = fs.get_list("props").and_then(|p| p.get_str("keylocation"));
            if let Some(text) = location.filter(|t| *t != "none") {
                let value = Value::Text(text.to_owned());
                dsl.set_properties(target, &[("keylocation".to_owned(), value)], SetAs::Local)?;
            }
        }
        Ok(())
    }

    /// Makes a mount release a dataset while its content is replaced.
    fn put_in_place(self: &Arc<Self>, received: Received) -> Result<()> {
        let Some(target) = received.replaces().map(str::to_owned) else {
            return received.finish();
        };
        let mut received = Some(received);
        let mut finish = || {
            let object = self.dsl().dataset(&target)?.object();
            // With the mounts suspended, what is still open belongs to another command of this
            // process.
            if self.open_file_systems().is_open(object.0) {
                return Err(Error::refused(
                    Errno::BUSY,
                    format!("files of '{target}' are being copied or listed by another command"),
                ));
            }
            received.take().map_or(Ok(()), Received::finish)
        };
        match self.mounts() {
            Some(mounts) => mounts.while_suspended(&[&target], &mut finish),
            None => finish(),
        }
    }

    fn make_parents(&self, target: &str, owner: (u32, u32)) -> Result<()> {
        let mut missing = Vec::new();
        let mut at = target;
        while let Some((parent, _)) = at.rsplit_once('/') {
            if self.dsl().dataset(parent).is_ok() {
                break;
            }
            missing.push(parent.to_owned());
            at = parent;
        }
        // Collected from below, made from above: each needs its parent, and inherits its key.
        for name in missing.iter().rev() {
            self.create_filesystem(name, &[], owner)?;
        }
        Ok(())
    }
}

/// A failure of the whole receive, before any snapshot.
fn receive_failure(why: impl std::fmt::Display) -> Error {
    let text = format!("cannot receive: {why}");
    Error::refused_for(Refusal::Whole, Errno::INVAL, text)
}

/// What the input is instead of a stream.
fn no_stream(hint: &str) -> Error {
    let text = format!("invalid stream (bad magic number){hint}");
    Error::refused_for(Refusal::NoStream, Errno::INVAL, text)
}

/// The token for a resume state.
pub(crate) fn token_of(state: &zuse_dsl::ResumeState) -> ResumeToken {
    ResumeToken {
        from_guid: state.from_guid,
        object: state.object,
        offset: state.offset,
        bytes: state.bytes,
        to_guid: state.to_guid,
        to_name: state.to_name.clone(),
        large_blocks: state.large_blocks,
        embed: state.embed,
        compressed: state.compressed,
        raw: state.raw,
        redact_snaps: state.redacted_by.clone(),
        book_redact_snaps: state.source_redacted_by.clone(),
    }
}

impl Pool {
    /// The token for resuming an interrupted receive into a dataset, if there is one.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the pool cannot be read.
    pub fn resume_token(&self, target: &str) -> Result<Option<ResumeToken>> {
        Ok(self.dsl().resume_state(target)?.map(|s| token_of(&s)))
    }
}

fn dataset_of(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// Dataset and snapshot name that a substream becomes; `None` if it would be outside the target.
fn name_here(top: &str, begin: &Begin, request: &ReceiveRequest) -> Option<(String, String)> {
    let (sent, snap) = begin.to_name.split_once('@')?;
    if let Some((dataset, own)) = request.target.split_once('@') {
        return Some((dataset.to_owned(), own.to_owned()));
    }
    let top = dataset_of(top);
    let target = &request.target;
    let rest = match request.naming {
        Naming::Exact => sent.strip_prefix(top)?,
        Naming::DropPool => sent.find('/').map_or("", |at| &sent[at..]),
        Naming::LastOnly => match top.rfind('/') {
            Some(at) => sent.get(at..)?,
            None => return Some((format!("{target}/{sent}"), snap.to_owned())),
        },
    };
    let is_below = rest.is_empty() || rest.starts_with('/');
    is_below.then(|| (format!("{target}{rest}"), snap.to_owned()))
}
