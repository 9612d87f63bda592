//! The state of a scan, as a type for commands and programs.

/// What a scan is doing, or how it ended. Removals of vdevs and expansions of raidz have the same
/// states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScanState {
    /// There was none yet.
    #[default]
    None,
    /// It is running, or paused.
    Running,
    /// It has ended.
    Finished,
    /// It was canceled.
    Canceled,
    /// A scrub of the error log is running, or paused.
    ErrorScrubbing,
    /// A number of the pool that has no known meaning.
    Unknown(u64),
}

impl ScanState {
    /// The state for its number on disk.
    pub fn of(number: u64) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Running,
            2 => Self::Finished,
            3 => Self::Canceled,
            4 => Self::ErrorScrubbing,
            other => Self::Unknown(other),
        }
    }

    /// Its number on disk.
    pub fn number(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Running => 1,
            Self::Finished => 2,
            Self::Canceled => 3,
            Self::ErrorScrubbing => 4,
            Self::Unknown(number) => number,
        }
    }

    /// Whether it is running, or paused.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::ErrorScrubbing)
    }
}

#[cfg(test)]
mod tests {
    use super::ScanState;

    #[test]
    fn every_number_comes_back() {
        for number in (0..8).chain([u64::MAX]) {
            assert_eq!(ScanState::of(number).number(), number);
        }
        let active = (0..8).filter(|n| ScanState::of(*n).is_active());
        assert_eq!(active.collect::<Vec<_>>(), [1, 4]);
    }
}
