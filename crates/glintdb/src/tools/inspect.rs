//! Shows the files of a database line by line, for `glintdb dump`. The database must not be open.
//!
//! Thread safety: the volume's lock keeps others out.

mod line;
mod manifest;

pub use line::{Field, Line};
pub(crate) use manifest::item_lines;

use crate::durable::manifest::{Item, RecordReader, read_whole};
use crate::{Error, ErrorKind, Result};
use glintdb_cache::Cache;
use glintdb_core::codec::Reader;
use glintdb_core::memory::MemoryBudget;
use glintdb_core::{DbId, EntryRef, FileId, FileKind, SegmentId, SeqNum};
use glintdb_flash::{DirOptions, DirectIo, ReadEngine, Volume};
use glintdb_log::{DumpFrame, DumpItem, LogEntry, LogOp, LogValue};
use glintdb_runs::table::{Table, TableEnv, TableMeta, salvage};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// Gets the lines of a dump as they are made, and says whether the dump goes on.
pub type Lines<'a> = &'a mut dyn FnMut(Line) -> ControlFlow<()>;

/// Why a dump ends before the end of the file.
enum Stop {
    /// The caller wants no more lines.
    Asked,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

/// Where the lines go.
struct Out<'a>(Lines<'a>);

impl Out<'_> {
    fn line(&mut self, line: Line) -> Result<(), Stop> {
        match (self.0)(line) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::Asked),
        }
    }
}

fn open(path: &Path) -> Result<Arc<dyn Volume>> {
    let options = DirOptions {
        direct: DirectIo::Off,
        read_engine: ReadEngine::Sync,
        ..DirOptions::default()
    };
    crate::handles::open_to_read(path, options)
}

/// Lists the files of the database in `path`: name and size in bytes.
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

/// Dumps the file `name` (a name from [`files`]) of the database in `path`: a log segment, a table
/// or a manifest. The first line describes the file.
///
/// Of a damaged table, the dump shows all intact entries, then the ranges of keys that are lost,
/// and then returns the first damage as an error.
///
/// # Errors
/// `InvalidArgument`: `name` is not the name of such a file. `Locked`, `NotFound`, `Corruption`,
/// I/O errors.
pub fn dump(path: impl AsRef<Path>, name: &str, out: Lines<'_>) -> Result<()> {
    let id = FileId::parse(name).ok_or_else(|| {
        Error::invalid(format!(
            "{name:?} is not the name of a log segment, table or manifest"
        ))
    })?;
    let volume = open(path.as_ref())?;
    let out = &mut Out(out);
    let dumped = match id.kind {
        FileKind::Log => dump_log(&*volume, SegmentId(id.number), out),
        FileKind::Table => dump_table(volume, id, out),
        FileKind::Tree => {
            let bytes = volume.open(id)?.len()?;
            out.line(of_file("tree", id).number("bytes", bytes))
        }
        FileKind::Manifest => dump_manifest(&*volume, id, out),
        FileKind::Reserve => {
            out.line(of_file("reserve", id).text("content", "empty, space kept for a full disk"))
        }
    };
    match dumped {
        Ok(()) | Err(Stop::Asked) => Ok(()),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// The first line of a file.
fn of_file(what: &'static str, id: FileId) -> Line {
    Line::new(0, what).text("file", id)
}

fn dump_manifest(volume: &dyn Volume, id: FileId, out: &mut Out<'_>) -> Result<(), Stop> {
    let bytes = read_whole(volume, id)?;
    let (db, mut records) = RecordReader::open(id, &bytes)?;
    let line = of_file("manifest", id).text("database", db);
    out.line(line.number("bytes", bytes.len() as u64))?;
    while let Some(record) = records.next_record()? {
        let line = Line::new(1, "record").number("offset", record.offset);
        out.line(line.number("bytes", record.payload.len() as u64))?;
        let mut reader = Reader::new(record.payload);
        while !reader.is_empty() {
            let item = Item::decode(&mut reader)
                .ok_or_else(|| Error::corruption(id, record.offset, "an item does not parse"))??;
            for line in item_lines(&item) {
                out.line(line)?;
            }
        }
    }
    if records.rest_bytes() > 0 {
        let offset = bytes.len() as u64 - records.rest_bytes();
        let line = Line::new(1, "torn_tail").number("offset", offset);
        out.line(line.number("bytes", records.rest_bytes()))?;
    }
    Ok(())
}

fn dump_log(volume: &dyn Volume, segment: SegmentId, out: &mut Out<'_>) -> Result<(), Stop> {
    let line = of_file("segment", segment.file());
    let head = volume.open(segment.file())?.read_at(0, 4096)?;
    if head.len() < 4096 || head.iter().all(|byte| *byte == 0) {
        return out.line(line.text("content", "empty, created ahead of its use"));
    }
    let dump = glintdb_log::dump(volume, segment)?;
    let header = dump.header();
    out.line(
        line.text("database", header.db)
            .text("kind", header.kind.name())
            .number("stream_position", header.base)
            .number("capacity_bytes", header.capacity),
    )?;
    for item in dump {
        match item? {
            DumpItem::Frame(frame) => {
                out.line(frame_line(&frame))?;
                for entry in frame.entries() {
                    out.line(operation(&entry))?;
                }
            }
            DumpItem::Hole {
                lsn,
                bytes,
                reason,
                zero,
            } => {
                let what = if zero { "zeros" } else { "no_frame" };
                let line = Line::new(1, what).number("offset", lsn.offset);
                let line = line.number("bytes", bytes);
                out.line(if zero {
                    line
                } else {
                    line.text("reason", reason)
                })?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn frame_line(frame: &DumpFrame) -> Line {
    let header = frame.header();
    let line = Line::new(1, header.kind.name())
        .number("offset", frame.lsn().offset)
        .number("bytes", header.frame_bytes())
        .number("durable_position", header.durable_position);
    match frame.next_segment() {
        Some(next) => line.text("next", next.file()),
        None if header.kind.has_entries() => line
            .number("seqno", header.seqno.0)
            .number("operations", header.entry_count)
            .number("separated_bytes", header.values_bytes),
        None => line,
    }
}

fn operation(entry: &LogEntry<'_>) -> Line {
    let line = |what| Line::new(2, what).number("keyspace", entry.keyspace.0);
    match entry.op {
        LogOp::Put { key, value } => {
            let line = line("put").bytes("key", key);
            match value {
                LogValue::Inline(value) => line.bytes("value", value),
                LogValue::Pointer(pointer) => line
                    .number("value_offset", pointer.offset)
                    .number("value_bytes", pointer.length),
            }
        }
        LogOp::Delete { key } => line("delete").bytes("key", key),
        LogOp::DeleteRange { start, end } => line("delete_range").range(start, end),
    }
}

fn dump_table(volume: Arc<dyn Volume>, id: FileId, out: &mut Out<'_>) -> Result<(), Stop> {
    let db = crate::durable::manifest::read_newest(&*volume)?
        .loaded
        .map(|loaded| loaded.db)
        .ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                "a table can be read only beside the manifest of its database, and there is none",
            )
        })?;
    out.line(table_line(&volume, db, id)?)?;
    let mut asked = false;
    let visit = &mut |key: &[u8], seqno: SeqNum, value: EntryRef<'_>| match out
        .line(table_entry(key, seqno, value))
    {
        Ok(()) => Ok(()),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Asked) => {
            asked = true;
            Err(Error::invalid("no more lines are wanted"))
        }
    };
    let found = match salvage::salvage(&*volume, db, id, None, visit) {
        Err(_) if asked => return Err(Stop::Asked),
        found => found?,
    };
    for tombstone in found.tombstones {
        let line = Line::new(1, "delete_range").number("seqno", tombstone.seqno.0);
        out.line(line.range(&tombstone.start, tombstone.end.as_deref()))?;
    }
    for damage in &found.damage {
        let (start, end) = &damage.range;
        out.line(Line::new(1, "lost").range(start, end.as_deref()))?;
    }
    match found.damage.into_iter().next() {
        Some(damage) => Err(Stop::Failed(damage.error)),
        None => Ok(()),
    }
}

/// The first line of a table.
fn table_line(volume: &Arc<dyn Volume>, db: DbId, id: FileId) -> Result<Line> {
    let line = of_file("table", id).text("database", db);
    let env = Arc::new(TableEnv {
        volume: Arc::clone(volume),
        cache: Arc::new(Cache::new(1 << 20)),
        memory: Arc::new(MemoryBudget::new(1 << 30)),
        db,
        reads: None,
        remaps: false,
    });
    match Table::open_file(&env, id) {
        Ok(table) => Ok(table_fields(line, table.meta())),
        // The damage itself is reported after the entries.
        Err(error) if error.kind() == ErrorKind::Corruption => Ok(line.text("properties", "lost")),
        Err(error) => Err(error),
    }
}

fn table_fields(line: Line, meta: &TableMeta) -> Line {
    line.number("bytes", meta.bytes)
        .number("blocks", meta.blocks)
        .number("entries", meta.entries)
        .number("deletions", meta.tombstones)
        .number("range_deletions", meta.range_tombstones)
        .number("separated_bytes", meta.pointed_bytes)
        .number("seqno_min", meta.seqno_min.0)
        .number("seqno_max", meta.seqno_max.0)
        .bytes("first_key", &meta.smallest)
        .bytes("last_key", &meta.largest)
}

fn table_entry(key: &[u8], seqno: SeqNum, value: EntryRef<'_>) -> Line {
    let line = |what| Line::new(1, what).number("seqno", seqno.0);
    match value {
        EntryRef::Inline(value) => line("put").bytes("key", key).bytes("value", value),
        EntryRef::Pointer(pointer) => line("put")
            .bytes("key", key)
            .text("value_file", pointer.segment.file())
            .number("value_offset", pointer.offset)
            .number("value_bytes", pointer.length),
        EntryRef::Tombstone => line("delete").bytes("key", key),
    }
}
