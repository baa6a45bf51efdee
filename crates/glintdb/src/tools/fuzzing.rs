//! Ways for fuzz targets into what is private here: the manifest. No part of the API.

use crate::durable::manifest::{Item, Manifest, encode_items, read_newest};
use crate::tools::inspect::item_lines;
use crate::{Error, Result};
use glintdb_core::codec::Reader;
use glintdb_flash::Volume;
use std::sync::Arc;

/// The items at the front of `bytes`, encoded again, and how many bytes they took; an error where one of them is not known to this build.
///
/// # Errors
/// `UnsupportedFormat`.
pub fn items(bytes: &[u8]) -> Result<(Vec<u8>, usize)> {
    let mut reader = Reader::new(bytes);
    let mut items = Vec::new();
    let mut taken = 0;
    while let Some(item) = Item::decode(&mut reader) {
        let item = item?;
        // A dump of any item must not panic.
        drop(item_lines(&item));
        items.push(item);
        taken = bytes.len() - reader.rest().len();
    }
    Ok((encode_items(&items), taken))
}

/// Reads the manifest on a volume, writes its successor, and reads that; `false`: there is none.
///
/// # Errors
/// What reading the first one gives.
///
/// # Panics
/// Where the successor says something else.
pub fn manifest(volume: &Arc<dyn Volume>) -> Result<bool, Error> {
    let found = read_newest(&**volume)?;
    let Some(loaded) = found.loaded else {
        return Ok(false);
    };
    let edits: Vec<_> = loaded
        .edits
        .iter()
        .flat_map(|(id, edits)| edits.iter().map(|edit| (*id, edit.clone())))
        .collect();
    let manifest = Manifest::create(
        Arc::clone(volume),
        loaded.db,
        found.number_next,
        loaded.state.clone(),
        edits,
    );
    let manifest = manifest.unwrap_or_else(|error| panic!("a state that was read: {error}"));
    assert_eq!(*manifest.state(), loaded.state);
    drop(manifest);
    let again = read_newest(&**volume).unwrap_or_else(|error| panic!("what was written: {error}"));
    let Some(again) = again.loaded else {
        panic!("the manifest is gone")
    };
    assert_eq!(again.state, loaded.state, "another state");
    assert_eq!(again.edits, loaded.edits, "other edits");
    let id = glintdb_core::FileId::new(glintdb_core::FileKind::Manifest, again.number);
    let length = volume.open(id).and_then(|file| file.len());
    assert_eq!(length.ok(), Some(again.end), "nothing behind the records");
    Ok(true)
}
