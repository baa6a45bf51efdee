//! `import`: records from a file or standard input, in batches.
//!
//! What is acknowledged on standard output is stored; a kill loses at most the batch that is being
//! written.

use crate::args::Import;
use crate::exit::Failure;
use crate::format::{self, Format, Item, KeyspaceOptionTexts, ReadItems};
use crate::open::{self, Missing};
use crate::{output, progress};
use glintdb::{
    Batch, Db, Durability, ErrorKind, KEY_BYTES_MAX, Keyspace, KeyspaceOptions, VALUE_BYTES_MAX,
};
use glintdb_server::{RecordCodec, StoredValue};
use indicatif::ProgressBar;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// A batch ends when it holds this much, whatever its number of records.
const BATCH_BYTES_MAX: usize = 1 << 20;

pub(super) fn run(arguments: &Import) -> Result<(), Failure> {
    if arguments.all && arguments.format == Format::Dpkg {
        return Err(Failure::Usage(
            "a package index holds no keyspaces; `--all` needs `--format jsonl` or `binary`".into(),
        ));
    }
    let (input, length) = input(&arguments.file)?;
    let place = &arguments.target.place;
    let options = open::options(place, &arguments.engine)?.durability(arguments.durability);
    // Refused before a database is made.
    open::of_created(&arguments.created)?;
    let (db, keyspace) = if arguments.all {
        (open::database(&place.dir, options, Missing::Create)?, None)
    } else {
        let keyspace = open::keyspace_to_write(&arguments.target, options, arguments.create)?;
        open::of_asked_kind(&keyspace, &arguments.created)?;
        (keyspace.db(), Some(keyspace))
    };
    let bar = progress::bytes(length, arguments.quiet);
    let importer = Importer {
        arguments,
        db: &db,
        bar: &bar,
        codec: keyspace.map(RecordCodec::new).transpose()?,
        batch: Batch::new(),
        batch_records: 0,
        done: Done::default(),
    };
    let (done, outcome) = importer.run(format::reader(arguments.format, input));
    bar.finish_and_clear();
    if let Err(failure) = outcome {
        output::note(&done.so_far(&failure));
        return Err(failure);
    }
    if arguments.durability == Durability::Buffered {
        db.flush_log(Durability::Os)?;
    }
    // The log then holds only what the index does not, and its space is given back.
    match db.flush() {
        // Every record is in the log all the same.
        Err(error) if error.kind() == ErrorKind::NoSpace => {}
        flushed => flushed?,
    }
    report(arguments, &done, bar.elapsed())?;
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

/// Figures of an import.
#[derive(Default)]
struct Done {
    /// Records read.
    records: u64,
    /// Of these, how many are in the database.
    committed: u64,
    batches: u64,
    key_value_bytes: u64,
    /// A batch was given to the database, which has not said yet that it is stored.
    committing: bool,
}

impl Done {
    /// What a failed import leaves in the database.
    fn so_far(&self, failure: &Failure) -> String {
        let stored = match self.committed {
            0 => "no record is stored".to_owned(),
            1 => "the first record is stored".to_owned(),
            n => format!("the first {n} records are stored"),
        };
        let batch = match self.records - self.committed {
            0 => return stored,
            1 => "1 record".to_owned(),
            n => format!("{n} records"),
        };
        let refused = matches!(
            failure,
            Failure::Engine(error)
                if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::InvalidArgument)
        );
        let (read, part) = match self.committing {
            false => ("read", "nothing"),
            true if refused => ("written", "nothing"),
            true => ("written", "all or nothing"),
        };
        format!("{stored}; of the batch that was being {read}, {batch}, {part} is stored")
    }
}

struct Importer<'a> {
    arguments: &'a Import,
    db: &'a Db,
    bar: &'a ProgressBar,
    /// Of the keyspace that takes the records; with `--all` `None` until the input names one.
    codec: Option<RecordCodec>,
    batch: Batch,
    batch_records: u64,
    done: Done,
}

impl Importer<'_> {
    /// Imports everything, or up to the first failure.
    fn run(mut self, input: Box<dyn ReadItems + '_>) -> (Done, Result<(), Failure>) {
        let outcome = self.copy(input);
        (self.done, outcome)
    }

    fn copy(&mut self, mut input: Box<dyn ReadItems + '_>) -> Result<(), Failure> {
        while let Some((item, input_bytes)) = input.next()? {
            match item {
                Item::Keyspace { name, options } => {
                    self.enter(&name, &options).map_err(at(&*input))?;
                }
                Item::Record { key, stored } => {
                    self.put(&key, &stored).map_err(at(&*input))?;
                }
            }
            self.bar.inc(input_bytes);
            if self.batch_records >= self.arguments.batch_records
                || self.batch.size_bytes() >= BATCH_BYTES_MAX
            {
                self.commit()?;
            }
        }
        self.commit()
    }

    fn put(&mut self, key: &[u8], stored: &StoredValue) -> Result<(), Failure> {
        let Some(codec) = &mut self.codec else {
            return Err(Failure::Usage(
                "a record before any keyspace; without `--all` it goes into the keyspace of `--keyspace`"
                    .into(),
            ));
        };
        let key = [self.arguments.key_prefix.as_bytes(), key].concat();
        for (what, length, max) in [
            ("key", key.len(), KEY_BYTES_MAX),
            ("value", stored.value.len(), VALUE_BYTES_MAX),
        ] {
            if length > max {
                return Err(Failure::Usage(format!(
                    "a {what} of {length} bytes, {max} at most"
                )));
            }
        }
        codec.put(&mut self.batch, &key, stored)?;
        self.done.key_value_bytes += (key.len() + stored.value.len()) as u64;
        self.done.records += 1;
        self.batch_records += 1;
        Ok(())
    }

    /// Goes on with the keyspace `name`. One that is missing or empty gets the options; one with
    /// records keeps its own.
    fn enter(&mut self, name: &str, options: &KeyspaceOptionTexts) -> Result<(), Failure> {
        if !self.arguments.all {
            return Err(Failure::Usage(format!(
                "keyspace {name:?} begins; `--all` imports an input with keyspaces"
            )));
        }
        let mut wanted = KeyspaceOptions::default();
        for (name, value) in options {
            wanted.set(name, value)?;
        }
        let keyspace = match self.db.keyspace(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.db.create_keyspace(name, wanted)?
            }
            found => {
                let keyspace = found?;
                self.adapt(&keyspace, wanted)?;
                keyspace
            }
        };
        self.codec = Some(RecordCodec::new(keyspace)?);
        Ok(())
    }

    fn adapt(&mut self, keyspace: &Keyspace, wanted: KeyspaceOptions) -> Result<(), Failure> {
        if keyspace.options() == wanted {
            return Ok(());
        }
        // Its records may be in the batch.
        self.commit()?;
        if keyspace.iter().keys().next().transpose()?.is_none() {
            return Ok(keyspace.set_options(wanted)?);
        }
        output::note(&format!(
            "keyspace {:?} has records and keeps its options; the input has others",
            keyspace.name()
        ));
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        self.batch_records = 0;
        let done = &mut self.done;
        done.committing = true;
        self.db.write_with(batch, self.arguments.durability)?;
        done.committing = false;
        done.batches += 1;
        done.committed = done.records;
        if self.arguments.acknowledge {
            output::line(&format!("acknowledged {}", done.records))?;
        }
        self.bar.set_message(format!("{} records", done.records));
        Ok(())
    }
}

/// Puts the place of the item that is being imported before a failure.
fn at(input: &dyn ReadItems) -> impl Fn(Failure) -> Failure {
    let place = input.place();
    move |failure| match failure {
        Failure::Usage(why) => Failure::Usage(format!("{place}: {why}")),
        Failure::Engine(error) => Failure::Engine(error.context(&place)),
        other => other,
    }
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
