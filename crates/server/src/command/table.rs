//! The table of commands: name, arity, where the keys are, how to run it. COMMAND answers from it.

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::FixedState;

use super::{CommandResult, client, expire, introspect, keys, range, session, strings};
use crate::protocol::Args;
use crate::protocol::reply::Reply;
use crate::server::Server;
use crate::session::Session;
use crate::store::view::View;

/// Runs on keys; may run in a group with its neighbours, or in an EXEC.
pub(crate) type DataCommand = for<'a> fn(&mut View<'a>, Args<'a>, &mut Reply<'_>) -> CommandResult;

/// Runs on the connection or the server. Answers, errors included, by itself.
pub(crate) type SessionCommand = fn(&mut Session, &Server, Args<'_>, &mut Reply<'_>);

#[derive(Clone, Copy)]
pub(crate) enum Run {
    Data(DataCommand),
    Session(SessionCommand),
    /// EXEC, which the session runs itself.
    Exec,
}

/// Changes keys.
pub(crate) const WRITE: u32 = 1;
/// Looks at values that are there, so that a group reads them ahead.
pub(crate) const READS: u32 = 1 << 1;
/// Touches whole databases, not keys it names.
pub(crate) const WHOLE: u32 = 1 << 2;
/// Allowed before authentication.
pub(crate) const NO_AUTH: u32 = 1 << 3;
/// Run at once, not queued, inside MULTI.
pub(crate) const UNQUEUED: u32 = 1 << 4;
/// Refused inside MULTI.
pub(crate) const NO_MULTI: u32 = 1 << 5;
/// O(1) or nearly.
pub(crate) const FAST: u32 = 1 << 6;
pub(crate) const ADMIN: u32 = 1 << 7;

/// One command.
pub(crate) struct CommandSpec {
    pub(crate) name: &'static str,
    /// Number of arguments, the name included; at least so many if negative.
    pub(crate) arity: i32,
    pub(crate) flags: u32,
    /// First and last argument that is a key (negative: from the end), and the distance between keys; 0 without keys.
    pub(crate) keys: (usize, i32, usize),
    pub(crate) run: Run,
    pub(crate) group: &'static str,
    pub(crate) since: &'static str,
    pub(crate) summary: &'static str,
}

impl CommandSpec {
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn arity_fits(&self, args: Args<'_>) -> bool {
        match usize::try_from(self.arity) {
            Ok(exact) => args.len() == exact,
            Err(_) => args.len() >= self.arity.unsigned_abs() as usize,
        }
    }

    /// The keys among the arguments. The arity fits.
    pub(crate) fn keys<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (first, last, step) = self.keys;
        let last = match usize::try_from(last) {
            Ok(last) => last,
            Err(_) => args.len().saturating_sub(last.unsigned_abs() as usize),
        };
        let end = if first == 0 { 0 } else { last + 1 };
        (first..end.min(args.len()))
            .step_by(step.max(1))
            .map(move |index| args.get(index))
    }

    /// May it run in a group?
    pub(crate) fn groups(&self) -> bool {
        self.keys.0 != 0 && matches!(self.run, Run::Data(_))
    }

    /// Redis' names for the flags.
    pub(crate) fn flag_names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        if self.has(WRITE) {
            names.push("write");
        } else if matches!(self.run, Run::Data(_)) {
            names.push("readonly");
        }
        for (flag, name) in [
            (ADMIN, "admin"),
            (FAST, "fast"),
            (NO_AUTH, "no_auth"),
            (NO_MULTI, "no_multi"),
        ] {
            if self.has(flag) {
                names.push(name);
            }
        }
        names
    }
}

const ONE: (usize, i32, usize) = (1, 1, 1);
const ALL: (usize, i32, usize) = (1, -1, 1);
const PAIRS: (usize, i32, usize) = (1, -1, 2);
const NONE: (usize, i32, usize) = (0, 0, 0);

macro_rules! commands {
    ($($name:literal $arity:literal $group:literal $since:literal $flags:expr, $keys:expr, $kind:ident $(($function:path))?, $summary:literal;)*) => {
        &[$(CommandSpec {
            name: $name,
            arity: $arity,
            flags: $flags,
            keys: $keys,
            run: Run::$kind $(($function))?,
            group: $group,
            since: $since,
            summary: $summary,
        }),*]
    };
}

/// All commands.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[CommandSpec] = commands! {
    "append"      3 "string" "2.0.0" WRITE | READS | FAST, ONE, Data(strings::append), "Appends to a string; makes it if it is not there.";
    "decr"        2 "string" "1.0.0" WRITE | READS | FAST, ONE, Data(strings::decr), "Takes one from an integer; 0 if it is not there.";
    "decrby"      3 "string" "1.0.0" WRITE | READS | FAST, ONE, Data(strings::decrby), "Takes a number from an integer; 0 if it is not there.";
    "get"         2 "string" "1.0.0" READS | FAST, ONE, Data(strings::get), "A key's value.";
    "getdel"      2 "string" "6.2.0" WRITE | READS | FAST, ONE, Data(strings::getdel), "A key's value; removes the key.";
    "getex"      -2 "string" "6.2.0" WRITE | READS | FAST, ONE, Data(strings::getex), "A key's value; changes its expiry.";
    "getset"      3 "string" "1.0.0" WRITE | READS | FAST, ONE, Data(strings::getset), "A key's old value; sets a new one.";
    "incr"        2 "string" "1.0.0" WRITE | READS | FAST, ONE, Data(strings::incr), "Adds one to an integer; 0 if it is not there.";
    "incrby"      3 "string" "1.0.0" WRITE | READS | FAST, ONE, Data(strings::incrby), "Adds a number to an integer; 0 if it is not there.";
    "mget"       -2 "string" "1.0.0" READS | FAST, ALL, Data(strings::mget), "Values of several keys.";
    "mset"       -3 "string" "1.0.1" WRITE, PAIRS, Data(strings::mset), "Sets several keys, atomically.";
    "msetnx"     -3 "string" "1.0.1" WRITE, PAIRS, Data(strings::msetnx), "Sets several keys, atomically, if none of them is there.";
    "psetex"      4 "string" "2.6.0" WRITE, ONE, Data(strings::psetex), "Sets a value with an expiry in milliseconds.";
    "set"        -3 "string" "1.0.0" WRITE, ONE, Data(strings::set), "Sets a value: NX XX GET EX PX EXAT PXAT KEEPTTL.";
    "setex"       4 "string" "2.0.0" WRITE, ONE, Data(strings::setex), "Sets a value with an expiry in seconds.";
    "setnx"       3 "string" "1.0.0" WRITE | FAST, ONE, Data(strings::setnx), "Sets a value if the key is not there.";
    "strlen"      2 "string" "2.2.0" READS | FAST, ONE, Data(strings::strlen), "Length of a string.";
    "dbsize"      1 "server" "1.0.0" WHOLE, NONE, Data(keys::dbsize), "Number of keys in the database.";
    "del"        -2 "generic" "1.0.0" WRITE, ALL, Data(keys::del), "Removes keys.";
    "exists"     -2 "generic" "1.0.0" FAST, ALL, Data(keys::exists), "How many of the keys are there.";
    "flushall"   -1 "server" "1.0.0" WRITE | WHOLE, NONE, Data(keys::flushall), "Removes all keys of all databases.";
    "flushdb"    -1 "server" "1.0.0" WRITE | WHOLE, NONE, Data(keys::flushdb), "Removes all keys of the database.";
    "grange"     -3 "generic" "7.0.0" WHOLE, NONE, Data(range::grange), "Entries in key order: start end [LIMIT n] [REV] [KEYSONLY]. Only in GlintDB.";
    "scan"       -2 "generic" "2.8.0" WHOLE, NONE, Data(keys::scan), "Goes through the keys.";
    "touch"      -2 "generic" "3.2.1" FAST, ALL, Data(keys::exists), "How many of the keys are there.";
    "type"        2 "generic" "1.0.0" FAST, ONE, Data(keys::type_of), "Type of a key's value.";
    "unlink"     -2 "generic" "4.0.0" WRITE | FAST, ALL, Data(keys::del), "Removes keys.";
    "expire"     -3 "generic" "1.0.0" WRITE | READS | FAST, ONE, Data(expire::expire), "Lets a key expire in so many seconds.";
    "expireat"   -3 "generic" "1.2.0" WRITE | READS | FAST, ONE, Data(expire::expireat), "Lets a key expire at a time in seconds.";
    "expiretime"  2 "generic" "7.0.0" READS | FAST, ONE, Data(expire::expiretime), "When a key expires, in seconds.";
    "persist"     2 "generic" "2.2.0" WRITE | READS | FAST, ONE, Data(expire::persist), "Takes a key's expiry away.";
    "pexpire"    -3 "generic" "2.6.0" WRITE | READS | FAST, ONE, Data(expire::pexpire), "Lets a key expire in so many milliseconds.";
    "pexpireat"  -3 "generic" "2.6.0" WRITE | READS | FAST, ONE, Data(expire::pexpireat), "Lets a key expire at a time in milliseconds.";
    "pexpiretime" 2 "generic" "7.0.0" READS | FAST, ONE, Data(expire::pexpiretime), "When a key expires, in milliseconds.";
    "pttl"        2 "generic" "2.6.0" READS | FAST, ONE, Data(expire::pttl), "Milliseconds until a key expires.";
    "ttl"         2 "generic" "1.0.0" READS | FAST, ONE, Data(expire::ttl), "Seconds until a key expires.";
    "discard"     1 "transactions" "2.0.0" FAST | UNQUEUED, NONE, Session(session::discard), "Drops a transaction.";
    "exec"        1 "transactions" "1.2.0" UNQUEUED, NONE, Exec, "Runs a transaction.";
    "multi"       1 "transactions" "1.2.0" FAST | UNQUEUED, NONE, Session(session::multi), "Begins a transaction.";
    "unwatch"     1 "transactions" "2.2.0" FAST, NONE, Session(session::unwatch), "Forgets all watched keys.";
    "watch"      -2 "transactions" "2.2.0" FAST | UNQUEUED, ALL, Session(session::watch), "Lets EXEC fail if one of the keys changes.";
    "auth"       -2 "connection" "1.0.0" FAST | NO_AUTH, NONE, Session(session::auth), "Shows the password.";
    "client"     -2 "connection" "2.4.0" 0, NONE, Session(client::client), "About connections: ID, SETNAME, LIST, KILL and others.";
    "echo"        2 "connection" "1.0.0" FAST, NONE, Session(session::echo), "Answers its argument.";
    "hello"      -1 "connection" "6.0.0" FAST | NO_AUTH, NONE, Session(session::hello), "Chooses RESP2 or RESP3.";
    "ping"       -1 "connection" "1.0.0" FAST, NONE, Session(session::ping), "Answers PONG or its argument.";
    "quit"       -1 "connection" "1.0.0" FAST | NO_AUTH | UNQUEUED, NONE, Session(session::quit), "Closes the connection.";
    "reset"       1 "connection" "6.2.0" FAST | NO_AUTH | UNQUEUED, NONE, Session(session::reset), "Makes the connection as new.";
    "select"      2 "connection" "1.0.0" FAST, NONE, Session(session::select), "Chooses the database.";
    "command"    -1 "server" "2.8.13" 0, NONE, Session(introspect::command), "About commands: COUNT, DOCS, GETKEYS, INFO, LIST.";
    "config"     -2 "server" "2.0.0" ADMIN, NONE, Session(introspect::config), "Settings: GET.";
    "info"       -1 "server" "1.0.0" 0, NONE, Session(introspect::info), "Figures of the server.";
    "shutdown"   -1 "server" "1.0.0" ADMIN | NO_MULTI, NONE, Session(session::shutdown), "Stops the server; everything is on the medium then.";
    "time"        1 "server" "2.6.0" FAST, NONE, Session(introspect::time), "The server's time.";
};

static BY_NAME: LazyLock<HashMap<&'static [u8], usize, FixedState>> = LazyLock::new(|| {
    COMMANDS
        .iter()
        .enumerate()
        .map(|(index, spec)| (spec.name.as_bytes(), index))
        .collect()
});

/// Longest name of a command.
const NAME_BYTES_MAX: usize = 16;

/// A command by its name in any case; its place in [`COMMANDS`].
pub(crate) fn find(name: &[u8]) -> Option<usize> {
    let mut lower = [0; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_any_case() {
        assert_eq!(COMMANDS[find(b"GeT").unwrap()].name, "get");
        assert!(find(b"").is_none());
        assert!(find(b"no such command at all").is_none());
        for spec in COMMANDS {
            assert!(spec.name.len() <= NAME_BYTES_MAX);
            assert_eq!(
                COMMANDS[find(spec.name.as_bytes()).unwrap()].name,
                spec.name
            );
        }
    }
}
