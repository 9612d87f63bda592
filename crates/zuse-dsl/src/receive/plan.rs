//! The target of a stream, with all checks, before anything is created (chapter 05b §9.2 of the
//! format notes).

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_format::ObjsetPhys;
use zuse_format::dsl::{DS_FLAG_INCONSISTENT, DslDatasetPhys};

use super::{ReceiveBegin, ReceivedEncryption, refuse};
use crate::admission::Reserve;
use crate::context::Ctx;
use crate::key_change::NewEncryption;
use crate::name::split_last;
use crate::redact::REDACTED;
use crate::version::{VERSION_ATTRIBUTES, too_old};

/// Guids that fit into one entry of a dataset's table.
const REDACTED_MAX: usize = 1024;

/// What a receive starts from.
pub(super) enum Start {
    /// A new dataset, empty or a clone of a snapshot.
    New { origin: Option<u64> },
    /// The temporary clone of this snapshot; empty if it is the pool's own origin.
    Temporary { source: u64 },
    /// The dataset of an interrupted receive.
    Resume { object: u64, temporary: bool },
}

impl Ctx<'_> {
    pub(super) fn check_receive(&self, begin: &ReceiveBegin) -> Result<()> {
        self.dsl.check_room(Reserve::None, 512 * 1024)?;
        self.plan_receive(begin).map(|_| ())
    }

    pub(super) fn plan_receive(&self, begin: &ReceiveBegin) -> Result<Start> {
        let start = self.plan_place(begin)?;
        if begin.accounts_users && self.meta.version() < VERSION_ATTRIBUTES {
            let why = "stream's attributes need a pool of version 24";
            return refuse(Errno::NOTSUP, why.to_owned());
        }
        if begin.redacted_by.is_some() && !self.enabled(REDACTED) {
            return refuse(
                Errno::NOTSUP,
                "the stream is redacted, and feature redacted_datasets is not enabled".to_owned(),
            );
        }
        for guids in [&begin.redacted_by, &begin.source_redacted_by] {
            if guids.as_ref().is_some_and(|g| g.len() > REDACTED_MAX) {
                return refuse(
                    Errno::INVAL,
                    format!(
                        "the stream is redacted with respect to more than {REDACTED_MAX} snapshots"
                    ),
                );
            }
        }
        // A full stream brings all its blocks, so only the others depend on a redacted source.
        match &start {
            Start::New { origin: Some(snap) } => self.check_redacted(begin, *snap)?,
            Start::Temporary { source } if begin.from_guid != 0 => {
                self.check_redacted(begin, *source)?;
            }
            _ => {}
        }
        self.check_receive_keys(begin, &start)?;
        Ok(start)
    }

    /// The encryption of a new dataset: with the key of its parent's root, unless the receiver says
    /// otherwise.
    pub(super) fn received_encryption(
        &self,
        begin: &ReceiveBegin,
    ) -> Result<Option<NewEncryption>> {
        let Some((parent, _)) = split_last(&begin.target) else {
            return Ok(None);
        };
        match &begin.encryption {
            ReceivedEncryption::AsParent => {}
            ReceivedEncryption::Off => return Ok(None),
            ReceivedEncryption::Given(new) => return Ok(Some(new.clone())),
        }
        let parent = self.dsl.key_object(self.dsl.find_dir(parent)?)?;
        Ok(parent.map(|p| NewEncryption {
            suite: p.suite,
            key: None,
        }))
    }

    /// Whether a stream contains the blocks that its redacted source lacks (chapter 05b §9.7).
    fn check_redacted(&self, begin: &ReceiveBegin, source: u64) -> Result<()> {
        let Some(have) = self.dsl.redacted_by(ObjectId(source))? else {
            return Ok(());
        };
        let among = |guids: &Option<Vec<u64>>| {
            guids
                .as_ref()
                .is_some_and(|g| g.iter().all(|guid| have.contains(guid)))
        };
        let fits = match &begin.source_redacted_by {
            Some(_) => among(&begin.source_redacted_by),
            None if begin.redacted_by.is_some() => among(&begin.redacted_by),
            None => have.contains(&begin.to_guid),
        };
        match fits {
            true => Ok(()),
            false => refuse(
                Errno::INVAL,
                format!(
                    "the source of the stream is redacted in '{}' in a way that the stream does not make up for",
                    begin.target
                ),
            ),
        }
    }

    /// Whether the keys for writing the received data are loaded.
    fn check_receive_keys(&self, begin: &ReceiveBegin, start: &Start) -> Result<()> {
        if let Some(raw) = &begin.raw {
            return self.check_raw(begin, start, raw);
        }
        let loaded = |ds: u64| match self.dsl.is_encrypted(ds)? {
            true => self.dsl.dataset_key(ds).map(|_| ()),
            false => Ok(()),
        };
        // Data is never written in clear into an existing dataset if the user asked for encryption.
        let is_given = matches!(begin.encryption, ReceivedEncryption::Given(_));
        if is_given && !matches!(start, Start::New { origin: None }) {
            return refuse(
                Errno::INVAL,
                "encryption properties cannot be set for incremental streams or clones".to_owned(),
            );
        }
        match start {
            Start::Resume { object, .. } => loaded(*object),
            Start::New { origin: Some(snap) } => loaded(*snap),
            Start::New { origin: None } => {
                match (self.received_encryption(begin)?, split_last(&begin.target)) {
                    (Some(new), Some((parent, _))) => {
                        self.check_encryption(self.dsl.find_dir(parent)?, &new)
                    }
                    _ => Ok(()),
                }
            }
            Start::Temporary { source } if *source == self.meta.origin_snap() => {
                if self.dsl.is_encrypted(self.dsl.find_ds(&begin.target)?)? {
                    return refuse(
                        Errno::INVAL,
                        "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an unencrypted one with an encrypted one"
                            .to_owned(),
                    );
                }
                Ok(())
            }
            Start::Temporary { source } => loaded(*source),
        }
    }

    fn plan_place(&self, begin: &ReceiveBegin) -> Result<Start> {
        let target = &begin.target;
        let head = match self.dsl.find_ds(target) {
            Ok(head) => Some(head),
            Err(e) if e.is(Errno::NOENT) => None,
            Err(e) => return Err(e),
        };
        let temporary = self.dsl.find_temporary(target).ok();
        if begin.resuming {
            return self.plan_resume(begin, head, temporary);
        }
        let Some(head) = head else {
            return self.plan_new(begin);
        };
        if begin.origin.is_some() {
            return refuse(Errno::INVAL, format!("destination '{target}' exists"));
        }
        if begin.from_guid == 0 && !begin.force {
            return self.plan_overwrite(begin, &self.meta.ds(head)?);
        }
        if let Some(temporary) = temporary
            && self.dsl.resume_state_of(temporary)?.is_none()
        {
            // Another receive is running: leftovers of old ones were removed before.
            return refuse(Errno::BUSY, "dataset is busy".to_owned());
        }
        if temporary.is_some() || self.dsl.resume_state_of(head)?.is_some() {
            return refuse(
                Errno::BUSY,
                format!(
                    "destination {target} contains partially-complete state from \"zfs receive -s\"."
                ),
            );
        }
        let phys = self.meta.ds(head)?;
        if begin.from_guid == 0 {
            return self.plan_overwrite(begin, &phys);
        }
        if self.dsl.find_snapshot(&phys, &begin.snapshot)?.is_some() {
            return refuse(
                Errno::EXIST,
                format!("destination '{target}@{}' exists", begin.snapshot),
            );
        }
        let source = self.own_snapshot(&phys, begin.from_guid)?;
        let Some(source) = source else {
            return refuse(
                Errno::NODEV,
                format!("most recent snapshot of {target} does not\nmatch incremental source"),
            );
        };
        if !begin.force && (source != phys.prev_snap || self.is_modified(&phys)?) {
            return refuse(
                Errno::TXTBSY,
                format!("destination {target} has been modified\nsince most recent snapshot"),
            );
        }
        let snap = self.meta.ds(source)?;
        self.check_large_blocks(begin, source)?;
        if snap.creation_txg >= self.txg {
            return refuse(Errno::AGAIN, "the source is of this txg".to_owned());
        }
        Ok(Start::Temporary { source })
    }

    /// A full stream replaces a dataset only on request, and only one without snapshots.
    fn plan_overwrite(&self, begin: &ReceiveBegin, phys: &DslDatasetPhys) -> Result<Start> {
        let target = &begin.target;
        if !begin.force {
            return refuse(
                Errno::EXIST,
                format!("destination '{target}' exists\nmust specify -F to overwrite it"),
            );
        }
        if phys.prev_snap != self.meta.origin_snap() {
            let names = self.dsl.snapshots(target)?;
            let one = names.last().map_or(target.as_str(), |s| &s.name);
            return refuse(
                Errno::EXIST,
                format!("destination has snapshots (eg. {one})\nmust destroy them to overwrite it"),
            );
        }
        // Before the version with `$ORIGIN`, a replaced dataset and its successor have no common
        // origin.
        match self.meta.origin_snap() {
            0 => Err(too_old()),
            source => Ok(Start::Temporary { source }),
        }
    }

    /// A dataset received with large blocks accepts no streams with split ones.
    fn check_large_blocks(&self, begin: &ReceiveBegin, source: u64) -> Result<()> {
        const LARGE: &str = "org.open-zfs:large_blocks";
        let have = self.meta.extension_value(source, LARGE)?;
        if begin.from_guid != 0 && have.is_some() && !begin.features.contains(&LARGE) {
            return refuse(
                Errno::INVAL,
                "incremental send stream requires -L (--large-block), to match previous receive."
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn plan_new(&self, begin: &ReceiveBegin) -> Result<Start> {
        let target = &begin.target;
        if begin.from_guid != 0 && begin.origin.is_none() {
            return refuse(
                Errno::NOENT,
                format!("destination '{target}' does not exist"),
            );
        }
        self.check_new(target)?;
        let origin = match &begin.origin {
            None => None,
            Some(name) => {
                let object = self.dsl.find_ds(name)?;
                let snap = self.meta.ds(object)?;
                if !snap.is_snapshot() {
                    return refuse(Errno::INVAL, format!("'{name}' is not a snapshot"));
                }
                if begin.from_guid != 0 && snap.guid != begin.from_guid {
                    return refuse(
                        Errno::NODEV,
                        format!("local origin for clone {target} does not exist"),
                    );
                }
                self.check_large_blocks(begin, object)?;
                Some(object)
            }
        };
        Ok(Start::New { origin })
    }

    fn plan_resume(
        &self,
        begin: &ReceiveBegin,
        head: Option<u64>,
        temporary: Option<u64>,
    ) -> Result<Start> {
        let target = &begin.target;
        let none = || {
            Error::refused(
                Errno::INVAL,
                format!("kernel modules must be upgraded, or '{target}' has no state to resume"),
            )
        };
        let (object, is_temporary) = match (temporary, head) {
            // If the target existed before, its `%recv` has the state.
            (Some(t), _) => (t, true),
            (None, Some(h)) => (h, false),
            (None, None) => {
                return refuse(
                    Errno::NOENT,
                    format!("destination '{target}' does not exist"),
                );
            }
        };
        let have = self.dsl.resume_state_of(object)?.ok_or_else(none)?;
        self.dsl.check_idle(object)?;
        let fits = begin.resumable.as_ref().is_some_and(|want| {
            have.to_guid == want.to_guid
                && have.from_guid == want.from_guid
                && have.object == want.object
                && have.offset == want.offset
                && have.redacted_by == begin.redacted_by
                && have.source_redacted_by == begin.source_redacted_by
        });
        if self.meta.ds(object)?.flags & DS_FLAG_INCONSISTENT == 0 || !fits {
            return refuse(
                Errno::INVAL,
                format!("the stream does not go on where '{target}' ends"),
            );
        }
        Ok(Start::Resume {
            object,
            temporary: is_temporary,
        })
    }

    /// The snapshot of a dataset's own history with a guid.
    fn own_snapshot(&self, head: &DslDatasetPhys, guid: u64) -> Result<Option<u64>> {
        let mut at = head.prev_snap;
        // A damaged chain might have no end.
        for _ in 0..1 << 20 {
            if at == 0 {
                break;
            }
            let snap = self.meta.ds(at)?;
            // From here on the snapshots belong to the dataset that this one was cloned from.
            if snap.dir != head.dir {
                break;
            }
            if snap.guid == guid {
                return Ok(Some(at));
            }
            at = snap.prev_snap;
        }
        Ok(None)
    }

    /// Whether a head has changed since its newest snapshot. A mount may rewrite an object set with
    /// the same objects. Then only the header of its intent log differs, which does not count as a
    /// change.
    pub(super) fn is_modified(&self, head: &DslDatasetPhys) -> Result<bool> {
        if head.bp.logical_birth() <= head.prev_snap_txg {
            return Ok(false);
        }
        let snap = self.meta.ds(head.prev_snap)?;
        // That snapshot belongs to the origin: any block written since is a change.
        if snap.dir != head.dir || snap.bp.is_hole() || head.bp.is_hole() {
            return Ok(true);
        }
        let objects = |of: &DslDatasetPhys| {
            let place = format!("the object set of directory {}", of.dir);
            let block = self.meta.io.read(&of.bp, &place)?;
            let phys = ObjsetPhys::parse(block.bytes()).map_err(|e| e.at(place.as_str()))?;
            Ok::<_, Error>((phys.objset_type, phys.meta_dnode))
        };
        Ok(objects(head)? != objects(&snap)?)
    }
}
