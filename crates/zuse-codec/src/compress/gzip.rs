//! gzip-1 … gzip-9: a zlib stream (RFC 1950).

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// State of compressing (with its level) and decompressing, kept between blocks.
#[derive(Default)]
pub(super) struct Streams {
    compress: Option<(u8, Compress)>,
    decompress: Option<Decompress>,
}

/// Compresses into `dst`; None if it does not fit.
pub(super) fn compress(
    streams: &mut Streams,
    level: u8,
    src: &[u8],
    dst: &mut [u8],
) -> Option<usize> {
    let level = level.clamp(1, 9);
    let kept = &mut streams.compress;
    if kept.as_ref().is_none_or(|(l, _)| *l != level) {
        *kept = Some((level, Compress::new(Compression::new(level.into()), true)));
    }
    let (_, stream) = kept.as_mut()?;
    stream.reset();
    match stream.compress(src, dst, FlushCompress::Finish) {
        Ok(Status::StreamEnd) => usize::try_from(stream.total_out()).ok(),
        _ => {
            // A reset does not clear the state of a begun block, so the next stream would lack a
            // header (zlib-rs, level 1).
            *kept = None;
            None
        }
    }
}

/// Fills `dst`; None if the stream is broken or gives another length.
pub(super) fn decompress(streams: &mut Streams, src: &[u8], dst: &mut [u8]) -> Option<()> {
    let stream = streams
        .decompress
        .get_or_insert_with(|| Decompress::new(true));
    stream.reset(true);
    let length = dst.len() as u64;
    match stream.decompress(src, dst, FlushDecompress::Finish) {
        Ok(Status::StreamEnd) if stream.total_out() == length => Some(()),
        _ => None,
    }
}
