//! Tools that look at the files of a log that is not open, or save what is intact in them.

pub(crate) mod check;
pub(crate) mod dump;
pub(crate) mod salvage;
