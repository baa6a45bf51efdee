//! Those who mean harm: a list of weapons, each a function; every thread takes one after another at random.
//!
//! A weapon fails where the *server* did wrong: another answer than Redis', a connection left open that should be closed. To be thrown out is no failure.
//! Writes go to database 1, for database 0 has what honest clients check.
//!
//! Thread safety: one thread a hostile, with its own peers.

use super::Shared;
use super::honest::enter;
use super::wire::{Peer, Reply, encode};
use crate::rng::Rng;
use std::collections::VecDeque;
use std::net::Shutdown;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
/// Connections a hostile keeps open, full of what it has sent.
const HELD_MAX: usize = 60;

struct Hostile<'s> {
    shared: &'s Shared,
    rng: Rng,
    held: VecDeque<Peer>,
}

type Weapon = fn(&mut Hostile<'_>) -> Result<(), String>;

const WEAPONS: [(&str, Weapon); 20] = [
    ("hostile lengths", |hostile| hostile.lengths()),
    ("hostile lengths before the password", |hostile| {
        hostile.lengths_before()
    }),
    ("other protocols", |hostile| hostile.other_protocols()),
    ("random bytes", |hostile| hostile.garbage()),
    ("endless lines", |hostile| hostile.endless_line()),
    ("half arguments", |hostile| hostile.half_argument()),
    ("split pipelines", |hostile| hostile.split()),
    ("one byte a write", |hostile| hostile.byte_by_byte()),
    ("pipelines of up to a million", |hostile| hostile.pipeline()),
    ("answers never read", |hostile| hostile.deaf()),
    ("queues without end", |hostile| hostile.queue()),
    ("watched keys without end", |hostile| hostile.watch()),
    ("requests of many arguments", |hostile| {
        hostile.many_arguments()
    }),
    ("answers larger than memory", |hostile| {
        hostile.large_answers()
    }),
    ("transactions with large answers", |hostile| {
        hostile.large_exec()
    }),
    ("scans over long keys", |hostile| hostile.scan()),
    ("half-open connections", |hostile| hostile.half_open()),
    ("resets", |hostile| hostile.reset()),
    ("wrong passwords", |hostile| hostile.wrong_password()),
    ("connection storms", |hostile| hostile.storm()),
];

/// Requests that are not RESP, and what Redis 7.0 says before it closes.
const LENGTHS: [(&[u8], &str); 20] = [
    (b"*1048577\r\n", "invalid multibulk length"),
    (b"*1000000000\r\n", "invalid multibulk length"),
    (b"*2147483648\r\n", "invalid multibulk length"),
    (b"*9223372036854775808\r\n", "invalid multibulk length"),
    (b"*-9223372036854775809\r\n", "invalid multibulk length"),
    (b"*01\r\n$4\r\nPING\r\n", "invalid multibulk length"),
    (b"*+1\r\n", "invalid multibulk length"),
    (b"*\r\n", "invalid multibulk length"),
    (b"*1 \r\n", "invalid multibulk length"),
    (b"*1\r\n$-1\r\n", "invalid bulk length"),
    (b"*1\r\n$536870913\r\n", "invalid bulk length"),
    (b"*1\r\n$2147483648\r\n", "invalid bulk length"),
    (b"*1\r\n$9223372036854775807\r\n", "invalid bulk length"),
    (b"*1\r\n$9223372036854775808\r\n", "invalid bulk length"),
    (b"*1\r\n$18446744073709551620\r\n", "invalid bulk length"),
    (b"*1\r\n$04\r\nPING\r\n", "invalid bulk length"),
    (
        b"*2\r\n$4\r\nPING\r\n*1\r\n$1\r\na\r\n",
        "expected '$', got '*'",
    ),
    (b"*1\r\n:1\r\n", "expected '$', got ':'"),
    (b"*1\r\n\r\n", "expected '$', got ' '"),
    (b"PING \"a\r\n", "unbalanced quotes in request"),
];

/// Attacks until the attack ends; what was broken is told.
pub(super) fn run(number: u64, shared: &Shared) {
    let mut hostile = Hostile {
        shared,
        rng: Rng::of(&[shared.seed, 3, number]),
        held: VecDeque::new(),
    };
    while !shared.is_over() {
        let (name, weapon) = WEAPONS[hostile.rng.below(WEAPONS.len() as u64) as usize];
        if let Err(message) = weapon(&mut hostile) {
            shared.fail(format!("{name}: {message}"));
        }
        shared.count(name, 1);
        while hostile.held.len() > HELD_MAX {
            hostile.held.pop_front();
        }
    }
}

/// All weapons, once each and in turn: what is there is seen to be fired.
pub(super) fn names() -> Vec<&'static str> {
    WEAPONS.iter().map(|(name, _)| *name).collect()
}

impl Hostile<'_> {
    /// A connection that has shown the password and chosen a database of its own; `None` if it was thrown out already.
    fn inside(&mut self) -> Option<Peer> {
        let mut peer = enter(self.shared.address, PATIENCE).ok()?;
        peer.ask(&["SELECT", "1"]).ok()?;
        Some(peer)
    }

    fn outside(&mut self) -> Option<Peer> {
        Peer::connect(self.shared.address, PATIENCE).ok()
    }

    /// Sends, and counts; an error is no failure.
    fn throw(&self, peer: &mut Peer, bytes: &[u8]) -> Option<()> {
        self.shared.count("hostile bytes sent", bytes.len() as u64);
        peer.stream
            .set_write_timeout(Some(Duration::from_secs(2)))
            .ok()?;
        peer.send(bytes).ok()
    }

    fn refused(peer: &mut Peer, request: &[u8], words: &str) -> Result<(), String> {
        let asked = request[..request.len().min(40)].escape_ascii().to_string();
        let expected = format!("-ERR Protocol error: {words}\r\n");
        match peer.rest() {
            Some(answer) if answer == expected.as_bytes() => Ok(()),
            Some(answer) => Err(format!(
                "{asked} was answered {}, not {expected}",
                answer[..answer.len().min(200)].escape_ascii()
            )),
            None => Err(format!("{asked}: the connection is not closed")),
        }
    }

    fn lengths(&mut self) -> Result<(), String> {
        for (request, words) in LENGTHS {
            let Some(mut peer) = self.inside() else {
                continue;
            };
            if self.throw(&mut peer, request).is_some() {
                Self::refused(&mut peer, request, words)?;
            }
        }
        Ok(())
    }

    fn lengths_before(&mut self) -> Result<(), String> {
        for (request, words) in [
            (&b"*11\r\n"[..], "unauthenticated multibulk length"),
            (b"*1000000\r\n", "unauthenticated multibulk length"),
            (
                b"*2\r\n$4\r\nAUTH\r\n$16385\r\n",
                "unauthenticated bulk length",
            ),
            (b"*1\r\n$536870912\r\n", "unauthenticated bulk length"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
        ] {
            let Some(mut peer) = self.outside() else {
                continue;
            };
            if self.throw(&mut peer, request).is_some() {
                Self::refused(&mut peer, request, words)?;
            }
        }
        // Nothing is served, and what it is told does not pile up.
        let Some(mut peer) = self.outside() else {
            return Ok(());
        };
        match peer.ask(&["GET", "honest:counter"]) {
            Ok(Reply::Error(text)) if text == "NOAUTH Authentication required." => {}
            Err(_) => return Ok(()),
            other => return Err(format!("GET without a password was answered {other:?}")),
        }
        let flood = encode(&["GET", "a"]).repeat(100_000);
        self.throw(&mut peer, &flood);
        self.held.push_back(peer);
        Ok(())
    }

    fn other_protocols(&mut self) -> Result<(), String> {
        for request in [
            &b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\nSET honest:counter 0\r\n"[..],
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\nSET honest:counter 0\r\n",
            b"OPTIONS /x HTTP/1.1\r\nHost: a\r\n\r\nFLUSHALL\r\n",
        ] {
            let Some(mut peer) = self.inside() else {
                continue;
            };
            self.throw(&mut peer, request);
            // Closed; what was answered to an earlier line may have gone already.
            match peer.rest() {
                Some(answer) if !answer.windows(3).any(|three| three == b"+OK") => {}
                Some(answer) => return Err(format!("HTTP was answered {}", answer.escape_ascii())),
                None => return Err("an HTTP connection is not closed".into()),
            }
        }
        // The start of a TLS handshake, and a command no server of ours has.
        if let Some(mut peer) = self.outside() {
            let mut hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec();
            hello.extend(self.rng.bytes(500));
            self.throw(&mut peer, &hello);
            self.held.push_back(peer);
        }
        let Some(mut peer) = self.inside() else {
            return Ok(());
        };
        for command in [
            &["SUBSCRIBE", "a"][..],
            &["EVAL", "return 1", "0"],
            &["DEBUG", "SLEEP", "9"],
            &["KEYS", "*"],
        ] {
            match peer.ask(command) {
                Ok(Reply::Error(text)) if text.starts_with("ERR unknown command") => {}
                Err(_) => return Ok(()),
                other => return Err(format!("{command:?} was answered {other:?}")),
            }
        }
        Ok(())
    }

    fn garbage(&mut self) -> Result<(), String> {
        for _ in 0..20 {
            let Some(mut peer) = (if self.rng.one_in(2) {
                self.inside()
            } else {
                self.outside()
            }) else {
                continue;
            };
            let mut bytes = encode(&["SET", "garbage", "value", "EX", "10"]).repeat(20);
            for _ in 0..self.rng.below(20) {
                let at = self.rng.below(bytes.len() as u64) as usize;
                bytes[at] = match self.rng.below(3) {
                    0 => self.rng.number() as u8,
                    1 => b"*$\r\n-0123456789\"'"[self.rng.below(17) as usize],
                    _ => bytes[0],
                };
            }
            if self.rng.one_in(2) {
                bytes = self.rng.bytes(3000);
            }
            self.throw(&mut peer, &bytes);
        }
        Ok(())
    }

    fn endless_line(&mut self) -> Result<(), String> {
        for (start, words) in [
            (&b"PING "[..], "too big inline request"),
            (b"*", "too big mbulk count string"),
            (b"*1\r\n$", "too big bulk count string"),
        ] {
            let Some(mut peer) = self.inside() else {
                continue;
            };
            let mut bytes = start.to_vec();
            bytes.resize(start.len() + (64 << 10) + 1, b'1');
            if self.throw(&mut peer, &bytes).is_some() {
                Self::refused(&mut peer, start, words)?;
            }
        }
        Ok(())
    }

    fn half_argument(&mut self) -> Result<(), String> {
        let Some(mut peer) = self.inside() else {
            return Ok(());
        };
        let mut bytes = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$536870912\r\n".to_vec();
        bytes.resize((1 + self.rng.below(8) as usize) << 20, b'x');
        if self.rng.one_in(8) {
            // Beyond the largest request.
            bytes.resize(40 << 20, b'x');
        }
        self.throw(&mut peer, &bytes);
        self.held.push_back(peer);
        Ok(())
    }

    /// A pipeline whose answers are known.
    fn known(&mut self) -> (Vec<u8>, &'static [u8]) {
        let key = format!("split:{}", self.rng.number());
        let commands = [
            encode(&["SET", &key, "1\r\n"]),
            encode(&["APPEND", &key, ""]),
            b"STRLEN ".to_vec(),
            format!("'{key}'\r\n*0\r\n").into_bytes(),
            encode(&["MULTI"]),
            encode(&["DEL", &key]),
            encode(&["EXEC"]),
            encode(&["NOSUCH"]),
        ];
        let answers = b"+OK\r\n:3\r\n:3\r\n+OK\r\n+QUEUED\r\n*1\r\n:1\r\n-ERR unknown command 'NOSUCH', with args beginning with: \r\n";
        (commands.concat(), answers)
    }

    fn expect_known(peer: &mut Peer, answers: &[u8], how: &str) -> Result<(), String> {
        // QUIT was sent behind it: everything there is comes, and then the end.
        match peer.rest() {
            Some(got) if got.strip_suffix(b"+OK\r\n") == Some(answers) => Ok(()),
            Some(got) => Err(format!("{how}: answered {}", got.escape_ascii())),
            None => Err(format!("{how}: not closed after QUIT")),
        }
    }

    fn split(&mut self) -> Result<(), String> {
        let (length, _) = {
            let (bytes, answers) = self.known();
            (bytes.len(), answers)
        };
        for at in 0..length {
            if self.shared.is_over() {
                break;
            }
            let Some(mut peer) = self.inside() else {
                continue;
            };
            let (mut bytes, answers) = self.known();
            bytes.extend(encode(&["QUIT"]));
            let at = at.min(bytes.len());
            if self.throw(&mut peer, &bytes[..at]).is_some()
                && self.throw(&mut peer, &bytes[at..]).is_some()
            {
                Self::expect_known(&mut peer, answers, &format!("cut at {at}"))?;
            }
        }
        Ok(())
    }

    fn byte_by_byte(&mut self) -> Result<(), String> {
        let Some(mut peer) = self.inside() else {
            return Ok(());
        };
        let (mut bytes, answers) = self.known();
        bytes.extend(encode(&["QUIT"]));
        for byte in bytes {
            if self.throw(&mut peer, &[byte]).is_none() {
                return Ok(());
            }
        }
        Self::expect_known(&mut peer, answers, "byte by byte")
    }

    fn pipeline(&mut self) -> Result<(), String> {
        let Some(mut peer) = self.inside() else {
            return Ok(());
        };
        let count = 1_000_000 >> self.rng.below(6);
        let (request, answer) = match self.rng.one_in(3) {
            true => (encode(&["SET", "pipeline", "v"]), &b"+OK\r\n"[..]),
            false => (b"PING\r\n".to_vec(), &b"+PONG\r\n"[..]),
        };
        let mut bytes = request.repeat(count);
        bytes.extend(encode(&["QUIT"]));
        let mut sender = peer.stream.try_clone().map_err(|error| error.to_string())?;
        let got = std::thread::scope(|scope| {
            scope.spawn(move || {
                sender.set_write_timeout(Some(PATIENCE)).ok();
                std::io::Write::write_all(&mut sender, &bytes).ok();
            });
            peer.rest()
        });
        self.shared
            .count("hostile bytes sent", (count * request.len()) as u64);
        self.shared
            .count("commands in hostile pipelines", count as u64);
        let expected = count * answer.len() + b"+OK\r\n".len();
        match got {
            Some(got)
                if got.len() == expected
                    && got
                        .chunks(answer.len())
                        .take(count)
                        .all(|one| one == answer) =>
            {
                Ok(())
            }
            Some(got) => Err(format!(
                "{count} commands got {} bytes of answers, not {expected}",
                got.len()
            )),
            None => Err(format!("{count} commands got no answers for {PATIENCE:?}")),
        }
    }

    fn deaf(&mut self) -> Result<(), String> {
        let Some(mut peer) = self.inside() else {
            return Ok(());
        };
        let value = vec![b'v'; 1 << 20];
        if peer.ask(&[b"SET".as_slice(), b"large", &value]).is_err() {
            return Ok(());
        }
        let asked = encode(&["GET", "large"]).repeat(1 + self.rng.below(200) as usize);
        self.throw(&mut peer, &asked);
        self.held.push_back(peer);
        Ok(())
    }

    fn queue(&mut self) -> Result<(), String> {
        let Some(mut peer) = self.inside() else {
            return Ok(());
        };
        let mut bytes = encode(&["MULTI"]);
        bytes
            .extend(encode(&["SET", "queued", &"v".repeat(200)]).repeat(5000 << self.rng.below(4)));
        self.throw(&mut peer, &bytes);
        self.held.push_back(peer);
        Ok(())
    }

    fn watch(&mut self) -> Result<(), String> {
        let Some(mut peer) = self.inside() else {
            return Ok(());
        };
        let mut words = vec!["WATCH".to_owned()];
        words.extend(
            (0..20_000 << self.rng.below(3)).map(|_| format!("watched:{}", self.rng.number())),
        );
        self.throw(&mut peer, &encode(&words));
        self.held.push_back(peer);
        Ok(())
    }

    fn many_arguments(&mut self) -> Result<(), String> {
        let Some(mut peer) = self.inside() else {
            return Ok(());
        };
        let mut words =
            vec![["MSET", "DEL", "EXISTS", "EVAL"][self.rng.below(4) as usize].to_owned()];
        let count = 20_000 << self.rng.below(5);
        words.extend((0..count).map(|number| format!("m{}", number % 5000)));
        self.throw(&mut peer, &encode(&words));
        let Ok(reply) = peer.receive() else {
            return Ok(());
        };
        let fits = match (words[0].as_str(), &reply) {
            ("MSET", Reply::Simple(_)) | ("DEL" | "EXISTS", Reply::Integer(_)) => true,
            ("EVAL", Reply::Error(text)) => text.starts_with("ERR unknown command"),
            _ => false,
        };
        if fits {
            Ok(())
        } else {
            Err(format!("{} of {count} was answered {reply:?}", words[0]))
        }
    }

    fn large_answers(&mut self) -> Result<(), String> {
        let Some(mut peer) = self.inside() else {
            return Ok(());
        };
        let small = vec![b's'; 8 << 10];
        if peer.ask(&[b"SET".as_slice(), b"small", &small]).is_err() {
            return Ok(());
        }
        let (first, word, count): (&[&str], &str, usize) = match self.rng.below(4) {
            0 => (&["MGET"], "small", 30_000),
            1 => (&["MGET"], "large", 3000),
            2 => (&["COMMAND", "INFO"], "get", 500_000),
            _ => (&["CLIENT", "LIST", "ID"], "123456789", 500_000),
        };
        let mut words = first.to_vec();
        words.extend(std::iter::repeat_n(word, count));
        self.throw(&mut peer, &encode(&words));
        self.held.push_back(peer);
        Ok(())
    }

    fn large_exec(&mut self) -> Result<(), String> {
        let Some(mut peer) = self.inside() else {
            return Ok(());
        };
        let mut bytes = encode(&["MULTI"]);
        bytes.extend(encode(&["GET", "small"]).repeat(20_000));
        bytes.extend(encode(&["EXEC"]));
        self.throw(&mut peer, &bytes);
        self.held.push_back(peer);
        Ok(())
    }

    fn scan(&mut self) -> Result<(), String> {
        let Some(mut peer) = self.inside() else {
            return Ok(());
        };
        let start = self.rng.below(1000);
        for number in start..start + 20 {
            let mut key = format!("long:{number}:").into_bytes();
            key.resize(60_000, b'a');
            if peer.ask(&[b"SET".as_slice(), &key, b"v"]).is_err() {
                return Ok(());
            }
        }
        let pattern = format!("*{}b", "a".repeat(2000));
        for words in [
            &["SCAN", "0", "COUNT", "1000000"][..],
            &["SCAN", "0", "COUNT", "1000000", "MATCH", &pattern],
            &["GRANGE", "-", "+", "KEYSONLY"],
            &["GRANGE", "-", "+"],
        ] {
            if peer.ask(words).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn half_open(&mut self) -> Result<(), String> {
        for _ in 0..20 {
            let Some(mut peer) = self.inside() else {
                continue;
            };
            self.throw(&mut peer, &encode(&["GET", "large"]).repeat(20));
            peer.stream.shutdown(Shutdown::Write).ok();
            self.held.push_back(peer);
        }
        Ok(())
    }

    /// Closed with answers unread, which the kernel tells the server as a reset.
    fn reset(&mut self) -> Result<(), String> {
        for _ in 0..50 {
            let Some(mut peer) = self.inside() else {
                continue;
            };
            self.throw(&mut peer, &encode(&["GET", "large"]).repeat(5));
            if self.rng.one_in(2) {
                peer.stream.shutdown(Shutdown::Read).ok();
            }
        }
        Ok(())
    }

    fn wrong_password(&mut self) -> Result<(), String> {
        let Some(mut peer) = self.outside() else {
            return Ok(());
        };
        for _ in 0..200 {
            let guess = self.rng.number().to_string();
            match peer.ask(&["AUTH", &guess]) {
                Ok(Reply::Error(text)) if text.starts_with("WRONGPASS") => {}
                Err(_) => return Ok(()),
                other => return Err(format!("a guess was answered {other:?}")),
            }
        }
        Ok(())
    }

    fn storm(&mut self) -> Result<(), String> {
        let connections: Vec<Peer> = (0..300).filter_map(|_| self.outside()).collect();
        self.shared
            .count("connections in storms", connections.len() as u64);
        Ok(())
    }
}
