//! The corruption sweep: small whole databases, damaged in every way one can list, and what the engine says to each.
//!
//! - [`subjects`]: the databases, with what they must answer, earlier images of themselves and a foreign twin.
//! - [`mutation`]: what can be done to an image: bits, blocks, lengths, whole files.
//! - [`units`]: which bytes of an undamaged file belong together, and which keys need them: what an error may name, and what it may take away.
//! - [`probe`]: opens one damaged image, reads everything, verifies, checks, and says what came of it.
//! - [`campaign`]: all mutations of all databases on some threads, with a bound on time and memory, counted.
//!
//! Thread safety: subjects and mutations are plain data, shared by the threads of [`campaign`]; a probe has a volume of its own.

pub mod campaign;
pub mod mutation;
pub mod probe;
pub mod subjects;
pub mod units;
