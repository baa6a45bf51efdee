//! The golden files. `testdata/table-v1.txt` has the contents of the tables `table-v1.glint` and
//! `table-v1-lz4.glint`; [`long_keys`] makes those of `table-v1-long-keys.glint`.
//! `testdata/read_table.py`, written from `docs/format/table.md` alone, reads them too.
//!
//! A change that makes these tests fail changes the format: it needs a new version, and these files
//! stay.

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

/// Entries of a block of short keys and of two blocks of long ones, which have one restart point.
fn long_keys() -> Model {
    let entry = |n: u32| {
        let shared = match n {
            0..4 => 12,
            _ => 2100 + n as usize % 3 * 100,
        };
        let key = [&vec![b'k'; shared][..], &n.to_be_bytes()].concat();
        let value = match n % 4 {
            0 => EntryValue::Tombstone,
            1 => EntryValue::Pointer(pointer(n)),
            _ => inline(&n.to_le_bytes().repeat(50)),
        };
        (key, (SeqNum(u64::from(n) + 100), value))
    };
    (0..50).map(entry).collect()
}

/// The golden files, with how they are written and what is in them.
fn golden_files() -> [(&'static str, TableConfig, Model, Vec<RangeTombstone>); 3] {
    let [(name, config), (lz4_name, lz4)] = configs();
    let (model, tombstones) = parse(TEXT);
    let long = (
        "table-v1-long-keys.glint",
        config.clone(),
        long_keys(),
        Vec::new(),
    );
    [
        (name, config, model.clone(), tombstones.clone()),
        (lz4_name, lz4, model, tombstones),
        long,
    ]
}

/// The contents of a table, as `read_table.py` prints them.
fn text_of(model: &Model, tombstones: &[RangeTombstone]) -> String {
    let hex = |bytes: &[u8]| -> String {
        let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
        std::iter::once("x".to_owned()).chain(digits).collect()
    };
    let entry = |(key, (seqno, value)): (&Vec<u8>, &(SeqNum, EntryValue))| {
        let value = match value {
            EntryValue::Inline(bytes) => format!("inline {}", hex(bytes)),
            EntryValue::Pointer(at) => format!(
                "pointer {} {} {} {}",
                at.segment.0, at.offset, at.length, at.checksum
            ),
            EntryValue::Tombstone => "tombstone".to_owned(),
        };
        format!("{} {} {value}\n", hex(key), seqno.0)
    };
    let range = |tombstone: &RangeTombstone| {
        let end = tombstone
            .end
            .as_ref()
            .map_or("-".to_owned(), |end| hex(end));
        format!(
            "range {} {end} {}\n",
            hex(&tombstone.start),
            tombstone.seqno.0
        )
    };
    let entries = model.iter().map(entry);
    entries.chain(tombstones.iter().map(range)).collect()
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

/// What is written today. With `GLINTDB_BLESS` set it becomes the golden file, to be committed with
/// a new version only.
fn written(
    name: &str,
    config: &TableConfig,
    model: &Model,
    tombstones: &[RangeTombstone],
) -> Vec<u8> {
    let (volume, env) = env();
    let meta = write(&env, NUMBER, config, model, tombstones);
    let bytes = volume.bytes(meta.id);
    if std::env::var_os("GLINTDB_BLESS").is_some() {
        std::fs::write(path(name), &bytes).unwrap();
    }
    bytes
}

#[test]
fn golden_tables_read_as_their_text_says() {
    for (name, config, model, tombstones) in golden_files() {
        written(name, &config, &model, &tombstones);
        assert!(model.len() >= 50);
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
    // Compressed bytes may differ with the compressor's version. What they decompress to may not,
    // and the test above checks that.
    for (name, config, model, tombstones) in golden_files() {
        if config.compression == Compression::None {
            let golden = std::fs::read(path(name)).unwrap();
            let written = written(name, &config, &model, &tombstones);
            assert!(written == golden, "{name}: the format changed");
        }
    }
}

#[test]
fn golden_tables_read_the_same_from_the_format_page_alone() {
    for (name, _, model, tombstones) in golden_files() {
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
        let expected = text_of(&model, &tombstones);
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
