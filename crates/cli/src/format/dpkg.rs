//! A Debian package index: stanzas of `Field: value` lines separated by empty lines (RFC 822 style). Key: the field `Package`; value: the stanza without its last line end.

use super::{ReadRecords, Record, WriteRecords, input_error};
use crate::exit::Failure;
use crate::output::printable;
use std::io::{BufRead, Write};

pub(super) struct Reader<'a> {
    input: Box<dyn BufRead + 'a>,
    line: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(input: Box<dyn BufRead + 'a>) -> Self {
        Reader { input, line: 0 }
    }
}

impl ReadRecords for Reader<'_> {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        let mut value = Vec::new();
        let mut key = None;
        let mut first_line = self.line + 1;
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
                first_line = self.line + 1;
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
                "stanza at line {first_line} has no field `Package`"
            )));
        };
        Ok(Some(Record {
            key,
            value,
            input_bytes,
        }))
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

impl WriteRecords for Writer<'_> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> std::io::Result<()> {
        // Else the record would come back under another key, as several, or not at all.
        if !is_stanza_of(key, value) {
            return Err(std::io::Error::other(format!(
                "the record `{}` is no stanza with `Package: {0}`; the formats jsonl and binary take every record",
                printable(key)
            )));
        }
        self.0.write_all(value)?;
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
        let write = |key: &[u8], value: &[u8]| Writer(Box::new(std::io::sink())).write(key, value);
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
        let mut next = || reader.next();
        let first = next().expect("readable").expect("there");
        assert_eq!(
            (&first.key[..], &first.value[..]),
            (&b"a"[..], &b"Package: a\nX: 1"[..])
        );
        assert_eq!(next().expect("readable").expect("there").key, b"b");
        let error = next().expect_err("no package");
        assert!(error.to_string().contains("line 9"), "{error}");
    }
}
