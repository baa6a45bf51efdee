//! Which bytes of an undamaged file belong together: a header, a record, a frame, a value, a key block, a section. What is wrong with a byte may be told at the
//! beginning of its unit, and may take away the keys that need the unit, and no others.

use super::mutation::Target;
use super::probe::NEVER_THERE;
use super::subjects::Subject;
use glintdb_cache::Cache;
use glintdb_core::codec::Reader;
use glintdb_core::memory::MemoryBudget;
use glintdb_core::{Direction, EntryRef, FileId, FileKind, SegmentId};
use glintdb_flash::Volume;
use glintdb_log::{DumpItem, LogOp, LogValue};
use glintdb_runs::table::{BlockCursor, BlockFile, BlockHandle, Purpose, Table, TableEnv};
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
        let env = Arc::new(TableEnv {
            volume: Arc::clone(&volume) as Arc<dyn Volume>,
            cache: Arc::new(Cache::new(1 << 20)),
            memory: Arc::new(MemoryBudget::new(1 << 20)),
            db: subject.db,
            reads: None,
            remaps: false,
        });
        let mut units = BTreeMap::new();
        let mut branches = BTreeMap::new();
        for (id, bytes) in &subject.image.files {
            let of_file = match id.kind {
                FileKind::Manifest => manifest(bytes),
                FileKind::Log => segment(&*volume, *id),
                FileKind::Table => table(&env, *id),
                FileKind::Tree => {
                    branches.extend(branches_of(&env, *id, bytes));
                    continue;
                }
                FileKind::Reserve => Vec::new(),
            };
            units.insert(Target::File(*id), of_file);
        }
        let mut nodes = Nodes {
            ever: subject.keys.values().flatten().cloned().collect(),
            branches,
            keys: BTreeMap::new(),
        };
        nodes.ever.insert(NEVER_THERE.to_vec());
        nodes.walk();
        nodes.add_to(&mut units);
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

/// A branch of a B+tree, whether or not the tree still needs it.
struct Branch {
    bytes: u64,
    /// Each with its separator.
    children: Vec<(Vec<u8>, Place)>,
}

/// Number of the file, and offset in it.
type Place = (u64, u64);

/// The nodes of B+trees that branches name, and which keys each may have. There is no filter, so
/// keys that are not there need the node too.
struct Nodes {
    /// Keys that readers ask for.
    ever: Keys,
    branches: BTreeMap<Place, Branch>,
    keys: BTreeMap<Place, Keys>,
}

impl Nodes {
    /// Finds the keys of each node, from the branches on that no other one names.
    fn walk(&mut self) {
        let children = self.branches.values().flat_map(|branch| &branch.children);
        let named: BTreeSet<Place> = children.map(|(_, place)| *place).collect();
        let roots: Vec<Place> = self.branches.keys().copied().collect();
        for root in roots.into_iter().filter(|root| !named.contains(root)) {
            self.walk_node(root, &self.ever.clone());
        }
    }

    fn walk_node(&mut self, node: Place, keys: &Keys) {
        let all = self.keys.entry(node).or_default();
        all.extend(keys.iter().cloned());
        // Of a branch that the tree does not need any more, nodes may be gone.
        let branch = self.branches.get(&node);
        let children = branch.map_or(Vec::new(), |branch| branch.children.clone());
        for (index, (separator, child)) in children.iter().enumerate() {
            let upper = children.get(index + 1).map(|(upper, _)| upper);
            let of_child = keys.iter().filter(|key| {
                (index == 0 || *key >= separator) && upper.is_none_or(|upper| *key < upper)
            });
            let of_child = of_child.cloned().collect();
            self.walk_node(*child, &of_child);
        }
    }

    /// Adds the units of branches, and widens those of leaves.
    fn add_to(&self, units: &mut BTreeMap<Target, Vec<Unit>>) {
        for (&(number, offset), keys) in &self.keys {
            if let Some(branch) = self.branches.get(&(number, offset)) {
                let file = Target::File(FileId::new(FileKind::Tree, number));
                // No reader needs the header.
                let header = || vec![unit(0..4096, Some(Keys::new()))];
                let of_file = units.entry(file).or_insert_with(header);
                of_file.push(unit(offset..offset + branch.bytes, Some(keys.clone())));
                continue;
            }
            let file = Target::File(FileId::new(FileKind::Table, number));
            for unit in units.get_mut(&file).into_iter().flatten() {
                if let (Some(of_leaf), true) = (&mut unit.keys, unit.range.start == offset) {
                    of_leaf.extend(keys.iter().cloned());
                }
            }
        }
    }
}

/// The branches of a file by their places, as `docs/format/tree.md` describes them.
fn branches_of(env: &Arc<TableEnv>, id: FileId, bytes: &[u8]) -> BTreeMap<Place, Branch> {
    let file = BlockFile::new(env, id);
    let mut branches = BTreeMap::new();
    let mut offset = 4096;
    while offset < bytes.len() {
        let used = bytes[offset + 16..offset + 20].try_into().unwrap();
        let length = u32::from_le_bytes(used).next_multiple_of(4096);
        let handle = BlockHandle {
            index: 0,
            offset: offset as u64,
            length,
        };
        let end = offset + length as usize;
        let stored = bytes[offset..end].to_vec().into();
        let mut cursor = BlockCursor::new(Direction::Forward);
        let block = file.accept_uncached(handle, stored).unwrap();
        cursor.enter(id, block).unwrap();
        let mut children = Vec::new();
        while cursor.advance().unwrap() {
            let EntryRef::Inline(place) = cursor.value().unwrap() else {
                panic!("an entry of a branch is a place");
            };
            let mut place = Reader::new(place);
            let (number, at) = (place.varint().unwrap(), place.varint().unwrap());
            let offset = if at % 2 == 0 { at / 2 * 4096 } else { at / 2 };
            children.push((cursor.key().to_vec(), (number, offset)));
        }
        let bytes = u64::from(length);
        branches.insert((id.number, handle.offset), Branch { bytes, children });
        offset = end;
    }
    branches
}

fn table(env: &Arc<TableEnv>, id: FileId) -> Vec<Unit> {
    let table = Table::open_file(env, id).unwrap();
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
