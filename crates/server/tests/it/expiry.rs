//! Expiry with a clock that is moved by hand: to the millisecond on reads, swept away unread, kept over a restart.

use std::sync::Arc;
use std::time::Duration;

use glintdb_flash::ManualClock;
use glintdb_server::{EXPIRY_KEYSPACE, RecordCodec};

use crate::support::{TestServer, encode};

const START_S: u64 = 1_800_000_000;

fn clock_at_start() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Duration::from_secs(START_S)))
}

fn start(dir: &std::path::Path, clock: &Arc<ManualClock>) -> TestServer {
    let clock = Arc::clone(clock);
    TestServer::start_with(dir, move |config| config.clock = clock)
}

#[test]
fn a_key_is_gone_at_its_millisecond() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock_at_start();
    let server = start(dir.path(), &clock);
    let mut client = server.client();
    client.run(&["SET", "a", "1", "PX", "1500"]);
    client.run(&["SET", "b", "1", "PX", "1500"]);
    client.run(&["SET", "stays", "1"]);
    clock.advance(Duration::from_millis(1499));
    assert_eq!(client.run(&["PTTL", "a"]), "(integer) 1");
    assert_eq!(client.run(&["EXISTS", "a", "b"]), "(integer) 2");
    clock.advance(Duration::from_millis(1));
    assert_eq!(client.run(&["GET", "a"]), "(nil)");
    // Whoever comes across it removes it, as in Redis.
    assert_eq!(client.run(&["EXISTS", "a", "b", "stays"]), "(integer) 1");
    assert_eq!(client.run(&["DBSIZE"]), "(integer) 1");
    assert_eq!(client.run(&["TTL", "a"]), "(integer) -2");
    assert_eq!(client.run(&["SET", "b", "2", "NX"]), "OK");
    assert_eq!(client.run(&["TTL", "b"]), "(integer) -1");
    assert_eq!(client.run(&["INCR", "a"]), "(integer) 1");
}

#[test]
fn info_counts_keys_with_an_expiry_exactly_by_database() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock_at_start();
    let server = start(dir.path(), &clock);
    let mut client = server.client();
    client.run(&["MSET", "a", "1", "b", "2", "c", "3"]);
    client.run(&["SET", "a", "1", "EX", "100"]);
    // Each leaves an entry of an expiry that is no longer in force.
    client.run(&["SET", "a", "1", "EX", "200"]);
    client.run(&["SET", "b", "2", "EX", "100"]);
    client.run(&["SET", "b", "2"]);
    client.run(&["SELECT", "1"]);
    for key in ["d", "e"] {
        client.run(&["SET", key, "4", "EX", "300"]);
    }
    client.run(&["DEL", "e"]);
    let info = client.run(&["INFO", "keyspace"]);
    assert!(info.contains("db0:keys=3,expires=1,avg_ttl=0"), "{info}");
    assert!(info.contains("db1:keys=1,expires=1,avg_ttl=0"), "{info}");
    assert!(
        client
            .run(&["INFO", "stats"])
            .contains("keyspace_counts:exact")
    );
}

#[test]
fn info_estimates_the_keys_with_an_expiry_if_there_are_many() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock_at_start();
    let server = start(dir.path(), &clock);
    let mut client = server.client();
    // Sessions whose expiry is pushed on twice: two of three expiries are no longer in force.
    for seconds in ["100", "200", "300"] {
        for key in 0..3000 {
            client.run(&["SET", &format!("session{key}"), "1", "EX", seconds]);
        }
    }
    let info = client.run(&["INFO", "keyspace"]);
    let (_, expires) = info.split_once("db0:keys=3000,expires=").unwrap();
    let (expires, _) = expires.split_once(',').unwrap();
    let expires: u64 = expires.parse().unwrap();
    assert!((2700..=3000).contains(&expires), "{info}");
    assert!(
        client
            .run(&["INFO", "stats"])
            .contains("keyspace_counts:about")
    );
}

#[test]
fn scans_leave_expired_keys_out() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock_at_start();
    let server = start(dir.path(), &clock);
    let mut client = server.client();
    client.run(&["MSET", "a", "1", "c", "3"]);
    client.run(&["SET", "b", "2", "PX", "100"]);
    assert_eq!(client.run(&["SCAN", "0"]), "[\"0\", [\"a\", \"b\", \"c\"]]");
    // Within the second of its expiry the sweep leaves it alone, so this is the scan's own doing.
    clock.advance(Duration::from_millis(100));
    assert_eq!(client.run(&["SCAN", "0"]), "[\"0\", [\"a\", \"c\"]]");
    assert_eq!(
        client.run(&["GRANGE", "-", "+", "KEYSONLY"]),
        "[\"a\", \"c\"]"
    );
    assert_eq!(
        client.run(&["GRANGE", "-", "+"]),
        "[\"a\", \"1\", \"c\", \"3\"]"
    );
}

#[test]
fn unread_keys_are_swept() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock_at_start();
    let server = start(dir.path(), &clock);
    let mut client = server.client();
    for key in 0..300 {
        client.run(&["SET", &format!("k{key}"), "1", "PX", "2500"]);
    }
    for key in 0..100 {
        // Overwritten, made to stay, made to stay longer: their old entries must not hurt them.
        client.run(&["SET", &format!("k{key}"), "2"]);
    }
    for key in 100..150 {
        client.run(&["PERSIST", &format!("k{key}")]);
        client.run(&["EXPIRE", &format!("k{}", key + 50), "1000"]);
    }
    assert_eq!(client.run(&["DBSIZE"]), "(integer) 300");
    clock.advance(Duration::from_millis(5000));
    let mut tries = 0;
    while client.run(&["DBSIZE"]) != "(integer) 200" {
        tries += 1;
        assert!(tries < 100, "the sweep never came");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(client.run(&["GET", "k0"]), "\"2\"");
    assert_eq!(client.run(&["TTL", "k120"]), "(integer) -1");
    assert_eq!(client.run(&["TTL", "k170"]), "(integer) 995");
    assert!(client.run(&["INFO", "stats"]).contains("expired_keys:100"));
}

#[test]
fn expiry_outlives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock_at_start();
    let server = start(dir.path(), &clock);
    let mut client = server.client();
    client.run(&["SET", "soon", "1", "EX", "10"]);
    client.run(&["SET", "late", "1", "EX", "1000"]);
    client.run(&["SET", "never", "\u{fffd}GLINTV"]);
    client.run(&["SELECT", "7"]);
    client.run(&["SET", "seven", "1", "EX", "10"]);
    client.run(&["SET", "eight", "8"]);
    drop(client);
    server.stop().unwrap();

    clock.advance(Duration::from_millis(20_000));
    let server = start(dir.path(), &clock);
    let mut client = server.client();
    assert_eq!(client.run(&["GET", "soon"]), "(nil)");
    assert_eq!(client.run(&["TTL", "late"]), "(integer) 980");
    assert_eq!(client.run(&["TTL", "never"]), "(integer) -1");
    client.run(&["SELECT", "7"]);
    assert_eq!(client.run(&["EXISTS", "seven", "eight"]), "(integer) 1");
    let mut tries = 0;
    while client.run(&["DBSIZE"]) != "(integer) 1" {
        tries += 1;
        assert!(tries < 100, "the sweep never came");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn values_of_other_programs_are_served() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = glintdb::Db::open(dir.path()).unwrap();
        db.put(b"package", b"Package: glintdb").unwrap();
        db.close().unwrap();
    }
    let clock = clock_at_start();
    let server = start(dir.path(), &clock);
    let mut client = server.client();
    assert_eq!(client.run(&["GET", "package"]), "\"Package: glintdb\"");
    assert_eq!(client.run(&["DBSIZE"]), "(integer) 1");
    // A client's value that looks like a header comes back as it went in.
    let value = b"\xffGLINTV\x01aaaaaaaabbbb";
    client.run(&[b"SET".as_slice(), b"strange", value]);
    assert_eq!(
        client.run(&["GET", "strange"]),
        format!("\"{}\"", value.escape_ascii())
    );
    drop(client);
    server.stop().unwrap();
    let db = glintdb::Db::open(dir.path()).unwrap();
    assert_eq!(db.get(b"package").unwrap().unwrap(), "Package: glintdb");
}

#[test]
fn a_watched_key_that_expires_is_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock_at_start();
    let server = start(dir.path(), &clock);
    let mut client = server.client();
    client.run(&["SET", "a", "1", "PX", "100"]);
    client.run(&["WATCH", "a"]);
    clock.advance(Duration::from_millis(100));
    client.run(&["MULTI"]);
    client.run(&["PING"]);
    assert_eq!(client.run(&["EXEC"]), "(nil)");
    // One that had expired before is none.
    client.run(&["SET", "b", "1", "PX", "100"]);
    clock.advance(Duration::from_millis(100));
    client.run(&["WATCH", "b"]);
    clock.advance(Duration::from_millis(5000));
    std::thread::sleep(Duration::from_millis(300));
    client.run(&["MULTI"]);
    client.run(&["PING"]);
    assert_eq!(client.run(&["EXEC"]), "[PONG]");
}

/// `glintdb get` and `export` decode headers only where the database has the keyspace
/// `redis-expiry`.
#[test]
fn values_that_begin_like_a_header_mark_the_database_as_served() {
    for transaction in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let server = TestServer::start(dir.path());
        let mut client = server.client();
        client.run(&["SET", "plain", "value"]);
        let header = b"\xffGLINTV\x01".as_slice();
        let set = encode(&[b"SET", b"odd".as_slice(), header]);
        let begin = encode(&["MULTI"]);
        let end = encode(&["EXEC"]);
        let commands = match transaction {
            true => vec![begin, set, end],
            false => vec![set],
        };
        for command in commands {
            client.send(&command);
            client.receive();
        }
        drop(client);
        server.stop().unwrap();
        let db = glintdb::Db::open(dir.path()).unwrap();
        assert_eq!(db.keyspaces(), ["default", EXPIRY_KEYSPACE]);
        let codec = RecordCodec::new(db.default_keyspace()).unwrap();
        let stored = codec.decode(db.get("odd").unwrap().unwrap()).unwrap();
        assert_eq!((&stored.value[..], stored.expires_ms), (header, Some(0)));
    }
}
