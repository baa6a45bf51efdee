//! Target `manifest`: manifest files of any records, and of any items in records with right checksums.
//!
//! Asserts: items that are decoded encode to what decodes to the same; edits of an index
//! likewise; a manifest that is read is written anew and read to the same state and
//! the same edits; what is refused is `Corruption` that names file and offset, or `UnsupportedFormat`.

use super::input::{Input, Output};
use glintdb::{Error, ErrorKind};
use glintdb_core::checksum::{FileSeed, crc32c, crc32c_append};
use glintdb_core::{DbId, FileId, FileKind};
use glintdb_flash::Volume;
use glintdb_simdisk::{Contents, MemOptions, MemVolume};
use std::sync::Arc;

const DB: DbId = DbId(*b"0123456789abcdef");
const GOLDEN: &[u8] = include_bytes!("../../../glintdb/testdata/manifest-v1.bin");
/// An edit of a B+tree.
const TREE_EDIT: &[u8] = include_bytes!("../../../btree/testdata/edit-v1.bin");
const RETIRED: &[u8] = include_bytes!("../../../glintdb/testdata/manifest-v1-retired.bin");

fn refused(error: &Error) {
    let kind = error.kind();
    assert!(
        kind == ErrorKind::UnsupportedFormat
            || (kind == ErrorKind::Corruption && error.place().is_some()),
        "{error}"
    );
}

struct File {
    id: FileId,
    bytes: Vec<u8>,
    /// Items of the record that is being made.
    items: Vec<u8>,
}

impl File {
    fn new(number: u64) -> File {
        let mut bytes = [
            &b"GLNTMANI"[..],
            &1_u32.to_le_bytes(),
            &DB.0,
            &number.to_le_bytes(),
        ]
        .concat();
        let checksum = crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        File {
            id: FileId::new(FileKind::Manifest, number),
            bytes,
            items: Vec::new(),
        }
    }

    fn end_record(&mut self) {
        let items = std::mem::take(&mut self.items);
        if items.is_empty() {
            return;
        }
        let length = (items.len() as u32).to_le_bytes();
        let seeded = FileSeed::new(DB, self.id).checksum(self.bytes.len() as u64, &length);
        self.bytes.extend_from_slice(&length);
        self.bytes
            .extend_from_slice(&crc32c_append(seeded, &items).to_le_bytes());
        self.bytes.extend_from_slice(&items);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }
}

fn build(mut input: Input<'_>) -> Contents {
    let mut files = vec![File::new(1)];
    while !input.is_empty() {
        let number = files.len() as u64 + 1;
        let Some(file) = files.last_mut() else { break };
        match input.u8() % 8 {
            0..=2 => file.items.extend_from_slice(input.bytes()),
            3 => file.items.extend([&[1], &DB.0[..]].concat()),
            4 => file.end_record(),
            5 => {
                file.end_record();
                file.bytes.extend_from_slice(input.bytes());
                file.bytes.resize(file.bytes.len().next_multiple_of(8), 0);
            }
            6 => {
                // Damage a little before the end.
                let back = usize::from(input.u16()) % file.bytes.len() + 1;
                let at = file.bytes.len() - back;
                for (to, from) in file.bytes.iter_mut().skip(at).zip(input.bytes()) {
                    *to = *from;
                }
            }
            _ => {
                file.end_record();
                if number <= 3 {
                    files.push(File::new(number));
                }
            }
        }
    }
    let mut contents = Contents::default();
    for mut file in files {
        file.end_record();
        contents.files.insert(file.id, file.bytes.into());
    }
    contents
}

pub(super) fn run(data: &[u8]) {
    match glintdb::fuzzing::items(data) {
        Ok((encoded, taken)) => {
            assert!(
                encoded.len() <= taken,
                "{taken} bytes became {}",
                encoded.len()
            );
            let again = glintdb::fuzzing::items(&encoded).expect("what was encoded");
            assert_eq!(again, (encoded.clone(), encoded.len()));
        }
        Err(error) => refused(&error),
    }
    for edit_again in [glintdb_lsm::edit_again, glintdb_btree::edit_again] {
        match edit_again(data) {
            Ok(encoded) => {
                assert!(encoded.len() <= data.len());
                let again = edit_again(&encoded).expect("what was encoded");
                assert_eq!(again, encoded);
            }
            Err(error) => refused(&error),
        }
    }
    let volume = MemVolume::of_contents(&build(Input::new(data)), MemOptions::default());
    let volume: Arc<dyn Volume> = volume.expect("memory takes it");
    glintdb::fuzzing::manifest(&volume)
        .inspect_err(refused)
        .ok();
}

/// The records of a golden file as an input.
fn records(golden: &[u8]) -> Output {
    let mut whole = Output::default();
    let mut at = 40;
    while let Some(length) = golden.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        let length = u32::from_le_bytes(*length) as usize;
        whole
            .raw(&[0])
            .bytes(&golden[at + 8..at + 8 + length])
            .raw(&[4]);
        at = (at + 8 + length).next_multiple_of(8);
    }
    whole
}

/// Inputs to begin with: the golden files' records, and each kind of item.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let whole = records(GOLDEN);
    let mut items = Output::default();
    items.raw(&[3, 0]).bytes(&[2, 0x81, 2]);
    items.raw(&[0]).bytes(&GOLDEN[0x44..0x62]);
    items.raw(&[0]).bytes(&[5, 4]);
    items.raw(&[0]).bytes(&[8, 1, 0x80, 0x20, 0xac, 2]);
    items.raw(&[4, 0]).bytes(&[4, 0, 0xad, 2]);
    items.raw(&[0]).bytes(&[7, 0, 1, 0, 4, 0, 0, 0, 0, 0, 0]);
    items.raw(&[0]).bytes(&[11, 1]);
    items
        .raw(&[0])
        .bytes(&[&[10, 0][..], &GOLDEN[0x4e..0x62]].concat());
    let mut torn = Output(whole.0.clone());
    torn.raw(&[5])
        .bytes(b"torn record")
        .raw(&[7, 3, 4, 6, 8, 0])
        .bytes(b"?");
    // The edit and the items alone.
    let edit = GOLDEN[0x98..0xc1].to_vec();
    vec![
        whole.0,
        records(RETIRED).0,
        items.0,
        torn.0,
        edit,
        TREE_EDIT.to_vec(),
        GOLDEN[0x30..0xc4].to_vec(),
    ]
}
