//! Target `import`: what `glintdb import` reads, in each of its formats.
//!
//! Asserts: records that are read come back the same after they were exported and read again (for the index of a distribution: their values do); none holds more than was read; the
//! bytes they took add up to no more than there were; an input ends, with an error or without.

use glintdb_cli::fuzzing::{FORMATS, export, import};

pub(super) fn run(data: &[u8]) {
    for format in FORMATS {
        let (records, error) = import(format, data);
        let bytes: usize = records
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        assert!(
            bytes <= 2 * data.len(),
            "{bytes} bytes of records out of {}",
            data.len()
        );
        assert!(error.is_none_or(|error| !error.is_empty()));
        let exported = export(format, &records);
        let (again, error) = import(format, &exported);
        assert_eq!(error, None, "{format}: what was exported");
        assert_eq!(again, records, "{format}");
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    [
        &b"{\"key\":\"a\",\"value\":\"b\\u0000\\n\"}\n\n{\"key_base64\":\"/w==\",\"value_base64\":\"AAEC\"}\n"[..],
        b"\x01\x00\x00\x00k\x02\x00\x00\x00vv\x00\x00\x00\x00\x00\x00\x00\x00",
        b"Package: a\nVersion: 1\nDescription: x\n .\n y\n\n\nPackage: b\n",
        b"{\"key\":1}",
        b"\xff\xff\xff\xff",
    ]
    .map(<[u8]>::to_vec)
    .into()
}
