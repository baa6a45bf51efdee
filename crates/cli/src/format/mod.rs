//! The formats of `import` and `export`: readers that yield items, writers that take them.
//!
//! An input is somebody else's: whatever is wrong with it is an error that names the place, never a
//! panic, and memory grows with the bytes that arrive, not with the lengths that they announce.

mod binary;
mod dpkg;
mod jsonl;

use crate::exit::Failure;
use clap::ValueEnum;
use glintdb_server::StoredValue;
pub(crate) use jsonl::record_line;
use std::collections::BTreeMap;
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

/// Names of options and their values, as `--option` takes them.
pub(crate) type KeyspaceOptionTexts = BTreeMap<String, String>;

/// What an input is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// The records that follow belong to this keyspace.
    Keyspace {
        /// Its name.
        name: String,
        /// Its options that are not the default.
        options: BTreeMap<String, String>,
    },
    /// A record.
    Record {
        /// The key.
        key: Vec<u8>,
        /// The value and its expiry.
        stored: StoredValue,
    },
}

/// Yields the items of an input.
pub(crate) trait ReadItems {
    /// The next item and the bytes of input that it took; `None` at the end. An error names the
    /// place.
    fn next(&mut self) -> Result<Option<(Item, u64)>, Failure>;
    /// The place where the last item begins, for messages: `input line 3`.
    fn place(&self) -> String;
}

/// Takes the items of an output.
pub(crate) trait WriteItems {
    fn keyspace(&mut self, name: &str, options: &KeyspaceOptionTexts) -> std::io::Result<()>;
    fn record(&mut self, key: &[u8], stored: &StoredValue) -> std::io::Result<()>;
    fn finish(&mut self) -> std::io::Result<()>;
}

pub(crate) fn reader<'a>(format: Format, input: Box<dyn BufRead + 'a>) -> Box<dyn ReadItems + 'a> {
    match format {
        Format::Jsonl => Box::new(jsonl::Reader::new(input)),
        Format::Binary => Box::new(binary::Reader::new(input)),
        Format::Dpkg => Box::new(dpkg::Reader::new(input)),
    }
}

pub(crate) fn writer<'a>(format: Format, output: Box<dyn Write + 'a>) -> Box<dyn WriteItems + 'a> {
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

    fn record(key: &[u8], value: &[u8], expires_ms: Option<u64>) -> Item {
        Item::Record {
            key: key.to_vec(),
            stored: StoredValue {
                value: value.to_vec().into(),
                expires_ms,
            },
        }
    }

    fn written(format: Format, items: &[Item]) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut out = writer(format, Box::new(&mut bytes));
        for item in items {
            match item {
                Item::Keyspace { name, options } => out.keyspace(name, options)?,
                Item::Record { key, stored } => out.record(key, stored)?,
            }
        }
        out.finish()?;
        drop(out);
        Ok(bytes)
    }

    fn round_trip(format: Format, items: &[Item]) {
        let bytes = written(format, items).expect("memory takes it");
        let mut input = reader(format, Box::new(&bytes[..]));
        let mut bytes_read = 0;
        for item in items {
            let (found, length) = input.next().expect("readable").expect("there");
            assert_eq!(found, *item);
            bytes_read += length;
        }
        assert_eq!(input.next().expect("readable"), None);
        assert!(bytes_read <= bytes.len() as u64);
    }

    #[test]
    fn what_is_exported_can_be_imported() {
        let options = [("compression", "lz4"), ("size_ratio", "6")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let any = [
            record(b"", b"", None),
            record(b"key", b"value\n\"x\"", None),
            record(b"\xff\x00", b"\xfe", Some(1_900_000_000_000)),
            Item::Keyspace {
                name: "logs\n\u{e4}".to_owned(),
                options: options.into(),
            },
            record(b"key", b"\xffGLINTV", Some(0)),
            Item::Keyspace {
                name: "empty".to_owned(),
                options: BTreeMap::new(),
            },
            record(b"z", b"\n\n", Some(u64::MAX)),
        ];
        round_trip(Format::Jsonl, &any);
        round_trip(Format::Binary, &any);
        round_trip(
            Format::Dpkg,
            &[
                record(b"a", b"Package: a\nVersion: 1", None),
                record(b"b", b"Package: b\nDescription: x\n .\n y", None),
            ],
        );
    }

    #[test]
    fn a_package_index_takes_no_keyspaces_and_no_expiry() {
        let keyspace = Item::Keyspace {
            name: "logs".to_owned(),
            options: BTreeMap::new(),
        };
        let expiring = record(b"a", b"Package: a", Some(1));
        for (item, words) in [(keyspace, "keyspaces"), (expiring, "expiry")] {
            let error = written(Format::Dpkg, &[item]).expect_err("it would be lost");
            let message = error.to_string();
            assert!(
                message.contains(words) && message.contains("jsonl"),
                "{message}"
            );
        }
    }
}
