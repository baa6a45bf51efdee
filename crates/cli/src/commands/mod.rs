//! The commands, one file each (the one-liners here).

mod advise;
mod bench;
mod check;
mod dump;
mod export;
mod import;
mod keyspaces;
mod records;
mod salvage;
mod serve;
mod stats;

use crate::args::{Checkpoint, Command, Compact};
use crate::exit::Failure;
use crate::open::{self, Missing};
use crate::output;

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Get(arguments) => records::get(&arguments),
        Command::Put(arguments) => records::put(&arguments),
        Command::Delete(arguments) => records::delete(&arguments),
        Command::Scan(arguments) => records::scan(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Keyspaces(arguments) => keyspaces::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Salvage(arguments) => salvage::run(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Compact(arguments) => compact(&arguments),
        Command::Checkpoint(arguments) => checkpoint(&arguments),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    }
}

fn compact(arguments: &Compact) -> Result<(), Failure> {
    let options = open::options(&arguments.place, &arguments.engine)?;
    let db = open::database(&arguments.place.dir, options, Missing::Refuse)?;
    match (&arguments.keyspace, arguments.values) {
        (Some(name), true) => db.keyspace(name)?.compact_values()?,
        (Some(name), false) => db.keyspace(name)?.compact()?,
        (None, true) => db.compact_values()?,
        (None, false) => db.compact()?,
    }
    Ok(db.close()?)
}

fn checkpoint(arguments: &Checkpoint) -> Result<(), Failure> {
    let db = open::existing(&arguments.place)?;
    db.checkpoint(&arguments.to)?;
    output::line(&format!("checkpoint in {}", arguments.to.display()))?;
    Ok(db.close()?)
}
