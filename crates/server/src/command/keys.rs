//! Commands on keys and whole databases: DEL, EXISTS, TYPE, SCAN, DBSIZE, FLUSHDB.

use std::ops::Bound;

use super::{CommandError, CommandResult, NOT_AN_INTEGER, SYNTAX, is_option};
use crate::glob;
use crate::protocol::Args;
use crate::protocol::number::{parse_cursor, parse_i64};
use crate::protocol::reply::Reply;
use crate::store::view::View;
use crate::value::StoredValue;

/// Most keys one SCAN looks at, whatever COUNT says (it is a hint): a fraction of a second.
const SCAN_COUNT_MAX: usize = 1 << 16;
/// Behind so many bytes of keys a SCAN ends too, and behind so many steps of comparing them with the pattern (at most pattern × key each).
const SCAN_BYTES_MAX: usize = 8 << 20;
const SCAN_STEPS_MAX: usize = 1 << 28;

pub(crate) fn del<'a>(view: &mut View<'a>, args: Args<'a>, reply: &mut Reply<'_>) -> CommandResult {
    let mut removed = 0;
    for key in args.from(1) {
        if view.exists(key)? {
            view.delete(key)?;
            removed += 1;
        }
    }
    reply.integer(removed);
    Ok(())
}

/// EXISTS and TOUCH: how many of the keys are there, repeated ones counted again.
pub(crate) fn exists<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let mut there = 0;
    for key in args.from(1) {
        there += i64::from(view.lookup_exists(key)?);
    }
    reply.integer(there);
    Ok(())
}

pub(crate) fn type_of<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let there = view.exists(args.get(1))?;
    reply.simple(if there { "string" } else { "none" });
    Ok(())
}

pub(crate) fn dbsize<'a>(
    view: &mut View<'a>,
    _args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let keys = view.count()?;
    reply.count(keys);
    Ok(())
}

pub(crate) fn flushdb<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    check_flush(args)?;
    view.flush(view.db)?;
    reply.ok();
    Ok(())
}

pub(crate) fn flushall<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    check_flush(args)?;
    for db in 0..view.store.databases() {
        view.flush(db)?;
    }
    reply.ok();
    Ok(())
}

/// `ASYNC` and `SYNC` are both what happens: one record in the log, the space comes back later.
fn check_flush(args: Args<'_>) -> CommandResult {
    match args.len() {
        1 => Ok(()),
        2 if is_option(args.get(1), "ASYNC") || is_option(args.get(1), "SYNC") => Ok(()),
        _ => Err(SYNTAX),
    }
}

struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    strings: bool,
}

impl<'a> ScanOptions<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        let mut options = ScanOptions {
            pattern: None,
            count: 10,
            strings: true,
        };
        let mut at = 2;
        while at < args.len() {
            let word = args.get(at);
            if at + 1 == args.len() {
                return Err(SYNTAX);
            }
            let value = args.get(at + 1);
            if is_option(word, "COUNT") {
                let count = parse_i64(value).ok_or(NOT_AN_INTEGER)?;
                if count < 1 {
                    return Err(SYNTAX);
                }
                options.count = usize::try_from(count)
                    .unwrap_or(SCAN_COUNT_MAX)
                    .min(SCAN_COUNT_MAX);
            } else if is_option(word, "MATCH") {
                options.pattern = Some(value);
            } else if is_option(word, "TYPE") {
                options.strings = is_option(value, "STRING");
            } else {
                return Err(SYNTAX);
            }
            at += 2;
        }
        Ok(options)
    }
}

/// Keys come in order, so that a key which is there all the time is passed exactly once, and a pattern that starts with plain characters is looked for only where
/// it can be.
pub(crate) fn scan<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let cursor = parse_cursor(args.get(1)).ok_or(CommandError::new("ERR invalid cursor"))?;
    let options = ScanOptions::parse(args)?;
    let (prefix, exact) = options
        .pattern
        .map_or((Vec::new(), false), glob::literal_prefix);
    let (position, returned) = view.store.cursors.position(view.db, cursor);
    let start = match position.cmp(&prefix) {
        std::cmp::Ordering::Less => Bound::Included(prefix.as_slice()),
        _ if returned => Bound::Excluded(position.as_slice()),
        _ => Bound::Included(position.as_slice()),
    };
    let end = prefix_end(&prefix);
    let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let past_end = match (start, end) {
        (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end)) => start >= end,
        _ => false,
    };
    let found = if past_end || !options.strings {
        (Vec::new(), None)
    } else {
        collect(view, (start, end), &options, exact)?
    };
    let next = match &found.1 {
        Some(key) => view.store.cursors.create(view.db, key),
        None => 0,
    };
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(found.0.len());
    for key in found.0 {
        reply.value(key);
    }
    Ok(())
}

type Found = (Vec<bytes::Bytes>, Option<bytes::Bytes>);

/// Keys that match, of the next `count`; and the last key looked at, if there are more behind it.
fn collect(
    view: &mut View<'_>,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    options: &ScanOptions<'_>,
    exact: bool,
) -> Result<Found, CommandError> {
    let now_ms = view.now_ms;
    let with_values = view.store.expired_keys_may_be_there(now_ms)?;
    let Some(iter) = view.range(range) else {
        return Ok((Vec::new(), None));
    };
    let mut entries: Box<dyn Iterator<Item = glintdb::Result<(bytes::Bytes, bool)>>> =
        if with_values {
            Box::new(iter.map(move |entry| {
                let (key, stored) = entry?;
                let expired = StoredValue::decode(stored)?.expired(now_ms);
                Ok((key, expired))
            }))
        } else {
            Box::new(iter.keys().map(|key| Ok((key?, false))))
        };
    let mut keys = Vec::new();
    let mut last = None;
    let (mut bytes, mut steps) = (0usize, 0usize);
    for _ in 0..options.count {
        if bytes > SCAN_BYTES_MAX || steps > SCAN_STEPS_MAX {
            break;
        }
        let Some(entry) = entries.next() else {
            return Ok((keys, None));
        };
        let (key, expired) = entry?;
        bytes += key.len();
        steps += key.len() * options.pattern.map_or(0, <[u8]>::len);
        let matches = options
            .pattern
            .is_none_or(|pattern| glob::matches(pattern, &key));
        if matches && !expired {
            keys.push(key.clone());
        }
        if exact {
            // A pattern without wildcards: the first key is it, or is not there.
            return Ok((keys, None));
        }
        last = Some(key);
    }
    let more = entries.next().transpose()?.is_some();
    Ok((keys, last.filter(|_| more)))
}

/// The first key behind all that start with `prefix`; `None` if there is none.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last != u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_the_next_prefix() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
