//! A Debian package index: stanzas of `Field: value` lines separated by empty lines (RFC 822
//! style). The key is the field `Package`, the value the stanza without its last line end.

use super::{Item, KeyspaceOptionTexts, ReadItems, WriteItems, input_error};
use crate::exit::Failure;
use crate::output::printable;
use glintdb_server::StoredValue;
use std::io::{BufRead, Write};

pub(super) struct Reader<'a> {
    input: Box<dyn BufRead + 'a>,
    line: u64,
    /// Where the stanza begins that was read last, or is being read.
    first_line: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(input: Box<dyn BufRead + 'a>) -> Self {
        Reader {
            input,
            line: 0,
            first_line: 0,
        }
    }
}

impl ReadItems for Reader<'_> {
    fn next(&mut self) -> Result<Option<(Item, u64)>, Failure> {
        let mut value = Vec::new();
        let mut key = None;
        self.first_line = self.line + 1;
        let mut input_bytes = 0;
        loop {
            let start = value.len();
            let read = self
                .input
                .read_until(b'\n', &mut value)
                .map_err(input_error)?;
            input_bytes += read as u64;
            self.line += 1;
            let line = value.get(start..).unwrap_or_default();
            if !line.trim_ascii().is_empty() {
                if let Some(name) = line.strip_prefix(b"Package:") {
                    key = Some(name.trim_ascii().to_vec());
                }
                continue;
            }
            value.truncate(start);
            if value.is_empty() && read > 0 {
                self.first_line = self.line + 1;
                continue;
            }
            break;
        }
        if value.is_empty() {
            return Ok(None);
        }
        if value.last() == Some(&b'\n') {
            value.pop();
        }
        let Some(key) = key else {
            return Err(Failure::Usage(format!(
                "{}: the stanza has no field `Package`",
                self.place()
            )));
        };
        let stored = StoredValue::plain(value.into());
        Ok(Some((Item::Record { key, stored }, input_bytes)))
    }

    fn place(&self) -> String {
        format!("input line {}", self.first_line)
    }
}

/// Whether `value` is one stanza, read as the record of `key`.
fn is_stanza_of(key: &[u8], value: &[u8]) -> bool {
    let whole = value.split(|&byte| byte == b'\n');
    let package = |line: &[u8]| {
        line.strip_prefix(b"Package:")
            .map(|name| name.trim_ascii().to_vec())
    };
    whole.clone().all(|line| !line.trim_ascii().is_empty())
        && whole.filter_map(package).next_back().as_deref() == Some(key)
}

pub(super) struct Writer<'a>(pub(super) Box<dyn Write + 'a>);

/// An item that would not come back as it is.
fn refused(why: &str) -> std::io::Error {
    std::io::Error::other(format!("{why}; the formats jsonl and binary can"))
}

impl WriteItems for Writer<'_> {
    fn keyspace(&mut self, _: &str, _: &KeyspaceOptionTexts) -> std::io::Result<()> {
        Err(refused("a package index cannot hold several keyspaces"))
    }

    fn record(&mut self, key: &[u8], stored: &StoredValue) -> std::io::Result<()> {
        let key_text = printable(key);
        if stored.expires_ms.is_some() {
            return Err(refused(&format!(
                "a package index cannot hold the expiry of the record `{key_text}`"
            )));
        }
        // It would come back under another key, as several records, or not at all.
        if !is_stanza_of(key, &stored.value) {
            return Err(refused(&format!(
                "a package index cannot hold the record `{key_text}`: it is no stanza with `Package: {key_text}`"
            )));
        }
        self.0.write_all(&stored.value)?;
        self.0.write_all(b"\n\n")
    }

    fn finish(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_would_not_come_back_is_refused() {
        let write = |key: &[u8], value: &[u8]| {
            let stored = StoredValue::plain(value.to_vec().into());
            Writer(Box::new(std::io::sink())).record(key, &stored)
        };
        assert!(write(b"a", b"Package: a\nX: 1").is_ok());
        for (key, value) in [
            (&b"b"[..], &b"Package: a\nX: 1"[..]),
            (b"a", b"X: 1"),
            (b"a", b"Package: a\n\nPackage: b"),
            (b"a", b"Package: a\n"),
            (b"a", b""),
        ] {
            let error = write(key, value).expect_err("it would be lost");
            assert!(error.to_string().contains("jsonl"), "{error}");
        }
    }

    #[test]
    fn stanzas_are_split_at_empty_lines_and_one_without_a_package_is_refused() {
        let text = b"\n\nPackage: a\nX: 1\n\n\nPackage: b\n\nVersion: 3\n";
        let mut reader = Reader::new(Box::new(&text[..]));
        for (wanted, text, line) in [("a", "Package: a\nX: 1", 3), ("b", "Package: b", 7)] {
            let (item, _) = reader.next().expect("readable").expect("there");
            let stored = StoredValue::plain(text.into());
            let key = wanted.into();
            assert_eq!(item, Item::Record { key, stored });
            assert_eq!(reader.place(), format!("input line {line}"));
        }
        let error = reader.next().expect_err("no package").to_string();
        assert_eq!(error, "input line 9: the stanza has no field `Package`");
    }
}
