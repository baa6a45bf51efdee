//! The commands, one file each (the one-liners here).

mod advise;
mod bench;
mod check;
mod convert;
mod dump;
mod export;
mod flash_bench;
mod import;
mod keyspaces;
mod records;
mod repro;
mod salvage;
mod serve;
mod stats;

use crate::args::{Checkpoint, Command, Compact};
use crate::exit::Failure;
use crate::open::{self, Missing};
use crate::{output, progress};
use glintdb::{KeyspaceStats, Stats};

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Get(arguments) => records::get(arguments),
        Command::Put(arguments) => records::put(arguments),
        Command::Delete(arguments) => records::delete(arguments),
        Command::Scan(arguments) => records::scan(arguments),
        Command::Import(arguments) => import::run(arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::Keyspaces(arguments) => keyspaces::run(arguments),
        Command::Stats(arguments) => stats::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Salvage(arguments) => salvage::run(arguments),
        Command::Dump(arguments) => dump::run(arguments),
        Command::Compact(arguments) => compact(arguments),
        Command::Convert(arguments) => convert::run(arguments),
        Command::Checkpoint(arguments) => checkpoint(arguments),
        Command::Advise(arguments) => advise::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::FlashBench(arguments) => flash_bench::run(arguments),
        Command::Repro(arguments) => repro::run(arguments),
    }
}

fn compact(arguments: &Compact) -> Result<(), Failure> {
    let options = open::options(&arguments.place, &arguments.engine)?;
    let db = open::database(&arguments.place.dir, options, Missing::Refuse)?;
    let work = || match (&arguments.keyspace, arguments.values) {
        (Some(name), true) => db.keyspace(name)?.compact_values(),
        (Some(name), false) => db.keyspace(name)?.compact(),
        (None, true) => db.compact_values(),
        (None, false) => db.compact(),
    };
    progress::watched(|| compacted(&db.stats()), work)?;
    Ok(db.close()?)
}

/// What compactions have read and written so far, in words.
fn compacted(stats: &Stats) -> String {
    let sum = |figure: fn(&KeyspaceStats) -> u64| stats.keyspaces.iter().map(figure).sum();
    let read = sum(|keyspace| keyspace.compaction_read_bytes);
    let written = sum(|keyspace| keyspace.compaction_written_bytes);
    format!(
        "compacting: tables {} read, {} written; values {} moved",
        output::size_text(read),
        output::size_text(written),
        output::size_text(stats.log.relocated_bytes)
    )
}

fn checkpoint(arguments: &Checkpoint) -> Result<(), Failure> {
    let db = open::existing(&arguments.place)?;
    db.checkpoint(&arguments.to)?;
    output::line(&format!("checkpoint in {}", arguments.to.display()))?;
    Ok(db.close()?)
}
