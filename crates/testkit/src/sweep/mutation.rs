//! What can be done to an image. Every mutation of a kind has a number, the same every time, so that a failure can be repeated by `--kind K --index N`.
//!
//! Invariants: 1. a mutation that changes nothing (equal blocks swapped) is not made at all. 2. Undamaged files share their bytes with the subject.

use super::subjects::Subject;
use bytes::Bytes;
use glintdb_core::FileId;
use glintdb_simdisk::{Contents, SECTOR_BYTES};
use std::fmt;
use std::ops::Range;

/// Blocks swapped between files.
const BLOCK_BYTES: usize = 4096;
/// The ring's length is a multiple of this; other lengths are refused by the volume itself.
const RING_STEP_BYTES: usize = 4096;

/// A file, or the ring.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// A file.
    File(FileId),
    /// The ring.
    Ring,
}

impl Target {
    /// As errors name it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Target::File(id) => id.to_string(),
            Target::Ring => "ring".into(),
        }
    }

    /// Kind of file, for tables.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Target::File(id) => id.kind.prefix(),
            Target::Ring => "ring",
        }
    }

    /// Its bytes in an image.
    #[must_use]
    pub fn bytes(self, image: &Contents) -> Option<&Bytes> {
        match self {
            Target::File(id) => image.files.get(&id),
            Target::Ring => image.ring.as_ref(),
        }
    }

    fn put(self, image: &mut Contents, bytes: Option<Vec<u8>>) {
        let bytes = bytes.map(Bytes::from);
        match self {
            Target::Ring => image.ring = bytes,
            Target::File(id) => match bytes {
                Some(bytes) => drop(image.files.insert(id, bytes)),
                None => drop(image.files.remove(&id)),
            },
        }
    }
}

/// Families of mutations, as `--kind` takes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    /// Single bits.
    Bits,
    /// Pairs of blocks.
    Swaps,
    /// Every shorter length, and some longer ones.
    Truncations,
    /// Whole files: gone, replaced, exchanged.
    Files,
}

impl Family {
    /// Every one.
    pub const ALL: [Family; 4] = [
        Family::Bits,
        Family::Swaps,
        Family::Truncations,
        Family::Files,
    ];

    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Family::Bits => "bits",
            Family::Swaps => "swaps",
            Family::Truncations => "truncations",
            Family::Files => "files",
        }
    }
}

/// One thing done to an image.
#[derive(Clone, PartialEq, Debug)]
pub enum Mutation {
    /// One bit is the other way round.
    Flip {
        /// Where.
        target: Target,
        /// Which: 8 times the byte's offset, plus the bit.
        bit: u64,
    },
    /// Two ranges of equal length are exchanged.
    Swap {
        /// One file.
        a: Target,
        /// Where in it.
        at_a: usize,
        /// The other file, or the same.
        b: Target,
        /// Where in it.
        at_b: usize,
        /// How long the ranges are.
        bytes: usize,
    },
    /// The file ends earlier.
    Truncate {
        /// Which.
        target: Target,
        /// Where.
        length: usize,
    },
    /// The file goes on behind its end.
    Extend {
        /// Which.
        target: Target,
        /// For how long.
        by: usize,
        /// With what.
        with: u8,
    },
    /// A range is all zeros.
    Zero {
        /// Which file.
        target: Target,
        /// Where.
        at: usize,
        /// For how long.
        bytes: usize,
    },
    /// The file is not there.
    Delete {
        /// Which.
        target: Target,
    },
    /// The file has the bytes of a file of another image.
    Replace {
        /// Which.
        target: Target,
        /// The donor's number in [`Subject::donors`].
        donor: usize,
        /// The file there.
        from: Target,
    },
    /// A file of an earlier image stands there that is not there any more.
    Return {
        /// Which.
        target: Target,
        /// The donor's number.
        donor: usize,
    },
    /// Two files have each other's bytes.
    Exchange {
        /// One.
        a: Target,
        /// The other.
        b: Target,
    },
}

/// What a mutation changed: file and bytes (of the longer of the two, before and after).
pub type Damage = Vec<(Target, Range<u64>)>;

impl Mutation {
    /// The file that the tables count it under.
    #[must_use]
    pub fn target(&self) -> Target {
        match self {
            Mutation::Flip { target, .. }
            | Mutation::Truncate { target, .. }
            | Mutation::Extend { target, .. }
            | Mutation::Zero { target, .. }
            | Mutation::Delete { target }
            | Mutation::Replace { target, .. }
            | Mutation::Return { target, .. } => *target,
            Mutation::Swap { a, .. } | Mutation::Exchange { a, .. } => *a,
        }
    }

    /// The name of what was done, for tables.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match self {
            Mutation::Flip { .. } => "bit flipped",
            Mutation::Swap { bytes, .. } if *bytes == SECTOR_BYTES => "sectors swapped",
            Mutation::Swap { .. } => "blocks swapped",
            Mutation::Truncate { .. } => "truncated",
            Mutation::Extend { .. } => "extended",
            Mutation::Zero { .. } => "sector zeroed",
            Mutation::Delete { .. } => "deleted",
            Mutation::Replace { .. } => "replaced",
            Mutation::Return { .. } => "returned",
            Mutation::Exchange { .. } => "exchanged",
        }
    }

    /// Whether it is one bit of a sector to which nothing was written yet.
    #[must_use]
    pub fn in_unwritten_sector(&self, subject: &Subject) -> bool {
        let Mutation::Flip { target, bit } = self else {
            return false;
        };
        let sector = (bit / 8) as usize / SECTOR_BYTES;
        let bytes = target.bytes(&subject.image);
        let sector = bytes.and_then(|bytes| bytes.chunks(SECTOR_BYTES).nth(sector));
        sector.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    }

    /// The damaged image, and what is damaged in it; `None`: it is what it was.
    #[must_use]
    pub fn apply(&self, subject: &Subject) -> Option<(Contents, Damage)> {
        let old = &subject.image;
        let mut image = old.clone();
        let bytes = |target: Target| target.bytes(old).map(|bytes| bytes.to_vec());
        let whole = |target: Target| 0..target.bytes(old).map_or(0, |bytes| bytes.len() as u64);
        let mut damage = Damage::new();
        match self {
            Mutation::Flip { target, bit } => {
                let mut new = bytes(*target)?;
                *new.get_mut((bit / 8) as usize)? ^= 1 << (bit % 8);
                target.put(&mut image, Some(new));
                damage.push((*target, bit / 8..bit / 8 + 1));
            }
            Mutation::Swap {
                a,
                at_a,
                b,
                at_b,
                bytes: length,
            } => {
                let (range_a, range_b) = (*at_a..at_a + length, *at_b..at_b + length);
                let mut new = bytes(*a)?;
                if a == b {
                    let first = new[range_a.clone()].to_vec();
                    new.copy_within(range_b.clone(), *at_a);
                    new[range_b.clone()].copy_from_slice(&first);
                } else {
                    let mut other = bytes(*b)?;
                    new[range_a.clone()].swap_with_slice(&mut other[range_b.clone()]);
                    b.put(&mut image, Some(other));
                }
                a.put(&mut image, Some(new));
                for (target, range) in [(*a, range_a), (*b, range_b)] {
                    damage.push((target, range.start as u64..range.end as u64));
                }
            }
            Mutation::Truncate { target, length } => {
                let mut new = bytes(*target)?;
                damage.push((*target, *length as u64..new.len() as u64));
                new.truncate(*length);
                target.put(&mut image, Some(new));
            }
            Mutation::Extend { target, by, with } => {
                let mut new = bytes(*target)?;
                damage.push((*target, new.len() as u64..(new.len() + by) as u64));
                new.resize(new.len() + by, *with);
                target.put(&mut image, Some(new));
            }
            Mutation::Zero {
                target,
                at,
                bytes: length,
            } => {
                let mut new = bytes(*target)?;
                let end = (at + length).min(new.len());
                new.get_mut(*at..end)?.fill(0);
                target.put(&mut image, Some(new));
                damage.push((*target, *at as u64..end as u64));
            }
            Mutation::Delete { target } => {
                damage.push((*target, whole(*target)));
                target.put(&mut image, None);
            }
            Mutation::Replace {
                target,
                donor,
                from,
            } => {
                let new = from.bytes(&subject.donors.get(*donor)?.1)?.to_vec();
                let end = whole(*target).end.max(new.len() as u64);
                damage.push((*target, 0..end));
                target.put(&mut image, Some(new));
            }
            Mutation::Return { target, donor } => {
                let new = target.bytes(&subject.donors.get(*donor)?.1)?.to_vec();
                damage.push((*target, 0..new.len() as u64));
                target.put(&mut image, Some(new));
            }
            Mutation::Exchange { a, b } => {
                let (first, second) = (bytes(*a)?, bytes(*b)?);
                let end = first.len().max(second.len()) as u64;
                a.put(&mut image, Some(second));
                b.put(&mut image, Some(first));
                damage.extend([(*a, 0..end), (*b, 0..end)]);
            }
        }
        (image != *old).then_some((image, damage))
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.what();
        let name = self.target().name();
        match self {
            Mutation::Flip { bit, .. } => {
                write!(f, "{name}: bit {} of byte {} flipped", bit % 8, bit / 8)
            }
            Mutation::Swap { at_a, b, at_b, .. } => {
                write!(f, "{what}: {name} at {at_a} with {} at {at_b}", b.name())
            }
            Mutation::Truncate { length, .. } => write!(f, "{name}: truncated to {length} bytes"),
            Mutation::Extend { by, with, .. } => {
                write!(f, "{name}: extended by {by} bytes {with:#04x}")
            }
            Mutation::Zero { at, .. } => write!(f, "{name}: sector at {at} zeroed"),
            Mutation::Delete { .. } => write!(f, "{name}: deleted"),
            Mutation::Replace { donor, from, .. } => {
                write!(f, "{name}: replaced by {} of donor {donor}", from.name())
            }
            Mutation::Return { donor, .. } => write!(f, "{name}: there again, from donor {donor}"),
            Mutation::Exchange { b, .. } => write!(f, "{name}: exchanged with {}", b.name()),
        }
    }
}

/// Every target of an image.
#[must_use]
pub fn targets(image: &Contents) -> Vec<Target> {
    let files = image.files.keys().map(|id| Target::File(*id));
    files
        .chain(image.ring.is_some().then_some(Target::Ring))
        .collect()
}

fn length(image: &Contents, target: Target) -> usize {
    target.bytes(image).map_or(0, Bytes::len)
}

/// Every mutation of a family, in order. `visit` gets the number and the mutation.
pub fn each(subject: &Subject, family: Family, visit: &mut dyn FnMut(Mutation)) {
    match family {
        Family::Bits => {
            for target in targets(&subject.image) {
                for bit in 0..8 * length(&subject.image, target) as u64 {
                    visit(Mutation::Flip { target, bit });
                }
            }
        }
        Family::Swaps => swaps(subject, visit),
        Family::Truncations => truncations(subject, visit),
        Family::Files => files(subject, visit),
    }
}

fn swaps(subject: &Subject, visit: &mut dyn FnMut(Mutation)) {
    let image = &subject.image;
    let all = targets(image);
    // Equal blocks give nothing new: only the first of each content is swapped with others, and every pair of different contents comes once for each place.
    for &target in &all {
        let Some(bytes) = target.bytes(image) else {
            continue;
        };
        let sectors: Vec<&[u8]> = bytes.chunks_exact(SECTOR_BYTES).collect();
        for (a, first) in sectors.iter().enumerate() {
            for (b, second) in sectors.iter().enumerate().skip(a + 1) {
                if first != second {
                    visit(Mutation::Swap {
                        a: target,
                        at_a: a * SECTOR_BYTES,
                        b: target,
                        at_b: b * SECTOR_BYTES,
                        bytes: SECTOR_BYTES,
                    });
                }
            }
        }
        for (at, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            if sector.iter().any(|&byte| byte != 0) {
                visit(Mutation::Zero {
                    target,
                    at: at * SECTOR_BYTES,
                    bytes: SECTOR_BYTES,
                });
            }
        }
    }
    for (index, &a) in all.iter().enumerate() {
        for &b in all.iter().skip(index + 1).filter(|b| b.kind() == a.kind()) {
            let (Some(bytes_a), Some(bytes_b)) = (a.bytes(image), b.bytes(image)) else {
                continue;
            };
            for (block_a, first) in bytes_a.chunks_exact(BLOCK_BYTES).enumerate() {
                for (block_b, second) in bytes_b.chunks_exact(BLOCK_BYTES).enumerate() {
                    if first != second {
                        visit(Mutation::Swap {
                            a,
                            at_a: block_a * BLOCK_BYTES,
                            b,
                            at_b: block_b * BLOCK_BYTES,
                            bytes: BLOCK_BYTES,
                        });
                    }
                }
            }
        }
    }
}

fn truncations(subject: &Subject, visit: &mut dyn FnMut(Mutation)) {
    for target in targets(&subject.image) {
        let step = match target {
            Target::File(_) => 1,
            Target::Ring => RING_STEP_BYTES,
        };
        let end = length(&subject.image, target);
        // An empty ring is no ring: that is its deletion.
        let first = if target == Target::Ring { step } else { 0 };
        for length in (first..end).step_by(step) {
            visit(Mutation::Truncate { target, length });
        }
        for by in [1, 8, 39, 40, 96, 512, 4095, 4096, 8192, 70_000] {
            if target == Target::Ring && by % RING_STEP_BYTES != 0 {
                continue;
            }
            for with in [0, 1, 0xff] {
                visit(Mutation::Extend { target, by, with });
            }
        }
    }
}

fn files(subject: &Subject, visit: &mut dyn FnMut(Mutation)) {
    let image = &subject.image;
    let all = targets(image);
    for &target in &all {
        visit(Mutation::Delete { target });
        for (donor, (_, contents)) in subject.donors.iter().enumerate() {
            // Its namesake there, and every other file of its kind under its name.
            for from in targets(contents) {
                if from.kind() == target.kind() {
                    visit(Mutation::Replace {
                        target,
                        donor,
                        from,
                    });
                }
            }
        }
    }
    for (donor, (_, contents)) in subject.donors.iter().enumerate() {
        for target in targets(contents) {
            if target.bytes(image).is_none() {
                visit(Mutation::Return { target, donor });
            }
        }
    }
    for (index, &a) in all.iter().enumerate() {
        for &b in all.iter().skip(index + 1) {
            if matches!((a, b), (Target::File(_), Target::File(_))) {
                visit(Mutation::Exchange { a, b });
            }
        }
    }
}
