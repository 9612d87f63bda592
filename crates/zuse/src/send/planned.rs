//! The prepared stream of one snapshot.

use std::io::Write;

use zuse_base::{Errno, Error, Result};
use zuse_stream::{Send, SendProgress, StreamWriter};

/// One substream of a plan.
pub struct PlannedStream {
    /// The snapshot.
    pub to: String,
    /// The source for display: its full name, in a package `@snapshot`. `None` also if a clone's
    /// origin is the implicit source.
    pub from: Option<String>,
    /// Expected bytes of stream.
    pub estimate: u64,
    /// None if only the size can be computed.
    pub(super) send: Option<Send>,
}

impl PlannedStream {
    fn prepared(&self) -> Result<&Send> {
        self.send.as_ref().ok_or_else(|| {
            let what = format!("only the size of '{}' was requested", self.to);
            Error::refused(Errno::INVAL, what)
        })
    }

    /// Writes it. `progress` counts meanwhile, for other threads.
    ///
    /// # Errors
    /// A block cannot be read, or the output's error. `Refused(INVAL)` if only sizes were
    /// requested.
    pub fn run<W: Write>(&self, out: &mut StreamWriter<W>, progress: &SendProgress) -> Result<()> {
        self.prepared()?.run(out, progress)
    }

    /// Bytes of the stream, from a walk that reads no data. [`Self::estimate`] may be less exact.
    ///
    /// # Errors
    /// Metadata cannot be read. `Refused(INVAL)` if only sizes were requested.
    pub fn exact_size(&self) -> Result<u64> {
        self.prepared()?.exact_size()
    }
}
