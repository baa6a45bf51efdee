//! `keyspaces`: lists them, creates one, drops one.

use crate::args::Keyspaces;
use crate::exit::Failure;
use crate::open::{self, Missing};
use crate::output;
use glintdb::{Durability, KeyspaceOptions};

pub(super) fn run(arguments: &Keyspaces) -> Result<(), Failure> {
    let missing = match arguments.create {
        Some(_) => Missing::Create,
        None => Missing::Refuse,
    };
    let db = open::database(&arguments.place, Durability::Os, missing)?;
    if let Some(name) = &arguments.create {
        db.create_keyspace(name, KeyspaceOptions::default())?;
    }
    if let Some(name) = &arguments.drop {
        db.drop_keyspace(name)?;
    }
    let mut listed = Vec::new();
    for name in db.keyspaces() {
        let keyspace = db.keyspace(&name)?;
        listed.push((name, keyspace.approximate_len()));
    }
    if arguments.json {
        let listed: Vec<_> = listed
            .iter()
            .map(|(name, records)| serde_json::json!({ "name": name, "records_estimate": records }))
            .collect();
        output::json(&listed.into())?;
    } else {
        for (name, records) in listed {
            output::line(&format!("{name}\tabout {records} records"))?;
        }
    }
    Ok(db.close()?)
}
