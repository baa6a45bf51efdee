//! Commands on the connection itself: AUTH, HELLO, SELECT, MULTI, WATCH and their like.

use std::sync::atomic::Ordering;

use super::{CommandError, is_option};
use crate::protocol::Args;
use crate::protocol::number::parse_i64;
use crate::protocol::reply::{Protocol, Reply};
use crate::server::Server;
use crate::session::{Multi, QUEUE_BYTES_MAX, Replies, Session, WATCH_OVERHEAD_BYTES};
use crate::store::view::View;

/// The version of Redis whose commands and words these are.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

pub(crate) fn ping(_: &mut Session, _: &Server, args: Args<'_>, reply: &mut Reply<'_>) {
    match args.len() {
        1 => reply.simple("PONG"),
        2 => reply.bulk(args.get(1)),
        _ => reply.error(&CommandError::arity("ping").0),
    }
}

pub(crate) fn echo(_: &mut Session, _: &Server, args: Args<'_>, reply: &mut Reply<'_>) {
    reply.bulk(args.get(1));
}

pub(crate) fn quit(session: &mut Session, _: &Server, _: Args<'_>, reply: &mut Reply<'_>) {
    reply.ok();
    session.closing = true;
}

pub(crate) fn reset(session: &mut Session, server: &Server, _: Args<'_>, reply: &mut Reply<'_>) {
    session.multi = None;
    session.forget_watches(server);
    session.db = 0;
    session.client.db.store(0, Ordering::Relaxed);
    session.protocol = Protocol::Resp2;
    session.client.resp3.store(false, Ordering::Relaxed);
    session.replies = Replies::On;
    session.set_authenticated(server, server.config.password.is_none());
    session.client.details.lock().name.clear();
    session.client.no_evict.store(false, Ordering::Relaxed);
    session.client.no_touch.store(false, Ordering::Relaxed);
    reply.simple("RESET");
}

pub(crate) fn select(
    session: &mut Session,
    server: &Server,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) {
    let Some(number) = parse_i64(args.get(1)) else {
        return reply.error("ERR value is not an integer or out of range");
    };
    if i32::try_from(number).is_err() {
        return reply
            .error("ERR value is out of range, value must between -2147483648 and 2147483647");
    }
    match u32::try_from(number) {
        Ok(db) if db < server.store.databases() => {
            session.db = db;
            session.client.db.store(db, Ordering::Relaxed);
            reply.ok();
        }
        _ => reply.error("ERR DB index is out of range"),
    }
}

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// There is one user, `default`; without a password set, any will do for it.
fn authenticate(session: &mut Session, server: &Server, user: &[u8], password: &[u8]) -> bool {
    let right = match &server.config.password {
        Some(expected) => equal(expected.as_bytes(), password),
        None => true,
    };
    let admitted = user == b"default" && right;
    if admitted {
        session.set_authenticated(server, true);
    }
    admitted
}

/// Compares in a time that depends on the lengths only.
fn equal(expected: &[u8], given: &[u8]) -> bool {
    let difference = expected
        .iter()
        .zip(given.iter().chain(std::iter::repeat(&0)))
        .fold(0, |difference, (a, b)| difference | (a ^ b));
    std::hint::black_box(difference) == 0 && expected.len() == given.len()
}

pub(crate) fn auth(session: &mut Session, server: &Server, args: Args<'_>, reply: &mut Reply<'_>) {
    let (user, password) = match args.len() {
        2 if server.config.password.is_none() => {
            return reply.error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            );
        }
        2 => (&b"default"[..], args.get(1)),
        3 => (args.get(1), args.get(2)),
        _ => return reply.error("ERR syntax error"),
    };
    if authenticate(session, server, user, password) {
        reply.ok();
    } else {
        reply.error(WRONG_PASSWORD);
    }
}

pub(crate) fn hello(session: &mut Session, server: &Server, args: Args<'_>, reply: &mut Reply<'_>) {
    let protocol = match args.len() {
        1 => None,
        _ => match parse_i64(args.get(1)) {
            None => return reply.error("ERR Protocol version is not an integer or out of range"),
            Some(2) => Some(Protocol::Resp2),
            Some(3) => Some(Protocol::Resp3),
            Some(_) => return reply.error("NOPROTO unsupported protocol version"),
        },
    };
    let mut user = None;
    let mut name = None;
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - 1 - at;
        if is_option(args.get(at), "AUTH") && more >= 2 {
            user = Some((args.get(at + 1), args.get(at + 2)));
            at += 3;
        } else if is_option(args.get(at), "SETNAME") && more >= 1 {
            match super::client::valid_name(args.get(at + 1)) {
                Ok(valid) => name = Some(valid),
                Err(text) => return reply.error(text),
            }
            at += 2;
        } else {
            let option = String::from_utf8_lossy(args.get(at));
            return reply.error(&format!("ERR Syntax error in HELLO option '{option}'"));
        }
    }
    if let Some((user, password)) = user
        && !authenticate(session, server, user, password)
    {
        return reply.error(WRONG_PASSWORD);
    }
    if !session.authenticated {
        return reply.error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        );
    }
    if let Some(name) = name {
        session.client.details.lock().name = name;
    }
    if let Some(protocol) = protocol {
        session.protocol = protocol;
        reply.protocol = protocol;
        let resp3 = protocol == Protocol::Resp3;
        session.client.resp3.store(resp3, Ordering::Relaxed);
    }
    reply.map(7);
    for (field, value) in [
        ("server", "redis"),
        ("version", REDIS_VERSION),
        ("proto", ""),
        ("id", ""),
        ("mode", "standalone"),
        ("role", "master"),
    ] {
        reply.bulk(field.as_bytes());
        match field {
            "proto" => reply.integer(match session.protocol {
                Protocol::Resp2 => 2,
                Protocol::Resp3 => 3,
            }),
            "id" => reply.count(session.client.id),
            _ => reply.bulk(value.as_bytes()),
        }
    }
    reply.bulk(b"modules");
    reply.array(0);
}

pub(crate) fn multi(session: &mut Session, _: &Server, _: Args<'_>, reply: &mut Reply<'_>) {
    if session.multi.is_some() {
        return reply.error("ERR MULTI calls can not be nested");
    }
    session.multi = Some(Multi::default());
    reply.ok();
}

pub(crate) fn discard(session: &mut Session, server: &Server, _: Args<'_>, reply: &mut Reply<'_>) {
    if session.multi.take().is_none() {
        return reply.error("ERR DISCARD without MULTI");
    }
    session.forget_watches(server);
    reply.ok();
}

pub(crate) fn watch(session: &mut Session, server: &Server, args: Args<'_>, reply: &mut Reply<'_>) {
    if session.multi.is_some() {
        return reply.error("ERR WATCH inside MULTI is not allowed");
    }
    let (store, db) = (&server.store, session.db);
    // Keys that have expired are removed first, so that their removal later is no change. One after another: no more than one value is in memory at a time.
    for key in args.from(1) {
        let mut view = View::group(store, db, store.locks().keys(std::iter::once((db, key))));
        let looked_at = view.exists(key).and_then(|_| view.commit());
        if let Err(error) = looked_at {
            return reply.error(&CommandError::from(error).0);
        }
    }
    let mut held = store.locks().keys(args.from(1).map(|key| (db, key)));
    for key in args.from(1) {
        if session.watch_bytes > QUEUE_BYTES_MAX {
            return reply.error("ERR the watched keys are larger than 256 MiB");
        }
        if session.watches.insert((db, Box::from(key))) {
            session.watch_bytes += 2 * key.len() + WATCH_OVERHEAD_BYTES;
            store.locks().watch(&mut held, db, key, &session.touched);
        }
    }
    let watched = session.watches.len();
    session.client.watched.store(watched, Ordering::Relaxed);
    reply.ok();
}

pub(crate) fn unwatch(session: &mut Session, server: &Server, _: Args<'_>, reply: &mut Reply<'_>) {
    if !session.in_exec {
        session.forget_watches(server);
    }
    reply.ok();
}

pub(crate) fn shutdown(
    session: &mut Session,
    server: &Server,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) {
    for word in args.from(1) {
        if is_option(word, "ABORT") {
            return reply.error("ERR No shutdown in progress.");
        }
        let known = ["SAVE", "NOSAVE", "NOW", "FORCE"];
        if !known.iter().any(|option| is_option(word, option)) {
            return reply.error("ERR syntax error");
        }
    }
    // No answer: the closing connection is one.
    session.closing = true;
    server.shutdown.because("SHUTDOWN");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_equal_only_whole() {
        assert!(equal(b"secret", b"secret"));
        for wrong in [&b""[..], b"secre", b"secret\0", b"secreT"] {
            assert!(!equal(b"secret", wrong));
        }
    }
}
