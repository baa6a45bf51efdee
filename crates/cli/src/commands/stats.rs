//! `stats`: the engine's figures, as it reports them.

use crate::args::Figures;
use crate::exit::Failure;
use crate::{open, output};

pub(super) fn run(arguments: &Figures) -> Result<(), Failure> {
    let db = open::existing(&arguments.place)?;
    let figures = serde_json::to_value(db.stats())
        .map_err(|error| Failure::Usage(format!("the figures have no JSON form: {error}")))?;
    if arguments.json {
        output::json(&figures)?;
    } else {
        output::bytes(output::figures(&figures).as_bytes())?;
    }
    Ok(db.close()?)
}
