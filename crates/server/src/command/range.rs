//! GRANGE, a command of our own: entries in key order.
//!
//! `GRANGE start end [LIMIT count] [REV] [KEYSONLY]`. Bounds are written as in ZRANGEBYLEX: `-` and `+` for the first and last key, `[key` to include a key,
//! `(key` to leave it out. `start` is always the lower bound; `REV` answers from the upper end. The answer is an array of keys and values in turn (in RESP3: of
//! pairs), or with `KEYSONLY` of keys. Without a LIMIT the whole range is answered, or refused where that were more than [`ENTRIES_MAX`] entries or
//! [`ANSWER_BYTES_MAX`]: never cut short silently. Pages: go on from `(last key`.

use std::ops::Bound;

use bytes::Bytes;

use super::{ANSWER_BYTES_MAX, CommandError, CommandResult, NOT_AN_INTEGER, SYNTAX, is_option};
use crate::protocol::Args;
use crate::protocol::number::parse_i64;
use crate::protocol::reply::{Protocol, Reply};
use crate::store::view::View;
use crate::value::StoredValue;

const ENTRIES_MAX: usize = 1 << 20;

#[derive(Default)]
struct Options {
    limit: Option<usize>,
    reverse: bool,
    keys_only: bool,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let mut options = Options::default();
        let mut at = 3;
        while at < args.len() {
            let word = args.get(at);
            if is_option(word, "REV") {
                options.reverse = true;
            } else if is_option(word, "KEYSONLY") {
                options.keys_only = true;
            } else if is_option(word, "LIMIT") && at + 1 < args.len() {
                at += 1;
                let limit = parse_i64(args.get(at)).ok_or(NOT_AN_INTEGER)?;
                let limit = usize::try_from(limit)
                    .map_err(|_| CommandError::new("ERR LIMIT must not be negative"))?;
                options.limit = Some(limit);
            } else {
                return Err(SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

fn bound(text: &[u8]) -> Result<(Bound<&[u8]>, i8), CommandError> {
    match text {
        b"-" => Ok((Bound::Unbounded, -1)),
        b"+" => Ok((Bound::Unbounded, 1)),
        [b'[', key @ ..] => Ok((Bound::Included(key), 0)),
        [b'(', key @ ..] => Ok((Bound::Excluded(key), 0)),
        _ => Err(CommandError::new(
            "ERR min or max not valid string range item",
        )),
    }
}

/// Can anything lie between the bounds?
fn is_empty(start: (Bound<&[u8]>, i8), end: (Bound<&[u8]>, i8)) -> bool {
    match (start, end) {
        ((_, 1), _) | (_, (_, -1)) => true,
        ((Bound::Included(from), _), (Bound::Included(to), _)) => from > to,
        (
            (Bound::Included(from) | Bound::Excluded(from), _),
            (Bound::Included(to) | Bound::Excluded(to), _),
        ) => from >= to,
        _ => false,
    }
}

pub(crate) fn grange<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let (start, end) = (bound(args.get(1))?, bound(args.get(2))?);
    let options = Options::parse(args)?;
    let entries = if is_empty(start, end) {
        Vec::new()
    } else {
        collect(view, (start.0, end.0), &options)?
    };
    let pairs = reply.protocol == Protocol::Resp3;
    let flat = options.keys_only || pairs;
    reply.array(entries.len() * if flat { 1 } else { 2 });
    for (key, value) in entries {
        match value {
            None => reply.value(key),
            Some(value) => {
                if pairs {
                    reply.array(2);
                }
                reply.value(key);
                reply.value(value);
            }
        }
    }
    Ok(())
}

fn collect(
    view: &mut View<'_>,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    options: &Options,
) -> Result<Vec<(Bytes, Option<Bytes>)>, CommandError> {
    let now_ms = view.now_ms;
    let with_values = !options.keys_only || view.store.expired_keys_may_be_there(now_ms)?;
    let Some(iter) = view.range(range) else {
        return Ok(Vec::new());
    };
    let iter = match options.limit {
        Some(limit) => iter.limit_hint(limit),
        None => iter,
    };
    let mut entries: Box<dyn Iterator<Item = glintdb::Result<(Bytes, Option<Bytes>)>>> =
        match (with_values, options.reverse) {
            (true, false) => Box::new(iter.map(|entry| entry.map(|(k, v)| (k, Some(v))))),
            (true, true) => Box::new(iter.rev().map(|entry| entry.map(|(k, v)| (k, Some(v))))),
            (false, false) => Box::new(iter.keys().map(|key| key.map(|key| (key, None)))),
            (false, true) => Box::new(iter.keys().rev().map(|key| key.map(|key| (key, None)))),
        };
    let mut found = Vec::new();
    let mut bytes = 0;
    while options.limit.is_none_or(|limit| found.len() < limit) {
        let Some(entry) = entries.next() else { break };
        let (key, stored) = entry?;
        let value = match stored.map(StoredValue::decode).transpose()? {
            Some(value) if value.expired(now_ms) => continue,
            Some(value) if !options.keys_only => Some(value.value),
            _ => None,
        };
        bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
        if found.len() == ENTRIES_MAX || bytes > ANSWER_BYTES_MAX {
            return Err(CommandError(
                format!(
                    "ERR the range holds more than {ENTRIES_MAX} entries or {} MiB; ask for less with LIMIT",
                    ANSWER_BYTES_MAX >> 20
                )
                .into(),
            ));
        }
        found.push((key, value));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_cross_hold_nothing() {
        let empty = |from: &[u8], to: &[u8]| is_empty(bound(from).unwrap(), bound(to).unwrap());
        assert!(!empty(b"-", b"+"));
        assert!(empty(b"+", b"-"));
        assert!(empty(b"+", b"+"));
        assert!(!empty(b"[a", b"[a"));
        assert!(empty(b"(a", b"[a"));
        assert!(empty(b"[b", b"(a"));
        assert!(!empty(b"-", b"(a"));
        assert!(bound(b"a").is_err());
    }
}
