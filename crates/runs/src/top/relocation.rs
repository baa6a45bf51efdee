//! Relocations: entries that get other pointers, written as a run whose number was given out before
//! the values were copied.
//!
//! Thread-safe as far as the index is: a relocation itself belongs to one thread.
//!
//! Invariants:
//! 1. Whatever is in the view of a relocation is beneath its place: in runs with smaller numbers,
//!    or below all runs. Every later flush gets a greater number.
//! 2. The place is pending from `begin` until the relocation's change is applied or abandoned, or
//!    until the relocation is dropped without a change. No run above it leaves the top of the index
//!    meanwhile, so newer entries stay above the relocated ones.

use glintdb_core::Result;
use glintdb_core::index::{IndexChange, IndexView, Relocation, SortedRun};
use glintdb_flash::DataClass;
use std::sync::Arc;

/// An index that takes runs at reserved places.
pub trait Relocatable: Send + Sync {
    /// Reserves a place beneath all runs to come. Returns the number of its run, and the view that
    /// has everything beneath the place. No run may be written and neither applied nor abandoned
    /// now.
    fn reserve_place(&self) -> (u64, Arc<dyn IndexView>);

    /// Frees a reserved place to which no change belongs.
    fn free_place(&self, run: u64);

    /// Writes run `id` in files of this class. They and their directory are synced when it returns.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors. Nothing is left behind then.
    fn write_run_at(
        &self,
        id: u64,
        run: &mut dyn SortedRun,
        class: DataClass,
    ) -> Result<IndexChange>;
}

/// A relocation that writes a run.
pub struct RunRelocation<I: Relocatable> {
    index: Arc<I>,
    run: u64,
    view: Arc<dyn IndexView>,
    /// The place belongs to a change, which frees it.
    written: bool,
}

impl<I: Relocatable> RunRelocation<I> {
    /// Reserves the place.
    pub fn begin(index: &Arc<I>) -> RunRelocation<I> {
        let (run, view) = index.reserve_place();
        RunRelocation {
            index: Arc::clone(index),
            run,
            view,
            written: false,
        }
    }
}

impl<I: Relocatable> Relocation for RunRelocation<I> {
    fn view(&self) -> Arc<dyn IndexView> {
        Arc::clone(&self.view)
    }

    fn write(mut self: Box<Self>, run: &mut dyn SortedRun) -> Result<IndexChange> {
        let change = self
            .index
            .write_run_at(self.run, run, DataClass::Relocated)?;
        // A change without an edit is never applied, so it frees no place.
        self.written = !change.edit.is_empty();
        Ok(change)
    }
}

impl<I: Relocatable> Drop for RunRelocation<I> {
    fn drop(&mut self) {
        if !self.written {
            self.index.free_place(self.run);
        }
    }
}
