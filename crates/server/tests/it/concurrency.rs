//! Many clients at once: nothing is lost, transactions are all or nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{TestServer, encode, show};

const CLIENTS: usize = 8;

#[test]
fn no_increment_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    const ROUNDS: usize = 60;
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = server.client();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    // Alone, in pipelines of their own and among others, in transactions.
                    let pipeline = [
                        encode(&["INCR", "hot"]),
                        encode(&["SET", &format!("own{number}"), &round.to_string()]),
                        encode(&["INCRBY", "hot", "2"]),
                        encode(&["GET", &format!("own{number}")]),
                        encode(&["APPEND", "text", "x"]),
                    ];
                    client.send(&pipeline.concat());
                    let answers: Vec<String> = (0..5).map(|_| show(&client.receive())).collect();
                    assert_eq!(answers[1], "OK");
                    assert_eq!(answers[3], format!("\"{round}\""));
                    client.run(&["DECR", "hot"]);
                    client.send(
                        &[
                            encode(&["MULTI"]),
                            encode(&["INCR", "hot"]),
                            encode(&["INCR", "other"]),
                            encode(&["EXEC"]),
                        ]
                        .concat(),
                    );
                    for _ in 0..4 {
                        client.receive();
                    }
                }
            });
        }
    });
    let mut client = server.client();
    let total = CLIENTS * ROUNDS;
    assert_eq!(client.run(&["GET", "hot"]), format!("\"{}\"", total * 3));
    assert_eq!(client.run(&["GET", "other"]), format!("\"{total}\""));
    assert_eq!(
        client.run(&["STRLEN", "text"]),
        format!("(integer) {total}")
    );
    assert_eq!(
        client.run(&["DBSIZE"]),
        format!("(integer) {}", 3 + CLIENTS)
    );
}

#[test]
fn watched_counters_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    const ROUNDS: usize = 25;
    let conflicts = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = server.client();
            let conflicts = &conflicts;
            scope.spawn(move || {
                let mut done = 0;
                while done < ROUNDS {
                    client.run(&["WATCH", "counter"]);
                    let old: u64 = match client.run(&["GET", "counter"]).as_str() {
                        "(nil)" => 0,
                        text => text.trim_matches('"').parse().unwrap(),
                    };
                    client.run(&["MULTI"]);
                    client.run(&["SET", "counter", &(old + 1).to_string()]);
                    match client.run(&["EXEC"]).as_str() {
                        "[OK]" => done += 1,
                        "(nil)" => {
                            conflicts.fetch_add(1, Ordering::Relaxed);
                        }
                        other => panic!("{other}"),
                    }
                }
            });
        }
    });
    let total = 4 * ROUNDS;
    assert_eq!(
        server.client().run(&["GET", "counter"]),
        format!("\"{total}\"")
    );
    assert!(
        conflicts.load(Ordering::Relaxed) > 0,
        "nobody ever collided"
    );
}

#[test]
fn readers_see_all_of_a_transaction_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let mut client = server.client();
            let (keys, stop) = (&keys, &stop);
            scope.spawn(move || {
                let mut round = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let value = format!("{writer}-{round}");
                    if round.is_multiple_of(2) {
                        let mut command = vec!["MSET".to_owned()];
                        for key in keys {
                            command.extend([key.clone(), value.clone()]);
                        }
                        client.run(&command);
                    } else {
                        let mut bytes = encode(&["MULTI"]);
                        for key in keys {
                            bytes.extend(encode(&["SET", key, &value]));
                        }
                        bytes.extend(encode(&["EXEC"]));
                        client.send(&bytes);
                        for _ in 0..keys.len() + 2 {
                            client.receive();
                        }
                    }
                }
            });
        }
        let mut client = server.client();
        let mut command = vec!["MGET".to_owned()];
        command.extend(keys.iter().cloned());
        for round in 0..400 {
            let answer = if round % 2 == 0 {
                client.run(&command)
            } else {
                let bytes = [encode(&["MULTI"]), encode(&command), encode(&["EXEC"])].concat();
                client.send(&bytes);
                client.receive();
                client.receive();
                show(&client.receive())
            };
            let mut values: Vec<&str> = answer.trim_matches(['[', ']']).split(", ").collect();
            assert_eq!(values.len(), keys.len());
            values.dedup();
            assert_eq!(values.len(), 1, "torn: {answer}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn info_counts_overwritten_and_deleted_keys_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut client = server.client();
    for round in 0..3 {
        for key in 0..300 {
            client.run(&["SET", &key.to_string(), &round.to_string()]);
        }
    }
    for key in 0..100 {
        client.run(&["DEL", &key.to_string()]);
    }
    // Nobody has asked for DBSIZE, so keys are not being counted.
    let info = client.run(&["INFO", "keyspace"]);
    assert!(info.contains("db0:keys=200,expires=0,"), "{info}");
    assert!(
        client
            .run(&["INFO", "stats"])
            .contains("keyspace_counts:exact")
    );
}

#[test]
fn dbsize_is_exact_while_others_write() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut asking = server.client();
    assert_eq!(asking.run(&["DBSIZE"]), "(integer) 0");
    std::thread::scope(|scope| {
        for number in 0..4 {
            let mut client = server.client();
            scope.spawn(move || {
                let mut bytes = Vec::new();
                for key in 0..500 {
                    bytes.extend(encode(&["SET", &format!("{number}-{key}"), "1"]));
                    bytes.extend(encode(&["SET", &format!("{number}-{key}"), "2"]));
                    if key % 5 == 0 {
                        bytes.extend(encode(&["DEL", &format!("{number}-{key}")]));
                        bytes.extend(encode(&["DEL", "never"]));
                    }
                }
                client.send(&bytes);
                for _ in 0..1200 {
                    client.receive();
                }
            });
        }
        // Each question is answered from what changed since the last.
        let mut last = 0;
        for _ in 0..50 {
            let answer = asking.run(&["DBSIZE"]);
            let keys: u64 = answer.trim_start_matches("(integer) ").parse().unwrap();
            assert!(keys <= 2000, "{keys}");
            last = last.max(keys);
        }
    });
    assert_eq!(asking.run(&["DBSIZE"]), "(integer) 1600");
    assert_eq!(asking.run(&["FLUSHDB"]), "OK");
    assert_eq!(asking.run(&["DBSIZE"]), "(integer) 0");
    assert_eq!(asking.run(&["SET", "a", "1"]), "OK");
    assert_eq!(asking.run(&["DBSIZE"]), "(integer) 1");
    assert!(asking.run(&["INFO", "keyspace"]).contains("db0:keys=1,"));
}
