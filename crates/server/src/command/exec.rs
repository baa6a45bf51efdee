//! EXEC: the queued commands, all or nothing.
//!
//! The keys of all commands and all watched keys are locked first (everything, if a command touches whole databases or changes the database); then the commands run on one
//! engine transaction, which is committed as one batch. So an EXEC is atomic for other clients, and in a crash too.

use std::sync::atomic::Ordering;

use super::table::{COMMANDS, Run, WHOLE};
use super::{CommandError, CommandResult};
use crate::protocol::output::Output;
use crate::server::Server;
use crate::session::{Multi, Session, Watches, fail};
use crate::store::view::View;

/// An EXEC that loses against code outside the server is run again so many times.
const TRIES_MAX: usize = 100;

impl Session {
    pub(crate) fn exec(&mut self, server: &Server, output: &mut Output) -> CommandResult {
        let Some(multi) = self.multi.take() else {
            return Err(CommandError::new("ERR EXEC without MULTI"));
        };
        if multi.failed {
            self.forget_watches(server);
            return Err(CommandError::new(
                "EXECABORT Transaction discarded because of previous errors.",
            ));
        }
        let db = self.db;
        let start = output.position();
        self.in_exec = true;
        let mut tries = 0;
        let result = loop {
            tries += 1;
            match self.try_exec(server, &multi, output) {
                Err(error) if error.kind() == glintdb::ErrorKind::Conflict && tries < TRIES_MAX => {
                    output.take_from(start);
                    self.db = db;
                }
                result => break result,
            }
        };
        self.in_exec = false;
        self.client.db.store(self.db, Ordering::Relaxed);
        self.forget_watches(server);
        result.map_err(|error| {
            output.take_from(start);
            error.into()
        })
    }

    fn try_exec(
        &mut self,
        server: &Server,
        multi: &Multi,
        output: &mut Output,
    ) -> glintdb::Result<()> {
        let store = &server.store;
        let spec = |index: usize| &COMMANDS[index];
        let alone = multi
            .commands
            .iter()
            .any(|(index, _)| spec(*index).has(WHOLE) || spec(*index).name == "select");
        let held = if alone {
            store.locks().all()
        } else {
            let db = self.db;
            let queued = multi.commands.iter().flat_map(move |(index, args)| {
                spec(*index).keys(args.args()).map(move |key| (db, key))
            });
            let watched = self.watches.iter().map(|(db, key)| (*db, &**key));
            store.locks().keys(queued.chain(watched))
        };
        let watches = std::mem::take(&mut self.watches);
        let mut view = View::exec(store, self.db, held);
        let unchanged = self.unchanged(&watches, &mut view);
        let done = match unchanged {
            Ok(true) => self.run_queued(server, multi, &mut view, output),
            Ok(false) => {
                self.reply(output).null_array();
                drop(view);
                self.watches = watches;
                return Ok(());
            }
            Err(error) => Err(error),
        };
        let committed = done.and_then(|()| view.commit());
        self.watches = watches;
        committed
    }

    /// Is no watched key changed, nor expired since?
    fn unchanged<'a>(&self, watches: &'a Watches, view: &mut View<'a>) -> glintdb::Result<bool> {
        for (db, key) in watches {
            view.db = *db;
            // Coming across an expired key removes it, and so tells its watch.
            view.get(key)?;
        }
        view.db = self.db;
        Ok(!self.touched.load(Ordering::Acquire))
    }

    fn run_queued<'a>(
        &mut self,
        server: &Server,
        multi: &'a Multi,
        view: &mut View<'a>,
        output: &mut Output,
    ) -> glintdb::Result<()> {
        self.reply(output).array(multi.commands.len());
        for (index, args) in &multi.commands {
            let args = args.args();
            let mut reply = self.reply(output);
            match COMMANDS[*index].run {
                Run::Data(command) => {
                    if let Err(error) = command(view, args, &mut reply) {
                        fail(server, &mut reply, &error);
                    }
                }
                Run::Session(command) => command(self, server, args, &mut reply),
                Run::Exec => unreachable!("EXEC is never queued"),
            }
            view.db = self.db;
        }
        Ok(())
    }
}
