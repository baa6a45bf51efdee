//! Ways for fuzz targets to the formats of import and export. No part of any API.

pub use crate::format::Item;
use crate::format::{Format, reader, writer};
use clap::ValueEnum;

/// Names of the formats.
pub const FORMATS: [&str; 3] = ["jsonl", "binary", "dpkg"];

fn format(name: &str) -> Format {
    Format::from_str(name, false).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The items of an input up to the first error, and that.
///
/// # Panics
/// For a name that is none of [`FORMATS`], and where items take more bytes than there are.
#[must_use]
pub fn import(name: &str, input: &[u8]) -> (Vec<Item>, Option<String>) {
    let mut items = Vec::new();
    let mut bytes = 0;
    let mut input_items = reader(format(name), Box::new(input));
    loop {
        match input_items.next() {
            Ok(Some((item, input_bytes))) => {
                bytes += input_bytes;
                items.push(item);
            }
            Ok(None) => {
                assert!(bytes <= input.len() as u64);
                return (items, None);
            }
            Err(failure) => return (items, Some(failure.to_string())),
        }
    }
}

/// What export writes for the items.
///
/// # Panics
/// For a name that is none of [`FORMATS`].
#[must_use]
pub fn export(name: &str, items: &[Item]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = writer(format(name), Box::new(&mut bytes));
    let written = items
        .iter()
        .try_for_each(|item| match item {
            Item::Keyspace { name, options } => out.keyspace(name, options),
            Item::Record { key, stored } => out.record(key, stored),
        })
        .and_then(|()| out.finish());
    written.unwrap_or_else(|error| panic!("memory takes it: {error}"));
    drop(out);
    bytes
}
