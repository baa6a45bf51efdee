//! Peers by the thousand: most say nothing, some a byte a second, most have not shown the password, and whoever is thrown out comes again.
//!
//! Thread safety: one thread has them all, without waiting for any.

use super::Shared;
use super::process::PASSWORD;
use super::wire::encode;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

struct Slow {
    stream: TcpStream,
    /// What it says, for ever from the start; nothing where empty.
    line: Vec<u8>,
    said: usize,
}

/// Keeps `peers` connections open until the attack ends.
pub(super) fn run(peers: usize, shared: &Shared) {
    let mut crowd: Vec<Slow> = Vec::new();
    let mut made = 0u64;
    while !shared.is_over() {
        let round = Instant::now();
        // Not all in one burst: the kernel's queue of those who knock is short.
        let mut missing = peers.saturating_sub(crowd.len()).min(500);
        while missing > 0 && !shared.is_over() {
            missing -= 1;
            match join(made, shared) {
                Ok(slow) => crowd.push(slow),
                Err(_) => break,
            }
            made += 1;
        }
        crowd.retain_mut(|slow| slow.say());
        shared.count_max("peers at once", crowd.len() as u64);
        while round.elapsed() < Duration::from_secs(1) && !shared.is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    shared.count("idle and slow peers", made);
}

fn join(number: u64, shared: &Shared) -> std::io::Result<Slow> {
    let mut stream = TcpStream::connect_timeout(&shared.address, Duration::from_secs(5))?;
    let set = encode(&["SET", "slow", "one byte a second"]);
    let line = match number % 4 {
        0 | 1 => Vec::new(),
        2 => b"PING with no end ".to_vec(),
        _ => set,
    };
    // Every second one has the password, so that it may stay.
    if number % 8 < 4 {
        stream.write_all(&encode(&["AUTH", PASSWORD]))?;
    }
    stream.set_nonblocking(true)?;
    Ok(Slow {
        stream,
        line,
        said: 0,
    })
}

impl Slow {
    /// The next byte; `false` once the server has closed the connection.
    fn say(&mut self) -> bool {
        if let Some(byte) = self.line.get(self.said % self.line.len().max(1)) {
            self.said += 1;
            match self.stream.write(&[*byte]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        let mut answers = [0; 512];
        match self.stream.read(&mut answers) {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }
}
