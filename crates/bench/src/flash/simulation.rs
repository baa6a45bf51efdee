//! Runs a [`Setup`] in the model's own time: readers and writers in a closed loop, as events in the
//! order of their times. In real time, `real_time` handles the same events.
//!
//! Invariants:
//! 1. Operations reach the device in the order of their times; at equal times, in the order in
//!    which they became possible. So equal setups give equal outcomes.
//! 2. The commands of a lane are submitted in the order in which their calls began. So rows of a
//!    chunk are programmed in order.

use super::setup::{Blocks, Pool, Setup};
use crate::report::Latencies;
use glintdb_flash::emulator::nand::{
    Command, Device, NandOp, Ns, Span, Ticket, UnitStats, VirtualBlock,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What readers or writers did together.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Bytes that were read or written without a failure.
    pub bytes: u64,
    /// Nanoseconds until the last of them; of writes, until they are programmed.
    pub elapsed_ns: Ns,
    /// Latencies of commands.
    pub latencies: Latencies,
    /// Commands of which the medium has failed or refused a unit.
    pub failed: u64,
}

impl Side {
    /// Rate in 10^6 bytes per second.
    #[must_use]
    pub fn mb_per_s(&self) -> f64 {
        match self.elapsed_ns {
            0 => 0.0,
            ns => self.bytes as f64 * 1000.0 / ns as f64,
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The readers.
    pub reads: Side,
    /// The writers.
    pub writes: Side,
    /// Erases that failed, or were refused.
    pub failed_erases: u64,
    /// Counters of each LUN.
    pub units: Vec<UnitStats>,
    /// What the LUNs did, if a trace was asked for.
    pub trace: Vec<Span>,
    /// The commands in the order of their ends, if a trace was asked for.
    pub ended: Vec<Ended>,
}

/// A command that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// When, in nanoseconds.
    pub at: Ns,
    /// Whether it was a reader's.
    pub is_read: bool,
    /// Bytes that were read or written without a failure.
    pub bytes: u64,
}

/// A reader or writer, by its number: readers come first.
pub(super) type Worker = usize;

/// A call under way.
struct Call {
    worker: Worker,
    block: Arc<VirtualBlock>,
    /// Units that were read or written without a failure.
    units: u64,
    /// Commands that are not done.
    commands: usize,
}

/// Commands that are submitted in order, some at a time.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<(usize, Command)>,
    in_flight: u32,
}

/// An event, at its time.
enum Event {
    /// A worker begins its next call.
    Begin(Worker),
    /// A writer erases the part of its new virtual block behind this number of commands.
    Erase(Worker, usize),
    /// A command is done, unless a read has interrupted it.
    Done(Submitted),
}

/// A command that was submitted.
struct Submitted {
    call: usize,
    /// The lane, among those of its set.
    lane: (usize, usize),
    at: Ns,
    tickets: Vec<Ticket>,
}

/// A lock, and the writers that wait for it.
#[derive(Default)]
struct Lock {
    holder: Option<Worker>,
    waiting: VecDeque<Worker>,
}

impl Lock {
    /// Takes the lock, or waits for it. Returns whether it was taken.
    fn take(&mut self, worker: Worker) -> bool {
        match self.holder {
            None => self.holder = Some(worker),
            Some(holder) if holder == worker => {}
            Some(_) => {
                self.waiting.push_back(worker);
                return false;
            }
        }
        true
    }

    /// Gives the lock to the next writer, which is returned.
    fn give(&mut self, worker: Worker) -> Option<Worker> {
        if self.holder != Some(worker) {
            return None;
        }
        self.holder = self.waiting.pop_front();
        self.holder
    }

    /// Frees the lock, and returns those that waited for it.
    fn give_all(&mut self) -> Vec<Worker> {
        self.holder = None;
        self.waiting.drain(..).collect()
    }
}

/// Where a worker, or all writers together, go on.
#[derive(Clone, Default)]
struct Position {
    block: Option<Arc<VirtualBlock>>,
    next_unit: u64,
}

/// A run under way.
pub(super) struct Simulation<'a> {
    setup: &'a Setup,
    device: Device,
    events: BinaryHeap<Reverse<(Ns, u64)>>,
    /// The events, by their numbers.
    queued: BTreeMap<u64, Event>,
    next_event: u64,
    pools: [Pool; 2],
    calls: Vec<Call>,
    free_calls: Vec<usize>,
    /// Lanes of each reader and each writer; with shared blocks, all writers have those of the
    /// first one.
    lanes: Vec<Vec<Lane>>,
    positions: Vec<Position>,
    /// Bytes that are left of each worker's part.
    left: Vec<u64>,
    taking: Lock,
    writing: Lock,
    reads: Side,
    writes: Side,
    failed_erases: u64,
    /// The commands that have ended, if a trace is wanted.
    ended: Option<Vec<Ended>>,
    now: Ns,
}

/// Runs `setup`. With `trace`, keeps what each LUN did when, and when commands ended.
///
/// # Errors
/// A text for people if the setup is out of its limits, or the device refuses an operation.
pub fn simulate(setup: &Setup, trace: bool) -> Result<Outcome, String> {
    let mut simulation = Simulation::new(setup, trace)?;
    simulation.start();
    while let Some((time, number)) = simulation.next_event() {
        simulation.handle(time, number)?;
    }
    Ok(simulation.into_outcome())
}

impl<'a> Simulation<'a> {
    /// A run that has not begun.
    pub(super) fn new(setup: &'a Setup, trace: bool) -> Result<Simulation<'a>, String> {
        setup.check()?;
        let mut device = Device::new(setup.profile.clone()).map_err(|error| error.to_string())?;
        if trace {
            device.trace();
        }
        let workers = (setup.readers + setup.writers) as usize;
        let part = |count: u32| setup.bytes.div_ceil(u64::from(count.max(1)));
        let left = (0..workers).map(|worker| match worker < setup.readers as usize {
            true => part(setup.readers),
            false => part(setup.writers),
        });
        Ok(Simulation {
            setup,
            device,
            events: BinaryHeap::new(),
            queued: BTreeMap::new(),
            next_event: 0,
            pools: [setup.virtual_blocks(true), setup.virtual_blocks(false)],
            calls: Vec::new(),
            free_calls: Vec::new(),
            lanes: (0..workers).map(|_| Vec::new()).collect(),
            positions: vec![Position::default(); workers],
            left: left.collect(),
            taking: Lock::default(),
            writing: Lock::default(),
            reads: Side::default(),
            writes: Side::default(),
            failed_erases: 0,
            ended: trace.then(Vec::new),
            now: 0,
        })
    }

    /// Has every worker begin at time 0.
    pub(super) fn start(&mut self) {
        for worker in 0..self.left.len() {
            self.at(0, Event::Begin(worker));
        }
    }

    /// Takes the time and number of the next event, which [`handle`](Self::handle) handles.
    pub(super) fn next_event(&mut self) -> Option<(Ns, u64)> {
        self.events.pop().map(|Reverse(event)| event)
    }

    /// Whose event it is; `None` if it was handled.
    pub(super) fn worker_of(&self, number: u64) -> Option<Worker> {
        Some(match self.queued.get(&number)? {
            Event::Begin(worker) | Event::Erase(worker, _) => *worker,
            Event::Done(submitted) => self.calls[submitted.call].worker,
        })
    }

    /// Whether the event is the end of a wait for the device.
    pub(super) fn is_wait(&self, number: u64) -> bool {
        match self.queued.get(&number) {
            Some(Event::Erase(_, commands)) => *commands > 0,
            Some(Event::Done(_)) => true,
            Some(Event::Begin(_)) | None => false,
        }
    }

    /// Whether all events were handled, so that no more will come.
    pub(super) fn is_over(&self) -> bool {
        self.queued.is_empty()
    }

    /// Handles an event at `now`, its time or later.
    pub(super) fn handle(&mut self, now: Ns, number: u64) -> Result<(), String> {
        self.now = self.now.max(now);
        match self.queued.remove(&number) {
            None => Ok(()),
            Some(Event::Begin(worker)) => self.begin(worker),
            Some(Event::Erase(worker, from)) => self.erase(worker, from),
            Some(Event::Done(submitted)) => self.command_done(submitted),
        }
    }

    /// What came of the run, when it is over.
    pub(super) fn into_outcome(mut self) -> Outcome {
        // What the cache has acknowledged is programmed by then.
        let programmed = self.device.busy_until();
        if self.writes.bytes > 0 && self.setup.profile.cache.bytes > 0 {
            let elapsed = &mut self.writes.elapsed_ns;
            *elapsed = programmed.max(*elapsed);
        }
        Outcome {
            reads: self.reads,
            writes: self.writes,
            failed_erases: self.failed_erases,
            units: self.device.units().collect(),
            trace: self.device.take_trace(),
            ended: self.ended.unwrap_or_default(),
        }
    }

    fn at(&mut self, time: Ns, event: Event) {
        self.events.push(Reverse((time, self.next_event)));
        self.queued.insert(self.next_event, event);
        self.next_event += 1;
    }

    fn is_reader(&self, worker: Worker) -> bool {
        worker < self.setup.readers as usize
    }

    fn side(&mut self, worker: Worker) -> &mut Side {
        match self.is_reader(worker) {
            true => &mut self.reads,
            false => &mut self.writes,
        }
    }

    /// Whose position and lanes a worker uses.
    fn place_of(&self, worker: Worker) -> usize {
        match self.setup.blocks {
            Blocks::Shared if !self.is_reader(worker) => self.setup.readers as usize,
            _ => worker,
        }
    }

    /// Whether writers take turns in writing.
    fn takes_turns(&self, worker: Worker) -> bool {
        self.setup.locks && self.setup.blocks == Blocks::Shared && !self.is_reader(worker)
    }

    /// Begins the worker's next call, unless it has done its part or must wait.
    fn begin(&mut self, worker: Worker) -> Result<(), String> {
        if self.left[worker] == 0 {
            return Ok(());
        }
        if self.takes_turns(worker) && !self.writing.take(worker) {
            return Ok(());
        }
        let place = self.place_of(worker);
        let position = &self.positions[place];
        let block = match &position.block {
            Some(block) if position.next_unit < block.units() => Arc::clone(block),
            _ if self.is_reader(worker) => {
                let block = Arc::new(self.pools[0].take());
                self.positions[place] = Position {
                    block: Some(Arc::clone(&block)),
                    next_unit: 0,
                };
                block
            }
            _ => return self.take_block(worker),
        };
        self.call(worker, &block)
    }

    /// Takes a virtual block for a writer, and begins to erase it.
    fn take_block(&mut self, worker: Worker) -> Result<(), String> {
        let takes_turns = match self.setup.blocks {
            Blocks::Own => self.setup.locks,
            // With the lock, the writer is alone already. Without, the others wait for the erase.
            Blocks::Shared => !self.setup.locks,
        };
        if takes_turns && !self.taking.take(worker) {
            return Ok(());
        }
        let block = Arc::new(self.pools[1].take());
        let place = self.place_of(worker);
        // Full, until it is erased.
        self.positions[place] = Position {
            next_unit: block.units(),
            block: Some(block),
        };
        self.erase(worker, 0)
    }

    /// Submits the command of an erase behind the first `from`; behind the last one, the writer
    /// goes on.
    fn erase(&mut self, worker: Worker, from: usize) -> Result<(), String> {
        let place = self.place_of(worker);
        let Some(block) = self.positions[place].block.clone() else {
            return Ok(());
        };
        let Some(chunks) = block.erases(&self.setup.profile).nth(from) else {
            self.positions[place].next_unit = 0;
            let waiting = match self.setup.blocks {
                Blocks::Own => self.taking.give(worker).into_iter().collect(),
                Blocks::Shared => self.taking.give_all(),
            };
            let begin = self.begin(worker);
            for next in waiting {
                self.at(self.now, Event::Begin(next));
            }
            return begin;
        };
        let mut done = self.now;
        for chunk in chunks {
            let op = NandOp::Erase { chunk: *chunk };
            match self.device.submit(op, self.now) {
                Ok(ticket) => {
                    done = done.max(ticket.done);
                    self.failed_erases += u64::from(ticket.has_failed);
                }
                Err(_) if self.is_restricted() => self.failed_erases += 1,
                Err(error) => return Err(error.to_string()),
            }
        }
        self.at(done, Event::Erase(worker, from + 1));
        Ok(())
    }

    /// Begins a call on the units that come next.
    fn call(&mut self, worker: Worker, block: &Arc<VirtualBlock>) -> Result<(), String> {
        let place = self.place_of(worker);
        let start = self.positions[place].next_unit;
        let most = self
            .setup
            .call_bytes
            .unwrap_or(block.bytes())
            .min(self.left[worker]);
        let count = most.div_ceil(block.unit_bytes()).max(1);
        let units = start..(start + count).min(block.units());
        self.positions[place].next_unit = units.end;
        let bytes = (units.end - units.start) * block.unit_bytes();
        self.left[worker] = self.left[worker].saturating_sub(bytes);
        let lanes = &mut self.lanes[place];
        lanes.resize_with(block.lanes() as usize, Lane::default);
        let call = self.free_calls.pop().unwrap_or(self.calls.len());
        let mut commands = 0;
        for (number, lane) in lanes.iter_mut().enumerate() {
            for command in block.commands(units.clone(), number as u64) {
                lane.waiting.push_back((call, command));
                commands += 1;
            }
        }
        let begun = Call {
            worker,
            block: Arc::clone(block),
            units: 0,
            commands,
        };
        match self.calls.get_mut(call) {
            Some(free) => *free = begun,
            None => self.calls.push(begun),
        }
        for lane in 0..block.lanes() as usize {
            self.submit((place, lane))?;
        }
        Ok(())
    }

    /// Submits the commands of a lane, as many as may be in flight.
    fn submit(&mut self, (place, lane): (usize, usize)) -> Result<(), String> {
        // Without the lock, each writer of a shared block has its calls in flight.
        let callers = match place == self.setup.readers as usize && !self.setup.locks {
            true if self.setup.blocks == Blocks::Shared => self.setup.writers,
            _ => 1,
        };
        let most = self.setup.queue_depth.saturating_mul(callers);
        while self.lanes[place][lane].in_flight < most {
            let Some((call, command)) = self.lanes[place][lane].waiting.pop_front() else {
                break;
            };
            self.lanes[place][lane].in_flight += 1;
            let (mut done, mut tickets) = (self.now, Vec::new());
            let (worker, block) = (self.calls[call].worker, Arc::clone(&self.calls[call].block));
            let mut has_failed = false;
            for unit in command.units {
                let (chunk, row) = block.place(unit);
                let bytes = block.unit_bytes();
                let op = match self.is_reader(worker) {
                    true => NandOp::Read {
                        chunk,
                        offset: u64::from(row) * bytes,
                        bytes,
                    },
                    false => NandOp::Program { chunk, row },
                };
                match self.device.submit(op, self.now) {
                    Ok(ticket) => {
                        done = done.max(ticket.acknowledged);
                        has_failed |= ticket.has_failed;
                        self.calls[call].units += u64::from(!ticket.has_failed);
                        tickets.push(ticket);
                    }
                    Err(_) if self.is_restricted() => has_failed = true,
                    Err(error) => return Err(error.to_string()),
                }
            }
            self.side(worker).failed += u64::from(has_failed);
            let submitted = Submitted {
                call,
                lane: (place, lane),
                at: self.now,
                tickets,
            };
            self.at(done, Event::Done(submitted));
        }
        Ok(())
    }

    /// Whether the device may refuse operations: chunks that have failed, or by its rules.
    fn is_restricted(&self) -> bool {
        let (faults, rules) = (&self.setup.profile.faults, &self.setup.profile.rules);
        let rates = [
            faults.factory_bad_ppm,
            faults.program_ppm,
            faults.erase_ppm,
            faults.endurance,
            rules.open_chunks_max,
            rules.open_chunks_of_lun_max,
        ];
        rates.iter().any(|rate| *rate > 0) || !rules.erases_free || !rules.erases_open
    }

    fn command_done(&mut self, submitted: Submitted) -> Result<(), String> {
        // A write that the cache has taken is done, whatever the medium does.
        let done = |ticket: &Ticket| match ticket.acknowledged < ticket.done {
            true => ticket.acknowledged,
            false => self.device.done(ticket),
        };
        let later = submitted.tickets.iter().map(done).max();
        if let Some(later) = later.filter(|later| *later > self.now) {
            self.at(later, Event::Done(submitted));
            return Ok(());
        }
        let (place, lane) = submitted.lane;
        self.lanes[place][lane].in_flight -= 1;
        let call = &mut self.calls[submitted.call];
        let worker = call.worker;
        call.commands -= 1;
        let unit_bytes = call.block.unit_bytes();
        let bytes = (call.commands == 0).then(|| call.units * unit_bytes);
        let (now, latency) = (self.now, self.now - submitted.at);
        let is_read = self.is_reader(worker);
        if let Some(ended) = &mut self.ended {
            let units = submitted.tickets.iter().filter(|ticket| !ticket.has_failed);
            ended.push(Ended {
                at: now,
                is_read,
                bytes: units.count() as u64 * unit_bytes,
            });
        }
        let side = self.side(worker);
        side.latencies.record(Duration::from_nanos(latency));
        if let Some(bytes) = bytes {
            side.bytes += bytes;
            side.elapsed_ns = now;
            self.free_calls.push(submitted.call);
            if self.takes_turns(worker)
                && let Some(next) = self.writing.give(worker)
            {
                self.at(now, Event::Begin(next));
            }
            self.at(now, Event::Begin(worker));
        }
        self.submit((place, lane))
    }
}
