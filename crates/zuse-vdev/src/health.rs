//! The health of a vdev and its reason, in the words and numbers of `zpool status`.

use std::fmt;

/// State of a vdev, worst first; the discriminants are those of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum VdevState {
    /// Not examined yet.
    Unknown = 0,
    /// Not open now.
    Closed = 1,
    /// Taken offline by the user.
    Offline = 2,
    /// The device was pulled.
    Removed = 3,
    /// Could not be opened.
    CantOpen = 4,
    /// Taken out for its errors, or by the user.
    Faulted = 5,
    /// It works with less redundancy, or has too many checksum errors.
    Degraded = 6,
    /// All is well.
    Healthy = 7,
}

impl VdevState {
    /// Whether I/O may be sent there.
    pub fn is_usable(self) -> bool {
        self >= Self::Degraded
    }

    /// The word that `zpool status` shows.
    pub fn word(self, why: Aux) -> &'static str {
        match self {
            Self::Offline | Self::Closed => "OFFLINE",
            Self::Removed => "REMOVED",
            Self::CantOpen if matches!(why, Aux::CorruptData | Aux::BadLog) => "FAULTED",
            Self::CantOpen if why == Aux::SplitPool => "SPLIT",
            Self::CantOpen => "UNAVAIL",
            Self::Faulted => "FAULTED",
            Self::Degraded => "DEGRADED",
            Self::Healthy => "ONLINE",
            Self::Unknown => "UNKNOWN",
        }
    }
}

macro_rules! reasons {
    ($($name:ident = $number:literal, $note:literal;)*) => {
        /// Why a vdev is not healthy; the discriminants are those of the interface.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Aux {
            /// Nothing is wrong with it.
            #[default]
            None = 0,
            $(#[doc = concat!("Noted in `zpool status` as: \"", $note, "\".")]
            $name = $number,)*
        }

        impl Aux {
            /// The note that `zpool status` shows after the counters; empty for none.
            pub fn note(self) -> &'static str {
                match self {
                    Self::None => "",
                    $(Self::$name => $note,)*
                }
            }
        }
    };
}

reasons! {
    OpenFailed = 1, "cannot open";
    CorruptData = 2, "corrupted data";
    NoReplicas = 3, "insufficient replicas";
    BadGuidSum = 4, "missing device";
    TooSmall = 5, "corrupted data";
    BadLabel = 6, "invalid label";
    VersionNewer = 7, "newer version";
    VersionOlder = 8, "older version";
    UnsupportedFeature = 9, "unsupported feature(s)";
    Spared = 10, "currently in use";
    ErrorsExceeded = 11, "too many errors";
    IoFailure = 12, "experienced I/O failures";
    BadLog = 13, "bad intent log";
    External = 14, "external device fault";
    SplitPool = 15, "split into new pool";
    BadAshift = 16, "corrupted data";
    ExternalPersist = 17, "external device fault";
    Active = 18, "currently in use";
    ChildrenOffline = 19, "all children offline";
    AshiftTooBig = 20, "unsupported minimum blocksize";
}

impl fmt::Display for Aux {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.note())
    }
}

/// A state and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// The state.
    pub state: VdevState,
    /// Why it is not better than this.
    pub why: Aux,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Health {
    /// All is well.
    pub const GOOD: Self = Self::new(VdevState::Healthy, Aux::None);

    /// A state with a reason.
    pub const fn new(state: VdevState, why: Aux) -> Self {
        Self { state, why }
    }

    /// The word that `zpool status` shows.
    pub fn word(self) -> &'static str {
        self.state.word(self.why)
    }

    /// Health of an interior vdev that works while at most `spare` of its children have failed.
    pub fn of_children(children: impl Iterator<Item = Self>, spare: usize) -> Self {
        let (mut total, mut lost, mut offline, mut degraded) = (0, 0, 0, 0);
        for child in children {
            total += 1;
            match child.state {
                s if !s.is_usable() => {
                    lost += 1;
                    offline += usize::from(s == VdevState::Offline);
                }
                VdevState::Degraded => degraded += 1,
                _ => {}
            }
        }
        if lost > spare || total == 0 {
            let why = if offline == total && total > 0 {
                Aux::ChildrenOffline
            } else {
                Aux::NoReplicas
            };
            Self::new(VdevState::CantOpen, why)
        } else if lost + degraded > 0 {
            Self::new(VdevState::Degraded, Aux::None)
        } else {
            Self::GOOD
        }
    }
}

#[cfg(test)]
mod tests;
