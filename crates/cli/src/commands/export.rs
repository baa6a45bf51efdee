//! `export`: the records of a keyspace, as one snapshot has them, in the order of their keys.

use super::records::typed_option;
use crate::args::Export;
use crate::exit::Failure;
use crate::{format, open, output, progress};
use std::io::{BufWriter, Write};
use std::path::Path;

pub(super) fn run(arguments: &Export) -> Result<(), Failure> {
    let prefix = typed_option(arguments.prefix.as_deref())?.unwrap_or_default();
    let keyspace = open::keyspace(&arguments.target)?;
    let to_stdout = arguments.file.as_os_str() == "-";
    let output = output_file(&arguments.file, to_stdout)?;
    let mut writer = format::writer(arguments.format, output);
    let bar = progress::records(keyspace.approximate_len(), arguments.quiet || to_stdout);
    let mut records = 0_u64;
    for record in keyspace.prefix(prefix) {
        let (key, value) = record?;
        writer.write(&key, &value).map_err(Failure::output)?;
        records += 1;
        bar.inc(1);
    }
    writer.finish().map_err(Failure::output)?;
    bar.finish_and_clear();
    if !to_stdout {
        output::line(&format!(
            "exported {records} records to {}",
            arguments.file.display()
        ))?;
    }
    Ok(())
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
