//! `dump`: shows a file of a database line by line, without opening the database.

use crate::args::{Dump, directory_of};
use crate::exit::Failure;
use crate::{open, output};
use glintdb::inspect::{self, Field, Line};
use serde_json::{Map, Value, json};
use std::ops::ControlFlow;
use std::path::Path;

pub(super) fn run(arguments: &Dump) -> Result<(), Failure> {
    let file = &arguments.file;
    let limit = arguments.limit.unwrap_or(u64::MAX);
    if file.is_dir() || is_several(file) {
        return list(arguments, limit);
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let dir = directory_of(file);
    open::present(dir)?;
    let mut printed = Ok(());
    let mut lines = 0;
    let mut print = |line: Line| {
        if lines == limit {
            return ControlFlow::Break(());
        }
        lines += 1;
        printed = match arguments.json {
            true => output::line(&document(&line).to_string()),
            false => output::line(&line.to_string()),
        };
        match printed {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    inspect::dump(dir, &name, &mut print)?;
    printed
}

/// Whether it is `dirs:PATH,PATH`, and not a file in these directories.
fn is_several(file: &Path) -> bool {
    let paths = glintdb_flash::directories_of(file).ok().flatten();
    paths.is_some_and(|paths| paths.iter().all(|path| path.is_dir()))
}

/// Lists the files of a database.
fn list(arguments: &Dump, limit: u64) -> Result<(), Failure> {
    let files = inspect::files(&arguments.file)?;
    for ((name, bytes), _) in files.iter().zip(0..limit) {
        output::line(&match arguments.json {
            true => json!({ "file": name, "bytes": bytes }).to_string(),
            false => format!("{name}\t{bytes}"),
        })?;
    }
    Ok(())
}

/// A line as a JSON object. Keys and values that are not UTF-8 get `_base64` behind their name.
fn document(line: &Line) -> Value {
    let mut object = Map::new();
    object.insert("what".into(), line.what.into());
    for (name, field) in &line.fields {
        match field {
            Field::Number(number) => {
                // Every number of a dump is in one of the two ranges.
                let unsigned = u64::try_from(*number).map(Value::from);
                let signed = i64::try_from(*number).map(Value::from);
                object.insert((*name).into(), unsigned.or(signed).unwrap_or(Value::Null));
            }
            Field::Text(text) => {
                object.insert((*name).into(), text.as_str().into());
            }
            Field::Bytes(bytes) => output::put_bytes(&mut object, name, bytes),
        }
    }
    Value::Object(object)
}
