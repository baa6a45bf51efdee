//! Answers in RESP2 or RESP3, written into an [`Output`].

use bytes::Bytes;

use super::output::Output;

/// The version of the protocol a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

/// Writes answers. One value or header a call; the caller keeps announced counts.
pub(crate) struct Reply<'o> {
    pub(crate) output: &'o mut Output,
    pub(crate) protocol: Protocol,
}

impl Reply<'_> {
    /// `+OK`
    pub(crate) fn ok(&mut self) {
        self.output.push(b"+OK\r\n");
    }

    /// A simple string; `text` has no line ends.
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error: `text` starts with its code (`ERR`, `WRONGPASS`, …). Line ends become spaces, for a line is all an error may be.
    pub(crate) fn error(&mut self, text: &str) {
        self.output.push(b"-");
        if text.bytes().any(|byte| byte == b'\r' || byte == b'\n') {
            self.output.push(text.replace(['\r', '\n'], " ").as_bytes());
        } else {
            self.output.push(text.as_bytes());
        }
        self.output.push(b"\r\n");
    }

    pub(crate) fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }

    /// A count as an integer.
    pub(crate) fn count(&mut self, value: u64) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// A binary-safe string.
    pub(crate) fn bulk(&mut self, value: &[u8]) {
        self.length(b'$', value.len());
        self.output.push(value);
        self.output.push(b"\r\n");
    }

    /// A binary-safe string, without a copy where it is large.
    pub(crate) fn value(&mut self, value: Bytes) {
        self.length(b'$', value.len());
        self.output.push_value(value);
        self.output.push(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        self.output.push(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Null where an array would stand.
    pub(crate) fn null_array(&mut self) {
        self.output.push(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Header of an array of `count` answers.
    pub(crate) fn array(&mut self, count: usize) {
        self.length(b'*', count);
    }

    /// Header of a map of `count` pairs; in RESP2 an array of twice as many answers.
    pub(crate) fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', count * 2),
            Protocol::Resp3 => self.length(b'%', count),
        }
    }

    /// Header of a set of `count` answers; in RESP2 an array.
    pub(crate) fn set(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', count),
            Protocol::Resp3 => self.length(b'~', count),
        }
    }

    /// Text for people; in RESP2 a plain string.
    pub(crate) fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.output.push(b"txt:");
                self.output.push(text.as_bytes());
                self.output.push(b"\r\n");
            }
        }
    }

    /// An array of simple strings, as HELP answers are.
    pub(crate) fn lines(&mut self, lines: &[&str]) {
        self.array(lines.len());
        for line in lines {
            self.simple(line);
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.output.push(&[kind]);
        self.output.push(text);
        self.output.push(b"\r\n");
    }

    fn length(&mut self, kind: u8, length: usize) {
        self.number(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    fn number(&mut self, kind: u8, value: i64) {
        let mut buffer = itoa::Buffer::new();
        self.line(kind, buffer.format(value).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp_rs::{resp2, resp3};

    fn written(protocol: Protocol, write: impl Fn(&mut Reply<'_>)) -> Bytes {
        let mut output = Output::new(usize::MAX);
        write(&mut Reply {
            output: &mut output,
            protocol,
        });
        Bytes::from(output.take_from(0))
    }

    #[test]
    fn another_implementation_reads_our_answers() {
        let two = |write: &dyn Fn(&mut Reply<'_>)| {
            resp2::parse_frame(written(Protocol::Resp2, write))
                .unwrap()
                .0
        };
        let three = |write: &dyn Fn(&mut Reply<'_>)| {
            resp3::parse_frame(written(Protocol::Resp3, write))
                .unwrap()
                .0
        };
        assert_eq!(two(&|r| r.null()), resp2::Frame::BulkString(None));
        assert_eq!(two(&|r| r.null_array()), resp2::Frame::Array(None));
        assert_eq!(three(&|r| r.null()), resp3::Frame::Null);
        assert_eq!(three(&|r| r.null_array()), resp3::Frame::Null);
        assert_eq!(
            two(&|r| r.integer(i64::MIN)),
            resp2::Frame::Integer(i64::MIN)
        );
        assert_eq!(
            two(&|r| r.error("ERR a\r\nb")),
            resp2::Frame::Error(Bytes::from_static(b"ERR a  b"))
        );
        assert_eq!(
            three(&|r| r.verbatim("x:1\r\n")),
            resp3::Frame::VerbatimString {
                payload: Bytes::from_static(b"txt:x:1\r\n")
            }
        );
        let pair = |r: &mut Reply<'_>| {
            r.map(1);
            r.bulk(b"k");
            r.value(Bytes::from_static(b"v"));
        };
        assert_eq!(two(&pair).into_array().unwrap().len(), 2);
        assert!(matches!(three(&pair), resp3::Frame::Map(pairs) if pairs.len() == 1));
        assert!(matches!(
            three(&|r| { r.set(1); r.simple("fast"); }),
            resp3::Frame::Set(items) if items.len() == 1
        ));
    }
}
