//! What an index must answer: the newest operation on every key.

use bytes::Bytes;
use glintdb_core::{EntryValue, RangeTombstone, SeqNum};
use std::collections::BTreeMap;

/// Every entry and range tombstone that ever reached the index.
#[derive(Clone, Default, Debug)]
pub struct Model {
    /// Newest point operation of each key.
    pub points: BTreeMap<Bytes, (SeqNum, EntryValue)>,
    pub ranges: Vec<RangeTombstone>,
}

impl Model {
    pub fn put(&mut self, key: Bytes, seqno: SeqNum, value: EntryValue) {
        self.points.insert(key, (seqno, value));
    }

    /// Newest range deletion of a key.
    pub fn deleted(&self, key: &[u8]) -> SeqNum {
        let covering = self.ranges.iter().filter(|t| t.covers(key));
        covering.map(|t| t.seqno).max().unwrap_or(SeqNum::ZERO)
    }

    /// The newest operation of any kind on a key.
    pub fn newest(&self, key: &[u8]) -> Option<(SeqNum, EntryValue)> {
        let deleted = self.deleted(key);
        match self.points.get(key) {
            Some((seqno, value)) if *seqno >= deleted => Some((*seqno, value.clone())),
            _ if deleted > SeqNum::ZERO => Some((deleted, EntryValue::Tombstone)),
            _ => None,
        }
    }

    /// Keys with a value.
    pub fn live(&self) -> BTreeMap<Bytes, (SeqNum, EntryValue)> {
        self.points
            .iter()
            .filter(|(key, (seqno, value))| {
                *value != EntryValue::Tombstone && *seqno >= self.deleted(key)
            })
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect()
    }
}
