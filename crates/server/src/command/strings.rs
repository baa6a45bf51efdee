//! GET, SET and everything else that reads or makes a string.

use bytes::Bytes;

use super::expire::{Unit, absolute_ms};
use super::{ANSWER_BYTES_MAX, CommandError, CommandResult, NOT_AN_INTEGER, SYNTAX, is_option};
use crate::protocol::Args;
use crate::protocol::number::parse_i64;
use crate::protocol::reply::Reply;
use crate::store::view::{Value, View};

/// Longest string, in bytes: Redis' default `proto-max-bulk-len`.
pub(crate) const STRING_BYTES_MAX: usize = 512 << 20;

pub(crate) fn get<'a>(view: &mut View<'a>, args: Args<'a>, reply: &mut Reply<'_>) -> CommandResult {
    let current = view.lookup(args.get(1))?;
    answer(current.map(|current| current.value), reply);
    Ok(())
}

/// A value or null; one that stands in the request is not copied twice.
pub(crate) fn answer(value: Option<Value<'_>>, reply: &mut Reply<'_>) {
    match value {
        Some(Value::Stored(bytes)) => reply.value(bytes),
        Some(Value::Request(bytes)) => reply.bulk(bytes),
        None => reply.null(),
    }
}

pub(crate) fn mget<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let keys: Vec<&'a [u8]> = args.from(1).collect();
    let most = ANSWER_BYTES_MAX.min(reply.output.room_bytes());
    let found = view
        .lookup_many(&keys, most)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    if found.len() < keys.len() {
        return Err(CommandError(
            format!(
                "ERR the values have more than {} MiB together; ask for fewer keys at once",
                most >> 20
            )
            .into(),
        ));
    }
    reply.array(found.len());
    for current in found {
        answer(current.map(|current| current.value), reply);
    }
    Ok(())
}

/// The options of SET and GETEX.
#[derive(Default)]
struct Options<'a> {
    only_new: bool,
    only_old: bool,
    get: bool,
    keep_ttl: bool,
    persist: bool,
    expiry: Option<(Unit, &'a [u8])>,
}

impl<'a> Options<'a> {
    /// Redis' `parseExtendedStringArgumentsOrReply`.
    fn parse(args: Args<'a>, from: usize, set: bool) -> Result<Self, CommandError> {
        let mut options = Options::default();
        let mut at = from;
        while at < args.len() {
            let word = args.get(at);
            let unit = [
                ("EX", Unit::Seconds),
                ("PX", Unit::Milliseconds),
                ("EXAT", Unit::SecondsAbsolute),
                ("PXAT", Unit::MillisecondsAbsolute),
            ]
            .into_iter()
            .find(|(name, _)| is_option(word, name))
            .map(|(_, unit)| unit);
            if let Some(unit) = unit {
                let other = options.expiry.is_some_and(|(before, _)| before != unit);
                if other || options.keep_ttl || options.persist || at + 1 == args.len() {
                    return Err(SYNTAX);
                }
                at += 1;
                options.expiry = Some((unit, args.get(at)));
            } else if set && is_option(word, "NX") && !options.only_old {
                options.only_new = true;
            } else if set && is_option(word, "XX") && !options.only_new {
                options.only_old = true;
            } else if set && is_option(word, "GET") {
                options.get = true;
            } else if set && is_option(word, "KEEPTTL") && options.expiry.is_none() {
                options.keep_ttl = true;
            } else if !set && is_option(word, "PERSIST") && options.expiry.is_none() {
                options.persist = true;
            } else {
                return Err(SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }

    fn expires_ms(&self, now_ms: u64, command: &str) -> Result<u64, CommandError> {
        match self.expiry {
            None => Ok(0),
            Some((unit, text)) => {
                let number = parse_i64(text).ok_or(NOT_AN_INTEGER)?;
                if number <= 0 {
                    return Err(CommandError::invalid_expire(command));
                }
                let at = absolute_ms(number, unit, now_ms, command)?;
                u64::try_from(at).map_err(|_| CommandError::invalid_expire(command))
            }
        }
    }
}

pub(crate) fn set<'a>(view: &mut View<'a>, args: Args<'a>, reply: &mut Reply<'_>) -> CommandResult {
    let key = args.get(1);
    let options = Options::parse(args, 3, true)?;
    let mut expires_ms = options.expires_ms(view.now_ms, "set")?;
    super::expire::check_key(key, expires_ms)?;
    let mut old = None;
    if options.get || options.keep_ttl {
        old = if options.get {
            view.lookup(key)?
        } else {
            view.get(key)?
        };
    }
    let blocked = if options.only_new || options.only_old {
        let there = match options.get || options.keep_ttl {
            true => old.is_some(),
            false => view.exists(key)?,
        };
        there == options.only_new
    } else {
        false
    };
    if !blocked {
        if options.keep_ttl {
            expires_ms = old.as_ref().map_or(0, |current| current.expires_ms);
        }
        view.put(key, Value::Request(args.get(2)), expires_ms)?;
    }
    match (options.get, blocked) {
        (true, _) => answer(old.map(|current| current.value), reply),
        (false, true) => reply.null(),
        (false, false) => reply.ok(),
    }
    Ok(())
}

pub(crate) fn setnx<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let there = view.exists(args.get(1))?;
    if !there {
        view.put(args.get(1), Value::Request(args.get(2)), 0)?;
    }
    reply.integer(i64::from(!there));
    Ok(())
}

pub(crate) fn setex<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    set_expiring(view, args, reply, Unit::Seconds, "setex")
}

pub(crate) fn psetex<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    set_expiring(view, args, reply, Unit::Milliseconds, "psetex")
}

fn set_expiring<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
    unit: Unit,
    command: &str,
) -> CommandResult {
    let options = Options {
        expiry: Some((unit, args.get(2))),
        ..Options::default()
    };
    let expires_ms = options.expires_ms(view.now_ms, command)?;
    super::expire::check_key(args.get(1), expires_ms)?;
    view.put(args.get(1), Value::Request(args.get(3)), expires_ms)?;
    reply.ok();
    Ok(())
}

pub(crate) fn mset<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::arity("mset"));
    }
    put_pairs(view, args)?;
    reply.ok();
    Ok(())
}

pub(crate) fn msetnx<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::arity("msetnx"));
    }
    for index in (1..args.len()).step_by(2) {
        if view.exists(args.get(index))? {
            reply.integer(0);
            return Ok(());
        }
    }
    put_pairs(view, args)?;
    reply.integer(1);
    Ok(())
}

fn put_pairs<'a>(view: &mut View<'a>, args: Args<'a>) -> CommandResult {
    for index in (1..args.len()).step_by(2) {
        view.put(args.get(index), Value::Request(args.get(index + 1)), 0)?;
    }
    Ok(())
}

pub(crate) fn getset<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let old = view.lookup(args.get(1))?;
    view.put(args.get(1), Value::Request(args.get(2)), 0)?;
    answer(old.map(|current| current.value), reply);
    Ok(())
}

pub(crate) fn getdel<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let old = view.lookup(args.get(1))?;
    if old.is_some() {
        view.delete(args.get(1))?;
    }
    answer(old.map(|current| current.value), reply);
    Ok(())
}

pub(crate) fn getex<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = args.get(1);
    let options = Options::parse(args, 2, false)?;
    let Some(old) = view.lookup(key)? else {
        reply.null();
        return Ok(());
    };
    let expires_ms = options.expires_ms(view.now_ms, "getex")?;
    super::expire::check_key(key, expires_ms)?;
    if options.expiry.is_some() && expires_ms <= view.now_ms {
        view.delete(key)?;
    } else if options.expiry.is_some() || (options.persist && old.expires_ms != 0) {
        view.put(key, old.value.clone(), expires_ms)?;
    }
    answer(Some(old.value), reply);
    Ok(())
}

pub(crate) fn incr<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    add(view, args, reply, 1)
}

pub(crate) fn decr<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    add(view, args, reply, -1)
}

pub(crate) fn incrby<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let by = parse_i64(args.get(2)).ok_or(NOT_AN_INTEGER)?;
    add(view, args, reply, by)
}

pub(crate) fn decrby<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let by = parse_i64(args.get(2)).ok_or(NOT_AN_INTEGER)?;
    let by = by
        .checked_neg()
        .ok_or(CommandError::new("ERR decrement would overflow"))?;
    add(view, args, reply, by)
}

fn add<'a>(view: &mut View<'a>, args: Args<'a>, reply: &mut Reply<'_>, by: i64) -> CommandResult {
    let key = args.get(1);
    let old = view.get(key)?;
    let (number, expires_ms) = match &old {
        Some(current) => (
            parse_i64(current.value.as_ref()).ok_or(NOT_AN_INTEGER)?,
            current.expires_ms,
        ),
        None => (0, 0),
    };
    let sum = number.checked_add(by).ok_or(CommandError::new(
        "ERR increment or decrement would overflow",
    ))?;
    let text = Bytes::copy_from_slice(itoa::Buffer::new().format(sum).as_bytes());
    view.put(key, Value::Stored(text), expires_ms)?;
    reply.integer(sum);
    Ok(())
}

pub(crate) fn append<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let (key, more) = (args.get(1), args.get(2));
    let length = match view.get(key)? {
        None => {
            view.put(key, Value::Request(more), 0)?;
            more.len()
        }
        Some(current) => {
            let old = current.value.as_ref();
            if old.len() + more.len() > STRING_BYTES_MAX {
                return Err(CommandError::new(
                    "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
                ));
            }
            let mut joined = Vec::with_capacity(old.len() + more.len());
            joined.extend_from_slice(old);
            joined.extend_from_slice(more);
            let length = joined.len();
            view.put(key, Value::Stored(joined.into()), current.expires_ms)?;
            length
        }
    };
    reply.count(length as u64);
    Ok(())
}

pub(crate) fn strlen<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let current = view.lookup(args.get(1))?;
    reply.count(current.map_or(0, |current| current.value.as_ref().len() as u64));
    Ok(())
}
