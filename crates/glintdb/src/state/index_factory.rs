//! Makes the index of a keyspace: the one place that names the kinds of indexes.

use crate::Result;
use crate::options::KeyspaceOptions;
use glintdb_core::index::Index;
use glintdb_lsm::Lsm;
use glintdb_runs::IndexEnv;
use std::sync::Arc;

/// Makes indexes that share a volume, a cache and a memory budget.
pub(crate) struct IndexFactory {
    pub(crate) env: IndexEnv,
}

impl IndexFactory {
    /// Creates an empty index.
    pub(crate) fn create(&self, options: &KeyspaceOptions) -> Result<Arc<dyn Index>> {
        Ok(Lsm::create(self.env.clone(), options.lsm.clone())?)
    }

    /// Opens an index from the edits that the manifest recorded for it.
    pub(crate) fn open(
        &self,
        options: &KeyspaceOptions,
        edits: &[Vec<u8>],
    ) -> Result<Arc<dyn Index>> {
        Ok(Lsm::open(self.env.clone(), options.lsm.clone(), edits)?)
    }
}
