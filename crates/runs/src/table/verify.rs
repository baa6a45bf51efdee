//! Reads every byte of a table and holds it against everything else that is known of it.

use super::block::Block;
use super::block_iter::BlockIter;
use super::filter::key_hash;
use super::format::{FOOTER_BYTES, HEADER_BYTES, PAGE_BYTES, encode_header};
use super::reader::{Opened, Table};
use bytes::Bytes;
use glintdb_core::{Direction, EntryRef, Error, Result, SeqNum, ValuePointer};

/// What the entries add up to.
#[derive(Default)]
struct Counts {
    entries: u64,
    tombstones: u64,
    pointed_bytes: u64,
    seqnos: Option<(SeqNum, SeqNum)>,
    first_key: Option<Vec<u8>>,
    last_key: Option<Vec<u8>>,
    /// A block could not be read, so sums mean nothing.
    incomplete: bool,
}

/// See [`Table::verify`].
pub(super) fn verify(
    table: &Table,
    report: &mut dyn FnMut(Error),
    pointer: &mut dyn FnMut(&[u8], ValuePointer),
) {
    let opened = match table.opened() {
        Ok(opened) => opened,
        Err(error) => return report(error),
    };
    if let Err(error) = header(table, opened) {
        report(error);
    }
    let mut counts = Counts::default();
    let mut position = PAGE_BYTES as u64;
    for index in 0..opened.fences.len() {
        let handle = opened.fences.handle(index);
        if let Err(error) = gap(table, opened, position, handle.offset) {
            report(error);
        }
        position = handle.offset + u64::from(handle.length);
        let block = opened
            .file
            .read_at(handle.offset, handle.length as usize)
            .and_then(|stored| table.blocks().accept_stored(handle, stored));
        let checked = block.and_then(|stored| {
            check_pinned(table, stored.block())?;
            check_block(table, opened, index, stored.block(), &mut counts, pointer)
        });
        if let Err(error) = checked {
            counts.incomplete = true;
            report(error);
        }
    }
    if let Err(error) = gap(table, opened, position, table.meta().tail_offset) {
        report(error);
    }
    let properties = opened.footer.properties;
    let footer_at = table.meta().bytes - FOOTER_BYTES as u64;
    if let Err(error) = gap(
        table,
        opened,
        properties.offset + properties.bytes,
        footer_at,
    ) {
        report(error);
    }
    if !counts.incomplete
        && let Err(error) = totals(table, opened, &counts)
    {
        report(error);
    }
}

fn corrupt(table: &Table, offset: u64, what: impl Into<String>) -> Error {
    Error::corruption(table.meta().id, offset, what)
}

/// What is pinned is what the medium has, but for the checksum, which is not part of what is searched.
fn check_pinned(table: &Table, block: &Block) -> Result<()> {
    let Some(pinned) = table.pinned_block(block.handle()) else {
        return Ok(());
    };
    if pinned.image.get(4..) != block.image.get(4..pinned.image.len()) {
        let what = "the pinned copy of a key block is not what the file holds";
        return Err(corrupt(table, block.handle().offset, what));
    }
    Ok(())
}

fn header(table: &Table, opened: &Opened) -> Result<()> {
    let found = opened.file.read_at(0, PAGE_BYTES)?;
    let expected = encode_header(table.env().db, table.meta().id);
    let (head, rest) = found
        .split_at_checked(HEADER_BYTES)
        .unwrap_or((&found, &[]));
    if head != expected {
        return Err(corrupt(table, 0, "header is not that of this table"));
    }
    if rest.len() != PAGE_BYTES - HEADER_BYTES || rest.iter().any(|&byte| byte != 0) {
        return Err(corrupt(table, 0, "header page is not filled up with zeros"));
    }
    Ok(())
}

/// What lies between parts is zero, and less than a page.
fn gap(table: &Table, opened: &Opened, from: u64, to: u64) -> Result<()> {
    let Ok(length) = usize::try_from(to.saturating_sub(from)) else {
        return Err(corrupt(table, from, "gap too long"));
    };
    if length == 0 {
        return Ok(());
    }
    if length >= PAGE_BYTES {
        return Err(corrupt(
            table,
            from,
            format!("gap of {length} bytes that belong to nothing"),
        ));
    }
    let found: Bytes = opened.file.read_at(from, length)?;
    if found.iter().any(|&byte| byte != 0) {
        return Err(corrupt(table, from, "bytes between parts are not zero"));
    }
    Ok(())
}

fn check_block(
    table: &Table,
    opened: &Opened,
    index: usize,
    block: &Block,
    counts: &mut Counts,
    pointer: &mut dyn FnMut(&[u8], ValuePointer),
) -> Result<()> {
    let malformed = |_| table.malformed(block.handle);
    let wrong = |what: &str| Err(corrupt(table, block.handle.offset, what));
    let fence = opened.fences.key(index);
    let next_fence = (index + 1 < opened.fences.len()).then(|| opened.fences.key(index + 1));
    let mut iter = BlockIter::new(Direction::Forward);
    iter.reset(block.clone()).map_err(malformed)?;
    while iter.step().map_err(malformed)? {
        let (key, seqno) = (iter.key(), iter.seqno());
        if counts
            .last_key
            .as_ref()
            .is_some_and(|last| key <= last.as_slice())
        {
            return wrong("keys do not ascend");
        }
        if key < fence.as_slice()
            || next_fence
                .as_ref()
                .is_some_and(|next| key >= next.as_slice())
        {
            return wrong("key outside its block's fences");
        }
        let hash = key_hash(key);
        if opened
            .filter
            .as_ref()
            .is_some_and(|filter| !filter.may_contain(hash))
        {
            return wrong("key missing in the filter");
        }
        let found = table.search(block, key)?;
        if found.is_none_or(|found| found.seqno != seqno) {
            return wrong("key not found where it stands");
        }
        match iter.value().map_err(malformed)? {
            EntryRef::Inline(_) => {}
            EntryRef::Pointer(value) => {
                counts.pointed_bytes += u64::from(value.length);
                pointer(key, value);
            }
            EntryRef::Tombstone => counts.tombstones += 1,
        }
        counts.entries += 1;
        let (min, max) = counts.seqnos.unwrap_or((seqno, seqno));
        counts.seqnos = Some((min.min(seqno), max.max(seqno)));
        if counts.first_key.is_none() {
            counts.first_key = Some(key.to_vec());
        }
        let last = counts.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }
    Ok(())
}

/// Holds the sums against the properties.
fn totals(table: &Table, opened: &Opened, counts: &Counts) -> Result<()> {
    let meta = table.meta();
    let tombstone_seqnos = opened.tombstones.iter().map(|tombstone| tombstone.seqno);
    let (min, max) = tombstone_seqnos.fold(
        counts.seqnos.unwrap_or((SeqNum(u64::MAX), SeqNum::ZERO)),
        |(min, max), seqno| (min.min(seqno), max.max(seqno)),
    );
    let same = meta.entries == counts.entries
        && meta.tombstones == counts.tombstones
        && meta.pointed_bytes == counts.pointed_bytes
        && (meta.seqno_min, meta.seqno_max) == (min, max)
        && meta.smallest == counts.first_key.as_deref().unwrap_or(&[])
        && meta.largest == counts.last_key.as_deref().unwrap_or(&[]);
    if same {
        return Ok(());
    }
    let what = format!(
        "properties say {} entries, {} tombstones, {} bytes pointed to; there are {}, {}, {}; or keys or sequence numbers differ",
        meta.entries,
        meta.tombstones,
        meta.pointed_bytes,
        counts.entries,
        counts.tombstones,
        counts.pointed_bytes
    );
    Err(corrupt(table, meta.tail_offset, what))
}
