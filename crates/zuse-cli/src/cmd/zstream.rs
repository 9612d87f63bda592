//! `zuse zstream …`: streams as files, without a pool.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use zuse::stream::filter::{self, Named};
use zuse::stream::{DumpOptions, StreamError, dump, nv_print, unpack_token};
use zuse::{Compression, ZstdLevel};

use crate::error::{CommandError, Explain, Meaning, Outcome, Stop};
use crate::session::Session;

/// Print and change send streams, and decode resume tokens
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct Zstream {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Dump(Dump),
    Token(Token),
    Decompress(Decompress),
    Recompress(Recompress),
    Redup(Redup),
    #[command(name = "drop_record")]
    DropRecord(DropRecord),
}

impl Zstream {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        match self.command {
            Command::Dump(c) => c.run(session),
            Command::Token(c) => c.run(session),
            Command::Decompress(c) => c.run(session),
            Command::Recompress(c) => c.run(session),
            Command::Redup(c) => c.run(session),
            Command::DropRecord(c) => c.run(session),
        }
    }
}

/// Print the records of a stream
#[derive(Args, Debug)]
struct Dump {
    /// Each record; twice also the checksums
    #[arg(short, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Do not verify the checksums
    #[arg(short = 'C')]
    unverified: bool,
    /// Payloads in hexadecimal
    #[arg(short)]
    dump: bool,
    /// The stream; standard input if none is named
    file: Option<PathBuf>,
}

impl Dump {
    fn run(self, session: &mut Session) -> Outcome {
        let input = input(session, self.file.as_deref())?;
        let options = DumpOptions {
            verbose: self.verbose,
            payloads: self.dump,
            skip_checksums: self.unverified,
        };
        let done = dump(input, &options, session.ui.out());
        session.ui.out().flush()?;
        done.map_err(stream_failure)
    }
}

/// A stream's file, or standard input.
pub fn input(session: &Session, file: Option<&std::path::Path>) -> Outcome<Box<dyn Read + Send>> {
    let raw = match file {
        Some(path) if path.as_os_str() != "-" => File::open(session.path(path))
            .or_cannot(|| format!("Error while opening file '{}'", path.display()))?,
        _ => session.ui.input.try_clone()?,
    };
    Ok(Box::new(BufReader::with_capacity(1 << 20, raw)))
}

/// A stream's error as the command's.
pub fn stream_failure(error: StreamError) -> Stop {
    match &error {
        StreamError::Io { errno: 32, .. } => Stop::Hangup,
        _ => CommandError::new(error.to_string()).into(),
    }
}

/// Print the content of a resume token
#[derive(Args, Debug)]
struct Token {
    /// The token, as in the property receive_resume_token
    token: String,
}

impl Token {
    fn run(self, session: &mut Session) -> Outcome {
        let list = unpack_token(&self.token)
            .map_err(|e| CommandError::new(format!("Unable to parse resume token: {e}")))?;
        session.ui.print(nv_print::text(&list))?;
        Ok(())
    }
}

/// Decompress single blocks of a stream, from standard input to standard output
#[derive(Args, Debug)]
struct Decompress {
    /// Print which ones
    #[arg(short)]
    verbose: bool,
    /// The blocks; 'off' as TYPE only marks the record as uncompressed
    #[arg(value_name = "OBJECT,OFFSET[,TYPE]")]
    blocks: Vec<String>,
}

fn method(name: &str) -> Outcome<Compression> {
    (0..=u8::MAX)
        .filter_map(Compression::from_u8)
        .find(|c| c.name() == name && (c.is_storable() || *c == Compression::Off))
        .ok_or_else(|| {
            let mut failure = CommandError::new(format!("Invalid compression type {name}."));
            failure.code = 2;
            // It is no usage error, which would have another exit status here.
            failure.meaning(Meaning::NotFound).into()
        })
}

/// `OBJECT,OFFSET[,REST]`.
fn block(text: &str) -> Outcome<(u64, u64, Option<&str>)> {
    let bad = || CommandError::usage(format!("invalid argument '{text}'"));
    let mut parts = text.splitn(3, ',');
    let mut number = || {
        let part = parts.next().ok_or_else(bad)?;
        let (digits, radix) = part.strip_prefix("0x").map_or((part, 10), |hex| (hex, 16));
        u64::from_str_radix(digits, radix).map_err(|_| bad())
    };
    Ok((number()?, number()?, parts.next()))
}

impl Decompress {
    fn run(self, session: &mut Session) -> Outcome {
        let mut named = Vec::new();
        for text in &self.blocks {
            let (object, offset, compression) = block(text)?;
            let compression = match compression {
                None => Some(Compression::Lz4),
                Some("off") => None,
                Some(name) => Some(method(name)?),
            };
            named.push(Named {
                object,
                offset,
                compression,
            });
        }
        let source = input(session, None)?;
        let out = session.ui.raw_out()?.try_clone()?;
        let verbose = self.verbose;
        let ui = &mut session.ui;
        filter::decompress_named(source, out, &named, &mut |text| {
            if verbose {
                ui.say(text);
            }
        })
        .map_err(stream_failure)
    }
}

/// Recompress the blocks of a stream, from standard input to standard output
#[derive(Args, Debug)]
struct Recompress {
    /// Level, for zstd
    #[arg(short, value_name = "LEVEL")]
    level: Option<u64>,
    /// How: lz4, zstd, gzip-6 …, or off
    #[arg(value_name = "TYPE")]
    kind: String,
}

impl Recompress {
    fn run(self, session: &mut Session) -> Outcome {
        let kind = method(&self.kind)?;
        let level = match self.level {
            None => ZstdLevel::default(),
            Some(n) => ZstdLevel::from_property(n)
                .ok_or_else(|| CommandError::usage(format!("Invalid compression level {n}")))?,
        };
        let source = input(session, None)?;
        let out = session.ui.raw_out()?.try_clone()?;
        filter::recompress(source, out, kind, level).map_err(stream_failure)
    }
}

/// Convert a deduplicated stream to one without references to earlier blocks
#[derive(Args, Debug)]
struct Redup {
    /// Print the number of references
    #[arg(short)]
    verbose: bool,
    /// The stream: a file, because earlier blocks are read again
    file: PathBuf,
}

impl Redup {
    fn run(self, session: &mut Session) -> Outcome {
        let path = session.path(&self.file);
        let file = File::open(&path)
            .or_cannot(|| format!("Error while opening file '{}'", self.file.display()))?;
        let out = session.ui.raw_out()?.try_clone()?;
        let replaced = filter::redup(BufReader::new(file), out).map_err(stream_failure)?;
        if self.verbose {
            session.ui.say(format!(
                "converted stream with {replaced} DRR_WRITE_BYREF records"
            ));
        }
        Ok(())
    }
}

/// Leave blocks out of a stream, from standard input to standard output
///
/// At their place a receiver keeps what it has, or gets a hole. So a stream with a damaged block
/// can be received.
#[derive(Args, Debug)]
struct DropRecord {
    /// Print which ones
    #[arg(short)]
    verbose: bool,
    /// The blocks
    #[arg(value_name = "OBJECT,OFFSET", required = true)]
    blocks: Vec<String>,
}

impl DropRecord {
    fn run(self, session: &mut Session) -> Outcome {
        let mut named = Vec::new();
        for text in &self.blocks {
            let (object, offset, rest) = block(text)?;
            if rest.is_some() {
                return Err(CommandError::usage(format!("invalid argument '{text}'")).into());
            }
            named.push((object, offset));
        }
        let source = input(session, None)?;
        let out = session.ui.raw_out()?.try_clone()?;
        let verbose = self.verbose;
        let ui = &mut session.ui;
        filter::drop_named(source, out, &named, &mut |text| {
            if verbose {
                ui.say(text);
            }
        })
        .map_err(stream_failure)
    }
}
