//! Resume tokens: the state of an interrupted receive, passed to the sender (chapter 05b §7 of the
//! format notes).
//!
//! ```text
//!   1 - checksum word - packed length - hex of (zlib of (native nvlist))
//! ```

use std::io::{Read, Write};
use zuse_base::cut::fit8;

use zuse_codec::Fletcher4;
use zuse_format::nvlist::{NvEncoding, NvList};

/// Longest list a token may unpack to.
const MAX_PACKED: u64 = 16 << 20;

/// The state of an interrupted receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResumeToken {
    /// Guid of the source, 0 for a full stream.
    pub from_guid: u64,
    /// Last object that was received.
    pub object: u64,
    /// Offset of its last block.
    pub offset: u64,
    /// Bytes of stream that were received.
    pub bytes: u64,
    /// Guid of the snapshot.
    pub to_guid: u64,
    /// Its name at the sender.
    pub to_name: String,
    /// The stream may have blocks above 128 KiB.
    pub large_blocks: bool,
    /// It may have embedded blocks.
    pub embed: bool,
    /// It may have compressed blocks.
    pub compressed: bool,
    /// It has raw encrypted blocks.
    pub raw: bool,
    /// Redaction snapshots.
    pub redact_snaps: Option<Vec<u64>>,
    /// Redaction snapshots of its source.
    pub book_redact_snaps: Option<Vec<u64>>,
}

/// The error in a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFlaw {
    /// Not of the form `version-checksum-length-hex`.
    #[error("resume token is corrupt (invalid format)")]
    Format,
    /// Another version.
    #[error("resume token is corrupt (invalid version {0})")]
    Version(u64),
    /// The checksum differs.
    #[error("resume token is corrupt (incorrect checksum)")]
    Checksum,
    /// The list inside cannot be unpacked.
    #[error("resume token is corrupt (decompression failed)")]
    Decompression,
    /// The list inside is invalid, or lacks mandatory entries.
    #[error("resume token is corrupt")]
    Content,
}

/// First sum over whole words of the packed bytes.
fn sum(packed: &[u8]) -> u64 {
    let mut sum = Fletcher4::new();
    sum.update(&packed[..packed.len() & !3]);
    sum.words()[0]
}

/// The list inside a token.
///
/// # Errors
/// See [`TokenFlaw`].
pub fn unpack_token(token: &str) -> Result<NvList, TokenFlaw> {
    let mut parts = token.trim().splitn(4, '-');
    let mut number = |radix| {
        let text = parts.next().ok_or(TokenFlaw::Format)?;
        u64::from_str_radix(text, radix).map_err(|_| TokenFlaw::Format)
    };
    let version = number(10)?;
    if version != 1 {
        return Err(TokenFlaw::Version(version));
    }
    let (checksum, length) = (number(16)?, number(16)?);
    let hex = parts.next().ok_or(TokenFlaw::Format)?.as_bytes();
    if !hex.len().is_multiple_of(2) || length > MAX_PACKED {
        return Err(TokenFlaw::Format);
    }
    let digit = |b: u8| char::from(b).to_digit(16).ok_or(TokenFlaw::Format);
    let packed: Vec<u8> = hex
        .chunks_exact(2)
        .map(|pair| Ok(fit8(digit(pair[0])? << 4 | digit(pair[1])?)))
        .collect::<Result<_, _>>()?;
    if sum(&packed) != checksum {
        return Err(TokenFlaw::Checksum);
    }
    let mut list = Vec::new();
    flate2::read::ZlibDecoder::new(&packed[..])
        // One byte more shows a list that is longer than the token says.
        .take(length + 1)
        .read_to_end(&mut list)
        .map_err(|_| TokenFlaw::Decompression)?;
    if list.len() as u64 != length {
        return Err(TokenFlaw::Decompression);
    }
    NvList::decode(&list).map_err(|_| TokenFlaw::Content)
}

impl ResumeToken {
    /// The token as a list of pairs.
    pub fn to_list(&self) -> NvList {
        let mut list = NvList::new();
        if self.from_guid != 0 {
            list.insert("fromguid", self.from_guid);
        }
        list.insert("object", self.object);
        list.insert("offset", self.offset);
        list.insert("bytes", self.bytes);
        list.insert("toguid", self.to_guid);
        list.insert("toname", self.to_name.as_str());
        for (flag, name) in [
            (self.large_blocks, "largeblockok"),
            (self.embed, "embedok"),
            (self.compressed, "compressok"),
            (self.raw, "rawok"),
        ] {
            if flag {
                list.insert_flag(name);
            }
        }
        if let Some(snaps) = &self.redact_snaps {
            list.insert("redact_snaps", snaps.clone());
        }
        if let Some(snaps) = &self.book_redact_snaps {
            list.insert("book_redact_snaps", snaps.clone());
        }
        list
    }

    /// The token as text.
    pub fn to_text(&self) -> String {
        use std::fmt::Write as _;
        let list = self.to_list().encode(NvEncoding::Native);
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
        // Writing to memory does not fail.
        let packed = packer
            .write_all(&list)
            .and_then(|()| packer.finish())
            .unwrap_or_default();
        let mut out = format!("1-{:x}-{:x}-", sum(&packed), list.len());
        for b in packed {
            let _ = write!(out, "{b:02x}");
        }
        out
    }

    /// Reads a token.
    ///
    /// # Errors
    /// See [`TokenFlaw`].
    pub fn parse(token: &str) -> Result<Self, TokenFlaw> {
        let list = unpack_token(token)?;
        let number = |name: &str| list.get_u64(name).ok_or(TokenFlaw::Content);
        Ok(Self {
            from_guid: list.get_u64("fromguid").unwrap_or(0),
            object: number("object")?,
            offset: number("offset")?,
            bytes: number("bytes")?,
            to_guid: number("toguid")?,
            to_name: list.get_str("toname").ok_or(TokenFlaw::Content)?.to_owned(),
            large_blocks: list.get_bool_flag("largeblockok"),
            embed: list.get_bool_flag("embedok"),
            compressed: list.get_bool_flag("compressok"),
            raw: list.get_bool_flag("rawok"),
            redact_snaps: list.get_u64s("redact_snaps").map(<[u64]>::to_vec),
            book_redact_snaps: list.get_u64s("book_redact_snaps").map(<[u64]>::to_vec),
        })
    }
}

#[cfg(test)]
mod tests;
