//! Reads: gets and multi-gets, the merge of sources for iterators, and the number of keys.
//!
//! `values` has the tables through which a get can skip the index.

pub(crate) mod bounds;
pub(crate) mod count;
pub(crate) mod merge;
pub(crate) mod pins;
pub(crate) mod point;
pub(crate) mod values;

use crate::shared::Shared;
use crate::write::sequencer::Sequencer;
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
}
