//! What a simulated volume is told to do wrong, and what it tells about what was done to it.

use glintdb_core::{Error, ErrorKind, FileId};

/// What survives a power cut of what was not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashMode {
    /// Nothing: files as of their last sync, names as of the last sync of the directory.
    LoseUnsynced,
    /// Everything.
    KeepUnsynced,
    /// Of each 512-byte sector any image it had since the last sync, of each file any length it had
    /// since, of the names any subset of the changes; by `seed`.
    Random {
        /// The same seed gives the same survivors.
        seed: u64,
    },
    /// What operations with numbers below this one did, and nothing of what came later.
    Prefix {
        /// Number of the first operation that is lost.
        operations: u64,
    },
    /// As `Random`, and a sector behind the synced end of its file, which was being written for the
    /// first time, may hold anything.
    Garbage {
        /// The same seed gives the same survivors and the same garbage.
        seed: u64,
    },
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The operation does nothing and answers `Io`.
    Io,
    /// An operation that takes space does what fits in half of it and answers `NoSpace`; others
    /// succeed.
    NoSpace,
    /// A sync fails with `Io`, its data never reaches the medium, and later syncs of that file say
    /// OK all the same (seen on ext4, xfs and btrfs), which is more than a volume may do; a sync of
    /// the directory leaves the names as they were and is refused from then on, as the contract has
    /// it. Other operations succeed.
    SyncLosesData,
    /// A write puts a part of its bytes there, by the volume's seed, and answers `Io`. Other
    /// operations succeed.
    ShortWrite,
    /// A read answers, without an error, what stands in another place or another file. Other
    /// operations succeed.
    MisdirectedRead,
    /// A write lands, without an error, in another place or another file. Other operations succeed.
    MisdirectedWrite,
    /// The process has no free descriptor: an operation that needs one does nothing and answers
    /// `Unavailable`. These create, open or list files, or use a file that was not
    /// [kept open](glintdb_flash::VolumeFile::keep_open) and has no un-synced bytes: the volume may
    /// have closed it. Others succeed.
    NoDescriptor,
    /// The process may not write to the directory: an operation that creates or removes a name does
    /// nothing and answers `Unavailable`. Others succeed.
    NoPermission,
    /// The power goes in the middle of the operation: its effects are un-synced (a copy into the
    /// ring is done in part), and it and everything after it answers `Io`.
    PowerOff,
}

/// A fault, by the number of the operation it hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Hits the first operation of this number or greater that it can hit (a
    /// [`FaultKind::SyncLosesData`] waits for a sync). Operations are counted from 0.
    pub at_operation: u64,
    /// What goes wrong.
    pub kind: FaultKind,
    /// Hits every later operation too.
    pub sticky: bool,
}

/// What was asked of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    /// A file was created.
    Create(FileId),
    /// A file was opened.
    Open(FileId),
    /// A name was removed.
    Delete(FileId),
    /// A file got a second name in another directory.
    Link(FileId),
    /// The directory was listed.
    List,
    /// The directory was synced.
    SyncDirectory,
    /// Bytes were written.
    Write {
        /// The file.
        file: FileId,
        /// Where.
        offset: u64,
        /// How many.
        length: usize,
    },
    /// Bytes were read.
    Read {
        /// The file.
        file: FileId,
        /// Where.
        offset: u64,
        /// How many were asked for.
        length: usize,
    },
    /// A file was synced.
    Sync(FileId),
    /// A file was cut or extended.
    SetLen {
        /// The file.
        file: FileId,
        /// To how many bytes.
        length: u64,
    },
    /// The ring was made.
    CreateRing,
    /// The ring was removed.
    RemoveRing,
    /// Space was allocated for the ring, up to this many bytes.
    GrowRing(usize),
    /// The ring's space was given back, but for this many bytes.
    ShrinkRing(usize),
    /// Bytes were copied into the ring.
    RingWrite {
        /// Where.
        offset: usize,
        /// How many.
        length: usize,
    },
    /// The ring was synced.
    RingSync,
}

impl OperationKind {
    /// Whether `kind` can hit this operation. `is_open`: it has the descriptor that it needs.
    pub(super) fn hit_by(self, kind: FaultKind, is_open: bool) -> bool {
        match kind {
            FaultKind::NoDescriptor => !is_open,
            FaultKind::NoPermission => matches!(
                self,
                OperationKind::Create(_)
                    | OperationKind::Delete(_)
                    | OperationKind::CreateRing
                    | OperationKind::RemoveRing
            ),
            FaultKind::PowerOff => true,
            // A copy into memory has no way to fail.
            FaultKind::Io => !matches!(self, OperationKind::RingWrite { .. }),
            FaultKind::NoSpace => matches!(
                self,
                OperationKind::Create(_)
                    | OperationKind::Write { .. }
                    | OperationKind::CreateRing
                    | OperationKind::GrowRing(_)
                    | OperationKind::Link(_)
            ),
            FaultKind::ShortWrite | FaultKind::MisdirectedWrite => {
                matches!(self, OperationKind::Write { .. })
            }
            FaultKind::MisdirectedRead => matches!(self, OperationKind::Read { .. }),
            FaultKind::SyncLosesData => {
                matches!(
                    self,
                    OperationKind::Sync(_) | OperationKind::SyncDirectory | OperationKind::RingSync
                )
            }
        }
    }
}

/// One entry of the log of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Its number, from 0.
    pub number: u64,
    /// What was asked.
    pub kind: OperationKind,
    /// The fault that hit it.
    pub fault: Option<FaultKind>,
}

/// Counts operations and decides which are hit.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) count: u64,
    /// Operations that a fault hit.
    pub(super) hits: u64,
    pub(super) planned: Vec<Fault>,
    pub(super) power_is_off: bool,
    pub(super) log: Option<Vec<Operation>>,
}

impl Faults {
    /// Counts an operation. Returns the fault that hits it and that its caller must act out.
    ///
    /// # Errors
    /// The power is off, or went earlier; `Unavailable`, for the faults that mean that.
    pub(super) fn next(
        &mut self,
        kind: OperationKind,
        is_open: bool,
    ) -> Result<Option<FaultKind>, Error> {
        if self.power_is_off {
            return Err(power_is_off());
        }
        let number = self.count;
        self.count += 1;
        let hit = self
            .planned
            .iter()
            .position(|fault| number >= fault.at_operation && kind.hit_by(fault.kind, is_open));
        let fault = hit.map(|index| {
            let fault = self.planned[index];
            if !fault.sticky {
                self.planned.remove(index);
            }
            fault.kind
        });
        self.hits += u64::from(fault.is_some());
        self.power_is_off = fault == Some(FaultKind::PowerOff);
        if let Some(log) = &mut self.log {
            log.push(Operation {
                number,
                kind,
                fault,
            });
        }
        match fault {
            Some(FaultKind::NoDescriptor) => Err(unavailable("no free descriptor", kind)),
            Some(FaultKind::NoPermission) => Err(unavailable("no permission", kind)),
            _ => Ok(fault),
        }
    }
}

pub(super) fn power_is_off() -> Error {
    Error::new(ErrorKind::Io, "simulated: the power is off")
}

pub(super) fn io_error(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format!("simulated: {what} failed"))
}

fn unavailable(why: &str, kind: OperationKind) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("simulated: {why} for {kind:?}"),
    )
}

pub(super) fn no_space(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::NoSpace,
        format!("simulated: no space for {what}"),
    )
}
