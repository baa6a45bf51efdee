//! Files in readable form, for `glintdb dump`. The database must not be open.

use crate::manifest::{Item, RecordReader, describe, read_whole};
use crate::{Error, ErrorKind, Result};
use glintdb_core::codec::Reader;
use glintdb_core::memory::MemoryBudget;
use glintdb_core::{EntryRef, FileId, FileKind, SegmentId};
use glintdb_flash::{Cache, DirOptions, DirVolume, DirectIo, ReadEngine, Volume};
use glintdb_log::{DumpItem, LogOp, LogValue};
use glintdb_lsm::table::{Table, TableEnv, salvage};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

/// Lines of a dump, made as they are read.
pub type Lines<'a> = &'a mut dyn FnMut(String);

fn open(path: &Path) -> Result<Arc<DirVolume>> {
    crate::directory::check(path, false)?;
    crate::handles::open_directory(
        path,
        DirOptions {
            direct: DirectIo::Off,
            read_engine: ReadEngine::Sync,
            create: false,
            ..DirOptions::default()
        },
    )
}

/// A key or value in a line: text where it is printable, else hexadecimal, cut at 64 bytes.
fn shown(bytes: &[u8]) -> String {
    let head = bytes.get(..64).unwrap_or(bytes);
    let mut out = match std::str::from_utf8(head) {
        Ok(text) if !text.chars().any(char::is_control) => format!("{text:?}"),
        _ => head.iter().fold("0x".to_owned(), |mut out, byte| {
            // Writing to a string cannot fail.
            write!(out, "{byte:02x}").ok();
            out
        }),
    };
    if bytes.len() > head.len() {
        write!(out, "… ({} bytes)", bytes.len()).ok();
    }
    out
}

/// Keys from the first on, up to the second, in a line; `None`: to the end.
fn shown_range(start: &[u8], end: Option<&[u8]>) -> String {
    let end = end.map_or("the end".to_owned(), shown);
    format!("from {} to {end}", shown(start))
}

/// Every file of the database in `path`, by name, with its size in bytes.
///
/// # Errors
/// `Locked`, `NotFound`, I/O errors.
pub fn files(path: impl AsRef<Path>) -> Result<Vec<(String, u64)>> {
    let volume = open(path.as_ref())?;
    volume
        .list()?
        .into_iter()
        .map(|id| Ok((id.to_string(), volume.open(id)?.len()?)))
        .collect()
}

/// Dumps the file `name` (as [`files`] gives it) of the database in `path`: a log segment, a table or a manifest.
///
/// A damaged table is shown as far as it is whole, with the ranges of keys that are lost; its first damage is the error.
///
/// # Errors
/// `InvalidArgument` for a name that is not one of ours; `Locked`, `NotFound`, `Corruption`, I/O errors.
pub fn dump(path: impl AsRef<Path>, name: &str, out: Lines<'_>) -> Result<()> {
    let id = FileId::parse(name).ok_or_else(|| {
        Error::invalid(format!(
            "{name:?} is not the name of a log segment, table or manifest"
        ))
    })?;
    let volume = open(path.as_ref())?;
    match id.kind {
        FileKind::Log => dump_log(&*volume, SegmentId(id.number), out),
        FileKind::Table => dump_table(volume, id, out),
        FileKind::Manifest => dump_manifest(&*volume, id, out),
        FileKind::Reserve => {
            out("space kept for a full disk; it holds nothing".to_owned());
            Ok(())
        }
    }
}

fn dump_manifest(volume: &dyn Volume, id: FileId, out: Lines<'_>) -> Result<()> {
    let bytes = read_whole(volume, id)?;
    let (db, mut records) = RecordReader::open(id, &bytes)?;
    out(format!("{id}: database {db}, {} bytes", bytes.len()));
    while let Some(record) = records.next_record()? {
        out(format!(
            "{:>10}  edit, {} bytes",
            record.offset,
            record.payload.len()
        ));
        let mut reader = Reader::new(record.payload);
        while !reader.is_empty() {
            let item = Item::decode(&mut reader)
                .ok_or_else(|| Error::corruption(id, record.offset, "an item does not parse"))??;
            out(format!("            {}", describe(&item)));
        }
    }
    if records.rest_bytes() > 0 {
        out(format!(
            "{:>10}  torn tail, {} bytes",
            bytes.len() as u64 - records.rest_bytes(),
            records.rest_bytes()
        ));
    }
    Ok(())
}

fn dump_log(volume: &dyn Volume, segment: SegmentId, out: Lines<'_>) -> Result<()> {
    let head = volume.open(segment.file())?.read_at(0, 4096)?;
    if head.len() < 4096 || head.iter().all(|byte| *byte == 0) {
        out(format!(
            "{}: without a header; made ahead, and never took a frame",
            segment.file()
        ));
        return Ok(());
    }
    let dump = glintdb_log::dump(volume, segment)?;
    out(format!("{}: {:?}", segment.file(), dump.header()));
    for item in dump {
        match item? {
            DumpItem::Frame(frame) => {
                out(format!("{:>10}  {:?}", frame.lsn().offset, frame.header()));
                for entry in frame.entries() {
                    let keyspace = entry.keyspace.0;
                    out(match entry.op {
                        LogOp::Put {
                            key,
                            value: LogValue::Inline(value),
                        } => format!(
                            "            {keyspace} put {} = {}",
                            shown(key),
                            shown(value)
                        ),
                        LogOp::Put {
                            key,
                            value: LogValue::Pointer(pointer),
                        } => {
                            format!(
                                "            {keyspace} put {} = {} bytes at {}",
                                shown(key),
                                pointer.length,
                                pointer.offset
                            )
                        }
                        LogOp::Delete { key } => {
                            format!("            {keyspace} delete {}", shown(key))
                        }
                        LogOp::DeleteRange { start, end } => {
                            format!("            {keyspace} delete {}", shown_range(start, end))
                        }
                    });
                }
            }
            DumpItem::Hole {
                lsn,
                bytes,
                reason,
                zero,
            } => {
                let what = if zero {
                    "zeros".to_owned()
                } else {
                    format!("no frame: {reason}")
                };
                out(format!("{:>10}  {bytes} bytes, {what}", lsn.offset));
            }
            other => out(format!("            {other:?}")),
        }
    }
    Ok(())
}

fn dump_table(volume: Arc<DirVolume>, id: FileId, out: Lines<'_>) -> Result<()> {
    let db = crate::manifest::read_newest(&*volume)?
        .loaded
        .map(|loaded| loaded.db)
        .ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                "there is no manifest, which tells the database's identity",
            )
        })?;
    let env = Arc::new(TableEnv {
        volume: Arc::clone(&volume) as Arc<dyn Volume>,
        cache: Arc::new(Cache::new(1 << 20)),
        memory: Arc::new(MemoryBudget::new(1 << 30)),
        db,
        reads: None,
    });
    match Table::open_file(&env, id) {
        Ok(table) => out(format!("{id}: database {db}, {:?}", table.meta())),
        // What of it: in the list of damage.
        Err(error) if error.kind() != ErrorKind::Corruption => return Err(error),
        Err(_) => out(format!("{id}: database {db}, damaged")),
    }
    let found = salvage::salvage(&*volume, db, id, None, &mut |key, seqno, value| {
        let value = match value {
            EntryRef::Inline(value) => shown(value),
            EntryRef::Pointer(pointer) => format!(
                "{} bytes in segment {} at {}",
                pointer.length, pointer.segment, pointer.offset
            ),
            EntryRef::Tombstone => "deleted".to_owned(),
        };
        out(format!("  {seqno:>10} {} = {value}", shown(key)));
        Ok(())
    })?;
    for tombstone in found.tombstones {
        out(format!(
            "  {:>10} delete {}",
            tombstone.seqno,
            shown_range(&tombstone.start, tombstone.end.as_deref())
        ));
    }
    for damage in &found.damage {
        let (start, end) = &damage.range;
        out(format!("  lost: {}", shown_range(start, end.as_deref())));
    }
    match found.damage.into_iter().next() {
        Some(damage) => Err(damage.error),
        None => Ok(()),
    }
}
