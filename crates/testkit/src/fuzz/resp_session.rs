//! Target `resp_session`: a client's bytes, parsed and executed by a server's session on a small database in memory.
//!
//! Asserts: every answer is well-formed RESP2 or RESP3 and there is one for each command (but where the client asked for none, or the connection was closed); the same
//! bytes, cut into pieces, get the same answers, for commands that run together must answer as if they ran one by one (commands that tell figures or the time are left out of
//! that comparison).

use super::golden;
use super::input::Input;
use super::resp_request::encode;
use glintdb_flash::ManualClock;
use glintdb_server::ServerConfig;
use glintdb_server::fuzzing::{Commands, Conversation, commands};
use glintdb_simdisk::MemVolume;
use std::sync::Arc;
use std::time::Duration;

/// Words that clients send: an input of small numbers becomes commands.
const WORDS: &[&str] = &[
    "get",
    "set",
    "a",
    "b",
    "c",
    "del",
    "incr",
    "append",
    "1",
    "-1",
    "mget",
    "mset",
    "expire",
    "ttl",
    "0",
    "multi",
    "exec",
    "discard",
    "watch",
    "unwatch",
    "scan",
    "grange",
    "count",
    "match",
    "*",
    "nx",
    "xx",
    "ex",
    "px",
    "get",
    "keepttl",
    "10",
    "100000",
    "getdel",
    "getex",
    "persist",
    "exists",
    "type",
    "strlen",
    "setnx",
    "decrby",
    "9223372036854775807",
    "hello",
    "2",
    "3",
    "select",
    "client",
    "setname",
    "getname",
    "reply",
    "on",
    "off",
    "skip",
    "id",
    "kill",
    "command",
    "docs",
    "getkeys",
    "list",
    "config",
    "maxmemory",
    "dbsize",
    "flushdb",
    "flushall",
    "echo",
    "ping",
    "reset",
    "quit",
    "limit",
    "rev",
    "keysonly",
    "pexpireat",
    "msetnx",
    "getset",
    "psetex",
    "setex",
    "touch",
    "unlink",
    "info",
    "auth",
    "default",
    "time",
    "shutdown",
    "abort",
    "keys",
    "no-evict",
    "setinfo",
    "lib-name",
    "exat",
    "gt",
    "lt",
    "pttl",
    "expiretime",
];

/// Commands whose answers depend on more than what was said.
const FIGURES: &[&str] = &[
    "info", "client", "time", "hello", "config", "shutdown", "quit", "command",
];

fn conversation() -> Conversation {
    let volume = MemVolume::new();
    let db = golden::open(&volume).expect("a new database");
    let mut config = ServerConfig::default();
    config.clock = Arc::new(ManualClock::new(Duration::from_secs(1_700_000_000)));
    config.databases = 4;
    Conversation::new(db, config).expect("a new server")
}

/// Steps: words by number, bytes, and ends of commands; or the bytes as they are.
fn request(mut input: Input<'_>) -> Vec<u8> {
    if input.u8() & 1 == 0 {
        return input.rest().to_vec();
    }
    let mut commands = Commands::new();
    let mut command = Vec::new();
    while !input.is_empty() {
        match input.u8() {
            255 => command.push(input.bytes().to_vec()),
            254 => command.push(input.bytes().repeat(1 + usize::from(input.u8()))),
            word if usize::from(word) < WORDS.len() => {
                command.push(WORDS[usize::from(word)].into())
            }
            _ => commands.push(std::mem::take(&mut command)),
        }
    }
    commands.push(command);
    commands.retain(|command| !command.is_empty());
    encode(&commands)
}

/// Reads one answer; what is behind it.
fn answer(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
    let (kind, text) = line.split_first()?;
    let number = || std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    let many = |count: i64| (0..count).try_fold(rest, |rest, _| answer(rest));
    match kind {
        b'+' | b'-' => (!text.contains(&b'\n')).then_some(rest),
        b':' => number().map(|_| rest),
        b'$' | b'=' => match usize::try_from(number()?) {
            Err(_) => (text == b"-1").then_some(rest),
            Ok(length) => rest.get(length..)?.strip_prefix(b"\r\n"),
        },
        b'*' if text == b"-1" => Some(rest),
        b'*' | b'~' | b'>' => many(number()?),
        b'%' => many(number()? * 2),
        b'_' => text.is_empty().then_some(rest),
        b'#' => matches!(text, b"t" | b"f").then_some(rest),
        b',' => std::str::from_utf8(text)
            .ok()?
            .parse::<f64>()
            .ok()
            .map(|_| rest),
        _ => None,
    }
}

fn count(mut answers: &[u8]) -> usize {
    let mut count = 0;
    while !answers.is_empty() {
        answers = answer(answers).unwrap_or_else(|| {
            let shown = &answers[..answers.len().min(80)];
            panic!("no answer: {:?}", shown.escape_ascii().to_string())
        });
        count += 1;
    }
    count
}

fn says(commands: &Commands, words: &[&str]) -> bool {
    let says = |argument: &Vec<u8>| {
        words
            .iter()
            .any(|word| argument.eq_ignore_ascii_case(word.as_bytes()))
    };
    commands.iter().flatten().any(says)
}

pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let cut = 1 + usize::from(input.u8());
    let request = request(input);
    let mut whole = conversation();
    let answers = whole.say(&request);
    let answered = count(&answers);
    let (commands, error) = commands(&[&request], 1024, true);
    let expected = commands.len() + usize::from(error.is_some());
    assert!(
        answered <= expected,
        "{answered} answers to {expected} commands"
    );
    if !whole.is_closed() && !says(&commands, &["reply", "kill"]) {
        assert_eq!(answered, expected, "commands without answers");
    }
    whole.end();
    if says(&commands, FIGURES) {
        return;
    }
    let mut pieces = conversation();
    let again: Vec<u8> = request
        .chunks(cut)
        .flat_map(|piece| pieces.say(piece))
        .collect();
    assert!(
        again == answers,
        "other answers where the request is cut after {cut}: {:?} and {:?}",
        again.escape_ascii().to_string(),
        answers.escape_ascii().to_string()
    );
    pieces.end();
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let words = |text: &str| -> Vec<u8> {
        let mut out = vec![5, 1];
        for word in text.split(' ') {
            match WORDS.iter().position(|known| *known == word) {
                Some(place) => out.push(place as u8),
                None if word == ";" => out.push(253),
                None => {
                    out.extend([255, word.len() as u8]);
                    out.extend_from_slice(word.as_bytes());
                }
            }
        }
        out
    };
    let mut seeds: Vec<Vec<u8>> = [
        "set a 1 ; get a ; incr a ; incr b ; append a 10 ; mget a b c ; strlen a",
        "set a 1 ex 10 ; ttl a ; getex a persist ; pttl a ; expire a 100000 nx ; set a 2 keepttl get ; getdel a",
        "watch a ; multi ; set a 1 ; incr b ; get a ; exec ; multi ; discard ; unwatch ; exec",
        "hello 3 ; mset a 1 b 2 ; scan 0 match * count 10 ; grange - + limit 10 ; grange a c rev keysonly ; dbsize ; flushdb ; dbsize",
        "client setname x ; client getname ; client list ; command docs get ; command getkeys mset a 1 b 2 ; config get maxmemory ; info",
        "client reply skip ; set a 1 ; client reply off ; get a ; client reply on ; select 3 ; exists a a ; type a ; reset ; quit",
        "msetnx a 1 b 2 ; setnx a 3 ; getset a 4 ; decrby a 9223372036854775807 ; incr a ; psetex a 10 x ; pexpireat a 1 ; touch a b ; unlink a b",
    ]
    .map(words)
    .into();
    seeds.push(
        b"\x02\x00set a \"b\\x00c\"\r\nget a\r\n*2\r\n$4\r\nincr\r\n$1\r\na\r\nset 'q\r\n".to_vec(),
    );
    seeds
}
