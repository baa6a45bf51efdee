//! Keeps records in one keyspace and a secondary index over them in another. Each change is one
//! batch over both keyspaces. A batch is applied as a whole or not at all, so record and index
//! always agree.
//!
//! `cargo run --release -p glintdb --example batch_keyspaces`
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use glintdb::{
    Batch, Compression, Db, Durability, Error, Keyspace, KeyspaceOptions, Options, Result,
};

struct Users {
    db: Db,
    /// Maps an id to a city.
    by_id: Keyspace,
    /// The index: keys are city, a zero byte, id. Values are empty.
    by_city: Keyspace,
}

impl Users {
    fn open(db: Db) -> Result<Users> {
        let by_id = db.keyspace_or_create(
            "users",
            KeyspaceOptions::default().compression(Compression::Lz4),
        )?;
        let by_city = db.keyspace_or_create("users by city", KeyspaceOptions::default())?;
        Ok(Users { db, by_id, by_city })
    }

    /// Stores the city of `id` and replaces the old index entry in the same commit. Expects one
    /// writer at a time: with several, use a transaction.
    fn put(&self, id: &str, city: &str, durability: Durability) -> Result<()> {
        let mut batch = Batch::new();
        if let Some(old) = self.by_id.get(id)? {
            batch.delete(&self.by_city, entry(&old, id));
        }
        batch
            .put(&self.by_id, id, city)
            .put(&self.by_city, entry(city.as_bytes(), id), "");
        self.db.write_with(batch, durability)
    }

    /// Returns the ids in a city, in order.
    fn of_city(&self, city: &str) -> Result<Vec<String>> {
        let prefix = entry(city.as_bytes(), "");
        self.by_city
            .prefix(&prefix)
            .keys()
            .map(|key| Ok(key?[prefix.len()..].escape_ascii().to_string()))
            .collect()
    }
}

/// Returns the index key of an id in a city.
fn entry(city: &[u8], id: &str) -> Vec<u8> {
    [city, &[0], id.as_bytes()].concat()
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir().map_err(|error| Error::io("make a directory", error))?;
    let path = directory.path().join("users");
    let options = || Options::default().memory_budget_bytes(16 << 20);

    let users = Users::open(options().open(&path)?)?;
    users.put("ann", "Lisbon", Durability::Os)?;
    users.put("bob", "Lisbon", Durability::Os)?;
    users.put("cy", "Oslo", Durability::Os)?;
    // When this call returns, this commit and all before it survive a power cut.
    users.put("bob", "Oslo", Durability::Sync)?;
    drop(users);

    let users = Users::open(options().open(&path)?)?;
    assert_eq!(users.of_city("Lisbon")?, ["ann"]);
    assert_eq!(users.of_city("Oslo")?, ["bob", "cy"]);
    println!("Oslo: {}", users.of_city("Oslo")?.join(", "));
    println!("keyspaces: {}", users.db.keyspaces().join(", "));
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
