//! `keyspaces`: lists them, creates one, changes one's options, drops one.

use crate::args::Keyspaces;
use crate::exit::Failure;
use crate::open::{self, Missing};
use crate::output;
use glintdb_bench::GlintOptions;

pub(super) fn run(arguments: &Keyspaces) -> Result<(), Failure> {
    let missing = match arguments.create {
        Some(_) => Missing::Create,
        None => Missing::Refuse,
    };
    let assigned = open::assigned(&arguments.place, &arguments.option)?;
    if arguments.create.is_none() && arguments.change.is_none() && assigned.keyspace.is_some() {
        return Err(Failure::Usage(
            "an option of a keyspace needs --create NAME or --change NAME".into(),
        ));
    }
    let db = open::database(&arguments.place.dir, assigned.database, missing)?;
    if let Some(name) = &arguments.create {
        db.create_keyspace(name, assigned.keyspace.clone().unwrap_or_default())?;
    }
    if let Some(name) = &arguments.change {
        let keyspace = db.keyspace(name)?;
        let mut changed = GlintOptions {
            keyspace: Some(keyspace.options()),
            ..GlintOptions::default()
        };
        changed.set_all(arguments.option.iter().map(String::as_str))?;
        keyspace.set_options(changed.keyspace.unwrap_or_default())?;
    }
    if let Some(name) = &arguments.drop {
        db.drop_keyspace(name)?;
    }
    let mut listed = Vec::new();
    for name in db.keyspaces() {
        let keyspace = db.keyspace(&name)?;
        listed.push((name, keyspace.count()?, keyspace.options()));
    }
    if arguments.json {
        let listed: Vec<_> = listed
            .iter()
            .map(|(name, records, options)| {
                let options: serde_json::Map<_, _> = options
                    .entries()
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value.into()))
                    .collect();
                serde_json::json!({
                    "name": name,
                    "records": records.keys(),
                    "records_exact": records.is_exact(),
                    "options": options,
                })
            })
            .collect();
        output::json(&listed.into())?;
    } else {
        for (name, records, options) in listed {
            let plural = if records.keys() == 1 { "" } else { "s" };
            let mut line = format!("{name}\t{records} record{plural}");
            for (option, value) in options.changed() {
                line += &format!("\t{option}={value}");
            }
            output::line(&line)?;
        }
    }
    Ok(db.close()?)
}
