//! `check`: every byte read and verified. What is wrong is named; code 1 then, also where the database is too broken to open.

use crate::args::Figures;
use crate::exit::Failure;
use crate::{open, output};
use glintdb::{Error, VerifyReport};
use serde_json::{Map, Value};

pub(super) fn run(arguments: &Figures) -> Result<(), Failure> {
    let dir = &arguments.place.dir;
    open::present(dir)?;
    let report = glintdb::check(dir)?;
    if arguments.json {
        output::json(&document(&report))?;
    } else {
        for error in &report.errors {
            output::line(&format!("wrong: {error}"))?;
        }
        output::line(&format!(
            "{}: {} files, {} ({} bytes), {} entries, {} separated values, {} errors",
            if report.is_clean() {
                "clean"
            } else {
                "NOT clean"
            },
            report.files,
            output::size_text(report.bytes),
            report.bytes,
            report.entries,
            report.values,
            report.errors.len(),
        ))?;
    }
    if report.is_clean() {
        Ok(())
    } else {
        Err(Failure::Negative)
    }
}

fn document(report: &VerifyReport) -> Value {
    let errors: Vec<Value> = report.errors.iter().map(error_document).collect();
    serde_json::json!({
        "clean": report.is_clean(),
        "files": report.files,
        "bytes": report.bytes,
        "entries": report.entries,
        "values": report.values,
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
