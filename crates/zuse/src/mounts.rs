//! The interface to the layer that has file systems of a pool mounted.
//!
//! A rollback, rename or destroy must not change a file system under its mount. So the pool asks
//! the mounts to close it first, and to open it again afterwards.

use zuse_base::Result;

use crate::Recursion;

/// What happens to a mount that is in use when its dataset is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyMount {
    /// It stays, and the call is refused.
    Refuse,
    /// It is detached, and its users get errors.
    Detach,
}

impl BusyMount {
    /// [`Self::Detach`] if `force` is true.
    pub(crate) fn of(force: bool) -> Self {
        match force {
            true => Self::Detach,
            false => Self::Refuse,
        }
    }
}

/// Mounted file systems of a pool. All names are full dataset or snapshot names.
pub trait Mounts: Send + Sync {
    /// Where a dataset is mounted, if it is.
    fn mountpoint(&self, dataset: &str) -> Option<String>;

    /// The value of a property that a mounted dataset's mount options override, if any.
    fn overridden(&self, dataset: &str, property: &str) -> Option<&'static str>;

    /// Runs `change` while all operations on the datasets are stopped and their file systems are
    /// closed. Then the mounts open them again, perhaps with another content, and drop everything
    /// cached about them. Datasets that are not mounted are skipped.
    ///
    /// # Errors
    /// The errors of `change`; or a dataset cannot be opened again: its mount then returns errors.
    fn while_suspended(
        &self,
        datasets: &[&str],
        change: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()>;

    /// A dataset or snapshot is about to be destroyed. A mount of it is unmounted; no request may
    /// be inside a snapshot any more.
    ///
    /// # Errors
    /// `Refused(BUSY)` for a mount in use with [`BusyMount::Refuse`].
    fn before_destroy(&self, dataset: &str, busy: BusyMount) -> Result<()>;

    /// Frees removed files that a mount of the dataset would free a moment later.
    fn free_removed(&self, dataset: &str, recursion: Recursion);

    /// A dataset or snapshot was created: it may have to appear inside a mount.
    fn created(&self, dataset: &str);

    /// A dataset or snapshot is gone.
    fn destroyed(&self, dataset: &str);

    /// A dataset was renamed.
    fn renamed(&self, from: &str, to: &str);

    /// Properties of a dataset (and of those that inherit from it) changed.
    fn properties_changed(&self, dataset: &str);
}
