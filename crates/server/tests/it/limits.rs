//! Limits, authentication, and clients that behave badly.

use std::io::{Read, Write};
use std::time::Duration;

use crate::support::{TestServer, encode};

#[test]
fn nothing_is_served_before_the_password() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start_with(dir.path(), |config| {
        config.password = Some("secret".to_owned());
    });
    let mut client = server.client();
    let noauth = "(error) NOAUTH Authentication required.";
    assert_eq!(client.run(&["GET", "a"]), noauth);
    assert_eq!(client.run(&["PING"]), noauth);
    assert_eq!(client.run(&["MULTI"]), noauth);
    assert_eq!(client.run(&["SHUTDOWN"]), noauth);
    assert!(
        client
            .run(&["HELLO", "3"])
            .starts_with("(error) NOAUTH HELLO")
    );
    assert!(
        client
            .run(&["AUTH", "wrong"])
            .starts_with("(error) WRONGPASS")
    );
    assert!(
        client
            .run(&["AUTH", "someone", "secret"])
            .starts_with("(error) WRONGPASS")
    );
    assert_eq!(client.run(&["GET", "a"]), noauth);
    assert_eq!(client.run(&["AUTH", "secret"]), "OK");
    assert_eq!(client.run(&["GET", "a"]), "(nil)");
    assert_eq!(client.run(&["RESET"]), "RESET");
    assert_eq!(client.run(&["GET", "a"]), noauth);
    let hello = client.run(&["HELLO", "3", "AUTH", "default", "secret", "SETNAME", "me"]);
    assert!(hello.starts_with('{') && hello.contains("\"proto\": (integer) 3"));
    assert_eq!(client.run(&["CLIENT", "GETNAME"]), "\"me\"");

    // AUTH and a large command in one pipeline: the limits are lifted between the two.
    let mut client = server.client();
    let value = vec![b'x'; 100_000];
    let mut bytes = encode(&["AUTH", "secret"]);
    bytes.extend(encode(&[b"SET".as_slice(), b"a", &value]));
    client.send(&bytes);
    assert_eq!(crate::support::show(&client.receive()), "OK");
    assert_eq!(crate::support::show(&client.receive()), "OK");
}

#[test]
fn protocol_errors_close_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    for (bytes, words) in [
        (&b"*1\r\n:1\r\n"[..], "expected '$', got ':'"),
        (b"*2000000\r\n", "invalid multibulk length"),
        (b"*1\r\n$9999999999\r\n", "invalid bulk length"),
        (b"PING \"\r\n", "unbalanced quotes in request"),
    ] {
        let mut client = server.client();
        client.send(b"*1\r\n$4\r\nPING\r\n");
        client.send(bytes);
        assert_eq!(crate::support::show(&client.receive()), "PONG");
        assert_eq!(
            crate::support::show(&client.receive()),
            format!("(error) ERR Protocol error: {words}")
        );
        assert!(client.try_receive().is_none());
    }
    let mut client = server.client();
    client.send(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nSET a 1\r\n");
    assert!(client.try_receive().is_none());
    let mut client = server.client();
    client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nSET a 1\r\n");
    assert!(client.try_receive().is_none());
    assert_eq!(server.client().run(&["EXISTS", "a"]), "(integer) 0");
}

#[test]
fn keys_have_a_length() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut client = server.client();
    let longest = "k".repeat(64 << 10);
    let longer = format!("{longest}k");
    assert_eq!(client.run(&["SET", &longest, "v"]), "OK");
    assert_eq!(client.run(&["GET", &longest]), "\"v\"");
    let error = "(error) ERR a key has at most 65536 bytes";
    assert_eq!(client.run(&["SET", &longer, "v"]), error);
    assert_eq!(client.run(&["GET", &longer]), error);
    assert_eq!(client.run(&["MGET", "a", &longer]), error);
    assert_eq!(
        client.run(&["EXPIRE", &longest, "10"]),
        "(error) ERR a key with an expiry has at most 65524 bytes"
    );
    let expiring = "k".repeat(65_524);
    assert_eq!(client.run(&["SET", &expiring, "v", "EX", "10"]), "OK");
    assert_eq!(client.run(&["TTL", &expiring]), "(integer) 10");
}

#[test]
fn there_are_only_so_many_clients() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start_with(dir.path(), |config| config.clients_max = 3);
    let mut clients: Vec<_> = (0..3).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.run(&["PING"]), "PONG");
    }
    let mut fourth = server.client();
    assert_eq!(
        crate::support::show(&fourth.receive()),
        "(error) ERR max number of clients reached"
    );
    assert!(fourth.try_receive().is_none());
    clients.pop();
    let mut tries = 0;
    loop {
        let mut client = server.client();
        client.send(&encode(&["PING"]));
        let answer = client
            .try_receive()
            .map(|frame| crate::support::show(&frame));
        if answer.as_deref() == Some("PONG") {
            break;
        }
        tries += 1;
        assert!(tries < 100, "a closed connection never made room");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        clients[0]
            .run(&["INFO", "stats"])
            .contains("rejected_connections:")
    );
}

#[test]
fn a_client_that_takes_no_answers_holds_little() {
    let dir = tempfile::tempdir().unwrap();
    let limit = 1 << 20;
    let server = TestServer::start_with(dir.path(), |config| config.output_bytes_max = limit);
    let mut client = server.client();
    let value = vec![b'x'; 200_000];
    client.run(&[b"SET".as_slice(), b"large", &value]);
    // 400 MB of answers are asked for, and none is taken yet.
    let asked = 2000;
    let request = encode(&["GET", "large"]).repeat(asked);
    let mut greedy = server.client();
    let mut sender = greedy.stream.try_clone().unwrap();
    let sending = std::thread::Builder::new()
        .spawn(move || sender.write_all(&request).unwrap())
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    // Others are served meanwhile, and what is pending stays near the limit: a group may run over it.
    let info = client.run(&["INFO", "memory"]);
    let pending: usize = info
        .split("client_output_bytes:")
        .nth(1)
        .and_then(|rest| rest.split('\\').next())
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        pending > 0 && pending < limit + 130 * value.len(),
        "{pending}"
    );
    let mut taken = 0usize;
    let mut buffer = vec![0; 1 << 20];
    let expected = asked * (value.len() + "$200000\r\n\r\n".len());
    while taken < expected {
        let count = greedy.stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "closed after {taken} of {expected} bytes");
        taken += count;
    }
    sending.join().unwrap();
    assert_eq!(greedy.run(&["PING"]), "PONG");
}

#[test]
fn a_client_can_be_killed() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let (mut one, mut other) = (server.client(), server.client());
    let id = other.run(&["CLIENT", "ID"]);
    let id = id.trim_start_matches("(integer) ");
    other.run(&["CLIENT", "SETNAME", "victim"]);
    let list = one.run(&["CLIENT", "LIST"]);
    assert!(
        list.contains("name=victim") && list.contains(&format!("id={id} ")),
        "{list}"
    );
    assert!(
        one.run(&["CLIENT", "LIST", "ID", id])
            .contains("cmd=client")
    );
    assert_eq!(one.run(&["CLIENT", "KILL", "ID", id]), "(integer) 1");
    assert!(other.try_receive().is_none());
    assert!(!one.run(&["CLIENT", "LIST"]).contains("victim"));
}

#[test]
fn thousands_of_idle_connections_are_fine() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut clients: Vec<_> = (0..1500).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.run(&["PING"]), "PONG");
    }
    let info = clients[0].run(&["INFO", "clients"]);
    assert!(info.contains("connected_clients:1500"), "{info}");
}
