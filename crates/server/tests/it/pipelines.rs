//! A pipeline answers what its commands answer one after another.

use proptest::prelude::*;

use crate::support::{TestServer, encode, show};

fn command() -> impl Strategy<Value = Vec<String>> {
    let key = prop_oneof![Just("a"), Just("b"), Just("c"), Just("n")].prop_map(str::to_owned);
    let value = prop_oneof![Just("1"), Just("x"), Just(""), Just("-7")].prop_map(str::to_owned);
    let words = |list: &[&str]| -> Vec<String> { list.iter().map(ToString::to_string).collect() };
    (0..26usize, key.clone(), key, value).prop_map(move |(kind, key, other, value)| {
        let (key, other, value) = (key.as_str(), other.as_str(), value.as_str());
        match kind {
            0..=4 => words(&["GET", key]),
            5..=7 => words(&["SET", key, value]),
            8 => words(&["SET", key, value, "NX"]),
            9 => words(&["SET", key, value, "XX", "GET"]),
            10 => words(&["SET", key, value, "EX", "1000"]),
            11 => words(&["INCR", key]),
            12 => words(&["INCRBY", key, value]),
            13 => words(&["APPEND", key, value]),
            14 => words(&["DEL", key, other]),
            15 => words(&["MGET", key, other]),
            16 => words(&["MSET", key, value, other, "2"]),
            17 => words(&["EXISTS", key, other]),
            18 => words(&["EXPIRE", key, "500"]),
            19 => words(&["TTL", key]),
            20 => words(&["PERSIST", key]),
            21 => words(&["GETDEL", key]),
            22 => words(&["STRLEN", key]),
            23 => words(&["DBSIZE"]),
            24 => words(&["SETNX", key, value]),
            _ => words(&["SELECT", if value == "x" { "1" } else { "0" }]),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn prop_pipelines_equal_single_commands(
        commands in prop::collection::vec(command(), 1..200),
        resp3: bool,
        piece in 1usize..2000,
    ) {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // A clock that stands: both runs see the same expiries.
        let clock = std::sync::Arc::new(glintdb_flash::ManualClock::new(std::time::Duration::from_secs(1_000_000_000)));
        let start = |dir: &std::path::Path| {
            let clock = std::sync::Arc::clone(&clock);
            TestServer::start_with(dir, move |config| config.clock = clock)
        };
        let (alone, piped) = (start(one.path()), start(other.path()));
        let (mut alone, mut piped) = (alone.client(), piped.client());
        if resp3 {
            alone.frame(&["HELLO", "3"]);
            piped.frame(&["HELLO", "3"]);
        }
        let expected: Vec<String> = commands.iter().map(|command| alone.run(command)).collect();
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        for part in bytes.chunks(piece) {
            piped.send(part);
        }
        for (command, expected) in commands.iter().zip(&expected) {
            prop_assert_eq!(&show(&piped.receive()), expected, "{:?}", command);
        }
        for key in ["a", "b", "c", "n"] {
            prop_assert_eq!(piped.run(&["GET", key]), alone.run(&["GET", key]));
            prop_assert_eq!(piped.run(&["TTL", key]), alone.run(&["TTL", key]));
        }
    }
}

#[test]
fn a_long_pipeline_is_answered_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut client = server.client();
    let keys: Vec<String> = (0..5000).map(|n| format!("key{n}")).collect();
    let mut bytes = Vec::new();
    for key in &keys {
        bytes.extend(encode(&["SET", key, key]));
    }
    for key in &keys {
        bytes.extend(encode(&["GET", key]));
    }
    client.send(&bytes);
    for _ in &keys {
        assert_eq!(show(&client.receive()), "OK");
    }
    for key in &keys {
        assert_eq!(show(&client.receive()), format!("\"{key}\""));
    }
    assert_eq!(client.run(&["DBSIZE"]), "(integer) 5000");
}

#[test]
fn large_values_pass_whole() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut client = server.client();
    for length in [0, 1, 16_383, 16_384, 100_000, 3_000_000, 20_000_000] {
        let value: Vec<u8> = (0..length).map(|n: u32| (n % 251) as u8).collect();
        assert_eq!(client.run(&[b"SET".as_slice(), b"large", &value]), "OK");
        let resp_rs::resp3::Frame::BulkString(Some(found)) = client.frame(&["GET", "large"]) else {
            panic!("no value of {length} bytes");
        };
        assert!(found == value, "{length} bytes");
        assert_eq!(
            client.run(&["STRLEN", "large"]),
            format!("(integer) {length}")
        );
    }
}

#[test]
fn replies_can_be_switched_off() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut client = server.client();
    client.send(&encode(&["CLIENT", "REPLY", "OFF"]));
    client.send(&encode(&["SET", "a", "1"]));
    client.send(&encode(&["NOSUCH"]));
    assert_eq!(client.run(&["CLIENT", "REPLY", "ON"]), "OK");
    client.send(&encode(&["CLIENT", "REPLY", "SKIP"]));
    client.send(&encode(&["INCR", "a"]));
    assert_eq!(client.run(&["GET", "a"]), "\"2\"");
}
