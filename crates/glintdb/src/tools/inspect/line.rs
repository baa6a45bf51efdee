//! A line of a dump, as text and for programs.
//!
//! Thread-safe: plain values.

use std::fmt::{self, Write as _};

/// Longest key or value that is shown whole in text, in bytes.
const SHOWN_BYTES_MAX: usize = 64;

/// One line of a dump: what it is about, and named values.
///
/// As text it is `what name=value …`, indented by its depth. A key or value is shown in quotes if
/// it is printable UTF-8, else in hexadecimal, and is cut after 64 bytes. For programs, use the
/// fields: they are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// 0 for a file; 1 for its parts: frames, records or entries; 2 for the content of a part.
    pub depth: usize,
    /// What the line is about, e.g. `table` or `put`.
    pub what: &'static str,
    /// Named values, in the order in which they are shown.
    pub fields: Vec<(&'static str, Field)>,
}

/// A value in a line of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A number, e.g. of bytes, or a sequence number.
    Number(i128),
    /// A name or an explanation.
    Text(String),
    /// A key, or a value of the database.
    Bytes(Vec<u8>),
}

impl Line {
    pub(super) fn new(depth: usize, what: &'static str) -> Line {
        let fields = Vec::new();
        Line {
            depth,
            what,
            fields,
        }
    }

    pub(super) fn number(self, name: &'static str, number: impl Into<i128>) -> Line {
        self.field(name, Field::Number(number.into()))
    }

    pub(super) fn text(self, name: &'static str, text: impl ToString) -> Line {
        self.field(name, Field::Text(text.to_string()))
    }

    pub(super) fn bytes(self, name: &'static str, bytes: &[u8]) -> Line {
        self.field(name, Field::Bytes(bytes.to_vec()))
    }

    /// The keys from `start` up to and without `end`. Without an end, the range has no end.
    pub(super) fn range(self, start: &[u8], end: Option<&[u8]>) -> Line {
        let line = self.bytes("start", start);
        match end {
            Some(end) => line.bytes("end", end),
            None => line,
        }
    }

    fn field(mut self, name: &'static str, field: Field) -> Line {
        self.fields.push((name, field));
        self
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:1$}{2}", "", 2 * self.depth, self.what)?;
        for (name, field) in &self.fields {
            match field {
                Field::Number(number) => write!(f, " {name}={number}")?,
                Field::Text(text) if text.contains([' ', '"']) => {
                    write!(f, " {name}={}", quoted(text))?;
                }
                Field::Text(text) => write!(f, " {name}={text}")?,
                Field::Bytes(bytes) => write!(f, " {name}={}", shown(bytes))?,
            }
        }
        Ok(())
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A key or value in text.
fn shown(bytes: &[u8]) -> String {
    let head = bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes);
    // The cut may be within a character.
    let text = match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() && head.len() < bytes.len() => {
            head.utf8_chunks().next().map(|chunk| chunk.valid())
        }
        Err(_) => None,
    };
    let mut out = match text.filter(|text| !text.chars().any(char::is_control)) {
        Some(text) => quoted(text),
        None => head.iter().fold("0x".to_owned(), |mut out, byte| {
            // Writing to a string cannot fail.
            write!(out, "{byte:02x}").ok();
            out
        }),
    };
    if bytes.len() > head.len() {
        write!(out, "… ({} bytes)", bytes.len()).ok();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_shown_as_names_and_values_indented_by_its_depth() {
        let line = Line::new(1, "put")
            .number("seqno", 7_u64)
            .text("kind", "large")
            .text("reason", "no frame")
            .bytes("key", b"a \"b\" \\")
            .range(b"from", None);
        let expected =
            r#"  put seqno=7 kind=large reason="no frame" key="a \"b\" \\" start="from""#;
        assert_eq!(line.to_string(), expected);
    }

    #[test]
    fn bytes_are_shown_as_text_if_they_are_printable_and_are_cut_after_64() {
        assert_eq!(shown("grün".as_bytes()), "\"grün\"");
        assert_eq!(shown(b""), "\"\"");
        assert_eq!(shown(b"\x00\xff"), "0x00ff");
        assert_eq!(shown(b"line\nend"), "0x6c696e650a656e64");
        let long = format!("{}ü, cut within the ü", "a".repeat(63));
        assert_eq!(
            shown(long.as_bytes()),
            format!("\"{}\"… (84 bytes)", "a".repeat(63))
        );
    }
}
