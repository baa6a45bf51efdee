//! Key length (u32, little-endian), key, value length (u32, little-endian), value; and so on to the end.

use super::{ReadRecords, Record, WriteRecords, input_error};
use crate::exit::Failure;
use glintdb_core::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use std::io::{BufRead, Read, Write};

pub(super) struct Reader<'a> {
    input: Box<dyn BufRead + 'a>,
    offset: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(input: Box<dyn BufRead + 'a>) -> Self {
        Reader { input, offset: 0 }
    }

    fn cut(&self) -> Failure {
        Failure::Usage(format!(
            "input ends in the middle of the record at byte {}",
            self.offset
        ))
    }

    /// Exactly `length` bytes; memory grows with what is really there, not with what was claimed.
    fn take(&mut self, length: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::with_capacity(length.min(1 << 20));
        let mut part = self.input.by_ref().take(length as u64);
        part.read_to_end(&mut bytes).map_err(input_error)?;
        if bytes.len() == length {
            Ok(bytes)
        } else {
            Err(self.cut())
        }
    }

    fn length(&mut self, what: &str, max: usize) -> Result<usize, Failure> {
        let bytes = self.take(4)?;
        let length = bytes
            .first_chunk::<4>()
            .map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        if length > max {
            let at = self.offset;
            return Err(Failure::Usage(format!(
                "record at byte {at}: a {what} of {length} bytes, {max} at most; is the input in this format?"
            )));
        }
        Ok(length)
    }
}

impl ReadRecords for Reader<'_> {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        if self.input.fill_buf().map_err(input_error)?.is_empty() {
            return Ok(None);
        }
        let length = self.length("key", KEY_BYTES_MAX)?;
        let key = self.take(length)?;
        let length = self.length("value", VALUE_BYTES_MAX)?;
        let value = self.take(length)?;
        let input_bytes = 8 + (key.len() + value.len()) as u64;
        self.offset += input_bytes;
        Ok(Some(Record {
            key,
            value,
            input_bytes,
        }))
    }
}

pub(super) struct Writer<'a>(pub(super) Box<dyn Write + 'a>);

impl WriteRecords for Writer<'_> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> std::io::Result<()> {
        for part in [key, value] {
            let length = u32::try_from(part.len()).map_err(std::io::Error::other)?;
            self.0.write_all(&length.to_le_bytes())?;
            self.0.write_all(part)?;
        }
        Ok(())
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
        let good = [1, 0, 0, 0, b'k', 1, 0, 0, 0, b'v'];
        for cut in 1..good.len() {
            let error = Reader::new(Box::new(&good[..cut])).next().expect_err("cut");
            assert!(error.to_string().contains("record at byte 0"), "{error}");
        }
        let absurd = [0xff, 0xff, 0xff, 0xff, 0];
        let error = Reader::new(Box::new(&absurd[..]))
            .next()
            .expect_err("absurd");
        assert!(error.to_string().contains("65536 at most"), "{error}");
    }
}
