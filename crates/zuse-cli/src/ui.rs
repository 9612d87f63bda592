//! The three standard streams of one command, which need not be those of this process. A forwarded
//! command has its own.
//!
//! Text from a disk or stream never reaches a terminal raw ([`shown`]): it is escaped here, for all
//! callers. Pipes and files get exact bytes. So do callers that ask for a scripted form or for a
//! file's content.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::interruption::is_deserted;

use crate::shown;
use crate::table::Style;

/// Streams of a command.
pub struct Ui {
    /// What it reads.
    pub input: File,
    out: Spelling,
    err: File,
    /// Errors go to a terminal.
    spells_errors: bool,
}

/// The destination of printed text.
struct Spelling {
    file: BufWriter<Out>,
    /// It is a terminal, and text is for people.
    spells: bool,
}

impl Write for Spelling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.spells {
            true => self.file.write_all(&shown::output(bytes)),
            false => self.file.write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The output. It fails once the client of a forwarded command has disconnected.
struct Out {
    file: File,
    client: Option<Arc<UnixStream>>,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.client.as_deref().is_some_and(is_deserted) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Ui {
    /// This process's own streams.
    ///
    /// # Errors
    /// A stream is closed.
    pub fn own() -> io::Result<Self> {
        Ok(Self::new([
            io::stdin().as_fd().try_clone_to_owned()?,
            io::stdout().as_fd().try_clone_to_owned()?,
            io::stderr().as_fd().try_clone_to_owned()?,
        ]))
    }

    /// Streams from another process: input, output, errors.
    pub fn new([input, out, err]: [OwnedFd; 3]) -> Self {
        Self {
            input: input.into(),
            out: Spelling {
                spells: out.is_terminal(),
                file: BufWriter::with_capacity(
                    64 << 10,
                    Out {
                        file: out.into(),
                        client: None,
                    },
                ),
            },
            spells_errors: err.is_terminal(),
            err: err.into(),
        }
    }

    /// Sets the connection to the client of the command.
    pub fn asked_by(&mut self, client: Option<Arc<UnixStream>>) {
        self.out.file.get_mut().client = client;
    }

    /// Where output goes.
    pub fn out(&mut self) -> &mut impl Write {
        &mut self.out
    }

    /// A second handle of the raw output, for bulk data. Buffered text is flushed first.
    ///
    /// # Errors
    /// It cannot be flushed.
    pub fn raw_out(&mut self) -> io::Result<&File> {
        self.out.flush()?;
        Ok(&self.out.file.get_ref().file)
    }

    /// The style of tables. A scripted style switches to exact output from here on, on a terminal
    /// too.
    pub fn style(&mut self, scripted: bool) -> Style {
        // Scripts compare exact bytes, on a terminal as well.
        self.out.spells &= !scripted;
        match (scripted, self.out.spells) {
            (true, _) => Style::Scripted,
            (false, true) => Style::Spelled,
            (false, false) => Style::Plain,
        }
    }

    /// A name or path from outside as it must be printed, alone or inside a message.
    pub fn name<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        match self.out.spells {
            true => shown::name(name),
            false => name.into(),
        }
    }

    /// As [`Self::name`], of text.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.out.spells {
            true => shown::text(text),
            false => text.into(),
        }
    }

    /// Prints text of ours, with colours.
    ///
    /// # Errors
    /// As [`Self::print`].
    pub fn print_styled(&mut self, text: &str) -> io::Result<()> {
        self.out.file.write_all(text.as_bytes())
    }

    /// Prints text.
    ///
    /// # Errors
    /// The reader has closed the stream, or the disk is full.
    pub fn print(&mut self, text: impl AsRef<[u8]>) -> io::Result<()> {
        self.out.write_all(text.as_ref())
    }

    /// Prints a line.
    ///
    /// # Errors
    /// As [`Self::print`].
    pub fn line(&mut self, text: impl AsRef<[u8]>) -> io::Result<()> {
        self.print(text)?;
        self.print("\n")
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// As [`Self::print`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Prints a line on the error stream. On a terminal it stays one line: a name with a line break
    /// cannot fake another.
    pub fn say(&mut self, line: impl AsRef<str>) {
        match self.spells_errors {
            true => self.say_styled(&shown::text(line.as_ref())),
            false => self.say_styled(line.as_ref()),
        }
    }

    /// Says several lines on the error stream.
    pub fn say_lines(&mut self, text: &str) {
        for line in text.trim_end().split('\n') {
            self.say(line);
        }
    }

    /// Says something of ours, with colours.
    pub fn say_styled(&mut self, text: &str) {
        // In the order in which they were said: the two streams may be one terminal.
        let _ = self.out.flush();
        let _ = self.err.write_all(format!("{text}\n").as_bytes());
    }

    /// The error stream.
    pub fn err(&self) -> &File {
        &self.err
    }

    /// Whether a person looks at the error stream.
    pub fn is_watched(&self) -> bool {
        self.err.is_terminal()
    }

    /// Whether output goes to a terminal.
    pub fn out_is_terminal(&self) -> bool {
        self.out.file.get_ref().file.is_terminal()
    }

    /// The three streams, for a child process or another process.
    ///
    /// # Errors
    /// Too many files are open.
    pub fn streams(&mut self) -> io::Result<[OwnedFd; 3]> {
        self.out.flush()?;
        Ok([
            self.input.as_fd().try_clone_to_owned()?,
            self.out.file.get_ref().file.as_fd().try_clone_to_owned()?,
            self.err.as_fd().try_clone_to_owned()?,
        ])
    }
}
