//! The output of `zstream dump` (chapter 06d §10 of the format notes).

use std::fmt::Write as _;
use std::io::{Read, Write};

use zuse_format::nvlist::NvList;

use crate::error::{Flaw, StreamError, StreamResult};
use crate::nv_print;
use crate::reader::{Item, StreamReader};
use crate::record::{
    Begin, ByrefRecord, Crypt, EmbeddedRecord, HEADER, ObjectRecord, Record, SpillRecord,
    WriteRecord,
};

/// What to print.
#[derive(Clone, Copy, Debug, Default)]
pub struct DumpOptions {
    /// Each record (1), with its checksum (2).
    pub verbose: u8,
    /// Payloads in hexadecimal; means two times verbose.
    pub payloads: bool,
    /// Leave the checksums unverified.
    pub skip_checksums: bool,
}

/// Names of the records in the summary, with their type numbers, in the order of the lines.
const SUMMARY: [(&str, usize); 9] = [
    ("BEGIN", 0),
    ("END", 5),
    ("OBJECT", 1),
    ("FREEOBJECTS", 2),
    ("WRITE", 3),
    ("WRITE_BYREF", 6),
    ("WRITE_EMBEDDED", 8),
    ("FREE", 4),
    ("SPILL", 7),
];

#[derive(Default)]
struct Totals {
    records: [u64; 11],
    bytes: [u64; 11],
}

/// Prints a stream. Everything before an error is printed and summed up.
///
/// # Errors
/// An error in the stream, or the output's error.
pub fn dump(input: impl Read, options: &DumpOptions, out: &mut impl Write) -> StreamResult<()> {
    let mut reader = StreamReader::new(input);
    reader.set_verify(!options.skip_checksums);
    let mut totals = Totals::default();
    let verbose = if options.payloads { 2 } else { options.verbose };
    let mut result = Ok(());
    loop {
        let item = match reader.next_record() {
            Ok(Some(item)) => item,
            Ok(None) => break,
            Err(e) => {
                result = Err(e);
                break;
            }
        };
        let kind = number_of(&item.record);
        totals.records[kind] += 1;
        totals.bytes[kind] += item.payload.len() as u64;
        let mut text = String::new();
        describe(&item, verbose > 0, &mut text);
        let begins = matches!(item.record, Record::Begin(_));
        if options.payloads && !begins {
            hexdump(&item.payload, &mut text);
        }
        if verbose > 1 && !begins {
            let [a, b, c, d] = item.tail;
            let _ = writeln!(text, "    checksum = {a:x}/{b:x}/{c:x}/{d:x}");
        }
        put(out, &text, reader.offset())?;
        reader.recycle(item.payload);
    }
    if let Err(StreamError::Flaw {
        flaw: Flaw::Checksum { computed, .. },
        ..
    }) = &result
    {
        let [a, b, c, d] = computed;
        let text = format!(
            "Incorrect checksum in record header.\nExpected checksum = {a:x}/{b:x}/{c:x}/{d:x}\n"
        );
        put(out, &text, reader.offset())?;
    }
    put(out, &totals.text(), reader.offset())?;
    result
}

fn put(out: &mut impl Write, text: &str, offset: u64) -> StreamResult<()> {
    out.write_all(text.as_bytes())
        .map_err(|e| StreamError::io(offset, &e))
}

fn number_of(record: &Record) -> usize {
    match record {
        Record::Begin(_) => 0,
        Record::Object(_) => 1,
        Record::FreeObjects { .. } => 2,
        Record::Write(_) => 3,
        Record::Free { .. } => 4,
        Record::End { .. } => 5,
        Record::WriteByref(_) => 6,
        Record::Spill(_) => 7,
        Record::WriteEmbedded(_) => 8,
        Record::ObjectRange { .. } => 9,
        Record::Redact { .. } => 10,
    }
}

impl Totals {
    fn text(&self) -> String {
        let mut out = String::from("SUMMARY:\n");
        for (name, i) in SUMMARY {
            let _ = writeln!(
                out,
                "\tTotal DRR_{name} records = {} ({} bytes)",
                self.records[i], self.bytes[i]
            );
        }
        let records: u64 = self.records.iter().sum();
        let payload: u64 = self.bytes.iter().sum();
        let overhead = records * HEADER as u64;
        let _ = writeln!(out, "\tTotal records = {records}");
        let _ = writeln!(out, "\tTotal payload size = {payload} ({payload:#x})");
        let _ = writeln!(out, "\tTotal header overhead = {overhead} ({overhead:#x})");
        let total = payload + overhead;
        let _ = writeln!(out, "\tTotal stream length = {total} ({total:#x})");
        out
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    for b in bytes {
        let _ = write!(out, "{b:02x}");
    }
    out
}

fn crypt(c: &Crypt) -> String {
    format!(
        "salt = {} iv = {} mac = {}",
        hex(&c.salt),
        hex(&c.iv),
        hex(&c.mac)
    )
}

fn begin(b: &Begin, payload: &[u8], verbose: bool, out: &mut String) {
    let _ = writeln!(out, "BEGIN record");
    let _ = writeln!(out, "\thdrtype = {}", b.version_info & 3);
    let _ = writeln!(out, "\tfeatures = {:x}", b.features());
    let _ = writeln!(out, "\tmagic = {:x}", crate::record::MAGIC);
    let _ = writeln!(out, "\tcreation_time = {:x}", b.creation_time);
    let _ = writeln!(out, "\ttype = {}", b.objset_type);
    let _ = writeln!(out, "\tflags = 0x{:x}", b.flags);
    let _ = writeln!(out, "\ttoguid = {:x}", b.to_guid);
    let _ = writeln!(out, "\tfromguid = {:x}", b.from_guid);
    let _ = writeln!(out, "\ttoname = {}", b.to_name);
    let _ = writeln!(out, "\tpayloadlen = {}", b.payload_len);
    if verbose {
        out.push('\n');
    }
    if !payload.is_empty()
        && let Ok(list) = NvList::decode(payload)
    {
        out.push_str(&nv_print::text(&list));
    }
}

/// One record in words.
fn describe(item: &Item, verbose: bool, out: &mut String) {
    match &item.record {
        Record::Begin(b) => return begin(b, &item.payload, verbose, out),
        Record::End { checksum, .. } => {
            let [a, b, c, d] = checksum;
            let _ = writeln!(out, "END checksum = {a:x}/{b:x}/{c:x}/{d:x}");
            return;
        }
        _ if !verbose => return,
        Record::Object(o) => object(o, out),
        Record::FreeObjects { first, count, .. } => {
            let _ = write!(out, "FREEOBJECTS firstobj = {first} numobjs = {count}");
        }
        Record::Write(w) => write_record(w, item.payload.len(), out),
        Record::Free {
            object,
            offset,
            length,
            ..
        } => {
            let _ = write!(
                out,
                "FREE object = {object} offset = {offset} length = {}",
                length.cast_signed()
            );
        }
        Record::WriteByref(r) => write_byref(r, out),
        Record::Spill(s) => spill(s, item.payload.len(), out),
        Record::WriteEmbedded(e) => embedded(e, out),
        Record::ObjectRange {
            first,
            slots,
            flags,
            crypt: c,
            ..
        } => {
            let _ = write!(
                out,
                "OBJECT_RANGE firstobj = {first} numslots = {slots} flags = {flags} {}",
                crypt(c)
            );
        }
        Record::Redact {
            object,
            offset,
            length,
            ..
        } => {
            let _ = write!(
                out,
                "REDACT object = {object} offset = {offset} length = {length}"
            );
        }
    }
    out.push('\n');
}

fn object(o: &ObjectRecord, out: &mut String) {
    let _ = write!(
        out,
        "OBJECT object = {} type = {} bonustype = {} blksz = {} bonuslen = {} dn_slots = {} raw_bonuslen = {} \
                 flags = {} maxblkid = {} indblkshift = {} nlevels = {} nblkptr = {}",
        o.object,
        o.object_type,
        o.bonus_type,
        o.block_size,
        o.bonus_len,
        o.slots,
        o.raw_bonus_len,
        o.flags,
        o.max_block,
        o.indirect_shift,
        o.levels,
        o.nblkptr
    );
}

fn write_record(w: &WriteRecord, payload: usize, out: &mut String) {
    let _ = write!(
        out,
        "WRITE object = {} type = {} checksum type = {} compression type = {} flags = {} offset = {} \
                 logical_size = {} compressed_size = {} payload_size = {} props = {:x} {}",
        w.object,
        w.object_type,
        w.checksum_type,
        w.compression,
        w.flags,
        w.offset,
        w.logical_size,
        w.compressed_size,
        payload,
        w.key_prop,
        crypt(&w.crypt)
    );
}

fn write_byref(r: &ByrefRecord, out: &mut String) {
    let _ = write!(
        out,
        "WRITE_BYREF object = {} checksum type = {} props = {:x} offset = {} length = {} toguid = {:x} \
                 refguid = {:x} refobject = {} refoffset = {}",
        r.object,
        r.checksum_type,
        r.key_prop,
        r.offset,
        r.length,
        r.to_guid,
        r.ref_guid,
        r.ref_object,
        r.ref_offset
    );
}

fn spill(s: &SpillRecord, payload: usize, out: &mut String) {
    let _ = write!(
        out,
        "SPILL block for object = {} length = {} flags = {} compression type = {} compressed_size = {} \
                 payload_size = {} {}",
        s.object,
        s.length,
        s.flags,
        s.compression,
        s.compressed_size,
        payload,
        crypt(&s.crypt)
    );
}

fn embedded(e: &EmbeddedRecord, out: &mut String) {
    let _ = write!(
        out,
        "WRITE_EMBEDDED object = {} offset = {} length = {} toguid = {:x} comp = {} etype = {} lsize = {} psize = {}",
        e.object, e.offset, e.length, e.to_guid, e.compression, e.embedded_type, e.lsize, e.psize
    );
}

/// 16 bytes a row, in groups of four, with the printable ones next to them.
fn hexdump(bytes: &[u8], out: &mut String) {
    for row in bytes.chunks(16) {
        let mut ascii = String::new();
        for (i, b) in row.iter().enumerate() {
            if i > 0 && i % 4 == 0 {
                out.push(' ');
                ascii.push(' ');
            }
            let _ = write!(out, " {b:02x}");
            ascii.push(if (0x20..0x7f).contains(b) {
                char::from(*b)
            } else {
                '.'
            });
        }
        for i in row.len()..16 {
            out.push_str(if i % 4 == 0 { "    " } else { "   " });
        }
        let _ = writeln!(out, "   {ascii}");
    }
}
