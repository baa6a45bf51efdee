//! How a command ends: the exit codes that `--help` documents, and the one line that standard error
//! gets.

use glintdb::ErrorKind;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Shown below every `--help`. Kept next to [`code_of`], which must say the same.
pub(crate) const HELP: &str = "\
Exit codes:
  0  done
  1  `check` found an error; `salvage` could not recover everything; `get` found no such key
  2  invalid arguments or input, a name that already exists, or wrong results in `bench`
  3  another process has the database open (stop the server first)
  4  corruption, or a format that this version does not know
  5  an I/O error, no permission or file descriptor, or the database or keyspace does not exist
  6  the disk is full
  7  other errors (a conflict, a closed or poisoned database)";

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The engine's error.
    Engine(glintdb::Error),
    /// Reading or writing something outside the database: an input, an output.
    Io(String, std::io::Error),
    /// Arguments or input that make no sense; a sentence.
    Usage(String),
    /// Exit code 1, with nothing more to say than what standard output has said already.
    Negative,
    /// The reader of standard output went away: not an error.
    PipeClosed,
}

impl From<glintdb::Error> for Failure {
    fn from(error: glintdb::Error) -> Self {
        Failure::Engine(error)
    }
}

/// The measuring harness takes any engine's errors; ours keep their exit codes.
impl From<glintdb_bench::Error> for Failure {
    fn from(error: glintdb_bench::Error) -> Self {
        match error.downcast::<glintdb::Error>() {
            Ok(error) => Failure::Engine(*error),
            Err(error) => match error.downcast::<std::io::Error>() {
                Ok(error) => Failure::output(*error),
                Err(error) => Failure::Usage(error.to_string()),
            },
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Engine(error) => error.fmt(f),
            Failure::Io(what, error) => write!(f, "{what}: {error}"),
            Failure::Usage(sentence) => f.write_str(sentence),
            Failure::Negative | Failure::PipeClosed => Ok(()),
        }
    }
}

impl Failure {
    /// Writing to standard output or an output file failed.
    pub(crate) fn output(error: std::io::Error) -> Failure {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Failure::PipeClosed
        } else {
            Failure::Io("cannot write the output".into(), error)
        }
    }

    fn code(&self) -> u8 {
        match self {
            Failure::Engine(error) => code_of(error.kind()),
            Failure::Io(_, error) if error.kind() == std::io::ErrorKind::StorageFull => 6,
            Failure::Io(..) => 5,
            Failure::Usage(_) => 2,
            Failure::Negative => 1,
            Failure::PipeClosed => 0,
        }
    }

    /// Says what happened on standard error, in one line, and gives the exit code. If the database
    /// in `dir` is damaged, the line ends with the command that recovers its intact records.
    pub(crate) fn report(&self, dir: Option<&Path>) -> ExitCode {
        let mut line = self.to_string();
        if let (Failure::Engine(error), Some(dir)) = (self, dir)
            && error.kind() == ErrorKind::Corruption
        {
            line += &format!("; {}", salvage_hint(dir));
        }
        if !line.is_empty() {
            crate::output::complain(&line.replace('\n', " "));
        }
        ExitCode::from(self.code())
    }
}

/// What to do about a damaged database, for the end of a message.
pub(crate) fn salvage_hint(dir: &Path) -> String {
    let dir = crate::output::shell_word(dir);
    format!("to recover the intact records into a new directory: glintdb salvage {dir} NEW_DIR")
}

fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidArgument | ErrorKind::AlreadyExists => 2,
        ErrorKind::Locked => 3,
        ErrorKind::Corruption | ErrorKind::UnsupportedFormat => 4,
        ErrorKind::Io | ErrorKind::Unavailable | ErrorKind::NotFound => 5,
        ErrorKind::NoSpace => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_documented_ones() {
        for (kind, code) in [
            (ErrorKind::InvalidArgument, 2),
            (ErrorKind::AlreadyExists, 2),
            (ErrorKind::Locked, 3),
            (ErrorKind::Corruption, 4),
            (ErrorKind::UnsupportedFormat, 4),
            (ErrorKind::Io, 5),
            (ErrorKind::Unavailable, 5),
            (ErrorKind::NotFound, 5),
            (ErrorKind::NoSpace, 6),
            (ErrorKind::Conflict, 7),
        ] {
            assert_eq!(code_of(kind), code, "{kind:?}");
            assert!(HELP.contains(&format!("\n  {code}  ")));
        }
    }
}
