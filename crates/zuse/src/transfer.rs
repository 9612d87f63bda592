//! Sending, receiving and comparing, in the form that most programs need.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use zuse_base::{Errno, Error, Result};
use zuse_stream::{SendOptions, SendProgress, StreamWriter};
use zuse_zpl::Change;

use crate::{Environment, Pool, ReceiveRequest, ReceivedSnapshot};

impl Pool {
    /// Writes a send stream of a snapshot to a writer. It is full, or incremental from an earlier
    /// snapshot or bookmark. `from` is a full name, or `@name` or `#name` of the same dataset.
    /// Returns the number of bytes.
    ///
    /// A filesystem or volume that is not in use can be sent, too. Nothing can open or change it
    /// meanwhile. The stream has what was written before the call, and its snapshot is named
    /// `@--head--`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let (a, b) = (dir.path().join("a.img"), dir.path().join("b.img"));
    /// # let here = zuse::CreateOptions::new("here").file(a, 64 << 20).create()?;
    /// # let there = zuse::CreateOptions::new("there").file(b, 64 << 20).create()?;
    /// here.files("here")?.write("page", "text")?;
    /// here.snapshot(&["here@monday".into()], zuse::Recursion::One, &[])?;
    /// let mut stream = Vec::new();
    /// let bytes = here.send_to("here@monday", None, &mut stream)?;
    /// assert_eq!(bytes, stream.len() as u64);
    ///
    /// let received = there.receive_from(&stream[..], "there/copy")?;
    /// assert_eq!(received[0].to, "there/copy@monday");
    /// assert_eq!(there.files("there/copy")?.read("page")?, b"text");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(XDEV)` if `from` is no earlier point of the same history,
    /// `Refused(ACCES)` without the key of an encrypted dataset. `Refused(BUSY)` for a filesystem
    /// or volume that is in use. A block cannot be read; `Refused` with the writer's error number.
    pub fn send_to(
        self: &Arc<Self>,
        snapshot: &str,
        from: Option<&str>,
        output: impl Write,
    ) -> Result<u64> {
        let send = self.send(snapshot, from, SendOptions::default())?;
        let mut output = StreamWriter::new(output);
        send.run(&mut output, &SendProgress::default())?;
        output.flush()?;
        Ok(output.offset())
    }

    /// Receives a stream from a reader into a new dataset, or on top of one whose newest snapshot
    /// is the stream's source. Returns the received snapshots. [`Pool::receive`] has more options.
    ///
    /// # Errors
    /// `Corrupt` for a stream that is damaged or ends early, which leaves no partial dataset
    /// behind; `Refused(EXIST)`, `Refused(NOSPC)`; `Refused` with the reader's error number.
    pub fn receive_from(
        self: &Arc<Self>,
        input: impl Read,
        target: &str,
    ) -> Result<Vec<ReceivedSnapshot>> {
        let request = ReceiveRequest {
            target: target.to_owned(),
            ..ReceiveRequest::default()
        };
        let mut all = Vec::new();
        self.receive(input, &request, &mut |snapshot| {
            // Each snapshot is reported twice, before and after it is received.
            if snapshot.bytes.is_some() {
                all.push(snapshot.clone());
            }
        })?;
        Ok(all)
    }

    /// Reads a stream without a pool. It is received into an unlinked file in a folder, which
    /// vanishes with the returned pool. The dataset there is [`STREAM_DATASET`], with the snapshot
    /// names of the stream.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("a.img");
    /// # let tank = zuse::CreateOptions::new("tank").file(image, 64 << 20).create()?;
    /// # tank.files("tank")?.write("page", "text")?;
    /// # tank.snapshot(&["tank@monday".into()], zuse::Recursion::One, &[])?;
    /// # let mut stream = Vec::new();
    /// # tank.send_to("tank@monday", None, &mut stream)?;
    /// # let stream = std::io::Cursor::new(stream);
    /// let (pool, snapshots) = zuse::Pool::of_stream(stream, dir.path())?;
    /// let files = pool.files(&snapshots[0].to)?;
    /// let names: Vec<_> = files.read_dir("/")?.map(|e| Ok(e?.file_name())).collect::<zuse::Result<_>>()?;
    /// assert_eq!(names, ["page"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The file cannot be created; `Corrupt` for a stream that is damaged or ends early.
    /// [`Pool::of_streams`] returns the intact part of such a stream.
    ///
    /// [`STREAM_DATASET`]: crate::STREAM_DATASET
    pub fn of_stream(
        input: impl Read + 'static,
        folder: impl AsRef<Path>,
    ) -> Result<(Arc<Self>, Vec<ReceivedSnapshot>)> {
        let env = Environment::default();
        let inputs: Vec<Box<dyn Read>> = vec![Box::new(input)];
        match Self::of_streams(env, crate::STREAM_POOL, folder.as_ref(), inputs)? {
            (pool, snapshots, None) => Ok((pool, snapshots)),
            (_, _, Some(error)) => Err(error),
        }
    }

    /// Calls `report` for each object that changed from a snapshot to a later one, or to its
    /// dataset as it is now.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("a.img");
    /// # let pool = zuse::CreateOptions::new("tank").file(image, 64 << 20).create()?;
    /// use zuse::ChangeKind;
    ///
    /// pool.snapshot(&["tank@monday".into()], zuse::Recursion::One, &[])?;
    /// pool.files("tank")?.write("new", "text")?;
    /// let mut added = Vec::new();
    /// pool.diff("tank@monday", "tank", |change| {
    ///     if change.kind == ChangeKind::Added {
    ///         added.extend(change.path);
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(added, [b"/new"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Refused(NOENT)`; `Refused(XDEV)` if `from` is no earlier snapshot of the same history. An
    /// error of `report`, which ends it; at the end the first object that cannot be read.
    pub fn diff(
        self: &Arc<Self>,
        from: &str,
        to: &str,
        mut report: impl FnMut(Change) -> Result<()>,
    ) -> Result<()> {
        let (old, new) = (self.dataset(from)?, self.dataset(to)?);
        if !self.dsl().descends_from(new.handle(), old.handle())? {
            let what = format!("'{from}' is no earlier snapshot of '{to}'");
            return Err(Error::refused(Errno::XDEV, what));
        }
        // The trees on disk are compared.
        self.sync()?;
        let (old, new) = (self.file_system(from)?, self.file_system(to)?);
        zuse_zpl::diff(&old, &new, &mut report)
    }

    /// Verifies the pool with the offline checker: it reads every block, or all metadata, and
    /// checks the invariants between them. Nothing is changed. Nothing may write to the pool
    /// meanwhile, because that would look like damage.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("a.img");
    /// # let pool = zuse::CreateOptions::new("tank").file(image, 64 << 20).create()?;
    /// pool.files("tank")?.write("page", "text")?;
    /// let report = pool.check(zuse::check::Depth::All)?;
    /// assert!(report.problems.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The pool is suspended. Problems are in the report.
    pub fn check(&self, depth: zuse_check::Depth) -> Result<zuse_check::Report> {
        self.sync()?;
        zuse_check::check(self.spa(), depth)
    }
}
