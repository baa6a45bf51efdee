//! Cache lines of one's own, for what many threads write.

use std::ops::{Deref, DerefMut};

/// A value that shares no cache line with its neighbours: aligned to two lines, because processors fetch them in pairs.
#[repr(align(128))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Padded<T>(pub T);

const _: () = assert!(size_of::<Padded<u64>>() == 128);

impl<T> Deref for Padded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Padded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
