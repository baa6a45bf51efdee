//! Relocations: entries that get other pointers, as a run of level 0 with a number given out before the values were copied.
//!
//! Thread-safe: what is shared is behind the locks of [`Shared`].
//!
//! Invariants:
//! 1. Everything that is in the view has a smaller run number than the relocation's, or stands below level 0; every later flush has a greater one.
//! 2. From `begin` until the change is applied or abandoned (or there is none) the number is registered, and no run above it leaves level 0. So levels keep their order
//!    (invariant 2 there): of equal sequence numbers the relocated entry stands above, of others the newer one.

use crate::flush;
use crate::shared::Shared;
use crate::view::View;
use glintdb_core::Result;
use glintdb_core::index::{IndexChange, IndexView, Relocation, SortedRun};
use glintdb_flash::DataClass;
use std::sync::Arc;

/// See the module's page.
pub(crate) struct LsmRelocation {
    shared: Arc<Shared>,
    run: u64,
    view: Arc<View>,
    /// The place belongs to a change.
    written: bool,
}

impl LsmRelocation {
    /// Takes the place.
    pub(crate) fn begin(shared: &Arc<Shared>) -> LsmRelocation {
        let (run, view) = shared.begin_relocation();
        LsmRelocation {
            shared: Arc::clone(shared),
            run,
            view,
            written: false,
        }
    }
}

impl Relocation for LsmRelocation {
    fn view(&self) -> Arc<dyn IndexView> {
        Arc::clone(&self.view) as Arc<dyn IndexView>
    }

    fn write(mut self: Box<Self>, run: &mut dyn SortedRun) -> Result<IndexChange> {
        let change = flush::write_run(&self.shared.common, run, self.run, DataClass::Relocated)?;
        // Without entries there is no change that anybody would apply.
        self.written = !change.edit.is_empty();
        Ok(change)
    }
}

impl Drop for LsmRelocation {
    fn drop(&mut self) {
        if !self.written {
            self.shared.end_relocation(self.run);
        }
    }
}
