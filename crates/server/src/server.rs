//! What all connections share: the databases, the settings, the list of connections, figures. Thread-safe.

use std::collections::BTreeMap;
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
        self.because("asked to");
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
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
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
            last_client: AtomicU64::new(0),
        })
    }

    pub(crate) fn warn(&self, text: String) {
        (self.config.observer)(&ServerEvent::Warning(text));
    }

    /// Enters a connection in the list; `None` if there are as many as may be.
    pub(crate) fn register(&self, address: SocketAddr, local: SocketAddr) -> Option<Arc<Client>> {
        let now = self.store.now_ms();
        let mut clients = self.clients.lock();
        if clients.len() >= self.config.clients_max as usize {
            self.stats.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
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
        clients.insert(id, Arc::clone(&client));
        Some(client)
    }

    pub(crate) fn unregister(&self, id: u64) {
        self.clients.lock().remove(&id);
    }

    /// All connections, oldest first.
    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        self.clients.lock().values().cloned().collect()
    }

    pub(crate) fn client_count(&self) -> usize {
        self.clients.lock().len()
    }

    /// Lets every connection's thread look at `stopping`.
    pub(crate) fn wake_all(&self) {
        for client in self.clients.lock().values() {
            client.waker.wake();
        }
    }
}
