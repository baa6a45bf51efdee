//! What the files of a damaged database are: identity, keyspaces, which table belongs to which, where replay would begin.

use super::SalvageReport;
use crate::durable::manifest::{
    FlushPoint, Item, KeyspaceRecord, RecordReader, read_newest, read_whole, salvage_records,
};
use crate::index_kinds;
use crate::options::{IndexKind, KeyspaceOptions};
use crate::{DEFAULT_KEYSPACE, Error, Result};
use glintdb_core::codec::Reader;
use glintdb_core::{DbId, FileId, FileKind, KeyspaceId, SegmentId, SeqNum};
use glintdb_flash::Volume;
use glintdb_log::Lsn;
use glintdb_log::format::segment::SegmentHeader;
use glintdb_runs::table::{TableMeta, salvage::database_of};
use std::collections::{BTreeMap, BTreeSet};

/// Tables that nobody could assign become keyspaces of their own, with ids from here down.
const UNASSIGNED_ID: u32 = u32::MAX;

/// See the module.
pub(super) struct Source {
    pub(super) db: DbId,
    /// Only with a whole manifest: which keyspaces and tables there are, and where replay begins, is known.
    pub(super) whole: bool,
    pub(super) keyspaces: BTreeMap<KeyspaceId, KeyspaceRecord>,
    pub(super) dropped: BTreeSet<KeyspaceId>,
    /// With a whole manifest: it has given out no keyspace from this one on. What is of one all the same, the manifest has forgotten.
    pub(super) keyspace_next: KeyspaceId,
    /// By file number. Those of B+trees only without a whole manifest.
    pub(super) tables: BTreeMap<u64, (KeyspaceId, TableMeta)>,
    /// Only with a whole manifest: the edits of B+trees, which are read by their roots.
    pub(super) trees: BTreeMap<KeyspaceId, Vec<Vec<u8>>>,
    /// Table files whose keyspace no manifest tells.
    pub(super) unassigned: Vec<FileId>,
    pub(super) segments: Vec<SegmentId>,
    /// Those in which the manifest counts live values; known only with a whole one.
    pub(super) live: Vec<SegmentId>,
    pub(super) flush_point: FlushPoint,
    pub(super) total_bytes: u64,
}

impl Source {
    /// Whether records of keyspace `id` are wanted; without a whole manifest those of any that was not dropped.
    pub(super) fn wants(&self, id: KeyspaceId) -> bool {
        match self.whole {
            true => self.keyspaces.contains_key(&id) || self.has_forgotten(id),
            false => !self.dropped.contains(&id),
        }
    }

    /// Whether the manifest, whole as it is, has lost the record of a keyspace's creation: its end was cut off between two records.
    pub(super) fn has_forgotten(&self, id: KeyspaceId) -> bool {
        self.whole && id >= self.keyspace_next
    }

    /// The name that a keyspace gets.
    pub(super) fn name(&self, id: KeyspaceId) -> String {
        match self.keyspaces.get(&id) {
            Some(record) => record.name.clone(),
            None if id.0 == 0 => DEFAULT_KEYSPACE.to_owned(),
            None => format!("keyspace-{}", id.0),
        }
    }

    /// A keyspace for a table that cannot be assigned.
    pub(super) fn unassigned_keyspace(&mut self, table: FileId) -> KeyspaceId {
        let mut id = KeyspaceId(UNASSIGNED_ID);
        while self.keyspaces.contains_key(&id) {
            id.0 -= 1;
        }
        let record = KeyspaceRecord {
            name: format!("table-{}", table.number),
            options: KeyspaceOptions::default(),
        };
        self.keyspaces.insert(id, record);
        id
    }
}

/// Looks at all files.
pub(super) fn read(volume: &dyn Volume, report: &mut SalvageReport) -> Result<Source> {
    let files = volume.list()?;
    if files.is_empty() {
        return Err(Error::invalid("the directory holds no file of a database"));
    }
    let mut total_bytes = 0;
    for &id in &files {
        let entry = report.files.entry(id.to_string()).or_default();
        entry.bytes = volume.open(id).and_then(|file| file.len()).unwrap_or(0);
        total_bytes += entry.bytes;
    }
    let of_kind = |kind| {
        files
            .iter()
            .copied()
            .filter(move |id: &FileId| id.kind == kind)
    };
    let mut source = Source {
        db: DbId([0; 16]),
        whole: false,
        keyspaces: BTreeMap::new(),
        dropped: BTreeSet::new(),
        keyspace_next: KeyspaceId(0),
        tables: BTreeMap::new(),
        trees: BTreeMap::new(),
        unassigned: Vec::new(),
        segments: of_kind(FileKind::Log)
            .map(|id| SegmentId(id.number))
            .collect(),
        live: Vec::new(),
        flush_point: FlushPoint {
            lsn: Lsn::ZERO,
            seqno: SeqNum::ZERO,
        },
        total_bytes,
    };
    let edits = match read_newest(volume) {
        Ok(found) => found.loaded.map(|loaded| {
            source.db = loaded.db;
            source.whole = true;
            // Those of retired segments are shadowed, hidden, or elsewhere too.
            source.live = loaded.state.live_segments();
            let mut gone = source.live.clone();
            source.keyspaces = loaded.state.keyspaces;
            source.keyspace_next = loaded.state.keyspace_next;
            source.flush_point = loaded.state.flush_point;
            gone.retain(|id| !source.segments.contains(id));
            for id in gone {
                let error = Error::corruption(
                    id.file(),
                    0,
                    "expected a segment with live values, found no such file",
                );
                report.damage(id.file(), error);
            }
            loaded.edits
        }),
        Err(error) => {
            let file = of_kind(FileKind::Manifest)
                .next_back()
                .unwrap_or(FileId::new(FileKind::Manifest, 0));
            report.damage(file, error);
            None
        }
    };
    report.manifest_whole = source.whole;
    let edits = match edits {
        Some(edits) => edits,
        None => {
            report.notes.push("the manifest is not whole: names of keyspaces may be lost, and records that were deleted may be back".into());
            source.db = identity(volume, &files)?;
            remains(volume, &mut source, of_kind(FileKind::Manifest))
        }
    };
    for (keyspace, edits) in edits {
        let record = source.keyspaces.get(&keyspace);
        let is_tree = record.is_some_and(|record| record.options.index == IndexKind::BTree);
        if source.whole && is_tree {
            source.trees.insert(keyspace, edits);
            continue;
        }
        for meta in index_kinds::tables_after(&edits) {
            source.tables.insert(meta.id.number, (keyspace, meta));
        }
    }
    if !source.whole {
        source.unassigned = of_kind(FileKind::Table)
            .filter(|id| !source.tables.contains_key(&id.number))
            .collect();
        // What the remains name and is not there may have been replaced later.
        let there: BTreeSet<u64> = of_kind(FileKind::Table).map(|id| id.number).collect();
        source.tables.retain(|number, _| there.contains(number));
    }
    Ok(source)
}

/// The database that most files say they belong to.
fn identity(volume: &dyn Volume, files: &[FileId]) -> Result<DbId> {
    let mut votes: BTreeMap<[u8; 16], u64> = BTreeMap::new();
    for &id in files {
        let db = match id.kind {
            FileKind::Manifest => read_whole(volume, id).ok().and_then(|bytes| {
                let (db, _) = RecordReader::open(id, &bytes).ok()?;
                Some(db)
            }),
            FileKind::Log => volume.open(id).ok().and_then(|file| {
                let block = file.read_at(0, 4096).ok()?;
                let header = SegmentHeader::decode(SegmentId(id.number), &block).ok()?;
                Some(header.db)
            }),
            FileKind::Table => database_of(volume, id),
            FileKind::Tree | FileKind::Reserve => None,
        };
        if let Some(DbId(db)) = db {
            *votes.entry(db).or_default() += 1;
        }
    }
    let most = votes.into_iter().max_by_key(|(_, votes)| *votes);
    most.map(|(db, _)| DbId(db)).ok_or_else(|| {
        Error::invalid("no file has a whole header that says which database it belongs to; nothing can be verified")
    })
}

/// What single records of damaged manifests still tell; the edits of each index.
fn remains(
    volume: &dyn Volume,
    source: &mut Source,
    manifests: impl Iterator<Item = FileId>,
) -> BTreeMap<KeyspaceId, Vec<Vec<u8>>> {
    let mut edits: BTreeMap<KeyspaceId, Vec<Vec<u8>>> = BTreeMap::new();
    for id in manifests {
        let Ok(bytes) = read_whole(volume, id) else {
            continue;
        };
        for payload in salvage_records(id, source.db, &bytes) {
            let mut reader = Reader::new(payload);
            while let Some(Ok(item)) = Item::decode(&mut reader) {
                match item {
                    Item::KeyspaceCreated { id, name, options } => {
                        source
                            .keyspaces
                            .insert(id, KeyspaceRecord { name, options });
                    }
                    Item::KeyspaceOptions { id, options } => {
                        if let Some(record) = source.keyspaces.get_mut(&id) {
                            record.options = options;
                        }
                    }
                    Item::KeyspaceDropped { id, .. } => {
                        source.keyspaces.remove(&id);
                        source.dropped.insert(id);
                        edits.remove(&id);
                    }
                    Item::IndexEdit { keyspace, edit } => {
                        edits.entry(keyspace).or_default().push(edit);
                    }
                    Item::KeyspaceIndex { id, options, edit } => {
                        if let Some(record) = source.keyspaces.get_mut(&id) {
                            record.options = options;
                        }
                        edits.insert(id, vec![edit]);
                    }
                    _ => {}
                }
            }
        }
    }
    edits
}
