//! Vdevs on the command line: `mirror A B special mirror C D log E`.

use std::path::{Path, PathBuf};

use zuse::{BlockDevice, DeviceAccess, FileDevice, Shape, TopSpec, VdevClass};

use crate::error::{CommandError, Outcome};

/// Devices in order, and how they make up vdevs.
#[derive(Debug, Default)]
pub struct VdevSpecs {
    /// The devices.
    pub devices: Vec<PathBuf>,
    /// The vdevs, each over the next devices.
    pub layout: Vec<TopSpec>,
}

fn invalid(what: impl std::fmt::Display) -> CommandError {
    CommandError::new(format!("invalid vdev specification: {what}"))
}

/// A word that begins a group.
enum Word {
    Class(VdevClass),
    Group(Shape),
    /// Devices that a dRAID is said to have are checked when its group ends.
    Draid(Shape, Option<usize>),
}

fn word_of(text: &str) -> Option<Outcome<Word>> {
    Some(Ok(match text {
        "log" | "special" | "dedup" => Word::Class(VdevClass::by_word(text)?),
        "mirror" => Word::Group(Shape::Mirror),
        "raidz" | "raidz1" => Word::Group(Shape::Raidz { nparity: 1 }),
        "raidz2" => Word::Group(Shape::Raidz { nparity: 2 }),
        "raidz3" => Word::Group(Shape::Raidz { nparity: 3 }),
        "spare" | "cache" => {
            return Some(Err(CommandError::new(format!(
                "'{text}' devices are not made yet"
            ))
            .into()));
        }
        _ => return text.strip_prefix("draid").map(draid),
    }))
}

/// `draid[P][:Nd][:Nc][:Ns]`
fn draid(rest: &str) -> Outcome<Word> {
    let wrong = || {
        invalid(format!(
            "'draid{rest}' is no dRAID: draid[PARITY][:Nd][:Nc][:Ns]"
        ))
    };
    let mut parts = rest.split(':');
    let nparity = match parts.next().unwrap_or_default() {
        "" => 1,
        digits => digits.parse().map_err(|_| wrong())?,
    };
    let (mut ndata, mut children, mut nspares) = (None, None, 0);
    for part in parts {
        let (Some(digits), Some(unit)) = (
            part.get(..part.len().saturating_sub(1)),
            part.chars().last(),
        ) else {
            return Err(wrong().into());
        };
        match unit {
            'd' => ndata = Some(digits.parse().map_err(|_| wrong())?),
            'c' => children = Some(digits.parse().map_err(|_| wrong())?),
            's' => nspares = digits.parse().map_err(|_| wrong())?,
            _ => return Err(wrong().into()),
        }
    }
    if !(1..=3).contains(&nparity) {
        return Err(invalid("draid has a parity of 1 to 3").into());
    }
    let shape = Shape::Draid {
        nparity,
        ndata,
        nspares,
    };
    Ok(Word::Draid(shape, children))
}

/// Devices that a vdev can lose.
fn redundancy(top: &TopSpec) -> usize {
    match top.shape {
        Shape::Single => 0,
        Shape::Mirror => top.devices.saturating_sub(1),
        Shape::Raidz { nparity } | Shape::Draid { nparity, .. } => usize::from(nparity),
    }
}

/// Differences in size that are nobody's mistake.
const TOLERANCE: u64 = 16 << 20;

fn size_of(path: &Path) -> Option<u64> {
    let device = FileDevice::open(path, DeviceAccess::Probe).ok()?;
    Some(BlockDevice::size(&device))
}

fn name_of(shape: Shape) -> &'static str {
    match shape {
        Shape::Single => "disk",
        Shape::Mirror => "mirror",
        Shape::Raidz { nparity: 1 } => "raidz",
        Shape::Raidz { nparity: 2 } => "raidz2",
        Shape::Raidz { .. } => "raidz3",
        Shape::Draid { .. } => "draid",
    }
}

/// A group that is being read.
struct Open {
    shape: Shape,
    children: Option<usize>,
    from: usize,
}

impl VdevSpecs {
    /// Reads the words; a word that names something that exists is a device.
    pub fn parse(words: &[PathBuf], path_of: &dyn Fn(&Path) -> PathBuf) -> Outcome<Self> {
        let mut specs = Self::default();
        let mut class = VdevClass::Normal;
        let mut seen_log = false;
        let mut open: Option<Open> = None;
        for word in words {
            let path = path_of(word);
            let text = word.to_str().unwrap_or_default();
            let keyword = if path.exists() { None } else { word_of(text) };
            let Some(keyword) = keyword else {
                specs.devices.push(path);
                if open.is_none() {
                    specs.layout.push(TopSpec {
                        class,
                        ..TopSpec::SINGLE
                    });
                }
                continue;
            };
            specs.end(open.take(), class)?;
            match keyword? {
                Word::Class(VdevClass::Log) if seen_log => {
                    return Err(invalid("'log' can be specified only once").into());
                }
                Word::Class(new) => {
                    seen_log |= new == VdevClass::Log;
                    class = new;
                }
                Word::Group(shape) | Word::Draid(shape, None) => {
                    open = Some(Open {
                        shape,
                        children: None,
                        from: specs.devices.len(),
                    });
                }
                Word::Draid(shape, children) => {
                    open = Some(Open {
                        shape,
                        children,
                        from: specs.devices.len(),
                    });
                }
            }
            if class == VdevClass::Log
                && let Some(Open {
                    shape: Shape::Raidz { .. } | Shape::Draid { .. },
                    ..
                }) = open
            {
                return Err(invalid("unsupported 'log' device: only devices and mirrors").into());
            }
        }
        specs.end(open, class)?;
        if !specs.layout.iter().any(|t| t.class == VdevClass::Normal) {
            return Err(invalid("at least one toplevel vdev must be specified").into());
        }
        Ok(specs)
    }

    fn end(&mut self, open: Option<Open>, class: VdevClass) -> Outcome {
        let Some(Open {
            shape,
            children,
            from,
        }) = open
        else {
            return Ok(());
        };
        let devices = self.devices.len() - from;
        if devices < shape.least() {
            let what = format!(
                "{} requires at least {} devices",
                name_of(shape),
                shape.least()
            );
            return Err(invalid(what).into());
        }
        if let Some(said) = children.filter(|said| *said != devices) {
            let what = format!("the dRAID is to have {said} devices, and {devices} are given");
            return Err(invalid(what).into());
        }
        self.layout.push(TopSpec {
            shape,
            devices,
            class,
        });
        Ok(())
    }

    /// Different redundancy among the vdevs of the pool, which is rarely meant.
    pub fn mismatch(&self) -> Option<String> {
        let normal: Vec<&TopSpec> = self
            .layout
            .iter()
            .filter(|t| t.class != VdevClass::Log)
            .collect();
        let (first, rest) = normal.split_first()?;
        let said = rest.iter().find_map(|t| {
            let (a, b) = (name_of(first.shape), name_of(t.shape));
            match (first.shape, t.shape) {
                (Shape::Single, Shape::Single) => None,
                (Shape::Mirror, Shape::Mirror) => (first.devices != t.devices).then(|| {
                    format!(
                        "both {}-way and {}-way mirror vdevs",
                        first.devices, t.devices
                    )
                }),
                (Shape::Raidz { nparity: p }, Shape::Raidz { nparity: q }) if p != q => {
                    Some(format!("both {p} and {q} device parity raidz vdevs"))
                }
                (Shape::Raidz { .. }, Shape::Raidz { .. })
                | (Shape::Draid { .. }, Shape::Draid { .. }) => (first.devices != t.devices)
                    .then(|| format!("both {}-way and {}-way {a} vdevs", first.devices, t.devices)),
                // Groups of different kinds do as well as each other, if they bear the same losses.
                _ if first.shape != Shape::Single && t.shape != Shape::Single => {
                    let (p, q) = (redundancy(first), redundancy(t));
                    (p != q).then(|| {
                        format!("{a} and {b} vdevs with different redundancy, {p} vs. {q}")
                    })
                }
                _ => Some(format!("both {a} and {b} vdevs")),
            }
        })?;
        Some(format!("mismatched replication level: {said} are present"))
    }

    /// Devices of one vdev that differ in size: what the larger ones have more is lost. Those that
    /// are not there get `make` bytes.
    pub fn uneven(&self, make: Option<u64>) -> Option<String> {
        let mut rest = self.devices.as_slice();
        self.layout.iter().find_map(|top| {
            let members;
            (members, rest) = rest.split_at_checked(top.devices)?;
            let mut sizes = members.iter().filter_map(|path| size_of(path).or(make));
            let first = sizes.next()?;
            let uneven = sizes.any(|size| size.abs_diff(first) > TOLERANCE);
            let name = name_of(top.shape);
            uneven.then(|| format!("{name} contains devices of different sizes"))
        })
    }

    /// The lines of a dry run, by class.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (class, title) in [
            (VdevClass::Normal, None),
            (VdevClass::Dedup, Some("dedup")),
            (VdevClass::Special, Some("special")),
            (VdevClass::Log, Some("logs")),
        ] {
            let mut at = 0;
            let mut titled = false;
            for top in &self.layout {
                let members = self.devices.get(at..at + top.devices).unwrap_or(&[]);
                at += top.devices;
                if top.class != class {
                    continue;
                }
                if let Some(title) = title.filter(|_| !titled) {
                    lines.push(format!("\t{title}\t"));
                    titled = true;
                }
                let depth = if top.shape == Shape::Single { 1 } else { 2 };
                if depth == 2 {
                    let name = match top.shape {
                        Shape::Raidz { nparity } => format!("raidz{nparity}"),
                        Shape::Draid { nparity, .. } => format!("draid{nparity}"),
                        shape => name_of(shape).to_owned(),
                    };
                    lines.push(format!("\t  {name}"));
                }
                for member in members {
                    lines.push(format!("\t{}{}", "  ".repeat(depth), member.display()));
                }
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices in all, then each top-level vdev: shape, devices, class.
    type Parsed = (usize, Vec<(Shape, usize, VdevClass)>);

    fn parse(words: &str) -> Result<Parsed, String> {
        let words: Vec<PathBuf> = words.split(' ').map(PathBuf::from).collect();
        let specs = VdevSpecs::parse(&words, &|p| Path::new("/nowhere").join(p));
        let specs = specs.map_err(|e| format!("{e:?}"))?;
        let layout = specs.layout.iter().map(|t| (t.shape, t.devices, t.class));
        Ok((specs.devices.len(), layout.collect()))
    }

    #[test]
    fn words_make_groups_and_classes() {
        use VdevClass::{Dedup, Log, Normal, Special};
        let raidz = |nparity| Shape::Raidz { nparity };
        assert_eq!(
            parse("a b"),
            Ok((
                2,
                vec![(Shape::Single, 1, Normal), (Shape::Single, 1, Normal)]
            ))
        );
        assert_eq!(
            parse("raidz2 a b c d special mirror e f dedup g log h"),
            Ok((
                8,
                vec![
                    (raidz(2), 4, Normal),
                    (Shape::Mirror, 2, Special),
                    (Shape::Single, 1, Dedup),
                    (Shape::Single, 1, Log),
                ]
            ))
        );
        let draid = Shape::Draid {
            nparity: 2,
            ndata: Some(3),
            nspares: 1,
        };
        assert_eq!(
            parse("draid2:3d:6c:1s a b c d e f"),
            Ok((6, vec![(draid, 6, Normal)]))
        );
    }

    #[test]
    fn groups_that_cannot_be_are_refused() {
        for (words, why) in [
            ("raidz a", "raidz requires at least 2 devices"),
            ("raidz3 a b c", "raidz3 requires at least 4 devices"),
            ("mirror a", "mirror requires at least 2 devices"),
            ("log a", "at least one toplevel vdev"),
            ("a log b log c", "'log' can be specified only once"),
            ("a log raidz b c", "unsupported 'log' device"),
            ("draid9 a b c", "parity"),
            ("draid:4x a b c", "is no dRAID"),
            ("draid1:2d:9c a b c", "to have 9 devices"),
            ("a spare b", "not made yet"),
        ] {
            let said = parse(words).unwrap_err();
            assert!(said.contains(why), "{words}: {said}");
        }
    }
}
