//! Send streams. Their checksums are recomputed before they are received: a mutation would
//! otherwise end at the first record.

use zuse::stream::{DumpOptions, StreamReader, StreamWriter, dump, unpack_token};
use zuse::tools::Layers as _;
use zuse::{ListedKinds, ReceiveRequest};

use crate::memory_pool::{memory_pool, narrow};

/// Most bytes of a stream that are received.
const LONGEST: usize = 1 << 20;

/// Records and what `zstream dump` says of them; tokens.
pub(super) fn parse(bytes: &[u8]) {
    let mut reader = StreamReader::new(bytes);
    reader.set_verify(false);
    while let Ok(Some(item)) = reader.next_record() {
        reader.recycle(item.payload);
    }
    let options = DumpOptions {
        payloads: true,
        skip_checksums: true,
        ..DumpOptions::default()
    };
    let _ = dump(bytes, &options, &mut std::io::sink());
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = unpack_token(text);
    }
}

/// The same records with checksums that fit.
fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut reader = StreamReader::new(bytes);
    reader.set_verify(false);
    let mut out = Vec::new();
    let mut writer = StreamWriter::new(&mut out);
    while let Ok(Some(item)) = reader.next_record() {
        use zuse::stream::record::Record;
        match &item.record {
            Record::End { to_guid, .. } => writer.end(*to_guid).ok()?,
            record => writer.record(record, &item.payload).ok()?,
        }
    }
    writer.flush().ok()?;
    drop(writer);
    Some(out)
}

/// Receives a stream into a new pool.
pub(super) fn receive(bytes: &[u8]) {
    let Some(stream) = sealed(&bytes[..bytes.len().min(LONGEST)]) else {
        return;
    };
    if stream.is_empty() {
        return;
    }
    let pool = memory_pool("tank", 96 << 20, 9, narrow(16 << 20));
    let (pool, _) = pool.expect("a new pool in memory");
    let request = ReceiveRequest {
        target: "tank/new".into(),
        force: true,
        salvage: true,
        ..ReceiveRequest::default()
    };
    let _ = pool.receive(&stream[..], &request, &mut |_| {});
    // After any input every dataset can be read or returns an error, and the pool is consistent.
    for item in pool
        .list("tank", None, ListedKinds::WITH_SNAPSHOTS)
        .unwrap_or_default()
    {
        let _ = crate::manifests::of_dataset(&pool, &item.name);
    }
    let _ = pool.sync();
    let report = zuse_check::check(pool.spa(), zuse_check::Depth::Metadata);
    if let Ok(report) = report {
        let ours = report.not_of_contents();
        assert!(ours.is_empty(), "{ours:#?}");
    }
    let _ = pool.close();
}
