//! Spreads records over keyspaces: which one a key belongs to, and how an engine without keyspaces
//! does it.
//!
//! Thread safety: a [`Numbered`] belongs to one thread, like every handle.

use crate::rng::mix64;
use crate::store::{Handle, Result};

/// The number of the keyspace, below `keyspaces`, that a key belongs to.
#[must_use]
pub fn keyspace_of(key: &[u8], keyspaces: usize) -> usize {
    let last = key.last_chunk::<8>().copied().unwrap_or_default();
    let hash = mix64(u64::from_le_bytes(last));
    (hash % keyspaces.max(1) as u64) as usize
}

/// Bytes of the number of a keyspace.
const NUMBER_BYTES: usize = 4;

/// A handle that puts the number of the keyspace in front of each key.
pub(crate) struct Numbered<'a> {
    handle: Box<dyn Handle + 'a>,
    keyspaces: usize,
    key: Vec<u8>,
}

impl<'a> Numbered<'a> {
    pub(crate) fn new(handle: Box<dyn Handle + 'a>, keyspaces: usize) -> Self {
        Numbered {
            handle,
            keyspaces,
            key: Vec::new(),
        }
    }

    fn number(&mut self, key: &[u8]) {
        let number = keyspace_of(key, self.keyspaces) as u32;
        self.key.clear();
        self.key.extend_from_slice(&number.to_be_bytes());
        self.key.extend_from_slice(key);
    }
}

impl Handle for Numbered<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.number(key);
        self.handle.put(&self.key, value)
    }

    fn put_batch(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let mut keys = Vec::with_capacity(records.len());
        for (key, _) in records {
            self.number(key);
            keys.push(self.key.clone());
        }
        let records = keys.iter().zip(records);
        let records: Vec<_> = records
            .map(|(key, (_, value))| (key.as_slice(), *value))
            .collect();
        self.handle.put_batch(&records)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.number(key);
        self.handle.delete(&self.key)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.number(key);
        self.handle.get(&self.key, visit)
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        self.number(from);
        let (number, mut found) = (self.key[..NUMBER_BYTES].to_vec(), 0);
        self.handle.scan(&self.key, limit, &mut |key, value| {
            if let Some(key) = key.strip_prefix(number.as_slice()) {
                visit(key, value);
                found += 1;
            }
        })?;
        Ok(found)
    }
}
