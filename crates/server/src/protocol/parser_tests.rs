//! The parser: split at every byte, hostile lengths, and agreement with `resp-rs` on what a command is.

use super::*;
use crate::fuzzing::{LIMITS, encode, feed};
use proptest::prelude::*;

fn error_of(bytes: &[u8], limits: &ParserLimits) -> Option<String> {
    feed(&[bytes], limits, 1024)
        .1
        .map(|error| error.to_string())
}

#[test]
fn a_pipeline_is_the_same_however_it_is_cut() {
    let bytes: &[u8] = b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\n\r\n\r\n\r\n*0\r\n*-1\r\nPING \"a b\"\r\n\r\nECHO x\n*1\r\n$4\r\nPING\r\n";
    let whole = feed(&[bytes], &LIMITS, 1024);
    assert_eq!(whole.1, None);
    assert_eq!(
        whole.0,
        vec![
            vec![b"SET".to_vec(), b"".to_vec(), b"\r\n\r\n".to_vec()],
            vec![b"PING".to_vec(), b"a b".to_vec()],
            vec![b"ECHO".to_vec(), b"x".to_vec()],
            vec![b"PING".to_vec()],
        ]
    );
    for first in 0..=bytes.len() {
        for second in first..=bytes.len() {
            let cut = feed(
                &[&bytes[..first], &bytes[first..second], &bytes[second..]],
                &LIMITS,
                1024,
            );
            assert_eq!(cut, whole, "cut at {first} and {second}");
        }
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(feed(&single, &LIMITS, 1024), whole);
    assert_eq!(feed(&[bytes], &LIMITS, 1), whole);
}

#[test]
fn hostile_lengths_are_refused_in_redis_words() {
    for (bytes, words) in [
        ("*1048577\r\n", "invalid multibulk length"),
        ("*2147483648\r\n", "invalid multibulk length"),
        ("*9223372036854775808\r\n", "invalid multibulk length"),
        ("*-9223372036854775809\r\n", "invalid multibulk length"),
        ("*abc\r\n", "invalid multibulk length"),
        ("*\r\n", "invalid multibulk length"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$2147483648\r\n", "invalid bulk length"),
        ("*1\r\n$9223372036854775807\r\n", "invalid bulk length"),
        ("*1\r\n$9223372036854775808\r\n", "invalid bulk length"),
        ("*1\r\n$18446744073709551617\r\n", "invalid bulk length"),
        ("*1\r\n$536870913\r\n", "invalid bulk length"),
        ("*1\r\n$+4\r\nPING\r\n", "invalid bulk length"),
        ("*1\r\n:4\r\n", "expected '$', got ':'"),
        ("*1\r\n$4\r\nPINGxx", "expected a line end"),
        ("*1\rx", "expected a line end"),
        ("set \"a\r\n", "unbalanced quotes in request"),
    ] {
        assert_eq!(
            error_of(bytes.as_bytes(), &LIMITS),
            Some(format!("Protocol error: {words}")),
            "{bytes:?}"
        );
    }
    let long = |start: &str| {
        let mut bytes = start.as_bytes().to_vec();
        bytes.resize(bytes.len() + LINE_BYTES_MAX + 1, b'1');
        error_of(&bytes, &LIMITS).unwrap()
    };
    assert_eq!(long("*"), "Protocol error: too big mbulk count string");
    assert_eq!(long("*1\r\n$"), "Protocol error: too big bulk count string");
    assert_eq!(long("PING "), "Protocol error: too big inline request");
}

#[test]
fn limits_themselves_are_allowed() {
    assert_eq!(feed(&[b"*1048576\r\n$536870912\r\n"], &LIMITS, 1).1, None);
    let mut line = b"PING ".to_vec();
    line.resize(LINE_BYTES_MAX, b'x');
    line.extend_from_slice(b"\n");
    assert_eq!(feed(&[&line], &LIMITS, 1).0.len(), 1);
}

#[test]
fn before_authentication_little_is_taken() {
    let limits = ParserLimits::UNAUTHENTICATED;
    assert_eq!(error_of(b"*10\r\n$16384\r\n", &limits), None);
    assert_eq!(
        error_of(b"*11\r\n", &limits).unwrap(),
        "Protocol error: unauthenticated multibulk length"
    );
    assert_eq!(
        error_of(b"*2\r\n$16385\r\n", &limits).unwrap(),
        "Protocol error: unauthenticated bulk length"
    );
}

#[test]
fn an_announced_length_allocates_nothing() {
    let mut parser = Parser::new();
    let mut buffer = b"*1048576\r\n$536870912\r\nabc".to_vec();
    parser.parse(&mut buffer, &LIMITS, 1024).unwrap();
    assert!(parser.spans.capacity() < 64);
    assert_eq!(parser.missing_bytes(&buffer), 536_870_912 + 2 - 3);
    parser.consume(&mut buffer);
    assert_eq!(parser.commands().len(), 0);
}

#[test]
fn commands_before_an_error_are_kept() {
    let (commands, error) = feed(&[b"PING\r\n*1\r\n$4\r\nECHO\r\n*x\r\n"], &LIMITS, 1024);
    assert_eq!(commands.len(), 2);
    assert_eq!(error, Some(ProtocolError::MultibulkLength));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Random commands, cut at random places, taken a few at a time, come out as they went in; and resp-rs reads them the same way.
    #[test]
    fn prop_commands_survive_any_cut(
        commands in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 1..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        commands_max in 1usize..5,
    ) {
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let (found, error) = feed(&pieces, &LIMITS, commands_max);
        prop_assert_eq!(error, None);
        prop_assert_eq!(&found, &commands);

        let mut rest = bytes::Bytes::from(bytes);
        for command in &commands {
            let (frame, after) = resp_rs::resp2::parse_frame(rest).unwrap();
            let theirs: Vec<Vec<u8>> = frame.into_array().unwrap().into_iter()
                .map(|item| item.into_bulk_string().unwrap().to_vec()).collect();
            prop_assert_eq!(&theirs, command);
            rest = after;
        }
    }

    /// Any bytes at all: no panic, and the same outcome whole and byte by byte.
    #[test]
    fn prop_rubbish_is_harmless(bytes in prop::collection::vec(
        prop_oneof![
            Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b'2'), Just(b'-'), Just(b'"'), Just(b'\\'), any::<u8>()
        ], 0..200)) {
        let whole = feed(&[&bytes], &LIMITS, 1024);
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(feed(&pieces, &LIMITS, 1024), whole);
    }
}
