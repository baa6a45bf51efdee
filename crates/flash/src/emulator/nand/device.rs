//! The device: takes operations in the order of their times, and computes when they are done.
//!
//! Not thread-safe: it has one owner.
//!
//! Invariants:
//! 1. A LUN does one operation at a time, in the order in which they came, unless a read interrupts
//!    a program or an erase, or is over before an operation begins whose data is still on its way.
//!    It is occupied by a read until the data has left over the bus, and by a program from the
//!    beginning of the transfer.
//! 2. One transfer at a time is on a channel's bus, and on each direction of the host's link.
//! 3. What the medium does not allow is refused, and then changes nothing and takes no time.

use super::chunks::{Chunk, ChunkState, Chunks};
use super::profile::{Profile, to_ns, transfer_ns};
use super::timeline::{Ns, Timeline};
use glintdb_core::{Error, Result};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// An operation of the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NandOp {
    /// Reads bytes of a chunk. What was not programmed is read as well, and takes as long.
    Read {
        /// The chunk.
        chunk: Chunk,
        /// Where in the chunk, in bytes: a multiple of a sector.
        offset: u64,
        /// How many bytes: a multiple of a sector, at least one.
        bytes: u64,
    },
    /// Programs the next row of a chunk.
    Program {
        /// The chunk.
        chunk: Chunk,
        /// The row, which must be the next one.
        row: u32,
    },
    /// Erases a chunk.
    Erase {
        /// The chunk.
        chunk: Chunk,
    },
}

/// Kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A read.
    Read,
    /// A program.
    Program,
    /// An erase.
    Erase,
}

/// What a LUN was occupied by, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Number of the LUN.
    pub lun: u32,
    /// What it did.
    pub operation: Operation,
    /// From when, in nanoseconds.
    pub from: Ns,
    /// Until when.
    pub until: Ns,
}

/// An operation that was submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// When it is acknowledged. For a program, with a write cache: when the cache has it.
    pub acknowledged: Ns,
    /// When it is done, as far as is known: a later read may interrupt a program or an erase. See
    /// [`Device::done`].
    pub done: Ns,
    /// Whether the medium has failed: the read cannot be corrected, or the chunk is offline since
    /// the program or erase.
    pub has_failed: bool,
    /// Time for which a read waited for programs and erases of its LUN, in nanoseconds.
    pub write_wait_ns: Ns,
    lun: u32,
    number: u64,
}

/// Counters of a LUN since the device was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnitStats {
    /// Number of reads.
    pub reads: u64,
    /// Number of programs.
    pub programs: u64,
    /// Number of erases.
    pub erases: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were programmed.
    pub programmed_bytes: u64,
    /// Nanoseconds in which it was occupied.
    pub busy_ns: Ns,
    /// Nanoseconds that reads waited for it.
    pub read_wait_ns: Ns,
    /// Nanoseconds of these that they waited for its programs and erases.
    pub write_wait_ns: Ns,
    /// Programs and erases that reads have interrupted.
    pub suspends: u64,
}

/// An operation that occupies a LUN, or will.
#[derive(Clone, Copy)]
struct Pending {
    number: u64,
    operation: Operation,
    /// The planes that it occupies, a bit each.
    planes: u32,
    from: Ns,
    /// From when it can be interrupted: its transfer is over.
    array_from: Ns,
    until: Ns,
}

#[derive(Default)]
struct Lun {
    /// In the order of their beginnings.
    pending: VecDeque<Pending>,
    stats: UnitStats,
}

/// Where a read goes among the operations of a LUN.
struct Slot {
    start: Ns,
    /// Time that it waits for programs and erases.
    write_wait_ns: Ns,
    /// The operation that it interrupts.
    interrupts: Option<usize>,
}

impl Lun {
    /// When all planes are free.
    fn free(&self) -> Ns {
        let ends = self.pending.iter().map(|op| op.until);
        ends.max().unwrap_or(0)
    }

    fn add(&mut self, op: Pending) {
        let at = self.pending.partition_point(|other| other.from <= op.from);
        self.pending.insert(at, op);
    }
}

/// Generator of failures: SplitMix64.
struct Random(u64);

impl Random {
    /// Whether something happens whose rate is `ppm` in a million.
    fn happens(&mut self, ppm: u32) -> bool {
        if ppm == 0 {
            return false;
        }
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % 1_000_000 < u64::from(ppm)
    }
}

/// A device. See the [module's page](super).
pub struct Device {
    profile: Profile,
    luns: Vec<Lun>,
    buses: Vec<Timeline>,
    link_read: Timeline,
    link_write: Timeline,
    chunks: Chunks,
    /// What the write cache holds: when it is programmed, and bytes.
    cached: BinaryHeap<Reverse<(Ns, u64)>>,
    cached_bytes: u64,
    random: Random,
    now: Ns,
    next_number: u64,
    /// What the LUNs did, if it is traced.
    trace: Option<Vec<Span>>,
}

impl Device {
    /// A device in which every chunk is free, except for those that are bad from the factory.
    ///
    /// # Errors
    /// `InvalidArgument` for a value out of its limits.
    pub fn new(profile: Profile) -> Result<Device> {
        profile
            .check()
            .map_err(|what| Error::invalid(format!("profile {}: {what}", profile.name)))?;
        let channels = profile.geometry.channels;
        let luns = profile.geometry.luns_in_all();
        let mut device = Device {
            luns: (0..luns).map(|_| Lun::default()).collect(),
            buses: (0..channels).map(|_| Timeline::default()).collect(),
            link_read: Timeline::default(),
            link_write: Timeline::default(),
            chunks: Chunks::new(&profile),
            cached: BinaryHeap::new(),
            cached_bytes: 0,
            random: Random(profile.faults.seed),
            now: 0,
            next_number: 0,
            trace: None,
            profile,
        };
        for lun in 0..luns {
            for block in 0..device.profile.geometry.blocks {
                if device.random.happens(device.profile.faults.factory_bad_ppm) {
                    device.chunks.retire(Chunk { lun, block })?;
                }
            }
        }
        Ok(device)
    }

    /// The device's properties.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Keeps what the LUNs do from now on, for [`take_trace`](Self::take_trace).
    pub fn trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    /// What the LUNs did since [`trace`](Self::trace). Interrupted operations are there once, with
    /// the time that they were given first.
    pub fn take_trace(&mut self) -> Vec<Span> {
        self.trace.take().unwrap_or_default()
    }

    /// Counters of each LUN.
    pub fn units(&self) -> impl ExactSizeIterator<Item = UnitStats> {
        self.luns.iter().map(|lun| lun.stats)
    }

    /// State of a chunk.
    ///
    /// # Errors
    /// `InvalidArgument` if the device has no such chunk.
    pub fn state(&self, chunk: Chunk) -> Result<ChunkState> {
        self.chunks.state(chunk)
    }

    /// The row of a chunk that is programmed next; the number of rows if the chunk is closed.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub fn write_pointer(&self, chunk: Chunk) -> Result<u32> {
        self.chunks.write_pointer(chunk)
    }

    /// Number of rows, from the first one on, that a read gives back: those of an open chunk
    /// without the last `rows_unreadable`.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub fn readable_rows(&self, chunk: Chunk) -> Result<u32> {
        let rows = self.chunks.write_pointer(chunk)?;
        Ok(match self.chunks.state(chunk)? {
            ChunkState::Open => rows.saturating_sub(self.profile.rules.rows_unreadable),
            _ => rows,
        })
    }

    /// How often a chunk was erased.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub fn wear(&self, chunk: Chunk) -> Result<u32> {
        self.chunks.wear(chunk)
    }

    /// Marks a chunk as bad (host-marked).
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub fn retire(&mut self, chunk: Chunk) -> Result<()> {
        self.chunks.retire(chunk)
    }

    /// Submits an operation at `at`, which counts as the time of the last operation if it is before
    /// that. Returns when it is acknowledged and done.
    ///
    /// # Errors
    /// `InvalidArgument`: the medium does not allow it, or there is no such chunk. Nothing has
    /// happened. (If the medium fails, the operation takes its time, and the ticket says so.)
    pub fn submit(&mut self, op: NandOp, at: Ns) -> Result<Ticket> {
        self.now = self.now.max(at);
        let now = self.now;
        let (NandOp::Read { chunk, .. } | NandOp::Program { chunk, .. } | NandOp::Erase { chunk }) =
            op;
        match op {
            NandOp::Read { offset, bytes, .. } => self.check_read(chunk, offset, bytes)?,
            NandOp::Program { row, .. } => self.chunks.program(chunk, row, &self.profile)?,
            NandOp::Erase { .. } => self.chunks.erase(chunk, &self.profile)?,
        }
        let lun = &mut self.luns[chunk.lun as usize];
        lun.pending.retain(|op| op.until > now);
        self.bus_of(chunk.lun).forget_before(now);
        self.next_number += 1;
        match op {
            NandOp::Read { offset, bytes, .. } => self.read(chunk.lun, offset, bytes),
            NandOp::Program { row, .. } => self.program(chunk, row),
            NandOp::Erase { .. } => self.erase(chunk),
        }
    }

    /// When an operation is done, as of now: a caller that waits for it asks again when the time
    /// has come, because reads may have interrupted it meanwhile.
    #[must_use]
    pub fn done(&self, ticket: &Ticket) -> Ns {
        let pending = &self.luns[ticket.lun as usize].pending;
        let found = pending.iter().find(|op| op.number == ticket.number);
        found.map_or(ticket.done, |op| op.until.max(ticket.done))
    }

    /// When everything is durable that was acknowledged, for a flush at `at`.
    #[must_use]
    pub fn flushed(&self, at: Ns) -> Ns {
        match self.profile.cache.power_loss_protection {
            true => at,
            false => self.busy_until().max(at),
        }
    }

    /// When the last operation that is under way ends on its LUN.
    #[must_use]
    pub fn busy_until(&self) -> Ns {
        self.luns.iter().map(Lun::free).max().unwrap_or(0)
    }

    fn bus_of(&mut self, lun: u32) -> &mut Timeline {
        let channel = lun % self.profile.geometry.channels;
        &mut self.buses[channel as usize]
    }

    fn check_read(&self, chunk: Chunk, offset: u64, bytes: u64) -> Result<()> {
        self.chunks.check_online(chunk)?;
        let geometry = &self.profile.geometry;
        let sector = u64::from(geometry.sector_bytes);
        if bytes == 0 || !offset.is_multiple_of(sector) || !bytes.is_multiple_of(sector) {
            return Err(Error::invalid(format!(
                "a read of {bytes} bytes at {offset} of {chunk} is not of whole sectors of {sector}"
            )));
        }
        let ends = offset.checked_add(bytes);
        if ends.is_none_or(|end| end > geometry.chunk_bytes()) {
            return Err(Error::invalid(format!(
                "a read of {bytes} bytes at {offset} reaches beyond {chunk}, which has {} bytes",
                geometry.chunk_bytes()
            )));
        }
        Ok(())
    }

    fn ticket(&self, lun: u32, acknowledged: Ns, done: Ns, has_failed: bool) -> Ticket {
        Ticket {
            acknowledged,
            done,
            has_failed,
            write_wait_ns: 0,
            lun,
            number: self.next_number,
        }
    }

    fn note(&mut self, lun: u32, operation: Operation, from: Ns, until: Ns) {
        self.luns[lun as usize].stats.busy_ns += until - from;
        if let Some(trace) = &mut self.trace {
            trace.push(Span {
                lun,
                operation,
                from,
                until,
            });
        }
    }

    fn read(&mut self, lun: u32, offset: u64, bytes: u64) -> Result<Ticket> {
        let asked = self.now + to_ns(self.profile.times.read_firmware_us);
        let planes = self.planes_of(offset, bytes);
        let slot = self.slot_for_read(lun, planes, asked, (offset, bytes));
        let start = slot.start;
        let time = self.transfer_read(lun, start, (offset, bytes), true);
        self.occupy_by_read(lun, planes, &slot, time);
        let over_link = transfer_ns(bytes, self.profile.link.read_mb_s);
        // The link takes what has come over the bus, so it ends behind that at the earliest.
        let begins = time.saturating_sub(over_link).max(self.now);
        let now = self.now;
        self.link_read.forget_before(now);
        let done = self.link_read.reserve(begins, over_link).max(time);
        let stats = &mut self.luns[lun as usize].stats;
        stats.reads += 1;
        stats.read_bytes += bytes;
        stats.read_wait_ns += start - asked;
        stats.write_wait_ns += slot.write_wait_ns;
        self.note(lun, Operation::Read, start, time);
        let has_failed = self.random.happens(self.profile.faults.read_ppm);
        let ticket = self.ticket(lun, done, done, has_failed);
        Ok(Ticket {
            write_wait_ns: slot.write_wait_ns,
            ..ticket
        })
    }

    /// When a read that begins at `start` has left over the bus, page by page. Reserves the bus, or
    /// only looks.
    fn transfer_read(
        &mut self,
        lun: u32,
        start: Ns,
        (offset, bytes): (u64, u64),
        reserves: bool,
    ) -> Ns {
        let page_bytes = u64::from(self.profile.geometry.page_bytes);
        let planes = u64::from(self.profile.geometry.planes);
        let rate = self.profile.times.bus_mb_s;
        let (mut at, end) = (offset, offset + bytes);
        let mut time = start;
        let mut sensed = None;
        while at < end {
            let page = at / page_bytes;
            // Pages of all planes that are at the same place of their blocks are sensed together.
            let place = page / planes;
            if sensed != Some(place) {
                sensed = Some(place);
                time += self
                    .profile
                    .read_ns(u32::try_from(place).unwrap_or(u32::MAX));
            }
            let next = ((page + 1) * page_bytes).min(end);
            let length = transfer_ns(next - at, rate);
            let bus = self.bus_of(lun);
            time = match reserves {
                true => bus.reserve(time, length),
                false => bus.peek(time, length),
            };
            at = next;
        }
        time
    }

    /// The planes that a read occupies, a bit each.
    fn planes_of(&self, offset: u64, bytes: u64) -> u32 {
        let geometry = &self.profile.geometry;
        let all = (1 << geometry.planes) - 1;
        let page_bytes = u64::from(geometry.page_bytes);
        let pages = offset / page_bytes..(offset + bytes).div_ceil(page_bytes);
        let planes = u64::from(geometry.planes);
        if !self.profile.rules.planes_read_alone || pages.end - pages.start >= planes {
            return all;
        }
        pages.fold(0, |mask, page| mask | 1 << (page % planes))
    }

    /// Where a read goes that comes at `asked`: before an operation that begins later, if it is
    /// over by then; into a program or an erase that it interrupts; or behind them all.
    fn slot_for_read(&mut self, lun: u32, planes: u32, asked: Ns, range: (u64, u64)) -> Slot {
        let suspend = self.profile.suspend.clone();
        let (mut start, mut write_wait_ns) = (asked, 0);
        for at in 0..self.luns[lun as usize].pending.len() {
            let op = self.luns[lun as usize].pending[at];
            if op.until <= start || op.planes & planes == 0 {
                continue;
            }
            if start < op.from && self.transfer_read(lun, start, range, false) <= op.from {
                break;
            }
            let cost = match op.operation {
                Operation::Read => None,
                Operation::Program => suspend.program_us,
                Operation::Erase => suspend.erase_us,
            };
            if let Some(cost) = cost {
                self.luns[lun as usize].stats.suspends += 1;
                let begins = start.max(op.array_from) + to_ns(cost);
                return Slot {
                    start: begins,
                    write_wait_ns: write_wait_ns + (begins - start),
                    interrupts: Some(at),
                };
            }
            if op.operation != Operation::Read {
                write_wait_ns += op.until - start;
            }
            start = op.until;
        }
        Slot {
            start,
            write_wait_ns,
            interrupts: None,
        }
    }

    /// Occupies the LUN by a read until `end`. What it interrupts, and what follows that, is done
    /// later by as much.
    fn occupy_by_read(&mut self, lun: u32, planes: u32, slot: &Slot, end: Ns) {
        let read = Pending {
            number: self.next_number,
            operation: Operation::Read,
            planes,
            from: slot.start,
            array_from: slot.start,
            until: end,
        };
        let suspend = &self.profile.suspend;
        let (program_us, erase_us) = (suspend.program_us, suspend.erase_us);
        let lun = &mut self.luns[lun as usize];
        let Some(place) = slot.interrupts else {
            lun.add(read);
            return;
        };
        let cost = match lun.pending[place].operation {
            Operation::Program => program_us,
            _ => erase_us,
        };
        // It stood still from its interruption on.
        let stood = end - (slot.start - to_ns(cost.unwrap_or(0.0)));
        for op in lun.pending.iter_mut().skip(place) {
            op.from += stood;
            op.array_from += stood;
            op.until += stood;
        }
        // The rest of the interrupted operation begins when the read is over.
        lun.pending[place].from = end;
        lun.pending[place].array_from = end;
        lun.pending.insert(place, read);
    }

    fn program(&mut self, chunk: Chunk, row: u32) -> Result<Ticket> {
        let bytes = self.profile.geometry.row_bytes();
        let asked = self.now + to_ns(self.profile.times.write_firmware_us);
        let now = self.now;
        self.link_write.forget_before(now);
        let over_link = transfer_ns(bytes, self.profile.link.write_mb_s);
        let arrived = self.link_write.reserve(asked, over_link);
        let room = self.room_in_cache(bytes, arrived);
        let start = room
            .unwrap_or(arrived)
            .max(self.luns[chunk.lun as usize].free());
        let page_bytes = u64::from(self.profile.geometry.page_bytes);
        let transfer = transfer_ns(page_bytes, self.profile.times.bus_mb_s);
        let (mut from, mut loaded) = (None, start);
        for _ in 0..bytes / page_bytes {
            loaded = self.bus_of(chunk.lun).reserve(loaded, transfer);
            from = from.or(Some(loaded - transfer));
        }
        let from = from.unwrap_or(start);
        let done = loaded + self.profile.program_ns(row);
        let acknowledged = match room {
            Some(room) => {
                self.cached.push(Reverse((done, bytes)));
                self.cached_bytes += bytes;
                room
            }
            None => done,
        };
        let lun = &mut self.luns[chunk.lun as usize];
        lun.stats.programs += 1;
        lun.stats.programmed_bytes += bytes;
        lun.add(Pending {
            number: self.next_number,
            operation: Operation::Program,
            planes: u32::MAX,
            from,
            array_from: loaded,
            until: done,
        });
        self.note(chunk.lun, Operation::Program, from, done);
        let has_failed = self.random.happens(self.profile.faults.program_ppm);
        if has_failed {
            self.chunks.retire(chunk)?;
        }
        Ok(self.ticket(chunk.lun, acknowledged, done, has_failed))
    }

    /// When the cache has room for `bytes` that come at `arrived`. `None`: there is no cache, or it
    /// is smaller than that.
    fn room_in_cache(&mut self, bytes: u64, arrived: Ns) -> Option<Ns> {
        let size = self.profile.cache.bytes;
        if bytes > size {
            return None;
        }
        let mut room = arrived;
        while let Some(Reverse((programmed, cached))) = self.cached.peek().copied() {
            if programmed > arrived && self.cached_bytes + bytes <= size {
                break;
            }
            room = room.max(programmed);
            self.cached_bytes -= cached;
            self.cached.pop();
        }
        Some(room)
    }

    fn erase(&mut self, chunk: Chunk) -> Result<Ticket> {
        let time = to_ns(self.profile.times.erase_us);
        let faults = self.profile.faults.clone();
        let wear = self.chunks.wear(chunk)?;
        let lun = &mut self.luns[chunk.lun as usize];
        let start = self.now.max(lun.free());
        let done = start + time;
        lun.stats.erases += 1;
        lun.add(Pending {
            number: self.next_number,
            operation: Operation::Erase,
            planes: u32::MAX,
            from: start,
            array_from: start,
            until: done,
        });
        self.note(chunk.lun, Operation::Erase, start, done);
        let is_worn_out = faults.endurance > 0 && wear > faults.endurance;
        let has_failed = is_worn_out || self.random.happens(faults.erase_ppm);
        if has_failed {
            self.chunks.retire(chunk)?;
        }
        Ok(self.ticket(chunk.lun, done, done, has_failed))
    }
}
