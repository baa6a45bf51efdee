//! Ways for fuzz targets to the formats of import and export. No part of any API.

use crate::format::{Format, reader, writer};
use clap::ValueEnum;

/// Names of the formats.
pub const FORMATS: [&str; 3] = ["jsonl", "binary", "dpkg"];

/// Keys and values.
pub type Records = Vec<(Vec<u8>, Vec<u8>)>;

fn format(name: &str) -> Format {
    Format::from_str(name, false).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The records of an input up to the first error, and that.
///
/// # Panics
/// For a name that is none of [`FORMATS`], and where records take more bytes than there are.
#[must_use]
pub fn import(name: &str, input: &[u8]) -> (Records, Option<String>) {
    let mut records = Records::new();
    let mut bytes = 0;
    let mut input_records = reader(format(name), Box::new(input));
    loop {
        match input_records.next() {
            Ok(Some(record)) => {
                bytes += record.input_bytes;
                records.push((record.key, record.value));
            }
            Ok(None) => {
                assert!(bytes <= input.len() as u64);
                return (records, None);
            }
            Err(failure) => return (records, Some(failure.to_string())),
        }
    }
}

/// What export writes for the records.
///
/// # Panics
/// For a name that is none of [`FORMATS`].
#[must_use]
pub fn export(name: &str, records: &Records) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = writer(format(name), Box::new(&mut bytes));
    let written = records
        .iter()
        .try_for_each(|(key, value)| out.write(key, value))
        .and_then(|()| out.finish());
    written.unwrap_or_else(|error| panic!("memory takes it: {error}"));
    drop(out);
    bytes
}
