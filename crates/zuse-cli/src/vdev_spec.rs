//! Vdevs on the command line: `mirror A B special mirror C D log E`.

use std::path::{Path, PathBuf};

use zuse::{
    AuxList, BlockDevice, DeviceAccess, FileDevice, Shape, Storage, TopSpec, VdevClass, VdevKind,
    VdevStatus,
};

use crate::error::{CommandError, Outcome};

/// Devices in order, and how they form vdevs.
#[derive(Debug, Default)]
pub struct VdevSpecs {
    /// The devices.
    pub devices: Vec<PathBuf>,
    /// The vdevs, each over the next devices.
    pub layout: Vec<TopSpec>,
    /// Hot spares.
    pub spares: Vec<PathBuf>,
    /// Cache devices.
    pub cache: Vec<PathBuf>,
}

fn invalid(what: impl std::fmt::Display) -> CommandError {
    CommandError::new(format!("invalid vdev specification: {what}"))
}

/// A word that begins a group.
enum Word {
    Class(VdevClass),
    Aux(AuxList),
    Group(Shape),
    /// The device count of a dRAID is checked when its group ends.
    Draid(Shape, Option<usize>),
}

fn word_of(text: &str) -> Option<Outcome<Word>> {
    Some(Ok(match text {
        "log" | "special" | "dedup" => Word::Class(VdevClass::by_word(text)?),
        "mirror" => Word::Group(Shape::Mirror),
        "raidz" | "raidz1" => Word::Group(Shape::Raidz { nparity: 1 }),
        "raidz2" => Word::Group(Shape::Raidz { nparity: 2 }),
        "raidz3" => Word::Group(Shape::Raidz { nparity: 3 }),
        "spare" => Word::Aux(AuxList::Spares),
        "cache" => Word::Aux(AuxList::Cache),
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

/// Differences in size that are not worth a message.
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

fn word_for(list: AuxList) -> &'static str {
    match list {
        AuxList::Spares => "spare",
        AuxList::Cache => "cache",
    }
}

/// The redundancy of a vdev for data, special or dedup.
#[derive(Clone, Copy)]
struct Level {
    /// `disk`, `file`, `mirror`, `raidz`, `draid`.
    kind: &'static str,
    /// The number of devices that it can lose.
    parity: usize,
    devices: usize,
}

impl Level {
    fn of_new(top: &TopSpec) -> Option<Self> {
        let (kind, parity) = match top.shape {
            Shape::Single => ("disk", 0),
            Shape::Mirror => ("mirror", top.devices.saturating_sub(1)),
            Shape::Raidz { nparity } => ("raidz", usize::from(nparity)),
            Shape::Draid { nparity, .. } => ("draid", usize::from(nparity)),
        };
        (top.class != VdevClass::Log).then_some(Self {
            kind,
            parity,
            devices: top.devices,
        })
    }

    fn of_old(top: &VdevStatus) -> Option<Self> {
        let devices = top.children.len();
        let (kind, parity) = match &top.kind {
            VdevKind::Disk => ("disk", 0),
            VdevKind::File => ("file", 0),
            VdevKind::Mirror => ("mirror", devices.saturating_sub(1)),
            VdevKind::Raidz { nparity, .. } => ("raidz", usize::from(*nparity)),
            VdevKind::Draid { nparity, .. } => ("draid", usize::from(*nparity)),
            _ => return None,
        };
        (!top.is_log).then_some(Self {
            kind,
            parity,
            devices,
        })
    }

    fn is_lone(self) -> bool {
        matches!(self.kind, "disk" | "file")
    }

    fn has_parity(self) -> bool {
        matches!(self.kind, "raidz" | "draid")
    }

    /// The difference between a new vdev and this one of the pool.
    fn against(&self, new: &Self) -> Option<String> {
        if self.is_lone() && new.is_lone() {
            return None;
        }
        if self.kind != new.kind && (self.is_lone() || new.is_lone() || self.parity != new.parity) {
            return Some(format!(
                "pool uses {} and new vdev is {}",
                self.kind, new.kind
            ));
        }
        if self.parity != new.parity && self.has_parity() {
            return Some(format!(
                "pool uses {} device parity and new vdev uses {}",
                self.parity, new.parity
            ));
        }
        (self.kind == new.kind && self.devices != new.devices).then(|| {
            format!(
                "pool uses {}-way {} and new vdev uses {}-way {}",
                self.devices, self.kind, new.devices, new.kind
            )
        })
    }
}

/// The difference between vdevs that are to form one pool.
fn uneven_levels(all: &[Level]) -> Option<String> {
    let (first, rest) = all.split_first()?;
    rest.iter().find_map(|t| {
        let (a, b) = (first.kind, t.kind);
        if first.is_lone() && t.is_lone() {
            return None;
        }
        if a != b {
            // Groups of different kinds match if they tolerate the same losses.
            let (p, q) = (first.parity, t.parity);
            if first.is_lone() || t.is_lone() {
                return Some(format!("both {a} and {b} vdevs"));
            }
            let ways = match b {
                "mirror" => format!(" ({}-way)", t.devices),
                _ => String::new(),
            };
            let what = format!("{a} and {b} vdevs with different redundancy");
            return (p != q).then(|| format!("{what}, {p} vs. {q}{ways}"));
        }
        if first.has_parity() && first.parity != t.parity {
            let (p, q) = (first.parity, t.parity);
            return Some(format!("both {p} and {q} device parity {a} vdevs"));
        }
        (first.devices != t.devices)
            .then(|| format!("both {}-way and {}-way {a} vdevs", first.devices, t.devices))
    })
}

/// A group whose words are being parsed.
struct Open {
    shape: Shape,
    children: Option<usize>,
    from: usize,
}

impl VdevSpecs {
    /// Reads the words. One that means something is no device, whatever lies in the working
    /// directory: `./log` names a file `log`.
    pub fn parse(words: &[PathBuf], path_of: &dyn Fn(&Path) -> PathBuf) -> Outcome<Self> {
        let mut specs = Self::default();
        let mut class = VdevClass::Normal;
        let mut aux: Option<AuxList> = None;
        let mut seen: Vec<String> = Vec::new();
        let mut open: Option<Open> = None;
        for word in words {
            let path = path_of(word);
            let text = word.to_str().unwrap_or_default();
            let keyword = match word_of(text) {
                // A name that only begins as a dRAID's.
                Some(Err(_)) if path.exists() => None,
                word => word.transpose()?,
            };
            let Some(keyword) = keyword else {
                specs.device(path, class, aux, open.is_some());
                continue;
            };
            specs.end(open.take(), class)?;
            if let (Some(list), Word::Group(_) | Word::Draid(..)) = (aux, &keyword) {
                let what = format!("{} requires at least 1 devices", word_for(list));
                return Err(invalid(what).into());
            }
            if matches!(text, "log" | "spare" | "cache") {
                if seen.iter().any(|s| s == text) {
                    let what = format!("'{text}' can be specified only once");
                    return Err(invalid(what).into());
                }
                seen.push(text.to_owned());
            }
            match keyword {
                Word::Class(new) => (class, aux) = (new, None),
                Word::Aux(list) => aux = Some(list),
                Word::Group(shape) => open = Some(specs.begin(shape, None, class)?),
                Word::Draid(shape, said) => open = Some(specs.begin(shape, said, class)?),
            }
        }
        specs.end(open, class)?;
        Ok(specs)
    }

    /// Adds a device: to a list, to the open group, or as a vdev of its own.
    fn device(&mut self, path: PathBuf, class: VdevClass, aux: Option<AuxList>, grouped: bool) {
        match aux {
            Some(AuxList::Spares) => self.spares.push(path),
            Some(AuxList::Cache) => self.cache.push(path),
            None => {
                self.devices.push(path);
                if !grouped {
                    self.layout.push(TopSpec {
                        class,
                        ..TopSpec::SINGLE
                    });
                }
            }
        }
    }

    fn begin(&self, shape: Shape, children: Option<usize>, class: VdevClass) -> Outcome<Open> {
        if class == VdevClass::Log && matches!(shape, Shape::Raidz { .. } | Shape::Draid { .. }) {
            let what = format!("unsupported 'log' device: {}", name_of(shape));
            return Err(invalid(what).into());
        }
        Ok(Open {
            shape,
            children,
            from: self.devices.len(),
        })
    }

    /// Refuses vdevs for a new pool if none is for data.
    pub fn check_has_data(&self) -> Outcome {
        if self.layout.iter().any(|t| t.class == VdevClass::Normal) {
            return Ok(());
        }
        Err(invalid("at least one toplevel vdev must be specified").into())
    }

    /// All devices.
    pub fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.devices.iter().chain(&self.spares).chain(&self.cache)
    }

    /// Whether two of the words mean the same device.
    pub fn has_twins(&self) -> bool {
        let all: Vec<&PathBuf> = self.all().collect();
        let storage: Vec<_> = all.iter().map(|p| Storage::of(p).ok()).collect();
        let same = |i: usize, j: usize| {
            let meet = match (storage.get(i), storage.get(j)) {
                (Some(Some(a)), Some(Some(b))) => a.meets(b),
                _ => false,
            };
            all.get(i) == all.get(j) || meet
        };
        (0..all.len()).any(|i| (0..i).any(|j| same(i, j)))
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

    /// Different redundancy among the vdevs of the pool, which is rarely intended. It may be among
    /// the new ones, or between them and the existing ones.
    pub fn mismatch(&self, there: Option<&VdevStatus>) -> Option<String> {
        let new: Vec<Level> = self.layout.iter().filter_map(Level::of_new).collect();
        if let Some(said) = uneven_levels(&new) {
            return Some(format!("mismatched replication level: {said} are present"));
        }
        let first = new.first()?;
        let old = there?.children.iter().filter_map(Level::of_old);
        let old: Vec<Level> = old.collect();
        // A pool that is uneven already may become more so.
        let said = match uneven_levels(&old) {
            None => old.first()?.against(first),
            Some(_) => None,
        }?;
        Some(format!("mismatched replication level: {said}"))
    }

    /// Devices of one vdev that differ in size: the rest of the larger ones is lost. Missing ones
    /// get `make` bytes.
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

    /// The lines of a dry run, by class. `there`: the existing vdevs of the pool.
    pub fn lines(&self, there: &dyn Fn(Section) -> Vec<String>) -> Vec<String> {
        let mut lines = Vec::new();
        for section in Section::ALL {
            let mut own = there(section);
            match section {
                Section::Class(class) => own.extend(self.class_lines(class)),
                Section::Aux(list) => {
                    let devices = match list {
                        AuxList::Spares => &self.spares,
                        AuxList::Cache => &self.cache,
                    };
                    own.extend(devices.iter().map(|d| format!("\t  {}", d.display())));
                }
            }
            let title = section.title().filter(|_| !own.is_empty());
            lines.extend(title.map(|t| format!("\t{t}")));
            lines.extend(own);
        }
        lines
    }

    fn class_lines(&self, class: VdevClass) -> Vec<String> {
        let mut lines = Vec::new();
        let mut at = 0;
        for top in &self.layout {
            let members = self.devices.get(at..at + top.devices).unwrap_or(&[]);
            at += top.devices;
            if top.class != class {
                continue;
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
        lines
    }
}

/// A section of a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Vdevs of a class.
    Class(VdevClass),
    /// Spares or cache devices.
    Aux(AuxList),
}

impl Section {
    /// In the order in which they are printed.
    const ALL: [Self; 6] = [
        Self::Class(VdevClass::Normal),
        Self::Class(VdevClass::Dedup),
        Self::Class(VdevClass::Special),
        Self::Class(VdevClass::Log),
        Self::Aux(AuxList::Cache),
        Self::Aux(AuxList::Spares),
    ];

    fn title(self) -> Option<&'static str> {
        match self {
            Self::Class(VdevClass::Normal) => None,
            Self::Class(VdevClass::Dedup) => Some("dedup"),
            Self::Class(VdevClass::Special) => Some("special"),
            Self::Class(VdevClass::Log) => Some("logs"),
            Self::Aux(AuxList::Cache) => Some("cache"),
            Self::Aux(AuxList::Spares) => Some("spares"),
        }
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
    fn a_word_is_no_device_although_a_file_is_called_like_it() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in [
            "a",
            "b",
            "c",
            "log",
            "mirror",
            "spare",
            "cache",
            "draid1:2d",
            "draid-1",
        ] {
            std::fs::write(dir.path().join(name), "").expect("made");
        }
        let parse = |words: &str| {
            let words: Vec<PathBuf> = words.split(' ').map(PathBuf::from).collect();
            VdevSpecs::parse(&words, &|p| dir.path().join(p)).expect("read")
        };
        let specs = parse("mirror a b log c");
        let layout: Vec<_> = specs.layout.iter().map(|t| (t.shape, t.class)).collect();
        let log = (Shape::Single, VdevClass::Log);
        assert_eq!(layout, [(Shape::Mirror, VdevClass::Normal), log]);
        let specs = parse("a spare b cache c");
        assert_eq!((specs.spares.len(), specs.cache.len()), (1, 1));
        assert_eq!(parse("draid1:2d a b c").layout[0].devices, 3);
        let specs = parse("draid-1 ./log ./mirror");
        assert_eq!(specs.devices.len(), 3, "names that mean nothing");
        assert!(specs.devices[1].ends_with("log"));
    }

    #[test]
    fn groups_that_cannot_be_are_refused() {
        for (words, why) in [
            ("raidz a", "raidz requires at least 2 devices"),
            ("raidz3 a b c", "raidz3 requires at least 4 devices"),
            ("mirror a", "mirror requires at least 2 devices"),
            ("a log b log c", "'log' can be specified only once"),
            ("a log raidz b c", "unsupported 'log' device"),
            ("draid9 a b c", "parity"),
            ("draid:4x a b c", "is no dRAID"),
            ("draid1:2d:9c a b c", "to have 9 devices"),
            ("a spare b spare c", "'spare' can be specified only once"),
            ("a cache mirror b c", "cache requires at least 1 devices"),
        ] {
            let said = parse(words).unwrap_err();
            assert!(said.contains(why), "{words}: {said}");
        }
    }
}
