//! The pool's history: a ring of packed lists in the MOS.
//!
//! Chapter 04a §4 of the format notes: records up to the first command are never overwritten, the
//! rest is a ring.

use zuse_base::{Event, ObjectId, Result};
use zuse_dmu::DnodeSpec;
use zuse_format::dsl::HistoryPhys;
use zuse_format::nvlist::{NvEncoding, NvList};
use zuse_format::object_type as ot;

use crate::context::{Ctx, Dsl};
use crate::meta::DIRECTORY;
use crate::version::VERSION_HISTORY;

const BLOCK: u32 = 128 * 1024;
const KEY: &str = "history";
/// Records that wait in memory, at most.
const WAITING: usize = 4096;
/// Records that are written together.
const AT_ONCE: usize = 256;
/// The zone that OpenZFS on Linux records for a command.
const ZONE: &str = "linux";

impl Dsl {
    /// Records a command line.
    ///
    /// # Errors
    /// `Refused(ROFS)`; the MOS cannot be changed.
    pub fn log_command(&self, command: &str, uid: u64, host: &str) -> Result<()> {
        let (command, host) = (command.to_owned(), host.to_owned());
        self.task(
            |_| Ok(()),
            move |ctx| {
                let mut record = NvList::new();
                record
                    .insert("history command", command)
                    .insert("history who", uid)
                    .insert("history zone", ZONE.to_owned());
                if !host.is_empty() {
                    record.insert("history hostname", host);
                }
                // Events that were noted before come before the command.
                ctx.write_history()?;
                if ctx.meta.version() < VERSION_HISTORY {
                    return Ok(());
                }
                ctx.append_history(&ctx.history_record(record), true)
            },
        )
    }

    /// All records, oldest first.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn history(&self) -> Result<Vec<NvList>> {
        let meta = self.meta()?;
        let Some(object) = meta.directory()?.get_u64(KEY)? else {
            return Ok(Vec::new());
        };
        let dnode = meta.dnode(object)?;
        let phys = dnode
            .with_bonus(HistoryPhys::parse)
            .map_err(|e| e.at(dnode.place().to_string()))?;
        let mut out = Vec::new();
        let read = |at: u64, n: u64| -> Result<Vec<u8>> {
            let mut bytes = Vec::new();
            for (from, len) in pieces(&phys, at, n) {
                let start = bytes.len();
                bytes.resize(start + len as usize, 0);
                dnode.read_at(from, &mut bytes[start..])?;
            }
            Ok(bytes)
        };
        for (from, to) in [(0, phys.create_len), (phys.bof, phys.eof)] {
            let mut at = from;
            while at + 8 <= to {
                let n = u64::from_le_bytes(read(at, 8)?.try_into().unwrap_or_default());
                // A damaged length ends the log, and must not become an allocation.
                if n == 0 || n > to - at - 8 || n > 16 << 20 {
                    break;
                }
                if let Ok(record) = NvList::decode(&read(at + 8, n)?) {
                    out.push(record);
                }
                at += 8 + n;
            }
        }
        Ok(out)
    }
}

/// Physical ranges of a logical range of the log.
fn pieces(phys: &HistoryPhys, at: u64, n: u64) -> Vec<(u64, u64)> {
    if at + n <= phys.create_len {
        return vec![(at, n)];
    }
    let ring = phys.phys_max_offset.saturating_sub(phys.create_len).max(1);
    let from = at.saturating_sub(phys.create_len) % ring + phys.create_len;
    let first = n.min((phys.phys_max_offset.max(from)) - from);
    let mut out = vec![(from, first)];
    if n > first {
        out.push((phys.create_len, n - first));
    }
    out
}

impl Ctx<'_> {
    /// Makes the log.
    pub(crate) fn create_history(&self) -> Result<u64> {
        let spec = DnodeSpec::new(ot::SPA_HISTORY)
            .block_size(BLOCK)
            .bonus(ot::SPA_HISTORY_OFFSETS, HistoryPhys::SIZE as u16);
        let dnode = self.meta.mos.allocate(self.tx, &spec)?;
        // A thousandth of the pool, as OpenZFS takes it.
        let size = (self.spa.space().capacity / 1000).clamp(u64::from(BLOCK), 1 << 30);
        let phys = HistoryPhys {
            phys_max_offset: size,
            ..HistoryPhys::default()
        };
        dnode.edit_bonus(self.tx, |b| phys.write_le(b))?;
        self.meta
            .table(DIRECTORY)?
            .put_u64(self.tx, KEY, dnode.object().0)?;
        Ok(dnode.object().0)
    }

    /// Records an event of a dataset.
    pub(crate) fn log(&self, event: &str, ds: u64, text: &str) -> Result<()> {
        let name = self.dsl.ds_name(ds).unwrap_or_default();
        self.log_named(event, &name, ds, text)
    }

    /// Records an event of the pool.
    pub(crate) fn log_pool(&self, event: &str, text: &str) -> Result<()> {
        let mut record = NvList::new();
        record
            .insert("internal_name", event.to_owned())
            .insert("history internal str", text.to_owned())
            .insert("history txg", self.txg);
        let bytes = self.history_record(record);
        self.dsl.pending.history.lock().push(bytes);
        Ok(())
    }

    /// As [`Self::log`], for a dataset whose name is known.
    pub(crate) fn log_named(&self, event: &str, name: &str, ds: u64, text: &str) -> Result<()> {
        let mut record = NvList::new();
        // An event without a text has a blank.
        let text = if text.is_empty() { " " } else { text };
        record
            .insert("internal_name", event.to_owned())
            .insert("history internal str", text.to_owned());
        record
            .insert("history txg", self.txg)
            .insert("dsname", name.to_owned())
            .insert("dsid", ds);
        let bytes = self.history_record(record);
        let full = {
            let mut waiting = self.dsl.pending.history.lock();
            waiting.push(bytes);
            waiting.len() >= WAITING
        };
        if full { self.write_history() } else { Ok(()) }
    }

    /// A record in its stored form, preceded by its length.
    fn history_record(&self, mut record: NvList) -> Vec<u8> {
        record.insert("history time", self.spa.now().0);
        let host = &self.spa.0.host().name;
        if !host.is_empty() && !record.contains("history hostname") {
            record.insert("history hostname", host.clone());
        }
        let body = record.encode(NvEncoding::Native);
        let mut bytes = (body.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Writes the noted records. Called at the end of every operation that may note some, in the
    /// same txg.
    pub(crate) fn write_history(&self) -> Result<()> {
        let waiting = std::mem::take(&mut *self.dsl.pending.history.lock());
        for record in &waiting {
            self.post_event(record);
        }
        if self.meta.version() < VERSION_HISTORY {
            return Ok(());
        }
        for some in waiting.chunks(AT_ONCE) {
            let together = some.concat();
            if some.len() > 1 && self.history_room()? > together.len() as u64 {
                self.append_history(&together, false)?;
            } else {
                some.iter()
                    .try_for_each(|one| self.append_history(one, false))?;
            }
        }
        Ok(())
    }

    /// Posts a record as an event; from now on it can only be reverted with the whole txg.
    fn post_event(&self, record: &[u8]) {
        let Some(Ok(record)) = record.get(8..).map(NvList::decode) else {
            return;
        };
        let mut event = Event::system("history_event");
        for (to, from) in [
            ("history_hostname", "history hostname"),
            ("history_dsname", "dsname"),
            ("history_internal_str", "history internal str"),
            ("history_internal_name", "internal_name"),
        ] {
            if let Some(text) = record.get_str(from) {
                event = event.text(to, text);
            }
        }
        for (to, from) in [
            ("history_dsid", "dsid"),
            ("history_txg", "history txg"),
            ("history_time", "history time"),
        ] {
            if let Some(number) = record.get_u64(from) {
                event = event.number(to, number);
            }
        }
        self.spa.0.events().post(event);
    }

    fn history_object(&self) -> Result<(std::sync::Arc<zuse_dmu::Dnode>, HistoryPhys)> {
        let object = match self.meta.directory()?.get_u64(KEY)? {
            Some(object) => object,
            None => self.create_history()?,
        };
        let dnode = self.meta.mos.dnode(ObjectId(object))?;
        let mut phys = dnode
            .with_bonus(HistoryPhys::parse)
            .map_err(|e| e.at(dnode.place().to_string()))?;
        let ring = phys.phys_max_offset.saturating_sub(phys.create_len);
        if phys.eof > 1 << 62 || phys.eof.checked_sub(phys.bof).is_none_or(|n| n > ring) {
            // A damaged ring loses its records, but does not stop the pool.
            phys.eof = phys.create_len;
            phys.bof = phys.create_len;
        }
        Ok((dnode, phys))
    }

    /// Bytes that can be written without overwriting old records.
    fn history_room(&self) -> Result<u64> {
        let (_, phys) = self.history_object()?;
        let ring = phys.phys_max_offset.saturating_sub(phys.create_len);
        Ok(ring.saturating_sub(phys.eof.saturating_sub(phys.bof)))
    }

    /// Writes one record, or several that fit.
    fn append_history(&self, bytes: &[u8], command: bool) -> Result<()> {
        let (dnode, mut phys) = self.history_object()?;
        let n = bytes.len() as u64;
        if n >= phys.phys_max_offset.saturating_sub(phys.create_len) {
            return Ok(());
        }
        let ring = phys.phys_max_offset.saturating_sub(phys.create_len);
        while ring.saturating_sub(phys.eof.saturating_sub(phys.bof)) <= n {
            let mut len = [0; 8];
            let mut done = 0;
            for (from, take) in pieces(&phys, phys.bof, 8) {
                dnode.read_at(from, &mut len[done..done + take as usize])?;
                done += take as usize;
            }
            let skip = 8u64.saturating_add(u64::from_le_bytes(len));
            // A damaged length would lead past the end.
            if phys.bof.saturating_add(skip) > phys.eof {
                phys.bof = phys.eof;
            } else {
                phys.bof += skip;
            }
            phys.records_lost = phys.records_lost.saturating_add(1);
        }
        let mut done = 0;
        for (from, take) in pieces(&phys, phys.eof, n) {
            dnode.write_at(self.tx, from, &bytes[done..done + take as usize])?;
            done += take as usize;
        }
        phys.eof += n;
        // What made the pool is kept forever: the ring begins behind it (04a-dsl-props).
        if command && phys.create_len == 0 {
            phys.create_len = phys.eof;
            phys.bof = phys.eof;
        }
        dnode.edit_bonus(self.tx, |b| phys.write_le(b))
    }
}
