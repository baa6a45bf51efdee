//! Writes what is left when deletions are applied into the new database.

use super::Work;
use super::candidates::{Candidates, RangeDeleted, Space, What, When};
use super::tables::Values;
use crate::options::{KeyspaceOptions, Options};
use crate::{Batch, Db, Durability, ErrorKind, Result};
use glintdb_core::KeyspaceId;
use std::path::Path;

/// Bytes of a batch.
const BATCH_BYTES: usize = 1 << 20;

pub(super) fn write(work: &mut Work<'_>, candidates: &Candidates, out: &Path) -> Result<()> {
    let db = Options::default()
        .memory_budget_bytes(work.options.memory_budget_bytes)
        .durability(Durability::Buffered)
        .error_if_exists(true)
        .open(out)?;
    // Keyspaces without a record are restored too.
    for (id, record) in &work.source.keyspaces {
        let name = work.source.name(*id);
        create_keyspace(&db, &name, &record.options)?;
        work.report.keyspaces.entry(name).or_default();
    }
    for (id, space) in candidates.spaces() {
        one(work, &db, id, space)?;
    }
    db.flush()?;
    db.flush_log(Durability::Sync)?;
    db.close()
}

/// The keyspace `name` of the new database, with `options`. The default keyspace is there from the
/// beginning.
fn create_keyspace(db: &Db, name: &str, options: &KeyspaceOptions) -> Result<()> {
    match db.create_keyspace(name, options.clone()) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            db.keyspace(name)?.set_options(options.clone())
        }
        created => created.map(drop),
    }
}

fn one(work: &mut Work<'_>, db: &Db, id: KeyspaceId, space: &Space) -> Result<()> {
    let name = work.source.name(id);
    let keyspace = db.keyspace_or_create(&name, KeyspaceOptions::default())?;
    let mut deleted = Deleted::new(space.ranges_deleted());
    let mut values = Values::new(&**work.volume);
    let mut batch = Batch::new();
    let mut written = 0;
    for version in space.versions() {
        let (key, when, what) = version?;
        if deleted.newest(&key).is_some_and(|deletion| deletion > when) {
            continue;
        }
        let value = match what {
            What::Deleted => continue,
            What::Value(value) => value,
            What::Pointer(pointer) => match values.read(&pointer) {
                Some(value) => value,
                None => {
                    // It was there a moment ago.
                    work.report.lost_key(&name, &key);
                    continue;
                }
            },
        };
        // Behind the flush point the log is followed by nothing that could be lost with a table.
        let old = !work.source.whole || when.seqno <= work.source.flush_point.seqno;
        let older = space.suspected(&key)?.is_some_and(|lost| lost > when.seqno);
        if older || (old && space.is_in_lost_range(&key)) {
            work.report.uncertain += 1;
        }
        work.report.bytes += (key.len() + value.len()) as u64;
        written += 1;
        batch.put(&keyspace, &key, &value);
        if batch.size_bytes() >= BATCH_BYTES {
            db.write(std::mem::take(&mut batch))?;
        }
    }
    if !batch.is_empty() {
        db.write(batch)?;
    }
    let mut deleted = Deleted::new(space.ranges_deleted());
    for lost in space.lost() {
        let (key, when) = lost?;
        // Unless it was deleted since: by a later commit, or later in its own batch.
        if deleted.newest(&key).is_none_or(|deletion| deletion < when) {
            work.report.lost_key(&name, &key);
        }
    }
    *work.report.keyspaces.entry(name).or_default() += written;
    Ok(())
}

/// Range tombstones, walked in key order.
struct Deleted<'d> {
    /// By start.
    coming: std::iter::Peekable<std::vec::IntoIter<&'d RangeDeleted>>,
    open: Vec<&'d RangeDeleted>,
}

impl<'d> Deleted<'d> {
    fn new(all: &'d [RangeDeleted]) -> Self {
        let mut all: Vec<&RangeDeleted> = all.iter().collect();
        all.sort_by(|a, b| a.start.cmp(&b.start));
        Deleted {
            coming: all.into_iter().peekable(),
            open: Vec::new(),
        }
    }

    /// The newest deletion of a range with `key` in it; keys ascend from call to call.
    fn newest(&mut self, key: &[u8]) -> Option<When> {
        while let Some(next) = self.coming.next_if(|next| next.start.as_ref() <= key) {
            self.open.push(next);
        }
        self.open
            .retain(|range| range.end.as_ref().is_none_or(|end| key < end.as_ref()));
        self.open.iter().map(|range| range.when).max()
    }
}
