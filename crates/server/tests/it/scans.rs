//! SCAN and GRANGE.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use resp_rs::resp3::Frame;

use crate::support::{Client, TestServer, encode};

/// A whole SCAN: the keys of each answer.
fn scan(client: &mut Client, options: &[&str], mut between: impl FnMut(&str)) -> Vec<String> {
    let mut keys = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let mut command = vec!["SCAN", &cursor];
        command.extend(options);
        let Frame::Array(Some(answer)) = client.frame(&command) else {
            panic!("no array");
        };
        let [Frame::BulkString(Some(next)), Frame::Array(Some(found))] = &answer[..] else {
            panic!("no cursor and keys");
        };
        for key in found {
            let Frame::BulkString(Some(key)) = key else {
                panic!("no key")
            };
            keys.push(String::from_utf8_lossy(key).into_owned());
        }
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0" {
            return keys;
        }
        between(&cursor);
    }
}

fn fill(client: &mut Client, count: usize) {
    let mut bytes = Vec::new();
    for key in 0..count {
        bytes.extend(encode(&["SET", &format!("key:{key:05}"), "v"]));
    }
    client.send(&bytes);
    for _ in 0..count {
        client.receive();
    }
}

#[test]
fn a_scan_returns_every_key() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut client = server.client();
    fill(&mut client, 1000);
    client.run(&["SET", "", "the empty key"]);
    client.run(&["SET", "other:1", "v"]);
    for options in [
        &[][..],
        &["COUNT", "1"],
        &["COUNT", "7"],
        &["COUNT", "100000"],
    ] {
        let keys = scan(&mut client, options, |_| {});
        assert_eq!(keys.len(), 1002, "{options:?}");
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 1002);
    }
    let some = scan(&mut client, &["MATCH", "key:0001?", "COUNT", "3"], |_| {});
    assert_eq!(some.len(), 10);
    assert_eq!(scan(&mut client, &["MATCH", "*:1"], |_| {}), ["other:1"]);
    assert_eq!(
        scan(&mut client, &["MATCH", "other:1"], |_| {}),
        ["other:1"]
    );
}

#[test]
fn keys_that_stay_are_returned_while_others_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut client = server.client();
    fill(&mut client, 2000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut other = server.client();
        let stopped = &stop;
        scope.spawn(move || {
            let mut round = 0;
            while !stopped.load(Ordering::Relaxed) {
                round += 1;
                let key = format!("key:{:05}x", round * 7919 % 2000);
                other.run(&["SET", &key, "v"]);
                other.run(&["DEL", &key]);
            }
        });
        for _ in 0..5 {
            let found: BTreeSet<String> = scan(&mut client, &["COUNT", "11"], |_| {})
                .into_iter()
                .collect();
            for key in 0..2000 {
                assert!(
                    found.contains(&format!("key:{key:05}")),
                    "key {key} was left out"
                );
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_cursor_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut client = server.client();
    for letter in 'a'..='z' {
        client.run(&["SET", &letter.to_string(), "v"]);
    }
    let Frame::Array(Some(answer)) = client.frame(&["SCAN", "0", "COUNT", "10"]) else {
        panic!("no array");
    };
    let Frame::BulkString(Some(cursor)) = &answer[0] else {
        panic!("no cursor");
    };
    drop(client);
    server.stop().unwrap();
    let server = TestServer::start(dir.path());
    let mut client = server.client();
    let rest = client.run(&[b"SCAN".as_slice(), cursor, b"COUNT", b"100"]);
    for letter in 'k'..='z' {
        assert!(
            rest.contains(&format!("\"{letter}\"")),
            "{letter} in {rest}"
        );
    }
    assert!(rest.starts_with("[\"0\", "));
}

#[test]
fn ranges_are_in_key_order() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut client = server.client();
    assert_eq!(client.run(&["GRANGE", "-", "+"]), "[]");
    client.run(&["MSET", "c", "3", "a", "1", "b", "2", "d", "4"]);
    for (command, answer) in [
        ("GRANGE - +", r#"["a", "1", "b", "2", "c", "3", "d", "4"]"#),
        ("GRANGE [b [c", r#"["b", "2", "c", "3"]"#),
        ("GRANGE (a (d KEYSONLY", r#"["b", "c"]"#),
        ("GRANGE - + KEYSONLY REV LIMIT 2", r#"["d", "c"]"#),
        ("GRANGE (b + limit 1", r#"["c", "3"]"#),
        ("GRANGE - + LIMIT 0", "[]"),
        ("GRANGE [c [b", "[]"),
        ("GRANGE + -", "[]"),
        (
            "GRANGE a +",
            "(error) ERR min or max not valid string range item",
        ),
        ("GRANGE - + LIMIT", "(error) ERR syntax error"),
        (
            "GRANGE - + LIMIT x",
            "(error) ERR value is not an integer or out of range",
        ),
        (
            "GRANGE - + LIMIT -1",
            "(error) ERR LIMIT must not be negative",
        ),
        ("GRANGE - + FOO", "(error) ERR syntax error"),
        (
            "GRANGE -",
            "(error) ERR wrong number of arguments for 'grange' command",
        ),
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(client.run(&words), answer, "{command}");
    }
    // In a transaction it sees the transaction's own changes.
    client.run(&["MULTI"]);
    client.run(&["DEL", "b"]);
    client.run(&["SET", "aa", "0"]);
    client.run(&["GRANGE", "-", "[c", "KEYSONLY"]);
    assert_eq!(
        client.run(&["EXEC"]),
        r#"[(integer) 1, OK, ["a", "aa", "c"]]"#
    );
    client.frame(&["HELLO", "3"]);
    assert_eq!(
        client.run(&["GRANGE", "[c", "+"]),
        r#"[["c", "3"], ["d", "4"]]"#
    );
}
