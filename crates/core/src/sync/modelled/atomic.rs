//! Atomics for loom, which takes `SeqCst` for `AcqRel`. What the engine relies on (of two threads that each store, then look at what the other stores, one sees the other)
//! comes back in one of two ways, and `explore` tries a model in both: a fence behind every `SeqCst` store, which notices a store that asks for less; or every `SeqCst` load gets what was
//! stored last, which notices a load that asks for less. The second orders nothing else; the fence also orders what is about it.
//!
//! Thread safety: as the originals, within one execution of a model.

pub use loom::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, Ordering, fence};

static FENCES: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);

/// Which of the two ways, from now on.
pub(super) fn fences_behind_stores(fences: bool) {
    FENCES.store(fences, Ordering::SeqCst);
}

/// Whether a load with this ordering must get what was stored last.
fn latest(order: Ordering) -> bool {
    order == Ordering::SeqCst && !FENCES.load(Ordering::SeqCst)
}

fn behind_store(order: Ordering) {
    if order == Ordering::SeqCst && FENCES.load(Ordering::SeqCst) {
        fence(Ordering::SeqCst);
    }
}

macro_rules! sequential {
    ($name:ident, $value:ty, $never:expr, $($method:ident),*) => {
        /// As the original.
        #[derive(Debug, Default)]
        pub struct $name(loom::sync::atomic::$name);

        impl $name {
            /// As the original.
            #[track_caller]
            pub fn new(value: $value) -> Self {
                $name(loom::sync::atomic::$name::new(value))
            }

            /// As the original.
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                if !latest(order) {
                    return self.0.load(order);
                }
                // Of loom's operations only the read-modify-writes get what is newest; one that fails writes nothing. Where it does not fail it writes what is there.
                let (never, looked) = ($never, Ordering::Acquire);
                let seen = self.0.compare_exchange(never, never, looked, looked);
                seen.unwrap_or_else(|seen| seen)
            }

            /// As the original.
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
                behind_store(order);
            }

            /// As the original.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let exchanged = self.0.compare_exchange(current, new, success, failure);
                behind_store(success);
                exchanged
            }

            $(
                /// As the original.
                #[track_caller]
                pub fn $method(&self, value: $value, order: Ordering) -> $value {
                    let before = self.0.$method(value, order);
                    behind_store(order);
                    before
                }
            )*
        }
    };
}

sequential!(AtomicBool, bool, true, swap, fetch_or);
sequential!(AtomicUsize, usize, usize::MAX, fetch_add, fetch_sub);
sequential!(
    AtomicU64,
    u64,
    u64::MAX,
    swap,
    fetch_add,
    fetch_sub,
    fetch_max
);
