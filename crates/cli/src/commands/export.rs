//! `export`: the records of a keyspace or of all keyspaces, as one snapshot has them, in the order
//! of their keys.

use super::records::typed_option;
use crate::args::Export;
use crate::exit::Failure;
use crate::format::{self, Format, KeyspaceOptionTexts, WriteItems};
use crate::records::{Records, now_ms};
use crate::{open, output, progress};
use glintdb::{Keyspace, Snapshot};
use glintdb_server::EXPIRY_KEYSPACE;
use indicatif::ProgressBar;
use std::io::{BufWriter, Write};
use std::path::Path;

pub(super) fn run(arguments: &Export) -> Result<(), Failure> {
    if arguments.all && arguments.format == Format::Dpkg {
        return Err(Failure::Usage(
            "a package index cannot hold several keyspaces; `--format jsonl` and `binary` can"
                .into(),
        ));
    }
    let prefix = typed_option(arguments.prefix.as_deref())?.unwrap_or_default();
    let db = open::existing(&arguments.target.place)?;
    let names = match arguments.all {
        true => db.keyspaces(),
        false => vec![arguments.target.keyspace.clone()],
    };
    let keyspaces = names
        .iter()
        // The importing program makes it again.
        .filter(|name| !arguments.all || *name != EXPIRY_KEYSPACE)
        .map(|name| db.keyspace(name))
        .collect::<Result<Vec<Keyspace>, _>>()?;
    let snapshot = db.snapshot();
    let to_stdout = arguments.file.as_os_str() == "-";
    let output = output_file(&arguments.file, to_stdout)?;
    let mut writer = format::writer(arguments.format, output);
    let total = keyspaces
        .iter()
        .map(|keyspace| Ok(keyspace.count()?.keys()))
        .sum::<Result<u64, Failure>>()?;
    let bar = progress::records(total, arguments.quiet || to_stdout);
    let now_ms = now_ms();
    let mut written = 0;
    for keyspace in &keyspaces {
        if arguments.all {
            writer
                .keyspace(keyspace.name(), &changed_options(keyspace))
                .map_err(Failure::output)?;
        }
        let records = Records::of(keyspace.clone(), now_ms)?;
        written += write(&records, &snapshot, &prefix, writer.as_mut(), &bar)?;
    }
    writer.finish().map_err(Failure::output)?;
    bar.finish_and_clear();
    if to_stdout {
        return Ok(());
    }
    let of = match arguments.all {
        true => format!(" of {} keyspaces", keyspaces.len()),
        false => String::new(),
    };
    output::line(&format!(
        "exported {written} records{of} to {}",
        arguments.file.display()
    ))
}

/// Writes the records of one keyspace whose keys begin with `prefix`; how many there are.
fn write(
    records: &Records,
    snapshot: &Snapshot,
    prefix: &[u8],
    writer: &mut dyn WriteItems,
    bar: &ProgressBar,
) -> Result<u64, Failure> {
    let mut written = 0;
    for record in snapshot.prefix(records.keyspace(), prefix) {
        let (key, stored) = record?;
        if let Some(decoded) = records.decode(&key, stored)? {
            writer.record(&key, &decoded).map_err(Failure::output)?;
            written += 1;
        }
        bar.inc(1);
    }
    Ok(written)
}

/// The options of a keyspace that are not the default.
fn changed_options(keyspace: &Keyspace) -> KeyspaceOptionTexts {
    let changed = keyspace.options().changed().into_iter();
    changed
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn output_file(file: &Path, to_stdout: bool) -> Result<Box<dyn Write>, Failure> {
    if to_stdout {
        return Ok(Box::new(BufWriter::with_capacity(
            1 << 20,
            std::io::stdout(),
        )));
    }
    let created = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .map_err(|error| Failure::Io(format!("cannot create {}", file.display()), error))?;
    Ok(Box::new(BufWriter::with_capacity(1 << 20, created)))
}
