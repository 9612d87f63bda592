//! zstd: an 8-byte header, then one magicless frame without content size and checksum.
//!
//! | at | bytes | content |
//! |---|---|---|
//! | 0 | 4 | length of the frame, big-endian |
//! | 4 | 1 | level ([`ZstdLevel`]) |
//! | 5 | 3 | library version, big-endian; ignored |
//!
//! Early big-endian writers stored version and level in other byte orders. A version is below
//! 65536, so the position of its zero byte shows where the level is.

use super::{Workspace, ZstdLevel, lz4};
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

const HEADER: usize = 8;

/// Version 1.4.5: what every writer stores.
const VERSION: [u8; 3] = [0x00, 0x28, 0xa5];

/// From this level on a cheaper method is tried first, to see whether the block is compressible at
/// all.
const PROBE_LEVEL: i32 = 3;
const PROBE_SIZE: usize = 128 << 10;

struct Compressor {
    ctx: CCtx<'static>,
    level: i32,
}

impl Compressor {
    fn new() -> Option<Self> {
        let mut ctx = CCtx::try_create()?;
        ctx.set_parameter(CParameter::Format(FrameFormat::Magicless))
            .ok()?;
        ctx.set_parameter(CParameter::ContentSizeFlag(false)).ok()?;
        ctx.set_parameter(CParameter::ChecksumFlag(false)).ok()?;
        Some(Self { ctx, level: 0 })
    }

    fn run(&mut self, level: i32, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        if self.level != level {
            self.ctx
                .set_parameter(CParameter::CompressionLevel(level))
                .ok()?;
            self.level = level;
        }
        self.ctx.compress2(dst, src).ok()
    }
}

fn decompressor() -> Option<DCtx<'static>> {
    let mut ctx = DCtx::try_create()?;
    ctx.set_parameter(DParameter::Format(FrameFormat::Magicless))
        .ok()?;
    Some(ctx)
}

/// Contexts for compressing and decompressing, kept between blocks.
#[derive(Default)]
pub(super) struct Contexts {
    compressor: Option<Compressor>,
    decompressor: Option<DCtx<'static>>,
}

/// The kept value, made on first use and after a failure to make it.
fn kept<T>(slot: &mut Option<T>, make: impl FnOnce() -> Option<T>) -> Option<&mut T> {
    if slot.is_none() {
        *slot = make();
    }
    slot.as_mut()
}

/// Whether a slow level is worth its time: lz4 or zstd-1 would already gain. `dst` is scratch.
pub(super) fn is_worth_trying(
    workspace: &mut Workspace,
    level: ZstdLevel,
    src: &[u8],
    dst: &mut Vec<u8>,
    max_dst: usize,
) -> bool {
    if level.to_library() < PROBE_LEVEL || src.len() < PROBE_SIZE {
        return true;
    }
    lz4::compress(&mut workspace.lz4, src, dst, max_dst).is_some()
        || ZstdLevel::from_library(1).is_some_and(|fast| {
            compress(&mut workspace.zstd, fast, src, super::room(dst, max_dst)).is_some()
        })
}

/// Compresses into `dst`; None if it does not fit.
pub(super) fn compress(
    contexts: &mut Contexts,
    level: ZstdLevel,
    src: &[u8],
    dst: &mut [u8],
) -> Option<usize> {
    let (header, body) = dst.split_first_chunk_mut::<HEADER>()?;
    let length =
        kept(&mut contexts.compressor, Compressor::new)?.run(level.to_library(), src, body)?;
    let [a, b, c, d] = u32::try_from(length).ok()?.to_be_bytes();
    let [v0, v1, v2] = VERSION;
    *header = [a, b, c, d, level.to_disk(), v0, v1, v2];
    Some(HEADER + length)
}

/// The level number in the header's second half, in any of the orders that exist.
fn level(stored: [u8; 4]) -> Option<ZstdLevel> {
    let [x0, x1, x2, x3] = stored;
    let number = if x1 == 0 {
        x0
    } else if x0 == 0 {
        x3
    } else if x3 == 0 {
        x0
    } else if x2 == 0 {
        x3
    } else {
        return None;
    };
    ZstdLevel::from_disk(number)
}

/// Fills `dst`; None if the stream is broken or gives another length.
pub(super) fn decompress(contexts: &mut Contexts, src: &[u8], dst: &mut [u8]) -> Option<()> {
    let (header, body) = src.split_first_chunk::<HEADER>()?;
    let [a, b, c, d, tail @ ..] = *header;
    // Not needed to decode, but a level that does not exist shows a damaged header.
    level(tail)?;
    let frame = body.get(..usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?)?;
    let length = dst.len();
    let written = kept(&mut contexts.decompressor, decompressor)?
        .decompress(dst, frame)
        .ok()?;
    (written == length).then_some(())
}
