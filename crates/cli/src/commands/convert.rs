//! `convert`: gives a keyspace an index of another kind.

use crate::args::Convert;
use crate::exit::Failure;
use crate::open::{self, Missing};
use crate::{output, progress};
use glintdb::{Db, KeyspaceStats};
use glintdb_bench::GlintOptions;
use glintdb_core::clock::Clock;
use glintdb_flash::SystemClock;

pub(super) fn run(arguments: &Convert) -> Result<(), Failure> {
    let asked = open::index_named(&arguments.index)?;
    let database = open::assigned(&arguments.place, &arguments.option)?.database;
    let db = open::database(&arguments.place.dir, database, Missing::Refuse)?;
    let keyspace = db.keyspace(&arguments.keyspace)?;
    let before = keyspace.options();
    let mut options = GlintOptions {
        keyspace: Some(open::with_index_of(&before, &asked)),
        ..GlintOptions::default()
    };
    options.set_all(arguments.option.iter().map(String::as_str))?;
    let options = options.keyspace.unwrap_or_default();
    if options.index != asked.index {
        let what = "`--option index=…` contradicts `--index`";
        return Err(Failure::Usage(what.into()));
    }
    let clock = SystemClock::new();
    let name = keyspace.name();
    let written = || figures(&db, name).map_or(0, |stats| stats.index_bytes);
    let progress = || format!("converting: index has {}", output::size_text(written()));
    // Whether a B+tree is reshaped is an option like any other.
    let is_option = before.index == asked.index && before.btree.reshape != asked.btree.reshape;
    progress::watched(progress, || match is_option {
        true => keyspace.set_options(options.clone()),
        false => keyspace.convert(options.clone()),
    })?;
    let seconds = clock.monotonic().as_secs_f64();
    let stats = figures(&db, name);
    let (bytes, files) = stats.map_or((0, 0), |stats| (stats.index_bytes, stats.index_files));
    let (from, to) = (before.index_name(), options.index_name());
    if arguments.json {
        output::json(&serde_json::json!({
            "keyspace": name,
            "from": from,
            "to": to,
            "index_bytes": bytes,
            "index_files": files,
            "seconds": seconds,
        }))?;
    } else {
        output::line(&format!(
            "converted {name} from {from} to {to} in {seconds:.2} s: index of {} in {files} file{}",
            output::size_text(bytes),
            if files == 1 { "" } else { "s" },
        ))?;
    }
    drop(keyspace);
    Ok(db.close()?)
}

fn figures(db: &Db, name: &str) -> Option<KeyspaceStats> {
    let keyspaces = db.stats().keyspaces.into_iter();
    keyspaces.into_iter().find(|keyspace| keyspace.name == name)
}
