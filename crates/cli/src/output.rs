//! Everything the program prints goes through here, so that a closed pipe is no panic and binary keys do not wreck a terminal.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is the program's one way to the terminal"
)]

use crate::exit::Failure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use std::io::Write;
use std::path::Path;

/// One line on standard error.
pub(crate) fn complain(line: &str) {
    eprintln!("glintdb: {line}");
}

/// A note on standard error that is no failure.
pub(crate) fn note(line: &str) {
    eprintln!("{line}");
}

/// One line on standard output, at once.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(Failure::output)
}

/// Bytes on standard output, as they are.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(Failure::output)
}

/// A JSON document on standard output, indented.
pub(crate) fn json(value: &Value) -> Result<(), Failure> {
    line(&format!("{value:#}"))
}

/// Sets `name` to `bytes`: as a string where they are UTF-8, else `name_base64`.
pub(crate) fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_string(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// Bytes for a terminal: text as it is, control bytes and what is not UTF-8 as `\xNN`, a backslash as `\\`.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                c if c.is_control() => {
                    let mut buffer = [0; 4];
                    for byte in c.encode_utf8(&mut buffer).bytes() {
                        out.push_str(&format!("\\x{byte:02x}"));
                    }
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// A path as a word of a shell command: in quotes if a shell would change it.
pub(crate) fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Figures for people: a JSON document as indented lines `name: value`, numbers whose name has `bytes` in it with a unit behind them. What is 0 or nothing is left out; members of a list that have a name
/// stand under that.
pub(crate) fn figures(value: &Value) -> String {
    let mut out = String::new();
    write_figures(&mut out, 0, value);
    out
}

fn write_figures(out: &mut String, depth: usize, value: &Value) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                write_field(out, depth, name, field);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                match item {
                    Value::Object(fields) if fields.get("name").is_some_and(Value::is_string) => {
                        let mut rest = fields.clone();
                        let name = rest.remove("name").unwrap_or_default();
                        let name = name.as_str().unwrap_or_default();
                        write_field(out, depth, name, &Value::Object(rest));
                    }
                    // A part of memory and its size.
                    Value::Array(pair) => match &pair[..] {
                        [Value::String(name), size @ Value::Number(_)] => {
                            write_field(out, depth, &format!("{name}_bytes"), size);
                        }
                        _ => write_field(out, depth, &format!("[{index}]"), item),
                    },
                    _ => write_field(out, depth, &format!("[{index}]"), item),
                }
            }
        }
        other => out.push_str(&format!("{indent}{other}\n")),
    }
}

fn write_field(out: &mut String, depth: usize, name: &str, value: &Value) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Null => {}
        Value::Object(_) | Value::Array(_) => {
            let mut within = String::new();
            write_figures(&mut within, depth + 1, value);
            if !within.is_empty() {
                out.push_str(&format!("{indent}{name}:\n{within}"));
            }
        }
        Value::Number(number) if number.as_f64() == Some(0.0) => {}
        Value::Number(number) => {
            let size = number.as_u64().filter(|_| name.contains("bytes"));
            match size {
                Some(size) if size >= 1024 => {
                    out.push_str(&format!("{indent}{name}: {number} ({})\n", size_text(size)));
                }
                _ => out.push_str(&format!("{indent}{name}: {number}\n")),
            }
        }
        Value::String(text) => out.push_str(&format!("{indent}{name}: {text}\n")),
        other => out.push_str(&format!("{indent}{name}: {other}\n")),
    }
}

/// `1536` as `1.5 KiB`.
pub(crate) fn size_text(size: u64) -> String {
    indicatif::BinaryBytes(size).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_escapes_what_a_terminal_would_act_on() {
        assert_eq!(
            printable(b"a\x1b[0m\\\xff\n\xc3\xa4"),
            "a\\x1b[0m\\\\\\xff\\n\u{e4}"
        );
    }

    #[test]
    fn paths_are_quoted_if_a_shell_would_change_them() {
        let word = |path: &str| shell_word(Path::new(path));
        assert_eq!(word("./data-1/x_y.z"), "./data-1/x_y.z");
        assert_eq!(word("my data"), "'my data'");
        assert_eq!(word("it's $HOME"), r"'it'\''s $HOME'");
    }

    #[test]
    fn figures_are_indented_sizes_have_units_and_zeros_are_left_out() {
        let value = serde_json::json!({
            "error": null,
            "log": {"bytes": 2048, "segments": 2, "syncs": 0},
            "parts": [["cache", 4096], ["ring", 0]],
            "reads": [0, 3],
            "waits": [{"name": "space", "count": 0}, {"name": "sync", "count": 2}],
        });
        assert_eq!(
            figures(&value),
            "log:\n  bytes: 2048 (2.00 KiB)\n  segments: 2\nparts:\n  cache_bytes: 4096 (4.00 KiB)\nreads:\n  [1]: 3\nwaits:\n  sync:\n    count: 2\n"
        );
    }
}
