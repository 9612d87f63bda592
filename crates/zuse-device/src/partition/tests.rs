use super::*;

/// An image with a table of two partitions; the second entry is unused.
fn image(sector: usize) -> Vec<u8> {
    let mut image = vec![0; 64 * sector];
    let mut entries = vec![0; 4 * 128];
    for (index, first, last) in [(0u64, 10u64, 19u64), (2, 30, 39), (3, 50, 1000)] {
        let at = index as usize * 128;
        entries[at] = 0x6a;
        entries[at + 32..at + 40].copy_from_slice(&first.to_le_bytes());
        entries[at + 40..at + 48].copy_from_slice(&last.to_le_bytes());
    }
    let mut header = vec![0; 92];
    header[..8].copy_from_slice(MAGIC);
    header[12..16].copy_from_slice(&92u32.to_le_bytes());
    header[72..80].copy_from_slice(&2u64.to_le_bytes());
    header[80..84].copy_from_slice(&4u32.to_le_bytes());
    header[84..88].copy_from_slice(&128u32.to_le_bytes());
    header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
    let sum = crc32(&header);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    image[sector..sector + 92].copy_from_slice(&header);
    image[2 * sector..2 * sector + entries.len()].copy_from_slice(&entries);
    image
}

fn found(image: &[u8]) -> Vec<Partition> {
    partitions(image.len() as u64, &|buf, at| {
        let from = at as usize;
        match image.get(from..from + buf.len()) {
            Some(part) => {
                buf.copy_from_slice(part);
                true
            }
            None => false,
        }
    })
}

#[test]
fn a_table_gives_the_partitions_that_fit() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    for sector in [512u64, 4096] {
        let part = |number, start, end| Partition {
            number,
            start: start * sector,
            size: (end - start) * sector,
        };
        // The fourth leads behind the end of the image.
        assert_eq!(
            found(&image(sector as usize)),
            [part(1, 10, 20), part(3, 30, 40)]
        );
    }
}

#[test]
fn a_damaged_table_is_none() {
    let sound = image(512);
    for at in [513, 512 + 80, 512 + 88, 1024 + 33] {
        let mut bad = sound.clone();
        bad[at] ^= 1;
        assert_eq!(found(&bad), []);
    }
    assert_eq!(found(&sound[..600]), []);
}
