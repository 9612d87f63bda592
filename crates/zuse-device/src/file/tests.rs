use super::*;
use crate::block_device::AROUND;
use std::os::unix::fs::MetadataExt;

fn new(dir: &tempfile::TempDir, size: u64) -> FileDevice {
    FileDevice::create(dir.path().join("disk"), size).unwrap()
}

#[test]
fn bytes_survive_closing_and_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let device = new(&dir, 1 << 20);
    assert_eq!(
        (device.size(), device.sector_shift(), device.read_only()),
        (1 << 20, 9, false)
    );
    device.write_at(b"hello", 1000).unwrap();
    let parts: Vec<Vec<u8>> = (0..1500u32)
        .map(|n| vec![n as u8; 1 + n as usize % 7])
        .collect();
    let slices: Vec<_> = parts.iter().map(|p| IoSlice::new(p)).collect();
    device.write_vectored_at(&slices, 5000).unwrap();
    device.start_writeback(0, 10_000);
    device.flush().unwrap();
    drop(device);

    let device = FileDevice::open(dir.path().join("disk"), Access::Read).unwrap();
    let mut buf = [0; 5];
    device.read_at(&mut buf, 1000).unwrap();
    assert_eq!(&buf, b"hello");
    let mut back: Vec<Vec<u8>> = parts.iter().map(|p| vec![0; p.len()]).collect();
    let mut slices: Vec<_> = back.iter_mut().map(|p| IoSliceMut::new(p)).collect();
    device.read_vectored_at(&mut slices, 5000).unwrap();
    assert_eq!(back, parts);
    let error = device.write_at(&buf, 0).unwrap_err();
    assert_eq!((error.cause, error.errno), (Cause::ReadOnly, Errno::ROFS));
}

#[test]
fn a_writer_excludes_writers_and_readers_but_not_a_probe() {
    let dir = tempfile::tempdir().unwrap();
    let writer = new(&dir, 4096);
    let path = dir.path().join("disk");
    for access in [Access::Write, Access::Read] {
        let error = FileDevice::open(&path, access).unwrap_err();
        assert!(error.is_held(), "{error}");
        let holder = crate::lock_holder(&path).map(|(pid, _)| pid);
        // On overlays the table has other inode numbers, so no process is found.
        assert!(holder.is_none_or(|pid| pid == std::process::id()));
        assert!(zuse_base::Error::from(error).is(Errno::BUSY));
    }
    FileDevice::open(&path, Access::Probe)
        .unwrap()
        .read_at(&mut [0; 10], 0)
        .unwrap();
    drop(writer);
    FileDevice::open(&path, Access::Write).unwrap();
}

#[test]
fn readers_coexist_and_keep_writers_out() {
    let dir = tempfile::tempdir().unwrap();
    drop(new(&dir, 4096));
    let path = dir.path().join("disk");
    let readers =
        [Access::Read, Access::Read, Access::Probe].map(|a| FileDevice::open(&path, a).unwrap());
    assert!(
        FileDevice::open(&path, Access::Write)
            .unwrap_err()
            .is_held()
    );
    drop(readers);
    let probe = FileDevice::open(&path, Access::Probe).unwrap();
    FileDevice::open(&path, Access::Write).unwrap();
    assert!(probe.read_only());
}

#[test]
fn a_discard_gives_space_back_to_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let device = new(&dir, 1 << 20);
    device.write_at(&vec![1; 1 << 20], 0).unwrap();
    device.flush().unwrap();
    let blocks = || std::fs::metadata(dir.path().join("disk")).unwrap().blocks();
    let before = blocks();
    if device.discard(65536, 1 << 19).unwrap() {
        assert!(blocks() < before);
        let mut buf = vec![9; 1 << 19];
        device.read_at(&mut buf, 65536).unwrap();
        assert!(buf.iter().all(|&b| b == 0));
    }
    assert_eq!(device.size(), 1 << 20);
}

#[test]
fn the_end_of_the_file_is_guarded_and_moves_with_a_resize() {
    let dir = tempfile::tempdir().unwrap();
    let device = new(&dir, 1000);
    let error = device.write_at(&[1; 10], 995).unwrap_err();
    assert_eq!(
        (error.cause, error.offset, error.len),
        (Cause::OutOfRange, 995, 10)
    );
    device.resize(2000).unwrap();
    device.write_at(&[1; 10], 995).unwrap();
    // Another process truncates the file: an error, not zeroes.
    std::fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join("disk"))
        .unwrap()
        .set_len(500)
        .unwrap();
    let error = device.read_at(&mut [0; 10], 495).unwrap_err();
    assert_eq!((error.cause, error.errno), (Cause::Host, Errno::IO));
    assert_eq!(device.refresh_size().unwrap(), 500);
}

#[test]
fn a_failed_flush_is_remembered_until_the_loss_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let device = new(&dir, 1000);
    device.lost.store(Errno::NOSPC.0, Ordering::Relaxed);
    for _ in 0..2 {
        let error = device.flush().unwrap_err();
        assert_eq!(
            (error.cause, error.errno),
            (Cause::LostWrites, Errno::NOSPC)
        );
    }
    device.accept_lost_writes();
    device.flush().unwrap();
}

#[test]
fn what_is_no_device_is_refused_with_its_number() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        FileDevice::open(dir.path(), Access::Read)
            .unwrap_err()
            .cause,
        Cause::WrongKind
    );
    assert_eq!(
        FileDevice::open(dir.path().join("none"), Access::Read)
            .unwrap_err()
            .errno,
        Errno::NOENT
    );
    assert_eq!(
        FileDevice::open("/dev/null", Access::Write)
            .unwrap_err()
            .cause,
        Cause::WrongKind
    );
    let _device = new(&dir, 10);
    assert_eq!(
        FileDevice::create(dir.path().join("disk"), 10)
            .unwrap_err()
            .errno,
        Errno::EXIST
    );
}

#[test]
fn what_will_be_read_may_be_anything() {
    let dir = tempfile::tempdir().unwrap();
    let device = new(&dir, 1 << 20);
    device.write_at(b"zuse", 4096).unwrap();
    for (offset, len) in [
        (0, 0),
        (4096, 4),
        (0, u64::MAX),
        (u64::MAX, 1),
        (1 << 40, 7),
    ] {
        device.will_read(offset, len);
    }
    let mut bytes = [0; 4];
    device.read_at(&mut bytes, 4096).unwrap();
    assert_eq!(&bytes, b"zuse");
}

/// `len` bytes whose memory has the same alignment as offset `at`, with different content in each
/// page.
fn as_in_pages(buffer: &mut Vec<u8>, at: u64, len: usize) -> &[u8] {
    buffer.clear();
    buffer.reserve(len + PAGE);
    let lead = (at as usize).wrapping_sub(buffer.as_ptr().addr()) % PAGE;
    buffer.resize(lead, 0);
    buffer.extend((0..len).map(|n| (at as usize + n + n / PAGE) as u8));
    &buffer[lead..]
}

#[test]
fn large_writes_arrive_whole_however_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    let size = 4 << 20;
    let device = new(&dir, size);
    let mut model = vec![0u8; size as usize];
    let mut buffer = Vec::new();
    let large = AROUND + 8 * PAGE;
    let cases = [
        (0, large),
        (PAGE as u64, AROUND),
        (512, large),
        (large as u64 + 1536, AROUND + 512),
        (100, large + 7),
        (2 << 20, 3 * AROUND),
        ((2 << 20) - 1, AROUND + 2),
        (size - AROUND as u64, AROUND),
        // Too short: what was written directly is written again through the cache.
        (0, AROUND - 1),
        (3 * PAGE as u64, PAGE),
    ];
    for (at, len) in cases {
        let bytes = as_in_pages(&mut buffer, at, len);
        device.write_at(bytes, at).unwrap();
        model[at as usize..][..len].copy_from_slice(bytes);
        // Memory with another alignment.
        let shifted: Vec<u8> = bytes.iter().map(|b| b ^ 0x55).collect();
        let room = 1 + at / 2;
        device.write_at(&shifted[1..], room).unwrap();
        model[room as usize..][..len - 1].copy_from_slice(&shifted[1..]);
        let mut back = vec![0; model.len()];
        device.read_at(&mut back, 0).unwrap();
        assert!(back == model, "{len} bytes at {at}");
    }
    device.flush().unwrap();
    drop(device);
    assert!(std::fs::read(dir.path().join("disk")).unwrap() == model);
}

#[test]
fn a_large_write_goes_around_the_cache_where_the_host_can() {
    let dir = tempfile::tempdir().unwrap();
    let device = new(&dir, 1 << 20);
    if !device.bypasses_cache() {
        eprintln!(
            "not looked at: the host of {} says nothing of direct I/O",
            dir.path().display()
        );
        return;
    }
    let mut buffer = Vec::new();
    let at = 512;
    device
        .write_at(as_in_pages(&mut buffer, at, 2 * AROUND), at)
        .unwrap();
    let Some(pages) = around::cached(&device.file, AROUND as u64, AROUND as u64) else {
        eprintln!("not looked at: the host does not say what its cache holds");
        return;
    };
    assert_eq!(pages, 0);
    // The cache has the bytes.
    let at = 3 * AROUND as u64;
    device
        .write_at(as_in_pages(&mut buffer, at, AROUND - PAGE), at)
        .unwrap();
    assert_eq!(around::cached(&device.file, at, PAGE as u64), Some(1));
}

#[test]
fn the_host_begins_with_what_it_has_before_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let device = new(&dir, 4 * BEGIN);
    let changed =
        || around::counts(&device.file, 0, 4 * BEGIN).map(|counts| counts[1] * PAGE as u64);
    let piece = vec![7; 64 << 10];
    let pieces = BEGIN / piece.len() as u64;
    let slices = [IoSlice::new(&piece)];
    for n in 0..pieces - 1 {
        // Half of the writes use each call. None has the alignment of a page in memory.
        let at = 512 + n * piece.len() as u64;
        if n % 2 == 0 {
            device.write_at(&piece, at).unwrap();
        } else {
            device.write_vectored_at(&slices, at).unwrap();
        }
    }
    let before = changed();
    assert_eq!(
        device.waiting.load(Ordering::Relaxed),
        BEGIN - piece.len() as u64
    );
    device.write_at(&piece, 2 * BEGIN + 512).unwrap();
    assert_eq!(device.waiting.load(Ordering::Relaxed), 0);
    // Without a disk behind the file the host has nothing to write back.
    if let (Some(before), Some(now)) = (before, changed())
        && !is_memory(&dir)
    {
        assert!(
            now == 0 || now < before,
            "{now} of {before} bytes are only in the cache"
        );
    }
    device.write_at(&piece, 512).unwrap();
    device.flush().unwrap();
    assert_eq!(
        device.waiting.load(Ordering::Relaxed),
        0,
        "nothing waits after a flush"
    );
}

/// Whether a directory lies in memory only.
fn is_memory(dir: &tempfile::TempDir) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    rustix::fs::statfs(dir.path()).is_ok_and(|s| s.f_type == TMPFS.into())
}

/// A file of `size` distinct bytes, and the same bytes in memory.
fn full(dir: &tempfile::TempDir, size: usize) -> (FileDevice, Vec<u8>) {
    let device = new(dir, size as u64);
    let bytes: Vec<u8> = (0..size).map(|n| (n / 3 + n / PAGE) as u8).collect();
    device.write_at(&bytes, 0).unwrap();
    device.flush().unwrap();
    (device, bytes)
}

/// Makes the host drop its cached pages of a file.
fn forget(device: &FileDevice) {
    rustix::fs::fadvise(&device.file, 0, None, Advice::DontNeed).unwrap();
}

#[test]
fn ranges_are_read_apart_as_they_are_whether_the_host_has_them_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let (device, bytes) = full(&dir, 2 << 20);
    let sectors = [0..4096, 4096..65_536, 100_352..400_384];
    let anywhere = [1..4000, 4100..65_000];
    for (parts, offset) in [(&sectors[..], 512), (&sectors, 3), (&anywhere, 1 << 20)] {
        for is_there in [true, false] {
            if !is_there {
                forget(&device);
            }
            let read = device.read_apart(parts, offset).expect("all of them");
            for (part, fresh) in parts.iter().zip(&read) {
                let from = offset as usize + part.start;
                assert!(**fresh == bytes[from..from + part.len()], "{part:?}");
            }
        }
    }
    for offset in [(2 << 20) - 512, u64::MAX - 512] {
        assert!(device.read_apart(&sectors, offset).is_none(), "{offset}");
    }
    assert!(device.read_apart(&[], 0).is_none());
}

#[test]
fn a_read_apart_goes_around_the_cache_unless_the_bytes_are_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (device, bytes) = full(&dir, 24 << 20);
    let parts = [0..1 << 19, 1 << 19..1 << 20];
    let cached = |at: u64, len: u64| around::cached(&device.file, at, len);
    let read = |at: u64| {
        let read = device.read_apart(&parts, at).expect("read");
        assert!(*read[1] == bytes[at as usize..][parts[1].clone()]);
        read
    };
    if !device.bypasses_cache() || cached(0, 24 << 20).is_none() {
        let why = "has no direct I/O, or does not say what is in its cache";
        assert!(std::env::var_os("CI").is_none(), "the host {why}");
        eprintln!("not looked at: the host of {} {why}", dir.path().display());
        return;
    }
    let has_little = |at| around::has_little(&device.file, at, &parts);
    forget(&device);
    let all = read(512);
    assert_eq!(cached(0, 24 << 20), Some(0));
    assert!(
        all.iter()
            .all(|part| part.as_ptr().addr().is_multiple_of(PAGE))
    );
    // The cache holds hardly more than the read-ahead of a sequential reader. The next reads must
    // not use the cache for that.
    let mut some = vec![0; 2 << 20];
    device.read_at(&mut some, 0).unwrap();
    let before = cached(0, 24 << 20);
    assert!(before > Some(0) && has_little(0), "{before:?}");
    read(0);
    assert_eq!(cached(0, 24 << 20), before);
    // The cache has all of it.
    some.resize(24 << 20, 0);
    device.read_at(&mut some, 0).unwrap();
    assert!(!has_little(0) && !has_little(1 << 20));
    read(1 << 20);
}

#[test]
fn what_the_host_says_of_a_direct_write_is_the_writes_error() {
    // A device that is always full.
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let around = around::Around::over(full);
    let mut buffer = Vec::new();
    let bytes = as_in_pages(&mut buffer, 0, AROUND);
    let error = around.write(&tempfile::tempfile().unwrap(), bytes, 0);
    assert_eq!(error.unwrap_err().raw_os_error(), Some(Errno::NOSPC.0));
}
