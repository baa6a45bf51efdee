//! Target `import`: what `glintdb import` reads, in each of its formats.
//!
//! Asserts: items (records with their expiry, beginnings of keyspaces) that are read come back the
//! same after they were exported and read again; they hold no more than was read; the bytes they
//! took add up to no more than there were; an input ends, with an error or without.

use glintdb_cli::fuzzing::{FORMATS, Item, export, import};

pub(super) fn run(data: &[u8]) {
    for format in FORMATS {
        let (items, error) = import(format, data);
        let bytes: usize = items.iter().map(bytes_of).sum();
        assert!(
            bytes <= 2 * data.len(),
            "{bytes} bytes of items out of {}",
            data.len()
        );
        assert!(error.is_none_or(|error| !error.is_empty()));
        let exported = export(format, &items);
        let (again, error) = import(format, &exported);
        assert_eq!(error, None, "{format}: what was exported");
        assert_eq!(again, items, "{format}");
    }
}

fn bytes_of(item: &Item) -> usize {
    match item {
        Item::Keyspace { name, options } => {
            let options = options.iter();
            let bytes: usize = options.map(|(name, value)| name.len() + value.len()).sum();
            name.len() + bytes
        }
        Item::Record { key, stored } => key.len() + stored.value.len(),
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    [
        &b"{\"key\":\"a\",\"value\":\"b\\u0000\\n\"}\n\n{\"key_base64\":\"/w==\",\"value_base64\":\"AAEC\"}\n"[..],
        b"\x01\x00\x00\x00k\x02\x00\x00\x00vv\x00\x00\x00\x00\x00\x00\x00\x00",
        b"{\"keyspace\":\"a\",\"options\":{\"b\":\"c\"}}\n{\"key\":\"a\",\"value\":\"b\",\"expires_ms\":7}\n",
        b"\x01\x00\x00\x40n\x04\x00\x00\x00a=b\n\x01\x00\x00\x80k\x01\x00\x00\x00v\x07\x00\x00\x00\x00\x00\x00\x00",
        b"Package: a\nVersion: 1\nDescription: x\n .\n y\n\n\nPackage: b\n",
        b"{\"key\":1}",
        b"\xff\xff\xff\xff",
    ]
    .map(<[u8]>::to_vec)
    .into()
}
