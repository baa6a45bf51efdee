//! Blocked Bloom filter: each key sets `probes` bits in one 64-byte line, so a test costs one cache miss.
//!
//! Section: checksum u32 (of everything behind it), probes u32, lines u64, then the lines, each eight u64 little-endian. The line of hash *h* is
//! `(h >> 32) * lines >> 32`; probe *i* tests bit `g >> 23` of the line (bit *b* is bit `b % 64` of word `b / 64`), where *g* starts as the low 32 bits of *h*
//! and is multiplied by `0x9e3779b9` before each probe. False positives at 10 bits a key: 1.0 % measured and in theory (lines fill unevenly; an unblocked filter has 0.8 %).

use super::format::{FILTER_HEADER_BYTES, FILTER_LINE_BYTES};
use glintdb_core::checksum::FileSeed;
use glintdb_core::codec::Reader;
use glintdb_core::planted;

const GOLDEN: u32 = 0x9e37_79b9;
const _: () = assert!(size_of::<Line>() == FILTER_LINE_BYTES);

/// Hash of a key for filters: XXH3, 64 bits, seed 0.
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// A filter in memory.
pub(super) struct Filter {
    probes: u32,
    lines: Box<[Line]>,
}

fn line_of(hash: u64, lines: usize) -> usize {
    let line = ((hash >> 32) * lines as u64) >> 32;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "below `lines`, which is a usize"
    )]
    let line = line as usize;
    line
}

/// Word and mask of each probe.
fn probes_of(hash: u64, probes: u32) -> impl Iterator<Item = (usize, u64)> {
    #[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
    let mut probe = hash as u32;
    (0..probes).map(move |_| {
        probe = probe.wrapping_mul(GOLDEN);
        let bit = probe >> 23;
        ((bit >> 6) as usize, 1u64 << (bit & 63))
    })
}

/// Number of probes that gives the fewest false positives in lines of 512 bits: a little under `bits * ln 2`.
fn probes_for(bits_per_key: f32) -> u32 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 16"
    )]
    let probes = (f64::from(bits_per_key) * 0.6).round().clamp(1.0, 16.0) as u32;
    probes
}

impl Filter {
    /// The filter of `hashes`; `None` where there is nothing to filter.
    pub(super) fn build(hashes: &[u64], bits_per_key: f32) -> Option<Filter> {
        if hashes.is_empty() || bits_per_key <= 0.0 {
            return None;
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a size; precision does not matter"
        )]
        let lines = (hashes.len() as f64 * f64::from(bits_per_key) / 512.0).ceil() as usize;
        let lines = lines.clamp(1, u32::MAX as usize);
        let mut filter = Filter {
            probes: probes_for(bits_per_key),
            lines: vec![Line([0; 8]); lines].into_boxed_slice(),
        };
        let hashes = planted!(
            "lsm: a filter forgets its last key",
            hashes,
            &hashes[..hashes.len() - 1]
        );
        for &hash in hashes {
            let line = &mut filter.lines[line_of(hash, lines)];
            for (word, mask) in probes_of(hash, filter.probes) {
                line.0[word] |= mask;
            }
        }
        Some(filter)
    }

    /// Whether the key may be in the table.
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let Some(line) = self.lines.get(line_of(hash, self.lines.len())) else {
            return true;
        };
        let mut missing = 0;
        for (word, mask) in probes_of(hash, self.probes) {
            missing |= !line.0[word & 7] & mask;
        }
        missing == 0
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// Length of the section.
    pub(super) fn section_bytes(&self) -> usize {
        FILTER_HEADER_BYTES + self.memory_bytes()
    }

    /// The section as it stands at `offset` of the file.
    pub(super) fn encode(&self, seed: FileSeed, offset: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.section_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.probes.to_le_bytes());
        out.extend_from_slice(&(self.lines.len() as u64).to_le_bytes());
        for word in self.lines.iter().flat_map(|line| line.0) {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let checksum = seed.checksum(offset, &out[4..]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads a section whose checksum was verified.
    pub(super) fn decode(section: &[u8]) -> Option<Filter> {
        let mut reader = Reader::new(section);
        reader.u32()?;
        let probes = reader.u32()?;
        let lines = usize::try_from(reader.u64()?).ok()?;
        let bytes = lines.checked_mul(FILTER_LINE_BYTES)?;
        if reader.rest().len() != bytes || lines == 0 || !(1..=16).contains(&probes) {
            return None;
        }
        let lines = reader
            .rest()
            .chunks_exact(FILTER_LINE_BYTES)
            .map(|bytes| {
                let mut line = Line([0; 8]);
                for (word, bytes) in line.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
                line
            })
            .collect();
        Some(Filter { probes, lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glintdb_core::{DbId, FileId, FileKind};

    fn hashes(range: std::ops::Range<u64>) -> Vec<u64> {
        range.map(|n| key_hash(&n.to_be_bytes())).collect()
    }

    /// False positives of an ideal blocked filter: the number of keys in a line is Poisson with mean 512 / bits.
    fn rate_in_theory(bits_per_key: f64, probes: i32) -> f64 {
        let mean = 512.0 / bits_per_key;
        let mut poisson = (-mean).exp();
        let mut rate = 0.0;
        for keys in 0..400 {
            if keys > 0 {
                poisson *= mean / f64::from(keys);
            }
            let set = 1.0 - (1.0 - 1.0 / 512.0f64).powi(keys * probes);
            rate += poisson * set.powi(probes);
        }
        rate
    }

    #[test]
    fn false_positives_are_what_theory_says_and_there_are_no_false_negatives() {
        for (bits, limit) in [(6.0, 0.08), (10.0, 0.015), (16.0, 0.0025)] {
            let filter = Filter::build(&hashes(0..200_000), bits).unwrap();
            assert!(hashes(0..200_000).iter().all(|&h| filter.may_contain(h)));
            let hits = hashes(1_000_000..1_400_000)
                .iter()
                .filter(|&&h| filter.may_contain(h))
                .count();
            let rate = hits as f64 / 400_000.0;
            let theory = rate_in_theory(f64::from(bits), probes_for(bits).cast_signed());
            println!("{bits} bits: {rate:.5}, in theory {theory:.5}");
            assert!(rate < limit, "{bits} bits: {rate}");
            assert!(rate < theory * 1.15, "{bits} bits: {rate}, theory {theory}");
        }
    }

    #[test]
    fn section_round_trips_and_hostile_sections_are_refused() {
        let seed = FileSeed::new(DbId([7; 16]), FileId::new(FileKind::Table, 1));
        let section = Filter::build(&hashes(0..1000), 10.0)
            .unwrap()
            .encode(seed, 4096);
        let filter = Filter::decode(&section).unwrap();
        assert!(hashes(0..1000).iter().all(|&h| filter.may_contain(h)));
        assert_eq!(filter.encode(seed, 4096), section);
        for length in 0..section.len() {
            assert!(Filter::decode(&section[..length]).is_none());
        }
        let mut hostile = section.clone();
        hostile[8..16].fill(0xff);
        assert!(Filter::decode(&hostile).is_none());
        hostile = section;
        hostile[4..8].fill(0xff);
        assert!(Filter::decode(&hostile).is_none());
    }
}
