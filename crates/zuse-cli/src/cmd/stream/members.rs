//! The datasets that streams hold, as one tree: a dataset takes the place of a directory in the one
//! above it, as mounts do.

use zuse::ReceivedSnapshot;

use crate::error::{CommandError, Outcome};
use crate::target::Target;

/// A dataset of a stream, at the snapshot to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its path below the stream's top; empty for the top itself.
    pub below: String,
    /// The snapshot in the pool into which the stream was received.
    pub snapshot: String,
    /// The snapshot's name in the stream.
    pub name: String,
    /// It is a volume.
    pub is_volume: bool,
}

/// A place in a stream.
#[derive(Clone, Debug)]
pub struct Place {
    /// Dataset and path.
    pub target: Target,
    /// Its path below the requested one, with that one's last name in front.
    pub below: String,
    /// It is a volume as a whole.
    pub is_volume: bool,
}

/// Which datasets and snapshots are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// One dataset: its name in the stream, or its path below the top.
    pub dataset: Option<String>,
    /// A snapshot; each dataset's last one if none is named.
    pub snapshot: Option<String>,
}

impl Choice {
    /// `DATASET`, `@SNAPSHOT`, or both.
    pub fn parse(text: &str) -> Self {
        let (dataset, snapshot) = match text.split_once('@') {
            Some((dataset, snapshot)) => (dataset, Some(snapshot.to_owned())),
            None => (text, None),
        };
        Self {
            dataset: Some(dataset.to_owned()).filter(|d| !d.is_empty()),
            snapshot,
        }
    }

    fn takes(&self, member: &Member) -> bool {
        let Some(wanted) = &self.dataset else {
            return true;
        };
        let own = member.name.split('@').next();
        own == Some(wanted.as_str()) || wanted.trim_matches('/') == member.below
    }
}

/// All datasets to be read, parents first.
#[derive(Debug)]
pub struct Members(Vec<Member>);

impl Members {
    /// The snapshots that were received as `top` and below it; `None` if none is wanted.
    pub fn of(
        top: &str,
        all: &[ReceivedSnapshot],
        choice: &Choice,
        is_volume: impl Fn(&str) -> bool,
    ) -> Option<Self> {
        let mut members: Vec<Member> = Vec::new();
        for received in all {
            let Some((dataset, own)) = received.to.split_once('@') else {
                continue;
            };
            let Some(below) = dataset.strip_prefix(top) else {
                continue;
            };
            let member = Member {
                below: below.trim_start_matches('/').to_owned(),
                snapshot: received.to.clone(),
                name: received.from.clone(),
                is_volume: is_volume(&received.to),
            };
            if choice.snapshot.as_deref().is_some_and(|s| s != own) || !choice.takes(&member) {
                continue;
            }
            // The last one counts.
            members.retain(|m| m.below != member.below);
            members.push(member);
        }
        members.sort_by(|a, b| a.below.split('/').cmp(b.below.split('/')));
        if choice.dataset.is_some() {
            // Paths are those in it.
            for member in &mut members {
                member.below.clear();
            }
        }
        (!members.is_empty()).then_some(Self(members))
    }

    /// Removes those that match, and returns their names.
    pub fn drop_if(&mut self, is_so: impl Fn(&Member) -> bool) -> Vec<String> {
        let gone = self.0.extract_if(.., |m| is_so(m));
        gone.map(|m| m.name).collect()
    }

    /// All of them.
    pub fn all(&self) -> &[Member] {
        &self.0
    }

    /// The place that a path leads to, and the datasets below it.
    ///
    /// # Errors
    /// There is none.
    pub fn tree(&self, path: &str) -> Outcome<Vec<Place>> {
        let path = plain(path);
        let name = path.rsplit('/').next().unwrap_or_default();
        let mut places: Vec<Place> = self.leads_to(&path).into_iter().collect();
        for member in &self.0 {
            let rest = match path.as_str() {
                "" => Some(member.below.as_str()).filter(|b| !b.is_empty()),
                path => member
                    .below
                    .strip_prefix(path)
                    .and_then(|r| r.strip_prefix('/')),
            };
            if let Some(rest) = rest {
                let below = format!("{name}/{rest}");
                let below = below.trim_start_matches('/').to_owned();
                places.push(Place::of(member, String::new(), below));
            }
        }
        match places.is_empty() {
            true => Err(self.nothing(&path)),
            false => Ok(places),
        }
    }

    /// The one place that a path leads to.
    ///
    /// # Errors
    /// There is none.
    pub fn place(&self, path: &str) -> Outcome<Target> {
        let path = plain(path);
        let place = self.leads_to(&path).ok_or_else(|| self.nothing(&path))?;
        Ok(place.target)
    }

    fn leads_to(&self, path: &str) -> Option<Place> {
        let rest = |m: &Member| match path.strip_prefix(m.below.as_str())? {
            rest if m.below.is_empty() => Some(rest.to_owned()),
            "" => Some(String::new()),
            rest => rest.strip_prefix('/').map(str::to_owned),
        };
        let found = self.0.iter().filter_map(|m| Some((m, rest(m)?)));
        let (member, rest) = found.max_by_key(|(m, _)| m.below.len())?;
        let name = path.rsplit('/').next().unwrap_or_default();
        Some(Place::of(member, rest, name.to_owned()))
    }

    fn nothing(&self, path: &str) -> crate::error::Stop {
        let names: Vec<&str> = self.0.iter().map(|m| m.name.as_str()).collect();
        CommandError::new(format!("there is no '/{path}' in the stream"))
            .hint(format!("it has: {}", names.join(" ")))
            .into()
    }
}

impl Place {
    fn of(member: &Member, path: String, below: String) -> Self {
        Self {
            is_volume: member.is_volume && path.is_empty(),
            target: Target {
                dataset: member.snapshot.clone(),
                path: path.into_bytes(),
                called: Some(member.name.clone()),
            },
            below,
        }
    }
}

/// A path without components that lead nowhere.
fn plain(path: &str) -> String {
    let names = path.split('/').filter(|p| !p.is_empty() && *p != ".");
    names.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests;
