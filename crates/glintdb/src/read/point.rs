//! Point reads: hot keys first, then memtables (newest first), then the index. A separated value
//! then comes from the cache or the log.
//!
//! Thread safety: reads take no lock, and write no shared counter but those of the cache and of the
//! [directory of values](crate::read::values::directory).

use crate::Result;
use crate::read::Reader;
use crate::read::values::hot_keys::Look;
use crate::read::values::key_hash::Wanted;
use crate::state::version::{Found, KeyspaceState, Version};
use bytes::Bytes;
use glintdb_core::sync::{Work, charge};
use glintdb_core::{EntryValue, KeyspaceId, SeqNum, planted};

impl Reader {
    /// Returns the newest visible value of `key`.
    pub(crate) fn get(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<Option<Bytes>> {
        charge(Work::Get, 1);
        let look = self.shared.values.look(keyspace.id, key);
        let before = self.shared.pipeline.visible();
        if let Some(value) = self
            .shared
            .values
            .get_hot(look.as_ref(), before, (keyspace.id, key))
        {
            return Ok(Some(value));
        }
        // The version is loaded first: a commit that becomes visible after that is in the version,
        // or came after this read began.
        let version = self.shared.version.load();
        let at = self.shared.pipeline.visible();
        let found = version.find(at, keyspace, key)?;
        // Not `at`: a commit in between may be in a memtable that `version` does not have.
        self.value_of(found, before, look.as_ref(), (keyspace.id, key))
    }

    /// Returns the value of `key` at commit `at`.
    pub(crate) fn get_at(
        &self,
        version: &Version,
        at: SeqNum,
        keyspace: &KeyspaceState,
        key: &[u8],
    ) -> Result<Option<Bytes>> {
        charge(Work::Get, 1);
        let look = self.look_in(version, keyspace, key);
        if let Some(value) = self
            .shared
            .values
            .get_hot(look.as_ref(), at, (keyspace.id, key))
        {
            return Ok(Some(value));
        }
        let found = version.find(at, keyspace, key)?;
        self.value_of(found, at, look.as_ref(), (keyspace.id, key))
    }

    /// Looks a key up among the hot ones, unless its keyspace is not in `version`, because the
    /// directory does not learn of dropped keyspaces.
    fn look_in(&self, version: &Version, keyspace: &KeyspaceState, key: &[u8]) -> Option<Look<'_>> {
        version.keyspace(keyspace.id)?;
        self.shared.values.look(keyspace.id, key)
    }

    /// Returns the value of an entry that was found among all commits up to `at`.
    fn value_of(
        &self,
        found: Found,
        at: SeqNum,
        look: Option<&Look<'_>>,
        (keyspace, key): (KeyspaceId, &[u8]),
    ) -> Result<Option<Bytes>> {
        match found {
            None | Some((_, EntryValue::Tombstone)) => Ok(None),
            Some((_, EntryValue::Inline(value))) => Ok(Some(value)),
            Some((_, EntryValue::Pointer(pointer))) => {
                (self.shared.values).note_read(look, at, &pointer, || self.sequencer.try_newest());
                let wanted = Wanted::new(keyspace, key, pointer);
                self.shared.values.fetch(&wanted).map(Some)
            }
        }
    }

    /// Returns the values of many keys at commit `at`. The reads that they need are done in
    /// batches.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        version: &Version,
        at: SeqNum,
        keyspace: &KeyspaceState,
        keys: &[K],
    ) -> Vec<Result<Option<Bytes>>> {
        self.multi_get_within(version, at, keyspace, keys, usize::MAX)
    }

    /// Returns the values of the first of `keys`, like [`multi_get`](Self::multi_get): of as many
    /// as have at most `bytes_max` bytes of values together, but at least one. The separated values
    /// of the other keys are not read, because their pointers have their lengths.
    pub(crate) fn multi_get_within<K: AsRef<[u8]>>(
        &self,
        version: &Version,
        at: SeqNum,
        keyspace: &KeyspaceState,
        keys: &[K],
        bytes_max: usize,
    ) -> Vec<Result<Option<Bytes>>> {
        charge(Work::Get, keys.len() as u64);
        let looks: Vec<_> = (keys.iter())
            .map(|key| self.look_in(version, keyspace, key.as_ref()))
            .collect();
        // `None` for each key that is not found yet.
        let mut found: Vec<Option<Result<Option<EntryValue>>>> = Vec::new();
        found.resize_with(keys.len(), || None);
        (self.shared.values).get_each_hot(at, keyspace.id, keys, &looks, |index, value| {
            found[index] = Some(Ok(Some(EntryValue::Inline(value))));
        });
        for (found, key) in found.iter_mut().zip(keys) {
            if found.is_none() {
                let in_memory = version
                    .generations()
                    .find_map(|generation| generation.keyspace(keyspace.id)?.get(key.as_ref(), at));
                *found = in_memory.map(|(_, value)| Ok(Some(value.to_owned())));
            }
        }
        let mut asked: Vec<usize> = (0..found.len()).collect();
        asked.retain(|&index| found[index].is_none());
        if let Some(view) = version.view(keyspace.id).filter(|_| !asked.is_empty()) {
            let mut wanted: Vec<&[u8]> = asked.iter().map(|&index| keys[index].as_ref()).collect();
            planted!(
                "glintdb: multi_get mixes up its answers",
                (),
                wanted.sort_unstable()
            );
            for (index, entry) in asked.into_iter().zip(view.get_batch(&wanted)) {
                let known = entry.map(|entry| entry.map(|entry| entry.value));
                found[index] = known.transpose().map(|known| known.map(Some));
            }
        }
        let mut bytes = 0usize;
        let fitting = found.iter().take_while(|found| {
            let length = match found {
                Some(Ok(Some(EntryValue::Inline(value)))) => value.len(),
                Some(Ok(Some(EntryValue::Pointer(pointer)))) => pointer.length as usize,
                _ => 0,
            };
            bytes = bytes.saturating_add(length);
            bytes <= bytes_max
        });
        found.truncate(fitting.count().max(1));
        let wanted: Vec<Wanted> = (found.iter().zip(&looks).zip(keys))
            .filter_map(|((found, look), key)| match found {
                Some(Ok(Some(EntryValue::Pointer(pointer)))) => {
                    let look = look.as_ref();
                    (self.shared.values)
                        .note_read(look, at, pointer, || self.sequencer.try_newest());
                    Some(Wanted::new(keyspace.id, key.as_ref(), *pointer))
                }
                _ => None,
            })
            .collect();
        let values = self.shared.values.fetch_each(&wanted, false).0;
        let mut values = values.into_iter();
        found
            .into_iter()
            .map(|found| match found {
                Some(Ok(Some(EntryValue::Pointer(_)))) => match values.next() {
                    Some(value) => value.map(Some),
                    None => Ok(None),
                },
                Some(Ok(Some(EntryValue::Inline(value)))) => Ok(Some(value)),
                Some(Err(error)) => Err(error),
                None | Some(Ok(None | Some(EntryValue::Tombstone))) => Ok(None),
            })
            .collect()
    }
}
