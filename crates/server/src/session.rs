//! One client's side of the conversation: what it has chosen, watched and queued, and how its commands are run.
//!
//! Used by one thread at a time; holds no socket. **Grouping**: neighbouring commands of a pipeline that name their keys run together, as one group of at
//! most [`GROUP_COMMANDS_MAX`]: GETs as one `multi_get`; a run with changes under the locks of all its keys, with one commit ([`View::group`]). Answers are in
//! order and what they would be one after another. Everything else runs alone.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;

use crate::command::strings::{STRING_BYTES_MAX, answer};
use crate::command::table::{
    COMMANDS, CommandSpec, NO_AUTH, NO_MULTI, READS, Run, UNQUEUED, WHOLE, WRITE, find,
};
use crate::command::{CommandError, CommandResult};
use crate::protocol::output::Output;
use crate::protocol::parser::{Parser, ParserLimits, ProtocolError};
use crate::protocol::reply::{Protocol, Reply};
use crate::protocol::{Args, OwnedArgs};
use crate::server::{Client, Misdeed, Server};
use crate::store::KEY_BYTES_MAX;
use crate::store::locks::{DbKey, Touched};
use crate::store::view::View;

/// Most commands run together: they hold locks for so long, and one commit takes them all.
const GROUP_COMMANDS_MAX: usize = 128;
/// A group ends behind so many bytes of arguments.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// Most commands taken out of the read buffer at once.
const PARSE_COMMANDS_MAX: usize = 1024;
/// Commands with more bytes than this may take milliseconds.
const HEAVY_BYTES_MIN: usize = 1 << 20;
/// Most memory a client's queued commands take, and most that the keys it watches do.
pub(crate) const QUEUE_BYTES_MAX: usize = 256 << 20;
/// What a watched key takes beyond twice its bytes: it stands in the session and among the locks.
pub(crate) const WATCH_OVERHEAD_BYTES: usize = 160;
/// A group ends when it has so many bytes of values in memory, or answers; earlier where a connection may not keep twice as much.
const GROUP_VALUES_MAX: usize = 16 << 20;

/// Keys that a session watches, with their databases.
pub(crate) type Watches = HashSet<DbKey, RandomState>;

/// CLIENT REPLY.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// This command asked that the next one get no answer, and gets none itself.
    SkipNext,
    Skip,
}

/// Commands queued by MULTI.
#[derive(Default)]
pub(crate) struct Multi {
    pub(crate) commands: Vec<(usize, OwnedArgs)>,
    bytes: usize,
    /// One was refused, so EXEC will be.
    pub(crate) failed: bool,
}

/// See the module.
pub(crate) struct Session {
    pub(crate) client: Arc<Client>,
    pub(crate) db: u32,
    pub(crate) protocol: Protocol,
    pub(crate) authenticated: bool,
    pub(crate) multi: Option<Multi>,
    /// In the middle of an EXEC, with locks held.
    pub(crate) in_exec: bool,
    pub(crate) watches: Watches,
    pub(crate) watch_bytes: usize,
    /// Commands run in all.
    pub(crate) executed: u64,
    pub(crate) touched: Touched,
    pub(crate) replies: Replies,
    /// Close once all answers are sent.
    pub(crate) closing: bool,
    broken: Option<ProtocolError>,
}

/// What a session waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Input,
    /// Others should have their turn; there is more to run.
    Turn,
    /// Answers have to be taken first.
    Output,
    Close,
}

#[derive(Clone, Copy)]
struct Request<'a> {
    /// Place in [`COMMANDS`].
    index: Option<usize>,
    args: Args<'a>,
}

impl<'a> Request<'a> {
    fn spec(&self) -> Option<&'static CommandSpec> {
        self.index.map(|index| &COMMANDS[index])
    }

    /// May run in a group.
    fn grouped(&self) -> Option<&'static CommandSpec> {
        self.spec().filter(|spec| {
            spec.groups()
                && spec.arity_fits(self.args)
                && spec.keys(self.args).all(|key| key.len() <= KEY_BYTES_MAX)
        })
    }
}

impl Session {
    pub(crate) fn new(server: &Server, client: Arc<Client>) -> Self {
        Session {
            client,
            db: 0,
            protocol: Protocol::Resp2,
            authenticated: server.config.password.is_none(),
            multi: None,
            in_exec: false,
            watches: Watches::default(),
            watch_bytes: 0,
            executed: 0,
            touched: Touched::default(),
            replies: Replies::On,
            closing: false,
            broken: None,
        }
    }

    /// Runs what has arrived, until it is used up, or `output` holds more than `output_bytes_max`; at most [`PARSE_COMMANDS_MAX`] commands.
    pub(crate) fn process(
        &mut self,
        server: &Server,
        parser: &mut Parser,
        input: &mut Vec<u8>,
        output: &mut Output,
        output_bytes_max: usize,
    ) -> Next {
        let before = self.executed;
        loop {
            if parser.commands().len() == 0 {
                parser.consume(input);
                if self.executed - before >= PARSE_COMMANDS_MAX as u64 {
                    return Next::Turn;
                }
                let authenticated = ParserLimits {
                    bulk_bytes_max: STRING_BYTES_MAX,
                    buffer_bytes_max: server.config.query_bytes_max,
                    elements_max: 1 << 20,
                    authenticated: true,
                };
                // Until a client has authenticated, each command may change what the next may be.
                let (limits, count) = match self.authenticated {
                    true => (&authenticated, PARSE_COMMANDS_MAX),
                    false => (&ParserLimits::UNAUTHENTICATED, 1),
                };
                if self.broken.is_none() {
                    self.broken = parser.parse(input, limits, count).err();
                }
                if parser.commands().len() == 0 {
                    let Some(error) = self.broken else {
                        return Next::Input;
                    };
                    if error == ProtocolError::CommandTooLong {
                        server.stats.query_closed.fetch_add(1, Ordering::Relaxed);
                        server.warn_of_peer(Misdeed::Query, || {
                            format!("closed {}: its request is too large", self.client.address)
                        });
                    }
                    self.reply(output).error(&format!("ERR {error}"));
                    return Next::Close;
                }
            }
            let requests: Vec<Request<'_>> = parser
                .commands()
                .map(|spans| {
                    let args = Args::new(input, spans);
                    Request {
                        index: find(args.get(0)),
                        args,
                    }
                })
                .collect();
            let mut done = 0;
            while done < requests.len() && !self.closing && !output.is_overflown() {
                if output.pending_bytes() > output_bytes_max {
                    break;
                }
                done += self.run_next(server, &requests[done..], output);
            }
            self.note_commands(server, &requests[..done]);
            parser.executed(done);
            if self.closing || output.is_overflown() {
                return Next::Close;
            }
            if parser.commands().len() > 0 {
                return Next::Output;
            }
        }
    }

    pub(crate) fn set_authenticated(&mut self, server: &Server, authenticated: bool) {
        self.authenticated = authenticated;
        server.note_authenticated(&self.client, authenticated);
    }

    /// Memory held for the client beside its buffers.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.watch_bytes + self.multi.as_ref().map_or(0, |multi| multi.bytes)
    }

    /// Ends what others know of this session.
    pub(crate) fn end(&mut self, server: &Server) {
        self.forget_watches(server);
        server.unregister(self.client.id);
    }

    pub(crate) fn reply<'o>(&self, output: &'o mut Output) -> Reply<'o> {
        Reply {
            output,
            protocol: self.protocol,
        }
    }

    fn note_commands(&mut self, server: &Server, requests: &[Request<'_>]) {
        let count = requests.len() as u64;
        self.executed += count;
        server.stats.commands.fetch_add(count, Ordering::Relaxed);
        if let Some(Request {
            index: Some(index), ..
        }) = requests.last()
        {
            self.client.command.store(*index, Ordering::Relaxed);
        }
        self.client
            .active_ms
            .store(server.store.now_ms(), Ordering::Relaxed);
        let queued = self
            .multi
            .as_ref()
            .map_or(0, |multi| multi.commands.len() + 1);
        self.client.queued.store(queued, Ordering::Relaxed);
    }

    /// Runs the first of `requests`, and those behind it that can go with it; how many.
    fn run_next<'a>(
        &mut self,
        server: &Server,
        requests: &[Request<'a>],
        output: &mut Output,
    ) -> usize {
        let mut count = 0;
        if self.authenticated && self.multi.is_none() && self.replies == Replies::On {
            let mut bytes = 0;
            for request in requests.iter().take(GROUP_COMMANDS_MAX) {
                if bytes > GROUP_BYTES_MAX || request.grouped().is_none() {
                    break;
                }
                bytes += request.args.bytes();
                count += 1;
            }
            if count > 0 {
                return self.run_group(server, &requests[..count], bytes, output);
            }
        }
        self.run_alone(server, requests[0], output);
        1
    }

    /// How many of the group were run: at least one; not all, where their values are large.
    fn run_group<'a>(
        &mut self,
        server: &Server,
        group: &[Request<'a>],
        bytes: usize,
        output: &mut Output,
    ) -> usize {
        let changes = group
            .iter()
            .filter_map(Request::spec)
            .any(|spec| spec.has(WRITE));
        let (pace, always) = match changes {
            true => (
                &server.changes,
                server.store.durability() == glintdb::Durability::Sync,
            ),
            false => (&server.reads, false),
        };
        let clock = &server.config.clock;
        let started = clock.monotonic();
        let done = heavy_if(always || bytes > HEAVY_BYTES_MIN || pace.is_slow(), || {
            if changes {
                self.run_changes(server, group, output)
            } else {
                self.run_reads(server, group, output)
            }
        });
        pace.note(clock.monotonic().saturating_sub(started));
        done
    }

    fn run_reads<'a>(
        &mut self,
        server: &Server,
        group: &[Request<'a>],
        output: &mut Output,
    ) -> usize {
        let values_max = GROUP_VALUES_MAX.min(output.room_bytes() / 2);
        let start = output.position();
        let mut done = 0;
        let specs = || group.iter().filter_map(Request::spec);
        let mut view = View::read(&server.store, self.db);
        let mut reply = self.reply(output);
        if group.len() > 1 && specs().all(|spec| spec.name == "get") {
            let keys: Vec<&'a [u8]> = group.iter().map(|request| request.args.get(1)).collect();
            for found in view.lookup_many(&keys, values_max) {
                done += 1;
                match found {
                    Ok(current) => answer(current.map(|current| current.value), &mut reply),
                    Err(error) => fail(server, &mut reply, &error.into()),
                }
            }
        } else {
            for request in group {
                done += 1;
                if let Err(error) = run_data(request, &mut view, &mut reply) {
                    fail(server, &mut reply, &error);
                }
                if reply.output.position() - start > values_max as u64 {
                    break;
                }
            }
        }
        if let Err(error) = view.commit() {
            server.warn(format!("cannot remove expired keys now: {error}"));
        }
        done
    }

    /// A group with changes in it.
    fn run_changes<'a>(
        &mut self,
        server: &Server,
        group: &[Request<'a>],
        output: &mut Output,
    ) -> usize {
        let db = self.db;
        let keys = group.iter().flat_map(|request| {
            let spec = request.spec();
            spec.into_iter()
                .flat_map(|spec| spec.keys(request.args))
                .map(move |key| (db, key))
        });
        let held = server.store.locks().keys(keys);
        let mut view = View::group(&server.store, db, held);
        let values_max = GROUP_VALUES_MAX.min(output.room_bytes() / 2);
        let start = output.position();
        let read_ahead: Vec<&'a [u8]> = match group {
            [_] => Vec::new(),
            _ => group
                .iter()
                .filter_map(|request| {
                    request
                        .spec()
                        .filter(|spec| spec.has(READS))
                        .map(|spec| (spec, request.args))
                })
                .flat_map(|(spec, args)| spec.keys(args))
                .collect(),
        };
        if read_ahead.len() > 1
            && let Err(error) = view.prefetch(&read_ahead, values_max)
        {
            // Which command it concerns comes out when each reads for itself.
            server.warn(format!("cannot read values ahead: {error}"));
        }
        let mut answers = Vec::with_capacity(group.len());
        for request in group {
            view.tainted = false;
            let mut reply = self.reply(output);
            if let Err(error) = run_data(request, &mut view, &mut reply) {
                fail(server, &mut reply, &error);
            }
            answers.push((output.position(), view.tainted));
            let answered = output.position() - start;
            if view.group_bytes() > values_max || answered > values_max as u64 {
                break;
            }
        }
        let done = answers.len();
        let Err(error) = view.commit() else {
            return done;
        };
        // Nothing was committed: answers that say or rest on anything else are taken back.
        let error = CommandError::from(error);
        let written = output.take_from(start);
        let mut from = 0;
        for (position, tainted) in answers {
            let to = usize::try_from(position - start).unwrap_or(written.len());
            if tainted {
                fail(server, &mut self.reply(output), &error);
            } else {
                output.push(&written[from..to]);
            }
            from = to;
        }
        done
    }

    fn run_alone(&mut self, server: &Server, request: Request<'_>, output: &mut Output) {
        let before = self.replies;
        let start = output.position();
        if let Err(mut error) = self.try_alone(server, request, output) {
            let exec = request
                .spec()
                .is_some_and(|spec| matches!(spec.run, Run::Exec));
            if exec && !error.0.starts_with("EXECABORT") && !error.0.starts_with("ERR EXEC") {
                // An EXEC that is refused ends its transaction.
                self.multi = None;
                self.forget_watches(server);
                let reason = error.0.trim_start_matches("ERR ");
                let text = format!("EXECABORT Transaction discarded because of: {reason}");
                error = CommandError(Cow::Owned(text));
            }
            if let Some(multi) = &mut self.multi {
                multi.failed = true;
            }
            fail(server, &mut self.reply(output), &error);
        }
        let after = self.replies;
        if matches!(after, Replies::Off | Replies::SkipNext)
            || (before == Replies::Skip && after == Replies::Skip)
        {
            output.take_from(start);
        }
        self.replies = match (before, after) {
            (_, Replies::SkipNext) => Replies::Skip,
            (Replies::Skip, Replies::Skip) => Replies::On,
            _ => after,
        };
    }

    /// Refuses a command, queues it, or runs it.
    fn try_alone(
        &mut self,
        server: &Server,
        request: Request<'_>,
        output: &mut Output,
    ) -> CommandResult {
        let args = request.args;
        let Some(index) = request.index else {
            return Err(self.unknown(server, args));
        };
        let spec = &COMMANDS[index];
        if !spec.arity_fits(args) {
            return Err(CommandError::arity(spec.name));
        }
        if !self.authenticated && !spec.has(NO_AUTH) {
            return Err(CommandError::new("NOAUTH Authentication required."));
        }
        if self.multi.is_some() && spec.has(NO_MULTI) {
            return Err(CommandError::new(
                "ERR Command not allowed inside a transaction",
            ));
        }
        if spec.keys(args).any(|key| key.len() > KEY_BYTES_MAX) {
            let text = format!("ERR a key has at most {KEY_BYTES_MAX} bytes");
            return Err(CommandError(Cow::Owned(text)));
        }
        if let (Some(multi), false) = (&mut self.multi, spec.has(UNQUEUED)) {
            // One that will be refused need not be kept.
            if !multi.failed {
                let args = OwnedArgs::copy(args);
                multi.bytes += args.bytes();
                if multi.bytes > QUEUE_BYTES_MAX {
                    (multi.commands, multi.bytes) = (Vec::new(), 0);
                    return Err(CommandError::new("ERR transaction is larger than 256 MiB"));
                }
                multi.commands.push((index, args));
            }
            self.reply(output).simple("QUEUED");
            return Ok(());
        }
        match spec.run {
            Run::Session(command) => {
                let mut reply = self.reply(output);
                command(self, server, args, &mut reply);
                Ok(())
            }
            Run::Exec => heavy_if(true, || self.exec(server, output)),
            Run::Data(_) => heavy_if(spec.has(WHOLE), || {
                self.run_data_alone(server, request, output)
            }),
        }
    }

    fn run_data_alone(
        &self,
        server: &Server,
        request: Request<'_>,
        output: &mut Output,
    ) -> CommandResult {
        let Some(spec) = request.spec() else {
            return Ok(());
        };
        // FLUSHDB takes its own locks; commands with keys take them here.
        let mut view = if spec.has(WRITE) && !spec.has(WHOLE) {
            let keys = spec.keys(request.args).map(|key| (self.db, key));
            View::group(&server.store, self.db, server.store.locks().keys(keys))
        } else {
            View::read(&server.store, self.db)
        };
        let start = output.position();
        let result = run_data(&request, &mut view, &mut self.reply(output));
        if let Err(error) = view.commit() {
            output.take_from(start);
            return Err(error.into());
        }
        result
    }

    /// Redis' answer to what it does not know.
    fn unknown(&mut self, server: &Server, args: Args<'_>) -> CommandError {
        let name = args.get(0);
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            // A web page making its visitor's browser talk to us. Nothing behind this line is listened to, and as with Redis nothing is answered.
            let address = self.client.address;
            server.warn_of_peer(Misdeed::Http, || {
                format!("{address} spoke HTTP; closing its connection")
            });
            self.client.kill();
            self.closing = true;
        }
        let shown =
            |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned();
        let mut text = format!(
            "ERR unknown command '{}', with args beginning with: ",
            shown(name)
        );
        for argument in args.from(1) {
            if text.len() > 256 {
                break;
            }
            text.push_str(&format!("'{}' ", shown(argument)));
        }
        CommandError(Cow::Owned(text))
    }

    /// Forgets what WATCH noted.
    pub(crate) fn forget_watches(&mut self, server: &Server) {
        for (db, key) in std::mem::take(&mut self.watches) {
            server.store.locks().unwatch(db, &key, &self.touched);
        }
        self.watch_bytes = 0;
        // A new flag: a change that is on its way would set the old one.
        self.touched = Touched::default();
        self.client.watched.store(0, Ordering::Relaxed);
    }
}

fn run_data<'a>(
    request: &Request<'a>,
    view: &mut View<'a>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    match request.spec().map(|spec| spec.run) {
        Some(Run::Data(command)) => command(view, request.args, reply),
        _ => unreachable!("only commands on keys are run on a view"),
    }
}

pub(crate) fn fail(server: &Server, reply: &mut Reply<'_>, error: &CommandError) {
    server.stats.errors.fetch_add(1, Ordering::Relaxed);
    reply.error(&error.0);
}

/// Work that may take milliseconds lets another thread take over this one's other connections.
fn heavy_if<T>(heavy: bool, work: impl FnOnce() -> T) -> T {
    if heavy {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
