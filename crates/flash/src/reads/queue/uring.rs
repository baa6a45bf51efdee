//! io_uring, as thin as it can be.

use super::{Queue, Read};
use io_uring::{IoUring, Probe, opcode, types};
use std::io;

pub(super) struct Ring(IoUring);

impl Ring {
    /// Finds out whether this kernel gives us rings that can read.
    pub(super) fn probe(depth: usize) -> io::Result<Self> {
        let ring = Self::build(depth)?;
        let mut probe = Probe::new();
        ring.0.submitter().register_probe(&mut probe)?;
        match probe.is_supported(opcode::Read::CODE) {
            true => Ok(ring),
            false => Err(io::Error::other(
                "the kernel's io_uring has no read operation",
            )),
        }
    }

    pub(super) fn build(depth: usize) -> io::Result<Self> {
        let entries = u32::try_from(depth.next_power_of_two()).unwrap_or(u32::MAX);
        // Completions are handled when we enter the kernel anyway, so it need not interrupt us for them (5.19).
        match IoUring::builder().setup_coop_taskrun().build(entries) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
            answer => answer,
        }
        .map(Ring)
    }
}

impl Queue for Ring {
    unsafe fn push(&mut self, read: Read) -> io::Result<()> {
        let length = u32::try_from(read.length).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(types::Fd(read.fd), read.to, length)
            .offset(read.offset)
            .build()
            .user_data(read.number as u64);
        // SAFETY: the caller's promise about buffer and descriptor.
        unsafe { self.0.submission().push(&entry) }
            .map_err(|_| io::Error::other("submission queue full"))
    }

    fn submit_and_wait(&mut self, want: usize) -> io::Result<usize> {
        self.0.submit_and_wait(want)
    }

    fn not_taken(&mut self) -> usize {
        self.0.submission().len()
    }

    fn completion(&mut self) -> Option<(usize, i32)> {
        let entry = self.0.completion().next()?;
        Some((usize::try_from(entry.user_data()).ok()?, entry.result()))
    }

    fn wait_for_one(&mut self) -> io::Result<()> {
        const GETEVENTS: u32 = 1;
        // SAFETY: no argument is passed; nothing is submitted, only waited for.
        let waited = unsafe {
            self.0
                .submitter()
                .enter::<libc::sigset_t>(0, 1, GETEVENTS, None)
        };
        waited.map(drop)
    }
}
