//! `flash-bench`: readers and writers on a modelled flash device, and pictures of its LUNs.

mod live;
mod picture;
mod plot;

use crate::args::FlashBench;
use crate::exit::Failure;
use crate::output;
use glintdb_bench::flash::{Looks, Run};
use live::Live;
use plot::Plot;

pub(super) fn run(arguments: &FlashBench) -> Result<(), Failure> {
    let bench = &arguments.bench;
    if bench.list_profiles || bench.print_profile {
        return Ok(bench.run(&mut std::io::stdout(), Looks::None)?);
    }
    // Wrong arguments are refused before the picture's file is there.
    bench.setups()?;
    let mut live = arguments.live.then(Live::new).transpose()?;
    let mut plot = arguments.plot.as_deref().map(Plot::open).transpose()?;
    let Some(live) = &mut live else {
        let mut look = |run: &Run<'_>| draw(plot.as_mut(), run);
        let looks = match arguments.plot.is_some() {
            true => Looks::Last(&mut look),
            false => Looks::None,
        };
        return Ok(bench.run(&mut std::io::stdout(), looks)?);
    };
    // The table would be drawn over.
    let mut table = Vec::new();
    let mut look = |run: &Run<'_>| {
        live.show(run)?;
        match run.number + 1 == run.of {
            true => draw(plot.as_mut(), run),
            false => Ok(()),
        }
    };
    let done = bench.run(&mut table, Looks::Each(&mut look));
    live.leave();
    output::bytes(&table)?;
    Ok(done?)
}

/// Writes the picture of a run, if there is one to be written.
fn draw(plot: Option<&mut Plot>, run: &Run<'_>) -> glintdb_bench::Result<()> {
    let Some(plot) = plot else {
        return Ok(());
    };
    let picture = picture::draw(run.setup, run.outcome).map_err(|error| error.to_string())?;
    plot.write(&picture)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use glintdb_flash::emulator::nand::{PROFILE_NAMES, Profile};
    use std::fmt::Write;

    const BEGIN: &str = "<!-- profiles:begin -->\n";
    const END: &str = "<!-- profiles:end -->";

    fn times(times: &[f64]) -> String {
        let text: Vec<String> = times.iter().map(f64::to_string).collect();
        text.join(" / ")
    }

    fn table() -> String {
        let mut table = String::from(
            "| profile | channels x LUNs x planes | page x pages x blocks | read | program | erase | bus MB/s | assumed |\n\
             |---|---|---|---|---|---|---|---|\n",
        );
        for name in PROFILE_NAMES {
            let profile = Profile::named(name).unwrap();
            let (geometry, of) = (&profile.geometry, &profile.times);
            let bus = of.bus_mb_s.map_or("-".into(), |rate| rate.to_string());
            let assumed: Vec<String> = (profile.assumed.iter())
                .map(|name| format!("`{name}`"))
                .collect();
            writeln!(
                table,
                "| `{name}` | {} x {} x {} | {} KiB x {} x {} | {} | {} | {} | {bus} | {} |",
                geometry.channels,
                geometry.luns,
                geometry.planes,
                geometry.page_bytes / 1024,
                geometry.pages,
                geometry.blocks,
                times(&of.read_us),
                times(&of.program_us),
                of.erase_us,
                assumed.join(", ")
            )
            .unwrap();
        }
        table
    }

    #[test]
    fn the_page_has_the_table_of_profiles() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flash.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (_, behind) = rest.split_once(END).unwrap();
        let made = format!("{before}{BEGIN}{}{END}{behind}", table());
        if std::env::var_os("GLINTDB_BLESS").is_some() {
            std::fs::write(path, &made).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page == made,
            "docs/flash.md is not up to date; GLINTDB_BLESS=1 updates it"
        );
    }
}
