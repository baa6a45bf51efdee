//! Which bytes of an undamaged file belong together: a header, a record, a frame, a value, a key block, a section. What is wrong with a byte may be told at the
//! beginning of its unit, and may take away the keys that need the unit, and no others.

use super::mutation::Target;
use super::subjects::Subject;
use glintdb_cache::Cache;
use glintdb_core::memory::MemoryBudget;
use glintdb_core::{Direction, FileId, FileKind, SegmentId};
use glintdb_flash::Volume;
use glintdb_log::{DumpItem, LogOp, LogValue};
use glintdb_runs::table::{Purpose, Table, TableEnv};
use glintdb_simdisk::{MemOptions, MemVolume};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Keys by their bytes: the same key of two keyspaces counts as one, which only widens what may fail.
pub type Keys = BTreeSet<Vec<u8>>;

/// Some bytes of a file.
#[derive(Debug)]
pub struct Unit {
    /// Which.
    pub range: Range<u64>,
    /// The keys that cannot be read without it; `None`: any may need it.
    pub keys: Option<Keys>,
}

/// The units of every file of a subject. What lies in no unit is by itself: nobody needs it.
pub struct Units(BTreeMap<Target, Vec<Unit>>);

impl Units {
    /// Of the undamaged image.
    #[must_use]
    pub fn of(subject: &Subject) -> Units {
        let volume = MemVolume::of_contents(&subject.image, MemOptions::default()).unwrap();
        let mut units = BTreeMap::new();
        for (id, bytes) in &subject.image.files {
            let of_file = match id.kind {
                FileKind::Manifest => manifest(bytes),
                FileKind::Log => segment(&*volume, *id),
                FileKind::Table => table(subject, &volume, *id),
                FileKind::Tree | FileKind::Reserve => Vec::new(),
            };
            units.insert(Target::File(*id), of_file);
        }
        Units(units)
    }

    /// The units that some bytes of a file touch.
    pub fn touched(&self, target: Target, range: &Range<u64>) -> impl Iterator<Item = &Unit> {
        let units = self.0.get(&target).map_or(&[][..], Vec::as_slice);
        let range = range.clone();
        units
            .iter()
            .filter(move |unit| unit.range.start < range.end && range.start < unit.range.end)
    }
}

fn unit(range: Range<u64>, keys: Option<Keys>) -> Unit {
    Unit { range, keys }
}

fn manifest(bytes: &[u8]) -> Vec<Unit> {
    let mut units = vec![unit(0..40, None)];
    let mut at = 40;
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        if length == 0 {
            break;
        }
        let end = (at + 8 + length).next_multiple_of(8);
        units.push(unit(at as u64..end as u64, None));
        at = end;
    }
    units
}

fn segment(volume: &dyn Volume, id: FileId) -> Vec<Unit> {
    let mut units = vec![unit(0..4096, None)];
    let Ok(dump) = glintdb_log::dump(volume, SegmentId(id.number)) else {
        return units;
    };
    for item in dump.flatten() {
        let DumpItem::Frame(frame) = item else {
            continue;
        };
        let start = u64::from(frame.lsn().offset);
        let end = start + frame.header().frame_bytes();
        // Header and metadata: whoever reads a value by its pointer needs neither.
        units.push(unit(start..end, Some(Keys::new())));
        for entry in frame.entries() {
            if let LogOp::Put {
                key,
                value: LogValue::Pointer(pointer),
            } = entry.op
            {
                let start = u64::from(pointer.offset);
                let keys = Keys::from([key.to_vec()]);
                units.push(unit(start..start + u64::from(pointer.length), Some(keys)));
            }
        }
    }
    units
}

fn table(subject: &Subject, volume: &Arc<MemVolume>, id: FileId) -> Vec<Unit> {
    let env = Arc::new(TableEnv {
        volume: Arc::clone(volume) as Arc<dyn Volume>,
        cache: Arc::new(Cache::new(1 << 20)),
        memory: Arc::new(MemoryBudget::new(1 << 20)),
        db: subject.db,
        reads: None,
        remaps: false,
    });
    let table = Table::open_file(&env, id).unwrap();
    let length = table.meta().bytes;
    let mut units = vec![unit(0..4096, Some(Keys::new()))];
    let fences: Vec<_> = table.fences().unwrap().collect();
    let mut end = 4096;
    for (index, fence) in fences.iter().enumerate() {
        let upper = fences
            .get(index + 1)
            .map_or(Bound::Unbounded, |next| Bound::Excluded(&*next.lower));
        let lower = Bound::Included(&*fence.lower);
        let purpose = Purpose::Compaction;
        let mut cursor = table.cursor(lower, upper, Direction::Forward, purpose);
        let mut keys = Keys::new();
        while cursor.advance().unwrap() {
            keys.insert(cursor.key().to_vec());
        }
        let handle = fence.handle;
        // A gap is told at its beginning.
        units.push(unit(end..handle.offset, Some(Keys::new())));
        end = handle.offset + u64::from(handle.length);
        units.push(unit(handle.offset..end, Some(keys)));
    }
    units.push(unit(end..table.meta().tail_offset, Some(Keys::new())));
    // Everything from the filter to the footer is read together, at first use.
    units.push(unit(table.meta().tail_offset..length, None));
    units
}
