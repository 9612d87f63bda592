//! Clones of snapshots.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result};

use crate::admission::Reserve;
use crate::context::{Ctx, Dsl};
use crate::create::Origin;
use crate::dataset::Dataset;
use crate::name::{check_dataset, split_snapshot};
use crate::property::Value;

impl Dsl {
    /// Creates a filesystem or volume from a snapshot.
    ///
    /// # Errors
    /// As for creating; `Refused(INVAL)` if `origin` is no snapshot; `Refused(ACCES)` if its key is
    /// not loaded.
    pub fn clone_snapshot(
        &self,
        origin: &str,
        name: &str,
        properties: &[(String, Value)],
    ) -> Result<Arc<Dataset>> {
        check_dataset(name)?;
        for (property, value) in properties {
            crate::property::check_settable(property, value)?;
        }
        if split_snapshot(origin).1.is_none() {
            return Err(Error::refused(
                Errno::INVAL,
                format!("'{origin}' is not a snapshot"),
            ));
        }
        if origin.split(['/', '@']).next() != name.split('/').next() {
            return Err(Error::refused(
                Errno::XDEV,
                "a clone is in the pool of its origin",
            ));
        }
        let (origin, name, properties) = (origin.to_owned(), name.to_owned(), properties.to_vec());
        let (o, n, p) = (origin.clone(), name.clone(), properties.clone());
        let object = self.task(
            move |ctx| {
                ctx.check_features_of(&p)?;
                ctx.check_clone(&o, &n)
            },
            move |ctx| ctx.clone_now(&origin, &name, &properties),
        )?;
        self.dataset_by_object(ObjectId(object))
    }
}

impl Ctx<'_> {
    pub(crate) fn check_clone(&self, origin: &str, name: &str) -> Result<()> {
        check_dataset(name)?;
        let snap = self.dsl.find_ds(origin)?;
        if !self.meta.ds(snap)?.is_snapshot() {
            return Err(Error::refused(
                Errno::INVAL,
                format!("'{origin}' is not a snapshot"),
            ));
        }
        if self.dsl.is_encrypted(snap)? {
            // The clone's object set is signed again.
            self.dsl.dataset_key(snap)?;
        }
        self.check_new(name)?;
        self.dsl.check_room(Reserve::None, 128 * 1024)
    }

    pub(crate) fn clone_now(
        &self,
        origin: &str,
        name: &str,
        properties: &[(String, Value)],
    ) -> Result<u64> {
        let snap = self.dsl.find_ds(origin)?;
        let ds = self.create_dir_and_head(name, &Origin { snap }, 0)?;
        self.create_livelist(ds)?;
        self.inherit_features(snap, ds)?;
        // It reads the origin's blocks, which are encrypted with that master key.
        self.share_key(snap, ds)?;
        for (property, value) in properties {
            self.set_local(ds, property, value)?;
        }
        self.log_named("clone", name, ds, &format!("origin={origin} ({snap})"))?;
        // The log named by the snapshot's objset block belongs to its dataset, not to the clone.
        let handle = self.dsl.dataset_by_object(ObjectId(ds))?;
        let os = handle.objset()?;
        if os.zil_header().iter().any(|b| *b != 0) {
            os.set_zil_header(self.tx, [0; zuse_format::objset::ZIL_HEADER_SIZE]);
            handle.note_dirty(self.tx.txg());
        }
        Ok(ds)
    }
}
