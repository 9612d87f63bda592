//! What a call on a dataset or snapshot includes.

/// Whether a call includes what is below the named dataset or snapshot (option `-r` of commands).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recursion {
    /// Only what is named.
    #[default]
    One,
    /// Also all datasets below it, or the snapshots of the same name below it.
    Below,
}

impl Recursion {
    /// [`Self::Below`] if `below` is true.
    pub fn of(below: bool) -> Self {
        match below {
            true => Self::Below,
            false => Self::One,
        }
    }

    /// Whether it is [`Self::Below`].
    pub fn is_below(self) -> bool {
        self == Self::Below
    }
}
