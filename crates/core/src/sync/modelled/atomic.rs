//! Atomics for loom, which takes `SeqCst` for `AcqRel`. What the engine relies on (of two threads that each store, then look at what the other stores, one sees the other)
//! comes back by a fence between the two: behind every `SeqCst` store, or before every `SeqCst` load. `explore` tries a model both ways, so that a store or a load that
//! asks for less is noticed in one of them.
//!
//! Thread safety: as the originals, within one execution of a model.

pub use loom::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, Ordering, fence};

static BEHIND_STORES: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);

/// Where the fences are from now on.
pub(super) fn fences_behind_stores(behind_stores: bool) {
    BEHIND_STORES.store(behind_stores, Ordering::SeqCst);
}

fn before_load(order: Ordering) {
    if order == Ordering::SeqCst && !BEHIND_STORES.load(Ordering::SeqCst) {
        fence(Ordering::SeqCst);
    }
}

fn behind_store(order: Ordering) {
    if order == Ordering::SeqCst && BEHIND_STORES.load(Ordering::SeqCst) {
        fence(Ordering::SeqCst);
    }
}

macro_rules! sequential {
    ($name:ident, $value:ty, $($method:ident),*) => {
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
                before_load(order);
                self.0.load(order)
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
                before_load(success);
                let exchanged = self.0.compare_exchange(current, new, success, failure);
                behind_store(success);
                exchanged
            }

            $(
                /// As the original.
                #[track_caller]
                pub fn $method(&self, value: $value, order: Ordering) -> $value {
                    before_load(order);
                    let before = self.0.$method(value, order);
                    behind_store(order);
                    before
                }
            )*
        }
    };
}

sequential!(AtomicBool, bool, swap, fetch_or);
sequential!(AtomicUsize, usize, fetch_add, fetch_sub);
sequential!(AtomicU64, u64, swap, fetch_add, fetch_sub, fetch_max);
