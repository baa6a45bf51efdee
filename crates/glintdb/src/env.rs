//! What a database is given from outside.

use glintdb_core::DbId;
use glintdb_core::clock::Clock;
use std::sync::Arc;

/// What a database is given from outside, so that tests and simulation decide it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Env {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Identity for a database that is created.
    pub db: DbId,
    /// A seed that decides the order of jobs, if there are no background threads. Without it the
    /// most urgent job comes first. Any order must work, because threads may take jobs in any
    /// order.
    pub job_order: Option<u64>,
}

impl Env {
    /// Takes jobs in order of urgency.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, db: DbId) -> Env {
        Env {
            clock,
            db,
            job_order: None,
        }
    }

    glintdb_core::setters! { job_order: Option<u64> }
}
