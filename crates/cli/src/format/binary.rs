//! Key length (u32, little-endian), key, value length (u32, little-endian), value; and so on to the
//! end. Two bits of the first length say what else there is:
//!
//! - [`EXPIRY`]: the value is followed by its expiry, milliseconds since 1970 UTC (u64,
//!   little-endian).
//! - [`KEYSPACE`]: no record but the beginning of a keyspace: its name and its options are in the
//!   places of key and value, the options as lines `name=value`.

use super::{Item, KeyspaceOptionTexts, ReadItems, WriteItems, input_error};
use crate::exit::Failure;
use glintdb::{KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX, VALUE_BYTES_MAX};
use glintdb_server::StoredValue;
use std::io::{BufRead, Read, Write};

/// Set in the key length of a record with an expiry.
const EXPIRY: u32 = 1 << 31;
/// Set in the length of a keyspace's name.
const KEYSPACE: u32 = 1 << 30;
/// Most bytes that the options of a keyspace take.
const OPTIONS_BYTES_MAX: usize = 64 << 10;

pub(super) struct Reader<'a> {
    input: Box<dyn BufRead + 'a>,
    /// Where the item begins that was read last, or is being read.
    begin: u64,
    /// Bytes read so far.
    offset: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(input: Box<dyn BufRead + 'a>) -> Self {
        Reader {
            input,
            begin: 0,
            offset: 0,
        }
    }

    fn wrong(&self, why: &str) -> Failure {
        Failure::Usage(format!("{}: {why}", self.place()))
    }

    /// Exactly `length` bytes; memory grows with what is really there, not with what was claimed.
    fn take(&mut self, length: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::with_capacity(length.min(1 << 20));
        let mut part = self.input.by_ref().take(length as u64);
        part.read_to_end(&mut bytes).map_err(input_error)?;
        if bytes.len() != length {
            return Err(self.wrong("the input ends in the middle of what begins here"));
        }
        self.offset += length as u64;
        Ok(bytes)
    }

    fn number<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Failure> {
        let bytes = self.take(BYTES)?;
        Ok(bytes.first_chunk().copied().unwrap_or([0; BYTES]))
    }

    fn counted(&mut self, what: &str, length: u32, max: usize) -> Result<Vec<u8>, Failure> {
        let length = length as usize;
        if length > max {
            return Err(self.wrong(&format!(
                "a {what} of {length} bytes, {max} at most; is the input in this format?"
            )));
        }
        self.take(length)
    }

    fn keyspace(&mut self, name_bytes: u32) -> Result<Item, Failure> {
        let name = self.counted("keyspace name", name_bytes, KEYSPACE_NAME_BYTES_MAX)?;
        let length = u32::from_le_bytes(self.number()?);
        let options = self.counted("list of options", length, OPTIONS_BYTES_MAX)?;
        let (Ok(name), Ok(options)) = (String::from_utf8(name), String::from_utf8(options)) else {
            return Err(self.wrong("a keyspace whose name or options are not UTF-8"));
        };
        let lines = options.split_terminator('\n');
        let options = lines.map(|line| {
            line.split_once('=')
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .ok_or_else(|| self.wrong(&format!("the option `{line}` is not NAME=VALUE")))
        });
        let options = options.collect::<Result<_, _>>()?;
        Ok(Item::Keyspace { name, options })
    }

    fn record(&mut self, key_bytes: u32, expires: bool) -> Result<Item, Failure> {
        let key = self.counted("key", key_bytes, KEY_BYTES_MAX)?;
        let length = u32::from_le_bytes(self.number()?);
        let value = self.counted("value", length, VALUE_BYTES_MAX)?;
        let expires_ms = match expires {
            true => Some(u64::from_le_bytes(self.number()?)),
            false => None,
        };
        let stored = StoredValue {
            value: value.into(),
            expires_ms,
        };
        Ok(Item::Record { key, stored })
    }
}

impl ReadItems for Reader<'_> {
    fn next(&mut self) -> Result<Option<(Item, u64)>, Failure> {
        if self.input.fill_buf().map_err(input_error)?.is_empty() {
            return Ok(None);
        }
        self.begin = self.offset;
        let length = u32::from_le_bytes(self.number()?);
        let item = match length & (EXPIRY | KEYSPACE) {
            EXPIRY => self.record(length ^ EXPIRY, true)?,
            KEYSPACE => self.keyspace(length ^ KEYSPACE)?,
            // With both set it is a key that is much too long.
            _ => self.record(length, false)?,
        };
        Ok(Some((item, self.offset - self.begin)))
    }

    fn place(&self) -> String {
        format!("input byte {}", self.begin)
    }
}

pub(super) struct Writer<'a>(pub(super) Box<dyn Write + 'a>);

impl Writer<'_> {
    fn counted(&mut self, bytes: &[u8], flag: u32) -> std::io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
        self.0.write_all(&(length | flag).to_le_bytes())?;
        self.0.write_all(bytes)
    }
}

impl WriteItems for Writer<'_> {
    fn keyspace(&mut self, name: &str, options: &KeyspaceOptionTexts) -> std::io::Result<()> {
        let options = options.iter();
        let lines: Vec<_> = options
            .map(|(name, value)| format!("{name}={value}\n"))
            .collect();
        self.counted(name.as_bytes(), KEYSPACE)?;
        self.counted(lines.concat().as_bytes(), 0)
    }

    fn record(&mut self, key: &[u8], stored: &StoredValue) -> std::io::Result<()> {
        let flag = stored.expires_ms.map_or(0, |_| EXPIRY);
        self.counted(key, flag)?;
        self.counted(&stored.value, 0)?;
        match stored.expires_ms {
            Some(expires_ms) => self.0.write_all(&expires_ms.to_le_bytes()),
            None => Ok(()),
        }
    }

    fn finish(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_and_absurd_inputs_are_refused_by_place() {
        let record = b"\x01\0\0\0k\x01\0\0\0v";
        let expiring = b"\x01\0\0\x80k\x01\0\0\0v\x07\0\0\0\0\0\0\0";
        let keyspace = b"\x01\0\0\x40n\x04\0\0\0a=b\n";
        for good in [&record[..], expiring, keyspace] {
            assert!(matches!(Reader::new(Box::new(good)).next(), Ok(Some(_))));
            for cut in 1..good.len() {
                let second = [&record[..], &good[..cut]].concat();
                let mut reader = Reader::new(Box::new(&second[..]));
                reader.next().expect("whole");
                let error = reader.next().expect_err("cut").to_string();
                assert!(error.starts_with("input byte 10: "), "{error}");
            }
        }
        for (absurd, words) in [
            (&b"\xff\xff\xff\xff\0"[..], "65536 at most"),
            (b"\0\x01\0\x40", "255 at most"),
            (b"\x01\0\0\x40n\x02\0\0\0ab", "`ab` is not NAME=VALUE"),
            (b"\x01\0\0\x40\xff\0\0\0\0", "not UTF-8"),
        ] {
            let error = Reader::new(Box::new(absurd)).next().expect_err(words);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
