//! A JSON object a line: `{"key":"…","value":"…"}`, with `key_base64` and `value_base64` for what
//! is not UTF-8 and `expires_ms` for an expiry. `{"keyspace":"…","options":{…}}` begins a keyspace.

use super::{Item, KeyspaceOptionTexts, ReadItems, WriteItems, input_error};
use crate::exit::Failure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glintdb_server::StoredValue;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    keyspace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<KeyspaceOptionTexts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
}

impl Line {
    fn into_item(self) -> Result<Item, String> {
        let Some(name) = self.keyspace else {
            if self.options.is_some() {
                return Err("`options` without `keyspace`".to_owned());
            }
            let key = field("key", self.key, self.key_base64)?;
            let value = field("value", self.value, self.value_base64)?;
            let stored = StoredValue {
                value: value.into(),
                expires_ms: self.expires_ms,
            };
            return Ok(Item::Record { key, stored });
        };
        let (key, value) = (
            self.key.or(self.key_base64),
            self.value.or(self.value_base64),
        );
        if key.is_some() || value.is_some() || self.expires_ms.is_some() {
            return Err("both a keyspace and a record".to_owned());
        }
        Ok(Item::Keyspace {
            name,
            options: self.options.unwrap_or_default(),
        })
    }

    fn text(&self) -> String {
        // Only maps with keys that are no strings, and values that refuse, could fail.
        serde_json::to_string(self).unwrap_or_default()
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

/// `bytes` as text where they are UTF-8, else as base64.
fn texts(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

/// A record as a line of JSON, without a line end; `stored` is `None` for a key alone.
pub(crate) fn record_line(key: &[u8], stored: Option<&StoredValue>) -> String {
    let (key, key_base64) = texts(key);
    let (value, value_base64) = stored.map_or((None, None), |stored| texts(&stored.value));
    let line = Line {
        key,
        key_base64,
        value,
        value_base64,
        expires_ms: stored.and_then(|stored| stored.expires_ms),
        ..Line::default()
    };
    line.text()
}

/// What is wrong with a line, and in which column of it.
fn syntax(number: u64, error: &serde_json::Error) -> Failure {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    // The parser saw one line, and calls it line 1.
    let why = text.strip_suffix(&place).unwrap_or(&text);
    Failure::Usage(format!(
        "input line {number}, column {}: {why}",
        error.column()
    ))
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

impl ReadItems for Reader<'_> {
    fn next(&mut self) -> Result<Option<(Item, u64)>, Failure> {
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
            let text = text.trim_ascii_end();
            if text.is_empty() {
                continue;
            }
            let line: Line =
                serde_json::from_slice(text).map_err(|error| syntax(self.line, &error))?;
            let item = line
                .into_item()
                .map_err(|why| Failure::Usage(format!("{}: {why}", self.place())))?;
            return Ok(Some((item, input_bytes)));
        }
    }

    fn place(&self) -> String {
        format!("input line {}", self.line)
    }
}

pub(super) struct Writer<'a>(pub(super) Box<dyn Write + 'a>);

impl WriteItems for Writer<'_> {
    fn keyspace(&mut self, name: &str, options: &KeyspaceOptionTexts) -> std::io::Result<()> {
        let line = Line {
            keyspace: Some(name.to_owned()),
            options: (!options.is_empty()).then(|| options.clone()),
            ..Line::default()
        };
        writeln!(self.0, "{}", line.text())
    }

    fn record(&mut self, key: &[u8], stored: &StoredValue) -> std::io::Result<()> {
        writeln!(self.0, "{}", record_line(key, Some(stored)))
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
        for (line, message) in [
            (
                "{\"key\":\"a\"}",
                "input line 2: neither `value` nor `value_base64`",
            ),
            (
                "{\"key\":\"a\",\"key_base64\":\"YQ==\",\"value\":\"\"}",
                "input line 2: both `key` and `key_base64`",
            ),
            (
                "{\"key\":\"a\",\"value_base64\":\"*\"}",
                "input line 2: `value_base64`: Invalid symbol 42, offset 0.",
            ),
            (
                "{\"keyspace\":\"a\",\"value\":\"b\"}",
                "input line 2: both a keyspace and a record",
            ),
            (
                "{\"key\":\"a\",\"value\":\"b\",\"options\":{}}",
                "input line 2: `options` without `keyspace`",
            ),
            ("nonsense", "input line 2, column 2: expected ident"),
            (
                "{\"key\":\"a\"",
                "input line 2, column 10: EOF while parsing an object",
            ),
        ] {
            let text = format!("\n{line}\n");
            let error = Reader::new(Box::new(text.as_bytes())).next();
            assert_eq!(error.expect_err(line).to_string(), message);
        }
        let unknown = "{\"key\":\"a\",\"value\":\"b\",\"ttl\":1}";
        let error = Reader::new(Box::new(unknown.as_bytes())).next();
        let error = error.expect_err(unknown).to_string();
        assert!(
            error.starts_with("input line 1, column 28: unknown field `ttl`"),
            "{error}"
        );
    }

    #[test]
    fn records_turn_to_base64_where_they_must() {
        let stored = StoredValue {
            value: (&b"\xff\xfe"[..]).into(),
            expires_ms: Some(7),
        };
        assert_eq!(
            record_line(b"k", Some(&stored)),
            r#"{"key":"k","value_base64":"//4=","expires_ms":7}"#
        );
        assert_eq!(record_line(b"\xff", None), r#"{"key_base64":"/w=="}"#);
    }
}
