//! Reads: gets and multi-gets, the merge of sources for iterators, and the number of keys.
//!
//! `values` has the tables that spare a get its way through the index.

pub(crate) mod bounds;
pub(crate) mod count;
pub(crate) mod merge;
pub(crate) mod pins;
pub(crate) mod point;
pub(crate) mod values;
