//! `salvage`: what is intact of a damaged database, as a new one. Code 1 where something is lost.

use crate::args::Salvage;
use crate::exit::Failure;
use crate::{open, output, progress};
use glintdb::{SalvageOptions, SalvageReport};
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub(super) fn run(arguments: &Salvage) -> Result<(), Failure> {
    open::present(&arguments.dir)?;
    let bar = progress::bytes(Some(0), arguments.quiet);
    let mut options = SalvageOptions::default();
    options.memory_budget_bytes = (arguments.memory_mb as usize) << 20;
    let shown = bar.clone();
    options.progress = Some(Arc::new(move |now| {
        shown.set_length(now.total_bytes);
        shown.set_position(now.done_bytes);
    }));
    let report = glintdb::salvage(&arguments.dir, &arguments.out, &options);
    bar.finish_and_clear();
    let report = report?;
    if arguments.json {
        output::json(&document(&report))?;
    } else {
        tell(&report)?;
    }
    if report.is_complete() {
        Ok(())
    } else {
        Err(Failure::Negative)
    }
}

fn tell(report: &SalvageReport) -> Result<(), Failure> {
    for error in &report.damage {
        output::line(&format!("damaged: {error}"))?;
    }
    for (keyspace, key) in &report.lost_keys {
        output::line(&format!(
            "lost: the newest value of {} in {keyspace}",
            output::printable(key)
        ))?;
    }
    for note in &report.notes {
        output::line(&format!("note: {note}"))?;
    }
    for (name, records) in &report.keyspaces {
        output::line(&format!("{name}: {records} records"))?;
    }
    output::line(&format!(
        "{}: {} records, {} ({} bytes), {} damaged places, {} keys without their newest value, {} commits missing, {} records uncertain",
        if report.is_complete() {
            "complete"
        } else {
            "NOT complete"
        },
        report.records(),
        output::size_text(report.bytes),
        report.bytes,
        report.damaged,
        report.lost,
        report.commits_lost,
        report.uncertain,
    ))
}

fn document(report: &SalvageReport) -> Value {
    let damage: Vec<Value> = report
        .damage
        .iter()
        .map(|error| {
            let (file, offset) = error.place().unzip();
            json!({"message": error.to_string(), "file": file, "offset": offset})
        })
        .collect();
    let lost: Vec<Value> = report
        .lost_keys
        .iter()
        .map(|(keyspace, key)| {
            let mut object = Map::new();
            object.insert("keyspace".into(), keyspace.as_str().into());
            output::put_bytes(&mut object, "key", key);
            Value::Object(object)
        })
        .collect();
    let files: Map<String, Value> = report
        .files
        .iter()
        .map(|(name, file)| {
            let figures =
                json!({"bytes": file.bytes, "records": file.records, "damaged": file.damaged});
            (name.clone(), figures)
        })
        .collect();
    json!({
        "complete": report.is_complete(),
        "manifest_whole": report.manifest_whole,
        "closed": report.closed,
        "records": report.records(),
        "bytes": report.bytes,
        "keyspaces": report.keyspaces,
        "damaged": report.damaged,
        "damage": damage,
        "lost": report.lost,
        "lost_keys": lost,
        "commits_lost": report.commits_lost,
        "uncertain": report.uncertain,
        "notes": report.notes,
        "files": files,
    })
}
