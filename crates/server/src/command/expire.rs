//! EXPIRE, TTL and their relatives. Times are kept in milliseconds since 1970 UTC.

use super::{CommandError, CommandResult, NOT_AN_INTEGER, is_option};
use crate::protocol::Args;
use crate::protocol::number::parse_i64;
use crate::protocol::reply::Reply;
use crate::store::expiry::EXPIRING_KEY_BYTES_MAX;
use crate::store::view::View;

/// How a time is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Milliseconds,
    SecondsAbsolute,
    MillisecondsAbsolute,
}

/// The time in milliseconds since 1970; refused where Redis' 64 bits would overflow.
pub(crate) fn absolute_ms(
    number: i64,
    unit: Unit,
    now_ms: u64,
    command: &str,
) -> Result<i64, CommandError> {
    let number = match unit {
        Unit::Seconds | Unit::SecondsAbsolute => number.checked_mul(1000),
        Unit::Milliseconds | Unit::MillisecondsAbsolute => Some(number),
    };
    let base = match unit {
        Unit::Seconds | Unit::Milliseconds => i64::try_from(now_ms).unwrap_or(i64::MAX),
        Unit::SecondsAbsolute | Unit::MillisecondsAbsolute => 0,
    };
    number
        .and_then(|number| number.checked_add(base))
        .ok_or_else(|| CommandError::invalid_expire(command))
}

/// Expiring keys are a little shorter than others, for they are entered in the expiry index.
pub(crate) fn check_key(key: &[u8], expires_ms: u64) -> CommandResult {
    if expires_ms != 0 && key.len() > EXPIRING_KEY_BYTES_MAX {
        return Err(CommandError(
            format!("ERR a key with an expiry has at most {EXPIRING_KEY_BYTES_MAX} bytes").into(),
        ));
    }
    Ok(())
}

pub(crate) fn expire<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    set_expiry(view, args, reply, Unit::Seconds, "expire")
}

pub(crate) fn pexpire<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    set_expiry(view, args, reply, Unit::Milliseconds, "pexpire")
}

pub(crate) fn expireat<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    set_expiry(view, args, reply, Unit::SecondsAbsolute, "expireat")
}

pub(crate) fn pexpireat<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    set_expiry(view, args, reply, Unit::MillisecondsAbsolute, "pexpireat")
}

#[derive(Default)]
struct Conditions {
    none: bool,
    some: bool,
    later: bool,
    earlier: bool,
}

impl Conditions {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let mut conditions = Conditions::default();
        for word in args.from(3) {
            let flag = if is_option(word, "NX") {
                &mut conditions.none
            } else if is_option(word, "XX") {
                &mut conditions.some
            } else if is_option(word, "GT") {
                &mut conditions.later
            } else if is_option(word, "LT") {
                &mut conditions.earlier
            } else {
                let word = String::from_utf8_lossy(word);
                return Err(CommandError(
                    format!("ERR Unsupported option {word}").into(),
                ));
            };
            *flag = true;
        }
        if conditions.none && (conditions.some || conditions.later || conditions.earlier) {
            return Err(CommandError::new(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if conditions.later && conditions.earlier {
            return Err(CommandError::new(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(conditions)
    }

    /// May a key that expires at `old` (0 = never) be made to expire at `new`?
    fn allow(&self, old: u64, new: i64) -> bool {
        let old_or_never = i64::try_from(old).ok().filter(|old| *old != 0);
        !(self.none && old_or_never.is_some()
            || self.some && old_or_never.is_none()
            // Never is later than any time.
            || self.later && old_or_never.is_none_or(|old| new <= old)
            || self.earlier && old_or_never.is_some_and(|old| new >= old))
    }
}

fn set_expiry<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
    unit: Unit,
    command: &str,
) -> CommandResult {
    let conditions = Conditions::parse(args)?;
    let number = parse_i64(args.get(2)).ok_or(NOT_AN_INTEGER)?;
    let at = absolute_ms(number, unit, view.now_ms, command)?;
    let key = args.get(1);
    let Some(current) = view.get(key)? else {
        reply.integer(0);
        return Ok(());
    };
    if !conditions.allow(current.expires_ms, at) {
        reply.integer(0);
        return Ok(());
    }
    match u64::try_from(at) {
        Ok(at) if at > view.now_ms => {
            check_key(key, at)?;
            view.put(key, current.value, at)?;
        }
        _ => view.delete(key)?,
    }
    reply.integer(1);
    Ok(())
}

pub(crate) fn persist<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    match view.get(args.get(1))? {
        Some(current) if current.expires_ms != 0 => {
            view.put(args.get(1), current.value, 0)?;
            reply.integer(1);
        }
        _ => reply.integer(0),
    }
    Ok(())
}

pub(crate) fn ttl<'a>(view: &mut View<'a>, args: Args<'a>, reply: &mut Reply<'_>) -> CommandResult {
    // Rounded to the nearest second, as Redis does.
    answer(view, args, reply, |at, now| (at - now + 500) / 1000)
}

pub(crate) fn pttl<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    answer(view, args, reply, |at, now| at - now)
}

pub(crate) fn expiretime<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    answer(view, args, reply, |at, _| at.saturating_add(500) / 1000)
}

pub(crate) fn pexpiretime<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    answer(view, args, reply, |at, _| at)
}

/// -2 without the key, -1 without an expiry, else what `figure` makes of the expiry and the present.
fn answer<'a>(
    view: &mut View<'a>,
    args: Args<'a>,
    reply: &mut Reply<'_>,
    figure: fn(u64, u64) -> u64,
) -> CommandResult {
    match view.lookup(args.get(1))? {
        None => reply.integer(-2),
        Some(current) if current.expires_ms == 0 => reply.integer(-1),
        // A key that is there expires later than now.
        Some(current) => reply.count(figure(current.expires_ms, view.now_ms)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_take_never_for_the_latest_time() {
        let only = |name: &str| Conditions {
            none: name == "NX",
            some: name == "XX",
            later: name == "GT",
            earlier: name == "LT",
        };
        for (name, old, new, allowed) in [
            ("NX", 0, 5, true),
            ("NX", 4, 5, false),
            ("XX", 0, 5, false),
            ("XX", 4, 5, true),
            ("GT", 0, 5, false),
            ("GT", 4, 5, true),
            ("GT", 5, 5, false),
            ("LT", 0, 5, true),
            ("LT", 6, 5, true),
            ("LT", 5, 5, false),
        ] {
            assert_eq!(only(name).allow(old, new), allowed, "{name} {old} {new}");
        }
    }

    #[test]
    fn times_beyond_64_bits_are_refused() {
        let limit = i64::MAX / 1000;
        assert!(absolute_ms(limit, Unit::SecondsAbsolute, 0, "x").is_ok());
        assert!(absolute_ms(limit + 1, Unit::SecondsAbsolute, 0, "x").is_err());
        assert!(absolute_ms(limit, Unit::Seconds, 1000, "x").is_err());
        assert!(absolute_ms(i64::MAX, Unit::Milliseconds, 1, "x").is_err());
        assert!(absolute_ms(i64::MIN, Unit::Milliseconds, 1, "x").is_ok());
    }
}
