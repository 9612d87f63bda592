//! The format in which the process that holds a pool sends an answer. Each row is a line of JSON,
//! sent while the next one is made.
//!
//! ```text
//!   datasets   [name, kind, txg of creation, [[value, source, received] or null, …], [names]]     a line each
//!   others     one object
//! ```
//! A row contains the names of its properties only if the question asked for all properties. Budget
//! for a row of a listing: an allocation for its name, one for its cells, and one for each value.
//! Rows are sent as they are made.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::de::{Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use zuse::property_table::dataset_property;
use zuse::{Errno, Error, Pool};

use super::{Answer, Cell, DatasetRow, Question, Text};
use crate::error::{CommandError, Outcome};
use crate::session::{Need, Session};
use crate::wire::{self, Sent};

/// Bytes per write.
const BATCH: usize = 64 << 10;
/// Capacity of the pipe.
const PIPE: usize = 1 << 20;

/// A text that is usually one of few words.
struct Word(Text);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Words;
        impl Visitor<'_> for Words {
            type Value = Word;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a word")
            }
            fn visit_str<E>(self, text: &str) -> Result<Word, E> {
                const KNOWN: [&str; 9] = [
                    "-",
                    "snapshot",
                    "default",
                    "local",
                    "filesystem",
                    "volume",
                    "bookmark",
                    "received",
                    "temporary",
                ];
                let known = KNOWN.iter().find(|k| **k == text);
                Ok(Word(
                    known.map_or_else(|| text.to_owned().into(), |k| (*k).into()),
                ))
            }
        }
        from.deserialize_str(Words)
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (&self.value, &self.source, &self.received).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (value, source, received) = <(Option<Text>, Word, _)>::deserialize(from)?;
        Ok(Self {
            value,
            source: source.0,
            received,
        })
    }
}

/// A line to be sent.
#[derive(Serialize)]
struct Out<'a>(&'a str, &'a str, u64, Cells<'a>, Names<'a>);

struct Cells<'a>(&'a DatasetRow);

impl Serialize for Cells<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.cells.iter().map(|(_, cell)| cell))
    }
}

struct Names<'a>(Option<&'a DatasetRow>);

impl Serialize for Names<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let cells = self.0.iter().flat_map(|row| &row.cells);
        to.collect_seq(cells.map(|(name, _)| name))
    }
}

fn put_line(row: &DatasetRow, with_names: bool, lines: &mut Vec<u8>) -> io::Result<()> {
    let names = Names(with_names.then_some(row));
    let line = Out(&row.name, &row.kind, row.create_txg, Cells(row), names);
    serde_json::to_writer(&mut *lines, &line)?;
    lines.push(b'\n');
    Ok(())
}

/// The received form of the same.
#[derive(Deserialize)]
struct In(String, Word, u64, Vec<Option<Cell>>, Vec<String>);

impl In {
    fn row(self, asked: Option<&[Text]>) -> DatasetRow {
        let Self(name, kind, create_txg, cells, names) = self;
        let cells = match asked {
            Some(asked) => asked.iter().cloned().zip(cells).collect(),
            None => names.iter().map(|n| static_name(n)).zip(cells).collect(),
        };
        DatasetRow {
            name,
            kind: kind.0,
            create_txg,
            cells,
        }
    }
}

fn static_name(name: &str) -> Text {
    match dataset_property(name) {
        Some(known) if known.name == name => known.name.into(),
        _ => name.to_owned().into(),
    }
}

/// The received part of an answer.
struct Incoming {
    asked: Option<Vec<Text>>,
    rows: Vec<DatasetRow>,
    other: Option<Answer>,
}

impl Incoming {
    fn of(question: &Question) -> Self {
        let asked = match question {
            Question::Datasets { properties, .. } => properties.as_ref(),
            Question::Pool { .. } | Question::Vdevs { .. } => None,
        };
        Self {
            asked: asked.map(|names| names.iter().map(|n| static_name(n)).collect()),
            rows: Vec::new(),
            other: None,
        }
    }

    /// Takes whole lines.
    fn take(&mut self, lines: &[u8]) -> serde_json::Result<()> {
        if lines.first() == Some(&b'{') {
            self.other = Some(serde_json::from_slice(lines)?);
            return Ok(());
        }
        for line in serde_json::Deserializer::from_slice(lines).into_iter::<In>() {
            self.rows.push(line?.row(self.asked.as_deref()));
        }
        Ok(())
    }

    /// Reads everything. Unknown data is read to its end too, so that the writer does not block.
    fn read(mut self, mut from: impl Read) -> io::Result<serde_json::Result<Self>> {
        let mut odd = Ok(());
        let (mut text, mut chunk) = (Vec::new(), vec![0; BATCH]);
        loop {
            let some = match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(some) => &chunk[..some],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let Some(end) = some.iter().rposition(|b| *b == b'\n') else {
                text.extend_from_slice(some);
                continue;
            };
            text.extend_from_slice(&some[..=end]);
            if odd.is_ok() {
                odd = self.take(&text);
            }
            text.clear();
            text.extend_from_slice(&some[end + 1..]);
        }
        if odd.is_ok() {
            odd = self.take(&text);
        }
        Ok(odd.map(|()| self))
    }
}

impl Question {
    /// The answer; none if the process has just ended.
    pub(super) fn ask_holder(&self, session: &mut Session, guid: u64) -> Outcome<Option<Answer>> {
        let json = serde_json::to_string(self).map_err(|e| CommandError::new(e.to_string()))?;
        let argv = vec![b"zuse".to_vec(), b"answer".to_vec(), json.into_bytes()];
        let request = wire::Request::new(argv, b"/".to_vec());
        let (reader, writer) = std::io::pipe()?;
        // A small pipe serves, too.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE);
        let [input, _, err] = session.ui.streams()?;
        let streams = [input, OwnedFd::from(writer), err];
        let coming = Incoming::of(self);
        // The thread reads before the question is sent: otherwise a long answer fills the pipe, and
        // both processes wait forever.
        let collect = std::thread::spawn(move || coming.read(reader));
        let code = wire::forward(&session.state.socket(guid), &request, &streams)?;
        // The reader sees the end only when no process has the pipe's other end open, this one
        // included.
        drop(streams);
        let come = collect
            .join()
            .map_err(|_| CommandError::new("cannot read the answer"))??;
        let odd = |why: &str| {
            let what = format!("the process that holds the pool answered oddly: {why}");
            CommandError::new(what).hint("it may be of another version: unmount and mount again")
        };
        match code {
            Sent::Ended(0) => {
                let come = come.map_err(|e| odd(&e.to_string()))?;
                match (self, come.other) {
                    (Self::Datasets { .. }, None) => Ok(Some(Answer::Datasets(come.rows))),
                    (Self::Pool { .. }, Some(answer @ Answer::Pool(_)))
                    | (Self::Vdevs { .. }, Some(answer @ Answer::Vdevs(_))) => Ok(Some(answer)),
                    _ => Err(odd("that was not the question").into()),
                }
            }
            Sent::Ended(code) => Err(CommandError::silent(code).into()),
            Sent::Strange => Err(crate::forward::strange().into()),
            Sent::Nobody => Ok(None),
        }
    }
}

/// `zuse answer`: the holder's end of [`Question::ask`].
pub fn answer_here(session: &mut Session, json: &str) -> Outcome {
    let question: Question =
        serde_json::from_str(json).map_err(|e| CommandError::usage(e.to_string()))?;
    let pool = session.pool(question.pool(), Need::Read)?;
    if !matches!(question, Question::Datasets { .. }) {
        let mut answer = question.answer(&pool, false)?;
        answer.put_below_mounts(session);
        return Ok(serde_json::to_writer(session.ui.out(), &answer).map_err(io::Error::from)?);
    }
    answer_to(&question, &pool, session.ui.out())
}

fn answer_to(question: &Question, pool: &Arc<Pool>, out: &mut impl Write) -> Outcome {
    let Question::Datasets { properties, .. } = question else {
        return Err(CommandError::usage("only datasets come row by row").into());
    };
    let mut lines = Vec::with_capacity(BATCH + 4096);
    let mut failed = None;
    let done = question.each_row(pool, &mut |row| {
        let mut put = || {
            put_line(&row, properties.is_none(), &mut lines)?;
            if lines.len() >= BATCH {
                out.write_all(&lines)?;
                lines.clear();
            }
            Ok(())
        };
        put().map_err(|e| {
            // The walk takes errors of the pool only. The caller needs the real one: a closed pipe
            // ends the command silently.
            failed = Some(e);
            Error::refused(Errno::IO, "nobody takes the answer")
        })
    });
    if let Some(e) = failed {
        return Err(io::Error::into(e));
    }
    done?;
    out.write_all(&lines)?;
    Ok(())
}

#[cfg(test)]
mod tests;
