//! Histories of real threads: what every call did and when, checked against what the engine promises. The program `glint-histories` runs it.
//!
//! - [`linear`]: is the history of one register linearizable? [`shrink`] makes it short enough to be read.
//! - [`registers`]: clients that treat every key as a register; [`history`] collects and checks what they did.
//! - [`graph`]: do transactions obey their isolation? [`isolation`]: clients that run them, and move money.
//! - [`caller`]: what clients of both kinds have and note.
//! - [`stage`]: an epoch: the database, the thread that disturbs its clients, the crash; [`round`] puts epochs one after the other.
//! - [`stamps`]: the clock. [`value`]: values that tell who wrote them. [`wrong`]: wrong behaviour that must be caught.
//!
//! Thread safety: as each says.

pub mod caller;
pub mod graph;
pub mod history;
pub mod isolation;
pub mod linear;
pub mod registers;
pub mod round;
pub mod shrink;
pub mod stage;
pub mod stamps;
pub mod value;
pub mod wrong;
