//! The server under attack: the real program, `glintdb serve`, with small limits; thousands of idle and slow peers, hostile ones with every weapon there is, and honest
//! clients in between who must be served all the time.
//!
//! Judged are: every answer honest clients get, their counter's history (linearizable), how long they wait; the server's memory; that it has no connection, thread
//! or memory left of anybody who went; that it stops well, and that the database is what honest clients made of it.
//!
//! Thread safety: [`Shared`] is used by all threads. Not deterministic: a seed gives the same weapons in the same order, the scheduler decides when.

#![allow(
    clippy::disallowed_methods,
    reason = "another process is attacked, in real time"
)]

mod crowd;
mod honest;
mod hostile;
mod process;
mod wire;

use self::honest::Served;
use self::process::{Figures, RSS_BYTES_AFTER, RSS_BYTES_MAX, Server};
use self::wire::Reply;
use crate::report::Report;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What to do.
#[derive(Clone, Debug)]
pub struct Attack {
    /// How long.
    pub time: Duration,
    /// Idle and slow peers at once.
    pub peers: usize,
    /// Decides who does what.
    pub seed: u64,
    /// The program `glintdb`.
    pub program: PathBuf,
    /// The database; made, and removed where nothing was wrong.
    pub dir: PathBuf,
}

/// Threads with weapons.
const HOSTILE: u64 = 6;
/// Honest clients.
const HONEST: u64 = 6;
/// The longest that one honest piece of work (a dozen commands at most) may take, and what 99 of 100 may. Generous: attackers have the same two cores.
const LATENCY_MAX: Duration = Duration::from_secs(15);
const LATENCY_P99_MAX: Duration = Duration::from_secs(3);
/// How long the server may take to forget those who left.
const FORGET: Duration = Duration::from_secs(60);
/// Threads that the runtime may keep: some that stand in for workers whose call into the database is slow.
const SPARE_THREADS: u64 = 4;
/// They end 10 s after their last work, and every look at the server gives one of them work, by turns.
const SPARE_THREADS_END: Duration = Duration::from_secs(12);

/// What all threads see.
struct Shared {
    address: SocketAddr,
    seed: u64,
    start: Instant,
    over: AtomicBool,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    failures: Mutex<Vec<String>>,
    rss_max: AtomicU64,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn count(&self, what: &'static str, number: u64) {
        *self.counts.lock().unwrap().entry(what).or_default() += number;
    }

    fn count_max(&self, what: &'static str, number: u64) {
        let mut counts = self.counts.lock().unwrap();
        let most = counts.entry(what).or_default();
        *most = number.max(*most);
    }

    /// Once the server is gone everybody fails: the first few say why.
    fn fail(&self, message: String) {
        let mut failures = self.failures.lock().unwrap();
        if failures.len() < 20 {
            failures.push(message);
        }
    }
}

/// Attacks, and fills `report`.
///
/// # Errors
/// When nothing could be attacked. What the server did wrong is in the report's failures.
pub fn run(attack: &Attack, report: &mut Report) -> Result<(), String> {
    let files = process::raise_file_limit();
    let peers = attack.peers.min(files.saturating_sub(1000) as usize);
    if peers < attack.peers {
        report.not_run.push(format!(
            "{} of {} peers: this process may have {files} files open",
            attack.peers - peers,
            attack.peers
        ));
    }
    let server = Server::start(&attack.program, &attack.dir, peers)?;
    let shared = Shared {
        address: server.address,
        seed: attack.seed,
        start: Instant::now(),
        over: AtomicBool::new(false),
        counts: Mutex::default(),
        failures: Mutex::default(),
        rss_max: AtomicU64::new(0),
    };
    let before = process::figures(server.id()).ok_or("the server is gone")?;
    let served = everybody(attack, peers, &shared, &server);
    let outcome = judge(&shared, served, before, server, attack);
    shared.failures.lock().unwrap().extend(outcome.err());
    for name in hostile::names() {
        // A weapon that was never taken is said.
        shared.count(name, 0);
    }
    report.threads = (HOSTILE + HONEST + 2) as u32;
    for (what, number) in shared.counts.lock().unwrap().iter() {
        report.count(what, *number);
    }
    report.failures.append(&mut shared.failures.lock().unwrap());
    Ok(())
}

/// Starts everybody, watches the server meanwhile, and waits for the end.
fn everybody(attack: &Attack, peers: usize, shared: &Shared, server: &Server) -> Vec<Served> {
    std::thread::scope(|scope| {
        scope.spawn(|| crowd::run(peers, shared));
        for number in 0..HOSTILE {
            scope.spawn(move || hostile::run(number, shared));
        }
        let honest: Vec<_> = (0..HONEST)
            .map(|name| scope.spawn(move || honest::run(name, shared)))
            .collect();
        while shared.start.elapsed() < attack.time {
            std::thread::sleep(Duration::from_millis(50));
            match process::figures(server.id()) {
                Some(now) => shared.rss_max.fetch_max(now.rss_bytes, Ordering::Relaxed),
                None => {
                    shared.fail("the server ended".into());
                    break;
                }
            };
        }
        shared.over.store(true, Ordering::Relaxed);
        let joined = honest.into_iter().map(|client| client.join().unwrap());
        joined.collect()
    })
}

fn judge(
    shared: &Shared,
    served: Vec<Served>,
    before: Figures,
    server: Server,
    attack: &Attack,
) -> Result<(), String> {
    let rss_max = shared.rss_max.load(Ordering::Relaxed);
    shared.count("largest memory of the server, MiB", rss_max >> 20);
    if rss_max > RSS_BYTES_MAX {
        shared.fail(format!(
            "the server held {} MiB, {} at most are its due",
            rss_max >> 20,
            RSS_BYTES_MAX >> 20
        ));
    }
    let mut latencies: Vec<Duration> = Vec::new();
    let mut history = Vec::new();
    let mut records = BTreeMap::new();
    for client in served {
        shared.count("commands of honest clients", client.commands);
        latencies.extend(client.latencies);
        history.extend(client.history);
        records.extend(client.records);
    }
    latencies.sort_unstable();
    let p99 = latencies.get(latencies.len() * 99 / 100).copied();
    let (p99, longest) = (
        p99.unwrap_or_default(),
        latencies.last().copied().unwrap_or_default(),
    );
    shared.count("honest wait p99, ms", p99.as_millis() as u64);
    shared.count("longest honest wait, ms", longest.as_millis() as u64);
    if latencies.is_empty() || p99 > LATENCY_P99_MAX || longest > LATENCY_MAX {
        shared.fail(format!(
            "honest clients waited up to {longest:?}, one in a hundred {p99:?}"
        ));
    }
    shared.count(
        "operations on the linearizable counter",
        history.len() as u64,
    );
    let counter = honest::linearizable(history)?;
    forgotten(shared, &server, before)?;
    server.stop(Duration::from_secs(30))?;
    compare(attack, counter, &records)
}

/// Everybody has left: nothing of them may stay.
fn forgotten(shared: &Shared, server: &Server, before: Figures) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let now = process::figures(server.id()).ok_or("the server is gone")?;
        let mut peer = honest::enter(shared.address, Duration::from_secs(20))?;
        let Reply::Bulk(Some(info)) = peer.ask(&["INFO", "everything"])? else {
            return Err("INFO is not answered".into());
        };
        let info = String::from_utf8_lossy(&info).into_owned();
        let figure = |name: &str| -> Option<u64> {
            let rest = info.lines().find_map(|line| line.strip_prefix(name))?;
            rest.strip_prefix(':')?.parse().ok()
        };
        let held = figure("mem_clients_normal").ok_or("INFO has no mem_clients_normal")?;
        // The look of the round before may still be there.
        let gone = now.sockets <= before.sockets + 2
            && now.threads <= before.threads + SPARE_THREADS
            && now.rss_bytes <= RSS_BYTES_AFTER
            && held == 0
            && figure("connected_clients").is_some_and(|clients| clients <= 2);
        if gone {
            for (name, what) in [
                ("evicted_clients", "connections closed for memory"),
                (
                    "client_output_buffer_limit_disconnections",
                    "connections closed for answers not taken",
                ),
                (
                    "client_query_buffer_limit_disconnections",
                    "connections closed for too large requests",
                ),
                (
                    "unauthenticated_disconnections",
                    "connections closed without a password",
                ),
                ("rejected_connections", "connections turned away"),
            ] {
                shared.count(what, figure(name).unwrap_or(0));
            }
            return Ok(());
        }
        if start.elapsed() > FORGET {
            return Err(format!(
                "everybody left {FORGET:?} ago, and the server has {now:?}, before the attack {before:?}; connections hold {held} bytes"
            ));
        }
        let crowded = now.threads > before.threads + SPARE_THREADS;
        std::thread::sleep(match crowded {
            true => SPARE_THREADS_END,
            false => Duration::from_millis(500),
        });
    }
}

/// The database is whole, and holds what honest clients made.
fn compare(
    attack: &Attack,
    counter: u64,
    records: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Result<(), String> {
    let sentence = |error: glintdb::Error| format!("the database afterwards: {error}");
    let db = glintdb::Db::open(&attack.dir).map_err(sentence)?;
    let verified = db.verify().map_err(sentence)?;
    if let Some(error) = verified.errors.first() {
        return Err(format!("verify afterwards: {error}"));
    }
    let keyspace = db.keyspace("default").map_err(sentence)?;
    let mut expected = records.clone();
    if counter > 0 {
        expected.insert(b"honest:counter".to_vec(), counter.to_string().into_bytes());
    }
    let mut found = BTreeMap::new();
    for record in keyspace.prefix("honest:") {
        let (key, value) = record.map_err(sentence)?;
        found.insert(key.to_vec(), value.to_vec());
    }
    let differs = expected
        .iter()
        .find(|(key, value)| found.get(*key) != Some(value))
        .map(|(key, _)| key)
        .or_else(|| found.keys().find(|key| !expected.contains_key(*key)));
    if let Some(key) = differs {
        return Err(format!(
            "{} is not what its client made",
            key.escape_ascii()
        ));
    }
    db.close().map_err(sentence)
}
