//! Target `resp_request`: requests as a client sends them, arrays of bulk strings and inline commands, cut anywhere.
//!
//! Asserts: the same commands and the same error, however the bytes are cut and however many commands are taken at a time; no more bytes in arguments than arrived; commands
//! encoded as arrays come back the same.

use super::input::Input;
use glintdb_server::fuzzing::{Commands, commands};

pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (setup, cut) = (input.u8(), usize::from(input.u8()));
    let data = input.rest();
    let authenticated = setup & 1 == 0;
    let whole = commands(&[data], 1024, authenticated);
    let bytes: usize = whole.0.iter().flatten().map(Vec::len).sum();
    assert!(
        bytes <= data.len(),
        "{bytes} bytes of arguments out of {}",
        data.len()
    );
    let pieces: Vec<&[u8]> = data.chunks(1 + cut).collect();
    let at_a_time = 1 + usize::from(setup >> 1 & 3);
    assert_eq!(
        commands(&pieces, at_a_time, authenticated),
        whole,
        "cut after {cut}"
    );
    let single: Vec<&[u8]> = data.chunks(1).collect();
    assert_eq!(commands(&single, 1, authenticated), whole, "byte by byte");
    if authenticated {
        assert_eq!(commands(&[&encode(&whole.0)], 1024, true), (whole.0, None));
    }
}

/// Commands as arrays.
pub(super) fn encode(commands: &Commands) -> Vec<u8> {
    let mut bytes = Vec::new();
    for command in commands {
        bytes.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
        for argument in command {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
    }
    bytes
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    [
        &b"\x00\x03*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nva\r\nl\r\n*0\r\n*-1\r\nPING \"a\\x41\\n b\" 'c\\'d'\r\n\r\nECHO x\n"[..],
        b"\x01\x00*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\nset a \"b",
        b"\x02\x01*1048577\r\n",
        b"\x00\x07*2\r\n$536870913\r\n*1\r\n$-1\r\n:5\r\n",
    ]
    .map(<[u8]>::to_vec)
    .into()
}
