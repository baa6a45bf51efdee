//! `check`: reads and verifies every byte, and lists the errors. Ends with code 1 if there are any,
//! also if the database is too damaged to open.

use crate::args::Check;
use crate::exit::{Failure, salvage_hint};
use crate::{open, output, progress};
use glintdb::{Error, VerifyReport};
use serde_json::{Map, Value};

pub(super) fn run(arguments: &Check) -> Result<(), Failure> {
    let dir = &arguments.dir;
    open::present(dir)?;
    let bar = progress::bytes(Some(0), false);
    let report = glintdb::check_with(dir, &mut |now| {
        bar.set_length(now.total_bytes);
        bar.set_position(now.done_bytes);
    });
    bar.finish_and_clear();
    let report = report?;
    if arguments.json {
        output::json(&document(&report))?;
    } else {
        for error in &report.errors {
            output::line(&format!("wrong: {error}"))?;
        }
        output::line(&format!(
            "{}: {} files, {} ({} bytes), {} errors",
            if report.is_clean() {
                "clean"
            } else {
                "NOT clean"
            },
            report.files,
            output::size_text(report.bytes),
            report.bytes,
            report.errors.len(),
        ))?;
        output::line(&format!(
            "entries: {} in tables + {} in the log = {}",
            report.table_entries,
            report.log_entries,
            report.entries(),
        ))?;
        output::line(&format!(
            "separated values: {} of tables + {} in the log = {}",
            report.table_values,
            report.log_values,
            report.values(),
        ))?;
    }
    if report.is_clean() {
        return Ok(());
    }
    if !arguments.json {
        output::line(&salvage_hint(dir))?;
    }
    Err(Failure::Negative)
}

fn document(report: &VerifyReport) -> Value {
    let errors: Vec<Value> = report.errors.iter().map(error_document).collect();
    serde_json::json!({
        "clean": report.is_clean(),
        "files": report.files,
        "bytes": report.bytes,
        "entries": report.entries(),
        "table_entries": report.table_entries,
        "log_entries": report.log_entries,
        "values": report.values(),
        "table_values": report.table_values,
        "log_values": report.log_values,
        "errors": errors,
    })
}

fn error_document(error: &Error) -> Value {
    let mut object = Map::new();
    object.insert("message".into(), error.to_string().into());
    if let Some((file, offset)) = error.place() {
        object.insert("file".into(), file.into());
        object.insert("offset".into(), offset.into());
    }
    Value::Object(object)
}
