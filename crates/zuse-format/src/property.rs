//! Native properties of datasets, pools and vdevs: three tables, and text ↔ stored value.
//!
//! A number or index property is stored as one u64, a text property as bytes with their NUL. Where
//! a value is stored (property ZAP, master node, key object…) and its valid dataset types are
//! columns. Rules that depend on a pool (feature gates, quotas against used space) are not here.
//! User properties (names with a colon) are always text and inheritable.

mod dataset;
mod pool;
mod vdev;

use std::borrow::Cow;
use zuse_base::cut::{fit32, low8, low32};

pub use dataset::{B, DATASET_PROPERTIES, F, S, V};
pub use pool::POOL_PROPERTIES;
pub use vdev::VDEV_PROPERTIES;

/// Longest property name, NUL included.
pub const NAME_LIMIT: usize = 256;
/// Longest text value, NUL included.
pub const VALUE_LIMIT: usize = 8192;

/// How a value is stored and shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PropertyKind {
    /// A number; sizes take suffixes.
    Number,
    /// Bytes.
    Text,
    /// A word for a number.
    Index,
}

/// Who may change it, and whether children inherit it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Computed.
    ReadOnly,
    /// Settable, not inherited.
    Set,
    /// Settable and inherited.
    Inherit,
    /// Only at creation.
    Once,
    /// Only at creation; inherited from the parent unless given.
    OnceInherit,
}

/// Value when nothing is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultValue {
    /// None: the property is computed.
    None,
    /// A number or the number of a word.
    Number(u64),
    /// Text. For `mountpoint` the dataset's name follows.
    Text(&'static str),
}

/// Where the value lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// Nowhere: computed.
    Computed,
    /// The property ZAP (of a dataset, or `pool_props`).
    Props,
    /// The file system's master node.
    MasterNode,
    /// The volume's own objects.
    Volume,
    /// The encryption key object.
    KeyObject,
    /// The pool's configuration.
    Config,
    /// The importing process only.
    Process,
}

/// The meaning of the text `none`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoneMeans {
    /// It is not a value.
    Never,
    /// 0.
    Zero,
    /// 2^64 − 1.
    Max,
}

/// A row of a table of properties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Property {
    /// Name.
    pub name: &'static str,
    /// Short name for list columns; empty when it is the name.
    pub column: &'static str,
    /// Kind of value.
    pub kind: PropertyKind,
    /// Who may change it.
    pub access: Access,
    /// Value when nothing is stored.
    pub default: DefaultValue,
    /// Kinds of dataset it is valid on: [`F`], [`V`], [`S`], [`B`]; 0 for pools.
    pub on: u8,
    /// Whether `get all` shows it.
    pub in_all: bool,
    /// Where the value lives.
    pub home: Home,
    /// What `none` means.
    pub none: NoneMeans,
    /// Words of an index property; the first of a number is the one shown.
    pub words: &'static [(&'static str, u64)],
    /// Values in usage messages.
    pub values: &'static str,
}

/// A value as stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PropertyValue {
    /// Number or index.
    Number(u64),
    /// Text, without NUL.
    Text(String),
}

/// Why a text is not a value of a property; the message is the end of OpenZFS's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PropertyError {
    /// Not one of its words.
    #[error("'{name}' must be one of '{values}'")]
    NotAWord {
        /// Property.
        name: &'static str,
        /// Its words.
        values: &'static str,
    },
    /// Not a number.
    #[error("bad numeric value '{0}'")]
    BadNumber(String),
    /// Digits followed by an unknown unit.
    #[error("invalid numeric suffix '{0}'")]
    BadSuffix(String),
    /// More than 64 bits.
    #[error("numeric value is too large")]
    TooLarge,
    /// Text longer than 8191 bytes.
    #[error("property value too long")]
    TooLong,
}

impl Property {
    /// Header of a list column.
    pub fn column(&self) -> &'static str {
        if self.column.is_empty() {
            self.name
        } else {
            self.column
        }
    }

    /// Whether children inherit a value set on their parent.
    pub fn inheritable(&self) -> bool {
        matches!(self.access, Access::Inherit | Access::OnceInherit)
    }

    /// Whether it can never be set on an existing dataset.
    pub fn is_readonly(&self) -> bool {
        !matches!(self.access, Access::Set | Access::Inherit)
    }

    /// Whether it can be given at creation only.
    pub fn is_set_once(&self) -> bool {
        matches!(self.access, Access::Once | Access::OnceInherit)
    }

    /// Whether it is valid on any of these kinds of dataset.
    pub fn valid_on(&self, kinds: u8) -> bool {
        self.on & kinds != 0
    }

    /// Default of a number or index property.
    pub fn default_number(&self) -> Option<u64> {
        if let DefaultValue::Number(number) = self.default {
            Some(number)
        } else {
            None
        }
    }

    /// Number of a word of an index property.
    pub fn number_of(&self, word: &str) -> Option<u64> {
        self.words
            .iter()
            .find(|(w, _)| *w == word)
            .map(|(_, number)| *number)
    }

    /// Word of a number of an index property.
    pub fn word_of(&self, number: u64) -> Option<&'static str> {
        self.words
            .iter()
            .find(|(_, n)| *n == number)
            .map(|(word, _)| *word)
    }

    /// The stored value of a text.
    ///
    /// # Errors
    /// The text is not a value of this property.
    pub fn parse(&self, text: &str) -> Result<PropertyValue, PropertyError> {
        match self.kind {
            PropertyKind::Index => match self.number_of(text) {
                Some(number) => Ok(PropertyValue::Number(number)),
                None => Err(PropertyError::NotAWord {
                    name: self.name,
                    values: self.values,
                }),
            },
            PropertyKind::Text if text.len() >= VALUE_LIMIT => Err(PropertyError::TooLong),
            PropertyKind::Text => Ok(PropertyValue::Text(text.to_owned())),
            PropertyKind::Number => match (text, self.none) {
                ("none", NoneMeans::Zero) => Ok(PropertyValue::Number(0)),
                ("none", NoneMeans::Max) => Ok(PropertyValue::Number(u64::MAX)),
                _ => parse_number(text).map(PropertyValue::Number),
            },
        }
    }

    /// The exact text of a stored number: its word, `none`, or decimal. Human-readable sizes are
    /// made by the command.
    pub fn format_number(&self, number: u64) -> Cow<'static, str> {
        match (self.kind, self.none) {
            (PropertyKind::Index, _) => self
                .word_of(number)
                .map_or_else(|| number.to_string().into(), Cow::Borrowed),
            (PropertyKind::Number, NoneMeans::Max) if number == u64::MAX => "none".into(),
            _ => number.to_string().into(),
        }
    }
}

/// A number with an optional unit: `512`, `128K`, `1.5G`, `1MB`, `1MiB`.
///
/// # Errors
/// No number, an unknown unit, or more than 64 bits.
pub fn parse_number(text: &str) -> Result<u64, PropertyError> {
    let bad = || PropertyError::BadNumber(text.to_owned());
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') || digits == "." {
        return Err(bad());
    }
    let upper = unit.to_ascii_uppercase();
    let letter = upper.chars().next();
    let shift = match letter {
        None | Some('B') => 0,
        Some(c) => match "KMGTPEZ".find(c) {
            Some(i) => 10 * fit32(i + 1),
            None => return Err(PropertyError::BadSuffix(unit.to_owned())),
        },
    };
    let rest = upper.get(1..).unwrap_or("");
    if !(rest.is_empty() || letter != Some('B') && (rest == "B" || rest == "IB")) {
        return Err(PropertyError::BadSuffix(unit.to_owned()));
    }
    if let Some((whole, fraction)) = digits.split_once('.') {
        if fraction.contains('.') {
            return Err(bad());
        }
        // Fixed point: nine decimals are more than a 64-bit size can show in the larger units.
        let whole: u128 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| PropertyError::TooLarge)?
        };
        let nine: String = fraction
            .chars()
            .chain("000000000".chars())
            .take(9)
            .collect();
        let nano: u128 = nine.parse().map_err(|_| bad())?;
        let scaled = whole
            .checked_shl(shift)
            .filter(|n| n >> shift == whole)
            .ok_or(PropertyError::TooLarge)?;
        let total = scaled
            .checked_add((nano << shift) / 1_000_000_000)
            .ok_or(PropertyError::TooLarge)?;
        return u64::try_from(total).map_err(|_| PropertyError::TooLarge);
    }
    let number: u64 = digits.parse().map_err(|_| PropertyError::TooLarge)?;
    if shift >= 64 {
        return if number == 0 {
            Ok(0)
        } else {
            Err(PropertyError::TooLarge)
        };
    }
    number
        .checked_shl(shift)
        .filter(|n| n >> shift == number)
        .ok_or(PropertyError::TooLarge)
}

/// A dataset property by name or list column.
pub fn dataset_property(name: &str) -> Option<&'static Property> {
    let mut slot = slot_of(name);
    while let Some(known) = DATASET_PROPERTIES.get(usize::from(BY_NAME[slot])) {
        if known.name == name {
            return Some(known);
        }
        slot = (slot + 1) % BY_NAME.len();
    }
    find(&DATASET_PROPERTIES, name)
}

/// Row numbers of the table by the hashes of their names, computed by the compiler: a listing looks
/// up each cell. A taken slot sends its name to the next one, and more than half of them are free.
static BY_NAME: [u8; 256] = {
    let mut slots = [u8::MAX; 256];
    let mut row = 0;
    while row < DATASET_PROPERTIES.len() {
        let mut slot = slot_of(DATASET_PROPERTIES[row].name);
        while slots[slot] != u8::MAX {
            slot = (slot + 1) % slots.len();
        }
        slots[slot] = low8(row as u64);
        row += 1;
    }
    slots
};

/// FNV-1a, folded. The names are fixed, so a predictable hash is no risk.
const fn slot_of(name: &str) -> usize {
    let (name, mut hash, mut at) = (name.as_bytes(), 0x811c_9dc5_u32, 0);
    while at < name.len() {
        hash = (hash ^ low32(name[at] as u64)).wrapping_mul(0x0100_0193);
        at += 1;
    }
    (hash ^ hash >> 8 ^ hash >> 16) as usize & 0xff
}

/// A pool property by name or list column.
pub fn pool_property(name: &str) -> Option<&'static Property> {
    find(&POOL_PROPERTIES, name)
}

/// A property of vdevs by name or list column.
pub fn vdev_property(name: &str) -> Option<&'static Property> {
    find(&VDEV_PROPERTIES, name)
}

fn find(table: &'static [Property], name: &str) -> Option<&'static Property> {
    let by_name = table.iter().find(|p| p.name == name);
    by_name.or_else(|| {
        table
            .iter()
            .find(|p| !p.column.is_empty() && p.column.eq_ignore_ascii_case(name))
    })
}

/// Whether a name is one of a user property: has a colon, no upper case, no odd characters, not too
/// long.
pub fn is_user_property(name: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.:".contains(c);
    name.contains(':') && name.len() < NAME_LIMIT && name.chars().all(good)
}

/// Key of a received value in a property ZAP.
pub fn received_key(name: &str) -> String {
    format!("{name}$recvd")
}

/// Key that hides a received value.
pub fn inherit_key(name: &str) -> String {
    format!("{name}$inherit")
}

/// Key of a value that older software does not know.
pub fn ignore_unknown_key(name: &str) -> String {
    format!("{name}$iuv")
}

/// Key that marks a dataset with received properties.
pub const HAS_RECEIVED_KEY: &str = "$hasrecvd";

/// Whether this value of a property goes to its `$iuv` key, with the default under the plain one.
pub fn uses_ignore_unknown(name: &str, number: u64) -> bool {
    matches!(
        (name, number),
        ("redundant_metadata", 2 | 3) | ("snapdir", 2)
    )
}

#[cfg(test)]
mod tests;
