//! Resuming sends for an interrupted receive, and sending the saved part of one.

use std::sync::Arc;

use zuse_base::{Errno, Error, Refusal, Result};
use zuse_stream::{ResumeToken, Send, SendOptions};

use super::{PlannedStream, SendPlan};
use crate::Pool;

impl Pool {
    /// Plans the rest of an interrupted send.
    ///
    /// # Errors
    /// The snapshot or its source does not exist here any more.
    pub fn plan_resume(self: &Arc<Self>, token: &ResumeToken) -> Result<SendPlan> {
        let to = self.resumed_snapshot(token)?;
        let from = match token.from_guid {
            0 => None,
            _ => Some(self.resumed_source(token, &to)?),
        };
        let redact = self.resumed_redaction(token, &to)?;
        let options = SendOptions {
            large_blocks: token.large_blocks,
            embed: token.embed,
            compressed: token.compressed,
            raw: token.raw,
            resume: Some((token.object, token.offset)),
            ..SendOptions::default()
        };
        let mut stream = self.planned(&to, from, redact.as_deref(), options, false)?;
        stream.estimate = stream.estimate.saturating_sub(token.bytes);
        Ok(SendPlan {
            streams: vec![stream],
            notes: Vec::new(),
            failures: Vec::new(),
            front: None,
        })
    }

    /// The snapshot of an interrupted send, by its guid if it was renamed.
    fn resumed_snapshot(&self, token: &ResumeToken) -> Result<String> {
        let gone = || {
            let what = match self.dsl().dataset(&token.to_name) {
                Ok(_) => "is no longer the same snapshot used in the initial send",
                Err(_) => "used in the initial send no longer exists",
            };
            let what = format!("'{}' {what}", token.to_name);
            Error::refused_for(Refusal::Whole, Errno::NOENT, what)
        };
        let dataset = token.to_name.split('@').next().unwrap_or_default();
        let same = self
            .dsl()
            .dataset(&token.to_name)
            .ok()
            .filter(|d| d.guid().is_ok_and(|g| g == token.to_guid));
        match same {
            Some(_) => Ok(token.to_name.clone()),
            None => self
                .dsl()
                .snapshot_by_guid(dataset, token.to_guid)
                .unwrap_or(None)
                .ok_or_else(gone),
        }
    }

    /// The source snapshot or bookmark of an interrupted send of `to`.
    fn resumed_source(&self, token: &ResumeToken, to: &str) -> Result<String> {
        let found = match &token.book_redact_snaps {
            Some(snaps) => self.redaction_bookmark_by(to, token.from_guid, snaps)?,
            None => None,
        };
        let found = match found {
            Some(name) => Some(name),
            None => self.point_by_guid(to, token.from_guid)?,
        };
        found.ok_or_else(|| {
            Error::refused(
                Errno::NOENT,
                format!("incremental source {:#x} no longer exists", token.from_guid),
            )
        })
    }

    /// The redaction bookmark of an interrupted send of `to`, if there was one.
    fn resumed_redaction(&self, token: &ResumeToken, to: &str) -> Result<Option<String>> {
        match &token.redact_snaps {
            // A snapshot that is redacted itself has that information without a bookmark.
            Some(snaps)
                if self
                    .dsl()
                    .redacted_by(self.dsl().dataset(to)?.object())?
                    .is_none() =>
            {
                let found = self.redaction_bookmark_by(to, token.to_guid, snaps)?;
                Ok(Some(found.ok_or_else(|| {
                    Error::refused(
                        Errno::NOENT,
                        "the redaction bookmark used in the initial send no longer exists",
                    )
                })?))
            }
            _ => Ok(None),
        }
    }

    /// Plans a send of the saved part of an interrupted receive into `target`.
    ///
    /// # Errors
    /// `Refused(INVAL)` if there is none; or its source does not exist any more.
    pub fn plan_saved(self: &Arc<Self>, target: &str) -> Result<SendPlan> {
        let (partial, state) = self.dsl().saved_receive(target)?;
        let from = match state.from_guid {
            0 => None,
            guid => match self.point_by_guid(target, guid)? {
                None => {
                    return Err(Error::refused(
                        Errno::NOENT,
                        format!(
                            "the snapshot with guid {guid:#x} that it builds on does not exist any more"
                        ),
                    ));
                }
                found => found,
            },
        };
        let source = match &from {
            Some(name) => {
                let mut source = self.dsl().send_source(partial.dataset(), name)?;
                // A partial receive into an existing dataset belongs to it, so a snapshot of that
                // dataset is no reason to create a clone.
                source.other_dataset = name.split(['@', '#']).next() != Some(target);
                Some(source)
            }
            None => None,
        };
        let send = Send::saved(partial, &state, source.as_ref())?;
        let stream = PlannedStream {
            to: state.to_name.clone(),
            from,
            estimate: send.exact_size()?,
            send: Some(send),
        };
        Ok(SendPlan {
            streams: vec![stream],
            notes: Vec::new(),
            failures: Vec::new(),
            front: None,
        })
    }

    /// A snapshot or bookmark with a guid, near a snapshot.
    fn point_by_guid(&self, near: &str, guid: u64) -> Result<Option<String>> {
        let dataset = near.split('@').next().unwrap_or(near);
        if let Some(name) = self.dsl().snapshot_by_guid(dataset, guid)? {
            return Ok(Some(name));
        }
        let marks = self.dsl().bookmarks(dataset)?;
        Ok(marks
            .into_iter()
            .find(|(_, b)| b.guid == guid)
            .map(|(name, _)| format!("{dataset}#{name}")))
    }
}
