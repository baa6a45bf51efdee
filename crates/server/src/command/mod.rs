//! The commands. [`table`] lists them; the other modules hold one family each; [`crate::session`] decides when and how they run.

pub(crate) mod client;
pub(crate) mod exec;
pub(crate) mod expire;
pub(crate) mod introspect;
pub(crate) mod keys;
pub(crate) mod range;
pub(crate) mod session;
pub(crate) mod strings;
pub(crate) mod table;

use std::borrow::Cow;

use glintdb::{Error, ErrorKind};

/// Most bytes of values that one command answers with; a single value may be larger. What it reads is in memory before a byte of it is sent.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Why a command failed, as the client is told.
#[derive(Debug)]
pub(crate) struct CommandError(pub(crate) Cow<'static, str>);

pub(crate) type CommandResult = Result<(), CommandError>;

pub(crate) const SYNTAX: CommandError = CommandError(Cow::Borrowed("ERR syntax error"));
pub(crate) const NOT_AN_INTEGER: CommandError =
    CommandError(Cow::Borrowed("ERR value is not an integer or out of range"));

impl CommandError {
    pub(crate) const fn new(text: &'static str) -> Self {
        CommandError(Cow::Borrowed(text))
    }

    pub(crate) fn arity(command: &str) -> Self {
        CommandError(format!("ERR wrong number of arguments for '{command}' command").into())
    }

    pub(crate) fn invalid_expire(command: &str) -> Self {
        CommandError(format!("ERR invalid expire time in '{command}' command").into())
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        CommandError(match error.kind() {
            // What Redis clients know for "this server takes no writes until somebody looks at it".
            ErrorKind::Poisoned => {
                format!("MISCONF the database takes no more writes, restart the server: {error}")
                    .into()
            }
            _ => format!("ERR {error}").into(),
        })
    }
}

/// Compares a word of a request with an upper-case option.
pub(crate) fn is_option(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}
