//! Making a pool, step by step.

use std::path::PathBuf;
use std::sync::Arc;

use zuse_base::Result;
use zuse_pool::{Environment, Shape, TopSpec};
use zuse_vdev::VdevClass;

use crate::{KeyMaterial, NewDevice, NewPool, Pool};

/// Options of a new pool. Single devices are striped; those of a [`Self::group`] form one vdev
/// together.
///
/// ```
/// use zuse::{CreateOptions, Shape};
/// # let dir = tempfile::tempdir()?;
/// # let at = |name: &str| dir.path().join(name);
/// let pool = CreateOptions::new("tank")
///     .group(Shape::Mirror, [at("one.img"), at("two.img")], Some(64 << 20))
///     .root_property("compression", "zstd")
///     .create()?;
/// assert!(pool.figures()?.size < 64 << 20);
/// pool.export()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct CreateOptions {
    new: NewPool,
    env: Environment,
}

impl CreateOptions {
    /// A pool of this name, with all features, and no device yet.
    pub fn new(name: impl Into<String>) -> Self {
        let new = NewPool {
            name: name.into(),
            ..NewPool::default()
        };
        Self {
            new,
            env: Environment::default(),
        }
    }

    /// Adds a vdev on one image file, which is created with that many bytes if it does not exist.
    pub fn file(self, path: impl Into<PathBuf>, bytes: u64) -> Self {
        self.group(Shape::Single, [path], Some(bytes))
    }

    /// Adds a vdev on an existing disk or file.
    pub fn device(self, path: impl Into<PathBuf>) -> Self {
        self.group(Shape::Single, [path], None)
    }

    /// Adds a vdev on several devices. With `make`, files that do not exist are created with that
    /// many bytes.
    pub fn group<P: Into<PathBuf>>(
        self,
        shape: Shape,
        devices: impl IntoIterator<Item = P>,
        make: Option<u64>,
    ) -> Self {
        self.group_of(VdevClass::Normal, shape, devices, make)
    }

    /// As [`Self::group`], for a vdev of another class: metadata and small blocks, dedup tables, or
    /// intent logs.
    pub fn group_of<P: Into<PathBuf>>(
        mut self,
        class: VdevClass,
        shape: Shape,
        devices: impl IntoIterator<Item = P>,
        make: Option<u64>,
    ) -> Self {
        let before = self.new.devices.len();
        let devices = devices.into_iter().map(|path| NewDevice {
            path: path.into(),
            make,
        });
        self.new.devices.extend(devices);
        self.new.layout.push(TopSpec {
            shape,
            devices: self.new.devices.len() - before,
            class,
        });
        self
    }

    /// Sets a property of the pool, as `zpool create -o` does.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.new.properties.push((name.into(), value.into()));
        self
    }

    /// Sets a property of its root dataset, as `zpool create -O` does.
    pub fn root_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.new.root_properties.push((name.into(), value.into()));
        self
    }

    /// Sets the key of its root dataset, needed if the properties enable encryption.
    pub fn root_key(mut self, key: KeyMaterial) -> Self {
        self.new.root_key = Some(key);
        self
    }

    /// Sets the user and group that own its root directory.
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.new.owner = (uid, gid);
        self
    }

    /// Accepts devices with other content.
    pub fn force(mut self, yes: bool) -> Self {
        self.new.force = yes;
        self
    }

    /// Uses this clock, randomness, host and memory limits.
    pub fn environment(mut self, env: Environment) -> Self {
        self.env = env;
        self
    }

    /// Creates the pool and opens it for writing. New files are removed if this fails.
    ///
    /// # Errors
    /// As [`Pool::create`].
    pub fn create(&self) -> Result<Arc<Pool>> {
        Pool::create(self.env.clone(), &self.new)
    }
}
