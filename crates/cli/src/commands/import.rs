//! `import`: records from a file or standard input, in batches. What is acknowledged on standard output is kept; a kill loses at most the batch in flight.

use crate::args::Import;
use crate::exit::Failure;
use crate::{format, open, output, progress};
use glintdb::{Batch, Db, Durability, Keyspace};
use indicatif::ProgressBar;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// A batch ends when it holds this much, whatever its number of records.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Figures of an import.
#[derive(Default)]
struct Done {
    records: u64,
    /// Of these, how many are in the database.
    committed: u64,
    batches: u64,
    key_value_bytes: u64,
}

pub(super) fn run(arguments: &Import) -> Result<(), Failure> {
    let (input, length) = input(&arguments.file)?;
    let options = open::options(&arguments.target.place, &arguments.engine)?;
    let options = options.durability(arguments.durability);
    let keyspace = open::keyspace_to_write(&arguments.target, options, arguments.create)?;
    let db = keyspace.db();
    let bar = progress::bytes(length, arguments.quiet);
    let mut done = Done::default();
    let outcome = copy(arguments, input, &keyspace, &db, &bar, &mut done);
    bar.finish_and_clear();
    if outcome.is_err() && done.committed > 0 {
        output::note(&format!(
            "the {} records before are in the database",
            done.committed
        ));
    }
    outcome?;
    if arguments.durability == Durability::Buffered {
        db.flush_log(Durability::Os)?;
    }
    report(arguments, &done, bar.elapsed())?;
    drop(keyspace);
    Ok(db.close()?)
}

/// The input and, for a file, its length in bytes.
fn input(file: &Path) -> Result<(Box<dyn BufRead>, Option<u64>), Failure> {
    if file.as_os_str() == "-" {
        return Ok((
            Box::new(BufReader::with_capacity(1 << 20, std::io::stdin())),
            None,
        ));
    }
    let refused = |error| Failure::Io(format!("cannot read {}", file.display()), error);
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .open(file)
        .map_err(refused)?;
    let length = opened.metadata().map_err(refused)?.len();
    Ok((
        Box::new(BufReader::with_capacity(1 << 20, opened)),
        Some(length),
    ))
}

fn copy(
    arguments: &Import,
    input: Box<dyn BufRead>,
    keyspace: &Keyspace,
    db: &Db,
    bar: &ProgressBar,
    done: &mut Done,
) -> Result<(), Failure> {
    let mut records = format::reader(arguments.format, input);
    let prefix = arguments.key_prefix.as_bytes();
    let mut batch = Batch::new();
    let mut batch_records = 0;
    let commit = |batch: &mut Batch, done: &mut Done| -> Result<(), Failure> {
        db.write_with(std::mem::take(batch), arguments.durability)?;
        done.batches += 1;
        done.committed = done.records;
        if arguments.acknowledge {
            output::line(&format!("acknowledged {}", done.records))?;
        }
        bar.set_message(format!("{} records", done.records));
        Ok(())
    };
    while let Some(record) = records.next()? {
        let key = [prefix, &record.key].concat();
        done.key_value_bytes += (key.len() + record.value.len()) as u64;
        batch.put(keyspace, key, record.value);
        batch_records += 1;
        done.records += 1;
        bar.inc(record.input_bytes);
        if batch_records >= arguments.batch_records || batch.size_bytes() >= BATCH_BYTES_MAX {
            commit(&mut batch, done)?;
            batch_records = 0;
        }
    }
    if !batch.is_empty() {
        commit(&mut batch, done)?;
    }
    Ok(())
}

fn report(arguments: &Import, done: &Done, elapsed: Duration) -> Result<(), Failure> {
    let seconds = elapsed.as_secs_f64().max(1e-6);
    if arguments.json {
        return output::json(&serde_json::json!({
            "records": done.records,
            "batches": done.batches,
            "key_value_bytes": done.key_value_bytes,
            "seconds": seconds,
            "durability": arguments.durability.to_string(),
        }));
    }
    output::line(&format!(
        "imported {} records in {} batches, {}, in {seconds:.2} s ({:.0} records/s)",
        done.records,
        done.batches,
        output::size_text(done.key_value_bytes),
        done.records as f64 / seconds,
    ))
}
