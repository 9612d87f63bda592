//! XDR: i32 version, u32 flags, pairs, 8 zero bytes; every item a multiple of four bytes,
//! big-endian.
//!
//! A pair is encoded size, decoded size, name, type, element count, value. The encoded size of an
//! empty numeric array counts four bytes that do not exist. So pairs are found by parsing, and a
//! writer pads the end of the buffer by as much.

use super::{MAX_DEPTH, NvList, NvValue, native_pair_size};
use crate::error::{FormatResult, bad};
use zuse_base::cut::{fit32, low8, low16};

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> FormatResult<&'a [u8]> {
        match self.bytes.split_at_checked(count) {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(head)
            }
            None => bad("nvlist ends early"),
        }
    }

    /// XDR uses four bytes for every small number; the upper ones are ignored.
    fn low8(&mut self) -> FormatResult<u8> {
        Ok(low8(self.u32()?.into()))
    }

    fn low16(&mut self) -> FormatResult<u16> {
        Ok(low16(self.u32()?.into()))
    }

    fn u32(&mut self) -> FormatResult<u32> {
        match self.take(4)?.first_chunk() {
            Some(raw) => Ok(u32::from_be_bytes(*raw)),
            None => bad("nvlist ends early"),
        }
    }

    fn u64(&mut self) -> FormatResult<u64> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    fn padded(&mut self, len: usize) -> FormatResult<&'a [u8]> {
        let data = self.take(len)?;
        self.take(len.next_multiple_of(4) - len)?;
        Ok(data)
    }

    /// A string ends at its first NUL, as in the other encoding.
    fn string(&mut self) -> FormatResult<String> {
        let len = self.u32()? as usize;
        let raw = self.padded(len)?;
        let end = raw.iter().position(|b| *b == 0).unwrap_or(len);
        Ok(String::from_utf8_lossy(&raw[..end]).into_owned())
    }

    fn boolean(&mut self) -> FormatResult<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => bad(format!("nvlist has a boolean of {other}")),
        }
    }

    /// `count` items of at least `size` bytes each, after the count word of numeric arrays.
    fn array<T>(
        &mut self,
        count: usize,
        counted: bool,
        size: usize,
        mut item: impl FnMut(&mut Self) -> FormatResult<T>,
    ) -> FormatResult<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if counted && self.u32()? as usize != count {
            return bad("nvlist array disagrees with its count");
        }
        if count > self.bytes.len() / size {
            return bad("nvlist array is longer than the list");
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn list(&mut self, depth: usize) -> FormatResult<NvList> {
        if depth >= MAX_DEPTH {
            return bad("nvlist is nested too deeply");
        }
        let version = self.u32()?;
        if version != 0 {
            return bad(format!("nvlist has version {version}"));
        }
        let flags = self.u32()?;
        let mut pairs = Vec::new();
        loop {
            let encoded = self.u32()?;
            let decoded = self.u32()?;
            if encoded == 0 || decoded == 0 {
                return Ok(NvList { flags, pairs });
            }
            let name = super::fitting(self.string()?)?;
            let code = self.u32()?;
            let count = self.u32()? as usize;
            pairs.push((name, self.value(code, count, depth)?));
        }
    }

    fn value(&mut self, code: u32, count: usize, depth: usize) -> FormatResult<NvValue> {
        use NvValue::*;
        Ok(match code {
            1 => Boolean,
            2 => Byte(self.low8()?),
            3 => Int16(self.low16()?.cast_signed()),
            4 => Uint16(self.low16()?),
            5 => Int32(self.u32()?.cast_signed()),
            6 => Uint32(self.u32()?),
            7 => Int64(self.u64()? as i64),
            8 => Uint64(self.u64()?),
            9 => String(self.string()?),
            10 => ByteArray(self.padded(count)?.to_vec()),
            11 => Int16Array(self.array(count, true, 4, |r| Ok(r.low16()?.cast_signed()))?),
            12 => Uint16Array(self.array(count, true, 4, |r| r.low16())?),
            13 => Int32Array(self.array(count, true, 4, |r| Ok(r.u32()?.cast_signed()))?),
            14 => Uint32Array(self.array(count, true, 4, Self::u32)?),
            15 => Int64Array(self.array(count, true, 8, |r| Ok(r.u64()? as i64))?),
            16 => Uint64Array(self.array(count, true, 8, Self::u64)?),
            17 => StringArray(self.array(count, false, 4, Self::string)?),
            18 => Hrtime(self.u64()? as i64),
            19 => List(self.list(depth + 1)?),
            20 => ListArray(self.array(count, false, 16, |r| r.list(depth + 1))?),
            21 => BooleanValue(self.boolean()?),
            22 => Int8(self.low8()?.cast_signed()),
            23 => Uint8(self.low8()?),
            24 => BooleanArray(self.array(count, true, 4, Self::boolean)?),
            25 => Int8Array(self.array(count, true, 4, |r| Ok(r.low8()?.cast_signed()))?),
            26 => Uint8Array(self.array(count, true, 4, |r| r.low8())?),
            27 => Double(f64::from_bits(self.u64()?)),
            other => return bad(format!("nvlist has a value of type {other}")),
        })
    }
}

pub(super) fn decode(bytes: &[u8]) -> FormatResult<NvList> {
    Reader { bytes }.list(0)
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Bytes that encoded sizes count but that are written at the end.
    phantom: usize,
}

impl Writer<'_> {
    fn u32(&mut self, value: u32) {
        self.out.extend(value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.out.extend(value.to_be_bytes());
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.out.extend(bytes);
        self.out.resize(
            self.out.len() + bytes.len().next_multiple_of(4) - bytes.len(),
            0,
        );
    }

    fn string(&mut self, text: &str) {
        self.u32(fit32(text.len()));
        self.padded(text.as_bytes());
    }

    fn array<T: Copy>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, T)) {
        if items.is_empty() {
            self.phantom += 4;
            return;
        }
        self.u32(fit32(items.len()));
        for value in items {
            item(self, *value);
        }
    }

    fn list(&mut self, list: &NvList) {
        self.u32(0);
        self.u32(list.flags);
        for (name, value) in &list.pairs {
            let start = self.out.len();
            let phantom = self.phantom;
            self.u32(0);
            self.u32(fit32(native_pair_size(name, value)));
            self.string(name);
            self.u32(value.type_code());
            self.u32(fit32(value.element_count()));
            self.value(value);
            let size = self.out.len() - start + self.phantom - phantom;
            self.out[start..start + 4].copy_from_slice(&fit32(size).to_be_bytes());
        }
        self.u64(0);
    }

    fn value(&mut self, value: &NvValue) {
        use NvValue::*;
        match value {
            Boolean => {}
            Byte(v) | Uint8(v) => self.u32(i32::from(v.cast_signed()).cast_unsigned()),
            Int8(v) => self.u32(i32::from(*v).cast_unsigned()),
            Int16(v) => self.u32(i32::from(*v).cast_unsigned()),
            Uint16(v) => self.u32(u32::from(*v)),
            Int32(v) => self.u32(v.cast_unsigned()),
            Uint32(v) => self.u32(*v),
            Int64(v) | Hrtime(v) => self.u64(*v as u64),
            Uint64(v) => self.u64(*v),
            Double(v) => self.u64(v.to_bits()),
            BooleanValue(v) => self.u32(u32::from(*v)),
            String(v) => self.string(v),
            ByteArray(v) => self.padded(v),
            Int8Array(v) => self.array(v, |w, x| w.u32(i32::from(x).cast_unsigned())),
            Uint8Array(v) => {
                self.array(v, |w, x| w.u32(i32::from(x.cast_signed()).cast_unsigned()))
            }
            Int16Array(v) => self.array(v, |w, x| w.u32(i32::from(x).cast_unsigned())),
            Uint16Array(v) => self.array(v, |w, x| w.u32(u32::from(x))),
            Int32Array(v) => self.array(v, |w, x| w.u32(x.cast_unsigned())),
            Uint32Array(v) => self.array(v, Self::u32),
            Int64Array(v) => self.array(v, |w, x| w.u64(x as u64)),
            Uint64Array(v) => self.array(v, Self::u64),
            BooleanArray(v) => self.array(v, |w, x| w.u32(u32::from(x))),
            StringArray(v) => v.iter().for_each(|s| self.string(s)),
            List(v) => self.list(v),
            ListArray(v) => v.iter().for_each(|l| self.list(l)),
        }
    }
}

pub(super) fn encode(list: &NvList, out: &mut Vec<u8>) {
    let mut writer = Writer { out, phantom: 0 };
    writer.list(list);
    let tail = writer.phantom;
    out.resize(out.len() + tail, 0);
}
