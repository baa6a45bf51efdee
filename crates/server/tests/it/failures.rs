//! What clients are told when the database cannot do what they ask.

use std::sync::Arc;
use std::time::Duration;

use glintdb::{Db, Durability, Env, Options};
use glintdb_core::DbId;
use glintdb_flash::{ManualClock, Volume};
use glintdb_simdisk::{Fault, FaultKind, MemOptions, MemVolume};

use crate::support::{Client, TestServer, encode, show};

fn open(volume: &Arc<MemVolume>) -> Db {
    let env = Env::new(Arc::new(ManualClock::new(Duration::ZERO)), DbId([7; 16]));
    Options::default()
        .memory_budget_bytes(8 << 20)
        .log_segment_bytes(64 << 10)
        .log_ring_bytes(64 << 10)
        .replay_bytes_max(256 << 10)
        .background_threads(0)
        .open_volume(Arc::clone(volume) as Arc<dyn Volume>, env)
        .unwrap()
}

/// The answers to a pipeline.
fn pipeline(client: &mut Client, commands: &[&str]) -> Vec<String> {
    let bytes: Vec<u8> = commands
        .iter()
        .flat_map(|command| encode(&command.split(' ').collect::<Vec<_>>()))
        .collect();
    client.send(&bytes);
    commands.iter().map(|_| show(&client.receive())).collect()
}

#[test]
fn a_full_disk_is_said_and_reads_go_on() {
    let volume = MemVolume::with_options(MemOptions {
        capacity_bytes: Some(4 << 20),
        ..MemOptions::default()
    });
    let server = TestServer::serve(open(&volume), |_| {});
    let mut client = server.client();
    let value = "v".repeat(8 << 10);
    let mut answered = Vec::new();
    let error = loop {
        let key = format!("key{}", answered.len());
        match client.run(&["SET", &key, &value]).as_str() {
            "OK" => answered.push(key),
            error => break error.to_owned(),
        }
        assert!(answered.len() < 1000, "the disk never filled");
    };
    assert!(error.starts_with("(error) ERR no space left: "), "{error}");
    assert!(answered.len() > 50);
    for key in &answered {
        assert_eq!(client.run(&["STRLEN", key]), "(integer) 8192");
    }
    // Of a pipeline, what did not hang on the commit is answered.
    let set = format!("SET more {value}");
    let answers = pipeline(
        &mut client,
        &["STRLEN key0", &set, "STRLEN more", "EXISTS key1"],
    );
    assert_eq!(answers[0], "(integer) 8192");
    assert!(
        answers[1].starts_with("(error) ERR no space left"),
        "{answers:?}"
    );
    assert_eq!(answers[1], answers[2]);
    assert_eq!(answers[3], "(integer) 1");
    // So of a transaction: nothing.
    let answers = pipeline(&mut client, &["MULTI", "GET none", &set, "EXEC"]);
    assert!(
        answers[3].starts_with("(error) EXECABORT Transaction discarded because of: no space left"),
        "{answers:?}"
    );
    assert_eq!(client.run(&["EXISTS", "more"]), "(integer) 0");
    // Room is made: it goes on.
    volume.set_capacity_bytes(None);
    assert_eq!(client.run(&["SET", "more", "1"]), "OK");
    assert_eq!(client.run(&["INCR", "more"]), "(integer) 2");
}

#[test]
fn after_a_failed_sync_nothing_more_is_promised() {
    let volume = MemVolume::new();
    let server = TestServer::serve(open(&volume), |config| {
        config.durability = Durability::Sync;
    });
    let mut client = server.client();
    assert_eq!(pipeline(&mut client, &["SET a 1", "SET b 2"]), ["OK", "OK"]);
    volume.fail(Fault {
        at_operation: volume.operation_count(),
        kind: FaultKind::SyncLosesData,
        sticky: false,
    });
    let answers = pipeline(&mut client, &["GET b", "INCR a", "GET a", "GET b"]);
    assert_eq!(
        (answers[0].as_str(), answers[3].as_str()),
        ("\"2\"", "\"2\"")
    );
    for answer in &answers[1..3] {
        assert!(answer.starts_with("(error) "), "{answers:?}");
    }
    let error = client.run(&["SET", "c", "1"]);
    assert!(
        error
            .starts_with("(error) MISCONF the database takes no more writes, restart the server: "),
        "{error}"
    );
    assert_eq!(client.run(&["GET", "b"]), "\"2\"");
    assert_eq!(client.run(&["PING"]), "PONG");
    drop(client);
    // It cannot end well either, and says so.
    assert!(server.stop().is_err());
}
