//! Resume state: the state of an interrupted receive, from which it can be continued. Stored as
//! entries of the dataset's extension.

use zuse_base::{Errno, Error, Result};
use zuse_dmu::zap::ZapValue;

use crate::context::{Ctx, Dsl};
use crate::dataset::{Dataset, Owner};
use crate::redact::REDACTED;

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
const SOURCE_REDACTED: &str = "com.delphix:resume_redact_book_snaps";

pub(super) const ALL_KEYS: [&str; 11] = [
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
    SOURCE_REDACTED,
];

/// The state of an interrupted receive.
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
    /// Redaction snapshots of the stream; the dataset itself stores them.
    pub redacted_by: Option<Vec<u64>>,
    /// Redaction snapshots of the stream's source.
    pub source_redacted_by: Option<Vec<u64>>,
}

impl Dsl {
    /// The state of an interrupted receive into a dataset, if there is one.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn resume_state(&self, target: &str) -> Result<Option<ResumeState>> {
        let _config = self.read_config();
        if let Some(state) = self.resume_state_of(self.find_ds(target)?)? {
            return Ok(Some(state));
        }
        // A receive into an existing dataset has its state in the temporary one below it.
        match self.find_temporary(target) {
            Ok(object) => self.resume_state_of(object),
            Err(_) => Ok(None),
        }
    }

    /// The dataset and state of an interrupted receive. While it is owned, no other command
    /// continues or discards the receive.
    ///
    /// # Errors
    /// `Refused(INVAL)` if there is none, `Refused(BUSY)` while one is running; the MOS cannot be
    /// read.
    pub fn saved_receive(&self, target: &str) -> Result<(Owner, ResumeState)> {
        let state_of = |dataset: &Dataset| {
            let _config = self.read_config();
            self.resume_state_of(dataset.object().0)
        };
        for is_temporary in [true, false] {
            let dataset = match is_temporary {
                true => self.temporary(target),
                false => self.dataset(target),
            };
            let dataset = match dataset {
                Err(e) if e.is(Errno::NOENT) && is_temporary => continue,
                other => other?,
            };
            if state_of(&dataset)?.is_none() {
                continue;
            }
            let owner = dataset.own().map_err(|_| {
                let what = format!("'{target}' is being received into");
                Error::refused(Errno::BUSY, what)
            })?;
            // It may have ended in between.
            if let Some(state) = state_of(&dataset)? {
                return Ok((owner, state));
            }
        }
        Err(Error::refused(
            Errno::INVAL,
            format!("'{target}' does not contain any resumable receive state"),
        ))
    }

    pub(super) fn resume_state_of(&self, object: u64) -> Result<Option<ResumeState>> {
        let Some(table) = self.meta()?.listed_extension(object)? else {
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
            redacted_by: table.get(REDACTED)?.map(|v| v.ints()),
            source_redacted_by: table.get(SOURCE_REDACTED)?.map(|v| v.ints()),
        }))
    }
}

impl Ctx<'_> {
    pub(super) fn put_resume_state(&self, object: u64, state: &ResumeState) -> Result<()> {
        let table = self.zapify(object)?;
        let tx = self.tx;
        if state.from_guid != 0 {
            table.put_u64(tx, FROM_GUID, state.from_guid)?;
        }
        table.put_u64(tx, TO_GUID, state.to_guid)?;
        table.put(tx, TO_NAME, &ZapValue::text(&state.to_name))?;
        // It starts at 1 (04-dsl §3.2).
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
        if let Some(guids) = &state.source_redacted_by {
            table.put(tx, SOURCE_REDACTED, &ZapValue::u64s(guids))?;
        }
        Ok(())
    }

    /// Writes the progress of a receive into a dataset, up to this txg.
    pub(crate) fn sync_progress(&self, ds: &Dataset) -> Result<()> {
        let slot = self.tx.txg().slot::<4>();
        let Some(progress) = ds.progress.lock()[slot].take() else {
            return Ok(());
        };
        let Some(table) = self.meta.extension(ds.object().0)? else {
            return Ok(());
        };
        // Only a resumable receive has this key; others need no progress on disk.
        if table.get_u64(TO_GUID)?.is_some() {
            table.put_u64(self.tx, OBJECT, progress.object)?;
            table.put_u64(self.tx, OFFSET, progress.offset)?;
            table.put_u64(self.tx, BYTES, progress.bytes)?;
        }
        Ok(())
    }
}
