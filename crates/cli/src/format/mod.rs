//! The formats of `import` and `export`: readers that yield records, writers that take them. Input is a peer's: whatever is wrong with it is an error that names
//! the place, never a panic, and no length it states is believed before the bytes are there.

mod binary;
mod dpkg;
mod jsonl;

use crate::exit::Failure;
use clap::ValueEnum;
use std::io::{BufRead, Write};

/// A format of `import` and `export`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// JSON lines.
    Jsonl,
    /// Lengths and bytes.
    Binary,
    /// Stanzas of a Debian package index.
    Dpkg,
}

/// A record read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// Bytes of input it took.
    pub(crate) input_bytes: u64,
}

/// Yields the records of an input.
pub(crate) trait ReadRecords {
    /// The next record; `None` at the end.
    fn next(&mut self) -> Result<Option<Record>, Failure>;
}

/// Takes the records of an output.
pub(crate) trait WriteRecords {
    fn write(&mut self, key: &[u8], value: &[u8]) -> std::io::Result<()>;
    fn finish(&mut self) -> std::io::Result<()>;
}

pub(crate) fn reader<'a>(
    format: Format,
    input: Box<dyn BufRead + 'a>,
) -> Box<dyn ReadRecords + 'a> {
    match format {
        Format::Jsonl => Box::new(jsonl::Reader::new(input)),
        Format::Binary => Box::new(binary::Reader::new(input)),
        Format::Dpkg => Box::new(dpkg::Reader::new(input)),
    }
}

pub(crate) fn writer<'a>(
    format: Format,
    output: Box<dyn Write + 'a>,
) -> Box<dyn WriteRecords + 'a> {
    match format {
        Format::Jsonl => Box::new(jsonl::Writer(output)),
        Format::Binary => Box::new(binary::Writer(output)),
        Format::Dpkg => Box::new(dpkg::Writer(output)),
    }
}

fn input_error(error: std::io::Error) -> Failure {
    Failure::Io("cannot read the input".into(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(format: Format, records: &[(&[u8], &[u8])]) {
        let mut bytes = Vec::new();
        let mut out = writer(format, Box::new(&mut bytes));
        for (key, value) in records {
            out.write(key, value).expect("memory takes it");
        }
        out.finish().expect("memory takes it");
        drop(out);
        let mut input = reader(format, Box::new(&bytes[..]));
        let mut read_bytes = 0;
        for (key, value) in records {
            let record = input.next().expect("readable").expect("there");
            assert_eq!((&record.key[..], &record.value[..]), (*key, *value));
            read_bytes += record.input_bytes;
        }
        assert_eq!(input.next().expect("readable"), None);
        assert!(read_bytes <= bytes.len() as u64);
    }

    #[test]
    fn what_is_exported_can_be_imported() {
        let any: [(&[u8], &[u8]); 4] = [
            (b"", b""),
            (b"key", b"value\n\"x\""),
            (b"\xff\x00", b"\xfe"),
            (b"z", b"\n\n"),
        ];
        round_trip(Format::Jsonl, &any);
        round_trip(Format::Binary, &any);
        round_trip(
            Format::Dpkg,
            &[
                (b"a", b"Package: a\nVersion: 1"),
                (b"b", b"Package: b\nDescription: x\n .\n y"),
            ],
        );
    }
}
