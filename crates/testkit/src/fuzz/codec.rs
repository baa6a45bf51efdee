//! Target `codec`: the small codecs that everything is made of: varints, byte strings, names of files, what the manifest says of a table, what the server keeps with a value.
//!
//! Asserts: what is decoded encodes to what decodes to the same, in no more bytes than were taken; what a reader has not taken is still there.

use super::input::Input;
use glintdb_core::codec::{Reader, put_bytes, put_varint};
use glintdb_core::{FileId, key};
use glintdb_runs::table::TableMeta;

pub(super) fn run(data: &[u8]) {
    let mut reader = Reader::new(data);
    if let Some(number) = reader.varint() {
        let mut again = Vec::new();
        put_varint(&mut again, number);
        let taken = data.len() - reader.rest().len();
        assert!(again.len() <= taken && taken <= 10);
        assert_eq!(Reader::new(&again).varint(), Some(number));
        assert_eq!(Reader::new(data).varint32(), u32::try_from(number).ok());
    } else {
        // Ten bytes that all go on, more bits than fit, or the end before the last one.
        assert!(data.iter().take(9).all(|byte| byte & 0x80 != 0));
    }
    let mut reader = Reader::new(data);
    if let Some(bytes) = reader.bytes() {
        assert!(data.ends_with(&[bytes, reader.rest()].concat()));
        let mut again = Vec::new();
        put_bytes(&mut again, bytes);
        assert_eq!(Reader::new(&again).bytes(), Some(bytes));
    }
    if let Ok(name) = std::str::from_utf8(data)
        && let Some(id) = FileId::parse(name)
    {
        assert_eq!(id.to_string(), name);
    }
    let mut reader = Reader::new(data);
    if let Some(meta) = TableMeta::decode(&mut reader) {
        let mut again = Vec::new();
        meta.encode(&mut again);
        assert_eq!(TableMeta::decode(&mut Reader::new(&again)), Some(meta));
    }
    if let Some(end) = key::prefix_end(data) {
        assert!(data < &end[..] && !end.starts_with(data) && end.len() <= data.len());
    }
    let mut input = Input::new(data);
    let (first, second) = (input.bytes(), input.bytes());
    assert!(first < &key::successor(first)[..]);
    if let Some(end) = key::prefix_end(first) {
        assert_eq!(
            second.starts_with(first),
            first <= second && second < &end[..]
        );
    }
    server_value(data);
}

/// The encoding of a value with its expiry, as the server keeps it.
fn server_value(data: &[u8]) {
    if let Ok(value) = glintdb_server::StoredValue::decode(data.to_vec().into()) {
        assert!(value.value.len() <= data.len());
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let golden = include_bytes!("../../../glintdb/testdata/manifest-v1.bin");
    vec![
        vec![0xac, 2],
        vec![0xff; 10],
        b"\x05hello".to_vec(),
        b"table-000000000000002a.glint".to_vec(),
        golden[0x9c..0xc1].to_vec(),
        b"\x02ab\x03abc".to_vec(),
    ]
}
