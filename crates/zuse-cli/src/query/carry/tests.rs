use super::*;

fn cell(value: Option<&str>, source: &str) -> Cell {
    Cell {
        value: value.map(|v| v.to_owned().into()),
        source: source.to_owned().into(),
        received: (source == "received").then(|| "r\n\"é".into()),
    }
}

fn question(properties: Option<Vec<String>>) -> Question {
    Question::Datasets {
        root: "tank".into(),
        depth: None,
        filesystems: false,
        volumes: false,
        snapshots: true,
        bookmarks: false,
        received: true,
        properties,
    }
}

/// Gives a text piece by piece.
struct Pieces<'a>(std::slice::Chunks<'a, u8>);

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let next = self.0.next().unwrap_or_default();
        into[..next.len()].copy_from_slice(next);
        Ok(next.len())
    }
}

#[test]
fn rows_come_over_as_they_were_in_whatever_pieces() {
    let names = ["used", "a:b", "origin"];
    let row = |i: usize| DatasetRow {
        name: format!("tank/\u{e9} \"{i}@s"),
        kind: if i < 40 { "snapshot" } else { "volume" }.into(),
        create_txg: i as u64,
        cells: vec![
            (names[0].into(), Some(cell(Some("0"), "-"))),
            (
                names[1].into(),
                Some(cell(Some("x\ny"), "inherited from t")),
            ),
            (
                names[2].into(),
                i.is_multiple_of(2).then(|| cell(None, "received")),
            ),
        ],
    };
    let rows: Vec<DatasetRow> = (0..50).map(row).collect();
    for asked in [None, Some(names.map(str::to_owned).to_vec())] {
        let mut text = Vec::new();
        for row in &rows {
            put_line(row, asked.is_none(), &mut text).expect("text");
        }
        for piece in [1, 7, 100, text.len()] {
            let come = Incoming::of(&question(asked.clone()))
                .read(Pieces(text.chunks(piece)))
                .expect("read")
                .expect("understood");
            assert_eq!(format!("{:?}", come.rows), format!("{rows:?}"));
        }
    }
}

#[test]
fn what_is_not_understood_is_read_to_its_end() {
    let mut from: &[u8] = b"[1, 2]\n[3]\n";
    let come = Incoming::of(&question(None)).read(&mut from).expect("read");
    assert!(come.is_err() && from.is_empty());
}
