//! The FUSE side: a file system with one file, which is the disk.
//!
//! Thread safety: fuser calls it from one thread; the state behind the lock is shared with who answers what [`Disk`](crate::Disk) asks.

use crate::fault::{Effect, Fault, Faults, On};
use crate::image::Image;
use crate::tape::{Entry, Tape};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Name of the file.
pub(crate) const FILE: &str = "disk";
const INODE: u64 = 2;
/// Nothing ever changes but the bytes.
const TTL: Duration = Duration::from_secs(86_400);

/// Operations that the disk has seen.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Operations {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Of all these, the ones that a fault struck.
    pub struck: u64,
}

/// The disk.
pub(crate) struct State {
    pub(crate) image: Image,
    /// As the last flush left it; kept where a fault may need it.
    pub(crate) flushed: Option<Image>,
    /// Recording.
    pub(crate) tape: Option<Tape>,
    pub(crate) faults: Faults,
    pub(crate) operations: Operations,
}

impl State {
    /// A disk of zeros.
    pub(crate) fn new(bytes: usize) -> State {
        State {
            image: Image::zeroed(bytes),
            flushed: None,
            tape: None,
            faults: Faults::default(),
            operations: Operations::default(),
        }
    }

    pub(crate) fn insert(&mut self, image: Image) {
        self.image = image;
        self.flushed = None;
    }

    pub(crate) fn record(&mut self) {
        self.tape = Some(Tape {
            base: self.image.clone(),
            entries: Vec::new(),
        });
    }

    pub(crate) fn position(&self) -> usize {
        self.tape.as_ref().map_or(0, |tape| tape.entries.len())
    }

    pub(crate) fn fail(&mut self, fault: Fault) {
        if fault.effect == Effect::ErrorAndLoss {
            self.flushed = Some(self.image.clone());
        }
        self.faults.add(fault);
    }

    fn strike(&mut self, on: On, range: &Range<usize>) -> Option<Effect> {
        let operations = &mut self.operations;
        match on {
            On::Read => operations.reads += 1,
            On::Write => operations.writes += 1,
            On::Flush => operations.flushes += 1,
        }
        let effect = self.faults.strike(on, range);
        operations.struck += u64::from(effect.is_some());
        effect
    }

    fn read(&mut self, offset: usize, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        match self.strike(On::Read, &(offset..offset + length)) {
            Some(Effect::Error | Effect::ErrorAndLoss) => return None,
            Some(Effect::Lie) => {}
            None => self.image.read(offset, &mut bytes),
        }
        Some(bytes)
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        match self.strike(On::Write, &(offset..offset + bytes.len())) {
            Some(Effect::Error | Effect::ErrorAndLoss) => return false,
            Some(Effect::Lie) => return true,
            None => self.image.write(offset, bytes),
        }
        if let Some(tape) = &mut self.tape {
            let bytes = bytes.into();
            tape.entries.push(Entry::Write { offset, bytes });
        }
        true
    }

    fn flush(&mut self) -> bool {
        match self.strike(On::Flush, &(0..usize::MAX)) {
            Some(Effect::Error) => return false,
            Some(Effect::ErrorAndLoss) => {
                if let Some(flushed) = &self.flushed {
                    self.image = flushed.clone();
                }
                return false;
            }
            Some(Effect::Lie) => return true,
            None => {}
        }
        if self.flushed.is_some() {
            self.flushed = Some(self.image.clone());
        }
        if let Some(tape) = &mut self.tape {
            tape.entries.push(Entry::Flush);
        }
        true
    }
}

pub(crate) struct Server {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) bytes: usize,
}

impl Server {
    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode.0 {
            1 => (FileType::Directory, 0o700, 0),
            INODE => (FileType::RegularFile, 0o600, self.bytes as u64),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        })
    }

    fn answer_attributes(&self, inode: INodeNo, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX / 2)
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(INodeNo(INODE)) {
            Some(attributes) if name == FILE => reply.entry(&TTL, &attributes, Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.answer_attributes(inode, reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // No page cache between the loop device and the disk.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.state.lock().read(place(offset), size as usize) {
            Some(bytes) => reply.data(&bytes),
            None => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.state.lock().write(place(offset), bytes) {
            reply.written(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        } else {
            reply.error(Errno::EIO);
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if self.state.lock().flush() {
            reply.ok();
        } else {
            reply.error(Errno::EIO);
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // A descriptor was closed: that is no flush of a disk.
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        // No discard: the block layer writes zeros instead.
        reply.error(Errno::EOPNOTSUPP);
    }
}
