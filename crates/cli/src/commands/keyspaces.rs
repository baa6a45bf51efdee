//! `keyspaces`: lists them, creates one, changes one's options, drops one.

use crate::args::Keyspaces;
use crate::exit::Failure;
use crate::open::{self, Missing};
use crate::output;
use glintdb::{Durability, Error, KeyspaceOptions};

pub(super) fn run(arguments: &Keyspaces) -> Result<(), Failure> {
    let missing = match arguments.create {
        Some(_) => Missing::Create,
        None => Missing::Refuse,
    };
    if arguments.create.is_none() && arguments.change.is_none() && !arguments.option.is_empty() {
        return Err(Error::invalid("--option needs --create NAME or --change NAME").into());
    }
    let db = open::database(&arguments.place, Durability::Os, missing)?;
    if let Some(name) = &arguments.create {
        let mut options = KeyspaceOptions::default();
        set_all(&mut options, &arguments.option)?;
        db.create_keyspace(name, options)?;
    }
    if let Some(name) = &arguments.change {
        let keyspace = db.keyspace(name)?;
        let mut options = keyspace.options();
        set_all(&mut options, &arguments.option)?;
        keyspace.set_options(options)?;
    }
    if let Some(name) = &arguments.drop {
        db.drop_keyspace(name)?;
    }
    let mut listed = Vec::new();
    for name in db.keyspaces() {
        let keyspace = db.keyspace(&name)?;
        let (records, options) = (keyspace.approximate_len(), keyspace.options());
        listed.push((name, records, options));
    }
    if arguments.json {
        let listed: Vec<_> = listed
            .iter()
            .map(|(name, records, options)| {
                let options: serde_json::Map<_, _> = options
                    .entries()
                    .map(|(name, value)| (name.to_owned(), value.into()))
                    .into_iter()
                    .collect();
                serde_json::json!({ "name": name, "records_estimate": records, "options": options })
            })
            .collect();
        output::json(&listed.into())?;
    } else {
        let usual = KeyspaceOptions::default().entries();
        for (name, records, options) in listed {
            let mut line = format!("{name}\tabout {records} records");
            for ((option, value), (_, default)) in options.entries().iter().zip(&usual) {
                if value != default {
                    line += &format!("\t{option}={value}");
                }
            }
            output::line(&line)?;
        }
    }
    Ok(db.close()?)
}

fn set_all(options: &mut KeyspaceOptions, assignments: &[String]) -> Result<(), Error> {
    for assignment in assignments {
        let (name, value) = assignment
            .split_once('=')
            .ok_or_else(|| Error::invalid(format!("`{assignment}` is not OPTION=VALUE")))?;
        options.set(name, value.trim())?;
    }
    Ok(())
}
