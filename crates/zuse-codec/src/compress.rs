//! Compression: logical bytes to stored bytes and back.
//!
//! | kind | stored form | ends itself |
//! |---|---|---|
//! | off | the bytes | |
//! | lzjb, zle | raw stream | by the logical size |
//! | gzip-1 … gzip-9 | zlib stream | yes |
//! | lz4 | 4-byte big-endian length, LZ4 block | by the length |
//! | zstd | length, level and version (8 bytes), magicless frame | by the length |
//!
//! Stored bytes are padded with zeros up to whole sectors, so a decoder takes more input than the
//! stream needs and ignores the rest. It must fill the output exactly.
//!
//! The caller decides whether a result is worth keeping (sectors saved, embedding): it passes the
//! limit. A caller with many blocks keeps a [`Workspace`]. Then a block costs no allocation except
//! the growth of `dst`. The free functions of the same names make a workspace for each call.

mod gzip;
mod kind;
mod lz4;
mod lzjb;
mod zle;
mod zstd;
mod zstd_level;

pub use kind::Compression;
pub use zstd_level::ZstdLevel;

use crate::CodecError;

/// State that the methods keep between blocks: tables and library contexts. Each is made at the
/// first use of its method. For one thread at a time.
#[derive(Default)]
pub struct Workspace {
    lz4: lz4::Tables,
    gzip: gzip::Streams,
    zstd: zstd::Contexts,
}

impl Workspace {
    /// Compresses `src` into at most `max_dst` bytes.
    ///
    /// On success `dst` holds exactly the result (with the method's header), and its length is
    /// returned. Otherwise `None`, with `dst` empty: the result did not fit, or the kind does not
    /// compress (off, empty). Inherit and on give `None` too: resolve them first.
    pub fn compress(
        &mut self,
        kind: Compression,
        level: ZstdLevel,
        src: &[u8],
        dst: &mut Vec<u8>,
        max_dst: usize,
    ) -> Option<usize> {
        let done = match kind {
            Compression::Inherit | Compression::On | Compression::Off | Compression::Empty => None,
            Compression::Lzjb => lzjb::compress(src, room(dst, max_dst)),
            Compression::Gzip(level) => {
                gzip::compress(&mut self.gzip, level, src, room(dst, max_dst))
            }
            Compression::Zle => zle::compress(src, room(dst, max_dst)),
            Compression::Lz4 => lz4::compress(&mut self.lz4, src, dst, max_dst),
            Compression::Zstd if !zstd::is_worth_trying(self, level, src, dst, max_dst) => None,
            Compression::Zstd => zstd::compress(&mut self.zstd, level, src, room(dst, max_dst)),
        };
        dst.truncate(done.unwrap_or(0));
        done
    }

    /// Decompresses stored bytes into the whole of `dst`; input behind the stream is ignored.
    ///
    /// # Errors
    /// [`CodecError::NoDecoder`] for inherit, on and empty, which no block may have.
    /// [`CodecError::Broken`] if the result has not exactly `dst.len()` bytes. The content of `dst`
    /// is then undefined.
    pub fn decompress(
        &mut self,
        kind: Compression,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<(), CodecError> {
        let done = match kind {
            Compression::Inherit | Compression::On | Compression::Empty => {
                return Err(CodecError::NoDecoder(kind.name()));
            }
            Compression::Off => src.get(..dst.len()).map(|s| dst.copy_from_slice(s)),
            Compression::Lzjb => lzjb::decompress(src, dst),
            Compression::Gzip(_) => gzip::decompress(&mut self.gzip, src, dst),
            Compression::Zle => zle::decompress(src, dst),
            Compression::Lz4 => lz4::decompress(src, dst),
            Compression::Zstd => zstd::decompress(&mut self.zstd, src, dst),
        };
        done.ok_or(CodecError::Broken(kind.name()))
    }
}

/// [`Workspace::compress`] of one block.
pub fn compress(
    kind: Compression,
    level: ZstdLevel,
    src: &[u8],
    dst: &mut Vec<u8>,
    max_dst: usize,
) -> Option<usize> {
    Workspace::default().compress(kind, level, src, dst, max_dst)
}

/// [`Workspace::decompress`] of one block.
///
/// # Errors
/// As there.
pub fn decompress(kind: Compression, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    Workspace::default().decompress(kind, src, dst)
}

/// Decompresses the first bytes of a block of `len` bytes into the whole of `dst`. Methods that can
/// stop early (lz4) do not read the rest. The others decompress all of it into `scratch`.
///
/// # Errors
/// As [`decompress`].
pub fn decompress_front(
    kind: Compression,
    src: &[u8],
    len: usize,
    dst: &mut [u8],
    scratch: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let broken = || CodecError::Broken(kind.name());
    match kind {
        Compression::Lz4 if dst.len() < len => lz4::decompress_front(src, dst).ok_or_else(broken),
        _ if dst.len() == len => decompress(kind, src, dst),
        _ => {
            decompress(kind, src, room(scratch, len))?;
            dst.copy_from_slice(scratch.get(..dst.len()).ok_or_else(broken)?);
            Ok(())
        }
    }
}

/// Whether stored bytes would decompress into `len` bytes. `scratch` is for the methods that must
/// decompress to know.
///
/// # Errors
/// As [`decompress`].
pub fn check(
    kind: Compression,
    src: &[u8],
    len: usize,
    scratch: &mut Vec<u8>,
) -> Result<(), CodecError> {
    match kind {
        Compression::Lz4 => lz4::check(src, len).ok_or(CodecError::Broken(kind.name())),
        _ => decompress(kind, src, room(scratch, len)),
    }
}

/// The first `len` bytes of a scratch vector; only growth is zeroed.
fn room(dst: &mut Vec<u8>, len: usize) -> &mut [u8] {
    dst.resize(len, 0);
    dst
}

#[cfg(test)]
mod tests;
