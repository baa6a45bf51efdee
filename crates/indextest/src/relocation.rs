//! Relocations under test: entries get other pointers and nothing else.

use crate::{Model, Random, VecRun};
use bytes::Bytes;
use glintdb_core::index::{Index, IndexChange, IndexView, Relocation};
use glintdb_core::{Direction, EntryRef, EntryValue, SegmentId, SeqNum, ValuePointer};
use std::ops::Bound;

/// First segment of relocated values; one a relocation, in the order in which they were begun.
pub(crate) const SEGMENTS: u64 = 1000;

/// A relocation that is pending.
pub struct Relocating {
    /// The relocation itself.
    pub relocation: Box<dyn Relocation>,
    segment: SegmentId,
}

impl Relocating {
    /// Number `n` of those begun so far.
    pub fn begin(index: &dyn Index, n: u64) -> Relocating {
        Relocating {
            relocation: index.begin_relocation(),
            segment: SegmentId(SEGMENTS + n),
        }
    }

    /// Writes a part of the live pointers of its view, each to the relocation's own segment.
    pub fn write(self, random: &mut Random) -> (IndexChange, Moved) {
        let one_in = 1 + random.below(3);
        self.write_one_in(one_in, random)
    }

    /// Writes one in so many of them.
    pub fn write_one_in(self, one_in: u64, random: &mut Random) -> (IndexChange, Moved) {
        let mut moved = Moved(Vec::new());
        for (key, seqno, pointer) in live_pointers(self.relocation.view().as_ref()) {
            if random.one_in(one_in) {
                let pointer = ValuePointer {
                    segment: self.segment,
                    offset: random.next() as u32,
                    ..pointer
                };
                moved.0.push((key, seqno, pointer));
            }
        }
        let mut run = VecRun::default();
        for (key, seqno, pointer) in &moved.0 {
            let value = EntryValue::Pointer(*pointer);
            run.entries.push((key.clone(), *seqno, value));
        }
        (self.relocation.write(&mut run).unwrap(), moved)
    }
}

/// Entries with the pointers that they have got.
pub struct Moved(pub Vec<(Bytes, SeqNum, ValuePointer)>);

impl Moved {
    /// Tells a model of the relocation. Entries written since are newer, and of two relocations the
    /// one that began later counts.
    pub fn note(self, model: &mut Model) {
        for (key, seqno, pointer) in self.0 {
            if let Some((newest, EntryValue::Pointer(at))) = model.points.get_mut(&key)
                && *newest == seqno
                && (at.segment.0 < SEGMENTS || at.segment < pointer.segment)
            {
                *at = pointer;
            }
        }
    }
}

/// The pointers of a view, each with its key.
pub fn live_pointers(view: &dyn IndexView) -> Vec<(Bytes, SeqNum, ValuePointer)> {
    let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = view.cursor(lower, upper, Direction::Forward).unwrap();
    let mut found = Vec::new();
    while cursor.advance().unwrap() {
        if let EntryRef::Pointer(pointer) = cursor.value() {
            found.push((
                Bytes::copy_from_slice(cursor.key()),
                cursor.seqno(),
                pointer,
            ));
        }
    }
    found
}
