//! Makes segments in advance, and keeps the reserve for a full disk.
//!
//! The header of a segment and the name of its file are durable before the segment takes a frame,
//! so a seal never names a file that a power cut can take away. The reserve is a number of empty,
//! preallocated files. If the disk is full, one of them is removed to make room for a segment.
//!
//! A segment of the stream is kept open until the spill has written all of it. So once a commit has
//! its place, a process without free descriptors can write and sync it, and only a commit that
//! needs a new segment is refused.
//!
//! Thread safety: any thread. `PrepareState` is locked while files are made.

use crate::format::segment::{SegmentHeader, SegmentKind};
use crate::format::{BLOCK_BYTES, FIRST_FRAME_OFFSET};
use crate::log::{Log, LogSetup};
use crate::segment::Segment;
use crate::write::append::Space;
use glintdb_core::{ErrorKind, FileId, Result, SegmentId, planted};
use glintdb_flash::{CreateOptions, DataClass, Ring, VolumeFile};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What making the next segment needs. Its mutex is held while files are made.
pub(crate) struct PrepareState {
    /// Stream position where the next segment's file begins.
    pub(crate) base_next: u64,
    /// Whether segments are written with direct I/O. Not if the ring does not survive a kill: every
    /// commit then writes to its segment, which only the page cache makes cheap.
    direct: bool,
    /// Files of the reserve, each with the bytes that it has.
    reserve: Vec<(FileId, u64)>,
}

impl PrepareState {
    pub(crate) fn new(base_next: u64, ring: &dyn Ring) -> Self {
        PrepareState {
            base_next,
            direct: ring.survives_kill(),
            reserve: Vec::new(),
        }
    }

    /// Makes the first segment of this process. If there is no space for it, makes a smaller one,
    /// so that a database opens on a full disk.
    pub(crate) fn create_first(&mut self, setup: &LogSetup) -> Result<Arc<Segment>> {
        let mut create =
            |capacity| self.create_segment(setup, SegmentKind::Stream, capacity, false);
        let created = match create(setup.options.segment_bytes_first()) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                create(setup.options.segment_bytes_min())
            }
            other => other,
        };
        created.map(Arc::new)
    }

    /// Makes a segment that is durable and empty.
    pub(crate) fn create_segment(
        &mut self,
        setup: &LogSetup,
        kind: SegmentKind,
        capacity: u64,
        from_reserve: bool,
    ) -> Result<Segment> {
        let header = SegmentHeader {
            kind,
            db: setup.db,
            id: SegmentId(setup.numbers.next()?),
            base: self.base_next,
            capacity,
        };
        assert!(
            header.base.is_multiple_of(BLOCK_BYTES)
                && capacity.is_multiple_of(BLOCK_BYTES)
                && capacity > u64::from(FIRST_FRAME_OFFSET)
                && u32::try_from(capacity).is_ok(),
            "a segment is of whole blocks, fewer than 4 GiB: base {}, capacity {capacity}",
            header.base
        );
        let options = create_options(DataClass::Log, capacity, self.direct);
        let file = setup.volume.create_recycled(header.id.file(), options)?;
        let kept = planted!(
            "log: a segment that takes commits is not kept open",
            file.keep_open(true),
            Ok(())
        );
        let written = kept
            .and_then(|()| file.write_at(0, &header.encode()))
            .and_then(|()| {
                planted!(
                    "log: the header of a new segment is not synced",
                    file.sync(),
                    Ok(())
                )
            })
            .and_then(|()| {
                planted!(
                    "log: the name of a new segment is not made durable",
                    setup.volume.sync_directory(),
                    Ok(())
                )
            });
        if let Err(error) = written {
            // If the removal fails too, recovery finds a file that no seal names and removes it.
            drop(setup.volume.delete(header.id.file()));
            return Err(error.context(format!("prepare log segment {}", header.id)));
        }
        self.base_next += capacity;
        Ok(Segment::written(&header, file, from_reserve))
    }

    /// Removes one file of the reserve. Returns whether there was one.
    fn open_reserve(&mut self, setup: &LogSetup) -> Result<bool> {
        let Some((file, _)) = self.reserve.pop() else {
            return Ok(false);
        };
        setup.volume.delete(file)?;
        setup.volume.sync_directory()?;
        Ok(true)
    }

    /// [`create_segment`](Self::create_segment) that uses the reserve if there is no other room and
    /// `space` allows it.
    pub(crate) fn create_anyhow(
        &mut self,
        setup: &LogSetup,
        kind: SegmentKind,
        capacity: u64,
        space: Space,
    ) -> Result<Segment> {
        self.anyhow(setup, space, |this, from_reserve| {
            this.create_segment(setup, kind, capacity, from_reserve)
        })
    }

    /// Makes the next segment of the stream, of `capacity`. If the reserve has no space for that,
    /// makes a small one, so that all of the reserve can be used.
    pub(crate) fn create_next(
        &mut self,
        setup: &LogSetup,
        capacity: u64,
        space: Space,
    ) -> Result<Segment> {
        let small = setup.options.segment_bytes_first();
        match self.create_anyhow(setup, SegmentKind::Stream, capacity, space) {
            Err(error)
                if error.kind() == ErrorKind::NoSpace
                    && space == Space::Reserve
                    && small < capacity =>
            {
                self.create_segment(setup, SegmentKind::Stream, small, true)
            }
            created => created,
        }
    }

    /// Makes the file of a values segment, and returns whether its space came from the reserve.
    /// Nothing is written to the file yet, and its name is not durable: before
    /// [`Log::publish_values`] nothing refers to it, and it may be lost.
    pub(crate) fn create_values(
        &mut self,
        setup: &LogSetup,
        capacity: u64,
        space: Space,
    ) -> Result<(SegmentHeader, Arc<dyn VolumeFile>, bool)> {
        self.anyhow(setup, space, |_, from_reserve| {
            let header = SegmentHeader {
                kind: SegmentKind::Values,
                db: setup.db,
                id: SegmentId(setup.numbers.next()?),
                base: 0,
                capacity,
            };
            let options = create_options(DataClass::Relocated, capacity, true);
            let file = setup.volume.create_recycled(header.id.file(), options)?;
            Ok((header, file, from_reserve))
        })
    }

    /// Calls `create`. If it finds no room and `space` allows the reserve, removes files of the
    /// reserve one by one, and calls `create` after each. The argument of `create` says whether the
    /// reserve was used.
    fn anyhow<T>(
        &mut self,
        setup: &LogSetup,
        space: Space,
        mut create: impl FnMut(&mut Self, bool) -> Result<T>,
    ) -> Result<T> {
        match create(self, false) {
            Err(error) if error.kind() == ErrorKind::NoSpace && space == Space::Reserve => {
                let mut last = error;
                while self.open_reserve(setup)? {
                    match create(self, true) {
                        Err(error) if error.kind() == ErrorKind::NoSpace => last = error,
                        other => return other,
                    }
                }
                Err(last)
            }
            other => other,
        }
    }

    /// Adds files of `segment_bytes` to the reserve until it holds as many bytes as
    /// [`reserve_segments`](crate::LogOptions::reserve_segments) such files. As segments grow, each
    /// file makes the reserve larger by half or so.
    fn refill(&mut self, setup: &LogSetup, segment_bytes: u64) -> Result<()> {
        let wanted = setup.options.reserve_segments as u64 * segment_bytes;
        while self.reserve.iter().map(|(_, bytes)| bytes).sum::<u64>() < wanted {
            let id = SegmentId(setup.numbers.next()?).file();
            let options = create_options(DataClass::Log, segment_bytes, self.direct);
            setup.volume.create(id, options)?;
            self.reserve.push((id, segment_bytes));
        }
        Ok(())
    }

    /// Removes files that the reserve has beyond what [`refill`](Self::refill) makes for
    /// `segment_bytes`.
    pub(crate) fn trim_reserve(&mut self, setup: &LogSetup, segment_bytes: u64) -> Result<()> {
        let wanted = setup.options.reserve_segments as u64 * segment_bytes;
        let mut held: u64 = self.reserve.iter().map(|(_, bytes)| bytes).sum();
        // The newest are the largest.
        for at in (0..self.reserve.len()).rev() {
            let (file, bytes) = self.reserve[at];
            if held - bytes >= wanted {
                setup.volume.delete(file)?;
                self.reserve.remove(at);
                held -= bytes;
            }
        }
        Ok(())
    }
}

fn create_options(class: DataClass, bytes: u64, direct: bool) -> CreateOptions {
    CreateOptions {
        class,
        reserve_bytes: bytes,
        direct,
    }
}

impl Log {
    /// Whether [`prepare_step`](Self::prepare_step) has something to do.
    #[must_use]
    pub fn prepare_due(&self) -> bool {
        self.prepare_wanted.load(Ordering::Acquire) && !self.poisoned()
    }

    /// Prepares the next segment if there is none. With [`Space::Normal`], also fills the reserve
    /// for a full disk. Returns whether a segment is prepared now. After an error,
    /// [`prepare_due`](Self::prepare_due) is `false` until a segment is deleted or begun.
    ///
    /// # Errors
    /// `NoSpace`, `Unavailable`: nothing is lost, and a later call may succeed. `Poisoned`; I/O
    /// errors.
    pub fn prepare_step(&self, space: Space) -> Result<bool> {
        let mut prepare = self.prepare.lock();
        self.check()?;
        self.prepare_wanted.store(false, Ordering::Release);
        self.update_segment_bytes();
        let capacity = self.segment_bytes();
        if self.sequencer.lock().prepared.is_empty() {
            let segment = prepare.create_next(&self.setup, capacity, space)?;
            let segment = Arc::new(segment);
            self.add_to_table(&segment);
            self.sequencer.lock().prepared.push_back(segment);
        }
        if space == Space::Normal {
            let filled = prepare.refill(&self.setup, capacity);
            let table = self.table.load();
            let streams = || table.iter().filter_map(|segment| segment.stream.as_ref());
            match filled {
                Ok(()) => streams().for_each(|s| s.from_reserve.store(false, Ordering::Release)),
                Err(error) if error.kind().passes() => {
                    if streams().any(|s| s.from_reserve.load(Ordering::Acquire)) {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Removes files that the reserve has beyond what segments of the present size need.
    ///
    /// # Errors
    /// I/O errors.
    pub fn trim_reserve(&self) -> Result<()> {
        let mut prepare = self.prepare.lock();
        self.update_segment_bytes();
        prepare.trim_reserve(&self.setup, self.segment_bytes())
    }

    /// Every file that belongs to the log: the reserve, and segments, including those that wait to
    /// be removed.
    #[must_use]
    pub fn files(&self) -> Vec<FileId> {
        let prepare = self.prepare.lock();
        let mut files: Vec<_> = prepare.reserve.iter().map(|(file, _)| *file).collect();
        files.extend(self.table.load().iter().map(|segment| segment.id.file()));
        files.extend(self.doomed.lock().ids().map(SegmentId::file));
        files
    }

    pub(crate) fn add_to_table(&self, segment: &Arc<Segment>) {
        self.change_table(|table| table.with(Arc::clone(segment)));
    }
}
