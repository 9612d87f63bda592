//! Receiving: the dataset that a stream goes into until it is whole, and the step in which it takes its place.
//!
//! ```text
//!   target missing    target (INCONSISTENT) ── finish: snapshot, flag off
//!   target exists     target/%recv, a clone of the source (or empty) ── finish: swap contents, snapshot, destroy %recv
//! ```
//! Invariants
//! - Users see the old head until one txg shows the new one with its snapshot: all or nothing.
//! - A dataset that is received into is INCONSISTENT and owned. One that nobody owns and that has no resume state is
//!   what a crash left behind: the next receive there removes it.
//! - Resume state is written in the txg that holds the data it speaks of.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result, Txg};
use zuse_dmu::zap::ZapValue;
use zuse_dmu::{Objset, Tx};
use zuse_format::ObjsetType;
use zuse_format::dsl::{
    BOOKMARK_HAS_FBN, DS_FLAG_CI_DATASET, DS_FLAG_INCONSISTENT, DslDatasetPhys, UsedKind,
};
use zuse_format::objset::{
    OBJSET_PROJECT_QUOTA, OBJSET_USER_ACCOUNTING, OBJSET_USEROBJ_ACCOUNTING, ZIL_HEADER_SIZE,
};

use crate::admission::Reserve;
use crate::context::{Ctx, Dsl};
use crate::create::Origin;
use crate::dataset::{Dataset, Owner};
use crate::deadlist::Deadlist;
use crate::feature_keys::keys_of;
use crate::key_change::NewEncryption;
use crate::name::{check_dataset, check_snapshot, split_last};
use crate::sizes::Sizes;

/// Name of the clone that an existing dataset is received into.
const TEMPORARY: &str = "%recv";

const FROM_GUID: &str = "com.delphix:resume_fromguid";
const TO_GUID: &str = "com.delphix:resume_toguid";
const TO_NAME: &str = "com.delphix:resume_toname";
const OBJECT: &str = "com.delphix:resume_object";
const OFFSET: &str = "com.delphix:resume_offset";
const BYTES: &str = "com.delphix:resume_bytes";
const LARGE_BLOCKS: &str = "com.delphix:resume_largeblockok";
const EMBED: &str = "com.delphix:resume_embedok";
const COMPRESSED: &str = "com.delphix:resume_compressok";
const RAW: &str = "com.datto:resume_rawok";

const ALL_KEYS: [&str; 10] = [
    FROM_GUID,
    TO_GUID,
    TO_NAME,
    OBJECT,
    OFFSET,
    BYTES,
    LARGE_BLOCKS,
    EMBED,
    COMPRESSED,
    RAW,
];

/// What an interrupted receive knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ResumeState {
    pub from_guid: u64,
    pub to_guid: u64,
    pub to_name: String,
    pub object: u64,
    pub offset: u64,
    pub bytes: u64,
    pub large_blocks: bool,
    pub embed: bool,
    pub compressed: bool,
    pub raw: bool,
}

/// How far a receive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveProgress {
    /// Last object that was written.
    pub object: u64,
    /// Offset of its last block.
    pub offset: u64,
    /// Bytes of the stream behind its BEGIN.
    pub bytes: u64,
}

/// What a stream says of itself, and where it is to go.
#[derive(Clone, Debug)]
pub struct ReceiveBegin {
    /// The filesystem or volume.
    pub target: String,
    /// Own name of the snapshot.
    pub snapshot: String,
    /// Guid of the snapshot.
    pub to_guid: u64,
    /// Guid of the source, 0 for a full stream.
    pub from_guid: u64,
    /// Creation time of the snapshot.
    pub creation_time: u64,
    /// Kind of object set.
    pub kind: ObjsetType,
    /// Names ignore case.
    pub case_insensitive: bool,
    /// Space is accounted by user: file systems from version 5 on.
    pub accounts_users: bool,
    /// Snapshot that a new dataset becomes a clone of.
    pub origin: Option<String>,
    /// Destroy what is newer than the source (`-F`).
    pub force: bool,
    /// Features that the dataset makes use of from the start, by GUID.
    pub features: Vec<&'static str>,
    /// Keep what has come if the stream ends early.
    pub resumable: Option<ResumeState>,
    /// Go on with what is there.
    pub resuming: bool,
}

/// A receive at work.
pub struct Receiving {
    dsl: Arc<Dsl>,
    owner: Option<Owner>,
    dataset: Arc<Dataset>,
    /// Full name of what is received into.
    name: String,
    begin: ReceiveBegin,
    temporary: bool,
}

fn refuse<T>(errno: Errno, what: String) -> Result<T> {
    Err(Error::refused(errno, what))
}

impl Dsl {
    /// Makes the dataset that a stream goes into.
    ///
    /// # Errors
    /// The refusals of chapter 05b §9.2 of the format notes.
    pub fn begin_receive(&self, begin: ReceiveBegin) -> Result<Receiving> {
        check_dataset(&begin.target)?;
        check_snapshot(&begin.target, &begin.snapshot)?;
        if !begin.resuming {
            self.clear_leftovers(&begin.target)?;
        }
        let begin = Arc::new(begin);
        let (b, c) = (begin.clone(), begin.clone());
        let (object, temporary) = self.task(
            move |ctx| ctx.check_receive(&b),
            move |ctx| ctx.start_receive(&c),
        )?;
        let dataset = self.dataset_by_object(ObjectId(object))?;
        let owner = dataset.own()?;
        let name = if temporary {
            format!("{}/{TEMPORARY}", begin.target)
        } else {
            begin.target.clone()
        };
        Ok(Receiving {
            dsl: self.arc()?,
            owner: Some(owner),
            dataset,
            name,
            begin: Arc::unwrap_or_clone(begin),
            temporary,
        })
    }

    /// Removes what a crash left of a receive into a dataset.
    fn clear_leftovers(&self, target: &str) -> Result<()> {
        for name in [format!("{target}/{TEMPORARY}"), target.to_owned()] {
            let Ok(dataset) = self.dataset(&name) else {
                continue;
            };
            if dataset.phys()?.flags & DS_FLAG_INCONSISTENT != 0
                && !dataset.is_owned()
                && self.resume_state_of(dataset.object().0)?.is_none()
            {
                self.destroy(&name, false, false)?;
            }
        }
        Ok(())
    }

    /// What an interrupted receive into a dataset knows, if there is one.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn resume_state(&self, target: &str) -> Result<Option<ResumeState>> {
        let _config = self.read_config();
        if let Some(state) = self.resume_state_of(self.find_ds(target)?)? {
            return Ok(Some(state));
        }
        match self.find_ds(&format!("{target}/{TEMPORARY}")) {
            Ok(object) => self.resume_state_of(object),
            Err(_) => Ok(None),
        }
    }

    fn resume_state_of(&self, object: u64) -> Result<Option<ResumeState>> {
        let Some(table) = self.meta()?.extension(object)? else {
            return Ok(None);
        };
        let Some(to_guid) = table.get_u64(TO_GUID)? else {
            return Ok(None);
        };
        let number = |key: &str| Ok::<_, Error>(table.get_u64(key)?.unwrap_or(0));
        let flag = |key: &str| Ok::<_, Error>(table.get(key)?.is_some());
        let name = table.get(TO_NAME)?;
        Ok(Some(ResumeState {
            from_guid: number(FROM_GUID)?,
            to_guid,
            to_name: name
                .as_ref()
                .and_then(ZapValue::as_text)
                .unwrap_or_default()
                .to_owned(),
            object: number(OBJECT)?,
            offset: number(OFFSET)?,
            bytes: number(BYTES)?,
            large_blocks: flag(LARGE_BLOCKS)?,
            embed: flag(EMBED)?,
            compressed: flag(COMPRESSED)?,
            raw: flag(RAW)?,
        }))
    }

    /// Throws away what an interrupted receive has (`zfs receive -A`).
    ///
    /// # Errors
    /// `Refused(NOENT)` if there is none, `Refused(BUSY)` while one is at work.
    pub fn abort_receive(&self, target: &str) -> Result<()> {
        let temporary = format!("{target}/{TEMPORARY}");
        if self.dataset(&temporary).is_ok() {
            return self.destroy(&temporary, false, false);
        }
        let there = self.dataset(target)?;
        if self.resume_state_of(there.object().0)?.is_none() {
            return refuse(
                Errno::NOENT,
                format!("'{target}' does not have any resumable receive state to abort"),
            );
        }
        self.destroy(target, false, false)
    }

    /// The snapshot with a guid, searched from a name upward.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn snapshot_by_guid(&self, near: &str, guid: u64) -> Result<Option<String>> {
        let mut at = Some(near);
        while let Some(name) = at {
            if let Ok(tree) = self.tree(name) {
                for entry in tree {
                    for snap in self.snapshots(&entry.name)? {
                        if self.meta()?.ds(snap.dataset.0)?.guid == guid {
                            return Ok(Some(snap.name));
                        }
                    }
                }
            }
            at = split_last(name).map(|(parent, _)| parent);
        }
        Ok(None)
    }
}

/// What a receive starts from.
enum Start {
    /// A new dataset, empty or a clone of a snapshot.
    New { origin: Option<u64> },
    /// The temporary clone of this snapshot; empty if it is the pool's own origin.
    Temporary { source: u64 },
    /// What an earlier attempt left.
    Resume { object: u64, temporary: bool },
}

impl Ctx<'_> {
    fn check_receive(&self, begin: &ReceiveBegin) -> Result<()> {
        self.dsl.check_room(Reserve::None, 512 * 1024)?;
        self.plan_receive(begin).map(|_| ())
    }

    fn plan_receive(&self, begin: &ReceiveBegin) -> Result<Start> {
        let start = self.plan_place(begin)?;
        self.check_receive_keys(begin, &start)?;
        Ok(start)
    }

    /// How what is received below an encrypted filesystem is encrypted: with the key of its parent's root.
    fn received_encryption(&self, target: &str) -> Result<Option<NewEncryption>> {
        let Some((parent, _)) = split_last(target) else {
            return Ok(None);
        };
        let parent = self.dsl.key_object(self.dsl.find_dir(parent)?)?;
        Ok(parent.map(|p| NewEncryption {
            suite: p.suite,
            key: None,
        }))
    }

    /// Whether the keys that what is received will be written with are at hand.
    fn check_receive_keys(&self, begin: &ReceiveBegin, start: &Start) -> Result<()> {
        let loaded = |ds: u64| match self.dsl.is_encrypted(ds)? {
            true => self.dsl.dataset_key(ds).map(|_| ()),
            false => Ok(()),
        };
        match start {
            Start::Resume { object, .. } => loaded(*object),
            Start::New { origin: Some(snap) } => loaded(*snap),
            Start::New { origin: None } => match (
                self.received_encryption(&begin.target)?,
                split_last(&begin.target),
            ) {
                (Some(new), Some((parent, _))) => {
                    self.check_encryption(self.dsl.find_dir(parent)?, &new)
                }
                _ => Ok(()),
            },
            Start::Temporary { source } if *source == self.meta.origin_snap => {
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
        let temporary = self.dsl.find_ds(&format!("{target}/{TEMPORARY}")).ok();
        if begin.resuming {
            return self.plan_resume(begin, head, temporary);
        }
        let Some(head) = head else {
            return self.plan_new(begin);
        };
        if begin.origin.is_some() {
            return refuse(Errno::INVAL, format!("destination '{target}' exists"));
        }
        if temporary.is_some() || self.dsl.resume_state_of(head)?.is_some() {
            return refuse(
                Errno::BUSY,
                format!(
                    "destination '{target}' contains partially-complete state from \"zfs receive -s\"."
                ),
            );
        }
        let phys = self.meta.ds(head)?;
        if self.dsl.find_snapshot(&phys, &begin.snapshot)?.is_some() {
            return refuse(
                Errno::EXIST,
                format!("destination '{target}@{}' exists", begin.snapshot),
            );
        }
        if begin.from_guid == 0 {
            if !begin.force {
                return refuse(
                    Errno::EXIST,
                    format!("destination '{target}' exists\nmust specify -F to overwrite it"),
                );
            }
            if phys.prev_snap != self.meta.origin_snap {
                return refuse(
                    Errno::EXIST,
                    format!(
                        "destination has snapshots (eg. {target}@…)\nmust destroy them to overwrite it"
                    ),
                );
            }
            return Ok(Start::Temporary {
                source: self.meta.origin_snap,
            });
        }
        let source = self.own_snapshot(&phys, begin.from_guid)?;
        let Some(source) = source else {
            return refuse(
                Errno::NODEV,
                format!("most recent snapshot of {target} does not\nmatch incremental source"),
            );
        };
        if !begin.force && (source != phys.prev_snap || self.is_modified(&phys)) {
            return refuse(
                Errno::TXTBSY,
                format!("destination {target} has been modified\nsince most recent snapshot"),
            );
        }
        let snap = self.meta.ds(source)?;
        let large = self
            .meta
            .extension_value(source, "org.open-zfs:large_blocks")?
            .is_some();
        if large && !begin.features.contains(&"org.open-zfs:large_blocks") {
            return refuse(
                Errno::INVAL,
                "incremental send stream requires -L (--large-block), to match previous receive."
                    .to_owned(),
            );
        }
        if snap.creation_txg >= self.txg {
            return refuse(Errno::AGAIN, "the source is of this txg".to_owned());
        }
        Ok(Start::Temporary { source })
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
        for _ in 0..1 << 20 {
            if at == 0 {
                break;
            }
            let snap = self.meta.ds(at)?;
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

    /// Whether a head has changed since its newest snapshot.
    fn is_modified(&self, head: &DslDatasetPhys) -> bool {
        head.bp.logical_birth() > head.prev_snap_txg
    }

    fn start_receive(&self, begin: &ReceiveBegin) -> Result<(u64, bool)> {
        let (object, temporary, fresh) = match self.plan_receive(begin)? {
            Start::Resume { object, temporary } => {
                self.log(
                    "resume receive",
                    object,
                    &format!("snap={}", begin.snapshot),
                )?;
                return Ok((object, temporary));
            }
            Start::New { origin } => {
                let snap = origin.unwrap_or(self.meta.origin_snap);
                let flags = DS_FLAG_INCONSISTENT | ci_flag(begin);
                let ds = self.create_dir_and_head(&begin.target, &Origin { snap }, flags)?;
                match (origin, self.received_encryption(&begin.target)?) {
                    (Some(snap), _) => {
                        self.inherit_features(snap, ds)?;
                        self.share_key(snap, ds)?;
                    }
                    (None, Some(new)) => self.encrypt_new(ds, &new)?,
                    (None, None) => {}
                }
                (ds, false, origin.is_none())
            }
            Start::Temporary { source } => {
                let name = format!("{}/{TEMPORARY}", begin.target);
                let flags = DS_FLAG_INCONSISTENT | ci_flag(begin);
                let ds = self.create_dir_and_head(&name, &Origin { snap: source }, flags)?;
                self.inherit_features(source, ds)?;
                self.share_key(source, ds)?;
                (ds, true, source == self.meta.origin_snap)
            }
        };
        for guid in &begin.features {
            self.activate(object, guid, &ZapValue::U64(0))?;
        }
        if let Some(state) = &begin.resumable {
            self.put_resume_state(object, state)?;
        }
        let handle = self.dsl.dataset_by_object(ObjectId(object))?;
        if fresh {
            let os = handle.create_objset(begin.kind, begin.target.clone(), self.tx)?;
            if begin.kind == ObjsetType::Zfs && begin.accounts_users {
                let mut flags = os.flags() | OBJSET_USER_ACCOUNTING;
                if self.enabled("org.zfsonlinux:userobj_accounting") {
                    flags |= OBJSET_USEROBJ_ACCOUNTING;
                }
                if self.enabled("org.zfsonlinux:project_quota") {
                    flags |= OBJSET_PROJECT_QUOTA;
                }
                os.set_flags(self.tx, flags);
            }
        } else {
            let os = handle.objset_received()?;
            if os.zil_header().iter().any(|b| *b != 0) {
                os.set_zil_header(self.tx, [0; ZIL_HEADER_SIZE]);
                handle.note_dirty(self.tx.txg());
            }
        }
        self.log("receive", object, "")?;
        Ok((object, temporary))
    }

    fn put_resume_state(&self, object: u64, state: &ResumeState) -> Result<()> {
        let table = self.zapify(object)?;
        let tx = self.tx;
        if state.from_guid != 0 {
            table.put_u64(tx, FROM_GUID, state.from_guid)?;
        }
        table.put_u64(tx, TO_GUID, state.to_guid)?;
        table.put(tx, TO_NAME, &ZapValue::text(&state.to_name))?;
        table.put_u64(tx, OBJECT, state.object.max(1))?;
        table.put_u64(tx, OFFSET, state.offset)?;
        table.put_u64(tx, BYTES, state.bytes)?;
        for (set, key) in [
            (state.large_blocks, LARGE_BLOCKS),
            (state.embed, EMBED),
            (state.compressed, COMPRESSED),
            (state.raw, RAW),
        ] {
            if set {
                table.put_u64(tx, key, 1)?;
            }
        }
        Ok(())
    }

    /// Writes down how far the receive into a dataset came with what this txg holds.
    pub(crate) fn sync_progress(&self, ds: &Dataset) -> Result<()> {
        let slot = self.tx.txg().slot::<4>();
        let Some(progress) = crate::context::lock(&ds.progress)[slot].take() else {
            return Ok(());
        };
        let Some(table) = self.meta.extension(ds.object().0)? else {
            return Ok(());
        };
        if table.get_u64(TO_GUID)?.is_some() {
            table.put_u64(self.tx, OBJECT, progress.object)?;
            table.put_u64(self.tx, OFFSET, progress.offset)?;
            table.put_u64(self.tx, BYTES, progress.bytes)?;
        }
        Ok(())
    }

    fn finish_receive(&self, begin: &ReceiveBegin, object: u64, temporary: bool) -> Result<u64> {
        let phys = self.meta.ds(object)?;
        if let Some(table) = self.meta.extension(object)? {
            for key in ALL_KEYS {
                table.remove(self.tx, key)?;
            }
        }
        self.meta
            .edit_ds(self.tx, object, |d| d.flags &= !DS_FLAG_INCONSISTENT)?;
        let head = if temporary {
            let head = self.dsl.find_ds(&begin.target)?;
            for snap in self.newer_snapshots(head, phys.prev_snap)? {
                self.destroy_snapshot(snap)?;
            }
            self.swap(object, head)?;
            head
        } else {
            object
        };
        let snap = self.take_snapshot(head, &begin.snapshot)?;
        self.meta.edit_ds(self.tx, snap, |s| {
            s.guid = begin.to_guid;
            s.creation_time = begin.creation_time;
        })?;
        self.log(
            "finish receiving",
            head,
            &format!("snap={}", begin.snapshot),
        )?;
        if temporary {
            self.destroy_head(object)?;
            if self.dsl.frees_wait()? {
                self.spa.note_frees();
            }
        }
        self.dsl.refresh_all()?;
        Ok(snap)
    }

    /// Snapshots of a head that are newer than one of its history, newest first.
    fn newer_snapshots(&self, head: u64, source: u64) -> Result<Vec<u64>> {
        let mut out = Vec::new();
        let mut at = self.meta.ds(head)?.prev_snap;
        while at != source && at != 0 && out.len() < 1 << 20 {
            out.push(at);
            at = self.meta.ds(at)?.prev_snap;
        }
        Ok(out)
    }

    fn check_finish(&self, begin: &ReceiveBegin, object: u64, temporary: bool) -> Result<()> {
        let mine = self.meta.ds(object)?;
        let head = if temporary {
            self.dsl.find_ds(&begin.target)?
        } else {
            object
        };
        let phys = self.meta.ds(head)?;
        if phys.prev_snap_txg >= self.txg {
            return refuse(
                Errno::AGAIN,
                "the dataset has a snapshot of this txg".into(),
            );
        }
        if self.dsl.find_snapshot(&phys, &begin.snapshot)?.is_some() {
            return refuse(
                Errno::EXIST,
                format!("destination '{}@{}' exists", begin.target, begin.snapshot),
            );
        }
        self.dsl.check_room(Reserve::Most, 0)?;
        if !temporary {
            return Ok(());
        }
        let newer = self.newer_snapshots(head, mine.prev_snap)?;
        if !begin.force && (!newer.is_empty() || self.is_modified(&phys)) {
            return refuse(
                Errno::TXTBSY,
                format!(
                    "destination {} has been modified\nsince most recent snapshot",
                    begin.target
                ),
            );
        }
        for snap in newer {
            let s = self.meta.ds(snap)?;
            self.check_snapshot_gone(snap, &s, self.is_held(&s)?, &[])?;
        }
        let refquota = self.dsl.number_of(head, "refquota")?;
        if refquota != 0 && refquota < mine.referenced_bytes {
            return refuse(
                Errno::DQUOT,
                "what was received is larger than the reference quota".into(),
            );
        }
        let reserved = self.dsl.number_of(head, "refreservation")?;
        let more = reserved.min(mine.unique_bytes);
        let less = reserved.min(phys.unique_bytes);
        if more.saturating_sub(less) > self.dsl.available_of(phys.dir)? {
            return refuse(Errno::NOSPC, "no room for the refreservation".into());
        }
        Ok(())
    }

    /// Exchanges the contents of a clone and of the head whose newest snapshot it is a clone of (chapter 04 §7.7).
    fn swap(&self, clone: u64, head: u64) -> Result<()> {
        let (c, h) = (self.meta.ds(clone)?, self.meta.ds(head)?);
        let source = self.meta.ds(h.prev_snap)?;
        let dir = self.meta.dir(h.dir)?;
        self.drop_livelist(h.dir)?;
        self.drop_livelist(c.dir)?;
        self.swap_features(clone, head)?;

        let theirs = Deadlist::open(self.meta, c.deadlist)?;
        let mine = Deadlist::open(self.meta, h.deadlist)?;
        let lost = theirs.range(source.prev_snap_txg, u64::MAX)?;
        self.meta
            .edit_ds(self.tx, h.prev_snap, |p| p.unique_bytes = lost.used as u64)?;
        let whole = |d: &DslDatasetPhys, dead: Sizes| {
            Sizes::of(d.referenced_bytes, d.compressed_bytes, d.uncompressed_bytes) + dead
        };
        let delta = whole(&c, theirs.totals()?) - whole(&h, mine.totals()?);
        self.charge(h.dir, UsedKind::Head, delta)?;
        self.charge(c.dir, UsedKind::Head, -delta)?;
        let origin_txg = self.meta.origin_txg(&dir)?;
        let held =
            theirs.range(origin_txg, u64::MAX)?.used - mine.range(origin_txg, u64::MAX)?.used;
        self.transfer(h.dir, UsedKind::Head, UsedKind::Snap, held)?;
        let reserved = self.dsl.number_of(head, "refreservation")?;
        let back = reserved.min(h.unique_bytes) as i64 - reserved.min(c.unique_bytes) as i64;
        self.charge(
            h.dir,
            UsedKind::RefReservation,
            Sizes {
                used: back,
                ..Sizes::default()
            },
        )?;
        let freed = theirs.totals()?;
        let give = |to: &mut DslDatasetPhys, from: &DslDatasetPhys| {
            to.bp = from.bp;
            to.deadlist = from.deadlist;
            to.referenced_bytes = from.referenced_bytes;
            to.compressed_bytes = from.compressed_bytes;
            to.uncompressed_bytes = from.uncompressed_bytes;
            to.unique_bytes = from.unique_bytes;
        };
        self.meta.edit_ds(self.tx, head, |d| give(d, &c))?;
        self.meta.edit_ds(self.tx, clone, |d| give(d, &h))?;
        self.bookmarks_recount(head, h.prev_snap_txg, freed)?;
        for (object, now) in [(head, &c), (clone, &h)] {
            let handle = self.dsl.dataset_by_object(ObjectId(object))?;
            handle.close_objset();
            handle
                .referenced
                .store(now.referenced_bytes, std::sync::atomic::Ordering::Relaxed);
        }
        self.log(
            "clone swap",
            head,
            &format!("parent={}", self.dsl.dir_name(h.dir)?),
        )
    }

    fn swap_features(&self, a: u64, b: u64) -> Result<()> {
        let (of_a, of_b) = (keys_of(self.meta, a)?, keys_of(self.meta, b)?);
        for (from, to, have, other) in [(a, b, &of_a, &of_b), (b, a, &of_b, &of_a)] {
            for (guid, value) in have {
                if other.iter().any(|(g, _)| g == guid) {
                    continue;
                }
                if let Some(ext) = self.meta.extension(from)? {
                    ext.remove(self.tx, guid)?;
                }
                self.zapify(to)?.put(self.tx, guid, value)?;
            }
        }
        Ok(())
    }
}

fn ci_flag(begin: &ReceiveBegin) -> u64 {
    if begin.case_insensitive {
        DS_FLAG_CI_DATASET
    } else {
        0
    }
}

impl Receiving {
    /// The dataset that is received into.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Full name of what is received into.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its object set.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn objset(&self) -> Result<Arc<Objset>> {
        self.dataset.objset_received()
    }

    /// Whether it begins with the content of a snapshot.
    ///
    /// # Errors
    /// It was destroyed.
    pub fn is_on_top(&self) -> Result<bool> {
        Ok(self.dataset.phys()?.prev_snap != self.dsl.meta()?.origin_snap)
    }

    /// Notes how far the stream was applied with what `tx` holds.
    pub fn note(&self, tx: &Tx, progress: ReceiveProgress) {
        crate::context::lock(&self.dataset.progress)[tx.txg().slot::<4>()] = Some(progress);
    }

    /// Waits until everything applied so far is on disk.
    ///
    /// # Errors
    /// The pool is suspended.
    pub fn wait(&self) -> Result<()> {
        let spa = self.dsl.spa()?;
        let txg: Txg = spa.open_txg();
        spa.wait_synced(txg)
    }

    /// Whether an existing dataset is received into: [`Self::finish`] then replaces its content.
    pub fn replaces(&self) -> bool {
        self.temporary
    }

    /// Full name of the snapshot.
    pub fn snapshot(&self) -> String {
        format!("{}@{}", self.begin.target, self.begin.snapshot)
    }

    /// Name of the dataset that will have it.
    pub fn target(&self) -> &str {
        &self.begin.target
    }

    /// Gives the target its new content and its snapshot. Who has the target mounted has let go of it before.
    ///
    /// # Errors
    /// The target was changed meanwhile, or limits stand in the way: nothing is changed then.
    pub fn finish(&mut self) -> Result<()> {
        self.wait()?;
        let object = self.dataset.object().0;
        let begin = Arc::new(self.begin.clone());
        let temporary = self.temporary;
        let (b, c) = (begin.clone(), begin);
        let owner = self.owner.take();
        let done = self.dsl.task(
            move |ctx| ctx.check_finish(&b, object, temporary),
            move |ctx| ctx.finish_receive(&c, object, temporary),
        );
        drop(owner);
        done.map(|_| ())
    }

    /// Ends a receive that cannot go on: without `keep` everything that came is destroyed.
    ///
    /// # Errors
    /// It could not be destroyed, or written.
    pub fn abandon(&mut self, keep: bool) -> Result<()> {
        self.owner = None;
        if keep && self.begin.resumable.is_some() {
            return self.wait();
        }
        self.dsl.destroy(&self.name, false, false)
    }
}

impl Ctx<'_> {
    /// Bookmarks of a head's newest snapshot count what its new content has freed.
    fn bookmarks_recount(&self, head: u64, txg: u64, freed: Sizes) -> Result<()> {
        for (name, mut bookmark) in self.dsl.bookmarks_of(head)? {
            if bookmark.creation_txg == txg && bookmark.flags & BOOKMARK_HAS_FBN != 0 {
                bookmark.freed_before_next =
                    [freed.used as u64, freed.comp as u64, freed.uncomp as u64];
                self.put_bookmark(head, &name, &bookmark)?;
            }
        }
        Ok(())
    }
}
