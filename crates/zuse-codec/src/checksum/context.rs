//! State of the salted functions, derived from the pool's salt once per pool.

use super::edonr::SaltedEdonr;
use super::skein::SkeinMac;
use std::fmt;

/// The pool's secret for salted checksums.
#[derive(Clone, PartialEq, Eq)]
pub struct Salt(pub [u8; 32]);

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(..)")
    }
}

/// Keyed states of skein, edonr and blake3, made from the salt when a pool is opened.
///
/// A context without salt serves the other functions: labels, and the blocks that must be read to
/// find the salt.
#[derive(Clone)]
pub struct ChecksumContext {
    pub(super) salt: Option<Salt>,
    pub(super) skein: Option<SkeinMac>,
    pub(super) edonr: Option<SaltedEdonr>,
}

impl ChecksumContext {
    /// Prepares the keyed states.
    pub fn new(salt: Option<&Salt>) -> Self {
        Self {
            salt: salt.cloned(),
            skein: salt.map(|s| SkeinMac::new(&s.0)),
            edonr: salt.map(|s| SaltedEdonr::new(&s.0)),
        }
    }

    /// The salt it was made from.
    pub fn salt(&self) -> Option<&Salt> {
        self.salt.as_ref()
    }
}

impl Default for ChecksumContext {
    fn default() -> Self {
        Self::new(None)
    }
}

impl fmt::Debug for ChecksumContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChecksumContext")
            .field("salt", &self.salt)
            .finish_non_exhaustive()
    }
}
