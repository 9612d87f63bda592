//! What is wrong with a block, before anybody says which block it is.

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

/// Result of looking at the bytes of a block.
pub(crate) type Checked<T> = Result<T, Flaw>;
