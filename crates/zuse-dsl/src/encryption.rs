//! What can be said about encrypted datasets without their keys: suite, key format, encryption root, type.
//!
//! Their content is not opened: the feature's name is in the error. Chapter 02b of the format notes.

use zuse_base::Result;
use zuse_format::property::dataset_property;
use zuse_format::{BlockPointer, BpProps};

use crate::context::Dsl;
use crate::property::Source;

const KEY_OBJECT: &str = "com.datto:crypto_key_obj";

impl Dsl {
    /// The key object of a directory.
    fn key_object(&self, dir: u64) -> Result<Option<u64>> {
        Ok(self
            .meta()?
            .extension_value(dir, KEY_OBJECT)?
            .and_then(|v| v.first()))
    }

    fn key_number(&self, object: u64, key: &str) -> Result<u64> {
        Ok(self.meta()?.table(object)?.get_u64(key)?.unwrap_or(0))
    }

    /// A property that lives in the key object, as text; `None` where the dataset has no such property.
    pub(crate) fn encryption_text(&self, ds: u64, name: &str) -> Result<Option<(String, Source)>> {
        let meta = self.meta()?;
        let dir = meta.ds(ds)?.dir;
        let Some(own) = self.key_object(dir)? else {
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
        let root_dir = self.key_number(own, "DSL_CRYPTO_ROOT_DDOBJ")?;
        let root = self.key_object(root_dir)?.unwrap_or(own);
        let plain = |text: String| Some((text, Source::None));
        let format = |name: &str, n: u64| {
            dataset_property(name).map_or_else(|| n.to_string(), |p| p.format_number(n))
        };
        Ok(match name {
            "encryption" => plain(format(name, self.key_number(own, "DSL_CRYPTO_SUITE")?)),
            "keyformat" => plain(format(name, self.key_number(root, "keyformat")?)),
            "pbkdf2iters" => match self.key_number(root, "pbkdf2iters")? {
                0 => Some(("0".into(), Source::Default)),
                n => plain(n.to_string()),
            },
            "encryptionroot" => plain(self.dir_name(root_dir)?),
            "keystatus" => plain("unavailable".into()),
            _ => None,
        })
    }
}

/// Pointer to the objset block of an encrypted dataset as one to a plain block: it is authenticated from the inside,
/// not encrypted, and its checksum is a whole one.
pub(crate) fn plain_objset(bp: &BlockPointer) -> BlockPointer {
    let mut plain = *bp;
    plain.set_props(BpProps {
        crypt: false,
        ..bp.props()
    });
    plain
}
