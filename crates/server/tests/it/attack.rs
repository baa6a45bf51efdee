//! Peers that mean harm, one way each: what they get, and what everybody else does meanwhile. All of them at once, against the real program: `glint-attack` of testkit.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::support::{Client, TestServer, encode, show};

/// A figure of INFO.
fn figure(client: &mut Client, name: &str) -> u64 {
    let info = client.run(&["INFO", "everything"]);
    let (_, rest) = info
        .split_once(&format!("{name}:"))
        .unwrap_or_else(|| panic!("no {name} in {info}"));
    rest.split('\\').next().unwrap().parse().unwrap()
}

/// Waits until a figure is what it should be.
fn wait_for(client: &mut Client, name: &str, expected: impl Fn(u64) -> bool) {
    let start = Instant::now();
    loop {
        let found = figure(client, name);
        if expected(found) {
            return;
        }
        assert!(start.elapsed().as_secs() < 20, "{name} stays at {found}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Does the other end close?
fn is_closed(client: &mut Client) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, WouldBlock};
    let start = Instant::now();
    let mut buffer = [0; 4096];
    while start.elapsed().as_secs() < 20 {
        match client.stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ConnectionReset | BrokenPipe) => return true,
            Err(error) if matches!(error.kind(), TimedOut | WouldBlock) => {}
            Err(error) => panic!("{error}"),
        }
    }
    false
}

/// Once WATCH compared each key with all before it: a request of 2 MB took a thread for minutes, with the keys locked.
#[test]
fn watching_many_keys_takes_no_quadratic_time() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut command = vec!["WATCH".to_owned()];
    command.extend((0..200_000).map(|n| format!("key:{n}")));
    let mut client = server.client();
    let start = Instant::now();
    assert_eq!(client.run(&command), "OK");
    assert!(start.elapsed().as_secs() < 15, "{:?}", start.elapsed());
    let mut other = server.client();
    assert!(figure(&mut other, "mem_clients_normal") > 30 << 20);
    other.run(&["SET", "key:17", "1"]);
    client.run(&["MULTI"]);
    assert_eq!(client.run(&["EXEC"]), "(nil)");
    client.run(&["PING"]);
    wait_for(&mut other, "mem_clients_normal", |bytes| bytes < 1 << 20);
}

/// Once one read that came across many expired keys compared each of them with all before it, while it held their locks.
#[test]
fn reading_many_expired_keys_takes_no_quadratic_time() {
    let dir = tempfile::tempdir().unwrap();
    // A clock that the test moves: nothing is swept before the read.
    let clock = std::sync::Arc::new(glintdb_flash::ManualClock::new(Duration::from_secs(
        1_000_000_000,
    )));
    let server = {
        let clock = std::sync::Arc::clone(&clock);
        TestServer::start_with(dir.path(), move |config| config.clock = clock)
    };
    let mut client = server.client();
    const KEYS: usize = 100_000;
    let keys: Vec<String> = (0..KEYS)
        .map(|n| format!("a key that is compared from its start:{n}"))
        .collect();
    let bytes: Vec<u8> = keys
        .iter()
        .flat_map(|key| encode(&["SET", key, "v", "PX", "300"]))
        .collect();
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::Builder::new()
        .spawn(move || sender.write_all(&bytes).unwrap())
        .unwrap();
    for _ in 0..KEYS {
        assert_eq!(show(&client.receive()), "OK");
    }
    sending.join().unwrap();
    clock.advance(Duration::from_millis(500));
    let mut command = vec!["MGET".to_owned()];
    command.extend(keys);
    let start = Instant::now();
    client.send(&encode(&command));
    let mut rest = KEYS * 5 + format!("*{KEYS}\r\n").len();
    let mut buffer = vec![0; 1 << 20];
    while rest > 0 {
        rest -= client.stream.read(&mut buffer).unwrap();
    }
    assert!(start.elapsed().as_secs() < 15, "{:?}", start.elapsed());
    assert_eq!(client.run(&["PING"]), "PONG");
}

#[test]
fn an_answer_that_would_be_too_large_is_refused_or_ends_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start_with(dir.path(), |config| {
        config.output_bytes_max = 1 << 20;
        config.output_bytes_hard_max = 8 << 20;
    });
    let mut client = server.client();
    client.run(&[b"SET".as_slice(), b"large", &vec![b'x'; 1 << 20]]);
    client.run(&[b"SET".as_slice(), b"small", &vec![b'x'; 10 << 10]]);
    // 1 GiB is asked for: not even read.
    let mut command = vec!["MGET"; 1];
    command.extend(std::iter::repeat_n("large", 1024));
    assert_eq!(
        client.run(&command),
        "(error) ERR the values have more than 8 MiB together; ask for fewer keys at once"
    );
    assert_eq!(client.run(&["PING"]), "PONG");
    // 20 MB in one answer, in two ways.
    let mut described = vec!["COMMAND", "INFO"];
    described.extend(std::iter::repeat_n("get", 200_000));
    let mut queued = encode(&["MULTI"]);
    for _ in 0..2000 {
        queued.extend(encode(&["GET", "small"]));
    }
    queued.extend(encode(&["EXEC"]));
    for (round, request) in [encode(&described), queued].iter().enumerate() {
        let mut greedy = server.client();
        greedy.stream.write_all(request).unwrap();
        assert!(is_closed(&mut greedy));
        let name = "client_output_buffer_limit_disconnections";
        wait_for(&mut client, name, |found| found == round as u64 + 1);
    }
    // A pipeline may ask for as much as it likes: it gets it as it takes it.
    let asked = encode(&["GET", "large"]).repeat(100);
    client.send(&asked);
    let mut rest = 100 * ((1 << 20) + "$1048576\r\n\r\n".len());
    let mut buffer = vec![0; 1 << 20];
    while rest > 0 {
        let count = client.stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "closed with {rest} bytes to come");
        rest -= count;
    }
    wait_for(&mut client, "mem_clients_normal", |bytes| bytes < 1 << 20);
}

#[test]
fn where_connections_hold_too_much_the_largest_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start_with(dir.path(), |config| config.clients_bytes_max = 16 << 20);
    let mut honest = server.client();
    // Half a request each, by turns: an argument, a queue, watched keys. 6 MB each, five of them.
    let argument = {
        let mut bytes = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000000\r\n".to_vec();
        bytes.resize(6 << 20, b'x');
        bytes
    };
    let mut queue = encode(&["MULTI"]);
    while queue.len() < 5 << 20 {
        queue.extend(encode(&[b"SET".as_slice(), b"a", &[b'x'; 1000]]));
    }
    let mut watch = vec!["WATCH".to_owned()];
    watch.extend((0..30_000).map(|n| format!("key:{n}")));
    let watch = encode(&watch);
    let mut greedy: Vec<Client> = Vec::new();
    for request in [&argument, &queue, &watch, &argument, &argument] {
        let mut client = server.client();
        // It may be closed before it has sent everything.
        client.stream.write_all(request).ok();
        greedy.push(client);
        assert_eq!(honest.run(&["INCR", "served"]).split(' ').count(), 2);
    }
    wait_for(&mut honest, "evicted_clients", |closed| closed >= 1);
    wait_for(&mut honest, "mem_clients_normal", |bytes| bytes <= 16 << 20);
    let closed = figure(&mut honest, "evicted_clients");
    assert!(closed <= 4, "{closed} closed where two were enough");
    drop(greedy);
    wait_for(&mut honest, "mem_clients_normal", |bytes| bytes < 64 << 10);
    wait_for(&mut honest, "connected_clients", |clients| clients == 1);
    assert_eq!(honest.run(&["GET", "served"]), "\"5\"");
}

#[test]
fn a_request_has_a_largest_size() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start_with(dir.path(), |config| config.query_bytes_max = 1 << 20);
    let mut client = server.client();
    let value = vec![b'x'; 1_000_000];
    assert_eq!(client.run(&[b"SET".as_slice(), b"a", &value]), "OK");
    let mut large = server.client();
    let value = vec![b'x'; 2_000_000];
    large
        .stream
        .write_all(&encode(&[b"SET".as_slice(), b"a", &value]))
        .ok();
    assert!(is_closed(&mut large));
    wait_for(
        &mut client,
        "client_query_buffer_limit_disconnections",
        |n| n == 1,
    );
}

#[test]
fn silence_is_ended_where_asked() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start_with(dir.path(), |config| {
        config.idle_timeout = Duration::from_secs(2);
    });
    let (mut silent, mut talking) = (server.client(), server.client());
    let mut slow = server.client();
    silent.run(&["PING"]);
    for byte in encode(&["SET", "slow", "but there"]) {
        talking.run(&["PING"]);
        slow.send(&[byte]);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(show(&slow.receive()), "OK");
    assert!(is_closed(&mut silent));
    assert_eq!(figure(&mut talking, "idle_disconnections"), 1);
}

#[test]
fn answers_nobody_takes_are_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start_with(dir.path(), |config| {
        config.output_stall_max = Duration::from_secs(4);
    });
    let mut client = server.client();
    client.run(&[b"SET".as_slice(), b"large", &vec![b'x'; 30 << 20]]);
    let mut deaf = server.client();
    deaf.send(&encode(&["GET", "large"]));
    // One that has said its last word, and one that takes a little now and then: that one stays.
    let half_closed = server.client();
    let mut sender = half_closed.stream.try_clone().unwrap();
    sender.write_all(&encode(&["GET", "large"])).unwrap();
    sender.shutdown(std::net::Shutdown::Write).unwrap();
    let mut slow = server.client();
    slow.send(&encode(&["GET", "large"]));
    let mut rest = (30 << 20) + "$31457280\r\n\r\n".len();
    let mut buffer = vec![0; 256 << 10];
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(900));
        for _ in 0..4 {
            rest -= slow.stream.read(&mut buffer).unwrap();
        }
    }
    wait_for(
        &mut client,
        "client_output_buffer_limit_disconnections",
        |n| n == 2,
    );
    while rest > 0 {
        let count = slow.stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "closed with {rest} bytes to come");
        rest -= count;
    }
    assert!(is_closed(&mut deaf));
    drop(half_closed);
    wait_for(&mut client, "connected_clients", |clients| clients == 2);
}

#[test]
fn those_without_the_password_keep_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start_with(dir.path(), |config| {
        config.password = Some("secret".to_owned());
        config.clients_max = 20;
        config.auth_timeout = Duration::from_secs(2);
    });
    let mut inside: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for client in &mut inside {
        assert_eq!(client.run(&["AUTH", "secret"]), "OK");
    }
    let mut crowd = Vec::new();
    for _ in 0..5 {
        crowd.extend((0..20).map(|_| server.client()));
        let mut late = server.client();
        assert_eq!(late.run(&["AUTH", "secret"]), "OK");
        inside.push(late);
    }
    for client in &mut inside {
        assert_eq!(client.run(&["PING"]), "PONG");
    }
    // Nor do they stay.
    wait_for(&mut inside[0], "connected_clients", |clients| clients == 10);
    assert!(crowd.iter_mut().all(is_closed));
    // Where all have shown it, one more is told so.
    inside.extend((0..10).map(|_| {
        let mut client = server.client();
        assert_eq!(client.run(&["AUTH", "secret"]), "OK");
        client
    }));
    assert_eq!(
        show(&server.client().receive()),
        "(error) ERR max number of clients reached"
    );
}

#[test]
fn before_the_password_answers_pile_up_little() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start_with(dir.path(), |config| {
        config.password = Some("secret".to_owned());
    });
    let mut client = server.client();
    client.run(&["AUTH", "secret"]);
    let greedy = server.client();
    let mut sender = greedy.stream.try_clone().unwrap();
    sender.set_nonblocking(true).unwrap();
    // As much as fits on the way, and 40 MB of answers with it.
    let requests = encode(&["GET", "a"]).repeat(10_000);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        if sender.write(&requests).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert!(figure(&mut client, "client_output_bytes") < 256 << 10);
}

#[test]
fn ids_by_the_hundred_thousand_are_looked_up_quickly() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut clients: Vec<Client> = (0..300).map(|_| server.client()).collect();
    for client in &mut clients {
        client.run(&["PING"]);
    }
    let mut command = vec!["CLIENT".to_owned(), "LIST".to_owned(), "ID".to_owned()];
    command.extend((1_000_000..1_500_000).map(|id| id.to_string()));
    let start = Instant::now();
    assert_eq!(clients[0].run(&command), "\"\"");
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    let long = "n".repeat(2000);
    let error = clients[0].run(&["CLIENT", "SETNAME", &long]);
    assert_eq!(error, "(error) ERR Client names have at most 1024 bytes");
}

#[test]
fn a_scan_ends_early_where_keys_are_long() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut client = server.client();
    for n in 0..300 {
        let key = format!("{n:0>60000}");
        assert_eq!(client.run(&["SET", &key, "v"]), "OK");
    }
    let mut cursor = "0".to_owned();
    let (mut found, mut rounds) = (0, 0);
    loop {
        let answer = client.run(&["SCAN", &cursor, "COUNT", "60000"]);
        assert!(answer.len() < 10 << 20);
        found += answer.matches("\"0").count() - usize::from(answer.starts_with("[\"0\""));
        rounds += 1;
        cursor = answer[2..].split('"').next().unwrap().to_owned();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, 300);
    assert!((2..=4).contains(&rounds), "{rounds}");
}
