//! Raw receives: the stream has wrapped keys, and data as ciphertext. No key is needed.
//!
//! ```text
//!   new dataset   becomes an encryption root, keylocation=prompt, with the sender's wrapped key
//!   existing one  must have the same key (by guid); its wrapping becomes the sender's at the end
//! ```
//! MACs cannot authenticate a mixture, so an incremental stream is accepted only for exactly its
//! source snapshot (IV set guid).

use zuse_base::{Errno, Error, Result};
use zuse_codec::crypt::{Suite, WrappedKey};
use zuse_dmu::MetaShape;
use zuse_dmu::zap::ZapValue;
use zuse_format::object_type as ot;

use super::plan::Start;
use super::{ReceiveBegin, refuse};
use crate::context::Ctx;
use crate::key_material::KeyFormat;
use crate::keyring::{
    ENCRYPTION, FORMAT, GUID, HMAC, IV, KEY_OBJECT, KeyObject, MAC, MASTER, ROOT, ROUNDS, SALT,
    SUITE, VERSION,
};
use crate::property::Value;
use crate::snapshot::IVSET_GUID;
use crate::table::Table;

/// The key data of a raw stream.
#[derive(Clone, Debug)]
pub struct RawReceive {
    /// Suite.
    pub suite: Suite,
    /// Identity of the keys.
    pub guid: u64,
    /// The keys, wrapped.
    pub wrapped: WrappedKey,
    /// How the wrapping key is derived.
    pub format: KeyFormat,
    /// Rounds of a passphrase, else 0.
    pub rounds: u64,
    /// Salt of a passphrase, else 0.
    pub salt: u64,
    /// Identity of the IVs of the snapshot.
    pub to_ivset: u64,
    /// IV set guid of its source, 0 for none.
    pub from_ivset: u64,
    /// The meta dnode and the MAC over it.
    pub shape: MetaShape,
}

impl Ctx<'_> {
    pub(super) fn check_raw(
        &self,
        begin: &ReceiveBegin,
        start: &Start,
        raw: &RawReceive,
    ) -> Result<()> {
        if !self.enabled(ENCRYPTION) {
            return refuse(Errno::NOTSUP, "Encryption feature not enabled.".into());
        }
        let source = match start {
            Start::Resume { object, .. } => {
                return self.check_same_key(*object, raw);
            }
            Start::New { origin: None } => return Ok(()),
            Start::New { origin: Some(snap) } => *snap,
            Start::Temporary { source } if *source == self.meta.origin_snap() => {
                return refuse(
                    Errno::INVAL,
                    "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an unencrypted one with an encrypted one"
                        .into(),
                );
            }
            Start::Temporary { source } => *source,
        };
        if !self.dsl.is_encrypted(source)? {
            return refuse(
                Errno::INVAL,
                format!(
                    "cannot receive a raw stream: '{}' is not encrypted",
                    begin.target
                ),
            );
        }
        self.check_same_key(source, raw)?;
        self.check_ivset(source, raw)?;
        let place = self.dsl.dataset_by_object(zuse_base::ObjectId(source))?;
        let (levels, shift) = place.meta_shape()?;
        if levels != raw.shape.levels || shift != raw.shape.indirect_shift {
            return refuse(
                Errno::INVAL,
                "the meta dnode of the stream has another shape than that of its source".into(),
            );
        }
        Ok(())
    }

    /// Checks that the source's blocks have the sender's IVs. Old snapshots have no IV set guid
    /// (errata 4): then the user decides.
    fn check_ivset(&self, source: u64, raw: &RawReceive) -> Result<()> {
        if self.dsl.spa()?.limits().no_ivset_check {
            return Ok(());
        }
        let have = self
            .meta
            .extension_value(source, IVSET_GUID)?
            .and_then(|v| v.first())
            .unwrap_or(0);
        if have == 0 || raw.from_ivset == 0 {
            return refuse(
                Errno::INVAL,
                "IV set guid missing. See errata 4 at https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-ER."
                    .into(),
            );
        }
        if have != raw.from_ivset {
            return refuse(
                Errno::INVAL,
                "IV set guid mismatch. See the 'zfs receive' man page discussing the limitations of raw encrypted send streams."
                    .into(),
            );
        }
        Ok(())
    }

    fn check_same_key(&self, ds: u64, raw: &RawReceive) -> Result<()> {
        let dir = self.meta.ds(ds)?.dir;
        match self.dsl.key_object(dir)? {
            Some(key) if key.guid == raw.guid && key.suite == raw.suite => Ok(()),
            _ => refuse(
                Errno::ACCES,
                "the stream's encryption key is not that of the dataset".into(),
            ),
        }
    }

    /// Makes a new dataset an encryption root with the received key.
    pub(super) fn put_received_key(&self, ds: u64, raw: &RawReceive) -> Result<()> {
        let dir = self.meta.ds(ds)?.dir;
        let object = Table::create(&self.meta.mos, self.tx, ot::ZAP_METADATA, 0)?;
        let table = self.meta.table(object)?;
        for (name, value) in [
            (SUITE, raw.suite.number()),
            (ROOT, dir),
            (GUID, raw.guid),
            (VERSION, 1),
            (crate::key_change::REFCOUNT, 1),
        ] {
            table.put_u64(self.tx, name, value)?;
        }
        self.put_wrapping(&table, raw)?;
        self.zapify(dir)?.put_u64(self.tx, KEY_OBJECT, object)?;
        self.activate(ds, ENCRYPTION, &ZapValue::U64(0))?;
        self.set_local(ds, "keylocation", &Value::Text("prompt".into()))
    }

    fn put_wrapping(&self, table: &Table, raw: &RawReceive) -> Result<()> {
        let w = &raw.wrapped;
        for (name, value) in [
            (IV, w.iv.to_vec()),
            (MAC, w.mac.to_vec()),
            (MASTER, w.master.to_vec()),
            (HMAC, w.hmac.to_vec()),
        ] {
            table.put(self.tx, name, &ZapValue::Bytes(value))?;
        }
        for (name, value) in [
            (FORMAT, raw.format as u64),
            (SALT, raw.salt),
            (ROUNDS, raw.rounds),
        ] {
            table.put_u64(self.tx, name, value)?;
        }
        Ok(())
    }

    /// The snapshot gets its IV set guid, an existing dataset the sender's wrapping.
    pub(super) fn finish_raw(
        &self,
        head: u64,
        snap: u64,
        raw: &RawReceive,
        existed: bool,
    ) -> Result<()> {
        if raw.to_ivset != 0 {
            self.zapify(snap)?
                .put_u64(self.tx, IVSET_GUID, raw.to_ivset)?;
        }
        // A new clone shares the key object of its origin, whose key may have been changed here
        // since. With the sender's wrapping, the existing datasets could not be opened any more.
        if !existed {
            return Ok(());
        }
        let dir = self.meta.ds(head)?.dir;
        let Some(object) = self.dsl.key_object_number(dir)? else {
            return Err(Error::missing(
                format!("directory {dir}"),
                "its key object is missing",
            ));
        };
        let table = self.meta.table(object)?;
        let mut key = KeyObject::read(&table, object)?;
        if key.wrapped == raw.wrapped {
            return Ok(());
        }
        key.wrapped = raw.wrapped.clone();
        let derivation = (raw.format, raw.salt, raw.rounds);
        self.rewrapped_elsewhere(dir, &key, derivation, || self.put_wrapping(&table, raw))
    }
}
