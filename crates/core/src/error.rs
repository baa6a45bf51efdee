//! The one error type. A caller asks [`Error::kind`] what it can do; a person reads the prose:
//! file, offset, expected, found.

use std::fmt;
use std::sync::Arc;

/// Result with GlintDB's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused an operation. Reads may go on; see the source.
    Io,
    /// The medium holds something other than what was written; names file and offset. Other keys
    /// stay readable.
    Corruption,
    /// The medium is full. Nothing acknowledged is lost; delete something, or make room, and write
    /// again.
    NoSpace,
    /// The operating system refuses a file for a reason that may pass: no free file descriptor, or
    /// no permission. Nothing was changed; remove the cause and try again.
    Unavailable,
    /// The directory is open in another process, or already in this one.
    Locked,
    /// A transaction lost against one that committed first. Run it again.
    Conflict,
    /// An argument is out of its limits. Nothing was changed.
    InvalidArgument,
    /// The keyspace, file or database asked for is not there.
    NotFound,
    /// The keyspace, file, directory or database to be created is there already. Nothing was
    /// changed: open what is there, or choose another name.
    AlreadyExists,
    /// The files are of a version, or use a feature, that this build does not know.
    UnsupportedFormat,
    /// An earlier write or sync failed, so nothing more is written until the database is opened
    /// again. Reads go on.
    Poisoned,
    /// The snapshot pinned more than `snapshot_pin_bytes_max` and was given up. Take a new one.
    SnapshotTooOld,
    /// The database is closed or closing.
    Closed,
}

impl ErrorKind {
    /// The kind's name, as it stands in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Io => "I/O error",
            ErrorKind::Corruption => "corruption",
            ErrorKind::NoSpace => "no space left",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Locked => "locked",
            ErrorKind::Conflict => "conflict",
            ErrorKind::InvalidArgument => "invalid argument",
            ErrorKind::NotFound => "not found",
            ErrorKind::AlreadyExists => "already exists",
            ErrorKind::UnsupportedFormat => "unsupported format",
            ErrorKind::Poisoned => "poisoned",
            ErrorKind::SnapshotTooOld => "snapshot too old",
            ErrorKind::Closed => "closed",
        }
    }

    /// Whether the operation changed nothing and works when its cause is gone: `NoSpace` and
    /// `Unavailable`.
    ///
    /// ```
    /// use glintdb_core::ErrorKind;
    /// assert!(ErrorKind::Unavailable.passes() && !ErrorKind::Poisoned.passes());
    /// ```
    #[must_use]
    pub fn passes(self) -> bool {
        matches!(self, ErrorKind::NoSpace | ErrorKind::Unavailable)
    }
}

/// `EMFILE` of Linux: the process has as many descriptors as it may have.
const PROCESS_HAS_NO_DESCRIPTOR: i32 = 24;
/// `ENFILE` of Linux: the system has as many open files as it may have.
const SYSTEM_HAS_NO_DESCRIPTOR: i32 = 23;

/// Whether an error says that there is no free file descriptor.
fn is_want_of_descriptors(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(PROCESS_HAS_NO_DESCRIPTOR | SYSTEM_HAS_NO_DESCRIPTOR)
    )
}

/// An error of GlintDB: cheap to clone (every waiter of a failed group gets the same one).
///
/// ```
/// use glintdb_core::{Error, ErrorKind};
/// let error = Error::corruption("table-000000000000002a.glint", 8192, "block checksum 0x1, found 0x2");
/// assert_eq!(error.kind(), ErrorKind::Corruption);
/// assert_eq!(error.to_string(), "corruption in table-000000000000002a.glint at offset 8192: block checksum 0x1, found 0x2");
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    place: Option<(String, u64)>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind` with a sentence for people.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Arc::new(Inner {
            kind,
            message: message.into(),
            place: None,
            source: None,
        }))
    }

    /// `InvalidArgument`.
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::InvalidArgument, message)
    }

    /// `Corruption` of `file` at `offset` (bytes); the message says what was expected and what was
    /// found.
    pub fn corruption(file: impl fmt::Display, offset: u64, message: impl Into<String>) -> Self {
        Error(Arc::new(Inner {
            kind: ErrorKind::Corruption,
            message: message.into(),
            place: Some((file.to_string(), offset)),
            source: None,
        }))
    }

    /// `AlreadyExists`; the message says what was to be created.
    pub fn exists(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::AlreadyExists, message)
    }

    /// An operating-system error: `what` was being done (`"write table-….glint"`). Out of space
    /// becomes `NoSpace`, a file that is missing `NotFound`, and one that is there `AlreadyExists`.
    pub fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::FileTooLarge => ErrorKind::NoSpace,
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            _ => ErrorKind::Io,
        };
        Error::system(kind, what, source)
    }

    /// An operating-system error of an operation that writes no bytes: to open, create,
    /// preallocate, list, rename or remove a file. No descriptor, no permission and no memory
    /// become `Unavailable`, because nothing was changed. The rest is as in [`io`](Self::io).
    pub fn access(what: impl Into<String>, source: std::io::Error) -> Self {
        let refused = matches!(
            source.kind(),
            std::io::ErrorKind::PermissionDenied
                | std::io::ErrorKind::ReadOnlyFilesystem
                | std::io::ErrorKind::OutOfMemory
        );
        match refused || is_want_of_descriptors(&source) {
            true => Error::system(ErrorKind::Unavailable, what, source),
            false => Error::io(what, source),
        }
    }

    fn system(kind: ErrorKind, what: impl Into<String>, source: std::io::Error) -> Self {
        Error(Arc::new(Inner {
            kind,
            message: what.into(),
            place: None,
            source: Some(Arc::new(source)),
        }))
    }

    /// Whether the operating system had no free file descriptor for the operation.
    #[must_use]
    pub fn wants_descriptors(&self) -> bool {
        let source = self.0.source.as_ref();
        source
            .and_then(|source| source.downcast_ref::<std::io::Error>())
            .is_some_and(is_want_of_descriptors)
    }

    /// The same error with a sentence before it that says what was being done.
    #[must_use]
    pub fn context(&self, what: impl fmt::Display) -> Self {
        Error(Arc::new(Inner {
            kind: self.0.kind,
            message: format!("{what}: {}", self.0.message),
            place: self.0.place.clone(),
            source: self.0.source.clone(),
        }))
    }

    /// What the caller can do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// For corruption: file and byte offset.
    #[must_use]
    pub fn place(&self) -> Option<(&str, u64)> {
        self.0
            .place
            .as_ref()
            .map(|(file, offset)| (file.as_str(), *offset))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.kind.name())?;
        if let Some((file, offset)) = &self.0.place {
            write!(f, " in {file} at offset {offset}")?;
        }
        write!(f, ": {}", self.0.message)?;
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0
            .source
            .as_ref()
            .map(|source| source.as_ref() as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_error_of_an_existing_file_is_already_exists() {
        let error = Error::io(
            "create out.jsonl",
            std::io::Error::from(std::io::ErrorKind::AlreadyExists),
        );
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(
            error
                .to_string()
                .starts_with("already exists: create out.jsonl")
        );
    }

    #[test]
    fn only_operations_that_write_nothing_can_be_unavailable() {
        for code in [1, 12, 13, 23, 24, 30] {
            let refused = || std::io::Error::from_raw_os_error(code);
            let error = Error::access("create log", refused());
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert_eq!(error.wants_descriptors(), [23, 24].contains(&code));
            assert_eq!(Error::io("write log", refused()).kind(), ErrorKind::Io);
        }
        let failed = Error::access("create log", std::io::Error::from_raw_os_error(5));
        assert_eq!(failed.kind(), ErrorKind::Io);
        assert!(!failed.wants_descriptors());
    }

    #[test]
    fn full_disk_is_no_space_and_keeps_its_source() {
        let error = Error::io(
            "write log",
            std::io::Error::from(std::io::ErrorKind::StorageFull),
        );
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(std::error::Error::source(&error).is_some());
        assert!(
            error
                .context("commit")
                .to_string()
                .starts_with("no space left: commit: write log")
        );
    }
}
