//! Inline commands: a line of words, as typed into `telnet`. Quoting as in Redis' `sdssplitargs`.

use super::Span;
use super::parser::offset;

/// Splits `buffer[start..end]` (a line without its end) into words, and writes each unquoted word over the place it came from: unquoting never
/// makes a word longer. `false` for unbalanced quotes; `spans` then holds rubbish the caller drops.
pub(crate) fn split(buffer: &mut [u8], start: usize, end: usize, spans: &mut Vec<Span>) -> bool {
    let mut read = start;
    let mut write = start;
    loop {
        while read < end && is_space(buffer[read]) {
            read += 1;
        }
        if read >= end {
            return true;
        }
        let word = write;
        while read < end && !is_space(buffer[read]) {
            match buffer[read] {
                quote @ (b'"' | b'\'') => {
                    match unquote(buffer, read + 1, end, &mut write, quote) {
                        // A closing quote must be followed by a space or nothing.
                        Some(next) if next == end || is_space(buffer[next]) => read = next,
                        _ => return false,
                    }
                    break;
                }
                byte => {
                    buffer[write] = byte;
                    write += 1;
                    read += 1;
                }
            }
        }
        spans.push(Span {
            start: offset(word),
            len: offset(write - word),
        });
    }
}

/// Unquotes from `read` to the closing quote; the position behind it, or `None` if there is none.
fn unquote(
    buffer: &mut [u8],
    mut read: usize,
    end: usize,
    write: &mut usize,
    quote: u8,
) -> Option<usize> {
    while read < end {
        let byte = buffer[read];
        let (value, length) = if byte == quote {
            return Some(read + 1);
        } else if byte != b'\\' || read + 1 >= end {
            (byte, 1)
        } else if quote == b'\'' {
            // Single quotes know one escape: their own.
            match buffer[read + 1] {
                b'\'' => (b'\'', 2),
                _ => (b'\\', 1),
            }
        } else {
            escape(&buffer[read + 1..end])
        };
        buffer[*write] = value;
        *write += 1;
        read += length;
    }
    None
}

/// What stands behind a backslash in double quotes: the byte it means and the length of the whole escape, backslash included.
fn escape(rest: &[u8]) -> (u8, usize) {
    if let [b'x', high, low, ..] = rest
        && let (Some(high), Some(low)) = (hex(*high), hex(*low))
    {
        return (high * 16 + low, 4);
    }
    let value = match rest.first().copied().unwrap_or(b'\\') {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    };
    (value, 2)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn is_space(byte: u8) -> bool {
    // C's isspace.
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let mut buffer = line.as_bytes().to_vec();
        let mut spans = Vec::new();
        let end = buffer.len();
        split(&mut buffer, 0, end, &mut spans).then(|| {
            spans
                .iter()
                .map(|span| {
                    let start = span.start as usize;
                    buffer[start..start + span.len as usize]
                        .escape_ascii()
                        .to_string()
                })
                .collect()
        })
    }

    #[test]
    fn words_are_split_and_unquoted_like_redis() {
        let some = |list: &[&str]| Some(list.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(words("  set  a\tb "), some(&["set", "a", "b"]));
        assert_eq!(words(""), some(&[]));
        assert_eq!(words("   "), some(&[]));
        assert_eq!(words(r#"set a "b c""#), some(&["set", "a", "b c"]));
        assert_eq!(words(r#""""#), some(&[""]));
        assert_eq!(words(r#""\x41\n\q\\""#), some(&[r"A\nq\\"]));
        assert_eq!(words(r"'a\'b\n'"), some(&[r"a\'b\\n"]));
        assert_eq!(words(r#"ab"cd""#), some(&["abcd"]));
        assert_eq!(words(r#"set "a"#), None);
        assert_eq!(words(r#"set "a"b"#), None);
        assert_eq!(words("set 'a"), None);
        assert_eq!(words(r#""\"#), None);
    }
}
