//! Manifest items as lines of a dump.

use super::Line;
use crate::durable::manifest::Item;
use crate::index_kinds;
use crate::index_kinds::FileChange;
use crate::options::KeyspaceOptions;
use glintdb_core::{FileKind, KeyspaceId};
use glintdb_log::Lsn;

const DEPTH: usize = 2;

/// The lines that show an item: one, or one for each file that an index edit adds or removes.
pub(crate) fn item_lines(item: &Item) -> Vec<Line> {
    let line = |what| Line::new(DEPTH, what);
    let of = |keyspace: &KeyspaceId, what| line(what).number("keyspace", keyspace.0);
    vec![match item {
        Item::Snapshot { db } => line("snapshot").text("database", db),
        Item::NumbersReserved(below) => line("file_numbers_reserved").number("below", *below),
        Item::KeyspaceCreated { id, name, options } => {
            let line = of(id, "keyspace_created").text("name", name);
            with_options(line, options)
        }
        Item::KeyspaceDropped { id, seqno } => of(id, "keyspace_dropped").number("seqno", seqno.0),
        Item::KeyspaceNext(next) => of(next, "next_keyspace"),
        Item::KeyspaceOptions { id, options } => with_options(of(id, "keyspace_options"), options),
        Item::IndexEdit { keyspace, edit } => return edit_lines(*keyspace, edit),
        Item::KeyspaceIndex { id, options, edit } => {
            let mut lines = vec![with_options(of(id, "keyspace_index"), options)];
            lines.extend(edit_lines(*id, edit));
            return lines;
        }
        Item::Liveness {
            keyspace,
            segment,
            bytes,
        } => of(keyspace, "live_bytes_changed")
            .text("file", segment.file())
            .number("by", *bytes),
        Item::FlushPoint(point) => {
            place(line("flush_point"), point.lsn).number("seqno", point.seqno.0)
        }
        Item::LogDurable(lsn) => place(line("log_durable"), *lsn),
        Item::Ring(bytes) => line("ring_may_hold_commits").number("ring_bytes", *bytes),
        Item::SegmentRetired(segment) => line("segment_retired").text("file", segment.file()),
    }]
}

/// The lines that show an edit of an index: one for each file that it adds or removes.
fn edit_lines(keyspace: KeyspaceId, edit: &[u8]) -> Vec<Line> {
    match index_kinds::file_changes(edit) {
        Ok(changes) => {
            let change = |change: &FileChange| file_change(keyspace, change);
            changes.iter().map(change).collect()
        }
        Err(error) => vec![
            Line::new(DEPTH, "damaged_index_edit")
                .number("keyspace", keyspace.0)
                .number("bytes", edit.len() as u64)
                .text("reason", error),
        ],
    }
}

fn place(line: Line, lsn: Lsn) -> Line {
    let line = line.text("file", lsn.segment.file());
    line.number("offset", lsn.offset)
}

fn with_options(line: Line, options: &KeyspaceOptions) -> Line {
    let options = options.entries().into_iter();
    options.fold(line, |line, (name, value)| line.text(name, value))
}

fn file_change(keyspace: KeyspaceId, change: &FileChange) -> Line {
    let what = match (change.id.kind, change.is_added) {
        (FileKind::Tree, true) => "branches_added",
        (FileKind::Tree, false) => "branches_removed",
        (_, true) => "table_added",
        (_, false) => "table_removed",
    };
    let mut line = Line::new(DEPTH, what)
        .number("keyspace", keyspace.0)
        .text("file", change.id);
    if let Some(level) = change.level {
        line = line.number("level", level);
    }
    if let Some(run) = change.run {
        line = line.number("run", run);
    }
    match &change.meta {
        Some(meta) => super::table_fields(line, meta),
        None => line,
    }
}
