//! `zdb -B`: a dataset as a full stream, chosen by its object.

use std::sync::Arc;

use zuse::stream::{SendOptions, SendProgress, StreamWriter};
use zuse::{Pool, SendRequest};

use super::objects::find;
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::session::Session;

/// Broken pipe: the reader has closed the stream.
const EPIPE: i32 = 32;

/// Writes the stream to standard output.
pub fn run(session: &mut Session, pool: &Arc<Pool>, what: &str, flags: &[String]) -> Outcome {
    let mut options = SendOptions::default();
    for flag in flags.iter().flat_map(|f| f.chars()) {
        match flag {
            'c' => options.compressed = true,
            'e' => options.embed = true,
            'L' => options.large_blocks = true,
            'w' => options.raw = true,
            other => {
                let text = format!("dump_backup: invalid flag '{other}'");
                return Err(CommandError::new(text).into());
            }
        }
    }
    if session.ui.out_is_terminal() {
        let text = "dump_backup: stream cannot be written to a terminal";
        return Err(CommandError::new(text).into());
    }
    let cannot = || format!("cannot send '{what}'");
    let found = find(pool, what).or_cannot(cannot)?;
    let request = SendRequest {
        to: found.name,
        options,
        ..SendRequest::default()
    };
    let plan = pool.plan_send(&request).or_cannot(cannot)?;
    let mut out = StreamWriter::new(session.ui.raw_out()?.try_clone()?);
    match plan.run(&mut out, &SendProgress::default(), &mut |_| {}) {
        Err(zuse::Error::Refused {
            errno: zuse::Errno(EPIPE),
            ..
        }) => Err(Stop::Hangup),
        other => other.or_cannot(cannot),
    }
}
