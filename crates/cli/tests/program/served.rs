//! Records of the server, as the other commands show them: values without a header, no key that has
//! expired.

use crate::serving::Server;
use crate::{fails, ok, run};
use glintdb::{Bytes, Db, KeyspaceOptions};
use glintdb_server::{RecordCodec, StoredValue};
use std::path::Path;

/// In the year 2100.
const LATER_MS: u64 = 4_102_444_800_000;
/// Begins like the header of a value that expires in the year 2100.
const LOOKALIKE: &[u8] = b"\xffGLINTV\x01\0\x64\xda\x2f\xbb\x03\0\0value";

fn store(db: &Db, keyspace: &str, key: &str, value: &'static [u8], expires_ms: Option<u64>) {
    let keyspace = db.keyspace_or_create(keyspace, KeyspaceOptions::default());
    let mut codec = RecordCodec::new(keyspace.unwrap()).unwrap();
    let mut batch = glintdb::Batch::new();
    let value = StoredValue {
        value: Bytes::from_static(value),
        expires_ms,
    };
    codec.put(&mut batch, key.as_bytes(), &value).unwrap();
    db.write(batch).unwrap();
}

/// A database as a server leaves it: an expiry to come and one that has passed, in two databases.
fn served(dir: &Path) {
    let db = Db::open(dir.join("data")).unwrap();
    for keyspace in ["default", "redis-db3"] {
        store(&db, keyspace, "gone", b"value", Some(1_000));
        store(&db, keyspace, "plain", b"value", None);
        store(&db, keyspace, "session", b"ann", Some(LATER_MS));
    }
    db.close().unwrap();
}

#[test]
fn values_that_clients_set_are_printed_without_a_header() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let server = Server::start(dir, &[]);
    server.say(b"SET plain value\r\nSET session ann PXAT 4102444800000\r\nSET short ann PX 1\r\n");
    server.say(b"SELECT 3\r\nSET session bob PXAT 4102444800000\r\n");
    server.stop();
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(ok(dir, &["get", "session"]), "ann\n");
    assert_eq!(ok(dir, &["get", "-k", "redis-db3", "session"]), "bob\n");
    assert_eq!(
        ok(dir, &["get", "--json", "session"]),
        "{\"key\":\"session\",\"value\":\"ann\",\"expires_ms\":4102444800000}\n"
    );
    assert_eq!(ok(dir, &["scan"]), "plain\tvalue\nsession\tann\n");
    let json = "{\"key\":\"plain\",\"value\":\"value\"}\n{\"key\":\"session\",\"value\":\"ann\",\"expires_ms\":4102444800000}\n";
    assert_eq!(ok(dir, &["scan", "--json"]), json);
    assert_eq!(ok(dir, &["export", "-"]), json);
}

#[test]
fn keys_that_have_expired_are_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    served(dir);
    for keyspace in ["default", "redis-db3"] {
        let shown = |words: &[&str]| ok(dir, &[words, &["-k", keyspace]].concat());
        let missing = fails(dir, &["get", "-k", keyspace, "gone"]);
        assert_eq!(missing, (1, "no such key: gone\n".to_owned()));
        assert_eq!(shown(&["scan", "--keys-only"]), "plain\nsession\n");
        assert_eq!(
            shown(&["scan", "--keys-only", "--reverse"]),
            "session\nplain\n"
        );
        assert_eq!(shown(&["scan", "--keys-only", "--limit", "1"]), "plain\n");
        assert_eq!(shown(&["scan", "--count"]), "2\n");
        assert_eq!(shown(&["scan", "--limit", "1"]), "plain\tvalue\n");
        assert_eq!(shown(&["export", "-"]).lines().count(), 2);
    }
}

#[test]
fn values_that_look_like_the_servers_are_printed_whole_where_no_server_wrote_them() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let db = Db::open(dir.join("data")).unwrap();
    db.put("key", LOOKALIKE).unwrap();
    db.close().unwrap();
    assert_eq!(run(dir, &["get", "--raw", "key"]).stdout, LOOKALIKE);
    ok(dir, &["export", "--format", "binary", "out.bin"]);
    let copy = ["import", "--dir", "copy", "--format", "binary", "out.bin"];
    ok(dir, &copy);
    let db = Db::open(dir.join("copy")).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(LOOKALIKE));
    db.close().unwrap();
    // Nor in a keyspace of a program's own, beside the server's.
    served(&dir.join("beside"));
    let db = Db::open(dir.join("beside/data")).unwrap();
    let logs = db.create_keyspace("logs", KeyspaceOptions::default());
    logs.unwrap().put("key", LOOKALIKE).unwrap();
    db.close().unwrap();
    let get = ["get", "--dir", "beside/data", "-k", "logs", "--raw", "key"];
    assert_eq!(run(dir, &get).stdout, LOOKALIKE);
}

#[test]
fn what_put_writes_beside_the_server_comes_back_whole_and_does_not_expire() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    served(dir);
    let typed = "base64:/0dMSU5UVgEAZNovuwMAAHZhbHVl";
    ok(dir, &["put", "session", typed]);
    assert_eq!(run(dir, &["get", "--raw", "session"]).stdout, LOOKALIKE);
    let server = Server::start(dir, &[]);
    let answer = server.say(b"TTL session\r\nSTRLEN session\r\n");
    assert_eq!(
        answer,
        format!(":-1\r\n:{}\r\n", LOOKALIKE.len()).as_bytes()
    );
    server.stop();
}

#[test]
fn what_import_writes_with_an_expiry_expires_in_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let input = b"{\"key\":\"gone\",\"value\":\"1\",\"expires_ms\":1000}\n{\"key\":\"session\",\"value\":\"2\",\"expires_ms\":4102444800000}\n";
    assert!(
        crate::run_with(dir, &["import", "-"], input)
            .status
            .success()
    );
    let server = Server::start(dir, &[]);
    // The sweep removes keys that no client reads; DBSIZE counts until then.
    let mut keys = Vec::new();
    for _ in 0..100 {
        keys = server.say(b"DBSIZE\r\n");
        if keys == b":1\r\n" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(keys, b":1\r\n");
    let answer = server.say(b"GET gone\r\nEXPIRETIME session\r\n");
    assert_eq!(answer, b"$-1\r\n:4102444800\r\n");
    server.stop();
}
