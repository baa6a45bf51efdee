//! The record of a table: what is known of it without reading it. The manifest has it, and so does
//! the table itself, in its properties section.
//!
//! Thread-safe: plain values.

use bytes::Bytes;
use glintdb_core::codec::{Reader, put_bytes, put_varint};
use glintdb_core::{FileId, FileKind, SeqNum, key};

/// What the manifest records of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableMeta {
    /// Its file.
    pub id: FileId,
    /// Length of the file.
    pub bytes: u64,
    /// Where the key blocks end and what is read at open begins.
    pub tail_offset: u64,
    /// Key blocks.
    pub blocks: u32,
    /// Entries, tombstones included, range tombstones not.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// Sum of the lengths of the values that entries point to.
    pub pointed_bytes: u64,
    /// First key with an entry. Empty without entries.
    pub smallest: Bytes,
    /// Last key with an entry (inclusive). Empty without entries.
    pub largest: Bytes,
    /// The keys of its entries and range tombstones: inclusive start, exclusive end (`None`: no
    /// end).
    pub range: (Bytes, Option<Bytes>),
    /// Oldest sequence number of an entry or range tombstone.
    pub seqno_min: SeqNum,
    /// Newest sequence number of an entry or range tombstone.
    pub seqno_max: SeqNum,
}

impl TableMeta {
    /// Appends the encoded form: a varint length, then the fields in the order of
    /// `docs/format/table.md`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(64 + self.smallest.len() * 2 + self.largest.len() * 2);
        for value in [
            self.id.number,
            self.bytes,
            self.tail_offset,
            u64::from(self.blocks),
            self.entries,
            self.tombstones,
            self.range_tombstones,
            self.pointed_bytes,
            self.seqno_min.0,
            self.seqno_max.0,
        ] {
            put_varint(&mut body, value);
        }
        put_bytes(&mut body, &self.smallest);
        put_bytes(&mut body, &self.largest);
        put_bytes(&mut body, &self.range.0);
        body.push(u8::from(self.range.1.is_some()));
        if let Some(end) = &self.range.1 {
            put_bytes(&mut body, end);
        }
        put_bytes(out, &body);
    }

    /// Reads the encoded form from the front of `reader`. `None`: there is none, or it is not
    /// [sound](Self::is_sound).
    #[must_use]
    pub fn decode(reader: &mut Reader<'_>) -> Option<TableMeta> {
        let mut body = Reader::new(reader.bytes()?);
        let meta = TableMeta {
            id: FileId::new(FileKind::Table, body.varint()?),
            bytes: body.varint()?,
            tail_offset: body.varint()?,
            blocks: body.varint32()?,
            entries: body.varint()?,
            tombstones: body.varint()?,
            range_tombstones: body.varint()?,
            pointed_bytes: body.varint()?,
            seqno_min: SeqNum(body.varint()?),
            seqno_max: SeqNum(body.varint()?),
            smallest: key_field(&mut body)?,
            largest: key_field(&mut body)?,
            range: (
                key_field(&mut body)?,
                match body.u8()? {
                    0 => None,
                    1 => Some(key_field(&mut body)?),
                    _ => return None,
                },
            ),
        }
        .sharing_keys();
        (body.is_empty() && meta.is_sound()).then_some(meta)
    }

    /// Lets equal keys share their memory: mostly a table ends right behind its last entry and
    /// begins with its first one, which may be the last one.
    pub(super) fn sharing_keys(mut self) -> TableMeta {
        if let Some(end) = &self.range.1
            && end.get(..self.largest.len()) == Some(&*self.largest)
        {
            self.largest = end.slice(..self.largest.len());
        }
        if self.smallest == self.largest {
            self.smallest = self.largest.clone();
        }
        if self.range.0 == self.smallest {
            self.range.0 = self.smallest.clone();
        }
        self
    }

    /// Bytes of memory that its keys take.
    pub(super) fn key_bytes(&self) -> usize {
        let (start, end) = (&self.range.0, self.range.1.as_ref());
        let keys = [end, Some(&self.largest), Some(&self.smallest), Some(start)];
        let mut bytes = 0;
        let mut before: Option<&Bytes> = None;
        for key in keys.into_iter().flatten() {
            // A key that shares memory does so with the one before it.
            if before.is_none_or(|before| before.as_ptr() != key.as_ptr()) {
                bytes += key.len();
            }
            before = Some(key);
        }
        bytes
    }

    /// Whether the record does not contradict itself. Writers assert this before they hand a record
    /// out. [`decode`](Self::decode) refuses a record for which it is false.
    ///
    /// - A table has an entry or a range tombstone.
    /// - Its range is not empty, and contains the first and the last key.
    /// - `smallest <= largest`, and both are empty if there is no entry.
    /// - There is a block if and only if there is an entry. There are no more blocks, and no more
    ///   tombstones, than entries.
    /// - The blocks end within the file, and sequence numbers are in order and in their limits.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let before_end = |key: &Bytes| self.range.1.as_ref().is_none_or(|end| key < end);
        let keys_are_sound = match self.entries {
            0 => {
                let no_keys = self.smallest.is_empty() && self.largest.is_empty();
                no_keys && self.range_tombstones > 0 && before_end(&self.range.0)
            }
            _ => self.range.0 <= self.smallest && before_end(&self.largest),
        };
        keys_are_sound
            && self.smallest <= self.largest
            && self.tail_offset < self.bytes
            && self.tombstones <= self.entries
            && u64::from(self.blocks) <= self.entries
            && (self.blocks == 0) == (self.entries == 0)
            && self.seqno_min <= self.seqno_max
            && self.seqno_max <= SeqNum::MAX
    }
}

fn key_field(reader: &mut Reader<'_>) -> Option<Bytes> {
    // A successor of the longest key is one byte longer.
    let bytes = reader.bytes()?;
    (bytes.len() <= key::KEY_BYTES_MAX + 1).then(|| Bytes::copy_from_slice(bytes))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The record of a table with keys from `f` to `m`.
    pub(crate) fn meta(start: &[u8], end: Option<&[u8]>) -> TableMeta {
        TableMeta {
            id: FileId::new(FileKind::Table, 300),
            bytes: 8192,
            tail_offset: 4096,
            blocks: 1,
            entries: 3,
            tombstones: 1,
            range_tombstones: 1,
            pointed_bytes: 77,
            smallest: Bytes::from_static(b"f"),
            largest: Bytes::from_static(b"m"),
            range: (
                Bytes::copy_from_slice(start),
                end.map(Bytes::copy_from_slice),
            ),
            seqno_min: SeqNum(3),
            seqno_max: SeqNum::MAX,
        }
    }

    #[test]
    fn meta_round_trips_and_every_cut_is_refused() {
        for meta in [meta(b"f", Some(b"m\0")), meta(b"", None)] {
            let mut out = Vec::new();
            meta.encode(&mut out);
            let mut reader = Reader::new(&out);
            assert_eq!(TableMeta::decode(&mut reader), Some(meta));
            assert!(reader.is_empty());
            for length in 0..out.len() {
                assert_eq!(TableMeta::decode(&mut Reader::new(&out[..length])), None);
            }
        }
    }

    #[test]
    fn keys_of_a_record_share_their_memory() {
        let decoded = |meta: &TableMeta| {
            let mut out = Vec::new();
            meta.encode(&mut out);
            TableMeta::decode(&mut Reader::new(&out)).unwrap()
        };
        // `f`, which is also the start, and `m` with a zero byte, of which `m` is a part.
        assert_eq!(decoded(&meta(b"f", Some(b"m\0"))).key_bytes(), 3);
        assert_eq!(decoded(&meta(b"e", Some(b"n"))).key_bytes(), 4);
        let mut one = meta(b"f", Some(b"f\0"));
        one.largest = Bytes::from_static(b"f");
        assert_eq!(decoded(&one).key_bytes(), 2);
    }

    #[test]
    fn records_that_contradict_themselves_are_refused() {
        type Spoil = fn(&mut TableMeta);
        let without_entries = |meta: &mut TableMeta| {
            (meta.entries, meta.tombstones, meta.blocks) = (0, 0, 0);
            (meta.smallest, meta.largest) = (Bytes::new(), Bytes::new());
        };
        let mut only_ranges = meta(b"f", Some(b"m"));
        without_entries(&mut only_ranges);
        let whole = meta(b"f", Some(b"m\0"));
        let spoilt: [(&TableMeta, Spoil); 10] = [
            (&whole, |meta| meta.smallest = Bytes::from_static(b"n")),
            (&whole, |meta| meta.range.0 = Bytes::from_static(b"g")),
            (&whole, |meta| meta.range.1 = Some(meta.largest.clone())),
            (&whole, |meta| meta.tombstones = 4),
            (&whole, |meta| meta.blocks = 0),
            (&whole, |meta| meta.blocks = 4),
            (&whole, |meta| meta.tail_offset = meta.bytes),
            (&only_ranges, |meta| meta.range_tombstones = 0),
            (&only_ranges, |meta| {
                meta.range.1 = Some(meta.range.0.clone())
            }),
            (&only_ranges, |meta| meta.largest = Bytes::from_static(b"g")),
        ];
        for (at, (sound, spoil)) in spoilt.into_iter().enumerate() {
            let mut meta = sound.clone();
            assert!(meta.is_sound());
            spoil(&mut meta);
            let mut out = Vec::new();
            meta.encode(&mut out);
            assert!(!meta.is_sound(), "{at}");
            assert_eq!(TableMeta::decode(&mut Reader::new(&out)), None, "{at}");
        }
    }
}
