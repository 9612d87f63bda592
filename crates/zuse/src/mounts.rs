//! The interface to whoever has file systems of a pool mounted.
//!
//! A rollback, rename or destroy must not pull a file system from under its mount. So the pool asks
//! the mounts to close it first, and to open it again afterwards.

use zuse_base::Result;

/// Mounted file systems of a pool. All names are full dataset or snapshot names.
pub trait Mounts: Send + Sync {
    /// Where a dataset is mounted, if it is.
    fn mountpoint(&self, dataset: &str) -> Option<String>;

    /// What the options of a mounted dataset's mount say about a property, if they do.
    fn said(&self, dataset: &str, property: &str) -> Option<&'static str>;

    /// Runs `change` while all work on datasets stands still and nobody holds their
    /// [`crate::FileSystem`]. Then the mounts open them again, perhaps with another content, and
    /// forget everything cached about them. Datasets that are not mounted are passed over.
    ///
    /// # Errors
    /// Those of `change`; a dataset cannot be opened again: its mount then answers with errors.
    fn while_suspended(
        &self,
        datasets: &[&str],
        change: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()>;

    /// A dataset or snapshot is about to be destroyed: what is mounted as a whole is unmounted,
    /// nobody is inside a snapshot any more.
    ///
    /// # Errors
    /// `Refused(BUSY)` unless `force`.
    fn going(&self, dataset: &str, force: bool) -> Result<()>;

    /// Frees removed files that a mount of the dataset would free a moment later; with `recursive`
    /// those of mounts below it too.
    fn free_removed(&self, dataset: &str, recursive: bool);

    /// A dataset or snapshot came to be: it may have to appear inside a mount.
    fn created(&self, dataset: &str);

    /// A dataset or snapshot is gone.
    fn destroyed(&self, dataset: &str);

    /// A dataset has another name now.
    fn renamed(&self, from: &str, to: &str);

    /// Properties of a dataset (and of those that inherit from it) changed.
    fn properties_changed(&self, dataset: &str);
}
