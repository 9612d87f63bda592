//! Lua's patterns, with a matcher whose steps are counted.
//!
//! Lua's own matcher is a C function. No hook runs in it, and a pattern of a few bytes
//! (`.-.-.-.-x`) keeps it busy for years. This one has the same semantics and asks its [`Budget`]
//! from time to time whether to continue.
//!
//! Each access to a byte of the subject, of a set or of a balanced part is a step. Recursion is
//! bounded as in Lua ([`DEPTH_MAX`]): deeper patterns are "too complex". The tests use up a budget
//! in each way.

/// Deepest recursion.
const DEPTH_MAX: usize = 200;
/// Most captures.
const CAPTURES_MAX: usize = 32;
/// Steps between two checks of the budget.
const STRETCH: u64 = 1024;

const ESCAPE: u8 = b'%';

/// Decides whether the work may continue.
pub(crate) trait Budget {
    /// Counts that many steps; false ends the work.
    fn spend(&self, steps: u64) -> bool;
}

/// Why there is no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The error in the pattern.
    Pattern(String),
    /// The budget is used up.
    Spent,
}

type Outcome<T> = Result<T, Wrong>;

fn wrong<T>(text: &str) -> Outcome<T> {
    Err(Wrong::Pattern(text.into()))
}

/// A capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// Its beginning was found, its end not yet.
    Open(usize),
    /// `()`: a place, from 0 on.
    Place(usize),
    /// From the first byte to before the second one.
    Part(usize, usize),
}

/// A match: its first byte, the byte after its last one, its captures.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) captures: Vec<Capture>,
}

/// The next match at or after `from` that does not end at `last`. With `anchored`, a leading `^` is
/// special.
pub(crate) fn search(
    budget: &dyn Budget,
    subject: &[u8],
    pattern: &[u8],
    from: usize,
    last: Option<usize>,
    anchored: bool,
) -> Outcome<Option<Found>> {
    let (pattern, only) = match pattern.strip_prefix(b"^") {
        Some(rest) if anchored => (rest, true),
        _ => (pattern, false),
    };
    let mut matcher = Matcher::new(budget, subject, pattern);
    for start in from..=subject.len() {
        matcher.captures.clear();
        if let Some(end) = matcher.run(start, 0)?.filter(|end| Some(*end) != last) {
            matcher.closed()?;
            let captures = std::mem::take(&mut matcher.captures);
            matcher.report_steps()?;
            return Ok(Some(Found {
                start,
                end,
                captures,
            }));
        }
        if only {
            break;
        }
    }
    matcher.report_steps()?;
    Ok(None)
}

/// The first place at or after `from` with the literal text `what`.
pub(crate) fn plain(
    budget: &dyn Budget,
    subject: &[u8],
    what: &[u8],
    from: usize,
) -> Outcome<Option<usize>> {
    let mut matcher = Matcher::new(budget, subject, what);
    let found = (from..=subject.len()).find_map(|at| {
        let there = subject.get(at..).unwrap_or_default();
        let same = there.iter().zip(what).take_while(|(a, b)| a == b).count();
        match matcher.step(same as u64 + 1) {
            Ok(()) if same == what.len() => Some(Ok(at)),
            Ok(()) => None,
            Err(e) => Some(Err(e)),
        }
    });
    let found = found.transpose()?;
    matcher.report_steps()?;
    Ok(found)
}

struct Matcher<'a> {
    budget: &'a dyn Budget,
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<Capture>,
    depth: usize,
    /// Steps not reported to the budget yet.
    steps: u64,
}

impl<'a> Matcher<'a> {
    fn new(budget: &'a dyn Budget, subject: &'a [u8], pattern: &'a [u8]) -> Self {
        Self {
            budget,
            subject,
            pattern,
            captures: Vec::new(),
            depth: 0,
            steps: 0,
        }
    }

    fn step(&mut self, steps: u64) -> Outcome<()> {
        self.steps += steps;
        if self.steps < STRETCH {
            return Ok(());
        }
        self.report_steps()
    }

    fn report_steps(&mut self) -> Outcome<()> {
        match self.budget.spend(std::mem::take(&mut self.steps)) {
            true => Ok(()),
            false => Err(Wrong::Spent),
        }
    }

    fn at(&self, p: usize) -> Option<u8> {
        self.pattern.get(p).copied()
    }

    /// No capture may be open at the end.
    fn closed(&self) -> Outcome<()> {
        match self.captures.iter().any(|c| matches!(c, Capture::Open(_))) {
            true => wrong("unfinished capture"),
            false => Ok(()),
        }
    }

    /// The end of a match that begins with byte `s` of the subject and byte `p` of the pattern.
    fn run(&mut self, s: usize, p: usize) -> Outcome<Option<usize>> {
        self.depth += 1;
        let end = if self.depth > DEPTH_MAX {
            wrong("pattern too complex")
        } else {
            self.items(s, p)
        };
        self.depth -= 1;
        end
    }

    fn items(&mut self, mut s: usize, mut p: usize) -> Outcome<Option<usize>> {
        loop {
            self.step(1)?;
            match (self.at(p), self.at(p + 1)) {
                (None, _) => return Ok(Some(s)),
                (Some(b'('), Some(b')')) => return self.opened(Capture::Place(s), s, p + 2),
                (Some(b'('), _) => return self.opened(Capture::Open(s), s, p + 1),
                (Some(b')'), _) => return self.ended(s, p + 1),
                (Some(b'$'), None) => return Ok((s == self.subject.len()).then_some(s)),
                (Some(ESCAPE), Some(b'b')) => match self.balanced(s, p + 2)? {
                    Some(after) => (s, p) = (after, p + 4),
                    None => return Ok(None),
                },
                (Some(ESCAPE), Some(b'f')) => match self.frontier(s, p + 2)? {
                    Some(after) => p = after,
                    None => return Ok(None),
                },
                (Some(ESCAPE), Some(digit @ b'0'..=b'9')) => match self.again(s, digit)? {
                    Some(after) => (s, p) = (after, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let after = self.class_end(p)?;
                    let here = self.single(s, p, after)?;
                    match (self.at(after), here) {
                        (Some(b'*' | b'?' | b'-'), false) => p = after + 1,
                        (_, false) => return Ok(None),
                        (Some(b'?'), true) => match self.run(s + 1, after + 1)? {
                            Some(end) => return Ok(Some(end)),
                            None => p = after + 1,
                        },
                        (Some(b'+'), true) => return self.most(s + 1, p, after),
                        (Some(b'*'), true) => return self.most(s, p, after),
                        (Some(b'-'), true) => return self.least(s, p, after),
                        (_, true) => (s, p) = (s + 1, after),
                    }
                }
            }
        }
    }

    fn opened(&mut self, capture: Capture, s: usize, p: usize) -> Outcome<Option<usize>> {
        if self.captures.len() >= CAPTURES_MAX {
            return wrong("too many captures");
        }
        self.captures.push(capture);
        let level = self.captures.len();
        let end = self.run(s, p)?;
        if end.is_none() {
            // The attempt failed, so captures made in it do not count.
            self.captures.truncate(level - 1);
        }
        Ok(end)
    }

    fn ended(&mut self, s: usize, p: usize) -> Outcome<Option<usize>> {
        let open = self
            .captures
            .iter()
            .rposition(|c| matches!(c, Capture::Open(_)));
        let Some(capture) = open.and_then(|at| self.captures.get_mut(at)) else {
            return wrong("invalid pattern capture");
        };
        let before = *capture;
        if let Capture::Open(start) = before {
            *capture = Capture::Part(start, s);
        }
        let end = self.run(s, p)?;
        if end.is_none()
            && let Some(capture) = open.and_then(|at| self.captures.get_mut(at))
        {
            *capture = before;
        }
        Ok(end)
    }

    /// `%bxy`: from an x to its matching y.
    fn balanced(&mut self, s: usize, p: usize) -> Outcome<Option<usize>> {
        let (Some(open), Some(close)) = (self.at(p), self.at(p + 1)) else {
            return wrong("malformed pattern (missing arguments to '%b')");
        };
        if self.subject.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut level = 1usize;
        for at in s + 1..self.subject.len() {
            self.step(1)?;
            let byte = self.subject.get(at).copied();
            if byte == Some(close) {
                level -= 1;
                if level == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == Some(open) {
                level += 1;
            }
        }
        Ok(None)
    }

    /// `%f[set]`: the byte before is not in the set, the next one is.
    fn frontier(&mut self, s: usize, p: usize) -> Outcome<Option<usize>> {
        if self.at(p) != Some(b'[') {
            return wrong("missing '[' after '%f' in pattern");
        }
        let after = self.class_end(p)?;
        let before = s.checked_sub(1).and_then(|b| self.subject.get(b));
        let before = before.copied().unwrap_or(0);
        let next = self.subject.get(s).copied().unwrap_or(0);
        let fits = !self.in_set(before, p, after)? && self.in_set(next, p, after)?;
        Ok(fits.then_some(after))
    }

    /// `%1`: the text of an earlier capture again.
    fn again(&mut self, s: usize, digit: u8) -> Outcome<Option<usize>> {
        let index = usize::from(digit.wrapping_sub(b'1'));
        let Some(Capture::Part(start, end)) = self.captures.get(index).copied() else {
            return Err(Wrong::Pattern(format!(
                "invalid capture index %{}",
                index.wrapping_add(1) & 0xff
            )));
        };
        let part = self.subject.get(start..end).unwrap_or_default();
        self.step(part.len() as u64)?;
        let there = self.subject.get(s..).unwrap_or_default();
        Ok(there.starts_with(part).then_some(s + part.len()))
    }

    /// As many as possible, then fewer.
    fn most(&mut self, s: usize, p: usize, after: usize) -> Outcome<Option<usize>> {
        let mut count = 0;
        while self.single(s + count, p, after)? {
            self.step(1)?;
            count += 1;
        }
        loop {
            if let Some(end) = self.run(s + count, after + 1)? {
                return Ok(Some(end));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    /// As few as will do.
    fn least(&mut self, mut s: usize, p: usize, after: usize) -> Outcome<Option<usize>> {
        loop {
            if let Some(end) = self.run(s, after + 1)? {
                return Ok(Some(end));
            }
            if !self.single(s, p, after)? {
                return Ok(None);
            }
            s += 1;
        }
    }

    /// The end of the single item that begins at `p`.
    fn class_end(&mut self, p: usize) -> Outcome<usize> {
        match self.at(p) {
            Some(ESCAPE) if self.at(p + 1).is_none() => wrong("malformed pattern (ends with '%')"),
            Some(ESCAPE) => Ok(p + 2),
            Some(b'[') => {
                let mut at = p + 1;
                if self.at(at) == Some(b'^') {
                    at += 1;
                }
                // A `]` in first position belongs to the set.
                loop {
                    let Some(byte) = self.at(at) else {
                        return wrong("malformed pattern (missing ']')");
                    };
                    at += if byte == ESCAPE { 2 } else { 1 };
                    if self.at(at) == Some(b']') {
                        break;
                    }
                }
                self.step((at - p) as u64)?;
                Ok(at + 1)
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the byte `s` matches the item from `p` to before `after`.
    fn single(&mut self, s: usize, p: usize, after: usize) -> Outcome<bool> {
        let Some(byte) = self.subject.get(s).copied() else {
            return Ok(false);
        };
        match self.at(p) {
            Some(b'.') => Ok(true),
            Some(ESCAPE) => Ok(in_class(byte, self.at(p + 1).unwrap_or(0))),
            Some(b'[') => self.in_set(byte, p, after),
            other => Ok(other == Some(byte)),
        }
    }

    /// Whether a byte is in the set from `p` (its `[`) to before `after`.
    fn in_set(&mut self, byte: u8, p: usize, after: usize) -> Outcome<bool> {
        self.step((after - p) as u64)?;
        let set = self.pattern.get(p + 1..after - 1).unwrap_or_default();
        let (set, without) = match set.strip_prefix(b"^") {
            Some(rest) => (rest, true),
            None => (set, false),
        };
        let mut at = 0;
        while let Some(&first) = set.get(at) {
            let hit = match (first, set.get(at + 1).copied(), set.get(at + 2).copied()) {
                (ESCAPE, Some(class), _) => {
                    at += 2;
                    in_class(byte, class)
                }
                (low, Some(b'-'), Some(high)) => {
                    at += 3;
                    (low..=high).contains(&byte)
                }
                _ => {
                    at += 1;
                    first == byte
                }
            };
            if hit {
                return Ok(!without);
            }
        }
        Ok(without)
    }
}

fn in_class(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        _ => return class == byte,
    };
    is != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests;
