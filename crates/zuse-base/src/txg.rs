//! Numbers used everywhere: transaction groups and objects.

use std::fmt;

/// A transaction group: all changes of a pool between two points that a crash can leave it at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Txg(pub u64);

impl Txg {
    /// No group: births of holes, "never".
    pub const ZERO: Txg = Txg(0);
    /// Later than every group.
    pub const MAX: Txg = Txg(u64::MAX);

    /// The group after this one. Stays at the largest number, which no pool reaches.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The group before this one, or zero.
    #[must_use]
    pub const fn prev(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// `n` groups later.
    #[must_use]
    pub const fn plus(self, n: u64) -> Self {
        Self(self.0.saturating_add(n))
    }

    /// How many groups this one is after `earlier`; 0 if it is not.
    pub const fn since(self, earlier: Txg) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Its slot in a ring of `N` groups that are alive at once.
    pub const fn slot<const N: usize>(self) -> usize {
        (self.0 % N as u64) as usize
    }
}

/// The number of an object in its object set. Object 0 is the object set's own meta-dnode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

impl ObjectId {
    /// The meta-dnode; as a reference: none.
    pub const ZERO: ObjectId = ObjectId(0);

    /// The object after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Whether this is object 0, which as a reference means "none".
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// As a reference: none for 0.
    pub const fn some(self) -> Option<Self> {
        if self.0 == 0 { None } else { Some(self) }
    }
}

macro_rules! plain_number {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<u64> for $name {
            fn from(n: u64) -> Self {
                Self(n)
            }
        }

        impl From<$name> for u64 {
            fn from(n: $name) -> u64 {
                n.0
            }
        }
    )*};
}

plain_number! { Txg ObjectId }

#[cfg(test)]
mod tests;
