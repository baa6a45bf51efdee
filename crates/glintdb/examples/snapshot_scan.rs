//! Reads one moment of the data while writers go on. A snapshot shows the same data for as long as
//! it is open, scanned forwards or backwards.
//!
//! `cargo run --release -p glintdb --example snapshot_scan`
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use glintdb::{Error, Options, Result};

const SENSORS: u32 = 100;
const READINGS: u32 = 50;

/// Returns a key that sorts by sensor, then by time: the readings of one sensor share a prefix.
fn key(sensor: u32, time: u32) -> String {
    format!("sensor-{sensor:04}/{time:08}")
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir().map_err(|error| Error::io("make a directory", error))?;
    let db = Options::default()
        .memory_budget_bytes(16 << 20)
        .open(directory.path().join("readings"))?;
    let readings = db.default_keyspace();
    for time in 0..READINGS {
        for sensor in 0..SENSORS {
            readings.put(key(sensor, time), format!("{}", sensor * time))?;
        }
    }

    let snapshot = db.snapshot();
    // The snapshot does not see later changes. Flushes and compactions do not affect it either.
    readings.delete_range(key(0, 0)..key(50, 0))?;
    for time in READINGS..2 * READINGS {
        readings.put(key(99, time), "later")?;
    }
    db.compact()?;

    let count = snapshot.iter(&readings).keys().count();
    assert_eq!(count, (SENSORS * READINGS) as usize);
    println!("the snapshot shows {count} readings");
    println!("the database holds {} now", readings.iter().keys().count());

    // Scan backwards, newest first, and stop after three entries.
    println!("the last three of sensor 7 in the snapshot:");
    for entry in snapshot.prefix(&readings, "sensor-0007/").rev().take(3) {
        let (key, value) = entry?;
        println!("  {} {}", key.escape_ascii(), value.escape_ascii());
    }
    assert_eq!(readings.prefix("sensor-0007/").count(), 0);

    // Look up many keys in one call. The engine submits the reads to the drive together.
    let wanted: Vec<String> = (0..SENSORS).map(|sensor| key(sensor, 10)).collect();
    let found = snapshot
        .multi_get(&readings, &wanted)
        .into_iter()
        .filter(|value| matches!(value, Ok(Some(_))))
        .count();
    assert_eq!(found, SENSORS as usize);
    println!("{found} of {} keys found with one multi_get", wanted.len());
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
