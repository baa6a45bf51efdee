//! Clients that only want to be served: each compares every answer about its own keys with a model, all share one counter whose history must be linearizable.
//!
//! Thread safety: one thread a client; the history is collected at the end.

use super::Shared;
use super::process::PASSWORD;
use super::wire::{Peer, Reply, encode};
use crate::rng::Rng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Longest an honest client waits for an answer before it says that it is not served.
const PATIENCE: Duration = Duration::from_secs(20);
const KEYS: u64 = 40;

/// A look at the counter, or an increment: between two moments it had this value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    start: Duration,
    end: Duration,
    value: i64,
    increment: bool,
}

/// What a client has done.
#[derive(Default)]
pub(super) struct Served {
    pub(super) history: Vec<Observation>,
    pub(super) latencies: Vec<Duration>,
    pub(super) records: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) commands: u64,
}

struct Client<'s> {
    name: u64,
    shared: &'s Shared,
    peer: Peer,
    rng: Rng,
    served: Served,
}

/// Logs in.
pub(super) fn enter(address: SocketAddr, patience: Duration) -> Result<Peer, String> {
    let mut peer = Peer::connect(address, patience)?;
    match peer.ask(&["AUTH", PASSWORD])? {
        Reply::Simple(ok) if ok == "OK" => Ok(peer),
        other => Err(format!("AUTH was answered {other:?}")),
    }
}

/// Works until the attack ends.
pub(super) fn run(name: u64, shared: &Shared) -> Served {
    let mut served = Served::default();
    let outcome = enter(shared.address, PATIENCE).and_then(|peer| {
        let mut client = Client {
            name,
            shared,
            peer,
            rng: Rng::of(&[shared.seed, 2, name]),
            served: Served::default(),
        };
        let result = client.work();
        served = client.served;
        result
    });
    if let Err(message) = outcome {
        shared.fail(format!("honest client {name}: {message}"));
    }
    served
}

impl Client<'_> {
    fn work(&mut self) -> Result<(), String> {
        while !self.shared.is_over() {
            let start = Instant::now();
            match self.rng.below(10) {
                0..=2 => self.counter()?,
                3..=6 => self.pipeline()?,
                7 => self.transaction()?,
                8 => self.many()?,
                _ => self.new_connection()?,
            }
            self.served.latencies.push(start.elapsed());
            // People do not hammer.
            std::thread::sleep(Duration::from_millis(self.rng.below(4)));
        }
        Ok(())
    }

    fn ask<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Reply, String> {
        self.served.commands += 1;
        self.peer.ask(command)
    }

    /// Honest clients come and go as well, and get in.
    fn new_connection(&mut self) -> Result<(), String> {
        self.peer = enter(self.shared.address, PATIENCE)?;
        Ok(())
    }

    fn counter(&mut self) -> Result<(), String> {
        let increment = self.rng.below(3) != 0;
        let start = self.shared.start.elapsed();
        let reply = match increment {
            true => self.ask(&["INCR", "honest:counter"])?,
            false => self.ask(&["GET", "honest:counter"])?,
        };
        let end = self.shared.start.elapsed();
        let value = match &reply {
            Reply::Integer(value) => Some(*value),
            Reply::Bulk(None) => Some(0),
            Reply::Bulk(Some(text)) => String::from_utf8_lossy(text).parse().ok(),
            _ => None,
        };
        let value = value.ok_or_else(|| format!("the counter was answered {reply:?}"))?;
        self.served.history.push(Observation {
            start,
            end,
            value,
            increment,
        });
        Ok(())
    }

    fn key(&mut self) -> Vec<u8> {
        format!("honest:{}:{}", self.name, self.rng.below(KEYS)).into_bytes()
    }

    /// A change of an own key: the command, and what it is answered.
    fn change(&mut self) -> (Vec<Vec<u8>>, Reply) {
        let key = self.key();
        let ok = Reply::Simple("OK".into());
        if self.rng.one_in(4) {
            let there = self.served.records.remove(&key).is_some();
            return (vec![b"DEL".to_vec(), key], Reply::Integer(i64::from(there)));
        }
        let length = match self.rng.below(20) {
            0 => 5000,
            _ => self.rng.below(100),
        };
        let value = self.rng.bytes(length as usize);
        self.served.records.insert(key.clone(), value.clone());
        (vec![b"SET".to_vec(), key, value], ok)
    }

    fn expect(&self, asked: &[Vec<u8>], got: &Reply, expected: &Reply) -> Result<(), String> {
        if got == expected {
            return Ok(());
        }
        let asked: Vec<_> = asked
            .iter()
            .map(|word| word.escape_ascii().to_string())
            .collect();
        Err(format!("{asked:?} was answered {got:?}, not {expected:?}"))
    }

    fn pipeline(&mut self) -> Result<(), String> {
        let mut asked = Vec::new();
        for _ in 0..=self.rng.below(12) {
            if self.rng.one_in(2) {
                asked.push(self.change());
            } else {
                let key = self.key();
                let value = Reply::Bulk(self.served.records.get(&key).cloned());
                asked.push((vec![b"GET".to_vec(), key], value));
            }
        }
        let bytes: Vec<u8> = asked.iter().flat_map(|(words, _)| encode(words)).collect();
        self.peer.send(&bytes)?;
        for (words, expected) in &asked {
            let got = self.peer.receive()?;
            self.expect(words, &got, expected)?;
        }
        self.served.commands += asked.len() as u64;
        Ok(())
    }

    fn transaction(&mut self) -> Result<(), String> {
        let changes: Vec<_> = (0..3).map(|_| self.change()).collect();
        let mut bytes = encode(&["MULTI"]);
        for (words, _) in &changes {
            bytes.extend(encode(words));
        }
        bytes.extend(encode(&["EXEC"]));
        self.peer.send(&bytes)?;
        for _ in 0..=changes.len() {
            self.peer.receive()?;
        }
        let got = self.peer.receive()?;
        let expected = changes
            .iter()
            .map(|(_, expected)| expected.clone())
            .collect();
        self.served.commands += changes.len() as u64 + 2;
        self.expect(&[b"EXEC".to_vec()], &got, &Reply::Array(Some(expected)))
    }

    /// All own keys at once.
    fn many(&mut self) -> Result<(), String> {
        let mut words = vec![b"MGET".to_vec()];
        let mut expected = Vec::new();
        for number in 0..KEYS {
            let key = format!("honest:{}:{number}", self.name).into_bytes();
            expected.push(Reply::Bulk(self.served.records.get(&key).cloned()));
            words.push(key);
        }
        let got = self.ask(&words)?;
        self.expect(&words[..1], &got, &Reply::Array(Some(expected)))
    }
}

/// Is there an order of all looks and increments that every client's clock agrees with?
///
/// Increments have values 1, 2, 3 …, each once; so the order is that of the values, a look standing behind the increment whose value it saw. It must not go
/// back in real time: nothing may end before something of a lower place has begun.
pub(super) fn linearizable(mut history: Vec<Observation>) -> Result<u64, String> {
    history.sort_by_key(|seen| (seen.value, !seen.increment, seen.start));
    let mut increments = 0;
    let mut begun = Duration::ZERO;
    for seen in &history {
        if seen.increment {
            increments += 1;
            if seen.value != increments {
                return Err(format!(
                    "the counter's increment {increments} answered {}",
                    seen.value
                ));
            }
        } else if seen.value > increments {
            return Err(format!("the counter was {} before it was", seen.value));
        }
        if seen.end < begun {
            return Err(format!(
                "the counter went back: {seen:?} ended before something earlier began at {begun:?}"
            ));
        }
        begun = begun.max(seen.start);
    }
    Ok(increments.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(start: u64, end: u64, value: i64, increment: bool) -> Observation {
        Observation {
            start: Duration::from_millis(start),
            end: Duration::from_millis(end),
            value,
            increment,
        }
    }

    #[test]
    fn histories_that_no_order_explains_are_refused() {
        let good = vec![
            seen(0, 9, 1, true),
            seen(1, 3, 0, false),
            seen(4, 8, 1, false),
            seen(5, 20, 2, true),
        ];
        assert_eq!(linearizable(good), Ok(2));
        let lost = vec![seen(0, 1, 1, true), seen(2, 3, 1, true)];
        assert!(linearizable(lost).is_err());
        let back = vec![seen(0, 1, 1, true), seen(2, 3, 0, false)];
        assert!(linearizable(back).is_err());
        let early = vec![seen(0, 1, 1, false), seen(2, 3, 1, true)];
        assert!(linearizable(early).is_err());
    }
}
