//! `zuse answer`: a question about a held pool, see [`crate::query`]. Only other commands of this
//! program use it.

use clap::Args;

use crate::error::Outcome;
use crate::query;
use crate::session::Session;

/// Answers a question about a pool
#[derive(Args, Debug)]
pub struct Answer {
    /// The question, as JSON
    question: String,
}

impl Answer {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        query::answer_here(session, &self.question)
    }
}
