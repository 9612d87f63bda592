//! Receiving: the dataset that a stream is written to, and the step in which it replaces the old
//! content.
//!
//! ```text
//!   target missing    target (INCONSISTENT) ── finish: snapshot, flag off
//!   target exists     target/%recv, a clone of the source (or empty) ── finish: swap contents, snapshot, destroy %recv
//! ```
//! Users see the old head until one txg switches to the new one, with its snapshot. It is one sync
//! task, so all or nothing.
//!
//! - A dataset that is being received is INCONSISTENT and owned; [`Dataset::objset`] refuses it to
//!   users.
//! - If it has no owner and no resume state, a crash left it behind (`leftovers.rs`).
//! - Resume state is written in the same txg as the data that it describes.

mod finish;
mod leftovers;
mod plan;
mod raw;
mod resume;

pub use raw::RawReceive;
pub use resume::ResumeState;

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result, Txg};
use zuse_dmu::zap::ZapValue;
use zuse_dmu::{Objset, Tx};
use zuse_format::ObjsetType;
use zuse_format::dsl::{DS_FLAG_CI_DATASET, DS_FLAG_INCONSISTENT};
use zuse_format::objset::{
    OBJSET_PROJECT_QUOTA, OBJSET_USER_ACCOUNTING, OBJSET_USEROBJ_ACCOUNTING, ZIL_HEADER_SIZE,
};

use crate::context::{Ctx, Dsl};
use crate::create::Origin;
use crate::dataset::{Dataset, Owner};
use crate::key_change::NewEncryption;
use crate::name::{check_dataset, check_snapshot, split_last};
use plan::Start;

/// Name of the temporary dataset below an existing target.
pub(crate) const TEMPORARY: &str = "%recv";

/// How far a receive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveProgress {
    /// Last object that was written.
    pub object: u64,
    /// Offset of its last block.
    pub offset: u64,
    /// Bytes of the stream after its BEGIN record.
    pub bytes: u64,
}

/// What the stream says about itself, and the target.
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
    /// Space is accounted for by user: file systems from version 5 on.
    pub accounts_users: bool,
    /// Snapshot that a new dataset becomes a clone of.
    pub origin: Option<String>,
    /// Destroy snapshots and changes newer than the source (`-F`).
    pub force: bool,
    /// Features that the dataset uses from the start, by GUID.
    pub features: Vec<&'static str>,
    /// Keep received data if the stream ends early.
    pub resumable: Option<ResumeState>,
    /// Continue an interrupted receive.
    pub resuming: bool,
    /// Keys and MACs of a raw stream.
    pub raw: Option<RawReceive>,
    /// Guids of the redaction snapshots of the stream.
    pub redacted_by: Option<Vec<u64>>,
    /// Guids of the redaction snapshots of its source.
    pub source_redacted_by: Option<Vec<u64>>,
    /// Encryption of a new dataset from a plain stream.
    pub encryption: ReceivedEncryption,
}

/// Encryption of a new dataset from a plain stream.
#[derive(Clone, Debug, Default)]
pub enum ReceivedEncryption {
    /// With the key of its parent's root, if the parent is encrypted.
    #[default]
    AsParent,
    /// Not encrypted, wherever it is.
    Off,
    /// As the receiver says.
    Given(NewEncryption),
}

/// A receive at work.
pub struct Receiving {
    dsl: Arc<Dsl>,
    owner: Option<Owner>,
    dataset: Arc<Dataset>,
    /// Full name of the dataset that is written to.
    name: String,
    begin: ReceiveBegin,
    temporary: bool,
}

fn refuse<T>(errno: Errno, what: String) -> Result<T> {
    Err(Error::refused(errno, what))
}

impl Dsl {
    /// Creates the dataset that a stream is written to.
    ///
    /// # Errors
    /// The refusals in chapter 05b §9.2 of the format notes.
    pub fn begin_receive(&self, begin: ReceiveBegin) -> Result<Receiving> {
        check_dataset(&begin.target)?;
        check_snapshot(&begin.target, &begin.snapshot)?;
        if !begin.resuming {
            // An interrupted receive without `-s` cannot be continued.
            self.clear_leftovers(&begin.target)?;
        }
        let begin = Arc::new(begin);
        let (b, c) = (begin.clone(), begin.clone());
        let (object, temporary) = self.task(
            move |ctx| ctx.check_receive(&b),
            move |ctx| ctx.start_receive(&c),
        )?;
        let dataset = self.dataset_by_object(ObjectId(object))?;
        if begin.raw.is_some() {
            // Before any opener: raw content has to be opened without a key.
            dataset.set_raw(true);
        }
        // From now on a destroy or a rename is refused as busy.
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

    /// The partial receive of an existing dataset.
    ///
    /// # Errors
    /// `Refused(NOENT)` if there is none.
    pub fn temporary(&self, target: &str) -> Result<Arc<Dataset>> {
        let object = {
            let _config = self.read_config();
            self.find_temporary(target)?
        };
        self.dataset_by_object(ObjectId(object))
    }

    pub(crate) fn find_temporary(&self, target: &str) -> Result<u64> {
        self.find_ds_by(&format!("{target}/{TEMPORARY}"), |name| {
            self.find_any_dir(name)
        })
    }

    /// Discards a partial receive (`zfs receive -A`).
    ///
    /// # Errors
    /// `Refused(NOENT)` if there is none, `Refused(BUSY)` while it is running.
    pub fn abort_receive(&self, target: &str) -> Result<()> {
        if let Ok(temporary) = self.temporary(target) {
            return self.destroy_partial(temporary.object());
        }
        let there = self.dataset(target)?;
        if self.resume_state_of(there.object().0)?.is_none() {
            return refuse(
                Errno::NOENT,
                format!("'{target}' does not have any resumable receive state to abort"),
            );
        }
        self.destroy_partial(there.object())
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

impl Ctx<'_> {
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
                // A new dataset is a clone of the empty `$ORIGIN`, like every other one.
                let snap = origin.unwrap_or(self.meta.origin_snap());
                // Inconsistent until the end: after a crash the flag shows that the dataset is
                // incomplete.
                let flags = DS_FLAG_INCONSISTENT | ci_flag(begin);
                let ds = self.create_dir_and_head(&begin.target, &Origin { snap }, flags)?;
                let encryption = match &begin.raw {
                    Some(_) => None,
                    None => self.received_encryption(begin)?,
                };
                if let (None, Some(raw)) = (origin, &begin.raw) {
                    // In the same txg: an encrypted dataset without its key object could not be
                    // opened.
                    self.put_received_key(ds, raw)?;
                }
                match (origin, encryption) {
                    (Some(snap), _) => {
                        self.create_livelist(ds)?;
                        self.inherit_features(snap, ds)?;
                        self.share_key(snap, ds)?;
                    }
                    // Before the first block is written, because all blocks are encrypted or none.
                    (None, Some(new)) => self.encrypt_new(ds, &new)?,
                    (None, None) => {}
                }
                (ds, false, origin.is_none())
            }
            Start::Temporary { source } => {
                let name = format!("{}/{TEMPORARY}", begin.target);
                let flags = DS_FLAG_INCONSISTENT | ci_flag(begin);
                // A clone of the source below the target: users of the target are not disturbed
                // until both are swapped.
                let ds = self.create_dir_and_head(&name, &Origin { snap: source }, flags)?;
                // A child of `$ORIGIN` does not count as a clone (04-dsl §1.2).
                if source != self.meta.origin_snap() {
                    self.create_livelist(ds)?;
                }
                self.inherit_features(source, ds)?;
                self.share_key(source, ds)?;
                (ds, true, source == self.meta.origin_snap())
            }
        };
        // Redacted ranges must be known before the first read.
        self.set_redacted(object, begin.redacted_by.as_deref())?;
        for guid in &begin.features {
            self.activate(object, guid, &ZapValue::U64(0))?;
        }
        if let Some(state) = &begin.resumable {
            self.put_resume_state(object, state)?;
        }
        // Last, because the settings above decide how it is written.
        self.ready_objset(begin, object, fresh)?;
        self.log("receive", object, "")?;
        Ok((object, temporary))
    }

    /// The object set that the stream's records are applied to: a new one, or a copy of the
    /// source's.
    fn ready_objset(&self, begin: &ReceiveBegin, object: u64, fresh: bool) -> Result<()> {
        let handle = self.dsl.dataset_by_object(ObjectId(object))?;
        if let Some(raw) = &begin.raw {
            handle.set_raw(true);
            let os = match fresh {
                true => handle.create_objset_raw(
                    begin.kind,
                    begin.target.clone(),
                    &raw.shape,
                    self.tx,
                )?,
                false => handle.objset_received()?,
            };
            os.set_raw_shape(self.tx, &raw.shape)?;
            handle.note_dirty(self.tx.txg());
        } else if fresh {
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
                // The log belongs to the source. It would be replayed on top of the received data.
                os.set_zil_header(self.tx, [0; ZIL_HEADER_SIZE]);
                handle.note_dirty(self.tx.txg());
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
    /// The dataset that is written to.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Full name of the dataset that is written to.
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

    /// Whether it starts from the content of a snapshot.
    ///
    /// # Errors
    /// It was destroyed.
    pub fn is_on_top(&self) -> Result<bool> {
        Ok(self.dataset.phys()?.prev_snap != self.dsl.meta()?.origin_snap())
    }

    /// Notes how much of the stream is applied, including the changes of `tx`.
    pub fn note(&self, tx: &Tx, progress: ReceiveProgress) {
        self.dataset.progress.lock()[tx.txg().slot::<4>()] = Some(progress);
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

    /// Whether the target exists: [`Self::finish`] then replaces its content.
    pub fn replaces(&self) -> bool {
        self.temporary
    }

    /// Full name of the snapshot.
    pub fn snapshot(&self) -> String {
        format!("{}@{}", self.begin.target, self.begin.snapshot)
    }

    /// Name of the dataset that will get the content.
    pub fn target(&self) -> &str {
        &self.begin.target
    }

    /// Whether the blocks are ciphertext, stored unchanged.
    pub fn is_raw(&self) -> bool {
        self.begin.raw.is_some()
    }

    /// Gives the target its new content and its snapshot. A mounted target must have been unmounted
    /// before.
    ///
    /// # Errors
    /// The target was changed meanwhile, or a limit is reached: nothing is changed then.
    pub fn finish(&mut self) -> Result<()> {
        // The snapshot covers only data on disk.
        self.wait()?;
        let object = self.dataset.object().0;
        let begin = Arc::new(self.begin.clone());
        let temporary = self.temporary;
        let (b, c) = (begin.clone(), begin);
        // Ownership ends only after the task, so that no other owner can come in between.
        let owner = self.owner.take();
        let done = self.dsl.task(
            move |ctx| ctx.check_finish(&b, object, temporary),
            move |ctx| ctx.finish_receive(&c, object, temporary),
        );
        if self.begin.raw.is_some() {
            // From now on the content is read with its key; without it, only cleartext parts.
            self.dataset.set_raw(false);
        }
        drop(owner);
        done.map(|_| ())
    }

    /// Ends a receive that cannot continue. Without `keep` all received data is destroyed.
    ///
    /// # Errors
    /// It could not be destroyed, or written.
    pub fn abandon(&mut self, keep: bool) -> Result<()> {
        // While it is owned, the destroy below would be refused as busy.
        self.owner = None;
        if keep && self.begin.resumable.is_some() {
            return self.wait();
        }
        // By its object, because a temporary dataset is not found by name.
        self.dsl.destroy_partial(self.dataset.object())
    }
}
