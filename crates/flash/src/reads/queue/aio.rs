//! The kernel's older asynchronous I/O, by its four system calls: for kernels and containers that refuse io_uring. Only direct reads are asynchronous; others are done when they are begun.

use super::{Queue, Read};
use std::collections::VecDeque;
use std::io;

/// `struct iocb` of `linux/aio_abi.h`, on machines with little-endian words.
#[repr(C)]
struct Control {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_fd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result_2: i64,
}

const _: () = assert!(size_of::<Control>() == 64 && size_of::<Event>() == 32);
const _: () = assert!(
    cfg!(target_endian = "little"),
    "fields of `Control` would be exchanged"
);
const OPCODE_READ: u16 = 0;

pub(super) struct Context {
    id: libc::c_ulong,
    depth: usize,
    /// Not begun; what the kernel has begun it has copied.
    pushed: Vec<Control>,
    in_kernel: usize,
    events: Vec<Event>,
    answers: VecDeque<(usize, i32)>,
}

impl Context {
    pub(super) fn new(depth: usize) -> io::Result<Self> {
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word to where it is told.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut id) };
        answer(result)?;
        let none = Event {
            data: 0,
            object: 0,
            result: 0,
            result_2: 0,
        };
        Ok(Context {
            id,
            depth,
            pushed: Vec::with_capacity(depth),
            in_kernel: 0,
            events: vec![none; depth],
            answers: VecDeque::with_capacity(depth),
        })
    }

    /// Begins all that was pushed; a read that cannot be begun is answered with its error.
    fn submit(&mut self) -> io::Result<usize> {
        let mut taken = 0;
        while taken < self.pushed.len() {
            let controls: Vec<*const Control> = self.pushed[taken..]
                .iter()
                .map(std::ptr::from_ref)
                .collect();
            // SAFETY: the pointers are of whole structs that live until the call returns; what they say of buffers and descriptors is the promise of `push`.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_io_submit,
                    self.id,
                    controls.len(),
                    controls.as_ptr(),
                )
            };
            match answer(result) {
                Ok(count) => {
                    taken += count;
                    self.in_kernel += count;
                    if count == 0 {
                        break;
                    }
                }
                Err(error) => match error.raw_os_error() {
                    // Its queue is full: more when some are answered.
                    Some(libc::EAGAIN | libc::EINTR) if self.in_kernel + self.answers.len() > 0 => {
                        break;
                    }
                    Some(libc::EAGAIN | libc::EINTR) | None => {
                        self.pushed.drain(..taken);
                        return Err(error);
                    }
                    // The first one is refused.
                    Some(code) => {
                        let number = self.pushed[taken].data;
                        self.answers.push_back((number_of(number), -code));
                        taken += 1;
                    }
                },
            }
        }
        self.pushed.drain(..taken);
        Ok(taken)
    }

    fn wait(&mut self, want: usize) -> io::Result<()> {
        let want = want.saturating_sub(self.answers.len()).min(self.in_kernel);
        if want == 0 {
            return Ok(());
        }
        // SAFETY: the kernel writes at most `events.len()` structs there; no timeout is passed.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.id,
                want,
                self.events.len(),
                self.events.as_mut_ptr(),
                std::ptr::null_mut::<libc::timespec>(),
            )
        };
        let count = answer(result)?;
        for event in &self.events[..count] {
            let result = i32::try_from(event.result).unwrap_or(i32::MAX);
            self.answers.push_back((number_of(event.data), result));
        }
        self.in_kernel -= count;
        Ok(())
    }
}

/// The number of a read, which was a `usize` when it was pushed.
fn number_of(data: u64) -> usize {
    usize::try_from(data).unwrap_or(usize::MAX)
}

fn answer(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

impl Queue for Context {
    unsafe fn push(&mut self, read: Read) -> io::Result<()> {
        if self.pushed.len() + self.in_kernel >= self.depth {
            return Err(io::Error::other("the queue is full"));
        }
        self.pushed.push(Control {
            data: read.number as u64,
            key: 0,
            rw_flags: 0,
            opcode: OPCODE_READ,
            priority: 0,
            // A number that is none is refused as such.
            fd: read.fd.cast_unsigned(),
            buffer: read.to as u64,
            length: read.length as u64,
            offset: read.offset.cast_signed(),
            reserved: 0,
            flags: 0,
            result_fd: 0,
        });
        Ok(())
    }

    fn submit_and_wait(&mut self, want: usize) -> io::Result<usize> {
        let taken = self.submit()?;
        // A wait that was interrupted has lost nothing.
        match self.wait(want) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(taken),
        }
    }

    fn not_taken(&mut self) -> usize {
        self.pushed.len()
    }

    fn completion(&mut self) -> Option<(usize, i32)> {
        self.answers.pop_front()
    }

    fn wait_for_one(&mut self) -> io::Result<()> {
        match self.in_kernel + self.answers.len() {
            0 => Err(io::Error::other("nothing is in flight")),
            _ => self.wait(1),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and used no more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}
