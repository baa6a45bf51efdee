//! A JSON object a line: `{"key":"…","value":"…"}`, with `key_base64` and `value_base64` for what is not UTF-8.

use super::{ReadRecords, Record, WriteRecords, input_error};
use crate::exit::Failure;
use crate::output;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::io::{BufRead, Write};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
}

pub(super) struct Reader<'a> {
    input: Box<dyn BufRead + 'a>,
    line: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(input: Box<dyn BufRead + 'a>) -> Self {
        Reader { input, line: 0 }
    }
}

fn field(name: &str, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => STANDARD
            .decode(base64)
            .map_err(|error| format!("`{name}_base64`: {error}")),
        (None, None) => Err(format!("neither `{name}` nor `{name}_base64`")),
        (Some(_), Some(_)) => Err(format!("both `{name}` and `{name}_base64`")),
    }
}

fn parse(text: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    let line: Line = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let key = field("key", line.key, line.key_base64)?;
    let value = field("value", line.value, line.value_base64)?;
    Ok((key, value))
}

impl ReadRecords for Reader<'_> {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        let mut input_bytes = 0;
        loop {
            let mut text = Vec::new();
            let read = self
                .input
                .read_until(b'\n', &mut text)
                .map_err(input_error)?;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            input_bytes += read as u64;
            if text.trim_ascii().is_empty() {
                continue;
            }
            let (key, value) = parse(&text)
                .map_err(|why| Failure::Usage(format!("input line {}: {why}", self.line)))?;
            return Ok(Some(Record {
                key,
                value,
                input_bytes,
            }));
        }
    }
}

pub(super) struct Writer<'a>(pub(super) Box<dyn Write + 'a>);

impl WriteRecords for Writer<'_> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> std::io::Result<()> {
        writeln!(self.0, "{}", output::record(key, Some(value)))
    }

    fn finish(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_no_records_are_refused_by_number() {
        for (line, why) in [
            ("{\"key\":\"a\"}", "neither `value` nor `value_base64`"),
            (
                "{\"key\":\"a\",\"key_base64\":\"YQ==\",\"value\":\"\"}",
                "both `key`",
            ),
            ("{\"key\":\"a\",\"value_base64\":\"*\"}", "value_base64"),
            (
                "{\"key\":\"a\",\"value\":\"b\",\"ttl\":1}",
                "unknown field `ttl`",
            ),
            ("nonsense", "expected"),
        ] {
            let text = format!("\n{line}\n");
            let error = Reader::new(Box::new(text.as_bytes()))
                .next()
                .expect_err(line)
                .to_string();
            assert!(
                error.contains("input line 2") && error.contains(why),
                "{error}"
            );
        }
    }
}
