//! Sending and receiving with random flags, with cuts.

use std::sync::Arc;

use zuse::stream::{ResumeToken, SendOptions, SendProgress, StreamWriter};
use zuse::tools::Layers as _;
use zuse::{Errno, Pool, ReceiveRequest, SendPlan, SendRequest};
use zuse_base::{Entropy, Error, Result, SeededPrng};

use super::source::{Source, TOP};
use super::{Counts, compare, key, wrong};

/// Forms of blocks and ways of receiving.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    /// `-L`, `-e`, `-c`, `-w`.
    pub options: SendOptions,
    /// `-s`.
    pub resumable: bool,
}

impl Flags {
    /// Any of them.
    pub fn any(prng: &SeededPrng, raw: bool) -> Self {
        Self {
            options: SendOptions {
                large_blocks: prng.chance(1, 2),
                embed: prng.chance(1, 2),
                compressed: prng.chance(1, 2),
                raw,
                ..SendOptions::default()
            },
            resumable: prng.chance(2, 3),
        }
    }
}

/// A stream or package as bytes.
///
/// # Errors
/// It cannot be planned, or read.
pub fn sent(pool: &Arc<Pool>, request: &SendRequest) -> Result<Vec<u8>> {
    written(&pool.plan_send(request)?)
}

fn written(plan: &SendPlan) -> Result<Vec<u8>> {
    let mut out = StreamWriter::new(Vec::new());
    plan.run(&mut out, &SendProgress::default(), &mut |_| {})?;
    Ok(out.into_inner()?)
}

/// Receives a plan's streams, cut so many times; what is cut and has a token goes on by it. Gives
/// the names of the snapshots that the plan has.
///
/// # Errors
/// What refuses though nothing is wrong; a cut that leaves what it must not.
pub fn deliver(
    from: &Arc<Pool>,
    plan: &SendPlan,
    to: &Arc<Pool>,
    request: &ReceiveRequest,
    prng: &SeededPrng,
    mut cuts: u8,
    counts: &mut Counts,
) -> Result<Vec<String>> {
    let whole = written(plan)?;
    let names: Vec<String> = plan.streams.iter().map(|s| s.to.clone()).collect();
    let mut stream = whole.clone();
    // Where a part goes that continues one dataset.
    let mut part: Option<String> = None;
    loop {
        let now = ReceiveRequest {
            target: part.clone().unwrap_or_else(|| request.target.clone()),
            ..request.clone()
        };
        if cuts == 0 {
            to.receive(&stream[..], &now, &mut |_| {})?;
            if part.take().is_none() {
                return Ok(names);
            }
            if names.len() == 1 {
                return Ok(names);
            }
            stream = whole.clone();
            continue;
        }
        cuts -= 1;
        let cut = 1 + prng.below(stream.len() as u64 - 1) as usize;
        counts.cuts += 1;
        let mut begun: Option<String> = None;
        let result = to.receive(&stream[..cut], &now, &mut |s| {
            begun = (s.bytes.is_none() && !s.skipped).then(|| s.to.clone());
        });
        let Err(e) = result else {
            // Only END was missing, or nothing of the stream itself.
            return Err(wrong(format!(
                "a stream cut at {cut} of {} passes",
                stream.len()
            )));
        };
        if !matches!(&e, Error::Corrupt { .. }) {
            return Err(e);
        }
        let Some(snapshot) = begun else { continue };
        let (dataset, token) = left_by(to, &snapshot, &e)?;
        match token {
            Some(_) if !request.resumable => {
                return Err(wrong(format!("{dataset} keeps what nobody wanted kept")));
            }
            Some(token) => {
                let token =
                    ResumeToken::parse(&token.to_text()).map_err(|e| wrong(e.to_string()))?;
                stream = written(&from.plan_resume(&token)?)?;
                part = Some(dataset);
                counts.resumed += 1;
            }
            None if part.is_some() && !to.exists(&dataset)? => {
                return Err(wrong(format!("{dataset} lost its token")));
            }
            None => {}
        }
    }
}

/// The dataset that a cut receive was for, and the token that it left there.
fn left_by(to: &Arc<Pool>, snapshot: &str, e: &Error) -> Result<(String, Option<ResumeToken>)> {
    if to.dsl().dataset(snapshot).is_ok() {
        return Err(wrong(format!("{snapshot} is there after a cut: {e}")));
    }
    let dataset = snapshot.split('@').next().unwrap_or_default().to_owned();
    let token = match to.resume_token(&dataset) {
        Ok(token) => token,
        Err(e) if e.is(Errno::NOENT) => None,
        Err(e) => return Err(e),
    };
    Ok((dataset, token))
}

struct Trip<'a> {
    source: &'a Source,
    to: &'a Arc<Pool>,
    target: &'a str,
    prng: &'a SeededPrng,
    counts: &'a mut Counts,
    log: &'a mut Vec<String>,
    raw: bool,
}

/// All deliveries of a source, and the comparisons.
pub(super) fn run(
    source: &Source,
    to: &Arc<Pool>,
    target: &str,
    prng: &SeededPrng,
    counts: &mut Counts,
    log: &mut Vec<String>,
) -> Result<()> {
    let raw = prng.chance(1, 2);
    let mut trip = Trip {
        source,
        to,
        target,
        prng,
        counts,
        log,
        raw,
    };
    let all = match prng.below(3) {
        // Encrypted trees go with their properties in the raw only.
        0 if raw || !source.encrypted => trip.packages()?,
        1 => trip.intermediates()?,
        _ => trip.chains()?,
    };
    trip.compare(&all)
}

impl Trip<'_> {
    fn here(&self, name: &str) -> String {
        format!("{}{}", self.target, &name[TOP.len()..])
    }

    fn send(&mut self, request: &SendRequest, target: &str, flags: Flags) -> Result<Vec<String>> {
        self.log.push(format!(
            "{} from {:?}{}{}{}{}{} {flags:?} to {target}",
            request.to,
            request.from,
            if request.recursive { " -R" } else { "" },
            if request.intermediate { " -I" } else { "" },
            if request.properties { " -p" } else { "" },
            if request.holds { " -h" } else { "" },
            if request.received_only { " -b" } else { "" },
        ));
        let plan = self.source.pool.plan_send(request)?;
        let receive = ReceiveRequest {
            target: target.to_owned(),
            resumable: flags.resumable,
            ..ReceiveRequest::default()
        };
        let cuts = [0, 0, 1, 2, 4][self.prng.below(5) as usize];
        deliver(
            &self.source.pool,
            &plan,
            self.to,
            &receive,
            self.prng,
            cuts,
            self.counts,
        )
    }

    /// `-L` once is `-L` always; who begins without may begin with it later.
    fn flags(&self, large: &mut bool) -> Flags {
        let mut flags = Flags::any(self.prng, self.raw);
        *large |= flags.options.large_blocks;
        flags.options.large_blocks = *large;
        flags
    }

    /// `-R`, and `-R -i` or `-R -I` on top.
    fn packages(&mut self) -> Result<Vec<String>> {
        let last = self.source.rounds - 1;
        let first = self.prng.below(self.source.rounds as u64) as usize;
        let mut large = false;
        let flags = self.flags(&mut large);
        let request = SendRequest {
            to: format!("{TOP}@s{first}"),
            recursive: true,
            intermediate: self.prng.chance(2, 3),
            properties: self.prng.chance(1, 2),
            holds: self.prng.chance(1, 2),
            options: flags.options,
            ..SendRequest::default()
        };
        let mut all = self.send(&request, self.target, flags)?;
        if first < last {
            let flags = self.flags(&mut large);
            let more = SendRequest {
                to: format!("{TOP}@s{last}"),
                from: Some(format!("@s{first}")),
                intermediate: self.prng.chance(1, 2),
                options: flags.options,
                ..request
            };
            all.extend(self.send(&more, self.target, flags)?);
        }
        Ok(all)
    }

    /// Each dataset by itself: the first snapshot, then `-I` to the last one.
    fn intermediates(&mut self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        let mut top_large = false;
        for name in self.source.datasets.clone() {
            let mut large = name.ends_with("/twin") && top_large;
            let last = self.source.rounds - 1;
            let (first, origin) = match &self.source.clone {
                Some((clone, round)) if *clone == name => {
                    (round + 1, Some(format!("{TOP}@s{round}")))
                }
                _ => (0, None),
            };
            let is_clone = origin.is_some();
            let flags = self.flags(&mut large);
            let request = SendRequest {
                to: format!("{name}@s{first}"),
                from: origin,
                properties: !is_clone
                    && self.prng.chance(1, 3)
                    && (self.raw || !self.source.encrypted),
                options: flags.options,
                ..SendRequest::default()
            };
            let target = self.here(&name);
            all.extend(self.send(&request, &target, flags)?);
            if first < last {
                let flags = self.flags(&mut large);
                let more = SendRequest {
                    to: format!("{name}@s{last}"),
                    from: Some(format!("@s{first}")),
                    intermediate: true,
                    options: flags.options,
                    ..request
                };
                all.extend(self.send(&more, &target, flags)?);
            }
            top_large |= large;
        }
        Ok(all)
    }

    /// Each dataset snapshot by snapshot, some of them passed over, from snapshots and bookmarks.
    fn chains(&mut self) -> Result<Vec<String>> {
        let mut all: Vec<String> = Vec::new();
        let mut top_large = false;
        for name in self.source.datasets.clone() {
            let target = self.here(&name);
            let mut large = name.ends_with("/twin") && top_large;
            let mut before: Option<usize> = None;
            for round in 0..self.source.rounds {
                let to = format!("{name}@s{round}");
                let origin = match &self.source.clone {
                    Some((clone, at)) if *clone == name => {
                        if round <= *at {
                            continue;
                        }
                        let origin = format!("{TOP}@s{at}");
                        all.contains(&origin).then_some(origin)
                    }
                    _ => None,
                };
                if round + 1 < self.source.rounds && self.prng.chance(1, 4) {
                    continue;
                }
                let from = match before {
                    Some(at)
                        if self.source.bookmarks.contains(&(name.clone(), at))
                            && self.prng.chance(1, 2) =>
                    {
                        Some(format!("#s{at}"))
                    }
                    Some(at) => Some(format!("@s{at}")),
                    None => origin,
                };
                let flags = self.flags(&mut large);
                let request = SendRequest {
                    to,
                    from,
                    options: flags.options,
                    ..SendRequest::default()
                };
                all.extend(self.send(&request, &target, flags)?);
                before = Some(round);
            }
            top_large |= large;
        }
        Ok(all)
    }

    fn compare(&mut self, all: &[String]) -> Result<()> {
        if self.raw && self.source.encrypted {
            for root in self.to.encryption_roots(self.target)? {
                self.to.load_key(&root, &key())?;
            }
        }
        for name in all {
            compare(&self.source.pool, name, self.to, &self.here(name))?;
            self.counts.snapshots += 1;
        }
        Ok(())
    }
}
