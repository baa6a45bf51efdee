//! What all connections share: the databases, the settings, the list of connections, figures. Thread-safe.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use glintdb::Db;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::config::{ServerConfig, ServerError, ServerEvent};
use crate::pace::Pace;
use crate::store::Store;

/// Asks a running server to stop, from any thread. Clones ask the same server.
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<watch::Sender<Option<&'static str>>>);

impl Default for Shutdown {
    fn default() -> Self {
        Shutdown::new()
    }
}

impl Shutdown {
    /// A handle to be given to [`crate::run`].
    #[must_use]
    pub fn new() -> Self {
        Shutdown(Arc::new(watch::Sender::new(None)))
    }

    /// Asks the server to stop. More than once does no harm.
    pub fn trigger(&self) {
        self.because("requested");
    }

    pub(crate) fn because(&self, reason: &'static str) {
        self.0.send_if_modified(|now| {
            let first = now.is_none();
            if first {
                *now = Some(reason);
            }
            first
        });
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<&'static str>> {
        self.0.subscribe()
    }
}

/// What a client has told of itself.
#[derive(Default, Clone)]
pub(crate) struct ClientDetails {
    pub(crate) name: String,
    pub(crate) library: String,
    pub(crate) library_version: String,
}

/// A connection, as others see it.
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) connected_ms: u64,
    pub(crate) details: Mutex<ClientDetails>,
    pub(crate) db: AtomicU32,
    pub(crate) resp3: AtomicBool,
    pub(crate) active_ms: AtomicU64,
    /// By the monotonic clock, as are the next two: when it was made,
    since_ms: u64,
    /// when bytes came from it or went to it last,
    pub(crate) moved_ms: AtomicU64,
    /// and since when answers wait of which it takes nothing; 0 = none do.
    pub(crate) stalled_ms: AtomicU64,
    /// Memory it holds, as counted in the server's figure.
    pub(crate) bytes: AtomicUsize,
    /// Place of the last command in the table.
    pub(crate) command: AtomicUsize,
    /// Queued commands, plus 1; 0 outside MULTI.
    pub(crate) queued: AtomicUsize,
    pub(crate) watched: AtomicUsize,
    pub(crate) input_bytes: AtomicUsize,
    pub(crate) output_bytes: AtomicUsize,
    pub(crate) no_evict: AtomicBool,
    pub(crate) no_touch: AtomicBool,
    /// To be closed as soon as its thread sees it.
    killed: AtomicBool,
    pub(crate) waker: AtomicWaker,
}

impl Client {
    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }
}

/// Figures for INFO.
#[derive(Default)]
pub(crate) struct ServerStats {
    pub(crate) connections: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) input_bytes: AtomicU64,
    pub(crate) output_bytes: AtomicU64,
    /// Answers not yet taken, of all connections.
    pub(crate) pending_bytes: AtomicUsize,
    /// Memory of all connections.
    pub(crate) clients_bytes: AtomicUsize,
    /// The most that they held since [`ServerEvent::Released`].
    clients_bytes_most: AtomicUsize,
    /// Connections closed: for memory, for answers not taken, for a request too large, for silence, for not having shown the password.
    pub(crate) evicted: AtomicU64,
    pub(crate) output_closed: AtomicU64,
    pub(crate) query_closed: AtomicU64,
    pub(crate) idle_closed: AtomicU64,
    pub(crate) unauthenticated_closed: AtomicU64,
}

/// What peers do that is worth a line to whoever runs the server; so few lines of each kind that no peer can fill a disk with them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Misdeed {
    Http,
    Memory,
    Output,
    Query,
    Silence,
    NoPassword,
    TooMany,
    Socket,
}

/// Connections above the limit that may be there while as many others are being closed for them.
const UNAUTHENTICATED_OVER_MAX: usize = 64;
/// A line a kind in so many milliseconds.
const MISDEED_MS: u64 = 10_000;
/// Connections that held less than this are nothing to tell about when they hold less still.
const RELEASED_BYTES_MIN: usize = 32 << 20;

/// The connections there are.
#[derive(Default)]
struct Clients {
    all: BTreeMap<u64, Arc<Client>>,
    /// Those of them that have not shown the password, oldest first.
    unauthenticated: BTreeSet<u64>,
}

/// See the module.
pub(crate) struct Server {
    pub(crate) config: ServerConfig,
    pub(crate) store: Store,
    pub(crate) stats: ServerStats,
    /// Groups that only read, and groups with changes.
    pub(crate) reads: Pace,
    pub(crate) changes: Pace,
    pub(crate) shutdown: Shutdown,
    pub(crate) stopping: AtomicBool,
    pub(crate) port: AtomicU32,
    pub(crate) started_ms: u64,
    /// 40 hexadecimal digits that no other run has.
    pub(crate) run_id: String,
    clients: Mutex<Clients>,
    /// By kind: when it was told last, and how often it was not told since.
    misdeeds: Mutex<BTreeMap<Misdeed, (u64, u64)>>,
    last_client: AtomicU64,
}

impl Server {
    pub(crate) fn open(
        db: Db,
        config: ServerConfig,
        shutdown: Shutdown,
    ) -> Result<Server, ServerError> {
        let store = Store::open(
            db,
            config.databases,
            config.durability,
            config.keyspace_options.clone(),
            Arc::clone(&config.clock),
        )?;
        // A hasher seeded by the system is random enough for a name.
        let random = || {
            use std::hash::BuildHasher;
            std::hash::RandomState::new().hash_one(std::process::id())
        };
        let mut run_id = format!("{:016x}{:016x}{:016x}", random(), random(), random());
        run_id.truncate(40);
        Ok(Server {
            started_ms: store.now_ms(),
            store,
            config,
            stats: ServerStats::default(),
            // One read from the medium takes 60 µs and more; writers are slowed down by milliseconds.
            reads: Pace::new(Duration::from_micros(60)),
            changes: Pace::new(Duration::from_micros(500)),
            shutdown,
            stopping: AtomicBool::new(false),
            port: AtomicU32::new(0),
            run_id,
            clients: Mutex::default(),
            misdeeds: Mutex::default(),
            last_client: AtomicU64::new(0),
        })
    }

    pub(crate) fn warn(&self, text: String) {
        (self.config.observer)(&ServerEvent::Warning(text));
    }

    /// [`Server::warn`] about something a peer did: at most once in [`MISDEED_MS`] for each kind.
    pub(crate) fn warn_of_peer(&self, kind: Misdeed, text: impl FnOnce() -> String) {
        let now_ms = self.monotonic_ms();
        let mut misdeeds = self.misdeeds.lock();
        let untold = match misdeeds.get_mut(&kind) {
            Some((told_ms, untold)) if now_ms.saturating_sub(*told_ms) < MISDEED_MS => {
                *untold += 1;
                return;
            }
            Some((_, untold)) => *untold,
            None => 0,
        };
        misdeeds.insert(kind, (now_ms, 0));
        drop(misdeeds);
        let mut text = text();
        if untold > 0 {
            text.push_str(&format!(
                " ({untold} more warnings of this kind were suppressed)"
            ));
        }
        self.warn(text);
    }

    /// Milliseconds of the monotonic clock, never 0.
    pub(crate) fn monotonic_ms(&self) -> u64 {
        let now = self.config.clock.monotonic();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Enters a connection in the list; `None` if there are as many as may be. One more that has not shown a password costs the oldest of those its place, so that
    /// nobody without the password can keep out those who have it.
    pub(crate) fn register(&self, address: SocketAddr, local: SocketAddr) -> Option<Arc<Client>> {
        let now = self.store.now_ms();
        let now_monotonic = self.monotonic_ms();
        let mut clients = self.clients.lock();
        let full = self.config.clients_max as usize;
        if clients.all.len() >= full {
            // Those that are being closed are still counted: a few more than `full` may be there for a moment.
            let oldest = match clients.all.len() - full {
                0..UNAUTHENTICATED_OVER_MAX => clients.unauthenticated.pop_first(),
                _ => None,
            };
            match oldest.and_then(|id| clients.all.get(&id)) {
                Some(oldest) => {
                    self.stats
                        .unauthenticated_closed
                        .fetch_add(1, Ordering::Relaxed);
                    oldest.kill();
                }
                None => {
                    self.stats.rejected.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
            }
        }
        self.stats.connections.fetch_add(1, Ordering::Relaxed);
        let id = self.last_client.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client {
            id,
            address,
            local,
            connected_ms: now,
            details: Mutex::default(),
            db: AtomicU32::new(0),
            resp3: AtomicBool::new(false),
            active_ms: AtomicU64::new(now),
            since_ms: now_monotonic,
            moved_ms: AtomicU64::new(now_monotonic),
            stalled_ms: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            command: AtomicUsize::new(usize::MAX),
            queued: AtomicUsize::new(0),
            watched: AtomicUsize::new(0),
            input_bytes: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        clients.all.insert(id, Arc::clone(&client));
        if self.config.password.is_some() {
            clients.unauthenticated.insert(id);
        }
        Some(client)
    }

    pub(crate) fn unregister(&self, id: u64) {
        let mut clients = self.clients.lock();
        clients.all.remove(&id);
        clients.unauthenticated.remove(&id);
    }

    pub(crate) fn note_authenticated(&self, client: &Client, authenticated: bool) {
        let mut clients = self.clients.lock();
        if authenticated {
            clients.unauthenticated.remove(&client.id);
        } else if clients.all.contains_key(&client.id) {
            clients.unauthenticated.insert(client.id);
        }
    }

    /// Notes that `client` holds `bytes` of memory. Where all together hold too much, the largest is closed.
    pub(crate) fn note_memory(&self, client: &Client, bytes: usize) {
        let before = client.bytes.swap(bytes, Ordering::Relaxed);
        let all = &self.stats.clients_bytes;
        if bytes <= before {
            all.fetch_sub(before - bytes, Ordering::Relaxed);
            return;
        }
        let now = all.fetch_add(bytes - before, Ordering::Relaxed) + (bytes - before);
        let most = self.config.clients_bytes_max;
        if most > 0 && now > most {
            self.evict(most);
        }
    }

    fn evict(&self, most: usize) {
        let closed = self.evict_largest(most);
        for (address, bytes, held) in closed {
            self.stats.evicted.fetch_add(1, Ordering::Relaxed);
            self.warn_of_peer(Misdeed::Memory, || {
                format!(
                    "connections hold {held} bytes, more than the limit; closed the largest, {address}, with {bytes} bytes"
                )
            });
        }
    }

    /// Closes the largest connections until the others hold no more than `most`; address and size of each, and what was held.
    fn evict_largest(&self, most: usize) -> Vec<(SocketAddr, usize, usize)> {
        let mut closed = Vec::new();
        let clients = self.clients.lock();
        loop {
            // Those that were told to close give theirs back as soon as their threads see it.
            let mut held = 0usize;
            let mut largest: Option<(usize, &Arc<Client>)> = None;
            for client in clients.all.values().filter(|client| !client.is_killed()) {
                let bytes = client.bytes.load(Ordering::Relaxed);
                held += bytes;
                if largest.is_none_or(|(most, _)| bytes > most) {
                    largest = Some((bytes, client));
                }
            }
            let Some((bytes, client)) = largest.filter(|_| held > most) else {
                return closed;
            };
            client.kill();
            closed.push((client.address, bytes, held));
        }
    }

    /// Tells the observer where connections hold much less than they did.
    fn note_released(&self) {
        let now = self.stats.clients_bytes.load(Ordering::Relaxed);
        let most = self
            .stats
            .clients_bytes_most
            .fetch_max(now, Ordering::Relaxed);
        if most >= RELEASED_BYTES_MIN && now < most / 2 {
            self.stats.clients_bytes_most.store(now, Ordering::Relaxed);
            (self.config.observer)(&ServerEvent::Released);
        }
    }

    /// Closes connections that have been silent, without a password, or not taking their answers for too long. To be called once a second.
    pub(crate) fn close_overdue(&self) {
        self.note_released();
        let now_ms = self.monotonic_ms();
        let config = &self.config;
        let overdue = |since_ms: u64, limit: Duration| {
            !limit.is_zero() && u128::from(now_ms.saturating_sub(since_ms)) > limit.as_millis()
        };
        let clients = self.clients.lock();
        let mut closed = Vec::new();
        for client in clients.all.values().filter(|client| !client.is_killed()) {
            let stalled_ms = client.stalled_ms.load(Ordering::Relaxed);
            let (figure, kind, why) =
                if stalled_ms != 0 && overdue(stalled_ms, config.output_stall_max) {
                    (
                        &self.stats.output_closed,
                        Misdeed::Output,
                        "took no replies",
                    )
                } else if overdue(client.moved_ms.load(Ordering::Relaxed), config.idle_timeout) {
                    (&self.stats.idle_closed, Misdeed::Silence, "was idle")
                } else if clients.unauthenticated.contains(&client.id)
                    && overdue(client.since_ms, config.auth_timeout)
                {
                    (
                        &self.stats.unauthenticated_closed,
                        Misdeed::NoPassword,
                        "did not authenticate",
                    )
                } else {
                    continue;
                };
            figure.fetch_add(1, Ordering::Relaxed);
            client.kill();
            closed.push((kind, client.address, why));
        }
        drop(clients);
        for (kind, address, why) in closed {
            self.warn_of_peer(kind, || format!("closed {address}: it {why}"));
        }
    }

    /// All connections, oldest first.
    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        self.clients.lock().all.values().cloned().collect()
    }

    pub(crate) fn client_count(&self) -> usize {
        self.clients.lock().all.len()
    }

    /// Lets every connection's thread look at `stopping`.
    pub(crate) fn wake_all(&self) {
        for client in self.clients.lock().all.values() {
            client.waker.wake();
        }
    }
}
