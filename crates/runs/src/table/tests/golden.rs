//! The golden files: `testdata/table-v1.txt` says what is in them, `table-v1.glint` and `table-v1-lz4.glint` are tables that hold it. `testdata/read_table.py`, written
//! from `docs/format/table.md` alone, reads them too.
//!
//! A change that makes these tests fail changes the format: it needs a new version, and these files stay.

use super::*;
use std::path::{Path, PathBuf};
use std::process::Command;

const TEXT: &str = include_str!("../../../testdata/table-v1.txt");
const NUMBER: u64 = 0x2a;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name)
}

fn unhex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Lines: `key seqno inline|pointer|tombstone …` and `range start end|- seqno`, keys and values in hexadecimal behind an `x`.
fn parse(text: &str) -> (Model, Vec<RangeTombstone>) {
    let mut model = Model::new();
    let mut tombstones = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let bytes = |field: usize| unhex(fields[field].strip_prefix('x').unwrap());
        let number = |field: usize| fields[field].parse::<u64>().unwrap();
        if fields[0] == "range" {
            let end = (fields[2] != "-").then(|| bytes(2));
            tombstones.push(tombstone(&bytes(1), end.as_deref(), number(3)));
            continue;
        }
        let value = match fields[2] {
            "inline" => inline(&bytes(3)),
            "pointer" => EntryValue::Pointer(ValuePointer {
                segment: SegmentId(number(3)),
                offset: number(4) as u32,
                length: number(5) as u32,
                checksum: number(6) as u32,
            }),
            "tombstone" => EntryValue::Tombstone,
            other => panic!("{other}"),
        };
        model.insert(bytes(0), (SeqNum(number(1)), value));
    }
    (model, tombstones)
}

fn configs() -> [(&'static str, TableConfig); 2] {
    let small = TableConfig {
        restart_interval: 4,
        ..TableConfig::default()
    };
    let lz4 = TableConfig {
        compression: Compression::Lz4,
        ..small.clone()
    };
    [("table-v1.glint", small), ("table-v1-lz4.glint", lz4)]
}

/// What is written today. With `GLINTDB_BLESS` set it becomes the golden file, to be committed with a new version only.
fn written(name: &str, config: &TableConfig) -> Vec<u8> {
    let (model, tombstones) = parse(TEXT);
    let (volume, env) = env();
    let meta = write(&env, NUMBER, config, &model, &tombstones);
    let bytes = volume.bytes(meta.id);
    if std::env::var_os("GLINTDB_BLESS").is_some() {
        std::fs::write(path(name), &bytes).unwrap();
    }
    bytes
}

#[test]
fn golden_tables_read_as_their_text_says() {
    let (model, tombstones) = parse(TEXT);
    assert!(model.len() > 100);
    for (name, config) in configs() {
        written(name, &config);
        let (volume, env) = env();
        volume.put(table_id(NUMBER), std::fs::read(path(name)).unwrap());
        let table = Table::open_file(&env, table_id(NUMBER)).unwrap();
        assert_eq!(table.meta().entries, model.len() as u64);
        assert!(table.meta().blocks > 1, "{name}");
        assert_eq!(table.range_tombstones().unwrap(), tombstones);
        for (key, (seqno, value)) in &model {
            let found = table.get(key, key_hash(key)).unwrap().unwrap();
            assert_eq!((found.seqno, &found.value), (*seqno, value));
        }
        assert!(verify(&table).0.is_empty());
    }
}

#[test]
fn writing_gives_the_golden_bytes() {
    // Compressed bytes may differ with the compressor's version; what they decompress to may not, and the test above sees to that.
    let (name, config) = &configs()[0];
    let golden = std::fs::read(path(name)).unwrap();
    assert!(written(name, config) == golden, "the format changed");
}

#[test]
fn golden_tables_read_the_same_from_the_format_page_alone() {
    for (name, _) in configs() {
        let output = Command::new("python3")
            .arg(path("read_table.py"))
            .arg(path(name))
            .output();
        let output = match output {
            Ok(output) => output,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                println!("python3 is not there: {name} was not read by read_table.py");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {errors}");
        let expected: String = TEXT
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| format!("{line}\n"))
            .collect();
        assert!(
            String::from_utf8_lossy(&output.stdout) == expected,
            "{name}"
        );
    }
}

#[test]
fn the_format_pages_example_is_what_is_written() {
    let model: Model = [
        (b"apple".to_vec(), (SeqNum(7), inline(b"red"))),
        (b"apricot".to_vec(), (SeqNum(9), EntryValue::Tombstone)),
        (
            b"banana".to_vec(),
            (
                SeqNum(300),
                EntryValue::Pointer(ValuePointer {
                    segment: SegmentId(1),
                    offset: 4096,
                    length: 1024,
                    checksum: 0xdead_beef,
                }),
            ),
        ),
    ]
    .into();
    let config = TableConfig {
        restart_interval: 2,
        ..TableConfig::default()
    };
    let (volume, env) = env();
    let meta = write(
        &env,
        NUMBER,
        &config,
        &model,
        &[tombstone(b"c", Some(b"d"), 5)],
    );
    let bytes = volume.bytes(meta.id);
    let page = std::fs::read_to_string(path("../../../docs/format/table.md")).unwrap();
    let mut lines = 0;
    for line in page.lines() {
        let Some((offset, hex)) = line
            .split_once(": ")
            .filter(|(offset, _)| offset.len() == 8)
        else {
            continue;
        };
        let Ok(offset) = usize::from_str_radix(offset, 16) else {
            continue;
        };
        let expected = unhex(&hex.replace(' ', ""));
        assert_eq!(&bytes[offset..offset + expected.len()], expected, "{line}");
        lines += 1;
    }
    assert!(lines > 20);
}
