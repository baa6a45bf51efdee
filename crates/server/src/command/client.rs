//! CLIENT: about connections.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use super::table::COMMANDS;
use super::{CommandError, is_option};
use crate::protocol::Args;
use crate::protocol::number::parse_i64;
use crate::protocol::reply::Reply;
use crate::server::{Client, Server};
use crate::session::{Replies, Session};

const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are:",
    "    * ADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made from the specified address",
    "    * LADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made to specified local address",
    "    * SKIPME (YES|NO)",
    "      Skip killing current connection (default: yes).",
    "    * ID <client-id>",
    "      Kill connections by client id.",
    "LIST [options ...]",
    "    Return information about client connections. Options:",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Return clients of specified type.",
    "    * ID <client-id> [<client-id> ...]",
    "      Return clients of the specified IDs.",
    "NO-EVICT (ON|OFF)",
    "    Accepted; where connections take too much memory, the largest is closed all the same.",
    "NO-TOUCH (ON|OFF)",
    "    Accepted; this server keeps no last-access times.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETINFO <option> <value>",
    "    Set client meta attr: LIB-NAME or LIB-VER.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "HELP",
    "    Print this help.",
];

/// Longest name, and longest name and version of a library: CLIENT LIST shows those of all connections.
const TEXT_BYTES_MAX: usize = 1024;

/// A name as CLIENT SETNAME takes it.
pub(crate) fn valid_name(name: &[u8]) -> Result<String, &'static str> {
    if name.len() > TEXT_BYTES_MAX {
        return Err("ERR Client names have at most 1024 bytes");
    }
    valid_text(name)
        .ok_or("ERR Client names cannot contain spaces, newlines or special characters.")
}

fn valid_text(text: &[u8]) -> Option<String> {
    text.iter()
        .all(|byte| (b'!'..=b'~').contains(byte))
        .then(|| String::from_utf8_lossy(text).into_owned())
}

pub(crate) fn client(
    session: &mut Session,
    server: &Server,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) {
    let word = args.get(1).to_ascii_lowercase();
    let arity = |fits: bool| {
        if fits {
            return Ok(());
        }
        let name = format!("client|{}", String::from_utf8_lossy(&word));
        Err(CommandError::arity(&name))
    };
    let result = match word.as_slice() {
        b"id" => arity(args.len() == 2).map(|()| reply.count(session.client.id)),
        b"getname" => arity(args.len() == 2).map(|()| {
            let name = session.client.details.lock().name.clone();
            if name.is_empty() {
                reply.null();
            } else {
                reply.bulk(name.as_bytes());
            }
        }),
        b"setname" => arity(args.len() == 3).and_then(|()| {
            let name = valid_name(args.get(2)).map_err(CommandError::new)?;
            session.client.details.lock().name = name;
            reply.ok();
            Ok(())
        }),
        b"setinfo" => arity(args.len() == 4).and_then(|()| set_info(session, args, reply)),
        b"info" => arity(args.len() == 2)
            .map(|()| reply.verbatim(&describe(&session.client, server.store.now_ms()))),
        b"list" => list(server, args, reply),
        b"kill" => arity(args.len() > 2).and_then(|()| kill(session, server, args, reply)),
        b"reply" => arity(args.len() == 3).and_then(|()| set_replies(session, args, reply)),
        b"no-evict" => {
            arity(args.len() == 3).and_then(|()| switch(&session.client.no_evict, args, reply))
        }
        b"no-touch" => {
            arity(args.len() == 3).and_then(|()| switch(&session.client.no_touch, args, reply))
        }
        b"help" => arity(args.len() == 2).map(|()| reply.lines(HELP)),
        _ => Err(unknown_subcommand("CLIENT", args.get(1))),
    };
    if let Err(error) = result {
        reply.error(&error.0);
    }
}

/// Redis' answer to a subcommand it does not know.
pub(crate) fn unknown_subcommand(command: &str, word: &[u8]) -> CommandError {
    let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
    CommandError(format!("ERR unknown subcommand '{word}'. Try {command} HELP.").into())
}

fn set_info(
    session: &mut Session,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), CommandError> {
    let invalid = |name: &str| {
        CommandError(
            format!("ERR {name} cannot contain spaces, newlines or special characters.").into(),
        )
    };
    let text = Some(args.get(3))
        .filter(|text| text.len() <= TEXT_BYTES_MAX)
        .and_then(valid_text);
    let mut details = session.client.details.lock();
    if is_option(args.get(2), "LIB-NAME") {
        details.library = text.ok_or_else(|| invalid("lib-name"))?;
    } else if is_option(args.get(2), "LIB-VER") {
        details.library_version = text.ok_or_else(|| invalid("lib-ver"))?;
    } else {
        let option = String::from_utf8_lossy(args.get(2));
        return Err(CommandError(
            format!("ERR Unrecognized option '{option}'").into(),
        ));
    }
    reply.ok();
    Ok(())
}

fn switch(
    flag: &std::sync::atomic::AtomicBool,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), CommandError> {
    let on = match args.get(2) {
        word if is_option(word, "ON") => true,
        word if is_option(word, "OFF") => false,
        _ => return Err(super::SYNTAX),
    };
    flag.store(on, Ordering::Relaxed);
    reply.ok();
    Ok(())
}

fn set_replies(
    session: &mut Session,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), CommandError> {
    let word = args.get(2);
    if is_option(word, "ON") {
        session.replies = Replies::On;
        reply.ok();
    } else if is_option(word, "OFF") {
        session.replies = Replies::Off;
    } else if is_option(word, "SKIP") {
        if session.replies != Replies::Off {
            session.replies = Replies::SkipNext;
        }
    } else {
        return Err(super::SYNTAX);
    }
    Ok(())
}

fn parse_id(word: &[u8]) -> Option<u64> {
    parse_i64(word)
        .and_then(|id| u64::try_from(id).ok())
        .filter(|id| *id > 0)
}

fn list(server: &Server, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), CommandError> {
    let mut clients = server.clients();
    if args.len() == 4 && is_option(args.get(2), "TYPE") {
        match args.get(3).to_ascii_lowercase().as_slice() {
            b"normal" => {}
            b"master" | b"slave" | b"replica" | b"pubsub" => clients.clear(),
            _ => {
                let kind = String::from_utf8_lossy(args.get(3));
                return Err(CommandError(
                    format!("ERR Unknown client type '{kind}'").into(),
                ));
            }
        }
    } else if args.len() > 3 && is_option(args.get(2), "ID") {
        let ids: Option<HashSet<u64>> = args.from(3).map(parse_id).collect();
        let ids = ids.ok_or(CommandError::new("ERR Invalid client ID"))?;
        clients.retain(|client| ids.contains(&client.id));
    } else if args.len() != 2 {
        return Err(super::SYNTAX);
    }
    let now_ms = server.store.now_ms();
    let text: String = clients
        .iter()
        .map(|client| describe(client, now_ms))
        .collect();
    reply.verbatim(&text);
    Ok(())
}

fn kill(
    session: &mut Session,
    server: &Server,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), CommandError> {
    let text = |at: usize| String::from_utf8_lossy(args.get(at)).into_owned();
    let (mut id, mut address, mut local, mut skip_me) = (None, None, None, true);
    let old_form = args.len() == 3;
    if old_form {
        (address, skip_me) = (Some(text(2)), false);
    } else {
        if !args.len().is_multiple_of(2) {
            return Err(super::SYNTAX);
        }
        for at in (2..args.len()).step_by(2) {
            let (option, value) = (args.get(at), args.get(at + 1));
            if is_option(option, "ID") {
                id = Some(
                    parse_id(value)
                        .ok_or(CommandError::new("ERR client-id should be greater than 0"))?,
                );
            } else if is_option(option, "ADDR") {
                address = Some(text(at + 1));
            } else if is_option(option, "LADDR") {
                local = Some(text(at + 1));
            } else if is_option(option, "SKIPME") && is_option(value, "YES") {
                skip_me = true;
            } else if is_option(option, "SKIPME") && is_option(value, "NO") {
                skip_me = false;
            } else {
                return Err(super::SYNTAX);
            }
        }
    }
    let mut killed = 0;
    for client in server.clients() {
        let me = client.id == session.client.id;
        let meant = id.is_none_or(|id| client.id == id)
            && address
                .as_ref()
                .is_none_or(|a| client.address.to_string() == *a)
            && local
                .as_ref()
                .is_none_or(|a| client.local.to_string() == *a)
            && !(me && skip_me);
        if meant {
            killed += 1;
            if me {
                session.closing = true;
            } else {
                client.kill();
            }
        }
    }
    match (old_form, killed) {
        (true, 0) => return Err(CommandError::new("ERR No such client")),
        (true, _) => reply.ok(),
        (false, _) => reply.integer(killed),
    }
    Ok(())
}

/// A line of CLIENT LIST.
fn describe(client: &Client, now_ms: u64) -> String {
    let details = client.details.lock().clone();
    let queued = client.queued.load(Ordering::Relaxed);
    let seconds = |since: u64| now_ms.saturating_sub(since) / 1000;
    let command = COMMANDS
        .get(client.command.load(Ordering::Relaxed))
        .map_or("NULL", |spec| spec.name);
    let mut flags = String::new();
    for (set, flag) in [
        (queued > 0, 'x'),
        (client.no_evict.load(Ordering::Relaxed), 'e'),
        (client.no_touch.load(Ordering::Relaxed), 'T'),
    ] {
        if set {
            flags.push(flag);
        }
    }
    if flags.is_empty() {
        flags.push('N');
    }
    let mut line = String::with_capacity(256);
    let written = write!(
        line,
        "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags} db={} sub=0 psub=0 ssub=0 multi={} watch={} qbuf={} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem={} tot-mem={} events=r cmd={command} user=default redir=-1 resp={} lib-name={} lib-ver={}",
        client.id,
        client.address,
        client.local,
        details.name,
        seconds(client.connected_ms),
        seconds(client.active_ms.load(Ordering::Relaxed)),
        client.db.load(Ordering::Relaxed),
        i64::try_from(queued).unwrap_or(i64::MAX) - 1,
        client.watched.load(Ordering::Relaxed),
        client.input_bytes.load(Ordering::Relaxed),
        client.output_bytes.load(Ordering::Relaxed),
        client.input_bytes.load(Ordering::Relaxed) + client.output_bytes.load(Ordering::Relaxed),
        if client.resp3.load(Ordering::Relaxed) {
            3
        } else {
            2
        },
        details.library,
        details.library_version,
    );
    debug_assert!(written.is_ok(), "writing to a string cannot fail");
    line.push('\n');
    line
}
