//! An error in a block, before the block's place is added.

use std::fmt;

/// A broken rule of the format, as one short phrase. The caller that knows the object and block
/// adds the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flaw(pub &'static str);

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Result of parsing the bytes of a block.
pub(crate) type Checked<T> = Result<T, Flaw>;
