//! Memory of the log's ring, whoever backs it: 64-bit words written and read with relaxed atomics, so that racing with reuse is never undefined behaviour.

use crate::buffer::{AlignedBuffer, DIRECT_ALIGNMENT};
use crate::dir::cut_off;
use crate::volume::{Ring, VolumeFile};
use glintdb_core::sync::atomic::{AtomicU64, Ordering};
use glintdb_core::{Error, Result};
use std::ptr::NonNull;

/// Shared words at a fixed address. The owner of the memory (mapping or buffer) holds one of these beside it.
pub(crate) struct Words {
    pointer: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are atomics; every access goes through them (or through the kernel, which knows no Rust aliasing).
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// # Safety
    /// `pointer` must be 8-aligned and valid for reads and writes of `bytes` bytes (a multiple of 8) for as long as the `Words` live, and nobody may hold a
    /// reference to that memory meanwhile.
    pub(crate) unsafe fn new(pointer: NonNull<u8>, bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(8) && (pointer.as_ptr() as usize).is_multiple_of(8));
        Words {
            pointer: pointer.cast(),
            count: bytes / 8,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.count * 8
    }

    /// Address of byte `offset`, for system calls that read from the memory.
    pub(crate) fn address(&self, offset: usize) -> *const u8 {
        assert!(offset <= self.bytes());
        // SAFETY: within (or one past) the memory that `new`'s caller guarantees.
        unsafe { self.pointer.as_ptr().cast::<u8>().add(offset) }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: `new`'s caller guarantees the memory for our lifetime; `AtomicU64` has the layout of `u64` and allows shared mutation.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.count) }
    }

    /// See [`Ring::write`].
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(
            offset.is_multiple_of(8) && bytes.len().is_multiple_of(8),
            "ring writes are whole words: offset {offset}, length {}",
            bytes.len()
        );
        let first = offset / 8;
        let target = &self.words()[first..first + bytes.len() / 8];
        let (chunks, _) = bytes.as_chunks::<8>();
        for (word, chunk) in target.iter().zip(chunks) {
            word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
    }

    /// See [`Ring::read`].
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(
            offset
                .checked_add(out.len())
                .is_some_and(|end| end <= self.bytes()),
            "read past the ring's end"
        );
        let words = self.words();
        let load = |index: usize| words[index].load(Ordering::Relaxed).to_ne_bytes();
        let mut index = offset / 8;
        let mut out = out;
        let skip = offset % 8;
        if skip != 0 && !out.is_empty() {
            let word = load(index);
            let take = out.len().min(8 - skip);
            let (head, rest) = out.split_at_mut(take);
            head.copy_from_slice(&word[skip..skip + take]);
            out = rest;
            index += 1;
        }
        let (chunks, tail) = out.as_chunks_mut::<8>();
        for chunk in chunks.iter_mut() {
            *chunk = load(index);
            index += 1;
        }
        if !tail.is_empty() {
            let word = load(index);
            tail.copy_from_slice(&word[..tail.len()]);
        }
    }

    /// Copies `length` bytes out and writes them to a file that cannot take them from here.
    pub(crate) fn write_copy_to(
        &self,
        offset: usize,
        length: usize,
        file: &dyn VolumeFile,
        file_offset: u64,
    ) -> Result<()> {
        const PIECE: usize = 1 << 20;
        let mut buffer = AlignedBuffer::zeroed(length.min(PIECE))?;
        let mut done = 0;
        while done < length {
            buffer.truncate(length - done);
            let piece = buffer.as_mut_slice();
            self.read(offset + done, piece);
            let written = file.write_at(file_offset + done as u64, piece);
            written.map_err(|error| cut_off(error, done > 0))?;
            done += piece.len();
        }
        Ok(())
    }
}

/// Checks an argument of [`Ring::write_to`].
///
/// # Panics
/// If `value` is not a multiple of 4 KiB.
pub fn assert_aligned(what: &str, value: usize) {
    assert!(
        value.is_multiple_of(DIRECT_ALIGNMENT),
        "{what} {value} is not a multiple of {DIRECT_ALIGNMENT}"
    );
}

/// Checks the size of a ring.
///
/// # Errors
/// `InvalidArgument` if `bytes` is not a positive multiple of 4 KiB.
pub fn check_ring_bytes(bytes: usize) -> Result<()> {
    if bytes == 0 || !bytes.is_multiple_of(DIRECT_ALIGNMENT) {
        return Err(Error::invalid(format!(
            "ring of {bytes} bytes: must be a positive multiple of {DIRECT_ALIGNMENT}"
        )));
    }
    Ok(())
}

/// A ring in plain memory: the log then writes to its segments at once.
pub(crate) struct HeapRing {
    words: Words,
    _memory: AlignedBuffer,
}

impl HeapRing {
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        check_ring_bytes(bytes)?;
        let mut memory = AlignedBuffer::zeroed(bytes)?;
        let pointer = NonNull::from(memory.as_mut_slice()).cast();
        Ok(HeapRing {
            // SAFETY: the buffer is page-aligned, `bytes` long, lives beside the words, and nobody else touches it from here on.
            words: unsafe { Words::new(pointer, bytes) },
            _memory: memory,
        })
    }
}

impl Ring for HeapRing {
    fn len(&self) -> usize {
        self.words.bytes()
    }
    fn survives_kill(&self) -> bool {
        false
    }
    fn write(&self, offset: usize, bytes: &[u8]) {
        self.words.write(offset, bytes);
    }
    fn read(&self, offset: usize, out: &mut [u8]) {
        self.words.read(offset, out);
    }
    fn write_to(
        &self,
        offset: usize,
        length: usize,
        file: &dyn VolumeFile,
        file_offset: u64,
    ) -> Result<()> {
        assert_aligned("ring offset", offset);
        assert_aligned("length", length);
        self.words.write_copy_to(offset, length, file, file_offset)
    }
    fn sync(&self) -> Result<bool> {
        Ok(false)
    }
}

#[cfg(all(test, loom))]
mod models {
    //! The words under loom, with the rule by which the log reads them: a reader believes what it copied only if the place was not given to others meanwhile
    //! (`Log::copy` and `Log::read_ring` in `crates/log`, whose two fences and whose `reclaimed` stand here as they do there).

    use super::*;
    use glintdb_core::sync::atomic::fence;
    use glintdb_core::sync::{explore, thread};
    use std::sync::Arc;

    struct Place {
        words: Words,
        _memory: Box<[AtomicU64]>,
        reclaimed: AtomicU64,
    }

    fn place() -> Arc<Place> {
        let memory: Box<[AtomicU64]> = (0..2).map(|_| AtomicU64::new(7)).collect();
        Arc::new(Place {
            words: Words {
                pointer: NonNull::from(&memory[0]),
                count: memory.len(),
            },
            _memory: memory,
            reclaimed: AtomicU64::new(0),
        })
    }

    #[test]
    fn what_a_reader_believes_is_not_mixed() {
        explore("ring: read beside reuse", None, || {
            let place = place();
            let writer = {
                let place = Arc::clone(&place);
                thread::spawn(move || {
                    // The spill gives the place back; the next commit that gets it overwrites it.
                    place.reclaimed.fetch_max(16, Ordering::AcqRel);
                    let reserved = place.reclaimed.load(Ordering::Acquire);
                    assert_eq!(reserved, 16);
                    fence(Ordering::Release);
                    place.words.write(0, &[9; 16]);
                })
            };
            let mut out = [0; 16];
            place.words.read(0, &mut out);
            fence(Ordering::Acquire);
            if place.reclaimed.load(Ordering::Acquire) == 0 {
                let mut old = [0; 16];
                old[..8].copy_from_slice(&7_u64.to_ne_bytes());
                old[8..].copy_from_slice(&7_u64.to_ne_bytes());
                assert_eq!(out, old, "a value of before the reuse");
            }
            writer.join().unwrap();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back_at_any_offset_and_length() {
        let ring = HeapRing::new(4096).unwrap();
        let bytes: Vec<u8> = (0..64).collect();
        ring.write(8, &bytes);
        for offset in (0..72).step_by(if cfg!(miri) { 5 } else { 1 }) {
            for length in 0..(72 - offset) {
                let mut out = vec![0; length];
                ring.read(offset, &mut out);
                let expected: Vec<u8> = (offset..offset + length)
                    .map(|at| at.checked_sub(8).map_or(0, |at| bytes[at]))
                    .collect();
                assert_eq!(out, expected, "{offset} {length}");
            }
        }
    }
}
