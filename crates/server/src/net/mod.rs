//! Sockets and threads: [`run`] listens, each connection is a task ([`connection`]).
//!
//! **Threads**: the caller's (accepts connections), `glint-net` (`threads` of them, serve
//! connections; one that runs something long hands its other connections on to a spare thread),
//! `glint-expiry` (removes expired keys ten times a second, keeps key counts fresh, closes
//! connections that are overdue). A connection that waits costs its task and no buffers.

mod connection;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use glintdb::{Db, Durability};
use parking_lot::{Condvar, Mutex};
use rustix::net::SendFlags;
use tokio::net::{TcpListener, TcpStream};

use crate::config::{ServerConfig, ServerError, ServerEvent};
use crate::server::{Misdeed, Server, Shutdown};
use connection::Connection;

/// Most file descriptors that connections leave to the database: half of all, but no more than
/// this.
const FILES_RESERVED_MAX: u64 = 512;
/// Threads that take over from those in slow calls: the most commits at `Sync`, or reads from the
/// medium, that wait at once.
const SPARE_THREADS_MAX: usize = 256;
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// Sweeps (of 128 keys each) without a pause: 32 × 128 keys take about 30 ms of each 100 ms.
const SWEEPS_IN_A_ROW_MAX: u32 = 32;

/// Serves `db` to Redis clients until `shutdown` is triggered, a client sends SHUTDOWN or, unless
/// switched off, a SIGTERM or SIGINT comes. Then takes no more connections, finishes the commands
/// it has begun, lets answers be taken for up to `stop_grace`, makes everything durable and closes
/// the database.
///
/// Blocks the calling thread, and must not be called from within an asynchronous runtime.
///
/// # Errors
/// [`ServerError::PasswordNeeded`] before anything else; when the address cannot be listened on;
/// when the database cannot be made durable and closed at the end.
pub fn run(db: Db, config: ServerConfig, shutdown: &Shutdown) -> Result<(), ServerError> {
    config.check()?;
    let files = glintdb_flash::raise_descriptor_limit();
    let mut config = config;
    let allowed = files - (files / 2).min(FILES_RESERVED_MAX);
    let allowed = u32::try_from(allowed).unwrap_or(u32::MAX);
    if allowed < config.clients_max {
        (config.observer)(&ServerEvent::Warning(format!(
            "the limit of open files ({files}) allows at most {allowed} connections"
        )));
        config.clients_max = allowed.max(1);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.threads)
        .max_blocking_threads(SPARE_THREADS_MAX)
        .thread_name("glint-net")
        .enable_all()
        .build()
        .map_err(|source| ServerError::Io {
            what: "start threads",
            source,
        })?;
    let grace = config.stop_grace;
    let address = SocketAddr::new(config.bind, config.port);
    let closing = db.clone();
    let server = Arc::new(Server::open(db, config, shutdown.clone())?);
    let sweeper = Sweeper::start(&server)?;
    let served = runtime.block_on(serve(&server, address));
    sweeper.stop();
    runtime.shutdown_timeout(grace);
    drop(server);
    served?;
    closing.flush_log(Durability::Sync)?;
    closing.close()?;
    Ok(())
}

async fn serve(server: &Arc<Server>, address: SocketAddr) -> Result<(), ServerError> {
    let refused = |source| ServerError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let local = listener.local_addr().map_err(refused)?;
    server.port.store(local.port().into(), Ordering::Relaxed);
    let mut stop = server.shutdown.subscribe();
    if server.config.signals {
        listen_to_signals(&server.shutdown)?;
    }
    (server.config.observer)(&ServerEvent::Listening(local));
    let reason = loop {
        tokio::select! {
            reason = stop.wait_for(Option::is_some) => {
                break reason.ok().and_then(|reason| *reason).unwrap_or("requested");
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => admit(server, stream, peer, local),
                Err(error) => {
                    // Out of files, most often: others have to close before there is any use in
                    // trying again.
                    server.warn_of_peer(Misdeed::Socket, || format!("cannot accept a connection: {error}"));
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    };
    drop(listener);
    (server.config.observer)(&ServerEvent::Stopping(reason));
    server.stopping.store(true, Ordering::Release);
    server.wake_all();
    let mut waited = Duration::ZERO;
    while server.client_count() > 0 && waited < server.config.stop_grace {
        let pause = Duration::from_millis(5);
        tokio::time::sleep(pause).await;
        waited += pause;
    }
    for client in server.clients() {
        client.kill();
    }
    Ok(())
}

fn listen_to_signals(shutdown: &Shutdown) -> Result<(), ServerError> {
    use tokio::signal::unix::{SignalKind, signal};
    for (kind, reason) in [
        (SignalKind::terminate(), "SIGTERM"),
        (SignalKind::interrupt(), "SIGINT"),
    ] {
        let mut signal = signal(kind).map_err(|source| ServerError::Io {
            what: "listen to signals",
            source,
        })?;
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            if signal.recv().await.is_some() {
                shutdown.because(reason);
            }
        });
    }
    Ok(())
}

fn admit(server: &Arc<Server>, stream: TcpStream, peer: SocketAddr, local: SocketAddr) {
    // Without these a connection works all the same, only less well.
    if let Err(error) = stream.set_nodelay(true) {
        server.warn_of_peer(Misdeed::Socket, || {
            format!("{peer}: cannot set TCP_NODELAY: {error}")
        });
    }
    if let Err(error) = keep_alive(&stream, server.config.keepalive) {
        server.warn_of_peer(Misdeed::Socket, || {
            format!("{peer}: cannot set keepalive: {error}")
        });
    }
    let local = stream.local_addr().unwrap_or(local);
    match server.register(peer, local) {
        Some(client) => {
            tokio::spawn(Connection::new(Arc::clone(server), client, stream).run());
        }
        None => {
            // One line fits the socket's buffer; if not, the closed connection says enough.
            // Straight to the system: the runtime does not know yet that the socket can be written
            // to.
            let line = b"-ERR max number of clients reached\r\n";
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = rustix::net::send(&stream, line, flags);
            server.warn_of_peer(Misdeed::TooMany, || {
                let most = server.config.clients_max;
                match sent {
                    Ok(_) => format!("refused {peer}: all {most} connections are in use"),
                    Err(error) => format!(
                        "refused {peer}: all {most} connections are in use; cannot send it that error: {error}"
                    ),
                }
            });
        }
    }
}

/// Probes after so long without a word, three of them within as long again.
fn keep_alive(stream: &TcpStream, idle: Duration) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, !idle.is_zero())?;
    if !idle.is_zero() {
        let second = Duration::from_secs(1);
        sockopt::set_tcp_keepidle(stream, idle.max(second))?;
        sockopt::set_tcp_keepintvl(stream, (idle / 3).max(second))?;
        sockopt::set_tcp_keepcnt(stream, 3)?;
    }
    Ok(())
}

/// The thread that removes expired keys.
struct Sweeper {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: std::thread::JoinHandle<()>,
}

impl Sweeper {
    fn start(server: &Arc<Server>) -> Result<Sweeper, ServerError> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (server, seen) = (Arc::clone(server), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("glint-expiry".to_owned())
            .spawn(move || sweep_until(&server, &seen))
            .map_err(|source| ServerError::Io {
                what: "start a thread",
                source,
            })?;
        Ok(Sweeper { stop, thread })
    }

    fn stop(self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        assert!(self.thread.join().is_ok(), "the expiry thread panicked");
    }
}

fn sweep_until(server: &Server, (stop, wake): &(Mutex<bool>, Condvar)) {
    let mut rounds = 0u32;
    let mut told = String::new();
    let mut stopped = stop.lock();
    while !*stopped {
        wake.wait_for(&mut stopped, SWEEP_INTERVAL);
        if *stopped {
            return;
        }
        drop(stopped);
        rounds += 1;
        let mut result = Ok(());
        for _ in 0..SWEEPS_IN_A_ROW_MAX {
            match server.store.sweep() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if rounds.is_multiple_of(10) {
            server.close_overdue();
            result = result.and(server.store.maintain_counts());
        }
        if let Err(error) = result {
            // A full or poisoned database would say the same ten times a second.
            let text = error.to_string();
            if text != told {
                server.warn(format!("cannot remove expired keys: {text}"));
                told = text;
            }
        }
        stopped = stop.lock();
    }
}
