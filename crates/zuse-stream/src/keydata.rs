//! `crypt_keydata` of a raw stream's BEGIN: wrapped keys, MAC and shape of the object set (chapter
//! 05b §3.2).

use zuse_codec::crypt::{Suite, WrappedKey};
use zuse_dmu::MetaShape;
use zuse_dsl::{KeyFormat, RawReceive};
use zuse_format::nvlist::{NvList, NvValue};

use crate::error::StreamResult;
use crate::reader::Item;

/// Reads the key material out of a stream's list.
///
/// # Errors
/// A value is missing, has a wrong length or is out of range.
pub(crate) fn parse(item: &Item, list: &NvList) -> StreamResult<RawReceive> {
    let Some(keys) = list.get_list("crypt_keydata") else {
        return Err(item.invalid("a raw stream without crypt_keydata"));
    };
    let number = |name: &str| {
        keys.get_u64(name)
            .ok_or_else(|| item.invalid(format!("crypt_keydata without {name}")))
    };
    let byte = |name: &str| {
        u8::try_from(number(name)?).map_err(|_| item.invalid(format!("{name} is out of range")))
    };
    let suite_number = number("DSL_CRYPTO_SUITE")?;
    let suite = Suite::from_number(suite_number)
        .filter(|s| s.number() == suite_number)
        .ok_or_else(|| item.invalid(format!("encryption suite {suite_number}")))?;
    let version = number("DSL_CRYPTO_VERSION")?;
    if version != 1 {
        return Err(item.invalid(format!("encryption key of version {version}")));
    }
    let format_number = number("keyformat")?;
    let format = KeyFormat::from_number(format_number)
        .ok_or_else(|| item.invalid(format!("key format {format_number}")))?;
    let (rounds, salt) = (number("pbkdf2iters")?, number("pbkdf2salt")?);
    let is_passphrase = format == KeyFormat::Passphrase;
    if (rounds != 0) != is_passphrase || (salt != 0) != is_passphrase {
        return Err(item.invalid("rounds and salt belong to passphrases"));
    }
    let shape = MetaShape {
        levels: byte("mdn_nlevels")?,
        indirect_shift: byte("mdn_indblkshift")?,
        max_block: number("mdn_maxblkid")?,
        checksum: byte("mdn_checksum")?,
        compress: byte("mdn_compress")?,
        portable_mac: bytes(item, keys, "portable_mac")?,
    };
    let of_all_pools = number("mdn_blksz")? == 16384 && number("mdn_nblkptr")? == 3;
    if !of_all_pools || !is_meta_dnode(&shape) {
        return Err(item.invalid("the meta dnode is none"));
    }
    Ok(RawReceive {
        suite,
        guid: number("DSL_CRYPTO_GUID")?,
        wrapped: WrappedKey {
            iv: bytes(item, keys, "DSL_CRYPTO_IV")?,
            mac: bytes(item, keys, "DSL_CRYPTO_MAC")?,
            master: bytes(item, keys, "DSL_CRYPTO_MASTER_KEY_1")?,
            hmac: bytes(item, keys, "DSL_CRYPTO_HMAC_KEY_1")?,
        },
        format,
        rounds,
        salt,
        to_ivset: keys.get_u64("to_ivset_guid").unwrap_or(0),
        from_ivset: keys.get_u64("from_ivset_guid").unwrap_or(0),
        shape,
    })
}

/// The list for key material, in the order in which other senders write it.
pub(crate) fn list_of(raw: &RawReceive) -> NvList {
    let shape = &raw.shape;
    let bytes = |b: &[u8]| NvValue::Uint8Array(b.to_vec());
    let mut out = NvList::new();
    out.insert("DSL_CRYPTO_SUITE", raw.suite.number());
    out.insert("DSL_CRYPTO_GUID", raw.guid);
    out.insert("DSL_CRYPTO_VERSION", 1u64);
    out.insert("DSL_CRYPTO_MASTER_KEY_1", bytes(&raw.wrapped.master));
    out.insert("DSL_CRYPTO_HMAC_KEY_1", bytes(&raw.wrapped.hmac));
    out.insert("DSL_CRYPTO_IV", bytes(&raw.wrapped.iv));
    out.insert("DSL_CRYPTO_MAC", bytes(&raw.wrapped.mac));
    out.insert("portable_mac", bytes(&shape.portable_mac));
    for (name, value) in [
        ("keyformat", raw.format as u64),
        ("pbkdf2iters", raw.rounds),
        ("pbkdf2salt", raw.salt),
        ("mdn_checksum", shape.checksum.into()),
        ("mdn_compress", shape.compress.into()),
        ("mdn_nlevels", shape.levels.into()),
        ("mdn_blksz", 16384),
        ("mdn_indblkshift", shape.indirect_shift.into()),
        ("mdn_nblkptr", 3),
        ("mdn_maxblkid", shape.max_block),
        ("to_ivset_guid", raw.to_ivset),
        ("from_ivset_guid", raw.from_ivset),
    ] {
        out.insert(name, value);
    }
    out
}

fn bytes<const N: usize>(item: &Item, list: &NvList, name: &str) -> StreamResult<[u8; N]> {
    let found = match list.get(name) {
        Some(NvValue::Uint8Array(b)) => b.as_slice(),
        Some(NvValue::ByteArray(b)) => b.as_slice(),
        _ => &[],
    };
    found
        .try_into()
        .map_err(|_| item.invalid(format!("{name} is not {N} bytes")))
}

/// Whether the meta dnode of an object set can have that shape.
fn is_meta_dnode(shape: &MetaShape) -> bool {
    let in_bounds = (1..=12).contains(&shape.levels) && (12..=17).contains(&shape.indirect_shift);
    let known_kinds = shape.checksum < 9 && shape.compress < 15;
    // Object numbers have 48 bits, a block holds 32 dnodes.
    let reach = u32::from(shape.indirect_shift.saturating_sub(7))
        * u32::from(shape.levels.saturating_sub(1));
    in_bounds && known_kinds && reach <= 60 && shape.max_block < 1 << 43
}
