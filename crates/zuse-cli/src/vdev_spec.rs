//! Vdevs on the command line: `mirror A B special mirror C D log E`.

use std::path::{Path, PathBuf};

use zuse::{
    AuxList, BlockDevice, DeviceAccess, FileDevice, Shape, Storage, TopSpec, VdevClass, VdevStatus,
};

use crate::error::{CommandError, Outcome};

mod draid;
mod redundancy;

use redundancy::{Level, last_of};

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
        _ => {
            let draid = draid::word_of(text)?;
            return Some(draid.map(|(shape, said)| Word::Draid(shape, said)));
        }
    }))
}

/// Differences in size that are not worth a message.
const TOLERANCE: u64 = 16 << 20;

fn size_of(path: &Path) -> Option<u64> {
    let device = FileDevice::open(path, DeviceAccess::Probe).ok()?;
    Some(BlockDevice::size(&device))
}

/// Whether devices of one vdev differ in size.
fn is_uneven(members: &[PathBuf], make: Option<u64>) -> bool {
    let mut sizes = members.iter().filter_map(|path| size_of(path).or(make));
    let Some(first) = sizes.next() else {
        return false;
    };
    sizes.any(|size| size.abs_diff(first) > TOLERANCE)
}

fn name_of(shape: Shape) -> &'static str {
    match shape {
        Shape::Single => "disk",
        Shape::Mirror => "mirror",
        Shape::Raidz { .. } => "raidz",
        Shape::Draid { .. } => "draid",
    }
}

fn word_for(list: AuxList) -> &'static str {
    match list {
        AuxList::Spares => "spare",
        AuxList::Cache => "cache",
    }
}

/// A group whose words are being parsed.
struct Open {
    word: String,
    shape: Shape,
    children: Option<usize>,
    from: usize,
}

impl VdevSpecs {
    /// Reads the words. A keyword is no device, whatever files are in the working directory:
    /// `./log` names a file `log`.
    pub fn parse(words: &[PathBuf], path_of: &dyn Fn(&Path) -> PathBuf) -> Outcome<Self> {
        let mut specs = Self::default();
        let mut class = VdevClass::Normal;
        let mut aux: Option<AuxList> = None;
        let mut seen: Vec<String> = Vec::new();
        let mut open: Option<Open> = None;
        for word in words {
            let path = path_of(word);
            let text = word.to_str().unwrap_or_default();
            let Some(keyword) = word_of(text).transpose()? else {
                specs.device(path, class, aux, open.is_some());
                continue;
            };
            specs.end(open.take(), class)?;
            if let (Some(list), Word::Group(_) | Word::Draid(..)) = (aux, &keyword) {
                let what = format!("{} requires at least 1 devices", word_for(list));
                return Err(invalid(what).into());
            }
            if matches!(keyword, Word::Class(_) | Word::Aux(_)) {
                specs.end_section(class, aux)?;
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
                Word::Group(shape) => open = Some(specs.begin(text, shape, None, class)?),
                Word::Draid(shape, said) => open = Some(specs.begin(text, shape, said, class)?),
            }
        }
        specs.end(open, class)?;
        specs.end_section(class, aux)?;
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

    fn begin(
        &self,
        word: &str,
        shape: Shape,
        children: Option<usize>,
        class: VdevClass,
    ) -> Outcome<Open> {
        let has_parity = matches!(shape, Shape::Raidz { .. } | Shape::Draid { .. });
        if class != VdevClass::Normal && has_parity {
            // OpenZFS says so of vdevs for dedup tables too.
            let class = match class {
                VdevClass::Log => "log",
                _ => "special",
            };
            let what = format!("unsupported '{class}' device: {}", name_of(shape));
            return Err(invalid(what).into());
        }
        Ok(Open {
            word: word.to_owned(),
            shape,
            children,
            from: self.devices.len(),
        })
    }

    /// Refuses a section without a device.
    fn end_section(&self, class: VdevClass, aux: Option<AuxList>) -> Outcome {
        let has_log = || self.layout.iter().any(|t| t.class == VdevClass::Log);
        let what = match aux {
            Some(AuxList::Spares) if self.spares.is_empty() => "spare requires at least 1 devices",
            Some(AuxList::Cache) if self.cache.is_empty() => "cache requires at least 1 devices",
            None if class == VdevClass::Log && !has_log() => "log requires at least 1 device",
            _ => return Ok(()),
        };
        Err(invalid(what).into())
    }

    /// Whether there is a vdev for data, without which no pool can be.
    pub fn has_data(&self) -> bool {
        self.layout.iter().any(|t| t.class == VdevClass::Normal)
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
            word,
            shape,
            children,
            from,
        }) = open
        else {
            return Ok(());
        };
        let devices = self.devices.len() - from;
        let minimum = match shape {
            Shape::Draid { nparity, .. } => usize::from(nparity) + 1,
            shape => shape.min_devices(),
        };
        if devices < minimum {
            return Err(invalid(format!("{word} requires at least {minimum} devices")).into());
        }
        draid::check(shape, children, devices)?;
        self.layout.push(TopSpec {
            shape,
            devices,
            class,
        });
        Ok(())
    }

    /// What is rarely intended, line by line. Devices of a vdev may differ in size: the rest of the
    /// larger ones is lost. Vdevs may differ in redundancy, from each other or from those of the
    /// pool. Missing devices get `make` bytes.
    pub fn objections(&self, there: Option<&VdevStatus>, make: Option<u64>) -> Vec<String> {
        let differs = |said: String| format!("mismatched replication level: {said}");
        let mut rest = self.devices.as_slice();
        let mut lines = Vec::new();
        let mut last: Option<Level> = None;
        for top in &self.layout {
            let (members, others) = rest.split_at_checked(top.devices).unwrap_or((rest, &[]));
            rest = others;
            let Some(level) = Level::of_new(top, members) else {
                continue;
            };
            if is_uneven(members, make) {
                lines.push(format!(
                    "{} contains devices of different sizes",
                    level.kind
                ));
            }
            lines.extend(last.and_then(|last| level.beside(last)).map(differs));
            last = Some(level);
        }
        if lines.is_empty()
            && let (Some(last), Some(pool)) = (last, there.and_then(last_of))
        {
            lines.extend(last.against(pool).map(differs));
        }
        lines
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
            ("raidz1 a", "raidz1 requires at least 2 devices"),
            ("draid2:1d a b", "draid2:1d requires at least 3 devices"),
            ("draid:4x a b c", "not 'draid:4x'"),
            ("draid1: a b c", "expected [:<number><c|d|s>] not 'draid1:'"),
            ("draid1:-1d a b c", "expected [:<number><c|d|s>] not"),
            ("draid1:2d:9c a b c", "9 required but 3 provided"),
            ("draid1:1d:5s a b c d", "dRAID spares 5; additional disks"),
            ("draid1:3d a b c", "at most 2 disks are available for data"),
            ("draid1:0d a b c", "per group 0 is too high"),
            ("draid1:3s a b c d", "leaves no disks available for data"),
            ("a special raidz b c", "unsupported 'special' device: raidz"),
            ("a dedup draid b c", "unsupported 'special' device: draid"),
            ("a log special b", "log requires at least 1 device"),
            ("a log", "log requires at least 1 device"),
            ("a spare log b", "spare requires at least 1 devices"),
            ("a cache", "cache requires at least 1 devices"),
            ("a spare b spare c", "'spare' can be specified only once"),
            ("a cache mirror b c", "cache requires at least 1 devices"),
        ] {
            let said = parse(words).unwrap_err();
            assert!(said.contains(why), "{words}: {said}");
        }
    }
}
