//! Conversations with Redis 7.0.15, recorded, and held again with our server.
//!
//! In `transcripts/*.txt` a line `> command` (or `2> command` on a second connection) is sent as an inline command; the line behind it is what Redis answered. To record
//! after adding commands: start `redis-server --port 6399 --save ''` and run the test with `GLINTDB_RECORD=127.0.0.1:6399`. What differs by nature (ids, times,
//! the order of SCAN) is left out, and tested elsewhere.

use std::path::PathBuf;

use crate::support::{Client, TestServer, show};

fn hold(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/transcripts")
        .join(format!("{name}.txt"));
    let text = std::fs::read_to_string(&path).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let record = std::env::var("GLINTDB_RECORD").ok();
    let (server, address) = match &record {
        Some(address) => (None, address.parse().unwrap()),
        None => {
            let server = TestServer::start(dir.path());
            let address = server.address;
            (Some(server), address)
        }
    };
    let mut clients = [Client::connect(address), Client::connect(address)];
    if record.is_some() {
        assert_eq!(clients[0].run(&["FLUSHALL"]), "OK");
    }
    if name == "resp3" {
        // Its answer holds the connection's id.
        clients[0].frame(&["HELLO", "3"]);
    }
    let mut held = String::new();
    let mut lines = text.lines().peekable();
    let mut compared = 0;
    while let Some(line) = lines.next() {
        held.push_str(line);
        held.push('\n');
        let (client, command) = match line.split_once("> ") {
            Some(("", command)) => (0, command),
            Some(("2", command)) => (1, command),
            _ => continue,
        };
        clients[client].send(format!("{command}\r\n").as_bytes());
        let answer = show(&clients[client].receive());
        let written = lines.next_if(|line| !line.starts_with('>') && !line.starts_with("2>"));
        if record.is_none() {
            assert_eq!(Some(answer.as_str()), written, "{name}: {command}");
            compared += 1;
        }
        held.push_str(&answer);
        held.push('\n');
    }
    if record.is_some() {
        std::fs::write(&path, held).unwrap();
    } else {
        assert!(compared > 20);
    }
    drop(clients);
    drop(server);
}

#[test]
fn strings_answer_like_redis() {
    hold("strings");
}

#[test]
fn expiry_answers_like_redis() {
    hold("expiry");
}

#[test]
fn keys_answer_like_redis() {
    hold("keys");
}

#[test]
fn transactions_answer_like_redis() {
    hold("transactions");
}

#[test]
fn connections_answer_like_redis() {
    hold("connection");
}

#[test]
fn resp3_answers_like_redis() {
    hold("resp3");
}
