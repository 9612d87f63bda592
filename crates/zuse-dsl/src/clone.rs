//! Clones of snapshots.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result};

use crate::admission::Reserve;
use crate::context::Dsl;
use crate::create::Origin;
use crate::dataset::Dataset;
use crate::name::{check_dataset, split_snapshot};
use crate::property::Value;

impl Dsl {
    /// Makes a filesystem or volume that begins as a copy of a snapshot.
    ///
    /// # Errors
    /// As for creating; `Refused(INVAL)` if `origin` is no snapshot; `Unsupported` for encrypted ones.
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
        let (o, n) = (origin.clone(), name.clone());
        let object = self.task(
            move |ctx| {
                let snap = ctx.dsl.find_ds(&o)?;
                if ctx
                    .meta
                    .extension_value(snap, "com.datto:encryption")?
                    .is_some()
                {
                    return Err(Error::unsupported(
                        o.clone(),
                        "clones of encrypted datasets (feature com.datto:encryption)",
                    ));
                }
                ctx.check_new(&n)?;
                ctx.dsl.check_room(Reserve::None, 128 * 1024)
            },
            move |ctx| {
                let snap = ctx.dsl.find_ds(&origin)?;
                let ds = ctx.create_dir_and_head(&name, &Origin { snap }, 0)?;
                ctx.inherit_features(snap, ds)?;
                for (property, value) in &properties {
                    ctx.set_local(ds, property, value)?;
                }
                ctx.log("clone", ds, &format!("origin={origin} ({snap})"))?;
                // The log that the snapshot's objset block names is its dataset's, not the clone's.
                let handle = ctx.dsl.dataset_by_object(ObjectId(ds))?;
                let os = handle.objset()?;
                if os.zil_header().iter().any(|b| *b != 0) {
                    os.set_zil_header(ctx.tx, [0; zuse_format::objset::ZIL_HEADER_SIZE]);
                    handle.note_dirty(ctx.tx.txg());
                }
                Ok(ds)
            },
        )?;
        self.dataset_by_object(ObjectId(object))
    }
}
