//! Reads: gets and multi-gets, the merge of sources for iterators, and the number of keys.
//!
//! `values` has the tables through which a get can skip the index.

pub(crate) mod bounds;
pub(crate) mod count;
pub(crate) mod dead_run;
pub(crate) mod hiding;
pub(crate) mod merge;
pub(crate) mod own_writes;
pub(crate) mod pins;
pub(crate) mod point;
pub(crate) mod values;

use crate::shared::Shared;
use crate::state::gaps::Stretch;
use crate::state::version::KeyspaceState;
use crate::write::conflicts::Checks;
use crate::write::sequencer::Sequencer;
use glintdb_core::SeqNum;
use std::ops::Bound;
use std::sync::Arc;

/// Reads values of keys. It has no lock.
pub(crate) struct Reader {
    shared: Arc<Shared>,
    sequencer: Arc<Sequencer>,
}

impl Reader {
    pub(crate) fn new(shared: &Arc<Shared>, sequencer: &Arc<Sequencer>) -> Self {
        Reader {
            shared: Arc::clone(shared),
            sequencer: Arc::clone(sequencer),
        }
    }

    /// Keeps a stretch in which a scan at commit `at` found nothing but deletions, unless a commit
    /// since then has written to it.
    pub(crate) fn keep_gap(&self, keyspace: &Arc<KeyspaceState>, stretch: &Stretch, at: SeqNum) {
        let untouched = || {
            // A commit that gets its number after this one looks for gaps.
            let Some(newest) = self.sequencer.try_newest() else {
                return false;
            };
            if newest == at {
                return true;
            }
            let lower = Bound::Included(stretch.start.clone());
            let upper = stretch
                .end
                .clone()
                .map_or(Bound::Unbounded, Bound::Excluded);
            let checks = Checks {
                since: at,
                keys: Vec::new(),
                ranges: vec![(Arc::clone(keyspace), lower, upper)],
            };
            let version = self.shared.version.load_full();
            self.shared.pipeline.all_ended(newest)
                && matches!(checks.check_last(&version, at), Ok(true))
        };
        keyspace.gaps.add(stretch, at, untouched);
    }
}
