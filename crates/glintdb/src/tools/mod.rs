//! Tools that look at a database or repair it: check, verify, inspect, advise, salvage.

pub mod advise;
pub(crate) mod check;
#[doc(hidden)]
pub mod fuzzing;
pub mod inspect;
pub(crate) mod salvage;
pub(crate) mod verify;
