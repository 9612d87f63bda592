//! Properties of encrypted datasets that need no key: suite, key format, encryption root, type.
//!
//! Chapter 02b of the format notes. Keys are in `keyring.rs`.

use zuse_base::Result;
use zuse_format::property::dataset_property;

use crate::context::Dsl;
use crate::keyring::{FORMAT, ROOT, ROUNDS, SUITE};
use crate::property::{Shown, Source, Text};

impl Dsl {
    fn key_number(&self, object: u64, key: &str) -> Result<u64> {
        Ok(self.meta()?.table(object)?.get_u64(key)?.unwrap_or(0))
    }

    /// A property stored in the key object, as text; `None` if the dataset has no such property.
    pub(crate) fn encryption_text(&self, own: Option<u64>, name: &str) -> Result<Option<Shown>> {
        let Some(own) = own else {
            let default =
                dataset_property(name).and_then(|p| p.default_number().map(|n| p.format_number(n)));
            return Ok(match name {
                "encryption" => Some(("off".into(), Source::Default)),
                "keyformat" => Some(("none".into(), Source::Default)),
                "pbkdf2iters" => Some(("0".into(), Source::Default)),
                "encryptionroot" | "keystatus" => None,
                _ => default.map(|text| (text, Source::Default)),
            });
        };
        let root_dir = self.key_number(own, ROOT)?;
        let root = self.key_object_number(root_dir)?.unwrap_or(own);
        let plain = |text: Text| Some((text, Source::None));
        let format = |name: &str, n: u64| {
            dataset_property(name).map_or_else(|| n.to_string().into(), |p| p.format_number(n))
        };
        Ok(match name {
            "encryption" => plain(format(name, self.key_number(own, SUITE)?)),
            "keyformat" => plain(format(name, self.key_number(root, FORMAT)?)),
            "pbkdf2iters" => match self.key_number(root, ROUNDS)? {
                0 => Some(("0".into(), Source::Default)),
                n => plain(n.to_string().into()),
            },
            "encryptionroot" => plain(self.dir_name(root_dir)?.into()),
            "keystatus" => {
                let status = if self.is_loaded(root_dir) {
                    "available"
                } else {
                    "unavailable"
                };
                plain(status.into())
            }
            _ => None,
        })
    }
}
