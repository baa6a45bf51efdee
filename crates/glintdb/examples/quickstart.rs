//! The first program. README.md quotes it between the two marks; a test compares them.
//!
//! `cargo run --release -p glintdb --example quickstart [DIRECTORY]`
#![allow(clippy::print_stdout, reason = "an example prints its results")]

// README: from here
use glintdb::{Batch, Db, KeyspaceOptions};

fn main() -> glintdb::Result<()> {
    let path = std::env::args()
        .nth(1)
        .unwrap_or("quickstart.db".to_owned());
    let db = Db::open(path)?;
    let fruit = db.keyspace_or_create("fruit", KeyspaceOptions::default())?;

    fruit.put("apple", "green")?;
    fruit.put("pear", "yellow")?;

    let mut batch = Batch::new();
    batch.put(&fruit, "cherry", "red").delete(&fruit, "pear");
    db.write(batch)?; // atomic: after a crash, both changes are there or neither

    for entry in fruit.range("a".."d") {
        let (name, colour) = entry?;
        println!("{}: {}", name.escape_ascii(), colour.escape_ascii());
    }
    assert_eq!(fruit.get("pear")?, None);
    Ok(())
}
// README: to here

#[test]
fn it_runs() {
    let directory = tempfile::tempdir().unwrap();
    std::env::set_current_dir(&directory).unwrap();
    main().unwrap();
}
