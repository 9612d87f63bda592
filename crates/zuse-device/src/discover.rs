//! Which files and disks in the given places could be devices of a pool.
//!
//! It looks at names, kinds and sizes only. It opens nothing, so it disturbs no other process.
//! Directories are not searched recursively. Links are followed. A device with several names is
//! listed once, under the first name found.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use zuse_base::Errno;

use crate::error::{Cause, DeviceError, Op};

/// The smallest device that a pool accepts.
pub const MIN_DEVICE_SIZE: u64 = 64 << 20;

/// Something that could be a device of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where it is.
    pub path: PathBuf,
    /// A block device, not a file.
    pub is_block_device: bool,
}

/// What was found, and what could not be looked at.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// In the order of the places, by name within a directory.
    pub candidates: Vec<Candidate>,
    /// Places and entries that could not be looked at, or that were named but are no device.
    pub problems: Vec<DeviceError>,
}

/// Looks at files, disks and the entries of directories.
///
/// A place that is named must be a directory or a device, or it is a problem. Directory entries
/// that are something else, or too small, are skipped.
pub fn discover<P: AsRef<Path>>(places: &[P]) -> Discovery {
    let mut found = Search::default();
    for place in places {
        found.place(place.as_ref());
    }
    found.result
}

#[derive(Default)]
struct Search {
    result: Discovery,
    seen: HashSet<(bool, u64, u64)>,
}

impl Search {
    fn place(&mut self, path: &Path) {
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => self.directory(path),
            Ok(meta) => {
                if let Err(cause) = self.candidate(path, &meta) {
                    let name = path.to_string_lossy();
                    self.result.problems.push(DeviceError::new(
                        name,
                        Op::Open,
                        (0, 0),
                        Errno::INVAL,
                        cause,
                    ));
                }
            }
            // A partition of an image has no file of its own. The open finds out whether it exists.
            Err(_) if crate::partition::split(path).is_some() => {
                self.result.candidates.push(Candidate {
                    path: path.into(),
                    is_block_device: false,
                });
            }
            Err(error) => self.problem(path, &error),
        }
    }

    fn directory(&mut self, path: &Path) {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => return self.problem(path, &error),
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => names.push(entry.path()),
                Err(error) => self.problem(path, &error),
            }
        }
        names.sort_unstable();
        for name in names {
            match fs::metadata(&name) {
                Ok(meta) => drop(self.candidate(&name, &meta)),
                Err(error) => self.problem(&name, &error),
            }
        }
    }

    fn candidate(&mut self, path: &Path, meta: &Metadata) -> Result<(), Cause> {
        let is_block_device = meta.file_type().is_block_device();
        if !is_block_device && !meta.is_file() {
            return Err(Cause::WrongKind);
        }
        if !is_block_device && meta.len() < MIN_DEVICE_SIZE {
            return Err(Cause::TooSmall);
        }
        let identity = if is_block_device {
            (true, meta.rdev(), 0)
        } else {
            (false, meta.dev(), meta.ino())
        };
        if self.seen.insert(identity) {
            self.result.candidates.push(Candidate {
                path: path.into(),
                is_block_device,
            });
        }
        Ok(())
    }

    fn problem(&mut self, path: &Path, error: &io::Error) {
        self.result.problems.push(DeviceError::host(
            path.to_string_lossy(),
            Op::Open,
            (0, 0),
            error,
        ));
    }
}

#[cfg(test)]
mod tests;
